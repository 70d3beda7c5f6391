//! `bursar drill …` (hidden): programs that a test kills, or that a bench measures.

pub mod ledger;
pub mod plain;
pub mod spot;

use store::Db;
use terminal::failure::{CommandResult, Failure};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Ledger(ledger::Arguments),
    Spot(spot::Arguments),
    /// For benches: the plain transfer over HTTP
    Plain(plain::Arguments),
}

/// `open` gives the configured database; only the ledger's drill asks for it.
pub async fn run(command: &Command, open: impl AsyncFnOnce() -> Result<Db, Failure>) -> CommandResult {
    match command {
        Command::Ledger(arguments) => ledger::run(open().await?, arguments).await,
        Command::Spot(arguments) => spot::run(arguments).await,
        Command::Plain(arguments) => plain::run(arguments).await,
    }
}
