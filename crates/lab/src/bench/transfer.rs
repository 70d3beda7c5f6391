//! `bursar bench transfer`: internal transfers over HTTP, beside the same done plainly and beside the bare commit.
//!
//! Server, plain server and clients are processes of their own. The clients look at every answer: a figure counts only
//! transfers that were answered as committed, and any other answer ends the bench.

use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::random::Random;
use serde::Deserialize;
use serde_json::json;
use store::Db;
use terminal::audit::AuditReport;
use terminal::clock::Stopwatch;
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, thousands};

use super::disk::fdatasync;
use super::site::{EngineName, Site};
use super::{Samples, print_figures};
use crate::load::command::BENCH;
use crate::rig::process::{Process, itself};
use crate::rig::{Rig, write_private};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which database
    #[arg(long)]
    engine: EngineName,
    /// Clients at once, each with one request under way
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// How often each figure is measured, in turn with the others
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each figure is measured in each round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Users who move money
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    users: u32,
}

const ASSET: &str = "USDT";
/// Writers of the bare commit.
const WRITERS: u64 = 8;
const BATCH: u32 = 100;
/// Clients that send batches: together they have as many transfers under way as the server can make use of.
const BATCH_CONNECTIONS: u32 = 32;
/// Connections to the database. PostgreSQL takes a hundred, and the bench itself needs a few. The plain server was
/// measured with 8, 16, 32 and 64 on two cores: it is fastest with 32.
const SERVER_POOL: u32 = 16;
const PLAIN_POOL: u32 = 32;

pub(super) fn bug(what: impl std::fmt::Display) -> Failure {
    Failure::outside(
        "INTERNAL",
        &std::io::Error::other(what.to_string()),
        "this is a bug in the bench: please report it",
    )
}

fn disk_trouble(error: std::io::Error) -> Failure {
    Failure::outside("DISK_PROBE_FAILED", &error, "make room in the temporary folder")
}

pub(super) fn child_trouble(error: std::io::Error) -> Failure {
    Failure::outside("COMMAND_FAILED", &error, "the bench starts itself again")
}

/// The servers, and what their clients need to know.
struct Servers {
    server: Process,
    plain: Process,
    secret: PathBuf,
}

impl Servers {
    async fn start(site: &Site, users: u32) -> Result<Self, Failure> {
        // The rig has made it.
        let secret = site.folder().join("jwt.secret");
        let (config, spot) = (site.folder().join("bursar.toml"), site.folder().join("spot"));
        let settings = json!({
            "database": { "url": site.url(), "max_connections": SERVER_POOL, "any_rights": true },
            "http": { "listen": "127.0.0.1:0", "operations_listen": "" },
            "auth": { "issuer": BENCH, "audience": BENCH, "hs256_secret_file": secret },
            "spot": { "kind": "embedded", "folder": spot, "address": "" },
            // An answer counts only as the end of its transfer, and a disk has its moments.
            "transfer": { "wait_ms": 10_000 },
            "limits": { "requests_per_second": 0, "daily_transfers": 0 },
        });
        write_private(&config, &toml::to_string(&settings).map_err(bug)?)?;
        let server =
            Process::start(&["--json", "--config", &text_of(&config), "serve", "--create-spot"], "http").await?;
        let plain_spot = text_of(&site.folder().join("spot-plain"));
        let (pool, users) = (PLAIN_POOL.to_string(), users.to_string());
        let plain = Process::start(
            &[
                "drill",
                "plain",
                "--database-url",
                site.url(),
                "--connections",
                &pool,
                "--secret-file",
                &text_of(&secret),
                "--spot",
                &plain_spot,
                "--asset",
                ASSET,
                "--users",
                &users,
            ],
            "http",
        )
        .await?;
        Ok(Self { server, plain, secret })
    }

    async fn stop(self) -> CommandResult {
        self.server.stop().await?;
        self.plain.stop().await
    }

    async fn load(&self, of: &Process, arguments: &Arguments, wanted: &Clients) -> Result<Loaded, Failure> {
        let options = ["--batch", &wanted.batch.to_string(), "--path", wanted.path];
        let connections = wanted.connections.min(arguments.users);
        load(of, &self.secret, Crowd { connections, users: arguments.users, seconds: arguments.seconds }, &options)
            .await
    }
}

/// Those who ask, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Crowd {
    pub connections: u32,
    pub users: u32,
    pub seconds: u64,
}

/// Clients in a process of their own. Any answer that was not expected ends the bench.
pub(super) async fn load(of: &Process, secret: &Path, crowd: Crowd, options: &[&str]) -> Result<Loaded, Failure> {
    let mut command = itself()?;
    command.args(["--json", "load", "--http", &of.address.to_string(), "--secret-file", &text_of(secret)]);
    command.args(["--connections", &crowd.connections.to_string(), "--users", &crowd.users.to_string()]);
    command.args(["--seconds", &crowd.seconds.to_string()]).args(options);
    let child = tokio::process::Command::from(command).kill_on_drop(true).output();
    let output = child.await.map_err(child_trouble)?;
    let loaded: Option<Loaded> = serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success());
    let loaded = loaded.ok_or_else(|| {
        child_trouble(std::io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    })?;
    if loaded.errors > 0 {
        let first = loaded.first_error.unwrap_or_default();
        let what = format!("{} of {options:?} did not commit; the first: {first}", loaded.errors);
        return Err(child_trouble(std::io::Error::other(what)));
    }
    Ok(loaded)
}

struct Clients {
    connections: u32,
    batch: u32,
    path: &'static str,
}

/// What `bursar load` says.
#[derive(Deserialize)]
pub(super) struct Loaded {
    pub per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    errors: u64,
    first_error: Option<String>,
}

pub(super) fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Bare commits by so many writers: per second, and the median time of one in milliseconds.
async fn commits(db: &Db, writers: u64, rows: u32, time: Duration) -> Result<(f64, f64), Failure> {
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (db, mut random) = (db.clone(), Random::from_seed(writer));
            tokio::spawn(async move {
                let mut times = Vec::new();
                let mut before = watch.elapsed();
                while before < time {
                    let row = i64::try_from(random.below(u64::from(rows))).unwrap_or(0) + 1;
                    db.bare_update(row).await?;
                    let now = watch.elapsed();
                    times.push(now - before);
                    before = now;
                }
                Ok::<_, Failure>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.map_err(bug)??);
    }
    let per_s = times.len() as f64 / watch.elapsed().as_secs_f64();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok((per_s, median.as_secs_f64() * 1e3))
}

/// The figures, with the decimals that they are shown with.
const FIGURES: [(&str, usize); 13] = [
    ("transfers_per_s", 0),
    ("p50_ms", 3),
    ("p99_ms", 3),
    ("batch_transfers_per_s", 0),
    ("plain_per_s", 0),
    ("ratio_plain", 2),
    ("ratio_plain_batch", 2),
    ("commit_per_s", 0),
    ("commit_p50_ms", 3),
    ("fdatasync_p50_ms", 3),
    ("one_p50_ms", 3),
    ("one_p50_allowed_ms", 3),
    ("one_p50_to_allowed", 2),
];

/// What a round needs.
struct Bench<'a> {
    site: &'a Site,
    db: &'a Db,
    servers: &'a Servers,
    arguments: &'a Arguments,
    bar: &'a indicatif::ProgressBar,
}

const SINGLE: &str = "/api/v1/internal_transfer";
const BATCHED: &str = "/api/v1/internal_transfer/batch";

impl Bench<'_> {
    fn next(&self, what: &'static str) {
        self.bar.inc(1);
        self.bar.set_message(what);
    }

    /// All figures once, one right after the other: a disk that drifts drifts for all of them. Every other round goes
    /// through the loads backwards, so that none of them always finds the disk as the same other one left it.
    async fn round(&self, number: u32) -> Result<[f64; FIGURES.len()], Failure> {
        let Self { db, servers, arguments, .. } = self;
        self.next("bare commits");
        let (commit_per_s, _) = commits(db, WRITERS, arguments.users, Duration::from_secs(arguments.seconds)).await?;
        let connections = arguments.connections;
        let batch_connections = connections.min(BATCH_CONNECTIONS);
        let loads = [
            (&servers.plain, Clients { connections, batch: 1, path: "/plain" }),
            (&servers.server, Clients { connections, batch: 1, path: SINGLE }),
            (&servers.server, Clients { connections: batch_connections, batch: BATCH, path: BATCHED }),
        ];
        let mut loaded = [None, None, None];
        for at in if number.is_multiple_of(2) { [0, 1, 2] } else { [2, 1, 0] } {
            let (served, clients) = &loads[at];
            self.next(clients.path);
            loaded[at] = Some(servers.load(served, arguments, clients).await?);
        }
        let [Some(plain), Some(singles), Some(batches)] = loaded else { return Err(bug("a load was left out")) };
        let one = self.one_at_a_time().await?;
        let allowed_ms = 2.0 * one.commit_ms + one.fdatasync_ms + 1.0;
        Ok([
            singles.per_s,
            singles.p50_us / 1e3,
            singles.p99_us / 1e3,
            batches.per_s,
            plain.per_s,
            singles.per_s / plain.per_s.max(f64::MIN_POSITIVE),
            batches.per_s / plain.per_s.max(f64::MIN_POSITIVE),
            commit_per_s,
            one.commit_ms,
            one.fdatasync_ms,
            one.transfer_ms,
            allowed_ms,
            one.transfer_ms / allowed_ms,
        ])
    }

    /// One request after the other, and what it is held against on both sides of it.
    async fn one_at_a_time(&self) -> Result<OneAtATime, Failure> {
        let time = Duration::from_secs(self.arguments.seconds) / 8;
        let yardsticks = async || -> Result<[f64; 2], Failure> {
            let probe = fdatasync(self.site.folder(), time).map_err(disk_trouble)?;
            let (_, commit_ms) = commits(self.db, 1, self.arguments.users, time).await?;
            Ok([probe.p50_us / 1e3, commit_ms])
        };
        self.next("one after the other");
        let before = yardsticks().await?;
        let clients = Clients { connections: 1, batch: 1, path: SINGLE };
        let loaded = self.servers.load(&self.servers.server, self.arguments, &clients).await?;
        let after = yardsticks().await?;
        Ok(OneAtATime {
            transfer_ms: loaded.p50_us / 1e3,
            fdatasync_ms: (before[0] + after[0]) / 2.0,
            commit_ms: (before[1] + after[1]) / 2.0,
        })
    }
}

/// Median times.
struct OneAtATime {
    transfer_ms: f64,
    fdatasync_ms: f64,
    commit_ms: f64,
}

/// How often `round` tells the bar.
const STEPS: u64 = 5;

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let site = Site::prepare(arguments.engine, None)?;
    let (_, db, _) = Rig::prepare(site.folder(), site.url(), "bench", i64::from(arguments.users)).await?;
    db.prepare_yardstick(i64::from(arguments.users)).await?;
    let servers = Servers::start(&site, arguments.users).await?;
    let bar = if as_json { indicatif::ProgressBar::hidden() } else { indicatif::ProgressBar::new(0) };
    bar.set_length(u64::from(arguments.rounds + 1) * STEPS);
    let mut samples = vec![Samples::default(); FIGURES.len()];
    let bench = Bench { site: &site, db: &db, servers: &servers, arguments, bar: &bar };
    // The first round is not counted: a new server makes its log files while it runs, an old one uses them again.
    for number in 0..=arguments.rounds {
        let figures = bench.round(number).await?;
        if number > 0 {
            samples.iter_mut().zip(figures).for_each(|(samples, figure)| samples.push(figure));
        }
    }
    bar.finish_and_clear();
    servers.stop().await?;
    let report = db.audit(|_| ()).await?;
    db.close().await;
    print(arguments, &samples, report.clean(), report.movements, as_json);
    AuditReport::from(&report).verdict()
}

fn print(arguments: &Arguments, samples: &[Samples], clean: bool, movements: u64, as_json: bool) {
    let body = json!({
        "bench": "transfer", "engine": arguments.engine.name(),
        "connections": arguments.connections, "users": arguments.users, "rounds": arguments.rounds,
        "seconds": arguments.seconds, "batch": BATCH,
        "batch_connections": BATCH_CONNECTIONS.min(arguments.connections),
        "audit_clean": clean, "movements": movements,
    });
    print_figures(body, &FIGURES, samples, as_json);
    if !as_json {
        say(format!("{} movements; audit {}", thousands(movements), if clean { "clean" } else { "BROKEN" }));
    }
}
