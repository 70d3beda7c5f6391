//! `bursar import withdrawals` as an operator types it, against the source's own tables on a real PostgreSQL.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use store::Engine;
use store::testing::{TestDb, drop_database, fresh};
use tempfile::TempDir;

/// An account of BIP-44 that everybody knows.
const XPUB: &str =
    "xpub6DCoCpSuQZB2jawqnGMEPS63ePKWkwWPH4TU45Q7LPXWuNd8TMtVxRrgjtEshuqpK3mdhaWHPFsBngh5GFZaM6si3yZdUsT8ddYM3PwnATt";
const TREASURY: &str = r#"
[assets.USDT]
precision = 6
min_transfer = "1"
max_transfer = "1000"
daily_transfer = "10000"
[chains.bsc]
kind = "evm"
network = "56"
confirmations = 12
[[on_chain]]
asset = "USDT"
chain = "bsc"
contract = "0x55d398326f99059ff775485246999027b3197955"
decimals = 18
min_deposit = "1"
[[withdrawals]]
asset = "USDT"
chain = "bsc"
min = "1"
max = "5000"
fee = "0"
auto_approve = "100"
two_above = "1000"
many_above = "5000"
[[operation_wallets]]
role = "hot"
chain = "bsc"
group = "hot-evm"
index = 0
"#;
const OLD: &str = "
CREATE TABLE chains (id UUID PRIMARY KEY, name VARCHAR(50) NOT NULL);
CREATE TABLE assets (id UUID PRIMARY KEY, symbol VARCHAR(20) NOT NULL);
CREATE TABLE asset_on_chain (id UUID PRIMARY KEY, asset_id UUID NOT NULL, chain_id UUID NOT NULL, decimals INTEGER NOT NULL);
CREATE TABLE operation_wallet_addresses (id UUID PRIMARY KEY, chain_id UUID NOT NULL, address TEXT NOT NULL, role TEXT NOT NULL,
    status VARCHAR(20) NOT NULL DEFAULT 'active', last_used_at TIMESTAMPTZ, balance_reserved NUMERIC(28,18));
CREATE TABLE withdrawal_requests (id UUID PRIMARY KEY, user_id UUID NOT NULL, amount NUMERIC(28,18) NOT NULL, to_address VARCHAR(100) NOT NULL,
    asset_id UUID NOT NULL, chain_id UUID NOT NULL, status VARCHAR(20) NOT NULL, queued_at TIMESTAMPTZ, final_tx_hash VARCHAR(100),
    tx_hash VARCHAR(100), amount_raw TEXT, memo TEXT, retry_count INTEGER NOT NULL DEFAULT 0, error_message TEXT,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(), updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW());
INSERT INTO chains VALUES ('c0000000-0000-0000-0000-000000000001', 'BNB Chain');
INSERT INTO assets VALUES ('a0000000-0000-0000-0000-000000000001', 'USDT');
INSERT INTO asset_on_chain VALUES ('b0000000-0000-0000-0000-000000000001', 'a0000000-0000-0000-0000-000000000001',
    'c0000000-0000-0000-0000-000000000001', 18);
";
const FAR: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

/// The id of a row there, or of a user.
fn id(kind: u8, number: u32) -> String {
    format!("{kind:08x}-0000-4000-8000-{number:012x}")
}

struct Operator {
    folder: TempDir,
    old: TestDb,
}

impl Operator {
    /// Here is a user with 1,000 USDT and a hot wallet; there is the other program, stopped, with the same wallet.
    async fn new() -> Self {
        let old = fresh(Engine::Postgres).await;
        old.by_hand(OLD).await.expect("its tables");
        let operator = Self { folder: tempfile::tempdir().expect("a folder"), old };
        operator.good("migrate");
        operator.write(
            "treasury.toml",
            &format!("{TREASURY}[wallet_groups.hot-evm]\nchain = \"evm\"\npurpose = \"hot\"\nxpub = \"{XPUB}\"\n"),
        );
        operator.write("bursar.toml", "[treasury]\nfile = \"treasury.toml\"\n");
        operator.good("apply treasury.toml");
        operator.good("account open --user 7 --asset USDT");
        operator.good("adjust credit --user 7 --asset USDT --amount 1000 --from custody:bsc --key first --actor ann --second bob --reason test");
        let shown = operator.good("wallet show");
        let hot = shown["operation_wallets"][0]["address"].as_str().unwrap_or_else(|| panic!("{shown}"));
        let wallet = format!(
            "INSERT INTO operation_wallet_addresses (id, chain_id, address, role)
             VALUES ('{}', 'c0000000-0000-0000-0000-000000000001', '{hot}', 'hot_wallet')",
            id(9, 1)
        );
        operator.there(&wallet).await;
        operator.write("users.csv", &format!("{},7\n", id(2, 1)));
        operator
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, owner_only).expect("set");
    }

    async fn there(&self, sql: &str) {
        self.old.by_hand(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    async fn row(&self, number: u32, user: u32, (amount, status): (&str, &str), more: (&str, &str)) {
        let (column, value) = more;
        let sql = format!(
            "INSERT INTO withdrawal_requests (id, user_id, amount, to_address, asset_id, chain_id, status{column})
             VALUES ('{}', '{}', {amount}, '{FAR}', 'a0000000-0000-0000-0000-000000000001', 'c0000000-0000-0000-0000-000000000001', '{status}'{value})",
            id(1, number),
            id(2, user)
        );
        self.there(&sql).await;
    }

    async fn count(&self, table: &str) -> String {
        let rows = self.old.ask("", &format!("SELECT COUNT(*) FROM {table}")).await.expect("counted");
        rows[0][0].clone().expect("a number")
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).env("USER", "tester");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BURSAR_")) {
            command.env_remove(name);
        }
        command.env("BURSAR_IMPORT_FROM", &self.old.url).arg("--json").args(words).output().expect("it runs")
    }

    #[track_caller]
    fn good(&self, words: &str) -> Value {
        let words: Vec<&str> = words.split(' ').collect();
        let output = self.run(&words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// What was printed, and the code of the failure with its message; both are empty where there is none.
    fn import(&self, more: &[&str]) -> (Value, String, String) {
        let words = [&["import", "withdrawals", "--users", "users.csv", "--chain", "BNB Chain=bsc"], more].concat();
        let output = self.run(&words);
        let printed = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let failure: Value =
            serde_json::from_str(stderr.lines().next_back().unwrap_or_default()).unwrap_or(Value::Null);
        let field = |name: &str| failure["error"][name].as_str().unwrap_or_default().to_owned();
        assert_eq!(output.status.success(), failure.is_null(), "{stderr}");
        (printed, field("code"), field("message"))
    }

    /// How far each row there has come here, by the first column of what was printed.
    fn states(&self) -> Vec<(String, String)> {
        let listed = self.good("withdrawal list");
        let mut states: Vec<(String, String)> = listed["withdrawals"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| {
                (one["amount"].as_str().expect("text").to_owned(), one["state"].as_str().expect("text").to_owned())
            })
            .collect();
        states.sort();
        states
    }

    fn held(&self) -> String {
        let shown = self.good("account --user 7");
        shown["accounts"][0]["frozen"].as_str().expect("an amount").to_owned()
    }
}

const APPLY: [&str; 5] = ["--apply", "--actor", "ann", "--reason", "moving over"];

fn on_old(test: impl AsyncFnOnce(&Operator)) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let operator = Operator::new().await;
        test(&operator).await;
        operator.old.close().await;
        drop_database(&operator.old).await;
    });
}

#[test]
fn postgres_an_exchange_moves_over_with_payments_on_their_way() {
    on_old(async |operator| {
        let hash = format!(", '0x{}'", "11".repeat(32));
        operator.row(1, 1, ("10", "pending"), ("", "")).await;
        operator.row(2, 1, ("20", "processing"), (", tx_hash", &hash)).await;
        operator.row(3, 1, ("30", "approved"), ("", "")).await;
        operator.row(4, 1, ("40", "completed"), ("", "")).await;
        operator.row(5, 8, ("50", "pending"), ("", "")).await;
        operator.row(6, 1, ("60", "pending"), (", amount_raw", ", '61'")).await;
        // Looking changes nothing, here or there.
        let (plan, code, _) = operator.import(&[]);
        assert_eq!(
            (code.as_str(), plan["done"].as_array().map(Vec::len), &plan["backup"]),
            ("", Some(0), &Value::Null),
            "{plan}"
        );
        let becomes = |plan: &Value, number: u32| {
            let rows = plan["rows"].as_array().expect("rows").clone();
            let row = rows.into_iter().find(|row| row["id"] == id(1, number)).unwrap_or(Value::Null);
            row["becomes"].as_str().unwrap_or("nothing").to_owned()
        };
        let expected = [
            "waits for a person",
            "followed by its hash",
            "may have been paid: two people look",
            "nothing",
            "not taken over",
            "not taken over",
        ];
        assert_eq!((1..=6).map(|number| becomes(&plan, number)).collect::<Vec<_>>(), expected);
        assert_eq!((operator.states(), operator.held().as_str()), (vec![], "0.000000"));
        assert!(operator.old.ask("", "SELECT COUNT(*) FROM withdrawal_requests_backup").await.is_err(), "no backup");
        // Done: what cannot be placed is named, and the rest is held.
        let (done, code, message) = operator.import(&APPLY);
        assert_eq!((code.as_str(), done["done"].as_array().map(Vec::len)), ("IMPORT_LEFT_ROWS", Some(3)), "{message}");
        assert!(message.starts_with("2 rows were not taken over"), "{message}");
        let state = |amount: &str, state: &str| (format!("{amount}.000000"), state.to_owned());
        let expected = [state("10", "pending"), state("20", "queued"), state("30", "manual_review")];
        assert_eq!((operator.states(), operator.held().as_str()), (expected.to_vec(), "60.000000"));
        assert_eq!(operator.count("withdrawal_requests_backup").await, "6");
        // Again, with what was missing mended there and here: the rest follows, and nothing twice.
        operator.write("users.csv", &format!("{},7\n{},8\n", id(2, 1), id(2, 8)));
        operator.good("account open --user 8 --asset USDT");
        operator.good("adjust credit --user 8 --asset USDT --amount 100 --from custody:bsc --key second --actor ann --second bob --reason test");
        operator.there(&format!("UPDATE withdrawal_requests SET amount_raw = NULL WHERE id = '{}'", id(1, 6))).await;
        let (again, code, message) = operator.import(&APPLY);
        assert_eq!((code.as_str(), message.as_str()), ("", ""), "{again}");
        assert_eq!((operator.states().len(), operator.held().as_str()), (5, "120.000000"));
        let (third, code, _) = operator.import(&APPLY);
        let new = third["done"].as_array().expect("rows").iter().filter(|one| one["before"] != json!(true)).count();
        assert_eq!((code.as_str(), new, operator.held().as_str()), ("", 0, "120.000000"));
        // The other program was not stopped after all: what it has paid since waits for two people here.
        operator
            .there(&format!(
                "UPDATE withdrawal_requests SET status = 'completed', tx_hash = '0x{}' WHERE id = '{}'",
                "22".repeat(32),
                id(1, 1)
            ))
            .await;
        let (changed, code, message) = operator.import(&APPLY);
        assert_eq!(
            (code.as_str(), changed["changed"].as_array().map(Vec::len)),
            ("IMPORT_LEFT_ROWS", Some(1)),
            "{message}"
        );
        assert!(operator.states().contains(&state("10", "manual_review")), "{:?}", operator.states());
        assert!(operator.good("audit")["clean"].as_bool().expect("a verdict"));
    });
}

#[test]
fn postgres_what_is_typed_wrong_changes_nothing() {
    on_old(async |operator| {
        operator.row(1, 1, ("10", "pending"), ("", "")).await;
        let code = |more: &[&str]| operator.import(more).1;
        assert_eq!(code(&["--apply"]), "BAD_USAGE");
        assert_eq!(code(&["--chain", "BNB Chain"]), "BAD_USAGE");
        assert_eq!(code(&["--table", "withdrawals; DROP TABLE chains"]), "BAD_USAGE");
        assert_eq!(code(&["--table", "nothing_there"]), "IMPORT_SCHEMA_DIFFERS");
        assert_eq!(code(&["--from", "postgres://nobody@127.0.0.1:1/nothing"]), "IMPORT_SOURCE_UNREADABLE");
        assert_eq!(code(&["--from", "mysql://somebody@127.0.0.1/old"]), "BAD_DATABASE_URL");
        for users in ["", "7", "a,b", "a,7\nb,7", "a,7\na,8"] {
            operator.write("users.csv", users);
            let expected = if users.is_empty() { "" } else { "IMPORT_USERS_INVALID" };
            assert_eq!(code(&[]), expected, "{users:?}");
        }
        assert_eq!(operator.states(), []);
        operator.write("users.csv", &format!("{},7\n", id(2, 1)));
        // A backup in a file is whole, with its checksum beside it, and is never written over.
        let file = [&APPLY[..], &["--backup-file", "old.backup"]].concat();
        assert_eq!(code(&file), "");
        let backup = std::fs::read(operator.folder.path().join("old.backup")).expect("a backup");
        assert!(String::from_utf8_lossy(&backup).contains(FAR));
        assert!(Path::new(&operator.folder.path().join("old.backup.crc32c")).is_file());
        assert_eq!(code(&file), "FILE_NOT_WRITABLE");
        assert_eq!(std::fs::read(operator.folder.path().join("old.backup")).expect("as it was"), backup);
        operator.there("ALTER TABLE withdrawal_requests DROP COLUMN amount_raw").await;
        assert_eq!(code(&[]), "IMPORT_SCHEMA_DIFFERS");
    });
}
