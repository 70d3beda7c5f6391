//! `bursar bench withdrawals`: requests over HTTP, each answered when verdict and hold are durable, beside internal transfers of the same server,
//! the same clients and the same database, in turn.
//!
//! Server and clients are processes of their own. The clients look at every answer: a figure counts only requests that were taken, and any other
//! answer ends the bench. Nobody pays what was asked for: the figure is that of the intake. Afterwards the books are held against what was taken.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use terminal::audit::AuditReport;
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, thousands};

use super::site::{EngineName, Site};
use super::transfer::{Crowd, Loaded, bug, load, text_of};
use super::{Samples, print_figures};
use crate::load::command::BENCH;
use crate::rig::process::Process;
use crate::rig::{Rig, program, write_private};

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
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Users who ask, and who move money
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    users: u32,
}

const BATCH: u32 = 100;
/// As the bench of transfers has them.
const BATCH_CONNECTIONS: u32 = 32;
const SERVER_POOL: u32 = 16;

/// A user has a thousand coins: enough for 50,000 of these. An amount of the usual policy: a limit of a day and a velocity, so that both are read and
/// judged, which nobody reaches; a fee; and nobody has to agree.
const AMOUNT: &str = "0.01";
const POLICY: &str = r#"
[[withdrawals]]
asset = "USDT"
chain = "bsc"
min = "0.01"
max = "100"
fee = "0.005"
fee_share_bps = 10
auto_approve = "1"
two_above = "10"
many_above = "50"
daily_user = "1000000"
requests = 1000000
requests_s = 86400
"#;
const CHAIN: &str = "bsc";

const FIGURES: [(&str, usize); 7] = [
    ("withdrawals_per_s", 0),
    ("p50_ms", 3),
    ("p99_ms", 3),
    ("batch_withdrawals_per_s", 0),
    ("transfers_per_s", 0),
    ("transfers_p50_ms", 3),
    ("ratio_to_transfers", 2),
];

struct Bench<'a> {
    server: &'a Process,
    secret: PathBuf,
    arguments: &'a Arguments,
    bar: &'a indicatif::ProgressBar,
}

#[derive(Clone, Copy)]
enum RequestForm {
    Transfers,
    Singles,
    Batches,
}

impl RequestForm {
    const fn words(self) -> &'static str {
        match self {
            Self::Transfers => "internal transfers",
            Self::Singles => "withdrawals",
            Self::Batches => "withdrawals in batches",
        }
    }
}

impl Bench<'_> {
    async fn load(&self, asked: RequestForm) -> Result<Loaded, Failure> {
        self.bar.inc(1);
        self.bar.set_message(asked.words());
        let Arguments { connections, users, seconds, .. } = *self.arguments;
        let connections = connections.min(users);
        let crowd = Crowd { connections, users, seconds };
        let fewer = Crowd { connections: connections.min(BATCH_CONNECTIONS), ..crowd };
        let batch = BATCH.to_string();
        match asked {
            RequestForm::Transfers => load(self.server, &self.secret, crowd, &[]).await,
            RequestForm::Singles => {
                load(self.server, &self.secret, crowd, &["--withdrawals", CHAIN, "--amount", AMOUNT]).await
            }
            RequestForm::Batches => {
                let options = ["--withdrawals", CHAIN, "--amount", AMOUNT, "--batch", &batch];
                load(self.server, &self.secret, fewer, &options).await
            }
        }
    }

    /// All figures once, one right after the other; every other round goes through them backwards.
    async fn round(&self, number: u32) -> Result<[f64; FIGURES.len()], Failure> {
        let mut order = [RequestForm::Transfers, RequestForm::Singles, RequestForm::Batches];
        if !number.is_multiple_of(2) {
            order.reverse();
        }
        let (mut transfers, mut singles, mut batches) = (None, None, None);
        for asked in order {
            let loaded = Some(self.load(asked).await?);
            match asked {
                RequestForm::Transfers => transfers = loaded,
                RequestForm::Singles => singles = loaded,
                RequestForm::Batches => batches = loaded,
            }
        }
        let (Some(transfers), Some(singles), Some(batches)) = (transfers, singles, batches) else {
            return Err(bug("a load was left out"));
        };
        Ok([
            singles.per_s,
            singles.p50_us / 1e3,
            singles.p99_us / 1e3,
            batches.per_s,
            transfers.per_s,
            transfers.p50_us / 1e3,
            singles.per_s / transfers.per_s.max(f64::MIN_POSITIVE),
        ])
    }
}

async fn start(site: &Site) -> Result<(Process, PathBuf), Failure> {
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
    let server = Process::start(&["--json", "--config", &text_of(&config), "serve", "--create-spot"], "http").await?;
    Ok((server, secret))
}

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let site = Site::prepare(arguments.engine, None)?;
    let (_, db, _) = Rig::prepare(site.folder(), site.url(), "bench", i64::from(arguments.users)).await?;
    program::apply(site.url(), POLICY, "bench", "whoever may withdraw, and what it costs").await?;
    let (server, secret) = start(&site).await?;
    let bar = if as_json { indicatif::ProgressBar::hidden() } else { indicatif::ProgressBar::new(0) };
    bar.set_length(u64::from(arguments.rounds + 1) * 3);
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut samples = vec![Samples::default(); FIGURES.len()];
    let bench = Bench { server: &server, secret, arguments, bar: &bar };
    // The first round is not counted, as in the bench of transfers.
    for number in 0..=arguments.rounds {
        let figures = bench.round(number).await?;
        if number > 0 {
            samples.iter_mut().zip(figures).for_each(|(samples, figure)| samples.push(figure));
        }
    }
    bar.finish_and_clear();
    server.stop().await?;
    let report = db.audit(|_| ()).await?;
    db.close().await;
    let clean = report.clean();
    let body = json!({
        "bench": "withdrawals", "engine": arguments.engine.name(), "connections": arguments.connections,
        "users": arguments.users, "rounds": arguments.rounds, "seconds": arguments.seconds, "batch": BATCH,
        "batch_connections": BATCH_CONNECTIONS.min(arguments.connections), "audit_clean": clean,
        "movements": report.movements,
    });
    print_figures(body, &FIGURES, &samples, as_json);
    if !as_json {
        let movements = thousands(report.movements);
        say(format!("{movements} movements; audit {}", if clean { "clean" } else { "BROKEN" }));
    }
    AuditReport::from(&report).verdict()
}
