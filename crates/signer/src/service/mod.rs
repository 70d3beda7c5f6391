//! The signing service: HTTP/1.1 on a unix socket or TLS.
//!
//! | module | holds |
//! |---|---|
//! | this one | what runs: the thread that decides, the keys that sign, and how it all ends |
//! | `decider` | the thread that owns the authorizer: waiting calls become one batch with one sync |
//! | `routes` | what can be asked, and who may |
//! | `admit` | who asks: stamps, rights, and bodies that are read up to a limit |
//! | [`listen`] | connections: a socket with its permissions, or TLS; bounded, and drained at the end |
//! | [`openapi`] | the description of the interface |
//! | `metrics` | counters |
//!
//! | may | may never |
//! |---|---|
//! | sign what the authorizer approved and logged | sign a bare hash, or give a key away: there is no such path |
//! | give addresses and extended public keys | answer a decision before its entry is durable |
//!
//! **No lock is held while anything is awaited.** The authorizer has a thread, and is reached by a bounded queue.

mod admit;
mod decider;
pub mod listen;
mod metrics;
pub mod openapi;
mod routes;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use domain::Timestamp;
use tokio::sync::{Semaphore, mpsc, watch};
use tx::DerivationError;

use crate::access::ApiKeys;
use crate::access::nonces::Nonces;
use crate::approved::{Approved, Signed};
use crate::authorizer::Authorizer;
use crate::clock::MomentClock;
use crate::keys::{KeyError, Keyring};
use crate::log::folder::Folder;
use crate::log::{Head, LogError};
use crate::wire::HeadBody;
use decider::{Call, Decider};
use metrics::Counts;

/// How much the service takes at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; more wait to be accepted. By TLS one address has three quarters of them at most, and further ones are closed at once.
    pub connections: usize,
    /// How long a client may take to send its headers, and how long between two requests.
    pub header_time: Duration,
    /// How long a body may take to arrive.
    pub body_time: Duration,
    pub body_bytes: usize,
    /// Calls that may wait for a decision; beyond that the answer is SIGNER_BUSY.
    pub queue: usize,
    /// Requests that are decided with one sync.
    pub batch: usize,
    /// A snapshot is written when the log has grown by so many entries, and by half a percent of what is remembered.
    pub snapshot_entries: u64,
    /// Jobs that were made longer ago are forgotten with a snapshot, and refused.
    pub horizon_us: i64,
    /// How long open requests may take to end when the service stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            header_time: Duration::from_secs(30),
            body_time: Duration::from_secs(10),
            body_bytes: 16 << 20,
            queue: 1_024,
            batch: 1_024,
            snapshot_entries: 50_000,
            horizon_us: 90 * 24 * 3_600 * 1_000_000,
            drain: Duration::from_secs(20),
        }
    }
}

/// No payment on an EVM chain or TRON is longer.
const SHORT_PAYLOAD: usize = 1_024;

/// Whether requests are decided.
#[derive(Clone, Debug)]
pub enum Standing {
    Running,
    /// In good order, with a snapshot.
    Stopped,
    /// The log failed, or is not the one that somebody was answered from. Nothing more is signed by this process.
    Failed(Arc<LogError>),
}

/// A running service. Clones are the same one.
#[derive(Clone)]
pub struct Service(Arc<Shared>);

struct Shared {
    calls: mpsc::Sender<Call>,
    keyring: Arc<Keyring>,
    /// Replaced as a whole when the file is read again.
    keys: RwLock<Arc<ApiKeys>>,
    nonces: Mutex<Nonces>,
    clock: Arc<dyn MomentClock>,
    limits: Limits,
    counts: Arc<Counts>,
    head: watch::Receiver<Head>,
    standing: watch::Receiver<Standing>,
    stopping: watch::Sender<bool>,
    /// As many signatures at a time as there are cores.
    signing: Arc<Semaphore>,
    cores: usize,
}

impl Service {
    /// Starts the thread that decides.
    pub fn start<F>(
        authorizer: Authorizer<F>,
        keyring: Arc<Keyring>,
        keys: ApiKeys,
        clock: Arc<dyn MomentClock>,
        limits: Limits,
    ) -> io::Result<Self>
    where
        F: Folder + Send + 'static,
        F::File: Send + 'static,
    {
        let (calls, queue) = mpsc::channel(limits.queue.max(1));
        let (head_sender, head) = watch::channel(authorizer.head());
        let (standing_sender, standing) = watch::channel(Standing::Running);
        let counts = Arc::new(Counts::default());
        let decider = Decider {
            authorizer,
            keyring: Arc::clone(&keyring),
            clock: Arc::clone(&clock),
            limits,
            counts: Arc::clone(&counts),
            found: BTreeMap::new(),
            head: head_sender,
            standing: standing_sender,
            calls: calls.downgrade(),
            looking: false,
            writing: None,
            put_off_until: 0,
        };
        decider.tell();
        std::thread::Builder::new().name("signer-decider".to_owned()).spawn(move || decider.run(queue))?;
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Ok(Self(Arc::new(Shared {
            calls,
            keyring,
            keys: RwLock::new(Arc::new(keys)),
            nonces: Mutex::new(Nonces::new(clock.moment().date)),
            clock,
            limits,
            counts,
            head,
            standing,
            stopping: watch::Sender::new(false),
            signing: Arc::new(Semaphore::new(cores)),
            cores,
        })))
    }

    /// Takes other API keys: the file was read again.
    pub fn set_keys(&self, keys: ApiKeys) {
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    pub fn head(&self) -> Head {
        *self.0.head.borrow()
    }

    pub fn standing(&self) -> Standing {
        self.0.standing.borrow().clone()
    }

    /// Waits until nothing is decided any more, and says why.
    pub async fn ended(&self) -> Standing {
        let mut standing = self.0.standing.clone();
        // The sender lives as long as the thread, which says how it ended before it ends.
        match standing.wait_for(|standing| !matches!(standing, Standing::Running)).await {
            Ok(standing) => standing.clone(),
            Err(_) => Standing::Failed(Arc::new(LogError::Stopped)),
        }
    }

    /// From now on it is not ready, so that nobody sends more.
    pub fn begin_stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// Stops deciding, after what waits, and writes a snapshot.
    pub async fn stop(&self) -> Standing {
        self.begin_stop();
        // A thread that has ended takes no call, and has said why.
        self.0.calls.send(Call::Stop).await.ok();
        self.ended().await
    }
}

impl Shared {
    fn now(&self) -> Timestamp {
        self.clock.moment().date
    }

    fn keys(&self) -> Arc<ApiKeys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why it is not ready; nothing if it is.
    fn trouble(&self) -> Option<&'static str> {
        match &*self.standing.borrow() {
            Standing::Failed(error) => Some(error.code()),
            Standing::Stopped => Some("SIGNER_STOPPED"),
            Standing::Running if *self.stopping.borrow() => Some("SIGNER_STOPPED"),
            Standing::Running => None,
        }
    }

    /// The newest head, with its proof.
    fn shown_head(&self) -> HeadBody {
        decider::shown(&self.keyring, *self.head.borrow())
    }

    /// Signs what was approved, on as many threads as there are cores. The order stays.
    async fn sign(&self, approved: Vec<Approved>) -> Vec<Result<Signed, KeyError>> {
        if let [one] = &approved[..] {
            // Waking another thread takes as long as a signature. What takes longer is a long payload, or many inputs.
            if one.indexes().len() == 1 && one.payload().len() <= SHORT_PAYLOAD {
                return vec![self.keyring.sign(one)];
            }
        }
        let mut done = Vec::with_capacity(approved.len());
        let size = approved.len().div_ceil(self.cores).max(1);
        let mut rest = approved.into_iter();
        let mut tasks = Vec::with_capacity(self.cores);
        loop {
            let chunk: Vec<Approved> = rest.by_ref().take(size).collect();
            if chunk.is_empty() {
                break;
            }
            let (keyring, signing) = (Arc::clone(&self.keyring), Arc::clone(&self.signing));
            let count = chunk.len();
            let task = tokio::spawn(async move {
                // It is never closed.
                let permit = signing.acquire_owned().await;
                let work = move || chunk.iter().map(|one| keyring.sign(one)).collect::<Vec<_>>();
                let signed = tokio::task::spawn_blocking(work).await;
                drop(permit);
                signed
            });
            tasks.push((count, task));
        }
        for (count, task) in tasks {
            match task.await {
                Ok(Ok(signed)) => done.extend(signed),
                // A panic: the asker is told that it cannot be signed, and gets the same when asking again.
                Ok(Err(_)) | Err(_) => done.extend((0..count).map(|_| Err(DerivationError::NoSuchKey.into()))),
            }
        }
        done
    }
}
