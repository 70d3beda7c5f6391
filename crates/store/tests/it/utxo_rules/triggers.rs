//! What the database does by itself when a block or a transaction changes.

use super::*;

const OUTPUTS: &str = "SELECT CAST(id AS TEXT) || CASE WHEN valid THEN '' ELSE ' invalid' END
    || COALESCE(' by ' || CAST(spent_by_tx_id AS TEXT) || '/' || CAST(spent_input_index AS TEXT), '') FROM utxos ORDER BY id";
const TRANSACTIONS: &str = "SELECT CAST(id AS TEXT) || ' ' || status || COALESCE(' ' || CAST(block_height AS TEXT), '')
    FROM transactions ORDER BY id";
const ACTIVE_INPUTS: &str = "SELECT CAST(tx_id AS TEXT) FROM tx_inputs WHERE active ORDER BY tx_id";

const AT_FIRST: &str = "1 by 2/0, 2, 3, 4 invalid, 5, 6, 7";

db_test! {
    async fn a_deleted_block_leaves_payments_unconfirmed_and_its_coinbase_orphaned(db: TestDb) {
        set_up(db).await;
        assert_eq!(ask(db, OUTPUTS).await, AT_FIRST);
        let delete = "DELETE FROM blocks WHERE block_height = 100";
        match db.engine() {
            Engine::Postgres => by_hand(db, delete).await.unwrap(),
            Engine::Sqlite => {
                assert_violates(by_hand(db, delete).await, Constraint::CoinbaseConfirmation, delete);
                assert_eq!(ask(db, "SELECT CAST(block_height AS TEXT) FROM blocks ORDER BY 1").await, "100, 101");
                assert_eq!(ask(db, OUTPUTS).await, AT_FIRST);
                by_hand(db, "BEGIN; UPDATE transactions SET block_height = NULL, status = 'orphaned'
                    WHERE block_height = 100 AND is_coinbase; DELETE FROM blocks WHERE block_height = 100; COMMIT").await.unwrap();
            }
        }
        assert_eq!(ask(db, TRANSACTIONS).await, "1 published, 2 published, 3 failed, 4 orphaned, 5 published, 6 pending");
        assert_eq!(ask(db, OUTPUTS).await, "1 by 2/0, 2, 3, 4 invalid, 5 invalid, 6, 7");
        // Mined again, it is worth something again; half of the change is refused.
        let half = "UPDATE transactions SET block_height = 101 WHERE id = 4";
        let error: StoreError = by_hand(db, half).await.expect_err(half).into();
        assert!(matches!(error, StoreError::Violates(_)), "{error:?}");
        by_hand(db, "UPDATE transactions SET block_height = 101, status = 'published' WHERE id = 4").await.unwrap();
        assert_eq!(ask(db, OUTPUTS).await, AT_FIRST);
    }

    async fn a_transaction_that_ends_spends_nothing_and_has_nothing(db: TestDb) {
        set_up(db).await;
        for ended in ["failed", "replaced"] {
            by_hand(db, &format!("UPDATE transactions SET status = '{ended}' WHERE id = 2")).await.unwrap();
            assert_eq!(ask(db, OUTPUTS).await, "1, 2, 3 invalid, 4 invalid, 5, 6, 7");
            assert_eq!(ask(db, ACTIVE_INPUTS).await, "6");
            // Back again: what it spends is for the store to write, and the database lets it.
            by_hand(db, "UPDATE transactions SET status = 'published' WHERE id = 2").await.unwrap();
            assert_eq!(ask(db, OUTPUTS).await, "1, 2, 3, 4 invalid, 5, 6, 7");
            assert_eq!(ask(db, ACTIVE_INPUTS).await, "2, 6");
            by_hand(db, "UPDATE utxos SET spent_by_tx_id = 2, spent_input_index = 0 WHERE id = 1").await.unwrap();
            assert_eq!(ask(db, OUTPUTS).await, AT_FIRST);
        }
        // From one kind of valid, or of invalid, to the other: nothing moves.
        by_hand(db, "UPDATE transactions SET status = 'published' WHERE id = 6").await.unwrap();
        by_hand(db, "UPDATE transactions SET status = 'replaced' WHERE id = 3").await.unwrap();
        by_hand(db, "UPDATE transactions SET block_height = 101 WHERE id = 2").await.unwrap();
        assert_eq!(ask(db, OUTPUTS).await, AT_FIRST);
        assert_eq!(ask(db, ACTIVE_INPUTS).await, "2, 6");
    }

    async fn of_two_that_spend_the_same_one_is_valid(db: TestDb) {
        set_up(db).await;
        let revive = "UPDATE transactions SET status = 'published' WHERE id = 3";
        assert_violates(by_hand(db, revive).await, Constraint::OneValidSpender, revive);
        assert_eq!(ask(db, TRANSACTIONS).await,
            "1 published 100, 2 published, 3 failed, 4 published 100, 5 published 100, 6 pending");
        assert_eq!(ask(db, OUTPUTS).await, AT_FIRST);
        by_hand(db, "UPDATE transactions SET status = 'replaced' WHERE id = 2").await.unwrap();
        by_hand(db, revive).await.unwrap();
        assert_eq!(ask(db, ACTIVE_INPUTS).await, "3, 6");
        assert_eq!(ask(db, OUTPUTS).await, "1, 2, 3 invalid, 4, 5, 6, 7");
    }

    // One after the other in one statement, each spending from the one before it.
    async fn a_whole_chain_ends_and_comes_back_in_one_statement(db: TestDb) {
        set_up(db).await;
        let mut rows = String::new();
        for id in 10..60 {
            let parent = if id == 10 { 2 } else { id - 1 };
            rows += &format!("
                INSERT INTO transactions (wallet_id, id, tx_hash, raw_tx, status, received_time, is_coinbase, is_own)
                    VALUES (1, {id}, #{id}, #00, '{}', 0, FALSE, TRUE);
                INSERT INTO tx_inputs VALUES (1, {id}, 0, #{parent:02}, 0, TRUE);
                UPDATE utxos SET spent_by_tx_id = {id}, spent_input_index = 0 WHERE tx_id = {parent};
                INSERT INTO utxos VALUES (1, {id}, {id}, 0, 1, 1, 0, TRUE, NULL, NULL);",
                if id % 2 == 0 { "published" } else { "pending" });
        }
        by_hand(db, &format!("BEGIN; {rows} COMMIT")).await.unwrap();
        let chain = "SELECT CAST(COUNT(*) AS TEXT) || CASE WHEN u.valid THEN ' valid' ELSE ' invalid' END
            || CASE WHEN u.spent_by_tx_id IS NULL THEN ' unspent' ELSE ' spent' END
            || CASE WHEN i.active THEN ' active' ELSE ' inactive' END
            FROM utxos u JOIN tx_inputs i ON i.tx_id = u.tx_id WHERE u.id >= 10
            GROUP BY u.valid, u.spent_by_tx_id IS NULL, i.active ORDER BY 1";
        assert_eq!(ask(db, chain).await, "1 valid unspent active, 49 valid spent active");
        let given: Vec<String> = (10..60).map(|id| format!(
            "SELECT {id} AS id, '{}' AS ended", if id % 3 == 0 { "replaced" } else { "failed" })).collect();
        let given = given.join(" UNION ALL ");
        by_hand(db, &format!("UPDATE transactions SET status = r.ended FROM ({given}) AS r
            WHERE transactions.wallet_id = 1 AND transactions.id = r.id")).await.unwrap();
        assert_eq!(ask(db, chain).await, "50 invalid unspent inactive");
        // The root of it is free again, and nothing else has changed.
        assert_eq!(ask(db, &OUTPUTS.replace("ORDER BY", "WHERE id < 10 ORDER BY")).await, AT_FIRST);
        by_hand(db, &format!("UPDATE transactions SET status = 'published' FROM ({given}) AS r
            WHERE transactions.wallet_id = 1 AND transactions.id = r.id")).await.unwrap();
        assert_eq!(ask(db, chain).await, "50 valid unspent active");
        by_hand(db, "UPDATE utxos SET spent_by_tx_id = i.tx_id, spent_input_index = i.input_index
            FROM tx_inputs i JOIN transactions p ON p.wallet_id = i.wallet_id AND p.tx_hash = i.prev_hash
            WHERE i.active AND i.tx_id >= 10 AND utxos.wallet_id = i.wallet_id AND utxos.tx_id = p.id
                AND utxos.output_index = i.prev_index").await.unwrap();
        assert_eq!(ask(db, chain).await, "1 valid unspent active, 49 valid spent active");
    }

    async fn a_row_that_is_there_already_is_left_alone_whatever_it_would_have_said(db: TestDb) {
        set_up(db).await;
        by_hand(db, "INSERT INTO utxos VALUES (1, 99, 3, 0, 900, 1, 0, TRUE, NULL, NULL) ON CONFLICT DO NOTHING").await.unwrap();
        by_hand(db, "INSERT INTO tx_inputs VALUES (1, 3, 0, #01, 0, TRUE) ON CONFLICT DO NOTHING").await.unwrap();
        assert_eq!(ask(db, OUTPUTS).await, AT_FIRST);
    }

    async fn spendable_is_what_is_unspent_and_of_a_valid_transaction(db: TestDb) {
        set_up(db).await;
        let spendable = "SELECT CAST(id AS TEXT) || ' ' || tx_status || CASE WHEN is_coinbase THEN ' coinbase' ELSE '' END
            || COALESCE(' ' || CAST(block_height AS TEXT), '') FROM spendable_utxos ORDER BY id";
        let all = "2 published 100, 3 published, 5 published coinbase 100, 6 published 100, 7 pending";
        assert_eq!(ask(db, spendable).await, all);
        by_hand(db, "UPDATE transactions SET block_height = NULL, status = 'orphaned' WHERE id = 4").await.unwrap();
        by_hand(db, "UPDATE transactions SET status = 'replaced' WHERE id = 2").await.unwrap();
        by_hand(db, "UPDATE transactions SET status = 'failed' WHERE id = 6").await.unwrap();
        assert_eq!(ask(db, spendable).await, "1 published 100, 2 published 100, 6 published 100");
    }
}

// Only PostgreSQL has statements of several parts, and it chooses their order.
#[test]
fn postgres_checks_an_output_written_in_one_statement_with_its_transaction() {
    store::testing::on(Engine::Postgres, async |db| {
        set_up(db).await;
        let parts = [
            "INSERT INTO transactions (wallet_id, id, tx_hash, raw_tx, status, received_time, is_coinbase, is_own)
            VALUES (1, 90, #90, #00, 'failed', 0, FALSE, FALSE)",
            "INSERT INTO utxos VALUES (1, 90, 90, 0, 1, 1, 0, VALID, NULL, NULL)",
            "INSERT INTO tx_inputs VALUES (1, 90, 0, #f1, 0, ACTIVE)",
        ];
        let together = |order: [usize; 3], valid: &str, active: &str| {
            let [a, b, c] = order.map(|at| parts[at].replace("VALID", valid).replace("ACTIVE", active));
            format!("WITH a AS ({a}), b AS ({b}) {c}")
        };
        for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1]] {
            let statement = together(order, "TRUE", "FALSE");
            assert_violates(by_hand(db, &statement).await, Constraint::OutputValid, &statement);
            let statement = together(order, "FALSE", "TRUE");
            assert_violates(by_hand(db, &statement).await, Constraint::InputActive, &statement);
            by_hand(db, &together(order, "FALSE", "FALSE")).await.unwrap();
            by_hand(db, "DELETE FROM utxos WHERE id = 90; DELETE FROM transactions WHERE id = 90").await.unwrap();
        }
    });
}

// SQLite has one writer at a time. Here neither would see the other's wallet, were it not for the lock.
#[test]
fn postgres_keeps_two_first_wallets_at_once_on_one_network() {
    store::testing::on(Engine::Postgres, async |db| {
        let wallet = |name: &str, network: &str| {
            format!(
                "INSERT INTO wallets (name, network, status, created_at) VALUES ('{name}', '{network}', 'active', 0)"
            )
        };
        let mut first = sqlx::PgConnection::connect(&db.url).await.unwrap();
        let open = format!("BEGIN; {}", wallet("one", "regtest"));
        sqlx::raw_sql(AssertSqlSafe(open)).execute(&mut first).await.unwrap();
        let statement = wallet("two", "bitcoin");
        let commit = async {
            // Long enough for the second to have run through, if nothing stopped it.
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            sqlx::raw_sql("COMMIT").execute(&mut first).await
        };
        let (second, committed) = tokio::join!(by_hand(db, &statement), commit);
        committed.unwrap();
        assert_violates(second, Constraint::WalletsOnOneNetwork, &statement);
    });
}
