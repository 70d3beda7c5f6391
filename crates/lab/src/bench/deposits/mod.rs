//! `bursar bench deposits`: payments per second from a node to the user's account, scanned, proven, credited and durable, beside
//! scanning alone and beside the ledger's own batches in the same run.

mod books;
mod node;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chain::Chain;
use custody::deposit::{DepositError, DepositWorker, Watching};
use domain::Clock;
use domain::random::Random;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use terminal::audit::AuditReport;
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table, thousands};

use self::books::Books;
use self::node::Blocks;
use super::Samples;
use super::ledger::Bank;
use super::scan::{self, Filled, Target};
use super::site::{EngineName, Site};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which database
    #[arg(long)]
    engine: EngineName,
    /// How many addresses are watched
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    addresses: u32,
    /// How many blocks are made for each round
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    blocks: u32,
    /// How many payments to users each block has
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    payments: u32,
    /// How often each figure is measured, in turn with the others
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How many blocks are mined one by one, to measure how long a credit takes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    singles: u32,
    /// Where anvil is [default: on the PATH, or where ./test has put it]
    #[arg(long, value_name = "FILE")]
    anvil: Option<PathBuf>,
    /// Where bitcoind is [default: on the PATH, or where ./test has put it]
    #[arg(long, value_name = "FILE")]
    bitcoind: Option<PathBuf>,
}

/// How long the role `deposits` rests when there was nothing to do.
const REST: Duration = Duration::from_millis(400);
/// How long the ledger is measured in each round.
const SLICE: Duration = Duration::from_secs(2);

pub(super) fn trouble(error: impl std::fmt::Display) -> Failure {
    let error = std::io::Error::other(error.to_string());
    Failure::outside("COMMAND_FAILED", &error, "the bench needs a node that starts")
}

fn failed(error: DepositError) -> Failure {
    trouble(format!("{error}: {error:?}"))
}

/// All that was measured.
#[derive(Default)]
struct Measured {
    fill_s: f64,
    start_s: f64,
    rss_mb: u64,
    scan: Samples,
    proof: Samples,
    credited: Samples,
    ledger: Samples,
    /// Seconds from the confirming block to the credit.
    latency: Vec<f64>,
    proofs: Vec<(&'static str, Samples, Samples)>,
    deposits: u64,
}

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let bar = if as_json { ProgressBar::hidden() } else { ProgressBar::new(1) };
    if let Ok(style) = ProgressStyle::with_template("   {bar:30} {percent:>3} %  {msg}") {
        bar.set_style(style);
    }
    let site = Site::prepare(arguments.engine, None)?;
    let mut measured = Measured::default();
    let books = Books::open(&site).await?;
    bar.set_message("the first addresses");
    let watch = Stopwatch::start();
    books.fill(arguments.addresses, &bar).await?;
    measured.fill_s = watch.elapsed().as_secs_f64();
    bar.set_message("a node");
    let blocks = Blocks::start(&books).await?;
    measure(arguments, &books, &blocks, &mut measured, &bar).await?;
    bar.set_message("the audit");
    let audit = books.db.audit(|_| ()).await?;
    books.db.close().await;
    blocks.stop().await?;
    drop(site);
    bar.set_message("proofs on other nodes");
    let on = vec![Target::DevnetEvm, Target::DevnetBitcoin, Target::Anvil, Target::Bitcoind];
    let others = scan::Arguments::for_proofs(on, arguments.rounds, arguments.anvil.clone(), arguments.bitcoind.clone());
    measured.proofs = scan::proofs(&others).await?;
    bar.finish_and_clear();
    print(arguments, &measured, audit.clean(), as_json);
    AuditReport::from(&audit).verdict()
}

async fn measure(
    arguments: &Arguments,
    books: &Books,
    blocks: &Blocks,
    measured: &mut Measured,
    bar: &ProgressBar,
) -> CommandResult {
    bar.set_message("starting with all addresses");
    let watch = Stopwatch::start();
    let mut random = Random::from_seed(1);
    let mut watching = Watching::new(&books.pinned, &books.row.name, books.family, &books.house, &mut random);
    watching.load(&books.db).await?;
    measured.start_s = watch.elapsed().as_secs_f64();
    measured.rss_mb = resident_mb();
    let bank = Bank::on(books.db.clone(), books.asset, 2_000_000_000).await?;
    bank.fund().await?;
    let mut worker = take(books, blocks, &mut random).await?;
    // The first round loads the addresses again, and finds nothing in any cache.
    for round in 0..=arguments.rounds {
        bar.set_message(format!("round {round} of {}", arguments.rounds));
        let plan = scan::Plan { blocks: arguments.blocks, payments: arguments.payments };
        let range = blocks.fill(books, plan).await?;
        let (scan, proof) = read(arguments, blocks, range, &watching).await?;
        let ledger = bank.batch_1024(SLICE).await?;
        let credited = credit(arguments, &mut worker).await?;
        measured.deposits += u64::from(arguments.blocks) * u64::from(arguments.payments);
        if round > 0 {
            measured.scan.push(scan);
            measured.proof.push(proof);
            measured.ledger.push(ledger);
            measured.credited.push(credited);
        }
    }
    bar.set_message("one block at a time");
    one_by_one(arguments, books, blocks, &mut worker, measured).await
}

/// Payments per second that are scanned, and that are proven, with nothing done with them.
async fn read(
    arguments: &Arguments,
    blocks: &Blocks,
    range: Filled,
    watching: &Watching,
) -> Result<(f64, f64), Failure> {
    let payments = u64::from(arguments.blocks) * u64::from(arguments.payments);
    // As many at a time as the worker reads.
    let watch = Stopwatch::start();
    let mut found = 0;
    for from in (range.from..=range.to).step_by(100) {
        let scan = blocks.chain.scan(from, range.to.min(from + 99), watching.watched()).await.map_err(trouble)?;
        found += scan.outputs.len() as u64;
    }
    let scanned = per_second(payments, watch);
    let watch = Stopwatch::start();
    let mut proven = 0;
    for from in (range.from..=range.to).step_by(50) {
        let to = range.to.min(from + 49);
        let scan = blocks.chain.prove_blocks(from, to, watching.watched()).await.map_err(trouble)?;
        proven += scan.outputs.len() as u64;
    }
    if (found, proven) == (payments, payments) {
        return Ok((scanned, per_second(payments, watch)));
    }
    Err(trouble(format!("of {payments} payments {found} were found, and {proven} proven")))
}

async fn take<'a>(books: &'a Books, blocks: &'a Blocks, random: &mut Random) -> Result<DepositWorker<'a>, Failure> {
    let (row, pinned, now) = (books.row.clone(), Arc::clone(&books.pinned), SystemClock.now());
    let taken = DepositWorker::take(&books.db, &blocks.chain, row, pinned, "bench", random, now);
    taken.await.map_err(failed)
}

/// The worker catches up: everything in the blocks is scanned, proven, credited and durable.
async fn credit(arguments: &Arguments, worker: &mut DepositWorker<'_>) -> Result<f64, Failure> {
    let payments = u64::from(arguments.blocks) * u64::from(arguments.payments);
    let watch = Stopwatch::start();
    let mut credited = 0;
    loop {
        let worked = worker.round(&SystemClock).await.map_err(failed)?;
        credited += worked.posted.credited as u64;
        if !worked.is_busy() {
            break;
        }
    }
    let rate = per_second(payments, watch);
    if credited == payments {
        Ok(rate)
    } else {
        Err(trouble(format!("of {payments} payments {credited} were credited")))
    }
}

/// Blocks come one by one, and the worker works as the role does: it rests when there was nothing to do.
async fn one_by_one(
    arguments: &Arguments,
    books: &Books,
    blocks: &Blocks,
    worker: &mut DepositWorker<'_>,
    measured: &mut Measured,
) -> CommandResult {
    let plan = scan::Plan { blocks: 1, payments: arguments.payments };
    let mut random = Random::from_seed(2);
    for _ in 0..arguments.singles {
        // The block comes at some moment of the worker's rest.
        let rest = Duration::from_micros(random.below(REST.as_micros() as u64));
        blocks.fill(books, plan).await?;
        let watch = Stopwatch::start();
        tokio::time::sleep(rest).await;
        let mut credited = 0;
        while credited < u64::from(arguments.payments) {
            let worked = worker.round(&SystemClock).await.map_err(failed)?;
            credited += worked.posted.credited as u64;
            if !worked.is_busy() {
                tokio::time::sleep(REST).await;
            }
        }
        measured.deposits += credited;
        measured.latency.push(watch.elapsed().as_secs_f64());
    }
    measured.latency.sort_by(f64::total_cmp);
    Ok(())
}

fn per_second(count: u64, watch: Stopwatch) -> f64 {
    count as f64 / watch.elapsed().as_secs_f64()
}

/// The memory that this process has now, as Linux counts it; 0 elsewhere.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1_024
}

impl Measured {
    fn latency(&self, per_mille: usize) -> f64 {
        let last = self.latency.len().saturating_sub(1);
        self.latency.get(last * per_mille / 1_000).copied().unwrap_or(0.0)
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn print(arguments: &Arguments, measured: &Measured, clean: bool, as_json: bool) {
    let Measured { fill_s, start_s, rss_mb, scan, proof, credited, ledger, proofs, deposits, .. } = measured;
    let (to_ledger, to_scan) = (credited.ratio_to(ledger), credited.ratio_to(scan));
    let here = ("this run", scan, proof);
    let others = proofs.iter().map(|(name, scan, proof)| (*name, scan, proof));
    let ratios: Vec<(&str, Samples)> =
        std::iter::once(here).chain(others).map(|(name, scan, proof)| (name, proof.ratio_to(scan))).collect();
    if as_json {
        let spread = |samples: &Samples| json!([rounded(samples.lowest()), rounded(samples.highest())]);
        let prove: serde_json::Map<String, Value> = ratios
            .iter()
            .map(|(name, ratio)| {
                ((*name).to_owned(), json!({ "median": rounded(ratio.median()), "spread": spread(ratio) }))
            })
            .collect();
        say(json!({
            "bench": "deposits", "engine": arguments.engine.name(), "addresses": arguments.addresses,
            "blocks": arguments.blocks, "payments_per_block": arguments.payments, "rounds": arguments.rounds,
            "credited_per_s": credited.median().round(), "scan_per_s": scan.median().round(),
            "prove_per_s": proof.median().round(), "ledger_batch_1024_per_s": ledger.median().round(),
            "ratio_to_ledger": rounded(to_ledger.median()), "ratio_to_scan": rounded(to_scan.median()),
            "prove_ratio": prove,
            "credit_p50_s": rounded(measured.latency(500)), "credit_p99_s": rounded(measured.latency(990)),
            "start_s": rounded(*start_s), "start_rss_mb": rss_mb, "fill_s": rounded(*fill_s),
            "deposits": deposits, "audit_clean": clean,
            "spread": { "credited_per_s": spread(credited), "scan_per_s": spread(scan),
                "ledger_batch_1024_per_s": spread(ledger), "ratio_to_ledger": spread(&to_ledger) },
        }));
        return;
    }
    let whole = |value: f64| thousands(value.max(0.0).round() as u64);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (name, samples) in [
        ("credited_per_s", credited),
        ("scan_per_s", scan),
        ("prove_per_s", proof),
        ("ledger_batch_1024_per_s", ledger),
    ] {
        rows.push(vec![name.to_owned(), whole(samples.median()), whole(samples.lowest()), whole(samples.highest())]);
    }
    let named = ratios.into_iter().map(|(name, ratio)| (format!("prove_ratio, {name}"), ratio));
    for (name, ratio) in [("ratio_to_ledger".to_owned(), to_ledger)].into_iter().chain(named) {
        let show = |value: f64| format!("{value:.3}");
        rows.push(vec![name, show(ratio.median()), show(ratio.lowest()), show(ratio.highest())]);
    }
    say(table(&["figure", "median", "lowest", "highest"], &[1, 2, 3], &rows));
    say(format!(
        "a credit comes {:.3} s after its block (p50), {:.3} s (p99); start with {} addresses: {start_s:.1} s, {rss_mb} MB",
        measured.latency(500),
        measured.latency(990),
        thousands(u64::from(arguments.addresses))
    ));
    say(format!("{} deposits; audit {}", thousands(*deposits), if clean { "clean" } else { "BROKEN" }));
}
