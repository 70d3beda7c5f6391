//! This program, run to its end as an operator runs it, such as `apply`, `balances` and `audit`.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use terminal::audit::AuditReport;
use terminal::failure::{CommandResult, Exit, Failure};
use tokio::io::AsyncWriteExt;

use super::process::itself;
use super::trouble;
use crate::postgres::end_with_parent;

const TREASURY: &str = include_str!("../../../../examples/treasury.toml");

/// The slowest of these commands is an audit, which reads millions of movements in seconds.
const PATIENCE: Duration = Duration::from_secs(600);

fn failed(error: std::io::Error) -> Failure {
    trouble("this program could not be run again", error)
}

/// The example treasury, for a scratch database. Neither a configuration of the caller nor a file is needed.
pub async fn apply_treasury(database_url: &str, author: &str, reason: &str) -> CommandResult {
    apply(database_url, TREASURY, author, reason).await
}

/// Any treasury, for such a database.
pub async fn apply(database_url: &str, treasury: &str, author: &str, reason: &str) -> CommandResult {
    let mut command = itself()?;
    command.args(["--json", "--config", "/dev/null", "apply", "/dev/stdin", "--actor", author, "--reason", reason]);
    command.env("BURSAR_DATABASE_URL", database_url);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    end_with_parent(&mut command, Signal::KILL);
    let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A child that ends before it has read everything says why itself.
        stdin.write_all(treasury.as_bytes()).await.ok();
    }
    let output = in_time(child.wait_with_output()).await?;
    if output.status.success() { Ok(()) } else { Err(failure_of(&output)) }
}

/// What it prints for people.
pub async fn shown(config: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let output = run(config, arguments).await?;
    if !output.status.success() {
        // What failed is told for machines only where machines ask.
        return Err(told(config, arguments).await.err().unwrap_or_else(|| failure_of(&output)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// What it prints for machines.
pub async fn told(config: &Path, arguments: &[&str]) -> Result<Value, Failure> {
    let output = run(config, &[&["--json"], arguments].concat()).await?;
    if !output.status.success() {
        return Err(failure_of(&output));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // A command that tells its progress has a line for each step.
    let last = text.lines().next_back().unwrap_or("null");
    serde_json::from_str(last).map_err(|error| failed(error.into()))
}

/// What the books come to, by asset.
pub async fn balances(config: &Path) -> Result<Value, Failure> {
    Ok(told(config, &["balances"]).await?["balances"].take())
}

/// Database and spot engine, held against each other. A report of broken books is a report, not a failure; one that leaves
/// the engine out, or says something else than the exit code, is no report.
pub async fn audit(config: &Path) -> Result<AuditReport, Failure> {
    let output = run(config, &["--json", "audit"]).await?;
    let body: Value = serde_json::from_slice(&output.stdout).map_err(|_| failure_of(&output))?;
    let both_ends = body.get("spot_left_out") == Some(&Value::Null);
    let report: AuditReport = serde_json::from_value(body).map_err(|_| failure_of(&output))?;
    let exit = if report.clean { 0 } else { Exit::Found as i32 };
    if both_ends && output.status.code() == Some(exit) {
        return Ok(report);
    }
    Err(failed(std::io::Error::other(format!("its audit is not of both ends, or ended with {}", output.status))))
}

async fn run(config: &Path, arguments: &[&str]) -> Result<Output, Failure> {
    let mut command = itself()?;
    command.arg("--config").arg(config).args(arguments).stdin(Stdio::null());
    end_with_parent(&mut command, Signal::KILL);
    in_time(tokio::process::Command::from(command).kill_on_drop(true).output()).await
}

async fn in_time(output: impl Future<Output = std::io::Result<Output>>) -> Result<Output, Failure> {
    let late = || failed(std::io::Error::from(std::io::ErrorKind::TimedOut));
    tokio::time::timeout(PATIENCE, output).await.map_err(|_| late())?.map_err(failed)
}

/// The child's own failure, with its code, hint and exit. Its last line on standard error tells it.
fn failure_of(output: &Output) -> Failure {
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or_default();
    Failure::reported(last, output.status.code())
        .unwrap_or_else(|| failed(std::io::Error::other(format!("{}: {last}", output.status))))
}
