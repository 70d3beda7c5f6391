//! The scheduler: one thing at a time, chosen from the seed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use domain::random::Random;
use domain::utxo::Hash;
use domain::{ChainKind, ManualClock, Timestamp};
use store::StoreError;
use store::outbound::read::ShownLane;
use store::outbound::{Duty, JobId, LaneId, OpenSlot, SlotsRead};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;
use tx::Address;

use super::super::turn::{self, Ended, Work};
use super::ground::{Ground, PLANS};
use super::process::{self, Part};
use super::report::Report;
use super::treasury::Inside;
use super::withdrawals::Counter;
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
pub(super) const SECOND: i64 = 1_000_000;
/// A rest comes after so many turns at the latest.
const LONGEST_UNREST: u64 = 2_500;
/// Turns of a process at rest, one after the other.
const MOST_TURNS: usize = 24;

/// Two of each on every chain: some that send and that watch; on Bitcoin those that show its wallet the chain, and elsewhere those that keep the
/// books and that evaluate rules.
fn layout() -> Vec<(usize, Part)> {
    let parts = |kind: ChainKind| match kind {
        ChainKind::Bitcoin => vec![Part::Sends, Part::Watches, Part::Follows, Part::Withdraws],
        ChainKind::Evm | ChainKind::Tron => {
            vec![Part::Sends, Part::Watches, Part::Keeps, Part::Rules, Part::Withdraws]
        }
    };
    let twice = |(net, plan): (usize, &super::ground::Plan)| {
        let one = parts(plan.kind).into_iter().map(move |part| (net, part));
        one.clone().chain(one).collect::<Vec<_>>()
    };
    PLANS.iter().enumerate().flat_map(twice).collect()
}

pub(super) fn unread(error: &StoreError) -> String {
    format!("the database could not be read: {error}")
}

/// Makes so many jobs, and proves at every block that no destination is paid twice, and at every rest that none is stranded. The folder
/// must be empty: a database is made in it.
pub async fn run(seed: u64, jobs: u64, folder: &Path, progress: &mut dyn FnMut(&Report)) -> Result<Report, SimError> {
    let run = async {
        let mut simulation = Simulation::new(seed, folder).await?;
        let held = simulation.all_of_it(jobs, progress).await;
        simulation.ground.db.close().await;
        let report = simulation.world.lock().report.clone();
        held.map_err(|law| {
            let Report { jobs, turns, hash, .. } = report;
            SimError::Broken(format!("after {jobs} jobs, turn {turns}, run {hash:016x}: {law}"))
        })?;
        Ok(report)
    };
    // The errors are meant to happen, and a log would be full of them.
    run.with_subscriber(NoSubscriber::default()).await
}

/// A job that has not come to its end as far as the judge knows.
pub(super) struct Open {
    pub net: usize,
    pub to: Address,
    pub amount: u128,
    /// What rules have made moves coins between wallets of ours.
    pub inside: Option<Inside>,
}

/// What is written of some lanes.
struct Rows {
    slots: Vec<OpenSlot>,
    /// With when its time is over: from then on any worker may end it, whoever has its lane.
    due: Vec<(LaneId, JobId, i64, Timestamp)>,
    nonces: Vec<Option<u64>>,
    stopped: HashSet<LaneId>,
}

impl Rows {
    /// Of a lane that is stopped no job is due, though none was written to.
    fn is_as(&self, before: &Self, now: Timestamp) -> bool {
        let sends = |lane: LaneId| !self.stopped.contains(&lane) && !before.stopped.contains(&lane);
        let due = |rows: &Self| {
            rows.due.iter().copied().filter(|(lane, .., end)| sends(*lane) && *end > now).collect::<Vec<_>>()
        };
        self.slots == before.slots && self.nonces == before.nonces && due(self) == due(before)
    }
}

/// A process that stood still in the middle of a round.
pub(super) struct Stalled {
    pub until: u64,
    /// The lanes that it had.
    had: Vec<LaneId>,
}

pub(super) struct Simulation {
    pub ground: Ground,
    pub world: Shared,
    parts: Vec<(usize, Part)>,
    processes: Vec<Option<Work>>,
    names: Vec<String>,
    /// Those that stand still, or did in the round that they are in.
    pub stalled: BTreeMap<usize, Stalled>,
    started: u64,
    pub last_rest: u64,
    pub next_audit: u64,
    pub open: BTreeMap<JobId, Open>,
    /// Fees of settled slots, of each chain, and the newest slot that was counted.
    pub fees: Vec<u128>,
    pub counted: Vec<i64>,
    /// The last user who got an address.
    pub last_user: i64,
    /// Workers of rules who have numbers for jobs, and the last number before those.
    pub numbered: BTreeMap<usize, i64>,
    /// Addresses that were to get gas, and were not swept since.
    pub waited: HashSet<Address>,
    pub counter: Counter,
    /// Of a chain that is suspended: how many slots each lane had open then.
    pub open_then: BTreeMap<LaneId, u64>,
}

impl Simulation {
    async fn new(seed: u64, folder: &Path) -> Result<Self, SimError> {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
        let (ground, nets) = Ground::lay(folder, &clock).await?;
        let world = World {
            random: Random::from_seed(seed),
            report: Report::default(),
            clock,
            turn: 0,
            calm: false,
            yielded: None,
            nets,
            away_until: 0,
            refused: HashSet::new(),
            broken: None,
            midway: BTreeSet::new(),
            rules_made: false,
            rules_know: BTreeMap::new(),
            ids: 0,
        };
        let (parts, chains) = (layout(), PLANS.len());
        Ok(Self {
            ground,
            world: Shared(Arc::new(Mutex::new(world))),
            processes: parts.iter().map(|_| None).collect(),
            names: vec![String::new(); parts.len()],
            parts,
            stalled: BTreeMap::new(),
            started: 0,
            last_rest: 0,
            next_audit: 200,
            open: BTreeMap::new(),
            fees: vec![0; chains],
            counted: vec![0; chains],
            last_user: 0,
            numbered: BTreeMap::new(),
            waited: HashSet::new(),
            counter: Counter::default(),
            open_then: BTreeMap::new(),
        })
    }

    async fn all_of_it(&mut self, jobs: u64, progress: &mut dyn FnMut(&Report)) -> Result<(), String> {
        self.endow().await?;
        self.fund_customers().await?;
        // Solidified blocks are there to refer to.
        for _ in 0..6 {
            (0..PLANS.len()).for_each(|net| self.mine(net));
        }
        loop {
            let made = self.world.lock().report.jobs;
            if made >= jobs {
                break;
            }
            self.turn(jobs).await?;
            if self.world.lock().turn.is_multiple_of(64) {
                let report = self.world.lock().report.clone();
                progress(&report);
            }
        }
        self.rest().await?;
        self.audit().await
    }

    async fn turn(&mut self, jobs: u64) -> Result<(), String> {
        let (choice, net, overdue) = {
            let mut world = self.world.lock();
            world.turn += 1;
            world.report.turns += 1;
            let tick = i64::try_from(world.random.below(300_000)).unwrap_or(0);
            world.pass(tick);
            // The next random number depends on every draw so far, so the hash covers all of them.
            let drawn = world.random.clone().next_u64();
            world.note(drawn);
            let overdue = world.turn - self.last_rest > LONGEST_UNREST;
            (world.random.below(1_000), world.random.index(PLANS.len()), overdue)
        };
        match choice {
            _ if overdue => self.rest().await?,
            0..600 => self.resume().await?,
            600..700 => self.pay(net),
            700..790 => self.mine(net),
            790..820 => self.spread(net),
            820..844 => self.add(net, jobs).await?,
            844..868 => self.withdraw(net, jobs).await?,
            868..880 => self.reorganise(net),
            880..898 => self.change_node(net),
            898..906 => self.ask().await?,
            906..912 => self.change_price(net),
            912..916 => self.pause(net),
            916..920 => self.empty_pool(net),
            920..934 => self.ask().await?,
            934..944 => self.jump(),
            944..956 => self.kill(),
            956..961 => self.leave_signer(),
            961..963 => self.steal(),
            963..966 => self.shorten(net),
            966 => self.rest().await?,
            967..971 => self.give(),
            971..983 => self.come_back(net),
            983..991 => self.stall().await?,
            991..997 => self.decide().await?,
            997 => self.change_policies().await?,
            998 => self.suspend(net).await?,
            _ => self.resume().await?,
        }
        self.known().await?;
        self.unbroken()
    }

    /// Law 3: whatever of ours is in a block, or waits for one, was written down before any node saw it.
    async fn known(&self) -> Result<(), String> {
        for (net, row) in self.ground.rows.iter().enumerate() {
            let fresh: HashSet<Hash> =
                std::mem::take(&mut self.world.lock().nets[net].fresh).into_iter().map(|hash| Hash(hash.0)).collect();
            if fresh.is_empty() {
                continue;
            }
            let ours = self.ground.db.ours(row.id, &fresh).await.map_err(|error| unread(&error))?;
            if let Some(hash) = fresh.difference(&ours).next() {
                return Err(format!("{hash} was told to a node, and is written down nowhere"));
            }
        }
        Ok(())
    }

    pub(super) fn unbroken(&self) -> Result<(), String> {
        let mut world = self.world.lock();
        let seen = world.nets.iter_mut().find_map(|net| net.broken.take());
        match world.broken.take().or(seen) {
            Some(broken) => Err(broken),
            None => Ok(()),
        }
    }

    // ---- processes ---------------------------------------------------------------------------------------------

    /// A process goes on for a turn or a few.
    async fn resume(&mut self) -> Result<(), String> {
        let (at, turns) = {
            let mut world = self.world.lock();
            (world.random.index(self.processes.len()), 1 + world.random.below(3))
        };
        for _ in 0..turns {
            let turn = self.world.lock().turn;
            if self.stalled.get(&at).is_some_and(|one| turn < one.until) {
                break;
            }
            self.run_process(at).await?;
        }
        Ok(())
    }

    async fn run_process(&mut self, at: usize) -> Result<(), String> {
        let ids = self.world.lock().ids;
        let mut work = match self.processes[at].take() {
            Some(work) => work,
            None => self.start(at),
        };
        let lost = self.lost_lanes(at).await?;
        let before = self.rows_of(&lost).await?;
        match turn::run(&self.world, &mut work).await {
            Ended::Parked => self.processes[at] = Some(work),
            Ended::Done => return Err("a worker ended".to_owned()),
            // It is dropped here, in the middle of what it did.
            Ended::Died => self.ends(at),
        }
        if let Some((before, after)) = before.zip(self.rows_of(&lost).await?)
            && !after.is_as(&before, self.world.lock().now())
        {
            let name = &self.names[at];
            return Err(format!("{name} stood still while another took its lanes, and has written to them since"));
        }
        // Between the numbers of jobs and their rows a worker may ask nodes something, and others have their turns.
        if std::mem::take(&mut self.world.lock().rules_made) {
            self.numbered.entry(at).or_insert(ids);
        }
        if let Some(above) = self.numbered.get(&at).copied() {
            self.notice(at, above).await?;
            if !self.world.lock().midway.contains(&at) {
                self.numbered.remove(&at);
            }
        }
        self.unbroken()
    }

    fn ends(&mut self, at: usize) {
        self.world.lock().midway.remove(&at);
        self.stalled.remove(&at);
    }

    /// Law 4: the lanes that a process had when it began to stand still, and that another has now. Until the end of the round that it was in
    /// it may write nothing there.
    async fn lost_lanes(&mut self, at: usize) -> Result<Vec<LaneId>, String> {
        if !self.world.lock().midway.contains(&at) {
            self.stalled.remove(&at);
        }
        let Some(stalled) = self.stalled.get(&at) else { return Ok(Vec::new()) };
        let still = self.lanes_of(at).await?;
        let lost: Vec<LaneId> = stalled.had.iter().filter(|lane| !still.contains(lane)).copied().collect();
        self.world.lock().report.lanes_lost += lost.len() as u64;
        Ok(lost)
    }

    /// The lanes that a process has.
    async fn lanes_of(&self, at: usize) -> Result<Vec<LaneId>, String> {
        let (net, part) = self.parts[at];
        let duty = match part {
            Part::Sends => Duty::Send,
            Part::Watches => Duty::Watch,
            Part::Follows | Part::Keeps | Part::Rules | Part::Withdraws => return Ok(Vec::new()),
        };
        let (duty, name) = (duty.as_str(), &self.names[at]);
        let has = |lane: &ShownLane| lane.held.iter().any(|(what, who, _)| what == duty && who == name);
        let lanes = self.lanes(Some(PLANS[net].name)).await?;
        Ok(lanes.into_iter().filter(has).map(|lane| lane.lane.id).collect())
    }

    /// All lanes, or those of a chain.
    pub(super) async fn lanes(&self, chain: Option<&str>) -> Result<Vec<ShownLane>, String> {
        let mut all: Vec<ShownLane> = Vec::new();
        loop {
            let after = all.last().map_or(0, |lane| lane.lane.id.0);
            let page = self.ground.db.lanes(chain, None, after, 500).await.map_err(|error| unread(&error))?;
            let count = page.len();
            all.extend(page);
            if count < 500 {
                return Ok(all);
            }
        }
    }

    /// All that a worker writes of lanes, but that they are stopped, which anybody may do who sees a reason.
    async fn rows_of(&self, lanes: &[LaneId]) -> Result<Option<Rows>, String> {
        if lanes.is_empty() {
            return Ok(None);
        }
        let work = self.ground.db.lane_work(lanes, 1_000, SlotsRead::All, Timestamp::from_micros(i64::MAX)).await;
        let work = work.map_err(|error| unread(&error))?;
        let nonces = work.lanes.iter().map(|lane| lane.known_nonce).collect();
        let stopped = work.lanes.iter().filter(|lane| lane.stopped.is_some()).map(|lane| lane.id).collect();
        let due = work.due.iter().map(|job| (job.lane, job.id, job.version, job.expires)).collect();
        Ok(Some(Rows { slots: work.slots, due, nonces, stopped }))
    }

    /// Until it has come to the end of a round, or so many turns on. Those who read blocks take one in a round, and may be behind.
    pub(super) async fn run_round(&mut self, at: usize) -> Result<(), String> {
        let rounds = if self.parts[at].1 == Part::Follows { 3 } else { 1 };
        let before = self.world.lock().report.rounds;
        for _ in 0..MOST_TURNS {
            self.run_process(at).await?;
            if self.world.lock().report.rounds >= before + rounds {
                break;
            }
        }
        Ok(())
    }

    /// Half of those who are started have the name of the one before, and so have its lanes at once.
    fn start(&mut self, at: usize) -> Work {
        self.started += 1;
        let again = self.world.lock().random.below(2) == 0;
        let name = if again { format!("worker {at}") } else { format!("worker {at}, start {}", self.started) };
        self.names[at].clone_from(&name);
        self.world.lock().midway.insert(at);
        process::start(&self.ground, &self.world, at, self.parts[at], name)
    }

    fn kill(&mut self) {
        let at = {
            let mut world = self.world.lock();
            world.report.killed_at_rest += 1;
            world.random.index(self.processes.len())
        };
        self.processes[at] = None;
        self.numbered.remove(&at);
        self.ends(at);
    }

    /// A process stands still in the middle of what it does, as one that is swapped out. Others take its lanes when its lease is over; it
    /// goes on where it was.
    async fn stall(&mut self) -> Result<(), String> {
        let (at, until) = {
            let mut world = self.world.lock();
            let workers = self.processes.len();
            let from = world.random.index(workers);
            let may = |at: &usize| world.midway.contains(at) && self.parts[*at].1 != Part::Follows;
            let at = (from..from + workers).map(|at| at % workers).find(may);
            (at, world.turn + 100 + world.random.below(500))
        };
        let Some(at) = at.filter(|at| !self.stalled.contains_key(at)) else { return Ok(()) };
        let had = self.lanes_of(at).await?;
        self.stalled.insert(at, Stalled { until, had });
        let mut world = self.world.lock();
        world.report.stalled += 1;
        // Longer than its hold on what it has.
        world.pass(match self.parts[at].1 {
            Part::Sends | Part::Watches | Part::Follows => 61 * SECOND,
            Part::Keeps | Part::Rules | Part::Withdraws => 121 * SECOND,
        });
        Ok(())
    }
}

impl Simulation {
    /// The processes that do something on a chain.
    pub(super) fn those_who(&self, part: Part) -> Vec<usize> {
        self.parts.iter().enumerate().filter(|(_, one)| one.1 == part).map(|(at, _)| at).collect()
    }

    pub(super) fn count_of_processes(&self) -> usize {
        self.processes.len()
    }
}
