//! `bursar utxo follow` beside nodes that lag, refuse, are too few, have pruned, or are not there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use devnet::bitcoin::{BitcoinDevnet, Settings};
use devnet::{Model, Served, View};
use domain::{Clock, ManualClock};
use serde_json::{Value, json};

use crate::shell::*;

/// A Bitcoin devnet on two endpoints, served beside the test's own thread.
pub struct Nodes {
    served: Served<BitcoinDevnet>,
    _runtime: tokio::runtime::Runtime,
}

impl Nodes {
    pub fn start() -> Self {
        Self::start_at([([127, 0, 0, 1], 0).into(); 2])
    }

    fn start_at(addresses: [SocketAddr; 2]) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("it starts");
        let settings = Settings::default();
        let clock = Arc::new(ManualClock::at(settings.start));
        let served =
            runtime.block_on(Served::start(BitcoinDevnet::new(settings), &addresses, clock)).expect("free ports");
        Self { served, _runtime: runtime }
    }

    pub fn url(&self, number: usize) -> String {
        self.served.endpoints[number].url()
    }

    fn lag(&self, lag: u64) {
        for endpoint in &self.served.endpoints {
            *endpoint.view.lock().unwrap_or_else(PoisonError::into_inner) = View { lag, ..View::default() };
        }
    }
}

#[test]
fn following_once_is_no_success_while_the_nodes_are_behind_the_store() {
    let (shell, nodes) = (Shell::with_wallet(), Nodes::start());
    let (one, other) = (nodes.url(0), nodes.url(1));
    let follow = ["utxo", "follow", "--once", "--node", &one, "--node", &other];
    let done = shell.ok(&follow);
    assert!(done.lines().last().expect("an end").starts_with("at block "), "{done}");
    // Whoever follows also sweeps.
    shell.fill(async |db, wallet| {
        let ended = THEN.plus_micros(60_000_000);
        db.see_transactions(&[transaction(UNCONFIRMED)], THEN).await.expect("stored");
        db.lease(wallet, &[at(UNCONFIRMED, 0)], store::utxo::LockId([7; 32]), ended, THEN).await.expect("leased");
    });
    assert_eq!(shell.json(&["utxo", "stat"])["leases"]["ended"], 1);
    shell.ok(&follow);
    assert_eq!(shell.json(&["utxo", "stat"])["leases"]["ended"], 0);
    nodes.lag(5);
    let (code, message, _, exit) = shell.refused(&follow);
    assert_eq!((code.as_str(), exit), ("CHAIN_BEHIND", 3), "{message}");
    assert!(message.contains("behind the store's"), "{message}");
    nodes.lag(0);
    shell.ok(&follow);
}

#[test]
fn half_of_the_nodes_is_no_quorum_and_one_node_is_said_to_be_one() {
    let (shell, nodes) = (Shell::with_wallet(), Nodes::start());
    let (one, other) = (nodes.url(0), nodes.url(1));
    shell.code("BAD_USAGE", &["utxo", "follow", "--once", "--quorum", "1", "--node", &one, "--node", &other]);
    let said = |arguments: &[&str]| String::from_utf8(shell.run(arguments).stderr).expect("text");
    assert!(said(&["utxo", "follow", "--once", "--node", &one]).starts_with("one node alone: "));
    assert_eq!(said(&["utxo", "follow", "--once", "--node", &one, "--node", &other]), "");
    let first = |arguments: &[&str]| shell.ok(arguments).lines().next().expect("a line").to_owned();
    expect_test::expect![[r#"{"event":"nodes","nodes":1,"quorum":1}"#]]
        .assert_eq(&first(&["utxo", "follow", "--once", "--json", "--node", &one]));
}

#[test]
fn a_call_that_the_node_refuses_is_said_to_be_refused() {
    let shell = Shell::with_wallet();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            // The whole of so small a request comes at once.
            let read = stream.read(&mut [0; 16 << 10]);
            let body = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"Method not found"}}"#;
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            assert!(read.is_ok() && stream.write_all(format!("{head}{body}").as_bytes()).is_ok());
        }
    });
    let (code, message, _, exit) = shell.refused(&["utxo", "follow", "--once", "--node", &url]);
    assert_eq!((code.as_str(), exit), ("CHAIN_CALL_REFUSED", 3), "{message}");
}

/// `bursar utxo follow --json` in the background. It is ended with the test.
struct Follower {
    child: Child,
    events: Receiver<Value>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It is gone already, or goes now.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Follower {
    fn start(shell: &Shell, arguments: &[&str]) -> Self {
        let mut command = shell.command(&[&["utxo", "follow", "--json"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("bursar runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).expect("every line is JSON")).is_err() {
                    return;
                }
            }
        });
        Self { child, events }
    }

    /// The next event of this name; others are passed over.
    #[track_caller]
    fn event(&self, name: &str) -> Value {
        loop {
            let event = self.events.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("no {name} came"));
            if event["event"] == name {
                return event;
            }
        }
    }
}

/// A node before the devnet's that changes its answers.
fn through(node: &str, change: impl Fn(&str, &mut Value) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let node = node.trim_start_matches("http://").to_owned();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let Some(asked) = body(&mut stream) else { continue };
            let mut upstream = TcpStream::connect(&node).expect("the devnet is there");
            let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n";
            let request = format!("{head}Content-Length: {}\r\n\r\n", asked.len());
            upstream.write_all(&[request.as_bytes(), &asked].concat()).expect("it listens");
            let answer = body(&mut upstream).expect("an answer");
            let asked: Value = serde_json::from_slice(&asked).expect("JSON");
            let mut answer: Value = serde_json::from_slice(&answer).expect("JSON");
            match (&asked, &mut answer) {
                (Value::Array(asked), Value::Array(answers)) => {
                    for (asked, answer) in asked.iter().zip(answers) {
                        change(asked["method"].as_str().expect("a method"), answer);
                    }
                }
                (asked, answer) => change(asked["method"].as_str().expect("a method"), answer),
            }
            let text = answer.to_string();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
            drop(stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes()));
        }
    });
    url
}

/// The body of an HTTP message that says its length.
fn body(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

#[test]
fn a_pruned_node_is_said_to_lack_a_block_and_that_is_no_success() {
    let (shell, nodes) = (Shell::with_wallet(), Nodes::start());
    let pruned = through(&nodes.url(0), |method, answer| {
        if method == "getblock" {
            let error = json!({ "code": -1, "message": "Block not available (pruned data)" });
            *answer = json!({ "jsonrpc": "2.0", "id": answer["id"], "error": error });
        }
    });
    let (code, message, _, exit) = shell.refused(&["utxo", "follow", "--once", "--node", &pruned]);
    assert_eq!((code.as_str(), exit), ("CHAIN_BLOCK_NOT_KEPT", 3), "{message}");
    assert!(message.contains("keeps block 0: Block not available (pruned data)"), "{message}");
    let follower = Follower::start(&shell, &["--node", &pruned]);
    let warning = follower.event("warning");
    assert_eq!(warning["code"], "CHAIN_BLOCK_NOT_KEPT");
    assert!(warning["message"].as_str().expect("text").contains("keeps block 0: Block not available"), "{warning}");
}

/// Its header is there, and the block is not: the nodes are asked again, and then it is no success.
#[test]
fn a_block_that_never_comes_is_no_success() {
    let (shell, nodes) = (Shell::with_wallet(), Nodes::start());
    let forgets = through(&nodes.url(0), |method, answer| {
        if method == "getblock" {
            let error = json!({ "code": -5, "message": "Block not found" });
            *answer = json!({ "jsonrpc": "2.0", "id": answer["id"], "error": error });
        }
    });
    let (code, message, _, exit) = shell.refused(&["utxo", "follow", "--once", "--node", &forgets]);
    assert_eq!((code.as_str(), exit), ("CHAIN_BLOCK_MISSING", 3), "{message}");
}

#[test]
fn a_follower_waits_for_a_node_that_is_not_there_yet_and_says_so() {
    let shell = Shell::with_wallet();
    let ports = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let addresses = ports.each_ref().map(|port| port.local_addr().expect("it is bound"));
    drop(ports);
    let urls = addresses.map(|address| format!("http://{address}"));
    let (code, message, _, exit) = shell.refused(&["utxo", "follow", "--once", "--node", &urls[0]]);
    assert_eq!((code.as_str(), exit), ("CHAIN_UNREACHABLE", 3), "{message}");
    let follower = Follower::start(&shell, &["--node", &urls[0], "--node", &urls[1]]);
    assert_eq!(follower.event("warning")["code"], "CHAIN_UNREACHABLE");
    let nodes = Nodes::start_at(addresses);
    follower.event("connected");
    follower.event("passed");
    drop(nodes);
    assert_eq!(follower.event("warning")["code"], "CHAIN_UNREACHABLE", "the same while it runs");
}

#[test]
fn a_follower_in_the_background_says_that_its_nodes_are_behind() {
    let (shell, nodes) = (Shell::with_wallet(), Nodes::start());
    let (one, other) = (nodes.url(0), nodes.url(1));
    shell.ok(&["utxo", "follow", "--once", "--node", &one, "--node", &other]);
    nodes.lag(5);
    let follower = Follower::start(&shell, &["--node", &one, "--node", &other]);
    let warning = follower.event("warning");
    assert_eq!(warning["code"], "CHAIN_BEHIND");
    assert!(warning["message"].as_str().expect("text").contains("behind the store's"), "{warning}");
    nodes.lag(0);
    follower.event("passed");
    // Another branch that is not as long as ours says as little.
    {
        let mut model = nodes.served.model.lock().unwrap_or_else(PoisonError::into_inner);
        let now = ManualClock::at(Settings::default().start).now();
        model.reorg(4, devnet::Fate::Returned, &[], now).expect("a branch");
        drop(model);
        nodes.lag(2);
    }
    assert_eq!(follower.event("warning")["code"], "CHAIN_BEHIND");
    nodes.lag(0);
    follower.event("back to");
}

#[test]
fn a_rescan_goes_on_with_the_next_follower_and_the_check_knows_it() {
    let (shell, nodes) = (Shell::with_wallet(), Nodes::start());
    let follow = ["utxo", "follow", "--once", "--node", &nodes.url(0)];
    shell.code("BAD_USAGE", &[&follow[..], &["--rescan-from", "0"]].concat());
    shell.ok(&follow);
    // As a rescan leaves it that was killed.
    shell.fill(async |db, _| db.begin_rescan(7).await.expect("stored"));
    let checked = shell.ok(&["utxo", "check"]);
    assert!(checked.contains("a rescan is open: blocks from 7 on"), "{checked}");
    assert_eq!(shell.json(&["utxo", "check"])["rescan_next"], 7);
    let done = shell.ok(&follow);
    assert!(done.contains("read blocks 7 to "), "{done}");
    assert_eq!(shell.json(&["utxo", "check"])["rescan_next"], Value::Null);
    let done = shell.ok(&[&follow[..], &["--rescan-from", "3"]].concat());
    assert!(done.contains("read blocks 3 to "), "{done}");
}

/// Copies what is in a folder to another, which is emptied first.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).expect("it goes");
    }
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        std::fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
    }
}

#[test]
fn a_backup_that_is_put_back_is_noticed_and_nothing_of_it_is_leased_until_the_nodes_were_asked() {
    let (shell, nodes) = (Shell::with_wallet(), Nodes::start());
    let now = ManualClock::at(Settings::default().start).now();
    let gift = |amount: &str| {
        let mut model = nodes.served.model.lock().unwrap_or_else(PoisonError::into_inner);
        model.fund(RECEIVING, None, amount.parse().expect("an amount"), now).expect("a gift");
        model.mine(1, now);
    };
    let follow = ["utxo", "follow", "--once", "--json", "--node", &nodes.url(0)];
    gift("70000");
    shell.ok(&follow);
    let first = shell.json(&["utxo", "list", "hot"]);
    let outpoint = first["outputs"][0]["outpoint"].as_str().expect("an outpoint").to_owned();
    let lease = ["utxo", "lease", "take", "hot", &outpoint, "--new-lock", "--for", "1m"];
    let (data, saved) = (shell.folder.path().join("bursar-data"), shell.folder.path().join("saved"));
    copy(&data, &saved);
    // Nothing to notice while nothing has happened since.
    shell.ok(&lease);
    copy(&saved, &data);
    gift("80000");
    let done = shell.ok(&follow);
    assert!(!done.contains("UTXO_DATABASE_BEHIND") && !done.contains("restored"), "{done}");
    copy(&saved, &data);
    shell.code("UTXO_RESTORING", &lease);
    assert_eq!(shell.json(&["utxo", "balance", "hot"])["wallets"][0]["status"], "restoring");
    // A follower, who was told nothing, brings it up to date.
    let done = shell.ok(&follow);
    assert!(done.contains(r#""event":"restored""#), "{done}");
    let wallet = &shell.json(&["utxo", "balance", "hot"])["wallets"][0];
    assert_eq!((&wallet["status"], &wallet["accounts"][0]["confirmed"]), (&json!("active"), &json!("0.00150000")));
    shell.ok(&lease);
    // The follower itself notices it as well, and says so.
    gift("90000");
    shell.ok(&follow);
    copy(&saved, &data);
    let done = shell.ok(&follow);
    assert!(done.contains("UTXO_DATABASE_BEHIND") && done.contains(r#""event":"restored""#), "{done}");
    // A machine that has never followed for this database cannot tell, and takes the safe side, once.
    std::fs::remove_dir_all(shell.folder.path().join("bursar-state")).expect("the folder of marks");
    copy(&saved, &data);
    let done = shell.ok(&follow);
    assert!(done.contains("UTXO_DATABASE_BEHIND") && done.contains(r#""event":"restored""#), "{done}");
    let done = shell.ok(&follow);
    assert!(!done.contains("UTXO_DATABASE_BEHIND"), "{done}");
    shell.ok(&["utxo", "check"]);
}
