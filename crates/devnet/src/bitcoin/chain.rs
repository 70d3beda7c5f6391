//! The tree of blocks, the active chain in it, and the coins that are unspent at its tip.

use std::collections::{BTreeMap, BTreeSet};

use ::bitcoin::block::Header;
use ::bitcoin::consensus::serialize;
use ::bitcoin::constants::genesis_block;
use ::bitcoin::{Amount, Block, BlockHash, Network, OutPoint, ScriptBuf, Transaction, TxOut, Txid};

use super::consensus;
use super::reject::Reject;

/// Blocks between two halvings of the subsidy on regtest.
const HALVING: u32 = 150;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Coin {
    pub out: TxOut,
    pub height: u32,
    pub coinbase: bool,
}

pub(super) struct Stored {
    pub block: Block,
    pub hash: BlockHash,
    pub height: u32,
    pub parent: Option<usize>,
    /// As on the wire: a scan asks for thousands of these.
    pub raw: Vec<u8>,
    pub txids: Vec<Txid>,
    /// The coins that each transaction but the coinbase spent. A block has but one parent, so these never change.
    pub undo: Vec<Vec<Coin>>,
    pub median_time: u32,
    /// `invalidateblock` named it.
    pub invalid: bool,
}

pub(super) struct Chain {
    blocks: Vec<Stored>,
    by_hash: BTreeMap<BlockHash, usize>,
    /// By height.
    active: Vec<usize>,
    coins: BTreeMap<OutPoint, Coin>,
    /// Where the active chain holds a transaction: block and position.
    index: BTreeMap<Txid, (usize, usize)>,
    /// Coins with this script are found without a look at all the others.
    faucet_script: ScriptBuf,
    faucet: BTreeSet<OutPoint>,
}

/// What a miner may create at this height.
pub(super) fn subsidy(height: u32) -> Amount {
    Amount::from_sat(5_000_000_000_u64.checked_shr(height / HALVING).unwrap_or(0))
}

/// Core keeps no coin that nobody can ever spend.
pub(super) fn is_unspendable(script: &::bitcoin::Script) -> bool {
    script.is_op_return() || script.len() > 10_000
}

impl Chain {
    pub fn new(faucet_script: ScriptBuf) -> Self {
        let block = genesis_block(Network::Regtest);
        let hash = block.block_hash();
        let genesis = Stored {
            hash,
            height: 0,
            parent: None,
            raw: serialize(&block),
            txids: block.txdata.iter().map(Transaction::compute_txid).collect(),
            undo: Vec::new(),
            median_time: block.header.time,
            invalid: false,
            block,
        };
        Self {
            blocks: vec![genesis],
            by_hash: BTreeMap::from([(hash, 0)]),
            active: vec![0],
            // The coin of the genesis block is no coin: it was never in Core's set either.
            coins: BTreeMap::new(),
            index: BTreeMap::new(),
            faucet_script,
            faucet: BTreeSet::new(),
        }
    }

    pub fn height(&self) -> u32 {
        u32::try_from(self.active.len()).unwrap_or(u32::MAX).saturating_sub(1)
    }

    pub fn tip(&self) -> &Stored {
        &self.blocks[self.tip_at()]
    }

    pub fn tip_at(&self) -> usize {
        *self.active.last().expect("the genesis block is never removed")
    }

    pub fn stored(&self, at: usize) -> &Stored {
        &self.blocks[at]
    }

    pub fn all(&self) -> &[Stored] {
        &self.blocks
    }

    pub fn active_at(&self, height: u32) -> Option<usize> {
        self.active.get(usize::try_from(height).ok()?).copied()
    }

    pub fn is_active(&self, at: usize) -> bool {
        self.active_at(self.blocks[at].height) == Some(at)
    }

    pub fn by_hash(&self, hash: &BlockHash) -> Option<usize> {
        self.by_hash.get(hash).copied()
    }

    pub fn coin(&self, outpoint: &OutPoint) -> Option<&Coin> {
        self.coins.get(outpoint)
    }

    pub fn coins(&self) -> &BTreeMap<OutPoint, Coin> {
        &self.coins
    }

    pub fn faucet_coins(&self) -> impl Iterator<Item = (OutPoint, &Coin)> {
        self.faucet.iter().filter_map(|outpoint| Some((*outpoint, self.coins.get(outpoint)?)))
    }

    pub fn faucet_script(&self) -> &ScriptBuf {
        &self.faucet_script
    }

    pub fn find(&self, txid: &Txid) -> Option<(usize, usize)> {
        self.index.get(txid).copied()
    }

    /// What an input of a transaction in an active block spent; the coinbase spent nothing.
    pub fn spent_by(&self, at: usize, position: usize) -> Option<&[Coin]> {
        self.blocks[at].undo.get(position.checked_sub(1)?).map(Vec::as_slice)
    }

    /// The median of the times of the eleven blocks that end with this one.
    fn median_time(&self, mut at: usize, newest: Option<u32>) -> u32 {
        let mut times: Vec<u32> = newest.into_iter().collect();
        loop {
            let stored = &self.blocks[at];
            times.push(stored.block.header.time);
            match stored.parent {
                Some(parent) if times.len() < 11 => at = parent,
                _ => break,
            }
        }
        times.sort_unstable();
        times[times.len() / 2]
    }

    /// Of the active block at this height.
    pub fn median_time_at(&self, height: u32) -> u32 {
        self.active_at(height).map_or(0, |at| self.blocks[at].median_time)
    }

    fn add_coin(&mut self, outpoint: OutPoint, coin: Coin) {
        if is_unspendable(&coin.out.script_pubkey) {
            return;
        }
        if coin.out.script_pubkey == self.faucet_script {
            self.faucet.insert(outpoint);
        }
        self.coins.insert(outpoint, coin);
    }

    fn remove_coin(&mut self, outpoint: &OutPoint) -> Option<Coin> {
        self.faucet.remove(outpoint);
        self.coins.remove(outpoint)
    }

    fn add_outputs(&mut self, transaction: &Transaction, txid: Txid, height: u32) {
        let coinbase = transaction.is_coinbase();
        for (vout, out) in (0_u32..).zip(&transaction.output) {
            self.add_coin(OutPoint { txid, vout }, Coin { out: out.clone(), height, coinbase });
        }
    }

    fn remove_outputs(&mut self, transaction: &Transaction, txid: Txid) {
        for vout in (0_u32..).take(transaction.output.len()) {
            self.remove_coin(&OutPoint { txid, vout });
        }
    }

    /// Takes the inputs out of the set; `None`, with nothing changed, when one is not there.
    fn spend(&mut self, transaction: &Transaction) -> Option<Vec<Coin>> {
        let mut spent = Vec::with_capacity(transaction.input.len());
        for input in &transaction.input {
            match self.remove_coin(&input.previous_output) {
                Some(coin) => spent.push(coin),
                None => {
                    self.restore(transaction, spent);
                    return None;
                }
            }
        }
        Some(spent)
    }

    fn restore(&mut self, transaction: &Transaction, spent: Vec<Coin>) {
        for (input, coin) in transaction.input.iter().zip(spent) {
            self.add_coin(input.previous_output, coin);
        }
    }

    /// Checks that the transactions may stand in this order in a block after the tip.
    pub fn check_next(&mut self, transactions: &[Transaction]) -> Result<Amount, Reject> {
        let (result, done) = self.apply(transactions, true);
        for (transaction, spent) in transactions.iter().zip(done).rev() {
            self.remove_outputs(transaction, transaction.compute_txid());
            self.restore(transaction, spent);
        }
        result
    }

    /// The fees, and what the transactions spent as far as it went.
    fn apply(&mut self, transactions: &[Transaction], scripts: bool) -> (Result<Amount, Reject>, Vec<Vec<Coin>>) {
        let (height, mut fees, mut done) = (self.height().saturating_add(1), Amount::ZERO, Vec::new());
        for transaction in transactions {
            if scripts {
                match consensus::check_in_block(self, transaction) {
                    Ok(fee) => fees = fees.checked_add(fee).unwrap_or(Amount::MAX_MONEY),
                    Err(reject) => return (Err(reject), done),
                }
            }
            let Some(spent) = self.spend(transaction) else { return (Err(Reject::missing()), done) };
            done.push(spent);
            self.add_outputs(transaction, transaction.compute_txid(), height);
        }
        (Ok(fees), done)
    }

    /// Puts a block on the tip whose transactions [`Self::check_next`] or the pool has checked.
    pub fn attach(&mut self, block: Block) -> Result<usize, Reject> {
        let (result, done) = self.apply(block.txdata.get(1..).unwrap_or_default(), false);
        if let Err(reject) = result {
            for (transaction, spent) in block.txdata.iter().skip(1).zip(done).rev() {
                self.remove_outputs(transaction, transaction.compute_txid());
                self.restore(transaction, spent);
            }
            return Err(reject);
        }
        let parent = self.tip_at();
        let stored = Stored {
            hash: block.block_hash(),
            height: self.height().saturating_add(1),
            parent: Some(parent),
            raw: serialize(&block),
            txids: block.txdata.iter().map(Transaction::compute_txid).collect(),
            undo: done,
            median_time: self.median_time(parent, Some(block.header.time)),
            invalid: false,
            block,
        };
        if let (Some(coinbase), Some(txid)) = (stored.block.txdata.first(), stored.txids.first()) {
            self.add_outputs(&coinbase.clone(), *txid, stored.height);
        }
        let at = self.blocks.len();
        self.by_hash.insert(stored.hash, at);
        self.note(at, &stored.txids);
        self.blocks.push(stored);
        self.active.push(at);
        Ok(at)
    }

    fn note(&mut self, at: usize, txids: &[Txid]) {
        for (position, txid) in txids.iter().enumerate() {
            self.index.insert(*txid, (at, position));
        }
    }

    /// Takes the tip off, and says which block that was. The genesis block stays.
    pub fn detach(&mut self) -> Option<usize> {
        if self.active.len() < 2 {
            return None;
        }
        let at = self.active.pop()?;
        let (transactions, txids, undo) = {
            let stored = &self.blocks[at];
            (stored.block.txdata.clone(), stored.txids.clone(), stored.undo.clone())
        };
        let mut undo = undo;
        for (transaction, txid) in transactions.iter().zip(&txids).rev() {
            self.remove_outputs(transaction, *txid);
            self.index.remove(txid);
            if !transaction.is_coinbase() {
                self.restore(transaction, undo.pop().unwrap_or_default());
            }
        }
        Some(at)
    }

    /// Puts a block back whose parent is the tip.
    pub fn reattach(&mut self, at: usize) {
        let stored = &self.blocks[at];
        let (transactions, txids, height) = (stored.block.txdata.clone(), stored.txids.clone(), stored.height);
        for (transaction, txid) in transactions.iter().zip(&txids) {
            if !transaction.is_coinbase() {
                self.spend(transaction);
            }
            self.add_outputs(transaction, *txid, height);
        }
        self.note(at, &txids);
        self.active.push(at);
    }

    /// Marks a block, and clears the mark from it, all that it stands on and all that stands on it.
    pub fn mark(&mut self, at: usize, invalid: bool) {
        if invalid {
            self.blocks[at].invalid = true;
            return;
        }
        let mut below = Some(at);
        while let Some(block) = below {
            self.blocks[block].invalid = false;
            below = self.blocks[block].parent;
        }
        for other in at..self.blocks.len() {
            if self.descends(other, at) {
                self.blocks[other].invalid = false;
            }
        }
    }

    fn descends(&self, mut block: usize, from: usize) -> bool {
        // A parent always stands before its children.
        while block > from {
            match self.blocks[block].parent {
                Some(parent) => block = parent,
                None => return false,
            }
        }
        block == from
    }

    /// The highest block with nothing invalid under it; the one seen first of equals, even if another is the tip.
    pub fn best(&self) -> usize {
        let mut bad = vec![false; self.blocks.len()];
        let mut best = 0;
        for (at, stored) in self.blocks.iter().enumerate() {
            bad[at] = stored.invalid || stored.parent.is_some_and(|parent| bad[parent]);
            if !bad[at] && stored.height > self.blocks[best].height {
                best = at;
            }
        }
        best
    }

    pub fn has_invalid_ancestor(&self, at: usize) -> bool {
        let mut below = Some(at);
        while let Some(block) = below {
            if self.blocks[block].invalid {
                return true;
            }
            below = self.blocks[block].parent;
        }
        false
    }

    /// Makes this block the tip, and returns the blocks that left the active chain, the highest first.
    pub fn activate(&mut self, target: usize) -> Vec<usize> {
        let mut path = Vec::new();
        let mut block = target;
        while !self.is_active(block) {
            path.push(block);
            match self.blocks[block].parent {
                Some(parent) => block = parent,
                None => break,
            }
        }
        let mut left = Vec::new();
        while self.tip_at() != block {
            match self.detach() {
                Some(at) => left.push(at),
                None => break,
            }
        }
        for at in path.into_iter().rev() {
            self.reattach(at);
        }
        left
    }
}

/// Counts up until the header's hash is below regtest's target: every second one is.
pub(super) fn solve(header: &mut Header) -> BlockHash {
    loop {
        let hash = header.block_hash();
        if header.target().is_met_by(hash) {
            return hash;
        }
        header.nonce = header.nonce.wrapping_add(1);
    }
}
