//! A simulated process: a coordinator of its own, and the tasks that it runs until it is killed.

use std::sync::Arc;
use std::time::Duration;

use domain::id::NodeId;
use domain::transfer::{Rejection, State, Transfer};
use domain::{Clock, Timestamp};
use store::{Db, StoreError};
use transfer::coordinator::{Coordinator, CoordinatorError};
use transfer::create::{Begin, Created, TransferOrder};
use transfer::id_maker::IdMaker;
use transfer::metrics::Metrics;
use transfer::scanner;
use transfer::settings::Settings;

use super::clients::DAILY_TRANSFERS;
use super::database::Database;
use super::line::SimLeg;
use super::turn::Work;
use super::world::{Shared, World};

/// What the simulator remembers of a process while it lives.
#[derive(Default)]
pub(crate) struct Life {
    pub node: u16,
    /// The newest transfer that it is known to have made.
    pub newest: i64,
    /// The create that it is working on; one at a time.
    pub creating: Option<Creating>,
    /// The database is out of its reach before this turn.
    pub cut_off_until: u64,
}

pub(crate) struct Creating {
    pub orders: Vec<TransferOrder>,
    pub since: Timestamp,
    /// The process has committed a transaction since the create began.
    committed: bool,
    /// A commit of the process was not answered since then.
    pub doubtful: bool,
    pub status: CreateStatus,
}

/// What is known of a create.
#[derive(Debug)]
pub(crate) enum CreateStatus {
    /// The process works on it, or has died.
    Open,
    /// The client was told what became of each order.
    Told(Vec<Created>),
    /// The client was told that nothing was recorded.
    Nothing,
    /// The client was told that it is not known.
    Unknown,
}

impl Life {
    pub const fn committed(&mut self) {
        if let Some(creating) = &mut self.creating {
            creating.committed = true;
        }
    }

    pub const fn doubt(&mut self) {
        if let Some(creating) = &mut self.creating {
            creating.doubtful = true;
        }
    }
}

impl Creating {
    /// Whether any of its transfers may be in the database.
    pub fn may_be_recorded(&self) -> bool {
        self.committed && !matches!(self.status, CreateStatus::Nothing)
    }
}

pub(crate) struct Process {
    pub coordinator: Arc<Coordinator>,
    pub tasks: Vec<Work>,
}

/// In a process that gives calls up by the machine's clock, a call that is not answered ends after this time. No other
/// task runs meanwhile.
const IMPATIENCE: Duration = Duration::from_millis(1);
/// In other processes no call is ever given up: a century is longer than any run.
const PATIENCE: Duration = Duration::from_secs(100 * 365 * 86_400);

impl Process {
    pub fn start(db: &Db, world: &Shared, process: usize, node: u16, freezes: bool) -> Self {
        let (clock, impatient) = {
            let mut world = world.lock();
            world.lives[process] = Life { node, ..Life::default() };
            (Arc::clone(&world.clock) as Arc<dyn Clock>, world.chance(25_000))
        };
        let db = db.with_faults(Arc::new(Database { world: world.clone(), process }));
        let leg = Arc::new(SimLeg::new(world, impatient, freezes));
        // The lease never runs out: leases have tests of their own.
        let far = Timestamp::from_micros(i64::MAX);
        let number = NodeId::new(node % NodeId::COUNT).expect("below the count");
        let ids = Arc::new(IdMaker::fixed(number, Arc::clone(&clock), format!("process {process}"), far));
        let call_timeout = if impatient { IMPATIENCE } else { PATIENCE };
        // No other timeout may end a call: the task would go on without having given its turn back.
        let (slack, glance) = (Duration::ZERO, call_timeout);
        let settings =
            Settings { call_timeout, slack, glance, daily_transfers: DAILY_TRANSFERS, ..Settings::default() };
        let metrics = Arc::new(Metrics::default());
        let coordinator = Arc::new(Coordinator::new(db, leg, clock, ids, settings, metrics));
        Self { coordinator, tasks: Vec::new() }
    }

    /// Records orders and drives their transfers, as the intake does.
    pub fn place(&mut self, world: &Shared, process: usize, orders: Vec<TransferOrder>, begin: Begin) {
        let (world, coordinator) = (world.clone(), Arc::clone(&self.coordinator));
        self.tasks.push(Box::pin(async move {
            let created = coordinator.create(&orders, begin).await;
            let new = world.lock().created(process, created);
            if begin == Begin::Now && !new.is_empty() {
                step(&world, &coordinator, new).await;
            }
        }));
    }

    pub fn scan(&mut self, world: &Shared) {
        let (world, coordinator) = (world.clone(), Arc::clone(&self.coordinator));
        self.tasks.push(Box::pin(async move {
            match scanner::scan_once(&coordinator).await {
                Ok(taken) => world.lock().note(10, &[i64::try_from(taken).unwrap_or(0)]),
                Err(error) => world.lock().meet(&error, "the scanner"),
            }
        }));
    }

    /// Drives transfers by rows that may be old by now.
    pub fn step(&mut self, world: &Shared, rows: Vec<Transfer>) {
        let (world, coordinator) = (world.clone(), Arc::clone(&self.coordinator));
        self.tasks.push(Box::pin(async move { step(&world, &coordinator, rows).await }));
    }
}

async fn step(world: &Shared, coordinator: &Coordinator, batch: Vec<Transfer>) {
    let count = batch.len();
    let stepped = coordinator.step(batch).await;
    let mut world = world.lock();
    match stepped {
        Err(error) => world.meet(&error, "a step"),
        Ok(transfers) if transfers.len() != count => {
            world.breaks(format!("a step of {count} transfers came back with {}", transfers.len()));
        }
        Ok(transfers) => {
            for transfer in &transfers {
                world.note(11, &[transfer.id.number(), transfer.state.number().into(), transfer.tries]);
                world.clients.see(transfer);
                if let Err(broken) = world.clients.tell(transfer) {
                    world.breaks(broken);
                }
            }
        }
    }
}

impl World {
    /// An error that the simulator did not cause is a defect.
    fn meet(&mut self, error: &StoreError, who: &str) {
        self.note(12, &[]);
        match error {
            StoreError::Unavailable(_) | StoreError::CommitUnknown(_) if !self.calm => {}
            other => self.breaks(format!("{who} met: {other} ({other:?})")),
        }
    }

    pub fn begin_create(&mut self, process: usize, orders: Vec<TransferOrder>) {
        self.report.batches += 1;
        self.report.wishes += orders.len() as u64;
        let since = self.now();
        let creating = Creating { orders, since, committed: false, doubtful: false, status: CreateStatus::Open };
        self.lives[process].creating = Some(creating);
    }

    /// A create has ended. Returns the transfers that must be driven on.
    fn created(&mut self, process: usize, created: Result<Vec<Created>, CoordinatorError>) -> Vec<Transfer> {
        let (status, new) = match created {
            Ok(created) => {
                let new = created.iter().filter_map(|one| match one {
                    Created::New(transfer) => Some(transfer.clone()),
                    Created::Duplicate(_) | Created::Rejected(_) => None,
                });
                let new = new.collect();
                (CreateStatus::Told(created), new)
            }
            Err(CoordinatorError::Unknown { .. }) => (CreateStatus::Unknown, Vec::new()),
            Err(CoordinatorError::Store(error)) => {
                self.meet(&error, "a create");
                (CreateStatus::Nothing, Vec::new())
            }
            Err(error @ (CoordinatorError::NoLease(_) | CoordinatorError::NotReady { .. })) => {
                self.breaks(format!("a create met: {error}"));
                (CreateStatus::Nothing, Vec::new())
            }
        };
        if let CreateStatus::Told(created) = &status {
            self.acknowledge(process, created);
        }
        if let Some(creating) = &mut self.lives[process].creating {
            creating.status = status;
        }
        new
    }

    /// The client hears what became of its orders.
    fn acknowledge(&mut self, process: usize, created: &[Created]) {
        let Some(creating) = &self.lives[process].creating else { return };
        let orders = creating.orders.clone();
        if orders.len() != created.len() {
            self.breaks(format!("{} orders were answered {} times", orders.len(), created.len()));
        }
        for (order, created) in orders.iter().zip(created) {
            let result = self.clients.check(order, created).and_then(|()| match created {
                // The account was locked when the order was accepted: the ledger cannot refuse it in the same commit.
                Created::New(transfer) if transfer.state == State::Failed => {
                    Err(format!("accepted and refused at once: {transfer:?}"))
                }
                Created::New(transfer) => {
                    self.report.transfers += 1;
                    self.note(13, &[transfer.id.number(), transfer.state.number().into()]);
                    self.clients.record(transfer)
                }
                Created::Duplicate(transfer) => {
                    self.report.duplicates += 1;
                    self.report.names_sent_again += 1;
                    self.note(14, &[transfer.id.number(), transfer.state.number().into()]);
                    self.clients.tell(transfer)
                }
                Created::Rejected(rejection) => {
                    self.report.rejected += 1;
                    let other = *rejection == Rejection::DuplicateRequest;
                    self.report.names_with_other_content += u64::from(other);
                    self.report.daily_counts_full += u64::from(*rejection == Rejection::DailyLimitExceeded);
                    self.report.daily_amounts_full += u64::from(*rejection == Rejection::DailyAmountExceeded);
                    self.note(15, &[i64::from(other)]);
                    Ok(())
                }
            });
            if let Err(broken) = result {
                self.breaks(broken);
            }
        }
    }
}
