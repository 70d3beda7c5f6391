//! Speed. A figure means little by itself on a shared disk: each bench measures a yardstick in the same run, in turn
//! with its subject, and prints the ratio and the spread.
#![allow(clippy::float_arithmetic, reason = "rates and ratios, never money")]

pub mod deposits;
pub mod disk;
pub mod ledger;
pub mod outbound;
pub mod scan;
pub mod sign_build;
pub mod signer;
pub mod site;
pub mod spot;
pub mod transfer;
pub mod treasury;
pub mod utxo;
pub mod withdrawals;

use serde_json::{Value, json};
use terminal::failure::CommandResult;
use terminal::output::{say, table, thousands};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Holds and settles per second, in batches of 1, 64 and 1024, beside a bare UPDATE
    Ledger(ledger::Arguments),
    /// The spot engine: durable operations per second and their latency, beside the bare disk and the bare state
    Spot(spot::Arguments),
    /// Internal transfers over HTTP: per second and their latency, beside the same done plainly and the bare commit
    Transfer(transfer::Arguments),
    /// Withdrawals asked for over HTTP, judged and held: per second and their latency, beside internal transfers
    Withdrawals(withdrawals::Arguments),
    /// Blocks and matches per second with ten million watched addresses, beside fetching the blocks alone
    Scan(scan::Arguments),
    /// Deposits from the node to the credit, with ten million watched addresses, beside scanning alone and the ledger
    Deposits(deposits::Arguments),
    /// Payments that leave, from the job to its end, beside the same number of transactions that a node is merely told of
    Outbound(outbound::Arguments),
    /// Rules over a million wallets, all of them and what has changed; and sweeps per second beside merely telling the node
    Treasury(treasury::Arguments),
    /// Transactions built, signed and read back per second, beside the bare signature
    SignBuild(sign_build::Arguments),
    /// The signing service over its socket, with policy, log and sync, beside a bare signature and a bare sync
    Signer(signer::Arguments),
    /// The Bitcoin wallet with up to a million unspent outputs, beside bdk_wallet over the same
    Utxo(utxo::Arguments),
    /// One process of the two-process figure
    #[command(hide = true)]
    LedgerWriter(ledger::WriterArguments),
    /// The process whose start on a long log is measured
    #[command(hide = true)]
    SignerStart(signer::start::StartArguments),
}

pub async fn run(command: &Command, json: bool) -> CommandResult {
    match command {
        Command::Ledger(arguments) => ledger::run(arguments, json).await,
        Command::Spot(arguments) => spot::run(arguments, json).await,
        Command::Transfer(arguments) => transfer::run(arguments, json).await,
        Command::Withdrawals(arguments) => withdrawals::run(arguments, json).await,
        Command::Scan(arguments) => scan::run(arguments, json).await,
        Command::Deposits(arguments) => deposits::run(arguments, json).await,
        Command::Outbound(arguments) => outbound::run(arguments, json).await,
        Command::Treasury(arguments) => treasury::run(arguments, json).await,
        Command::SignBuild(arguments) => sign_build::run(arguments, json),
        Command::Signer(arguments) => signer::run(arguments, json).await,
        Command::Utxo(arguments) => utxo::run(arguments, json).await,
        Command::LedgerWriter(arguments) => ledger::run_writer(arguments).await,
        Command::SignerStart(arguments) => signer::start::run_start(arguments),
    }
}

/// One figure, measured several times in turn with others.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut values = self.0.clone();
        values.sort_by(f64::total_cmp);
        values
    }

    pub fn median(&self) -> f64 {
        let values = self.sorted();
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    }

    pub fn lowest(&self) -> f64 {
        self.sorted().first().copied().unwrap_or(0.0)
    }

    pub fn highest(&self) -> f64 {
        self.sorted().last().copied().unwrap_or(0.0)
    }

    /// Each sample divided by the other's of the same round: a disk that drifts drifts for both.
    pub fn ratio_to(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(mine, theirs)| mine / theirs.max(f64::MIN_POSITIVE)).collect())
    }
}

/// Figures by their names and with so many decimals: in the body for machines, with their ends as `spread`; or as a table for people.
pub fn print_figures(mut body: Value, figures: &[(&str, usize)], samples: &[Samples], as_json: bool) {
    if as_json {
        let mut spread = serde_json::Map::new();
        for ((name, decimals), samples) in figures.iter().zip(samples) {
            let rounded = |value: f64| {
                let scale = 10_f64.powi(i32::try_from(*decimals).unwrap_or(0));
                (value * scale).round() / scale
            };
            body[*name] = json!(rounded(samples.median()));
            let ends = [samples.lowest(), samples.highest()].map(rounded);
            spread.insert((*name).to_owned(), json!(ends));
        }
        body["spread"] = Value::Object(spread);
        say(body);
        return;
    }
    let rows: Vec<Vec<String>> = figures
        .iter()
        .zip(samples)
        .map(|((name, decimals), samples)| {
            let show = |value: f64| match decimals {
                0 => thousands(value.max(0.0).round() as u64),
                _ => format!("{value:.decimals$}"),
            };
            let values = [samples.median(), samples.lowest(), samples.highest()];
            std::iter::once((*name).to_owned()).chain(values.map(show)).collect()
        })
        .collect();
    say(table(&["figure", "median", "lowest", "highest"], &[1, 2, 3], &rows));
}
