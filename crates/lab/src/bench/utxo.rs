//! `bursar bench utxo`: the Bitcoin wallet store with up to a million unspent outputs, beside `bdk_wallet` over the same.
//!
//! bdk_wallet's SQLite cannot be linked together with ours, so the yardstick is a program of its own:
//! `tests/tools/bdk.sh` builds it. It makes the wallet; we read its file, so that both have the very same outputs.

mod blocks;
mod first_sync;
mod yardstick;

use std::path::PathBuf;
use std::time::Duration;

use custody::bitcoin::import::{Export, read_bdk};
use custody::bitcoin::{Aim, Costs, Recipient, ScriptKind, Target, chooser, plan, unsigned};
use domain::random::Random;
use domain::{Clock, Timestamp};
use indicatif::ProgressStyle;
use serde_json::{Value, json};
use store::utxo::{Allow, LockId, NewAddress, Paths, UtxoError, WalletId, Want};
use store::{Db, Options};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{say, table, thousands};

use self::blocks::Chain;
use self::first_sync::FirstSync;
use self::yardstick::Yardstick;
use super::Samples;
use super::site::{EngineName, Site};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which database
    #[arg(long)]
    engine: EngineName,
    /// Unspent outputs; there are three times as many spent ones
    #[arg(long, value_delimiter = ',', default_value = "10000,100000,1000000", value_name = "N,…")]
    unspent: Vec<u32>,
    /// How often each figure is measured
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long the eight writers lease
    #[arg(long, default_value_t = 2_000, value_name = "MS", value_parser = clap::value_parser!(u64).range(50..=600_000))]
    slice_ms: u64,
    /// Up to how many unspent outputs the yardstick is measured too. It takes 20 s for a balance of 100,000, and that grows
    /// with the square
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    yardstick_up_to: u32,
    /// How many blocks the first sync has, of 2,500 transactions each, of which 50 are ours; 0 leaves it out
    #[arg(long, default_value_t = 2_000, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    first_sync: u32,
    /// The yardstick's program [default: what tests/tools/bdk.sh prints]
    #[arg(long, value_name = "FILE")]
    yardstick: Option<PathBuf>,
}

const WRITERS: u64 = 8;
/// Satoshi per 1,000 virtual bytes, for both.
const RATE: u64 = 5_000;
const PAYMENT: u64 = 1_000_000;

/// One size, measured.
struct Measured {
    unspent: u32,
    load_s: f64,
    figures: Vec<(&'static str, Samples)>,
    lease_per_s: f64,
    index_only: bool,
    plans: Vec<store::utxo::Explained>,
    yardstick: Value,
}

impl Measured {
    fn median(&self, name: &str) -> f64 {
        self.figures.iter().find(|(one, _)| *one == name).map_or(0.0, |(_, samples)| samples.median())
    }

    /// What the yardstick takes, as a multiple of what we take.
    fn ratio(&self, ours: &str, theirs: &str) -> Option<f64> {
        let theirs = self.yardstick.pointer(theirs)?.as_f64()?;
        Some(theirs / self.median(ours).max(f64::MIN_POSITIVE))
    }

    fn ratios(&self) -> Vec<(&'static str, Option<f64>)> {
        RATIOS.iter().map(|(name, ours, theirs)| (*name, self.ratio(ours, theirs))).collect()
    }
}

/// Name, our figure, where the yardstick's is.
const RATIOS: [(&str, &str, &str); 6] = [
    ("open", "open_ms", "/open_ms"),
    ("balance", "balance_ms", "/balance_ms"),
    ("build_1", "build_1_ms", "/build/0/build_ms"),
    ("build_100", "build_100_ms", "/build/1/build_ms"),
    ("connect_block", "connect_block_ms", "/apply_block_ms"),
    ("reorg6", "reorg6_ms", "/reorg6_ms"),
];

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let yardstick = Yardstick::find(arguments.yardstick.as_deref())?;
    let mut measured = Vec::new();
    for unspent in &arguments.unspent {
        measured.push(measure(arguments, &yardstick, *unspent, as_json).await?);
    }
    let first_sync = match arguments.first_sync {
        0 => None,
        blocks => Some(first_sync::measure(arguments.engine, blocks).await?),
    };
    report(arguments, &measured, first_sync.as_ref(), as_json);
    match measured.iter().find(|one| !one.index_only) {
        None => Ok(()),
        Some(one) => {
            let plans: Vec<String> =
                one.plans.iter().filter(|plan| !plan.index_only).map(|plan| format!("{plan:?}")).collect();
            let message = format!("a hot read of {} outputs touches a table: {}", one.unspent, plans.join("; "));
            let hint = "look at the plan: an index of the schema is missing or not used";
            Err(Failure { exit: Exit::Found, ..Failure::bad_input("BENCH_NOT_INDEX_ONLY", message, hint) })
        }
    }
}

/// A wallet of this size in a database of its own.
struct FilledWallet {
    db: Db,
    id: WalletId,
    export: Export,
    load_s: f64,
}

impl FilledWallet {
    async fn fill(site: &Site, file: &std::path::Path, bar: &indicatif::ProgressBar) -> Result<Self, Failure> {
        bar.set_message("reading the yardstick's file");
        let export =
            read_bdk(file).await.map_err(|error| Failure::bad_input(error.code(), error.to_string(), error.hint()))?;
        let db = Db::connect(site.url(), &options()).await?;
        let now = SystemClock.now();
        db.migrate(now).await?;
        let id = db.create_wallet("bench", export.network, now).await?;
        for some in export.addresses.chunks(5_000) {
            db.add_addresses(id, some, Paths::Exact, now).await?;
        }
        bar.set_message("filling the database");
        bar.set_length(2 * export.transactions.len() as u64);
        let watch = Stopwatch::start();
        db.load_bulk(id, &export.transactions, now, |count| bar.inc(count)).await?;
        Ok(Self { db, id, export, load_s: watch.elapsed().as_secs_f64() })
    }

    /// The same money as the yardstick has, in the same number of outputs, and every row as it should be.
    async fn prove(&self, made: &Value) -> Result<(), Failure> {
        let balance = self.db.balance(self.id, SystemClock.now()).await?;
        let (satoshi, outputs) = balance.values().fold((0, 0), |sum, one| (sum.0 + one.confirmed, sum.1 + one.outputs));
        let theirs = (made["balance_sat"].as_i64(), made["unspent"].as_i64());
        if (Some(satoshi), Some(outputs)) != theirs {
            let message = format!("{satoshi} satoshi in {outputs} outputs, the yardstick has {theirs:?}");
            return Err(Failure::bad_input(
                "UTXO_IMPORT_MISMATCH",
                message,
                "this is a bug in the bench: please report it",
            ));
        }
        let findings = self.db.check_utxo().await?;
        match findings.first() {
            None => Ok(()),
            Some(first) => {
                let message = format!("{} rows disagree with the facts, the first: {first:?}", findings.len());
                Err(Failure::bad_input("BOOKS_BROKEN", message, "this is a bug in the bench: please report it"))
            }
        }
    }

    fn change(&self) -> Vec<u8> {
        self.export.addresses.first().map(|one: &NewAddress| one.script.clone()).unwrap_or_default()
    }
}

fn options() -> Options {
    Options { create: true, max_connections: 16, acquire_timeout: Duration::from_secs(60), ..Options::default() }
}

async fn measure(
    arguments: &Arguments,
    yardstick: &Yardstick,
    unspent: u32,
    as_json: bool,
) -> Result<Measured, Failure> {
    let bar = if as_json { indicatif::ProgressBar::hidden() } else { indicatif::ProgressBar::new(1) };
    if let Ok(style) = ProgressStyle::with_template("   {bar:30} {percent:>3} %  {msg}") {
        bar.set_style(style);
    }
    let site = Site::prepare(arguments.engine, None)?;
    let file = site.folder().join("bdk.sqlite");
    bar.set_message(format!("making a wallet of {} outputs", thousands(u64::from(unspent))));
    let made = yardstick.make(&file, unspent)?;
    let mut wallet = FilledWallet::fill(&site, &file, &bar).await?;
    wallet.prove(&made).await?;
    bar.set_message("the yardstick");
    let theirs = if unspent > arguments.yardstick_up_to {
        Value::Null
    } else {
        // Each of its rounds takes minutes at that size.
        yardstick.measure(&file, if unspent < 50_000 { arguments.rounds } else { 1 })?
    };
    // The history served its purpose.
    let mut chain = Chain::on_top_of(&wallet.export);
    wallet.export.transactions = Vec::new();
    bar.set_message("measuring");
    let mut figures = vec![
        ("open_ms", open(&site, arguments.rounds).await?),
        ("balance_ms", balance(&wallet, arguments.rounds).await?),
    ];
    for recipients in [1, 100] {
        let (select, build) = pay(&wallet, recipients, arguments.rounds).await?;
        let names = if recipients == 1 { ("select_1_ms", "build_1_ms") } else { ("select_100_ms", "build_100_ms") };
        figures.extend([(names.0, select), (names.1, build)]);
    }
    let plans = wallet.db.explain_utxo(wallet.id, want(&target(1), 0).target, SystemClock.now()).await?;
    let lease_per_s = lease(&wallet, Duration::from_millis(arguments.slice_ms)).await?;
    let (connect, reorg) = chain.measure(&wallet.db, arguments.rounds).await?;
    figures.extend([("connect_block_ms", connect), ("reorg6_ms", reorg)]);
    bar.finish_and_clear();
    let findings = wallet.db.check_utxo().await?;
    if let Some(first) = findings.first() {
        let message = format!("after the bench a row disagrees with the facts: {first:?}");
        return Err(Failure::bad_input("BOOKS_BROKEN", message, "please report it"));
    }
    wallet.db.close().await;
    let index_only = plans.iter().all(|plan| plan.index_only);
    Ok(Measured { unspent, load_s: wallet.load_s, figures, lease_per_s, index_only, plans, yardstick: theirs })
}

fn millis(watch: Stopwatch) -> f64 {
    watch.elapsed().as_secs_f64() * 1_000.0
}

/// A process that starts: connect, look at the schema, and the first balance could be asked for.
async fn open(site: &Site, rounds: u32) -> Result<Samples, Failure> {
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let watch = Stopwatch::start();
        let db = Db::connect(site.url(), &options()).await?;
        db.check_schema().await?;
        db.wallets().await?;
        samples.push(millis(watch));
        db.close().await;
    }
    Ok(samples)
}

async fn balance(wallet: &FilledWallet, rounds: u32) -> Result<Samples, Failure> {
    let mut samples = Samples::default();
    for round in 0..=rounds {
        let watch = Stopwatch::start();
        wallet.db.balance(wallet.id, SystemClock.now()).await?;
        if round > 0 {
            samples.push(millis(watch));
        }
    }
    Ok(samples)
}

fn target(recipients: usize) -> Target {
    // Scripts that no wallet owns, all different.
    let script = |number: usize| [&[0, 20][..], &[0xee; 12], &number.to_be_bytes()].concat();
    let recipients = (0..recipients).map(|number| Recipient { amount: PAYMENT, script: script(number) }).collect();
    let costs = Costs { rate: RATE, long_term_rate: RATE, most_fee: 100_000_000 };
    Target { recipients, change: ScriptKind::P2wpkh, costs, aim: Aim::Pay }
}

fn want(target: &Target, seed: u64) -> Want {
    let sum: u64 = target.recipients.iter().map(|one| one.amount).sum();
    Want { target: i64::try_from(sum).unwrap_or(i64::MAX), allow: Allow::default(), seed }
}

fn lock_id(writer: u64, number: u64) -> LockId {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&writer.to_be_bytes());
    bytes[8..16].copy_from_slice(&number.to_be_bytes());
    LockId(bytes)
}

fn later(now: Timestamp) -> Timestamp {
    now.plus_micros(3_600_000_000)
}

/// Selecting with the lease, committed; and with the PSBT made from it.
async fn pay(wallet: &FilledWallet, recipients: usize, rounds: u32) -> Result<(Samples, Samples), Failure> {
    let target = target(recipients);
    let (mut select, mut build) = (Samples::default(), Samples::default());
    for round in 0..=rounds {
        let (lock, now) = (lock_id(u64::MAX, u64::from(round)), SystemClock.now());
        let watch = Stopwatch::start();
        let mut reason = None;
        let want = want(&target, u64::from(round));
        let coins = wallet
            .db
            .select_and_lease(wallet.id, 0, &want, lock, later(now), now, chooser(&target, &mut reason))
            .await?;
        let selected = millis(watch);
        let coins = coins.ok_or_else(|| trouble(format!("nothing was selected: {reason:?}")))?;
        let plan = plan(&coins, &target, &wallet.change()).map_err(|error| trouble(error.to_string()))?;
        unsigned(&plan, custody::bitcoin::network_of(wallet.export.network), 0)
            .map_err(|error| trouble(error.to_string()))?;
        if round > 0 {
            select.push(selected);
            build.push(millis(watch));
        }
        wallet.db.release(wallet.id, lock).await?;
    }
    Ok((select, build))
}

fn trouble(message: String) -> Failure {
    Failure::bad_input("INTERNAL", message, "this is a bug in the bench: please report it")
}

/// Eight writers, each selecting and leasing for one payment after the other. Leases of each in turn.
async fn lease(wallet: &FilledWallet, time: Duration) -> Result<f64, Failure> {
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (db, id, target) = (wallet.db.clone(), wallet.id, target(1));
            tokio::spawn(async move {
                let mut random = Random::from_seed(writer);
                let mut done = 0_u64;
                while watch.elapsed() < time {
                    let (lock, now) = (lock_id(writer, done), SystemClock.now());
                    let mut reason = None;
                    let want = want(&target, random.below(u64::MAX));
                    let coins =
                        db.select_and_lease(id, 0, &want, lock, later(now), now, chooser(&target, &mut reason)).await?;
                    if coins.is_none() {
                        break;
                    }
                    done += 1;
                }
                Ok::<u64, UtxoError>(done)
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.map_err(|error| trouble(error.to_string()))??;
    }
    let per_s = done as f64 / watch.elapsed().as_secs_f64();
    wallet.db.sweep_leases(later(later(SystemClock.now()))).await?;
    Ok(per_s)
}

fn report(arguments: &Arguments, measured: &[Measured], first_sync: Option<&FirstSync>, as_json: bool) {
    let spread = |samples: &Samples| json!({ "median": samples.median(), "lowest": samples.lowest(), "highest": samples.highest() });
    let growth = || {
        let (first, last) = (measured.first()?, measured.last()?);
        Some((
            last.median("select_1_ms") / first.median("select_1_ms"),
            last.median("select_100_ms") / first.median("select_100_ms"),
        ))
    };
    if as_json {
        let sizes: Vec<Value> = measured
            .iter()
            .map(|one| {
                let figures: serde_json::Map<String, Value> =
                    one.figures.iter().map(|(name, samples)| ((*name).to_owned(), spread(samples))).collect();
                json!({
                    "unspent": one.unspent, "spent": u64::from(one.unspent) * 3, "load_s": one.load_s,
                    "figures": figures, "lease_per_s": one.lease_per_s, "index_only": one.index_only,
                    "yardstick": one.yardstick,
                    "ratio_to_bdk_wallet": one.ratios().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
                })
            })
            .collect();
        let growth = growth().map(|(one, hundred)| json!({ "pay_1": one, "pay_100": hundred }));
        say(
            json!({ "engine": arguments.engine.name(), "sizes": sizes, "select_growth": growth, "first_sync": first_sync.map(FirstSync::shown) }),
        );
        return;
    }
    let mut rows = Vec::new();
    for one in measured {
        let size = thousands(u64::from(one.unspent));
        for (name, samples) in &one.figures {
            let ratio =
                RATIOS.iter().find(|(_, ours, _)| ours == name).and_then(|(_, ours, theirs)| one.ratio(ours, theirs));
            let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.1} x"));
            let range = format!("{:.2} to {:.2}", samples.lowest(), samples.highest());
            rows.push(vec![size.clone(), (*name).to_owned(), format!("{:.2}", samples.median()), range, ratio]);
        }
        rows.push(vec![
            size.clone(),
            "lease_per_s".to_owned(),
            format!("{:.0}", one.lease_per_s),
            String::new(),
            String::new(),
        ]);
        rows.push(vec![size, "index only".to_owned(), one.index_only.to_string(), String::new(), String::new()]);
    }
    say(table(&["unspent", "figure", "median", "range", "bdk_wallet takes"], &[0, 2, 3, 4], &rows));
    if let Some((one, hundred)) = growth() {
        say(format!(
            "selection at the largest size takes {one:.2} (pay 1) and {hundred:.2} (pay 100) times what it takes at the smallest"
        ));
    }
    if let Some(sync) = first_sync {
        say(format!(
            "first sync: {:.0} blocks a second in its first half, {:.0} in its second; {:.0} with a restart in between",
            sync.first_half_per_s, sync.second_half_per_s, sync.after_restart_per_s
        ));
    }
}
