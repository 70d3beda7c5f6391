//! Walks a chain block by block and finds the fork when it reorganises.
//!
//! A follower keeps the trail of the newest blocks that it has passed. A scanned block whose parent is not the end of
//! the trail means that the trail and the node disagree. Who is right, the quorum says: the fork is the newest block of
//! the trail that a quorum still has. A chain that merely seems shorter than the trail is no fork: a node may lag.
//!
//! New blocks are one node's word, but no step goes on from a block that no quorum has.
//!
//! [`common_ancestor`] is the search for the fork. It takes blocks from wherever they are kept, so the Bitcoin wallet
//! searches the blocks of its store by it too.

mod ancestor;

use std::collections::VecDeque;
use std::future::ready;

pub use ancestor::{CommonAncestor, LOOK_BACK, common_ancestor};

use tx::BlockRef;

use crate::block::{Header, Scan};
use crate::client::Chain;
use crate::endpoint::CallError;
use crate::error::ChainError;
use crate::watch::Watched;

#[derive(Debug)]
pub struct Follower {
    /// Oldest first, no height left out, never empty.
    trail: VecDeque<BlockRef>,
    keep: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing new.
    Idle,
    /// The next blocks. They are on the trail now.
    Forward(Scan),
    /// Blocks of the trail are no longer in the chain; they are off the trail now.
    Back {
        /// The newest block that still is.
        to: BlockRef,
        /// Newest first.
        gone: Vec<BlockRef>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    #[error("the chain cannot be followed now")]
    Chain(#[from] ChainError),
    #[error("the trail has no blocks, or leaves a height out")]
    BadTrail,
    #[error("not even block {} of the trail is in the chain any more", oldest.height)]
    ForkTooDeep { oldest: BlockRef },
}

impl FollowError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Chain(error) => error.code(),
            Self::BadTrail => "CHAIN_TRAIL_BROKEN",
            Self::ForkTooDeep { .. } => "CHAIN_FORK_TOO_DEEP",
        }
    }
}

impl Follower {
    /// From where an earlier one was. `keep`: how many blocks the trail holds, so how deep a fork can be found.
    pub fn resume(trail: impl IntoIterator<Item = BlockRef>, keep: usize) -> Result<Self, FollowError> {
        let trail: VecDeque<BlockRef> = trail.into_iter().collect();
        let mut follower = Self { trail, keep: keep.max(1) };
        let pairs = follower.trail.iter().zip(follower.trail.iter().skip(1));
        if follower.trail.is_empty()
            || !pairs.into_iter().all(|(one, next)| one.height.checked_add(1) == Some(next.height))
        {
            return Err(FollowError::BadTrail);
        }
        follower.forget();
        Ok(follower)
    }

    /// From a height on: its own block is the first of the trail, and is not scanned.
    pub async fn start(chain: &dyn Chain, height: u64, keep: usize) -> Result<Self, FollowError> {
        let headers = chain.headers(&[height]).await?;
        Self::resume(headers.iter().map(|header| header.at()), keep)
    }

    /// Oldest first.
    pub fn trail(&self) -> impl DoubleEndedIterator<Item = BlockRef> {
        self.trail.iter().copied()
    }

    /// The newest block that was passed.
    pub fn at(&self) -> Result<BlockRef, FollowError> {
        self.trail.back().copied().ok_or(FollowError::BadTrail)
    }

    /// One step: at most `most` blocks forward, or back to a fork. When it fails nothing has changed.
    pub async fn step(&mut self, chain: &dyn Chain, watched: &Watched, most: u64) -> Result<Step, FollowError> {
        let tip = chain.head().await?.tip;
        self.step_to(chain, tip, watched, most).await
    }

    /// The same up to a tip that was asked for before. Whoever loads new addresses in between watches all that can be paid in
    /// a block up to that tip.
    pub async fn step_to(
        &mut self,
        chain: &dyn Chain,
        tip: Header,
        watched: &Watched,
        most: u64,
    ) -> Result<Step, FollowError> {
        let at = self.at()?;
        if tip.height <= at.height {
            let known = self.trail.iter().rev().find(|block| block.height == tip.height).copied();
            return match known.filter(|known| known.hash != tip.hash) {
                Some(contradicted) => self.find_fork(chain, contradicted).await,
                // A tip below the trail is that of nodes that lag, and says nothing about our blocks.
                None => Ok(Step::Idle),
            };
        }
        let next = at.height.saturating_add(1);
        // A block that a quorum has stays on the trail: see `ask_quorum`.
        let room = u64::try_from(self.keep).unwrap_or(u64::MAX).saturating_sub(1);
        let mut last = tip.height.min(at.height.saturating_add(most.min(room).max(1)));
        let scan = loop {
            match chain.scan(next, last, watched).await {
                // More than the nodes can give in the time that there is: asked for the same again, we would never move
                // on.
                Err(ChainError::Unreachable(CallError::Timeout { .. } | CallError::TooLong { .. })) if last > next => {
                    last = next + (last - next) / 2;
                }
                scan => break scan?,
            }
        };
        match scan.headers.first() {
            None => Ok(Step::Idle),
            Some(first) if first.parent == at.hash => match ask_quorum(chain, at).await? {
                CommonAncestor::At(_) => {
                    self.trail.extend(scan.headers.iter().map(|header| header.at()));
                    self.forget();
                    Ok(Step::Forward(scan))
                }
                CommonAncestor::AboveQuorum { .. } => Ok(Step::Idle),
                CommonAncestor::BelowOldest { .. } => self.find_fork(chain, at).await,
            },
            Some(_) => self.find_fork(chain, at).await,
        }
    }

    /// Looks for the newest block of the trail that a quorum has, from `contradicted` down. One node has another block
    /// in its place: if the quorum has it, there is no fork, and the blocks above are not gone either.
    async fn find_fork(&mut self, chain: &dyn Chain, contradicted: BlockRef) -> Result<Step, FollowError> {
        let older = |than: BlockRef| {
            let below = self.trail.iter().rev().filter(|block| block.height < than.height);
            ready(Ok::<_, FollowError>(below.take(usize::from(LOOK_BACK)).copied().collect()))
        };
        match common_ancestor(chain, contradicted, older).await? {
            CommonAncestor::At(block) if block == contradicted => Ok(Step::Idle),
            CommonAncestor::At(block) => Ok(self.cut(block)),
            // The quorum's chain ends below: it lags, or its branch has not caught up with ours. It contradicts nothing yet.
            CommonAncestor::AboveQuorum { .. } => Ok(Step::Idle),
            CommonAncestor::BelowOldest { oldest } => Err(FollowError::ForkTooDeep { oldest }),
        }
    }

    fn cut(&mut self, to: BlockRef) -> Step {
        let mut gone = Vec::new();
        while let Some(last) = self.trail.back().copied().filter(|last| last.height > to.height) {
            self.trail.pop_back();
            gone.push(last);
        }
        Step::Back { to, gone }
    }

    fn forget(&mut self) {
        let extra = self.trail.len().saturating_sub(self.keep);
        self.trail.drain(..extra);
    }
}

/// Whether a quorum has this one block. Without this question one node alone could lead the follower along a branch of
/// its own until nothing else is on the trail, and there would be no way back.
async fn ask_quorum(chain: &dyn Chain, block: BlockRef) -> Result<CommonAncestor, FollowError> {
    common_ancestor(chain, block, |_| ready(Ok(Vec::new()))).await
}
