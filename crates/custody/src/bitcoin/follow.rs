//! Keeps the store in step with the chain: blocks as a quorum has them, and of the mempool what a quorum has.
//!
//! | call | does |
//! |---|---|
//! | [`Follow::step`] | a few blocks forward, or back to where the chains part |
//! | [`Follow::rescan`] | blocks once more, for addresses that were added since |
//! | [`Follow::look`] | shows the store what waits in the mempool |
//! | [`Follow::restore`] | after a backup was put back or a wallet imported: all of it, until nothing is open |
//!
//! **What leaves a mempool has not failed.** Only a transaction that takes its inputs says anything about it.
//!
//! **What was shown too early is shown again.** A transaction that spends what we know nothing of yet, because its block is
//! not read, or that contradicts a block which is about to go, means something else to the store one step later.

use std::collections::{HashMap, HashSet};

use chain::bitcoin::BitcoinChain;
use chain::{BlockRef, Chain, ChainError, TxHash};
use domain::Timestamp;
use store::Db;
use store::utxo::{Hash, NewTx, UtxoError, UtxoRefusal, WalletId};

use super::read::{BadBytes, block_of_bytes, hash_of_block, tx_hash_of, tx_of_bytes};

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
    /// The store has all that the chain has.
    Idle,
    /// Up to this height.
    Forward(u32),
    /// Back to this height: the blocks above were on another branch.
    Back(u32),
}

/// What became of the unconfirmed transactions of a wallet that was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub waiting: Vec<Hash>,
    /// Something else took their inputs, or a block has them.
    pub settled: Vec<Hash>,
    /// No node asked has heard of them. They may still be mined: broadcast them again, or replace them.
    pub unheard: Vec<Hash>,
}

pub struct Follow<'a> {
    db: &'a Db,
    chain: &'a BitcoinChain,
    /// The first block of interest, when the store has none yet, or an import cannot be believed.
    birthday: u32,
    /// What waits in the mempool and was shown to a store that had the node's blocks: no larger than the mempool.
    seen: HashSet<TxHash>,
}

/// So many blocks a quorum is asked about at once.
const LOOK_BACK: u32 = 32;

/// So many waiting transactions go into one transaction of the store.
const SEEN_AT_ONCE: usize = 500;

/// So many blocks a quorum is asked about at once, where all of them are read.
const RESCAN_AT_ONCE: usize = 500;

/// So many blocks are read before the first of interest.
const BEFORE_BIRTHDAY: u32 = 100;

/// So often a restore waits for a chain that grows while it is read.
const CATCH_UP_TRIES: u32 = 10;

impl<'a> Follow<'a> {
    pub fn new(db: &'a Db, chain: &'a BitcoinChain, birthday: u32) -> Self {
        Self { db, chain, birthday, seen: HashSet::new() }
    }

    /// At most `most` blocks forward, or back to where the chains part.
    pub async fn step(&mut self, most: u32, at: Timestamp) -> Result<Step, FollowError> {
        let tip = self.chain.head().await?.tip;
        let known = self.db.tip().await?;
        let next = match known {
            // Some blocks more, so that a fork at the beginning has something to go back to.
            None => self.birthday.saturating_sub(BEFORE_BIRTHDAY),
            Some((height, _)) => match self.common(height).await? {
                Some(common) if common < height => {
                    self.db.disconnect_blocks(common, at).await?;
                    return Ok(Step::Back(common));
                }
                // The node is behind us, or its quorum is: that says nothing about our blocks.
                None => return Ok(Step::Idle),
                Some(_) => height.saturating_add(1),
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
        let mut reached = None;
        for header in headers {
            match self.connect(header.at(), at).await? {
                Some(height) => reached = Some(height),
                // The chain has moved while we read it: the next step finds where.
                None => break,
            }
        }
        Ok(reached.map_or(Step::Idle, Step::Forward))
    }

    async fn connect(&self, block: BlockRef, at: Timestamp) -> Result<Option<u32>, FollowError> {
        let bytes = match self.chain.block_bytes(block).await {
            Err(ChainError::BlockMissing { .. }) => return Ok(None),
            bytes => bytes?,
        };
        let nonsense = |source| FollowError::Block { height: block.height, source };
        let height = u32::try_from(block.height).map_err(|_| nonsense(BadBytes::height()))?;
        let (stored, transactions) = block_of_bytes(height, &bytes).map_err(nonsense)?;
        match self.db.connect_block(&stored, &transactions, at).await {
            Ok(_) => Ok(Some(height)),
            Err(UtxoError::Refused(UtxoRefusal::NotOnTip(_))) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The highest of our blocks that a quorum has, from a height down. `None`: the quorum's chain does not reach there.
    async fn common(&self, from: u32) -> Result<Option<u32>, FollowError> {
        let mut highest = from;
        loop {
            let lowest = highest.saturating_sub(LOOK_BACK - 1);
            let ours = self.db.block_hashes(lowest, highest).await?;
            let heights: Vec<u64> = ours.iter().map(|(height, _)| u64::from(*height)).collect();
            let theirs = match self.chain.headers(&heights).await {
                Err(ChainError::BlockMissing { .. }) => return Ok(None),
                theirs => theirs?,
            };
            let same = ours.iter().zip(&theirs).rev().find(|((_, hash), header)| *hash == hash_of_block(header.hash));
            if let Some(((height, _), _)) = same {
                return Ok(Some(*height));
            }
            let oldest = ours.first().map_or(highest, |(height, _)| *height);
            // Imported ones lie far apart.
            highest = self.db.block_below(lowest).await?.ok_or(FollowError::ForkTooDeep { height: oldest })?.0;
        }
    }

    /// Shows the store what waits in the mempool and was not shown before. Says how many transactions that were.
    pub async fn look(&mut self, at: Timestamp) -> Result<usize, FollowError> {
        Ok(self.show_waiting(at).await?.shown)
    }

    async fn show_waiting(&mut self, at: Timestamp) -> Result<Look, FollowError> {
        let waiting = self.chain.mempool().await?;
        let head = self.chain.head().await?.tip;
        let level = self.db.tip().await?.map(|(_, hash)| hash) == Some(hash_of_block(head.hash));
        let new: Vec<TxHash> = waiting.iter().filter(|hash| !self.seen.contains(*hash)).copied().collect();
        let mut gone: HashSet<TxHash> = HashSet::new();
        for some in new.chunks(SEEN_AT_ONCE) {
            let bytes = self.chain.waiting(some).await?;
            gone.extend(some.iter().zip(&bytes).filter(|(_, raw)| raw.is_none()).map(|(hash, _)| *hash));
            self.show(bytes.into_iter().flatten(), at).await?;
        }
        let (shown, missed) = (new.len() - gone.len(), head.height);
        let waiting: HashSet<TxHash> = waiting.into_iter().filter(|hash| !gone.contains(hash)).collect();
        // To a store that has not the node's blocks, a transaction may mean nothing that means something once it has.
        if level {
            self.seen.clone_from(&waiting);
        } else {
            self.seen.retain(|hash| waiting.contains(hash));
        }
        Ok(Look { shown, waiting, missed: (!level).then_some(missed) })
    }

    /// What cannot be read, or cannot be, is nobody's payment; a node that lies does not hide the others.
    async fn show(&self, bytes: impl Iterator<Item = Vec<u8>>, at: Timestamp) -> Result<(), FollowError> {
        let transactions: Vec<NewTx> =
            bytes.filter_map(|raw| tx_of_bytes(&raw).ok()).filter(|one| !one.coinbase).collect();
        let transactions = parents_first(transactions);
        match self.db.see_transactions(&transactions, at).await {
            Err(UtxoError::Refused(UtxoRefusal::BadTransaction(_))) => {}
            seen => return Ok(seen.map(|_| ())?),
        }
        for one in transactions {
            match self.db.see_transactions(&[one], at).await {
                Ok(_) | Err(UtxoError::Refused(UtxoRefusal::BadTransaction(_))) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads blocks that the store has, or that lie below those, once more, for what has become ours since: an address was
    /// added, a wallet imported. `progress` is told each height, and how many are left.
    pub async fn rescan(
        &mut self,
        from: u32,
        to: u32,
        at: Timestamp,
        mut progress: impl FnMut(u32, u32),
    ) -> Result<(), FollowError> {
        let last = to.min(self.db.tip().await?.map_or(0, |(height, _)| height));
        // What waits may spend what is found now.
        self.seen.clear();
        let heights: Vec<u32> = (from..=last).collect();
        for some in heights.chunks(RESCAN_AT_ONCE) {
            let asked: Vec<u64> = some.iter().copied().map(u64::from).collect();
            for (height, header) in some.iter().zip(self.chain.headers(&asked).await?) {
                self.read_again(*height, header.at(), at).await?;
                progress(*height, last - height);
            }
        }
        Ok(())
    }

    async fn read_again(&self, height: u32, block: BlockRef, at: Timestamp) -> Result<(), FollowError> {
        let nonsense = |source| FollowError::Block { height: block.height, source };
        let bytes = self.chain.block_bytes(block).await?;
        let (stored, transactions) = block_of_bytes(height, &bytes).map_err(nonsense)?;
        self.db.read_block_again(&stored, &transactions, at).await?;
        Ok(())
    }

    /// An import believes its source. Blocks that it named, and that the chain does not have, go.
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

    /// After a backup was put back, or a wallet imported: nothing of it is selected until the chain and the mempool were
    /// read, of the chain also what an import has not seen. When the nodes cannot show all of it, the wallet stays as it
    /// is. `progress` is told each height that is read again, and how many are left.
    pub async fn restore(
        &mut self,
        wallet: WalletId,
        at: Timestamp,
        progress: impl FnMut(u32, u32),
    ) -> Result<Restored, FollowError> {
        self.db.begin_restore(wallet, at).await?;
        let before = self.db.unconfirmed(wallet).await?;
        // First: where an import brought nothing but such blocks, there is nothing to go on from.
        self.undo_stale(at).await?;
        let followed = self.db.tip().await?;
        let mut heard = self.catch_up(at).await?;
        let wallets = self.db.wallets().await?;
        let unread_from = wallets.iter().find(|one| one.id == wallet).and_then(|one| one.unread_from);
        // What was connected just now was read for all addresses.
        if let (Some(from), Some((to, _))) = (unread_from, followed) {
            // Of an import that has not come to a good end nothing is known; its owner may know more.
            let from = if from == 0 { self.birthday } else { from };
            self.rescan(from, to, at, progress).await?;
            heard = self.catch_up(at).await?;
        }
        let now: Vec<Hash> = self.db.unconfirmed(wallet).await?.into_iter().map(|(hash, ..)| hash).collect();
        let open: HashSet<Hash> = now.iter().copied().collect();
        let settled = before.into_iter().map(|(hash, ..)| hash).filter(|hash| !open.contains(hash)).collect();
        let (waiting, unheard) = now.into_iter().partition(|hash| heard.contains(&tx_hash_of(*hash)));
        self.db.finish_restore(wallet, unread_from).await?;
        Ok(Restored { waiting, settled, unheard })
    }

    /// Until the store has the node's last block, and was shown the mempool as it was then.
    async fn catch_up(&mut self, at: Timestamp) -> Result<HashSet<TxHash>, FollowError> {
        let mut missed = 0;
        for _ in 0..CATCH_UP_TRIES {
            while self.step(LOOK_BACK, at).await? != Step::Idle {}
            self.seen.clear();
            let look = self.show_waiting(at).await?;
            match look.missed {
                None => return Ok(look.waiting),
                Some(height) => missed = height,
            }
        }
        Err(ChainError::BlockMissing { height: missed }.into())
    }
}

/// What a look at the mempool has shown.
struct Look {
    shown: usize,
    waiting: HashSet<TxHash>,
    /// The node's height, when the store was not there yet.
    missed: Option<u64>,
}

/// Nodes list parents before their children. One that does not must not hide a child, which concerns us only by what its
/// parent pays us.
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
