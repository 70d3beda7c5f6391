//! The command line: what may be typed, and which command answers.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{
    Context, account, apply, audit, balances, checkpoint, config, devnet, drill, drill_plain, drill_spot, journal,
    load, migrate, serve, spot, token, transfer, utxo, with_postgres,
};
use crate::config::Config;
use crate::failure::{Exit, Failure, Outcome};
use crate::{bench, chaos, demo, sim};

/// Moves every coin of a custodial exchange exactly once.
///
/// First steps:
///   bursar demo                            a treasury that runs by itself, nothing to install
///   bursar migrate                         make the database (bursar.toml or BURSAR_DATABASE_URL says where)
///   bursar apply examples/treasury.toml    assets, chains, limits
///   bursar account open --owner 7 --asset USDT
///   bursar audit                           prove that the books balance
///
/// Exit codes: 0 done, 1 the data is broken, 2 bad input, 3 something outside failed.
#[derive(Debug, Parser)]
#[command(name = "bursar", version, verbatim_doc_comment, propagate_version = true, max_term_width = 100)]
struct Cli {
    /// The configuration file [default: bursar.toml, if there is one]
    #[arg(long, global = true, env = "BURSAR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON for machines instead of tables for people
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a sample treasury: accounts, a stream of operations, balances, an audit
    Demo(demo::Arguments),
    /// Make the database's schema, or bring it up to date
    Migrate,
    /// Apply a treasury file: assets, chains, assets on chains, limits
    Apply(apply::Arguments),
    /// List accounts; open, freeze, disable or activate one
    Account(account::Arguments),
    /// List movements, newest first
    Journal(journal::Arguments),
    /// Show what the books come to, per asset
    Balances,
    /// Prove that the books balance; exit 1 and the first offending row if they do not
    Audit(audit::Arguments),
    /// Write down the system accounts' balances, so that reading them stays fast
    Checkpoint,
    /// Run the server: HTTP interface, transfer coordinator, scanner, and the spot engine if it is embedded
    Serve(serve::Arguments),
    /// Look at internal transfers; have a stuck one tried again, or resolve it where the legs' records prove it
    #[command(subcommand)]
    Transfer(transfer::Command),
    /// The Bitcoin wallet: balances, outputs, leases, labels, pruning, and a check of every row
    #[command(subcommand)]
    Utxo(utxo::Command),
    /// Print a token for a user, signed with auth.hs256_secret_file, to try the interface with
    Token(token::Arguments),
    /// Print the description of the HTTP interface (OpenAPI 3.1)
    Openapi,
    /// Three chains on this machine, to try things with: Bitcoin, EVM and TRON, with faults on request
    Devnet(devnet::Arguments),
    /// The spot engine: run it, ask it, look at its log
    #[command(subcommand)]
    Spot(spot::Command),
    /// Run a part of Bursar through crashes and faults from a seed, held against a simple model
    #[command(subcommand)]
    Sim(sim::Command),
    /// Put Bursar under load and kill its parts; afterwards hold the clients' own records against what is there
    #[command(subcommand)]
    Chaos(chaos::Command),
    /// Check the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measure speed, as a ratio to a yardstick of the same run
    #[command(subcommand)]
    Bench(bench::Command),
    /// Run a command beside a private PostgreSQL server in a temporary folder
    WithPostgres(with_postgres::Arguments),
    /// For benches: many clients that move money in and out of spot accounts over HTTP
    #[command(hide = true)]
    Load(load::Arguments),
    /// For tests: post batches until killed
    #[command(subcommand, hide = true)]
    Drill(DrillCommand),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Read the configuration as every command would, and show it
    Check,
}

#[derive(Debug, Subcommand)]
enum DrillCommand {
    Ledger(drill::Arguments),
    Spot(drill_spot::Arguments),
    /// For benches: the plain transfer over HTTP
    Plain(drill_plain::Arguments),
}

pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error),
    };
    let json = cli.json;
    // What goes on in the background has nobody to answer to but the operator.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::outside("INTERNAL", &error, "the machine has no threads left").report(json),
    };
    // On this thread: a private PostgreSQL server ends with the thread that started it.
    match runtime.block_on(dispatch(cli)) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}

/// Clap's own words, and the exit code of bad input. `--help` and `--version` are no errors.
fn report_usage(error: &clap::Error) -> ExitCode {
    let asked_for = !error.use_stderr();
    if !asked_for && std::env::args_os().any(|argument| argument == "--json") {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        return Failure::bad_input("BAD_USAGE", message, "bursar --help").report(true);
    }
    if error.print().is_err() {
        // Nobody is listening; the exit code still tells.
        return ExitCode::from(Exit::Outside as u8);
    }
    if asked_for { ExitCode::SUCCESS } else { ExitCode::from(Exit::BadInput as u8) }
}

async fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    let done = |outcome: Outcome| outcome.map(|()| ExitCode::SUCCESS);
    // These bring a database of their own.
    match &cli.command {
        Command::Demo(arguments) => return done(demo::run(arguments, cli.json).await),
        Command::Bench(command) => return done(bench::run(command, cli.json).await),
        Command::Devnet(arguments) => return done(devnet::run(arguments, cli.json).await),
        Command::Spot(command) => return done(spot::run(command, cli.json).await),
        Command::Sim(command) => return done(sim::run(command, cli.json)),
        Command::Openapi => {
            // It ends with a newline already.
            crate::output::say(server::api::openapi::text().trim_end());
            return Ok(ExitCode::SUCCESS);
        }
        Command::Chaos(command) => return done(chaos::run(command, cli.json).await),
        Command::Load(arguments) => return done(load::run(arguments, cli.json).await),
        Command::Drill(DrillCommand::Spot(arguments)) => return done(drill_spot::run(arguments).await),
        Command::Drill(DrillCommand::Plain(arguments)) => return done(drill_plain::run(arguments).await),
        Command::WithPostgres(arguments) => return with_postgres::run(arguments).await,
        _ => {}
    }
    let (config, file) = Config::load(cli.config.as_deref(), Config::environment())?;
    let context = Context { config, json: cli.json };
    done(match &cli.command {
        Command::Migrate => migrate::run(&context).await,
        Command::Apply(arguments) => apply::run(&context, arguments).await,
        Command::Account(arguments) => account::run(&context, arguments).await,
        Command::Journal(arguments) => journal::run(&context, arguments).await,
        Command::Balances => balances::run(&context).await,
        Command::Audit(arguments) => audit::run(&context, arguments).await,
        Command::Checkpoint => checkpoint::run(&context).await,
        Command::Serve(arguments) => serve::run(&context, arguments).await,
        Command::Transfer(command) => transfer::run(&context, command).await,
        Command::Utxo(command) => utxo::run(&context, command).await,
        Command::Token(arguments) => token::run(&context, arguments),
        Command::Config(ConfigCommand::Check) => config::check(&context, file.as_deref()),
        Command::Drill(DrillCommand::Ledger(arguments)) => drill::run(&context, arguments).await,
        Command::Demo(_)
        | Command::Bench(_)
        | Command::Devnet(_)
        | Command::Spot(_)
        | Command::Sim(_)
        | Command::Openapi
        | Command::Load(_)
        | Command::Chaos(_)
        | Command::Drill(DrillCommand::Spot(_) | DrillCommand::Plain(_))
        | Command::WithPostgres(_) => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
