//! The chain of blocks: mining, and going back.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use alloy_consensus::constants::EMPTY_WITHDRAWALS;
use alloy_consensus::{Header, Transaction as _};
use alloy_eips::eip1559::{BaseFeeParams, calc_next_block_base_fee};
use alloy_primitives::{Address, B256, Bytes, TxKind, address, b256, logs_bloom};
use domain::Timestamp;
use revm::context::result::{EVMError, InvalidTransaction};

use super::block::{Block, Receipt, Rendered};
use super::execute::{Failure, block_env, run, words};
use super::pool::Pool;
use super::state::{At, State, Undo};
use super::transaction::Received;
use super::{BaseFee, Settings};
use crate::Fate;

/// Who earns the fees.
const MINER: Address = address!("0x00000000000000000000000000000000b0a4da4d");
/// The hash of no requests (EIP-7685).
const NO_REQUESTS: B256 = b256!("0xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
/// Journals beyond the wanted history, so that they are not moved in every block.
const SLACK: usize = 64;

pub(super) struct Chain {
    /// By height.
    blocks: Vec<Block>,
    heights: BTreeMap<B256, u64>,
    places: BTreeMap<B256, (u64, usize)>,
    state: State,
    /// Of the newest blocks, oldest first.
    undos: Vec<Undo>,
    /// How often it has been reorganised. It goes into every block, so that an empty block, too, differs from the one
    /// that it replaces.
    branch: u64,
}

/// A block that is being filled.
struct OpenBlock {
    header: Header,
    usual_base_fee: u64,
    transactions: Vec<Arc<Received>>,
    receipts: Vec<Receipt>,
    gas_used: u64,
    logs: usize,
    undo: Undo,
}

/// What a reorganisation took away.
pub(super) struct Removed {
    blocks: Vec<Block>,
    undos: Vec<Undo>,
    state: State,
}

#[derive(Debug)]
enum Unfit {
    /// Perhaps in a later block.
    NotNow,
    Never(String),
}

impl Chain {
    pub(super) fn new(state: State, genesis: Block) -> Self {
        let heights = BTreeMap::from([(genesis.hash, 0)]);
        Self { blocks: vec![genesis], heights, places: BTreeMap::new(), state, undos: Vec::new(), branch: 0 }
    }

    pub(super) fn height(&self) -> u64 {
        self.head().header.number
    }

    pub(super) fn head(&self) -> &Block {
        self.blocks.last().expect("the genesis block is never removed")
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    pub(super) fn block(&self, height: u64) -> Option<&Block> {
        self.blocks.get(usize::try_from(height).ok()?)
    }

    pub(super) fn height_of(&self, hash: B256) -> Option<u64> {
        self.heights.get(&hash).copied()
    }

    /// Where a transaction was mined.
    pub(super) fn place(&self, transaction: B256) -> Option<(u64, usize)> {
        self.places.get(&transaction).copied()
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn now(&self) -> At<'_> {
        At { state: &self.state, later: &[], blocks: &self.blocks }
    }

    /// The state after a block, if it is kept.
    pub(super) fn at(&self, height: u64, history: usize) -> Option<At<'_>> {
        let behind = usize::try_from(self.height().checked_sub(height)?).ok()?;
        if behind > history {
            return None;
        }
        let later = self.undos.get(self.undos.len().checked_sub(behind)?..)?;
        Some(At { state: &self.state, later, blocks: &self.blocks })
    }

    pub(super) fn forget_rendered(&mut self) {
        for block in &mut self.blocks {
            block.rendered = Rendered::default();
        }
    }

    pub(super) fn next_usual_base_fee(&self, settings: &Settings) -> u64 {
        match settings.base_fee {
            BaseFee::Zero => 0,
            BaseFee::Dynamic { floor, .. } => {
                let head = self.head();
                let (used, limit) = (head.header.gas_used, head.header.gas_limit);
                let next = calc_next_block_base_fee(used, limit, head.usual_base_fee, BaseFeeParams::ethereum());
                next.max(floor)
            }
        }
    }

    /// The header that the next block begins with.
    pub(super) fn next_header(&self, settings: &Settings, base_fee: u64, now: Timestamp) -> Header {
        let parent = self.head();
        let seconds = u64::try_from(now.micros().div_euclid(1_000_000)).unwrap_or_default();
        Header {
            parent_hash: parent.hash,
            number: parent.header.number.saturating_add(1),
            timestamp: seconds.max(parent.header.timestamp.saturating_add(1)),
            ..blank_header(settings, base_fee, self.branch)
        }
    }

    fn draft(&self, settings: &Settings, factor: u32, now: Timestamp) -> OpenBlock {
        let usual = self.next_usual_base_fee(settings);
        self.draft_at(settings, usual.saturating_mul(u64::from(factor)), now)
    }

    fn draft_at(&self, settings: &Settings, base_fee: u64, now: Timestamp) -> OpenBlock {
        OpenBlock {
            header: self.next_header(settings, base_fee, now),
            usual_base_fee: self.next_usual_base_fee(settings),
            transactions: Vec::new(),
            receipts: Vec::new(),
            gas_used: 0,
            logs: 0,
            undo: Undo::default(),
        }
    }

    /// The next block, of what waits: who pays the miner most comes first, and every sender's nonces in their order.
    pub(super) fn mine_pool(
        &mut self,
        settings: &Settings,
        pool: &mut Pool,
        base_fee: u64,
        least_tip: u128,
        now: Timestamp,
    ) {
        let mut draft = self.draft_at(settings, base_fee, now);
        let height = draft.header.number;
        let mut ready = BinaryHeap::new();
        let rank = |pool: &Pool, sender: Address, nonce: u64| {
            let waiting = pool.at(sender, nonce).filter(|waiting| waiting.not_before <= height)?;
            let tip = waiting.sent.tip_at(base_fee).filter(|tip| waiting.first || *tip >= least_tip)?;
            Some((waiting.first, tip, std::cmp::Reverse(waiting.arrival), sender, nonce))
        };
        for sender in pool.senders() {
            ready.extend(rank(pool, *sender, self.state.account(*sender).nonce));
        }
        while let Some((_, _, _, sender, nonce)) = ready.pop() {
            let Some(waiting) = pool.at(sender, nonce) else { continue };
            // What does not fit holds up its sender, and nobody else.
            match self.include(settings, &mut draft, &Arc::clone(&waiting.sent)) {
                Ok(()) => {
                    pool.remove(sender, nonce);
                    ready.extend(rank(pool, sender, nonce.saturating_add(1)));
                }
                Err(Unfit::NotNow) => {}
                Err(Unfit::Never(reason)) => {
                    tracing::debug!(%sender, nonce, reason, "a transaction can not be mined");
                    pool.remove(sender, nonce);
                }
            }
        }
        self.seal(settings, draft);
        pool.prune(&self.state);
    }

    fn include(&mut self, settings: &Settings, draft: &mut OpenBlock, sent: &Arc<Received>) -> Result<(), Unfit> {
        if draft.gas_used.saturating_add(sent.gas()) > settings.gas_limit {
            return Err(Unfit::NotNow);
        }
        let outcome =
            run(self.now(), settings.chain_id, block_env(&draft.header), sent.env()).map_err(
                |failure| match failure {
                    EVMError::Transaction(
                        InvalidTransaction::NonceTooHigh { .. } | InvalidTransaction::GasPriceLessThanBasefee,
                    ) => Unfit::NotNow,
                    other => Unfit::Never(words(&other)),
                },
            )?;
        self.state.apply(outcome.state, &mut draft.undo);
        let result = outcome.result;
        let gas_used = result.tx_gas_used();
        draft.gas_used += gas_used;
        let created = (sent.envelope.kind() == TxKind::Create).then(|| sent.from.create(sent.nonce()));
        let base_fee = draft.header.base_fee_per_gas.unwrap_or_default();
        let (ok, logs) = (result.is_success(), result.into_logs());
        let first_log = draft.logs;
        draft.logs += logs.len();
        draft.receipts.push(Receipt {
            ok,
            gas_used,
            cumulative_gas_used: draft.gas_used,
            gas_price: sent.envelope.effective_gas_price(Some(base_fee)),
            contract: created,
            bloom: logs_bloom(&logs),
            logs,
            first_log,
        });
        draft.transactions.push(Arc::clone(sent));
        Ok(())
    }

    fn seal(&mut self, settings: &Settings, draft: OpenBlock) {
        let mut header = draft.header;
        header.state_root = self.state.commitment(self.head().header.state_root, &draft.undo);
        let block = Block::seal(header, draft.transactions, draft.receipts, draft.usual_base_fee);
        self.index(&block);
        self.blocks.push(block);
        self.undos.push(draft.undo);
        if self.undos.len() > settings.history.saturating_add(SLACK) {
            self.undos.drain(..SLACK);
        }
    }

    fn index(&mut self, block: &Block) {
        let height = block.header.number;
        self.heights.insert(block.hash, height);
        for (index, sent) in block.transactions.iter().enumerate() {
            self.places.insert(sent.hash, (height, index));
        }
    }

    fn unindex(&mut self, block: &Block) {
        self.heights.remove(&block.hash);
        for sent in &block.transactions {
            self.places.remove(&sent.hash);
        }
    }

    /// Removes the newest blocks.
    pub(super) fn roll_back(&mut self, depth: u64, history: usize) -> Result<Removed, String> {
        let kept = self.undos.len().min(history);
        let Some(depth) = usize::try_from(depth).ok().filter(|depth| *depth <= kept) else {
            return Err(format!("only the newest {kept} blocks can be replaced"));
        };
        let state = self.state.clone();
        let blocks = self.blocks.split_off(self.blocks.len() - depth);
        let undos = self.undos.split_off(self.undos.len() - depth);
        for undo in undos.iter().rev() {
            self.state.undo(undo.clone());
        }
        for block in &blocks {
            self.unindex(block);
        }
        Ok(Removed { blocks, undos, state })
    }

    /// As if nothing had happened.
    pub(super) fn restore(&mut self, removed: Removed) {
        for block in &removed.blocks {
            self.index(block);
        }
        self.blocks.extend(removed.blocks);
        self.undos.extend(removed.undos);
        self.state = removed.state;
    }

    /// Mines one block more than was removed. Hands back what should wait in the pool again.
    pub(super) fn branch_off(
        &mut self,
        settings: &Settings,
        removed: &Removed,
        fate: Fate,
        with: &[Arc<Received>],
        factor: u32,
        now: Timestamp,
    ) -> Result<Vec<Arc<Received>>, String> {
        self.branch += 1;
        let orphans = removed.blocks.iter().flat_map(|block| &block.transactions);
        let mut orphans: Vec<_> = orphans.filter(|old| with.iter().all(|new| new.hash != old.hash)).cloned().collect();
        let count = removed.blocks.len() + 1;
        for number in 1..=count {
            let mut draft = self.draft(settings, factor, now);
            if number == 1 {
                for sent in with {
                    self.include(settings, &mut draft, sent).map_err(|unfit| match unfit {
                        Unfit::NotNow => format!("{} does not fit into the new branch's first block", sent.hash),
                        Unfit::Never(reason) => format!("{} can not be mined: {reason}", sent.hash),
                    })?;
                }
            }
            if number == count && fate == Fate::Moved {
                let mut late = Vec::new();
                for sent in orphans {
                    if let Err(Unfit::NotNow) = self.include(settings, &mut draft, &sent) {
                        late.push(sent);
                    }
                }
                orphans = late;
            }
            self.seal(settings, draft);
        }
        Ok(match fate {
            Fate::Dropped => Vec::new(),
            Fate::Moved | Fate::Returned => orphans,
        })
    }

    /// For the genesis: changes the state without a block.
    pub(super) fn execute_at_genesis(
        state: &mut State,
        chain_id: u64,
        header: &Header,
        transaction: revm::context::TxEnv,
    ) -> Result<bool, Failure> {
        let outcome = run(At { state, later: &[], blocks: &[] }, chain_id, block_env(header), transaction)?;
        let ok = outcome.result.is_success();
        state.apply(outcome.state, &mut Undo::default());
        Ok(ok)
    }
}

pub(super) fn blank_header(settings: &Settings, base_fee: u64, branch: u64) -> Header {
    Header {
        beneficiary: MINER,
        gas_limit: settings.gas_limit,
        base_fee_per_gas: Some(base_fee),
        extra_data: Bytes::from(format!("bursar devnet {branch}").into_bytes()),
        withdrawals_root: Some(EMPTY_WITHDRAWALS),
        blob_gas_used: Some(0),
        excess_blob_gas: Some(0),
        parent_beacon_block_root: Some(B256::ZERO),
        requests_hash: Some(NO_REQUESTS),
        ..Header::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use crate::evm::{EvmDevnet, Settings};

    #[test]
    fn journals_are_kept_for_the_history_and_no_longer() {
        let mut devnet = EvmDevnet::new(Settings { history: 5, ..Settings::default() });
        devnet.mine(500, Timestamp::from_micros(0));
        assert!(devnet.chain.undos.len() <= 5 + SLACK);
        assert!(devnet.chain.at(495, 5).is_some() && devnet.chain.at(494, 5).is_none());
    }
}
