//! `bursar chaos custody`: payments that leave, while everything that makes them is killed and the chains misbehave.
//!
//! | module | holds |
//! |---|---|
//! | `ground` | a database, chains with coins for our wallets, a signer, and the files that make them one treasury |
//! | `actor` | the processes: killed, paused, started again |
//! | `net` | the chains, and what they can do to us |
//! | `people` | who asks for payments, each to an address of its own |
//! | `customers` | who wants to be paid out, likewise, and calls it off again |
//! | `trouble` | what goes wrong, and when |
//! | `judge` | what the chains have, held against what jobs and books say |
//! | `reader` | somebody else's program that walks the chains, and its word |

mod actor;
mod customers;
mod ground;
mod judge;
mod net;
mod people;
mod reader;
mod trouble;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use domain::Clock;
use domain::random::Random;
use serde_json::{Value, json};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{say, table, thousands};

use crate::bench::site::EngineName;
use crate::rig;
use actor::Part;
use customers::{AskedOf, Customers};
use ground::{ChainChoice, Ground};
use judge::{Verdict, WRONGS};
use net::Fault;
use people::{Order, People};
use trouble::Trouble;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which database: a private PostgreSQL, which is killed too, or a SQLite file that all processes share
    #[arg(long, default_value = "postgres")]
    engine: EngineName,
    /// How often something is killed
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    kills: u32,
    /// How many payments are asked for
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    jobs: u32,
    /// How many withdrawals customers ask for
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    withdrawals: u32,
    /// Draws what is asked for, who is killed, and what the chains do
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A program that walks the chains by itself and says what it found; it gets a file with all that was asked for
    #[arg(long, value_name = "COMMAND")]
    judge: Option<String>,
    /// Where anvil is [default: on the PATH, or where ./test has put it]
    #[arg(long, value_name = "FILE")]
    anvil: Option<PathBuf>,
    /// Where bitcoind is [default: on the PATH, or where ./test has put it]
    #[arg(long, value_name = "FILE")]
    bitcoind: Option<PathBuf>,
    /// Only these chains: anvil, tron, bitcoin [default: all of them]
    #[arg(long, value_name = "CHAIN", value_delimiter = ',')]
    chains: Vec<ChainChoice>,
}

/// All that was asked for.
struct AskedFor {
    orders: Vec<Order>,
    customers: AskedOf,
}

/// A block of each chain.
const BLOCK: Duration = Duration::from_millis(500);
/// Between two kills, on average.
const KILL_MS: u64 = 900;
/// How long everything may take to come to an end when all is well again.
const PATIENCE: Duration = Duration::from_secs(180);

fn wrong(what: impl std::fmt::Display) -> Failure {
    rig::trouble("the run did not go as it should", std::io::Error::other(what.to_string()))
}

pub async fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let watch = Stopwatch::start();
    let name = format!("bursar-chaos-{}-{}", std::process::id(), SystemClock.now().micros());
    let chosen = if arguments.chains.is_empty() { ChainChoice::ALL.to_vec() } else { arguments.chains.clone() };
    let programs = [arguments.anvil.as_deref(), arguments.bitcoind.as_deref()];
    let mut ground = ground::lay(arguments.engine, &chosen, programs, std::env::temp_dir().join(name)).await?;
    let outcome = perform(arguments, &mut ground, json).await;
    // Whatever is not clean is worth a look.
    ground.folder.keep = !matches!(&outcome, Ok((verdict, ..)) if verdict.is_clean());
    let (verdict, trouble, asked, reader) = outcome?;
    tell(arguments, &verdict, &trouble, &asked, reader.as_ref(), watch.elapsed(), json);
    if verdict.is_clean() {
        return Ok(());
    }
    let hint = format!("run it again: --seed {}; what was killed when depends on the machine", arguments.seed);
    Err(Failure { code: "CHAOS_FAILED".into(), messages: vec![verdict.first.join("; ")], hint, exit: Exit::Found })
}

async fn perform(
    arguments: &Arguments,
    ground: &mut Ground,
    json: bool,
) -> Result<(Verdict, Trouble, AskedFor, Option<Value>), Failure> {
    for actor in &mut ground.actors {
        actor.start()?;
    }
    trouble::begin(ground, PATIENCE).await?;
    customers::endow(&ground.db, &ground.nets).await?;
    let mut random = Random::from_seed(arguments.seed);
    let (made, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let miner = tokio::spawn(mine(ground.nets.clone(), Arc::clone(&stop)));
    let kills_ms = u64::from(arguments.kills) * KILL_MS;
    let people = People {
        db: ground.db.clone(),
        nets: ground.nets.clone(),
        jobs: usize::try_from(arguments.jobs).unwrap_or(usize::MAX),
        pause: Duration::from_millis(kills_ms / u64::from(arguments.jobs)),
        random: Random::from_seed(random.next_u64()),
        drawn: 0,
        made: Arc::clone(&made),
        stop: Arc::clone(&stop),
    };
    let people = tokio::spawn(people.ask());
    let customers = Customers {
        db: ground.db.clone(),
        office: Arc::clone(&ground.office),
        nets: ground.nets.clone(),
        withdrawals: usize::try_from(arguments.withdrawals).unwrap_or(usize::MAX),
        pause: Duration::from_millis(kills_ms / u64::from(arguments.withdrawals)),
        random: Random::from_seed(random.next_u64()),
        stop: Arc::clone(&stop),
    };
    let customers = tokio::spawn(customers.ask());
    let deposits = (arguments.jobs / 6).max(6);
    let (pause, random_of_them) =
        (Duration::from_millis(kills_ms / u64::from(deposits)), Random::from_seed(random.next_u64()));
    let paying = tokio::spawn(people::pay_in(ground.nets.clone(), deposits, pause, random_of_them, Arc::clone(&stop)));
    let bar = super::progress(arguments.kills, json);
    let mut trouble = Trouble::default();
    for _ in 0..arguments.kills {
        trouble.strike(ground, &mut random).await?;
        bar.inc(1);
        bar.set_message(format!("{} payments asked for", made.load(Ordering::Relaxed)));
    }
    bar.set_message("everything has time to end");
    trouble.end(ground).await?;
    // The last of what was asked for may still be on its way to the database.
    while !people.is_finished() || !customers.is_finished() {
        trouble::keep_up(ground)?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (orders, customers) = (people.await.map_err(wrong)??, customers.await.map_err(wrong)??);
    let asked = AskedFor { orders, customers };
    trouble.deposits = paying.await.map_err(wrong)?;
    stop.store(true, Ordering::Relaxed);
    miner.await.map_err(wrong)?;
    trouble::come_to_rest(ground, &asked, PATIENCE).await?;
    let mut verdict = judge::judge(&ground.db, &ground.nets, &asked, &ground.config).await?;
    let reader = match &arguments.judge {
        None => None,
        Some(command) => Some(reader::ask(command, ground, &asked, &mut verdict).await?),
    };
    bar.finish_and_clear();
    Ok((verdict, trouble, asked, reader))
}

/// Blocks come, one after the other, until all is over.
async fn mine(nets: Vec<Arc<net::Net>>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(BLOCK).await;
        for net in &nets {
            // A node that is away mines nothing.
            if let Err(failure) = net.mine(1).await {
                tracing::debug!(why = failure.messages.join("; "), "no block");
            }
        }
    }
}

fn tell(
    arguments: &Arguments,
    verdict: &Verdict,
    trouble: &Trouble,
    asked: &AskedFor,
    reader: Option<&Value>,
    time: Duration,
    json: bool,
) {
    let killed: BTreeMap<&str, u64> = Part::ALL
        .into_iter()
        .map(|part| (part.name(), trouble.killed.get(&part).copied().unwrap_or(0)))
        .chain([("database", trouble.databases)])
        .collect();
    let faults: BTreeMap<&str, u64> =
        Fault::ALL.into_iter().map(|one| (one.name(), trouble.faults.get(&one).copied().unwrap_or(0))).collect();
    let wrongs = WRONGS.map(|name| (name, verdict.count(name)));
    if json {
        let mut body = json!({
            "chaos": "custody", "engine": arguments.engine.name(), "seed": arguments.seed, "kills": arguments.kills,
            "killed": killed, "paused": trouble.paused, "leases_passed": trouble.lapsed, "chains": faults,
            "deposits": trouble.deposits, "jobs": asked.orders.len(), "withdrawals": asked.customers.wanted.len(),
            "withdrawals_ended": verdict.withdrawals,
            "confirmed": verdict.confirmed, "failed": verdict.failed, "failed_because": verdict.because, "first": verdict.first,
            "reader": reader, "elapsed_ms": u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        });
        body["withdrawals_refused"] = json!(asked.customers.refused.len());
        body["policies_changed"] = json!(asked.customers.policies_changed);
        body["signed_meanwhile"] = json!(asked.customers.signed);
        for (name, count) in wrongs {
            body[name] = json!(count);
        }
        say(body);
        return;
    }
    let words = |counts: &BTreeMap<&str, u64>| -> String {
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let counts = [
        ("customers paid in", u64::from(trouble.deposits)),
        ("payments asked for", asked.orders.len() as u64),
        ("withdrawals asked for", asked.customers.wanted.len() as u64),
        ("refused while switched off", asked.customers.refused.len() as u64),
        ("policies changed", asked.customers.policies_changed),
        ("signed meanwhile", asked.customers.signed),
        ("completed", verdict.withdrawals.get("completed").copied().unwrap_or(0)),
        ("confirmed", verdict.confirmed),
        ("failed", verdict.failed),
        ("workers paused", trouble.paused),
        ("leases taken away", trouble.lapsed),
    ];
    let cells: Vec<Vec<String>> =
        counts.into_iter().chain(wrongs).map(|(name, count)| vec![name.to_owned(), thousands(count)]).collect();
    say(format!("killed: {}\nchains: {}\n", words(&killed), words(&faults)));
    say(table(&["by what the chains have", "count"], &[1], &cells));
    if let Some(reader) = reader {
        say(format!("\nthe reader of the chains says: {reader}"));
    }
    say(format!("{:.0} s", time.as_secs_f64()));
}
