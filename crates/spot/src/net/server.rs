//! The serving side: one task that reads and one that writes for each connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::{
    ANSWERS, FAILED, FrameRefusal, HELLO, REFUSED, SNAPSHOT, SNAPSHOT_TAKEN, SUBMIT, VERSION, WELCOME, parse, put,
    requests,
};
use crate::answer::Answer;
use crate::service::{Engine, NoAnswer, Pending, SnapshotTaken};

/// Connections at a time, of those that have shown the token.
const CONNECTIONS: usize = 256;
/// Connections that have not shown it yet.
const STRANGERS: usize = 1_024;
/// Frames of one connection that may wait for their answers.
const IN_FLIGHT: usize = 64;
const HELLO_TIME: Duration = Duration::from_secs(5);
/// A client that takes nothing for so long is gone.
const WRITE_TIME: Duration = Duration::from_secs(30);

/// What a client must show. At least 16 bytes; never printed.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token has between 16 and 256 bytes")]
pub struct BadToken;

impl Token {
    pub fn new(text: &str) -> Result<Self, BadToken> {
        if (16..=256).contains(&text.len()) { Ok(Self(text.as_bytes().into())) } else { Err(BadToken) }
    }

    /// In a time that does not tell how much of it is right.
    fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

pub struct Server {
    listener: TcpListener,
    engine: Engine,
    token: Token,
}

impl Server {
    pub const fn new(listener: TcpListener, engine: Engine, token: Token) -> Self {
        Self { listener, engine, token }
    }

    /// Accepts connections until the future is dropped.
    pub async fn run(self) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let strangers = Arc::new(Semaphore::new(STRANGERS));
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file handles, most likely: others will close theirs.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(stranger) = Arc::clone(&strangers).try_acquire_owned() else {
                tracing::warn!(%peer, "refused: {STRANGERS} connections have not shown a token");
                continue;
            };
            let (engine, token, places) = (self.engine.clone(), self.token.clone(), Arc::clone(&places));
            tokio::spawn(async move {
                let served = async {
                    let Some((frames, writer)) = greet(stream, &token).await? else { return Ok(()) };
                    drop(stranger);
                    let Ok(_place) = places.try_acquire() else {
                        tracing::warn!(%peer, "refused: {CONNECTIONS} connections are open");
                        return Ok(());
                    };
                    converse(frames, writer, &engine).await
                };
                let served: io::Result<()> = served.await;
                if let Err(error) = served {
                    tracing::debug!(%peer, %error, "a connection ended");
                }
            });
        }
    }
}

/// What the writing task sends next.
enum Outgoing {
    Answers(u64, Pending),
    Refused(u64, FrameRefusal),
    Snapshot(u64, SnapshotTaken),
}

/// Lets in whoever shows the token.
async fn greet(stream: TcpStream, token: &Token) -> io::Result<Option<(Frames, OwnedWriteHalf)>> {
    super::keep_alive(&stream)?;
    let (reader, mut writer) = stream.into_split();
    let mut frames = Frames { reader, bytes: Vec::new(), used: 0 };
    let mut out = Vec::new();
    match timeout(HELLO_TIME, frames.next()).await?? {
        Some((number, HELLO, body)) => match body.split_first() {
            Some((&VERSION, shown)) if token.is(shown) => put(&mut out, number, WELCOME, |out| out.push(VERSION)),
            Some((&VERSION, _)) => {
                tracing::warn!("a client showed a wrong token");
                put(&mut out, number, REFUSED, |out| out.push(FrameRefusal::Unauthorized.number()));
                writer.write_all(&out).await?;
                return Ok(None);
            }
            _ => {
                put(&mut out, number, REFUSED, |out| out.push(FrameRefusal::Malformed.number()));
                writer.write_all(&out).await?;
                return Ok(None);
            }
        },
        _ => return Ok(None),
    }
    writer.write_all(&out).await?;
    Ok(Some((frames, writer)))
}

async fn converse(mut frames: Frames, writer: OwnedWriteHalf, engine: &Engine) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let mut writing = tokio::spawn(write(writer, receiver));
    let result = tokio::select! {
        result = read(&mut frames, engine, &sender) => result,
        // Nobody takes the answers.
        written = &mut writing => return written.map_err(io::Error::other)?,
    };
    // What was taken is still answered; then the connection ends.
    drop(sender);
    writing.await.map_err(io::Error::other)??;
    result
}

/// Takes frames as long as there is room for their answers. Ends with the connection, or after a frame that is none.
async fn read(frames: &mut Frames, engine: &Engine, sender: &mpsc::Sender<Outgoing>) -> io::Result<()> {
    while let Some((number, kind, body)) = frames.next().await? {
        let (outgoing, last) = match kind {
            SUBMIT => match requests(body).map(|requests| engine.enqueue(requests)) {
                Ok(Ok(pending)) => (Outgoing::Answers(number, pending), false),
                Ok(Err(none)) => (Outgoing::Refused(number, FrameRefusal::Engine(none)), none == NoAnswer::Stopped),
                Err(_) => (Outgoing::Refused(number, FrameRefusal::Malformed), true),
            },
            SNAPSHOT => {
                // It takes its time: the answer comes when it is there, and others pass it by.
                match engine.order_snapshot() {
                    Err(error) => (Outgoing::Snapshot(number, Err(error)), false),
                    Ok(taken) => {
                        let sender = sender.clone();
                        tokio::spawn(async move {
                            let taken = taken.await.unwrap_or(Err(crate::SpotError::Stopped));
                            sender.send(Outgoing::Snapshot(number, taken)).await.ok();
                        });
                        continue;
                    }
                }
            }
            _ => (Outgoing::Refused(number, FrameRefusal::Malformed), true),
        };
        if sender.send(outgoing).await.is_err() || last {
            break;
        }
    }
    Ok(())
}

async fn write(mut writer: OwnedWriteHalf, mut outgoing: mpsc::Receiver<Outgoing>) -> io::Result<()> {
    let mut out = Vec::new();
    while let Some(next) = outgoing.recv().await {
        match next {
            Outgoing::Answers(number, pending) => match pending.answers().await {
                Ok(answers) => {
                    put(&mut out, number, ANSWERS, |out| answers.iter().for_each(|answer| Answer::encode(answer, out)))
                }
                Err(none) => put(&mut out, number, REFUSED, |out| out.push(FrameRefusal::Engine(none).number())),
            },
            Outgoing::Refused(number, refusal) => put(&mut out, number, REFUSED, |out| out.push(refusal.number())),
            Outgoing::Snapshot(number, taken) => match taken {
                Ok(header) => {
                    let sequence = header.map_or(0, |header| header.sequence);
                    put(&mut out, number, SNAPSHOT_TAKEN, |out| out.extend_from_slice(&sequence.to_le_bytes()));
                }
                Err(crate::SpotError::Stopped) => {
                    put(&mut out, number, REFUSED, |out| out.push(FrameRefusal::Engine(NoAnswer::Stopped).number()));
                }
                Err(error) => put(&mut out, number, FAILED, |out| out.extend_from_slice(error.code().as_bytes())),
            },
        }
        // One write for all answers that are there.
        if outgoing.is_empty() || out.len() > 1 << 16 {
            timeout(WRITE_TIME, writer.write_all(&out)).await??;
            out.clear();
        }
    }
    writer.shutdown().await
}

/// Frames from a socket, whole ones only.
struct Frames {
    reader: OwnedReadHalf,
    bytes: Vec<u8>,
    /// What of the bytes was handed out before.
    used: usize,
}

impl Frames {
    /// The next frame: its number, kind and body. `None` when the other side has closed.
    async fn next(&mut self) -> io::Result<Option<(u64, u8, &[u8])>> {
        loop {
            let found = parse(&self.bytes[self.used..])
                .map_err(io::Error::other)?
                .map(|(frame, length)| (frame.number, frame.kind, length, frame.body.len()));
            if let Some((number, kind, length, body)) = found {
                let end = self.used + length;
                self.used = end;
                return Ok(Some((number, kind, &self.bytes[end - body..end])));
            }
            self.bytes.drain(..self.used);
            self.used = 0;
            self.bytes.reserve(1 << 16);
            if self.reader.read_buf(&mut self.bytes).await? == 0 {
                return Ok(None);
            }
        }
    }
}
