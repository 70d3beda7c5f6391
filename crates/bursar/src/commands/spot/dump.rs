//! `bursar spot dump`: the operations of the log, one JSON line each.

use std::path::PathBuf;

use terminal::failure::CommandResult;
use terminal::output::say;

use super::{for_reading, lines};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder of the log
    folder: PathBuf,
    /// Begin with this batch; older ones are read but not printed
    #[arg(long, default_value_t = 0, value_name = "BATCH")]
    from: u64,
}

pub fn run(arguments: &Arguments) -> CommandResult {
    let disk = for_reading(&arguments.folder)?;
    spot::tools::verify(&disk, &mut |_| {}, &mut |record, operation, outcome| {
        if record.header.sequence >= arguments.from {
            let mut line = lines::describe(operation);
            line["batch"] = record.header.sequence.into();
            line["time"] = record.header.window.time.to_string().into();
            line["outcome"] = outcome.name().into();
            say(line);
        }
    })?;
    Ok(())
}
