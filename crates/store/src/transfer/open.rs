//! Transfers that have not ended, for operators: how many, in which states, how old, and which are stuck.
//!
//! All of it is read from the rows, with two statements however many there are, so that no crash loses an alert.

use domain::Timestamp;
use domain::transfer::{State, Transfer};

use super::row::{COLUMNS, Row, transfers};
use crate::db::Tx;
use crate::error::StoreError;

statements! {
    /// By state: how many, how many of them are stuck ($1 tries, or made before $2), and when the oldest was made. The
    /// index of open transfers finds them.
    COUNT_OPEN_BY_STATE = "SELECT state, COUNT(*),
            CAST(SUM(CASE WHEN tries >= $1 OR created_at <= $2 THEN 1 ELSE 0 END) AS BIGINT), MIN(created_at)
        FROM transfers WHERE state NOT IN (40, -10, -30) GROUP BY state ORDER BY state";
    /// The oldest stuck ones. The plus keeps SQLite from walking all transfers by their ids.
    FIND_STUCK(COLUMNS) = "SELECT {columns} FROM transfers
        WHERE state NOT IN (40, -10, -30) AND (tries >= $1 OR created_at <= $2) ORDER BY created_at, +id LIMIT $3";
}

/// The open transfers of one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenInState {
    pub state: State,
    pub count: i64,
    pub stuck: i64,
    pub oldest: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenTransfers {
    /// Only states that a transfer is in.
    pub by_state: Vec<OpenInState>,
    /// The oldest of those that are stuck.
    pub stuck: Vec<Transfer>,
}

impl OpenTransfers {
    pub fn count(&self) -> i64 {
        self.by_state.iter().map(|one| one.count).sum()
    }

    pub fn stuck_count(&self) -> i64 {
        self.by_state.iter().map(|one| one.stuck).sum()
    }

    pub fn oldest(&self) -> Option<Timestamp> {
        self.by_state.iter().map(|one| one.oldest).min()
    }
}

/// Stuck is what was tried so often, or was made no later than `before`.
pub async fn read_open(tx: &mut Tx, tries: i64, before: Timestamp, most: i64) -> Result<OpenTransfers, StoreError> {
    let rows = fetch_all!(tx, COUNT_OPEN_BY_STATE => (i64, i64, i64, i64), tries, before.micros())?;
    let by_state = rows.into_iter().map(|(number, count, stuck, oldest)| {
        let state = i16::try_from(number).ok().and_then(State::from_number);
        let state = state.ok_or_else(|| StoreError::Corrupt { what: format!("a transfer has state {number}") })?;
        Ok(OpenInState { state, count, stuck, oldest: Timestamp::from_micros(oldest) })
    });
    let by_state = by_state.collect::<Result<Vec<_>, StoreError>>()?;
    let stuck = transfers(fetch_all!(tx, FIND_STUCK => Row, tries, before.micros(), most)?)?;
    Ok(OpenTransfers { by_state, stuck })
}
