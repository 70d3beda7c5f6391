//! The scheduler: one thing at a time, chosen from the seed.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use domain::id::{self, Generator, NodeId};
use domain::random::Random;
use domain::{Clock, ManualClock, Timestamp};
use spot::SpotError;
use store::{Db, StoreError};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;
use transfer::create::{Begin, Created};

use super::clients::Clients;
use super::engine::SimEngine;
use super::laws::{self, Ground, unread};
use super::process::{CreateStatus, Life, Process};
use super::proof::Proof;
use super::report::Report;
use super::trouble::Side;
use super::turn::{self, Ended};
use super::world::{Shared, World};
use super::{ground, turn::Work};

#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A law was broken.
    #[error("{0}")]
    Broken(String),
    #[error("the simulation could not be set up: {0}")]
    SetUp(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Spot(#[from] SpotError),
}

/// When a run begins, in microseconds since 1970: a day of 2027. Any day after 2024, where ids begin, would do.
const START: i64 = 1_800_000_000_000_000;
pub(super) const PROCESSES: usize = 3;
/// How many tasks a process works on at a time.
const TASKS: usize = 3;
/// The most orders that come together.
const BATCH: usize = 20;
pub(super) const MINUTE: i64 = 60 * 1_000_000;
/// The node number that changes of accounts' statuses are made with. Processes have the numbers below it.
const ADMIN: u16 = 1_023;

/// Makes so many transfers, drives all to their end, and proves that nothing was created, lost or stranded. The folder
/// must be empty: a database is made in it.
pub async fn run(
    seed: u64,
    transfers: u64,
    folder: &Path,
    progress: &mut dyn FnMut(&Report),
) -> Result<Report, SimError> {
    let run = async {
        let simulation = Simulation::new(seed, folder).await?;
        let db = simulation.db.clone();
        let result = simulation.run(transfers, progress).await;
        db.close().await;
        result
    };
    // The errors are meant to happen, and a log would be full of them.
    run.with_subscriber(NoSubscriber::default()).await
}

pub(super) struct Simulation {
    pub(super) db: Db,
    pub(super) world: Shared,
    pub(super) ground: Ground,
    processes: Vec<Process>,
    /// How many processes were started so far.
    started: u64,
    pub(super) admin: Generator<Arc<dyn Clock>>,
    pub(super) status_changes: u64,
    /// Accounts that are frozen or disabled.
    pub(super) troubled: VecDeque<Side>,
    /// The proof over samples of ended transfers, while the run goes on.
    sampled: Proof,
}

impl Simulation {
    async fn new(seed: u64, folder: &Path) -> Result<Self, SimError> {
        let mut random = Random::from_seed(seed);
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
        let engine = SimEngine::new(&mut random)?;
        // In one half of a run withdrawals from the engine only freeze, until they are committed. Which half is drawn.
        let freezes = random.below(2) == 0;
        let (db, ground) = ground::lay(folder, clock.now(), freezes).await?;
        let clients = Clients::of(ground.assets.values().copied().collect());
        let world = World {
            random,
            report: Report::default(),
            clock: Arc::clone(&clock),
            turn: 0,
            calm: false,
            yielded: None,
            engine,
            outage_until: 0,
            late: Vec::new(),
            in_flight: BTreeMap::new(),
            lives: (0..PROCESSES).map(|_| Life::default()).collect(),
            clients,
            broken: None,
        };
        let world = Shared(Arc::new(Mutex::new(world)));
        let node = NodeId::new(ADMIN).ok_or_else(|| SimError::SetUp("no node number".to_owned()))?;
        let admin = Generator::new(clock as Arc<dyn Clock>, node);
        let mut simulation = Self {
            db,
            world,
            ground,
            processes: Vec::new(),
            started: 0,
            admin,
            status_changes: 0,
            troubled: VecDeque::new(),
            sampled: Proof::default(),
        };
        for process in 0..PROCESSES {
            let started = simulation.start(process);
            simulation.processes.push(started);
        }
        Ok(simulation)
    }

    /// Starts a process with a node number that no process has had for a long time.
    fn start(&mut self, process: usize) -> Process {
        self.started += 1;
        let node = u16::try_from(self.started % u64::from(ADMIN)).unwrap_or(0);
        self.world.lock().pass(2_000);
        Process::start(&self.db, &self.world, process, node, self.ground.freezes)
    }

    async fn run(mut self, transfers: u64, progress: &mut dyn FnMut(&Report)) -> Result<Report, SimError> {
        let held = self.all_of_it(transfers, progress).await;
        let report = self.world.lock().report.clone();
        match held {
            Ok(()) => Ok(report),
            Err(law) => {
                let Report { transfers, turns, hash, .. } = report;
                Err(SimError::Broken(format!("after {transfers} transfers, turn {turns}, run {hash:016x}: {law}")))
            }
        }
    }

    async fn all_of_it(&mut self, transfers: u64, progress: &mut dyn FnMut(&Report)) -> Result<(), String> {
        self.until(transfers.div_ceil(2), progress).await?;
        self.drain().await?;
        // The second half: an engine of the other kind takes over when nothing is on its way.
        self.ground.freezes = !self.ground.freezes;
        self.world.lock().calm = false;
        for process in 0..PROCESSES {
            self.kill(process).await?;
        }
        self.until(transfers, progress).await?;
        self.drain().await?;
        self.prove().await
    }

    async fn until(&mut self, transfers: u64, progress: &mut dyn FnMut(&Report)) -> Result<(), String> {
        let mut made = self.world.lock().report.transfers;
        while made < transfers {
            self.turn().await?;
            let report = self.world.lock().report.clone();
            made = report.transfers;
            progress(&report);
        }
        Ok(())
    }

    async fn turn(&mut self) -> Result<(), String> {
        let (choice, due) = {
            let mut world = self.world.lock();
            world.turn += 1;
            world.report.turns += 1;
            let tick = i64::try_from(world.random.below(100_000)).unwrap_or(0);
            world.pass(tick);
            // The next random number depends on every draw so far, so the hash covers all of them.
            let drawn = world.random.clone().next_u64().cast_signed();
            world.note(1, &[drawn]);
            let turn = world.turn;
            (world.random.below(1_000), world.late.iter().position(|late| late.turn <= turn))
        };
        if let Some(at) = due {
            self.deliver(at);
        }
        match choice {
            0..640 => self.resume().await?,
            640..880 => self.begin(),
            880..930 => self.change_status().await?,
            930..933 => self.kill_one().await?,
            933..936 => self.stop_engine(),
            936..941 => self.snapshot(),
            941..943 => self.lose_line(),
            943..946 => self.lose_database(),
            946..948 => self.jump().await?,
            948..952 => self.check().await?,
            _ => self.recover_engine().await?,
        }
        match self.world.lock().broken.take() {
            Some(broken) => Err(broken),
            None => Ok(()),
        }
    }

    // ---- tasks -------------------------------------------------------------------------------------------------

    /// Starts something on some process.
    fn begin(&mut self) {
        let mut world = self.world.lock();
        let process = world.random.index(PROCESSES);
        if self.processes[process].tasks.len() >= TASKS {
            return;
        }
        match world.random.below(20) {
            0..15 if world.lives[process].creating.is_none() => {
                // Half of the batches are as large as can be, so that a run makes its transfers in fewer turns.
                let count = if world.random.below(2) == 0 { BATCH } else { 1 + world.random.index(BATCH) };
                let World { clients, random, .. } = &mut *world;
                let orders: Vec<_> = (0..count).map(|_| clients.next_order(random)).collect();
                let begin = if random.below(6) == 0 { Begin::Later } else { Begin::Now };
                world.begin_create(process, orders.clone());
                drop(world);
                self.processes[process].place(&self.world, process, orders, begin);
            }
            0..19 => {
                drop(world);
                self.processes[process].scan(&self.world);
            }
            _ => {
                let World { clients, random, .. } = &mut *world;
                let mut rows = BTreeMap::new();
                for _ in 0..clients.rows.len().min(12) {
                    let row = &clients.rows[random.index(clients.rows.len())];
                    rows.insert(row.id, row.clone());
                }
                world.report.steps_on_old_rows += 1;
                drop(world);
                self.processes[process].step(&self.world, rows.into_values().collect());
            }
        }
    }

    /// Lets one of the tasks go on.
    async fn resume(&mut self) -> Result<(), String> {
        let tasks: usize = self.processes.iter().map(|process| process.tasks.len()).sum();
        if tasks == 0 {
            self.begin();
            return Ok(());
        }
        let mut at = self.world.lock().random.index(tasks);
        let mut process = 0;
        while at >= self.processes[process].tasks.len() {
            at -= self.processes[process].tasks.len();
            process += 1;
        }
        self.run_task(process, at).await.map(|_| ())
    }

    async fn run_task(&mut self, process: usize, at: usize) -> Result<Ended, String> {
        let work: &mut Work = &mut self.processes[process].tasks[at];
        let ended = turn::run(&self.world, work).await;
        match ended {
            Ended::Parked => {}
            Ended::Done => drop(self.processes[process].tasks.swap_remove(at)),
            Ended::Died => {
                self.kill(process).await?;
                return Ok(ended);
            }
        }
        self.settle(process).await?;
        Ok(ended)
    }

    /// Compares the answer of a create that has ended with the database: always if the answer is not certain, and now
    /// and then if it is.
    async fn settle(&mut self, process: usize) -> Result<(), String> {
        let creating = {
            let mut world = self.world.lock();
            let life = &mut world.lives[process];
            match life.creating.as_ref().map(|creating| &creating.status) {
                None | Some(CreateStatus::Open) => return Ok(()),
                Some(_) => life.creating.take(),
            }
        };
        let Some(creating) = creating else { return Ok(()) };
        if let CreateStatus::Told(created) = &creating.status {
            let new = created.iter().filter_map(|one| match one {
                Created::New(transfer) => Some(transfer.id.number()),
                Created::Duplicate(_) | Created::Rejected(_) => None,
            });
            let newest = new.max();
            let mut world = self.world.lock();
            if !creating.doubtful && world.random.below(16) != 0 {
                world.lives[process].newest = world.lives[process].newest.max(newest.unwrap_or(0));
                return Ok(());
            }
        }
        laws::resolve(&self.db, &self.world, process, creating).await
    }

    async fn kill_one(&mut self) -> Result<(), String> {
        let process = {
            let mut world = self.world.lock();
            world.report.killed_at_rest += 1;
            world.random.index(PROCESSES)
        };
        self.kill(process).await
    }

    /// All tasks of the process are gone, and another process takes its place.
    async fn kill(&mut self, process: usize) -> Result<(), String> {
        self.processes[process].tasks.clear();
        let creating = self.world.lock().lives[process].creating.take();
        if let Some(creating) = creating {
            laws::resolve(&self.db, &self.world, process, creating).await?;
        }
        self.processes[process] = self.start(process);
        self.check().await
    }

    // ---- the laws ----------------------------------------------------------------------------------------------

    pub(super) async fn check(&mut self) -> Result<(), String> {
        laws::check(&self.db, &self.world, &self.ground).await?;
        let (checks, below, now) = {
            let world = self.world.lock();
            let oldest = world.clients.open.keys().next().copied().unwrap_or(i64::MAX);
            let creating = world.lives.iter().filter_map(|life| Some(id::first_at(life.creating.as_ref()?.since)));
            let below = creating.min().unwrap_or(i64::MAX).min(oldest).min(id::first_at(world.now()));
            (world.report.law_checks, below, world.now())
        };
        if checks.is_multiple_of(16) {
            self.db.checkpoint(now).await.map_err(|error| unread(&error))?;
        }
        if checks.is_multiple_of(4) {
            self.sampled.sample(&self.db, &self.world, below).await?;
        }
        Ok(())
    }

    /// From here on nothing goes wrong any more, and every transfer must end.
    async fn drain(&mut self) -> Result<(), String> {
        for process in 0..PROCESSES {
            let killed = self.world.lock().random.below(2) == 0;
            if killed {
                self.kill(process).await?;
            }
        }
        {
            let mut world = self.world.lock();
            world.calm = true;
            (world.outage_until, world.engine.behind_micros) = (0, 0);
        }
        self.recover_engine().await?;
        for process in 0..PROCESSES {
            while !self.processes[process].tasks.is_empty() {
                self.run_task(process, 0).await?;
            }
        }
        let half = self.world.lock().late.len() / 2;
        (0..half).for_each(|_| self.deliver(0));
        for _ in 0..1_000 {
            self.world.lock().pass(2 * MINUTE);
            self.processes[0].scan(&self.world);
            self.run_task(0, 0).await?;
            let open = async { store::transfer::read::count_open(&mut self.db.read().await?).await };
            let (open, _) = open.await.map_err(|error| unread(&error))?;
            if let Some(broken) = self.world.lock().broken.take() {
                return Err(broken);
            }
            if open == 0 {
                while !self.world.lock().late.is_empty() {
                    self.deliver(0);
                }
                return self.check().await;
            }
        }
        let open = async { store::transfer::open(&mut self.db.read().await?, 0, 3).await };
        let open = open.await.map_err(|error| unread(&error))?;
        Err(format!("these are stranded: {open:?}"))
    }

    async fn prove(&mut self) -> Result<(), String> {
        let mut proof = Proof::default();
        while proof.go_on(&self.db, &self.world).await? {}
        proof.end(&self.db, &self.world, &self.ground).await?;
        proof.tell(&mut self.world.lock().report);
        let audit = self.db.audit(|_| {}).await.map_err(|error| unread(&error))?;
        if audit.clean() { Ok(()) } else { Err(format!("the audit finds: {:?}", audit.findings)) }
    }
}
