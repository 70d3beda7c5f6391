//! The sums of transfers, which the audit compares with the remote leg's own books.

use std::collections::BTreeMap;

use domain::{AssetId, UserId};

use crate::db::Tx;
use crate::dialect::PREFER_ONE_PASS;
use crate::error::StoreError;
use crate::ledger::balances::join_halves;
use crate::ledger::spot_adjustments;

/// What [`Sums`] is made of, each sum in two halves of 32 bits: a plain SUM could pass 64. Direction 1 deposits there,
/// 2 withdraws; 40 is COMMITTED, -30 ROLLED_BACK.
/// What two people resolved without proof counts as they said: if the engine did otherwise, the totals differ.
const SUMS: &str = "CAST(SUM(CASE WHEN direction = 1 AND state = 40 THEN amount >> 32 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN direction = 1 AND state = 40 THEN amount & 4294967295 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN direction = 1 AND state = 30 THEN amount >> 32 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN direction = 1 AND state = 30 THEN amount & 4294967295 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN direction = 2 AND state = 40 THEN amount >> 32 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN direction = 2 AND state = 40 THEN amount & 4294967295 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN direction = 2 AND state IN (10, 20, 30, -20) THEN amount >> 32 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN direction = 2 AND state IN (10, 20, 30, -20) THEN amount & 4294967295 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN direction = 2 AND state = -30 THEN amount >> 32 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN direction = 2 AND state = -30 THEN amount & 4294967295 ELSE 0 END) AS BIGINT)";

statements! {
    SUM_BY_ASSET(SUMS) = "SELECT asset_id, {columns} FROM transfers GROUP BY asset_id ORDER BY asset_id";
    /// Of the users in ($1, $2], by user and asset.
    SUM_BY_USER(SUMS) = "SELECT user_id, asset_id, {columns}
        FROM transfers WHERE user_id > $1 AND user_id <= $2 GROUP BY user_id, asset_id ORDER BY user_id, asset_id";
    /// The last of the next so many users.
    USERS_PAGE = "SELECT CAST(COALESCE(MAX(user_id), 0) AS BIGINT) FROM (SELECT DISTINCT user_id FROM transfers
        WHERE user_id > $1 ORDER BY user_id LIMIT $2) page";
    /// Ended ones in ($1, $2], by id: their state never changes again. Not those of which the engine can tell nothing.
    ENDED_TRANSFERS = "SELECT id, direction, state FROM transfers
        WHERE id > $1 AND id <= $2 AND state IN (40, -10, -30)
            AND NOT EXISTS (SELECT 1 FROM unproven_transfers WHERE transfer_id = id) ORDER BY id LIMIT $3";
}

/// Ledger units, by what the remote leg must have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Deposited there for certain, and perhaps.
    pub deposited: i128,
    pub maybe_deposited: i128,
    /// Withdrawn for certain, and perhaps.
    pub withdrawn: i128,
    pub maybe_withdrawn: i128,
    /// Withdrawn and given back.
    pub rolled_back: i128,
    /// What two people accepted that the engine has more than that, or less (`bursar adjust spot`).
    pub adjusted: i128,
}

type Halves = (i64, i64, i64, i64, i64, i64, i64, i64, i64, i64);

const fn sums(halves: Halves) -> Sums {
    let (a, b, c, d, e, f, g, h, i, j) = halves;
    Sums {
        deposited: join_halves(a, b),
        maybe_deposited: join_halves(c, d),
        withdrawn: join_halves(e, f),
        maybe_withdrawn: join_halves(g, h),
        rolled_back: join_halves(i, j),
        adjusted: 0,
    }
}

pub async fn sums_by_asset(tx: &mut Tx) -> Result<Vec<(AssetId, Sums)>, StoreError> {
    type Row = (i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64);
    execute!(tx, PREFER_ONE_PASS)?;
    let rows = fetch_all!(tx, SUM_BY_ASSET => Row)?;
    let mut all: BTreeMap<AssetId, Sums> = rows
        .into_iter()
        .map(|(asset, a, b, c, d, e, f, g, h, i, j)| (AssetId(asset), sums((a, b, c, d, e, f, g, h, i, j))))
        .collect();
    for ((_, asset), amount) in spot_adjustments(tx).await? {
        all.entry(asset).or_default().adjusted += amount;
    }
    Ok(all.into_iter().collect())
}

/// Of the users after one and up to another.
pub async fn sums_by_user(tx: &mut Tx, after: i64, through: i64) -> Result<Vec<((UserId, AssetId), Sums)>, StoreError> {
    type Row = (i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64);
    let rows = fetch_all!(tx, SUM_BY_USER => Row, after, through)?;
    let mut all: BTreeMap<(UserId, AssetId), Sums> = BTreeMap::new();
    for (user, asset, a, b, c, d, e, f, g, h, i, j) in rows {
        let broken = || StoreError::Corrupt { what: format!("a transfer is of user {user}") };
        let pair = (UserId::new(user).ok_or_else(broken)?, AssetId(asset));
        all.insert(pair, sums((a, b, c, d, e, f, g, h, i, j)));
    }
    for (pair, amount) in spot_adjustments(tx).await? {
        if (after + 1..=through).contains(&pair.0.get()) {
            all.entry(pair).or_default().adjusted += amount;
        }
    }
    Ok(all.into_iter().collect())
}

/// The last of the next so many users that ever transferred anything, and then of those who were only adjusted; `None`
/// when there are no more.
pub async fn users_page(tx: &mut Tx, after: i64, most: i64) -> Result<Option<i64>, StoreError> {
    let page = fetch_optional!(tx, USERS_PAGE => (i64,), after, most)?.map(|row| row.0).filter(|last| *last > after);
    if page.is_some() {
        return Ok(page);
    }
    Ok(spot_adjustments(tx).await?.into_keys().map(|(user, _)| user.get()).filter(|user| *user > after).max())
}

/// Id, direction and state of transfers that have ended.
pub async fn ended(tx: &mut Tx, after: i64, through: i64, most: i64) -> Result<Vec<(i64, i64, i64)>, StoreError> {
    fetch_all!(tx, ENDED_TRANSFERS => (i64, i64, i64), after, through, most)
}
