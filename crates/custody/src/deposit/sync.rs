//! The balance sync of the sources: all wallets are looked at on their chain, in turn, by somebody who need not have the chain.
//!
//! The worker of a chain looks at what changed, because a credit waits for that, and at a few wallets with each block. Where there are many wallets, that
//! takes days to come round. This one only comes round. What it finds is what the worker's own looks find: an entry and a finding, never a balance that is
//! overwritten; and what it says is held against the chain's own books under their lock, so any number of these may run beside any worker.

use std::sync::Arc;

use chain::{Chain, ChainError};
use domain::{ChainKind, Clock, GroupId};
use store::Db;
use store::entry::{ChainRow, Holding, LookedBatch};
use tx::Family;

use super::look::{Eye, at_once};
use super::owner::Checked;
use super::read::{Coins, House};
use super::watching::groups_of_users;
use super::work::{DepositError, coins_of, family_of};
use crate::wallet::Pinned;

/// What one round has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    pub looked: LookedBatch,
    /// These were the last wallets; the next round begins anew.
    pub came_round: bool,
    /// What kept coins from being looked at. They are looked at again when the sync comes round to them.
    pub waits: Option<ChainError>,
}

impl Synced {
    pub fn add(&mut self, other: Self) {
        self.looked.same += other.looked.same;
        self.looked.differing += other.looked.differing;
        self.came_round = other.came_round;
        if other.waits.is_some() {
            self.waits = other.waits;
        }
    }
}

pub struct BalanceSync<'a> {
    db: &'a Db,
    chain: &'a dyn Chain,
    row: ChainRow,
    pinned: Arc<Pinned>,
    coins: Coins,
    house: House,
    checked: Checked,
    family: Family,
    groups: Vec<GroupId>,
}

impl<'a> BalanceSync<'a> {
    pub fn new(db: &'a Db, chain: &'a dyn Chain, row: ChainRow, pinned: Arc<Pinned>) -> Result<Self, DepositError> {
        let family = family_of(&row)?;
        let coins = coins_of(&row, family)?;
        let house = House::of(&pinned, &row.name);
        let groups = groups_of_users(&pinned, family);
        Ok(Self { db, chain, row, pinned, coins, house, checked: Checked::default(), family, groups })
    }

    /// The next wallets, where whoever looked last has stopped. On Bitcoin there is nothing to look at: its coins follow from its blocks.
    pub async fn round(&self, clock: &dyn Clock) -> Result<Synced, DepositError> {
        let after = self.db.looked_after(self.row.id).await?;
        let (synced, next) = self.look_behind(after, clock).await?;
        self.db.set_visited_after(self.row.id, next).await?;
        Ok(synced)
    }

    /// All wallets once, whoever else is on the way.
    pub async fn all(&self, clock: &dyn Clock) -> Result<Synced, DepositError> {
        let (mut sum, mut after) = (Synced::default(), 0);
        loop {
            let (synced, next) = self.look_behind(after, clock).await?;
            sum.add(synced);
            if sum.came_round {
                return Ok(sum);
            }
            after = next;
        }
    }

    async fn look_behind(&self, after: i64, clock: &dyn Clock) -> Result<(Synced, i64), DepositError> {
        let idle = Synced { came_round: true, ..Synced::default() };
        if self.row.kind == ChainKind::Bitcoin {
            return Ok((idle, 0));
        }
        if self.db.chain_standing(&self.row).await?.is_none() {
            return Err(DepositError::NotBegun { chain: self.row.name.to_string() });
        }
        // Nothing is proven yet: there is no block to look at.
        let Some(block) = self.db.proven_block(&self.row).await? else { return Ok((idle, after)) };
        let eye = self.eye();
        let (wanted, next) = eye.in_turn(after, at_once(self.row.kind)).await?;
        let mut synced = Synced { came_round: next == 0, ..Synced::default() };
        let active = |(listing, _): &(_, _)| self.row.listing(*listing).is_some_and(|listing| listing.active);
        for (listing, holdings) in wanted.into_iter().filter(active) {
            let holdings: Vec<Holding> = holdings.into_iter().collect();
            for some in holdings.chunks(at_once(self.row.kind)) {
                match eye.look_at(block, listing, some, clock.now()).await {
                    Ok(batch) => {
                        synced.looked.same += batch.same;
                        synced.looked.differing += batch.differing;
                    }
                    // A coin whose contract answers nonsense must not keep the others from being looked at.
                    Err(DepositError::Chain(error)) => synced.waits = Some(error),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((synced, next))
    }

    fn eye(&self) -> Eye<'_> {
        Eye {
            db: self.db,
            chain: self.chain,
            row: &self.row,
            pinned: &self.pinned,
            coins: &self.coins,
            house: &self.house,
            checked: &self.checked,
            family: self.family,
            groups: &self.groups,
            worker: None,
        }
    }
}
