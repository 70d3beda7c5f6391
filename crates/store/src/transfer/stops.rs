//! Assets whose transfers from SPOT to FUNDING are stopped.

use std::collections::HashSet;

use domain::{Approval, AssetId, Timestamp};

use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::transact;

statements! {
    INSERT_STOP = "INSERT INTO transfer_stops (asset_id, since, stopped_by, reason)
        SELECT $1, $2, $3, $4 WHERE NOT EXISTS
            (SELECT 1 FROM transfer_stops WHERE asset_id = $1 AND resumed_at IS NULL)
        ON CONFLICT DO NOTHING";
    RESUME = "UPDATE transfer_stops SET resumed_at = $2, resumed_by = $3, second = $4, resume_reason = $5
        WHERE asset_id = $1 AND resumed_at IS NULL";
    STOPPED_ASSETS = "SELECT asset_id FROM transfer_stops WHERE resumed_at IS NULL";
    READ_STOPS = "SELECT asset_id, since, stopped_by, reason, resumed_at, resumed_by, second, resume_reason
        FROM transfer_stops ORDER BY since DESC, asset_id LIMIT $1";
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub asset: AssetId,
    pub since: Timestamp,
    pub stopped_by: String,
    pub reason: String,
    /// When it went on, and who answers for that.
    pub resumed: Option<(Timestamp, Approval)>,
}

impl Db {
    /// Stops the asset. `false`: it is stopped already.
    pub async fn stop_asset(&self, asset: AssetId, by: &str, reason: &str, at: Timestamp) -> Result<bool, StoreError> {
        transact!(self, tx => stop_asset(tx, asset, by, reason, at).await)
    }

    /// Lets the asset go on. `false`: it is not stopped.
    pub async fn resume_asset(&self, asset: AssetId, people: &Approval, at: Timestamp) -> Result<bool, StoreError> {
        transact!(self, tx => {
            let (actor, second, reason) = (people.actor(), people.second(), people.reason());
            Ok(execute!(tx, RESUME, asset.0, at.micros(), actor, second, reason)? > 0)
        })
    }
}

/// The same within a transaction.
pub async fn stop_asset(
    tx: &mut Tx,
    asset: AssetId,
    by: &str,
    reason: &str,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let reason: String = reason.chars().filter(|one| !one.is_control()).take(300).collect();
    Ok(execute!(tx, INSERT_STOP, asset.0, at.micros(), by, reason.as_str())? > 0)
}

/// The assets that are stopped now.
pub async fn stopped_assets(tx: &mut Tx) -> Result<HashSet<AssetId>, StoreError> {
    Ok(fetch_all!(tx, STOPPED_ASSETS => (i64,))?.into_iter().map(|row| AssetId(row.0)).collect())
}

/// The newest stops first, those that have ended too.
pub async fn read_stops(tx: &mut Tx, most: i64) -> Result<Vec<Stop>, StoreError> {
    type Row = (i64, i64, String, String, Option<i64>, Option<String>, Option<String>, Option<String>);
    let rows = fetch_all!(tx, READ_STOPS => Row, most)?;
    let stops = rows.into_iter().map(|(asset, since, stopped_by, reason, at, actor, second, why)| {
        let broken = || StoreError::Corrupt { what: format!("the stop of asset {asset} makes no sense") };
        let resumed = match (at, actor, second, why) {
            (None, None, None, None) => None,
            (Some(at), Some(actor), Some(second), Some(why)) => {
                let approval = Approval::recorded(&actor, &second, &why).map_err(|_| broken())?;
                Some((Timestamp::from_micros(at), approval))
            }
            _ => return Err(broken()),
        };
        Ok(Stop { asset: AssetId(asset), since: Timestamp::from_micros(since), stopped_by, reason, resumed })
    });
    stops.collect()
}
