//! Bitcoin on regtest: real blocks, real scripts, Core's rules for the pool and Core's JSON-RPC.
//!
//! | module | holds |
//! |---|---|
//! | `chain` | the tree of blocks and the unspent coins |
//! | `consensus`, `script` | what every block must obey |
//! | `policy`, `accept` | what may wait in the pool, and the words for refusing the rest |
//! | `pool` | what waits, and in which order a miner takes it |
//! | `faucet` | the coins that the ten keys begin with, and those that `fund` gives |
//! | `lens` | the one state as one endpoint sees it: late, lying or contradicting |
//! | `describe`, `json` | transactions and scripts in Core's JSON |
//! | `rpc` | the methods |
//!
//! **No wallet**, as in a node that runs without one. **No clock**: the time comes with every call.

mod accept;
mod chain;
mod consensus;
mod describe;
mod faucet;
mod json;
mod lens;
mod policy;
mod pool;
mod reject;
mod rpc;
mod script;

use std::collections::{BTreeMap, VecDeque};

use ::bitcoin::absolute::LockTime;
use ::bitcoin::block::{Header, Version};
use ::bitcoin::consensus::deserialize;
use ::bitcoin::hashes::Hash;
use ::bitcoin::script::{Builder, PushBytesBuf};
use ::bitcoin::{
    Amount, Block, CompactTarget, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxMerkleNode, TxOut, Txid, Witness,
    transaction,
};
use domain::{RawAmount, Timestamp};

use super::{BroadcastFault, Fate, Key, Model, View, Wire, WireReply};
use accept::{Accepted, Mode};
use chain::Chain;
use lens::Shadow;
use pool::{Entry, Pool};
use reject::Reject;

/// The network that it is.
pub const NETWORK: ::bitcoin::Network = ::bitcoin::Network::Regtest;

/// Trivial work: every second hash is enough.
const BITS: u32 = 0x207f_ffff;
/// Core leaves some of a block for the coinbase.
const BLOCK_ROOM: u64 = consensus::BLOCK_WEIGHT - 8_000;
/// No call mines more than this.
const BLOCKS_AT_ONCE: u64 = 100_000;
/// Fee rates are estimated from so many of the newest transactions…
const ESTIMATE_FROM: usize = 100;
/// …once there are so many.
const ESTIMATE_AFTER: usize = 10;

/// What a devnet begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When the newest of the first blocks was mined; those before it are ten minutes apart.
    pub start: Timestamp,
    /// So many coins on each of the twenty prefunded addresses,
    pub coins: u32,
    /// each of so many satoshi. All together at most 2,400 BTC.
    pub coin_sat: u64,
}

impl Default for Settings {
    fn default() -> Self {
        // 2026-01-01. Five coins of 10 BTC.
        Self { start: Timestamp::from_micros(1_767_225_600_000_000), coins: 5, coin_sat: 1_000_000_000 }
    }
}

pub struct BitcoinDevnet {
    chain: Chain,
    pool: Pool,
    faucet: Key,
    /// Blocks ever made: it stands in each coinbase, so that no two are alike.
    made: u64,
    /// No reorganisation goes below this: the prefunded coins stand there.
    floor: u32,
    broadcasts: BroadcastFault,
    fee_times: u32,
    /// In satoshi for a thousand virtual bytes, of the newest transactions in blocks.
    paid: VecDeque<u64>,
    since: Option<Timestamp>,
    /// For each height from which a view contradicts, the blocks that it shows instead.
    shadows: BTreeMap<u64, Vec<Shadow>>,
}

fn seconds(now: Timestamp) -> i64 {
    now.millis().div_euclid(1_000)
}

impl BitcoinDevnet {
    pub fn new(settings: Settings) -> Self {
        faucet::begin(settings)
    }

    /// A block on the tip that holds these, which are known to be valid there.
    fn block(&mut self, script: ScriptBuf, transactions: Vec<Transaction>, fees: Amount, now: Timestamp) -> Block {
        self.made = self.made.saturating_add(1);
        let tip = self.chain.tip();
        let height = tip.height.saturating_add(1);
        let counter = i64::try_from(self.made).unwrap_or(i64::MAX);
        let reward = chain::subsidy(height).checked_add(fees).unwrap_or(Amount::MAX_MONEY);
        let coinbase = Transaction {
            version: transaction::Version::TWO,
            lock_time: LockTime::from_consensus(tip.height),
            input: vec![TxIn {
                previous_output: OutPoint::null(),
                script_sig: Builder::new().push_int(i64::from(height)).push_int(counter).into_script(),
                sequence: Sequence::ENABLE_LOCKTIME_NO_RBF,
                witness: Witness::from_slice(&[[0_u8; 32]]),
            }],
            output: vec![
                TxOut { value: reward, script_pubkey: script },
                TxOut { value: Amount::ZERO, script_pubkey: ScriptBuf::new() },
            ],
        };
        let now = u32::try_from(seconds(now).max(0)).unwrap_or(u32::MAX);
        let mut block = Block {
            header: Header {
                version: Version::from_consensus(0x2000_0000),
                prev_blockhash: tip.hash,
                merkle_root: TxMerkleNode::all_zeros(),
                time: now.max(tip.median_time.saturating_add(1)),
                bits: CompactTarget::from_consensus(BITS),
                nonce: 0,
            },
            txdata: std::iter::once(coinbase).chain(transactions).collect(),
        };
        if let Some(root) = block.witness_root() {
            let commitment = Block::compute_witness_commitment(&root, &[0; 32]);
            let mut data = PushBytesBuf::from([0xaa, 0x21, 0xa9, 0xed]);
            // Four and thirty-two bytes are far below what a push may hold.
            if data.extend_from_slice(commitment.as_byte_array()).is_ok() {
                block.txdata[0].output[1].script_pubkey = ScriptBuf::new_op_return(data);
            }
        }
        block.header.merkle_root = block.compute_merkle_root().unwrap_or_else(TxMerkleNode::all_zeros);
        chain::solve(&mut block.header);
        block
    }

    fn append(&mut self, block: Block) -> Result<usize, Reject> {
        let at = self.chain.attach(block)?;
        let stored = self.chain.stored(at);
        for txid in &stored.txids {
            if let Some(entry) = self.pool.remove(txid) {
                self.paid.push_back(entry.fee.saturating_mul(1_000) / entry.vsize().max(1));
            }
        }
        while self.paid.len() > ESTIMATE_FROM {
            self.paid.pop_front();
        }
        for input in self.chain.stored(at).block.txdata.iter().flat_map(|transaction| &transaction.input) {
            if let Some(conflict) = self.pool.spender(&input.previous_output) {
                self.pool.remove_with_descendants(&conflict);
            }
        }
        Ok(at)
    }

    /// One block, with what waits in the pool.
    fn mine_one(&mut self, script: ScriptBuf, now: Timestamp) -> usize {
        let height = self.chain.height().saturating_add(1);
        let txids = self.pool.template(height, BLOCK_ROOM);
        let entries: Vec<&Entry> = txids.iter().filter_map(|txid| self.pool.get(txid)).collect();
        let fees = entries.iter().map(|entry| entry.fee).fold(0, u64::saturating_add);
        let transactions = entries.into_iter().map(|entry| entry.transaction.clone()).collect();
        let block = self.block(script.clone(), transactions, Amount::from_sat(fees), now);
        self.append(block).unwrap_or_else(|_| {
            // Unreachable as long as the pool keeps its word; an empty block is always possible.
            let block = self.block(script, Vec::new(), Amount::ZERO, now);
            self.append(block).unwrap_or_else(|_| self.chain.tip_at())
        })
    }

    /// The pool after the tip has moved: what may stay, and first what removed blocks give back.
    fn readmit(&mut self, returned: Vec<Transaction>) {
        let waiting = self.pool.drain();
        let time = i64::from(self.chain.tip().block.header.time);
        let known = waiting.into_iter().map(|entry| (entry.transaction, entry.time, entry.not_before));
        for (transaction, time, not_before) in returned.into_iter().map(|one| (one, time, 0)).chain(known) {
            if let Ok(Accepted { mut entry, .. }) =
                accept::check(&self.chain, &self.pool, &transaction, Mode::Again, time)
            {
                entry.not_before = not_before;
                self.pool.insert(entry);
            }
        }
    }

    /// The transactions of blocks, given from the highest down, in the order of the chain.
    fn transactions_of(&self, blocks: &[usize]) -> Vec<Transaction> {
        let stored = blocks.iter().rev().map(|at| self.chain.stored(*at));
        stored.flat_map(|stored| stored.block.txdata.iter().skip(1).cloned()).collect()
    }

    /// Follows the best chain after a block was marked.
    fn follow_best(&mut self) {
        let left = self.chain.activate(self.chain.best());
        let returned = self.transactions_of(&left);
        self.readmit(returned);
    }

    fn admit(&mut self, accepted: Accepted) {
        for txid in &accepted.replaced {
            self.pool.remove(txid);
        }
        self.pool.insert(accepted.entry);
    }

    /// What a client sends, with what this devnet does to broadcasts.
    fn deliver(&mut self, mut accepted: Accepted) {
        match self.broadcasts {
            BroadcastFault::Drop => return,
            BroadcastFault::Delay(blocks) => {
                let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
                accepted.entry.not_before = self.chain.height().saturating_add(blocks).saturating_add(1);
            }
            BroadcastFault::Duplicate => {
                let (transaction, time) = (accepted.entry.transaction.clone(), accepted.entry.time);
                self.admit(accepted);
                if let Ok(again) = accept::check(&self.chain, &self.pool, &transaction, Mode::Alone, time) {
                    self.admit(again);
                }
                return;
            }
            BroadcastFault::None => {}
        }
        self.admit(accepted);
    }

    /// In satoshi for a thousand virtual bytes: the median of what was paid of late.
    fn estimate(&self) -> Option<u64> {
        if self.paid.len() < ESTIMATE_AFTER && self.fee_times == 1 {
            return None;
        }
        let mut paid: Vec<u64> = self.paid.iter().copied().collect();
        paid.sort_unstable();
        let median = paid.get(paid.len() / 2).copied().unwrap_or(1_000);
        Some(median.max(1_000).saturating_mul(u64::from(self.fee_times)))
    }
}

impl Model for BitcoinDevnet {
    fn answer(&mut self, view: &View, wire: Wire<'_>, now: Timestamp) -> WireReply {
        rpc::answer(self, view, wire, now)
    }

    fn height(&self) -> u64 {
        u64::from(self.chain.height())
    }

    fn mine(&mut self, blocks: u64, now: Timestamp) {
        let script = self.chain.faucet_script().clone();
        for _ in 0..blocks.min(BLOCKS_AT_ONCE) {
            self.mine_one(script.clone(), now);
        }
    }

    fn reorg(&mut self, depth: u64, fate: Fate, with: &[Vec<u8>], now: Timestamp) -> Result<(), String> {
        let most = self.chain.height().saturating_sub(self.floor);
        let depth = u32::try_from(depth).ok().filter(|depth| (1..=most).contains(depth));
        let depth = depth.ok_or_else(|| format!("a reorganisation is 1 to {most} blocks deep"))?;
        let with: Vec<Transaction> = with
            .iter()
            .map(|raw| deserialize(raw).map_err(|error| format!("this is no transaction: {error}")))
            .collect::<Result<_, _>>()?;
        if with.iter().map(|one| one.weight().to_wu()).fold(0, u64::saturating_add) > BLOCK_ROOM {
            return Err("these do not fit into one block".to_owned());
        }
        let removed: Vec<usize> = (0..depth).map_while(|_| self.chain.detach()).collect();
        let fees = match self.chain.check_next(&with) {
            Ok(fees) => fees,
            Err(reject) => {
                for at in removed.into_iter().rev() {
                    self.chain.reattach(at);
                }
                return Err(format!("the new branch cannot hold a transaction: {reject}"));
            }
        };
        let script = self.chain.faucet_script().clone();
        let first = self.block(script.clone(), with, fees, now);
        self.append(first).map_err(|reject| reject.to_string())?;
        let returned = if fate == Fate::Dropped { Vec::new() } else { self.transactions_of(&removed) };
        let txids: Vec<Txid> = returned.iter().map(Transaction::compute_txid).collect();
        self.readmit(returned);
        for _ in 1..depth {
            let block = self.block(script.clone(), Vec::new(), Amount::ZERO, now);
            self.append(block).map_err(|reject| reject.to_string())?;
        }
        // What does not fit into one block waits for the next.
        let mut room = BLOCK_ROOM;
        let mut fits = |entry: &&Entry| {
            room = room.saturating_sub(entry.weight);
            room > 0
        };
        let moved: Vec<&Entry> = match fate {
            Fate::Moved => txids.iter().filter_map(|txid| self.pool.get(txid)).take_while(&mut fits).collect(),
            Fate::Dropped | Fate::Returned => Vec::new(),
        };
        let fees = moved.iter().map(|entry| entry.fee).fold(0, u64::saturating_add);
        let moved = moved.into_iter().map(|entry| entry.transaction.clone()).collect();
        let last = self.block(script, moved, Amount::from_sat(fees), now);
        self.append(last).map(|_| ()).map_err(|reject| reject.to_string())
    }

    fn fund(&mut self, address: &str, token: Option<&str>, amount: RawAmount, now: Timestamp) -> Result<(), String> {
        if token.is_some() {
            return Err("Bitcoin has no tokens here".to_owned());
        }
        faucet::pay(self, address, amount, now)
    }

    fn broadcasts(&mut self, fault: BroadcastFault) {
        self.broadcasts = fault;
    }

    fn fee_factor(&mut self, times: u32) {
        self.fee_times = times.max(1);
    }
}
