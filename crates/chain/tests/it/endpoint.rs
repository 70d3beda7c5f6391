//! The pool of nodes, against nodes that misbehave in every way that we know of.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod choice;
mod height;
mod quorum;
mod rpc;
mod wire;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chain::endpoint::{EndpointSettings, Event, Pool, PoolSettings};
use domain::{Clock, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::Receiver;

/// The runtime's own time, which a test may pause.
struct RuntimeClock(tokio::time::Instant);

impl RuntimeClock {
    #[expect(clippy::disallowed_methods, reason = "the runtime's time is the test's to control")]
    fn start() -> Arc<Self> {
        Arc::new(Self(tokio::time::Instant::now()))
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(i64::try_from(self.0.elapsed().as_micros()).unwrap())
    }
}

fn endpoint(name: &str, url: &str) -> EndpointSettings {
    EndpointSettings {
        name: name.to_owned(),
        url: url.to_owned(),
        authorization: None,
        key: None,
        headers: Vec::new(),
        per_second: 0,
    }
}

/// Nodes that no procedure of the test calls over the network: named `0`, `1` and so on.
fn offline(count: usize) -> Vec<EndpointSettings> {
    (0..count).map(|number| endpoint(&number.to_string(), &format!("http://127.0.0.1:9/{number}"))).collect()
}

fn pool(count: usize, settings: &PoolSettings) -> Pool {
    Pool::new(&offline(count), settings, RuntimeClock::start()).unwrap()
}

fn drain(events: &mut Receiver<Event>) -> Vec<Event> {
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}

/// What a stub does with a connection after it has read a request.
enum Act {
    /// Sends the bytes, and waits for the next request.
    Send(Vec<u8>),
    /// Sends the bytes, closes its side, and goes on listening.
    HalfClose(Vec<u8>),
    /// Sends the bytes and hangs up.
    HangUp(Vec<u8>),
    /// Sends the bytes one by one.
    Drip(Vec<u8>, Duration),
    /// Sends the bytes again and again, for ever.
    Flood(Vec<u8>, Vec<u8>),
    Hang,
}

/// A server of raw bytes on loopback.
struct Stub {
    url: String,
    /// The requests, whole.
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stub {
    async fn start(act: impl Fn(&str) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (act, log) = (Arc::new(act), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(talk(stream, Arc::clone(&act), Arc::clone(&log)));
            }
        });
        Self { url, seen, task }
    }

    /// One that answers every request with these bytes.
    async fn saying(bytes: Vec<u8>) -> Self {
        Self::start(move |_| Act::Send(bytes.clone())).await
    }

    fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn bodies(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|request| body_of(request).to_owned()).collect()
    }

    fn pool(&self, settings: &PoolSettings) -> Pool {
        Pool::new(&[endpoint("stub", &self.url)], settings, RuntimeClock::start()).unwrap()
    }
}

fn body_of(request: &str) -> &str {
    request.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

async fn talk(mut stream: TcpStream, act: Arc<impl Fn(&str) -> Act>, log: Arc<Mutex<Vec<String>>>) {
    while let Some(request) = read_request(&mut stream).await {
        log.lock().unwrap().push(request.clone());
        let sent = match act(&request) {
            Act::Send(bytes) => stream.write_all(&bytes).await,
            Act::HangUp(bytes) => {
                stream.write_all(&bytes).await.ok();
                return;
            }
            Act::HalfClose(bytes) => {
                stream.write_all(&bytes).await.ok();
                stream.shutdown().await
            }
            Act::Drip(bytes, pause) => {
                for byte in bytes {
                    if stream.write_all(&[byte]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                }
                Ok(())
            }
            Act::Flood(head, more) => {
                stream.write_all(&head).await.ok();
                while stream.write_all(&more).await.is_ok() {}
                return;
            }
            Act::Hang => std::future::pending().await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_ascii_lowercase().lines().find_map(|line| {
                line.strip_prefix("content-length:").map(|length| length.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn json(body: &str) -> Vec<u8> {
    http("200 OK", "content-type: application/json\r\n", body)
}
