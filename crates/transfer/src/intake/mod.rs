//! The intake: requests wait here for the coordinator, in a bounded buffer.
//!
//! | module | holds |
//! |---|---|
//! | `lane` | takes what has come in, records it in one commit, and has it driven to its end |
//! | `turns` | who comes next: users take turns, and no user has more than a part of the buffer |
//! | `ends` | requests that wait for the end of a transfer that an earlier request has made |
//!
//! While one batch commits, the next one gathers. There is no timer: with one request at a time a batch is that one
//! request. Users are spread over the lanes, so that batches that run side by side do not wait for each other's rows.
//!
//! **A full buffer loses nothing**: what does not fit goes to a lane of its own, which only writes it down, and the
//! scanner finds it. **A user who sends much waits longer, and nobody else does**: in each batch every user who waits has
//! a turn.
//!
//! **A lane that panics loses nothing**: it is started again. The requests whose batch it was recording are told that the
//! outcome is not known; those behind them wait for the new start.

mod ends;
mod lane;
mod turns;

use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::id::{self, Id};
use domain::transfer::Transfer;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};
use tracing::Span;

use crate::coordinator::{Coordinator, CoordinatorError};
use crate::create::{Begin, Created, TransferOrder};
use crate::supervisor::{Pauses, Supervisor};
use ends::Ends;
use lane::{Job, Lane, Placed, Room};
use turns::{Shares, TURN};

#[derive(Clone, Copy, Debug)]
pub struct IntakeSettings {
    pub lanes: usize,
    /// Batches of one lane that may be on their way while the next one is recorded.
    pub ahead: usize,
    /// Orders that may wait.
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

/// How soon a request looks at the row of a transfer that another process may be driving; the pauses double.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LONGEST_LOOK: Duration = Duration::from_millis(160);

/// Orders that may wait to be written down because the buffer is full.
const PARKED: usize = 100_000;

#[derive(Clone, Debug, thiserror::Error)]
pub enum IntakeError {
    /// The buffer is closed: nothing was taken.
    #[error("the server is stopping")]
    Stopping,
    /// Nothing was taken.
    #[error("too many requests of this user wait")]
    UserBusy,
    /// Nothing was taken.
    #[error("too many requests wait")]
    Full,
    /// It was taken, and is not recorded yet. It may still be.
    #[error("the request was not recorded in time")]
    Late,
    #[error(transparent)]
    Coordinator(Arc<CoordinatorError>),
}

pub struct Intake {
    coordinator: Arc<Coordinator>,
    lanes: Vec<mpsc::Sender<Job>>,
    room: Arc<Semaphore>,
    /// The lane that only writes down, and its own room.
    parking: mpsc::Sender<Job>,
    parked: Arc<Semaphore>,
    shares: Arc<Shares>,
    ends: Arc<Ends>,
    settings: IntakeSettings,
    stop: watch::Sender<bool>,
    running: tokio::sync::Mutex<JoinSet<()>>,
}

/// What a request holds while a lane has it.
struct Ticket {
    orders: usize,
    recorded: Arc<OnceLock<Vec<Created>>>,
    ended: oneshot::Receiver<Placed>,
}

impl Intake {
    pub fn open(coordinator: Arc<Coordinator>, settings: IntakeSettings) -> Self {
        let (stop, _) = watch::channel(false);
        let mut running = JoinSet::new();
        let ends = Arc::new(Ends::default());
        let supervisor = Arc::new(Supervisor::new(Arc::clone(coordinator.readiness()), "lanes", settings.pauses));
        let mut lane = |begin, room: usize| {
            let (sender, jobs) = mpsc::channel(room.max(1));
            let (coordinator, ends) = (Arc::clone(&coordinator), Arc::clone(&ends));
            let lane = Lane::new(coordinator, jobs, settings.ahead.max(1), begin, ends);
            let (supervisor, stopped) = (Arc::clone(&supervisor), stop.subscribe());
            running.spawn(async move {
                let lane = tokio::sync::Mutex::new(lane);
                supervisor.run(|| async { lane.lock().await.run(stopped.clone()).await }).await;
            });
            sender
        };
        let lanes = (0..settings.lanes.max(1)).map(|_| lane(Begin::Now, settings.queue)).collect();
        let parking = lane(Begin::Later, PARKED);
        Self {
            coordinator,
            lanes,
            room: Arc::new(Semaphore::new(settings.queue)),
            parking,
            parked: Arc::new(Semaphore::new(PARKED)),
            shares: Shares::of(settings.queue),
            ends,
            settings,
            stop,
            running: tokio::sync::Mutex::new(running),
        }
    }

    pub const fn coordinator(&self) -> &Arc<Coordinator> {
        &self.coordinator
    }

    /// Has one order recorded, waits a little for its end, and says where it stands.
    pub async fn place_one(&self, order: TransferOrder) -> Result<Created, IntakeError> {
        self.place(vec![order]).await.pop().unwrap_or(Err(IntakeError::Late))
    }

    /// The same for many orders of one user, each with its own outcome: a long request is recorded in parts.
    pub async fn place(&self, orders: Vec<TransferOrder>) -> Vec<Result<Created, IntakeError>> {
        let count = orders.len();
        let Some(first) = orders.first() else { return Vec::new() };
        let lane = usize::try_from(first.user.get()).unwrap_or(0) % self.lanes.len();
        let nothing = |error: IntakeError| (0..count).map(|_| Err(error.clone())).collect();
        let Some(share) = self.shares.take(first.user, count) else { return nothing(IntakeError::UserBusy) };
        let permits = u32::try_from(count).unwrap_or(u32::MAX);
        let (lane, permit, begin) = match Arc::clone(&self.room).try_acquire_many_owned(permits) {
            Ok(permit) => (&self.lanes[lane], permit, Begin::Now),
            Err(_) => match Arc::clone(&self.parked).try_acquire_many_owned(permits) {
                Ok(permit) => (&self.parking, permit, Begin::Later),
                Err(_) => return nothing(IntakeError::Full),
            },
        };
        if begin == Begin::Later {
            self.coordinator.metrics().transfers_parked.fetch_add(count as u64, Ordering::Relaxed);
        }
        let mut deadline = pin!(sleep(self.settings.wait));
        let mut waited = self.settings.wait;
        let mut placed = Vec::with_capacity(count);
        for ticket in hand_in(lane, orders, Room { _share: share, _permit: permit }) {
            match ticket {
                Ok(ticket) => {
                    placed.extend(ticket.answer(deadline.as_mut(), &mut waited, self.settings.patience).await)
                }
                Err((count, error)) => placed.extend((0..count).map(|_| Err(error.clone()))),
            }
        }
        // A request that was only written down does not wait for an end, whoever made its transfer.
        if begin == Begin::Now {
            self.follow(&mut placed, deadline).await;
        }
        placed
    }

    /// Waits for transfers that an earlier request has made, as that request does, until the deadline. Whoever drives
    /// them in this process says so; another process changes their rows.
    async fn follow(&self, placed: &mut [Result<Created, IntakeError>], mut deadline: Pin<&mut Sleep>) {
        let mut open: Vec<&mut Transfer> = placed.iter_mut().filter_map(open_duplicate).collect();
        if open.is_empty() {
            return;
        }
        let ids = |open: &[&mut Transfer]| open.iter().map(|transfer| transfer.id).collect::<Vec<Id<id::Transfer>>>();
        let mut listener = self.ends.listen(ids(&open));
        // It may have ended before we listened.
        let mut pause = Duration::ZERO;
        while !open.is_empty() {
            let found = tokio::select! {
                () = deadline.as_mut() => return,
                transfer = listener.told() => {
                    let id = transfer.id;
                    let known = open.iter_mut().filter(|one| one.id == id);
                    known.for_each(|one| one.clone_from(&transfer));
                    open.retain(|one| one.id != id);
                    continue;
                }
                found = self.look(pause, ids(&open)) => found,
            };
            for transfer in found {
                let known = open.iter_mut().filter(|one| one.id == transfer.id);
                known.for_each(|one| one.clone_from(&transfer));
            }
            open.retain(|one| !one.state.is_terminal());
            pause = (pause * 2).clamp(FIRST_LOOK, LONGEST_LOOK);
        }
    }

    /// The rows of these transfers, after a pause. A database that does not answer is asked again.
    async fn look(&self, pause: Duration, ids: Vec<Id<id::Transfer>>) -> Vec<Transfer> {
        sleep(pause).await;
        match self.coordinator.db().read().await {
            Ok(mut tx) => store::transfer::read(&mut tx, &ids).await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// Takes no more requests, and waits until those that were taken have ended or are left to the scanner.
    pub async fn close(&self) {
        self.stop.send_replace(true);
        let mut running = self.running.lock().await;
        while running.join_next().await.is_some() {}
    }
}

fn open_duplicate(one: &mut Result<Created, IntakeError>) -> Option<&mut Transfer> {
    match one {
        Ok(Created::Duplicate(transfer)) if !transfer.state.is_terminal() => Some(transfer),
        Ok(Created::Duplicate(_) | Created::New(_) | Created::Rejected(_)) | Err(_) => None,
    }
}

/// Hands the orders to a lane, a turn at a time. For each part a ticket, or how many orders were not taken, and why.
fn hand_in(
    lane: &mpsc::Sender<Job>,
    mut orders: Vec<TransferOrder>,
    room: Room,
) -> Vec<Result<Ticket, (usize, IntakeError)>> {
    let room = Arc::new(room);
    let mut tickets = Vec::with_capacity(orders.len().div_ceil(TURN));
    while let Some(first) = orders.first() {
        let user = first.user;
        let later = orders.split_off(orders.len().min(TURN));
        let count = orders.len();
        let (ended, placed) = oneshot::channel();
        let recorded = Arc::new(OnceLock::new());
        let job = Job {
            user,
            orders,
            _room: Arc::clone(&room),
            recorded: Arc::clone(&recorded),
            ended,
            span: Span::current(),
        };
        tickets.push(match lane.try_send(job) {
            Ok(()) => Ok(Ticket { orders: count, recorded, ended: placed }),
            Err(mpsc::error::TrySendError::Closed(_)) => Err((count, IntakeError::Stopping)),
            // A lane has as many places as there is room for orders.
            Err(mpsc::error::TrySendError::Full(_)) => Err((count, IntakeError::Full)),
        });
        orders = later;
    }
    tickets
}

impl Ticket {
    /// Waits for the end until the deadline, and after it only until the orders are recorded. `waited` counts on.
    async fn answer(
        mut self,
        mut deadline: Pin<&mut Sleep>,
        waited: &mut Duration,
        patience: Duration,
    ) -> Vec<Result<Created, IntakeError>> {
        let all = |created: Vec<Created>| created.into_iter().map(Ok).collect();
        let none = |error: IntakeError| (0..self.orders).map(|_| Err(error.clone())).collect();
        loop {
            let glance = if self.recorded.get().is_some() { Duration::ZERO } else { GLANCE };
            let late = deadline.is_elapsed();
            let ended = tokio::select! {
                biased;
                ended = &mut self.ended => Some(ended),
                () = deadline.as_mut(), if !late => None,
                () = sleep(glance), if late => {
                    *waited += glance;
                    None
                }
            };
            match ended {
                Some(Ok(Ok(created))) => return all(created),
                Some(Ok(Err(error))) => return none(IntakeError::Coordinator(error)),
                // The lane has ended without an answer. It may have recorded the request before that.
                Some(Err(_)) => return self.recorded.get().cloned().map_or_else(|| none(IntakeError::Late), all),
                None => {}
            }
            // It has not ended. From now on it is enough that it is recorded.
            if let Some(created) = self.recorded.get() {
                return all(created.clone());
            }
            if *waited >= patience {
                return none(IntakeError::Late);
            }
        }
    }
}
