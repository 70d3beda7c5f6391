//! `bursar spot verify`: every byte read, every operation run again.

use std::path::PathBuf;

use serde_json::json;
use terminal::clock::Stopwatch;
use terminal::failure::CommandResult;
use terminal::output::{say, thousands};

use super::{bar, for_reading, show, steadily};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder of the log
    folder: PathBuf,
}

pub fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let disk = for_reading(&arguments.folder)?;
    let bar = bar(json);
    bar.set_message("verifying");
    let watch = Stopwatch::start();
    let mut told = |progress| show(&bar, progress);
    let verified = steadily(|| spot::tools::verify(&disk, &mut told, &mut |_, _, _| {}));
    bar.finish_and_clear();
    let verified = verified?;
    let snapshots: Vec<u64> = verified.snapshots.iter().map(|header| header.sequence).collect();
    if json {
        say(json!({
            "sound": true,
            "segments": verified.segments,
            "batches": verified.batches,
            "operations": verified.operations,
            "first_batch": verified.first_sequence,
            "last_batch": verified.sequence,
            "snapshots": snapshots,
            "torn": verified.end.torn,
            "digest": format!("{:016x}", verified.state.digest()),
        }));
        return Ok(());
    }
    say(format!(
        "sound: {} segments, {} batches, {} operations run again in {:.1?}; {} snapshots hold what the log says",
        verified.segments,
        thousands(verified.batches),
        thousands(verified.operations),
        watch.elapsed(),
        snapshots.len()
    ));
    if let Some(torn) = &verified.end.torn {
        say(format!("the last record is being written, or was torn and never acknowledged: {torn}"));
    }
    Ok(())
}
