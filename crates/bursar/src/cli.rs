//! The command line: what may be typed, and which command answers.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use terminal::failure::{Exit, Failure};

#[cfg(feature = "lab")]
use crate::commands::devnet;
use crate::commands::{
    Context, account, adjust, apply, approve, audit, balances, chain, checkpoint, config, copy, deposit, explain,
    grants, import, job, journal, lane, migrate, openapi, operator, policy, reconcile, rule, serve, signer, spot,
    token, transfer, treasury, utxo, wallet, withdrawal,
};
use crate::config::Config;
use crate::logs;

/// Moves every coin of a custodial exchange exactly once.
///
/// First steps:
#[cfg_attr(
    feature = "lab",
    doc = "   bursar demo                            a treasury that runs by itself, nothing to install"
)]
///   bursar migrate                         make the database (bursar.toml or BURSAR_DATABASE_URL says where)
///   bursar apply examples/treasury.toml    assets, chains, limits
///   bursar account open --user 7 --asset USDT
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
    /// The whole way of a coin, on three chains in memory: lies, kills, a reorganisation, people who sign; with customers' own records and the audit
    #[cfg(feature = "lab")]
    Demo(lab::demo::Arguments),
    /// Make the database's schema, or bring it up to date
    Migrate,
    /// Apply a treasury file: assets, chains, assets on chains, limits
    Apply(apply::Arguments),
    /// List accounts; open, freeze, disable or activate one
    Account(account::Arguments),
    /// Move money by hand, by two people: house capital in and out, a user's credit or debit
    #[command(subcommand)]
    Adjust(adjust::Command),
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
    /// Compare the database with its spot engine after a backup was put back, and mend what is provable
    #[command(subcommand)]
    Reconcile(reconcile::Command),
    /// The Bitcoin wallet: balances, outputs, leases, labels, pruning, and a check of every row
    #[command(subcommand)]
    Utxo(utxo::Command),
    /// One role in a process of its own: the workers that read chains and credit deposits, that send, and that confirm
    #[command(subcommand)]
    Run(crate::commands::run::Command),
    /// Deposit wallets of users, and the house's own: give, list, show, and derive every address again
    #[command(subcommand)]
    Wallet(wallet::Command),
    /// What was paid to our addresses, and what became of it; two people say whose an unattributed deposit is
    #[command(subcommand)]
    Deposit(deposit::Command),
    /// What customers want paid out: where each stands, why, and which jobs pay it
    #[command(subcommand)]
    Withdrawal(withdrawal::Command),
    /// What holds for withdrawals: limits, fees and who has to agree; what a request would come to, and whether the signer signs it
    #[command(subcommand)]
    Policy(policy::Command),
    /// Payments that leave: make one, see why it waits, offer more for it, cancel it
    #[command(subcommand)]
    Job(job::Command),
    /// Agree to a withdrawal: shows what it pays, in words made here, asks, signs exactly that, and hands the signature to the server
    ///
    ///   bursar approve wr-… --as ann-laptop --key ann.pem --server http://127.0.0.1:7412 --token ann.token
    ///
    /// The digest that is signed is made here from what is shown; one that the server merely sent is never signed. The token is an operator's
    /// (bursar token --operator NAME); nobody agrees to their own withdrawal, and a person counts once.
    #[command(verbatim_doc_comment)]
    Approve(approve::Arguments),
    /// Who looks after other people's money, with which keys, and what each has done
    #[command(subcommand)]
    Operator(operator::Command),
    /// The wallets that send: what waits in each, who has it, and why one is stopped
    #[command(subcommand)]
    Lane(lane::Command),
    /// Rules that bring gas to users' addresses and coins home: list them, see what they would do and why
    #[command(subcommand)]
    Rule(rule::Command),
    /// What the house's own movements cost, what coins are worth, and hot wallets beside their bands
    #[command(subcommand)]
    Treasury(treasury::Command),
    /// The chains and their nodes: what each node says, and what can be credited by them
    #[command(subcommand)]
    Chain(chain::Command),
    /// Print a token for a user or an operator, signed with the configured secret, to try the interface with
    Token(token::Arguments),
    /// Print the description of the HTTP interface (OpenAPI 3.1)
    Openapi,
    /// Three chains on this machine, to try things with: Bitcoin, EVM and TRON, with faults on request
    #[cfg(feature = "lab")]
    Devnet(devnet::Arguments),
    /// The spot engine: run it, ask it, look at its log
    #[command(subcommand)]
    Spot(spot::Command),
    /// The signer: wallet groups and their keys, its policy, its log
    #[command(subcommand)]
    Signer(signer::Command),
    /// Run a part of Bursar through crashes and faults from a seed, held against a simple model
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Sim(lab::sim::command::Command),
    /// Put Bursar under load and kill its parts; afterwards hold the clients' own records against what is there
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Chaos(lab::chaos::Command),
    /// Check the configuration, or write a file to begin with
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Copy a whole database to an empty one, from SQLite to PostgreSQL or the other way; proven by the audit on both sides
    Copy(copy::Arguments),
    /// PostgreSQL's roles, one for each role of Bursar: print the SQL that makes them, apply it, or check what there is
    Grants(grants::Arguments),
    /// Take over what another program has begun: the withdrawals of an exchange's old tables
    #[command(subcommand)]
    Import(import::Command),
    /// Print the page of an error code: what happened, why, what to do, and what was changed
    Explain(explain::Arguments),
    /// Measure speed, as a ratio to a yardstick of the same run
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Bench(lab::bench::Command),
    /// Run a command beside a private PostgreSQL server in a temporary folder
    #[cfg(feature = "lab")]
    WithPostgres(lab::with_postgres::Arguments),
    /// For benches: many clients that move money in and out of spot accounts over HTTP
    #[cfg(feature = "lab")]
    #[command(hide = true)]
    Load(lab::load::command::Arguments),
    /// For tests: post batches until killed
    #[cfg(feature = "lab")]
    #[command(subcommand, hide = true)]
    Drill(lab::drill::Command),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Read the configuration as every command would, show it, and look at every file that it names
    Check,
    /// Write a configuration file to begin with: every setting with its default and what it is for
    Init,
}

pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error),
    };
    let json = cli.json;
    // A command that needs the configuration reads it again, and says what is wrong with it. The others must not care.
    let config = Config::load(cli.config.as_deref(), Config::environment());
    let log = config.map(|(config, _)| config.log).unwrap_or_default();
    if let Err(failure) = logs::begin(&log, json) {
        return failure.report(json);
    }
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
        // The message cannot be shown; the exit code still tells.
        return ExitCode::from(Exit::Outside as u8);
    }
    if asked_for { ExitCode::SUCCESS } else { ExitCode::from(Exit::BadInput as u8) }
}

/// Runs the command. Those that take the context read the configuration first; the others bring all that they need.
#[deny(clippy::wildcard_enum_match_arm, reason = "a command that is listed and not run must not compile")]
async fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    let json = cli.json;
    let context = || -> Result<Context, Failure> {
        let (config, file) = Config::load(cli.config.as_deref(), Config::environment())?;
        Ok(Context { config, file, json })
    };
    let done = match &cli.command {
        #[cfg(feature = "lab")]
        Command::Demo(arguments) => lab::demo::run(arguments, json).await,
        Command::Migrate => migrate::run(&context()?).await,
        Command::Apply(arguments) => apply::run(&context()?, arguments).await,
        Command::Account(arguments) => account::run(&context()?, arguments).await,
        Command::Adjust(command) => adjust::run(&context()?, command).await,
        Command::Journal(arguments) => journal::run(&context()?, arguments).await,
        Command::Balances => balances::run(&context()?).await,
        Command::Audit(arguments) => audit::run(&context()?, arguments).await,
        Command::Checkpoint => checkpoint::run(&context()?).await,
        Command::Serve(arguments) => serve::run(&context()?, arguments).await,
        Command::Transfer(command) => transfer::run(&context()?, command).await,
        Command::Reconcile(command) => reconcile::run(&context()?, command).await,
        Command::Utxo(command) => utxo::run(&context()?, command).await,
        Command::Run(command) => crate::commands::run::run(&context()?, command).await,
        Command::Wallet(command) => wallet::run(&context()?, command).await,
        Command::Deposit(command) => deposit::run(&context()?, command).await,
        Command::Withdrawal(command) => withdrawal::run(&context()?, command).await,
        Command::Policy(command) => policy::run(&context()?, command).await,
        Command::Job(command) => job::run(&context()?, command).await,
        Command::Approve(arguments) => approve::run(&context()?, arguments).await,
        Command::Operator(command) => operator::run(&context()?, command).await,
        Command::Lane(command) => lane::run(&context()?, command).await,
        Command::Rule(command) => rule::run(&context()?, command).await,
        Command::Treasury(command) => treasury::run(&context()?, command).await,
        Command::Chain(command) => chain::run(&context()?, command).await,
        Command::Token(arguments) => token::run(&context()?, arguments),
        Command::Openapi => openapi::run(),
        #[cfg(feature = "lab")]
        Command::Devnet(arguments) => devnet::run(arguments, json).await,
        Command::Spot(command) => spot::run(command, json).await,
        Command::Signer(command) => signer::run(command, json).await,
        #[cfg(feature = "lab")]
        Command::Sim(command) => lab::sim::command::run(command, json),
        #[cfg(feature = "lab")]
        Command::Chaos(command) => lab::chaos::run(command, json).await,
        Command::Config(ConfigCommand::Check) => config::check(&context()?),
        Command::Config(ConfigCommand::Init) => config::init(cli.config.as_deref(), json),
        Command::Copy(arguments) => copy::run(arguments, json).await,
        Command::Grants(arguments) => grants::run(&context()?, arguments).await,
        Command::Import(command) => import::run(&context()?, command).await,
        Command::Explain(arguments) => explain::run(arguments, json),
        #[cfg(feature = "lab")]
        Command::Bench(command) => lab::bench::run(command, json).await,
        // The exit code of the command that it runs is the exit code of this one.
        #[cfg(feature = "lab")]
        Command::WithPostgres(arguments) => return lab::with_postgres::run(arguments).await,
        #[cfg(feature = "lab")]
        Command::Load(arguments) => lab::load::command::run(arguments, json).await,
        #[cfg(feature = "lab")]
        Command::Drill(command) => lab::drill::run(command, async || context()?.open().await).await,
    };
    done.map(|()| ExitCode::SUCCESS)
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
