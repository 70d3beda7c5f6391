//! `bursar load` against the plain server: every answer is looked at, and what is not as expected is told.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn bursar(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments);
    command
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of letters").to_owned()
}

#[track_caller]
fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn clients_move_money_in_and_out_and_say_what_they_did_not_expect() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", text(&folder.path().join("x.db")));
    let treasury = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/treasury.toml");
    for arguments in [&["migrate"][..], &["apply", "--actor", "bench", treasury]] {
        let output = bursar(arguments).env("BURSAR_DATABASE_URL", &url).current_dir(folder.path()).output();
        assert!(output.expect("bursar runs").status.success());
    }
    let [secret, other, spot] = ["secret", "other", "spot"].map(|name| text(&folder.path().join(name)));
    for (file, byte) in [(&secret, b'a'), (&other, b'b')] {
        std::fs::write(file, [byte; 32]).expect("written");
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    }
    let mut server = bursar(&["drill", "plain", "--database-url", &url, "--secret-file", &secret, "--spot", &spot])
        .args(["--users", "8"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it listens");
    let event: Value = serde_json::from_str(&line).expect("JSON");
    let address = event["http"].as_str().expect("an address");
    let load = |secret: &str| {
        let options = ["--connections", "4", "--seconds", "1", "--users", "8", "--path", "/plain"];
        let output = bursar(&["--json", "load", "--http", address, "--secret-file", secret]).args(options).output();
        json(&output.expect("bursar runs"))
    };
    let (good, bad) = (load(&secret), load(&other));
    server.kill().expect("killed");
    server.wait().expect("ended");
    assert_eq!((&good["errors"], &good["first_error"]), (&Value::from(0), &Value::Null));
    assert!(good["transfers"].as_u64().expect("a number") >= 4, "{good}");
    assert_eq!(bad["transfers"], 0);
    assert!(bad["first_error"].as_str().expect("a text").starts_with("401 "), "{bad}");
    let left = bursar(&["--json", "load", "--http", address, "--secret-file", &secret, "--seconds", "1"]).output();
    assert_eq!(left.expect("bursar runs").status.code(), Some(3), "nobody listens any more");
}
