//! The client's side. It reconnects and sends every frame again that was not answered. This is safe because every
//! operation has an id: the engine runs it once, however often it comes.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use domain::random::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::credential::Token;
use super::tls::{ClientTls, Reader, Writer};
use super::{
    ANSWERS, CROSSINGS, FAILED, FRAME_MAX, FrameRefusal, HELLO, LISTED, REFUSED, SNAPSHOT, SNAPSHOT_TAKEN, SUBMIT,
    VERSION, WELCOME, Welcome, answers, crossings, parse, put,
};
use crate::operation::Fields;
use crate::{Answer, NoAnswer, OpId, Request, SUBMISSION_MAX, SpotError, Standing};

/// Frames that may wait for their answers at a time.
const IN_FLIGHT: usize = 1_024;
/// For the connection, and once more for the welcome.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// While frames wait for their answers, silence for so long means that the connection is dead.
const SILENCE: Duration = Duration::from_secs(15);
/// The pause after a connection on which new calls were sent.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The pause doubles with each connection on which no new call could be sent, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The pause after a rejection: a person has to put something right first.
const REJECTED_PAUSE: Duration = Duration::from_secs(3);

/// Why there is no answer. **Only `NotTaken` says that nothing was done.** After the others the operations may have
/// been carried out, and the caller must send the same ids again before it concludes anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    NotTaken(#[from] NoAnswer),
    #[error("the engine does not accept the token")]
    Unauthorized,
    /// Nothing of this call was done now. If it was sent on an earlier connection too, it may have been done there.
    #[error("the role of the token may not do this")]
    Forbidden,
    #[error("the two sides do not understand each other: different versions?")]
    Protocol,
    /// Whoever listens there is not the engine that this client knows, or one of the two speaks TLS and the other not.
    #[error("{0}")]
    Tls(String),
    #[error("the engine could not take the snapshot: {0}")]
    Snapshot(String),
    /// This side does not want that engine: the check that [`Client::start`] was given refused its welcome.
    #[error("{words}")]
    Unacceptable { code: &'static str, words: String },
}

impl ClientError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotTaken(no_answer) => no_answer.code(),
            Self::Unauthorized => "SPOT_UNAUTHORIZED",
            Self::Forbidden => "SPOT_FORBIDDEN",
            Self::Protocol => "SPOT_PROTOCOL_MISMATCH",
            Self::Tls(_) => "SPOT_TLS_FAILED",
            Self::Snapshot(_) => "SPOT_SNAPSHOT_FAILED",
            Self::Unacceptable { code, .. } => code,
        }
    }
}

/// How a client stands with its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// The first connection is not made yet, and has not failed either.
    Connecting,
    Connected(Welcome),
    /// There is no connection, for this reason. Calls wait for the next one.
    Away(Arc<str>),
    /// The engine does not want this client, or this client does not want that engine. Calls fail at once with the
    /// reason. The client asks again every few seconds, because an operator may put right what is wrong.
    Rejected(ClientError),
}

/// Looks at what an engine says of itself, before anything is sent to it.
type Accept = Box<dyn Fn(&Welcome) -> Result<(), ClientError> + Send + Sync>;

/// The task that waits for the answer to a call.
enum Caller {
    Answers(oneshot::Sender<Result<Vec<Answer>, ClientError>>),
    Snapshot(oneshot::Sender<Result<u64, ClientError>>),
    Crossings(oneshot::Sender<Result<Vec<(OpId, Standing)>, ClientError>>),
}

impl Caller {
    fn fail(self, error: ClientError) {
        match self {
            Self::Answers(reply) => drop(reply.send(Err(error))),
            Self::Snapshot(reply) => drop(reply.send(Err(error))),
            Self::Crossings(reply) => drop(reply.send(Err(error))),
        }
    }

    fn is_gone(&self) -> bool {
        match self {
            Self::Answers(reply) => reply.is_closed(),
            Self::Snapshot(reply) => reply.is_closed(),
            Self::Crossings(reply) => reply.is_closed(),
        }
    }
}

struct Call {
    kind: u8,
    body: Vec<u8>,
    caller: Caller,
    /// It was sent on an earlier connection too, and may have been carried out there.
    sent_before: bool,
}

/// A handle on a connection that looks after itself; cheap to clone.
#[derive(Clone)]
pub struct Client {
    calls: mpsc::Sender<Call>,
    state: watch::Receiver<ConnectionState>,
}

impl Client {
    /// Starts the task that connects, and connects again. `seed` spreads the retries of many clients. `accept` is asked
    /// on every connection before the first call is sent on it.
    pub fn start(
        address: SocketAddr,
        token: Token,
        seed: u64,
        accept: impl Fn(&Welcome) -> Result<(), ClientError> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(None, address, token, seed, accept)
    }

    /// The same, over TLS if the engine is on another machine.
    pub fn start_with(
        tls: Option<ClientTls>,
        address: SocketAddr,
        token: Token,
        seed: u64,
        accept: impl Fn(&Welcome) -> Result<(), ClientError> + Send + Sync + 'static,
    ) -> Self {
        let (calls, incoming) = mpsc::channel(IN_FLIGHT);
        let (told, state) = watch::channel(ConnectionState::Connecting);
        let driver = Driver {
            tls,
            address,
            token,
            accept: Box::new(accept),
            calls: incoming,
            waiting: BTreeMap::new(),
            next: 1,
            random: Random::from_seed(seed),
            state: told,
        };
        tokio::spawn(driver.run());
        Self { calls, state }
    }

    /// How the client stands with its engine, now and from now on.
    pub fn state(&self) -> watch::Receiver<ConnectionState> {
        self.state.clone()
    }

    /// Waits as long as it takes, through lost connections and restarts of the engine. A caller that cannot wait puts a
    /// timeout around it, and must not conclude anything when the time is over.
    pub async fn submit(&self, requests: &[Request]) -> Result<Vec<Answer>, ClientError> {
        if requests.is_empty() || requests.len() > SUBMISSION_MAX {
            return Err(NoAnswer::Size.into());
        }
        let mut body = Vec::with_capacity(requests.len() * 32);
        for request in requests {
            request.encode(&mut body);
        }
        let (reply, answers) = oneshot::channel();
        let answers = self.call(SUBMIT, body, Caller::Answers(reply), answers).await?;
        if answers.len() == requests.len() { Ok(answers) } else { Err(ClientError::Protocol) }
    }

    pub async fn ask(&self, request: impl Into<Request>) -> Result<Answer, ClientError> {
        let answers = self.submit(&[request.into()]).await?;
        answers.first().copied().ok_or(ClientError::Protocol)
    }

    /// Has a snapshot taken. Returns the batch that the snapshot holds, or 0 if there was nothing new.
    pub async fn snapshot(&self) -> Result<u64, ClientError> {
        let (reply, taken) = oneshot::channel();
        self.call(SNAPSHOT, Vec::new(), Caller::Snapshot(reply), taken).await
    }

    /// The newest operations before `before` that moved money between the engine and its database, the newest first.
    pub async fn crossings(&self, before: OpId, most: usize) -> Result<Vec<(OpId, Standing)>, ClientError> {
        let mut body = before.number().to_le_bytes().to_vec();
        body.extend_from_slice(&u32::try_from(most).unwrap_or(u32::MAX).to_le_bytes());
        let (reply, listed) = oneshot::channel();
        self.call(CROSSINGS, body, Caller::Crossings(reply), listed).await
    }

    async fn call<T>(
        &self,
        kind: u8,
        body: Vec<u8>,
        caller: Caller,
        answer: oneshot::Receiver<Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        // The task lives as long as there is a handle, so only the end of the program leaves a call without an answer.
        // What became of it is not known then.
        let ended = || ClientError::Protocol;
        self.calls.send(Call { kind, body, caller, sent_before: false }).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

struct Driver {
    tls: Option<ClientTls>,
    address: SocketAddr,
    token: Token,
    accept: Accept,
    calls: mpsc::Receiver<Call>,
    /// Calls that were sent and are not answered, by number.
    waiting: BTreeMap<u64, Call>,
    next: u64,
    random: Random,
    state: watch::Sender<ConnectionState>,
}

/// Why a connection ended.
enum Broken {
    /// The client connects again.
    Lost(String),
    /// The client fails all calls, and connects again after a while.
    Rejected(ClientError),
    /// All handles are dropped.
    Unneeded,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl Broken {
    fn lost(words: &str) -> Self {
        Self::Lost(words.to_owned())
    }
}

impl Driver {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let before = self.next;
            match self.connected().await {
                Broken::Unneeded => return,
                Broken::Lost(words) => {
                    if self.calls.is_closed() && self.calls.is_empty() {
                        return;
                    }
                    tracing::debug!(address = %self.address, words, "the connection to the spot engine was lost");
                    self.state.send_replace(ConnectionState::Away(words.into()));
                    // If new calls were sent, the connection was good for a while, and this is a new trouble.
                    pause = if self.next > before { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
                    sleep(self.spread(pause)).await;
                }
                Broken::Rejected(error) => {
                    self.state.send_replace(ConnectionState::Rejected(error.clone()));
                    for call in std::mem::take(&mut self.waiting).into_values() {
                        call.caller.fail(error.clone());
                    }
                    let until = self.spread(REJECTED_PAUSE);
                    // Only the pause ends this well. Otherwise all handles are dropped.
                    if timeout(until, self.refuse(&error)).await.is_ok() {
                        return;
                    }
                }
            }
        }
    }

    /// Fails the calls that come, until there are no more handles.
    async fn refuse(&mut self, error: &ClientError) {
        while let Some(call) = self.calls.recv().await {
            call.caller.fail(error.clone());
        }
    }

    /// The pause and up to half of it more, by chance.
    fn spread(&mut self, pause: Duration) -> Duration {
        pause + Duration::from_micros(self.random.below(u64::try_from(pause.as_micros()).unwrap_or(0) / 2 + 1))
    }

    /// Holds one connection, from its hello to its end.
    async fn connected(&mut self) -> Broken {
        match self.converse().await {
            Ok(never) => match never {},
            Err(broken) => broken,
        }
    }

    async fn converse(&mut self) -> Result<std::convert::Infallible, Broken> {
        let stream = timeout(CONNECT_TIME, TcpStream::connect(self.address)).await;
        let stream = stream.map_err(|_| Broken::lost("nobody answers at this address"))??;
        super::keep_alive(&stream)?;
        let (mut reader, mut writer) = self.secure(stream).await?;
        let mut out = Vec::new();
        put(&mut out, 0, HELLO, |out| {
            out.push(VERSION);
            out.extend_from_slice(self.token.bytes());
        });
        writer.write_all(&out).await?;
        writer.flush().await?;
        let mut bytes = Vec::new();
        let welcome = timeout(CONNECT_TIME, self.welcome(&mut reader, &mut bytes)).await;
        let welcome = welcome.map_err(|_| Broken::lost("whoever listens there does not answer a hello"))??;
        (self.accept)(&welcome).map_err(Broken::Rejected)?;
        self.state.send_replace(ConnectionState::Connected(welcome));
        out.clear();
        self.waiting.retain(|_, call| !call.caller.is_gone());
        for (number, call) in &mut self.waiting {
            call.sent_before = true;
            put(&mut out, *number, call.kind, |out| out.extend_from_slice(&call.body));
        }
        self.exchange(reader, writer, bytes, out).await
    }

    /// The two directions of the connection, with TLS if it is configured.
    async fn secure(&self, stream: TcpStream) -> Result<(Reader, Writer), Broken> {
        let Some(tls) = &self.tls else {
            let (reader, writer) = stream.into_split();
            return Ok((Box::new(reader), Box::new(writer)));
        };
        match timeout(CONNECT_TIME, tls.connect(self.address, stream)).await {
            Ok(Ok(secured)) => Ok(secured),
            Ok(Err(Ok(words))) => Err(Broken::Rejected(ClientError::Tls(words))),
            Ok(Err(Err(error))) => Err(error.into()),
            Err(_) => Err(Broken::lost("whoever listens there does not answer a TLS hello")),
        }
    }

    async fn welcome(&self, reader: &mut Reader, bytes: &mut Vec<u8>) -> Result<Welcome, Broken> {
        // Another program or another version listens on that port.
        let stranger = || Broken::Rejected(ClientError::Protocol);
        loop {
            // The alert with which TLS answers what is no TLS.
            if self.tls.is_none() && bytes.starts_with(&[0x15, 0x03]) {
                let words = "the engine speaks TLS, and this side does not: name its certificate or authority";
                return Err(Broken::Rejected(ClientError::Tls(words.to_owned())));
            }
            if let Some((frame, length)) = parse(bytes, FRAME_MAX).map_err(|_| stranger())? {
                let refusal = frame.body.first().and_then(|number| FrameRefusal::from_number(*number));
                let welcome = match (frame.kind, refusal) {
                    (WELCOME, _) => Welcome::decode(frame.body).map_err(|_| stranger()),
                    (REFUSED, Some(FrameRefusal::Unauthorized)) => Err(Broken::Rejected(ClientError::Unauthorized)),
                    // It stops, or has too much to do to say who it is. That passes.
                    (REFUSED, Some(FrameRefusal::Engine(none))) => Err(Broken::Lost(none.to_string())),
                    _ => Err(stranger()),
                };
                bytes.drain(..length);
                return welcome;
            }
            if reader.read_buf(bytes).await? == 0 {
                return Err(Broken::lost("whoever listens there hung up"));
            }
        }
    }

    /// Sends calls and delivers answers, both as they come.
    async fn exchange(
        &mut self,
        mut reader: Reader,
        mut writer: Writer,
        mut bytes: Vec<u8>,
        mut out: Vec<u8>,
    ) -> Result<std::convert::Infallible, Broken> {
        let mut sent = 0;
        // What TLS has encrypted may not be in the socket yet.
        let mut flushed = true;
        let silence = sleep(SILENCE);
        tokio::pin!(silence);
        loop {
            bytes.reserve(1 << 16);
            tokio::select! {
                read = reader.read_buf(&mut bytes) => match read? {
                    0 => return Err(Broken::lost("the engine hung up")),
                    _ => {
                        silence.set(sleep(SILENCE));
                        let mut used = 0;
                        while let Some((frame, length)) =
                            parse(&bytes[used..], FRAME_MAX).map_err(|_| Broken::Rejected(ClientError::Protocol))?
                        {
                            if let Some(call) = self.waiting.remove(&frame.number)
                                && let Some(unanswered) = deliver(call, frame.kind, frame.body)?
                            {
                                self.waiting.insert(frame.number, unanswered);
                                return Err(Broken::lost("the engine leaves calls open"));
                            }
                            used += length;
                        }
                        bytes.drain(..used);
                    }
                },
                () = &mut silence => {
                    // No frame waits, or only snapshots do: those may take longer.
                    if !self.waiting.values().all(|call| call.kind == SNAPSHOT) {
                        return Err(Broken::lost("the engine is silent"));
                    }
                    silence.set(sleep(SILENCE));
                }
                pushed = push(&mut writer, &out[sent..]), if sent < out.len() || !flushed => {
                    flushed = out.is_empty();
                    sent += pushed?;
                    if sent == out.len() {
                        out.clear();
                        sent = 0;
                    }
                }
                call = self.calls.recv(), if self.waiting.len() < IN_FLIGHT => {
                    let Some(call) = call else { return Err(Broken::Unneeded) };
                    if self.waiting.is_empty() {
                        silence.set(sleep(SILENCE));
                    }
                    self.send(call, &mut out);
                    while self.waiting.len() < IN_FLIGHT && let Ok(call) = self.calls.try_recv() {
                        self.send(call, &mut out);
                    }
                }
            }
        }
    }

    fn send(&mut self, call: Call, out: &mut Vec<u8>) {
        if call.caller.is_gone() {
            return;
        }
        let number = self.next;
        self.next += 1;
        put(out, number, call.kind, |out| out.extend_from_slice(&call.body));
        self.waiting.insert(number, call);
    }
}

/// Writes some of the bytes, or makes sure that those before them are on their way.
async fn push(writer: &mut Writer, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write(bytes).await }
}

/// Gives an answer to its caller. If the answer leaves open what became of the call, the call is returned: it waits for
/// the next connection and is sent again.
fn deliver(call: Call, kind: u8, body: &[u8]) -> Result<Option<Call>, Broken> {
    let refusal = body.first().filter(|_| kind == REFUSED).and_then(|number| FrameRefusal::from_number(*number));
    match (kind, refusal, call) {
        (_, Some(FrameRefusal::Engine(NoAnswer::Stopped)), call) => return Ok(Some(call)),
        // "Busy" says that this frame did nothing. The same call may have been carried out on an earlier connection.
        (_, Some(FrameRefusal::Engine(NoAnswer::Busy)), call) if call.sent_before => return Ok(Some(call)),
        (_, Some(FrameRefusal::Engine(no_answer)), call) => call.caller.fail(no_answer.into()),
        (_, Some(FrameRefusal::Unauthorized), call) => call.caller.fail(ClientError::Unauthorized),
        (_, Some(FrameRefusal::Forbidden), call) => call.caller.fail(ClientError::Forbidden),
        // The snapshot that runs was most likely ordered by this same call, on an earlier connection.
        (FAILED, _, call) if call.sent_before && body == SpotError::SnapshotRunning.code().as_bytes() => {
            return Ok(Some(call));
        }
        (ANSWERS, _, Call { caller: Caller::Answers(reply), .. }) => {
            drop(reply.send(answers(body).map_err(|_| ClientError::Protocol)));
        }
        (LISTED, _, Call { caller: Caller::Crossings(reply), .. }) => {
            drop(reply.send(crossings(body).map_err(|_| ClientError::Protocol)));
        }
        (SNAPSHOT_TAKEN, _, Call { caller: Caller::Snapshot(reply), .. }) => {
            drop(reply.send(Fields::of(body).u64().map_err(|_| ClientError::Protocol)));
        }
        (FAILED, _, call) => call.caller.fail(ClientError::Snapshot(String::from_utf8_lossy(body).into_owned())),
        (_, _, call) => {
            call.caller.fail(ClientError::Protocol);
            return Err(Broken::Rejected(ClientError::Protocol));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(sent_before: bool) -> (Call, oneshot::Receiver<Result<Vec<Answer>, ClientError>>) {
        let (reply, answers) = oneshot::channel();
        (Call { kind: SUBMIT, body: Vec::new(), caller: Caller::Answers(reply), sent_before }, answers)
    }

    #[test]
    fn busy_is_only_told_of_a_call_that_cannot_have_been_carried_out() {
        let busy = [FrameRefusal::Engine(NoAnswer::Busy).number()];
        let (first, mut answers) = call(false);
        assert!(deliver(first, REFUSED, &busy).is_ok_and(|back| back.is_none()));
        assert_eq!(answers.try_recv(), Ok(Err(ClientError::NotTaken(NoAnswer::Busy))));
        let (again, mut answers) = call(true);
        assert!(deliver(again, REFUSED, &busy).is_ok_and(|back| back.is_some()), "it is sent once more");
        assert!(answers.try_recv().is_err());
    }

    #[test]
    fn a_call_that_a_stopping_engine_did_not_answer_is_sent_again() {
        let (call, _answers) = call(false);
        let stopped = [FrameRefusal::Engine(NoAnswer::Stopped).number()];
        assert!(deliver(call, REFUSED, &stopped).is_ok_and(|back| back.is_some()));
    }
}
