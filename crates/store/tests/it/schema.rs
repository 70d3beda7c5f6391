//! The two schemas are one schema, and every statement runs on both.

use store::migrate::{GUARDS, Guard};
use store::testing::{NOW, fresh, newest_version, prepare_every_statement, schema};
use store::{Engine, StoreError, db_test};

use crate::views::{SOURCE_000, section};

/// What the source says that a request does not have, and the words that a column of it would have in its name.
const NOT_IN_A_REQUEST: [(&str, &[&str]); 6] = [
    ("Transaction hash (until final)", &["hash", "tx", "transaction"]),
    ("Gas details", &["gas", "nonce", "price", "used"]),
    ("Retry logic", &["retry", "retries", "tries", "attempt", "attempts", "due", "scheduled"]),
    ("Worker state", &["worker", "locked", "lock", "lease", "fence", "processed"]),
    ("Hot wallet selection", &["wallet", "hot", "lane", "slot", "from"]),
    ("Error messages from blockchain", &["error", "errors", "message", "reason"]),
];

/// Which group of keys pays stands in the digest that people sign before there is a job. Which wallet of it does is chosen with the job.
const NAMES_A_GROUP: &str = "wallet_group";

db_test! {
    async fn every_statement_prepares(db: TestDb) {
        let count = prepare_every_statement(db).await.unwrap();
        assert!(count > 40, "only {count} statements were found");
    }

    /// The hash is not even there when it is final: a chain may take a block back (ADR 17).
    async fn a_request_has_nothing_of_how_it_is_paid(db: TestDb) {
        let list = section(SOURCE_000, "What This Table Does NOT Contain");
        let said: Vec<&str> = list.lines().filter_map(|line| Some(line.strip_prefix("❌ ")?.trim_end())).collect();
        assert_eq!(said, NOT_IN_A_REQUEST.map(|(line, _)| line));
        let columns: Vec<String> = schema(db).await.into_iter()
            .filter(|(table, ..)| table == "withdrawal_requests").map(|(_, column, ..)| column).collect();
        assert!(columns.len() > 10 && columns.iter().any(|column| column == NAMES_A_GROUP), "{columns:?}");
        for column in columns.iter().filter(|column| *column != NAMES_A_GROUP) {
            for (line, words) in NOT_IN_A_REQUEST {
                let has = column.split('_').find(|word| words.contains(word));
                assert_eq!(has, None, "{column}: {line}");
            }
        }
    }

    async fn migrating_again_does_nothing(db: TestDb) {
        assert!(db.migrate(NOW).await.unwrap().is_empty());
        db.check_schema().await.unwrap();
    }

    async fn a_schema_from_the_future_is_refused_and_left_alone(db: TestDb) {
        let future = newest_version() + 1;
        db.by_hand(&format!("INSERT INTO schema_migrations VALUES ({future}, 'x', 0, 0)")).await.unwrap();
        for error in [db.migrate(NOW).await.unwrap_err(), db.check_schema().await.unwrap_err()] {
            assert!(matches!(error, StoreError::SchemaTooNew { found, known } if found == future && known == future - 1));
        }
    }

    /// Each that exactly once rests on is taken away, and an index that is not unique put in its place.
    async fn without_a_unique_index_nothing_runs(db: TestDb) {
        let postgres = db.engine() == Engine::Postgres;
        for Guard { name, table, columns, .. } in GUARDS {
            // SQLite cannot drop what is part of a table, so another table stands in for it.
            let (take, give_back) = if postgres {
                (
                    format!("ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name} CASCADE; DROP INDEX IF EXISTS {name}"),
                    format!("CREATE UNIQUE INDEX {name} ON {table} ({columns})"),
                )
            } else {
                let quiet = "PRAGMA foreign_keys = OFF; PRAGMA legacy_alter_table = ON";
                (
                    format!("{quiet}; ALTER TABLE {table} RENAME TO kept; CREATE TABLE {table} AS SELECT * FROM kept"),
                    format!("{quiet}; DROP TABLE {table}; ALTER TABLE kept RENAME TO {table}"),
                )
            };
            db.by_hand(&take).await.unwrap();
            for _ in 0..2 {
                let error = db.check_schema().await.unwrap_err();
                // The table that stands in has none of its indexes; the first of them is named.
                let mut missed = GUARDS.iter().filter(|guard| guard.name == *name || !postgres && guard.table == *table);
                let mut named = |what: &str| missed.any(|guard| what.contains(guard.name));
                assert!(matches!(&error, StoreError::Corrupt { what } if named(what)), "{name}: {error:?}");
                db.by_hand(&format!("CREATE INDEX IF NOT EXISTS weak ON {table} ({columns})")).await.unwrap();
            }
            db.by_hand("DROP INDEX weak").await.unwrap();
            db.by_hand(&give_back).await.unwrap();
            db.check_schema().await.unwrap();
        }
    }

    async fn a_migration_changed_after_the_fact_is_refused(db: TestDb) {
        db.by_hand("UPDATE schema_migrations SET checksum = checksum + 1").await.unwrap();
        let error = db.migrate(NOW).await.unwrap_err();
        assert!(matches!(error, StoreError::MigrationChanged { version: 1 }), "{error:?}");
    }

    async fn a_schema_that_was_never_made_asks_for_migrate(db: TestDb) {
        db.by_hand("DELETE FROM schema_migrations").await.unwrap();
        assert_eq!(db.check_schema().await.unwrap_err().code(), "SCHEMA_MISSING");
    }
}

async fn many_processes_migrate_once(engine: Engine) {
    let db = fresh(engine).await;
    assert_eq!(db.check_schema().await.unwrap_err().code(), "SCHEMA_MISSING");
    // A connection pool each, as separate processes have.
    let options = store::Options { create: true, ..store::Options::default() };
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let (url, options) = (db.url.clone(), options.clone());
        tasks.push(tokio::spawn(async move {
            store::Db::connect(&url, &options).await.unwrap().migrate(NOW).await.unwrap().len()
        }));
    }
    let mut applied = 0;
    for task in tasks {
        applied += task.await.unwrap();
    }
    assert_eq!(applied, store::migrate::MIGRATIONS.len());
    db.check_schema().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_many_processes_migrate_once() {
    many_processes_migrate_once(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_many_processes_migrate_once() {
    many_processes_migrate_once(Engine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_and_sqlite_have_the_same_tables() {
    let mut schemas = Vec::new();
    for engine in [Engine::Postgres, Engine::Sqlite] {
        let db = fresh(engine).await;
        db.migrate(NOW).await.unwrap();
        schemas.push(schema(&db).await);
    }
    assert!(schemas[0].len() > 50, "{:?}", schemas[0]);
    assert_eq!(schemas[0], schemas[1]);
}
