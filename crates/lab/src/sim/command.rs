//! `bursar sim`: whole parts of Bursar under a seeded scheduler that crashes them, held against a simple model.

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use terminal::clock::Stopwatch;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{say, table, thousands};

use super::spot::Simulation;
use super::transfer::{Report, SimError};
use super::{custody, deposits, transfer};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// The spot engine on a disk that lies: random operations, crashes at any moment, compared after every recovery
    Spot(SpotArguments),
    /// Payments that leave: chains reorganise and spike, nodes, signer and workers fail at any moment, and no job is paid twice or stranded
    Custody(CustodyArguments),
    /// Deposits: chains reorganise, nodes lie, workers die at any moment, and the books must equal the chains
    Deposits(DepositsArguments),
    /// Transfers between both ends: processes, database, line and engine fail at any moment, and every law must hold
    Transfer(TransferArguments),
}

#[derive(Debug, clap::Args)]
pub struct SpotArguments {
    /// The same seed gives the same run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many requests to make
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
}

#[derive(Debug, clap::Args)]
pub struct TransferArguments {
    /// The same seed gives the same run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many transfers to make
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    transfers: u64,
}

#[derive(Debug, clap::Args)]
pub struct DepositsArguments {
    /// The same seed gives the same run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many blocks are mined, on two chains together
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    blocks: u64,
}

#[derive(Debug, clap::Args)]
pub struct CustodyArguments {
    /// The same seed gives the same run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many jobs are made, on two chains together
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
}

pub fn run(command: &Command, json: bool) -> CommandResult {
    match command {
        Command::Custody(arguments) => payments(arguments, json),
        Command::Spot(arguments) => spot(arguments, json),
        Command::Deposits(arguments) => deposits(arguments, json),
        Command::Transfer(arguments) => transfer(arguments, json),
    }
}

fn progress(json: bool, length: u64, what: &str) -> ProgressBar {
    let bar = if json { ProgressBar::hidden() } else { ProgressBar::new(length) };
    let style = ProgressStyle::with_template(&format!("{{bar:30}} {{human_pos}}/{{human_len}} {what}, {{msg}}"));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// From this length on every counter of a run is promised: one that is zero means that the simulator has stopped doing what
/// it says. Shorter runs promise nothing; the tests add several of them up.
const LEAST_OPS: u64 = 100_000;
const LEAST_TRANSFERS: u64 = 20_000;
const LEAST_BLOCKS: u64 = 20_000;
const LEAST_JOBS: u64 = 10_000;

/// Fails a run that is long enough to have seen everything, and has not.
fn check_promises(seed: u64, missing: &[&str], length: u64, least: u64, replay: &str) -> CommandResult {
    if length < least || missing.is_empty() {
        return Ok(());
    }
    let what = format!("the laws held, but this was promised and never happened: {}", missing.join(", "));
    Err(failed(seed, &what, replay))
}

fn failed(seed: u64, difference: &str, replay: &str) -> Failure {
    Failure {
        code: "SIMULATION_FAILED".into(),
        messages: vec![format!("seed {seed}: {difference}")],
        hint: format!("it replays exactly: {replay}"),
        exit: Exit::Found,
    }
}

fn spot(arguments: &SpotArguments, json: bool) -> CommandResult {
    let bar = progress(json, arguments.ops, "requests");
    let simulation = Simulation::new(arguments.seed)?;
    let result = simulation.run(arguments.ops, &mut |report| {
        bar.set_position(report.requests);
        bar.set_message(format!("{} recoveries", report.recoveries));
    });
    bar.finish_and_clear();
    let replay = format!("bursar sim spot --seed {} --ops {}", arguments.seed, arguments.ops);
    let report = result.map_err(|difference| failed(arguments.seed, &difference, &replay))?;
    let fields = [
        ("requests", report.requests),
        ("applied", report.applied),
        ("refused", report.refused),
        ("replays", report.replays),
        ("undecided", report.undecided),
        ("batches", report.batches),
        ("failed_batches", report.failed_batches),
        ("recoveries", report.recoveries),
        ("interrupted_recoveries", report.interrupted_recoveries),
        ("torn_tails", report.torn_tails),
        ("unacknowledged_kept", report.unacknowledged_kept),
        ("snapshots", report.snapshots),
        ("clean_restarts", report.clean_restarts),
    ];
    let missing: Vec<&str> = fields.iter().filter(|(_, times)| *times == 0).map(|(name, _)| *name).collect();
    if json {
        let mut body = json!({ "sim": "spot", "seed": arguments.seed, "agreed": true });
        fields.iter().for_each(|(name, value)| body[*name] = (*value).into());
        say(body);
    } else {
        let rows: Vec<Vec<String>> =
            fields.iter().map(|(name, value)| vec![(*name).to_owned(), thousands(*value)]).collect();
        say(table(&["what happened", "times"], &[1], &rows));
        say(format!("seed {}: the engine agreed with the model after every batch and every recovery", arguments.seed));
    }
    check_promises(arguments.seed, &missing, arguments.ops, LEAST_OPS, &replay)
}

/// A folder for the simulated database, gone when the run is over, however it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(seed: u64) -> Result<Self, Failure> {
        // Where memory is a disk, a run takes half the time; nothing of it has to outlive the process.
        let memory = std::env::var_os("TMPDIR").is_none().then(|| PathBuf::from("/dev/shm"));
        let place = memory.filter(|place| place.is_dir()).unwrap_or_else(std::env::temp_dir);
        let folder = place.join(format!("bursar-sim-{}-{seed}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| {
            Failure::outside("DISK_PROBE_FAILED", &error, "make room in the temporary folder, or set TMPDIR")
        })?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The system cleans its temporary folder if this fails.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// In a runtime of its own, on a thread of its own: all that it does is done one after the other. `None`: it panicked.
fn alone<T: Send, F: Future<Output = T>>(simulation: impl FnOnce() -> F + Send) -> Result<Option<T>, Failure> {
    let run = || {
        // Nothing of it reaches a network: without sockets to watch, waiting for the database is cheaper.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok::<T, std::io::Error>(runtime.block_on(simulation()))
    };
    let ended = std::thread::scope(|scope| scope.spawn(run).join());
    ended.ok().transpose().map_err(|error| Failure::outside("INTERNAL", &error, "the system gives no threads"))
}

fn panicked(seed: u64, replay: &str) -> Failure {
    failed(seed, "the code panicked; the message is above", replay)
}

/// What came of a run and what went wrong in it, for people.
fn show(parts: [(&str, Vec<(&'static str, u64)>); 2]) {
    for (title, fields) in parts {
        let row = |(name, value): &(&str, u64)| vec![(*name).to_owned(), thousands(*value)];
        say(table(&[title, "times"], &[1], &fields.iter().map(row).collect::<Vec<_>>()));
        say("");
    }
}

fn transfer(arguments: &TransferArguments, json: bool) -> CommandResult {
    let TransferArguments { seed, transfers } = *arguments;
    let bar = progress(json, transfers, "transfers");
    let scratch = Scratch::new(seed)?;
    let mut shown = 0;
    let mut progress = |report: &Report| {
        if report.transfers >= shown {
            shown = report.transfers + 100;
            bar.set_position(report.transfers);
            bar.set_message(format!("{} checks of the laws", report.law_checks));
        }
    };
    let ended = alone(|| transfer::run(seed, transfers, &scratch.0, &mut progress))?;
    bar.finish_and_clear();
    let replay = format!("bursar sim transfer --seed {seed} --transfers {transfers}");
    let report = ended.ok_or_else(|| panicked(seed, &replay))?.map_err(|error| match error {
        SimError::Broken(law) => failed(seed, &law, &replay),
        SimError::Store(error) => error.into(),
        SimError::Spot(error) => error.into(),
        SimError::SetUp(what) => failed(seed, &what, "and is a bug of the simulator"),
    })?;
    let hash = format!("{:016x}", report.hash);
    if json {
        let mut body = json!({ "sim": "transfer", "seed": seed, "held": true, "hash": hash });
        let fields = [report.happened(), report.faults()].concat();
        fields.iter().for_each(|(name, value)| body[*name] = (*value).into());
        say(body);
    } else {
        show([("what came of it", report.happened()), ("what went wrong", report.faults())]);
        say(format!(
            "seed {seed}, run {hash}: nothing was created, lost or stranded, and all that was told stayed true"
        ));
    }
    check_promises(seed, &report.missing(), transfers, LEAST_TRANSFERS, &replay)
}

/// The most memory this process has had, as Linux counts it; 0 elsewhere.
fn peak_memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1_024
}

fn deposits(arguments: &DepositsArguments, json: bool) -> CommandResult {
    let DepositsArguments { seed, blocks } = *arguments;
    let bar = progress(json, blocks, "blocks");
    let scratch = Scratch::new(seed)?;
    let mut shown = 0;
    let mut progress = |report: &deposits::Report| {
        if report.blocks >= shown {
            shown = report.blocks + 200;
            bar.set_position(report.blocks);
            bar.set_message(format!("{} credits, {} taken back", report.credited, report.reversed));
        }
    };
    let watch = Stopwatch::start();
    let ended = alone(|| deposits::run(seed, blocks, &scratch.0, &mut progress))?;
    bar.finish_and_clear();
    let seconds = watch.elapsed().as_secs();
    let replay = format!("bursar sim deposits --seed {seed} --blocks {blocks}");
    let report = ended.ok_or_else(|| panicked(seed, &replay))?.map_err(|error| match error {
        deposits::SimError::Broken(law) => failed(seed, &law, &replay),
        deposits::SimError::Store(error) => error.into(),
        deposits::SimError::SetUp(what) => failed(seed, &what, "and is a bug of the simulator"),
    })?;
    let (hash, memory) = (format!("{:016x}", report.hash), peak_memory_mb());
    if json {
        let mut body = json!({ "sim": "deposits", "seed": seed, "held": true, "hash": hash, "seconds": seconds,
            "peak_memory_mb": memory });
        let fields = [report.happened(), report.faults()].concat();
        fields.iter().for_each(|(name, value)| body[*name] = (*value).into());
        say(body);
    } else {
        show([("what came of it", report.happened()), ("what went wrong", report.faults())]);
        say(format!("seed {seed}, run {hash}: after every turn, what was credited is what the chains have, once"));
        say(format!("{seconds} s, at most {memory} MB"));
    }
    check_promises(seed, &report.missing(), blocks, LEAST_BLOCKS, &replay)
}

fn payments(arguments: &CustodyArguments, json: bool) -> CommandResult {
    let CustodyArguments { seed, jobs } = *arguments;
    let bar = progress(json, jobs, "jobs");
    let scratch = Scratch::new(seed)?;
    let mut shown = 0;
    let mut progress = |report: &custody::Report| {
        if report.jobs >= shown {
            shown = report.jobs + 50;
            bar.set_position(report.jobs);
            bar.set_message(format!("{} confirmed, {} replaced", report.confirmed, report.replacements));
        }
    };
    let watch = Stopwatch::start();
    let ended = alone(|| custody::run(seed, jobs, &scratch.0, &mut progress))?;
    bar.finish_and_clear();
    let seconds = watch.elapsed().as_secs();
    let replay = format!("bursar sim custody --seed {seed} --jobs {jobs}");
    let report = ended.ok_or_else(|| panicked(seed, &replay))?.map_err(|error| match error {
        custody::SimError::Broken(law) => failed(seed, &law, &replay),
        custody::SimError::Store(error) => error.into(),
        custody::SimError::SetUp(what) => failed(seed, &what, "and is a bug of the simulator"),
    })?;
    let (hash, memory) = (format!("{:016x}", report.hash), peak_memory_mb());
    if json {
        let mut body = json!({ "sim": "custody", "seed": seed, "held": true, "hash": hash, "seconds": seconds,
            "peak_memory_mb": memory });
        let fields = [report.happened(), report.faults()].concat();
        fields.iter().for_each(|(name, value)| body[*name] = (*value).into());
        say(body);
    } else {
        show([("what came of it", report.happened()), ("what went wrong", report.faults())]);
        say(format!("seed {seed}, run {hash}: no destination was paid twice on any branch, and no job was stranded"));
        say(format!("{seconds} s, at most {memory} MB"));
    }
    check_promises(seed, &report.missing(), jobs, LEAST_JOBS, &replay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_which_a_promised_fault_never_happened_fails() {
        let check = |missing: &[&str], length| check_promises(1, missing, length, LEAST_TRANSFERS, "again");
        assert!(check(&[], LEAST_TRANSFERS).is_ok());
        assert!(check(&["calls_lost"], LEAST_TRANSFERS - 1).is_ok(), "too short to promise anything");
        let failure = check(&["calls_lost", "commits_called"], LEAST_TRANSFERS).expect_err("promised");
        assert_eq!(failure.code, "SIMULATION_FAILED");
        assert!(failure.messages[0].ends_with("never happened: calls_lost, commits_called"), "{:?}", failure.messages);
        assert!(!Report::default().missing().is_empty());
    }
}
