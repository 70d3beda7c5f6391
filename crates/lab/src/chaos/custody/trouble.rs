//! What goes wrong, and when: something is killed each time, and often the chains, the leases or a worker's own time go wrong as well.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::random::Random;
use terminal::clock::Stopwatch;
use terminal::failure::{CommandResult, Failure};

use super::KILL_MS;
use super::actor::Part;
use super::customers::left;
use super::ground::Ground;
use super::judge::{is_over, states, wallets_differ};
use super::net::Fault;
use super::people::retry_all;
use super::{AskedFor, wrong};

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    pub killed: BTreeMap<Part, u64>,
    pub databases: u64,
    pub faults: BTreeMap<Fault, u64>,
    pub paused: u64,
    /// How often customers paid in.
    pub deposits: u32,
    pub lapsed: u64,
}

/// Rounds of [`come_to_rest`] between two tries of what failed.
const RETRY_EVERY: u32 = 10;

/// In how many places the books are not where the chains are.
async fn differ(ground: &Ground) -> Result<usize, Failure> {
    let mut differ = 0;
    for net in &ground.nets {
        differ += wallets_differ(&ground.db, net).await?.len();
    }
    Ok(differ)
}

/// How many users' addresses have something that rules have to bring home.
async fn unswept(ground: &Ground) -> Result<usize, Failure> {
    let mut unswept = 0;
    for net in &ground.nets {
        unswept += net.unswept().await?.len();
    }
    Ok(unswept)
}

/// The books know what our wallets have: nobody asks for a payment before.
pub(super) async fn begin(ground: &mut Ground, patience: Duration) -> CommandResult {
    let watch = Stopwatch::start();
    while differ(ground).await? > 0 {
        if watch.elapsed() >= patience {
            return Err(wrong("the books did not begin"));
        }
        wait(ground, Duration::from_millis(300)).await?;
    }
    Ok(())
}

/// Processes that have ended are started again.
pub(super) fn keep_up(ground: &mut Ground) -> CommandResult {
    ground.actors.iter_mut().try_for_each(super::actor::Actor::keep_up)
}

async fn wait(ground: &mut Ground, time: Duration) -> CommandResult {
    let watch = Stopwatch::start();
    while watch.elapsed() < time {
        keep_up(ground)?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

impl Trouble {
    /// Waits for a moment that nobody can foresee, and strikes.
    pub async fn strike(&mut self, ground: &mut Ground, random: &mut Random) -> CommandResult {
        wait(ground, Duration::from_millis(KILL_MS / 2 + random.below(KILL_MS))).await?;
        self.misbehave(ground, random).await?;
        self.pause(ground, random);
        self.kill(ground, random).await?;
        // Half of the time another worker has what the dead one had before an hour is over.
        if random.below(2) == 0 && ground.db.let_leases_pass().await.is_ok() {
            self.lapsed += 1;
        }
        Ok(())
    }

    async fn kill(&mut self, ground: &mut Ground, random: &mut Random) -> CommandResult {
        if random.below(8) == 0
            && let Some(postgres) = &mut ground.postgres
        {
            self.databases += 1;
            return postgres.restart();
        }
        // Each part as often as the others, however many processes it has.
        let parts: BTreeSet<Part> = ground.actors.iter().map(|actor| actor.part).collect();
        let part = parts.iter().copied().nth(random.index(parts.len())).unwrap_or(Part::Signer);
        let mut of_part: Vec<_> = ground.actors.iter_mut().filter(|actor| actor.part == part).collect();
        let chosen = random.index(of_part.len());
        *self.killed.entry(part).or_default() += 1;
        of_part[chosen].kill()
    }

    /// One that stands still may wake up when another has its lanes.
    fn pause(&mut self, ground: &mut Ground, random: &mut Random) {
        for actor in &mut ground.actors {
            if actor.is_paused() && random.below(2) == 0 {
                actor.pause(false);
            }
        }
        let chosen = random.index(ground.actors.len());
        let actor = &mut ground.actors[chosen];
        if random.below(3) == 0 && !actor.is_paused() {
            self.paused += 1;
            actor.pause(true);
        }
    }

    async fn misbehave(&mut self, ground: &Ground, random: &mut Random) -> CommandResult {
        if random.below(3) == 0 {
            return Ok(());
        }
        let (net, fault) = (&ground.nets[random.index(ground.nets.len())], Fault::ALL[random.index(Fault::ALL.len())]);
        // A node that is away can do nothing more.
        match tokio::time::timeout(Duration::from_secs(5), net.fault(fault, random)).await {
            Ok(Ok(true)) => *self.faults.entry(fault).or_default() += 1,
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(failure)) => return Err(failure),
        }
        Ok(())
    }

    /// All is well from here on.
    pub async fn end(&mut self, ground: &mut Ground) -> CommandResult {
        // What heals by itself has done so by then.
        wait(ground, Duration::from_secs(3)).await?;
        for net in &ground.nets {
            net.rest().await?;
        }
        for actor in &mut ground.actors {
            actor.pause(false);
        }
        // A worker that died keeps nobody out.
        ground.db.let_leases_pass().await.map_err(Failure::from)
    }
}

/// Blocks come until every job has its end, nothing is watched any more, and the books have come as far as the chains. Whatever rests is tried
/// again at once. It returns as well when patience is over: what is not at its end then is stranded.
pub(super) async fn come_to_rest(ground: &mut Ground, asked: &AskedFor, patience: Duration) -> CommandResult {
    let (watch, mut quiet) = (Stopwatch::start(), 0);
    for round in 0.. {
        if watch.elapsed() >= patience {
            break;
        }
        for net in &ground.nets {
            net.mine(1).await?;
        }
        wait(ground, Duration::from_millis(200)).await?;
        // A try for which the coins are not there yet counts as well.
        if round % RETRY_EVERY == 0 {
            retry_all(&ground.db).await?;
        }
        let open = states(&ground.db).await?.values().filter(|one| !is_over(one.job.state)).count();
        let lanes = ground.db.lanes(None, None, 0, 1_000).await?;
        let busy = lanes.iter().any(|lane| lane.open + lane.waiting > 0);
        let withdrawals = left(&ground.office, &ground.nets, &asked.customers.wanted).await?;
        let (differ, unswept) = (differ(ground).await?, unswept(ground).await?);
        tracing::debug!(jobs = asked.orders.len(), withdrawals, open, busy, differ, unswept, "coming to rest");
        quiet = if open == 0 && withdrawals == 0 && !busy && differ == 0 && unswept == 0 { quiet + 1 } else { 0 };
        if quiet >= 5 {
            return Ok(());
        }
    }
    Ok(())
}
