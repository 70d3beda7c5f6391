//! `bursar bench spot`: durable operations per second and their latency, beside the bare disk and the bare state.

mod durable;
mod memory;
mod speed;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::id::{Generator, NodeId};
use domain::random::Random;
use domain::{AssetId, Clock};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use spot::State;
use spot::net::{Client, Credentials, Role, Server, Token};
use spot::service::{Ended, Limits};
use spot::sim::Window;
use spot::{Core, Disk, Engine, Settings};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table, thousands, warn};

use super::Samples;
use super::disk::fdatasync;
use durable::{recovery, snapshot};
use memory::memory;
use speed::{Measured, Source, apply_only, funding, in_process, loopback};

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

/// A folder that is removed when the bench ends.
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
        let disk = Disk::lock(&folder)?;
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

/// All figures of speed, over all rounds.
#[derive(Default)]
struct Speed {
    /// In this process, with so many operations outstanding: 1, 64, 4096.
    one: Figure,
    some: Figure,
    many: Figure,
    /// Over the network.
    net: Figure,
    /// On the bare state.
    applied: Samples,
    /// The median latency of one operation, as a multiple of one sync.
    p50_ratio: Samples,
    /// Syncs of the bare disk.
    disk: Samples,
}

/// All figures in turn, round by round. The first round is not counted.
async fn measure_speed(site: &Site, arguments: &Arguments, bar: &ProgressBar) -> Result<Speed, Failure> {
    let time = Duration::from_millis(arguments.slice_ms);
    let ids = Arc::new(Generator::new(SystemClock, NodeId::new(1).ok_or_else(|| bug("node"))?));
    let folder = site.new_log("speed")?;
    let (core, _) = Core::open(Arc::new(Disk::lock(&folder)?), &Settings::default(), &mut |_| {})?;
    let engine = Engine::start(core, Limits::default(), Arc::new(SystemClock)).map_err(|error| disk_trouble(&error))?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(|error| disk_trouble(&error))?;
    let address = listener.local_addr().map_err(|error| disk_trouble(&error))?;
    let token = Token::new("a token for the bench").map_err(bug)?;
    let server =
        tokio::spawn(Server::new(listener, engine.clone(), Credentials::one(Role::Coordinator, token.clone())).run());
    let client = Client::start(address, token, 1, |_| Ok(()));
    let mut state = State::default();
    state.set_window(Window { time: SystemClock.now(), ..Window::default() });
    for requests in funding(&ids, USERS)?.chunks(4_096) {
        engine.submit(requests.to_vec()).await.map_err(bug)?;
    }
    for request in funding(&ids, USERS)? {
        state.answer(&request);
    }
    let mut source = Source { ids: Arc::clone(&ids), random: Random::from_seed(7) };

    let mut speed = Speed::default();
    let probe = || fdatasync(&site.0, time / 4).map_err(|error| disk_trouble(&error));
    for round in 0..=arguments.rounds {
        let counted = round > 0;
        let before = probe()?;
        let measured = in_process(&engine, &ids, 1, time).await?;
        let after = probe()?;
        bar.inc(1);
        if counted {
            speed.p50_ratio.push(measured.quantile_us(500) / ((before.p50_us + after.p50_us) / 2.0));
            speed.one.push(&measured);
        }
        for (outstanding, figure) in [(64, &mut speed.some), (4_096, &mut speed.many)] {
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
            speed.net.push(&measured);
            speed.applied.push(applied_per_s);
            [before, after, between].iter().for_each(|probe| speed.disk.push(probe.per_s));
        }
    }
    drop(client);
    server.abort();
    if let Ended::Failed(error) = engine.stop().await {
        return Err(bug(error));
    }
    Ok(speed)
}

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let site = Site::prepare(arguments)?;
    let bar = if as_json { ProgressBar::hidden() } else { ProgressBar::new(0) };
    bar.set_length(u64::from(arguments.rounds + 1) * 5 + 3);
    // Memory is measured first: memory that the allocator keeps from earlier work would hide the growth.
    let memory = memory(arguments.accounts, arguments.operations)?;
    bar.inc(1);
    let speed = measure_speed(&site, arguments, &bar).await?;
    let snapshot = snapshot(&site, arguments.accounts).await?;
    bar.inc(1);
    let recovery = recovery(&site, arguments.operations)?;
    bar.finish_and_clear();
    let Speed { one, some, many, net, applied, p50_ratio, disk } = speed;
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
