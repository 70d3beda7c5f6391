//! `bursar copy`: a whole database to an empty one, of either engine, proven table by table and by the audit on both sides.

use domain::Clock;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::copy::{CopiedTable, CopyError};
use store::db::describe_url;
use store::{Db, Options, StoreError};
use terminal::audit::AuditReport;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{say, table, thousands};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The database to copy, whose servers are stopped: sqlite://… or postgres://…; one with a password belongs into the
    /// environment, because others on this machine see arguments
    #[arg(long, value_name = "URL", env = "BURSAR_COPY_FROM", hide_env_values = true)]
    from: String,
    /// An empty database; its schema is made if it is missing
    #[arg(long, value_name = "URL", env = "BURSAR_COPY_TO", hide_env_values = true)]
    to: String,
}

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let (from, to) = (describe_url(&arguments.from)?, describe_url(&arguments.to)?);
    if from == to {
        let message = format!("both are {from}");
        return Err(Failure::bad_input("COPY_TARGET_NOT_EMPTY", message, "name an empty database with --to"));
    }
    let source = Db::connect(&arguments.from, &Options::default()).await?;
    source.check_schema().await?;
    // Broken books would be copied as they are, and nobody would look for the cause where it is.
    let before = audited(&source).await?;
    let target = Db::connect(&arguments.to, &Options { create: true, ..Options::default() }).await?;
    match target.check_schema().await {
        Err(StoreError::SchemaMissing) => drop(target.migrate(SystemClock.now()).await?),
        other => other?,
    }
    let bar = bar(as_json);
    let copied = store::copy::copy(&source, &target, SystemClock.now(), |table, rows| {
        bar.set_message(format!("{table}: {} rows", thousands(rows)));
        bar.tick();
    })
    .await;
    bar.finish_and_clear();
    let copied = copied.map_err(failure)?;
    let after = audited(&target).await?;
    source.close().await;
    target.close().await;
    if before.movements != after.movements {
        let message = format!("{} movements became {}", before.movements, after.movements);
        return Err(differs(vec![message]));
    }
    if as_json {
        let tables: Vec<_> = copied
            .iter()
            .map(|one| json!({ "table": one.table, "rows": one.rows, "checksum": format!("{:x}", one.checksum) }))
            .collect();
        say(json!({ "from": from, "to": to, "tables": tables, "movements": after.movements, "audits": "clean" }));
    } else {
        say(told(&from, &to, &copied, after.movements));
    }
    Ok(())
}

/// What the database proves by itself. The spot engine stays where it is.
async fn audited(db: &Db) -> Result<AuditReport, Failure> {
    let report = AuditReport::from(&db.audit(|_| {}).await?);
    report.verdict()?;
    Ok(report)
}

fn told(from: &str, to: &str, copied: &[CopiedTable], movements: u64) -> String {
    let rows: Vec<Vec<String>> =
        copied.iter().map(|one| vec![one.table.clone(), thousands(one.rows), format!("{:x}", one.checksum)]).collect();
    format!(
        "{}\n{from} → {to}: the same on both sides, {} movements, both audits clean\n\
         next: database.url = the new one, then bursar audit. Put the old one away: no server may use it again.",
        table(&["table", "rows", "checksum"], &[1, 2], &rows),
        thousands(movements)
    )
}

fn failure(error: CopyError) -> Failure {
    match error {
        CopyError::Store(error) => error.into(),
        in_use @ CopyError::SourceInUse { .. } => {
            let hint = "stop the servers; the lease of one that has ended runs out within two minutes";
            Failure::bad_input("COPY_SOURCE_IN_USE", in_use.to_string(), hint)
        }
        used @ CopyError::TargetNotEmpty { .. } => {
            let hint = "name an empty database with --to; nothing was changed";
            Failure::bad_input("COPY_TARGET_NOT_EMPTY", used.to_string(), hint)
        }
        other @ CopyError::Differs { .. } => differs(vec![other.to_string()]),
    }
}

fn differs(messages: Vec<String>) -> Failure {
    let hint = "do not use the target; the source is as it was".to_owned();
    Failure { code: "COPY_DIFFERS".into(), messages, hint, exit: Exit::Found }
}

fn bar(json: bool) -> ProgressBar {
    let bar = if json { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    match ProgressStyle::with_template("{spinner} {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
