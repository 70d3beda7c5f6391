//! The invariant of transfers, checked by itself while traffic runs: per asset, the engine has what transfers brought there.
//!
//! Trading moves money between users and not between assets, so the totals of assets are what must hold. The two ends
//! cannot be read at one moment: the books are read before the engine and after it, and the engine's total lies between
//! what was certain before and what was possible afterwards. The cost does not grow with history.
//!
//! **An asset that does not add up is stopped**: nothing of it comes back from SPOT to FUNDING, from where it could be
//! withdrawn, on any server, until two people say so. A check that finds nothing resumes nothing.

use std::sync::Arc;
use std::time::Duration;

use domain::AssetId;
use store::transfer::flow::{Flow, FlowStart};
use store::{Db, StoreError};
use tokio::sync::watch;

use crate::audit::AuditError;
use crate::coordinator::Coordinator;
use crate::leg::Leg;

/// After so many movements since the last checkpoint a new one is written, so that the sums stay short.
const CHECKPOINT_AFTER: i64 = 100_000;

/// Who stops an asset when no person does.
pub const CHECK: &str = "bursar";

/// While the engine does not answer, it is asked again this soon: what it has when it comes back is checked at once.
const SOON: Duration = Duration::from_secs(1);

/// How long the engine may take to tell its totals.
const PATIENCE: Duration = Duration::from_secs(5);

/// The engine and the books do not agree about an asset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    pub asset: AssetId,
    pub problem: String,
}

/// The least and the most that the engine may have had between two readings of the books.
const fn bounds(before: &Flow, after: &Flow) -> (i128, i128) {
    // A withdrawal that was undone meanwhile: its money may have been away when the engine was asked.
    let undone = before.undoing + after.refused - before.refused;
    let least = before.base + before.came - after.went - after.maybe_withdrawn - undone;
    let most = after.base + after.came + after.maybe_deposited - before.went;
    (least, most)
}

/// Compares every asset once.
pub async fn check(db: &Db, leg: &dyn Leg) -> Result<Vec<Breach>, AuditError> {
    let mut tx = db.read().await?;
    let start = FlowStart::read(&mut tx).await?;
    let before = start.flows(&mut tx).await?;
    drop(tx);
    let every: Vec<AssetId> = before.keys().copied().collect();
    // An engine that is not there is waited for; this check is not.
    let told = tokio::time::timeout(PATIENCE, leg.totals(&every)).await.map_err(|_| AuditError::NoAnswer)?;
    let totals = told.ok_or(AuditError::NotTold)?;
    if totals.len() != every.len() {
        return Err(AuditError::NoAnswer);
    }
    let after = start.flows(&mut db.read().await?).await?;
    let mut breaches = Vec::new();
    for (asset, total) in every.into_iter().zip(totals) {
        let none = Flow::default();
        let (before, after) = (before.get(&asset).unwrap_or(&none), after.get(&asset).unwrap_or(&none));
        let (least, most) = bounds(before, after);
        let found = i128::from(total.units());
        if !(least..=most).contains(&found) {
            let problem = format!("the engine has {found} ledger units, the transfers allow {least} to {most}");
            breaches.push(Breach { asset, problem });
        } else if after.room() < 0 {
            let problem = format!("{} ledger units more came back than were given", -after.room());
            breaches.push(Breach { asset, problem });
        }
    }
    Ok(breaches)
}

/// Checks once, stops what does not add up, and keeps the sums short.
pub async fn check_and_stop(coordinator: &Coordinator) -> Result<Vec<Breach>, AuditError> {
    // An engine that does not belong to this database is not compared with it.
    if coordinator.gate().closed().is_some() {
        return Err(AuditError::NoAnswer);
    }
    compare_and_stop(coordinator).await
}

/// The same while the gate is still closed, of an engine that has just been proven to be the database's own.
pub(crate) async fn compare_and_stop(coordinator: &Coordinator) -> Result<Vec<Breach>, AuditError> {
    let db = coordinator.db();
    let breaches = check(db, coordinator.leg()).await?;
    for Breach { asset, problem } in &breaches {
        let first = db.stop_asset(*asset, CHECK, problem, coordinator.now()).await?;
        // At every check, for as long as it lasts.
        let code = "TRANSFER_STOPPED";
        tracing::error!(code, asset = asset.0, first, problem, "SPOT to FUNDING is stopped: the books do not add up");
    }
    let mut tx = db.read().await?;
    let age = FlowStart::read(&mut tx).await?.age(&mut tx).await?;
    drop(tx);
    if age >= CHECKPOINT_AFTER {
        match db.checkpoint(coordinator.now()).await {
            // Writers would not make room for a moment. The next check tries again; until then its sums are longer.
            Ok(_) | Err(StoreError::Contention(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(breaches)
}

/// Checks at once and then at every interval, until it is told to stop.
pub async fn watch(coordinator: Arc<Coordinator>, interval: Duration, mut stop: watch::Receiver<bool>) {
    let mut well = true;
    loop {
        let checked = check_and_stop(&coordinator).await;
        let pause = if checked.is_ok() { interval } else { SOON.min(interval) };
        match checked {
            Ok(_) => well = true,
            // An engine that never tells its totals cannot be checked: it is said once.
            Err(error) if well => {
                tracing::warn!(error = %error, "the transfers cannot be held against the engine");
                well = false;
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_nothing_on_its_way_there_is_one_number() {
        let flow = Flow { base: 50, came: 100, went: 30, refused: 5, ..Flow::default() };
        assert_eq!((bounds(&flow, &flow), flow.clearing()), ((120, 120), 120));
    }

    #[test]
    fn what_moved_in_between_widens_the_bounds() {
        let before = Flow { came: 100, went: 30, refused: 1, undoing: 4, maybe_withdrawn: 4, ..Flow::default() };
        let after = Flow { came: 110, went: 35, refused: 3, maybe_deposited: 7, maybe_withdrawn: 3, ..Flow::default() };
        assert_eq!(bounds(&before, &after), (100 - 35 - 3 - (4 + 2), 110 + 7 - 30));
    }
}
