//! The chains of the run and what they can do to us: a real anvil, a real bitcoind, and TRON from the devnet with three nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chain::Chain;
use chain::endpoint::Pool;
use devnet::{BroadcastFault, Connection, Devnet, Fate, Garbage, Key, Model, Served, View, WireFaults};
use domain::random::Random;
use domain::{Clock, RawAmount};
use rustix::process::Signal;
use serde_json::{Value, json};
use store::entry::{ChainRow, ListingId};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};
use tokio::sync::Mutex;
use tx::{Address, Coin};

use super::wrong;
use crate::bench::scan::{RealNode, ask};
use crate::rig::nodes;

/// Keys of those who mine on Bitcoin.
const FIRST_MINER: u32 = 1_000_000;
/// How long a node may take to start.
const STARTS: Duration = Duration::from_secs(20);
/// anvil forgets the code of contracts in a reorganisation when it is some 900 blocks high; see tests/deposit/anvil.py.
const HIGHEST_REORG: u64 = 450;

/// Something that can be paid on a chain.
#[derive(Clone, Debug)]
pub(super) struct Payable {
    pub symbol: &'static str,
    pub coin: Coin,
    pub listing: ListingId,
    /// What jobs ask for, about.
    pub unit: u64,
}

pub(super) struct Net {
    pub name: &'static str,
    pub kind: &'static str,
    pub urls: Vec<String>,
    pub row: ChainRow,
    pub chain: Arc<dyn Chain>,
    /// All of ours, whatever they are for.
    pub wallets: Vec<Address>,
    /// Of those, users' deposit addresses, and the wallets that give them gas.
    pub users: Vec<Address>,
    pub gas: Vec<Address>,
    pub coins: Vec<Payable>,
    /// No reorganisation is deeper: what is final stays.
    pub deepest: u64,
    pub node: Machine,
}

pub(super) enum Machine {
    Anvil(Box<Anvil>),
    Tron(Arc<Devnet>),
    Bitcoin(Box<Core>),
}

/// Whoever changes its blocks has the lock: a block that is mined in the middle of a reorganisation would make another one of it.
pub(super) struct Anvil {
    pub process: RealNode,
    pub pool: Pool,
    pub blocks: Mutex<()>,
}

/// Bitcoin Core on a network of its own. The same lock as anvil's.
pub(super) struct Core {
    pub process: RealNode,
    pub pool: Pool,
    pub blocks: Mutex<()>,
    /// How many branches there were.
    pub branch: AtomicU32,
}

impl Core {
    /// One that was killed says for a while that it is starting, or nothing. All that is asked for here may be asked for again.
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, Failure> {
        let watch = Stopwatch::start();
        loop {
            match ask(&self.pool, method, params.clone()).await {
                Err(_) if watch.elapsed() < STARTS => tokio::time::sleep(Duration::from_millis(100)).await,
                answer => return answer,
            }
        }
    }

    pub async fn mine(&self, blocks: u64) -> CommandResult {
        let _blocks = self.blocks.lock().await;
        self.ask("generatetoaddress", json!([blocks, self.miner()])).await.map(drop)
    }

    /// Who gets what new blocks make: nobody of ours, and somebody else on each branch, or a block would be the one that has just left.
    fn miner(&self) -> String {
        let number = FIRST_MINER + self.branch.load(Ordering::Relaxed);
        Key::numbered(number).bitcoin(devnet::bitcoin::NETWORK).to_string()
    }

    /// What was in the blocks that leave is in the pool again, and the new ones have it or leave it out.
    async fn reorg(&self, depth: u64, leaves_out: bool) -> Result<bool, Failure> {
        let _blocks = self.blocks.lock().await;
        let height = self.ask("getblockcount", json!([])).await?.as_u64().unwrap_or(0);
        let first = self.ask("getblockhash", json!([height.saturating_sub(depth) + 1])).await?;
        self.ask("invalidateblock", json!([first])).await?;
        self.branch.fetch_add(1, Ordering::Relaxed);
        for _ in 0..=depth {
            self.block(leaves_out).await?;
        }
        Ok(true)
    }

    async fn block(&self, empty: bool) -> CommandResult {
        if empty {
            return self.ask("generateblock", json!([self.miner(), []])).await.map(drop);
        }
        self.ask("generatetoaddress", json!([1, self.miner()])).await.map(drop)
    }
}

impl Anvil {
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, Failure> {
        ask(&self.pool, method, params).await
    }

    pub async fn mine(&self, blocks: u64) -> CommandResult {
        let _blocks = self.blocks.lock().await;
        self.ask("anvil_mine", json!([format!("0x{blocks:x}")])).await.map(drop)
    }

    async fn height(&self) -> Result<u64, Failure> {
        let said = self.ask("eth_blockNumber", json!([])).await?;
        let digits = said.as_str().unwrap_or_default().trim_start_matches("0x").to_owned();
        u64::from_str_radix(&digits, 16).map_err(wrong)
    }

    /// anvil's new blocks are empty, and it forgets what was in the old ones. What `keeps` says is sent again by nobody of ours, as a real
    /// network would.
    async fn reorg(&self, depth: u64, keeps: impl Fn() -> bool) -> Result<bool, Failure> {
        let _blocks = self.blocks.lock().await;
        let height = self.height().await?;
        if height > HIGHEST_REORG || height <= depth {
            return Ok(false);
        }
        let mut removed = Vec::new();
        for number in height - depth + 1..=height {
            let block = self.ask("eth_getBlockByNumber", json!([format!("0x{number:x}"), false])).await?;
            removed.extend(block["transactions"].as_array().cloned().unwrap_or_default());
        }
        let mut raw = Vec::new();
        for hash in removed {
            raw.push(self.ask("eth_getRawTransactionByHash", json!([hash])).await?);
        }
        self.ask("anvil_reorg", json!([depth, []])).await?;
        for bytes in raw.into_iter().filter(|_| keeps()) {
            // One whose nonce is out of reach now is refused.
            self.ask("eth_sendRawTransaction", json!([bytes])).await.ok();
        }
        // The new branch is longer.
        self.ask("anvil_mine", json!(["0x1"])).await.map(|_| true)
    }
}

fn served(devnet: &Devnet) -> Result<&Served<dyn Model>, Failure> {
    devnet.chains.get("tron").ok_or_else(|| wrong("the devnet has no TRON"))
}

fn with<T>(served: &Served<dyn Model>, change: impl FnOnce(&mut dyn Model) -> T) -> T {
    change(&mut *served.model.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// What can go wrong with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    Reorganisation,
    Fees,
    Dropped,
    NodesAway,
}

impl Fault {
    pub const ALL: [Self; 4] = [Self::Reorganisation, Self::Fees, Self::Dropped, Self::NodesAway];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Reorganisation => "reorganisations",
            Self::Fees => "fees_rose",
            Self::Dropped => "pools_emptied",
            Self::NodesAway => "nodes_away",
        }
    }
}

/// What a customer pays in, in whole tokens. A rule sweeps what is above one.
const PAID_IN: u64 = 5;

impl Net {
    /// The token that customers pay in.
    pub fn paid_in(&self) -> Option<&Payable> {
        self.coins.iter().find(|one| one.symbol == "USDT" && !self.users.is_empty())
    }

    /// A customer pays a deposit address. A node that is away takes nothing.
    pub async fn pay_in(&self, user: &Address) -> CommandResult {
        let Some(Payable { coin: Coin::Token(token), .. }) = self.paid_in() else { return Ok(()) };
        match &self.node {
            Machine::Anvil(anvil) => {
                let (from, digits) = (Key::numbered(0).evm().to_string(), user.to_string());
                let digits = digits.trim_start_matches("0x").to_owned();
                let data = format!("0xa9059cbb{digits:0>64}{:064x}", u128::from(PAID_IN) * 10_u128.pow(18));
                let call = json!([{ "from": from, "to": token.to_string(), "data": data, "gas": "0x30d40" }]);
                anvil.ask("eth_sendTransaction", call).await.map(drop)
            }
            Machine::Tron(devnet) => {
                let (served, amount) = (served(devnet)?, (PAID_IN * 1_000_000).to_string().parse().map_err(wrong)?);
                with(served, |model| model.fund(&user.to_string(), Some("USDT"), amount, served.now()))
                    .map_err(wrong)?;
                Ok(())
            }
            Machine::Bitcoin(_) => Ok(()),
        }
    }

    /// Users' addresses that still have what a rule would have swept.
    pub async fn unswept(&self) -> Result<Vec<Address>, Failure> {
        let Some(payable) = self.paid_in() else { return Ok(Vec::new()) };
        let places: Vec<(Address, Coin)> = self.users.iter().map(|user| (user.clone(), payable.coin.clone())).collect();
        let has = self.balances(&places).await?;
        let left = self.users.iter().zip(has).filter(|(_, has)| *has != RawAmount::ZERO);
        Ok(left.map(|(user, _)| user.clone()).collect())
    }

    pub async fn mine(&self, blocks: u64) -> CommandResult {
        match &self.node {
            Machine::Anvil(anvil) => anvil.mine(blocks).await,
            Machine::Bitcoin(core) => core.mine(blocks).await,
            Machine::Tron(devnet) => {
                served(devnet)?.mine(blocks);
                Ok(())
            }
        }
    }

    /// Says whether it was done.
    pub async fn fault(self: &Arc<Self>, fault: Fault, random: &mut Random) -> Result<bool, Failure> {
        match (&self.node, fault) {
            (Machine::Anvil(anvil), Fault::Reorganisation) => {
                let (depth, seed) = (1 + random.below(self.deepest), random.next_u64());
                // All of it comes back, none, or some.
                let (most, draws) = (random.below(3), std::sync::Mutex::new(Random::from_seed(seed)));
                let keeps = || draws.lock().unwrap_or_else(std::sync::PoisonError::into_inner).below(2) < most.min(2);
                anvil.reorg(depth, keeps).await
            }
            (Machine::Tron(devnet), Fault::Reorganisation) => {
                let fates = [Fate::Moved, Fate::Dropped, Fate::Returned];
                let (depth, fate) = (1 + random.below(self.deepest), fates[random.index(3)]);
                let now = SystemClock.now();
                with(served(devnet)?, |model| model.reorg(depth, fate, &[], now)).map_err(wrong)?;
                Ok(true)
            }
            (Machine::Bitcoin(core), Fault::Reorganisation) => {
                core.reorg(1 + random.below(self.deepest), random.below(2) == 0).await
            }
            // Nobody bids for its blocks: prices stay where they are.
            (Machine::Bitcoin(_), Fault::Fees) => Ok(false),
            // It is killed, and forgets its pool.
            (Machine::Bitcoin(core), Fault::Dropped) => {
                let _blocks = core.blocks.lock().await;
                // This one writes its blocks down first: a node that forgot them would undo what is final.
                core.ask("gettxoutsetinfo", json!([])).await?;
                core.process.restart().map(|()| true)
            }
            (Machine::Bitcoin(core), Fault::NodesAway) => {
                core.process.signal(Signal::STOP);
                self.later(random, |net| net.heal());
                Ok(true)
            }
            (Machine::Anvil(anvil), Fault::Fees) => {
                // Up to above what is allowed. It falls by an eighth with every block that is empty.
                let price = 2_000_000_000 + random.below(25_000_000_000);
                anvil.ask("anvil_setNextBlockBaseFeePerGas", json!([format!("0x{price:x}")])).await.map(|_| true)
            }
            // The price of energy doubles, or falls back: no payment may run out of energy. (By more than that it would, and would be built again
            // twenty minutes later, when its time is over: longer than this run.)
            (Machine::Tron(devnet), Fault::Fees) => {
                let times = if random.below(2) == 0 { 1 } else { 2 };
                with(served(devnet)?, |model| model.fee_factor(times));
                Ok(true)
            }
            (Machine::Anvil(anvil), Fault::Dropped) => {
                anvil.ask("anvil_dropAllTransactions", json!([])).await.map(|_| true)
            }
            (Machine::Tron(devnet), Fault::Dropped) => {
                let faults = [BroadcastFault::Drop, BroadcastFault::Delay(3), BroadcastFault::Duplicate];
                let fault = faults[random.index(3)];
                with(served(devnet)?, |model| model.broadcasts(fault));
                self.later(random, |net| net.heal());
                Ok(true)
            }
            (Machine::Anvil(anvil), Fault::NodesAway) => {
                anvil.process.signal(Signal::STOP);
                self.later(random, |net| net.heal());
                Ok(true)
            }
            (Machine::Tron(devnet), Fault::NodesAway) => {
                self.spoil(devnet, random)?;
                self.later(random, |net| net.heal());
                Ok(true)
            }
        }
    }

    /// One node or all of them say nothing, or nonsense, or are behind.
    fn spoil(&self, devnet: &Devnet, random: &mut Random) -> CommandResult {
        let endpoints = &served(devnet)?.endpoints;
        let all = random.below(2) == 0;
        let chosen = random.index(endpoints.len().max(1));
        let faults = match random.below(4) {
            0 => WireFaults { connection: Connection::Silent, ..WireFaults::default() },
            1 => WireFaults { connection: Connection::HalfClosed, ..WireFaults::default() },
            2 => WireFaults { garbage: Some(Garbage::Html), ..WireFaults::default() },
            _ => WireFaults { delay_ms: 400, ..WireFaults::default() },
        };
        let lag = random.below(4);
        for (number, endpoint) in endpoints.iter().enumerate() {
            if all || number == chosen {
                *endpoint.wire.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = faults;
            } else if number == (chosen + 1) % endpoints.len() {
                *endpoint.view.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                    View { lag, ..View::default() };
            }
        }
        Ok(())
    }

    /// Something happens in a while, whatever goes on meanwhile.
    fn later(self: &Arc<Self>, random: &mut Random, act: impl FnOnce(&Self) + Send + 'static) {
        let (net, wait) = (Arc::clone(self), Duration::from_millis(300 + random.below(2_700)));
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            act(&net);
        });
    }

    /// Nodes answer, and take what they are sent. Prices stay as they are.
    pub fn heal(&self) {
        match &self.node {
            Machine::Anvil(anvil) => anvil.process.signal(Signal::CONT),
            Machine::Bitcoin(core) => core.process.signal(Signal::CONT),
            Machine::Tron(devnet) => {
                let Ok(served) = served(devnet) else { return };
                for endpoint in &served.endpoints {
                    *endpoint.wire.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = WireFaults::default();
                    *endpoint.view.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = View::default();
                }
                with(served, |model| model.broadcasts(BroadcastFault::None));
            }
        }
    }

    /// The end of all trouble: prices are usual too.
    pub async fn rest(&self) -> CommandResult {
        self.heal();
        match &self.node {
            Machine::Anvil(anvil) => {
                let price = json!(["0x3b9aca00"]);
                anvil.ask("anvil_setNextBlockBaseFeePerGas", price).await.map(drop)
            }
            Machine::Tron(devnet) => {
                with(served(devnet)?, |model| model.fee_factor(1));
                Ok(())
            }
            Machine::Bitcoin(_) => Ok(()),
        }
    }

    /// What addresses have now.
    pub async fn balances(&self, wanted: &[(Address, Coin)]) -> Result<Vec<RawAmount>, Failure> {
        nodes::balances(&*self.chain, wanted).await
    }
}
