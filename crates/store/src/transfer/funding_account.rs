//! The funding accounts that new transfers concern, locked, with the rules of their assets.

use std::collections::{BTreeSet, HashMap};

use domain::asset::TransferLimits;
use domain::ledger::AccountState;
use domain::{AccountId, AccountStatus, Amount, AssetId, Availability, UserId};

use crate::db::Tx;
use crate::dialect::Many;
use crate::error::StoreError;

statements! {
    /// Only the accounts' rows are locked: all transfers of an asset share the asset's.
    LOCK_FUNDING_ACCOUNTS = "SELECT a.id, a.owner, a.asset_id, a.status, a.available, a.frozen, s.status,
            s.internal_transfer_enabled, s.min_transfer_amount, s.max_transfer_amount, s.daily_transfer_amount,
            CAST(CASE WHEN EXISTS (SELECT 1 FROM transfer_stops p WHERE p.asset_id = a.asset_id AND p.resumed_at IS NULL)
                THEN 1 ELSE 0 END AS BIGINT)
        FROM accounts a JOIN assets s ON s.id = a.asset_id
        WHERE a.owner {in $1} AND a.kind = 'funding' AND a.asset_id {in $2} ORDER BY a.id {FOR UPDATE OF a}";
}

/// A user's funding account in an asset, and what the asset allows at this moment.
#[derive(Clone, Debug)]
pub struct FundingAccount {
    pub account: AccountId,
    pub state: AccountState,
    pub asset_status: Availability,
    pub internal_transfer_enabled: bool,
    pub limits: TransferLimits,
    /// Nothing of the asset comes back from SPOT to FUNDING.
    pub stopped: bool,
}

type Row = (i64, i64, i64, String, i64, i64, String, bool, i64, i64, i64, i64);

/// Locked in the order of their ids. May hold more than was asked for: every user with every asset.
pub async fn lock_funding_accounts(
    tx: &mut Tx,
    wanted: &BTreeSet<(UserId, AssetId)>,
) -> Result<HashMap<(UserId, AssetId), FundingAccount>, StoreError> {
    let users: BTreeSet<i64> = wanted.iter().map(|(user, _)| user.get()).collect();
    let assets: BTreeSet<i64> = wanted.iter().map(|(_, asset)| asset.0).collect();
    let users = Many(users.into_iter().collect::<Vec<i64>>());
    let assets = Many(assets.into_iter().collect::<Vec<i64>>());
    let rows = fetch_all!(tx, LOCK_FUNDING_ACCOUNTS => Row, users.clone(), assets.clone())?;
    rows.into_iter().map(funding_account).collect()
}

fn funding_account(row: Row) -> Result<((UserId, AssetId), FundingAccount), StoreError> {
    let (id, owner, asset, status, available, frozen, asset_status, enabled, min, max, daily, stopped) = row;
    let broken = || StoreError::Corrupt { what: format!("account {id} or its asset makes no sense") };
    let state = AccountState {
        asset: AssetId(asset),
        status: AccountStatus::parse(&status).ok_or_else(broken)?,
        available: Amount::from_units(available),
        frozen: Amount::from_units(frozen),
    };
    let limits =
        TransferLimits { min: Amount::from_units(min), max: Amount::from_units(max), daily: Amount::from_units(daily) };
    let funding_account = FundingAccount {
        account: AccountId(id),
        state,
        asset_status: Availability::parse(&asset_status).ok_or_else(broken)?,
        internal_transfer_enabled: enabled,
        limits,
        stopped: stopped != 0,
    };
    Ok(((UserId::new(owner).ok_or_else(broken)?, AssetId(asset)), funding_account))
}
