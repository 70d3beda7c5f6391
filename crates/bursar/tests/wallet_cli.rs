//! `bursar wallet` as an operator types it: keys come from the treasury file, users get their wallets, and a row that
//! somebody has changed is refused, found, and keeps a server from starting.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use store::testing::sqlite_by_hand;
use tempfile::TempDir;

/// Of BIP-39's published words "abandon … about": m/44'/60'/0' and m/44'/195'/0'.
const EVM: &str =
    "xpub6DCoCpSuQZB2jawqnGMEPS63ePKWkwWPH4TU45Q7LPXWuNd8TMtVxRrgjtEshuqpK3mdhaWHPFsBngh5GFZaM6si3yZdUsT8ddYM3PwnATt";
const CHAINS: &str = "[chains.bsc]\nkind = \"evm\"\nnetwork = \"56\"\nconfirmations = 12\n";

struct Operator {
    folder: TempDir,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn group(name: &str, chain: &str, purpose: &str, xpub: &str) -> String {
    format!("[wallet_groups.{name}]\nchain = \"{chain}\"\npurpose = \"{purpose}\"\nxpub = \"{xpub}\"\n")
}

impl Operator {
    /// With a database, and a configuration that names `treasury.toml`.
    fn new(treasury: &str) -> Self {
        let operator = Self { folder: tempfile::tempdir().expect("a folder") };
        operator
            .write("bursar.toml", "[treasury]\nfile = \"treasury.toml\"\n[auth]\nhs256_secret_file = \"jwt.secret\"\n");
        operator.write("jwt.secret", &"s".repeat(48));
        operator.write("treasury.toml", treasury);
        operator.good("migrate");
        operator
    }

    fn write(&self, name: &str, content: &str) {
        use std::os::unix::fs::PermissionsExt;
        let file = self.folder.path().join(name);
        std::fs::write(&file, content).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
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

    fn good(&self, words: &str) -> Value {
        let output = self.run(&format!("--json {words}"));
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// The code and the message of the failure, and what was printed before it.
    fn refused(&self, words: &str) -> (String, String, Option<i32>, String) {
        let output = self.run(&format!("--json {words}"));
        let stderr = text(&output.stderr);
        let report = stderr
            .lines()
            .rev()
            .find(|line| line.starts_with("{\"error\""))
            .unwrap_or_else(|| panic!("{words}: {stderr}"));
        let body: Value = serde_json::from_str(report).expect("JSON");
        let field = |name: &str| body["error"][name].as_str().expect("a text").to_owned();
        assert!(!field("hint").is_empty());
        (field("code"), field("message"), output.status.code(), text(&output.stdout))
    }

    fn by_hand(&self, statements: &'static str) {
        let url = format!("sqlite://{}", self.folder.path().join("bursar-data/bursar.db").display());
        sqlite_by_hand(&url, statements);
    }
}

fn addresses(answer: &Value) -> Vec<&str> {
    let wallets = answer["wallets"].as_array().expect("wallets");
    wallets.iter().map(|wallet| wallet["address"].as_str().expect("an address")).collect()
}

#[test]
fn users_get_the_addresses_that_every_wallet_shows() {
    let operator = Operator::new(&format!("{CHAINS}{}", group("users", "evm", "deposit", EVM)));
    let applied = operator.good("apply treasury.toml");
    assert_eq!(applied["applied"], true);
    assert_eq!(applied["next"], Value::Null);
    let added = operator.good("wallet add --group users --user 1 --user 2147483648");
    // The second address of these words in every wallet; and m/44'/60'/0'/1/0.
    assert_eq!(addresses(&added)[0], "0x6Fac4D18c912343BF86fa7049364Dd4E424Ab9C0");
    assert_eq!(added["added"], 2);
    assert_eq!(added["wallets"][1]["user"], "2147483648");
    assert_eq!(operator.good("wallet show --user 1")["wallets"][0], added["wallets"][0]);
    let range = operator.good("wallet add --group users --from 1 --to 100");
    assert_eq!((range["users"].as_u64(), range["added"].as_u64()), (Some(100), Some(99)));
    // Page by page.
    let (mut after, mut seen) = (String::new(), 0);
    loop {
        let page = operator.good(&format!("wallet list --limit 40{after}"));
        seen += addresses(&page).len();
        let Some(next) = page["next_after"].as_i64() else { break };
        after = format!(" --after {next}");
    }
    assert_eq!(seen, 101);
    let verified = operator.good("wallet verify");
    assert_eq!((verified["user_wallets"].as_u64(), verified["differ"].as_u64()), (Some(101), Some(0)));
    let shown = text(&operator.run("wallet verify").stdout);
    assert!(
        shown.contains("1 wallet groups, 0 operation wallets and 101 user wallets derived again: all agree"),
        "{shown}"
    );
    for (words, code) in [
        ("wallet add --group users --user 0", "INVALID_USER"),
        ("wallet add --group users --from 5 --to 4", "INVALID_USER"),
        ("wallet add --group users --user 4611686018427387904", "SIGNER_PATH_INVALID"),
        ("wallet add --group nobody --user 5", "WALLET_GROUP_UNUSABLE"),
        ("wallet add --group Bad --user 5", "WALLET_GROUP_UNUSABLE"),
    ] {
        let (found, _, exit, _) = operator.refused(words);
        assert_eq!((found.as_str(), exit), (code, Some(2)), "{words}");
    }
}

#[test]
fn a_changed_row_is_never_shown_and_no_server_starts_on_changed_groups() {
    let wallets = "[[operation_wallets]]\nrole = \"cold\"\nchain = \"bsc\"\naddress = \"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed\"\n";
    let operator = Operator::new(&format!("{CHAINS}{}{wallets}", group("users", "evm", "deposit", EVM)));
    // The file was not applied yet.
    let (code, message, exit, _) = operator.refused("serve --create-spot");
    assert_eq!((code.as_str(), exit), ("WALLET_GROUPS_DIFFER", Some(1)), "{message}");
    operator.good("apply treasury.toml");
    operator.good("wallet add --group users --user 7 --user 8");
    assert_eq!(
        operator.good("wallet show")["operation_wallets"][0]["address"],
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
    );

    operator.by_hand(
        "DROP TRIGGER trg_user_wallet_fixed_update; UPDATE user_wallets SET address = '0xthief' WHERE user_id = 7",
    );
    for words in ["wallet show --user 7", "wallet list", "wallet verify", "wallet add --group users --user 7"] {
        let (code, message, exit, printed) = operator.refused(words);
        assert_eq!((code.as_str(), exit), ("WALLET_ROW_DIFFERS", Some(1)), "{words}");
        assert!(message.contains("user 7 in users: the row has 0xthief, the key gives 0x"), "{words}: {message}");
        // It is named as what differs, and nowhere as an address to pay to.
        for line in printed.lines() {
            let answer: Value = serde_json::from_str(line).expect("JSON");
            assert!(!answer["wallets"].to_string().contains("0xthief"), "{words}: {line}");
        }
    }
    assert_eq!(addresses(&operator.good("wallet show --user 8")).len(), 1);

    operator.by_hand("DROP TRIGGER trg_wallet_group_fixed; UPDATE wallet_groups SET xpub = 'xpubthief'");
    let (code, message, exit, _) = operator.refused("serve --create-spot");
    assert_eq!((code.as_str(), exit), ("WALLET_GROUPS_DIFFER", Some(1)));
    assert!(message.contains("wallet_groups, users: its xpub is xpubthief"), "{message}");
    assert!(!Path::new(&operator.folder.path().join("bursar-data/spot")).exists(), "nothing was opened");
    let (code, _, exit, _) = operator.refused("wallet show");
    assert_eq!((code.as_str(), exit), ("WALLET_ROW_DIFFERS", Some(1)));
    // The file is right, so applying it again is no way around.
    assert_eq!(operator.refused("apply treasury.toml").0, "WALLET_FIXED");
}

#[test]
fn a_server_must_know_the_file_and_a_key_never_changes() {
    let treasury = format!("{CHAINS}{}", group("users", "evm", "deposit", EVM));
    let operator = Operator::new(&treasury);
    operator.good("apply treasury.toml");
    // The file has another key under the same name: as if somebody had changed it.
    let other = EVM.replace("xpub6DCo", "xpub6DCp");
    operator.write("treasury.toml", &treasury.replace(EVM, &other));
    assert_eq!(operator.refused("apply treasury.toml").0, "SIGNER_XPUB_INVALID");
    operator.write("treasury.toml", &treasury.replace("purpose = \"deposit\"", "purpose = \"hot\""));
    for words in ["apply treasury.toml", "apply treasury.toml --dry-run"] {
        let (code, _, exit, _) = operator.refused(words);
        assert_eq!((code.as_str(), exit), ("WALLET_FIXED", Some(2)));
    }
    operator.write("treasury.toml", &treasury);
    operator.write("bursar.toml", "[auth]\nhs256_secret_file = \"jwt.secret\"\n");
    let (code, message, exit, _) = operator.refused("serve --create-spot");
    assert_eq!((code.as_str(), exit), ("WALLET_GROUPS_DIFFER", Some(1)), "{message}");
    let said = operator.good("apply treasury.toml");
    assert_eq!(said["next"], "next: set treasury.file = \"treasury.toml\" in the configuration");
    // A group that is there already may be closed.
    operator.write("treasury.toml", &format!("{treasury}active = false\n"));
    let changed = operator.good("apply treasury.toml");
    assert_eq!(changed["changes"][0]["field"], "active");
}

/// Sixty random groups that ethers, tronweb and bitcoinjs-lib have made by themselves: their users' addresses are what
/// `bursar wallet show` prints.
#[test]
fn foreign_libraries_give_users_the_same_addresses() {
    let modules = std::env::var("BURSAR_TEST_NODE_MODULES").expect("BURSAR_TEST_NODE_MODULES is set by ./test");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../signer/tests/foreign/keys.mjs");
    let mut node = Command::new("node");
    let output =
        node.arg(script).args(["60", "13"]).env("BURSAR_TEST_NODE_MODULES", modules).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let cases: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(cases.len(), 60);
    let field = |case: &Value, name: &str| case[name].as_str().expect("a text").to_owned();
    // All Bitcoin wallets of a database are on one network, so each network has a database of its own.
    let mut networks: BTreeMap<String, Vec<(usize, &Value)>> = BTreeMap::new();
    for (at, case) in cases.iter().enumerate() {
        networks.entry(field(case, "chain")).or_default().push((at, case));
    }
    let mut compared = 0;
    for cases in networks.values() {
        let groups: String = cases
            .iter()
            .map(|(at, case)| group(&format!("g{at}"), &field(case, "chain"), "deposit", &field(case, "xpub")))
            .collect();
        let operator = Operator::new(&groups);
        operator.good("apply treasury.toml");
        for (at, case) in cases {
            let users = case["users"].as_array().expect("users");
            let named: Vec<String> =
                users.iter().map(|user| format!("--user {}", user.as_str().expect("a number"))).collect();
            operator.good(&format!("wallet add --group g{at} {}", named.join(" ")));
            for (user, address) in users.iter().zip(case["addresses"].as_array().expect("addresses")) {
                let shown = operator.good(&format!("wallet show --user {}", user.as_str().expect("a number")));
                let own = shown["wallets"].as_array().expect("wallets").iter();
                let own: Vec<&Value> = own.filter(|wallet| wallet["group"] == format!("g{at}")).collect();
                assert_eq!(own.len(), 1, "{shown}");
                assert_eq!(own[0]["address"], *address, "{case}");
                compared += 1;
            }
        }
        assert_eq!(operator.good("wallet verify")["differ"], 0);
    }
    assert!(compared >= 60, "{compared}");
}
