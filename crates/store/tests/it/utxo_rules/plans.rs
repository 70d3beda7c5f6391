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

// Each new output asks for its address. With wallet and account first, the index of paths would be taken for as good as the
// one that has the address's number, and half of the account's addresses be read.
#[test]
fn postgres_finds_an_address_by_its_number() {
    store::testing::on(Engine::Postgres, async |db| {
        let paths = ask(db, "SELECT pg_get_indexdef('uidx_addresses_path'::regclass)").await;
        assert!(paths.contains("(child_index, branch, kind, account, wallet_id)"), "{paths}");
    });
}

// The planner takes the leases for few. It must not go through all of them for each output.
#[test]
fn postgres_looks_up_the_lease_of_each_output() {
    store::testing::on(Engine::Postgres, async |db| {
        let locks = ask(db, "SELECT pg_get_indexdef('idx_utxo_leases_lock'::regclass)").await;
        assert!(locks.contains("(external_lock_id, wallet_id)"), "{locks}");
        let plans = db.explain_utxo(store::utxo::WalletId(1), 10, store::testing::NOW).await.unwrap();
        for plan in plans.iter().filter(|plan| ["READ_LARGER", "READ_SMALLER"].contains(&plan.statement)) {
            let text = plan.plan.join("\n");
            let looked_up =
                ["pidx_utxo_leases", "pidx_transactions", "pidx_addresses"].iter().all(|one| text.contains(one));
            assert!(looked_up && !text.contains("Join Filter"), "{text}");
        }
    });
}

// Each open slot asks for its mined attempt. With the condition of the index that has the slot first, the one by time would be taken for as good,
// and all attempts that were ever mined be read for each slot.
#[test]
fn postgres_finds_the_mined_attempt_of_a_slot_by_the_slot() {
    store::testing::on(Engine::Postgres, async |db| {
        let by_time = ask(db, "SELECT pg_get_indexdef('outbound_attempts_by_time'::regclass)").await;
        assert!(by_time.ends_with("WHERE (paid IS NOT NULL)"), "{by_time}");
    });
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
        assert_eq!(plans.len(), 6);
        for plan in plans {
            assert!(plan.index_only, "{plan:?}");
        }
    });
}

// A search by the wallet alone reads all of the wallet, for each row that was given; one by the chain alone reads all of the chain. Nearly all
// entries take nothing back: a search by that reads all there are, though SQLite takes it for two.
#[test]
fn no_event_reads_all_of_a_wallet_or_a_chain() {
    store::testing::on(Engine::Sqlite, async |db| {
        let plans = store::testing::sqlite_plans_of_rows(db).await;
        assert!(plans.len() > 55, "{}", plans.len());
        for (name, plan) in plans {
            // `x`, `above` and `below` are what was looked up for the rows.
            let looked_up = ["SCAN x", "SCAN above", "SCAN below"];
            let given = |step: &&str| step.contains("json_each") || looked_up.contains(step);
            let scans = plan.lines().filter(|step| step.starts_with("SCAN ") && !given(step)).count();
            let shared = ["(wallet_id=?)", "(chain_id=?)", "(chain_id=? AND height", "(state=?", "(reverses=? AND"];
            let wide = shared.iter().any(|one| plan.contains(one))
                || (plan.contains("(reverses=?)") && name != "READ_GIVEN_OUT");
            assert!(scans == 0 && !wide, "{name}: {plan}");
        }
    });
}

// What it thinks of empty tables that nobody has analysed stays its plan while they grow: it begins with the rows that were given, and
// looks up what each names.
#[test]
fn postgres_looks_up_what_each_given_row_names() {
    store::testing::on(Engine::Postgres, async |db| {
        let plans = store::testing::postgres_plans_of_rows(db).await;
        assert!(plans.len() > 70, "{}", plans.len());
        let bad: Vec<String> = plans
            .iter()
            .filter(|(name, plan)| reads_all(name, plan))
            .map(|(name, plan)| format!("{name}:\n{plan}"))
            .collect();
        assert!(bad.is_empty(), "{}", bad.join("\n\n"));
    });
}

/// They read all of an index that has few rows for ever: what waits for a block, what people have to look at, what is doubted, what people
/// have moved by hand, what no transaction explains.
const OF_FEW: [&str; 6] =
    ["READ_CLUSTER", "READ_OPEN_AMONG", "RESOLVE_FINDINGS", "TRUST_DEPOSITS", "READ_GIVEN_OUT", "READ_EARLIER_LOOKS"];

/// Whether a plan begins with a table instead of the rows that were given, reads all of a table, or finds rows by a column that most
/// of them share.
fn reads_all(name: &str, plan: &str) -> bool {
    let whole = ["Seq Scan", "Bitmap", "Materialize"].iter().any(|one| plan.contains(one));
    let shared = ["wallet_id", "wallet_group_id", "chain_id", "state"];
    let by_shared = |step: &str| {
        let of = |column: &&str| step.trim().starts_with(&format!("Index Cond: ({column} = "));
        shared.iter().any(of) && !step.contains(" AND ")
    };
    // What is worked out once, before everything, is another matter.
    let (mut steps, mut aside) = (Vec::new(), None);
    for step in plan.lines() {
        let depth = step.len() - step.trim_start().len();
        if aside.is_some_and(|aside| depth <= aside) {
            aside = None;
        }
        if aside.is_none() && step.trim().starts_with("InitPlan") {
            aside = Some(depth);
        }
        if aside.is_none() {
            steps.push(step);
        }
    }
    let is_scan = |step: &&&str| {
        step.contains("Index Scan") || step.contains("Index Only Scan") || step.contains("Function Scan")
    };
    let late = steps.iter().find(is_scan).is_some_and(|first| !first.contains("Function Scan"));
    // All of a partial index, or all of it that has a certain value.
    steps.push("");
    let blind = |pair: &[&str]| {
        let named = pair[1].contains(['.', '$']) || pair[1].contains("SubPlan");
        let looks_up = pair[1].trim().starts_with("Index Cond:") && named;
        (pair[0].contains("Index Scan") || pair[0].contains("Index Only Scan")) && !looks_up
    };
    // What is named by a hash is found by it, not among all that was found otherwise.
    let among = |step: &&str| step.trim().starts_with("Join Filter:") && step.contains("hash");
    let is_blind = !OF_FEW.contains(&name) && (steps.windows(2).any(blind) || steps.iter().any(among));
    // Nearly all entries take nothing back.
    let by_nothing = |step: &str| step.trim().starts_with("Index Cond: (reverses IS NULL)");
    whole || late || is_blind || plan.lines().any(by_shared) || plan.lines().any(by_nothing)
}

// The server counts changed rows a little later than they are committed, so it is asked until it knows.
#[test]
fn postgres_looks_at_tables_again_that_have_grown() {
    store::testing::on(Engine::Postgres, async |db| {
        let known = "SELECT reltuples::BIGINT::TEXT FROM pg_class WHERE oid = 'blocks'::regclass";
        db.by_hand("ALTER TABLE blocks SET (autovacuum_enabled = off)").await.unwrap();
        assert!(!db.analyse_after_growth().await.unwrap(), "an empty database has not grown");
        let grow = "INSERT INTO blocks (block_height, block_hash, block_time, connected)
            SELECT n, decode(lpad(to_hex(n), 64, '0'), 'hex'), n, TRUE FROM generate_series(1, 20001) AS n";
        db.by_hand(grow).await.unwrap();
        let mut looks = 0;
        while !db.analyse_after_growth().await.unwrap() {
            looks += 1;
            assert!(looks < 600, "20,001 rows went unnoticed; it knows {}", ask(db, known).await);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(ask(db, known).await, "20001");
        assert!(!db.analyse_after_growth().await.unwrap(), "once is enough");
    });
}
