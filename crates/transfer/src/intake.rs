//! The intake: requests wait here for the coordinator, in a bounded buffer.
//!
//! A lane takes all requests that have come in, records them in one commit, and hands the batch on to be driven to its
//! end, while the next batch gathers. There is no timer: with one request at a time a batch is that one request.
//!
//! **A full buffer loses nothing**: the request's own task writes it down at once, and the scanner finds it. Users are
//! spread over the lanes, so that batches that run side by side do not wait for each other's rows.
//!
//! **A lane that panics loses nothing**: it is started again. The requests whose batch it was recording are told that the
//! outcome is not known; those behind them wait for the new start.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::id::{self, Id};
use domain::transfer::Transfer;
use std::collections::HashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{Instrument, Span};

use crate::coordinator::{Coordinator, CoordinatorError};
use crate::create::{Begin, Created, TransferOrder};
use crate::supervisor::{Pauses, Supervisor, caught};

#[derive(Clone, Copy, Debug)]
pub struct IntakeSettings {
    pub lanes: usize,
    /// Batches of one lane that may be on their way while the next one is recorded.
    pub ahead: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// How long a request waits for its end before it is told that it is on its way.
    pub wait: Duration,
    /// How long it waits to be recorded. After that the client is told that the outcome is not known.
    pub patience: Duration,
    /// How long a lane that has panicked is left alone.
    pub pauses: Pauses,
}

impl Default for IntakeSettings {
    fn default() -> Self {
        Self {
            lanes: 2,
            ahead: 2,
            queue: 10_000,
            wait: Duration::from_millis(500),
            patience: Duration::from_secs(10),
            pauses: Pauses::default(),
        }
    }
}

/// How often a request that waits longer than that looks whether it is recorded.
const GLANCE: Duration = Duration::from_millis(20);

/// The most orders in one batch. The last request of a batch is not split, so a batch may have more.
const BATCH: usize = 512;

#[derive(Clone, Debug, thiserror::Error)]
pub enum IntakeError {
    /// The buffer is closed: nothing was taken.
    #[error("the server is stopping")]
    Stopping,
    /// It was taken, and is not recorded yet. It may still be.
    #[error("the request was not recorded in time")]
    Late,
    #[error(transparent)]
    Coordinator(Arc<CoordinatorError>),
}

/// What a request is answered: one error for all of its batch, or what became of each of its orders.
type Placed = Result<Vec<Created>, Arc<CoordinatorError>>;

struct Job {
    orders: Vec<TransferOrder>,
    /// Its place in the buffer, which has room for so many orders.
    _room: OwnedSemaphorePermit,
    /// What was recorded, for a request that does not wait for the end. Setting it wakes no task: the request looks.
    recorded: Arc<OnceLock<Vec<Created>>>,
    ended: oneshot::Sender<Placed>,
    /// What events about this request carry.
    span: Span,
}

pub struct Intake {
    coordinator: Arc<Coordinator>,
    lanes: Vec<mpsc::Sender<Job>>,
    room: Arc<Semaphore>,
    settings: IntakeSettings,
    stop: watch::Sender<bool>,
    running: tokio::sync::Mutex<JoinSet<()>>,
}

impl Intake {
    pub fn open(coordinator: Arc<Coordinator>, settings: IntakeSettings) -> Self {
        let (stop, _) = watch::channel(false);
        let mut running = JoinSet::new();
        let supervisor = Arc::new(Supervisor::new(Arc::clone(coordinator.readiness()), "lanes", settings.pauses));
        let lanes = (0..settings.lanes.max(1))
            .map(|_| {
                let (sender, jobs) = mpsc::channel(settings.queue.max(1));
                let lane = Lane {
                    coordinator: Arc::clone(&coordinator),
                    jobs,
                    queued: Vec::new(),
                    turns: Arc::new(Semaphore::new(settings.ahead.max(1))),
                    stepping: JoinSet::new(),
                };
                let (supervisor, stopped) = (Arc::clone(&supervisor), stop.subscribe());
                running.spawn(async move {
                    let lane = tokio::sync::Mutex::new(lane);
                    supervisor.run(|| async { lane.lock().await.run(stopped.clone()).await }).await;
                });
                sender
            })
            .collect();
        let room = Arc::new(Semaphore::new(settings.queue));
        Self { coordinator, lanes, room, settings, stop, running: tokio::sync::Mutex::new(running) }
    }

    pub const fn coordinator(&self) -> &Arc<Coordinator> {
        &self.coordinator
    }

    /// Has the orders of one user recorded, waits a little for their end, and says where each stands.
    pub async fn place(&self, orders: Vec<TransferOrder>) -> Result<Vec<Created>, IntakeError> {
        let Some(first) = orders.first() else { return Ok(Vec::new()) };
        let lane = usize::try_from(first.user.get()).unwrap_or(0) % self.lanes.len();
        if self.lanes[lane].is_closed() {
            return Err(IntakeError::Stopping);
        }
        let count = u32::try_from(orders.len()).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(count) else { return self.park(&orders).await };
        let (ended, mut placed) = oneshot::channel();
        let recorded = Arc::new(OnceLock::new());
        let job = Job { orders, _room: room, recorded: Arc::clone(&recorded), ended, span: Span::current() };
        match self.lanes[lane].try_send(job) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(IntakeError::Stopping),
            Err(mpsc::error::TrySendError::Full(job)) => return self.park(&job.orders).await,
        }
        let mut waited = self.settings.wait;
        let mut turn = timeout(waited, &mut placed).await;
        loop {
            match turn {
                Ok(Ok(placed)) => return placed.map_err(IntakeError::Coordinator),
                // The lane has ended without an answer. It may have recorded the request before that.
                Ok(Err(_)) => return recorded.get().cloned().ok_or(IntakeError::Late),
                Err(_) => {}
            }
            // It has not ended. From now on it is enough that it is recorded.
            if let Some(created) = recorded.get() {
                return Ok(created.clone());
            }
            if waited >= self.settings.patience {
                return Err(IntakeError::Late);
            }
            waited += GLANCE;
            turn = timeout(GLANCE, &mut placed).await;
        }
    }

    /// The buffer is full: the orders are written down, and the scanner finds them.
    async fn park(&self, orders: &[TransferOrder]) -> Result<Vec<Created>, IntakeError> {
        self.coordinator.metrics().transfers_parked.fetch_add(orders.len() as u64, Ordering::Relaxed);
        let parked = self.coordinator.create(orders, Begin::Later).await;
        parked.map_err(|error| IntakeError::Coordinator(Arc::new(error)))
    }

    /// Takes no more requests, and waits until those that were taken have ended or are left to the scanner.
    pub async fn close(&self) {
        self.stop.send_replace(true);
        let mut running = self.running.lock().await;
        while running.join_next().await.is_some() {}
    }
}

/// What a lane has taken in outlives a panic of its task.
struct Lane {
    coordinator: Arc<Coordinator>,
    jobs: mpsc::Receiver<Job>,
    /// Taken from the channel, and not yet part of a batch.
    queued: Vec<Job>,
    turns: Arc<Semaphore>,
    stepping: JoinSet<()>,
}

impl Lane {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            if self.queued.is_empty() {
                tokio::select! {
                    count = self.jobs.recv_many(&mut self.queued, BATCH) => {
                        if count == 0 {
                            break;
                        }
                    }
                    _ = stop.wait_for(|stop| *stop), if !self.jobs.is_closed() => {
                        self.jobs.close();
                        continue;
                    }
                }
            }
            // While all turns are taken, more come in.
            let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await else { break };
            while self.queued.len() < BATCH
                && let Ok(job) = self.jobs.try_recv()
            {
                self.queued.push(job);
            }
            let batch = take_batch(&mut self.queued);
            // What happens to a batch of one request is about that request.
            let span = if let [job] = &batch[..] { job.span.clone() } else { Span::none() };
            if let Some((started, waiting)) = create_batch(&self.coordinator, batch).instrument(span.clone()).await {
                let coordinator = Arc::clone(&self.coordinator);
                let finishing = async move {
                    finish(&coordinator, started, waiting).await;
                    drop(turn);
                };
                self.stepping.spawn(finishing.instrument(span));
            }
            while self.stepping.try_join_next().is_some() {}
        }
        while self.stepping.join_next().await.is_some() {}
    }
}

/// The first jobs, up to a batch of orders. A job whose client has gone away is dropped: nothing of it is recorded.
fn take_batch(queued: &mut Vec<Job>) -> Vec<Job> {
    let mut orders = 0;
    let fits = queued.iter().take_while(|job| {
        let fits = orders < BATCH;
        orders += job.orders.len();
        fits
    });
    let count = fits.count();
    queued.drain(..count).filter(|job| !job.ended.is_closed()).collect()
}

/// The requests that wait for the end of their transfers, each with what was recorded of it.
type Waiting = Vec<(oneshot::Sender<Placed>, Vec<Created>)>;

/// Records the batch in one commit. Returns the transfers that have to be driven on, and the requests that wait for
/// them.
async fn create_batch(coordinator: &Coordinator, batch: Vec<Job>) -> Option<(Vec<Transfer>, Waiting)> {
    if batch.is_empty() {
        return None;
    }
    let orders: Vec<TransferOrder> = batch.iter().flat_map(|job| job.orders.iter().cloned()).collect();
    let created = match coordinator.create(&orders, Begin::Now).await {
        Ok(created) => created,
        Err(error) => {
            let error = Arc::new(error);
            for job in batch {
                job.ended.send(Err(Arc::clone(&error))).ok();
            }
            return None;
        }
    };
    let mut created = created.into_iter();
    let mut started = Vec::with_capacity(orders.len());
    let mut waiting = Vec::with_capacity(batch.len());
    for job in batch {
        let mine: Vec<Created> = created.by_ref().take(job.orders.len()).collect();
        let before = started.len();
        started.extend(mine.iter().filter_map(|one| match one {
            Created::New(transfer) if !transfer.state.is_terminal() => Some(transfer.clone()),
            Created::New(_) | Created::Duplicate(_) | Created::Rejected(_) => None,
        }));
        if started.len() == before {
            // Refused, or known before: there is nothing to wait for.
            job.ended.send(Ok(mine)).ok();
        } else {
            job.recorded.set(mine.clone()).ok();
            waiting.push((job.ended, mine));
        }
    }
    Some((started, waiting))
}

async fn finish(coordinator: &Coordinator, started: Vec<Transfer>, waiting: Waiting) {
    // They are recorded, and the scanner takes them up. The requests are told that they are on their way.
    let ended = match caught(coordinator.step(started)).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(error)) => {
            coordinator.note_failure(&error, "a batch of transfers is left to the scanner");
            Vec::new()
        }
        Err(words) => {
            tracing::error!(code = "TASK_PANICKED", words, "a batch of transfers is left to the scanner");
            Vec::new()
        }
    };
    let ended: HashMap<Id<id::Transfer>, Transfer> =
        ended.into_iter().map(|transfer| (transfer.id, transfer)).collect();
    for (reply, mut mine) in waiting {
        for one in &mut mine {
            if let Created::New(transfer) | Created::Duplicate(transfer) = one
                && let Some(ended) = ended.get(&transfer.id)
            {
                transfer.clone_from(ended);
            }
        }
        reply.send(Ok(mine)).ok();
    }
}
