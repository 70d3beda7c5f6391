//! `bursar bench outbound`: jobs that are paid, from the row to the final block, beside the same number of signed transactions that the same
//! client tells the same node of, with no store, no signer and no questions. Both may have all of them out at once, so neither waits for a block before it tells more; and the
//! same blocks come meanwhile: what a node does for a block weighs on both.
//!
//! Raw is measured in both ways that the client has: a call for each, and many in a request. What is said of raw is the faster one.
//!
//! The signer is its own core within this process: it reads, decides and signs as the service does, without socket and disk.

mod bitcoin;
pub(super) mod desk;
pub(super) mod node;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use custody::outbound::SENDERS;
use domain::outbound::{JobState, OutboundLimits};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use store::outbound::{JobFilter, Share};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table, thousands};
use tokio::task::JoinSet;

use super::Samples;
use super::site::{EngineName, Site};
use bitcoin::Shared;
use desk::Desk;
use node::{Host, Raw, Target};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which database: a private PostgreSQL, or SQLite
    #[arg(long, default_value = "postgres")]
    engine: EngineName,
    /// How many payments each round has
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    jobs: u32,
    /// How often each is measured, in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Wallets that pay; each is measured
    #[arg(long, value_name = "N", default_values_t = [1, 8], value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=9))]
    wallets: Vec<u32>,
    /// How many payments of the lowest priority wait when one of the highest comes
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    waiting: u32,
    /// Only these nodes
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    on: Vec<Target>,
    /// Where anvil is [default: on the PATH, or where ./test has put it]
    #[arg(long, value_name = "FILE")]
    anvil: Option<PathBuf>,
    /// Where bitcoind is [default: on the PATH, or where ./test has put it]
    #[arg(long, value_name = "FILE")]
    bitcoind: Option<PathBuf>,
}

/// So many blocks above a payment make it confirmed; one more, final.
const CONFIRMATIONS: u32 = 2;
/// Priorities of the payments that wait, and of the one that comes.
const LOWEST: i64 = 900;
const HIGHEST: i64 = 1;
/// So far apart are the recipients of the two ways to send raw.
const RAW_APART: u32 = 100_000_000;
/// What a wallet usually has out at a time.
const USUAL_IN_FLIGHT: u32 = 16;

/// A sender without anything to do looks again after so long. Those that were given no lane must not keep the others from the database.
const IDLE: Duration = Duration::from_millis(20);

/// A block comes so long after the one before, whoever sends.
const BLOCK: Duration = Duration::from_millis(40);

pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    let error = std::io::Error::other(error.to_string());
    Failure::outside("COMMAND_FAILED", &error, "the bench needs nodes that start; ./test installs them")
}

/// The figures of one node with so many wallets.
struct Figures {
    target: Target,
    wallets: u32,
    /// The faster of the two.
    raw: Samples,
    one_by_one: Samples,
    together: Samples,
    broadcast: Samples,
    confirmed: Samples,
    blocks_until_urgent: u64,
}

impl Figures {
    fn of(target: Target, wallets: u32) -> Self {
        Self {
            target,
            wallets,
            raw: Samples::default(),
            one_by_one: Samples::default(),
            together: Samples::default(),
            broadcast: Samples::default(),
            confirmed: Samples::default(),
            blocks_until_urgent: 0,
        }
    }
}

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let bar = if as_json { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    if let Ok(style) = ProgressStyle::with_template("   {spinner} {msg}") {
        bar.set_style(style);
    }
    let targets = if arguments.on.is_empty() { Target::ALL.to_vec() } else { arguments.on.clone() };
    let mut figures = Vec::new();
    let shared = if arguments.on.is_empty() { bitcoin::measure(arguments, &bar).await? } else { None };
    for target in targets {
        for wallets in &arguments.wallets {
            bar.set_message(format!("{} with {wallets} wallets", target.name()));
            figures.extend(measure(arguments, target, *wallets).await?);
        }
    }
    bar.finish_and_clear();
    if as_json {
        print_json(arguments, &figures, shared.as_ref())
    } else {
        print(&figures, shared.as_ref())
    }
    Ok(())
}

async fn measure(arguments: &Arguments, target: Target, wallets: u32) -> Result<Option<Figures>, Failure> {
    let site = Site::prepare(arguments.engine, None)?;
    let Some(node) = Host::start(target, arguments.anvil.as_deref(), site.folder()).await? else { return Ok(None) };
    let node = Arc::new(node);
    let limits = OutboundLimits { in_flight: arguments.jobs, ..OutboundLimits::usual(target.kind()) };
    let desk = Desk::open(site.url(), (target.kind(), Some(&node.token)), wallets, limits).await?;
    node.fund(&desk.wallets).await?;
    let desk = Arc::new(desk);
    let mut figures = Figures::of(target, wallets);
    let piece = usize::try_from(arguments.jobs).unwrap_or(usize::MAX);
    // The first round finds nothing in any cache.
    for round in 0..=arguments.rounds {
        let first = round * arguments.jobs;
        let mut raw = [0.0; 2];
        for (number, how) in [(0, Raw::OneByOne), (1, Raw::Together)] {
            let to = first + number * RAW_APART;
            let signed = node.signed(arguments.jobs, wallets, to).await?;
            raw[usize::from(number > 0)] = node.send_raw(&signed, piece, how).await?;
        }
        desk.add(arguments.jobs, first, LOWEST).await?;
        let (broadcast, confirmed) = pay(&desk, &node, arguments.jobs, (round + 1) * arguments.jobs).await?;
        if round > 0 {
            figures.one_by_one.push(raw[0]);
            figures.together.push(raw[1]);
            figures.raw.push(raw[0].max(raw[1]));
            figures.broadcast.push(broadcast);
            figures.confirmed.push(confirmed);
        }
    }
    let still_used = || failed("a worker has not ended");
    let mut desk = Arc::into_inner(desk).ok_or_else(still_used)?;
    desk.row.outbound.in_flight = USUAL_IN_FLIGHT;
    figures.blocks_until_urgent = until_urgent(arguments, &desk, &node).await?;
    desk.db.close().await;
    Arc::into_inner(node).ok_or_else(still_used)?.stop().await?;
    Ok(Some(figures))
}

/// Both workers side by side, as their processes are, while blocks come. Payments per second until nodes are told of all, and until all are final.
pub(super) async fn pay(desk: &Arc<Desk>, node: &Arc<Host>, jobs: u32, in_all: u32) -> Result<(f64, f64), Failure> {
    let watch = Stopwatch::start();
    let mut workers = JoinSet::new();
    let told = Arc::new(AtomicUsize::new(0));
    for part in 0..SENDERS {
        let (desk, node, told) = (Arc::clone(desk), Arc::clone(node), Arc::clone(&told));
        let share = Share { part, of: SENDERS };
        let sending = async move { send(&desk, &node, share, &told, jobs as usize).await };
        workers.spawn(async move { sending.await.map(|()| (true, watch.elapsed().as_secs_f64())) });
    }
    let (watches, on) = (Arc::clone(desk), Arc::clone(node));
    let watching = async move { follow(&watches, &on).await.map(|()| (false, watch.elapsed().as_secs_f64())) };
    workers.spawn(watching);
    let mut all = async || {
        let (mut told_s, mut final_s) = (0.0, 0.0);
        while let Some(ended) = workers.join_next().await {
            match ended.map_err(failed)?? {
                // All of them end when nodes were told of the last.
                (true, seconds) => told_s = seconds,
                (false, seconds) => final_s = seconds,
            }
        }
        Ok::<_, Failure>((told_s, final_s))
    };
    let (told_s, final_s) = tokio::select! {
        ended = all() => ended?,
        failed = blocks(node) => return Err(failed),
    };
    let filter = JobFilter { state: Some(JobState::Confirmed), ..JobFilter::default() };
    let confirmed = desk.db.jobs(&filter, i64::MAX, i64::from(in_all) + 1).await?.len();
    if confirmed != in_all as usize {
        return Err(failed(format!("of {in_all} payments {confirmed} are confirmed")));
    }
    Ok((f64::from(jobs) / told_s, f64::from(jobs) / final_s))
}

/// Blocks come, until a node fails.
pub(super) async fn blocks(node: &Host) -> Failure {
    loop {
        tokio::time::sleep(BLOCK).await;
        if let Err(failure) = node.mine(1).await {
            return failure;
        }
    }
}

/// Rounds of a sender until nodes were told of so many, by whichever.
async fn send(desk: &Desk, node: &Host, share: Share, told: &AtomicUsize, jobs: usize) -> CommandResult {
    let make = || desk.number();
    let mut sender = desk.sender(&*node.chain, &make, share)?;
    while told.load(Ordering::Relaxed) < jobs {
        let sent = sender.round(&SystemClock).await.map_err(failed)?;
        told.fetch_add(sent.told, Ordering::Relaxed);
        if sent.put_off > 0 || sent.refused > 0 {
            return Err(failed(format!("a payment was put off: {sent:?}")));
        }
        if !sent.is_busy() {
            tokio::time::sleep(IDLE).await;
        }
    }
    desk.leave(share).await
}

/// Rounds of a watcher until nothing is open: at once after one that found something, else one for each block.
async fn follow(desk: &Desk, node: &Host) -> CommandResult {
    let mut watcher = desk.watcher(&*node.chain)?;
    loop {
        let watched = watcher.round(&SystemClock).await.map_err(failed)?;
        if watched.changed > 0 {
            continue;
        }
        let lanes = desk.db.lanes(None, None, 0, 10_000).await?;
        if lanes.iter().all(|lane| lane.open + lane.waiting == 0) {
            return Ok(());
        }
        tokio::time::sleep(BLOCK).await;
    }
}

/// Thousands wait, and one comes that is more urgent: how many blocks go by before nodes are told of it.
async fn until_urgent(arguments: &Arguments, desk: &Desk, node: &Host) -> Result<u64, Failure> {
    let first = (arguments.rounds + 1) * arguments.jobs;
    desk.add(arguments.waiting, first, LOWEST).await?;
    let make = || desk.number();
    let (mut sender, mut watcher) = (desk.sender(&*node.chain, &make, Share::ALL)?, desk.watcher(&*node.chain)?);
    // As many are out as may be.
    sender.round(&SystemClock).await.map_err(failed)?;
    let urgent = desk.add(1, first + arguments.waiting, HIGHEST).await?.ok_or_else(|| failed("no job"))?;
    for blocks in 0..100 {
        sender.round(&SystemClock).await.map_err(failed)?;
        let state = desk.db.job(urgent).await?.map(|(shown, ..)| shown.job.state);
        if matches!(state, Some(JobState::Broadcasted | JobState::Confirming | JobState::Confirmed)) {
            return Ok(blocks);
        }
        node.mine(1).await?;
        watcher.round(&SystemClock).await.map_err(failed)?;
    }
    Err(failed("a payment of the highest priority was not sent in a hundred blocks"))
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn print_json(arguments: &Arguments, figures: &[Figures], shared: Option<&Shared>) {
    let spread = |samples: &Samples| json!([rounded(samples.lowest()), rounded(samples.highest())]);
    let nodes: Vec<Value> = figures
        .iter()
        .map(|one| {
            let (ratio, to_final) = (one.broadcast.ratio_to(&one.raw), one.confirmed.ratio_to(&one.raw));
            json!({
                "on": one.target.name(), "wallets": one.wallets,
                "confirmed_per_s": one.confirmed.median().round(), "broadcast_per_s": one.broadcast.median().round(),
                "raw_per_s": one.raw.median().round(), "raw_one_by_one_per_s": one.one_by_one.median().round(),
                "raw_together_per_s": one.together.median().round(), "ratio_to_raw": rounded(ratio.median()),
                "confirmed_ratio_to_raw": rounded(to_final.median()), "blocks_until_urgent": one.blocks_until_urgent,
                "spread": { "confirmed_per_s": spread(&one.confirmed), "broadcast_per_s": spread(&one.broadcast),
                    "raw_per_s": spread(&one.raw), "ratio_to_raw": spread(&ratio) },
            })
        })
        .collect();
    say(json!({
        "bench": "outbound", "engine": arguments.engine.name(), "jobs": arguments.jobs, "rounds": arguments.rounds,
        "in_flight": arguments.jobs, "waiting": arguments.waiting, "signer": "core, in this process",
        "nodes": nodes, "bitcoin": shared.map(Shared::json),
    }));
}

fn print(figures: &[Figures], shared: Option<&Shared>) {
    let whole = |samples: &Samples| thousands(samples.median().max(0.0).round() as u64);
    let rows: Vec<Vec<String>> = figures
        .iter()
        .map(|one| {
            let ratio = one.broadcast.ratio_to(&one.raw);
            vec![
                one.target.name().to_owned(),
                one.wallets.to_string(),
                whole(&one.confirmed),
                whole(&one.broadcast),
                whole(&one.raw),
                format!("{:.3} ({:.3} to {:.3})", ratio.median(), ratio.lowest(), ratio.highest()),
                one.blocks_until_urgent.to_string(),
            ]
        })
        .collect();
    let header =
        ["node", "wallets", "confirmed_per_s", "broadcast_per_s", "raw_per_s", "ratio_to_raw", "blocks_until_urgent"];
    say(table(&header, &[1, 2, 3, 4, 5, 6], &rows));
    if let Some(shared) = shared {
        say(shared.text());
    }
    say("the signer is its core within this process, without socket and disk");
}
