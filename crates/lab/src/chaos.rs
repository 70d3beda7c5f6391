//! `bursar chaos`: load while everything is killed in turn; then the clients' own records are held against what is there.

mod custody;
mod restore;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::Clock;
use domain::random::Random;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::db::sqlite_url;
use terminal::audit::AuditReport;
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{say, table, thousands};

use crate::bench::site::EngineName;
use crate::postgres::PrivatePostgres;
use crate::rig::customers::{Counters, Customer, Verdict, drain};
use crate::rig::process::Process;
use crate::rig::{Rig, program, trouble};
use restore::{Restores, Side};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Internal transfers over HTTP while server, spot engine and PostgreSQL are killed with SIGKILL
    Transfer(Arguments),
    /// Payments that leave, while signer, workers and PostgreSQL are killed with SIGKILL and the chains reorganise, forget and go away
    Custody(custody::Arguments),
}

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which database: a private PostgreSQL, which is killed too, or SQLite inside the server
    #[arg(long)]
    engine: EngineName,
    /// How often something is killed
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kills: u32,
    /// Servers at once, on the same database and the same spot engine
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    servers: u8,
    /// Clients at once
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,
    /// Users that all clients share; each of the others belongs to one client
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(0..=400))]
    shared_users: u16,
    /// Servers are started with clocks that differ, mostly by a second or two
    #[arg(long)]
    clock_jumps: bool,
    /// After every fifth kill yesterday's copy of the database or of the spot engine is put back; servers must refuse that
    #[arg(long)]
    restores: bool,
    /// Draws what is asked for, who is killed, and when
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const USERS: i64 = 400;

pub async fn run(command: &Command, json: bool) -> CommandResult {
    match command {
        Command::Transfer(arguments) => transfers(arguments, json).await,
        Command::Custody(arguments) => custody::run(arguments, json).await,
    }
}

/// A folder that is removed when the run is over.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            terminal::output::warn(format!("{}: {error}", self.0.display()));
        }
    }
}

/// What can be killed.
struct Victims {
    rig: Rig,
    servers: Vec<Option<Process>>,
    spot: Option<Process>,
    postgres: Option<PrivatePostgres>,
    killed: [u32; 3],
    /// Whether clocks jump, and how often one has.
    clock_jumps: bool,
    jumps: u32,
    spot_address: SocketAddr,
    restores: Restores,
}

const NAMES: [&str; 3] = ["server", "spot", "database"];

impl Victims {
    async fn kill(&mut self, who: usize, random: &mut Random) -> CommandResult {
        self.killed[who] += 1;
        match who {
            0 => {
                let number = random.index(self.servers.len());
                if let Some(server) = self.servers[number].take() {
                    server.kill().await?;
                }
                let ahead_ms = self.next_clock(random);
                self.servers[number] = Some(self.start_server(number, ahead_ms).await?);
            }
            1 => {
                let Some(spot) = self.spot.take() else { return Ok(()) };
                let address = spot.address.to_string();
                spot.kill().await?;
                // Often longer than the server waits for it: calls that were carried out then get no answer.
                tokio::time::sleep(Duration::from_millis(random.below(900))).await;
                self.spot = Some(self.rig.start_spot(&address).await?);
            }
            _ => {
                if let Some(postgres) = &mut self.postgres {
                    postgres.restart()?;
                }
            }
        }
        Ok(())
    }

    /// By how much the next server's clock is ahead of the machine's: two seconds at most, either way. The way from one
    /// to the other is a step of up to four.
    fn next_clock(&mut self, random: &mut Random) -> i64 {
        if !self.clock_jumps {
            return 0;
        }
        self.jumps += 1;
        i64::try_from(random.below(4_001)).unwrap_or(0) - 2_000
    }

    /// A database that has just been killed may not take connections yet.
    async fn start_server(&self, number: usize, ahead_ms: i64) -> Result<Process, Failure> {
        let watch = Stopwatch::start();
        loop {
            match self.rig.start_server_ahead(number, ahead_ms).await {
                Ok(server) => return Ok(server),
                Err(failure) if watch.elapsed() > Duration::from_secs(30) => return Err(failure),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

async fn transfers(arguments: &Arguments, json: bool) -> CommandResult {
    let watch = Stopwatch::start();
    let run = SystemClock.now().micros();
    let folder = Folder(std::env::temp_dir().join(format!("bursar-chaos-{}-{run}", std::process::id())));
    let postgres = match arguments.engine {
        EngineName::Postgres => Some(PrivatePostgres::start()?),
        EngineName::Sqlite => None,
    };
    std::fs::create_dir_all(&folder.0).map_err(|error| trouble("the folder could not be made", error))?;
    let file = folder.0.join("database").join("bursar.db");
    let url = postgres.as_ref().map_or_else(|| sqlite_url(&file), PrivatePostgres::url);
    let (rig, db, coins) = Rig::prepare(&folder.0, &url, "chaos", USERS).await?;
    db.close().await;
    let spot = rig.start_spot("127.0.0.1:0").await?;
    let (mut servers, mut addresses) = (Vec::new(), Vec::new());
    for number in 0..usize::from(arguments.servers) {
        rig.configure(number, "127.0.0.1:0", &spot.address.to_string())?;
        let server = rig.start_server(number).await?;
        // From now on it listens at the same place, however often it is started.
        rig.configure(number, &server.address.to_string(), &spot.address.to_string())?;
        addresses.push(server.address);
        servers.push(Some(server));
    }
    let secret = rig.secret.clone();
    let spot_address = spot.address;
    let mut victims = Victims {
        spot_address,
        restores: Restores::default(),
        rig,
        servers,
        spot: Some(spot),
        postgres,
        killed: [0; 3],
        clock_jumps: arguments.clock_jumps,
        jumps: 0,
    };

    let (stop, counters) = (Arc::new(AtomicBool::new(false)), Arc::new(Counters::default()));
    let of = i64::from(arguments.clients);
    let customers: Vec<_> = (0..of)
        .map(|number| {
            let numbers = [number, of, USERS];
            let customer =
                Customer::new(addresses.clone(), secret.clone(), coins.clone(), numbers, arguments.seed, run + number);
            let customer = customer.shares(arguments.shared_users.into());
            tokio::spawn(customer.trade(Arc::clone(&stop), Arc::clone(&counters), Duration::ZERO))
        })
        .collect();
    let bar = progress(arguments.kills, json);
    let mut random = Random::from_seed(arguments.seed);
    let kinds = if victims.postgres.is_some() { 3 } else { 2 };
    for number in 0..arguments.kills {
        tokio::time::sleep(Duration::from_millis(100 + random.below(900))).await;
        victims.kill(usize::try_from(number).unwrap_or(0) % kinds, &mut random).await?;
        if arguments.restores && number % 5 == 1 {
            victims.back_up().await?;
        }
        if arguments.restores && number % 5 == 4 {
            let side = if number % 10 == 4 { Side::Database } else { Side::Spot };
            victims.restore(side).await?;
        }
        bar.inc(1);
        bar.set_message(counters.to_string());
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    let mut settled = Vec::new();
    for customer in customers {
        settled.push(customer.await.map_err(|error| trouble("a client ended", std::io::Error::other(error)))?);
    }
    bar.set_message("everything has time to end");
    drain(&mut settled).await;
    let mut verdict = Verdict::default();
    for customer in settled {
        verdict.add(customer.check().await);
    }
    bar.finish_and_clear();
    for server in victims.servers.iter_mut().filter_map(Option::take) {
        server.stop().await?;
    }
    // Both ends, held against each other.
    let report = program::audit(&victims.rig.config_file(0)).await?;
    if let Some(spot) = victims.spot.take() {
        spot.stop().await?;
    }
    tell(arguments, &verdict, &victims, &counters, &report, watch.elapsed(), json);
    report.verdict()?;
    if verdict.clean() {
        return Ok(());
    }
    let messages = vec![verdict.first.join("; ")];
    let hint = format!("run it again: --seed {}; what was killed when depends on the machine", arguments.seed);
    Err(Failure { code: "CHAOS_FAILED".into(), messages, hint, exit: Exit::Found })
}

fn progress(kills: u32, json: bool) -> ProgressBar {
    let bar = if json { ProgressBar::hidden() } else { ProgressBar::new(kills.into()) };
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} killed, {msg}") {
        bar.set_style(style);
    }
    bar
}

fn tell(
    arguments: &Arguments,
    verdict: &Verdict,
    victims: &Victims,
    counters: &Counters,
    report: &AuditReport,
    time: Duration,
    json: bool,
) {
    let resent = counters.resent.load(Ordering::Relaxed);
    if json {
        let killed: serde_json::Map<String, serde_json::Value> =
            NAMES.iter().zip(victims.killed).map(|(name, count)| ((*name).to_owned(), count.into())).collect();
        say(json!({
            "chaos": "transfer", "engine": arguments.engine.name(), "seed": arguments.seed, "kills": arguments.kills, "servers": arguments.servers,
            "shared_users": arguments.shared_users, "clock_jumps": victims.jumps,
            "restores": {
                "database": victims.restores.database, "spot": victims.restores.spot,
                "refused": victims.restores.refused, "unnoticed": victims.restores.unnoticed,
            },
            "killed": killed, "requests": verdict.requests, "committed": verdict.committed,
            "pending": verdict.pending, "refused": verdict.refused, "sent_again": resent,
            "lost": verdict.lost, "doubled": verdict.doubled, "stranded": verdict.stranded, "first": verdict.first,
            "audit_clean": report.clean, "movements": report.movements,
            "elapsed_ms": u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        }));
        return;
    }
    let killed: Vec<String> =
        NAMES.iter().zip(victims.killed).map(|(name, count)| format!("{name} {count} times")).collect();
    let rows = [
        ("clocks that jumped", victims.jumps.into()),
        ("old copies put back", (victims.restores.database + victims.restores.spot).into()),
        ("old copies that a server refused", victims.restores.refused.len() as u64),
        ("old copies that nobody noticed", victims.restores.unnoticed.into()),
        ("requests", verdict.requests),
        ("told committed", verdict.committed),
        ("told on its way, and ended", verdict.pending),
        ("refused", verdict.refused),
        ("sent again, because nobody could say", resent),
        ("lost", verdict.lost),
        ("doubled", verdict.doubled),
        ("stranded", verdict.stranded),
    ];
    let cells: Vec<Vec<String>> =
        rows.iter().map(|(name, count)| vec![(*name).to_owned(), thousands(*count)]).collect();
    say(format!(
        "killed: {}\n\n{}\n",
        killed.join(", "),
        table(&["by the clients' own records", "count"], &[1], &cells)
    ));
    say(report.text());
}
