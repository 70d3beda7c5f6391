//! `bursar spot serve`: the engine, until it is told to stop or its disk fails.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use spot::net::Server;
use spot::service::{Ended, Limits};
use spot::{Core, Disk, Engine, Settings, SpotError, Started};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{say, thousands, warn};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::tls::Certificate;
use super::{bar, credentials, show};
use domain::Clock;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder of the log and its snapshots
    folder: PathBuf,
    /// Make a new, empty engine in the folder
    #[arg(long)]
    create: bool,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7411")]
    listen: SocketAddr,
    #[command(flatten)]
    certificate: Certificate,
    /// A file with lines of a role (coordinator, order-engine, operator, observer) and a token: who is let in, and for what
    #[arg(long, value_name = "FILE")]
    credentials: PathBuf,
    /// For how many hours operation ids are remembered: longer than any outage, a long weekend at least
    #[arg(long, value_name = "HOURS", default_value_t = 168, value_parser = clap::value_parser!(u32).range(72..=87_600))]
    retention: u32,
    /// Believe the clock although it is more than the retention ahead of the log: after a long stop
    #[arg(long)]
    accept_clock: bool,
    /// The length of a new log's segments
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    segment: u32,
    /// Take a snapshot when the log has grown by so much (and by as much as the snapshot takes)
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    snapshot: u32,
    /// Requests that may wait; beyond that the answer is SPOT_BUSY
    #[arg(long, value_name = "COUNT", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(4_096..=16_777_216))]
    queue: u32,
}

impl Arguments {
    fn settings(&self) -> Settings {
        Settings {
            segment_bytes: u64::from(self.segment) << 20,
            retention_micros: i64::from(self.retention) * 3_600 * 1_000_000,
            accept_clock: self.accept_clock,
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            queue: usize::try_from(self.queue).unwrap_or(usize::MAX),
            snapshot_bytes: u64::from(self.snapshot) << 20,
            ..Limits::default()
        }
    }
}

pub async fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let credentials = credentials::read(&arguments.credentials)?;
    let tls = arguments.certificate.read(arguments.listen)?;
    let trouble = |error: &std::io::Error| {
        Failure::outside(
            "SPOT_LISTEN_FAILED",
            error,
            format!("is {} taken? name another with --listen", arguments.listen),
        )
    };
    // Before the log is touched: a second engine on the same port must not make one.
    let listener = TcpListener::bind(arguments.listen).await.map_err(|error| trouble(&error))?;
    let address = listener.local_addr().map_err(|error| trouble(&error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| trouble(&error))?;
    let (engine, found) = open(&arguments.folder, arguments.create, &arguments.settings(), arguments.limits(), json)?;
    greet(&found, json);
    if json {
        say(json!({ "event": "listening", "address": address.to_string() }));
    } else {
        say(format!("listening on {address}; Ctrl-C stops it"));
    }
    let server = Server::new(listener, engine.clone(), credentials);
    let server = match tls {
        Some(tls) => server.with_tls(tls),
        None => server,
    };
    let server = tokio::spawn(server.run());
    let ended = tokio::select! {
        ended = engine.ended() => ended,
        _ = terminate.recv() => engine.stop().await,
        _ = tokio::signal::ctrl_c() => engine.stop().await,
        () = tell(&engine, json) => engine.stop().await,
    };
    server.abort();
    match ended {
        Ended::Asked => {
            let batch = engine.counters().sequence.load(Ordering::Relaxed);
            if json {
                say(json!({ "event": "stopped", "batch": batch }));
            } else {
                say("stopped in good order".to_owned());
            }
            Ok(())
        }
        Ended::Failed(error) => Err(failed(&error)),
    }
}

/// Why an engine ended by itself.
pub fn failed(error: &SpotError) -> Failure {
    let mut messages = vec![error.to_string()];
    messages.extend(std::error::Error::source(error).map(ToString::to_string));
    Failure { code: error.code().into(), messages, hint: error.hint().to_owned(), exit: Exit::Outside }
}

/// What was found in the folder of an engine.
pub struct Found {
    started: Started,
    accounts: usize,
    time: Duration,
}

/// Opens the engine of a folder, and makes it first if asked to.
pub fn open(
    folder: &Path,
    create: bool,
    settings: &Settings,
    limits: Limits,
    json: bool,
) -> Result<(Engine, Found), Failure> {
    if create {
        Disk::make_folder(folder).map_err(|error| {
            Failure::outside("SPOT_STORAGE_FAILED", &error, format!("can {} be made?", folder.display()))
        })?;
    }
    let disk = Disk::lock(folder)?;
    if create {
        // Not a secret: it tells one log's files from another's.
        let log = SystemClock.now().micros().cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Core::create(&disk, log ^ u64::from(std::process::id()), settings)?;
    }
    let bar = bar(json);
    bar.set_message("reading the log");
    let watch = Stopwatch::start();
    let (core, started) = Core::open(Arc::new(disk), settings, &mut |progress| show(&bar, progress))?;
    bar.finish_and_clear();
    note(&started);
    let (now, last) = (SystemClock.now(), core.state().window().time);
    if core.clock_is_ahead(now) {
        return Err(SpotError::ClockAhead { now, last }.into());
    }
    let found = Found { started, accounts: core.state().account_count(), time: watch.elapsed() };
    let engine = Engine::start(core, limits, Arc::new(SystemClock))
        .map_err(|error| Failure::outside("INTERNAL", &error, "the machine has no threads left"))?;
    Ok((engine, found))
}

/// What an operator should know about the start, on standard error.
pub fn note(started: &Started) {
    for error in &started.unusable {
        warn(format!("warning {}: {error}; an older snapshot and the log stand in for it", error.code()));
    }
    if let Some(torn) = &started.torn {
        warn(format!("note: a record that was never acknowledged was cut off ({torn})"));
    }
}

pub fn greet(found: &Found, json: bool) {
    let Found { started, accounts, time } = found;
    if json {
        say(json!({
            "event": "recovered", "batch": started.sequence, "snapshot": started.snapshot,
            "replayed": started.operations, "accounts": accounts,
            "torn": started.torn, "milliseconds": u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        }));
        return;
    }
    let from = started.snapshot.map_or_else(String::new, |batch| format!("the snapshot of batch {batch} and "));
    say(format!(
        "recovered from {from}{} operations of the log in {time:.1?}: {} accounts, batch {}",
        thousands(started.operations),
        thousands(*accounts as u64),
        started.sequence
    ));
}

/// A line every ten seconds in which something happened. Never returns.
async fn tell(engine: &Engine, json: bool) {
    let mut before = 0;
    // On a thread of its own: the reader of the lines may be slow, or gone, and the engine must go on.
    let (lines, printed) = std::sync::mpsc::sync_channel::<String>(4);
    std::thread::spawn(move || {
        for line in printed {
            writeln!(std::io::stdout(), "{line}").ok();
        }
    });
    loop {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let counters = engine.counters();
        let requests = counters.requests.load(Ordering::Relaxed);
        if requests == before {
            continue;
        }
        let rate = (requests - before) / 10;
        before = requests;
        let (batch, accounts) = (counters.sequence.load(Ordering::Relaxed), counters.accounts.load(Ordering::Relaxed));
        let (ids, snapshot) = (counters.ids.load(Ordering::Relaxed), counters.snapshot.load(Ordering::Relaxed));
        let line = if json {
            let failures = counters.snapshot_failures.load(Ordering::Relaxed);
            json!({ "event": "running", "requests_per_s": rate, "batch": batch, "accounts": accounts, "ids": ids,
                "snapshot": snapshot, "snapshot_failures": failures })
            .to_string()
        } else {
            let (rate, accounts, ids) = (thousands(rate), thousands(accounts), thousands(ids));
            format!("{rate} requests/s, batch {batch}, {accounts} accounts, {ids} ids remembered")
        };
        // A line for which there is no room is left out.
        lines.try_send(line).ok();
    }
}
