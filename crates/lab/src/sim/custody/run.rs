//! The scheduler: one thing at a time, chosen from the seed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use domain::outbound::{JobKind, JobState};
use domain::random::Random;
use domain::utxo::Hash;
use domain::{Approval, ChainKind, Clock, ManualClock, RawAmount, Timestamp, WalletRole};
use store::StoreError;
use store::outbound::read::{JobVerdict, ShownLane};
use store::outbound::{Added, Duty, JobFilter, JobId, LaneId, NewJob, OpenSlot, Payer, SlotsRead};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;
use tx::{Address, Coin, Draft, Fee, Payment, Slot};

use super::super::turn::{self, Ended, Work};
use super::client::CHAIN_ID;
use super::coins::{NETWORK, inputs_of};
use super::ground::{BITCOIN, Ground, PLANS, RICH, broken};
use super::model::{Net, Waiting, raw, units};
use super::process::{self, Part};
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
const SECOND: i64 = 1_000_000;
/// On each chain two workers that send and two that watch.
const EACH: usize = 4;
/// And two that show Bitcoin's wallet its chain.
const FOLLOWERS: usize = 2;
/// A rest comes after so many turns at the latest.
const LONGEST_UNREST: u64 = 2_500;

/// Why a lane may be stopped.
const STOLEN: [&str; 2] = ["were used by somebody else", "which is none that this database knows"];

/// Turns of a process at rest, one after the other.
const MOST_TURNS: usize = 12;

fn unread(error: &StoreError) -> String {
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
struct Open {
    net: usize,
    to: Address,
    amount: u128,
}

/// What is written of some lanes.
#[derive(PartialEq)]
struct Rows {
    slots: Vec<OpenSlot>,
    due: Vec<(JobId, i64)>,
    nonces: Vec<Option<u64>>,
}

/// A process that stood still in the middle of a round.
struct Stalled {
    until: u64,
    /// The lanes that it had.
    had: Vec<LaneId>,
}

struct Simulation {
    ground: Ground,
    world: Shared,
    processes: Vec<Option<Work>>,
    names: Vec<String>,
    /// Those that stand still, or did in the round that they are in.
    stalled: BTreeMap<usize, Stalled>,
    started: u64,
    last_rest: u64,
    next_audit: u64,
    open: BTreeMap<JobId, Open>,
    /// Fees of settled slots, of each chain, and the newest slot that was counted.
    fees: Vec<u128>,
    counted: Vec<i64>,
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
            broken: None,
            midway: BTreeSet::new(),
            ids: 0,
        };
        let chains = PLANS.len();
        Ok(Self {
            ground,
            world: Shared(Arc::new(Mutex::new(world))),
            processes: (0..chains * EACH + FOLLOWERS).map(|_| None).collect(),
            names: vec![String::new(); chains * EACH + FOLLOWERS],
            stalled: BTreeMap::new(),
            started: 0,
            last_rest: 0,
            next_audit: 200,
            open: BTreeMap::new(),
            fees: vec![0; chains],
            counted: vec![0; chains],
        })
    }

    async fn all_of_it(&mut self, jobs: u64, progress: &mut dyn FnMut(&Report)) -> Result<(), String> {
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
            0..700 => self.resume().await?,
            700..790 => self.mine(net),
            790..820 => self.spread(net),
            820..870 => self.add(net, jobs).await?,
            870..878 => self.reorganise(net),
            878..896 => self.change_node(net),
            896..904 => self.change_price(net),
            904..908 => self.pause(net),
            908..912 => self.empty_pool(net),
            912..930 => self.ask().await?,
            930..942 => self.jump(),
            942..956 => self.kill(),
            956..961 => self.leave_signer(),
            961..963 => self.steal(),
            963..966 => self.shorten(net),
            966 => self.rest().await?,
            967..971 => self.give(),
            971..983 => self.come_back(net),
            983..991 => self.stall().await?,
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

    fn unbroken(&self) -> Result<(), String> {
        let mut world = self.world.lock();
        let seen = world.nets.iter_mut().find_map(|net| net.broken.take());
        match world.broken.take().or(seen) {
            Some(broken) => Err(broken),
            None => Ok(()),
        }
    }

    // ---- processes ---------------------------------------------------------------------------------------------

    async fn resume(&mut self) -> Result<(), String> {
        let at = {
            let mut world = self.world.lock();
            world.random.index(self.processes.len())
        };
        let turn = self.world.lock().turn;
        if self.stalled.get(&at).is_some_and(|one| turn < one.until) { Ok(()) } else { self.run_process(at).await }
    }

    async fn run_process(&mut self, at: usize) -> Result<(), String> {
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
        if !lost.is_empty() && before != self.rows_of(&lost).await? {
            let name = &self.names[at];
            return Err(format!("{name} stood still while another took its lanes, and has written to them since"));
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
        let duty = if at.is_multiple_of(2) { Duty::Send } else { Duty::Watch };
        let (duty, name) = (duty.as_str(), &self.names[at]);
        let lanes = self.ground.db.lanes(None, None, 0, 100).await.map_err(|error| unread(&error))?;
        let has = |lane: &&ShownLane| lane.held.iter().any(|(what, who, _)| what == duty && who == name);
        Ok(lanes.iter().filter(has).map(|lane| lane.lane.id).collect())
    }

    /// All that a worker writes of lanes, but that they are stopped, which anybody may do who sees a reason.
    async fn rows_of(&self, lanes: &[LaneId]) -> Result<Option<Rows>, String> {
        if lanes.is_empty() {
            return Ok(None);
        }
        let open = self.ground.db.open_lanes(lanes).await.map_err(|error| unread(&error))?;
        let work = self.ground.db.lane_work(lanes, 1_000, SlotsRead::Unmined, Timestamp::from_micros(i64::MAX)).await;
        let due = work.map_err(|error| unread(&error))?.due;
        let nonces = open.lanes.iter().map(|lane| lane.known_nonce).collect();
        Ok(Some(Rows { slots: open.slots, due: due.iter().map(|job| (job.id, job.version)).collect(), nonces }))
    }

    /// Until it has come to the end of a round, or so many turns on. Those who read blocks take one in a round, and may be behind.
    async fn run_round(&mut self, at: usize) -> Result<(), String> {
        let rounds = if at < PLANS.len() * EACH { 1 } else { 3 };
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
        let (net, part) = match at.checked_sub(PLANS.len() * EACH) {
            Some(_) => (BITCOIN, Part::Follows),
            None if at.is_multiple_of(2) => (at / EACH, Part::Sends),
            None => (at / EACH, Part::Watches),
        };
        self.names[at].clone_from(&name);
        self.world.lock().midway.insert(at);
        process::start(&self.ground, &self.world, at, (net, part), name)
    }

    fn kill(&mut self) {
        let at = {
            let mut world = self.world.lock();
            world.report.killed_at_rest += 1;
            world.random.index(self.processes.len())
        };
        self.processes[at] = None;
        self.ends(at);
    }

    /// A process stands still in the middle of what it does, as one that is swapped out. Others take its lanes when its lease is over; it
    /// goes on where it was.
    async fn stall(&mut self) -> Result<(), String> {
        let (at, until) = {
            let mut world = self.world.lock();
            let from = world.random.index(self.processes.len());
            let workers = PLANS.len() * EACH;
            let at = (from..from + workers).map(|at| at % workers).find(|at| world.midway.contains(at));
            (at, world.turn + 100 + world.random.below(500))
        };
        let Some(at) = at.filter(|at| !self.stalled.contains_key(at)) else { return Ok(()) };
        let had = self.lanes_of(at).await?;
        self.stalled.insert(at, Stalled { until, had });
        let mut world = self.world.lock();
        world.report.stalled += 1;
        world.pass(61 * SECOND);
        Ok(())
    }

    // ---- what happens around them ------------------------------------------------------------------------------

    fn mine(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, clock, .. } = &mut *world;
        let (paid, reverted) = nets[net].mine(random, clock.now());
        report.blocks += 1;
        report.paid += paid;
        report.reverted += reverted;
        if random.below(3) != 0 {
            nets[net].spread(random);
        }
    }

    fn spread(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, .. } = &mut *world;
        nets[net].spread(random);
    }

    /// A branch is left that is not final; what was in it waits again, or is forgotten.
    fn reorganise(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, clock, .. } = &mut *world;
        let depth = 1 + random.below(PLANS[net].deepest);
        report.reorganisations += 1;
        report.deeper_than_confirmations += u64::from(depth >= u64::from(PLANS[net].confirmations));
        let keep = random.below(3) != 0;
        nets[net].leave(depth, keep);
        // Those whose branch wins may have another pool than those who lose theirs.
        while random.below(3) != 0 {
            report.came_back += u64::from(nets[net].come_back(random));
        }
        for _ in 0..=depth {
            let (paid, reverted) = nets[net].mine(random, clock.now());
            report.blocks += 1;
            report.paid += paid;
            report.reverted += reverted;
        }
    }

    fn change_node(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, .. } = &mut *world;
        let nodes = &mut nets[net].nodes;
        let at = random.index(nodes.len());
        match random.below(4) {
            0 => {
                nodes[at].down = true;
                report.nodes_down += 1;
            }
            1 => {
                nodes[at].stuck = true;
                report.nodes_stuck += 1;
            }
            _ => (nodes[at].down, nodes[at].stuck) = (false, false),
        }
    }

    fn change_price(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, .. } = &mut *world;
        let spike = random.below(3) != 0;
        nets[net].price = if spike { 1_000_000_000 * u128::from(1 + random.below(40)) } else { 1_000_000_000 };
        report.price_spikes += u64::from(spike);
    }

    fn pause(&self, net: usize) {
        let mut world = self.world.lock();
        let paused = !world.nets[net].paused;
        world.nets[net].paused = paused;
        world.report.contracts_paused += u64::from(paused);
    }

    fn empty_pool(&self, net: usize) {
        let mut world = self.world.lock();
        let all = std::mem::take(&mut world.nets[net].pool);
        world.nets[net].dropped(all);
        world.report.pools_emptied += 1;
    }

    /// Miners have something that was replaced or forgotten, and never heard of what took its place.
    fn come_back(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, .. } = &mut *world;
        report.came_back += u64::from(nets[net].come_back(random));
    }

    fn leave_signer(&self) {
        let mut world = self.world.lock();
        world.away_until = world.turn + 20 + world.random.below(150);
    }

    fn jump(&self) {
        let mut world = self.world.lock();
        match world.random.below(6) {
            0 => {
                world.report.clock_set_back += 1;
                world.pass(-2 * SECOND);
            }
            1 => {
                world.report.clock_jumps += 1;
                world.pass(26 * 60 * SECOND);
            }
            _ => {
                world.report.clock_jumps += 1;
                let seconds = i64::try_from(world.random.below(70)).unwrap_or(0);
                world.pass(seconds * SECOND);
            }
        }
    }

    /// The wallets of a chain have none of the token for a while.
    fn shorten(&self, net: usize) {
        let mut world = self.world.lock();
        world.report.token_shortages += 1;
        let Net { purses, wallets, .. } = &mut world.nets[net];
        for wallet in wallets.iter() {
            if let Some(purse) = purses.get_mut(wallet) {
                purse.token =
                    if purse.token < RICH / 2 { purse.token.saturating_add(RICH) } else { purse.token % RICH };
            }
        }
    }

    /// Somebody else uses the next nonce of a wallet of ours.
    fn steal(&self) {
        let mut world = self.world.lock();
        let number = world.next_id();
        let World { nets, random, report, clock, .. } = &mut *world;
        let net = &mut nets[0];
        let index = random.index(net.wallets.len());
        let from = net.wallets[index].clone();
        let nonce = net.truth.tip().nonces.get(&from).copied().unwrap_or(0);
        let mut account = [0xee; 20];
        account[..8].copy_from_slice(&random.next_u64().to_be_bytes());
        let payment = Payment { to: (PLANS[0].account)(account), coin: Coin::Native, amount: raw(5) };
        let fee = Fee::Eip1559 { max_fee: 900_000_000_000, max_priority: 900_000_000_000 };
        let draft = Draft::Evm { from: from.clone(), nonce, payment: payment.clone(), gas_limit: 21_000, fee };
        let Ok(unsigned) = tx::evm::build(&draft, CHAIN_ID) else { return };
        let Ok(request) = theft(&unsigned.bytes, payment, number, u64::try_from(index).unwrap_or(0), clock.now())
        else {
            return;
        };
        let Ok(answers) = self.ground.thief.sign(&[request]) else { return };
        let Some(signer::client::SignAnswer::Signed { signed, .. }) = answers.into_iter().next() else { return };
        let Ok(meaning) = tx::evm::decode_signed(&signed.bytes, CHAIN_ID) else { return };
        report.stolen_keys += 1;
        net.foreign.insert(signed.hash);
        let same = |one: &Waiting| one.from == from && one.meaning.slot == Slot::Nonce(nonce);
        let (gone, stay): (Vec<Waiting>, Vec<Waiting>) = std::mem::take(&mut net.pool).into_iter().partition(same);
        net.pool = stay;
        net.dropped(gone);
        net.pool.push(Waiting { hash: signed.hash, from, meaning, bytes: signed.bytes.into() });
    }

    /// A stranger pays small coins to wallets of Bitcoin.
    fn give(&self) {
        let mut world = self.world.lock();
        world.report.small_coins += 3;
        let number = world.turn;
        let World { nets, random, .. } = &mut *world;
        let net = &mut nets[BITCOIN];
        let outputs: Vec<(Address, u64)> =
            (0..3).map(|_| (net.wallets[random.index(net.wallets.len())].clone(), 600 + random.below(3_000))).collect();
        net.give(number, &outputs);
    }

    // ---- jobs --------------------------------------------------------------------------------------------------

    async fn add(&mut self, net: usize, most: u64) -> Result<(), String> {
        let row = &self.ground.rows[net];
        let (mut jobs, mut opened) = (Vec::new(), Vec::new());
        let now = {
            let mut world = self.world.lock();
            let now = world.now();
            for _ in 0..=world.random.below(8) {
                if world.report.jobs >= most {
                    break;
                }
                world.report.jobs += 1;
                let number = world.next_id();
                let mut account = [0xd0; 20];
                account[12..].copy_from_slice(&world.report.jobs.to_be_bytes());
                let to = (PLANS[net].account)(account);
                let native = net == BITCOIN || world.random.below(2) == 0;
                let amount = 1_000_000 + u128::from(world.random.below(1_000_000));
                let listing = row.listings.iter().find(|one| one.form.contract().is_none() == native);
                let (Some(listing), Ok(id)) = (listing, JobId::new(number)) else {
                    return Err("a listing is missing".to_owned());
                };
                jobs.push(NewJob {
                    id,
                    listing: listing.id,
                    kind: JobKind::Withdrawal,
                    reference: to.to_string(),
                    to: to.to_string(),
                    owner: None,
                    amount: raw(amount),
                    most_fee: row.outbound.fee_cap,
                    priority: i64::try_from(world.random.below(3)).unwrap_or(0),
                    requester: "alice".to_owned(),
                    expires: now.plus_micros(90 * 3_600 * SECOND),
                    payer: Payer::Role(WalletRole::Hot),
                });
                opened.push((id, Open { net, to, amount }));
            }
            now
        };
        let added = self.ground.db.add_jobs(row.id, &jobs, now).await.map_err(|error| unread(&error))?;
        if !added.iter().all(|one| matches!(one, Added::New { .. })) {
            return Err(format!("a job was not made: {added:?}"));
        }
        self.open.extend(opened);
        Ok(())
    }

    /// People want a job to end, or more to be offered for it.
    async fn ask(&self) -> Result<(), String> {
        let filter = JobFilter { state: Some(JobState::Broadcasted), ..JobFilter::default() };
        let out = self.ground.db.jobs(&filter, i64::MAX, 12).await.map_err(|error| unread(&error))?;
        let (job, cancel, now) = {
            let mut world = self.world.lock();
            // One that waits for its block, or one of the newest, whatever it does.
            let newest = self.open.len().clamp(1, 24);
            let (one, back) = (world.random.index(2 * out.len().max(1)), world.random.index(newest));
            let job = out.get(one).map(|shown| shown.job.id).or_else(|| self.open.keys().nth_back(back).copied());
            (job, world.random.below(2) == 0, world.now())
        };
        let Some(job) = job else { return Ok(()) };
        let db = &self.ground.db;
        let asked = if cancel { db.cancel_job(job, "ann", now).await } else { db.bump_job(job, now).await };
        let done = asked.map_err(|error| unread(&error))? == store::outbound::read::JobReply::Done;
        let mut world = self.world.lock();
        world.report.cancel_asked += u64::from(done && cancel);
        world.report.bump_asked += u64::from(done && !cancel);
        Ok(())
    }

    // ---- rest --------------------------------------------------------------------------------------------------

    /// Nothing goes wrong for a while: everything must come to its end, and be as it should be.
    async fn rest(&mut self) -> Result<(), String> {
        {
            let mut world = self.world.lock();
            world.calm = true;
            self.stalled.values_mut().for_each(|one| one.until = 0);
            for net in &mut world.nets {
                net.heal();
                let Net { purses, wallets, .. } = net;
                for wallet in wallets.iter() {
                    if let Some(purse) = purses.get_mut(wallet).filter(|purse| purse.token < RICH / 2) {
                        purse.token = purse.token.saturating_add(RICH);
                    }
                }
            }
        }
        for round in 0_u32.. {
            // Soon only pauses and times that must be over are waited for.
            let seconds = match round {
                0..8 => 3,
                8..16 => 30,
                _ => 120,
            };
            self.world.lock().pass(seconds * SECOND);
            for net in 0..PLANS.len() {
                // Where nothing waits, only depth is missing.
                let blocks = if self.world.lock().nets[net].pool.is_empty() { 3 } else { 1 };
                (0..blocks).for_each(|_| self.mine(net));
                self.world.lock().nets[net].heal();
            }
            for at in 0..self.processes.len() {
                self.run_round(at).await?;
            }
            if round % 3 == 2 && self.is_done().await? {
                break;
            }
            if round > 600 {
                let left = self.stranded().await?;
                return Err(format!("stranded: {left}"));
            }
        }
        self.judge().await?;
        let jobs = {
            let mut world = self.world.lock();
            (world.calm, self.last_rest) = (false, world.turn);
            world.report.rests += 1;
            world.report.jobs
        };
        if jobs >= self.next_audit {
            self.next_audit = jobs + jobs / 2;
            self.audit().await?;
        }
        self.unbroken()
    }

    /// Two people look at jobs whose slot somebody else has used, and at the chain.
    async fn judge_unclear(&self) -> Result<(), String> {
        let filter = JobFilter { state: Some(JobState::Broadcasted), ..JobFilter::default() };
        let unclear = self.ground.db.jobs(&filter, i64::MAX, 100).await.map_err(|error| unread(&error))?;
        let people = Approval::new("ann", "bob", "the thief is caught").map_err(|error| error.to_string())?;
        for shown in unclear {
            let (verdict, now) = {
                let world = self.world.lock();
                let Some(open) = self.open.get(&shown.job.id) else { continue };
                let paid = world.nets[open.net].paid.get(&open.to).is_some_and(|(count, _)| *count > 0);
                (if paid { JobVerdict::Paid } else { JobVerdict::Again }, world.now())
            };
            // Refused as long as the slot is open.
            let judged =
                self.ground.db.judge_job(shown.job.id, verdict, &people, now).await.map_err(|error| unread(&error))?;
            self.world.lock().report.judged += u64::from(judged == store::outbound::read::JobReply::Done);
        }
        Ok(())
    }

    /// Whether nothing waits and nothing is out. Lanes that were stopped go on, by two people.
    async fn is_done(&self) -> Result<bool, String> {
        self.judge_unclear().await?;
        let lanes = self.ground.db.lanes(None, None, 0, 100).await.map_err(|error| unread(&error))?;
        let now = self.world.lock().now();
        let mut done = true;
        for lane in lanes {
            if let Some(why) = &lane.lane.stopped {
                // Nobody but a thief, of whom there are some, may give a reason.
                if !STOLEN.iter().any(|words| why.contains(words)) {
                    return Err(format!("lane {} was stopped: {why}", lane.lane.address));
                }
                let people = Approval::new("ann", "bob", "the thief is caught").map_err(|error| error.to_string())?;
                self.ground.db.resume_lane(lane.lane.id, &people, now).await.map_err(|error| unread(&error))?;
                self.world.lock().report.lanes_stopped += 1;
            }
            done &= lane.open == 0 && lane.waiting == 0;
        }
        let filter = JobFilter { state: Some(JobState::Broadcasted), ..JobFilter::default() };
        done &= self.ground.db.jobs(&filter, i64::MAX, 1).await.map_err(|error| unread(&error))?.is_empty();
        if !done {
            // What rests is due some time later.
            self.world.lock().pass(60 * SECOND);
        }
        Ok(done)
    }

    async fn stranded(&self) -> Result<String, String> {
        for id in self.open.keys() {
            let found = self.ground.db.job(*id).await.map_err(|error| unread(&error))?;
            if let Some((shown, slots, _)) = found
                && !matches!(shown.job.state, JobState::Confirmed | JobState::FailedFinal)
            {
                return Ok(format!(
                    "{} is {}: {} ({} slots, lane {:?})",
                    id,
                    shown.job.state,
                    shown.job.reason,
                    slots.len(),
                    shown.lane_stopped
                ));
            }
        }
        Ok("a lane without jobs".to_owned())
    }

    /// What is confirmed was paid once, what failed was not, and every fee is known.
    async fn judge(&mut self) -> Result<(), String> {
        for (id, open) in std::mem::take(&mut self.open) {
            let found = self.ground.db.job(id).await.map_err(|error| unread(&error))?;
            let (shown, slots, _) = found.ok_or_else(|| format!("{id} is gone"))?;
            slots.iter().try_for_each(keeps_its_coins)?;
            let mut world = self.world.lock();
            let paid = world.nets[open.net].paid.remove(&open.to).unwrap_or_default();
            world.report.moved_to_another_slot += u64::from(slots.len() > 1);
            world.report.expired += u64::from(PLANS[open.net].kind == ChainKind::Tron && slots.len() > 1);
            match shown.job.state {
                JobState::Confirmed if paid == (1, open.amount) => world.report.confirmed += 1,
                JobState::FailedFinal if paid.0 == 0 => {
                    world.report.failed_for_good += 1;
                    world.report.cancelled_in_its_slot += u64::from(shown.job.give_up && !slots.is_empty());
                }
                state => {
                    return Err(format!(
                        "{id} is {state}, and {} got {} in {} payments instead of {}: {}",
                        open.to, paid.1, paid.0, open.amount, shown.job.reason
                    ));
                }
            }
        }
        for (net, plan) in PLANS.iter().enumerate() {
            let chain = self.ground.rows[net].id;
            loop {
                let page =
                    self.ground.db.slot_fees(chain, self.counted[net], 500).await.map_err(|error| unread(&error))?;
                let Some((last, _)) = page.last() else { break };
                self.counted[net] = *last;
                self.fees[net] += page.iter().map(|(_, fee): &(i64, RawAmount)| units(*fee)).sum::<u128>();
            }
            let mut world = self.world.lock();
            // All that were asked for were looked at above, and taken out.
            let stray = world.nets[net].paid.drain().find(|(_, (count, _))| *count > 0);
            if let Some((to, _)) = stray {
                return Err(format!("{to} was paid for a job that had ended before"));
            }
            let cost = world.nets[net].fees;
            if cost != self.fees[net] {
                return Err(format!(
                    "the wallets of {} paid {cost} in fees, and the slots know of {}",
                    plan.name, self.fees[net]
                ));
            }
            world.report.fees_counted += 1;
        }
        Ok(())
    }

    async fn audit(&self) -> Result<(), String> {
        self.world.lock().report.audits += 1;
        let audit = self.ground.db.audit(|_| {}).await.map_err(|error| unread(&error))?;
        if audit.clean() { Ok(()) } else { Err(format!("the audit finds: {:?}", audit.findings)) }
    }
}

/// Bitcoin: whatever was signed later in a slot spends all that was signed before: a coin that was dropped would look free while the
/// transaction before can still be mined.
fn keeps_its_coins(slot: &OpenSlot) -> Result<(), String> {
    let mut before: BTreeSet<(tx::TxHash, u32)> = BTreeSet::new();
    for (bytes, hash) in slot.attempts.iter().filter_map(|attempt| attempt.signed.as_ref()) {
        let Ok(meaning) = tx::bitcoin::transaction::decode_signed(bytes, NETWORK) else { return Ok(()) };
        let now: BTreeSet<(tx::TxHash, u32)> = inputs_of(&meaning).iter().copied().collect();
        if !before.is_subset(&now) {
            return Err(format!("{hash} does not spend all that the one before it in its slot does"));
        }
        before = now;
    }
    Ok(())
}

/// What a thief asks of a signer that knows nothing of ours.
fn theft(
    payload: &[u8],
    payment: Payment,
    number: i64,
    index: u64,
    now: Timestamp,
) -> Result<signer::SignRequest, SimError> {
    let (chain, group) = (
        PLANS[0].name.parse::<domain::ChainName>().map_err(broken)?,
        "hot-eve".parse::<domain::GroupId>().map_err(broken)?,
    );
    let intent = signer::Intent {
        signer: "sim".parse().map_err(broken)?,
        network: signer::SignerChain::Evm { chain_id: CHAIN_ID },
        job: signer::names::JobId::Job(number),
        round: 0,
        chain: chain.clone(),
        group: group.clone(),
        kind: signer::IntentKind::Pay { payment, owner: None },
        most_fee: raw(10_u128.pow(29)),
        expires: now.plus_micros(3_600 * SECOND),
        builds: 1,
        requester: "mallory".parse().map_err(broken)?,
    };
    Ok(signer::SignRequest {
        id: format!("theft-{number}").parse().map_err(broken)?,
        chain,
        group,
        index,
        payload: payload.to_vec(),
        intents: vec![intent],
        bitcoin: None,
        replaces: None,
        approvals: Vec::new(),
    })
}
