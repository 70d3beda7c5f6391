//! `bursar spot …`: run the spot engine, ask it, and look at its log.

pub mod credentials;
pub mod dump;
pub mod lines;
pub mod send;
pub mod serve;
pub mod snapshot;
pub mod stat;
pub mod tls;
pub mod verify;

use std::net::SocketAddr;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use spot::snapshot::Progress;
use spot::{Disk, SpotError};
use terminal::failure::{CommandResult, Failure};

use credentials::Shown;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run the engine on a folder and serve it over TCP
    Serve(serve::Arguments),
    /// Send operations to a running engine: JSON lines from standard input, answers as JSON lines
    ///
    /// A line names its kind and its fields; amounts are strings of the asset's smallest unit; without an id it is
    /// given a new one:
    ///   {"kind":"deposit","user":7,"asset":1,"amount":"500"}
    ///   {"kind":"withdraw","id":"1234567890123456789","user":7,"asset":1,"amount":"200"}
    ///   {"kind":"balance","user":7,"asset":1}
    ///
    /// Kinds: deposit, withdraw, rollback, reserve, release, settle, set-status, query, balance, total.
    /// Nothing is sent before the last line is read. Each answer repeats its line, with "outcome" (applied or a code),
    /// "replay" if it was decided before, or "undecided": then nothing was done, and nothing may be concluded. What was
    /// not answered is printed too, with "unanswered", so that it can be sent again under the same id.
    #[command(verbatim_doc_comment)]
    Send(send::Arguments),
    /// Show what is in a folder: segments, snapshots, totals; an engine may be running on it
    Stat(stat::Arguments),
    /// Read everything, run every operation again, and report the first damage; an engine may be running on it
    Verify(verify::Arguments),
    /// Print the operations of the log as JSON lines, with what became of each
    ///
    /// Of a folder that no engine runs on: under a running one the end of the log may look damaged.
    Dump(dump::Arguments),
    /// Take a snapshot: of a folder that no engine runs on, or through a running engine
    Snapshot(snapshot::Arguments),
}

pub async fn run(command: &Command, json: bool) -> CommandResult {
    match command {
        Command::Serve(arguments) => serve::run(arguments, json).await,
        Command::Send(arguments) => send::run(arguments).await,
        Command::Stat(arguments) => stat::run(arguments, json),
        Command::Verify(arguments) => verify::run(arguments, json),
        Command::Dump(arguments) => dump::run(arguments),
        Command::Snapshot(arguments) => snapshot::run(arguments, json).await,
    }
}

/// Where a running engine is, and what it wants to see.
#[derive(Debug, clap::Args)]
pub struct Connection {
    /// The address of a running engine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7411")]
    connect: SocketAddr,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    known: tls::Known,
}

/// The folder, for looking only.
pub fn for_reading(folder: &Path) -> Result<Disk, Failure> {
    if folder.is_dir() {
        Ok(Disk::for_reading(folder))
    } else {
        Err(SpotError::Missing { folder: folder.display().to_string() }.into())
    }
}

/// Reads a folder that an engine may be writing to. What looks damaged once may have been half-written, or removed,
/// while it was read; what looks the same twice in a row is damaged.
pub fn steadily<T>(mut read: impl FnMut() -> Result<T, SpotError>) -> Result<T, SpotError> {
    let mut before = String::new();
    loop {
        match read() {
            Err(error @ (SpotError::Damaged { .. } | SpotError::Incomplete { .. } | SpotError::Storage { .. }))
                if error.to_string() != before =>
            {
                before = error.to_string()
            }
            other => return other,
        }
    }
}

/// Segments read so far, for people who wait.
pub fn bar(json: bool) -> ProgressBar {
    if json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} segments, {prefix} operations");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

pub fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.segments);
    bar.set_prefix(terminal::output::thousands(progress.operations));
    bar.set_position(progress.segments_done);
}
