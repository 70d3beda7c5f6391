//! Each role of Bursar logs in to PostgreSQL as its own, and the server refuses what the sources say that it does not do.

use std::collections::{BTreeMap, BTreeSet};

use store::grants::apply::script;
use store::grants::{DatabaseRole, GrantError, RightsDifference, TABLES, TableRights, VIEWS, rights_of};
use store::testing::{NOW, TestDb, fresh, on, schema, views};
use store::{Db, Engine, Options};

use crate::views::{SOURCE_000, SOURCE_001, section};

use DatabaseRole::*;

const ROLES: [DatabaseRole; 13] = DatabaseRole::ALL;
/// insufficient_privilege
const DENIED: &str = "42501";

fn on_postgres(test: impl AsyncFn(&TestDb)) {
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        test(db).await;
    });
}

/// What the server says to a role that types this; everything is undone. `None`: it did it.
async fn tried(db: &TestDb, role: DatabaseRole, statement: &str) -> Option<String> {
    match db.by_hand_as(role, &format!("BEGIN; {statement}; ROLLBACK")).await {
        Ok(()) => None,
        Err(error) => {
            Some(error.as_database_error().and_then(|error| error.code()).map_or_else(|| error.to_string(), Into::into))
        }
    }
}

/// Who, the line of the source that says so, and how somebody with its log-in would do it all the same.
const DOES_NOT: &[(DatabaseRole, &str, &str)] = &[
    // 000, "Withdrawal Worker (TRON/BSC)", "Does NOT".
    (Outbound, "Approve withdrawals", "UPDATE withdrawal_requests SET status = 'approved'"),
    (Outbound, "Approve withdrawals", "INSERT INTO withdrawal_events DEFAULT VALUES"),
    (Outbound, "Approve withdrawals", "INSERT INTO outbound_approvals DEFAULT VALUES"),
    (Outbound, "Select hot wallets (already assigned)", "UPDATE outbound_jobs SET lane_id = 1"),
    (Outbound, "Select hot wallets (already assigned)", "UPDATE outbound_lanes SET address = 'mine'"),
    (Outbound, "Select hot wallets (already assigned)", "UPDATE operation_wallet_addresses SET last_used_at = 0"),
    (Outbound, "Select hot wallets (already assigned)", "INSERT INTO operation_wallet_addresses DEFAULT VALUES"),
    (Outbound, "Confirm transactions (separate worker)", "UPDATE outbound_attempts SET mined_height = 1"),
    (Outbound, "Confirm transactions (separate worker)", "UPDATE outbound_attempts SET paid = 'in_full'"),
    (Outbound, "Modify `withdrawal_requests` directly", "UPDATE withdrawal_requests SET status = 'completed'"),
    (Outbound, "Modify `withdrawal_requests` directly", "INSERT INTO withdrawal_requests DEFAULT VALUES"),
    (Outbound, "Modify `withdrawal_requests` directly", "DELETE FROM withdrawal_requests"),
    (Outbound, "Modify `withdrawal_requests` directly", "SELECT 1 FROM withdrawal_requests"),
    // 000, "Withdrawal Confirmation Worker", "Does NOT".
    (Confirm, "Sign or broadcast transactions", "UPDATE outbound_attempts SET signed = ''"),
    (Confirm, "Sign or broadcast transactions", "UPDATE outbound_attempts SET tx_hash = ''"),
    (Confirm, "Sign or broadcast transactions", "UPDATE outbound_attempts SET payload = ''"),
    (Confirm, "Sign or broadcast transactions", "UPDATE outbound_attempts SET said = 'taken'"),
    (Confirm, "Sign or broadcast transactions", "INSERT INTO outbound_attempts DEFAULT VALUES"),
    (Confirm, "Sign or broadcast transactions", "INSERT INTO outbound_approvals DEFAULT VALUES"),
    (Confirm, "Retry failed jobs", "INSERT INTO outbound_slots DEFAULT VALUES"),
    (Confirm, "Retry failed jobs", "INSERT INTO outbound_slot_jobs DEFAULT VALUES"),
    (Confirm, "Retry failed jobs", "INSERT INTO outbound_jobs DEFAULT VALUES"),
    (Confirm, "Select hot wallets", "UPDATE outbound_jobs SET lane_id = 1"),
    (Confirm, "Select hot wallets", "UPDATE operation_wallet_addresses SET last_used_at = 0"),
    // 001, "What Gas Top-Up Workers CANNOT Do".
    (
        Outbound,
        "Select which wallet to use (pre-assigned by rule worker)",
        "UPDATE outbound_jobs SET lane_id = 1, to_address = 'mine'",
    ),
    (Outbound, "Access private keys (stored in Vault)", "SELECT pg_read_file('/etc/passwd')"),
    (Outbound, "Access private keys (stored in Vault)", "COPY outbound_jobs TO PROGRAM 'cat'"),
    // It has no key, and says of no key that it is a wallet's: what it could sign by itself would pay from nowhere.
    (Outbound, "Sign transactions locally (uses Signer Service)", "UPDATE wallet_groups SET xpub = 'mine'"),
    (Outbound, "Sign transactions locally (uses Signer Service)", "INSERT INTO wallet_groups DEFAULT VALUES"),
    (Outbound, "Sign transactions locally (uses Signer Service)", "UPDATE outbound_lanes SET wallet_group_id = 1"),
    (Outbound, "Override rule decisions", "UPDATE gas_topup_rules SET amount = '1'"),
    (Outbound, "Override rule decisions", "UPDATE outbound_jobs SET amount_raw = '1'"),
    (Outbound, "Override rule decisions", "UPDATE wallet_balances SET needs_gas = FALSE"),
    (Outbound, "Override rule decisions", "INSERT INTO treasury_jobs DEFAULT VALUES"),
    (Outbound, "Move non-gas funds", "INSERT INTO outbound_jobs DEFAULT VALUES"),
    (Outbound, "Move non-gas funds", "UPDATE outbound_jobs SET kind = 'withdrawal', listing_id = 1"),
    (Outbound, "Move non-gas funds", "INSERT INTO movements DEFAULT VALUES"),
    (Outbound, "Move non-gas funds", "UPDATE accounts SET available = 1"),
    // Who decides about customers' money does not pay it, and the other way round.
    (Api, "make jobs", "INSERT INTO outbound_jobs DEFAULT VALUES"),
    (Api, "say that a deposit is paid", "UPDATE deposits SET state = 'credited'"),
    (Api, "say that a deposit is paid", "INSERT INTO chain_entries DEFAULT VALUES"),
    (Api, "change what may be withdrawn", "INSERT INTO withdrawal_policies DEFAULT VALUES"),
    (Api, "change where the house's coins go", "INSERT INTO wallet_groups DEFAULT VALUES"),
    (Api, "choose the place of a line in a history", "INSERT INTO operator_log (id) VALUES (1)"),
    (
        Api,
        "choose the place of a line in a history",
        "INSERT INTO operator_log (id) OVERRIDING SYSTEM VALUE VALUES (1)",
    ),
    (Api, "choose the place of a line in a history", "INSERT INTO withdrawal_assignments (id) VALUES (1)"),
    (Api, "choose the place of a line in a history", "INSERT INTO withdrawal_addresses (id) VALUES (1)"),
    (Withdrawals, "sign", "INSERT INTO outbound_attempts DEFAULT VALUES"),
    (Withdrawals, "sign", "INSERT INTO outbound_slots DEFAULT VALUES"),
    (Withdrawals, "say that a job has ended", "UPDATE outbound_jobs SET state = 'failed_final'"),
    (Withdrawals, "change what was asked", "UPDATE withdrawal_requests SET amount = 1"),
    (Withdrawals, "change what was asked", "UPDATE withdrawal_requests SET to_address = 'mine'"),
    (Withdrawals, "ask in a customer's name", "INSERT INTO withdrawal_requests DEFAULT VALUES"),
    (Withdrawals, "change what may be withdrawn", "INSERT INTO withdrawal_policies DEFAULT VALUES"),
    (Rules, "sign", "INSERT INTO outbound_attempts DEFAULT VALUES"),
    (Rules, "touch customers' money", "UPDATE accounts SET available = 1"),
    (Rules, "touch customers' money", "INSERT INTO movements DEFAULT VALUES"),
    (Rules, "change rules", "UPDATE consolidation_rules SET threshold = 1"),
    (Rules, "say what an address has", "UPDATE wallet_balances SET on_chain_balance_raw = '1'"),
    (Deposits, "pay", "INSERT INTO outbound_jobs DEFAULT VALUES"),
    (Deposits, "pay", "INSERT INTO outbound_slots DEFAULT VALUES"),
    (Deposits, "give an address to a user", "INSERT INTO user_wallets DEFAULT VALUES"),
    (BalanceSync, "credit", "INSERT INTO movements DEFAULT VALUES"),
    (BalanceSync, "credit", "UPDATE accounts SET available = 1"),
    (BalanceSync, "say whose a deposit is, and how far", "UPDATE deposits SET user_id = 1"),
    (BalanceSync, "say whose a deposit is, and how far", "UPDATE deposits SET state = 'proven'"),
    (BalanceSync, "say whose a deposit is, and how far", "UPDATE deposits SET amount = 1"),
    (BalanceSync, "make a deposit", "INSERT INTO deposits DEFAULT VALUES"),
    (BalanceSync, "make a deposit", "INSERT INTO deposits (state) VALUES ('proven')"),
    (BalanceSync, "make a deposit", "INSERT INTO deposit_events DEFAULT VALUES"),
    (BalanceSync, "have something booked again", "UPDATE chain_entries SET posting = 0"),
    (BalanceSync, "say what a look has not shown", "UPDATE chain_entries SET amount_raw = '1'"),
    (BalanceSync, "let a group send again", "UPDATE wallet_groups SET outbound_stopped = NULL"),
    (BalanceSync, "pay", "INSERT INTO outbound_jobs DEFAULT VALUES"),
    (Operator, "change what holds", "UPDATE chains SET confirmations = 1"),
    (Operator, "change what holds", "INSERT INTO withdrawal_policies DEFAULT VALUES"),
    (Operator, "change what holds", "INSERT INTO wallet_groups DEFAULT VALUES"),
    (Monitor, "write", "INSERT INTO chain_findings DEFAULT VALUES"),
];

/// Which role is which worker of the sources, and behind which words under which heading it stands what that worker does not do.
const WORKERS: [(DatabaseRole, &str, &str, &str); 3] = [
    (Outbound, SOURCE_000, "Withdrawal Worker (TRON/BSC)", "**Does NOT:**"),
    (Confirm, SOURCE_000, "Withdrawal Confirmation Worker", "**Does NOT:**"),
    (Outbound, SOURCE_001, "What Gas Top-Up Workers CANNOT Do", "CANNOT Do"),
];

/// A line without what is drawn before its words.
fn words(line: &str) -> &str {
    line.trim_start_matches(|one: char| !one.is_ascii_alphabetic()).trim_end()
}

#[test]
fn whatever_the_sources_say_that_a_worker_does_not_do_is_tried() {
    for (role, source, heading, mark) in WORKERS {
        let (_, list) = section(source, heading).split_once(mark).expect(heading);
        let lines: Vec<&str> = list.lines().filter(|line| line.starts_with("- ")).map(words).collect();
        assert!(lines.len() >= 3, "{heading}: {lines:?}");
        for line in lines {
            let tried = DOES_NOT.iter().any(|(who, said, _)| *who == role && *said == line);
            assert!(tried, "{} does NOT {line}: no statement tries it", role.name());
        }
    }
    // No source says it elsewhere. The first is held against the schema (`schema`), the fourth is a decision of the rules (`custody`).
    let says = |line: &&str| ["does not", "cannot"].iter().any(|word| line.to_lowercase().contains(word));
    let said: Vec<&str> =
        [SOURCE_000, SOURCE_001].iter().flat_map(|text| text.lines()).filter(says).map(words).collect();
    let known = [
        "What This Table Does NOT Contain",
        "Does NOT:**",
        "Does NOT:**",
        "Does NOT queue consolidation (gas blocks it)",
        "What Gas Top-Up Workers CANNOT Do",
    ];
    assert_eq!(said, known);
}

#[test]
fn postgres_the_server_refuses_what_the_sources_say_that_a_role_does_not_do() {
    on_postgres(async |db| {
        for (role, line, statement) in DOES_NOT {
            let said = tried(db, *role, statement).await;
            assert_eq!(said.as_deref(), Some(DENIED), "{} does NOT {line}: {statement}", role.name());
        }
    });
}

/// What is written once, and never changed or removed by anybody.
const HISTORY: &[&str] = &[
    "movements",
    "account_status_changes",
    "checkpoints",
    "journal_marks",
    "setting_changes",
    "transfer_events",
    "unproven_transfers",
    "spot_pair_events",
    "spot_pair_accepted",
    "transaction_events",
    "tx_replacements",
    "user_wallets",
    "address_texts",
    "deposit_events",
    "outbound_job_events",
    "outbound_slot_jobs",
    "outbound_job_coins",
    "treasury_jobs",
    "asset_prices",
    "withdrawal_policies",
    "withdrawal_events",
    "withdrawal_jobs",
    "withdrawal_approvals",
    "withdrawal_imports",
    "operator_log",
    "withdrawal_assignments",
    "withdrawal_check_rules",
    "withdrawal_travel_rules",
    "schema_migrations",
];

/// What is history but for these columns, which say what became of it.
const MARKED: [(&str, &[&str]); 2] = [
    // A signature that the signer took for a bad one is not sent again.
    ("outbound_approvals", &["refused"]),
    // Its block has left the chain; the ledger has booked it.
    ("chain_entries", &["alive", "posting"]),
];

/// Of these a role may remove rows: leases that ended, and blocks that the chain has left. They are no history.
const PASSING: &[&str] =
    &["chain_blocks", "blocks", "utxo_leases", "utxo_claims", "transaction_labels", "address_labels"];

/// `bursar rule eval` does by hand what the role does, with a log-in of people.
#[test]
fn people_may_do_what_rules_may() {
    for role in [Operator, Administrator] {
        let all = rights_of(role);
        for (table, wanted) in rights_of(Rules) {
            let has = all.get(table).cloned().unwrap_or_default();
            assert!(has.read >= wanted.read && has.add >= wanted.add, "{}: {table}", role.name());
            assert!(has.change.is_superset(&wanted.change), "{}: {table}: {:?}", role.name(), has.change);
            assert!(!wanted.remove, "{table}");
        }
    }
}

#[test]
fn nobody_may_change_or_remove_history() {
    for role in ROLES {
        for (table, rights) in rights_of(role) {
            if HISTORY.contains(&table) {
                assert!(rights.change.is_empty() && !rights.remove, "{}: {table}", role.name());
            }
            assert!(!rights.remove || PASSING.contains(&table), "{} removes from {table}", role.name());
        }
    }
    for (table, marks) in MARKED {
        let all = ROLES.map(|role| rights_of(role).remove(table).unwrap_or_default());
        let changed: BTreeSet<&str> = all.iter().flat_map(|rights| rights.change.iter().copied()).collect();
        let marks: BTreeSet<&str> = marks.iter().copied().collect();
        assert_eq!(changed, marks, "{table}");
        assert!(all.iter().all(|rights| !rights.remove), "{table}");
    }
    // A table of events that comes later is history too.
    for table in TABLES.iter().filter(|table| table.ends_with("_events") || table.ends_with("_log")) {
        assert!(HISTORY.contains(table), "{table}");
    }
}

/// Every statement on every table that the matrix does not give is refused by the server, and every one that it gives is not.
#[test]
fn postgres_the_server_and_the_matrix_say_the_same_of_every_table() {
    on_postgres(async |db| {
        let mut columns: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (table, column, ..) in schema(db).await {
            columns.entry(table).or_default().insert(column);
        }
        for role in ROLES {
            let all = rights_of(role);
            let none = TableRights::default();
            let mut wrong = Vec::new();
            for table in TABLES.iter().chain(VIEWS) {
                let rights = all.get(table).unwrap_or(&none);
                let mut asked = vec![
                    (rights.read, format!("SELECT 1 FROM {table} LIMIT 0")),
                    (rights.remove, format!("DELETE FROM {table} WHERE FALSE")),
                ];
                if TABLES.contains(table) {
                    let all = format!("INSERT INTO {table} SELECT * FROM {table} WHERE FALSE");
                    match store::grants::added_columns(table).map(|columns| columns.join(", ")) {
                        None => asked.push((rights.add, all)),
                        Some(some) => {
                            asked.push((false, all));
                            asked.push((
                                rights.add,
                                format!("INSERT INTO {table} ({some}) SELECT {some} FROM {table} WHERE FALSE"),
                            ));
                        }
                    }
                    asked.push((false, format!("TRUNCATE {table}")));
                    asked.push((false, format!("LOCK TABLE {table} IN EXCLUSIVE MODE")));
                    for column in columns.get(*table).into_iter().flatten() {
                        let change = rights.change.contains(column.as_str());
                        asked.push((change, format!("UPDATE {table} SET {column} = NULL WHERE FALSE")));
                    }
                }
                for (allowed, statement) in asked {
                    let mut said = tried(db, role, &statement).await;
                    // A column that follows from others takes no value, which is noticed before rights are.
                    let generated = said.as_deref() == Some("428C9");
                    if generated {
                        said = tried(db, role, &format!("INSERT INTO {table} DEFAULT VALUES")).await;
                    }
                    // Adding with a SELECT needs the right to read, too; what else it says is not about rights.
                    let needs_read = statement.starts_with("INSERT") && !rights.read && !generated;
                    // Nobody removes from a view of several tables, whatever their rights.
                    let never = statement.starts_with("DELETE") && said.as_deref() == Some("55000");
                    let refused = said.as_deref() == Some(DENIED) || never;
                    let right = if allowed && !needs_read { said.as_deref() != Some(DENIED) } else { refused };
                    // A lock that its rights to change or remove carry is no more than those.
                    let carried = statement.starts_with("LOCK") && rights.remove;
                    if !right && !carried {
                        wrong.push(format!("{statement}: {said:?}"));
                    }
                }
            }
            assert!(wrong.is_empty(), "{}: {wrong:#?}", role.name());
        }
    });
}

/// A table that nobody has thought of has no rights, and somebody would notice in production.
#[test]
fn postgres_the_matrix_knows_every_table_and_view() {
    on_postgres(async |db| {
        let there: BTreeSet<String> = schema(db).await.into_iter().map(|(table, ..)| table).collect();
        let known: BTreeSet<String> = TABLES.iter().map(|table| (*table).to_owned()).collect();
        assert_eq!(there, known);
        let seen: BTreeSet<String> = views(db).await.into_iter().map(|(view, ..)| view).collect();
        let known: BTreeSet<String> = VIEWS.iter().map(|view| view.replace('.', "_")).collect();
        assert_eq!(seen, known);
        for role in ROLES {
            for table in rights_of(role).keys() {
                assert!(TABLES.contains(table) || VIEWS.contains(table), "{}: {table}", role.name());
            }
        }
    });
}

fn said(differences: &[RightsDifference]) -> Vec<String> {
    differences.iter().map(ToString::to_string).collect()
}

async fn own(db: &Db, role: DatabaseRole) -> Vec<RightsDifference> {
    db.compare_own_rights(role).await.unwrap().expect("PostgreSQL has roles").1
}

#[test]
fn postgres_more_rights_are_noticed_wherever_they_come_from_and_taken_away() {
    on_postgres(async |db| {
        let outbound = db.of(Outbound);
        let name = Outbound.login(&db.prefix());
        assert_eq!(said(&own(outbound, Outbound).await), [] as [String; 0]);
        assert!(said(&own(&db.db, Outbound).await).contains(&"it may do everything: it is a superuser".to_owned()));
        // The rights of another role are not its own.
        assert!(own(db.of(Deposits), Outbound).await.iter().any(RightsDifference::is_too_much));
        let monitor = Monitor.login(&db.prefix());
        let extra = [
            (format!("GRANT SELECT ON withdrawal_requests TO {name}"), "it may read withdrawal_requests"),
            (format!("GRANT DELETE ON movements TO {name}"), "it may remove from movements"),
            (format!("GRANT TRUNCATE ON movements TO {name}"), "it may empty movements"),
            (format!("GRANT UPDATE (lane_id) ON outbound_jobs TO {name}"), "it may change outbound_jobs (lane_id)"),
            (format!("GRANT UPDATE ON outbound_jobs TO {name}"), "it may change outbound_jobs"),
            ("GRANT SELECT ON deposits TO PUBLIC".to_owned(), "it may read deposits"),
            (format!("GRANT {monitor} TO {name}"), "it may act as the role"),
            (format!("GRANT pg_read_all_data TO {name}"), "it may act as the role pg_read_all_data"),
            (format!("GRANT USAGE ON SEQUENCE movements_id_seq TO {name}"), "it may use the counter movements_id_seq"),
            (format!("ALTER ROLE {name} CREATEROLE"), "it may make roles"),
            (temporary("GRANT", "TO PUBLIC"), "it may make temporary tables"),
            (temporary("GRANT", &format!("TO {name}")), "it may make temporary tables"),
            (format!("ALTER ROLE {name} SUPERUSER"), "it may do everything"),
            (format!("ALTER ROLE {name} BYPASSRLS"), "it may pass row level security by"),
            (
                format!("GRANT CREATE ON SCHEMA public TO {name}"),
                "it may make tables and functions in the schema public",
            ),
            (
                "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.secret (a INT); GRANT SELECT ON elsewhere.secret TO "
                    .to_owned()
                    + &name,
                "it may read elsewhere.secret",
            ),
        ];
        for (grant, words) in extra {
            db.by_hand(&grant).await.unwrap();
            let found = said(&own(outbound, Outbound).await);
            assert!(found.iter().any(|one| one.starts_with(words)), "{grant}: {found:?}");
            let granted = db.apply_grants(&db.prefix()).await.unwrap();
            assert!(!granted.statements.is_empty() && !granted.differences.is_empty(), "{grant}");
            assert_eq!(said(&own(outbound, Outbound).await), [] as [String; 0], "{grant}");
        }
        // What only a superuser gives, only a superuser takes away; it is named all the same.
        let replica = "SET ON PARAMETER session_replication_role";
        db.by_hand(&format!("GRANT {replica} TO {name}")).await.unwrap();
        let found = said(&own(outbound, Outbound).await);
        assert_eq!(found, ["it may switch triggers off (session_replication_role)"]);
        assert!(matches!(db.apply_grants(&db.prefix()).await, Err(GrantError::Stays(_))));
        db.by_hand(&format!("REVOKE {replica} FROM {name}")).await.unwrap();
        assert_eq!(said(&own(outbound, Outbound).await), [] as [String; 0]);
        // Whatever rights an owner's were taken away, it could give them to itself again. Only who is above it ends that.
        for (owned, words) in [
            ("TABLE deposits", "deposits"),
            // The counter of a column belongs to whom the table does.
            ("TABLE operator_log", "operator_log_id_seq"),
            ("FUNCTION refuse_change()", "the function refuse_change"),
            ("SCHEMA sources", "the schema sources"),
        ] {
            db.by_hand(&format!("ALTER {owned} OWNER TO {name}; REVOKE ALL ON {owned} FROM {name}")).await.unwrap();
            let wanted = format!("it may give itself any right to {words}, which it owns");
            let found = said(&own(outbound, Outbound).await);
            assert!(found.contains(&wanted), "{owned}: {found:?}");
            let stays = db.apply_grants(&db.prefix()).await;
            assert!(matches!(stays, Err(GrantError::Stays(_))), "{owned}: {stays:?}");
            db.by_hand(&format!("ALTER {owned} OWNER TO postgres")).await.unwrap();
            db.apply_grants(&db.prefix()).await.unwrap();
            assert_eq!(said(&own(outbound, Outbound).await), [] as [String; 0], "{owned}");
        }
        // Who only acts as a role can be another again at any time.
        let acting = format!("{}&options=-c%20role%3D{name}", db.url);
        let acting = Db::connect(&acting, &Options::default()).await.unwrap();
        assert!(own(&acting, Outbound).await.iter().any(RightsDifference::is_too_much));
        acting.close().await;
    });
}

fn temporary(word: &str, whom: &str) -> String {
    format!("DO $$ BEGIN EXECUTE format('{word} TEMPORARY ON DATABASE %I {whom}', current_database()); END $$")
}

/// One of the name of ours would be looked in first.
#[test]
fn postgres_no_role_makes_temporary_tables() {
    on_postgres(async |db| {
        let make = "CREATE TEMPORARY TABLE withdrawal_checks (withdrawal_id BIGINT, state TEXT)";
        for role in ROLES {
            assert_eq!(tried(db, role, make).await.as_deref(), Some(DENIED), "{}", role.name());
        }
    });
}

#[test]
fn postgres_a_right_that_is_missing_is_noticed_and_given() {
    on_postgres(async |db| {
        let (deposits, name) = (db.of(Deposits), Deposits.login(&db.prefix()));
        for (taken, words) in [
            ("INSERT ON movements", "it may not add to movements"),
            ("SELECT ON chains", "it may not read chains"),
            ("UPDATE (proven_height) ON chain_cursors", "it may not change chain_cursors (proven_height)"),
            ("USAGE ON SCHEMA public", "it may not look into the schema public"),
        ] {
            db.by_hand(&format!("REVOKE {taken} FROM {name}, PUBLIC")).await.unwrap();
            let found = own(deposits, Deposits).await;
            assert!(said(&found).contains(&words.to_owned()), "{taken}: {found:?}");
            assert!(!found.iter().any(RightsDifference::is_too_much), "{found:?}");
            db.apply_grants(&db.prefix()).await.unwrap();
            assert_eq!(said(&own(deposits, Deposits).await), [] as [String; 0], "{taken}");
        }
    });
}

#[test]
fn postgres_grants_applied_again_do_nothing_and_two_at_once_are_one() {
    on(Engine::Postgres, async |db| {
        let prefix = db.prefix();
        let there = db.compare_grants(&prefix).await.unwrap();
        assert!(
            there.iter().all(|one| one.difference == RightsDifference::NoRole) && there.len() == ROLES.len(),
            "{there:?}"
        );
        let (one, two) = tokio::join!(db.apply_grants(&prefix), db.apply_grants(&prefix));
        let counts = [one.unwrap().statements.len(), two.unwrap().statements.len()];
        assert!(counts.contains(&0) && counts.iter().sum::<usize>() > 50, "{counts:?}");
        assert_eq!(db.compare_grants(&prefix).await.unwrap(), []);
        assert_eq!(db.apply_grants(&prefix).await.unwrap().statements, [] as [String; 0]);
        // What is printed is what is done.
        db.with_roles().await;
        for name in ["Robert'); DROP TABLE movements;--", "", "9a", "A_", &"a".repeat(41)] {
            assert!(matches!(db.apply_grants(name).await, Err(GrantError::BadPrefix(_))), "{name}");
            assert!(script(name).is_err());
        }
    });
}

/// The printed SQL, typed into a shell, makes the same.
#[test]
fn postgres_the_printed_script_does_the_same() {
    on(Engine::Postgres, async |db| {
        let text = script(&db.prefix()).unwrap().join(";\n");
        db.by_hand(&format!("BEGIN; {text}; COMMIT")).await.unwrap();
        assert_eq!(db.compare_grants(&db.prefix()).await.unwrap(), []);
        db.with_roles().await;
    });
}

/// Nobody needs a superuser: the owner of the database, who may make roles, is enough.
#[test]
fn postgres_an_owner_who_is_no_superuser_makes_roles_and_rights() {
    on(Engine::Postgres, async |admin| {
        let db = fresh(Engine::Postgres).await;
        let (prefix, owner) = (db.prefix(), format!("{}owner", db.prefix()));
        db.by_hand(&format!("CREATE ROLE {owner} LOGIN CREATEROLE")).await.unwrap();
        let name = prefix.trim_end_matches('_').replacen("bt", "bursar_test", 1);
        admin.by_hand(&format!("ALTER DATABASE {name} OWNER TO {owner}")).await.unwrap();
        let own_db = Db::connect(&db.url_of(&owner), &Options::default()).await.unwrap();
        own_db.migrate(NOW).await.unwrap();
        assert!(!own_db.apply_grants(&prefix).await.unwrap().statements.is_empty());
        assert_eq!(own_db.compare_grants(&prefix).await.unwrap(), []);
        assert_eq!(own_db.apply_grants(&prefix).await.unwrap().statements, [] as [String; 0]);
        // But the owner is no role to run as.
        assert!(own(&own_db, Api).await.iter().any(RightsDifference::is_too_much));
        own_db.close().await;
        for role in ROLES {
            let name = role.login(&prefix);
            db.by_hand(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await.unwrap();
        }
        db.close().await;
        store::testing::drop_database(&db).await;
        admin.by_hand(&format!("DROP ROLE {owner}")).await.unwrap();
    });
}

#[test]
fn sqlite_has_no_roles_and_says_so() {
    on(Engine::Sqlite, async |db| {
        assert!(matches!(db.apply_grants("bursar_").await, Err(GrantError::NoRoles)));
        assert_eq!(db.compare_own_rights(Outbound).await.unwrap(), None);
    });
}

const BEGIN: &str =
    "<!-- rights: BURSAR_TEST_BLESS=1 cargo test -p store --test it grants::the_guide writes this -->\n";
const END: &str = "\n<!-- end of rights -->";

#[test]
fn the_guide_has_the_matrix_that_the_code_has() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/roles.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the page has the matrix");
    let (shown, after) = rest.split_once(END).expect("the page has its end");
    let wanted = store::grants::markdown();
    if std::env::var_os("BURSAR_TEST_BLESS").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
    } else {
        assert_eq!(shown, wanted, "bursar grants --matrix prints it");
    }
}
