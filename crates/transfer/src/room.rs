//! How much may come back from the engine. `clearing:spot` is what the engine was given: a credit to FUNDING beyond it is
//! money that no transfer brought there, whatever the engine says. It waits, and the asset is stopped.
//!
//! A system account carries no running balance, so each process remembers a lower bound: what it read last, with its own
//! transfers since. A round takes what it will credit from the bound before it commits, so that two rounds never count on
//! the same money. Only when the bound does not suffice the balance is read, under a lock that the others who read take
//! too, and while no other round of this process is on its way: what such a round commits would be neither in the balance
//! nor in the bound. What other processes credit between two readings is not seen here; the check that runs by itself
//! sees it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{AccountId, AssetId};
use store::transfer::flow::{Flow, FlowStart};
use store::transfer::stop_asset;
use store::{StoreError, Tx};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::invariant::CHECK;
use crate::leg::Reason;
use crate::update::{Terms, TransferUpdate};

pub(crate) const STOPPED: Reason =
    Reason::new("TRANSFER_STOPPED", "transfers of this asset from SPOT to FUNDING are stopped");
const TOO_MUCH: Reason = Reason::new("TRANSFER_STOPPED", "more would come back from SPOT than was given");

#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Less than this is never in `clearing:spot`, whatever is on its way in this process. No entry: it is not known.
    bounds: Mutex<HashMap<AssetId, i128>>,
    /// Every round shares it until its commit is known; one that reads the balance has it alone.
    rounds: Arc<RwLock<()>>,
}

/// What a round keeps until it knows what became of its commit.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// Taken from the bounds.
    taken: BTreeMap<AssetId, i128>,
    /// What `clearing:spot` held, of the assets for which it was read.
    read: HashMap<AssetId, i128>,
    _turn: Turn,
}

#[derive(Debug)]
enum Turn {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

impl Room {
    fn bounds(&self) -> MutexGuard<'_, HashMap<AssetId, i128>> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds back what may not come back to FUNDING: what is of a stopped asset, and what is more than was given, which
    /// stops the asset. Takes what will be credited from the bounds.
    pub async fn hold_back(
        &self,
        tx: &mut Tx,
        updates: &mut [TransferUpdate],
        stopped: &HashSet<AssetId>,
        terms: &Terms<'_>,
    ) -> Result<Reservation, StoreError> {
        for update in updates.iter_mut().filter(|update| stopped.contains(&update.transfer.asset)) {
            update.hold_back(&STOPPED, terms)?;
        }
        let mut wanted: BTreeMap<AssetId, i128> = BTreeMap::new();
        for update in updates.iter().filter(|update| update.will_credit(terms.freezes)) {
            *wanted.entry(update.transfer.asset).or_default() += i128::from(update.transfer.amount.units());
        }
        // A round that waits here has locked its rows. Those whom it waits for have locked theirs before they came here,
        // and lock no more, so nobody waits in a circle.
        let shared = Arc::clone(&self.rounds).read_owned().await;
        if self.take(&wanted) {
            return Ok(Reservation { taken: wanted, read: HashMap::new(), _turn: Turn::Shared { _guard: shared } });
        }
        drop(shared);
        let turn = Turn::Alone { _guard: Arc::clone(&self.rounds).write_owned().await };
        // Another round may have read meanwhile.
        if self.take(&wanted) {
            return Ok(Reservation { taken: wanted, read: HashMap::new(), _turn: turn });
        }
        // Until this commit is known. If it is given up half-way, the next credit reads anew.
        self.forget(wanted.keys().copied());
        let accounts: Vec<AccountId> = wanted.keys().filter_map(|asset| terms.clearing.get(asset).copied()).collect();
        store::ledger::lock_accounts(tx, &accounts).await?;
        let flows = FlowStart::read(tx).await?.flows(tx).await?;
        let of = |each: &dyn Fn(&Flow) -> i128| -> HashMap<AssetId, i128> {
            wanted.keys().map(|asset| (*asset, flows.get(asset).map_or(0, each))).collect()
        };
        let mut left = of(&Flow::room);
        for update in updates.iter_mut().filter(|update| update.will_credit(terms.freezes)) {
            let (asset, amount) = (update.transfer.asset, i128::from(update.transfer.amount.units()));
            let Some(room) = left.get_mut(&asset) else { continue };
            if *room >= amount {
                *room -= amount;
                continue;
            }
            update.hold_back(&TOO_MUCH, terms)?;
            let id = update.transfer.id;
            let problem = format!("{id} would bring back {amount} ledger units, of what was given {room} are left");
            stop_asset(tx, asset, CHECK, &problem, terms.at).await?;
            tracing::error!(code = "TRANSFER_STOPPED", asset = asset.0, problem, "SPOT to FUNDING is stopped");
        }
        Ok(Reservation { taken: BTreeMap::new(), read: of(&Flow::clearing), _turn: turn })
    }

    /// Takes all of it from the bounds, or nothing if one of them is not known or does not suffice.
    fn take(&self, wanted: &BTreeMap<AssetId, i128>) -> bool {
        let mut bounds = self.bounds();
        if wanted.iter().any(|(asset, sum)| bounds.get(asset).is_none_or(|bound| bound < sum)) {
            return false;
        }
        for (asset, sum) in wanted {
            bounds.entry(*asset).and_modify(|bound| *bound -= sum);
        }
        true
    }

    /// After the commit: what the transfers did takes the place of what was reserved for them.
    pub fn note(&self, updates: &[TransferUpdate], reservation: Reservation) {
        let Reservation { taken, read, _turn: turn } = reservation;
        let mut bounds = self.bounds();
        bounds.extend(read);
        for (asset, sum) in taken {
            bounds.entry(asset).and_modify(|bound| *bound += sum);
        }
        for update in updates {
            if let Some(bound) = bounds.get_mut(&update.transfer.asset) {
                *bound += update.given();
            }
        }
        // Only now may another round read the balance: this one is in it, and in the bounds.
        drop(bounds);
        drop(turn);
    }

    /// It is not known what was committed: the next credit reads anew.
    pub fn forget(&self, assets: impl Iterator<Item = AssetId>) {
        let mut bounds = self.bounds();
        for asset in assets {
            bounds.remove(&asset);
        }
    }
}
