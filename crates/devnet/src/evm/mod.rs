//! An EVM chain: real transactions, real execution (revm), real hashes of blocks, geth's rules and geth's words.
//!
//! | module | holds |
//! |---|---|
//! | `state` | accounts, storage, code, and how to go back |
//! | `transaction` | signed bytes, and the rules that need no chain |
//! | `pool` | what waits for a block, and the rules of replacement |
//! | `block`, `chain` | mined blocks; mining and reorganising |
//! | `execute`, `trace` | revm |
//! | `genesis` | what there is at height 0: ten rich accounts and a token |
//! | `seen` | the chain as one endpoint sees it, faults included |
//! | `render` | the JSON of blocks, transactions, receipts and logs |
//! | `rpc`, `parameters` | JSON-RPC 2.0, single and in batches |
//! | `methods`, `calls`, `logs`, `fees` | what can be asked |
//!
//! **Only `stateRoot` is not what Ethereum would have**: it commits to the state in a way of our own (`state`).

mod block;
mod calls;
mod chain;
mod execute;
mod fees;
mod genesis;
mod logs;
mod methods;
mod parameters;
mod pool;
mod render;
mod rpc;
mod seen;
mod state;
mod trace;
mod transaction;

use std::collections::BTreeMap;
use std::sync::Arc;

use alloy_primitives::{Address, B256, Bytes, U256};
use domain::{RawAmount, Timestamp};

pub use genesis::{FAUCET, TETHER, contract, token_decimals};

use super::{BroadcastFault, Fate, Key, Model, PREFUNDED, View, Wire, WireReply};
use chain::Chain;
use pool::Pool;
use seen::{Contradiction, Seen};
use transaction::Received;

/// So many endpoints may contradict the chain from different heights before the oldest is worked out anew.
const CONTRADICTIONS: usize = 8;
/// An amount of JSON that may be kept for being asked for again.
const RENDERED_BYTES: usize = 64 << 20;

/// How the base fee moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseFee {
    /// EIP-1559, but never below the floor, so that a quiet devnet does not become free.
    Dynamic { first: u64, floor: u64 },
    /// As on BSC, where all that counts is the least price ([`Settings::least_tip`]).
    Zero,
}

/// As on BSC.
pub const CHAIN_ID: u64 = 56;

#[derive(Clone, Debug)]
pub struct Settings {
    pub chain_id: u64,
    /// Of a block.
    pub gas_limit: u64,
    pub base_fee: BaseFee,
    /// What a miner wants at least for a unit of gas, beyond the base fee.
    pub least_tip: u128,
    /// What the node tells people to offer.
    pub usual_tip: u128,
    /// So many blocks can be reorganised, or asked about their state.
    pub history: usize,
    /// How far the tags `safe` and `finalized` are behind the head.
    pub safe_depth: u64,
    pub finalized_depth: u64,
    /// `eth_getLogs` refuses more blocks at once.
    pub log_range: u64,
    /// `eth_getLogs` refuses to answer with more logs.
    pub log_results: usize,
    /// Of the genesis block, in seconds.
    pub genesis_time: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            chain_id: CHAIN_ID,
            gas_limit: 30_000_000,
            base_fee: BaseFee::Dynamic { first: 1_000_000_000, floor: 100_000_000 },
            least_tip: 1,
            usual_tip: 1_000_000_000,
            history: 256,
            safe_depth: 32,
            finalized_depth: 64,
            log_range: 5_000,
            log_results: 10_000,
            genesis_time: 1_700_000_000,
        }
    }
}

impl Settings {
    /// Fees as on BSC: no base fee, and a least price of 0.05 gwei.
    pub fn bsc() -> Self {
        Self { base_fee: BaseFee::Zero, least_tip: 50_000_000, usual_tip: 50_000_000, ..Self::default() }
    }
}

pub struct EvmDevnet {
    settings: Settings,
    chain: Chain,
    pool: Pool,
    fault: BroadcastFault,
    factor: u32,
    /// What will be delivered once more after the next block.
    again: Vec<Bytes>,
    contradictions: BTreeMap<u64, Contradiction>,
    rendered: std::cell::Cell<usize>,
}

impl EvmDevnet {
    pub fn new(settings: Settings) -> Self {
        let chain = genesis::chain(&settings);
        Self {
            settings,
            chain,
            pool: Pool::default(),
            fault: BroadcastFault::None,
            factor: 1,
            again: Vec::new(),
            contradictions: BTreeMap::new(),
            rendered: std::cell::Cell::new(0),
        }
    }

    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The ten accounts that have coins and tokens from the start.
    pub fn accounts() -> Vec<Address> {
        (0..PREFUNDED).map(|number| Address::from(Key::numbered(number).account())).collect()
    }

    /// The hash of the block at a height.
    pub fn block_hash(&self, height: u64) -> Option<B256> {
        self.chain.block(height).map(|block| block.hash)
    }

    /// The least that a miner takes now, with the factor of a fee spike.
    fn least_tip(&self) -> u128 {
        self.settings.least_tip.saturating_mul(u128::from(self.factor))
    }

    fn usual_tip(&self) -> u128 {
        self.settings.usual_tip.saturating_mul(u128::from(self.factor))
    }

    /// The base fee of the block after the newest.
    fn next_base_fee(&self) -> u64 {
        self.chain.next_usual_base_fee(&self.settings).saturating_mul(u64::from(self.factor))
    }

    fn seen(&mut self, view: &View) -> Seen<'_> {
        if self.rendered.get() > RENDERED_BYTES {
            self.chain.forget_rendered();
            self.rendered.set(0);
        }
        if let Some(from) = view.contradict {
            if self.contradictions.len() >= CONTRADICTIONS && !self.contradictions.contains_key(&from) {
                self.contradictions.pop_first();
            }
            self.contradictions.entry(from).or_default().follow(from, self.chain.blocks());
        }
        Seen::new(self, view)
    }

    /// Takes a signed transaction as a node does that hears of it.
    fn deliver(&mut self, raw: &[u8]) -> Result<B256, String> {
        let sent = Received::decode(raw, self.settings.chain_id)?;
        sent.check(&self.settings, self.settings.least_tip)?;
        self.pool.check(&sent, self.chain.state())?;
        let hash = sent.hash;
        match self.fault {
            BroadcastFault::Drop => return Ok(hash),
            BroadcastFault::None => self.pool.insert(Arc::new(sent), 0, false),
            BroadcastFault::Delay(blocks) => {
                let not_before = self.chain.height().saturating_add(blocks).saturating_add(1);
                self.pool.insert(Arc::new(sent), not_before, false);
            }
            BroadcastFault::Duplicate => {
                self.again.push(sent.raw.clone());
                self.pool.insert(Arc::new(sent), 0, false);
                // What a node answers to the second delivery is nobody's concern: the sender has its answer.
                drop(self.deliver_again(raw));
            }
        }
        Ok(hash)
    }

    fn deliver_again(&mut self, raw: &[u8]) -> Result<(), String> {
        let sent = Received::decode(raw, self.settings.chain_id)?;
        sent.check(&self.settings, self.settings.least_tip)?;
        self.pool.check(&sent, self.chain.state())?;
        self.pool.insert(Arc::new(sent), 0, false);
        Ok(())
    }

    fn mine_one(&mut self, now: Timestamp) {
        let (base_fee, least_tip) = (self.next_base_fee(), self.least_tip());
        self.chain.mine_pool(&self.settings, &mut self.pool, base_fee, least_tip, now);
        for raw in std::mem::take(&mut self.again) {
            drop(self.deliver_again(&raw));
        }
    }
}

impl Model for EvmDevnet {
    fn answer(&mut self, view: &View, wire: Wire<'_>, now: Timestamp) -> WireReply {
        rpc::answer(self, view, wire, now)
    }

    fn height(&self) -> u64 {
        self.chain.height()
    }

    fn mine(&mut self, blocks: u64, now: Timestamp) {
        for _ in 0..blocks {
            self.mine_one(now);
        }
    }

    fn reorg(&mut self, depth: u64, fate: Fate, with: &[Vec<u8>], now: Timestamp) -> Result<(), String> {
        let with: Vec<_> =
            with.iter().map(|bytes| raw_or_hex(bytes, self.settings.chain_id)).collect::<Result<_, _>>()?;
        let removed = self.chain.roll_back(depth, self.settings.history)?;
        let factor = self.factor;
        let orphans = match self.chain.branch_off(&self.settings, &removed, fate, &with, factor, now) {
            Ok(orphans) => orphans,
            Err(error) => {
                self.chain.restore(removed);
                return Err(error);
            }
        };
        self.pool.prune(self.chain.state());
        for sent in orphans {
            // What the new branch has made impossible is refused here, and so dropped.
            if sent.check(&self.settings, 0).and_then(|()| self.pool.check(&sent, self.chain.state())).is_ok() {
                let faucet = sent.from == FAUCET;
                self.pool.insert(sent, 0, faucet);
            }
        }
        Ok(())
    }

    fn fund(&mut self, address: &str, token: Option<&str>, amount: RawAmount, _: Timestamp) -> Result<(), String> {
        let to = parameters::address_text(address).ok_or_else(|| format!("{address} is no EVM address"))?;
        let token = match token {
            None => None,
            Some(name) if name.eq_ignore_ascii_case("USDT") => Some(TETHER),
            Some(text) => Some(parameters::address_text(text).ok_or_else(|| format!("there is no token {text} here"))?),
        };
        let nonce = self.pool.next_nonce(FAUCET, self.chain.state().account(FAUCET).nonce);
        let sent = genesis::gift(&self.settings, nonce, to, token, amount.to_u256(), self.usual_tip())?;
        if token.is_some() {
            let head = self.chain.head();
            let outcome = execute::call(self.chain.now(), self.settings.chain_id, execute::block_env(&head.header), {
                revm::context::TxEnv { gas_price: 0, gas_priority_fee: None, tx_type: 0, ..sent.env() }
            });
            match outcome {
                Ok(result) if result.is_success() => {}
                Ok(_) => return Err("the token refuses the transfer".to_owned()),
                Err(failure) => return Err(execute::words(&failure)),
            }
        }
        self.pool.check(&sent, self.chain.state())?;
        self.pool.insert(Arc::new(sent), 0, true);
        Ok(())
    }

    fn broadcasts(&mut self, fault: BroadcastFault) {
        self.fault = fault;
    }

    fn fee_factor(&mut self, times: u32) {
        self.factor = times.max(1);
    }
}

/// A transaction for a reorganisation, as bytes or as hex: no transaction begins with a hex digit's byte.
fn raw_or_hex(bytes: &[u8], chain_id: u64) -> Result<Arc<Received>, String> {
    let text = bytes.strip_prefix(b"0x").unwrap_or(bytes);
    let raw = match text.iter().all(u8::is_ascii_hexdigit) {
        true => alloy_primitives::hex::decode(text).map_err(|error| format!("no hex: {error}"))?,
        false => bytes.to_vec(),
    };
    Received::decode(&raw, chain_id).map(Arc::new)
}

/// Whole coins in the chain's smallest unit.
pub(super) fn coins(count: u64) -> U256 {
    U256::from(count) * U256::from(1_000_000_000_000_000_000_u64)
}
