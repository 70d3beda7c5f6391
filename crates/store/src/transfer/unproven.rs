//! Transfers that two people ended without proof.

use domain::id::{self, Id};
use domain::{Approval, Timestamp};

use crate::db::Tx;
use crate::error::StoreError;

statements! {
    INSERT_UNPROVEN = "INSERT INTO unproven_transfers (transfer_id, answer, actor, second, reason, evidence, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    READ_UNPROVEN = "SELECT answer, actor, second, reason, evidence, at FROM unproven_transfers WHERE transfer_id = $1";
    COUNT_UNPROVEN = "SELECT COUNT(*) FROM unproven_transfers";
}

/// Why a transfer was ended without proof, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unproven {
    /// What the engine said: why there is no proof.
    pub answer: String,
    pub approval: Approval,
    /// What the two people went by.
    pub evidence: String,
}

/// Marks the transfer, in the same transaction that ends it.
pub async fn mark_unproven(
    tx: &mut Tx,
    transfer: Id<id::Transfer>,
    unproven: &Unproven,
    at: Timestamp,
) -> Result<(), StoreError> {
    let Unproven { answer, approval, evidence } = unproven;
    let (actor, second, reason) = (approval.actor(), approval.second(), approval.reason());
    execute!(
        tx,
        INSERT_UNPROVEN,
        transfer.number(),
        answer.as_str(),
        actor,
        second,
        reason,
        evidence.as_str(),
        at.micros()
    )?;
    Ok(())
}

pub async fn read_unproven(
    tx: &mut Tx,
    transfer: Id<id::Transfer>,
) -> Result<Option<(Unproven, Timestamp)>, StoreError> {
    type Row = (String, String, String, String, String, i64);
    let Some((answer, actor, second, reason, evidence, at)) =
        fetch_optional!(tx, READ_UNPROVEN => Row, transfer.number())?
    else {
        return Ok(None);
    };
    let broken = |_| StoreError::Corrupt { what: format!("the people who resolved {transfer} are not two") };
    let approval = Approval::recorded(&actor, &second, &reason).map_err(broken)?;
    Ok(Some((Unproven { answer, approval, evidence }, Timestamp::from_micros(at))))
}

/// How many there ever were.
pub async fn count_unproven(tx: &mut Tx) -> Result<i64, StoreError> {
    Ok(fetch_optional!(tx, COUNT_UNPROVEN => (i64,))?.map_or(0, |row| row.0))
}
