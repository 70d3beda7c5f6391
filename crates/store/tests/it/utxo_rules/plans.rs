//! The indexes that the schema itself relies on are such as the engines use.

use sqlx::Row;

use super::*;

/// How SQLite would carry out a query, one step to a line.
async fn plan(db: &TestDb, query: &str) -> String {
    let mut connection = sqlx::SqliteConnection::connect(&db.url).await.unwrap();
    let query = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {query}"));
    let rows = sqlx::query(query).fetch_all(&mut connection).await.unwrap();
    let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
    steps.join("\n")
}

db_test! {
    // What a foreign key's action asks when a block is deleted. It knows no wallet.
    async fn a_blocks_transactions_are_found_without_reading_all(db: TestDb) {
        let (plan, wanted) = match db.engine() {
            // It would read a whole index too, and its plan would look no different: what counts is the first column.
            Engine::Postgres => {
                let index = "SELECT pg_get_indexdef('idx_transactions_by_block'::regclass)";
                (ask(db, index).await, "(block_height, wallet_id)")
            }
            Engine::Sqlite => {
                let action = "UPDATE transactions SET block_height = NULL WHERE block_height = 7";
                (plan(db, action).await, "idx_transactions_by_block (block_height=?)")
            }
        };
        assert!(plan.contains(wanted), "{plan}");
    }
}

// PostgreSQL decides by what it knows of the tables' sizes; SQLite by the words of the query.
#[test]
fn the_view_reads_unspent_outputs_only() {
    store::testing::on(Engine::Sqlite, async |db| {
        let plan = plan(db, "SELECT id, amount FROM spendable_utxos WHERE wallet_id = 1 AND account = 0").await;
        assert!(plan.contains("idx_utxos_unspent (wallet_id=? AND account=?)"), "{plan}");
    });
}

// PostgreSQL decides by what it knows of the tables' sizes; there the bench looks, with a million outputs.
#[test]
fn a_selection_and_a_balance_read_nothing_but_indexes() {
    store::testing::on(Engine::Sqlite, async |db| {
        let plans = db.explain_utxo(store::utxo::WalletId(1), 10, store::testing::NOW).await.unwrap();
        assert_eq!(plans.len(), 5);
        for plan in plans {
            assert!(plan.index_only, "{plan:?}");
        }
    });
}

// A search by the wallet alone reads all of the wallet, for each row that was given.
#[test]
fn no_event_reads_all_of_a_wallet() {
    store::testing::on(Engine::Sqlite, async |db| {
        let plans = store::testing::sqlite_plans_of_rows(db).await;
        assert!(plans.len() > 20);
        for (name, plan) in plans {
            // `x` is what was looked up for the rows.
            let given = |step: &&str| step.contains("json_each") || *step == "SCAN x";
            let scans = plan.lines().filter(|step| step.starts_with("SCAN ") && !given(step)).count();
            assert!(scans == 0 && !plan.contains("(wallet_id=?)"), "{name}: {plan}");
        }
    });
}
