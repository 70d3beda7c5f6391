//! The scheduler: one thing at a time, chosen from the seed.

use std::path::Path;
use std::sync::{Arc, Mutex};

use domain::random::Random;
use domain::{Clock, ManualClock, Timestamp};
use store::StoreError;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::super::turn::{self, Ended, Work};
use super::ground::Ground;
use super::judge::{Judge, unread};
use super::process;
use super::report::Report;
use super::world::{Shared, World};

#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A law was broken.
    #[error("{0}")]
    Broken(String),
    #[error("the simulation could not be set up: {0}")]
    SetUp(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// When a run begins, in microseconds since 1970: a day of 2027.
const START: i64 = 1_800_000_000_000_000;
/// Each chain has two workers, of which one waits.
const WORKERS: usize = 2;
pub(super) const SECOND: i64 = 1_000_000;
/// A rest comes after so many turns at the latest.
const LONGEST_UNREST: u64 = 1_500;

/// Mines so many blocks, and proves after every turn that the books are what the chains say. The folder must be empty: a
/// database is made in it.
pub async fn run(seed: u64, blocks: u64, folder: &Path, progress: &mut dyn FnMut(&Report)) -> Result<Report, SimError> {
    let run = async {
        let mut simulation = Simulation::new(seed, folder).await?;
        let held = simulation.all_of_it(blocks, progress).await;
        simulation.ground.db.close().await;
        let report = simulation.world.lock().report.clone();
        held.map_err(|law| {
            let Report { blocks, turns, hash, .. } = report;
            SimError::Broken(format!("after {blocks} blocks, turn {turns}, run {hash:016x}: {law}"))
        })?;
        Ok(report)
    };
    // The errors are meant to happen, and a log would be full of them.
    run.with_subscriber(NoSubscriber::default()).await
}

/// A worker of a chain, while it lives.
struct Process {
    net: usize,
    work: Option<Work>,
}

pub(super) struct Simulation {
    pub(super) ground: Ground,
    pub(super) world: Shared,
    pub(super) judge: Judge,
    processes: Vec<Process>,
    /// How many processes were started so far.
    started: u64,
    /// Users' numbers that were given out.
    pub(super) users: i64,
    pub(super) operations: u64,
    last_rest: u64,
    /// The next audit comes after so many blocks.
    next_audit: u64,
}

impl Simulation {
    async fn new(seed: u64, folder: &Path) -> Result<Self, SimError> {
        let mut random = Random::from_seed(seed);
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
        let (ground, nets) = Ground::lay(folder, &mut random, clock.now()).await?;
        let processes: Vec<Process> =
            (0..nets.len() * WORKERS).map(|at| Process { net: at / WORKERS, work: None }).collect();
        let world = World {
            random,
            report: Report::default(),
            clock,
            turn: 0,
            calm: false,
            yielded: None,
            nets,
            cut_off_until: vec![0; processes.len()],
            commits: 0,
            waits: vec![false; processes.len()],
            broken: None,
        };
        Ok(Self {
            ground,
            world: Shared(Arc::new(Mutex::new(world))),
            judge: Judge::default(),
            processes,
            started: 0,
            users: 0,
            operations: 0,
            last_rest: 0,
            next_audit: 1_000,
        })
    }

    async fn all_of_it(&mut self, blocks: u64, progress: &mut dyn FnMut(&Report)) -> Result<(), String> {
        for _ in 0..6 {
            self.issue().await?;
        }
        let mut mined = 0;
        while mined < blocks {
            self.turn().await?;
            let report = self.world.lock().report.clone();
            mined = report.blocks;
            progress(&report);
        }
        self.rest().await?;
        self.judge.look_at_all(&self.ground.db).await?;
        self.audit().await
    }

    async fn turn(&mut self) -> Result<(), String> {
        let (choice, net, overdue) = {
            let mut world = self.world.lock();
            world.turn += 1;
            world.report.turns += 1;
            let tick = i64::try_from(world.random.below(2_000_000)).unwrap_or(0);
            world.pass(tick);
            // The next random number depends on every draw so far, so the hash covers all of them.
            let drawn = world.random.clone().next_u64();
            world.note(1, &[drawn]);
            let nets = world.nets.len();
            let overdue = world.turn - self.last_rest > LONGEST_UNREST;
            (world.random.below(1_000), world.random.index(nets), overdue)
        };
        match choice {
            _ if overdue => self.rest().await?,
            0..610 => self.resume().await?,
            610..750 => self.mine(net),
            750..810 => self.spread(net),
            810..832 => self.issue().await?,
            832..848 => self.reorganise(net),
            848..888 => self.change_node(net),
            888..930 => self.spend().await?,
            930..940 => self.change_status().await?,
            940..946 => self.suspend().await?,
            946..960 => self.assign().await?,
            960..972 => self.jump(),
            972..982 => self.kill(),
            982..988 => self.lose_database(),
            988..996 => self.spread(net),
            _ => self.rest().await?,
        }
        match self.world.lock().broken.take() {
            Some(broken) => Err(broken),
            None => Ok(()),
        }
    }

    // ---- processes ---------------------------------------------------------------------------------------------

    /// Lets one of the workers go on, and looks at what it did.
    async fn resume(&mut self) -> Result<(), String> {
        let at = {
            let mut world = self.world.lock();
            let at = world.random.index(self.processes.len());
            // One that waits for a lease mostly leaves its turn to the one that has it.
            if world.waits[at] && world.random.below(8) != 0 { at ^ 1 } else { at }
        };
        self.run_process(at).await
    }

    async fn run_process(&mut self, at: usize) -> Result<(), String> {
        let net = self.processes[at].net;
        let mut work = match self.processes[at].work.take() {
            Some(work) => work,
            None => self.start(at, net),
        };
        let commits = self.world.lock().commits;
        match turn::run(&self.world, &mut work).await {
            Ended::Parked => self.processes[at].work = Some(work),
            Ended::Done => return Err("a worker ended".to_owned()),
            // It is dropped here, in the middle of what it did.
            Ended::Died => {}
        }
        if self.world.lock().commits > commits {
            self.judge.look(&self.ground.db, &self.world).await?;
        }
        match self.world.lock().broken.take() {
            Some(broken) => Err(broken),
            None => Ok(()),
        }
    }

    /// Half of those who are started have the name of the one before, and so take the chain at once.
    fn start(&mut self, at: usize, net: usize) -> Work {
        self.started += 1;
        let again = self.world.lock().random.below(2) == 0;
        let name = if again { format!("worker {at}") } else { format!("worker {at}, start {}", self.started) };
        process::start(&self.ground, &self.world, at, net, name)
    }

    fn kill(&mut self) {
        let mut world = self.world.lock();
        world.report.killed_at_rest += 1;
        let at = world.random.index(self.processes.len());
        self.processes[at].work = None;
    }

    // ---- rest --------------------------------------------------------------------------------------------------

    /// Nothing goes wrong for a while: the workers must come to rest, and everything must be as it should be.
    async fn rest(&mut self) -> Result<(), String> {
        if self.judge.suspended {
            self.suspend().await?;
        }
        {
            let mut world = self.world.lock();
            world.calm = true;
            let turn = world.turn;
            for net in &mut world.nets {
                net.heal(turn);
                net.idle_rounds = 0;
            }
            world.cut_off_until.fill(0);
        }
        for turns in 0.. {
            if turns % 16 == 0 {
                // Whoever died has a lease that runs out.
                self.world.lock().pass(130 * SECOND);
            }
            for at in 0..self.processes.len() {
                self.run_process(at).await?;
            }
            if self.world.lock().nets.iter().all(|net| net.idle_rounds >= 2) {
                break;
            }
            if turns > 3_000 {
                return Err("the workers never come to rest".to_owned());
            }
        }
        self.judge.look_at_rest(&self.ground, &self.world).await?;
        let (now, blocks) = {
            let mut world = self.world.lock();
            (world.calm, self.last_rest) = (false, world.turn);
            (world.now(), world.report.blocks)
        };
        if self.judge.rests.is_multiple_of(8) {
            self.ground.db.checkpoint(now).await.map_err(|error| unread(&error))?;
        }
        if blocks >= self.next_audit {
            self.next_audit = blocks + blocks / 2;
            self.audit().await?;
        }
        Ok(())
    }

    async fn audit(&self) -> Result<(), String> {
        self.world.lock().report.audits += 1;
        let audit = self.ground.db.audit(|_| {}).await.map_err(|error| unread(&error))?;
        if audit.clean() { Ok(()) } else { Err(format!("the audit finds: {:?}", audit.findings)) }
    }
}
