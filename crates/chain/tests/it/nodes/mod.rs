//! Real nodes, each with its own folder and ports, gone with their owner.

pub mod anvil;
pub mod bitcoind;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use bitcoind::AUTHORIZATION;
use tokio::runtime::Runtime;

/// A node for tests that wait for every answer.
pub struct Blocking<N> {
    pub node: N,
    /// The node was started on it, and ends before it.
    _runtime: Runtime,
}

impl<N> Blocking<N> {
    fn start(start: impl Future<Output = N>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { node: runtime.block_on(start), _runtime: runtime }
    }
}

/// One request to a node on loopback, with the smallest HTTP client that will do: the status and the body. What a node
/// says comes as it is; a pool would tidy it up.
pub fn post(address: SocketAddr, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("a node that listens");
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {AUTHORIZATION}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it answers");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head and a body");
    assert!(!head.to_ascii_lowercase().contains("chunked"), "{head}");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}
