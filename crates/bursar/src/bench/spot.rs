//! `bursar bench spot`: durable operations per second and their latency, beside the bare disk and the bare state.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::id::{self, Generator, NodeId};
use domain::random::Random;
use domain::{Amount, AssetId, Clock, UserId};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use spot::net::{Client, Server, Token};
use spot::service::{Ended, Limits};
use spot::sim::{SegmentHeader, Window, prepare};
use spot::{Answer, Core, Decision as Decided, Engine, Move, OpId, Operation, Request, Settings, SpotError, State};

use super::Samples;
use super::disk::{Probe, fdatasync};
use crate::clock::{Stopwatch, SystemClock};
use crate::commands::spot::exclusive;
use crate::failure::{Failure, Outcome};
use crate::output::{say, table, thousands, warn};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the logs are written [default: a new folder among the temporary files]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// How often each figure is measured, in turn with the others
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each figure is measured in each round
    #[arg(long, default_value_t = 1_000, value_name = "MS", value_parser = clap::value_parser!(u64).range(50..=600_000))]
    slice_ms: u64,
    /// Accounts for the memory figure
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    accounts: u64,
    /// Operations for the figures of memory and recovery
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    operations: u64,
}

/// Users in the figures of speed.
const USERS: u64 = 100_000;
const ASSET: AssetId = AssetId(1);

fn bug(what: impl std::fmt::Display) -> Failure {
    Failure::outside(
        "INTERNAL",
        &std::io::Error::other(what.to_string()),
        "this is a bug in the bench: please report it",
    )
}

fn disk_trouble(error: &std::io::Error) -> Failure {
    Failure::outside("DISK_PROBE_FAILED", error, "make room in the folder, or name another one with --dir")
}

/// A folder that goes when the bench ends.
struct Site(PathBuf);

impl Site {
    fn prepare(arguments: &Arguments) -> Result<Self, Failure> {
        let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("bursar-bench-spot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| disk_trouble(&error))?;
        Ok(Self(folder))
    }

    fn new_log(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.0.join(name);
        std::fs::create_dir_all(&folder).map_err(|error| disk_trouble(&error))?;
        let disk = exclusive(&folder)?;
        Core::create(&disk, SystemClock.now().micros().cast_unsigned(), &Settings::default())?;
        Ok(folder)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            warn(format!("{}: {error}", self.0.display()));
        }
    }
}

/// Makes operations: one unit in, one unit out, for users all over the table.
struct Source {
    ids: Arc<Generator<SystemClock>>,
    random: Random,
}

impl Source {
    fn next(&mut self) -> Result<Operation, Failure> {
        let id = self.ids.next::<id::Transfer>().map_err(bug)?.into();
        let word = self.random.next_u64();
        let user = user(1 + word % USERS)?;
        let of = Move { id, user, asset: ASSET, amount: Amount::from_units(1) };
        Ok(if word >> 63 == 0 { Operation::Deposit(of) } else { Operation::Withdraw(of) })
    }
}

fn user(number: u64) -> Result<UserId, Failure> {
    i64::try_from(number).ok().and_then(UserId::new).ok_or_else(|| bug("a user has no number"))
}

/// Deposits for every user, so that no withdrawal is refused.
fn funding(ids: &Generator<SystemClock>, users: u64) -> Result<Vec<Request>, Failure> {
    (1..=users)
        .map(|number| {
            let id = ids.next::<id::Transfer>().map_err(bug)?.into();
            let of = Move { id, user: user(number)?, asset: ASSET, amount: Amount::from_units(1_000_000_000) };
            Ok(Request::Run(Operation::Deposit(of)))
        })
        .collect()
}

/// Throughput and latency of one slice.
struct Measured {
    per_s: f64,
    /// In nanoseconds, sorted.
    latencies: Vec<u32>,
}

impl Measured {
    fn of(mut latencies: Vec<u32>, time: Duration) -> Self {
        latencies.sort_unstable();
        Self { per_s: latencies.len() as f64 / time.as_secs_f64(), latencies }
    }

    fn quantile_us(&self, thousandths: usize) -> f64 {
        let at = self.latencies.len() * thousandths / 1_000;
        self.latencies.get(at).or(self.latencies.last()).map_or(0.0, |nanos| f64::from(*nanos) / 1e3)
    }
}

fn nanos(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

/// Single operations, each submitted by itself, so many of them outstanding at any time.
async fn in_process(
    engine: &Engine,
    ids: &Arc<Generator<SystemClock>>,
    outstanding: u64,
    time: Duration,
) -> Result<Measured, Failure> {
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..outstanding)
        .map(|number| {
            let engine = engine.clone();
            let mut source = Source { ids: Arc::clone(ids), random: Random::from_seed(number) };
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let mut before = watch.elapsed();
                while before < time {
                    let answer = engine.ask(source.next()?).await.map_err(bug)?;
                    if answer != Answer::First(Decided::Applied) {
                        return Err(bug(format!("{answer:?}")));
                    }
                    let now = watch.elapsed();
                    latencies.push(nanos(now - before));
                    before = now;
                }
                Ok(latencies)
            })
        })
        .collect();
    collect(tasks, watch).await
}

async fn collect(
    tasks: Vec<tokio::task::JoinHandle<Result<Vec<u32>, Failure>>>,
    watch: Stopwatch,
) -> Result<Measured, Failure> {
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.map_err(bug)??);
    }
    Ok(Measured::of(latencies, watch.elapsed()))
}

/// Operations per frame over the network.
const FRAME: u64 = 64;

/// Frames of 64 operations over one connection. The latency of a frame is that of each of its operations.
async fn loopback(
    client: &Client,
    ids: &Arc<Generator<SystemClock>>,
    outstanding: u64,
    time: Duration,
) -> Result<Measured, Failure> {
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..outstanding / FRAME)
        .map(|number| {
            let client = client.clone();
            let mut source = Source { ids: Arc::clone(ids), random: Random::from_seed(number) };
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let mut before = watch.elapsed();
                while before < time {
                    let requests: Result<Vec<Request>, Failure> =
                        (0..FRAME).map(|_| source.next().map(Request::Run)).collect();
                    let answers = client.submit(&requests?).await.map_err(bug)?;
                    if let Some(other) = answers.iter().find(|answer| **answer != Answer::First(Decided::Applied)) {
                        return Err(bug(format!("{other:?}")));
                    }
                    let now = watch.elapsed();
                    latencies.extend(answers.iter().map(|_| nanos(now - before)));
                    before = now;
                }
                Ok(latencies)
            })
        })
        .collect();
    collect(tasks, watch).await
}

/// The same operations on the state alone: no log, no threads.
fn apply_only(state: &mut State, source: &mut Source, time: Duration) -> Result<f64, Failure> {
    let mut done = 0_u64;
    let mut spent = Duration::ZERO;
    while spent < time {
        let requests: Result<Vec<Request>, Failure> = (0..4_096).map(|_| source.next().map(Request::Run)).collect();
        let requests = requests?;
        let window = state.window_at(SystemClock.now(), Settings::default().retention_micros);
        let watch = Stopwatch::start();
        state.set_window(window);
        for request in &requests {
            if state.answer(request).0 != Answer::First(Decided::Applied) {
                return Err(bug("a withdrawal was refused"));
            }
        }
        spent += watch.elapsed();
        done += requests.len() as u64;
    }
    Ok(done as f64 / spent.as_secs_f64())
}

/// What the machine says that this process takes.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

/// Bytes per account and per remembered id, as the process grows and as the tables count.
fn memory(accounts: u64, operations: u64) -> Result<Value, Failure> {
    let ids = Generator::new(SystemClock, NodeId::new(2).ok_or_else(|| bug("node"))?);
    let mut state = State::default();
    state.set_window(Window { time: SystemClock.now().plus_micros(3_600_000_000), ..Window::default() });
    let deposit = |state: &mut State, number: u64| -> Result<(), Failure> {
        let id: OpId = ids.next::<id::Transfer>().map_err(bug)?.into();
        let of = Move { id, user: user(number)?, asset: ASSET, amount: Amount::from_units(1) };
        state.answer(&Request::Run(Operation::Deposit(of)));
        Ok(())
    };
    let before = resident_bytes();
    for number in 1..=accounts {
        deposit(&mut state, number)?;
    }
    // The deposits left their ids too.
    let with_accounts = resident_bytes();
    let first_ids = state.id_bytes() as u64;
    for number in 0..operations {
        deposit(&mut state, 1 + number % accounts)?;
    }
    let with_ids = resident_bytes();
    let per = |bytes: u64, count: u64| (bytes as f64 / count as f64 * 10.0).round() / 10.0;
    Ok(json!({
        "accounts": accounts,
        "bytes_per_account": per(state.account_bytes() as u64, accounts),
        "bytes_per_account_resident": per((with_accounts - before).saturating_sub(first_ids), accounts),
        "ids": operations,
        "bytes_per_id": per(state.id_bytes() as u64, state.id_count() as u64),
        "bytes_per_id_resident": per(with_ids - with_accounts, operations),
    }))
}

/// Writes so many operations in batches of 4096, then times the start of the engine from them alone.
fn recovery(site: &Site, operations: u64) -> Result<Value, Failure> {
    let folder = site.new_log("recovery")?;
    let settings = Settings::default();
    let ids = Arc::new(Generator::new(SystemClock, NodeId::new(3).ok_or_else(|| bug("node"))?));
    let (mut core, _) = Core::open(Arc::new(exclusive(&folder)?), &settings, &mut |_| {})?;
    let mut source = Source { ids: Arc::clone(&ids), random: Random::from_seed(1) };
    let mut run = |requests: &[Request]| -> Result<(), SpotError> {
        core.begin(SystemClock.now());
        for request in requests {
            core.answer(request);
        }
        core.commit()
    };
    for requests in funding(&ids, USERS)?.chunks(4_096) {
        run(requests)?;
    }
    let mut written = USERS;
    while written < operations {
        let requests: Result<Vec<Request>, Failure> = (0..4_096).map(|_| source.next().map(Request::Run)).collect();
        run(&requests?)?;
        written += 4_096;
    }
    let sequence = core.log().sequence();
    drop(core);
    let watch = Stopwatch::start();
    let (core, started) = Core::open(Arc::new(exclusive(&folder)?), &settings, &mut |_| {})?;
    let from_log = watch.elapsed();
    if started.sequence != sequence {
        return Err(bug("batches are missing after a recovery"));
    }
    // All that the writer itself does for a snapshot: it goes on in the next segment, which is there.
    let mut core = core;
    let current = core.log().segment();
    let next = SegmentHeader { number: current.number + 1, ..current };
    prepare(&*core.storage(), &core.spare(), &next)?;
    let watch = Stopwatch::start();
    let sealed = core.seal()?;
    let stop = watch.elapsed();
    drop(core);
    let disk = exclusive(&folder)?;
    let watch = Stopwatch::start();
    spot::snapshot::take(&disk, sealed)?;
    let snapshot = watch.elapsed();
    drop(disk);
    let watch = Stopwatch::start();
    let (core, _) = Core::open(Arc::new(exclusive(&folder)?), &settings, &mut |_| {})?;
    let from_snapshot = watch.elapsed();
    drop(core);
    std::fs::remove_dir_all(&folder).map_err(|error| disk_trouble(&error))?;
    Ok(json!({
        "operations": started.operations,
        "seconds": rounded(from_log.as_secs_f64()),
        "operations_per_s": (started.operations as f64 / from_log.as_secs_f64()).round(),
        "snapshot_writer_stop_us": rounded(stop.as_secs_f64() * 1e6),
        "snapshot_seconds": rounded(snapshot.as_secs_f64()),
        "seconds_from_snapshot": rounded(from_snapshot.as_secs_f64()),
    }))
}

/// What a snapshot costs whoever works meanwhile: one operation after the other on so many accounts, first in peace,
/// then while a snapshot is taken.
async fn snapshot(site: &Site, accounts: u64) -> Result<Value, Failure> {
    let folder = site.new_log("snapshot")?;
    let (core, _) = Core::open(Arc::new(exclusive(&folder)?), &Settings::default(), &mut |_| {})?;
    let engine = Engine::start(core, Limits::default(), Arc::new(SystemClock)).map_err(|error| disk_trouble(&error))?;
    let ids = Arc::new(Generator::new(SystemClock, NodeId::new(4).ok_or_else(|| bug("node"))?));
    for requests in funding(&ids, accounts.max(USERS))?.chunks(4_096) {
        engine.submit(requests.to_vec()).await.map_err(bug)?;
    }
    let peace = in_process(&engine, &ids, 1, Duration::from_secs(1)).await?;
    let watch = Stopwatch::start();
    let taking = tokio::spawn({
        let engine = engine.clone();
        async move { engine.snapshot().await }
    });
    let mut source = Source { ids, random: Random::from_seed(9) };
    let mut latencies = Vec::new();
    let mut before = watch.elapsed();
    while !taking.is_finished() {
        engine.ask(source.next()?).await.map_err(bug)?;
        let now = watch.elapsed();
        latencies.push(nanos(now - before));
        before = now;
    }
    taking.await.map_err(bug)??;
    let during = Measured::of(latencies, watch.elapsed());
    engine.stop().await;
    let longest = |measured: &Measured| rounded(measured.latencies.last().map_or(0.0, |nanos| f64::from(*nanos) / 1e3));
    Ok(json!({
        "accounts": accounts.max(USERS),
        "seconds": rounded(watch.elapsed().as_secs_f64()),
        "operations_meanwhile": during.latencies.len(),
        "p50_us_in_peace": rounded(peace.quantile_us(500)),
        "p50_us": rounded(during.quantile_us(500)),
        "longest_us_in_peace": longest(&peace),
        "longest_us": longest(&during),
    }))
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// One way of asking, over all rounds.
#[derive(Default)]
struct Figure {
    per_s: Samples,
    p50: Samples,
    p99: Samples,
    p999: Samples,
}

impl Figure {
    fn push(&mut self, measured: &Measured) {
        self.per_s.push(measured.per_s);
        self.p50.push(measured.quantile_us(500));
        self.p99.push(measured.quantile_us(990));
        self.p999.push(measured.quantile_us(999));
    }

    fn json(&self) -> Value {
        json!({
            "ops_per_s": self.per_s.median().round(),
            "ops_per_s_lowest": self.per_s.lowest().round(),
            "ops_per_s_highest": self.per_s.highest().round(),
            "p50_us": rounded(self.p50.median()),
            "p99_us": rounded(self.p99.median()),
            "p999_us": rounded(self.p999.median()),
        })
    }
}

pub async fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let site = Site::prepare(arguments)?;
    let time = Duration::from_millis(arguments.slice_ms);
    let bar = if as_json { ProgressBar::hidden() } else { ProgressBar::new(0) };
    bar.set_length(u64::from(arguments.rounds + 1) * 5 + 3);
    // First of all: what the allocator keeps of earlier work would hide what this takes.
    let memory = memory(arguments.accounts, arguments.operations)?;
    bar.inc(1);
    let ids = Arc::new(Generator::new(SystemClock, NodeId::new(1).ok_or_else(|| bug("node"))?));
    let folder = site.new_log("speed")?;
    let (core, _) = Core::open(Arc::new(exclusive(&folder)?), &Settings::default(), &mut |_| {})?;
    let engine = Engine::start(core, Limits::default(), Arc::new(SystemClock)).map_err(|error| disk_trouble(&error))?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(|error| disk_trouble(&error))?;
    let address = listener.local_addr().map_err(|error| disk_trouble(&error))?;
    let token = Token::new("a token for the bench").map_err(bug)?;
    let server = tokio::spawn(Server::new(listener, engine.clone(), token.clone()).run());
    let client = Client::start(address, token, 1);
    let mut state = State::default();
    state.set_window(Window { time: SystemClock.now(), ..Window::default() });
    for requests in funding(&ids, USERS)?.chunks(4_096) {
        engine.submit(requests.to_vec()).await.map_err(bug)?;
    }
    for request in funding(&ids, USERS)? {
        state.answer(&request);
    }
    let mut source = Source { ids: Arc::clone(&ids), random: Random::from_seed(7) };

    let mut probes: Vec<Probe> = Vec::new();
    let (mut one, mut some, mut many, mut net) =
        (Figure::default(), Figure::default(), Figure::default(), Figure::default());
    let (mut applied, mut p50_ratio) = (Samples::default(), Samples::default());
    let probe = || fdatasync(&site.0, time / 4).map_err(|error| disk_trouble(&error));
    for round in 0..=arguments.rounds {
        let counted = round > 0;
        let before = probe()?;
        let measured = in_process(&engine, &ids, 1, time).await?;
        let after = probe()?;
        bar.inc(1);
        if counted {
            p50_ratio.push(measured.quantile_us(500) / ((before.p50_us + after.p50_us) / 2.0));
            one.push(&measured);
        }
        for (outstanding, figure) in [(64, &mut some), (4_096, &mut many)] {
            let measured = in_process(&engine, &ids, outstanding, time).await?;
            bar.inc(1);
            if counted {
                figure.push(&measured);
            }
        }
        let between = probe()?;
        let measured = loopback(&client, &ids, 4_096, time).await?;
        bar.inc(1);
        let applied_per_s = apply_only(&mut state, &mut source, time / 4)?;
        bar.inc(1);
        if counted {
            net.push(&measured);
            applied.push(applied_per_s);
            probes.extend([before, after, between]);
        }
    }
    drop(client);
    server.abort();
    if let Ended::Failed(error) = engine.stop().await {
        return Err(bug(error));
    }
    drop(state);
    let snapshot = snapshot(&site, arguments.accounts).await?;
    bar.inc(1);
    let recovery = recovery(&site, arguments.operations)?;
    bar.finish_and_clear();
    let mut disk = Samples::default();
    probes.iter().for_each(|probe| disk.push(probe.per_s));
    let ratio = many.per_s.ratio_to(&applied);
    let body = json!({
        "bench": "spot",
        "rounds": arguments.rounds,
        "slice_ms": arguments.slice_ms,
        "users": USERS,
        "in_process_1": one.json(),
        "in_process_64": some.json(),
        "in_process_4096": many.json(),
        "loopback_4096": net.json(),
        "fdatasync_per_s": disk.median().round(),
        "fdatasync_per_s_lowest": disk.lowest().round(),
        "fdatasync_per_s_highest": disk.highest().round(),
        "apply_only_per_s": applied.median().round(),
        "ratio_4096_to_apply_only": rounded(ratio.median()),
        "p50_1_to_one_fdatasync": rounded(p50_ratio.median()),
        "memory": memory,
        "snapshot": snapshot,
        "recovery": recovery,
    });
    if as_json {
        say(&body);
    } else {
        print(&body);
    }
    Ok(())
}

fn print(body: &Value) {
    let whole = |value: &Value| thousands(value.as_f64().unwrap_or(0.0) as u64);
    let rows: Vec<Vec<String>> = ["in_process_1", "in_process_64", "in_process_4096", "loopback_4096"]
        .iter()
        .map(|name| {
            let figure = &body[*name];
            let latency = |name: &str| format!("{:.0}", figure[name].as_f64().unwrap_or(0.0));
            let spread = format!("{} – {}", whole(&figure["ops_per_s_lowest"]), whole(&figure["ops_per_s_highest"]));
            vec![
                (*name).to_owned(),
                whole(&figure["ops_per_s"]),
                spread,
                latency("p50_us"),
                latency("p99_us"),
                latency("p999_us"),
            ]
        })
        .collect();
    say(table(
        &["outstanding", "durable ops/s", "lowest – highest", "p50 µs", "p99 µs", "p999 µs"],
        &[1, 2, 3, 4, 5],
        &rows,
    ));
    let mut rows = vec![
        vec![
            "fdatasync_per_s".to_owned(),
            format!(
                "{} ({} – {})",
                whole(&body["fdatasync_per_s"]),
                whole(&body["fdatasync_per_s_lowest"]),
                whole(&body["fdatasync_per_s_highest"])
            ),
        ],
        vec!["apply_only_per_s".to_owned(), whole(&body["apply_only_per_s"])],
    ];
    for name in ["ratio_4096_to_apply_only", "p50_1_to_one_fdatasync"] {
        rows.push(vec![name.to_owned(), body[name].to_string()]);
    }
    for group in ["memory", "snapshot", "recovery"] {
        if let Some(fields) = body[group].as_object() {
            rows.extend(fields.iter().map(|(name, value)| vec![format!("{group}.{name}"), value.to_string()]));
        }
    }
    say(format!("\n{}", table(&["figure", "value"], &[1], &rows)));
}
