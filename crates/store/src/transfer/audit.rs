//! Transfers, proven: every history is legal, and the journal says the same as the states.

use std::collections::BTreeMap;

use domain::AssetId;
use domain::id::Id;
use domain::transfer::{Event, State, next};

use super::row::{COLUMNS, Row, transfer};
use crate::audit::{Violation, violation};
use crate::db::Tx;
use crate::error::StoreError;
use crate::ledger::balances::{join_halves, system_balances};
use crate::ledger::spot_adjustments;

statements! {
    PAGE_TRANSFERS(COLUMNS) = "SELECT {columns} FROM transfers WHERE id > $1 ORDER BY id LIMIT 4096";
    /// Of the ids in ($1, $2].
    PAGE_HISTORY = "SELECT transfer_id, version, path FROM transfer_events
        WHERE transfer_id > $1 AND transfer_id <= $2 ORDER BY transfer_id, version";
    FIND_STRAY_HISTORY = "SELECT transfer_id FROM transfer_events e
        WHERE NOT EXISTS (SELECT 1 FROM transfers t WHERE t.id = e.transfer_id) ORDER BY transfer_id LIMIT 1";
    /// What two people resolved without proof moves like the rest. At first it moved to and from suspense instead of
    /// clearing:spot; such rows are still there, so of these transfers the account is looked at.
    ///
    /// For each asset: the first transfer whose entries in the journal are not those of its state, how many entries
    /// there are, and what they moved to and from clearing:spot, in two halves. -1 stands for an entry that is not
    /// there.
    COMPARE_ENTRIES = "SELECT asset_id, MIN(CASE WHEN good THEN NULL ELSE id END),
            CAST(SUM(entries) AS BIGINT),
            CAST(SUM((settled - returned) >> 32) AS BIGINT), CAST(SUM((settled - returned) & 4294967295) AS BIGINT)
        FROM (SELECT t.id, t.asset_id,
                CASE WHEN h.id IS NULL THEN 0 ELSE 1 END + CASE WHEN s.id IS NULL THEN 0 ELSE 1 END
                    + CASE WHEN r.id IS NULL THEN 0 ELSE 1 END + CASE WHEN d.id IS NULL THEN 0 ELSE 1 END AS entries,
                CASE WHEN s.outcome = 0 AND (u.transfer_id IS NULL OR c.id = s.to_account) THEN s.amount ELSE 0 END AS settled,
                CASE WHEN d.outcome = 0 AND (u.transfer_id IS NULL OR c.id = d.from_account) THEN d.amount ELSE 0 END AS returned,
                COALESCE(h.from_account = t.funding_account AND h.amount = t.amount AND h.asset_id = t.asset_id
                    AND h.action = 2, TRUE)
                AND COALESCE(s.from_account = t.funding_account AND s.to_account < 0 AND s.amount = t.amount
                    AND s.asset_id = t.asset_id AND s.action = 3, TRUE)
                AND COALESCE(r.from_account = t.funding_account AND r.amount = t.amount AND r.asset_id = t.asset_id
                    AND r.action = 4, TRUE)
                AND COALESCE(d.to_account = t.funding_account AND d.from_account < 0 AND d.amount = t.amount
                    AND d.asset_id = t.asset_id AND d.action = 1, TRUE)
                AND CASE WHEN t.direction = 1 THEN d.id IS NULL AND CASE t.state
                    WHEN 0 THEN h.id IS NULL AND s.id IS NULL AND r.id IS NULL
                    WHEN 10 THEN h.id IS NULL AND s.id IS NULL AND r.id IS NULL
                    WHEN -10 THEN COALESCE(h.outcome, -1) > 0 AND s.id IS NULL AND r.id IS NULL
                    WHEN 40 THEN COALESCE(h.outcome, -1) = 0 AND COALESCE(s.outcome, -1) = 0 AND r.id IS NULL
                    WHEN -30 THEN COALESCE(h.outcome, -1) = 0 AND COALESCE(r.outcome, -1) = 0 AND s.id IS NULL
                    ELSE COALESCE(h.outcome, -1) = 0 AND COALESCE(s.outcome, -1) <> 0 AND COALESCE(r.outcome, -1) <> 0
                    END
                ELSE h.id IS NULL AND s.id IS NULL AND r.id IS NULL AND CASE t.state
                    WHEN 40 THEN COALESCE(d.outcome, -1) = 0
                    WHEN 30 THEN COALESCE(d.outcome, 0) = 0
                    WHEN -20 THEN COALESCE(d.outcome, -1) > 0
                    WHEN -30 THEN COALESCE(d.outcome, -1) > 0
                    ELSE d.id IS NULL
                    END
                END AS good
            FROM transfers t
                LEFT JOIN unproven_transfers u ON u.transfer_id = t.id
                LEFT JOIN accounts c ON c.owner = 0 AND c.kind = 'clearing:spot' AND c.asset_id = t.asset_id
                LEFT JOIN movements h ON h.op_key = 'sr-' || CAST(t.id AS TEXT) || ':hold' AND h.leg = 0
                LEFT JOIN movements s ON s.op_key = 'sr-' || CAST(t.id AS TEXT) || ':settle' AND s.leg = 0
                LEFT JOIN movements r ON r.op_key = 'sr-' || CAST(t.id AS TEXT) || ':release' AND r.leg = 0
                LEFT JOIN movements d ON d.op_key = 'sr-' || CAST(t.id AS TEXT) || ':deposit' AND d.leg = 0) compared
        GROUP BY asset_id ORDER BY asset_id";
    /// A mark of a transfer that is not there, or has not ended.
    FIND_STRAY_MARK = "SELECT u.transfer_id FROM unproven_transfers u LEFT JOIN transfers t ON t.id = u.transfer_id
        WHERE COALESCE(t.state, 0) NOT IN (40, -10, -30) ORDER BY u.transfer_id LIMIT 1";
    COUNT_ENTRIES = "SELECT COUNT(*) FROM movements WHERE op_key >= 'sr-' AND op_key < 'sr.'";
    READ_CLEARING = "SELECT id, asset_id FROM accounts WHERE id < 0 AND kind = 'clearing:spot'";
}

/// Every history begins at INIT, takes only steps that the machine allows, has no gap, and ends where the transfer is.
pub(crate) async fn check_histories(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let mut after = 0;
    loop {
        let page = fetch_all!(tx, PAGE_TRANSFERS => Row, after)?;
        let Some(last) = page.last().map(|row| row.0) else { break };
        let history = fetch_all!(tx, PAGE_HISTORY => (i64, i64, String), after, last)?;
        let mut rows = history.chunk_by(|a, b| a.0 == b.0).peekable();
        for row in page {
            let id = row.0;
            while rows.peek().is_some_and(|rows| rows[0].0 < id) {
                rows.next();
            }
            let mine = rows.next_if(|rows| rows[0].0 == id).unwrap_or_default();
            let problem = match transfer(row) {
                Err(error) => Some(error.to_string()),
                Ok(transfer) => history_problem(mine, transfer.state, transfer.version),
            };
            if let Some(problem) = problem {
                return Ok(violation(format!("transfers id={id}"), problem));
            }
        }
        after = last;
    }
    let stray = fetch_optional!(tx, FIND_STRAY_HISTORY => (i64,))?;
    Ok(stray.and_then(|(id,)| violation(format!("transfer_events transfer_id={id}"), "there is no such transfer")))
}

fn history_problem(rows: &[(i64, i64, String)], state: State, version: i64) -> Option<String> {
    let mut at = State::Init;
    for (number, (_, version, path)) in (1..).zip(rows) {
        if *version != number {
            return Some(format!("row {number} of its history is missing"));
        }
        let mut states = path.split('>').map(|name| State::ALL.into_iter().find(|state| state.as_str() == name));
        if states.next() != Some(Some(at)) {
            return Some(format!("row {number} of its history ({path}) does not begin at {at}"));
        }
        for state in states {
            let Some(state) = state else { return Some(format!("row {number} of its history ({path}) is no path")) };
            if !Event::ALL.into_iter().any(|event| next(at, event) == Ok(state)) {
                return Some(format!("row {number} of its history goes from {at} to {state}"));
            }
            at = state;
        }
    }
    let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    if count != version || rows.is_empty() {
        return Some(format!("its history has {count} rows instead of {version}"));
    }
    (at != state).then(|| format!("its history ends at {at}, it says {state}"))
}

/// Each transfer has exactly the entries that its state says, no other entry has a transfer's key, and clearing:spot
/// holds what they moved and what two people accepted by an adjustment, and nothing else.
pub(crate) async fn check_entries(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let rows = fetch_all!(tx, COMPARE_ENTRIES => (i64, Option<i64>, i64, i64, i64))?;
    if let Some(wrong) = rows.iter().filter_map(|row| row.1).min() {
        let key = Id::<domain::id::Transfer>::new(wrong).map_or_else(|_| wrong.to_string(), |id| id.to_string());
        let problem = format!("its entries in the journal ({key}:…) are not those of its state, account and amount");
        return Ok(violation(format!("transfers id={wrong}"), problem));
    }
    if let Some((id,)) = fetch_optional!(tx, FIND_STRAY_MARK => (i64,))? {
        let problem = "it was resolved without proof, but there is no such transfer, or it has not ended";
        return Ok(violation(format!("unproven_transfers transfer_id={id}"), problem));
    }
    let entries: i64 = rows.iter().map(|row| row.2).sum();
    let counted = fetch_optional!(tx, COUNT_ENTRIES => (i64,))?.map_or(0, |row| row.0);
    if counted != entries {
        let problem = format!("{counted} movements have a transfer's key, the transfers account for {entries}");
        return Ok(violation("movements op_key=sr-…", problem));
    }
    let mut moved: BTreeMap<AssetId, i128> =
        rows.iter().map(|(asset, _, _, high, low)| (AssetId(*asset), join_halves(*high, *low))).collect();
    for ((_, asset), amount) in spot_adjustments(tx).await? {
        *moved.entry(asset).or_default() += amount;
    }
    let balances = system_balances(tx).await?;
    for (account, asset) in fetch_all!(tx, READ_CLEARING => (i64, i64))? {
        let balance = balances.get(&domain::AccountId(account)).copied().unwrap_or(0);
        let expected = moved.get(&AssetId(asset)).copied().unwrap_or(0);
        if balance != expected {
            let problem =
                format!("clearing:spot holds {balance} ledger units, transfers and adjustments moved {expected} to it");
            return Ok(violation(format!("accounts id={account}"), problem));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(paths: &[&str], state: State, version: i64) -> Option<String> {
        let rows: Vec<(i64, i64, String)> =
            (1..).zip(paths).map(|(version, path)| (7, version, (*path).to_owned())).collect();
        history_problem(&rows, state, version)
    }

    #[test]
    fn a_history_is_a_walk_through_the_machine() {
        let there = ["INIT>SOURCE_PENDING>SOURCE_DONE>TARGET_PENDING", "TARGET_PENDING", "TARGET_PENDING>COMMITTED"];
        assert_eq!(problem(&there, State::Committed, 3), None);
        assert!(problem(&there, State::Committed, 2).is_some(), "a row too many");
        assert!(problem(&there[..2], State::Committed, 2).is_some(), "another end");
        assert!(problem(&there[1..], State::Committed, 2).is_some(), "another beginning");
        assert!(problem(&["INIT>SOURCE_DONE"], State::SourceDone, 1).is_some(), "a state skipped");
        assert!(problem(&["INIT>NOWHERE"], State::Init, 1).is_some());
        assert!(problem(&[], State::Init, 0).is_some(), "no history at all");
    }
}
