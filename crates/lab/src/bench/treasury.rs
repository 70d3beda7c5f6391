//! `bursar bench treasury`: rules evaluated over a million wallets, all of them and only what has changed; and sweeps a second, each from an
//! address of its own, beside the same number of signed transactions that the same client merely tells the same node of.
//!
//! The wallets' rows and balances are written by the same functions that a worker of deposits uses; the addresses of those that no rule
//! matches are made up, because deriving a million takes longer than everything else.

use std::path::PathBuf;
use std::sync::Arc;

use custody::wallet::assign;
use domain::deposit::{Cause, Place, Side};
use domain::outbound::OutboundLimits;
use domain::random::Random;
use domain::utxo::Hash;
use domain::{Clock, RawSum, UserId};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::entry::{BlockRow, EntryKey, FoundEntry, Passed, Worker};
use store::wallet::NewUserWallet;
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table};
use tx::Address;

use super::Samples;
use super::outbound::desk::Desk;
use super::outbound::node::{Host, Raw, Target};
use super::outbound::{failed, pay};
use super::site::{EngineName, Site};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which database: a private PostgreSQL, or SQLite
    #[arg(long, default_value = "postgres")]
    engine: EngineName,
    /// How many wallets have a balance
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    wallets: u32,
    /// How many of them a rule matches
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    matched: u32,
    /// How many wallets are paid between two rounds of what has changed
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    changed: u32,
    /// How many addresses are swept in each round on anvil
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    sweeps: u32,
    /// How often each is measured, in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Where anvil is [default: on the PATH, or where ./test has put it]
    #[arg(long, value_name = "FILE")]
    anvil: Option<PathBuf>,
}

/// Users of this number and above have made-up addresses.
const STRANGERS: i64 = 1_000_000_000;
/// Rows that are written at once.
const CHUNK: u32 = 10_000;
/// Chain units of the token: what a rule matches, and what none does.
const MUCH: u64 = 50_000_000;
const LITTLE: u64 = 400_000;

/// The chain as the books have it: blocks that nobody mined.
struct MadeUpChain<'a> {
    desk: &'a Desk,
    worker: Worker,
    tip: (u64, Hash),
    random: Random,
}

impl MadeUpChain<'_> {
    /// The next block pays these addresses.
    async fn mine(&mut self, payments: &[(String, u64)]) -> CommandResult {
        let (height, hash) = (self.tip.0 + 1, self.hash());
        let mut entries = Vec::with_capacity(payments.len());
        for (address, amount) in payments {
            entries.push(FoundEntry {
                key: EntryKey { transaction: self.hash(), place: Place::Value, side: Side::In },
                height,
                block: hash,
                address: address.clone(),
                listing: self.desk.token(),
                amount: amount.to_string().parse::<RawSum>().map_err(failed)?,
                cause: Cause::Deposit,
                coinbase: false,
            });
        }
        let blocks = vec![BlockRow { height, hash, parent: self.tip.1 }];
        let passed = Passed { blocks, entries, source: "bench".to_owned(), proven: false };
        let now = SystemClock.now();
        self.desk.db.pass_blocks(&self.worker, &passed, now).await.map_err(failed)?;
        self.desk.db.prove_blocks(&self.worker, &Passed { proven: true, ..passed }, now).await.map_err(failed)?;
        self.tip = (height, hash);
        Ok(())
    }

    fn hash(&mut self) -> Hash {
        let mut bytes = [0; 32];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.random.next_u64().to_be_bytes());
        }
        Hash(bytes)
    }

    /// What was paid is final.
    async fn settle(&mut self) -> CommandResult {
        for _ in 0..4 {
            self.mine(&[]).await?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Rules {
    pass_s: Samples,
    changed_ms: Samples,
    idle_ms: Samples,
    jobs: usize,
}

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let bar = if as_json { ProgressBar::hidden() } else { ProgressBar::new(u64::from(arguments.wallets)) };
    if let Ok(style) = ProgressStyle::with_template("   {wide_bar} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    let rules = evaluate(arguments, &bar).await?;
    bar.set_message("sweeps on anvil");
    let sweeps = sweep(arguments).await?;
    bar.finish_and_clear();
    let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
    let spread = |samples: &Samples| json!([rounded(samples.lowest()), rounded(samples.highest())]);
    let anvil = sweeps.as_ref().map(|(confirmed, broadcast, raw)| {
        let ratio = broadcast.ratio_to(raw);
        json!({
            "sweeps": arguments.sweeps, "confirmed_per_s": confirmed.median().round(), "broadcast_per_s": broadcast.median().round(),
            "raw_per_s": raw.median().round(), "ratio_to_raw": rounded(ratio.median()),
            "spread": { "ratio_to_raw": spread(&ratio), "broadcast_per_s": spread(broadcast) },
        })
    });
    let body = json!({
        "bench": "treasury", "engine": arguments.engine.name(), "wallets": arguments.wallets, "matched": arguments.matched,
        "rounds": arguments.rounds, "jobs_made": rules.jobs, "pass_s": rounded(rules.pass_s.median()),
        "changed": arguments.changed, "changed_ms": rounded(rules.changed_ms.median()), "idle_ms": rounded(rules.idle_ms.median()),
        "spread": { "pass_s": spread(&rules.pass_s), "changed_ms": spread(&rules.changed_ms), "idle_ms": spread(&rules.idle_ms) },
        "anvil": anvil,
    });
    if as_json {
        say(body);
        return Ok(());
    }
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("a pass over all wallets", format!("{:.2} s", rules.pass_s.median())),
        row("what has changed", format!("{:.1} ms", rules.changed_ms.median())),
        row("nothing has changed", format!("{:.1} ms", rules.idle_ms.median())),
    ];
    if let Some((_, broadcast, raw)) = &sweeps {
        let ratio = broadcast.ratio_to(raw).median();
        rows.push(row("sweeps a second on anvil", format!("{:.0}, {ratio:.2} of raw", broadcast.median())));
    }
    say(table(&["", ""], &[1], &rows));
    Ok(())
}

/// Rules over all wallets, and over what has changed since.
async fn evaluate(arguments: &Arguments, bar: &ProgressBar) -> Result<Rules, Failure> {
    let site = Site::prepare(arguments.engine, None)?;
    let host = Host::start(Target::DevnetEvm, None, site.folder()).await?.ok_or_else(|| failed("no devnet"))?;
    let limits = OutboundLimits::usual(Target::DevnetEvm.kind());
    let desk = Desk::open(site.url(), (Target::DevnetEvm.kind(), Some(&host.token)), 1, limits).await?;
    desk.apply_rules(&host.token).await?;
    let now = SystemClock.now();
    let head = host.chain.head().await.map_err(failed)?.tip;
    desk.db.begin_chain(&desk.row, head.height, Hash(head.hash.0), now).await.map_err(failed)?;
    let until = now.plus_micros(24 * 3_600 * 1_000_000);
    let worker = desk.db.take_chain(desk.row.id, "bench", now, until).await.map_err(failed)?;
    let mut chain =
        MadeUpChain { desk: &desk, worker, tip: (head.height, Hash(head.hash.0)), random: Random::from_seed(5) };
    let matched = fill(arguments, &desk, &host, &mut chain, bar).await?;
    let make = || desk.number();
    let mut worker = desk.rules(&*host.chain, &make)?;
    let mut figures = Rules::default();
    for round in 0..arguments.rounds {
        if round > 0 {
            desk.apply_rules(&host.token).await?;
        }
        let watch = Stopwatch::start();
        figures.jobs += until_idle(&mut worker).await?;
        figures.pass_s.push(watch.elapsed().as_secs_f64());
        for _ in 0..10 {
            let some: Vec<(String, u64)> = (0..arguments.changed)
                .filter_map(|_| matched.get(chain.random.index(matched.len())).map(|address| (address.clone(), 1)))
                .collect();
            chain.mine(&some).await?;
            chain.settle().await?;
            let watch = Stopwatch::start();
            until_idle(&mut worker).await?;
            figures.changed_ms.push(watch.elapsed().as_secs_f64() * 1_000.0);
            let watch = Stopwatch::start();
            until_idle(&mut worker).await?;
            figures.idle_ms.push(watch.elapsed().as_secs_f64() * 1_000.0);
        }
    }
    desk.db.close().await;
    host.stop().await?;
    Ok(figures)
}

async fn until_idle(worker: &mut custody::treasury::RulesWorker<'_>) -> Result<usize, Failure> {
    let mut jobs = 0;
    loop {
        let round = worker.round(&SystemClock).await.map_err(failed)?;
        if let Some(why) = round.waits {
            return Err(failed(why));
        }
        jobs += round.jobs;
        if !round.more {
            return Ok(jobs);
        }
    }
}

/// Wallets with balances. The addresses of those that a rule matches.
async fn fill(
    arguments: &Arguments,
    desk: &Desk,
    host: &Host,
    chain: &mut MadeUpChain<'_>,
    bar: &ProgressBar,
) -> Result<Vec<String>, Failure> {
    bar.set_message("wallets");
    let (group, now) = ("users".parse().map_err(failed)?, SystemClock.now());
    let users: Vec<UserId> = (1..=i64::from(arguments.matched)).filter_map(UserId::new).collect();
    let given = assign(&desk.db, &desk.pinned, &group, &users, now).await.map_err(failed)?;
    let matched: Vec<Address> = given.wallets.into_iter().map(|wallet| wallet.address).collect();
    // What a sweep costs is asked of a node with some of them.
    host.fund(&matched[..matched.len().min(8)]).await?;
    let matched: Vec<String> = matched.iter().map(ToString::to_string).collect();
    for some in matched.chunks(CHUNK as usize) {
        chain.mine(&some.iter().map(|address| (address.clone(), MUCH)).collect::<Vec<_>>()).await?;
    }
    let mut left = arguments.wallets.saturating_sub(arguments.matched);
    let mut next = STRANGERS;
    while left > 0 {
        let some = left.min(CHUNK);
        let mut rows = Vec::new();
        for user in (next..next + i64::from(some)).filter_map(UserId::new) {
            let mut account = [0; 20];
            account[..8].copy_from_slice(&chain.random.next_u64().to_be_bytes());
            account[8..16].copy_from_slice(&chain.random.next_u64().to_be_bytes());
            rows.push(NewUserWallet { user, address: Address::Evm(account.into()).to_string() });
        }
        desk.db.assign_user_wallets(&group, &rows, now).await?;
        chain.mine(&rows.into_iter().map(|row| (row.address, LITTLE)).collect::<Vec<_>>()).await?;
        (next, left) = (next + i64::from(some), left - some);
        bar.inc(u64::from(some));
    }
    chain.settle().await?;
    Ok(matched)
}

/// Sweeps on anvil: confirmed, told and merely told raw, each second. `None`: anvil is not installed.
async fn sweep(arguments: &Arguments) -> Result<Option<(Samples, Samples, Samples)>, Failure> {
    let site = Site::prepare(arguments.engine, None)?;
    let Some(node) = Host::start(Target::Anvil, arguments.anvil.as_deref(), site.folder()).await? else {
        return Ok(None);
    };
    let node = Arc::new(node);
    let limits = OutboundLimits::usual(Target::Anvil.kind());
    let desk = Arc::new(Desk::open(site.url(), (Target::Anvil.kind(), Some(&node.token)), 1, limits).await?);
    let (mut confirmed, mut broadcast, mut raw) = (Samples::default(), Samples::default(), Samples::default());
    // The first round finds nothing in any cache.
    for round in 0..=arguments.rounds {
        let users = round * arguments.sweeps..(round + 1) * arguments.sweeps;
        let addresses = users.clone().map(|user| desk.user(user)).collect::<Result<Vec<_>, _>>()?;
        node.fund(&addresses).await?;
        let mut fastest: f64 = 0.0;
        for (number, how) in [(0, Raw::OneByOne), (1, Raw::Together)] {
            let signed = node.signed(arguments.sweeps, 8, (2 * round + number) * arguments.sweeps).await?;
            fastest = fastest.max(node.send_raw(&signed, 1_024, how).await?);
        }
        desk.add_sweeps(users).await?;
        let (told, ended) = pay(&desk, &node, arguments.sweeps, (round + 1) * arguments.sweeps).await?;
        if round > 0 {
            raw.push(fastest);
            broadcast.push(told);
            confirmed.push(ended);
        }
    }
    let still_used = || failed("a worker has not ended");
    Arc::into_inner(desk).ok_or_else(still_used)?.db.close().await;
    Arc::into_inner(node).ok_or_else(still_used)?.stop().await?;
    Ok(Some((confirmed, broadcast, raw)))
}
