//! `bursar bench scan`: how fast blocks are read for what they pay to ten million watched addresses, beside how fast the
//! same node hands out the same blocks to a reader that does nothing with them.

mod fill;
mod node;

pub use fill::{Filled, Plan, SOME_TIME, address, ask, deploy_token, evm_blocks_to, sign};
pub use node::{BITCOIN_LOGIN, RealNode, anvil, bitcoind, find, pool, trouble};
use terminal::clock::Stopwatch;
use terminal::duration::parse_duration;
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table, thousands};

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::evm::{EvmChain, EvmSettings};
use chain::tron::{Network, TronChain, TronSettings};
use chain::watch::{Watched, false_positives, fill_with_strangers};
use chain::{Chain, ChainError};
use devnet::{bitcoin as bitcoin_devnet, evm as evm_devnet, tron as tron_devnet};
use domain::ChainKind;
use domain::random::Random;
use serde_json::{Value, json};
use tx::Address;

use super::Samples;
use crate::rig::process::Process;
use fill::{Control, PAID};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many addresses are watched
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    watched: u32,
    /// How many blocks are made and read
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    blocks: u32,
    /// How many payments each block has; every tenth is to a watched address
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    payments: u32,
    /// How often each is measured, in turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each measurement is at least: the blocks are read again until then
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    time: Duration,
    /// Only these nodes
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    on: Vec<Target>,
    /// Where anvil is [default: on the PATH, or where ./test has put it]
    #[arg(long, value_name = "FILE")]
    anvil: Option<PathBuf>,
    /// Where bitcoind is [default: on the PATH, or where ./test has put it]
    #[arg(long, value_name = "FILE")]
    bitcoind: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    DevnetBitcoin,
    DevnetEvm,
    DevnetTron,
    Anvil,
    Bitcoind,
}

impl Target {
    const ALL: [Self; 5] = [Self::DevnetBitcoin, Self::DevnetEvm, Self::DevnetTron, Self::Anvil, Self::Bitcoind];

    const fn name(self) -> &'static str {
        match self {
            Self::DevnetBitcoin => "devnet-bitcoin",
            Self::DevnetEvm => "devnet-evm",
            Self::DevnetTron => "devnet-tron",
            Self::Anvil => "anvil",
            Self::Bitcoind => "bitcoind",
        }
    }

    const fn kind(self) -> ChainKind {
        match self {
            Self::DevnetBitcoin | Self::Bitcoind => ChainKind::Bitcoin,
            Self::DevnetEvm | Self::Anvil => ChainKind::Evm,
            Self::DevnetTron => ChainKind::Tron,
        }
    }
}

/// Lookups by which the filter's errors are counted.
const PROBES: u32 = 10_000_000;
const SEED: u64 = 5;

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let folder = std::env::temp_dir().join(format!("bursar-bench-scan-{}", std::process::id()));
    let bar = if as_json { indicatif::ProgressBar::hidden() } else { indicatif::ProgressBar::new_spinner() };
    let plan = Plan { blocks: arguments.blocks, payments: arguments.payments };
    let wanted = if arguments.on.is_empty() { Target::ALL.to_vec() } else { arguments.on.clone() };
    let mut report = Report::default();
    // One set at a time: each is hundreds of megabytes.
    for kind in ChainKind::ALL {
        let targets: Vec<Target> = wanted.iter().copied().filter(|target| target.kind() == kind).collect();
        if targets.is_empty() {
            continue;
        }
        bar.set_message(format!("{}: {} addresses", kind.as_str(), thousands(u64::from(arguments.watched))));
        let watched = report.watch(kind, arguments.watched)?;
        for target in targets {
            bar.set_message(format!("{}: filling {} blocks", target.name(), plan.blocks));
            let Some(site) = Site::start(target, arguments, &folder, plan).await? else {
                report.missing.push(target.name());
                continue;
            };
            bar.set_message(format!("{}: reading", target.name()));
            report.rows.push(measure(target, &site, &watched, plan, arguments).await?);
            site.stop().await?;
        }
    }
    bar.finish_and_clear();
    report.print(arguments, as_json);
    Ok(())
}

/// One of the three clients.
enum Client {
    Bitcoin(BitcoinChain),
    Evm(EvmChain),
    Tron(TronChain),
}

impl Client {
    fn chain(&self) -> &dyn Chain {
        match self {
            Self::Bitcoin(chain) => chain,
            Self::Evm(chain) => chain,
            Self::Tron(chain) => chain,
        }
    }

    async fn fetch_only(&self, from: u64, to: u64) -> Result<u64, ChainError> {
        match self {
            Self::Bitcoin(chain) => chain.fetch_only(from, to).await,
            Self::Evm(chain) => chain.fetch_only(from, to).await,
            Self::Tron(chain) => chain.fetch_only(from, to).await,
        }
    }
}

/// A chain with its blocks, and what serves it.
struct Site {
    client: Client,
    filled: Filled,
    devnet: Option<Process>,
    /// Held for its end.
    _node: Option<RealNode>,
}

fn failed(error: ChainError) -> Failure {
    node::trouble("a chain", error)
}

impl Site {
    async fn start(
        target: Target,
        arguments: &Arguments,
        folder: &std::path::Path,
        plan: Plan,
    ) -> Result<Option<Self>, Failure> {
        let (mut devnet, mut real, mut login, mut control) = (None, None, None, None);
        let url = match target {
            Target::DevnetBitcoin | Target::DevnetEvm | Target::DevnetTron => {
                let quiet = ["--evm-port", "0", "--tron-port", "0", "--bitcoin-port", "0", "--control-port", "0"];
                let start = ["--json", "devnet", "--by-hand", "--endpoints", "1"];
                let process = Process::start(&[&start[..], &quiet[..]].concat(), "control").await?;
                let url = process.said[target.kind().as_str()][0].as_str().unwrap_or_default().to_owned();
                control = Some(Control::new(&format!("http://{}", process.address))?);
                devnet = Some(process);
                url
            }
            Target::Anvil => {
                let found = node::find(arguments.anvil.as_deref(), "anvil", "node_modules/.bin/anvil");
                let Some(program) = found else { return Ok(None) };
                real.insert(node::anvil(&program, folder).await?).url.clone()
            }
            Target::Bitcoind => {
                let found = node::find(arguments.bitcoind.as_deref(), "bitcoind", "bitcoind");
                let Some(program) = found else { return Ok(None) };
                login = Some(BITCOIN_LOGIN);
                real.insert(node::bitcoind(&program, folder).await?).url.clone()
            }
        };
        let (pool, own) = (node::pool(&url, login)?, node::pool(&url, login)?);
        let (client, filled) = match target.kind() {
            ChainKind::Evm => {
                let token = if target == Target::Anvil {
                    fill::deploy_token(&pool).await?
                } else {
                    Address::Evm(evm_devnet::TETHER)
                };
                let mut settings = EvmSettings::new(evm_devnet::CHAIN_ID, 12);
                if let Address::Evm(contract) = token {
                    settings.tokens.push(contract);
                }
                let chain = EvmChain::new(settings, own);
                let filled = fill::evm_blocks(&chain, &pool, &token, plan).await?;
                (Client::Evm(chain), filled)
            }
            ChainKind::Tron => {
                let token = Address::Tron(tron_devnet::TOKEN);
                let chain =
                    TronChain::new(TronSettings::new(Network::Devnet, vec![token.clone()]), own).map_err(failed)?;
                let control = control.ok_or_else(|| node::trouble("the devnet", "it has no control port"))?;
                let filled = fill::tron_blocks(&chain, &pool, &control, &token, plan).await?;
                (Client::Tron(chain), filled)
            }
            ChainKind::Bitcoin => {
                let chain = BitcoinChain::new(BitcoinSettings::new(bitcoin_devnet::NETWORK), own);
                let filled = fill::bitcoin_blocks(&chain, &pool, plan).await?;
                (Client::Bitcoin(chain), filled)
            }
        };
        Ok(Some(Self { client, filled, devnet, _node: real }))
    }

    async fn stop(self) -> CommandResult {
        match self.devnet {
            Some(devnet) => devnet.kill().await,
            None => Ok(()),
        }
    }

    /// The same, proven: held against the headers, by the one node that there is.
    async fn prove(&self, watched: &Watched) -> Result<u64, Failure> {
        // A few blocks at a time, as a worker does.
        let (mut from, mut found) = (self.filled.from, 0);
        while from <= self.filled.to {
            let to = self.filled.to.min(from + 49);
            let scan = self.client.chain().prove_blocks(from, to, watched).await.map_err(failed)?;
            found += u64::try_from(scan.outputs.len()).unwrap_or(0);
            from = to + 1;
        }
        Ok(found)
    }

    /// Scans all the blocks, and counts what they pay.
    async fn scan(&self, watched: &Watched) -> Result<u64, Failure> {
        let scan = self.client.chain().scan(self.filled.from, self.filled.to, watched).await.map_err(failed)?;
        Ok(u64::try_from(scan.outputs.len()).unwrap_or(0))
    }
}

/// How fast the same blocks are scanned, and scanned with proof: for each node that is found, its name and both rates.
pub async fn proofs(arguments: &Arguments) -> Result<Vec<(&'static str, Samples, Samples)>, Failure> {
    let folder = std::env::temp_dir().join(format!("bursar-bench-proof-{}", std::process::id()));
    let plan = Plan { blocks: arguments.blocks, payments: arguments.payments };
    let mut found = Vec::new();
    for target in &arguments.on {
        let Some(site) = Site::start(*target, arguments, &folder, plan).await? else { continue };
        let watched = Report::default().watch(target.kind(), arguments.watched)?;
        let blocks = site.filled.to - site.filled.from + 1;
        let (mut scan, mut proof) = (Samples::default(), Samples::default());
        for round in 0..=arguments.rounds {
            let least = if round > 0 { arguments.time } else { Duration::ZERO };
            let scanned = rate(blocks, least, async || site.scan(&watched).await.map(|_| ())).await?;
            let proven = rate(blocks, least, async || {
                let matches = site.prove(&watched).await?;
                let what = || format!("{matches} of {} payments to watched addresses were proven", plan.matches());
                if matches == plan.matches() { Ok(()) } else { Err(node::trouble(target.name(), what())) }
            });
            let proven = proven.await?;
            if round > 0 {
                scan.push(scanned);
                proof.push(proven);
            }
        }
        found.push((target.name(), scan, proof));
        site.stop().await?;
    }
    Ok(found)
}

impl Arguments {
    /// To measure proofs only: few blocks, a set of the usual size does not matter there.
    pub const fn for_proofs(on: Vec<Target>, rounds: u32, anvil: Option<PathBuf>, bitcoind: Option<PathBuf>) -> Self {
        let time = Duration::from_secs(1);
        Self { watched: 1_000_000, blocks: 50, payments: 100, rounds, time, on, anvil, bitcoind }
    }
}

/// What one node gave.
struct Row {
    target: Target,
    blocks: u64,
    matches: u64,
    scan: Samples,
    fetch: Samples,
}

async fn measure(
    target: Target,
    site: &Site,
    watched: &Watched,
    plan: Plan,
    arguments: &Arguments,
) -> Result<Row, Failure> {
    let blocks = site.filled.to - site.filled.from + 1;
    let (mut scan, mut fetch) = (Samples::default(), Samples::default());
    // The first round is for the caches of both.
    for round in 0..=arguments.rounds {
        let least = if round > 0 { arguments.time } else { Duration::ZERO };
        let fetched = rate(blocks, least, async || {
            site.client.fetch_only(site.filled.from, site.filled.to).await.map_err(failed).map(|_| ())
        });
        let fetched = fetched.await?;
        let scanned = rate(blocks, least, async || {
            let matches = site.scan(watched).await?;
            if matches == plan.matches() {
                return Ok(());
            }
            let what = format!("{matches} of {} payments to watched addresses were found", plan.matches());
            Err(node::trouble(target.name(), what))
        });
        let scanned = scanned.await?;
        if round > 0 {
            fetch.push(fetched);
            scan.push(scanned);
        }
    }
    Ok(Row { target, blocks, matches: plan.matches(), scan, fetch })
}

/// Blocks per second, doing it again until the time is up.
async fn rate(blocks: u64, least: Duration, work: impl AsyncFn() -> CommandResult) -> Result<f64, Failure> {
    let watch = Stopwatch::start();
    let mut times = 0.0;
    loop {
        work().await?;
        times += 1.0;
        let elapsed = watch.elapsed();
        if elapsed >= least {
            #[allow(clippy::cast_precision_loss, reason = "a count of blocks")]
            let blocks = blocks as f64;
            return Ok(blocks * times / elapsed.as_secs_f64());
        }
    }
}

#[derive(Default)]
struct Report {
    watched: BTreeMap<&'static str, Value>,
    rows: Vec<Row>,
    missing: Vec<&'static str>,
}

impl Report {
    /// A watched set of strangers and of the addresses that the blocks pay.
    fn watch(&mut self, kind: ChainKind, count: u32) -> Result<Watched, Failure> {
        let mut random = Random::from_seed(SEED);
        let mut watched = Watched::new(&mut random);
        fill_with_strangers(&mut watched, kind, count.saturating_sub(PAID), &mut random);
        for number in 0..PAID {
            watched.insert(chain::WatchKey::of(&address(kind, number)));
        }
        let wrong = false_positives(&watched, kind, PROBES, &mut random);
        let entry = json!({
            "addresses": watched.len(),
            "bytes": watched.bytes(),
            "probes": PROBES,
            "false_positives": wrong,
            "false_positive_rate": f64::from(wrong) / f64::from(PROBES),
        });
        self.watched.insert(kind.as_str(), entry);
        Ok(watched)
    }

    fn print(&self, arguments: &Arguments, as_json: bool) {
        let spread = |samples: &Samples, digits: usize| {
            format!("{:.digits$} ({:.digits$} to {:.digits$})", samples.median(), samples.lowest(), samples.highest())
        };
        #[allow(clippy::cast_precision_loss, reason = "a count of matches")]
        let matches_per_s = |row: &Row| row.scan.median() * row.matches as f64 / row.blocks as f64;
        if as_json {
            let chains = self.rows.iter().map(|row| {
                let ratio = row.scan.ratio_to(&row.fetch);
                json!({
                    "node": row.target.name(),
                    "blocks": row.blocks,
                    "payments_per_block": arguments.payments,
                    "matches": row.matches,
                    "blocks_per_s": row.scan.median().round(),
                    "matches_per_s": matches_per_s(row).round(),
                    "fetch_only_blocks_per_s": row.fetch.median().round(),
                    "ratio_to_fetch_only": ratio.median(),
                    "ratio_to_fetch_only_lowest": ratio.lowest(),
                    "ratio_to_fetch_only_highest": ratio.highest(),
                })
            });
            let chains: Vec<Value> = chains.collect();
            say(json!({ "bench": "scan", "watched": self.watched, "chains": chains, "missing": self.missing }));
            return;
        }
        let rows = self.rows.iter().map(|row| {
            vec![
                row.target.name().to_owned(),
                spread(&row.scan, 0),
                format!("{:.0}", matches_per_s(row)),
                spread(&row.fetch, 0),
                spread(&row.scan.ratio_to(&row.fetch), 2),
            ]
        });
        let rows: Vec<Vec<String>> = rows.collect();
        let header = ["node", "blocks/s", "matches/s", "fetch only, blocks/s", "ratio_to_fetch_only"];
        say(table(&header, &[1, 2, 3, 4], &rows));
        for (kind, entry) in &self.watched {
            let megabytes = entry["bytes"].as_u64().unwrap_or(0) / 1_000_000;
            say(format!(
                "{kind}: {} watched in {megabytes} MB, {} of {} strangers pass the filter",
                entry["addresses"], entry["false_positives"], entry["probes"]
            ));
        }
        for name in &self.missing {
            say(format!("{name} was not found: ./test installs it"));
        }
    }
}
