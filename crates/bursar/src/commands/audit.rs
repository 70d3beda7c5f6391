//! `bursar audit`: proves the laws over live data; names the first offending row; exit 1 when there is one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use domain::{AccountKind, Clock};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use spot::net::Role;
use spot::service::Limits;
use spot::{Disk, Engine, SpotError};
use store::Db;
use store::audit::{Finding, Progress, Report, Violation};
use store::catalog::read_assets;
use store::ledger::balances::totals;
use store::transfer::count_unproven;
use terminal::audit::AuditReport;
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};
use terminal::output::thousands;
use transfer::audit::{AuditError, Options};
use transfer::leg::Leg;
use transfer::leg::spot::SpotLeg;
use transfer::pair;

use super::spot::serve as spot_serve;
use super::{Context, decimal, serve};
use crate::config::{Config, SpotKind};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Leave the spot engine out: only what the database can prove by itself
    #[arg(long)]
    ledger_only: bool,
}

pub async fn run(context: &Context, arguments: &Arguments) -> CommandResult {
    let db = context.open().await?;
    let watch = Stopwatch::start();
    let mut report = with_progress(&db, context.json).await?;
    let left_out = if arguments.ledger_only {
        Some("it was asked to be left out".to_owned())
    } else {
        match compare_spot(context, &db, &mut report).await {
            Ok(left_out) => left_out,
            // Without the engine the ledger's own violations are still reported.
            Err(failure) if report.clean() => return Err(failure),
            Err(failure) => Some(failure.messages.join(": ")),
        }
    };
    let suspense = Suspense::read(&db).await?;
    db.close().await;
    let told = AuditReport::from(&report);
    let mut body = json!(told);
    body["spot_left_out"] = json!(left_out);
    body["suspense"] = json!(suspense.balances);
    body["resolved_without_proof"] = json!(suspense.unproven);
    body["elapsed_ms"] = json!(u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX));
    body["peak_memory_kb"] = json!(peak_memory_kb());
    context.print(&body, || {
        let seconds = watch.elapsed().as_secs_f64();
        let left_out =
            left_out.as_ref().map_or_else(String::new, |why| format!("\nthe spot engine was not compared: {why}"));
        let suspense = suspense.text();
        format!("{}\n{} movements in {seconds:.1} s{left_out}{suspense}", told.text(), thousands(told.movements))
    });
    told.verdict()
}

/// What waits for people: the books are in order with it, and they are not done.
struct Suspense {
    /// By asset, where it is not zero.
    balances: BTreeMap<String, String>,
    /// How many transfers were ever resolved without proof.
    unproven: i64,
}

impl Suspense {
    async fn read(db: &Db) -> Result<Self, Failure> {
        let mut tx = db.read().await?;
        let assets = read_assets(&mut tx).await?;
        let totals = totals(&mut tx).await?;
        let kind = AccountKind::Suspense.to_string();
        let balances = assets.iter().filter_map(|(id, asset)| {
            let units = totals.get(id)?.system.get(&kind).copied().filter(|units| *units != 0)?;
            Some((asset.symbol.to_string(), decimal(units, asset.precision)))
        });
        Ok(Self { balances: balances.collect(), unproven: count_unproven(&mut tx).await? })
    }

    fn text(&self) -> String {
        if self.balances.is_empty() && self.unproven == 0 {
            return String::new();
        }
        let listed: Vec<String> = self.balances.iter().map(|(symbol, amount)| format!("{amount} {symbol}")).collect();
        let listed = if listed.is_empty() { "nothing".to_owned() } else { listed.join(", ") };
        format!("\nin suspense: {listed}; transfers resolved without proof: {}", self.unproven)
    }
}

/// Holds the spot engine against the transfers, and says why not, if there is nothing to compare.
async fn compare_spot(context: &Context, db: &Db, report: &mut Report) -> Result<Option<String>, Failure> {
    let config = &context.config;
    if config.spot.kind == SpotKind::Http {
        return Ok(Some("an engine over HTTP does not tell its balances".to_owned()));
    }
    let (leg, engine) = match open_spot(context, db).await? {
        None => return Ok(Some("there were no transfers, and there is no engine".to_owned())),
        Some(opened) => opened,
    };
    let compared = compare(config, db, &leg, report).await;
    if let Some(engine) = engine {
        engine.stop().await;
    }
    compared.map(|()| None)
}

/// Adds to the report what the engine and the transfers say of each other.
async fn compare(config: &Config, db: &Db, leg: &SpotLeg, report: &mut Report) -> CommandResult {
    let paired = tokio::time::timeout(SPOT_PATIENCE, pair::prove(db, leg)).await;
    let violation = match paired {
        Ok(Err(error)) if error.is_certain() => {
            Some(Violation { row: "spot_pair".to_owned(), problem: format!("{}: {error}", error.code()) })
        }
        // What cannot be asked is told below.
        Ok(Ok(()) | Err(_)) | Err(_) => None,
    };
    report.findings.push(Finding { check: "spot_pair", violation });
    let micros = i64::from(config.spot.retention_h) * 3_600 * 1_000_000;
    let options = Options {
        trading: config.spot.trading,
        // An hour of room: the engine forgets by its own clock.
        remembered_since: SystemClock.now().plus_micros(3_600_000_000 - micros),
    };
    // An engine that is not there is waited for; an audit does not wait.
    if tokio::time::timeout(SPOT_PATIENCE, leg.totals(&[domain::AssetId(1)])).await.is_err() {
        let hint = format!("does it run at {}? or say --ledger-only", config.spot.address);
        return Err(Failure::outside("LEG_TIMEOUT", &AuditError::NoAnswer, hint));
    }
    let findings = transfer::audit::audit(db, leg, &options, |_| {}).await.map_err(|error| match error {
        AuditError::Store(error) => error.into(),
        error @ (AuditError::NoAnswer | AuditError::NotTold) => {
            Failure::outside("LEG_ANSWER_INVALID", &error, "try again, or say --ledger-only")
        }
    })?;
    report.findings.extend(findings);
    Ok(())
}

/// How long an engine elsewhere may take to answer at all.
const SPOT_PATIENCE: Duration = Duration::from_secs(5);

/// An audit only asks, so an observer's token is enough.
const ASKING: [Role; 2] = [Role::Observer, Role::Coordinator];

/// The engine: asked over TCP if it runs, else opened here. `None`: there is none, and nothing ever went there.
async fn open_spot(context: &Context, db: &Db) -> Result<Option<(SpotLeg, Option<Engine>)>, Failure> {
    let config = &context.config;
    if config.spot.kind == SpotKind::Remote {
        return Ok(Some((serve::spot_client(config, &ASKING)?, None)));
    }
    let folder = Path::new(&config.spot.folder);
    let lock = if folder.is_dir() { Disk::exclusive(folder) } else { Ok(None) };
    let free = lock.map_err(|error| Failure::outside("SPOT_STORAGE_FAILED", &error, "can the folder be read?"))?;
    match free {
        Some(disk) => {
            drop(disk);
            if spot::log::read::segments(&Disk::for_reading(folder))?.is_empty() && !any_transfers(db).await? {
                return Ok(None);
            }
            let settings = serve::spot_settings(config);
            let (engine, _) = spot_serve::open(folder, false, &settings, Limits::default(), true)?;
            Ok(Some((SpotLeg::engine(engine.clone()), Some(engine))))
        }
        None if folder.is_dir() => Ok(Some((serve::spot_client(config, &ASKING)?, None))),
        None if any_transfers(db).await? => Err(SpotError::Missing { folder: config.spot.folder.clone() }.into()),
        None => Ok(None),
    }
}

async fn any_transfers(db: &Db) -> Result<bool, Failure> {
    Ok(!store::transfer::sums::sums_by_asset(&mut db.read().await?).await?.is_empty())
}

/// Runs the audit behind a progress bar on standard error, where that is a terminal.
async fn with_progress(db: &Db, quiet: bool) -> Result<Report, Failure> {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
    let style = ProgressStyle::with_template("auditing {msg:<14} {bar:40} {human_pos}/{human_len} movements");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    let report = db
        .audit(|progress| match progress {
            Progress::Started { movements } => {
                bar.set_length(movements);
                bar.set_message("movements");
            }
            Progress::Movements(seen) => bar.set_position(seen),
            Progress::Check(name) => {
                bar.set_position(bar.length().unwrap_or(0));
                bar.set_message(name);
            }
        })
        .await?;
    bar.finish_and_clear();
    Ok(report)
}

/// The most memory this process has had, as Linux counts it; 0 elsewhere.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
