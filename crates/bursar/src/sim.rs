//! `bursar sim`: whole parts of Bursar under a seeded scheduler that crashes them, held against a simple model.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use spot::sim::Simulation;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{say, table, thousands};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// The spot engine on a disk that lies: random operations, crashes at any moment, compared after every recovery
    Spot(SpotArguments),
}

#[derive(Debug, clap::Args)]
pub struct SpotArguments {
    /// The same seed gives the same run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many requests to make
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
}

pub fn run(command: &Command, json: bool) -> Outcome {
    match command {
        Command::Spot(arguments) => spot(arguments, json),
    }
}

fn spot(arguments: &SpotArguments, json: bool) -> Outcome {
    let bar = if json { ProgressBar::hidden() } else { ProgressBar::new(arguments.ops) };
    let style = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} requests, {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let simulation = Simulation::new(arguments.seed)?;
    let result = simulation.run(arguments.ops, &mut |report| {
        bar.set_position(report.requests);
        bar.set_message(format!("{} recoveries", report.recoveries));
    });
    bar.finish_and_clear();
    let report = result.map_err(|difference| Failure {
        code: "SIMULATION_FAILED",
        messages: vec![format!("seed {}: {difference}", arguments.seed)],
        hint: format!("it replays exactly: bursar sim spot --seed {} --ops {}", arguments.seed, arguments.ops),
        exit: Exit::Found,
    })?;
    let fields = [
        ("requests", report.requests),
        ("applied", report.applied),
        ("refused", report.refused),
        ("replays", report.replays),
        ("undecided", report.undecided),
        ("batches", report.batches),
        ("failed_batches", report.failed_batches),
        ("recoveries", report.recoveries),
        ("interrupted_recoveries", report.interrupted_recoveries),
        ("torn_tails", report.torn_tails),
        ("unacknowledged_kept", report.unacknowledged_kept),
        ("snapshots", report.snapshots),
        ("clean_restarts", report.clean_restarts),
    ];
    if json {
        let mut body = json!({ "sim": "spot", "seed": arguments.seed, "agreed": true });
        fields.iter().for_each(|(name, value)| body[*name] = (*value).into());
        say(body);
    } else {
        let rows: Vec<Vec<String>> =
            fields.iter().map(|(name, value)| vec![(*name).to_owned(), thousands(*value)]).collect();
        say(table(&["what happened", "times"], &[1], &rows));
        say(format!("seed {}: the engine agreed with the model after every batch and every recovery", arguments.seed));
    }
    Ok(())
}
