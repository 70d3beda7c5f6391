//! This program, run to its end as an operator runs it: `apply`, `balances`, `audit`.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use terminal::audit::AuditReport;
use terminal::failure::{CommandResult, Failure};
use tokio::io::AsyncWriteExt;

use super::process::itself;
use super::trouble;

const TREASURY: &str = include_str!("../../../../examples/treasury.toml");

fn failed(error: std::io::Error) -> Failure {
    trouble("this program could not be run again", error)
}

/// The example treasury, for a scratch database. Neither a configuration of the caller nor a file is needed.
pub async fn apply_treasury(database_url: &str, author: &str, reason: &str) -> CommandResult {
    let mut command = itself()?;
    command.args(["--json", "--config", "/dev/null", "apply", "/dev/stdin", "--actor", author, "--reason", reason]);
    command.env("BURSAR_DATABASE_URL", database_url);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A child that ends before it has read everything says why itself.
        stdin.write_all(TREASURY.as_bytes()).await.ok();
    }
    let output = child.wait_with_output().await.map_err(failed)?;
    if output.status.success() { Ok(()) } else { Err(failure_of(&output)) }
}

/// What the books come to, as the table that people are shown.
pub async fn balances_text(config: &Path) -> Result<String, Failure> {
    let output = run(config, &["balances"]).await?;
    if !output.status.success() {
        return Err(failure_of(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// What the books come to, by asset.
pub async fn balances(config: &Path) -> Result<Value, Failure> {
    let output = run(config, &["--json", "balances"]).await?;
    if !output.status.success() {
        return Err(failure_of(&output));
    }
    let mut body: Value = serde_json::from_slice(&output.stdout).map_err(|error| failed(error.into()))?;
    Ok(body["balances"].take())
}

/// Database and spot engine, held against each other. A report of broken books is a report, not a failure.
pub async fn audit(config: &Path) -> Result<AuditReport, Failure> {
    let output = run(config, &["--json", "audit"]).await?;
    serde_json::from_slice(&output.stdout).map_err(|_| failure_of(&output))
}

async fn run(config: &Path, arguments: &[&str]) -> Result<Output, Failure> {
    let mut command = itself()?;
    command.arg("--config").arg(config).args(arguments).stdin(Stdio::null());
    tokio::process::Command::from(command).kill_on_drop(true).output().await.map_err(failed)
}

/// The child's own failure, with its code, hint and exit. Its last line on standard error tells it.
fn failure_of(output: &Output) -> Failure {
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or_default();
    Failure::reported(last, output.status.code()).unwrap_or_else(|| failed(std::io::Error::other(last.to_owned())))
}
