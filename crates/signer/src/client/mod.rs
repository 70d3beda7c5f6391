//! How others ask a signer.
//!
//! | what a call ends with | what is certain |
//! |---|---|
//! | [`SignAnswer::Signed`] | these bytes, which do what was asked for |
//! | [`SignAnswer::Refused`] | the signer said no, by this rule; nothing was signed under this id unless `signed_before` |
//! | [`SignerError::Unavailable`], [`SignerError::Rejected`] | nothing of this call was decided |
//! | [`SignerError::Unknown`], [`SignerError::WrongAnswer`] | nothing: it may have been signed. The same ids get the same bytes later |
//! | [`SignerError::RolledBack`] | the signer runs on an old copy of its log; people must look |
//!
//! A call is tried again under the same ids until its deadline. **The client believes no answer that does not fit its question**: ids, their order
//! and number, the bytes' own meaning, and a log that only grows.

pub mod transport;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::Clock;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tx::Address;

use crate::access::Credential;
use crate::access::stamp::{self, Line};
use crate::approval::GivenApproval;
use crate::approved::Signed;
use crate::digest::hex;
use crate::intent::SignRequest;
use crate::keys::Entropy;
use crate::log::Head;
use crate::names::{GroupId, JobId};
use crate::policy::signed::PolicySignature;
use crate::text::Hash;
use crate::wire::{
    AddressesAnswerBody, AddressesBody, ApprovalBody, BatchAnswerBody, BatchBody, DoneBody, ErrorBody, GroupBody,
    GroupsAnswerBody, HeadBody, HeadQuestionBody, HexText, MOST_ADDRESSES, MOST_REQUESTS, MOST_ROUNDS,
    PolicyAnswerBody, PolicyBody, RequestBody, RevokeBody, RoundsAnswerBody, RoundsBody, SignatureBody,
};
use transport::{Connection, SignerPlace};

/// No answer is longer.
const MOST_ANSWER: usize = 64 << 20;
/// Pauses between tries grow up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignerError {
    #[error("the signer cannot be asked ({code}): {why}")]
    Unavailable { code: String, why: String },
    #[error("whether it was signed is not known: {why}")]
    Unknown { why: String },
    #[error("the signer does not take the call ({code}): {message}")]
    Rejected { code: String, message: String },
    #[error("the signer's log is not the one that answered before: {why}")]
    RolledBack { why: String },
    #[error("the answer does not fit what was asked: {why}")]
    WrongAnswer { why: &'static str },
}

impl SignerError {
    pub fn code(&self) -> &str {
        match self {
            Self::Unavailable { .. } => "SIGNER_UNAVAILABLE",
            Self::Unknown { .. } => "SIGNER_OUTCOME_UNKNOWN",
            Self::Rejected { code, .. } => code,
            Self::RolledBack { .. } => "SIGNER_LOG_ROLLED_BACK",
            Self::WrongAnswer { .. } => "SIGNER_ANSWER_WRONG",
        }
    }

    /// Whether it is certain that nothing was signed by this call.
    pub const fn is_nothing_signed(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Rejected { .. } => true,
            Self::Unknown { .. } | Self::RolledBack { .. } | Self::WrongAnswer { .. } => false,
        }
    }
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignAnswer {
    Signed {
        signed: Signed,
        /// Whose signature it is, on EVM chains and TRON. An EVM payload does not say who pays, so whoever asked compares it with the wallet's address:
        /// a signer with other keys signs the same payment from somewhere else.
        from: Option<Address>,
        policy: u64,
        rule: String,
    },
    Refused {
        code: String,
        message: String,
        /// A transaction was signed under this id earlier and may be out, whatever the refusal says.
        signed_before: bool,
        /// Of a slot that is taken: the job that the signer has signed there.
        holder: Option<JobId>,
        policy: u64,
        rule: String,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct ClientSettings {
    /// For a call with all its tries.
    pub deadline: Duration,
    /// For one try.
    pub try_time: Duration,
    /// Before the second try; it grows from there.
    pub pause: Duration,
    /// Connections that are kept for the next call.
    pub idle: usize,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            try_time: Duration::from_secs(10),
            pause: Duration::from_millis(50),
            idle: 8,
        }
    }
}

pub struct SignerClient {
    place: SignerPlace,
    credential: Credential,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    settings: ClientSettings,
    head: Mutex<Option<HeadBody>>,
    idle: Mutex<Vec<Connection>>,
}

/// What one try came to.
enum Try<T> {
    Done(T),
    /// Nothing was decided; the next try may do better.
    NotTaken {
        code: String,
        why: String,
    },
    /// It may have been decided.
    Doubtful {
        why: String,
    },
    /// No other try would do better.
    Final(SignerError),
}

/// What is known of a call while it is tried.
#[derive(Default)]
struct Progress {
    /// A try was sent, and has no answer.
    out: AtomicBool,
    /// An earlier one had none.
    doubt: AtomicBool,
    last: Mutex<Option<(String, String)>>,
}

impl Progress {
    fn note(&self, code: &str, why: String) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((code.to_owned(), why));
    }

    fn is_doubtful(&self) -> bool {
        self.out.load(Ordering::Relaxed) || self.doubt.load(Ordering::Relaxed)
    }

    /// How a call ends that has used up its time.
    fn late(&self) -> SignerError {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (code, why) = last.unwrap_or_else(|| ("SIGNER_UNAVAILABLE".to_owned(), "no answer in time".to_owned()));
        if self.is_doubtful() { SignerError::Unknown { why } } else { SignerError::Unavailable { code, why } }
    }
}

/// A question as it is sent.
struct Question<'a> {
    method: Method,
    path: &'static str,
    body: &'a [u8],
}

impl SignerClient {
    /// `pinned` is the newest head that was kept from an earlier life.
    pub fn new(
        place: SignerPlace,
        credential: Credential,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        settings: ClientSettings,
        pinned: Option<HeadBody>,
    ) -> Self {
        Self { place, credential, clock, entropy, settings, head: Mutex::new(pinned), idle: Mutex::default() }
    }

    /// The newest head that was answered.
    pub fn head(&self) -> Option<Head> {
        self.pinned().map(Head::from)
    }

    /// The same with its proof. Keep it where the signer's machine cannot reach.
    pub fn pinned(&self) -> Option<HeadBody> {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a head that another client of the same signer was given. An older one than its own changes nothing.
    pub fn know(&self, other: HeadBody) {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        if head.is_none_or(|head| head.entries < other.entries) {
            *head = Some(other);
        }
    }

    /// Asks whether the signer's log contains the newest head that is known. Without one there is nothing to ask.
    pub async fn confirm(&self) -> Result<(), SignerError> {
        let Some(pinned) = self.pinned() else { return Ok(()) };
        let asked = HeadQuestionBody { pinned };
        let answer: DoneBody = self.ask(Method::POST, "/v1/head", &written(&asked)?).await?;
        self.take_head(Some(pinned), answer.head)
    }

    /// Has a batch decided and signed. The answers are in its order.
    pub async fn sign(&self, requests: &[SignRequest]) -> Result<Vec<SignAnswer>, SignerError> {
        let rejected = |message: String| SignerError::Rejected { code: "SIGNER_REQUEST_MALFORMED".to_owned(), message };
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        if requests.len() > MOST_REQUESTS {
            return Err(rejected(format!("a batch has at most {MOST_REQUESTS} requests")));
        }
        let bodies = requests.iter().map(RequestBody::of).collect::<Result<Vec<_>, _>>();
        let requests_body = bodies.map_err(|error| rejected(error.to_string()))?;
        let known = self.pinned();
        let body = written(&BatchBody { requests: requests_body, pinned: known })?;
        let answer: BatchAnswerBody = self.ask(Method::POST, "/v1/sign", &body).await?;
        self.take_head(known, answer.head)?;
        transport::fit(requests, answer.answers)
    }

    /// The addresses of users' numbers, or of operation wallets' indexes, as the signer derives them.
    pub async fn addresses(&self, group: &GroupId, indexes: &[u64]) -> Result<Vec<String>, SignerError> {
        let known = self.pinned();
        let mut addresses = Vec::with_capacity(indexes.len());
        for chunk in indexes.chunks(MOST_ADDRESSES) {
            let asked = AddressesBody { wallet_group_id: group.clone(), derivation_indexes: chunk.to_vec() };
            let answer: AddressesAnswerBody = self.ask(Method::POST, "/v1/addresses", &written(&asked)?).await?;
            self.take_head(known, answer.head)?;
            if answer.addresses.len() != chunk.len() {
                return Err(SignerError::WrongAnswer { why: "another number of addresses" });
            }
            addresses.extend(answer.addresses);
        }
        Ok(addresses)
    }

    /// In how many slots each of these jobs was signed. `None` of one: it was made in a time that the signer has forgotten.
    pub async fn rounds(&self, jobs: &[JobId]) -> Result<Vec<Option<u32>>, SignerError> {
        let known = self.pinned();
        let mut rounds = Vec::with_capacity(jobs.len());
        for chunk in jobs.chunks(MOST_ROUNDS) {
            let asked = RoundsBody { jobs: chunk.to_vec() };
            let answer: RoundsAnswerBody = self.ask(Method::POST, "/v1/rounds", &written(&asked)?).await?;
            self.take_head(known, answer.head)?;
            if answer.rounds.len() != chunk.len() {
                return Err(SignerError::WrongAnswer { why: "another number of jobs" });
            }
            rounds.extend(answer.rounds);
        }
        Ok(rounds)
    }

    pub async fn groups(&self) -> Result<Vec<GroupBody>, SignerError> {
        let known = self.pinned();
        let answer: GroupsAnswerBody = self.ask(Method::GET, "/v1/groups", b"").await?;
        self.take_head(known, answer.head)?;
        Ok(answer.groups)
    }

    pub async fn policy(&self) -> Result<PolicyAnswerBody, SignerError> {
        let known = self.pinned();
        let answer: PolicyAnswerBody = self.ask(Method::GET, "/v1/policy", b"").await?;
        self.take_head(known, answer.head)?;
        Ok(answer)
    }

    /// Asked again it changes nothing: the policy is in force already, or waits.
    pub async fn apply_policy(
        &self,
        text: &str,
        signatures: &[PolicySignature],
    ) -> Result<PolicyAnswerBody, SignerError> {
        let known = self.pinned();
        let shown =
            |one: &PolicySignature| SignatureBody { by: one.by.clone(), signature: HexText(one.signature.clone()) };
        let asked = PolicyBody { text: text.to_owned(), signatures: signatures.iter().map(shown).collect() };
        let answer: PolicyAnswerBody = self.ask(Method::POST, "/v1/policy", &written(&asked)?).await?;
        self.take_head(known, answer.head)?;
        Ok(answer)
    }

    /// Asked again it changes nothing.
    pub async fn revoke(&self, approved: &Hash, given: &GivenApproval) -> Result<Head, SignerError> {
        let known = self.pinned();
        let asked = RevokeBody { approved: *approved, revocation: ApprovalBody::from(given) };
        let answer: DoneBody = self.ask(Method::POST, "/v1/revoke", &written(&asked)?).await?;
        self.take_head(known, answer.head)?;
        Ok(answer.head.into())
    }

    /// A log only grows. `known` is what was known when the question was sent.
    fn take_head(&self, known: Option<HeadBody>, answered: HeadBody) -> Result<(), SignerError> {
        if let Some(known) = known
            && (answered.entries < known.entries || answered.entries == known.entries && answered.hash != known.hash)
        {
            let why = format!("it ends at entry {}, and entry {} was answered", answered.entries, known.entries);
            return Err(SignerError::RolledBack { why });
        }
        self.know(answered);
        Ok(())
    }

    /// One call with all its tries.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &'static str,
        body: &[u8],
    ) -> Result<T, SignerError> {
        let progress = Progress::default();
        let question = Question { method, path, body };
        match tokio::time::timeout(self.settings.deadline, self.try_until_done(&question, &progress)).await {
            Ok(ended) => ended,
            Err(_) => Err(progress.late()),
        }
    }

    async fn try_until_done<T: DeserializeOwned>(
        &self,
        question: &Question<'_>,
        progress: &Progress,
    ) -> Result<T, SignerError> {
        let mut pause = self.settings.pause;
        loop {
            let tried = tokio::time::timeout(self.settings.try_time, self.try_once(question, progress)).await;
            let tried = tried.unwrap_or_else(|_| {
                let why = "no answer in time".to_owned();
                if progress.out.load(Ordering::Relaxed) {
                    Try::Doubtful { why }
                } else {
                    Try::NotTaken { code: "SIGNER_UNAVAILABLE".to_owned(), why }
                }
            });
            progress.out.store(false, Ordering::Relaxed);
            match tried {
                Try::Done(answer) => return Ok(answer),
                // An earlier try may have been decided, whatever this one is told.
                Try::Final(error) if error.is_nothing_signed() && progress.is_doubtful() => {
                    return Err(SignerError::Unknown { why: error.to_string() });
                }
                Try::Final(error) => return Err(error),
                Try::NotTaken { code, why } => progress.note(&code, why),
                Try::Doubtful { why } => {
                    progress.doubt.store(true, Ordering::Relaxed);
                    progress.note("SIGNER_OUTCOME_UNKNOWN", why);
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// With a nonce and a time of its own.
    fn request(&self, question: &Question<'_>) -> Result<Request<Full<Bytes>>, SignerError> {
        let mut nonce = [0; 16];
        let unavailable = |why: String| SignerError::Unavailable { code: "SIGNER_UNAVAILABLE".to_owned(), why };
        self.entropy.fill(&mut nonce).map_err(|error| unavailable(error.to_string()))?;
        let line = Line { method: question.method.as_str(), path: question.path };
        let time = self.clock.now().micros();
        let stamp = stamp::make(&self.credential, line, question.body, time, &hex(&nonce));
        Request::builder()
            .method(question.method.clone())
            .uri(question.path)
            .header(HOST, "signer")
            .header(AUTHORIZATION, stamp)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::copy_from_slice(question.body)))
            .map_err(|error| unavailable(error.to_string()))
    }

    async fn try_once<T: DeserializeOwned>(&self, question: &Question<'_>, progress: &Progress) -> Try<T> {
        let unavailable = |why: String| Try::NotTaken { code: "SIGNER_UNAVAILABLE".to_owned(), why };
        let request = match self.request(question) {
            Ok(request) => request,
            Err(error) => return Try::Final(error),
        };
        let mut connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => return unavailable(error.to_string()),
        };
        progress.out.store(true, Ordering::Relaxed);
        let response = match connection.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                // A request that comes back was not sent.
                let back = error.take_message().is_some();
                let why = error.into_error().to_string();
                if back {
                    progress.out.store(false, Ordering::Relaxed);
                    return unavailable(why);
                }
                return Try::Doubtful { why };
            }
        };
        let status = response.status();
        let bytes = match Limited::new(response.into_body(), MOST_ANSWER).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return Try::Doubtful { why: error.to_string() },
        };
        let tried = read_answer(status, &bytes);
        self.keep(connection);
        tried
    }

    /// One that is kept and still open, or a new one.
    async fn connection(&self) -> std::io::Result<Connection> {
        loop {
            let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match kept {
                None => return self.place.connect().await,
                Some(mut kept) => {
                    if kept.ready().await.is_ok() {
                        return Ok(kept);
                    }
                }
            }
        }
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.settings.idle && !connection.is_closed() {
            idle.push(connection);
        }
    }
}

fn written(body: &impl Serialize) -> Result<Vec<u8>, SignerError> {
    let rejected = |message| SignerError::Rejected { code: "SIGNER_REQUEST_MALFORMED".to_owned(), message };
    serde_json::to_vec(body).map_err(|error| rejected(error.to_string()))
}

/// What an answer says. Only codes that certainly come before a decision say that nothing was decided.
fn read_answer<T: DeserializeOwned>(status: StatusCode, bytes: &[u8]) -> Try<T> {
    if status == StatusCode::OK {
        return match serde_json::from_slice(bytes) {
            Ok(answer) => Try::Done(answer),
            Err(_) => Try::Final(SignerError::WrongAnswer { why: "it is not the JSON that a signer answers with" }),
        };
    }
    let Ok(ErrorBody { error, .. }) = serde_json::from_slice::<ErrorBody>(bytes) else {
        return Try::Doubtful { why: format!("an answer with the status {status}") };
    };
    let (code, message) = (error.code, error.message);
    match code.as_str() {
        "SIGNER_BUSY" | "SIGNER_STOPPED" | "SIGNER_STAMP_STALE" | "REQUEST_TIMEOUT" => {
            Try::NotTaken { code, why: message }
        }
        // Each try has a stamp of its own. One that was used before was used by somebody who sent this very question on, and it may have been decided.
        "SIGNER_STAMP_REPLAYED" => Try::Doubtful { why: message },
        "SIGNER_LOG_ROLLED_BACK" => Try::Final(SignerError::RolledBack { why: message }),
        _ if status.is_client_error() => Try::Final(SignerError::Rejected { code, message }),
        _ => Try::Doubtful { why: message },
    }
}
