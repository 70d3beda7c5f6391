//! A client of a few lines that can send what a proper client would not.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The server always answers sooner. After this time a test takes the answer for missing.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub struct Ask {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Ask {
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: "GET", path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// The header says JSON, also if the body is not.
    pub fn post(path: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        let ask = Self { method: "POST", path: path.into(), headers: Vec::new(), body: body.into() };
        ask.header("Content-Type", "application/json")
    }

    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Replaces the header of this name.
    pub fn with(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.header(name, value)
    }

    pub fn token(self, token: &str) -> Self {
        self.header("Authorization", format!("Bearer {token}"))
    }

    /// As it goes over the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\nHost: bursar\r\n", self.method, self.path).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        let framed = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("Transfer-Encoding"));
        if self.method != "GET" && !framed {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The code of an error, the state of a transfer, or nothing.
    pub fn code(&self) -> String {
        let Ok(body) = serde_json::from_str::<Value>(&self.body) else { return String::new() };
        let code = [&body["error"]["code"], &body["state"], &body["status"]].into_iter().find_map(Value::as_str);
        code.unwrap_or_default().to_owned()
    }
}

/// One connection, kept open.
pub struct Line {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Line {
    pub async fn open(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self { stream: TcpStream::connect(address).await?, unread: Vec::new() })
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Says that nothing more will come; answers may.
    pub async fn hang_up(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Sends and reads at the same time: the server may refuse a body before all of it was sent.
    pub async fn exchange(&mut self, bytes: &[u8]) -> Option<Reply> {
        let (mut reader, mut writer) = self.stream.split();
        let speak = async {
            // The server may have hung up by then.
            writer.write_all(bytes).await.ok();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = speak => None,
            reply = read(&mut reader, &mut self.unread) => reply,
        }
    }

    /// `None`: the other side has closed the line.
    pub async fn read(&mut self) -> Option<Reply> {
        read(&mut self.stream, &mut self.unread).await
    }
}

async fn read(stream: &mut (impl AsyncReadExt + Unpin), unread: &mut Vec<u8>) -> Option<Reply> {
    tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some((reply, length)) = parse(unread) {
                unread.drain(..length);
                return Some(reply);
            }
            let mut piece = [0; 8_192];
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => unread.extend_from_slice(&piece[..count]),
            }
        }
    })
    .await
    .expect("an answer, or an end of the connection")
}

/// A whole answer at the start of the bytes, and its length. `100 Continue` is skipped.
fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = str::from_utf8(&bytes[..end]).expect("headers are ASCII");
    let mut lines = head.split("\r\n");
    let status: u16 = lines.next()?.split(' ').nth(1)?.parse().expect("a status");
    if status == 100 {
        return parse(&bytes[end..]).map(|(reply, length)| (reply, end + length));
    }
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut reply = Reply { status, headers, body: String::new() };
    let length: usize = reply.header("content-length").map_or(0, |length| length.parse().expect("a length"));
    let body = bytes.get(end..end + length)?;
    reply.body = String::from_utf8(body.to_vec()).expect("answers are text");
    Some((reply, end + length))
}
