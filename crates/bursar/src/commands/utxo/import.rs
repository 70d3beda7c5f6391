//! `bursar utxo import`: another wallet's whole history, and the proof that nothing is missing.

use std::path::PathBuf;

use custody::bitcoin::import::{Export, ImportError, Progress, Stage, import, read_bdk, read_core};
use domain::Clock;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use store::Db;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{plain, thousands, warn};

use super::super::Context;
use super::{input, shown};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What PATH is from
    #[arg(long)]
    from: Source,
    /// The wallet to make, or to go on with
    #[arg(long, value_name = "NAME", value_parser = input::name)]
    wallet: String,
    /// Bitcoin Core: the folder that docs/import.md has you make. bdk_wallet: its SQLite file
    path: PathBuf,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Source {
    /// What Bitcoin Core's commands print, saved as docs/import.md says
    Core,
    /// The SQLite file of bdk_wallet; it is only read
    Bdk,
}

fn failed(error: ImportError) -> Failure {
    let (code, hint) = (error.code(), error.hint());
    match error {
        ImportError::Store(error) => error.into(),
        ImportError::BadFile { .. } => Failure::bad_input(code, error.to_string(), hint),
        ImportError::Mismatch(_) => Failure { exit: Exit::Found, ..Failure::bad_input(code, error.to_string(), hint) },
    }
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    let bar = if context.json { ProgressBar::hidden() } else { ProgressBar::new(0) };
    if let Ok(style) = ProgressStyle::with_template("{msg:14} {bar:30} {human_pos}/{human_len}  {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message("reading");
    let export = match arguments.from {
        Source::Core => {
            let path = arguments.path.clone();
            let read = tokio::task::spawn_blocking(move || read_core(&path)).await;
            read.map_err(|error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar: please report it"))?
        }
        Source::Bdk => read_bdk(&arguments.path).await,
    }
    .map_err(failed)?;
    let mut show = |progress: Progress| {
        bar.set_message(match progress.stage {
            Stage::Addresses => "addresses",
            Stage::Transactions => "transactions",
            Stage::Check => "comparing",
        });
        bar.set_length(u64::try_from(progress.of).unwrap_or(0));
        bar.set_position(u64::try_from(progress.done).unwrap_or(0));
    };
    let done = import(db, &arguments.wallet, &export, SystemClock.now(), &mut show).await;
    bar.finish_and_clear();
    let report = done.map_err(failed)?;
    if !context.json {
        tell_notes(&export);
    }
    let left_out: Vec<Value> =
        export.left_out.iter().map(|(hash, why)| json!({ "hash": hash.to_string(), "reason": why })).collect();
    let balance = report.balance;
    let body = json!({
        "wallet": arguments.wallet, "addresses": report.addresses, "new_addresses": report.new_addresses,
        "transactions": report.transactions, "changes": report.changes, "notes": export.notes, "left_out": left_out,
        "confirmed": shown::btc(balance.confirmed), "unconfirmed": shown::btc(balance.unconfirmed),
        "immature": shown::btc(balance.immature), "outputs": balance.outputs,
    });
    context.print(&body, || {
        let count = |number: usize| thousands(u64::try_from(number).unwrap_or(u64::MAX));
        format!(
            "imported {}: {} addresses, {} transactions ({} new or changed), {} left out\n\
             {} BTC confirmed and {} unconfirmed in {} outputs: as the source says, output by output\n\
             next, before anything of it is spent: bursar utxo follow --node URL --restore {}",
            arguments.wallet,
            count(report.addresses),
            count(report.transactions),
            count(report.changes),
            count(report.left_out),
            shown::btc(balance.confirmed),
            shown::btc(balance.unconfirmed),
            balance.outputs,
            arguments.wallet,
        )
    });
    Ok(())
}

/// What the owner should know.
fn tell_notes(export: &Export) {
    for note in &export.notes {
        warn(format!("note: {}", plain(note)));
    }
    for (hash, why) in &export.left_out {
        warn(format!("left out: {hash}, {why}"));
    }
}
