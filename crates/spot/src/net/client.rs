//! The client's side. It reconnects and sends every frame again that was not answered. This is safe because every
//! operation has an id: the engine runs it once, however often it comes.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::random::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::server::Token;
use super::{
    ANSWERS, FAILED, FrameRefusal, HELLO, REFUSED, SNAPSHOT, SNAPSHOT_TAKEN, SUBMIT, VERSION, WELCOME, answers, parse,
    put,
};
use crate::operation::Fields;
use crate::{Answer, NoAnswer, Request, SUBMISSION_MAX, SpotError};

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

/// Why there is no answer. **Only `NotTaken` says that nothing was done.** After the others the operations may have
/// been carried out, and the caller must send the same ids again before it concludes anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    NotTaken(#[from] NoAnswer),
    #[error("the engine does not accept the token")]
    Unauthorized,
    #[error("the two sides do not understand each other: different versions?")]
    Protocol,
    #[error("the engine could not take the snapshot: {0}")]
    Snapshot(String),
}

impl ClientError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotTaken(no_answer) => no_answer.code(),
            Self::Unauthorized => "SPOT_UNAUTHORIZED",
            Self::Protocol => "SPOT_PROTOCOL_MISMATCH",
            Self::Snapshot(_) => "SPOT_SNAPSHOT_FAILED",
        }
    }
}

/// The task that waits for the answer to a call.
enum Caller {
    Answers(oneshot::Sender<Result<Vec<Answer>, ClientError>>),
    Snapshot(oneshot::Sender<Result<u64, ClientError>>),
}

impl Caller {
    fn fail(self, error: ClientError) {
        match self {
            Self::Answers(reply) => drop(reply.send(Err(error))),
            Self::Snapshot(reply) => drop(reply.send(Err(error))),
        }
    }

    fn is_gone(&self) -> bool {
        match self {
            Self::Answers(reply) => reply.is_closed(),
            Self::Snapshot(reply) => reply.is_closed(),
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
    /// Set when the client has given up for good, with the reason.
    rejected: Arc<OnceLock<ClientError>>,
}

impl Client {
    /// Starts the task that connects, and connects again. `seed` spreads the retries of many clients.
    pub fn start(address: SocketAddr, token: Token, seed: u64) -> Self {
        let (calls, incoming) = mpsc::channel(IN_FLIGHT);
        let random = Random::from_seed(seed);
        let rejected = Arc::new(OnceLock::new());
        let told = Arc::clone(&rejected);
        let driver =
            Driver { address, token, calls: incoming, waiting: BTreeMap::new(), next: 1, random, rejected: told };
        tokio::spawn(driver.run());
        Self { calls, rejected }
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

    async fn call<T>(
        &self,
        kind: u8,
        body: Vec<u8>,
        caller: Caller,
        answer: oneshot::Receiver<Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        // As long as there is a handle, the task ends only when the client was rejected for good.
        let rejected = || self.rejected.get().cloned().unwrap_or(ClientError::Protocol);
        self.calls.send(Call { kind, body, caller, sent_before: false }).await.map_err(|_| rejected())?;
        answer.await.map_err(|_| rejected())?
    }
}

struct Driver {
    address: SocketAddr,
    token: Token,
    calls: mpsc::Receiver<Call>,
    /// Calls that were sent and are not answered, by number.
    waiting: BTreeMap<u64, Call>,
    next: u64,
    random: Random,
    rejected: Arc<OnceLock<ClientError>>,
}

/// Why a connection ended.
enum Broken {
    /// The client connects again.
    Lost,
    /// The client gives up for good.
    Rejected(ClientError),
    /// All handles are dropped.
    Unneeded,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        tracing::debug!(%error, "the connection to the spot engine was lost");
        Self::Lost
    }
}

impl Driver {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let before = self.next;
            let error = match self.connected().await {
                Broken::Unneeded => return,
                Broken::Rejected(error) => error,
                Broken::Lost => {
                    if self.calls.is_closed() && self.calls.is_empty() {
                        return;
                    }
                    // If new calls were sent, the connection was good for a while, and this is a new trouble.
                    pause = if self.next > before { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
                    let jitter = self.random.below(u64::try_from(pause.as_micros()).unwrap_or(0) / 2 + 1);
                    sleep(pause + Duration::from_micros(jitter)).await;
                    continue;
                }
            };
            let error = self.rejected.get_or_init(|| error).clone();
            for call in std::mem::take(&mut self.waiting).into_values() {
                call.caller.fail(error.clone());
            }
            self.calls.close();
            while let Some(call) = self.calls.recv().await {
                call.caller.fail(error.clone());
            }
            return;
        }
    }

    /// Holds one connection, from its hello to its end.
    async fn connected(&mut self) -> Broken {
        match self.converse().await {
            Ok(never) => match never {},
            Err(broken) => broken,
        }
    }

    async fn converse(&mut self) -> Result<std::convert::Infallible, Broken> {
        let stream = timeout(CONNECT_TIME, TcpStream::connect(self.address)).await.map_err(|_| Broken::Lost)??;
        super::keep_alive(&stream)?;
        let (mut reader, mut writer) = stream.into_split();
        let mut out = Vec::new();
        put(&mut out, 0, HELLO, |out| {
            out.push(VERSION);
            out.extend_from_slice(self.token.bytes());
        });
        writer.write_all(&out).await?;
        let mut bytes = Vec::new();
        timeout(CONNECT_TIME, self.welcome(&mut reader, &mut bytes)).await.map_err(|_| Broken::Lost)??;
        out.clear();
        self.waiting.retain(|_, call| !call.caller.is_gone());
        for (number, call) in &mut self.waiting {
            call.sent_before = true;
            put(&mut out, *number, call.kind, |out| out.extend_from_slice(&call.body));
        }
        self.exchange(reader, writer, bytes, out).await
    }

    async fn welcome(&self, reader: &mut OwnedReadHalf, bytes: &mut Vec<u8>) -> Result<(), Broken> {
        loop {
            if let Some((frame, length)) = parse(bytes).map_err(|_| Broken::Lost)? {
                let result = match (frame.kind, frame.body.first()) {
                    (WELCOME, Some(&VERSION)) => Ok(()),
                    (REFUSED, Some(number))
                        if FrameRefusal::from_number(*number) == Some(FrameRefusal::Unauthorized) =>
                    {
                        Err(Broken::Rejected(ClientError::Unauthorized))
                    }
                    // Another program or another version listens on that port. This may change, so the client stays.
                    _ => {
                        tracing::warn!(address = %self.address, "whoever answers there is no spot engine of this version");
                        Err(Broken::Lost)
                    }
                };
                bytes.drain(..length);
                return result;
            }
            if reader.read_buf(bytes).await? == 0 {
                return Err(Broken::Lost);
            }
        }
    }

    /// Sends calls and delivers answers, both as they come.
    async fn exchange(
        &mut self,
        mut reader: OwnedReadHalf,
        mut writer: OwnedWriteHalf,
        mut bytes: Vec<u8>,
        mut out: Vec<u8>,
    ) -> Result<std::convert::Infallible, Broken> {
        let mut sent = 0;
        let silence = sleep(SILENCE);
        tokio::pin!(silence);
        loop {
            bytes.reserve(1 << 16);
            tokio::select! {
                read = reader.read_buf(&mut bytes) => match read? {
                    0 => return Err(Broken::Lost),
                    _ => {
                        silence.set(sleep(SILENCE));
                        let mut used = 0;
                        while let Some((frame, length)) =
                            parse(&bytes[used..]).map_err(|_| Broken::Rejected(ClientError::Protocol))?
                        {
                            if let Some(call) = self.waiting.remove(&frame.number)
                                && let Some(unanswered) = deliver(call, frame.kind, frame.body)?
                            {
                                self.waiting.insert(frame.number, unanswered);
                                return Err(Broken::Lost);
                            }
                            used += length;
                        }
                        bytes.drain(..used);
                    }
                },
                () = &mut silence => {
                    // No frame waits, or only snapshots do: those may take longer.
                    if !self.waiting.values().all(|call| call.kind == SNAPSHOT) {
                        return Err(Broken::Lost);
                    }
                    silence.set(sleep(SILENCE));
                }
                written = writer.write(&out[sent..]), if sent < out.len() => {
                    sent += written?;
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
        // The snapshot that runs was most likely ordered by this same call, on an earlier connection.
        (FAILED, _, call) if call.sent_before && body == SpotError::SnapshotRunning.code().as_bytes() => {
            return Ok(Some(call));
        }
        (ANSWERS, _, Call { caller: Caller::Answers(reply), .. }) => {
            drop(reply.send(answers(body).map_err(|_| ClientError::Protocol)));
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
