//! Withdrawals that are asked for at the same time are taken in one commit: requests wait here, in a bounded buffer, for the store.
//!
//! While one batch commits, the next one gathers. There is no timer: with one request at a time a batch is that one request. A user always has the
//! same lane, so that two requests of one user never wait for each other's rows in two transactions.
//!
//! **A commit without an answer is sent again**, under the same numbers: the same again gives the same answer. Only when that does not help is the
//! client told that the outcome is not known.
//!
//! **A client that has gone away changes nothing**: its request is dropped before it is taken, or it was taken and stands.
//!
//! **One request that cannot be taken does not spoil its neighbours**: a batch that fails for a reason of one of them is taken again, request by
//! request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::transfer::ClientOrderId;
use domain::withdrawal::FeeQuote;
use domain::{Amount, UserId};
use store::StoreError;
use store::entry::ListingId;
use store::withdrawal::{CreatedWithdrawal, NewWithdrawal, TravelRule, WithdrawalId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{Instrument, Span};
use transfer::supervisor::Pauses;
use transfer::{Coordinator, Supervisor};

#[derive(Clone, Copy, Debug)]
pub struct WithdrawalIntakeSettings {
    pub lanes: usize,
    /// Orders that may wait.
    pub queue: usize,
    /// How long a request waits for its answer. After that the client is told that the outcome is not known.
    pub patience: Duration,
    /// How long a lane that has panicked is left alone.
    pub pauses: Pauses,
}

impl Default for WithdrawalIntakeSettings {
    fn default() -> Self {
        Self { lanes: 2, queue: 10_000, patience: Duration::from_secs(10), pauses: Pauses::default() }
    }
}

/// A batch is closed when it has so many orders. A request with many of them is not cut.
const BATCH: usize = 512;
/// How soon a commit without an answer is sent again; the pauses double.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// How often it is sent at the most.
const TRIES: u32 = 7;

/// What a user asks for, after the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalOrder {
    pub user: UserId,
    pub client_order_id: ClientOrderId,
    pub listing: ListingId,
    pub to: String,
    pub amount: Amount,
    pub most_fee: Amount,
    pub quote: Option<FeeQuote>,
    pub travel_rule: Option<TravelRule>,
}

impl WithdrawalOrder {
    pub fn under(self, id: WithdrawalId) -> NewWithdrawal {
        let Self { user, client_order_id, listing, to, amount, most_fee, quote, travel_rule } = self;
        NewWithdrawal { id, user, client_order_id, listing, to, amount, most_fee, quote, travel_rule }
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum WithdrawalIntakeError {
    /// Nothing was taken.
    #[error("the server is stopping")]
    Stopping,
    /// Nothing was taken.
    #[error("too many requests of this user wait")]
    UserBusy,
    /// Nothing was taken.
    #[error("too many requests wait")]
    Full,
    /// Nothing was taken.
    #[error("this process has no node number at the moment, and makes no ids without one")]
    NoIds,
    /// It may have been taken, and may still be.
    #[error("the request was not answered in time")]
    Late,
    /// Nothing was taken.
    #[error("the withdrawals could not be recorded")]
    Store(#[source] Arc<StoreError>),
    /// It may have been taken.
    #[error("it is not known whether the withdrawals were recorded")]
    Unknown(#[source] Arc<StoreError>),
}

type Answered = Result<Vec<CreatedWithdrawal>, WithdrawalIntakeError>;

/// One request: one order, or those of a batch.
struct Job {
    orders: Vec<WithdrawalOrder>,
    answer: oneshot::Sender<Answered>,
    _share: Share,
    _permit: OwnedSemaphorePermit,
    /// What events about this request carry.
    span: Span,
}

pub struct WithdrawalIntake {
    lanes: Vec<mpsc::Sender<Job>>,
    room: Arc<Semaphore>,
    shares: Arc<Shares>,
    settings: WithdrawalIntakeSettings,
    stop: watch::Sender<bool>,
    running: tokio::sync::Mutex<JoinSet<()>>,
}

impl WithdrawalIntake {
    pub fn open(coordinator: &Arc<Coordinator>, settings: WithdrawalIntakeSettings) -> Self {
        let (stop, _) = watch::channel(false);
        let mut running = JoinSet::new();
        let readiness = Arc::clone(coordinator.readiness());
        let supervisor = Arc::new(Supervisor::new(readiness, "withdrawal lanes", settings.pauses));
        let mut lane = || {
            let (sender, jobs) = mpsc::channel(settings.queue.max(1));
            let lane = Lane { coordinator: Arc::clone(coordinator), jobs, arrived: Vec::new() };
            let (supervisor, stopped) = (Arc::clone(&supervisor), stop.subscribe());
            running.spawn(async move {
                let lane = tokio::sync::Mutex::new(lane);
                supervisor.run(|| async { lane.lock().await.run(stopped.clone()).await }).await;
            });
            sender
        };
        let lanes = (0..settings.lanes.max(1)).map(|_| lane()).collect();
        Self {
            lanes,
            room: Arc::new(Semaphore::new(settings.queue)),
            shares: Shares::of(settings.queue),
            settings,
            stop,
            running: tokio::sync::Mutex::new(running),
        }
    }

    /// Has these orders of one user taken, or says of each why not, in their order.
    pub async fn place(&self, orders: Vec<WithdrawalOrder>) -> Answered {
        let Some(first) = orders.first() else { return Ok(Vec::new()) };
        let user = first.user;
        let lane = usize::try_from(user.get()).unwrap_or(0) % self.lanes.len();
        let share = self.shares.take(user, orders.len()).ok_or(WithdrawalIntakeError::UserBusy)?;
        let permits = u32::try_from(orders.len()).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.room).try_acquire_many_owned(permits);
        let permit = permit.map_err(|_| WithdrawalIntakeError::Full)?;
        let (answer, answered) = oneshot::channel();
        let job = Job { orders, answer, _share: share, _permit: permit, span: Span::current() };
        self.lanes[lane].try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Closed(_) => WithdrawalIntakeError::Stopping,
            // A lane has as many places as there is room for orders.
            mpsc::error::TrySendError::Full(_) => WithdrawalIntakeError::Full,
        })?;
        match timeout(self.settings.patience, answered).await {
            Ok(Ok(answered)) => answered,
            // The lane has ended without an answer, or takes too long. It may have taken the request before that.
            Ok(Err(_)) | Err(_) => Err(WithdrawalIntakeError::Late),
        }
    }

    /// Takes no more requests, and waits until those that were let in are answered.
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
    /// Taken from the channel, and in no batch yet.
    arrived: Vec<Job>,
}

impl Lane {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            if self.arrived.is_empty() {
                tokio::select! {
                    count = self.jobs.recv_many(&mut self.arrived, BATCH) => {
                        if count == 0 {
                            return;
                        }
                    }
                    _ = stop.wait_for(|stop| *stop), if !self.jobs.is_closed() => {
                        self.jobs.close();
                        continue;
                    }
                }
            }
            while let Ok(job) = self.jobs.try_recv() {
                self.arrived.push(job);
            }
            let batch = self.next_batch();
            // What happens to a batch of one request is about that request.
            let span = if let [job] = &batch[..] { job.span.clone() } else { Span::none() };
            self.take(batch).instrument(span).await;
        }
    }

    /// In the order of their arrival, without those whose clients have gone away.
    fn next_batch(&mut self) -> Vec<Job> {
        let mut orders = 0;
        let fits = |job: &Job| {
            let room = orders < BATCH;
            orders += job.orders.len();
            room
        };
        let count = self.arrived.iter().map(fits).take_while(|fits| *fits).count();
        self.arrived.drain(..count).filter(|job| !job.answer.is_closed()).collect()
    }

    async fn take(&self, batch: Vec<Job>) {
        let orders: Vec<WithdrawalOrder> = batch.iter().flat_map(|job| job.orders.iter().cloned()).collect();
        match self.create(orders).await {
            Ok(created) => {
                let mut created = created.into_iter();
                for job in batch {
                    let mine = created.by_ref().take(job.orders.len()).collect();
                    // Who has gone away needs to know nothing.
                    job.answer.send(Ok(mine)).ok();
                }
            }
            Err(WithdrawalIntakeError::Store(error)) if batch.len() > 1 && is_of_one(&error) => {
                tracing::warn!(code = error.code(), %error, "a batch of withdrawals is taken one by one");
                for job in batch {
                    let created = self.create(job.orders.clone()).instrument(job.span.clone()).await;
                    job.answer.send(created).ok();
                }
            }
            Err(error) => {
                for job in batch {
                    job.answer.send(Err(error.clone())).ok();
                }
            }
        }
    }

    async fn create(&self, orders: Vec<WithdrawalOrder>) -> Answered {
        let number = || self.coordinator.next_number().ok().and_then(|number| WithdrawalId::new(number).ok());
        let under = |order: WithdrawalOrder| number().map(|id| order.under(id)).ok_or(WithdrawalIntakeError::NoIds);
        let new = orders.into_iter().map(under).collect::<Result<Vec<_>, _>>()?;
        let mut pause = FIRST_PAUSE;
        let mut unanswered = None;
        for _ in 0..TRIES {
            match self.coordinator.db().create_withdrawals(&new, self.coordinator.now()).await {
                Ok(created) => return Ok(created),
                // It is not known. After that no other error says that nothing was done.
                Err(error @ StoreError::CommitUnknown(_)) => unanswered = Some(Arc::new(error)),
                Err(error) if unanswered.is_none() => return Err(WithdrawalIntakeError::Store(Arc::new(error))),
                Err(error) => tracing::debug!(code = error.code(), %error, "withdrawals whose outcome is not known"),
            }
            sleep(pause).await;
            pause *= 2;
        }
        let late = WithdrawalIntakeError::Late;
        Err(unanswered.map_or(late, WithdrawalIntakeError::Unknown))
    }
}

/// Whether one request of a batch may be the reason, and the others can be taken without it.
const fn is_of_one(error: &StoreError) -> bool {
    match error {
        StoreError::Violates(_) | StoreError::Corrupt { .. } | StoreError::Database(_) => true,
        StoreError::Unavailable(_)
        | StoreError::CommitUnknown(_)
        | StoreError::Full(_)
        | StoreError::Damaged(_)
        | StoreError::Contention(_)
        | StoreError::BatchTooLarge { .. }
        | StoreError::ReadOnly
        | StoreError::SchemaMissing
        | StoreError::SchemaOutdated { .. }
        | StoreError::SchemaTooNew { .. }
        | StoreError::MigrationChanged { .. }
        | StoreError::BadUrl(_)
        | StoreError::NeedsHistory
        | StoreError::Arity { .. } => false,
    }
}

/// How many orders of each user wait, in all lanes. A user has a quarter of the buffer.
#[derive(Debug)]
struct Shares {
    most: usize,
    taken: Mutex<HashMap<UserId, usize>>,
}

/// A user's part of the buffer, until it is dropped.
#[derive(Debug)]
struct Share {
    shares: Arc<Shares>,
    user: UserId,
    orders: usize,
}

impl Shares {
    fn of(queue: usize) -> Arc<Self> {
        Arc::new(Self { most: queue / 4, taken: Mutex::default() })
    }

    /// `None`: too many of the user's orders wait already. One request is always let in.
    fn take(self: &Arc<Self>, user: UserId, orders: usize) -> Option<Share> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let before = taken.get(&user).copied().unwrap_or(0);
        if before > 0 && before + orders > self.most {
            return None;
        }
        taken.insert(user, before + orders);
        Some(Share { shares: Arc::clone(self), user, orders })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.user) {
            Some(orders) if *orders > self.orders => *orders -= self.orders,
            Some(_) | None => {
                taken.remove(&self.user);
            }
        }
    }
}
