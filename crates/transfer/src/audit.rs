//! Compares the two ends of transfers with each other while traffic goes on.
//!
//! | check | proves |
//! |---|---|
//! | `spot_total` | per asset, the engine has what transfers brought there, no more and no less |
//! | `spot_users` | the same for each user: with the ledger's own checks, funding + spot + in flight is what was put in |
//! | `spot_operations` | each transfer ended as the engine remembers it |
//!
//! The two ends cannot be read at one moment. So the transfers are added up before the engine is asked, and again
//! afterwards: the engine's total lies between the amount that was certain before and the amount that was possible
//! afterwards. With nothing in flight these are one number.

use domain::id::{self, Id};
use domain::transfer::{Direction, State};
use domain::{AssetId, Timestamp, UserId};
use store::audit::{Finding, Violation};
use store::transfer::sums::{Sums, ended, sums_by_asset, sums_by_user, users_page};
use store::{Db, StoreError};

use crate::leg::{Leg, Record};

/// Users or transfers that are checked with one query.
const PAGE: i64 = 1_024;

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the spot engine does not answer")]
    NoAnswer,
    #[error("this engine does not tell balances: it cannot be held against the transfers")]
    NotTold,
}

pub struct Options {
    /// Order engines trade on the spot engine. Then trades change users' balances too, and only totals are compared.
    pub trading: bool,
    /// The engine has forgotten operations before this time.
    pub remembered_since: Timestamp,
}

/// Runs every check. A finding names the first violation of its check.
pub async fn audit(
    db: &Db,
    leg: &dyn Leg,
    options: &Options,
    mut progress: impl FnMut(&'static str),
) -> Result<Vec<Finding>, AuditError> {
    let mut findings = Vec::new();
    progress("spot_total");
    findings.push(Finding { check: "spot_total", violation: check_totals(db, leg).await? });
    if !options.trading {
        progress("spot_users");
        findings.push(Finding { check: "spot_users", violation: check_users(db, leg).await? });
    }
    progress("spot_operations");
    findings.push(Finding { check: "spot_operations", violation: check_operations(db, leg, options).await? });
    Ok(findings)
}

/// The least and the most that the engine may have had between two readings of the transfers.
fn bounds(before: Sums, after: Sums) -> (i128, i128) {
    let undone_between = after.rolled_back - before.rolled_back;
    let adjusted = (before.adjusted.min(after.adjusted), before.adjusted.max(after.adjusted));
    let least = before.deposited - after.withdrawn - after.maybe_withdrawn - undone_between + adjusted.0;
    let most = after.deposited + after.maybe_deposited - before.withdrawn + adjusted.1;
    (least, most)
}

fn outside(found: i128, (least, most): (i128, i128)) -> Option<String> {
    if (least..=most).contains(&found) {
        return None;
    }
    Some(if least == most {
        format!("the spot engine has {found} ledger units, the transfers brought {least} there")
    } else {
        format!("the spot engine has {found} ledger units, the transfers allow {least} to {most}")
    })
}

/// Per asset, the engine has what transfers brought there.
pub async fn check_totals(db: &Db, leg: &dyn Leg) -> Result<Option<Violation>, AuditError> {
    let mut tx = db.read().await?;
    let before = sums_by_asset(&mut tx).await?;
    let every: Vec<AssetId> = store::catalog::read_assets(&mut tx).await?.into_keys().collect();
    drop(tx);
    let totals = leg.totals(&every).await.ok_or(AuditError::NotTold)?;
    let after = sums_by_asset(&mut db.read().await?).await?;
    let of = |sums: &[(AssetId, Sums)], asset| {
        sums.iter().find(|(one, _)| *one == asset).map_or_else(Sums::default, |(_, sums)| *sums)
    };
    for (asset, total) in every.into_iter().zip(totals) {
        let bounds = bounds(of(&before, asset), of(&after, asset));
        if let Some(problem) = outside(i128::from(total.units()), bounds) {
            return Ok(Some(Violation { row: format!("assets id={}", asset.0), problem }));
        }
    }
    Ok(None)
}

/// The same for each user. Trades change what users have, so this holds only where nobody trades.
pub async fn check_users(db: &Db, leg: &dyn Leg) -> Result<Option<Violation>, AuditError> {
    let mut after = 0;
    loop {
        let mut tx = db.read().await?;
        let Some(through) = users_page(&mut tx, after, PAGE).await? else { return Ok(None) };
        let first = sums_by_user(&mut tx, after, through).await?;
        drop(tx);
        let pairs: Vec<(UserId, AssetId)> = first.iter().map(|(pair, _)| *pair).collect();
        let holdings = leg.holdings(&pairs).await.ok_or(AuditError::NotTold)?;
        let second = sums_by_user(&mut db.read().await?, after, through).await?;
        let mut second = second.into_iter().peekable();
        for ((pair, before), holding) in first.into_iter().zip(holdings) {
            // Both lists are sorted. A user whose first transfer came in between is left to the next audit.
            while second.next_if(|(other, _)| *other < pair).is_some() {}
            let later = second.next_if(|(other, _)| *other == pair).map_or(before, |(_, sums)| sums);
            let found = holding.map_or(0, |one| i128::from(one.available.units()) + i128::from(one.reserved.units()));
            if let Some(problem) = outside(found, bounds(before, later)) {
                let (user, asset) = pair;
                return Ok(Some(Violation { row: format!("user {} asset id={}", user.get(), asset.0), problem }));
            }
        }
        after = through;
    }
}

/// Looks at ended transfers only: they never change, so it does not matter when each end is read.
async fn check_operations(db: &Db, leg: &dyn Leg, options: &Options) -> Result<Option<Violation>, AuditError> {
    let mut after = id::first_at(options.remembered_since).saturating_sub(1);
    loop {
        let page = ended(&mut db.read().await?, after, i64::MAX, PAGE).await?;
        let Some(last) = page.last().map(|row| row.0) else { return Ok(None) };
        let ids: Vec<Id<id::Transfer>> = page.iter().filter_map(|row| Id::new(row.0).ok()).collect();
        let records = leg.query(&ids).await;
        for (row, record) in page.iter().zip(records) {
            if let Record::Unknown(reason) = &record {
                tracing::debug!(transfer = row.0, %reason, "the engine could not say");
                return Err(AuditError::NoAnswer);
            }
            if !agrees(row.1, row.2, &record) {
                let problem = format!("it says {}, the spot engine remembers {record:?}", state_name(row.2));
                return Ok(Some(Violation { row: format!("transfers id={}", row.0), problem }));
            }
        }
        after = last;
    }
}

fn state_name(number: i64) -> String {
    let state = i16::try_from(number).ok().and_then(State::from_number);
    state.map_or_else(|| number.to_string(), |state| state.to_string())
}

fn agrees(direction: i64, state: i64, record: &Record) -> bool {
    let state = i16::try_from(state).ok().and_then(State::from_number);
    match (Direction::from_number(direction), state) {
        (Some(_), Some(State::Committed)) => matches!(record, Record::Applied),
        // The hold was refused; the engine was never asked.
        (Some(Direction::ToSpot), Some(State::Failed)) => matches!(record, Record::Nothing),
        (Some(Direction::ToSpot), Some(State::RolledBack)) => matches!(record, Record::Refused(_)),
        (Some(Direction::ToFunding), Some(State::Failed)) => {
            matches!(record, Record::Refused(_) | Record::RolledBack)
        }
        (Some(Direction::ToFunding), Some(State::RolledBack)) => matches!(record, Record::RolledBack),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_nothing_in_flight_there_is_one_number() {
        let sums = Sums { deposited: 100, withdrawn: 30, rolled_back: 5, ..Sums::default() };
        assert_eq!(bounds(sums, sums), (70, 70));
        assert!(outside(70, bounds(sums, sums)).is_none());
        assert!(outside(71, bounds(sums, sums)).is_some() && outside(69, bounds(sums, sums)).is_some());
    }

    #[test]
    fn what_moved_in_between_widens_the_bounds() {
        let before = Sums { deposited: 100, maybe_deposited: 10, withdrawn: 30, ..Sums::default() };
        let after =
            Sums { deposited: 110, maybe_deposited: 7, withdrawn: 35, maybe_withdrawn: 3, rolled_back: 2, adjusted: 0 };
        assert_eq!(bounds(before, after), (100 - 35 - 3 - 2, 110 + 7 - 30));
        let (more, less) = (Sums { adjusted: 5, ..after }, Sums { adjusted: -5, ..after });
        assert_eq!(bounds(more, more).1, bounds(after, after).1 + 5);
        assert_eq!(bounds(after, less), (bounds(after, after).0 - 5, bounds(after, after).1));
    }
}
