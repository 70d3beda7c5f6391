//! `bursar demo`: first success with nothing installed but Rust. A sample treasury on an embedded SQLite database, a spot
//! engine and a server as processes of their own, and customers who move money both ways over HTTP, while the server is
//! killed and the wire to the engine is held. At the end the customers' own records, the balances and the
//! audit. Then a second act: deposits.

mod deposits;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::Clock;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::db::sqlite_url;
use terminal::audit::AuditReport;
use terminal::clock::{Stopwatch, SystemClock};
use terminal::duration::parse_duration;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{say, table, thousands};

use crate::rig::customers::{Counters, Customer, Verdict, drain};
use crate::rig::process::Process;
use crate::rig::proxy::Proxy;
use crate::rig::{ASSETS, COINS, Coin, Rig, program, trouble};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How long to run, such as 10s, 2m or 500ms
    #[arg(long = "for", default_value = "10s", value_name = "TIME", value_parser = parse_duration)]
    time: Duration,
    /// The same seed makes the customers ask for the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where everything is kept; run again to go on with it
    #[arg(long, default_value = "bursar-demo", value_name = "FOLDER")]
    data_dir: PathBuf,
}

const USERS: i64 = 200;
const CUSTOMERS: i64 = 16;
/// How long the wire is held: longer than the server waits for its engine.
const HELD: Duration = Duration::from_millis(500);

pub async fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let tell = |text: String| {
        if !json {
            say(text);
        }
    };
    let file = arguments.data_dir.join("bursar.db");
    tell(format!("1. database: {} (SQLite, every commit synced to disk)", file.display()));
    // A server that is started later, in another folder, finds the same database.
    let absolute = std::path::absolute(&file).map_err(|error| trouble("the folder cannot be named", error))?;
    let (rig, db, coins) = Rig::prepare(&arguments.data_dir, &sqlite_url(&absolute), "demo", USERS).await?;
    let given = ASSETS.join(" and ");
    tell(format!("2. treasury: examples/treasury.toml; {USERS} users with {} {given} each", thousands(COINS as u64)));
    let spot = rig.start_spot("127.0.0.1:0").await?;
    let wire = Proxy::start(spot.address).await?;
    rig.configure(0, "127.0.0.1:0", &wire.address.to_string())?;
    let server = rig.start_server(0).await?;
    let address = server.address;
    rig.configure(0, &address.to_string(), &wire.address.to_string())?;
    tell(format!("3. processes: spot engine on {}, server on http://{address}", spot.address));
    tell(format!(
        "4. transfers: {CUSTOMERS} customers over HTTP, both ways, while the server is killed (SIGKILL) and the wire to \
         the spot engine is held"
    ));
    let mut stage = Stage { rig, server: Some(server), wire, killed: 0, held: 0 };
    let played = stage.play(arguments, &coins, address, json).await?;
    tell(format!(
        "   {}: {} a second, durable; server killed {} times, wire held {} times",
        played.counters,
        thousands(played.per_s),
        stage.killed,
        stage.held
    ));
    let config = stage.rig.config_file(0);
    let report = program::audit(&config).await?;
    if let Some(server) = stage.server.take() {
        server.stop().await?;
    }
    spot.stop().await?;
    db.checkpoint(SystemClock.now()).await?;
    db.close().await;
    // The engine goes with this command; a server that is started later brings its own.
    stage.rig.configure_for_later()?;
    if !json {
        conclude(&played.verdict, &program::shown(&config, &["balances"]).await?, &report);
    }
    report.verdict()?;
    let told = deposits::play(&arguments.data_dir.join("deposits"), &tell).await?;
    if json {
        say(json!({
            "seed": arguments.seed,
            "data_dir": arguments.data_dir.display().to_string(),
            "elapsed_ms": u64::try_from(played.elapsed.as_millis()).unwrap_or(u64::MAX),
            "transfers": {
                "committed": played.verdict.committed, "pending": played.verdict.pending,
                "refused": played.verdict.refused,
                "sent_again": played.counters.resent.load(Ordering::Relaxed),
            },
            "transfers_per_s": played.per_s,
            "faults": { "server_killed": stage.killed, "wire_held": stage.held },
            "lost": played.verdict.lost, "doubled": played.verdict.doubled, "stranded": played.verdict.stranded,
            "balances": program::balances(&config).await?,
            "audit": report,
            "deposits": {
                "paid": told.paid, "credited": told.credited, "taken_back": told.taken_back,
                "credited_again": told.credited_again, "audit": told.audit,
            },
        }));
    } else {
        say(format!("10. audit of the deposits' books\n\n{}", told.audit.text()));
        go_on(&config, &told.config);
    }
    told.audit.verdict()?;
    if played.verdict.clean() {
        return Ok(());
    }
    let hint = "this is a bug in Bursar: please report it, with the folder".to_owned();
    Err(Failure { code: "CHAOS_FAILED".into(), messages: played.verdict.first, hint, exit: Exit::Found })
}

fn conclude(verdict: &Verdict, balances: &str, report: &AuditReport) {
    let rows = [
        ("told committed, and so it is", verdict.committed),
        ("told on its way, and it has ended", verdict.pending),
        ("refused", verdict.refused),
        ("lost", verdict.lost),
        ("doubled", verdict.doubled),
        ("stranded", verdict.stranded),
    ];
    let cells: Vec<Vec<String>> =
        rows.iter().map(|(name, count)| vec![(*name).to_owned(), thousands(*count)]).collect();
    say("5. the customers' own records, held against the server\n");
    say(format!("{}\n", table(&["request", "count"], &[1], &cells)));
    say("6. balances (what is owed to each account; custody is negative by the coins it holds)\n");
    say(format!("{balances}\n"));
    say(format!("7. audit of {} movements, and of the spot engine\n\n{}", thousands(report.movements), report.text()));
}

fn go_on(config: &Path, deposits: &Path) {
    let program = std::env::args_os().next().unwrap_or_else(|| "bursar".into()).display().to_string();
    let (config, deposits) = (config.display(), deposits.display());
    say(format!(
        "\ngo on by yourself:\n  {program} --config {config} transfer list --user 7\n  {program} --config {config} \
         serve        # then in another terminal:\n  {program} --config {config} token --user 7\n  {program} --config \
         {deposits} deposit show dp-4"
    ));
}

/// What runs, and what is done to it.
struct Stage {
    rig: Rig,
    server: Option<Process>,
    wire: Proxy,
    killed: u32,
    held: u32,
}

struct Played {
    counters: Arc<Counters>,
    verdict: Verdict,
    elapsed: Duration,
    per_s: u64,
}

impl Stage {
    async fn play(
        &mut self,
        arguments: &Arguments,
        coins: &[Coin],
        address: std::net::SocketAddr,
        json: bool,
    ) -> Result<Played, Failure> {
        let (stop, counters) = (Arc::new(AtomicBool::new(false)), Arc::new(Counters::default()));
        let run = SystemClock.now().micros();
        let customers: Vec<_> = (0..CUSTOMERS)
            .map(|number| {
                let (secret, numbers) = (self.rig.secret.clone(), [number, CUSTOMERS, USERS]);
                let customer =
                    Customer::new(vec![address], secret, coins.to_vec(), numbers, arguments.seed, run + number);
                tokio::spawn(customer.trade(Arc::clone(&stop), Arc::clone(&counters), Duration::from_millis(1)))
            })
            .collect();
        let watch = Stopwatch::start();
        let bar = progress_bar(arguments.time, json);
        // A fault in every quarter of a short run, and every two seconds of a long one; first the wire, then the server.
        let every = (arguments.time / 5).min(Duration::from_secs(2));
        let mut next = every;
        while watch.elapsed() < arguments.time {
            tokio::time::sleep(Duration::from_millis(20)).await;
            bar.set_position(u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX));
            bar.set_message(counters.to_string());
            if watch.elapsed() >= next {
                next += every;
                self.disturb().await?;
            }
        }
        stop.store(true, Ordering::Relaxed);
        let elapsed = watch.elapsed();
        let committed = counters.committed.load(Ordering::Relaxed);
        let per_s = u128::from(committed) * 1_000 / elapsed.as_millis().max(1);
        let mut done = Vec::new();
        for customer in customers {
            done.push(customer.await.map_err(|error| trouble("a customer ended", std::io::Error::other(error)))?);
        }
        bar.set_message("everything has time to end");
        drain(&mut done).await;
        let mut verdict = Verdict::default();
        for customer in done {
            verdict.add(customer.check().await);
        }
        bar.finish_and_clear();
        let per_s = u64::try_from(per_s).unwrap_or(u64::MAX);
        Ok(Played { counters, verdict, elapsed, per_s })
    }

    async fn disturb(&mut self) -> CommandResult {
        if self.held <= self.killed {
            self.held += 1;
            self.wire.hold(true);
            tokio::time::sleep(HELD).await;
            self.wire.hold(false);
            return Ok(());
        }
        self.killed += 1;
        if let Some(server) = self.server.take() {
            server.kill().await?;
        }
        self.server = Some(self.rig.start_server(0).await?);
        Ok(())
    }
}

fn progress_bar(time: Duration, quiet: bool) -> ProgressBar {
    let length = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(length) };
    if let Ok(style) = ProgressStyle::with_template("   {bar:30} {percent:>3} %  {msg}") {
        bar.set_style(style);
    }
    bar
}
