//! What must hold of withdrawals on live data: each has its money where its status says, and none that was given back can still be paid.

use domain::withdrawal::{WithdrawalEvent, WithdrawalState};

use super::check::FIND_UNCHECKED;
use crate::audit::{Violation, violation};
use crate::db::Tx;
use crate::error::StoreError;

/// Rows that are in memory at a time.
const PAGE: i64 = 4_096;

statements! {
    PAGE_WITHDRAWAL_EVENTS = "SELECT v.withdrawal_id, v.version, v.status FROM withdrawal_events v
        WHERE (v.withdrawal_id, v.version) > ($1, $2) ORDER BY v.withdrawal_id, v.version LIMIT $3";
    FIND_WITHDRAWAL_WITHOUT_HISTORY = "SELECT w.id FROM withdrawal_requests w
        WHERE w.version <> (SELECT COUNT(*) FROM withdrawal_events v WHERE v.withdrawal_id = w.id)
            OR NOT EXISTS (SELECT 1 FROM withdrawal_events v WHERE v.withdrawal_id = w.id AND v.version = w.version AND v.status = w.status)
        ORDER BY w.id LIMIT 1";
    /// A hold that is not there, is of another amount, or has ended otherwise than its status says.
    FIND_WRONG_HOLD = "SELECT w.id, w.status FROM withdrawal_requests w
            LEFT JOIN movements h ON h.op_key = 'wr-' || w.id || ':hold' AND h.leg = 0
            LEFT JOIN movements e ON e.hold_key = 'wr-' || w.id || ':hold' AND e.outcome = 0 AND e.leg = 0
            LEFT JOIN movements b ON b.op_key = 'wr-' || w.id || ':give_back' AND b.leg = 0 AND b.outcome = 0
        WHERE h.id IS NULL OR h.outcome <> 0 OR h.action <> 2 OR h.from_account <> w.account_id OR h.amount - w.fee <> w.amount
            OR NOT CASE w.status WHEN 'completed' THEN COALESCE(e.action, 0) = 3 AND b.id IS NULL
                WHEN 'failed' THEN (COALESCE(e.action, 0) = 4 AND b.id IS NULL) OR (COALESCE(e.action, 0) = 3 AND b.id IS NOT NULL)
                WHEN 'rejected' THEN COALESCE(e.action, 0) = 4 AND b.id IS NULL
                WHEN 'cancelled' THEN COALESCE(e.action, 0) = 4 AND b.id IS NULL
                ELSE e.id IS NULL AND b.id IS NULL END
        ORDER BY w.id LIMIT 1";
    /// A job that may still pay, or has paid, a withdrawal that does not wait for it.
    FIND_LIVE_JOB = "SELECT w.id, w.status, j.id, j.state FROM withdrawal_requests w JOIN withdrawal_jobs k ON k.withdrawal_id = w.id
            JOIN outbound_jobs j ON j.id = k.job_id
        WHERE j.state <> 'failed_final' AND NOT (k.number = w.jobs AND w.status IN ('queued', 'completed')) ORDER BY w.id LIMIT 1";
    /// A job that has a withdrawal's name, and is not known as its payment: it could pay it beside its hold.
    FIND_NAMED_JOB = "SELECT w.id, j.id FROM withdrawal_requests w JOIN outbound_jobs j ON j.kind = 'withdrawal' AND j.reference = 'wr-' || w.id
            AND NOT j.failed
        WHERE j.withdrawal_id IS NULL ORDER BY w.id LIMIT 1";
    /// A job that pays something else than its withdrawal wants and people have signed, or jobs that are missing.
    FIND_WRONG_PAYMENT = "SELECT w.id FROM withdrawal_requests w JOIN asset_on_chain l ON l.id = w.listing_id JOIN assets a ON a.id = w.asset_id
        WHERE w.jobs <> (SELECT COUNT(*) FROM withdrawal_jobs k WHERE k.withdrawal_id = w.id)
            OR w.jobs <> (SELECT COUNT(*) FROM outbound_jobs j WHERE j.withdrawal_id = w.id)
            OR EXISTS (SELECT 1 FROM withdrawal_jobs k LEFT JOIN outbound_jobs j ON j.id = k.job_id WHERE k.withdrawal_id = w.id
                AND (j.id IS NULL OR j.kind <> 'withdrawal' OR j.reference <> 'wr-' || w.id OR j.to_address <> w.to_address
                    OR j.listing_id <> w.listing_id OR COALESCE(j.withdrawal_id, 0) <> w.id OR j.owner_group IS NOT NULL
                    OR j.most_fee_raw <> w.network_fee_raw OR j.expires_at <> w.expires_at OR j.requester <> 'user-' || w.user_id
                    OR j.amount_raw <> w.amount || substr('0000000000000000000000000000000000000000', 1, CAST(l.decimals - a.precision AS INTEGER))))
        ORDER BY w.id LIMIT 1";
    /// Money that was paid out otherwise than the withdrawal says: another amount or fee, or to another payee.
    FIND_WRONG_SETTLEMENT = "SELECT w.id FROM withdrawal_requests w
            JOIN movements p ON p.op_key = 'wr-' || w.id || ':settle' AND p.leg = 0 AND p.outcome = 0
            LEFT JOIN movements f ON f.op_key = p.op_key AND f.leg = 1 AND f.outcome = 0 LEFT JOIN accounts t ON t.id = p.to_account
        WHERE p.from_account <> w.account_id OR p.amount <> w.amount OR COALESCE(f.amount, 0) <> w.fee
            OR CASE WHEN w.payee_id IS NULL THEN COALESCE(t.kind, '') <> 'suspense' ELSE COALESCE(t.owner, 0) <> w.payee_id END
        ORDER BY w.id LIMIT 1";
    /// One that is to be paid, or was, and that fewer people have signed than its policy wanted. What another program may have paid can have had a job for
    /// which fewer had to: the doubt came later, and raised one to two. While it was queued it left a step from there to there; who agrees after that is two.
    FIND_UNSIGNED = "SELECT w.id, w.people FROM withdrawal_requests w
        WHERE w.people > 0 AND w.judged IS NULL AND (w.status IN ('approved', 'queued', 'completed') OR (w.jobs > 0 AND w.rule <> 'imported_may_be_paid'))
            AND NOT EXISTS (SELECT 1 FROM withdrawal_approvals v WHERE v.withdrawal_id = w.id GROUP BY v.digest, v.version HAVING COUNT(DISTINCT v.person) >= w.people)
            AND NOT (w.rule = 'imported_may_be_paid' AND w.people = 2 AND w.status IN ('queued', 'completed')
                AND EXISTS (SELECT 1 FROM withdrawal_approvals v WHERE v.withdrawal_id = w.id)
                AND EXISTS (SELECT 1 FROM withdrawal_events d JOIN withdrawal_events b ON b.withdrawal_id = d.withdrawal_id AND b.version = d.version - 1
                    WHERE d.withdrawal_id = w.id AND d.status = 'queued' AND b.status = 'queued' AND NOT EXISTS (SELECT 1 FROM withdrawal_events a
                        WHERE a.withdrawal_id = w.id AND a.version > d.version AND a.status = 'approved')))
        ORDER BY w.id LIMIT 1";
    /// A sum of a day that is not the sum of its requests.
    FIND_WRONG_DAY = "SELECT d.listing_id, d.day FROM withdrawal_days d WHERE d.used <> COALESCE((SELECT SUM(w.amount) FROM withdrawal_requests w
            WHERE w.listing_id = d.listing_id AND w.created_at >= d.day * 86400000000 AND w.created_at < (d.day + 1) * 86400000000
                AND w.status NOT IN ('failed', 'rejected', 'cancelled')), 0)
        ORDER BY d.listing_id, d.day LIMIT 1";
}

pub(crate) async fn check_withdrawals(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    if let Some(wrong) = check_walks(tx).await? {
        return Ok(Some(wrong));
    }
    let row = |id: i64| format!("withdrawal_requests id={id}");
    if let Some((id,)) = fetch_optional!(tx, FIND_WITHDRAWAL_WITHOUT_HISTORY => (i64,))? {
        return Ok(violation(row(id), "its history does not lead to its status"));
    }
    if let Some((id, status)) = fetch_optional!(tx, FIND_WRONG_HOLD => (i64, String))? {
        return Ok(violation(row(id), format!("it is {status}, and its hold says otherwise")));
    }
    if let Some((id, status, state)) = fetch_optional!(tx, FIND_UNCHECKED => (i64, String, String))? {
        return Ok(violation(row(id), format!("it is {status}, and its check is {state}")));
    }
    if let Some((id, status, job, state)) = fetch_optional!(tx, FIND_LIVE_JOB => (i64, String, i64, String))? {
        return Ok(violation(row(id), format!("it is {status}, and job-{job} is {state}: it can be paid")));
    }
    if let Some((id, job)) = fetch_optional!(tx, FIND_NAMED_JOB => (i64, i64))? {
        return Ok(violation(
            row(id),
            format!("job-{job} has its name, and is not known as its payment: it can be paid twice"),
        ));
    }
    if let Some((id,)) = fetch_optional!(tx, FIND_WRONG_PAYMENT => (i64,))? {
        return Ok(violation(row(id), "a job of it pays something else, or is missing"));
    }
    if let Some((id,)) = fetch_optional!(tx, FIND_WRONG_SETTLEMENT => (i64,))? {
        return Ok(violation(row(id), "what was paid out of its hold is not what it says"));
    }
    if let Some((id, people)) = fetch_optional!(tx, FIND_UNSIGNED => (i64, i64))? {
        return Ok(violation(row(id), format!("{people} people had to agree, and fewer have signed")));
    }
    if let Some((listing, day)) = fetch_optional!(tx, FIND_WRONG_DAY => (i64, i64))? {
        let row = format!("withdrawal_days listing_id={listing} day={day}");
        return Ok(violation(row, "it is not the sum of the requests of its day"));
    }
    Ok(None)
}

/// Each history is a walk through the machine that begins with the request.
async fn check_walks(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let mut after = (0, 0);
    let mut open: Option<(i64, WithdrawalState)> = None;
    loop {
        let rows = fetch_all!(tx, PAGE_WITHDRAWAL_EVENTS => (i64, i64, String), after.0, after.1, PAGE)?;
        let Some(last) = rows.last().map(|(id, version, _)| (*id, *version)) else { return Ok(None) };
        after = last;
        for (id, version, status) in rows {
            let wrong = |problem: &str| violation(format!("withdrawal_events {id} {version}"), problem);
            let Some(state) = WithdrawalState::parse(&status) else { return Ok(wrong("an unknown status")) };
            let follows = match open {
                Some((same, before)) if same == id => {
                    WithdrawalEvent::ALL.into_iter().any(|event| before.next(event) == Ok(state))
                }
                _ => version == 1 && state == WithdrawalState::Pending,
            };
            if !follows {
                return Ok(wrong("no event leads to it"));
            }
            open = Some((id, state));
        }
    }
}
