//! The desk: where requests wait for the coordinator, in a bounded buffer.
//!
//! A lane takes whatever has come in, records all of it in one commit, and hands the batch on to be driven to its end,
//! while the next batch gathers. There is no timer: with one request at a time a batch is that one request.
//!
//! **A full buffer loses nothing**: the request is written down at once by whoever brought it, and the scanner finds it.
//! Users are spread over the lanes, so that batches that run side by side do not wait for each other's rows.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::id::{self, Id};
use domain::transfer::Transfer;
use std::collections::HashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::coordinator::{Coordinator, CoordinatorError};
use crate::create::{Begin, Created, Wish};

#[derive(Clone, Copy, Debug)]
pub struct DeskSettings {
    pub lanes: usize,
    /// Batches of one lane that may be on their way while the next one is recorded.
    pub ahead: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// How long a request waits for its end before it is told that it is on its way.
    pub wait: Duration,
    /// How long it waits to be recorded. After that nobody can say.
    pub patience: Duration,
}

impl Default for DeskSettings {
    fn default() -> Self {
        Self { lanes: 2, ahead: 2, queue: 10_000, wait: Duration::from_millis(500), patience: Duration::from_secs(10) }
    }
}

/// How often a request that is late looks whether it is recorded.
const GLANCE: Duration = Duration::from_millis(20);

/// The most wishes in one batch, a little more if the last request of it brings many.
const BATCH: usize = 512;

#[derive(Clone, Debug, thiserror::Error)]
pub enum DeskError {
    /// The buffer is closed: nothing was taken.
    #[error("the server is stopping")]
    Stopping,
    /// It was taken, and is not recorded yet. It may still be.
    #[error("the request was not recorded in time")]
    Late,
    #[error(transparent)]
    Coordinator(Arc<CoordinatorError>),
}

type Told = Result<Vec<Created>, Arc<CoordinatorError>>;

struct Job {
    wishes: Vec<Wish>,
    /// Its place in the buffer, which has room for so many wishes.
    _room: OwnedSemaphorePermit,
    /// What was recorded, for whoever does not wait for the end. Nobody is woken for it.
    recorded: Arc<OnceLock<Vec<Created>>>,
    ended: oneshot::Sender<Told>,
}

pub struct Desk {
    coordinator: Arc<Coordinator>,
    lanes: Vec<mpsc::Sender<Job>>,
    room: Arc<Semaphore>,
    settings: DeskSettings,
    stop: watch::Sender<bool>,
    running: tokio::sync::Mutex<JoinSet<()>>,
}

impl Desk {
    pub fn open(coordinator: Arc<Coordinator>, settings: DeskSettings) -> Self {
        let (stop, _) = watch::channel(false);
        let mut running = JoinSet::new();
        let lanes = (0..settings.lanes.max(1))
            .map(|_| {
                let (sender, jobs) = mpsc::channel(settings.queue.max(1));
                let lane = Lane { coordinator: Arc::clone(&coordinator), jobs, ahead: settings.ahead.max(1) };
                running.spawn(lane.run(stop.subscribe()));
                sender
            })
            .collect();
        let room = Arc::new(Semaphore::new(settings.queue));
        Self { coordinator, lanes, room, settings, stop, running: tokio::sync::Mutex::new(running) }
    }

    pub const fn coordinator(&self) -> &Arc<Coordinator> {
        &self.coordinator
    }

    /// Has the wishes of one user recorded, waits a little for their end, and says where each stands.
    pub async fn place(&self, wishes: Vec<Wish>) -> Result<Vec<Created>, DeskError> {
        let Some(first) = wishes.first() else { return Ok(Vec::new()) };
        let lane = usize::try_from(first.user.get()).unwrap_or(0) % self.lanes.len();
        if self.lanes[lane].is_closed() {
            return Err(DeskError::Stopping);
        }
        let count = u32::try_from(wishes.len()).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(count) else { return self.park(&wishes).await };
        let (ended, mut told) = oneshot::channel();
        let recorded = Arc::new(OnceLock::new());
        let job = Job { wishes, _room: room, recorded: Arc::clone(&recorded), ended };
        match self.lanes[lane].try_send(job) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(DeskError::Stopping),
            Err(mpsc::error::TrySendError::Full(job)) => return self.park(&job.wishes).await,
        }
        let mut waited = self.settings.wait;
        let mut turn = timeout(waited, &mut told).await;
        loop {
            match turn {
                Ok(Ok(told)) => return told.map_err(DeskError::Coordinator),
                // A lane that is gone without a word may have recorded it before.
                Ok(Err(_)) => return recorded.get().cloned().ok_or(DeskError::Late),
                Err(_) => {}
            }
            // It has not ended. As soon as it is recorded that is enough to know.
            if let Some(created) = recorded.get() {
                return Ok(created.clone());
            }
            if waited >= self.settings.patience {
                return Err(DeskError::Late);
            }
            waited += GLANCE;
            turn = timeout(GLANCE, &mut told).await;
        }
    }

    /// The buffer is full: it is written down, and the scanner finds it.
    async fn park(&self, wishes: &[Wish]) -> Result<Vec<Created>, DeskError> {
        self.coordinator.metrics().transfers_parked.fetch_add(wishes.len() as u64, Ordering::Relaxed);
        let parked = self.coordinator.create(wishes, Begin::Later).await;
        parked.map_err(|error| DeskError::Coordinator(Arc::new(error)))
    }

    /// Whether every lane works. One that has ended by itself has met a bug.
    pub fn is_whole(&self) -> bool {
        self.lanes.iter().all(|lane| !lane.is_closed())
    }

    /// Takes nothing more, and waits until everything that was taken is where it can get.
    pub async fn close(&self) {
        self.stop.send_replace(true);
        let mut running = self.running.lock().await;
        while running.join_next().await.is_some() {}
    }
}

struct Lane {
    coordinator: Arc<Coordinator>,
    jobs: mpsc::Receiver<Job>,
    ahead: usize,
}

impl Lane {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let turns = Arc::new(Semaphore::new(self.ahead));
        let mut stepping = JoinSet::new();
        let mut waiting: Vec<Job> = Vec::new();
        loop {
            if waiting.is_empty() {
                tokio::select! {
                    count = self.jobs.recv_many(&mut waiting, BATCH) => {
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
            let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { break };
            while waiting.len() < BATCH
                && let Ok(job) = self.jobs.try_recv()
            {
                waiting.push(job);
            }
            let batch = take_batch(&mut waiting);
            if let Some((started, owed)) = record(&self.coordinator, batch).await {
                let coordinator = Arc::clone(&self.coordinator);
                stepping.spawn(async move {
                    finish(&coordinator, started, owed).await;
                    drop(turn);
                });
            }
            while stepping.try_join_next().is_some() {}
        }
        while stepping.join_next().await.is_some() {}
    }
}

/// The first jobs, up to a batch of wishes. Whoever has gone away since gets nothing recorded.
fn take_batch(waiting: &mut Vec<Job>) -> Vec<Job> {
    let mut wishes = 0;
    let fits = waiting.iter().take_while(|job| {
        let fits = wishes < BATCH;
        wishes += job.wishes.len();
        fits
    });
    let count = fits.count();
    waiting.drain(..count).filter(|job| !job.ended.is_closed()).collect()
}

/// Who waits for the end of what.
type Owed = Vec<(oneshot::Sender<Told>, Vec<Created>)>;

/// One commit for the batch. Says what has to be driven on, and who waits for it.
async fn record(coordinator: &Coordinator, batch: Vec<Job>) -> Option<(Vec<Transfer>, Owed)> {
    if batch.is_empty() {
        return None;
    }
    let wishes: Vec<Wish> = batch.iter().flat_map(|job| job.wishes.iter().cloned()).collect();
    let created = match coordinator.create(&wishes, Begin::Now).await {
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
    let mut started = Vec::with_capacity(wishes.len());
    let mut owed = Vec::with_capacity(batch.len());
    for job in batch {
        let mine: Vec<Created> = created.by_ref().take(job.wishes.len()).collect();
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
            owed.push((job.ended, mine));
        }
    }
    Some((started, owed))
}

async fn finish(coordinator: &Coordinator, started: Vec<Transfer>, owed: Owed) {
    let ended = match coordinator.step(started).await {
        Ok(ended) => ended,
        // They are recorded: the scanner takes them up. Whoever waits is told that they are on their way.
        Err(error) => {
            tracing::warn!(code = error.code(), "a batch of transfers is left to the scanner");
            Vec::new()
        }
    };
    let ended: HashMap<Id<id::Transfer>, Transfer> =
        ended.into_iter().map(|transfer| (transfer.id, transfer)).collect();
    for (reply, mut mine) in owed {
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
