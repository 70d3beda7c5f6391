//! Foreign keys. PostgreSQL says which one; SQLite says only that there is one.

use super::*;

/// A row that refers to what is another wallet's, or is not there; or the end of what is referred to.
const BREAKING: [(&str, &str); 25] = [
    ("fkey_utxos_tx", "INSERT INTO utxos VALUES (2, 99, 1, 9, 1, 3, 0, TRUE, NULL, NULL)"),
    // Of another wallet, of another account, of none.
    ("fkey_utxos_address", "INSERT INTO utxos VALUES (1, 99, 1, 9, 1, 3, 0, TRUE, NULL, NULL)"),
    ("fkey_utxos_address", "INSERT INTO utxos VALUES (1, 99, 1, 9, 1, 2, 0, TRUE, NULL, NULL)"),
    ("fkey_utxos_address", "INSERT INTO utxos VALUES (1, 99, 1, 9, 1, 77, 0, TRUE, NULL, NULL)"),
    ("fkey_utxos_address", "UPDATE addresses SET account = 7 WHERE id = 3"),
    ("fkey_utxos_spent_by", "UPDATE utxos SET spent_by_tx_id = 5, spent_input_index = 0 WHERE id = 2"),
    ("fkey_utxo_leases_utxo", "INSERT INTO utxo_leases VALUES (2, 1, #dd, 0)"),
    ("fkey_utxo_claims_utxo", "INSERT INTO utxo_claims VALUES (2, 1, #dd)"),
    ("fkey_transaction_labels", "INSERT INTO transaction_labels VALUES (2, 1, 'x', '', 0)"),
    ("fkey_address_labels", "INSERT INTO address_labels VALUES (2, 1, 'x', '', 0)"),
    ("fkey_tx_replacements_replaced", "INSERT INTO tx_replacements VALUES (2, 99, 1, 5, 0)"),
    ("fkey_tx_replacements_replacement", "INSERT INTO tx_replacements VALUES (2, 99, 5, 1, 0)"),
    ("fkey_tx_inputs_tx", "INSERT INTO tx_inputs VALUES (2, 1, 0, #aa, 0, TRUE)"),
    ("fkey_transactions_block", "UPDATE transactions SET block_height = 999 WHERE id = 1"),
    ("fkey_transactions_block", "UPDATE blocks SET block_height = 200 WHERE block_height = 100"),
    ("addresses_wallet_id_fkey", "INSERT INTO addresses VALUES (77, 99, 0, 0, 9, 'p2tr', #aa, 0)"),
    ("account_totals_wallet_id_fkey", "INSERT INTO account_totals VALUES (77, 0, 0, 0, 0, 0)"),
    // A transaction with outputs, a transaction that spends, an address with outputs, an address with a label.
    ("fkey_utxos_tx", "DELETE FROM transactions WHERE id = 4"),
    ("fkey_utxos_spent_by", "DELETE FROM transactions WHERE id = 12"),
    ("fkey_utxos_address", "DELETE FROM addresses WHERE id = 3"),
    ("fkey_address_labels", "DELETE FROM addresses WHERE id = 2"),
    // Wallets that have nothing but an address, a transaction, a total, an event.
    ("addresses_wallet_id_fkey", "DELETE FROM wallets WHERE id = 3"),
    ("transactions_wallet_id_fkey", "DELETE FROM wallets WHERE id = 4"),
    ("account_totals_wallet_id_fkey", "DELETE FROM wallets WHERE id = 5"),
    ("transaction_events_wallet_id_fkey", "DELETE FROM wallets WHERE id = 6"),
];

const MORE: &str = "
INSERT INTO wallets (id, name, network, status, created_at) VALUES (3, '3', 'regtest', 'active', 0),
    (4, '4', 'regtest', 'active', 0), (5, '5', 'regtest', 'active', 0), (6, '6', 'regtest', 'active', 0);
INSERT INTO addresses VALUES (3, 13, 0, 0, 0, 'p2wpkh', #ad, 0);
INSERT INTO transactions (wallet_id, id, tx_hash, raw_tx, status, received_time, is_coinbase, is_own) VALUES
    (4, 14, #14, #00, 'published', 0, FALSE, FALSE), (1, 12, #12, #00, 'published', 0, FALSE, FALSE);
INSERT INTO tx_inputs VALUES (1, 12, 0, #04, 0, TRUE);
UPDATE utxos SET spent_by_tx_id = 12, spent_input_index = 0 WHERE id = 5;
INSERT INTO account_totals VALUES (5, 0, 0, 0, 0, 0);
INSERT INTO transaction_events (wallet_id, id, tx_hash, status, reason, actor, at) VALUES (6, 16, #aa, 'failed', '', '', 0)";

fn is_foreign_key(engine: Engine, error: &sqlx::Error, name: &str) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    match engine {
        Engine::Postgres => error.constraint() == Some(name),
        Engine::Sqlite => error.message() == "FOREIGN KEY constraint failed",
    }
}

const COUNT_ROWS: &str = "SELECT CAST((SELECT COUNT(*) FROM wallets) + (SELECT COUNT(*) FROM addresses)
    + (SELECT COUNT(*) FROM transactions) + (SELECT COUNT(*) FROM utxos) + (SELECT COUNT(*) FROM tx_inputs)
    + (SELECT COUNT(*) FROM utxo_leases) + (SELECT COUNT(*) FROM tx_replacements) AS TEXT)";

db_test! {
    async fn no_row_refers_to_another_wallets_and_none_is_left_without_its_parent(db: TestDb) {
        set_up(db).await;
        by_hand(db, MORE).await.unwrap();
        // SQLite asks the trigger before the foreign key; here the foreign key is meant. The trigger's turn is elsewhere.
        if db.engine() == Engine::Sqlite {
            by_hand(db, "DROP TRIGGER trg_utxo_spender_update").await.unwrap();
        }
        let before = ask(db, COUNT_ROWS).await;
        for (name, statement) in BREAKING {
            let error = by_hand(db, statement).await.expect_err(statement);
            assert!(is_foreign_key(db.engine(), &error, name), "{name}: {error:?} of {statement}");
        }
        assert_eq!(ask(db, COUNT_ROWS).await, before);
    }

    async fn an_output_is_not_spent_by_another_wallets_transaction(db: TestDb) {
        set_up(db).await;
        // Wallet 2 does have a transaction with such an input.
        by_hand(db, "INSERT INTO tx_inputs VALUES (2, 5, 0, #01, 1, TRUE)").await.unwrap();
        let statement = "UPDATE utxos SET spent_by_tx_id = 5, spent_input_index = 0 WHERE id = 2";
        by_hand(db, statement).await.expect_err(statement);
        assert_eq!(ask(db, "SELECT CAST(id AS TEXT) FROM utxos WHERE spent_by_tx_id = 5").await, "");
    }

    async fn a_prune_takes_along_what_only_describes_the_transaction(db: TestDb) {
        set_up(db).await;
        let rows = "SELECT 'input ' || CAST(tx_id AS TEXT) FROM tx_inputs WHERE tx_id = 3
            UNION ALL SELECT 'edge' FROM tx_replacements UNION ALL SELECT 'label' FROM transaction_labels WHERE tx_id = 3
            UNION ALL SELECT 'lease' FROM utxo_leases WHERE utxo_id = 4
            UNION ALL SELECT 'event' FROM transaction_events ORDER BY 1";
        assert_eq!(ask(db, rows).await, "edge, event, input 3, label, lease");
        let error = by_hand(db, "DELETE FROM transactions WHERE id = 3").await.expect_err("it has an output");
        assert!(is_foreign_key(db.engine(), &error, "fkey_utxos_tx"), "{error:?}");
        assert_eq!(ask(db, rows).await, "edge, event, input 3, label, lease");
        by_hand(db, "DELETE FROM utxos WHERE tx_id = 3").await.unwrap();
        by_hand(db, "DELETE FROM transactions WHERE id = 3").await.unwrap();
        assert_eq!(ask(db, rows).await, "event");
    }

    // The edge goes with either of its ends. What the transaction spent is cleared by whoever prunes.
    async fn a_prune_of_a_spender_clears_both_columns_first(db: TestDb) {
        set_up(db).await;
        let table = if db.engine() == Engine::Postgres { " ON utxos" } else { "" };
        by_hand(db, &format!("DROP TRIGGER trg_output_kept{table}")).await.unwrap();
        by_hand(db, "DELETE FROM utxos WHERE tx_id = 2").await.unwrap();
        let error = by_hand(db, "DELETE FROM transactions WHERE id = 2").await.expect_err("it spends");
        assert!(is_foreign_key(db.engine(), &error, "fkey_utxos_spent_by"), "{error:?}");
        by_hand(db, "UPDATE utxos SET spent_by_tx_id = NULL, spent_input_index = NULL WHERE spent_by_tx_id = 2;
            DELETE FROM transactions WHERE id = 2").await.unwrap();
        assert_eq!(ask(db, "SELECT 'edge' FROM tx_replacements").await, "");
        assert_eq!(ask(db, "SELECT CAST(wallet_id AS TEXT) FROM utxos WHERE id = 1").await, "1");
    }
}
