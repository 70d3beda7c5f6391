//! A lane: takes what has come in, records it in one commit, and hands the batch on to be driven to its end.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use domain::UserId;
use domain::id::{self, Id};
use domain::transfer::Transfer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use super::ends::Ends;
use super::turns::{BATCH, Share, Turns};
use crate::coordinator::{Coordinator, CoordinatorError};
use crate::create::{Begin, Created, TransferOrder};
use crate::supervisor::caught;

/// What a request is answered: one error for all of its orders, or what became of each.
pub(super) type Placed = Result<Vec<Created>, Arc<CoordinatorError>>;

/// A request's place in the buffer, which has room for so many orders, of one user and of all.
pub(super) struct Room {
    pub _share: Share,
    pub _permit: OwnedSemaphorePermit,
}

/// A request, or a part of a long one.
pub(super) struct Job {
    pub user: UserId,
    pub orders: Vec<TransferOrder>,
    pub _room: Arc<Room>,
    /// What was recorded, for a request that does not wait for the end. Setting it wakes no task: the request looks.
    pub recorded: Arc<OnceLock<Vec<Created>>>,
    pub ended: oneshot::Sender<Placed>,
    /// What events about this request carry.
    pub span: Span,
}

/// What a lane has taken in outlives a panic of its task.
pub(super) struct Lane {
    coordinator: Arc<Coordinator>,
    jobs: mpsc::Receiver<Job>,
    /// Taken from the channel, and not yet in turn.
    arrived: Vec<Job>,
    turns: Turns,
    /// As many as batches may be on their way.
    free: Arc<Semaphore>,
    stepping: JoinSet<()>,
    /// Whether its transfers are driven to their end, or only written down.
    begin: Begin,
    ends: Arc<Ends>,
}

impl Lane {
    pub fn new(
        coordinator: Arc<Coordinator>,
        jobs: mpsc::Receiver<Job>,
        ahead: usize,
        begin: Begin,
        ends: Arc<Ends>,
    ) -> Self {
        let (free, stepping) = (Arc::new(Semaphore::new(ahead)), JoinSet::new());
        Self { coordinator, jobs, arrived: Vec::new(), turns: Turns::default(), free, stepping, begin, ends }
    }

    pub async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            if self.turns.is_empty() && self.arrived.is_empty() {
                tokio::select! {
                    count = self.jobs.recv_many(&mut self.arrived, BATCH) => {
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
            if *stop.borrow() {
                self.jobs.close();
            }
            // While as many batches as may be are on their way, more come in.
            let Ok(ahead) = Arc::clone(&self.free).acquire_owned().await else { break };
            // All of them: who came last may be the next in turn.
            while let Ok(job) = self.jobs.try_recv() {
                self.arrived.push(job);
            }
            self.arrived.drain(..).for_each(|job| self.turns.push(job));
            let batch = self.turns.next_batch();
            // What happens to a batch of one request is about that request.
            let span = if let [job] = &batch[..] { job.span.clone() } else { Span::none() };
            if let Some((started, waiting)) = self.record(batch).instrument(span.clone()).await {
                let (coordinator, ends) = (Arc::clone(&self.coordinator), Arc::clone(&self.ends));
                let finishing = async move {
                    finish(&coordinator, &ends, started, waiting).await;
                    drop(ahead);
                };
                self.stepping.spawn(finishing.instrument(span));
            }
            while self.stepping.try_join_next().is_some() {}
        }
        while self.stepping.join_next().await.is_some() {}
    }

    /// Records the batch in one commit. Returns the transfers that have to be driven on, and the requests that wait for
    /// them.
    async fn record(&self, batch: Vec<Job>) -> Option<(Vec<Transfer>, Waiting)> {
        if batch.is_empty() {
            return None;
        }
        let orders: Vec<TransferOrder> = batch.iter().flat_map(|job| job.orders.iter().cloned()).collect();
        let created = match self.coordinator.create(&orders, self.begin).await {
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
        let mut started: Vec<Transfer> = Vec::with_capacity(orders.len());
        let mut waiting = Vec::with_capacity(batch.len());
        for job in batch {
            let mine: Vec<Created> = created.by_ref().take(job.orders.len()).collect();
            let mut waits = false;
            for one in mine.iter().filter(|_| self.begin == Begin::Now) {
                match one {
                    Created::New(transfer) if !transfer.state.is_terminal() => {
                        started.push(transfer.clone());
                        waits = true;
                    }
                    // The same order twice in this batch: both end together.
                    Created::Duplicate(transfer) => waits |= started.iter().any(|one| one.id == transfer.id),
                    Created::New(_) | Created::Rejected(_) => {}
                }
            }
            if waits {
                job.recorded.set(mine.clone()).ok();
                waiting.push((job.ended, mine));
            } else {
                // Refused, known before, or only written down: nothing of this batch is to be waited for.
                job.ended.send(Ok(mine)).ok();
            }
        }
        if started.is_empty() { None } else { Some((started, waiting)) }
    }
}

/// The requests that wait for the end of their transfers, each with what was recorded of it.
type Waiting = Vec<(oneshot::Sender<Placed>, Vec<Created>)>;

async fn finish(coordinator: &Coordinator, ends: &Ends, started: Vec<Transfer>, waiting: Waiting) {
    // They are recorded, and the scanner takes them up. The requests are told that they are on their way.
    let ended = match caught(coordinator.step_recorded(started)).await {
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
    ends.tell(&ended);
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
