//! `bursar policy` and `bursar withdrawal` as an operator types them: policies come from the treasury file as versions, a request is judged without a
//! trace, and a policy that is wider than the signer's is found.

use std::process::{Command, Output, Stdio};

use domain::transfer::ClientOrderId;
use domain::{Amount, Timestamp, UserId};
use serde_json::{Value, json};
use store::Db;
use store::withdrawal::{CreatedWithdrawal, NewWithdrawal, WithdrawalId};
use tempfile::TempDir;

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
"#;
const POLICY: &str = r#"
[[withdrawals]]
asset = "USDT"
chain = "bsc"
min = "10"
max = "5000"
fee = "1"
auto_approve = "100"
two_above = "1000"
many_above = "5000"
daily_total = "300"
"#;
const SIGNER: &str = r#"
signer = "one"
version = 4
cooling_off_hours = 24
most_intent_life_hours = 48
[administrators]
needed = 1
keys = { root = "2152f8d19b791d24453242e15f2eab6cb7cffa7b6a5ed30097960e069881db12" }
[[approver]]
key = "ann"
person = "ann"
ed25519 = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
[[approver]]
key = "ben"
person = "ben"
ed25519 = "4cb5abf6ad79fbf5abbccafcc269d85cd2651ed4b885b5869f241aedf0a5ba29"
[[chain]]
name = "bsc"
kind = "evm"
chain_id = 56
[[group]]
id = "hot-evm"
chain = "bsc"
role = "hot"
most_fee = "4000000000000000"
most_fee_day = "4000000000000000"
[[group.coin]]
coin = "0x55d398326f99059fF775485246999027B3197955"
payment = "100000000000000000000"
hour = "300000000000000000000"
day = "1000000000000000000000"
step = [
    { up_to = "1000000000000000000000", approvals = 1, of = ["ann", "ben"] },
    { up_to = "5000000000000000000000", approvals = 2, of = ["ann", "ben"] },
]
"#;
const FAR: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

struct Operator {
    folder: TempDir,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Operator {
    /// With a database, the treasury above, and a user who has 1,000 USDT.
    fn new() -> Self {
        let operator = Self { folder: tempfile::tempdir().expect("a folder") };
        operator.good("migrate");
        operator.apply(&format!("{TREASURY}{POLICY}"));
        operator.good("account open --user 7 --asset USDT");
        operator.good("adjust credit --user 7 --asset USDT --amount 1000 --from custody:bsc --key first --actor ann --second bob --reason test");
        operator
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.folder.path().join(name), content).expect("written");
    }

    /// What it changes: what, field, before, after.
    fn apply(&self, treasury: &str) -> Vec<[String; 4]> {
        self.write("treasury.toml", treasury);
        let changes = self.good("apply treasury.toml")["changes"].as_array().expect("changes").clone();
        let field = |change: &Value, name: &str| change[name].as_str().unwrap_or("(new)").to_owned();
        changes.iter().map(|change| ["entity", "field", "before", "after"].map(|name| field(change, name))).collect()
    }

    fn run(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).env("USER", "tester");
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

    /// The code and the exit code, and what was printed before.
    #[track_caller]
    fn bad(&self, words: &str) -> (String, Option<i32>, Value) {
        let output = self.run(&format!("--json {words}"));
        let stderr = text(&output.stderr);
        let body: Value = serde_json::from_str(stderr.lines().next_back().unwrap_or_default()).expect("a failure");
        let printed = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        (body["error"]["code"].as_str().expect("a code").to_owned(), output.status.code(), printed)
    }

    fn on_database<T>(&self, act: impl AsyncFnOnce(Db) -> T) -> T {
        let url = format!("sqlite://{}", self.folder.path().join("bursar-data/bursar.db").display());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { act(Db::connect(&url, &store::Options::default()).await.expect("a database")).await })
    }
}

fn policy(changes: &[(&str, &str)]) -> String {
    let mut text = format!("{TREASURY}{POLICY}");
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

#[test]
fn a_policy_is_a_new_version_when_it_changed_and_only_then() {
    let operator = Operator::new();
    let shown = operator.good("policy show");
    let [one] = &shown["policies"].as_array().expect("policies")[..] else { panic!("{shown}") };
    assert_eq!((&one["version"], &one["enabled"], &one["incident"]), (&json!(1), &json!(true), &json!(false)));
    assert_eq!((&one["min"], &one["fee"], &one["daily_user"]), (&json!("10.000000"), &json!("1.000000"), &Value::Null));
    assert_eq!((&one["actor"], &one["reason"]), (&json!("tester"), &json!("bursar apply")));
    assert_eq!(operator.apply(&policy(&[])), Vec::<[String; 4]>::new(), "nothing changed");
    let what = |field: &str, before: &str, after: &str| {
        ["withdrawals of USDT on bsc", field, before, after].map(str::to_owned)
    };
    // In an incident somebody switches; a file that says nothing of it leaves it so.
    let incident = policy(&[("fee = \"1\"", "fee = \"1\"\nincident = true")]);
    assert_eq!(operator.apply(&incident), [what("incident", "false", "true")]);
    let dearer = policy(&[("fee = \"1\"", "fee = \"2\"")]);
    operator.write("treasury.toml", &dearer);
    let plan = operator.good("apply treasury.toml --dry-run");
    assert_eq!((plan["applied"].as_bool(), plan["changes"].as_array().map(Vec::len)), (Some(false), Some(1)));
    assert_eq!(operator.good("policy show")["policies"][0]["version"], 2, "a plan changes nothing");
    assert_eq!(operator.apply(&dearer), [what("fee", "1.000000", "2.000000")]);
    let history = operator.good("policy show --asset USDT --chain bsc --history");
    let versions: Vec<(i64, &str, bool)> = history["policies"]
        .as_array()
        .expect("versions")
        .iter()
        .map(|one| {
            (
                one["version"].as_i64().expect("a number"),
                one["fee"].as_str().expect("an amount"),
                one["incident"] == true,
            )
        })
        .collect();
    assert_eq!(versions, [(1, "1.000000", false), (2, "1.000000", true), (3, "2.000000", true)]);
    // What is stored in ledger units keeps its meaning.
    let finer = TREASURY.replace("precision = 6", "precision = 8");
    operator.write("treasury.toml", &finer);
    assert!(["SETTING_IN_USE", "LISTING_LEFT_OUT"].contains(&&*operator.bad("apply treasury.toml").0));
    let nowhere = policy(&[("chain = \"bsc\"\nmin =", "chain = \"tron\"\nmin =")]);
    operator.write("treasury.toml", &nowhere);
    let (code, exit, _) = operator.bad("apply treasury.toml");
    assert_eq!((code.as_str(), exit), ("TREASURY_INVALID", Some(2)));
}

#[test]
fn a_request_is_judged_without_a_trace() {
    let operator = Operator::new();
    let simulate = |user: i64, amount: &str, more: &str| {
        operator
            .good(&format!("policy simulate --user {user} --asset USDT --chain bsc --amount {amount} --to {FAR}{more}"))
    };
    let verdict = |body: &Value| {
        (body["verdict"].as_str().expect("a verdict").to_owned(), body["rule"].as_str().expect("a rule").to_owned())
    };
    let found = |verdict: &str, rule: &str| (verdict.to_owned(), rule.to_owned());
    let one = simulate(7, "50", "");
    assert_eq!(verdict(&one), found("approved", "auto_approve"));
    assert_eq!((&one["fee"], &one["facts"]["available"]), (&json!("1.000000"), &json!("1000000000")));
    assert_eq!(verdict(&simulate(7, "100.000001", "")), found("pending", "one_person"));
    assert_eq!(verdict(&simulate(7, "300.000001", "")), found("refused", "DAILY_TOTAL_EXCEEDED"));
    assert_eq!(verdict(&simulate(7, "5", "")), found("refused", "AMOUNT_TOO_SMALL"));
    assert_eq!(verdict(&simulate(7, "50", " --max-fee 0.5")), found("refused", "FEE_ABOVE_AGREED"));
    assert_eq!(verdict(&simulate(7, "50", " --quote fq-1-1")), found("refused", "QUOTE_EXPIRED"));
    assert_eq!(verdict(&simulate(8, "50", "")), found("refused", "ACCOUNT_NOT_FOUND"));
    for (words, code) in [
        (
            "policy simulate --user 7 --asset USDT --chain bsc --amount 50 --to 0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe",
            "ADDRESS_LENGTH",
        ),
        ("policy simulate --user 7 --asset USDT --chain tron --amount 50 --to x", "WITHDRAWAL_NOT_OFFERED"),
        (
            "policy simulate --user 7 --asset USDT --chain bsc --amount 0.0000001 --to 0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "PRECISION_OVERFLOW",
        ),
    ] {
        assert_eq!(operator.bad(words).0, code, "{words}");
    }
    // As often as one likes: no row, no hold, no sum of the day.
    assert_eq!(operator.good("withdrawal list")["withdrawals"], json!([]));
    let accounts = operator.good("account --user 7");
    assert_eq!(
        (&accounts["accounts"][0]["available"], &accounts["accounts"][0]["frozen"]),
        (&json!("1000.000000"), &json!("0.000000"))
    );
    assert_eq!(verdict(&simulate(7, "300", "")), found("pending", "one_person"), "nothing was counted");
}

#[test]
fn a_policy_that_is_wider_than_the_signers_is_found() {
    let operator = Operator::new();
    operator.write("signer.toml", SIGNER);
    let good = operator.good("policy check signer.toml");
    assert_eq!(
        (&good["wider"], &good["differences"], &good["in_force"]),
        (&json!(0), &json!([]), &Value::Null),
        "{good}"
    );
    operator.apply(&policy(&[
        ("auto_approve = \"100\"", "auto_approve = \"100.000001\""),
        ("daily_total = \"300\"\n", ""),
    ]));
    let (code, exit, body) = operator.bad("policy check signer.toml");
    assert_eq!((code.as_str(), exit), ("POLICY_WIDER", Some(1)));
    let found: Vec<String> = body["differences"]
        .as_array()
        .expect("differences")
        .iter()
        .map(|one| {
            let field = |name: &str| one[name].as_str().expect("text").to_owned();
            format!(
                "{} {}: {} > {}: {}",
                field("group"),
                field("what"),
                field("server"),
                field("signer"),
                field("verdict")
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            "hot-evm largest without people: 100.000001 > 100: WIDER",
            "hot-evm in an hour without people: any > 300: later",
            "hot-evm in a day without people: any > 1000: WIDER",
            "hot-evm people for 100.000001: 0 > 1: WIDER",
        ]
    );
    // Narrower is said and is no fault.
    operator.apply(&policy(&[("auto_approve = \"100\"", "auto_approve = \"50\"")]));
    assert_eq!(operator.good("policy check signer.toml")["wider"], 0);
    // What a payment may cost is the chain's fee_cap, by itself 4,000,000,000,000,000.
    operator.write("dear.toml", &SIGNER.replace("4000000000000000", "3999999999999999"));
    let (code, _, body) = operator.bad("policy check dear.toml");
    let costs: Vec<String> = body["differences"]
        .as_array()
        .expect("differences")
        .iter()
        .filter(|one| one["verdict"] == "WIDER")
        .map(|one| {
            let field = |name: &str| one[name].as_str().expect("text").to_owned();
            format!("{}: {} > {}", field("what"), field("server"), field("signer"))
        })
        .collect();
    assert_eq!(code, "POLICY_WIDER");
    assert_eq!(
        costs,
        [
            "cost of one: 4000000000000000 > 3999999999999999",
            "cost of one, in a day: 4000000000000000 > 3999999999999999"
        ]
    );
    // A key that only the treasury file knows spoils what others sign.
    let key = |public: &str| {
        format!("[[operator]]\nname = \"ann\"\nrole = \"approver\"\nkeys.ann = {{ ed25519 = \"{public}\" }}\n")
    };
    operator.apply(&format!(
        "{}{}",
        policy(&[("auto_approve = \"100\"", "auto_approve = \"50\"")]),
        key(&"ab".repeat(32))
    ));
    let (code, exit, body) = operator.bad("policy check signer.toml");
    assert_eq!((code.as_str(), exit, &body["wider"]), ("POLICY_WIDER", Some(1), &json!(0)));
    let other = json!([{ "operator": "ann", "key": "ann", "verdict": "it is another key in the signer's policy" }]);
    assert_eq!(body["keys"], other);
    operator.write("none.toml", "signer = 1");
    assert_eq!(operator.bad("policy check none.toml").0, "SIGNER_POLICY_INVALID");
    assert_eq!(operator.bad("policy check missing.toml").0, "FILE_NOT_READABLE");
}

#[test]
fn a_withdrawal_is_shown_with_its_verdict_and_its_history() {
    let operator = Operator::new();
    let id = operator.on_database(async |db| {
        let chain = db.chain(&"bsc".parse().expect("a name")).await.expect("a chain").expect("there");
        let new = NewWithdrawal {
            id: WithdrawalId::new(4_711).expect("a number"),
            user: UserId::new(7).expect("a user"),
            client_order_id: ClientOrderId::new("one").expect("a name"),
            listing: chain.listings[0].id,
            to: FAR.to_owned(),
            amount: Amount::from_units(50_000_000),
            most_fee: Amount::from_units(1_000_000),
            quote: None,
            travel_rule: None,
        };
        let taken = db
            .create_withdrawals(&[new], Timestamp::from_micros(1_763_000_000_000_000))
            .await
            .expect("an answer")
            .remove(0);
        let CreatedWithdrawal::New(row) = taken else { panic!("{taken:?}") };
        row.id
    });
    let listed = operator.good("withdrawal list --user 7 --chain bsc --asset USDT --state approved");
    let [one] = &listed["withdrawals"].as_array().expect("a list")[..] else { panic!("{listed}") };
    assert_eq!(
        (&one["withdrawal_id"], &one["amount"], &one["rule"]),
        (&json!(id.to_string()), &json!("50.000000"), &json!("auto_approve"))
    );
    assert_eq!(operator.good("withdrawal list --state failed")["withdrawals"], json!([]));
    let shown = operator.good(&format!("withdrawal show {id}"));
    let steps: Vec<(&str, &str)> = shown["history"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| (step["state"].as_str().expect("a state"), step["actor"].as_str().expect("somebody")))
        .collect();
    assert_eq!(steps, [("pending", "user 7"), ("approved", "policy 1")]);
    assert_eq!((&shown["inputs"]["facts"]["available"], &shown["jobs"]), (&json!("1000000000"), &json!([])));
    let text = operator.run(&format!("withdrawal show {id}"));
    assert!(text.status.success() && self::text(&text.stdout).contains("auto_approve"), "{}", self::text(&text.stdout));
    for missing in ["withdrawal show wr-1", "withdrawal show 7", "withdrawal list --cursor 7"] {
        assert_eq!(operator.bad(missing).0, "WITHDRAWAL_NOT_FOUND", "{missing}");
    }
}
