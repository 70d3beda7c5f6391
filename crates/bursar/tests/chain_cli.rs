//! `bursar chain` as an operator types it, on the devnet: what nodes say, and what that allows.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bursar");

/// The devnet in a process of its own. It ends with the test.
struct Devnet {
    child: Child,
    listening: Value,
}

impl Drop for Devnet {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Devnet {
    fn start() -> Self {
        let ports = ["--evm-port", "0", "--tron-port", "0", "--bitcoin-port", "0", "--control-port", "0", "--by-hand"];
        let mut command = Command::new(PROGRAM);
        command.args(["--json", "devnet"]).args(ports).stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        Self { child, listening: serde_json::from_str(&line).expect("JSON") }
    }

    fn urls(&self, chain: &str) -> Vec<String> {
        let urls = self.listening[chain].as_array().expect("endpoints");
        urls.iter().map(|url| url.as_str().expect("a URL").to_owned()).collect()
    }

    fn control(&self, path: &str, body: &Value) {
        let address = self.listening["control"].as_str().expect("an address");
        let (mut stream, body) = (TcpStream::connect(address).expect("the control port"), body.to_string());
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
}

const TREASURY: &str = r#"
[assets.USDT]
precision = 6
min_transfer = "1"
max_transfer = "1000"
daily_transfer = "5000"
[chains.bsc]
kind = "evm"
network = "56"
confirmations = 12
[chains.tron]
kind = "tron"
network = "regtest"
confirmations = 19
[chains.bitcoin]
kind = "bitcoin"
network = "regtest"
confirmations = 3
[chains.polygon]
kind = "evm"
network = "137"
confirmations = 30
status = "suspended"
[[on_chain]]
asset = "USDT"
chain = "bsc"
contract = "0x55d398326f99059ff775485246999027b3197955"
decimals = 18
min_deposit = "1"
"#;

struct Operator(TempDir);

impl Operator {
    fn new() -> Self {
        let operator = Self(tempfile::tempdir().expect("a folder"));
        operator.write("treasury.toml", TREASURY);
        operator.write("login", "any:any");
        operator.configure("");
        operator.good("migrate");
        operator.good("apply treasury.toml");
        operator
    }

    fn write(&self, name: &str, content: &str) {
        use std::os::unix::fs::PermissionsExt;
        let file = self.0.path().join(name);
        std::fs::write(&file, content).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    }

    fn configure(&self, chains: &str) {
        self.write("bursar.toml", &format!("[database]\nurl = \"sqlite://x.db\"\n{chains}"));
    }

    fn run(&self, words: &str) -> Output {
        let mut command = Command::new(PROGRAM);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BURSAR_")) {
            command.env_remove(name);
        }
        command.current_dir(self.0.path()).stdin(Stdio::null()).args(words.split(' ')).output().expect("it runs")
    }

    fn good(&self, words: &str) -> Value {
        let output = self.run(&format!("--json {words}"));
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// The code, the exit code, and what was printed all the same.
    fn bad(&self, words: &str) -> (String, Option<i32>, Value) {
        let output = self.run(&format!("--json {words}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report: Value = stderr.lines().last().and_then(|line| serde_json::from_str(line).ok()).expect("a report");
        let code = report["error"]["code"].as_str().expect("a code").to_owned();
        (code, output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
    }
}

fn section(chain: &str, urls: &[String], more: &str) -> String {
    let mut text = String::new();
    for (number, url) in urls.iter().enumerate() {
        text.push_str(&format!("[[chains.{chain}.nodes]]\nname = \"{chain}-{number}\"\nurl = \"{url}\"\n{more}\n"));
    }
    text
}

#[test]
fn good_nodes_of_all_three_chains_let_deposits_be_credited() {
    let (devnet, operator) = (Devnet::start(), Operator::new());
    for chain in ["evm", "tron", "bitcoin"] {
        devnet.control(&format!("/{chain}/mine"), &json!({ "blocks": 5 }));
    }
    let login = "login_file = \"login\"";
    operator.configure(
        &[
            section("bsc", &devnet.urls("evm"), ""),
            section("tron", &devnet.urls("tron"), ""),
            section("bitcoin", &devnet.urls("bitcoin"), login),
        ]
        .concat(),
    );
    let body = operator.good("chain check");
    let chains = body["chains"].as_array().expect("chains");
    assert_eq!(chains.len(), 3, "{body}");
    for chain in chains {
        assert_eq!(chain["credits"], true, "{chain}");
        assert_eq!(chain["says"][0], "3 of 3 agree: deposits are credited", "{chain}");
        for node in chain["nodes"].as_array().expect("nodes") {
            assert_eq!(
                (&node["state"], &node["lag"], &node["agrees"]),
                (&json!("good"), &json!(0), &json!(true)),
                "{node}"
            );
            assert!(node["head"].as_u64().is_some_and(|head| head >= 5) && node["latency_ms"].is_u64(), "{node}");
        }
    }
    let text = operator.run("chain check tron");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.starts_with("tron: 2 of 3, proof by second-node\n"), "{text}");
    assert!(!text.contains("http://"), "no address is shown: {text}");
    let status = operator.good("chain status");
    let followed: Vec<(&str, bool)> = status["chains"]
        .as_array()
        .expect("chains")
        .iter()
        .map(|chain| (chain["chain"].as_str().expect("a name"), chain["followed"] == true))
        .collect();
    assert_eq!(followed, [("bitcoin", true), ("bsc", true), ("polygon", false), ("tron", true)]);
}

#[test]
fn nodes_that_are_away_lag_or_are_on_another_network_are_told_apart() {
    let (devnet, operator) = (Devnet::start(), Operator::new());
    devnet.control("/evm/mine", &json!({ "blocks": 50 }));
    let urls = devnet.urls("evm");
    let nobody = "http://127.0.0.1:1".to_owned();
    operator.configure(&section("bsc", &[urls[0].clone(), urls[1].clone(), nobody.clone()], ""));
    let body = operator.good("chain check bsc");
    let chain = &body["chains"][0];
    assert_eq!(
        (&chain["says"][0], &chain["nodes"][2]["state"]),
        (&json!("2 of 3 agree: deposits are credited"), &json!("no answer"))
    );
    let two_away = [urls[0].clone(), "http://127.0.0.1:2".to_owned(), nobody];
    operator.configure(&section("bsc", &two_away, ""));
    let (code, exit, body) = operator.bad("chain check");
    assert_eq!(
        (code.as_str(), exit, &body["chains"][0]["credits"]),
        ("CHAIN_NO_QUORUM", Some(3), &json!(false)),
        "{body}"
    );
    // One that is left behind still has the block that is compared, or has not come so far; either way the others decide.
    devnet.control("/evm/endpoints/2", &json!({ "lag": 40 }));
    operator.configure(&section("bsc", &urls, ""));
    let body = operator.good("chain check bsc");
    assert_eq!(
        (&body["chains"][0]["nodes"][2]["state"], &body["chains"][0]["nodes"][2]["lag"]),
        (&json!("lags"), &json!(40)),
        "{body}"
    );
    devnet.control("/evm/endpoints/2", &json!({ "contradict": 30 }));
    let body = operator.good("chain check bsc");
    assert_eq!(
        (&body["chains"][0]["nodes"][2]["state"], &body["chains"][0]["says"][0]),
        (&json!("disagrees"), &json!("2 of 3 agree: deposits are credited")),
        "{body}"
    );
    devnet.control("/evm/endpoints/1", &json!({ "connection": "silent" }));
    operator.configure(&section("bsc", &urls, "").replacen("[[", "[chains.bsc]\ncall_timeout_ms = 500\n[[", 1));
    let (code, _, body) = operator.bad("chain check bsc");
    assert_eq!(
        (code.as_str(), &body["chains"][0]["nodes"][1]["state"]),
        ("CHAIN_NO_QUORUM", &json!("no answer")),
        "{body}"
    );
    devnet.control("/heal", &json!({}));
    operator.configure(&section("polygon", &urls, ""));
    let (code, exit, body) = operator.bad("chain check polygon");
    assert_eq!((code.as_str(), exit), ("CHAIN_WRONG_NETWORK", Some(3)), "{body}");
    assert_eq!(body["chains"][0]["nodes"][0]["state"], "wrong network");
}

#[test]
fn a_name_that_is_no_chain_is_an_error_everywhere() {
    let operator = Operator::new();
    operator.configure(&section("bcs", &["http://127.0.0.1:1".to_owned()], ""));
    for words in ["chain check", "chain check bsc", "chain status"] {
        let (code, exit, _) = operator.bad(words);
        assert_eq!((code.as_str(), exit), ("INVALID_CHAIN", Some(2)), "{words}");
    }
    operator.configure("");
    assert_eq!(operator.bad("chain check nowhere").0, "INVALID_CHAIN");
    assert_eq!(operator.bad("chain check bsc").0, "CONFIG_INVALID", "it has no nodes");
    assert_eq!(operator.good("chain check")["chains"], json!([]));
}

const COIN: &str = r#"
[assets.BNB]
precision = 8
min_transfer = "1"
max_transfer = "1000"
daily_transfer = "5000"
[[on_chain]]
asset = "BNB"
chain = "bsc"
decimals = 18
min_deposit = "0.01"
"#;

/// Blocks read again, a chain that goes back, findings: each on a chain that is read, and each with things that are wrong.
#[test]
fn what_people_order_is_held_against_the_books() {
    let (devnet, operator) = (Devnet::start(), Operator::new());
    devnet.control("/evm/mine", &json!({ "blocks": 40 }));
    operator.configure(&section("bsc", &devnet.urls("evm"), ""));
    assert_eq!(operator.bad("chain rescan bsc 1 2").0, "CHAIN_NOT_BEGUN");
    operator.write("treasury.toml", &format!("{TREASURY}{COIN}"));
    operator.good("apply treasury.toml");
    operator.good("run deposits --chain bsc --from 10 --once");
    let reading = |operator: &Operator| {
        let status = operator.good("chain status");
        let chains = status["chains"].as_array().expect("chains").clone();
        chains.into_iter().find(|chain| chain["chain"] == "bsc").expect("bsc")["reading"].clone()
    };
    let proven = reading(&operator)["proven"].as_u64().expect("a height");
    assert!(proven >= 40, "{proven}");
    for words in ["chain rescan bsc 10 12", "chain rescan bsc 12 11", "chain rescan bsc 12 999"] {
        let (code, exit, _) = operator.bad(words);
        assert_eq!((code.as_str(), exit), ("INVALID_BLOCKS", Some(2)), "{words}");
    }
    assert_eq!(operator.bad("chain rescan bcs 11 12").0, "INVALID_CHAIN");
    assert_eq!(operator.bad("chain rescan bitcoin 11 12").0, "INVALID_CHAIN");
    operator.good("chain rescan bsc 11 12");
    operator.good("chain rescan bsc 20 30");
    assert_eq!(reading(&operator)["reads_again"], json!({ "from": 11, "to": 30 }), "both are read");
    operator.good("run deposits --chain bsc --once");
    assert_eq!(reading(&operator)["reads_again"], Value::Null);
    assert_eq!(operator.good("chain rescan bsc --stop")["stopped"], false);

    let (code, exit, _) = operator.bad("chain resume bsc --actor ann --reason mended");
    assert_eq!((code.as_str(), exit), ("CHAIN_NOT_HALTED", Some(2)));
    assert_eq!(operator.bad("chain rewind bsc --to 20 --actor ann --second ann --reason x").0, "SECOND_PERSON_MISSING");
    assert_eq!(operator.bad("chain rewind bsc --to 9 --actor ann --second bob --reason x").0, "INVALID_BLOCKS");
    let back = operator.good("chain rewind bsc --to 20 --actor ann --second bob --reason x");
    assert_eq!((&back["block"], &back["taken_back"]), (&json!(20), &json!(0)));
    assert_eq!(reading(&operator)["proven"], 20);
    operator.good("run deposits --chain bsc --once");
    assert_eq!(reading(&operator)["proven"], proven);

    assert_eq!(operator.good("chain findings")["findings"], json!([]), "what people did needs nobody to look");
    assert_eq!(operator.bad("chain resolve 7 --actor ann").0, "FINDING_NOT_FOUND");
    assert_eq!(operator.bad("chain findings bcs").0, "INVALID_CHAIN");
}
