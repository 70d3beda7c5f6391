//! The chains as they are: transactions, blocks and branches. Nothing here knows what our program makes of them.

use std::collections::VecDeque;
use std::sync::Arc;

use chain::{Header, Place};
use domain::random::Random;
use domain::{RawAmount, Timestamp};
use tx::{Address, BlockHash, BlockRef, TxHash};

/// What is paid with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Money {
    /// The chain's own coin, which fees are paid in.
    Native,
    /// The token that is listed.
    Token,
    /// A token that is not listed: anybody can make one.
    Air,
    /// A token that is listed, and whose contract says in its logs what it does not do: nobody ever has any of it.
    Hollow,
}

impl Money {
    /// What does what it says.
    pub const LISTED: [Self; 2] = [Self::Native, Self::Token];
}

/// One payment inside of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub place: Place,
    pub from: Address,
    pub to: Address,
    pub money: Money,
    pub raw: RawAmount,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub hash: TxHash,
    /// It ran to its end. If not, it cost its fee and moved nothing.
    pub ok: bool,
    pub sender: Address,
    pub fee: RawAmount,
    pub moves: Vec<Move>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub height: u64,
    pub hash: BlockHash,
    pub parent: BlockHash,
    pub time: Timestamp,
    pub transactions: Vec<Arc<Transaction>>,
}

impl Block {
    pub const fn at(&self) -> BlockRef {
        BlockRef { height: self.height, hash: self.hash }
    }

    pub const fn header(&self) -> Header {
        Header { height: self.height, hash: self.hash, parent: self.parent, time: self.time }
    }
}

pub(crate) fn bytes(random: &mut Random) -> [u8; 32] {
    let mut bytes = [0; 32];
    for part in bytes.chunks_exact_mut(8) {
        part.copy_from_slice(&random.next_u64().to_be_bytes());
    }
    bytes
}

/// So many of the newest blocks are kept. No worker is ever so far behind, and no branch so long.
const KEPT: usize = 4_096;

/// Blocks of which each is the parent of the next. Never empty.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    blocks: VecDeque<Arc<Block>>,
}

impl Branch {
    pub fn new(first: Arc<Block>) -> Self {
        Self { blocks: VecDeque::from([first]) }
    }

    pub fn tip(&self) -> &Arc<Block> {
        self.blocks.back().expect("a branch is never empty")
    }

    pub fn lowest(&self) -> u64 {
        self.blocks.front().map_or(0, |block| block.height)
    }

    pub fn at(&self, height: u64) -> Option<&Arc<Block>> {
        let within = height.checked_sub(self.lowest())?;
        self.blocks.get(usize::try_from(within).ok()?)
    }

    pub fn has(&self, block: BlockRef) -> bool {
        self.at(block.height).is_some_and(|mine| mine.hash == block.hash)
    }

    pub fn push(&mut self, block: Arc<Block>) {
        self.blocks.push_back(block);
        if self.blocks.len() > KEPT {
            self.blocks.pop_front();
        }
    }

    /// The newest block, unless it is the only one.
    pub fn pop(&mut self) -> Option<Arc<Block>> {
        if self.blocks.len() > 1 { self.blocks.pop_back() } else { None }
    }

    /// The height of the newest block that both have.
    pub fn fork_with(&self, other: &Self) -> u64 {
        let mut height = self.tip().height.min(other.tip().height);
        while height > self.lowest() && self.at(height).map(|block| block.hash) != other.at(height).map(|one| one.hash)
        {
            height -= 1;
        }
        height
    }

    /// Takes over the blocks of another branch up to a height. Gives the blocks that were left, newest first.
    pub fn follow(&mut self, other: &Self, up_to: u64) -> Vec<Arc<Block>> {
        let fork = self.fork_with(other);
        let mut left = Vec::new();
        while self.tip().height > fork {
            left.extend(self.pop());
        }
        for height in fork + 1..=up_to.min(other.tip().height) {
            if let Some(block) = other.at(height) {
                self.push(Arc::clone(block));
            }
        }
        left
    }

    /// Forgets the newest blocks above a height.
    pub fn cut(&mut self, height: u64) {
        while self.tip().height > height && self.pop().is_some() {}
    }

    /// The newest blocks above a height, oldest first.
    pub fn above(&self, height: u64) -> impl Iterator<Item = &Arc<Block>> {
        let from = usize::try_from((height + 1).saturating_sub(self.lowest())).unwrap_or(usize::MAX);
        self.blocks.iter().skip(from)
    }
}
