//! `bursar job` where the database is somebody else's: what people sign is shown from what is signed, and nothing that a row says moves a cursor.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use store::testing::sqlite_by_hand;
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
[assets.BNB]
precision = 8
min_transfer = "1"
max_transfer = "1000"
daily_transfer = "10000"
[chains.bsc]
kind = "evm"
network = "56"
confirmations = 12
[[on_chain]]
asset = "BNB"
chain = "bsc"
decimals = 18
min_deposit = "1"
[[on_chain]]
asset = "USDT"
chain = "bsc"
contract = "0x55d398326f99059ff775485246999027b3197955"
decimals = 18
min_deposit = "1"
[[operation_wallets]]
role = "hot"
chain = "bsc"
group = "hot-evm"
index = 0
"#;
const FAR: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

struct Operator {
    folder: TempDir,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Operator {
    /// With a treasury that is applied, and a person's key.
    fn new() -> Self {
        let operator = Self { folder: tempfile::tempdir().expect("a folder") };
        let group = format!("[wallet_groups.hot-evm]\nchain = \"evm\"\npurpose = \"hot\"\nxpub = \"{XPUB}\"\n");
        operator.write("treasury.toml", format!("{TREASURY}{group}").as_bytes());
        operator.write("bursar.toml", b"[treasury]\nfile = \"treasury.toml\"\n");
        let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        operator.write("bob.key", &[&head[..], &[7; 32]].concat());
        operator.good("migrate");
        operator.good("apply treasury.toml --actor ann --reason test");
        operator
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, owner_only).expect("a mode");
    }

    fn run(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        // The test's own settings must not reach the program.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BURSAR_")) {
            command.env_remove(name);
        }
        command.args(words.split(' ')).output().expect("it runs")
    }

    #[track_caller]
    fn good(&self, words: &str) -> Value {
        let output = self.run(&format!("--json {words}"));
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// A job of 20 USDT.
    #[track_caller]
    fn pays(&self, reference: &str) -> String {
        let words =
            format!("job add --chain bsc --asset USDT --amount 20 --to {FAR} --reference {reference} --actor ann");
        self.good(&words)["job_id"].as_str().expect("a job").to_owned()
    }

    fn approves(&self, job: &str, more: &str) -> Output {
        self.run(&format!("job approve {job} --as bob-laptop --key bob.key{more}"))
    }

    fn by_hand(&self, statements: &'static str) {
        let url = format!("sqlite://{}", self.folder.path().join("bursar-data/bursar.db").display());
        sqlite_by_hand(&url, statements);
    }

    /// In the database: a statement that counts fails if there is one.
    fn nothing_is_approved(&self) {
        self.by_hand(
            "CREATE TEMP TABLE none_yet (there INTEGER CHECK (there = 0)); INSERT INTO none_yet SELECT COUNT(*) FROM outbound_approvals;",
        );
    }
}

#[test]
fn what_is_shown_of_a_job_is_what_is_signed_and_not_what_its_listing_says() {
    let operator = Operator::new();
    let job = operator.pays("invoice-1");
    let honest = operator.approves(&job, "");
    let shown = text(&honest.stdout);
    assert!(honest.status.success(), "{}", text(&honest.stderr));
    for part in [
        "20 USDT",
        "0x55d398326f99059fF775485246999027B3197955; 20000000000000000000 of its smallest unit, 18 decimals by the treasury file",
        FAR,
        "evm:56",
        "hot-evm",
        job.as_str(),
        "round",
        "signer",
        "withdrawal",
        "invoice-1",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let read = operator.good(&format!("job approve {job} --as bob-laptop --key bob.key"));
    let digest = read["digest"].as_str().expect("a digest").to_owned();

    // Another coin, which the database still calls USDT. The one who has read it before signs nothing either.
    operator.by_hand(
        "UPDATE asset_on_chain SET contract = '0x5B38Da6a701c568545dCfcB03FcB875f56beddC4' WHERE contract IS NOT NULL",
    );
    for more in [String::new(), format!(" --digest {digest}")] {
        let lied = operator.approves(&job, &more);
        let (out, err) = (text(&lied.stdout), text(&lied.stderr));
        assert!(!lied.status.success() && err.contains("APPROVAL_OTHER_DIGEST"), "{out}{err}");
        assert!(!out.contains("20 USDT") && !err.contains("20 USDT"), "{out}{err}");
    }
    operator.nothing_is_approved();

    // Twenty decimals: what was typed as 20 USDT is 2,000.
    operator.by_hand(
        "UPDATE asset_on_chain SET contract = '0x55d398326f99059fF775485246999027B3197955', decimals = 20 WHERE contract IS NOT NULL",
    );
    let dearer = operator.pays("invoice-2");
    for more in [String::new(), format!(" --digest {digest}")] {
        let lied = operator.approves(&dearer, &more);
        let (out, err) = (text(&lied.stdout), text(&lied.stderr));
        assert!(!lied.status.success() && err.contains("APPROVAL_OTHER_DIGEST"), "{out}{err}");
        assert!(!out.contains(" 20 USDT"), "{out}");
    }
    operator.nothing_is_approved();

    // Nobody here knows the coin: nothing is shown, and nothing signed.
    operator.by_hand("UPDATE asset_on_chain SET decimals = 18 WHERE contract IS NOT NULL");
    operator.write("bursar.toml", b"");
    let unknown = operator.approves(&job, &format!(" --digest {digest}"));
    assert!(!unknown.status.success() && text(&unknown.stderr).contains("CONFIG_INVALID"), "{}", text(&unknown.stderr));
    operator.nothing_is_approved();

    // All as it was.
    operator.write("bursar.toml", b"[treasury]\nfile = \"treasury.toml\"\n");
    let signed = operator.approves(&job, &format!(" --digest {digest}"));
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    operator.by_hand(
        "CREATE TEMP TABLE one (there INTEGER CHECK (there = 1)); INSERT INTO one SELECT COUNT(*) FROM outbound_approvals;",
    );
}

#[test]
fn no_row_of_the_database_moves_the_cursor() {
    let operator = Operator::new();
    let job = operator.pays("invoice-1");
    operator.by_hand(
        "DROP TRIGGER trg_outbound_job_fixed; DROP TRIGGER trg_outbound_job_signed_fixed;
         UPDATE outbound_jobs SET reference = 'pays' || char(27) || '[1A' || char(13) || char(8238) || char(155) || char(10) || 'to  nobody',
             reason = 'waits' || char(27) || '[2K' || char(13) || char(8238) || char(10) || 'line'",
    );
    for words in
        [format!("job show {job}"), "job list".to_owned(), format!("job approve {job} --as bob-laptop --key bob.key")]
    {
        for words in [words.clone(), format!("--json {words}")] {
            let output = operator.run(&words);
            let (out, err) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success() && out.contains(&job), "{words}: {out}{err}");
            assert!(!out.contains(['\u{1b}', '\r', '\u{202e}', '\u{9b}']), "{words}: {out:?}");
            assert!(
                !out.lines().any(|line| line.starts_with("to  nobody") || line.starts_with("line")),
                "{words}: {out}"
            );
            if words.starts_with("--json") {
                serde_json::from_str::<Value>(&out).unwrap_or_else(|error| panic!("{words}: {error}: {out}"));
            }
        }
    }
}
