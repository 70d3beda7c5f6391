//! Somebody else's program walks every block of every chain and says what it found. None of our code is in it, so it cannot be wrong in the
//! way that we are.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use terminal::failure::Failure;

use super::ground::Ground;
use super::judge::{Verdict, record};
use super::{AskedFor, wrong};
use crate::postgres::end_with_parent;
use crate::rig::write_private;

const PATIENCE: Duration = Duration::from_secs(300);

/// Gives it a file with the chains, what was asked for and what the books say; takes what it counts.
pub(super) async fn ask(
    command: &str,
    ground: &Ground,
    asked: &AskedFor,
    verdict: &mut Verdict,
) -> Result<Value, Failure> {
    let file = ground.folder.path.join("record.json");
    let record = record(&ground.db, &ground.nets, asked).await?;
    write_private(&file, &record.to_string())?;
    let mut words = command.split_whitespace();
    let program = words.next().ok_or_else(|| wrong("--judge names no program"))?;
    let mut command = std::process::Command::new(program);
    command.args(words).arg(&file).stdin(Stdio::null()).stderr(Stdio::inherit());
    end_with_parent(&mut command, Signal::KILL);
    let output = tokio::process::Command::from(command).kill_on_drop(true).stdout(Stdio::piped()).spawn();
    let output = output.map_err(wrong)?.wait_with_output();
    let output = tokio::time::timeout(PATIENCE, output).await.map_err(wrong)?.map_err(wrong)?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| wrong(format!("the reader ended with {}: {error}", output.status)))?;
    for (name, found) in said["wrong"].as_object().into_iter().flatten() {
        for words in found.as_array().into_iter().flatten() {
            verdict.add("reader_disagrees", format!("{name}: {words}"));
        }
    }
    // Its exit code and its words must say the same.
    if output.status.success() != (verdict.count("reader_disagrees") == 0) {
        verdict.add("reader_disagrees", format!("it ended with {}, and says {said}", output.status));
    }
    Ok(said)
}
