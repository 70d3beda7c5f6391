//! `bursar spot` as a person or a script would use it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

const ROLES: [&str; 4] = ["coordinator", "order-engine", "operator", "observer"];

/// A secret is refused when others may read it.
fn write_private(file: &Path, text: &str) {
    std::fs::write(file, text).expect("written");
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
}

/// A file of credentials, with a line for each role.
fn credentials() -> &'static str {
    static FILE: LazyLock<(tempfile::TempDir, String)> = LazyLock::new(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("spot.credentials");
        let lines: String = ROLES.iter().map(|role| format!("{role} {role}-of-the-tests\n")).collect();
        write_private(&file, &lines);
        let file = file.to_str().expect("text").to_owned();
        (folder, file)
    });
    &FILE.1
}

fn bursar(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments);
    // The commands that have an engine or ask one need a file of credentials.
    if let ["spot", "serve" | "send", ..] | ["spot", "snapshot", "--connect", ..] = arguments
        && !arguments.contains(&"--credentials")
    {
        command.args(["--credentials", credentials()]);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    bursar(arguments).output().expect("bursar runs")
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)))
}

/// The error's code and message; the exit code must be the given one.
fn error(output: &Output, exit: i32) -> (String, String) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{text}");
    let last = text.lines().last().unwrap_or_default();
    let body: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}"));
    let field = |name: &str| body["error"][name].as_str().expect("a text").to_owned();
    assert!(!field("hint").is_empty());
    (field("code"), field("message"))
}

struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let mut child = bursar(&["spot", "serve", "--json", "--listen", "127.0.0.1:0", "--segment", "1"])
            .args(more)
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let address = loop {
            let line: Value =
                serde_json::from_str(&lines.next().expect("it listens").expect("readable")).expect("JSON");
            if line["event"] == "listening" {
                break line["address"].as_str().expect("an address").to_owned();
            }
        };
        // Nobody reads on; the pipe must not fill or close.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    fn send(&self, lines: &str) -> Vec<Value> {
        let output = self.send_raw(lines, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn send_raw(&self, lines: &str, more: &[&str]) -> Output {
        let mut sender = bursar(&["spot", "send", "--json", "--connect", &self.address])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // It may have refused before it reads.
        sender.stdin.take().expect("piped").write_all(lines.as_bytes()).ok();
        sender.wait_with_output().expect("it ends")
    }

    fn stop(mut self) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM)
            .expect("it runs");
        assert!(self.child.wait().expect("it ends").success(), "SIGTERM stops it in good order");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn serve_send_snapshot_stop_and_look() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("engine");
    let dir = path.to_str().expect("text");
    let served = Served::start(&path, &["--create"]);
    let answers = served.send(
        r#"{"kind":"deposit","user":7,"asset":1,"amount":"500"}
           {"kind":"withdraw","user":7,"asset":1,"amount":"200"}

           {"kind":"balance","user":7,"asset":1}"#,
    );
    let id = answers[1]["id"].as_str().expect("an id");
    assert_eq!(answers[0]["outcome"], "applied");
    assert_eq!(answers[1]["outcome"], "applied");
    assert_eq!(answers[2]["balance"]["available"], "300");
    let lines = r#"{"kind":"withdraw","id":ID,"user":7,"asset":1,"amount":"200"}
           {"kind":"withdraw","id":ID,"user":7,"asset":1,"amount":"201"}
           {"kind":"withdraw","user":7,"asset":1,"amount":"301"}
           {"kind":"query","id":ID}
           {"kind":"deposit","id":4194304000001,"user":7,"asset":1,"amount":"1"}"#;
    let answers = served.send(&lines.replace("ID", id));
    assert_eq!((&answers[0]["outcome"], &answers[0]["replay"]), (&"applied".into(), &true.into()));
    assert_eq!(answers[1]["undecided"], "EXISTS_WITH_DIFFERENT_CONTENT");
    assert_eq!(answers[2]["outcome"], "INSUFFICIENT_BALANCE");
    assert_eq!(answers[3]["standing"], "applied");
    assert_eq!(answers[4]["undecided"], "OPERATION_EXPIRED", "an id of January 2024");

    // A bad line sends nothing, not even the good ones before it.
    let bad =
        served.send_raw("{\"kind\":\"deposit\",\"user\":7,\"asset\":1,\"amount\":\"1\"}\n{\"kind\":\"gift\"}\n", &[]);
    let (code, message) = error(&bad, 2);
    assert_eq!(code, "SPOT_BAD_LINE");
    assert!(message.contains("line 2"), "{message}");
    assert_eq!(served.send(r#"{"kind":"total","asset":1}"#)[0]["total"], "300");

    // Only one engine, and only with the token.
    assert_eq!(error(&run(&["spot", "serve", dir, "--json", "--listen", "127.0.0.1:0"]), 3).0, "SPOT_LOG_IN_USE");
    assert_eq!(error(&run(&["spot", "snapshot", dir, "--json"]), 3).0, "SPOT_LOG_IN_USE");
    let taken = run(&["spot", "serve", dir, "--json", "--listen", &served.address]);
    assert_eq!(error(&taken, 3).0, "SPOT_LISTEN_FAILED");
    let mut stranger = Command::new(env!("CARGO_BIN_EXE_bursar"));
    stranger.args(["spot", "snapshot", "--json", "--connect", &served.address]);
    let refused = stranger.env("BURSAR_SPOT_TOKEN", "some-other-longer-token").output().expect("bursar runs");
    assert_eq!(error(&refused, 3).0, "SPOT_UNAUTHORIZED");

    // A role does its own work and no other; the line it may not send takes the others with it.
    let mint = "{\"kind\":\"total\",\"asset\":1}\n{\"kind\":\"deposit\",\"user\":7,\"asset\":1,\"amount\":\"1\"}\n";
    for role in ["order-engine", "operator", "observer"] {
        let forbidden = served.send_raw(mint, &["--role", role]);
        assert_eq!(error(&forbidden, 3).0, "SPOT_FORBIDDEN", "{role}");
        let asked = served.send_raw("{\"kind\":\"total\",\"asset\":1}\n", &["--role", role]);
        assert_eq!(json(&asked)["total"], "300", "{role}");
    }
    let reserve = "{\"kind\":\"reserve\",\"user\":7,\"asset\":1,\"amount\":\"1\"}\n";
    assert_eq!(error(&served.send_raw(reserve, &[]), 3).0, "SPOT_FORBIDDEN", "the coordinator does not trade");

    let taken = json(&run(&["spot", "snapshot", "--connect", &served.address, "--json"]));
    assert!(taken["snapshot"].as_u64().expect("a batch") > 0, "{taken}");
    served.send(r#"{"kind":"deposit","user":8,"asset":2,"amount":"9"}"#);
    served.stop();

    let stat = json(&run(&["spot", "stat", dir, "--json"]));
    assert_eq!(stat["accounts"], 2);
    assert_eq!(stat["totals"][0]["total"], "300");
    assert_eq!(stat["snapshots"].as_array().map(Vec::len), Some(1));
    let verified = json(&run(&["spot", "verify", dir, "--json"]));
    assert_eq!((&verified["sound"], &verified["digest"]), (&true.into(), &stat["digest"]));
    let text = run(&["spot", "stat", dir]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("asset  total, in units"));
    let dump = run(&["spot", "dump", dir]);
    let lines: Vec<Value> =
        String::from_utf8_lossy(&dump.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line["kind"].as_str()).collect();
    assert_eq!(kinds, ["deposit", "withdraw", "withdraw", "deposit"]);
    assert_eq!(lines[2]["outcome"], "INSUFFICIENT_BALANCE");

    let taken = json(&run(&["spot", "snapshot", dir, "--json"]));
    assert!(taken["snapshot"].as_u64().is_some(), "{taken}");
    assert_eq!(json(&run(&["spot", "snapshot", dir, "--json"]))["snapshot"], Value::Null);
    let served = Served::start(&path, &[]);
    assert_eq!(served.send(r#"{"kind":"total","asset":1}"#)[0]["total"], "300");
    served.stop();
    assert_eq!(
        error(&run(&["spot", "serve", dir, "--json", "--create", "--listen", "127.0.0.1:0"]), 2).0,
        "SPOT_LOG_EXISTS"
    );
}

#[test]
fn verify_names_the_file_and_the_offset_of_the_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(folder.path(), &["--create"]);
    for _ in 0..3 {
        served.send(r#"{"kind":"deposit","user":7,"asset":1,"amount":"500"}"#);
    }
    served.stop();
    let dir = folder.path().to_str().expect("text");
    let segment = folder.path().join("wal-0000000001.log");
    let mut bytes = std::fs::read(&segment).expect("there");
    bytes[8_192 + 70] ^= 0x55;
    std::fs::write(&segment, bytes).expect("written");
    for command in
        [&["spot", "verify", dir, "--json"][..], &["spot", "serve", dir, "--json", "--listen", "127.0.0.1:0"]]
    {
        let (code, message) = error(&run(command), 1);
        assert_eq!(code, "SPOT_LOG_DAMAGED");
        assert!(message.contains("wal-0000000001.log is damaged at offset 8192"), "{message}");
    }
}

/// It waited half a minute, and then said that nobody knew what had been done.
#[test]
fn a_closed_port_is_said_at_once_and_nothing_is_sent() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let served = Served { child: Command::new("true").spawn().expect("it starts"), address: closed.to_string() };
    let output = served.send_raw(r#"{"kind":"deposit","user":7,"asset":1,"amount":"500"}"#, &[]);
    let (code, message) = error(&output, 3);
    assert!(code == "SPOT_UNREACHABLE" && message.contains("refused"), "{code}: {message}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "no line was given an id");
    let output = run(&["spot", "snapshot", "--connect", &served.address, "--json"]);
    assert_eq!(error(&output, 3).0, "SPOT_UNREACHABLE");
}

#[test]
fn wrong_things_typed_get_a_code_and_a_hint() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("text");
    let listen = ["--listen", "127.0.0.1:0"];
    let serve = |more: &[&str]| run(&[&["spot", "serve", "--json"], more].concat());
    assert_eq!(error(&serve(&[&[dir], &listen[..]].concat()), 2).0, "SPOT_LOG_MISSING");
    assert_eq!(error(&serve(&[&["/nonexistent/engine"], &listen[..]].concat()), 2).0, "SPOT_LOG_MISSING");
    assert_eq!(error(&serve(&[dir, "--create", "--listen", "0.0.0.0:0"]), 2).0, "SPOT_PLAIN_REMOTE");
    let far = run(&["spot", "send", "--json", "--connect", "10.255.255.1:7411"]);
    assert_eq!(error(&far, 2).0, "SPOT_PLAIN_REMOTE", "before anything is sent");
    let no_certificate = ["--tls-cert", "/nonexistent", "--tls-key", "/nonexistent"];
    assert_eq!(error(&serve(&[&[dir, "--create"], &no_certificate[..]].concat()), 2).0, "SPOT_TLS_INVALID");
    let pin = run(&["spot", "send", "--json", "--tls-pin", "12:34"]);
    assert_eq!(error(&pin, 2).0, "SPOT_TLS_INVALID");
    assert_eq!(error(&serve(&[dir, "--create", "--segment", "0"]), 2).0, "BAD_USAGE");
    let bad = |more: &[&str], expected: &str| {
        let (code, message) = error(&serve(&[&[dir, "--create"], more].concat()), 2);
        assert_eq!(code, "SPOT_CREDENTIALS_INVALID");
        assert!(message.contains(expected), "{message}");
    };
    bad(&["--credentials", "/nonexistent"], "No such file");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let name = file.path().to_str().expect("text");
    for (text, expected) in [
        ("", "there is no line in it"),
        ("one-token-as-it-was-before\n", "line 1: a line is a role and a token"),
        ("admin one-token-as-it-was-before\n", "line 1: there is no such role"),
        ("observer short\n", "line 1: a token has between 16 and 256 bytes"),
    ] {
        write_private(Path::new(name), text);
        bad(&["--credentials", name], expected);
    }
    write_private(Path::new(name), "observer only-an-observer-here\n");
    let none = error(&run(&["spot", "send", "--json", "--credentials", name]), 2);
    assert_eq!(none.0, "SPOT_CREDENTIALS_INVALID");
    assert!(none.1.contains("no line for the role coordinator"), "{}", none.1);
    let without = Command::new(env!("CARGO_BIN_EXE_bursar")).args(["spot", "send", "--json"]).output();
    assert_eq!(error(&without.expect("bursar runs"), 2).0, "SPOT_CREDENTIALS_INVALID");
    for command in ["stat", "verify", "dump", "snapshot"] {
        assert_eq!(
            error(&run(&["spot", command, "/nonexistent/engine", "--json"]), 2).0,
            "SPOT_LOG_MISSING",
            "{command}"
        );
        assert_eq!(error(&run(&["spot", command, dir, "--json"]), 2).0, "SPOT_LOG_MISSING", "{command}");
    }
    let entries: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
    assert!(entries.len() <= 1, "nothing but the lock was made: {entries:?}");
    // Something listens, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let nobody = bursar(&["spot", "send", "--json", "--connect", &address, "--timeout", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            child.stdin.take().expect("piped").write_all(b"{\"kind\":\"total\",\"asset\":1}\n")?;
            child.wait_with_output()
        });
    let nobody = nobody.expect("it ends");
    assert_eq!(error(&nobody, 3).0, "SPOT_UNANSWERED");
    assert_eq!(json(&nobody)["unanswered"], true, "with its id, to be sent again");
}

#[test]
#[cfg(feature = "lab")]
fn a_simulation_says_what_happened_and_the_same_seed_says_the_same() {
    let simulate = || json(&run(&["sim", "spot", "--seed", "7", "--ops", "5000", "--json"]));
    let report = simulate();
    assert_eq!(report["agreed"], true);
    assert!(report["recoveries"].as_u64() > Some(3), "{report}");
    assert_eq!(report, simulate());
}

#[test]
#[cfg(feature = "lab")]
fn simulated_transfers_hold_the_laws_and_the_same_seed_says_the_same() {
    let simulate = || json(&run(&["sim", "transfer", "--seed", "7", "--transfers", "300", "--json"]));
    let report = simulate();
    assert_eq!(report["held"], true);
    assert!(report["transfers"].as_u64() >= Some(300), "{report}");
    assert_eq!(report["hash"].as_str().map(str::len), Some(16), "{report}");
    assert_eq!(report, simulate());
}

#[test]
#[cfg(feature = "lab")]
fn a_short_bench_prints_every_figure() {
    let report = json(&run(&[
        "bench",
        "spot",
        "--json",
        "--rounds",
        "1",
        "--slice-ms",
        "50",
        "--accounts",
        "2000",
        "--operations",
        "120000",
    ]));
    for figure in ["in_process_1", "in_process_64", "in_process_4096", "loopback_4096"] {
        for field in ["ops_per_s", "p50_us", "p99_us", "p999_us"] {
            assert!(report[figure][field].as_f64() > Some(0.0), "{figure}.{field}: {report}");
        }
    }
    for figure in ["fdatasync_per_s", "apply_only_per_s", "ratio_4096_to_apply_only", "p50_1_to_one_fdatasync"] {
        assert!(report[figure].as_f64() > Some(0.0), "{figure}: {report}");
    }
    assert!(report["memory"]["bytes_per_account"].as_f64() < Some(64.0), "{report}");
    assert!(report["snapshot"]["longest_us"].as_f64() > Some(0.0), "{report}");
    assert!(report["recovery"]["operations"].as_u64() >= Some(120_000), "{report}");
}
