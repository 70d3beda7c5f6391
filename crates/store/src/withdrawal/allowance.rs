//! What a user may still withdraw today. It is for the user's eyes: what counts is read again, under the account's lock, when something is asked for.

use std::collections::{BTreeSet, HashMap};

use domain::withdrawal::WithdrawalPolicy;
use domain::{AccountStatus, Amount, AssetId, Availability, Timestamp, UserId};

use super::facts::{coins_of, not_final, switches, used};
use super::policy::newest_rows;
use super::types::malformed;
use crate::db::{Db, Tx};
use crate::entry::{ChainId, ListingId};
use crate::error::StoreError;

/// One asset on one chain, as it stands for one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    pub listing: ListingId,
    pub asset: AssetId,
    pub chain: ChainId,
    pub policy: WithdrawalPolicy,
    /// The chain, the asset and its form there are active, and withdrawals are on.
    pub open: bool,
    /// What was asked for today, without what was given back.
    pub used: Amount,
    /// Requests in the policy's window.
    pub recent: i64,
    /// What is available and final. Zero of who has no account that gives something out.
    pub withdrawable: Amount,
}

impl Allowance {
    /// What may still be asked for today. `None`: no policy limits it.
    pub fn left_today(&self) -> Option<Amount> {
        let left = self.policy.daily_user?.checked_sub(self.used).unwrap_or(Amount::ZERO);
        Some(left.max(Amount::ZERO))
    }
}

statements! {
    READ_FUNDING_OF_USER = "SELECT asset_id, available, status FROM accounts WHERE owner = $1 AND kind = 'funding'";
}

impl Db {
    /// Of every coin that has a policy, in the order of their numbers.
    pub async fn withdrawal_allowances(&self, user: UserId, at: Timestamp) -> Result<Vec<Allowance>, StoreError> {
        allowances(&mut self.read().await?, user, at).await
    }
}

async fn allowances(tx: &mut Tx, user: UserId, at: Timestamp) -> Result<Vec<Allowance>, StoreError> {
    let policies = newest_rows(tx).await?;
    let listings: BTreeSet<ListingId> = policies.keys().copied().collect();
    if listings.is_empty() {
        return Ok(Vec::new());
    }
    let coins = coins_of(tx, listings.iter().copied()).await?;
    let active = switches(tx, listings.iter().copied()).await?;
    let windows = policies.iter().filter_map(|(listing, row)| Some((*listing, row.policy.velocity?.window_us)));
    let used = used(tx, &listings.iter().map(|listing| (user, *listing)).collect(), &windows.collect(), at).await?;
    let pairs: BTreeSet<(UserId, AssetId)> = coins.values().map(|coin| (user, coin.asset)).collect();
    let not_final = not_final(tx, &pairs).await?;
    let rows = fetch_all!(tx, READ_FUNDING_OF_USER => (i64, i64, String), user.get())?;
    let mut available: HashMap<AssetId, Amount> = HashMap::new();
    for (asset, units, status) in rows {
        let status = AccountStatus::parse(&status).ok_or_else(|| malformed("account"))?;
        let gives = if status == AccountStatus::Active { Amount::from_units(units) } else { Amount::ZERO };
        available.insert(AssetId(asset), gives);
    }
    let one = |listing: ListingId| {
        let (row, coin) = policies.get(&listing).zip(coins.get(&listing)).ok_or_else(|| malformed("policy"))?;
        let used = used.get(&(user, listing)).copied().unwrap_or_default();
        let held_back = not_final.get(&(user, coin.asset)).copied().unwrap_or(Amount::ZERO);
        let available = available.get(&coin.asset).copied().unwrap_or(Amount::ZERO);
        Ok(Allowance {
            listing,
            asset: coin.asset,
            chain: coin.chain,
            open: row.policy.enabled && active.get(&listing) == Some(&(Availability::Active, Availability::Active)),
            policy: row.policy.clone(),
            used: used.today,
            recent: used.recent,
            withdrawable: available.checked_sub(held_back).unwrap_or(Amount::ZERO).max(Amount::ZERO),
        })
    };
    listings.into_iter().map(one).collect()
}
