//! Load over HTTP/1.1: so many connections, on each one request after the other, every answer looked at.
//!
//! It shares the machine with the server that it asks, so it does no more than it must: requests are bytes that are
//! made ready beforehand, answers are a status and a body of known length, and nothing is parsed that is not used.
//!
//! A connection that breaks is no failure of the load: the client learns that the outcome of its request is unknown, and
//! goes on over a new connection.
#![allow(clippy::float_arithmetic, reason = "rates, never money")]

pub mod command;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use terminal::clock::Stopwatch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How hard, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub address: SocketAddr,
    pub connections: usize,
    /// No request starts after this; those under way are waited for.
    pub time: Duration,
    /// A request that is not answered for so long counts as unknown.
    pub patience: Duration,
}

/// What one connection asks for, and what it makes of the answers.
pub trait Traffic: Send + 'static {
    /// Writes the next request, head and body, into the empty buffer. Returns how many transfers it asks for, or
    /// nothing when there is nothing more to ask.
    fn next(&mut self, request: &mut Vec<u8>) -> Option<usize>;

    /// How many of them an answer commits.
    fn committed(&self, came: &Came<'_>) -> usize {
        came.committed()
    }

    /// What came of the request that `next` made last, and how many transfers that commits.
    fn learn(&mut self, came: &Came<'_>, committed: usize);
}

/// What came of a request.
#[derive(Debug)]
pub enum Came<'a> {
    Answer {
        status: u16,
        body: &'a [u8],
    },
    /// No whole answer came, for this reason: the server may or may not have done what was asked.
    Unknown(&'a str),
}

impl Came<'_> {
    /// How many transfers it says are done.
    pub fn committed(&self) -> usize {
        match self {
            Self::Answer { status: 200, body } => {
                std::str::from_utf8(body).map_or(0, |text| text.matches(DONE).count())
            }
            Self::Answer { .. } | Self::Unknown(_) => 0,
        }
    }
}

const DONE: &str = r#""state":"COMMITTED""#;

/// How many unexpected answers are kept word for word.
const KEPT: usize = 5;

/// What came of all requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub requests: u64,
    /// Transfers that were answered as done.
    pub committed: u64,
    /// Transfers that were answered otherwise.
    pub unexpected: u64,
    /// Transfers that were not answered.
    pub unknown: u64,
    /// The first few of both, word for word.
    pub first: Vec<String>,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// Of answered requests, in microseconds; sorted once all are in.
    latencies_us: Vec<u32>,
}

impl Tally {
    pub fn per_s(&self) -> f64 {
        self.committed as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    pub fn quantile_us(&self, thousandths: usize) -> u32 {
        let at = self.latencies_us.len() * thousandths / 1_000;
        self.latencies_us.get(at).or(self.latencies_us.last()).copied().unwrap_or(0)
    }

    pub const fn errors(&self) -> u64 {
        self.unexpected + self.unknown
    }

    fn count(&mut self, [asked, committed]: [usize; 2], came: &Came<'_>, latency: Duration) {
        self.requests += 1;
        let missing = asked.saturating_sub(committed) as u64;
        self.committed += committed as u64;
        match came {
            Came::Answer { .. } => {
                self.unexpected += missing;
                self.latencies_us.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
            }
            Came::Unknown(_) => self.unknown += missing,
        }
        if committed != asked && self.first.len() < KEPT {
            self.first.push(match came {
                Came::Answer { status, body } => format!("{status} {}", String::from_utf8_lossy(body)),
                Came::Unknown(why) => format!("unknown: {why}"),
            });
        }
    }

    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.committed += other.committed;
        self.unexpected += other.unexpected;
        self.unknown += other.unknown;
        let room = KEPT.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
        self.latencies_us.extend(other.latencies_us);
    }
}

/// Opens all connections, then runs them until the time is up. `make` is given the number of each connection.
/// Fails only when the server cannot be reached to begin with.
pub async fn run<T: Traffic>(load: Load, mut make: impl FnMut(usize) -> T) -> io::Result<Tally> {
    let mut speakers = Vec::with_capacity(load.connections);
    for number in 0..load.connections {
        let stream = connect(&load).await?;
        speakers.push(Speaker { load, traffic: make(number), stream: Some(stream), tally: Tally::default() });
    }
    let watch = Stopwatch::start();
    let tasks: Vec<_> = speakers.into_iter().map(|speaker| tokio::spawn(speaker.speak(watch))).collect();
    let mut tally = Tally::default();
    for task in tasks {
        tally.add(task.await.map_err(io::Error::other)?);
    }
    tally.elapsed = watch.elapsed();
    tally.latencies_us.sort_unstable();
    Ok(tally)
}

async fn connect(load: &Load) -> io::Result<TcpStream> {
    let stream = tokio::time::timeout(load.patience, TcpStream::connect(load.address)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// One connection, and the next one when that breaks.
struct Speaker<T> {
    load: Load,
    traffic: T,
    stream: Option<TcpStream>,
    tally: Tally,
}

/// How long until a server that does not listen is tried again.
const PAUSE: Duration = Duration::from_millis(20);

impl<T: Traffic> Speaker<T> {
    async fn speak(mut self, watch: Stopwatch) -> Tally {
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        while watch.elapsed() < self.load.time {
            let Some(mut stream) = self.stream.take() else {
                match connect(&self.load).await {
                    Ok(stream) => self.stream = Some(stream),
                    // Nothing was asked, so nothing is unknown.
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
                continue;
            };
            request.clear();
            let Some(asked) = self.traffic.next(&mut request) else { break };
            let before = watch.elapsed();
            let exchange = exchange(&mut stream, &request, &mut answer);
            let result = tokio::time::timeout(self.load.patience, exchange).await;
            let latency = watch.elapsed() - before;
            let came = match &result {
                Ok(Ok(head)) => Came::Answer { status: head.status, body: &answer[head.length..] },
                Ok(Err(why)) => Came::Unknown(why),
                Err(_) => Came::Unknown("no answer in time"),
            };
            let committed = self.traffic.committed(&came);
            self.tally.count([asked, committed], &came, latency);
            self.traffic.learn(&came, committed);
            if matches!(&result, Ok(Ok(head)) if !head.closes) {
                self.stream = Some(stream);
            }
        }
        self.tally
    }
}

/// Sends a request and reads its answer into the buffer.
pub(crate) async fn exchange(stream: &mut TcpStream, request: &[u8], answer: &mut Vec<u8>) -> Result<Head, String> {
    answer.clear();
    stream.write_all(request).await.map_err(|error| error.to_string())?;
    loop {
        if answer.capacity() - answer.len() < READ {
            answer.reserve(READ);
        }
        if stream.read_buf(answer).await.map_err(|error| error.to_string())? == 0 {
            return Err(format!("the connection ended after {} bytes of an answer", answer.len()));
        }
        if let Some(head) = whole(answer)? {
            return Ok(head);
        }
    }
}

const READ: usize = 4 << 10;
/// The longest head, and the longest body, that an answer may have.
const HEAD_MAX: usize = 16 << 10;
const BODY_MAX: usize = 16 << 20;

/// The head of a whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub status: u16,
    /// In bytes. The body is the rest.
    pub length: usize,
    /// The server closes the connection after this answer.
    pub closes: bool,
}

/// The head of the answer if it is whole, nothing if there is more to come.
fn whole(bytes: &[u8]) -> Result<Option<Head>, String> {
    let start = &bytes[..bytes.len().min(HEAD_MAX)];
    let Some(end) = start.windows(4).position(|four| four == b"\r\n\r\n") else {
        if start.len() == HEAD_MAX {
            return Err("the head of the answer does not end".to_owned());
        }
        let shortest = start.len().min(VERSION.len());
        return if start[..shortest] == VERSION[..shortest] { Ok(None) } else { Err(strange(start)) };
    };
    let (head, body) = parse_head(&start[..end])?;
    let missing = (head.length + body).checked_sub(bytes.len());
    match missing {
        Some(0) => Ok(Some(head)),
        Some(_) => Ok(None),
        None => Err("more came than the answer is long".to_owned()),
    }
}

const VERSION: &[u8] = b"HTTP/1.1 ";

fn strange(bytes: &[u8]) -> String {
    format!("not an answer: {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(80)]))
}

/// Reads the bytes before the empty line. Returns the length of the body too.
fn parse_head(bytes: &[u8]) -> Result<(Head, usize), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| strange(bytes))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).and_then(|line| line.get(..3));
    // A status below 200 announces an answer that is still to come. The load never asks for such an announcement.
    let status = status.and_then(|digits| digits.parse().ok()).filter(|status| (200..600).contains(status));
    let status = status.ok_or_else(|| strange(bytes))?;
    let (mut body, mut closes) = (None, false);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| strange(line.as_bytes()))?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let length: Option<usize> = value.parse().ok().filter(|length| digits && *length <= BODY_MAX);
            if length.is_none() || body.is_some() {
                return Err(format!("an answer of length {value:?}"));
            }
            body = length;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("an answer in pieces, without a length".to_owned());
        } else if name.eq_ignore_ascii_case("connection") {
            closes = value.eq_ignore_ascii_case("close");
        }
    }
    let body = body.ok_or("an answer without a length")?;
    Ok((Head { status, length: bytes.len() + 4, closes }, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn an_answer_is_whole_at_its_last_byte_and_not_before() {
        for length in 0..GOOD.len() {
            assert_eq!(whole(&GOOD[..length]), Ok(None), "{length} bytes");
        }
        let head = whole(GOOD).expect("an answer").expect("whole");
        assert_eq!((head.status, &GOOD[head.length..], head.closes), (200, &b"hello"[..], false));
    }

    #[test]
    fn the_names_of_headers_are_read_in_any_case_and_strange_ones_passed_over() {
        let text = b"HTTP/1.1 422 Unprocessable Entity\r\nx-a: b: c\r\nCONTENT-length:0\r\nConnection: Close\r\n\r\n";
        assert_eq!(whole(text), Ok(Some(Head { status: 422, length: text.len(), closes: true })));
    }

    #[test]
    fn what_is_no_answer_of_known_length_is_an_error() {
        for text in [
            "hello",
            "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 xyz OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 999 ?\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy",
        ] {
            assert!(whole(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(whole(&[0xff; 20]).is_err());
        assert!(whole(b"HTTP/1.1 200 \xff\r\nContent-Length: 0\r\n\r\n").is_err());
    }

    #[test]
    fn a_head_that_does_not_end_is_an_error_and_not_a_wait() {
        let mut text = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
        text.resize(HEAD_MAX - 1, b'a');
        assert_eq!(whole(&text), Ok(None));
        text.push(b'a');
        assert!(whole(&text).is_err());
    }

    #[test]
    fn only_an_answer_of_200_commits() {
        let body = br#"{"results":[{"state":"COMMITTED"},{"state":"PENDING"},{"state":"COMMITTED"}]}"#;
        assert_eq!(Came::Answer { status: 200, body }.committed(), 2);
        assert_eq!(Came::Answer { status: 202, body }.committed(), 0);
        assert_eq!(Came::Unknown("gone").committed(), 0);
    }

    /// Asks so often, and keeps what came.
    struct Asks(usize, std::sync::mpsc::Sender<String>);

    impl Traffic for Asks {
        fn next(&mut self, request: &mut Vec<u8>) -> Option<usize> {
            self.0 = self.0.checked_sub(1)?;
            request.extend_from_slice(b"?");
            Some(1)
        }

        fn learn(&mut self, came: &Came<'_>, _: usize) {
            self.1.send(format!("{came:?}")).expect("the test listens");
        }
    }

    /// A server that answers each byte by the next of its texts, in two writes, and hangs up after an empty one.
    async fn serve(listener: TcpListener, texts: Vec<String>) {
        let mut texts = texts.into_iter();
        let mut answered = texts.next();
        while answered.is_some() {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut byte = [0];
            while let Some(text) = &answered
                && stream.read_exact(&mut byte).await.is_ok()
            {
                let (first, second) = text.as_bytes().split_at(text.len() / 2);
                for part in [first, second] {
                    stream.write_all(part).await.expect("sent");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let hang_up = text.is_empty();
                answered = texts.next();
                if hang_up {
                    break;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_lost_connection_is_an_unknown_outcome_and_the_next_request_takes_a_new_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let body = r#"{"state":"COMMITTED"}"#;
        let good = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let refused = "HTTP/1.1 422 No\r\ncontent-length: 2\r\n\r\n{}";
        let server = tokio::spawn(serve(listener, vec![good.clone(), String::new(), refused.to_owned(), good]));
        let (sender, learnt) = std::sync::mpsc::channel();
        let load = Load { address, connections: 1, time: Duration::from_secs(20), patience: Duration::from_secs(10) };
        let tally = run(load, |_| Asks(4, sender.clone())).await.expect("a server");
        server.await.expect("served");
        assert_eq!((tally.requests, tally.committed, tally.unexpected, tally.unknown), (4, 2, 1, 1));
        assert_eq!(tally.first, ["unknown: the connection ended after 0 bytes of an answer", "422 {}"]);
        assert_eq!(tally.latencies_us.len(), 3);
        assert_eq!(learnt.try_iter().count(), 4);
    }
}
