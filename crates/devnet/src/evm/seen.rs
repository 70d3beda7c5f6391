//! The chain as one endpoint sees it: behind, lying, or on a branch of its own.

use std::borrow::Cow;
use std::collections::BTreeMap;

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, Log, LogData, U256};

use super::EvmDevnet;
use super::block::{Block, Receipt};
use super::parameters::{BlockId, RpcError};
use super::state::At;
use crate::{Lie, View};

/// The same blocks under other hashes, from some height on.
#[derive(Clone, Debug, Default)]
pub(super) struct Contradiction {
    from: u64,
    blocks: Vec<Other>,
    heights: BTreeMap<B256, u64>,
}

#[derive(Clone, Debug)]
struct Other {
    real: B256,
    header: Header,
    hash: B256,
}

impl Contradiction {
    /// Catches up with the chain, also after a reorganisation.
    pub(super) fn follow(&mut self, from: u64, blocks: &[Block]) {
        self.from = from;
        let start = usize::try_from(from).unwrap_or(usize::MAX);
        while let Some(last) = self.blocks.last() {
            let real = blocks.get(start.saturating_add(self.blocks.len() - 1));
            if real.is_some_and(|block| block.hash == last.real) {
                break;
            }
            self.heights.remove(&last.hash);
            self.blocks.pop();
        }
        for block in blocks.iter().skip(start.saturating_add(self.blocks.len())) {
            let mut header = block.header.clone();
            header.extra_data = Bytes::from_static(b"bursar devnet, another branch");
            if let Some(parent) = self.blocks.last() {
                header.parent_hash = parent.hash;
            }
            let hash = header.hash_slow();
            self.heights.insert(hash, header.number);
            self.blocks.push(Other { real: block.hash, header, hash });
        }
    }

    fn get(&self, height: u64) -> Option<&Other> {
        self.blocks.get(usize::try_from(height.checked_sub(self.from)?).ok()?)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub devnet: &'a EvmDevnet,
    head: u64,
    lie: Lie,
    contradiction: Option<&'a Contradiction>,
}

impl<'a> Seen<'a> {
    pub(super) fn new(devnet: &'a EvmDevnet, view: &View) -> Self {
        Self {
            devnet,
            head: devnet.chain.height().saturating_sub(view.lag),
            lie: view.lie,
            contradiction: view.contradict.and_then(|from| devnet.contradictions.get(&from)),
        }
    }

    pub(super) const fn head(&self) -> u64 {
        self.head
    }

    /// Blocks look as they are.
    pub(super) fn blocks_are_real(&self) -> bool {
        let shown_otherwise = matches!(self.lie, Lie::TransactionLeftOut | Lie::ValueInflated | Lie::Swapped);
        self.contradiction.is_none() && !shown_otherwise
    }

    /// Receipts look as they are.
    pub(super) fn receipts_are_real(&self) -> bool {
        self.contradiction.is_none() && self.lie == Lie::Truth
    }

    /// Mined transactions are not found.
    pub(super) fn hides_transactions(&self) -> bool {
        self.lie == Lie::Missing
    }

    /// How many of a block's transactions it shows.
    pub(super) fn shown(&self, block: &Block) -> usize {
        let left_out = usize::from(self.lie == Lie::TransactionLeftOut);
        block.transactions.len().saturating_sub(left_out)
    }

    /// Which transaction it shows at a place of the block.
    pub(super) fn placed(&self, block: &Block, index: usize) -> usize {
        let all = block.transactions.len();
        match all.checked_sub(index) {
            Some(2) if self.lie == Lie::Swapped => index + 1,
            Some(1) if self.lie == Lie::Swapped && all > 1 => index - 1,
            _ => index,
        }
    }

    /// What it says that a mined transaction carries.
    pub(super) fn value(&self, value: U256) -> U256 {
        value.saturating_mul(U256::from(if self.lie == Lie::ValueInflated { 10 } else { 1 }))
    }

    pub(super) fn block(&self, height: u64) -> Option<&'a Block> {
        self.devnet.chain.block(height).filter(|_| height <= self.head)
    }

    pub(super) fn header(&self, block: &'a Block) -> &'a Header {
        let other = self.contradiction.and_then(|other| other.get(block.header.number));
        other.map_or(&block.header, |other| &other.header)
    }

    pub(super) fn hash(&self, block: &Block) -> B256 {
        let other = self.contradiction.and_then(|other| other.get(block.header.number));
        other.map_or(block.hash, |other| other.hash)
    }

    pub(super) fn height_of(&self, hash: B256) -> Option<u64> {
        let other = self.contradiction.and_then(|other| other.heights.get(&hash).copied());
        let real = || {
            let height = self.devnet.chain.height_of(hash)?;
            let denied = self.contradiction.is_some_and(|other| height >= other.from);
            (!denied).then_some(height)
        };
        other.or_else(real).filter(|height| *height <= self.head)
    }

    pub(super) fn height(&self, id: BlockId) -> Option<u64> {
        match id {
            BlockId::Number(height) => (height <= self.head).then_some(height),
            BlockId::Hash(hash) => self.height_of(hash),
            BlockId::Latest | BlockId::Pending => Some(self.head),
            BlockId::Earliest => Some(0),
            BlockId::Safe => Some(self.head.saturating_sub(self.devnet.settings.safe_depth)),
            BlockId::Finalized => Some(self.head.saturating_sub(self.devnet.settings.finalized_depth)),
        }
    }

    pub(super) fn at(&self, id: BlockId) -> Result<(&'a Block, At<'a>), RpcError> {
        let block = self.height(id).and_then(|height| self.block(height));
        let block = block.ok_or_else(|| RpcError::server("header not found"))?;
        let at = self.devnet.chain.at(block.header.number, self.devnet.settings.history);
        let at = at.ok_or_else(|| {
            let root = block.header.state_root;
            let digits = root.to_string();
            let digits = digits.trim_start_matches("0x");
            RpcError::server(&format!("missing trie node {digits} (path ) state {root} is not available"))
        })?;
        Ok((block, at))
    }

    /// Where a transaction was mined, as far as this endpoint tells.
    pub(super) fn place(&self, transaction: B256) -> Option<(&'a Block, usize)> {
        if self.hides_transactions() {
            return None;
        }
        let (height, index) = self.devnet.chain.place(transaction)?;
        let block = self.block(height)?;
        (index < self.shown(block)).then_some((block, index))
    }

    pub(super) fn succeeded(&self, receipt: &Receipt) -> bool {
        receipt.ok != (self.lie == Lie::Flipped)
    }

    pub(super) fn logs<'b>(&self, block: &Block, receipt: &'b Receipt) -> Cow<'b, [Log]> {
        match self.lie {
            Lie::LogLeftOut => {
                let last = block.receipts.iter().rev().find(|one| !one.logs.is_empty());
                let here = last.is_some_and(|last| last.first_log == receipt.first_log) && !receipt.logs.is_empty();
                Cow::Borrowed(&receipt.logs[..receipt.logs.len() - usize::from(here)])
            }
            Lie::Truth | Lie::TransactionLeftOut | Lie::ValueInflated | Lie::Swapped => Cow::Borrowed(&receipt.logs),
            // What is said to have failed has no logs, and what failed had none.
            Lie::Missing | Lie::Flipped => Cow::Borrowed(&[]),
            Lie::Inflated => Cow::Owned(receipt.logs.iter().map(inflated).collect()),
        }
    }

    /// The nonce that the sender's next transaction must have, when all that waits is mined.
    pub(super) fn pending_nonce(&self, sender: Address) -> u64 {
        self.devnet.pool.next_nonce(sender, self.devnet.chain.state().account(sender).nonce)
    }
}

/// Ten times the amount, where the data is one.
fn inflated(log: &Log) -> Log {
    let Some(amount) = (log.data.data.len() == 32).then(|| U256::from_be_slice(&log.data.data)) else {
        return log.clone();
    };
    let data = amount.saturating_mul(U256::from(10)).to_be_bytes::<32>();
    Log {
        address: log.address,
        data: LogData::new_unchecked(log.data.topics().to_vec(), Bytes::copy_from_slice(&data)),
    }
}
