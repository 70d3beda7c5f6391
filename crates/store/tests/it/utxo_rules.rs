//! The Bitcoin wallet's own rules, broken by hand: each engine refuses, and each refusal is known by name.
//!
//! | here | what |
//! |---|---|
//! | this file | the rules that have names: checks, unique indexes, and what triggers refuse |
//! | [`plans`] | whether the engines use the indexes that the schema relies on |
//! | [`references`] | foreign keys, which keep wallets apart and history in place |
//! | [`triggers`] | what the database does by itself when a block or a transaction changes |

mod plans;
mod references;
mod triggers;

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection};
use store::error::Constraint;
use store::testing::TestDb;
use store::{Engine, StoreError, db_test};

/// Wallet 1 has a transaction in a block (1), one that spends from it (2), a loser against that (3), a coinbase (4) and a
/// pending transaction (6); wallet 2 has one transaction (5).
const SETUP: &str = "
INSERT INTO wallets (id, name, network, status, created_at) VALUES
    (1, 'one', 'regtest', 'active', 0), (2, 'two', 'regtest', 'active', 0);
INSERT INTO blocks (block_height, block_hash, block_time, connected) VALUES (100, #b0, 0, TRUE), (101, #b1, 0, TRUE);
INSERT INTO addresses (wallet_id, id, account, branch, child_index, kind, script_pub_key, created_at) VALUES
    (1, 1, 0, 0, 0, 'p2wpkh', #a1, 0), (1, 2, 1, 0, 0, 'p2wpkh', #a2, 0), (2, 3, 0, 0, 0, 'p2wpkh', #a3, 0);
INSERT INTO transactions (wallet_id, id, tx_hash, raw_tx, block_height, status, received_time, is_coinbase, is_own) VALUES
    (1, 1, #01, #00, 100, 'published', 0, FALSE, FALSE), (1, 2, #02, #00, NULL, 'published', 0, FALSE, TRUE),
    (1, 3, #03, #00, NULL, 'failed', 0, FALSE, TRUE), (1, 4, #04, #00, 100, 'published', 0, TRUE, FALSE),
    (2, 5, #05, #00, 100, 'published', 0, FALSE, FALSE), (1, 6, #06, #00, NULL, 'pending', 0, FALSE, TRUE);
INSERT INTO tx_inputs (wallet_id, tx_id, input_index, prev_hash, prev_index, active) VALUES
    (1, 2, 0, #01, 0, TRUE), (1, 3, 0, #01, 0, FALSE), (1, 6, 0, #f0, 0, TRUE);
INSERT INTO utxos (wallet_id, id, tx_id, output_index, amount, address_id, account, valid, spent_by_tx_id, spent_input_index)
VALUES (1, 1, 1, 0, 1000, 1, 0, TRUE, 2, 0), (1, 2, 1, 1, 1000, 1, 0, TRUE, NULL, NULL),
    (1, 3, 2, 0, 900, 1, 0, TRUE, NULL, NULL), (1, 4, 3, 0, 900, 1, 0, FALSE, NULL, NULL),
    (1, 5, 4, 0, 5000, 1, 0, TRUE, NULL, NULL), (2, 6, 5, 0, 1000, 3, 0, TRUE, NULL, NULL),
    (1, 7, 6, 0, 900, 1, 0, TRUE, NULL, NULL);
INSERT INTO account_totals (wallet_id, account, confirmed, confirmed_count, unconfirmed, unconfirmed_count)
VALUES (1, 0, 6000, 2, 1800, 2);
INSERT INTO tx_replacements (wallet_id, id, replaced_tx_id, replacement_tx_id, created_at) VALUES (1, 1, 3, 2, 0);
INSERT INTO utxo_leases (wallet_id, utxo_id, external_lock_id, expires_at) VALUES (1, 2, #ee, 0), (1, 4, #ee, 0);
INSERT INTO utxo_claims (wallet_id, utxo_id, claimant) VALUES (1, 3, #03);
INSERT INTO transaction_labels (wallet_id, tx_id, label, actor, updated_at) VALUES (1, 1, 'x', '', 0), (1, 3, 'x', '', 0);
INSERT INTO address_labels (wallet_id, address_id, label, actor, updated_at) VALUES (1, 2, 'x', '', 0);
INSERT INTO transaction_events (wallet_id, id, tx_hash, status, reason, actor, at) VALUES (1, 1, #09, 'pruned', '', '', 0);";

/// A statement for each rule that breaks exactly it.
const BREAKING: [(Constraint, &str); 70] = [
    (Constraint::WalletUnread, "UPDATE wallets SET unread_from = 7 WHERE id = 1"),
    (Constraint::WalletStatus, "UPDATE wallets SET status = 'gone' WHERE id = 1"),
    (
        Constraint::WalletName,
        "INSERT INTO wallets (id, name, network, status, created_at) VALUES (9, 'one', 'regtest', 'active', 0)",
    ),
    (
        Constraint::WalletsOnOneNetwork,
        "INSERT INTO wallets (id, name, network, status, created_at) VALUES (9, 'x', 'bitcoin', 'active', 0)",
    ),
    (Constraint::BlockHeight, "INSERT INTO blocks VALUES (-1, #bb, 0, TRUE)"),
    (Constraint::BlockHash, "INSERT INTO blocks VALUES (1, ~bb, 0, TRUE)"),
    (Constraint::BlockId, "INSERT INTO blocks VALUES (100, #bb, 0, TRUE)"),
    (Constraint::OneBlockPerHash, "INSERT INTO blocks VALUES (1, #b0, 0, TRUE)"),
    (Constraint::AddressAccount, "INSERT INTO addresses VALUES (1, 9, -1, 0, 0, 'p2tr', #aa, 0)"),
    (Constraint::AddressBranch, "INSERT INTO addresses VALUES (1, 9, 0, 2, 0, 'p2tr', #aa, 0)"),
    (Constraint::AddressChildIndex, "INSERT INTO addresses VALUES (1, 9, 0, 0, -1, 'p2tr', #aa, 0)"),
    (Constraint::AddressPathPair, "INSERT INTO addresses VALUES (1, 9, 0, NULL, 0, 'p2tr', #aa, 0)"),
    (Constraint::AddressKind, "INSERT INTO addresses VALUES (1, 9, 0, 0, 9, 'p2pk', #aa, 0)"),
    (Constraint::AddressScript, "INSERT INTO addresses VALUES (1, 9, 0, 0, 9, 'p2tr', ~, 0)"),
    (Constraint::AddressId, "INSERT INTO addresses VALUES (1, 1, 0, 0, 9, 'p2tr', #aa, 0)"),
    (Constraint::OneOwnerPerScript, "INSERT INTO addresses VALUES (2, 9, 0, 0, 9, 'p2tr', #a1, 0)"),
    (Constraint::OneAddressPerPath, "INSERT INTO addresses VALUES (1, 9, 0, 0, 0, 'p2wpkh', #aa, 0)"),
    (Constraint::TxHash, "UPDATE transactions SET tx_hash = ~01 WHERE id = 1"),
    (Constraint::TxStatus, "UPDATE transactions SET status = 'lost' WHERE id = 3"),
    (Constraint::ConfirmedIsPublished, "UPDATE transactions SET status = 'failed' WHERE id = 1"),
    (Constraint::CoinbaseConfirmation, "UPDATE transactions SET is_coinbase = TRUE WHERE id = 2"),
    (Constraint::OrphanedIsCoinbase, "UPDATE transactions SET status = 'orphaned' WHERE id = 3"),
    (Constraint::GivenUpHasEnded, "UPDATE transactions SET given_up = TRUE WHERE id = 2"),
    (
        Constraint::TxId,
        "INSERT INTO transactions (wallet_id, id, tx_hash, raw_tx, status, received_time, is_coinbase, is_own)
        VALUES (1, 1, #aa, #00, 'published', 0, FALSE, FALSE)",
    ),
    (
        Constraint::OneRowPerTx,
        "INSERT INTO transactions (wallet_id, id, tx_hash, raw_tx, status, received_time, is_coinbase, is_own)
        VALUES (1, 99, #01, #00, 'published', 0, FALSE, FALSE)",
    ),
    (Constraint::InputIndex, "INSERT INTO tx_inputs VALUES (1, 2, -1, #aa, 0, TRUE)"),
    (Constraint::InputPrevHash, "INSERT INTO tx_inputs VALUES (1, 2, 1, ~aa, 0, TRUE)"),
    (Constraint::InputPrevIndex, "INSERT INTO tx_inputs VALUES (1, 2, 1, #aa, -1, TRUE)"),
    (Constraint::InputId, "INSERT INTO tx_inputs VALUES (1, 2, 0, #aa, 0, TRUE)"),
    // A second input of another valid transaction, and the loser made valid again.
    (Constraint::OneValidSpender, "INSERT INTO tx_inputs VALUES (1, 6, 1, #01, 0, TRUE)"),
    (Constraint::OneValidSpender, "UPDATE transactions SET status = 'published' WHERE id = 3"),
    (Constraint::InputActive, "INSERT INTO tx_inputs VALUES (1, 3, 1, #aa, 0, TRUE)"),
    (Constraint::InputActive, "UPDATE tx_inputs SET active = FALSE WHERE tx_id = 2"),
    (Constraint::OutputIndex, "UPDATE utxos SET output_index = -1 WHERE id = 2"),
    (Constraint::OutputAmount, "UPDATE utxos SET amount = -1 WHERE id = 2"),
    (Constraint::OutputAmount, "UPDATE utxos SET amount = 2100000000000001 WHERE id = 2"),
    (Constraint::SpentInputIndex, "UPDATE utxos SET spent_input_index = -1 WHERE id = 1"),
    (Constraint::SpentPair, "UPDATE utxos SET spent_by_tx_id = NULL WHERE id = 1"),
    (Constraint::NotSelfSpent, "UPDATE utxos SET spent_by_tx_id = 1 WHERE id = 1"),
    (Constraint::OutputId, "INSERT INTO utxos VALUES (1, 1, 1, 9, 1, 1, 0, TRUE, NULL, NULL)"),
    (Constraint::OneRowPerOutput, "INSERT INTO utxos VALUES (1, 99, 1, 0, 1, 1, 0, TRUE, NULL, NULL)"),
    (Constraint::OutputValid, "INSERT INTO utxos VALUES (1, 99, 3, 1, 1, 1, 0, TRUE, NULL, NULL)"),
    (Constraint::OutputValid, "UPDATE utxos SET valid = FALSE WHERE id = 2"),
    // Spent by a transaction without such an input, by another input, and by one that is not valid.
    (Constraint::OutputSpender, "INSERT INTO utxos VALUES (1, 99, 1, 9, 1, 1, 0, TRUE, 2, 0)"),
    (Constraint::OutputSpender, "UPDATE utxos SET spent_input_index = 1 WHERE id = 1"),
    (Constraint::OutputSpender, "UPDATE utxos SET spent_by_tx_id = 3 WHERE id = 1"),
    (Constraint::ConfirmedTotal, "UPDATE account_totals SET confirmed = -1"),
    (Constraint::ConfirmedCount, "UPDATE account_totals SET confirmed_count = -1"),
    (Constraint::UnconfirmedTotal, "UPDATE account_totals SET unconfirmed = -1"),
    (Constraint::UnconfirmedCount, "UPDATE account_totals SET unconfirmed_count = -1"),
    (Constraint::AccountTotal, "INSERT INTO account_totals SELECT * FROM account_totals"),
    (Constraint::NotSelfReplacement, "UPDATE tx_replacements SET replacement_tx_id = 3"),
    (Constraint::ReplacementId, "INSERT INTO tx_replacements VALUES (1, 1, 2, 3, 0)"),
    (Constraint::OneEdgePerPair, "INSERT INTO tx_replacements VALUES (1, 9, 3, 2, 0)"),
    (Constraint::LockId, "UPDATE utxo_leases SET external_lock_id = ~ee"),
    (Constraint::OneLeasePerOutput, "INSERT INTO utxo_leases VALUES (1, 2, #dd, 0)"),
    (Constraint::Claimant, "INSERT INTO utxo_claims VALUES (1, 2, ~dd)"),
    (Constraint::OneClaimPerOutput, "INSERT INTO utxo_claims VALUES (1, 3, #dd)"),
    (Constraint::EventStatus, "UPDATE transaction_events SET status = 'gone'"),
    (Constraint::TransactionFixed, "UPDATE transactions SET tx_hash = #aa WHERE id = 6"),
    (Constraint::TransactionFixed, "UPDATE transactions SET is_coinbase = TRUE, status = 'orphaned' WHERE id = 3"),
    (Constraint::InputFixed, "UPDATE tx_inputs SET prev_index = 1 WHERE tx_id = 6"),
    (Constraint::InputFixed, "UPDATE tx_inputs SET prev_hash = #aa WHERE tx_id = 6"),
    (Constraint::OutputKept, "DELETE FROM utxos WHERE id = 3"),
    (Constraint::TransactionFixed, "UPDATE transactions SET status = 'pending' WHERE id = 2"),
    (Constraint::OutputFixed, "UPDATE utxos SET output_index = 9 WHERE id = 2"),
    (Constraint::OutputFixed, "UPDATE utxos SET amount = amount + 1 WHERE id = 2"),
    (Constraint::OutputFixed, "UPDATE utxos SET address_id = 2, account = 1 WHERE id = 2"),
    (Constraint::EventFixed, "UPDATE transaction_events SET reason = 'other'"),
    (Constraint::EventFixed, "DELETE FROM transaction_events"),
];

/// The same for labels and events.
const BREAKING_NOTES: [(Constraint, &str); 5] = [
    (Constraint::TransactionLabel, "UPDATE transaction_labels SET label = ''"),
    (Constraint::AddressLabel, "UPDATE address_labels SET label = ''"),
    (Constraint::OneLabelPerTx, "INSERT INTO transaction_labels VALUES (1, 1, 'y', '', 0)"),
    (Constraint::OneLabelPerAddress, "INSERT INTO address_labels VALUES (1, 2, 'y', '', 0)"),
    (
        Constraint::EventId,
        "INSERT INTO transaction_events (wallet_id, id, tx_hash, status, reason, actor, at)
        VALUES (1, 1, #aa, 'failed', '', '', 0)",
    ),
];

/// SQLite has numbers for truth; PostgreSQL has a type for it, and these rules are not needed.
const BREAKING_FLAGS: [(Constraint, &str); 5] = [
    (Constraint::BlockConnectedFlag, "UPDATE blocks SET connected = 2"),
    (Constraint::TxCoinbaseFlag, "UPDATE transactions SET is_coinbase = 2 WHERE id = 4"),
    (Constraint::TxOwnFlag, "UPDATE transactions SET is_own = 2 WHERE id = 1"),
    (Constraint::InputActiveFlag, "UPDATE tx_inputs SET active = 2 WHERE tx_id = 2"),
    (Constraint::OutputValidFlag, "UPDATE utxos SET valid = 2 WHERE id = 2"),
];

/// What PostgreSQL never gets to report, and why.
const NEVER_REPORTED: [&str; 1] = [
    // An id that is taken breaks pidx_addresses first. It is there to be referred to.
    "uidx_addresses_account",
];

/// The rules that a test here breaks.
pub fn tried() -> impl Iterator<Item = Constraint> {
    BREAKING
        .into_iter()
        .chain(BREAKING_NOTES)
        .chain(BREAKING_FLAGS)
        .map(|(constraint, _)| constraint)
        // By tests of their own.
        .chain([Constraint::CoinbaseNotPending, Constraint::Network])
}

/// `#ab` is a hash of 32 bytes ab, `~ab` the one byte, `~` no byte at all.
fn in_dialect(engine: Engine, text: &str) -> String {
    let mut parts = text.split_inclusive(['#', '~']);
    let mut result = String::new();
    let mut times = 0;
    loop {
        let Some(part) = parts.next() else { return result };
        let mut rest = part;
        if times > 0 {
            let digits = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
            let bytes = part[..digits].repeat(times);
            result += &match engine {
                Engine::Postgres => format!("'\\x{bytes}'::bytea"),
                Engine::Sqlite => format!("x'{bytes}'"),
            };
            rest = &part[digits..];
        }
        times = if rest.ends_with('#') { 32 } else { usize::from(rest.ends_with('~')) };
        result += rest.trim_end_matches(['#', '~']);
    }
}

async fn by_hand(db: &TestDb, text: &str) -> Result<(), sqlx::Error> {
    db.by_hand(&in_dialect(db.engine(), text)).await
}

async fn set_up(db: &TestDb) {
    by_hand(db, SETUP).await.expect("the rows fit the rules");
}

/// The answers of a query for one column of text, in one line.
async fn ask(db: &TestDb, query: &str) -> String {
    let query = AssertSqlSafe(in_dialect(db.engine(), query));
    let rows: Vec<String> = match db.engine() {
        Engine::Postgres => {
            let mut connection = sqlx::PgConnection::connect(&db.url).await.unwrap();
            sqlx::query_scalar(query).fetch_all(&mut connection).await.unwrap()
        }
        Engine::Sqlite => {
            let mut connection = sqlx::SqliteConnection::connect(&db.url).await.unwrap();
            sqlx::query_scalar(query).fetch_all(&mut connection).await.unwrap()
        }
    };
    rows.join(", ")
}

#[track_caller]
fn assert_violates(result: Result<(), sqlx::Error>, constraint: Constraint, statement: &str) {
    let error: StoreError = result.expect_err(statement).into();
    let found = matches!(error, StoreError::Violates(found) if found == constraint);
    assert!(found, "{constraint:?}: {error:?} of {statement}");
}

/// All names that a migration gives to rules, but those of foreign keys.
fn names_in(migration: &str) -> BTreeSet<&str> {
    let code = migration.lines().filter(|line| !line.trim_start().starts_with("--"));
    let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
    let named = words.windows(3).filter_map(|three| match three {
        ["CONSTRAINT", "=", "TG_NAME;"] => None,
        ["CONSTRAINT", "=", name] | ["SELECT", "RAISE(ABORT,", name] => Some(*name),
        // It serves several triggers, and takes their names.
        ["CREATE", "TRIGGER", name] if name.ends_with("_fixed") || name.ends_with("_kept") => Some(*name),
        ["CONSTRAINT", name, _] | ["UNIQUE", "INDEX", name] => Some(*name),
        _ => None,
    });
    named.map(|name| name.trim_matches(['\'', ')', ';'])).filter(|name| !name.starts_with("fkey_")).collect()
}

#[test]
fn every_name_of_the_migration_is_known() {
    let known: BTreeSet<&str> = Constraint::ALL.iter().map(|one| one.name()).chain(NEVER_REPORTED).collect();
    let postgres = names_in(include_str!("../../migrations/postgres/0003_utxo.sql"));
    let sqlite = names_in(include_str!("../../migrations/sqlite/0003_utxo.sql"));
    assert!(postgres.len() > 50, "{postgres:?}");
    for names in [&postgres, &sqlite] {
        let unknown: Vec<_> = names.difference(&known).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
    let flags = BREAKING_FLAGS.map(|(constraint, _)| constraint.name());
    assert_eq!(sqlite.difference(&postgres).copied().collect::<BTreeSet<_>>(), BTreeSet::from(flags));
    assert_eq!(postgres.difference(&sqlite).count(), 0, "{postgres:?} {sqlite:?}");
}

db_test! {
    async fn each_rule_of_the_wallet_is_refused_by_its_name(db: TestDb) {
        set_up(db).await;
        let flags = BREAKING_FLAGS.into_iter().filter(|_| db.engine() == Engine::Sqlite);
        for (constraint, statement) in BREAKING.into_iter().chain(BREAKING_NOTES).chain(flags) {
            assert_violates(by_hand(db, statement).await, constraint, statement);
        }
    }

    // Whatever breaks this rule breaks check_coinbase_confirmation_state as well, which PostgreSQL tries first, in the order
    // of the names.
    async fn a_coinbase_is_never_pending(db: TestDb) {
        set_up(db).await;
        if db.engine() == Engine::Postgres {
            by_hand(db, "ALTER TABLE transactions DROP CONSTRAINT check_coinbase_confirmation_state").await.unwrap();
        }
        let statement = "UPDATE transactions SET status = 'pending', block_height = NULL WHERE id = 4";
        // On PostgreSQL a trigger makes it orphaned on its way.
        if db.engine() == Engine::Postgres {
            by_hand(db, statement).await.unwrap();
            let statement = "UPDATE transactions SET status = 'pending' WHERE id = 4";
            assert_violates(by_hand(db, statement).await, Constraint::CoinbaseNotPending, statement);
        } else {
            assert_violates(by_hand(db, statement).await, Constraint::CoinbaseNotPending, statement);
        }
    }

    // The longest label and script, and the largest amount, are fine.
    async fn the_bounds_themselves_are_allowed(db: TestDb) {
        set_up(db).await;
        let label = "\u{e9}".repeat(500);
        for statement in [
            format!("UPDATE transaction_labels SET label = '{label}'"),
            format!("UPDATE address_labels SET label = '{label}'"),
            "INSERT INTO utxos VALUES (1, 98, 1, 98, 2100000000000000, 1, 0, TRUE, NULL, NULL),
                (1, 99, 1, 99, 0, 1, 0, TRUE, NULL, NULL)"
                .to_owned(),
            // Scripts without a path do not exclude each other.
            "INSERT INTO addresses VALUES (1, 8, 0, NULL, NULL, 'other', ~aa, 0), (1, 9, 0, NULL, NULL, 'other', ~ab, 0)".to_owned(),
        ] {
            by_hand(db, &statement).await.unwrap();
        }
        let statement = format!("UPDATE address_labels SET label = '{label}.'");
        assert_violates(by_hand(db, &statement).await, Constraint::AddressLabel, &statement);
    }

    async fn writing_what_is_there_already_is_no_change(db: TestDb) {
        set_up(db).await;
        by_hand(db, "UPDATE transactions SET tx_hash = tx_hash, is_coinbase = is_coinbase, raw_tx = #11, is_own = TRUE;
            UPDATE tx_inputs SET prev_hash = prev_hash, prev_index = prev_index;
            UPDATE utxos SET amount = amount, address_id = address_id, account = account").await.unwrap();
    }

    async fn all_wallets_are_on_one_network(db: TestDb) {
        // The first wallet: later ones are refused for not being on its network.
        let statement = "INSERT INTO wallets (id, name, network, status, created_at) VALUES (1, 'x', 'litecoin', 'active', 0)";
        assert_violates(by_hand(db, statement).await, Constraint::Network, statement);
        set_up(db).await;
        let statement = "UPDATE wallets SET network = 'signet' WHERE id = 2";
        assert_violates(by_hand(db, statement).await, Constraint::WalletsOnOneNetwork, statement);
        let statement = "INSERT INTO wallets (name, network, status, created_at)
            VALUES ('three', 'regtest', 'active', 0), ('four', 'signet', 'active', 0)";
        // Another id than the sequence's first, which the rows of the set-up have.
        if db.engine() == Engine::Postgres {
            by_hand(db, "ALTER TABLE wallets ALTER COLUMN id RESTART WITH 10").await.unwrap();
        }
        assert_violates(by_hand(db, statement).await, Constraint::WalletsOnOneNetwork, statement);
        assert_eq!(ask(db, "SELECT name FROM wallets ORDER BY id").await, "one, two");
    }
}
