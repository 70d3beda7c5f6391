//! One worker of one chain: it passes blocks, proves them, looks at balances, books what is deep enough, and settles what is deeper.
//!
//! Each step commits by itself, and what it did is in the database. A worker that dies anywhere is followed by another that
//! begins where the rows are. Before anything is credited, its block was proven and whose it is was derived.

use std::sync::Arc;

use chain::follow::{FollowError, Follower, Step};
use chain::{Chain, ChainError, Scan};
use domain::random::Random;
use domain::utxo::Hash;
use domain::{ChainKind, Clock, Timestamp};
use store::deposit::{MOST_DUE, PostedBatch};
use store::entry::{ChainRow, CursorError, Finding, FindingKind, LookedBatch, Proof, Worker};
use store::{Db, StoreError};
use tx::{BlockHash, BlockRef, Family};

use super::look::Looks;
use super::owner::{Checked, attribute};
use super::read::{BadCoins, Coins, House, passed};
use super::watching::Watching;
use crate::wallet::{Pinned, WalletError, is_outdated, watch_house};

/// Blocks of the trail: how deep a fork can be found.
const TRAIL: usize = 2_000;

/// Blocks that are passed in one step when the worker is behind.
const MOST_PASSED: u64 = 100;

/// Blocks that are proven in one step.
const MOST_PROVEN: u64 = 50;

/// Batches that are booked in one round: as much as one step proves, where blocks are full of payments to us.
const MOST_BATCHES: usize = 4;

/// After so many credits the tables may have outgrown what the database knows of them.
const MANY: usize = 1_000;

/// A worker's hold on its chain, renewed with every step.
const LEASE_MICROS: i64 = 120_000_000;

#[derive(Debug, thiserror::Error)]
pub enum DepositError {
    #[error("the chain cannot be read now")]
    Chain(#[from] ChainError),
    #[error("the chain cannot be followed")]
    Follow(#[from] FollowError),
    #[error("the chain's books were not written")]
    Cursor(#[from] CursorError),
    #[error("the database cannot be read")]
    Store(#[from] StoreError),
    #[error("the house's wallets cannot be watched")]
    House(#[from] WalletError),
    #[error("chain {chain} cannot be watched")]
    Coins { chain: String, source: BadCoins },
    #[error("chain {chain}: there are no wallets of network {network}")]
    Network { chain: String, network: String },
    #[error("the payments of chain {chain} are not kept yet")]
    NotBegun { chain: String },
    /// Somebody has applied another treasury file.
    #[error("the settings of chain {chain} have changed; it is read with the new ones from now on")]
    Changed { chain: String },
}

impl DepositError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Chain(error) => error.code(),
            Self::Follow(error) => error.code(),
            Self::Cursor(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::House(error) => error.code(),
            Self::Coins { .. } => "CHAIN_COINS",
            Self::Network { .. } => "CHAIN_WRONG_NETWORK",
            Self::NotBegun { .. } => "CHAIN_NOT_BEGUN",
            Self::Changed { .. } => "CHAIN_CHANGED",
        }
    }
}

/// What one round of work has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// Blocks that were passed.
    pub passed: usize,
    /// The height that it went back to.
    pub back_to: Option<u64>,
    /// Old blocks that were read again.
    pub read_again: usize,
    /// Blocks that were proven, and what that found.
    pub proven: usize,
    pub proof: Proof,
    /// Balances that the chain was asked for.
    pub looked: LookedBatch,
    pub posted: PostedBatch,
    /// Deposits that say that they are proven, and wait for their credit.
    pub marked: usize,
    /// Deposits that are final, at once with their credit or later.
    pub settled: usize,
    /// What keeps blocks from being proven, or balances from being looked at. Nothing that depends on it is credited meanwhile.
    pub waits: Option<ChainError>,
}

impl Worked {
    /// There was something to do, so there may be more.
    pub fn is_busy(&self) -> bool {
        *self != Self { waits: self.waits.clone(), ..Self::default() }
    }
}

pub struct DepositWorker<'a> {
    pub(super) db: &'a Db,
    pub(super) chain: &'a dyn Chain,
    pub(super) row: ChainRow,
    pub(super) pinned: Arc<Pinned>,
    pub(super) coins: Coins,
    pub(super) house: House,
    pub(super) checked: Checked,
    pub(super) family: Family,
    pub(super) watching: Watching,
    pub(super) worker: Worker,
    /// `None`: the trail has to be read again.
    follower: Option<Follower>,
    looks: Looks,
    /// Blocks that are proven in one step, and read again: fewer after one that failed. Old blocks that no node has must not slow
    /// down what is new.
    most_proven: u64,
    most_reread: u64,
    /// What was credited since the tables were looked after.
    credited: usize,
}

impl<'a> DepositWorker<'a> {
    /// Takes the chain under a name. Its payments must be kept already: see [`begin`].
    pub async fn take(
        db: &'a Db,
        chain: &'a dyn Chain,
        row: ChainRow,
        pinned: Arc<Pinned>,
        name: &str,
        random: &mut Random,
        now: Timestamp,
    ) -> Result<Self, DepositError> {
        let family = family_of(&row)?;
        let coins = coins_of(&row, family)?;
        let house = House::of(&pinned, &row.name);
        if db.chain_standing(&row).await?.is_none() {
            return Err(DepositError::NotBegun { chain: row.name.to_string() });
        }
        watch_house(db, &pinned, (&row.name, family), now).await?;
        let watching = Watching::new(&pinned, &row.name, family, &house, random);
        let worker = db.take_chain(row.id, name, now, lease(now)).await?;
        Ok(Self {
            db,
            chain,
            row,
            pinned,
            coins,
            house,
            checked: Checked::default(),
            family,
            watching,
            worker,
            follower: None,
            looks: Looks::default(),
            most_proven: MOST_PROVEN,
            most_reread: MOST_PROVEN,
            credited: 0,
        })
    }

    /// One round: as much of each as one step takes. When it fails nothing is half done, and the next round begins at the rows.
    pub async fn round(&mut self, clock: &dyn Clock) -> Result<Worked, DepositError> {
        let now = clock.now();
        self.db.renew_chain(&self.worker, lease(now), now).await?;
        // Blocks that were passed without knowing a new coin or group would have to be read again.
        if is_outdated(self.db, &self.row, &self.pinned).await? {
            return Err(DepositError::Changed { chain: self.row.name.to_string() });
        }
        if let Some(why) = self.db.chain_standing(&self.row).await?.and_then(|standing| standing.halted) {
            return Err(CursorError::Halted { why }.into());
        }
        let mut worked = Worked::default();
        if self.row.kind != ChainKind::Bitcoin {
            // What the trail in memory says may be more than what was written.
            if let Err(error) = self.pass(now, &mut worked).await {
                self.follower = None;
                return Err(self.told(error, now).await?);
            }
            self.renew(clock).await?;
        }
        // Whatever keeps newer blocks from being proven, what is proven is booked, and what is gone is taken back.
        if self.row.kind != ChainKind::Bitcoin {
            match self.prove(now, &mut worked).await {
                Err(DepositError::Chain(error)) => worked.waits = Some(error),
                done => done?,
            }
            self.renew(clock).await?;
        }
        let behind = self.next_to_prove().await?.is_some();
        let mut looks = std::mem::take(&mut self.looks);
        let booked = self.book(&mut looks, behind, clock, &mut worked).await;
        self.looks = looks;
        let analysed = self.analyse_after_growth().await;
        if analysed? {
            self.credited = 0;
        }
        booked?;
        self.credited += worked.posted.credited;
        if self.row.kind != ChainKind::Bitcoin {
            self.rescan(now, &mut worked).await?;
        }
        Ok(worked)
    }

    /// Says whether it was time to.
    async fn analyse_after_growth(&self) -> Result<bool, StoreError> {
        let many = self.credited >= MANY;
        if many {
            self.db.analyse_after_growth().await?;
        }
        Ok(many)
    }

    /// Looks, books all that is due, and marks what waits. A worker that is behind books several batches, and leaves it to the booking of
    /// the rest to say that it is proven.
    async fn book(
        &self,
        looks: &mut Looks,
        behind: bool,
        clock: &dyn Clock,
        worked: &mut Worked,
    ) -> Result<(), DepositError> {
        if self.row.kind != ChainKind::Bitcoin {
            match self.look(looks, clock).await {
                Err(DepositError::Chain(error)) => worked.waits = Some(error),
                done => worked.looked = done?,
            }
        }
        for _ in 0..MOST_BATCHES {
            self.renew(clock).await?;
            let (posted, is_all) = self.post(clock.now()).await?;
            worked.posted.add(&posted);
            if is_all {
                if !behind && !looks.are_behind {
                    // What is still not booked waits for more blocks, for nodes or for people, and says that it is proven.
                    worked.marked = self.db.mark_proven(&self.worker, clock.now()).await?;
                }
                break;
            }
        }
        worked.settled = worked.posted.settled + self.db.settle_deposits(&self.worker, &self.row, clock.now()).await?;
        Ok(())
    }

    /// The blocks that were passed and are not proven. `None`: there are none.
    async fn next_to_prove(&self) -> Result<Option<(u64, u64)>, StoreError> {
        if self.row.kind == ChainKind::Bitcoin {
            return Ok(None);
        }
        let Some(standing) = self.db.chain_standing(&self.row).await? else { return Ok(None) };
        let (Some(proven), Some((scanned, _))) = (standing.proven_height, standing.scanned) else { return Ok(None) };
        Ok((proven < scanned).then_some((proven + 1, scanned)))
    }

    /// A round may take minutes when nodes are slow: the lease goes on from now, not from its beginning.
    pub(super) async fn renew(&self, clock: &dyn Clock) -> Result<(), CursorError> {
        let now = clock.now();
        self.db.renew_chain(&self.worker, lease(now), now).await
    }

    /// Proves blocks, so many at most, and says how many the next time. After a failure fewer are asked for: what takes too long
    /// together may be read one by one.
    async fn proven(&self, from: u64, to: u64, most: u64) -> (Result<Scan, ChainError>, u64) {
        let to = to.min(from.saturating_add(most - 1));
        let scan = self.chain.prove_blocks(from, to, self.watching.watched()).await;
        let next = if scan.is_ok() { (most * 2).min(MOST_PROVEN) } else { (most / 2).max(1) };
        (scan, next)
    }

    /// Lets another worker begin at once.
    pub async fn leave(&self, now: Timestamp) -> Result<(), StoreError> {
        self.db.leave_chain(&self.worker, now).await
    }

    /// The scan: one node's word, which finds work.
    async fn pass(&mut self, now: Timestamp, worked: &mut Worked) -> Result<(), DepositError> {
        let mut follower = match self.follower.take() {
            Some(follower) => follower,
            None => {
                let trail = self.db.trail(self.row.id).await?;
                let block = |(height, hash): (u64, Hash)| BlockRef { height, hash: BlockHash(hash.0) };
                Follower::resume(trail.into_iter().map(block), TRAIL)?
            }
        };
        // In this order: who is paid in a block up to this tip had a row before.
        let tip = self.chain.head().await?.tip;
        self.watching.load(self.db).await?;
        match follower.step_to(self.chain, tip, self.watching.watched(), MOST_PASSED).await? {
            Step::Idle => {}
            // Another block is there by now, and who is paid in it may have got the address after these were loaded.
            Step::Forward(scan) if scan.headers.iter().any(|one| one.height == tip.height && one.hash != tip.hash) => {
                return Ok(());
            }
            Step::Forward(scan) => {
                let found = passed(&scan, &self.coins, &self.house, false);
                self.db.pass_blocks(&self.worker, &found, now).await?;
                worked.passed = found.blocks.len();
            }
            Step::Back { to, .. } => {
                self.db.undo_blocks(&self.worker, to.height, now).await?;
                worked.back_to = Some(to.height);
            }
        }
        self.follower = Some(follower);
        Ok(())
    }

    /// Old blocks that people want read again, by the proof alone: nothing is believed of one node.
    async fn rescan(&mut self, now: Timestamp, worked: &mut Worked) -> Result<(), DepositError> {
        let standing = self.db.chain_standing(&self.row).await?;
        let Some((from, until)) = standing.and_then(|standing| standing.rescan) else { return Ok(()) };
        self.watching.load(self.db).await?;
        let (scan, next) = self.proven(from, until, self.most_reread).await;
        self.most_reread = next;
        let scan = match scan {
            Ok(scan) => scan,
            // What is new goes on meanwhile.
            Err(error) => {
                worked.waits = Some(error);
                return Ok(());
            }
        };
        let found = passed(&scan, &self.coins, &self.house, true);
        match self.db.rescan_blocks(&self.worker, &found, now).await {
            Ok(late) => {
                worked.read_again = found.blocks.len();
                worked.proof.taken_in += late;
                Ok(())
            }
            // The chain has changed meanwhile, or the order has.
            Err(CursorError::NotOnTrail) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A fork below the trail stops the chain: people must say how far to go back.
    async fn told(&self, error: DepositError, now: Timestamp) -> Result<DepositError, StoreError> {
        if let DepositError::Follow(FollowError::ForkTooDeep { oldest }) = &error {
            let why = format!("the chain parts from ours below block {}, the oldest that is kept", oldest.height);
            self.db.halt_chain(self.row.id, Some(&why), now).await?;
            let finding = Finding { kind: FindingKind::Halted, subject: self.row.name.to_string(), detail: why };
            self.db.add_findings(self.row.id, &[finding], now).await?;
        }
        Ok(error)
    }

    /// The proof: what a quorum has, of the blocks that were passed.
    async fn prove(&mut self, now: Timestamp, worked: &mut Worked) -> Result<(), DepositError> {
        let Some((from, to)) = self.next_to_prove().await? else { return Ok(()) };
        // The blocks are fixed by the rows; only now are the newest addresses loaded.
        self.watching.load(self.db).await?;
        let (scan, most) = self.proven(from, to, self.most_proven).await;
        self.most_proven = most;
        let scan = scan?;
        let found = passed(&scan, &self.coins, &self.house, true);
        match self.db.prove_blocks(&self.worker, &found, now).await {
            Ok(proof) => {
                worked.proven = found.blocks.len();
                worked.proof.taken_in += proof.taken_in;
                worked.proof.disproven += proof.disproven;
                Ok(())
            }
            // The quorum has other blocks there: the scan finds the fork.
            Err(CursorError::NotOnTrail) => Err(ChainError::BlockMissing { height: from }.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Books a batch of what is deep enough. Says whether that was all.
    async fn post(&self, now: Timestamp) -> Result<(PostedBatch, bool), DepositError> {
        let Some(proven) = self.db.chain_standing(&self.row).await?.and_then(|standing| standing.proven_height) else {
            return Ok((PostedBatch::default(), true));
        };
        let due = self.db.due_entries(&self.row, proven).await?;
        let whose = attribute(self.db, (&self.pinned, &self.checked), (&self.house, self.family), &due).await?;
        let ids: Vec<i64> = due.iter().map(|entry| entry.id).collect();
        let is_all = i64::try_from(ids.len()).is_ok_and(|count| count < MOST_DUE);
        Ok((self.db.post_entries(&self.worker, &self.row, &ids, &whose, now).await?, is_all))
    }
}

/// The payments of a chain are kept from its settled block on, or from the height given. The same again changes nothing.
pub async fn begin(
    db: &Db,
    chain: &dyn Chain,
    row: &ChainRow,
    from: Option<u64>,
    now: Timestamp,
) -> Result<(), DepositError> {
    coins_of(row, family_of(row)?)?;
    if db.chain_standing(row).await?.is_some() {
        return Ok(());
    }
    let head = chain.head().await?;
    // Too few nodes have said what is settled: the books must not begin at the wrong end of the chain.
    let unsettled = ChainError::NoQuorum { wanted: 1, agreed: 0 };
    let first = from.or(head.settled).ok_or(unsettled)?.min(head.tip.height);
    let headers = chain.headers(&[first]).await?;
    let hash = headers.first().map(|header| Hash(header.hash.0)).ok_or(ChainError::BlockMissing { height: first })?;
    db.begin_chain(row, first, hash, now).await?;
    Ok(())
}

fn lease(now: Timestamp) -> Timestamp {
    Timestamp::from_micros(now.micros().saturating_add(LEASE_MICROS))
}

pub(super) fn family_of(row: &ChainRow) -> Result<Family, DepositError> {
    let unknown = || DepositError::Network { chain: row.name.to_string(), network: row.network.clone() };
    Family::of_chain(row.kind, &row.network).ok_or_else(unknown)
}

pub(super) fn coins_of(row: &ChainRow, family: Family) -> Result<Coins, DepositError> {
    Coins::of(row, family).map_err(|source| DepositError::Coins { chain: row.name.to_string(), source })
}
