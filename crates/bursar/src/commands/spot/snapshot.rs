//! `bursar spot snapshot`: makes the next start short.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use spot::net::Role;
use spot::{Core, Disk, Settings};
use terminal::failure::{CommandResult, Failure};
use terminal::output::say;

use super::{Connection, bar, send, serve, show};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder of an engine that is not running; without it, the running engine at --connect is asked
    folder: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

/// As long as the largest engine may take.
const TIME: Duration = Duration::from_secs(600);

pub async fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let batch = match &arguments.folder {
        Some(folder) => offline(folder, json)?,
        None => {
            let client = send::connect(&arguments.connection, Role::Operator).await?;
            let taken = tokio::time::timeout(TIME, client.snapshot()).await.map_err(|_| send::unanswered())?;
            Some(taken.map_err(send::failure)?).filter(|batch| *batch > 0)
        }
    };
    match batch {
        _ if json => say(json!({ "snapshot": batch })),
        Some(batch) => say(format!("snapshot of batch {batch} taken")),
        None => say("nothing happened since the last snapshot"),
    }
    Ok(())
}

fn offline(folder: &std::path::Path, json: bool) -> Result<Option<u64>, Failure> {
    let disk = Arc::new(Disk::lock(folder)?);
    let bar = bar(json);
    bar.set_message("reading the log");
    let opened = Core::open(Arc::clone(&disk), &Settings::default(), &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    let (mut core, started) = opened?;
    serve::note(&started);
    let sealed = core.seal()?;
    drop(core);
    Ok(spot::snapshot::take(&*disk, sealed)?.map(|header| header.sequence))
}
