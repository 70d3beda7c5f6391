//! The running engine: one thread owns the state and the log; every other part of the program holds an [`Engine`].
//!
//! Batches form by themselves: the requests that arrive while one batch is made durable are the next batch. No timer
//! delays them. The writer never waits for a caller to take its answer, so a dead or slow client costs the others
//! nothing.

mod background;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use domain::{Clock, Timestamp};
use tokio::sync::{oneshot, watch};

use crate::answer::{Answer, Standing};
use crate::core::{Core, SUBMISSION_MAX};
use crate::error::{SpotError, Whole};
use crate::log::format::SegmentHeader;
use crate::operation::{OpId, Request};
use crate::snapshot::{Sealed, SnapshotHeader};
use crate::storage::Storage;
use background::{SnapshotCaller, Turn, prepare_segments, take_snapshots};

/// Why there is no answer. After `Busy` and `Size` nothing was done. After `Stopped` the operations may or may not be
/// on the disk: the caller sends them again when the engine is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    #[error("the engine has as much waiting as it takes")]
    Busy,
    #[error("a submission holds between 1 and 4096 requests")]
    Size,
    #[error("the engine has stopped")]
    Stopped,
}

impl NoAnswer {
    pub const fn code(self) -> &'static str {
        match self {
            Self::Busy => "SPOT_BUSY",
            Self::Size => "SPOT_SUBMISSION_SIZE",
            Self::Stopped => "SPOT_STOPPED",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that may wait for the writer.
    pub queue: usize,
    /// A snapshot is taken when the log has grown by so many bytes since the last one, and at least by the size of the
    /// snapshot itself.
    pub snapshot_bytes: u64,
    /// How long the writer sleeps at most. It wakes up to follow the clock, and logs the time.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue: 65_536, snapshot_bytes: 512 << 20, idle: Duration::from_secs(3_600) }
    }
}

/// The snapshot that was taken, `None` if there was nothing new, or why it could not be taken.
pub type SnapshotTaken = Result<Option<SnapshotHeader>, SpotError>;

/// Operations that moved money in or out, each with what stands under its id.
pub type Crossings = Vec<(OpId, Standing)>;

enum Submission {
    One(Request, oneshot::Sender<Answer>),
    Many(Vec<Request>, oneshot::Sender<Vec<Answer>>),
    Snapshot(SnapshotCaller),
    Crossings { before: OpId, most: usize, reply: oneshot::Sender<Crossings> },
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Submission>,
    requests: usize,
    /// The writer sleeps and wants to be woken.
    asleep: bool,
    /// No more is taken; the writer finishes what is there.
    closing: bool,
    /// The writer is gone.
    closed: bool,
}

/// How an engine ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// It was asked to, and the log is closed in good order.
    Asked,
    /// Something went wrong with the log, or the writer panicked; nothing was answered after that.
    Failed(Arc<SpotError>),
}

/// What the engine has done, for operators. The last three are kept by the snapshot thread, the others by the writer.
#[derive(Debug, Default)]
pub struct Counters {
    pub requests: AtomicU64,
    pub batches: AtomicU64,
    /// The last durable batch.
    pub sequence: AtomicU64,
    pub accounts: AtomicU64,
    pub ids: AtomicU64,
    /// The batch of the last snapshot that was taken.
    pub snapshot: AtomicU64,
    pub snapshot_failures: AtomicU64,
    /// The last try to take a snapshot has panicked. It is tried again, after a pause, until one is taken.
    pub snapshots_panicking: AtomicBool,
}

struct Shared {
    queue: Mutex<Queue>,
    arrival: Condvar,
    snapshot_asked: AtomicBool,
    limit: usize,
    idle: Duration,
    counters: Counters,
    ended: watch::Sender<Option<Ended>>,
    log_id: u64,
    clock: Arc<dyn Clock>,
}

impl Shared {
    /// A poisoned lock is ignored: no code that holds the queue can panic and leave it half-changed.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, submission: Submission, requests: usize) -> Result<(), NoAnswer> {
        let mut queue = self.queue();
        if queue.closing || queue.closed {
            return Err(NoAnswer::Stopped);
        }
        if queue.requests + requests > self.limit {
            return Err(NoAnswer::Busy);
        }
        queue.requests += requests;
        queue.waiting.push(submission);
        if std::mem::take(&mut queue.asleep) {
            drop(queue);
            self.arrival.notify_one();
        }
        Ok(())
    }

    /// Takes all submissions that wait, or none after an idle while. False when there are none and will be no more.
    fn take(&self, into: &mut Vec<Submission>) -> bool {
        let mut queue = self.queue();
        if queue.waiting.is_empty() && !queue.closing {
            queue.asleep = true;
            let waited =
                self.arrival.wait_timeout_while(queue, self.idle, |queue| queue.waiting.is_empty() && !queue.closing);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.asleep = false;
        }
        queue.requests = 0;
        std::mem::swap(&mut queue.waiting, into);
        !into.is_empty() || !queue.closing
    }

    fn close(&self) {
        self.queue().closing = true;
        self.arrival.notify_one();
    }

    fn is_ending(&self) -> bool {
        let queue = self.queue();
        queue.closing || queue.closed
    }
}

/// Closes the engine when the last handle is gone.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A handle on the running engine, cheap to clone.
#[derive(Clone)]
pub struct Engine {
    owner: Arc<Owner>,
}

/// Answers that are on their way.
pub struct Pending(oneshot::Receiver<Vec<Answer>>);

impl Pending {
    pub async fn answers(self) -> Result<Vec<Answer>, NoAnswer> {
        self.0.await.map_err(|_| NoAnswer::Stopped)
    }
}

impl Engine {
    /// Starts the writer's thread, and two for what is done in the background.
    pub fn start<S: Storage>(core: Core<S>, limits: Limits, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let (ended, _) = watch::channel(None);
        let counters = Counters::default();
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            arrival: Condvar::new(),
            snapshot_asked: AtomicBool::new(false),
            limit: limits.queue,
            idle: limits.idle,
            counters,
            ended,
            log_id: core.log().segment().log_id,
            clock: Arc::clone(&clock),
        });
        let (spares, spare_orders) = mpsc::channel();
        let (snapshots, snapshot_orders) = mpsc::channel();
        let (segment_storage, spare, snapshot_storage) = (core.storage(), core.spare(), core.storage());
        let segments = thread::Builder::new()
            .name("spot-segments".into())
            .spawn(move || prepare_segments(&*segment_storage, &spare, &spare_orders))?;
        let watched = Arc::clone(&shared);
        let snapshooter = thread::Builder::new()
            .name("spot-snapshots".into())
            .spawn(move || take_snapshots(&*snapshot_storage, &watched, &snapshot_orders))?;
        let mut writer = Writer {
            snapshot_bytes: limits.snapshot_bytes,
            snapshot_segment: core.first_segment(),
            segment: 0,
            core,
            shared: Arc::clone(&shared),
            clock,
            clock_doubted: false,
            spares,
            snapshots,
            ones: Vec::new(),
            manys: Vec::new(),
            lists: Vec::new(),
        };
        let closing = Closing { shared: Arc::clone(&shared), ended: Ended::Failed(Arc::new(SpotError::Stopped)) };
        thread::Builder::new().name("spot-writer".into()).spawn(move || {
            let mut closing = closing;
            closing.ended = match writer.serve() {
                Ok(()) => Ended::Asked,
                Err(error) => {
                    tracing::error!(code = error.code(), error = %Whole(&error), "the spot engine stops: its log cannot be relied on");
                    Ended::Failed(Arc::new(error))
                }
            };
            closing.close();
            // A caller that hears that the engine has ended may open the folder again, so all threads let go of it
            // first.
            drop(writer);
            for background in [segments, snapshooter] {
                if background.join().is_err() {
                    tracing::error!("a background thread of the spot engine panicked");
                }
            }
        })?;
        Ok(Self { owner: Arc::new(Owner(shared)) })
    }

    fn shared(&self) -> &Shared {
        &self.owner.0
    }

    /// Submits one request. The answer comes when it is durable.
    pub async fn ask(&self, request: impl Into<Request>) -> Result<Answer, NoAnswer> {
        let (sender, receiver) = oneshot::channel();
        self.shared().push(Submission::One(request.into(), sender), 1)?;
        receiver.await.map_err(|_| NoAnswer::Stopped)
    }

    /// Submits many requests at once, which are answered together and in order. Each is decided by itself.
    pub async fn submit(&self, requests: Vec<Request>) -> Result<Vec<Answer>, NoAnswer> {
        self.enqueue(requests)?.answers().await
    }

    /// As [`Engine::submit`], but the requests have their place in the queue when this returns.
    pub fn enqueue(&self, requests: Vec<Request>) -> Result<Pending, NoAnswer> {
        if requests.is_empty() || requests.len() > SUBMISSION_MAX {
            return Err(NoAnswer::Size);
        }
        let (sender, receiver) = oneshot::channel();
        let count = requests.len();
        self.shared().push(Submission::Many(requests, sender), count)?;
        Ok(Pending(receiver))
    }

    /// The newest operations before `before` that moved money between the engine and its database, the newest first.
    pub async fn crossings(&self, before: OpId, most: usize) -> Result<Crossings, NoAnswer> {
        let (reply, listed) = oneshot::channel();
        let most = most.min(SUBMISSION_MAX);
        self.shared().push(Submission::Crossings { before, most, reply }, 1)?;
        listed.await.map_err(|_| NoAnswer::Stopped)
    }

    /// Takes a snapshot of all that was answered so far. `None` if there is nothing new since the last one.
    pub async fn snapshot(&self) -> SnapshotTaken {
        self.order_snapshot()?.await.map_err(|_| SpotError::Stopped)?
    }

    pub(crate) fn order_snapshot(&self) -> Result<oneshot::Receiver<SnapshotTaken>, SpotError> {
        let shared = &self.owner.0;
        if shared.snapshot_asked.swap(true, Ordering::AcqRel) {
            return Err(SpotError::SnapshotRunning);
        }
        let (sender, receiver) = oneshot::channel();
        let caller = SnapshotCaller { sender, turn: Turn(Arc::clone(shared)) };
        shared.push(Submission::Snapshot(caller), 0).map_err(|_| SpotError::Stopped)?;
        Ok(receiver)
    }

    /// The number that the log was created with. It tells this engine from every other.
    pub fn log_id(&self) -> u64 {
        self.shared().log_id
    }

    /// What this engine's clock says, whether the engine believes it or not.
    pub fn now(&self) -> Timestamp {
        self.shared().clock.now()
    }

    pub fn counters(&self) -> &Counters {
        &self.shared().counters
    }

    /// Finishes what was submitted, closes the log, and says how it ended.
    pub async fn stop(&self) -> Ended {
        self.shared().close();
        self.ended().await
    }

    /// Waits until the engine has ended, whatever the reason.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.shared().ended.subscribe();
        // The sender lives as long as this handle, so waiting cannot fail.
        match ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or(Ended::Asked),
            Err(_) => Ended::Asked,
        }
    }
}

/// Ends the engine when the writer's thread ends, even by a panic: no more submissions are taken, and callers that wait
/// learn that there will be no answer.
struct Closing {
    shared: Arc<Shared>,
    ended: Ended,
}

impl Closing {
    fn close(&self) {
        let mut queue = self.shared.queue();
        queue.closed = true;
        let abandoned = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(abandoned);
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.close();
        self.shared.ended.send_replace(Some(self.ended.clone()));
    }
}

struct Writer<S: Storage> {
    core: Core<S>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    clock_doubted: bool,
    spares: mpsc::Sender<SegmentHeader>,
    snapshots: mpsc::Sender<(Sealed, Option<SnapshotCaller>)>,
    /// The segment for whose successor a spare was ordered.
    segment: u64,
    snapshot_bytes: u64,
    /// The first segment that no snapshot was ordered for.
    snapshot_segment: u64,
    ones: Vec<(oneshot::Sender<Answer>, Answer)>,
    manys: Vec<(oneshot::Sender<Vec<Answer>>, Vec<Answer>)>,
    lists: Vec<(oneshot::Sender<Crossings>, Crossings)>,
}

impl<S: Storage> Writer<S> {
    fn serve(&mut self) -> Result<(), SpotError> {
        let mut arrived = Vec::new();
        self.look_ahead();
        while self.shared.take(&mut arrived) {
            if arrived.is_empty() {
                // An idle engine follows the clock and logs it, so that it can later tell a jump of the clock from a
                // quiet month, also after it was killed.
                self.begin();
                self.core.keep_time()?;
            }
            let mut submissions = arrived.drain(..).peekable();
            while submissions.peek().is_some() {
                self.begin();
                let mut snapshot = None;
                while self.core.has_room()
                    && let Some(submission) = submissions.next()
                {
                    match submission {
                        Submission::One(request, reply) => self.ones.push((reply, self.core.answer(&request))),
                        Submission::Many(requests, reply) => {
                            let answers = requests.iter().map(|request| self.core.answer(request)).collect();
                            self.manys.push((reply, answers));
                        }
                        Submission::Crossings { before, most, reply } => {
                            self.lists.push((reply, self.core.state().crossings(before, most)));
                        }
                        Submission::Snapshot(caller) => {
                            snapshot = Some(caller);
                            break;
                        }
                    }
                }
                self.core.commit()?;
                self.reply();
                if let Some(caller) = snapshot {
                    let sealed = self.core.seal()?;
                    self.order_snapshot(sealed, Some(caller));
                }
                self.look_ahead();
            }
        }
        self.core.close()
    }

    /// Opens a batch at the time of the clock. It runs for every batch, so it warns only when the engine stops
    /// believing the clock and when it believes it again.
    fn begin(&mut self) {
        let now = self.clock.now();
        let doubted = self.core.clock_is_ahead(now);
        if doubted != self.clock_doubted {
            self.clock_doubted = doubted;
            let last = self.core.state().window().time;
            tracing::warn!(%now, %last, believed = !doubted, "the clock was far ahead of the log, or is no longer");
        }
        self.core.begin(now);
    }

    /// Sends the answers of a batch that is durable. A caller that is gone does not matter.
    fn reply(&mut self) {
        let mut requests = self.ones.len();
        for (reply, answer) in self.ones.drain(..) {
            reply.send(answer).ok();
        }
        for (reply, answers) in self.manys.drain(..) {
            requests += answers.len();
            reply.send(answers).ok();
        }
        for (reply, list) in self.lists.drain(..) {
            requests += 1;
            reply.send(list).ok();
        }
        let counters = &self.shared.counters;
        counters.requests.fetch_add(requests as u64, Ordering::Relaxed);
        counters.batches.fetch_add(1, Ordering::Relaxed);
        counters.sequence.store(self.core.log().sequence(), Ordering::Relaxed);
        counters.accounts.store(self.core.state().account_count() as u64, Ordering::Relaxed);
        counters.ids.store(self.core.state().id_count() as u64, Ordering::Relaxed);
    }

    /// Has the next segment made, and a snapshot taken, before they are needed.
    fn look_ahead(&mut self) {
        let current = self.core.log().segment();
        if current.number == self.segment {
            return;
        }
        self.segment = current.number;
        // A background thread that is gone is no reason to stop: the writer makes the segment itself, and snapshots
        // wait for the next start.
        self.spares.send(SegmentHeader { number: current.number + 1, ..current }).ok();
        // The log must have grown by the size of a snapshot before one is written, so that these snapshots never
        // write more than the log does.
        let grown = (current.number - self.snapshot_segment) * current.bytes;
        if grown >= self.snapshot_bytes.max(self.core.state().snapshot_bytes())
            && let Some(sealed) = self.core.log().sealed()
        {
            self.order_snapshot(sealed, None);
        }
    }

    fn order_snapshot(&mut self, sealed: Sealed, caller: Option<SnapshotCaller>) {
        self.snapshot_segment = sealed.segment + 1;
        self.snapshots.send((sealed, caller)).ok();
    }
}
