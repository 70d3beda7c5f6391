//! How much may come back from the engine. `clearing:spot` is what the engine was given: a credit to FUNDING beyond it is
//! money that no transfer brought there, whatever the engine says. It waits, and the asset is stopped.
//!
//! A system account carries no running balance, so each process remembers a lower bound: what it read last, with its own
//! transfers since. Only when that does not suffice it reads the balance, under a lock that the others who read take
//! too. What other processes credit between two readings is not seen here; the check that runs by itself sees it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use domain::{AccountId, AssetId};
use store::transfer::flow::{Flow, FlowStart};
use store::transfer::stop_asset;
use store::{StoreError, Tx};

use crate::invariant::CHECK;
use crate::leg::Reason;
use crate::update::{Terms, TransferUpdate};

const STOPPED: Reason = Reason::new("TRANSFER_STOPPED", "transfers of this asset from SPOT to FUNDING are stopped");
const TOO_MUCH: Reason = Reason::new("TRANSFER_STOPPED", "more would come back from SPOT than was given");

#[derive(Debug, Default)]
pub(crate) struct Room(Mutex<HashMap<AssetId, i128>>);

impl Room {
    /// Holds back what may not come back to FUNDING: what is of a stopped asset, and what is more than was given, which
    /// stops the asset. Returns what `clearing:spot` holds, of the assets for which it was read.
    pub async fn hold_back(
        &self,
        tx: &mut Tx,
        updates: &mut [TransferUpdate],
        stopped: &HashSet<AssetId>,
        terms: &Terms<'_>,
    ) -> Result<HashMap<AssetId, i128>, StoreError> {
        for update in updates.iter_mut().filter(|update| stopped.contains(&update.transfer.asset)) {
            update.hold_back(&STOPPED, terms)?;
        }
        let mut wanted: BTreeMap<AssetId, i128> = BTreeMap::new();
        for update in updates.iter().filter(|update| update.will_credit(terms.freezes)) {
            *wanted.entry(update.transfer.asset).or_default() += i128::from(update.transfer.amount.units());
        }
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        wanted.retain(|asset, sum| known.get(asset).is_none_or(|room| *room < *sum));
        if wanted.is_empty() {
            return Ok(HashMap::new());
        }
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
        Ok(of(&Flow::clearing))
    }

    /// After the commit: what was read, and what the transfers did.
    pub fn note(&self, updates: &[TransferUpdate], read: HashMap<AssetId, i128>) {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.extend(read);
        for update in updates {
            if let Some(room) = rooms.get_mut(&update.transfer.asset) {
                *room += update.given();
            }
        }
    }

    /// It is not known what was committed: the next credit reads anew.
    pub fn forget(&self, assets: impl Iterator<Item = AssetId>) {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for asset in assets {
            rooms.remove(&asset);
        }
    }
}
