//! `bursar utxo follow` beside nodes that lag, refuse, or are too few.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, PoisonError};

use devnet::bitcoin::{BitcoinDevnet, Settings};
use devnet::{Served, View};
use domain::ManualClock;

use crate::shell::*;

/// A Bitcoin devnet on two endpoints, served beside the test's own thread.
struct Nodes {
    served: Served<BitcoinDevnet>,
    _runtime: tokio::runtime::Runtime,
}

impl Nodes {
    fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("it starts");
        let (settings, free): (_, SocketAddr) = (Settings::default(), ([127, 0, 0, 1], 0).into());
        let clock = Arc::new(ManualClock::at(settings.start));
        let served =
            runtime.block_on(Served::start(BitcoinDevnet::new(settings), &[free; 2], clock)).expect("free ports");
        Self { served, _runtime: runtime }
    }

    fn url(&self, number: usize) -> String {
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
