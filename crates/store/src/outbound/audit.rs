//! What must hold of jobs, slots and attempts on live data: no job may be paid twice, and none is lost.

use crate::audit::{Violation, violation};
use crate::db::Tx;
use crate::error::StoreError;

statements! {
    /// A history that does not lead to the state.
    FIND_WRONG_JOB = "SELECT j.id, j.state FROM outbound_jobs j
        WHERE j.version <> (SELECT COUNT(*) FROM outbound_job_events e WHERE e.job_id = j.id)
            OR NOT EXISTS (SELECT 1 FROM outbound_job_events e WHERE e.job_id = j.id AND e.version = j.version AND e.state = j.state)
        ORDER BY j.id LIMIT 1";
    /// A job that was signed for a slot which can still be mined, and is in another one, or in none.
    FIND_TWICE = "SELECT k.job_id, k.slot_id FROM outbound_slot_jobs k JOIN outbound_slots s ON s.id = k.slot_id AND s.state = 'open'
            JOIN outbound_jobs j ON j.id = k.job_id
        WHERE (j.slot_id IS NULL OR j.slot_id <> k.slot_id)
            AND EXISTS (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = k.slot_id AND a.signed IS NOT NULL)
        ORDER BY k.job_id LIMIT 1";
    /// Two slots that both have paid one job.
    FIND_PAID_TWICE = "SELECT k.job_id FROM outbound_slot_jobs k JOIN outbound_attempts a ON a.slot_id = k.slot_id
            AND a.kind = 'pay' AND a.paid = 'in_full'
        GROUP BY k.job_id HAVING COUNT(*) > 1 ORDER BY k.job_id LIMIT 1";
    /// A job that is said to be paid, and no block has its payment; or the other way round.
    FIND_UNPAID = "SELECT j.id, j.state FROM outbound_jobs j
        WHERE j.judged IS NULL AND (j.state IN ('confirming', 'confirmed')) <> EXISTS (SELECT 1 FROM outbound_slot_jobs k JOIN outbound_attempts a
            ON a.slot_id = k.slot_id AND a.kind = 'pay' AND a.paid = 'in_full' WHERE k.job_id = j.id)
        ORDER BY j.id LIMIT 1";
    /// A slot that was let go although something was signed for it.
    FIND_LET_GO = "SELECT s.id FROM outbound_slots s WHERE s.state = 'released'
            AND EXISTS (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = s.id AND a.signed IS NOT NULL)
        ORDER BY s.id LIMIT 1";
}

pub(crate) async fn check_jobs(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    if let Some((id, state)) = fetch_optional!(tx, FIND_WRONG_JOB => (i64, String))? {
        return Ok(violation(format!("outbound_jobs id={id}"), format!("its history does not lead to {state}")));
    }
    if let Some((job, slot)) = fetch_optional!(tx, FIND_TWICE => (i64, i64))? {
        let problem = format!("slot {slot} may still pay it, and it has left that slot");
        return Ok(violation(format!("outbound_jobs id={job}"), problem));
    }
    if let Some((job,)) = fetch_optional!(tx, FIND_PAID_TWICE => (i64,))? {
        return Ok(violation(format!("outbound_jobs id={job}"), "two slots have paid it"));
    }
    if let Some((id, state)) = fetch_optional!(tx, FIND_UNPAID => (i64, String))? {
        return Ok(violation(format!("outbound_jobs id={id}"), format!("it is {state}, and its slots say otherwise")));
    }
    if let Some((slot,)) = fetch_optional!(tx, FIND_LET_GO => (i64,))? {
        return Ok(violation(format!("outbound_slots id={slot}"), "it was released, and something was signed for it"));
    }
    Ok(None)
}
