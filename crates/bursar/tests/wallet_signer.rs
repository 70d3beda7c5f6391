//! The server and its signer as processes: no address is given away that the signer has no key for, and a signer that was put back is noticed.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use terminal::clock::Stopwatch;

const CHAINS: &str = "[chains.bsc]\nkind = \"evm\"\nnetwork = \"56\"\nconfirmations = 12\n";
const SETTINGS: &str = "[treasury]\nfile = \"treasury.toml\"\n[auth]\nhs256_secret_file = \"jwt.secret\"\n\
    [signer]\nsocket = \"bursar-signer/socket\"\ncredential_file = \"server.credential\"\n\
    [http]\nlisten = \"127.0.0.1:0\"\n[spot]\naddress = \"\"\n";

struct Operator(TempDir);

/// What it prints is read for as long as it runs.
struct Running(Child, #[expect(dead_code, reason = "a pipe that is closed would end it")] BufReader<ChildStdout>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Running {
    fn terminate(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

impl Operator {
    /// With a signer, whose groups are `users` and `gas`, and a treasury file that pins them.
    fn new() -> Self {
        let operator = Self(tempfile::tempdir().unwrap());
        operator.write("passphrase", "correct horse battery staple\n");
        operator.write("jwt.secret", &"s".repeat(48));
        operator.write("bursar.toml", SETTINGS);
        operator.good("signer init --passphrase-file passphrase --group users:deposit:evm --group gas:gas:evm");
        operator.good("signer key add server --derive --credential server.credential");
        operator.pin("users", "gas");
        operator.good("migrate");
        operator.good("apply treasury.toml");
        operator
    }

    /// Writes a treasury file that has the signer's keys of these groups under the names `users` and `gas`.
    fn pin(&self, users: &str, gas: &str) {
        let mut text = CHAINS.to_owned();
        for (name, purpose, from) in [("users", "deposit", users), ("gas", "gas", gas)] {
            let xpub = self.good(&format!("signer export-xpub {from}"))["xpub"].as_str().unwrap().to_owned();
            text += &format!("[wallet_groups.{name}]\nchain = \"evm\"\npurpose = \"{purpose}\"\nxpub = \"{xpub}\"\n");
        }
        self.write("treasury.toml", &text);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.current_dir(self.0.path()).stdin(Stdio::null()).env_remove("CREDENTIALS_DIRECTORY");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BURSAR_")) {
            command.env_remove(name);
        }
        command.arg("--json").args(words.split(' '));
        command
    }

    #[track_caller]
    fn good(&self, words: &str) -> Value {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().last().map_or(Value::Null, |line| serde_json::from_str(line).unwrap_or(Value::Null))
    }

    #[track_caller]
    fn refused(&self, words: &str) -> (String, Option<i32>, String) {
        let output = self.command(words).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let report = stderr.lines().rev().find(|line| line.starts_with("{\"error\""));
        let body: Value = serde_json::from_str(report.unwrap_or_else(|| panic!("{words}: {stderr}"))).unwrap();
        let field = |name: &str| body["error"][name].as_str().unwrap().to_owned();
        assert!(!field("hint").is_empty());
        (field("code"), output.status.code(), field("message"))
    }

    fn start(&self, words: &str) -> (Running, Value) {
        let mut child = self.command(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "{words} ended: {:?}", child.wait());
        }
        (Running(child, output), serde_json::from_str(&line).unwrap())
    }

    fn signer(&self) -> Running {
        self.start("signer serve --passphrase-file passphrase").0
    }

    fn copy(&self, from: &str, to: &str) {
        assert!(Command::new("cp").arg("-rp").arg(self.path(from)).arg(self.path(to)).status().unwrap().success());
    }
}

/// What the listener for operators says.
fn metrics(greeting: &Value) -> String {
    let address = greeting["operations"].as_str().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn no_address_is_given_away_before_the_signer_has_said_that_it_has_the_key() {
    let operator = Operator::new();
    let add = "wallet add --group users --user 7";
    // Away.
    let (code, exit, _) = operator.refused(add);
    assert_eq!((code.as_str(), exit), ("SIGNER_UNAVAILABLE", Some(3)));
    let (code, exit, _) = operator.refused("wallet verify");
    assert_eq!(
        (code.as_str(), exit),
        ("SIGNER_UNAVAILABLE", Some(3)),
        "the rows are good, and the signer was not asked"
    );
    let signer = operator.signer();
    assert_eq!(operator.good(add)["added"], 1);
    assert_eq!(operator.good("wallet verify")["agrees"], true);
    // A key that may not ask for groups is a signer that cannot be asked.
    signer.terminate();
    std::fs::remove_file(operator.path("server.credential")).unwrap();
    operator.good("signer key remove server");
    operator.good("signer key add server --sign gas --credential server.credential");
    let signer = operator.signer();
    let (code, exit, message) = operator.refused(add);
    assert_eq!((code.as_str(), exit), ("SIGNER_UNAVAILABLE", Some(3)), "{message}");
    assert!(message.contains("SIGNER_FORBIDDEN"), "{message}");
    signer.terminate();

    // Somebody else's signer answers at the socket: it has groups of the same names.
    std::fs::rename(operator.path("bursar-signer"), operator.path("ours")).unwrap();
    operator.good("signer init --passphrase-file passphrase --group users:deposit:evm --group gas:gas:evm");
    std::fs::remove_file(operator.path("server.credential")).unwrap();
    operator.good("signer key add server --derive --credential server.credential");
    let other = operator.signer();
    for words in [add, "wallet verify", "serve --create-spot"] {
        let (code, exit, message) = operator.refused(words);
        assert_eq!((code.as_str(), exit), ("WALLET_GROUPS_DIFFER", Some(1)), "{words}: {message}");
        assert!(message.contains("in 2 places; the first: signer, gas: its xpub is "), "{message}");
    }
    other.terminate();
    // The database has no wallet more, and no head of that signer.
    assert_eq!(operator.good("wallet list")["wallets"].as_array().unwrap().len(), 1);
}

#[test]
fn a_server_starts_without_its_signer_and_goes_on_asking() {
    let operator = Operator::new();
    let (server, greeting) = operator.start("serve --create-spot");
    assert!(metrics(&greeting).contains("\nbursar_signer_agrees 0\n"));
    let signer = operator.signer();
    let begun = Stopwatch::start();
    while !metrics(&greeting).contains("\nbursar_signer_agrees 1\n") {
        assert!(begun.elapsed() < Duration::from_secs(60), "the signer is there and was not asked");
        std::thread::sleep(Duration::from_millis(200));
    }
    signer.terminate();
    let begun = Stopwatch::start();
    while !metrics(&greeting).contains("\nbursar_signer_agrees 0\n") {
        assert!(begun.elapsed() < Duration::from_secs(60), "the signer is away and passes for well");
        std::thread::sleep(Duration::from_millis(200));
    }
    server.terminate();
}

#[test]
fn a_signer_whose_log_was_put_back_is_noticed_by_the_head_in_the_database() {
    let operator = Operator::new();
    let signer = operator.signer();
    operator.good("wallet verify");
    signer.terminate();
    operator.copy("bursar-signer/log", "yesterday");
    // The log grows: a policy is an entry.
    let openssl = |words: &str| {
        let output = Command::new("openssl").args(words.split(' ')).current_dir(operator.0.path()).output().unwrap();
        assert!(output.status.success(), "{words}");
        output.stdout
    };
    openssl("genpkey -algorithm ed25519 -out ada.key");
    std::fs::set_permissions(operator.path("ada.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let der = openssl("pkey -in ada.key -pubout -outform DER");
    let public = signer::digest::hex(&der[der.len() - 32..]);
    operator.write(
        "policy.toml",
        &format!(
            "signer = \"test\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 48\n\
             administrators = {{ needed = 1, keys = {{ ada = \"{public}\" }} }}\n\
             group = []\nchain = [{{ name = \"bsc\", kind = \"evm\", chain_id = 56 }}]\n"
        ),
    );
    operator.good("signer policy sign policy.toml --as ada --key ada.key");
    operator.good("signer policy apply policy.toml");
    let signer = operator.signer();
    assert_eq!(operator.good("wallet verify")["agrees"], true, "the head is kept");
    signer.terminate();
    std::fs::rename(operator.path("bursar-signer/log"), operator.path("newest")).unwrap();
    operator.copy("yesterday", "bursar-signer/log");
    let mut signer = operator.signer();
    let (code, exit, message) = operator.refused("wallet verify");
    assert_eq!((code.as_str(), exit), ("SIGNER_LOG_ROLLED_BACK", Some(1)), "{message}");
    assert_eq!(signer.0.wait().unwrap().code(), Some(1), "a head that it gave, and lacks, ends it");
    // With the newest log all is well again.
    std::fs::remove_dir_all(operator.path("bursar-signer/log")).unwrap();
    std::fs::rename(operator.path("newest"), operator.path("bursar-signer/log")).unwrap();
    let signer = operator.signer();
    assert_eq!(operator.good("wallet verify")["agrees"], true);
    signer.terminate();
}

#[test]
fn a_treasury_file_that_others_may_write_pins_nothing() {
    let operator = Operator::new();
    std::fs::set_permissions(operator.path("treasury.toml"), std::fs::Permissions::from_mode(0o664)).unwrap();
    for words in ["wallet list", "serve --create-spot", "config check"] {
        let (code, exit, message) = operator.refused(words);
        assert_eq!((code.as_str(), exit), ("TREASURY_FILE_EXPOSED", Some(2)), "{words}: {message}");
    }
    std::fs::set_permissions(operator.path("treasury.toml"), std::fs::Permissions::from_mode(0o644)).unwrap();
    operator.good("wallet list");
}
