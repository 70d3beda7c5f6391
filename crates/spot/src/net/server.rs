//! The server's side: each connection has one task that reads and one that writes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::credential::{Credentials, Role};
use super::tls::{Reader, ServerTls, Writer};
use super::{
    ANSWERS, CROSSINGS, FAILED, FRAME_MAX, FrameRefusal, HELLO, HELLO_MAX, LISTED, REFUSED, SNAPSHOT, SNAPSHOT_TAKEN,
    SUBMIT, VERSION, WELCOME, Welcome, parse, put, requests,
};
use crate::answer::{Answer, Standing};
use crate::operation::{Fields, OpId, Request};
use crate::service::{Engine, NoAnswer, Pending, SnapshotTaken};

/// Connections at a time that have shown a token, for each role: many observers must not keep a coordinator out.
const CONNECTIONS: usize = 64;
/// Connections at a time that have not shown it yet.
const STRANGERS: usize = 1_024;
/// Frames of one connection that may wait for their answers.
const IN_FLIGHT: usize = 64;
/// A connection must have shown its token within this time.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// A client is dropped when it does not take one write of answers within this time.
const WRITE_TIME: Duration = Duration::from_secs(30);

pub struct Server {
    listener: TcpListener,
    engine: Engine,
    credentials: Credentials,
    tls: Option<ServerTls>,
}

impl Server {
    pub const fn new(listener: TcpListener, engine: Engine, credentials: Credentials) -> Self {
        Self { listener, engine, credentials, tls: None }
    }

    /// From now on clients must speak TLS.
    pub fn with_tls(self, tls: ServerTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Accepts connections until the future is dropped. Connections that are open then go on.
    pub async fn run(self) {
        let places = Arc::new(Role::ALL.map(|role| (role, Semaphore::new(CONNECTIONS))));
        let strangers = Arc::new(Semaphore::new(STRANGERS));
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely there are no file handles left; other connections will end and free some.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(stranger) = Arc::clone(&strangers).try_acquire_owned() else {
                tracing::warn!(%peer, "refused: {STRANGERS} connections have not shown a token");
                continue;
            };
            let (engine, credentials, places) = (self.engine.clone(), self.credentials.clone(), Arc::clone(&places));
            let tls = self.tls.clone();
            tokio::spawn(async move {
                let served = async {
                    let greeted = timeout(HELLO_TIME, greet(stream, tls.as_ref(), &credentials, &engine)).await??;
                    let Some((frames, writer, role)) = greeted else { return Ok(()) };
                    drop(stranger);
                    let of_role =
                        places.iter().find(|(other, _)| *other == role).map(|(_, places)| places.try_acquire());
                    let Some(Ok(_place)) = of_role else {
                        tracing::warn!(%peer, %role, "refused: {CONNECTIONS} connections of this role are open");
                        return Ok(());
                    };
                    converse(frames, writer, &engine, role).await
                };
                let served: io::Result<()> = served.await;
                if let Err(error) = served {
                    tracing::debug!(%peer, %error, "a connection ended");
                }
            });
        }
    }
}

/// What the reading task gives to the writing task.
enum Outgoing {
    Answers(u64, Pending),
    Refused(u64, FrameRefusal),
    Snapshot(u64, SnapshotTaken),
    Listed(u64, Vec<(OpId, Standing)>),
}

/// Lets a client in that shows a token, and says which role it has. `None`: it did not, and was told so if it said hello.
async fn greet(
    stream: TcpStream,
    tls: Option<&ServerTls>,
    credentials: &Credentials,
    engine: &Engine,
) -> io::Result<Option<(Frames, Writer, Role)>> {
    super::keep_alive(&stream)?;
    let (reader, mut writer): (Reader, Writer) = match tls {
        Some(tls) => tls.accept(stream).await?,
        None => {
            let (reader, writer) = stream.into_split();
            (Box::new(reader), Box::new(writer))
        }
    };
    let mut frames = Frames { reader, bytes: Vec::new(), used: 0, longest: HELLO_MAX };
    let mut out = Vec::new();
    let (number, hello) = match frames.next().await {
        Ok(Some((number, HELLO, body))) => (number, body),
        Ok(_) => return Ok(None),
        // Bytes that are no frame. A client that speaks TLS to a port without it is told so by an answer that is no TLS.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => (0, &[][..]),
        Err(error) => return Err(error),
    };
    let role = match hello.split_first() {
        Some((&VERSION, shown)) => credentials.role_of(shown).ok_or(FrameRefusal::Unauthorized),
        _ => Err(FrameRefusal::Malformed),
    };
    let role = match role {
        Ok(role) => match engine.ask(Request::Pair).await {
            Ok(Answer::Pair(pair)) => {
                let welcome = Welcome { pair, time: engine.now(), role };
                put(&mut out, number, WELCOME, |out| welcome.encode(out));
                Ok(role)
            }
            Ok(_) => Err(FrameRefusal::Malformed),
            Err(none) => Err(FrameRefusal::Engine(none)),
        },
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = role {
        put(&mut out, number, REFUSED, |out| out.push(refusal.number()));
    }
    writer.write_all(&out).await?;
    writer.flush().await?;
    if role == Err(FrameRefusal::Unauthorized) {
        tracing::warn!("a client showed a wrong token");
    }
    frames.longest = FRAME_MAX;
    Ok(role.ok().map(|role| (frames, writer, role)))
}

async fn converse(mut frames: Frames, writer: Writer, engine: &Engine, role: Role) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let mut writing = tokio::spawn(write(writer, receiver));
    let result = tokio::select! {
        result = read(&mut frames, engine, role, &sender) => result,
        // The writing task ended first: the client does not take its answers.
        written = &mut writing => return written.map_err(io::Error::other)?,
    };
    // Frames that were taken are still answered; then the connection ends.
    drop(sender);
    writing.await.map_err(io::Error::other)??;
    result
}

/// Takes frames as long as there is room for their answers. A frame that asks for anything that the role may not have is
/// refused whole, and the connection goes on: the frames before and after it have their own answers. Ends when the client closes, when the writing task is gone,
/// when the engine has stopped, or after a frame that cannot be understood.
async fn read(frames: &mut Frames, engine: &Engine, role: Role, sender: &mpsc::Sender<Outgoing>) -> io::Result<()> {
    while let Some((number, kind, body)) = frames.next().await? {
        let (outgoing, last) = match kind {
            SUBMIT => match requests(body) {
                Ok(requests) if !requests.iter().all(|request| role.may(request)) => {
                    tracing::warn!(%role, "a client asked for what its role may not do");
                    (Outgoing::Refused(number, FrameRefusal::Forbidden), false)
                }
                Ok(requests) => match engine.enqueue(requests) {
                    Ok(pending) => (Outgoing::Answers(number, pending), false),
                    Err(none) => (Outgoing::Refused(number, FrameRefusal::Engine(none)), none == NoAnswer::Stopped),
                },
                Err(_) => (Outgoing::Refused(number, FrameRefusal::Malformed), true),
            },
            SNAPSHOT if !role.may_order_snapshots() => (Outgoing::Refused(number, FrameRefusal::Forbidden), false),
            SNAPSHOT => {
                // A snapshot takes long, so its answer does not hold up the answers to later frames.
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
            CROSSINGS if !role.may_list() => (Outgoing::Refused(number, FrameRefusal::Forbidden), false),
            CROSSINGS => {
                let mut fields = Fields::of(body);
                match (fields.i64().ok().and_then(OpId::new), fields.u32()) {
                    (Some(before), Ok(most)) => {
                        match engine.crossings(before, usize::try_from(most).unwrap_or(0)).await {
                            Ok(list) => (Outgoing::Listed(number, list), false),
                            Err(none) => (Outgoing::Refused(number, FrameRefusal::Engine(none)), false),
                        }
                    }
                    _ => (Outgoing::Refused(number, FrameRefusal::Malformed), true),
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

async fn write(mut writer: Writer, mut outgoing: mpsc::Receiver<Outgoing>) -> io::Result<()> {
    let mut out = Vec::new();
    while let Some(next) = outgoing.recv().await {
        match next {
            Outgoing::Answers(number, pending) => match pending.answers().await {
                Ok(answers) => {
                    put(&mut out, number, ANSWERS, |out| answers.iter().for_each(|answer| Answer::encode(answer, out)))
                }
                Err(none) => put(&mut out, number, REFUSED, |out| out.push(FrameRefusal::Engine(none).number())),
            },
            Outgoing::Listed(number, list) => put(&mut out, number, LISTED, |out| {
                for (id, standing) in list {
                    out.extend_from_slice(&id.number().to_le_bytes());
                    out.push(standing.number());
                }
            }),
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
        // All answers that are ready go out in one write.
        if outgoing.is_empty() || out.len() > 1 << 16 {
            let written = async {
                writer.write_all(&out).await?;
                // What TLS has encrypted may not be in the socket yet.
                writer.flush().await
            };
            timeout(WRITE_TIME, written).await??;
            out.clear();
        }
    }
    writer.shutdown().await
}

/// Frames from a socket, whole ones only.
struct Frames {
    reader: Reader,
    bytes: Vec<u8>,
    /// How many of the bytes belong to frames that were handed out before.
    used: usize,
    /// The longest frame that is taken.
    longest: usize,
}

impl Frames {
    /// The next frame: its number, kind and body. `None` when the other side has closed.
    async fn next(&mut self) -> io::Result<Option<(u64, u8, &[u8])>> {
        loop {
            let found = parse(&self.bytes[self.used..], self.longest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
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
