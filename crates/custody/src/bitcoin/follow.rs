//! Keeps the store in step with the blocks and the waiting transactions that a quorum of nodes has.
//!
//! | call | does |
//! |---|---|
//! | [`Follow::step`] | a few blocks forward, or back to where the chains part; then a few blocks of an open rescan |
//! | [`Follow::rescan`] | blocks once more, for addresses that were added since, until none is left |
//! | [`Follow::look`] | shows the store the transactions that wait in the mempool |
//! | [`Follow::restore`] | all of these, after a backup was put back or a wallet imported, until nothing is open |
//!
//! **A transaction that leaves a mempool has not failed.** Only another transaction that takes its inputs makes it invalid.
//!
//! **A transaction that was shown too early is shown again.** It may spend an output of a block that is not read yet,
//! or contradict a block that is about to go: one step later it means something else to the store.

use std::collections::{HashMap, HashSet};

use chain::bitcoin::BitcoinChain;
use chain::follow::{CommonAncestor, LOOK_BACK, common_ancestor};
use chain::{Chain, ChainError};
use domain::Timestamp;
use store::Db;
use store::utxo::{Hash, NewTx, UtxoError, UtxoRefusal, WalletId};
use tx::{BlockRef, TxHash};

use super::read::{BadBytes, block_hash_of, block_of_bytes, hash_of_block, hash_of_tx, tx_hash_of, tx_of_bytes};

#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("the chain cannot be followed now")]
    Chain(#[from] ChainError),
    #[error("the store did not take it")]
    Store(#[from] UtxoError),
    #[error("block {height} cannot be read")]
    Block { height: u64, source: BadBytes },
    #[error("not even block {height}, the oldest that the store has, is in the chain any more")]
    ForkTooDeep { height: u32 },
}

impl FollowError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Chain(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Block { .. } => "CHAIN_CALL_REFUSED",
            Self::ForkTooDeep { .. } => "CHAIN_FORK_TOO_DEEP",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The store has all blocks of the chain, or the quorum has not come as far as the store.
    Idle,
    /// Up to this height.
    Forward(u32),
    /// Back to this height: the blocks above were on another branch.
    Back(u32),
    /// A rescan has read up to this height; so many blocks are left.
    Again { height: u32, left: u32 },
}

/// What became of the unconfirmed transactions of a wallet that was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// A quorum has them in the mempool.
    pub waiting: Vec<Hash>,
    /// A block has them, or another transaction took their inputs.
    pub settled: Vec<Hash>,
    /// No quorum has them in the mempool. They may still be mined: broadcast them again, or replace them.
    pub unheard: Vec<Hash>,
}

pub struct Follow<'a> {
    pub(super) db: &'a Db,
    pub(super) chain: &'a BitcoinChain,
    /// The first block of interest, when the store has none yet, or an import cannot be believed.
    birthday: u32,
    /// The waiting transactions that the store was shown when it had all blocks of the node, and that need not be shown
    /// again. Those that left the mempool are taken out, so there are no more than the mempool has.
    seen: HashSet<TxHash>,
    /// How many addresses there were when `seen` began.
    addresses: Option<i64>,
    /// Where the nodes are, when the last step found them behind the store.
    behind: Option<Behind>,
    /// The nodes' height, if the store had not all of their blocks when the mempool was last read.
    missed: Option<u64>,
}

/// The nodes are lower than the store, or on a branch that is not as long as the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    pub store: u32,
    pub nodes: u64,
}

/// With so many blocks before it a follower has the store keep in memory what is watched.
const WATCH_FROM: u64 = 32;

/// So many waiting transactions are shown in one database transaction, which is over soon.
const SEEN_AT_ONCE: usize = 500;

/// An empty store begins so many blocks below the first of interest: a fork there has something to go back to.
const BEFORE_BIRTHDAY: u32 = 100;

/// A restore or a rescan reads so many blocks in one step.
const CATCH_UP_BLOCKS: u32 = 32;

/// A restore reads the mempool so often, if each time the chain has grown meanwhile, before it gives up.
const CATCH_UP_TRIES: u32 = 10;

impl<'a> Follow<'a> {
    pub fn new(db: &'a Db, chain: &'a BitcoinChain, birthday: u32) -> Self {
        Self { db, chain, birthday, seen: HashSet::new(), addresses: None, behind: None, missed: None }
    }

    /// The nodes are behind the store, as the last step found: none of its blocks is undone for that, and none is new.
    pub const fn behind(&self) -> Option<Behind> {
        self.behind
    }

    /// The nodes' height, if the store lacked blocks of theirs when the mempool was last read.
    pub const fn missed(&self) -> Option<u64> {
        self.missed
    }

    /// At most `most` blocks forward, or back to where the chains part. When there is nothing new, as many blocks of a rescan
    /// that is open.
    pub async fn step(&mut self, most: u32, at: Timestamp) -> Result<Step, FollowError> {
        match self.step_of_chain(most, at).await {
            Ok(Step::Idle) => self.step_of_rescan(most, at).await,
            Err(error) => Err(self.told(error, at).await?),
            step => step,
        }
    }

    /// A fork that cannot be followed is for people: it stands among the findings.
    async fn told(&self, error: FollowError, at: Timestamp) -> Result<FollowError, FollowError> {
        let parted = match &error {
            FollowError::ForkTooDeep { height } => Some(*height),
            FollowError::Store(UtxoError::Refused(UtxoRefusal::ReorgTooDeep { pruned })) => Some(*pruned),
            FollowError::Chain(_) | FollowError::Store(_) | FollowError::Block { .. } => None,
        };
        if let Some(height) = parted {
            let why = format!("the chain parts from ours below block {height}, the oldest that is kept");
            self.db.tell_parted(&why, at).await.map_err(UtxoError::from)?;
        }
        Ok(error)
    }

    async fn step_of_chain(&mut self, most: u32, at: Timestamp) -> Result<Step, FollowError> {
        let tip = self.chain.head().await?.tip;
        self.behind = None;
        let next = match self.db.tip().await? {
            None => self.first_block().await?,
            Some((height, hash)) => match self.common_ancestor(block_ref(height, hash)).await? {
                CommonAncestor::At(block) if block.height < u64::from(height) => {
                    let common = height_of(block)?;
                    let stale = self.stale_parents(common).await?;
                    return match self.db.disconnect_blocks((height, hash), common, &stale, at).await {
                        Ok(_) => Ok(Step::Back(common)),
                        // Another follower was quicker, and may be on the right branch by now.
                        Err(UtxoError::Refused(UtxoRefusal::NotOnTip(_))) => Ok(Step::Idle),
                        Err(error) => Err(error.into()),
                    };
                }
                CommonAncestor::At(_) => height.saturating_add(1),
                CommonAncestor::AboveQuorum { .. } => {
                    self.behind = Some(Behind { store: height, nodes: tip.height });
                    return Ok(Step::Idle);
                }
                CommonAncestor::BelowOldest { oldest } => {
                    return Err(FollowError::ForkTooDeep { height: height_of(oldest)? });
                }
            },
        };
        let last = u64::from(next).saturating_add(u64::from(most.max(1)) - 1).min(tip.height);
        let heights: Vec<u64> = (u64::from(next)..=last).collect();
        if heights.is_empty() {
            return Ok(Step::Idle);
        }
        let headers = match self.chain.headers(&heights).await {
            Err(ChainError::BlockMissing { .. }) => return Ok(Step::Idle),
            headers => headers?,
        };
        if tip.height.saturating_sub(u64::from(next)) >= WATCH_FROM {
            self.db.watch_in_memory();
        }
        let mut reached = None;
        for header in headers {
            match self.connect(header.at(), at).await? {
                Some(height) => reached = Some(height),
                // The chain has changed while it was read: the next step finds the fork.
                None => break,
            }
        }
        Ok(reached.map_or(Step::Idle, Step::Forward))
    }

    /// Where a store without blocks begins: below the birthday, and not above what an import has not covered.
    async fn first_block(&self) -> Result<u32, FollowError> {
        let unread = self.db.wallets().await?.into_iter().filter_map(|wallet| wallet.unread_from).min();
        Ok(self.birthday.saturating_sub(BEFORE_BIRTHDAY).min(unread.unwrap_or(u32::MAX)))
    }

    async fn connect(&self, block: BlockRef, at: Timestamp) -> Result<Option<u32>, FollowError> {
        let bytes = match self.chain.block_bytes(block).await {
            Err(ChainError::BlockMissing { .. }) => return Ok(None),
            bytes => bytes?,
        };
        let height = height_of(block)?;
        let nonsense = |source| FollowError::Block { height: block.height, source };
        let (stored, transactions) = block_of_bytes(height, &bytes).map_err(nonsense)?;
        match self.db.connect_block(&stored, &transactions, at).await {
            Ok(_) => Ok(Some(height)),
            Err(UtxoError::Refused(UtxoRefusal::NotOnTip(_))) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn common_ancestor(&self, tip: BlockRef) -> Result<CommonAncestor, FollowError> {
        common_ancestor(self.chain, tip, |block| self.stored_below(block)).await
    }

    /// Blocks of the store below one of them, newest first. Imported ones may lie far apart.
    async fn stored_below(&self, block: BlockRef) -> Result<Vec<BlockRef>, FollowError> {
        let Some((next, hash)) = self.db.block_below(height_of(block)?).await? else { return Ok(Vec::new()) };
        let lowest = next.saturating_sub(u32::from(LOOK_BACK) - 1);
        let mut blocks = self.db.block_hashes(lowest, next).await?;
        // Another follower may have disconnected them just now. None at all would mean that `block` is the oldest.
        if blocks.is_empty() {
            blocks.push((next, hash));
        }
        Ok(blocks.into_iter().rev().map(|(height, hash)| block_ref(height, hash)).collect())
    }

    /// Shows the store the transactions that wait in the mempool and were not shown before. Says how many these were.
    pub async fn look(&mut self, at: Timestamp) -> Result<usize, FollowError> {
        Ok(self.show_waiting(at).await?.shown)
    }

    async fn show_waiting(&mut self, at: Timestamp) -> Result<Look, FollowError> {
        // Before the mempool is read: an address that is added from here on is noticed the next time.
        let followed = self.db.followed().await?;
        if self.addresses.replace(followed.addresses) != Some(followed.addresses) {
            self.seen.clear();
        }
        let waiting = self.chain.mempool().await?;
        let head = self.chain.head().await?.tip;
        let tip = self.db.tip().await?;
        let level = tip.map(|(_, hash)| hash) == Some(hash_of_block(head.hash));
        // Waiting transactions may spend outputs that the rescan has found: they are all shown again before it ends.
        let rescanned = tip.filter(|(height, _)| followed.rescan_next.is_some_and(|next| next > *height));
        if rescanned.is_some() {
            self.seen.clear();
        }
        let all: HashSet<Hash> = waiting.iter().copied().map(hash_of_tx).collect();
        // One that lost its inputs to another and is there all the same has to be looked at again.
        let beaten: HashSet<Hash> = self.db.contested().await?.into_iter().collect();
        let is_new = |hash: &&TxHash| !self.seen.contains(*hash) || beaten.contains(&hash_of_tx(**hash));
        let new: Vec<TxHash> = waiting.iter().filter(is_new).copied().collect();
        let mut gone: HashSet<TxHash> = HashSet::new();
        for some in new.chunks(SEEN_AT_ONCE) {
            let bytes = self.chain.waiting(some).await?;
            gone.extend(some.iter().zip(&bytes).filter(|(_, raw)| raw.is_none()).map(|(hash, _)| *hash));
            self.show(bytes.into_iter().flatten(), &all, at).await?;
        }
        let (shown, missed) = (new.len() - gone.len(), head.height);
        let waiting: HashSet<TxHash> = waiting.into_iter().filter(|hash| !gone.contains(hash)).collect();
        self.show_parents(&waiting, &all, at).await?;
        // A store that lacks blocks of the node may not see yet that a transaction concerns it: it is shown again.
        if level {
            self.seen.clone_from(&waiting);
        } else {
            self.seen.retain(|hash| waiting.contains(hash));
        }
        if let Some(tip) = rescanned.filter(|_| level) {
            self.db.end_rescan(tip).await?;
        }
        self.missed = (!level).then_some(missed);
        Ok(Look { shown, waiting })
    }

    /// Transactions whose bytes cannot be read, or that no chain could hold, are passed over: a node that makes one up
    /// must not hide the others by it.
    pub(super) async fn show(
        &self,
        bytes: impl Iterator<Item = Vec<u8>>,
        waiting: &HashSet<Hash>,
        at: Timestamp,
    ) -> Result<(), FollowError> {
        let transactions: Vec<NewTx> =
            bytes.filter_map(|raw| tx_of_bytes(&raw).ok()).filter(|one| !one.coinbase).collect();
        let transactions = parents_first(transactions);
        match self.db.see_mempool(&transactions, waiting, at).await {
            Err(UtxoError::Refused(UtxoRefusal::BadTransaction(_))) => {}
            seen => return Ok(seen.map(|_| ())?),
        }
        for one in transactions {
            match self.db.see_mempool(&[one], waiting, at).await {
                Ok(_) | Err(UtxoError::Refused(UtxoRefusal::BadTransaction(_))) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads blocks once more, from one on to the last, because an address was added or a wallet imported since. What they
    /// pay us is held until then. Interrupted, it goes on with any follower's steps. `progress` is told each height that was
    /// reached, and how many are left.
    pub async fn rescan(
        &mut self,
        from: u32,
        at: Timestamp,
        progress: impl FnMut(u32, u32),
    ) -> Result<(), FollowError> {
        self.db.begin_rescan(from).await?;
        self.catch_up(at, progress).await.map(|_| ())
    }

    async fn step_of_rescan(&mut self, most: u32, at: Timestamp) -> Result<Step, FollowError> {
        let next = self.db.followed().await?.rescan_next;
        let (Some(next), Some((tip, _))) = (next, self.db.tip().await?) else { return Ok(Step::Idle) };
        if next > tip {
            return Ok(Step::Idle);
        }
        let heights: Vec<u64> = (next..=tip.min(next.saturating_add(most.max(1) - 1))).map(u64::from).collect();
        let headers = match self.chain.headers(&heights).await {
            Err(ChainError::BlockMissing { .. }) => return Ok(Step::Idle),
            headers => headers?,
        };
        let mut reached = None;
        for header in headers {
            let block = header.at();
            let height = height_of(block)?;
            match self.read_again(height, block, at).await {
                Ok(()) => reached = Some(height),
                // The chain has changed while it was read: the next step finds the fork.
                Err(FollowError::Chain(ChainError::BlockMissing { .. })) => break,
                Err(FollowError::Store(UtxoError::Refused(UtxoRefusal::NotOnTip(_)))) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(reached.map_or(Step::Idle, |height| Step::Again { height, left: tip.saturating_sub(height) }))
    }

    async fn read_again(&self, height: u32, block: BlockRef, at: Timestamp) -> Result<(), FollowError> {
        let nonsense = |source| FollowError::Block { height: block.height, source };
        let bytes = self.chain.block_bytes(block).await?;
        let (stored, transactions) = block_of_bytes(height, &bytes).map_err(nonsense)?;
        self.db.read_block_again(&stored, &transactions, at).await?;
        Ok(())
    }

    /// Undoes the blocks that an import took from its source and that the chain does not have.
    async fn undo_stale(&self, at: Timestamp) -> Result<(), FollowError> {
        let mut from = 0;
        loop {
            let blocks = self.db.imported_blocks(from).await?;
            let Some((last, _)) = blocks.last() else { return Ok(()) };
            from = last.saturating_add(1);
            let heights: Vec<u64> = blocks.iter().map(|(height, _)| u64::from(*height)).collect();
            let headers = self.chain.headers(&heights).await?;
            let stale = |((_, hash), header): &((u32, Hash), &chain::Header)| *hash != hash_of_block(header.hash);
            let stale = blocks.into_iter().zip(&headers).filter(stale).map(|(block, _)| block);
            self.db.undo_imported(&stale.collect::<Vec<_>>(), at).await?;
        }
    }

    /// After a backup was put back, or a wallet imported. Nothing of the wallet is selected until the chain was read,
    /// with the blocks that an import has not seen, and the mempool. If the nodes cannot show all of it, the wallet
    /// stays closed. `progress` is told each height that is read again, and how many are left.
    pub async fn restore(
        &mut self,
        wallet: WalletId,
        at: Timestamp,
        progress: impl FnMut(u32, u32),
    ) -> Result<Restored, FollowError> {
        self.db.begin_restore(wallet, at).await?;
        let before = self.db.unconfirmed(wallet).await?;
        // This comes first: if the import brought only such blocks, a step would find none of them in the chain.
        self.undo_stale(at).await?;
        let wallets = self.db.wallets().await?;
        let unread_from = wallets.iter().find(|one| one.id == wallet).and_then(|one| one.unread_from);
        // Blocks above the last one are connected now, and so are read for all addresses. Those below the birthday count too:
        // it says where a new wallet begins, and this one brought a history.
        if let (Some(from), Some((tip, _))) = (unread_from, self.db.tip().await?)
            && from <= tip
        {
            self.db.begin_rescan(from).await?;
        }
        let heard = self.catch_up(at, progress).await?;
        let now: Vec<Hash> = self.db.unconfirmed(wallet).await?.into_iter().map(|(hash, ..)| hash).collect();
        let open: HashSet<Hash> = now.iter().copied().collect();
        let settled = before.into_iter().map(|(hash, ..)| hash).filter(|hash| !open.contains(hash)).collect();
        let (waiting, unheard) = now.into_iter().partition(|hash| heard.contains(&tx_hash_of(*hash)));
        self.db.finish_restore(wallet, unread_from).await?;
        Ok(Restored { waiting, settled, unheard })
    }

    /// Steps until the store has the node's last block, no rescan is open, and the mempool of that moment was shown, which is
    /// returned.
    async fn catch_up(
        &mut self,
        at: Timestamp,
        mut progress: impl FnMut(u32, u32),
    ) -> Result<HashSet<TxHash>, FollowError> {
        let mut missed = 0;
        for _ in 0..CATCH_UP_TRIES {
            loop {
                match self.step(CATCH_UP_BLOCKS, at).await? {
                    Step::Idle => break,
                    Step::Again { height, left } => progress(height, left),
                    Step::Forward(_) | Step::Back(_) => {}
                }
            }
            self.seen.clear();
            let look = self.show_waiting(at).await?;
            match self.missed {
                Some(height) => missed = height,
                None => match self.db.followed().await?.rescan_next {
                    None => return Ok(look.waiting),
                    Some(next) => missed = u64::from(next),
                },
            }
        }
        Err(ChainError::BlockMissing { height: missed }.into())
    }
}

pub(super) fn block_ref(height: u32, hash: Hash) -> BlockRef {
    BlockRef { height: u64::from(height), hash: block_hash_of(hash) }
}

/// The height as the store has it.
fn height_of(block: BlockRef) -> Result<u32, FollowError> {
    let too_high = |_| FollowError::Block { height: block.height, source: BadBytes::height() };
    u32::try_from(block.height).map_err(too_high)
}

/// What one reading of the mempool has shown.
struct Look {
    shown: usize,
    waiting: HashSet<TxHash>,
}

/// Parents before their children, as honest nodes list them. A child may concern us only because it spends what its
/// parent pays us: shown before the parent, it would be passed over.
fn parents_first(transactions: Vec<NewTx>) -> Vec<NewTx> {
    let places: HashMap<Hash, usize> = transactions.iter().enumerate().map(|(at, one)| (one.hash, at)).collect();
    let mut placed = vec![false; transactions.len()];
    let mut order = Vec::with_capacity(transactions.len());
    for first in 0..transactions.len() {
        let mut open = vec![first];
        while let Some(&at) = open.last() {
            let mut parents = transactions[at].inputs.iter().filter_map(|input| places.get(&input.hash));
            match parents.find(|parent| !placed[**parent]).filter(|_| !placed[at]) {
                Some(parent) => open.push(*parent),
                None => {
                    if !placed[at] {
                        order.push(at);
                    }
                    placed[at] = true;
                    open.pop();
                }
            }
        }
    }
    let mut transactions: Vec<Option<NewTx>> = transactions.into_iter().map(Some).collect();
    order.into_iter().filter_map(|at| transactions[at].take()).collect()
}
