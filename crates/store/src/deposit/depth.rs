//! What the depth of its block makes of a deposit: proven, and final.
//!
//! A deposit that is deep enough when it is booked goes through these states in that one batch. Here are those that are not: at the tip
//! of a chain every deposit waits for the credit as `proven`, and for its finality as `credited`.

use domain::Timestamp;
use domain::deposit::DepositEvent;

use super::advance::{Change, advance};
use crate::db::Db;
use crate::entry::ChainRow;
use crate::entry::cursor::{CursorError, Worker, lock_moving};
use crate::transact;

/// The most deposits that go on in one transaction.
const MOST: i64 = 2_048;

/// For the history of a deposit.
pub(super) const PROVEN: &str = "its block is proven";
pub(super) const SETTLED: &str = "deep enough to be withdrawn";

statements! {
    READ_DETECTED = "SELECT id FROM deposits WHERE chain_id = $1 AND state = 'detected' AND height <= $2 ORDER BY id LIMIT $3";
    /// One whose block has left the chain, and that the books have yet to take back, is not final. Neither is one of a chain that
    /// people have suspended.
    READ_CREDITED = "SELECT d.id FROM deposits d JOIN chain_entries e ON e.id = d.id AND e.alive
            JOIN chains c ON c.id = d.chain_id AND c.status = 'active'
        WHERE d.chain_id = $1 AND d.state = 'credited' AND d.height <= $2 ORDER BY d.id LIMIT $3";
}

impl Db {
    /// Deposits in proven blocks that wait for their credit say that they are proven. Says how many there were. A worker that is behind
    /// leaves this out: what it books next is proven and credited in one.
    pub async fn mark_proven(&self, worker: &Worker, at: Timestamp) -> Result<usize, CursorError> {
        transact!(self, tx => {
            let locked = match lock_moving(tx, worker).await? {
                Ok(locked) => locked,
                Err(refused) => return Ok(Err(refused)),
            };
            let rows = fetch_all!(tx, READ_DETECTED => (i64,), worker.chain.0, locked.proven, MOST)?;
            let changes: Vec<Change> =
                rows.into_iter().map(|(id,)| Change::new(id, DepositEvent::Proven, PROVEN)).collect();
            let count = changes.len();
            advance(tx, changes, at).await?;
            Ok(Ok(count))
        })?
    }

    /// Credited deposits that are as deep as the chain's finality by now become final. Says how many.
    pub async fn settle_deposits(
        &self,
        worker: &Worker,
        chain: &ChainRow,
        at: Timestamp,
    ) -> Result<usize, CursorError> {
        transact!(self, tx => {
            let locked = match lock_moving(tx, worker).await? {
                Ok(locked) => locked,
                Err(refused) => return Ok(Err(refused)),
            };
            let Some(height) = deep_enough(locked.proven, chain.final_confirmations) else { return Ok(Ok(0)) };
            let rows = fetch_all!(tx, READ_CREDITED => (i64,), chain.id.0, height, MOST)?;
            let changes: Vec<Change> =
                rows.into_iter().map(|(id,)| Change::new(id, DepositEvent::Settled, SETTLED)).collect();
            let count = changes.len();
            advance(tx, changes, at).await?;
            Ok(Ok(count))
        })?
    }
}

/// The highest block with so many confirmations, itself included, below the newest proven one (-1: there is none).
pub(crate) fn deep_enough(proven: i64, confirmations: u32) -> Option<i64> {
    let above = i64::from(confirmations).saturating_sub(1).max(0);
    proven.checked_sub(above).filter(|height| *height >= 0)
}
