//! `bursar audit`: proves the laws over live data; names the first offending row; exit 1 when there is one.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use store::Db;
use store::audit::{Progress, Report};

use super::Context;
use crate::clock::Stopwatch;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{table, thousands};

pub async fn run(context: &Context) -> Outcome {
    let db = context.open().await?;
    let watch = Stopwatch::start();
    let report = with_progress(&db, context.json).await?;
    db.close().await;
    let mut body = json(&report);
    body["elapsed_ms"] = json!(u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX));
    body["peak_memory_kb"] = json!(peak_memory_kb());
    context.print(&body, || {
        let seconds = watch.elapsed().as_secs_f64();
        format!("{}\n{} movements in {seconds:.1} s", text(&report), thousands(report.movements))
    });
    verdict(&report)
}

/// Runs the audit behind a progress bar on standard error, where that is a terminal.
pub async fn with_progress(db: &Db, quiet: bool) -> Result<Report, Failure> {
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

pub fn text(report: &Report) -> String {
    let rows: Vec<Vec<String>> = report
        .findings
        .iter()
        .map(|finding| match &finding.violation {
            None => vec![finding.check.to_owned(), "ok".to_owned()],
            Some(violation) => {
                vec![finding.check.to_owned(), format!("BROKEN at {}: {}", violation.row, violation.problem)]
            }
        })
        .collect();
    let verdict = if report.clean() { "audit: clean" } else { "audit: BROKEN" };
    format!("{}\n{verdict}", table(&["check", "result"], &[], &rows))
}

pub fn json(report: &Report) -> Value {
    let checks: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| match &finding.violation {
            None => json!({ "check": finding.check, "ok": true }),
            Some(violation) => json!({
                "check": finding.check, "ok": false, "row": violation.row, "problem": violation.problem,
            }),
        })
        .collect();
    json!({ "clean": report.clean(), "movements": report.movements, "checks": checks })
}

/// An error, with exit code 1, that names the first offending row.
pub fn verdict(report: &Report) -> Outcome {
    match report.findings.iter().find_map(|finding| finding.violation.as_ref()) {
        None => Ok(()),
        Some(violation) => Err(Failure {
            code: "BOOKS_BROKEN",
            messages: vec![format!("{}: {}", violation.row, violation.problem)],
            hint: "stop the writers, keep the database as it is, and compare the row with a backup".to_owned(),
            exit: Exit::Found,
        }),
    }
}

/// The most memory this process has had, as Linux counts it; 0 elsewhere.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
