//! A simulated process: a coordinator of its own, and the tasks that it runs until it is killed.

use std::sync::Arc;
use std::time::Duration;

use domain::id::NodeId;
use domain::transfer::{Rejection, State, Transfer};
use domain::{Clock, Timestamp};
use store::{Db, StoreError};

use super::database::Database;
use super::line::SimLeg;
use super::turn::Work;
use super::world::{Shared, World};
use transfer::coordinator::{Coordinator, CoordinatorError};
use transfer::create::{Begin, Created, Wish};
use transfer::metrics::Metrics;
use transfer::id_maker::Node;
use transfer::scanner;
use transfer::settings::Settings;

/// What is remembered of a process while it lives.
#[derive(Default)]
pub(crate) struct Life {
    pub node: u16,
    /// The newest transfer that it is known to have made.
    pub newest: i64,
    /// The create that it is at; one at a time.
    pub creating: Option<Creating>,
    /// The database is out of its reach before this turn.
    pub cut_off_until: u64,
}

pub(crate) struct Creating {
    pub wishes: Vec<Wish>,
    pub since: Timestamp,
    /// Something was committed meanwhile.
    committed: bool,
    /// A commit without an answer was among it.
    pub doubtful: bool,
    pub outcome: Outcome,
}

/// What is known of a create.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is at it, or has died.
    Open,
    /// Recorded, and told to be.
    Told(Vec<Created>),
    /// Told that nothing was recorded.
    Nothing,
    /// Told that it is not known.
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
    /// Whether any transfer of it may be there.
    pub fn may_be_recorded(&self) -> bool {
        self.committed && !matches!(self.outcome, Outcome::Nothing)
    }
}

pub(crate) struct Process {
    pub coordinator: Arc<Coordinator>,
    pub tasks: Vec<Work>,
}

/// A call that is given up by the clock ends soon: nothing else can happen meanwhile.
const IMPATIENCE: Duration = Duration::from_millis(1);
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
        let far = Timestamp::from_micros(i64::MAX);
        let number = NodeId::new(node % NodeId::COUNT).expect("below the count");
        let node = Arc::new(Node::fixed(number, Arc::clone(&clock), format!("process {process}"), far));
        let call_timeout = if impatient { IMPATIENCE } else { PATIENCE };
        // No other clock may decide anything: a future that is given up by one has not given its turn back.
        let (slack, glance) = (Duration::ZERO, call_timeout);
        let settings = Settings { call_timeout, slack, glance, daily_transfers: 0, ..Settings::default() };
        let metrics = Arc::new(Metrics::default());
        let coordinator = Arc::new(Coordinator::new(db, leg, clock, node, settings, metrics));
        Self { coordinator, tasks: Vec::new() }
    }

    /// Records wishes and drives them, as the desk does.
    pub fn place(&mut self, world: &Shared, process: usize, wishes: Vec<Wish>, begin: Begin) {
        let (world, coordinator) = (world.clone(), Arc::clone(&self.coordinator));
        self.tasks.push(Box::pin(async move {
            let created = coordinator.create(&wishes, begin).await;
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

    /// Drives rows as somebody saw them once.
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
    /// An error that was not made here is a defect.
    fn meet(&mut self, error: &StoreError, who: &str) {
        self.note(12, &[]);
        match error {
            StoreError::Unavailable(_) | StoreError::CommitUnknown(_) if !self.calm => {}
            other => self.breaks(format!("{who} met: {other} ({other:?})")),
        }
    }

    pub fn begin_create(&mut self, process: usize, wishes: Vec<Wish>) {
        self.report.batches += 1;
        self.report.wishes += wishes.len() as u64;
        let since = self.now();
        let creating = Creating { wishes, since, committed: false, doubtful: false, outcome: Outcome::Open };
        self.lives[process].creating = Some(creating);
    }

    /// A create has ended; what is to be driven on.
    fn created(&mut self, process: usize, created: Result<Vec<Created>, CoordinatorError>) -> Vec<Transfer> {
        let (outcome, new) = match created {
            Ok(created) => {
                let new = created.iter().filter_map(|one| match one {
                    Created::New(transfer) => Some(transfer.clone()),
                    Created::Duplicate(_) | Created::Rejected(_) => None,
                });
                let new = new.collect();
                (Outcome::Told(created), new)
            }
            Err(CoordinatorError::Unknown { .. }) => (Outcome::Unknown, Vec::new()),
            Err(CoordinatorError::Store(error)) => {
                self.meet(&error, "a create");
                (Outcome::Nothing, Vec::new())
            }
            Err(CoordinatorError::NoLease(error)) => {
                self.breaks(format!("a create met: {error}"));
                (Outcome::Nothing, Vec::new())
            }
        };
        if let Outcome::Told(created) = &outcome {
            self.acknowledge(process, created);
        }
        if let Some(creating) = &mut self.lives[process].creating {
            creating.outcome = outcome;
        }
        new
    }

    /// The client hears what became of its wishes.
    fn acknowledge(&mut self, process: usize, created: &[Created]) {
        let Some(creating) = &self.lives[process].creating else { return };
        let wishes = creating.wishes.clone();
        if wishes.len() != created.len() {
            self.breaks(format!("{} wishes were answered {} times", wishes.len(), created.len()));
        }
        for (wish, created) in wishes.iter().zip(created) {
            let result = self.clients.check(wish, created).and_then(|()| match created {
                // What is accepted was looked at under lock: nothing can refuse it in the same commit.
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
