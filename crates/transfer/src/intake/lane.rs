//! A lane: takes what has come in, records it in one commit, and hands the batch on to be driven to its end.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use domain::UserId;
use domain::id::{self, Id};
use domain::transfer::Transfer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::ends::Ends;
use super::turns::{BATCH, Share, Turns};
use crate::coordinator::{Coordinator, CoordinatorError};
use crate::create::{Begin, Created, TransferOrder};

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
}

pub(super) struct Lane {
    pub coordinator: Arc<Coordinator>,
    pub jobs: mpsc::Receiver<Job>,
    pub ahead: usize,
    /// Whether its transfers are driven to their end, or only written down.
    pub begin: Begin,
    pub ends: Arc<Ends>,
}

impl Lane {
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let free = Arc::new(Semaphore::new(self.ahead));
        let mut stepping = JoinSet::new();
        let mut turns = Turns::default();
        let mut arrived: Vec<Job> = Vec::new();
        loop {
            if turns.is_empty() {
                tokio::select! {
                    count = self.jobs.recv_many(&mut arrived, BATCH) => {
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
            let Ok(ahead) = Arc::clone(&free).acquire_owned().await else { break };
            // All of them: who came last may be the next in turn.
            while let Ok(job) = self.jobs.try_recv() {
                arrived.push(job);
            }
            arrived.drain(..).for_each(|job| turns.push(job));
            let batch = turns.next_batch();
            if let Some((started, waiting)) = self.record(batch).await {
                let (coordinator, ends) = (Arc::clone(&self.coordinator), Arc::clone(&self.ends));
                stepping.spawn(async move {
                    finish(&coordinator, &ends, started, waiting).await;
                    drop(ahead);
                });
            }
            while stepping.try_join_next().is_some() {}
        }
        while stepping.join_next().await.is_some() {}
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
    let ended = match coordinator.step(started).await {
        Ok(ended) => ended,
        // They are recorded, and the scanner takes them up. The requests are told that they are on their way.
        Err(error) => {
            tracing::warn!(code = error.code(), "a batch of transfers is left to the scanner");
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
