//! `bursar bench ledger`: holds and settles per second beside the plainest commit on the same server.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use domain::ledger::{Movement, OpKey, Operation, Outcome as Decided, Reference, Reply};
use domain::random::Random;
use domain::{AccountId, AccountKind, Amount, AssetId, Clock, UserId};
use serde_json::{Value, json};
use store::catalog::read_assets;
use store::ledger::{NewAccount, Opened};
use store::{Db, Options, StoreError};
use terminal::audit::AuditReport;
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table, thousands};

use super::Samples;
use super::disk::fdatasync;
use super::site::{EngineName, Site};
use crate::rig::program::apply_treasury;
use crate::scratch;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which database
    #[arg(long)]
    engine: EngineName,
    /// An empty database to use instead of a private one: the bench makes up accounts and money in it
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// How often each figure is measured, in turn with the others
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each figure is measured in each round
    #[arg(long, default_value_t = 1_000, value_name = "MS", value_parser = clap::value_parser!(u64).range(50..=600_000))]
    slice_ms: u64,
}

#[derive(Debug, clap::Args)]
pub struct WriterArguments {
    #[arg(long)]
    url: String,
    #[arg(long)]
    first: usize,
    #[arg(long)]
    count: usize,
    #[arg(long)]
    millis: u64,
}

const ACCOUNTS: usize = 10_000;
const WRITERS: usize = 8;

/// The accounts of the bench, funded.
#[derive(Clone)]
pub(super) struct Bank {
    db: Db,
    asset: AssetId,
    clearing: AccountId,
    users: Arc<[AccountId]>,
}

const FUNDS: i64 = 1_000_000_000_000;

impl Bank {
    async fn open(url: &str) -> Result<Self, Failure> {
        let options = Options {
            create: true,
            max_connections: 16,
            jitter_seed: u64::from(std::process::id()),
            ..Options::default()
        };
        let db = Db::connect(url, &options).await?;
        let now = SystemClock.now();
        db.migrate(now).await?;
        scratch::check(&db, "bench").await?;
        apply_treasury(url, "bench", "bursar bench").await?;
        let assets = read_assets(&mut db.read().await?).await?;
        let asset = *assets.keys().next().ok_or(StoreError::SchemaMissing)?;
        Self::on(db, asset, 1).await
    }

    /// With users of its own, from a number on, in a database that is there already.
    pub(super) async fn on(db: Db, asset: AssetId, first: i64) -> Result<Self, Failure> {
        let now = SystemClock.now();
        let clearing = NewAccount::system(&AccountKind::Suspense, asset).into_iter();
        let users = (first..).take(ACCOUNTS).filter_map(UserId::new).map(|user| NewAccount::funding(user, asset));
        let wanted: Vec<NewAccount> = clearing.chain(users).collect();
        let mut ids = Vec::with_capacity(wanted.len());
        for opened in db.open(&wanted, now).await? {
            match opened {
                Opened::Account(id) => ids.push(id),
                Opened::UnknownAsset => return Err(StoreError::SchemaMissing.into()),
            }
        }
        let clearing = ids.remove(0);
        Ok(Self { db, asset, clearing, users: ids.into() })
    }

    /// Holds and settles per second, in batches of 1024: what other benches hold themselves against.
    pub(super) async fn batch_1024(&self, time: Duration) -> Result<f64, Failure> {
        subject(self, 1_024, lanes(self), time).await
    }

    /// Gives each user enough for the whole bench.
    pub(super) async fn fund(&self) -> Result<(), Failure> {
        let tag = SystemClock.now().micros();
        for (number, users) in self.users.chunks(2_000).enumerate() {
            let mut operations = Vec::with_capacity(users.len());
            for user in users {
                let amount = Amount::from_units(FUNDS);
                let movement = Movement { from: self.clearing, to: *user, asset: self.asset, amount };
                let key = key(format!("fund-{tag}-{number}-{user}"))?;
                operations.push(Operation::move_available(key, vec![movement], note()?).map_err(bad)?);
            }
            expect_applied(&self.db.post(&operations, SystemClock.now()).await?)?;
        }
        Ok(())
    }
}

pub(super) fn bad(error: domain::ledger::BadOperation) -> Failure {
    Failure::outside("INTERNAL", &error, "this is a bug in the bench: please report it")
}

pub(super) fn key(text: String) -> Result<OpKey, Failure> {
    OpKey::new(text).map_err(bad)
}

pub(super) fn note() -> Result<Reference, Failure> {
    Reference::new("bench").map_err(bad)
}

pub(super) fn expect_applied(replies: &[Reply]) -> Result<(), Failure> {
    match replies.iter().find(|reply| **reply != Reply::First(Decided::Applied)) {
        None => Ok(()),
        Some(reply) => {
            Err(StoreError::Corrupt { what: format!("the bench expected to be applied, got {reply:?}") }.into())
        }
    }
}

/// One writer's share of the accounts, and what it does with them.
struct Writer {
    bank: Bank,
    users: Vec<AccountId>,
    batch: usize,
    tag: String,
    random: Random,
}

impl Writer {
    fn new(bank: &Bank, users: Vec<AccountId>, batch: usize, tag: String) -> Self {
        let random = Random::from_seed(u64::from(hash(&tag)));
        Self { bank: bank.clone(), users, batch, tag, random }
    }

    /// A batch of holds on random accounts, then a batch that settles them, until the time is up. Returns how many
    /// operations were acknowledged.
    async fn run(mut self, watch: Stopwatch, time: Duration) -> Result<u64, Failure> {
        let mut done = 0;
        let amount = Amount::from_units(1);
        let note = note()?;
        for round in 0_u64.. {
            if watch.elapsed() >= time {
                break;
            }
            let mut holds = Vec::with_capacity(self.batch);
            let mut settles = Vec::with_capacity(self.batch);
            for number in 0..self.batch {
                let user = self.users[self.random.index(self.users.len())];
                let hold = key(format!("{}-{round}-{number}:hold", self.tag))?;
                let settle = key(format!("{}-{round}-{number}:settle", self.tag))?;
                let movement = Movement { from: user, to: self.bank.clearing, asset: self.bank.asset, amount };
                holds.push(Operation::hold(hold.clone(), user, self.bank.asset, amount, note.clone()));
                settles.push(Operation::settle(settle, hold, vec![movement], note.clone()).map_err(bad)?);
            }
            for operations in [holds, settles] {
                expect_applied(&self.bank.db.post(&operations, SystemClock.now()).await?)?;
                done += operations.len() as u64;
            }
        }
        Ok(done)
    }
}

/// A small stable hash, to give each writer a seed of its own.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Runs the writers side by side; operations per second.
async fn rate(writers: Vec<Writer>, time: Duration) -> Result<f64, Failure> {
    let watch = Stopwatch::start();
    let tasks: Vec<_> = writers.into_iter().map(|writer| tokio::spawn(writer.run(watch, time))).collect();
    per_second(tasks, watch).await
}

async fn per_second(
    tasks: Vec<tokio::task::JoinHandle<Result<u64, Failure>>>,
    watch: Stopwatch,
) -> Result<f64, Failure> {
    let mut done = 0;
    for task in tasks {
        done += task.await.map_err(|error| Failure::outside("INTERNAL", &error, "this is a bug in the bench"))??;
    }
    Ok(done as f64 / watch.elapsed().as_secs_f64())
}

/// Users dealt out like cards: each lane has its own, as a coordinator that shards by user would.
fn lanes(bank: &Bank) -> Vec<Vec<AccountId>> {
    (0..WRITERS).map(|lane| bank.users.iter().copied().skip(lane).step_by(WRITERS).collect()).collect()
}

async fn subject(bank: &Bank, batch: usize, lanes: Vec<Vec<AccountId>>, time: Duration) -> Result<f64, Failure> {
    let tag = SystemClock.now().micros();
    let writers = lanes
        .into_iter()
        .enumerate()
        .map(|(lane, users)| Writer::new(bank, users, batch, format!("b{tag}-{lane}")))
        .collect();
    rate(writers, time).await
}

async fn yardstick(bank: &Bank, time: Duration) -> Result<f64, Failure> {
    let watch = Stopwatch::start();
    let rows = bank.users.len() as u64;
    let tasks = (0..WRITERS)
        .map(|writer| {
            let db = bank.db.clone();
            let mut random = Random::from_seed(writer as u64);
            tokio::spawn(async move {
                let mut done = 0;
                while watch.elapsed() < time {
                    let row = i64::try_from(random.below(rows)).unwrap_or(0) + 1;
                    db.bare_update(row).await?;
                    done += 1;
                }
                Ok(done)
            })
        })
        .collect();
    per_second(tasks, watch).await
}

/// Operations per second of so many processes at once, each with one writer and users of its own.
async fn processes(url: &str, count: usize, time: Duration) -> Result<f64, Failure> {
    let trouble = |error: std::io::Error| Failure::outside("COMMAND_FAILED", &error, "the bench starts itself again");
    let program = std::env::current_exe().map_err(trouble)?;
    let share = ACCOUNTS / 2;
    let mut children = Vec::new();
    for number in 0..count {
        let mut command = tokio::process::Command::new(&program);
        command
            .args(["bench", "ledger-writer", "--url", url])
            .args(["--first", &(number * share).to_string(), "--count", &share.to_string()])
            .args(["--millis", &time.as_millis().to_string()])
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        children.push(command.spawn().map_err(trouble)?);
    }
    let mut total = 0.0;
    for child in children {
        let output = child.wait_with_output().await.map_err(trouble)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate: Option<f64> = text.trim().parse().ok().filter(|_| output.status.success());
        total += rate.ok_or_else(|| trouble(std::io::Error::other("a writer process failed")))?;
    }
    Ok(total)
}

pub async fn run_writer(arguments: &WriterArguments) -> CommandResult {
    let bank = Bank::open(&arguments.url).await?;
    let users = bank.users.iter().copied().skip(arguments.first).take(arguments.count).collect();
    let tag = format!("p{}-{}", std::process::id(), SystemClock.now().micros());
    let writer = Writer::new(&bank, users, 1_024, tag);
    if writer.users.is_empty() {
        return Err(Failure::bad_input("BAD_USAGE", "no accounts in that range", "--first 0 --count 5000"));
    }
    let rate = rate(vec![writer], Duration::from_millis(arguments.millis)).await?;
    say(rate);
    bank.db.close().await;
    Ok(())
}

/// The figures, in the order in which they are taken in each round.
const FIGURES: [&str; 10] = [
    "fdatasync_per_s",
    "yardstick_per_s",
    "batch_1_per_s",
    "batch_64_per_s",
    "batch_1024_per_s",
    "batch_1024_shared_per_s",
    "hot_account_per_s",
    "hot_account_64_per_s",
    "one_process_per_s",
    "two_processes_per_s",
];

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let site = Site::prepare(arguments.engine, arguments.database_url.as_deref())?;
    let bank = Bank::open(site.url()).await?;
    bank.fund().await?;
    bank.db.prepare_yardstick(ACCOUNTS as i64).await?;
    let time = Duration::from_millis(arguments.slice_ms);
    let bar = if as_json { indicatif::ProgressBar::hidden() } else { indicatif::ProgressBar::new(0) };
    bar.set_length(u64::from(arguments.rounds + 1) * FIGURES.len() as u64);
    let mut samples = vec![Samples::default(); FIGURES.len()];
    let everyone: Vec<AccountId> = bank.users.to_vec();
    // The first round is not counted: a new server makes its log files while it runs, an old one uses them again.
    for round in 0..=arguments.rounds {
        for (figure, samples) in FIGURES.iter().zip(&mut samples) {
            bar.set_message(*figure);
            let hot = || vec![vec![everyone[0]]; WRITERS];
            let rate = match *figure {
                "fdatasync_per_s" => {
                    let trouble = "make room in the temporary folder";
                    let probe = fdatasync(site.folder(), time / 4);
                    probe.map_err(|error| Failure::outside("DISK_PROBE_FAILED", &error, trouble))?.per_s
                }
                "yardstick_per_s" => yardstick(&bank, time).await?,
                "batch_1_per_s" => subject(&bank, 1, lanes(&bank), time).await?,
                "batch_64_per_s" => subject(&bank, 64, lanes(&bank), time).await?,
                "batch_1024_per_s" => subject(&bank, 1_024, lanes(&bank), time).await?,
                "batch_1024_shared_per_s" => subject(&bank, 1_024, vec![everyone.clone(); WRITERS], time).await?,
                "hot_account_per_s" => subject(&bank, 1_024, hot(), time).await?,
                "hot_account_64_per_s" => subject(&bank, 64, hot(), time).await?,
                "one_process_per_s" => processes(site.url(), 1, time).await?,
                _ => processes(site.url(), 2, time).await?,
            };
            if round > 0 {
                samples.push(rate);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let report = bank.db.audit(|_| ()).await?;
    bank.db.close().await;
    print(arguments, &samples, report.clean(), report.movements, as_json);
    AuditReport::from(&report).verdict()
}

fn print(arguments: &Arguments, samples: &[Samples], clean: bool, movements: u64, as_json: bool) {
    let of = |name: &str| &samples[FIGURES.iter().position(|figure| *figure == name).unwrap_or(0)];
    let ratio = of("batch_1024_per_s").ratio_to(of("yardstick_per_s"));
    let scaling = of("two_processes_per_s").ratio_to(of("one_process_per_s"));
    if as_json {
        let mut body = json!({
            "bench": "ledger",
            "engine": arguments.engine.name(),
            "accounts": ACCOUNTS, "writers": WRITERS, "rounds": arguments.rounds, "slice_ms": arguments.slice_ms,
            "ratio_1024": rounded(ratio.median()),
            "two_processes_ratio": rounded(scaling.median()),
            "audit_clean": clean, "movements": movements,
        });
        let mut spread = serde_json::Map::new();
        for (figure, samples) in FIGURES.iter().zip(samples) {
            body[*figure] = json!(samples.median().round());
            spread.insert((*figure).to_owned(), json!([samples.lowest().round(), samples.highest().round()]));
        }
        spread.insert("ratio_1024".to_owned(), json!([rounded(ratio.lowest()), rounded(ratio.highest())]));
        let scaling = json!([rounded(scaling.lowest()), rounded(scaling.highest())]);
        spread.insert("two_processes_ratio".to_owned(), scaling);
        body["spread"] = Value::Object(spread);
        say(body);
        return;
    }
    let whole = |value: f64| thousands(value.max(0.0).round() as u64);
    let mut rows: Vec<Vec<String>> = FIGURES
        .iter()
        .zip(samples)
        .map(|(name, samples)| {
            vec![(*name).to_owned(), whole(samples.median()), whole(samples.lowest()), whole(samples.highest())]
        })
        .collect();
    for (name, ratio) in [("ratio_1024", &ratio), ("two_processes_ratio", &scaling)] {
        let show = |value: f64| format!("{value:.2}");
        rows.push(vec![name.to_owned(), show(ratio.median()), show(ratio.lowest()), show(ratio.highest())]);
    }
    say(table(&["figure", "median", "lowest", "highest"], &[1, 2, 3], &rows));
    say(format!("{} movements; audit {}", thousands(movements), if clean { "clean" } else { "BROKEN" }));
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
