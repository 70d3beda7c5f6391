//! The database and its spot engine are a pair: real copies of either are put back, as an operator would, and the program
//! is used as its users do. The books are read from outside: balances over HTTP, and the audit.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

const USER: &str = "7";

struct Deployment {
    folder: tempfile::TempDir,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Deployment {
    fn new() -> Self {
        let deployment = Self { folder: tempfile::tempdir().expect("a folder") };
        let path = |name: &str| deployment.path(name).display().to_string();
        let secret = deployment.path("jwt.secret");
        std::fs::write(&secret, "a secret of this test alone, long enough for HS256").expect("written");
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("set");
        let config = format!(
            "[database]\nurl = \"sqlite://{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[auth]\nissuer = \"test\"\n\
             audience = \"test\"\nhs256_secret_file = \"{}\"\n[spot]\nfolder = \"{}\"\naddress = \"\"\n",
            path("bursar.db"),
            path("jwt.secret"),
            path("spot"),
        );
        std::fs::write(deployment.path("bursar.toml"), config).expect("written");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        deployment.run(&["migrate"]);
        deployment.run(&["apply", &root.join("examples/treasury.toml").display().to_string(), "--actor", "test"]);
        deployment.run(&["account", "open", "--owner", USER, "--asset", "USDT"]);
        deployment.run(&[
            "adjust",
            "credit",
            "--user",
            USER,
            "--asset",
            "USDT",
            "--amount",
            "1000",
            "--from",
            "custody:tron",
            "--key",
            "first",
            "--actor",
            "ana",
            "--second",
            "bo",
            "--reason",
            "the test",
        ]);
        deployment
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        // The tests may run inside `bursar with-postgres`, which names its own database.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BURSAR_")) {
            command.env_remove(name);
        }
        command.arg("--config").arg(self.path("bursar.toml")).arg("--json").current_dir(self.folder.path());
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().expect("bursar runs")
    }

    fn run(&self, arguments: &[&str]) -> Value {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stderr), text(&output.stdout));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// A command that must be refused with this code.
    fn refused(&self, arguments: &[&str], code: &str) {
        let output = self.output(arguments);
        let complaint = text(&output.stderr);
        assert!(!output.status.success() && complaint.contains(code), "{arguments:?}: {complaint}");
    }

    fn serve(&self, arguments: &[&str]) -> Server {
        let mut command = self.command();
        command.arg("serve").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("bursar starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        loop {
            let Some(Ok(line)) = lines.next() else {
                let complaint = child.wait_with_output().map(|output| text(&output.stderr)).unwrap_or_default();
                panic!("serve ended: {complaint}");
            };
            let event: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
            if event["event"] == "listening" {
                let address = event["http"].as_str().expect("an address").to_owned();
                // The rest is read, so that the server never waits for a full pipe.
                std::thread::spawn(move || lines.for_each(drop));
                let token = self.output(&["token", "--user", USER]);
                let token: Value = serde_json::from_slice(&token.stdout).expect("a token");
                let token = token["token"].as_str().expect("a token").to_owned();
                return Server { child, address, token };
            }
        }
    }

    fn copy(&self, from: &str, to: &str) {
        let done = Command::new("cp").arg("-r").arg(self.path(from)).arg(self.path(to)).status().expect("cp runs");
        assert!(done.success());
    }

    fn back_up(&self, name: &str) {
        self.copy(name, &format!("{name}.backup"));
    }

    fn put_back(&self, name: &str) {
        for name in [name.to_owned(), format!("{name}-wal"), format!("{name}-shm")] {
            let path = self.path(&name);
            if path.is_dir() {
                std::fs::remove_dir_all(path).expect("removed");
            } else {
                std::fs::remove_file(path).ok();
            }
        }
        self.copy(&format!("{name}.backup"), name);
    }

    fn assert_books(&self, funding: &str, spot: &str) {
        let server = self.serve(&[]);
        assert_eq!(server.balance(), (funding.to_owned(), spot.to_owned()));
        server.stop();
        let output = self.output(&["audit"]);
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    }
}

const PEOPLE: [&str; 6] = ["--actor", "ana", "--second", "bo", "--reason", "a backup was put back"];

fn reconcile<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["reconcile", "spot"].into_iter().chain(PEOPLE).chain(more.iter().copied()).collect()
}

struct Server {
    child: Child,
    address: String,
    token: String,
}

impl Server {
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.token,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn transfer(&self, from: &str, to: &str, amount: &str) {
        let body = format!(r#"{{"from":"{from}","to":"{to}","asset":"USDT","amount":"{amount}"}}"#);
        let (status, answer) = self.ask("POST", "/api/v1/internal_transfer", &body);
        assert_eq!((status, answer["state"].as_str()), (200, Some("COMMITTED")), "{answer}");
    }

    /// FUNDING and SPOT, available, as decimals.
    fn balance(&self) -> (String, String) {
        let (status, answer) = self.ask("GET", "/api/v1/balances", "");
        assert_eq!(status, 200, "{answer}");
        let rows = answer["balances"].as_array().cloned().unwrap_or_default();
        let usdt = rows.into_iter().find(|row| row["asset"] == "USDT").unwrap_or(Value::Null);
        let of = |side: &str| usdt[side]["available"].as_str().unwrap_or("none").to_owned();
        (of("funding"), of("spot"))
    }

    fn stop(mut self) {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill runs");
        assert!(self.child.wait().expect("ended").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn yesterdays_database_under_todays_engine_is_refused_and_mended() {
    let deployment = Deployment::new();
    let server = deployment.serve(&["--create-spot"]);
    server.transfer("FUNDING", "SPOT", "100");
    server.stop();
    deployment.back_up("bursar.db");
    let server = deployment.serve(&[]);
    server.transfer("FUNDING", "SPOT", "500");
    server.transfer("SPOT", "FUNDING", "50");
    server.stop();
    deployment.put_back("bursar.db");
    deployment.refused(&["serve"], "SPOT_PAIR_DATABASE_BEHIND");
    let seen = deployment.run(&["reconcile", "spot", "--dry-run"]);
    let seen = seen["differences"].as_array().expect("a list");
    let amounts: Vec<&str> = seen.iter().filter_map(|one| one["amount"].as_str()).collect();
    assert_eq!(amounts, ["500.000000 USDT", "50.000000 USDT"], "{seen:?}");
    assert!(seen.iter().all(|one| one["only"] == "engine"), "{seen:?}");
    deployment.refused(&["serve"], "SPOT_PAIR_DATABASE_BEHIND");
    let done = deployment.run(&reconcile(&[]));
    assert_eq!((&done["mended"], &done["left"]), (&2.into(), &0.into()));
    deployment.assert_books("450.000000", "550.000000");
}

#[test]
fn yesterdays_engine_under_todays_database_is_refused_and_mended() {
    let deployment = Deployment::new();
    let server = deployment.serve(&["--create-spot"]);
    server.transfer("FUNDING", "SPOT", "100");
    server.stop();
    deployment.back_up("spot");
    let server = deployment.serve(&[]);
    server.transfer("FUNDING", "SPOT", "500");
    server.transfer("SPOT", "FUNDING", "550");
    server.stop();
    deployment.put_back("spot");
    deployment.refused(&["serve"], "SPOT_PAIR_ENGINE_BEHIND");
    let seen = deployment.run(&["reconcile", "spot", "--dry-run"]);
    let only: Vec<&Value> = seen["differences"].as_array().expect("a list").iter().map(|one| &one["only"]).collect();
    assert_eq!(only, ["database", "database"], "{seen}");
    deployment.run(&reconcile(&[]));
    deployment.assert_books("950.000000", "50.000000");
}

#[test]
fn a_new_engine_under_a_used_database_is_refused_until_two_people_bind_it() {
    let deployment = Deployment::new();
    let server = deployment.serve(&["--create-spot"]);
    server.transfer("FUNDING", "SPOT", "300");
    server.stop();
    std::fs::rename(deployment.path("spot"), deployment.path("lost")).expect("moved");
    deployment.refused(&["serve", "--create-spot"], "SPOT_PAIR_OTHER");
    assert!(!deployment.path("spot").exists(), "no engine was made");
    // An engine of another deployment.
    let other = Deployment::new();
    other.serve(&["--create-spot"]).stop();
    std::fs::rename(other.path("spot"), deployment.path("spot")).expect("moved");
    deployment.refused(&["serve"], "SPOT_PAIR_OTHER");
    deployment.refused(&reconcile(&["--rebind"]), "SPOT_PAIR_OTHER");
    std::fs::remove_dir_all(deployment.path("spot")).expect("removed");
    // The engine is lost for good: an empty one learns what the database knows.
    deployment.refused(&["serve"], "SPOT_LOG_MISSING");
    deployment.refused(&reconcile(&[]), "SPOT_LOG_MISSING");
    deployment.run(&reconcile(&["--rebind"]));
    deployment.assert_books("700.000000", "300.000000");
}

#[test]
fn what_two_people_accept_can_be_written_down_and_the_asset_goes_on() {
    let deployment = Deployment::new();
    deployment.serve(&["--create-spot"]).stop();
    deployment.back_up("bursar.db");
    let server = deployment.serve(&[]);
    server.transfer("FUNDING", "SPOT", "600");
    server.stop();
    deployment.put_back("bursar.db");
    // The user's money went elsewhere before anybody looked.
    deployment.run(&[
        "adjust",
        "debit",
        "--user",
        USER,
        "--asset",
        "USDT",
        "--amount",
        "900",
        "--to",
        "custody:tron",
        "--key",
        "gone",
        "--actor",
        "ana",
        "--second",
        "bo",
        "--reason",
        "the test",
    ]);
    deployment.refused(&reconcile(&[]), "SPOT_PAIR_DIFFERENCES_LEFT");
    deployment.refused(&["serve"], "SPOT_PAIR_DATABASE_BEHIND");
    let done = deployment.run(&reconcile(&["--accept-rest"]));
    assert_eq!((&done["mended"], &done["left"]), (&0.into(), &1.into()));
    assert!(done["books_differ"].as_str().is_some_and(|problem| problem.contains("600000000")), "{done}");
    let server = deployment.serve(&[]);
    let body = r#"{"from":"SPOT","to":"FUNDING","asset":"USDT","amount":"600"}"#;
    let (_, answer) = server.ask("POST", "/api/v1/internal_transfer", body);
    assert_eq!(answer["error"]["code"], "TRANSFER_STOPPED", "{answer}");
    server.stop();
    // The two write the difference down: the books agree with the engine, and the loss is in suspense.
    let resume = [&["transfer", "resume", "--asset", "USDT"][..], &PEOPLE[..]].concat();
    deployment.run(&resume);
    deployment.serve(&[]).stop();
    let stops = deployment.run(&["transfer", "stops"]);
    assert_eq!(stops["stops"].as_array().map(Vec::len), Some(2), "a resumption alone does not last: {stops}");
    let figures = ["--user", USER, "--asset", "USDT", "--amount", "600", "--engine-has", "more", "--key", "rest"];
    deployment.run(&[&["adjust", "spot"][..], &figures[..], &PEOPLE[..]].concat());
    deployment.run(&resume);
    let server = deployment.serve(&[]);
    server.transfer("SPOT", "FUNDING", "600");
    server.stop();
    deployment.assert_books("700.000000", "0.000000");
    let stops = deployment.run(&["transfer", "stops"]);
    assert_eq!(stops["stops"].as_array().map(Vec::len), Some(2), "{stops}");
    let audit = deployment.run(&["audit"]);
    assert_eq!((&audit["clean"], &audit["suspense"]["USDT"]), (&true.into(), &"-600.000000".into()), "{audit}");
}

#[test]
fn order_engines_are_let_in_only_when_the_pair_is_proven() {
    let deployment = Deployment::new();
    deployment.serve(&["--create-spot"]).stop();
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a free port");
    let credentials = deployment.path("spot.credentials");
    std::fs::write(&credentials, format!("order-engine {}\n", "t".repeat(32))).expect("written");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&credentials, std::fs::Permissions::from_mode(0o600)).expect("set");
    let config = std::fs::read_to_string(deployment.path("bursar.toml")).expect("read");
    let more = format!("address = \"{free}\"\ncredentials_file = \"{}\"", credentials.display());
    std::fs::write(deployment.path("bursar.toml"), config.replace("address = \"\"", &more)).expect("written");
    // The database cannot say which engine it belongs to: the server runs, and is not ready.
    let url = format!("sqlite://{}", deployment.path("bursar.db").display());
    let by_hand = |statement: &'static str| store::testing::sqlite_by_hand(&url, statement);
    by_hand("CREATE TABLE kept AS SELECT * FROM spot_pair");
    by_hand("DELETE FROM spot_pair");
    let server = deployment.serve(&[]);
    let refused = TcpStream::connect(free).map(drop).expect_err("nobody is let in");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    by_hand("INSERT INTO spot_pair SELECT * FROM kept");
    let connected = (0..300).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        TcpStream::connect(free).is_ok()
    });
    assert!(connected, "the pair is proven, and the order engines are let in");
    server.transfer("FUNDING", "SPOT", "100");
    server.stop();
}

#[test]
fn a_rebind_that_was_cut_off_is_made_again() {
    let deployment = Deployment::new();
    let server = deployment.serve(&["--create-spot"]);
    server.transfer("FUNDING", "SPOT", "300");
    server.stop();
    std::fs::rename(deployment.path("spot"), deployment.path("lost")).expect("moved");
    deployment.back_up("bursar.db");
    deployment.run(&reconcile(&["--rebind"]));
    // The engine is marked, and the database does not know.
    deployment.put_back("bursar.db");
    deployment.run(&reconcile(&["--rebind"]));
    deployment.assert_books("700.000000", "300.000000");
}
