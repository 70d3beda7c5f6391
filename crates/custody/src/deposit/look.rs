//! Looks at the balances of our wallets on their chain: those that changed, and all others in turn.
//!
//! A token that logs a payment and moves nothing is found here, before anything is credited; so is coin that no scan can see.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chain::{Chain, ChainError};
use domain::deposit::{Attribution, Reason};
use domain::utxo::Hash;
use domain::{ChainKind, Clock, GroupId, RawAmount, Timestamp};
use store::Db;
use store::entry::{ChainRow, CursorError, Heard, Holding, ListingId, LookedBatch, Worker};
use store::wallet::users::list_addresses;
use tx::{Address, BlockHash, BlockRef, Coin, Family};

use super::owner::{Checked, owners};
use super::read::{Coins, House};
use super::work::{DepositError, DepositWorker};
use crate::wallet::Pinned;

/// The most wallets that changed and are looked at in one round, of each coin: on EVM about as many as one step of the proof may pay,
/// so that tokens do not wait for looks while a worker catches up. TRON's nodes are asked for few at a time.
const fn most_changed(kind: ChainKind) -> i64 {
    match kind {
        ChainKind::Evm | ChainKind::Bitcoin => 5_000,
        ChainKind::Tron => 1_000,
    }
}

/// So many users' wallets are looked at with each block that is proven, whether anything changed there or not.
const IN_TURN: usize = 16;

/// So many balances are asked for at once, in calls as large as the node's settings allow, and written in one transaction. On TRON all of
/// them must come before the next block is solidified.
pub(super) const fn at_once(kind: ChainKind) -> usize {
    match kind {
        ChainKind::Evm | ChainKind::Bitcoin => 1_000,
        ChainKind::Tron => 16,
    }
}

/// In one round so many calls that nodes refuse are cut in two: one address for which a contract answers nothing must not keep the payments of a
/// thousand others from being looked at. Where nodes refuse everything it ends soon.
const MOST_CUTS: usize = 24;

/// How long nobody is asked again after a look that failed.
const PAUSE_MICROS: i64 = 5_000_000;

/// What a worker remembers of its looks. It may forget it: then it looks once more.
#[derive(Default)]
pub(super) struct Looks {
    /// The proven block at which balances were looked at last.
    at: Option<(u64, Hash)>,
    /// Until when nobody is asked again, and why.
    trouble: Option<(Timestamp, ChainError)>,
    /// More has changed than one round looks at.
    pub(super) are_behind: bool,
}

impl DepositWorker<'_> {
    /// Once for each block that is proven, and until nothing is left that changed.
    pub(super) async fn look(&self, looks: &mut Looks, clock: &dyn Clock) -> Result<LookedBatch, DepositError> {
        let (mut sum, now) = (LookedBatch::default(), clock.now());
        let block = self.db.proven_block(&self.row).await?.filter(|block| looks.at != Some(*block));
        looks.are_behind = false;
        let Some(block) = block else { return Ok(sum) };
        if let Some((until, error)) = &looks.trouble
            // A clock that was corrected since must not make the pause longer.
            && (now.micros() + 1..=now.plus_micros(PAUSE_MICROS).micros()).contains(&until.micros())
        {
            return Err(error.clone().into());
        }
        looks.trouble = None;
        let eye = self.eye();
        let (mut in_turn, after) = eye.in_turn(self.db.looked_after(self.row.id).await?, IN_TURN).await?;
        // A coin whose contract answers nonsense must not keep the others from being looked at.
        let (mut all_of_them, mut trouble, mut cuts) = (true, None, 0);
        let most = most_changed(self.row.kind);
        let active: Vec<ListingId> =
            self.row.listings.iter().filter(|listing| listing.active).map(|listing| listing.id).collect();
        for listing in active {
            let changed = self.db.unchecked_holdings(self.row.id, listing, most).await?;
            all_of_them &= i64::try_from(changed.len()).is_ok_and(|count| count < most);
            let mut wanted: BTreeSet<Holding> = changed.into_iter().collect();
            wanted.append(&mut in_turn.remove(&listing).unwrap_or_default());
            let wanted: Vec<Holding> = wanted.into_iter().collect();
            let mut parts: Vec<&[Holding]> = wanted.chunks(at_once(self.row.kind)).rev().collect();
            while let Some(some) = parts.pop() {
                self.renew(clock).await?;
                match eye.look_at(block, listing, some, now).await {
                    Ok(batch) => {
                        sum.same += batch.same;
                        sum.differing += batch.differing;
                    }
                    Err(DepositError::Chain(error)) => {
                        if matches!(error, ChainError::Refused(_)) && some.len() > 1 && cuts < MOST_CUTS {
                            cuts += 1;
                            let (first, rest) = some.split_at(some.len() / 2);
                            parts.extend([rest, first]);
                        }
                        trouble = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.db.set_looked_after(&self.worker, after).await?;
        if let Some(error) = trouble {
            looks.trouble = Some((now.plus_micros(PAUSE_MICROS), error.clone()));
            return Err(error.into());
        }
        looks.are_behind = !all_of_them;
        if all_of_them {
            looks.at = Some(block);
        }
        Ok(sum)
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
            groups: self.watching.groups(),
            worker: Some(&self.worker),
        }
    }
}

/// What a look is made with, by the worker of the chain or by somebody else.
pub(super) struct Eye<'a> {
    pub(super) db: &'a Db,
    pub(super) chain: &'a dyn Chain,
    pub(super) row: &'a ChainRow,
    pub(super) pinned: &'a Pinned,
    pub(super) coins: &'a Coins,
    pub(super) house: &'a House,
    pub(super) checked: &'a Checked,
    pub(super) family: Family,
    /// The groups whose wallets are users'.
    pub(super) groups: &'a [GroupId],
    /// `None`: somebody who does not have the chain.
    pub(super) worker: Option<&'a Worker>,
}

/// What the chain says of holdings, and at which block. `None`: the address is not ours by its key.
type Told = ((u64, Hash), Vec<(Holding, Option<RawAmount>)>);

/// Holdings of each coin.
type Wanted = BTreeMap<ListingId, BTreeSet<Holding>>;

impl Eye<'_> {
    /// The next wallets of users behind a row, with all coins; and those of the house, whenever it begins anew. With the row to go on behind: 0
    /// when these were the last.
    pub(super) async fn in_turn(&self, after: i64, most: usize) -> Result<(Wanted, i64), DepositError> {
        let page = list_addresses(&mut self.db.read().await?, self.groups, after, most).await?;
        let next = page.last().filter(|_| page.len() == most).map_or(0, |(last, _)| *last);
        let house = self.house.addresses().map(Address::to_string).filter(|_| after == 0);
        let addresses: Vec<String> = page.into_iter().map(|(_, text)| text).chain(house).collect();
        let of =
            |listing: ListingId| addresses.iter().map(move |address| Holding { address: address.clone(), listing });
        Ok((self.row.listings.iter().map(|listing| (listing.id, of(listing.id).collect())).collect(), next))
    }

    /// What differs is asked about once more before it is believed. A chain that says two things of one block is not believed at all: the wallet
    /// counts as not looked at.
    pub(super) async fn look_at(
        &self,
        block: (u64, Hash),
        listing: ListingId,
        holdings: &[Holding],
        now: Timestamp,
    ) -> Result<LookedBatch, DepositError> {
        let (at, first) = self.ask(block, listing, holdings).await?;
        let mut batch = self.tell(at, &first, (Heard::Once, now)).await?;
        if batch.unsure.is_empty() {
            return Ok(batch);
        }
        let (again_at, again) = self.ask(block, listing, &batch.unsure).await?;
        let first: HashMap<&Holding, Option<RawAmount>> =
            first.iter().map(|(holding, balance)| (holding, *balance)).collect();
        let stands = |(holding, balance): &(Holding, Option<RawAmount>)| {
            again_at != at || first.get(holding).copied() == Some(*balance)
        };
        let (sure, contradicted): (Vec<_>, Vec<_>) = again.into_iter().partition(stands);
        for (holding, _) in &contradicted {
            let (chain, address) = (self.row.name.as_str(), holding.address.as_str());
            tracing::warn!(chain, address, height = at.0, "nodes say two things of a balance at one block");
        }
        let told = self.tell(again_at, &sure, (Heard::Again, now)).await?;
        batch.same += told.same;
        batch.differing += told.differing;
        Ok(batch)
    }

    async fn ask(
        &self,
        (height, hash): (u64, Hash),
        listing: ListingId,
        holdings: &[Holding],
    ) -> Result<Told, DepositError> {
        let Some(coin) = self.coins.coin(listing) else { return Ok(((height, hash), Vec::new())) };
        let texts: Vec<&str> = holdings.iter().map(|holding| holding.address.as_str()).collect();
        let owners = owners(self.db, (self.pinned, self.checked), self.house, &texts).await?;
        // Whoever writes a row with a stranger's address must not bring the stranger's coins into our books.
        let ours = |holding: &&Holding| match owners.get(&holding.address) {
            Some(Attribution::User(_) | Attribution::Nobody(Reason::HouseWallet)) => true,
            Some(Attribution::Nobody(_)) | None => false,
        };
        let parsed = holdings.iter().filter(ours).filter_map(|holding| {
            let address = self.family.parse_address(&holding.address).ok()?;
            Some((holding.clone(), (address, coin.clone())))
        });
        let (named, wanted): (Vec<Holding>, Vec<(Address, Coin)>) = parsed.unzip();
        let near = BlockRef { height, hash: BlockHash(hash.0) };
        let (at, balances) =
            if wanted.is_empty() { (near, Vec::new()) } else { self.chain.balances_at(&wanted, near).await? };
        let balances: HashMap<Holding, RawAmount> = named.into_iter().zip(balances).collect();
        let looked: Vec<(Holding, Option<RawAmount>)> =
            holdings.iter().map(|holding| (holding.clone(), balances.get(holding).copied())).collect();
        Ok(((at.height, Hash(at.hash.0)), looked))
    }

    async fn tell(
        &self,
        block: (u64, Hash),
        looked: &[(Holding, Option<RawAmount>)],
        (heard, now): (Heard, Timestamp),
    ) -> Result<LookedBatch, DepositError> {
        let written = match self.worker {
            Some(worker) => self.db.look(worker, self.row, block, looked, heard, now).await,
            None => self.db.visit(self.row, block, looked, heard, now).await,
        };
        match written {
            // The chain has moved meanwhile, or the nodes' settled block is above what is proven: the next block tells.
            Err(CursorError::NotOnTrail) => Err(ChainError::BlockMissing { height: block.0 }.into()),
            done => Ok(done?),
        }
    }
}
