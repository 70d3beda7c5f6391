//! The figures by which operators see how withdrawals go. All of them are added up by the database, over what was made since a time and what is still open.

use std::collections::BTreeMap;

use domain::outbound::JobState;
use domain::withdrawal::WithdrawalState;
use domain::{RawAmount, RawSum, Timestamp, id};

use super::types::malformed;
use crate::db::Db;
use crate::error::StoreError;

/// How many there were, and how long they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    pub count: i64,
    pub sum_us: i64,
}

impl Took {
    /// On average. `None`: there was none.
    pub const fn average_us(self) -> Option<i64> {
        if self.count == 0 { None } else { Some(self.sum_us / self.count) }
    }
}

/// What the transactions of withdrawals on a chain have cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GasFigure {
    pub chain: String,
    /// The chain's own coin.
    pub coin: String,
    pub decimals: u8,
    /// Jobs that were confirmed.
    pub jobs: i64,
    /// Of all mined transactions, also of those that paid nothing.
    pub fee: RawAmount,
}

impl GasFigure {
    /// `None`: no job was confirmed.
    pub fn per_job(&self) -> Option<RawAmount> {
        self.fee.checked_div(u64::try_from(self.jobs).ok()?)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithdrawalFigures {
    /// What waits for people now, and since when the oldest of them does.
    pub pending_approvals: i64,
    pub oldest_pending: Option<Timestamp>,
    /// From the request to the approval, where people had to agree.
    pub approval: Took,
    /// Requests by their state: those of the time, and all that are still open.
    pub requests: BTreeMap<&'static str, i64>,
    /// Jobs by their state, likewise.
    pub jobs: BTreeMap<&'static str, i64>,
    /// From the broadcast to the depth that counts.
    pub confirmation: Took,
    /// Jobs that were tried more than once.
    pub retried: i64,
    pub gas: Vec<GasFigure>,
    pub checks_waiting: i64,
    pub oldest_check: Option<Timestamp>,
}

statements! {
    COUNT_REQUESTS = "SELECT status, COUNT(*) FROM withdrawal_requests WHERE id >= $1 OR status IN ('pending', 'manual_review', 'approved', 'queued')
        GROUP BY status";
    READ_PENDING = "SELECT COUNT(*), MIN(created_at) FROM withdrawal_requests WHERE status IN ('pending', 'manual_review')";
    /// The first approval of each counts: one that could not be paid at first is approved again without anybody.
    SUM_APPROVALS = "SELECT COUNT(*), CAST(COALESCE(SUM(e.at - w.created_at), 0) AS BIGINT) FROM withdrawal_requests w
            JOIN withdrawal_events e ON e.withdrawal_id = w.id AND e.version = (SELECT MIN(f.version) FROM withdrawal_events f
                WHERE f.withdrawal_id = w.id AND f.status = 'approved')
        WHERE w.id >= $1 AND e.actor NOT LIKE 'policy %'";
    COUNT_JOBS = "SELECT j.state, COUNT(*), CAST(COALESCE(SUM(CASE WHEN j.tries > 0 OR j.rounds > 1 THEN 1 ELSE 0 END), 0) AS BIGINT)
        FROM outbound_jobs j WHERE j.kind = 'withdrawal' AND (j.id >= $1 OR j.id IN (SELECT k.job_id FROM withdrawal_requests w
            JOIN withdrawal_jobs k ON k.withdrawal_id = w.id AND k.number = w.jobs WHERE w.status = 'queued')) GROUP BY j.state";
    SUM_CONFIRMATIONS = "SELECT COUNT(*), CAST(COALESCE(SUM(c.at - b.at), 0) AS BIGINT) FROM outbound_jobs j
            JOIN outbound_job_events c ON c.job_id = j.id AND c.version = (SELECT MAX(x.version) FROM outbound_job_events x
                WHERE x.job_id = j.id AND x.state = 'confirmed')
            JOIN outbound_job_events b ON b.job_id = j.id AND b.version = (SELECT MAX(x.version) FROM outbound_job_events x
                WHERE x.job_id = j.id AND x.state = 'broadcasted')
        WHERE j.kind = 'withdrawal' AND j.id >= $1 AND j.state = 'confirmed'";
    /// A fee has more digits than a number of the database: it is added up in four parts of nine.
    SUM_GAS = "SELECT c.name, s.symbol, k.decimals,
            (SELECT COUNT(*) FROM outbound_jobs j WHERE j.chain_id = c.id AND j.kind = 'withdrawal' AND j.id >= $1 AND j.state = 'confirmed'),
            CAST(SUM(CAST(substr(x.digits, length(x.digits) - 35, 9) AS BIGINT)) AS BIGINT),
            CAST(SUM(CAST(substr(x.digits, length(x.digits) - 26, 9) AS BIGINT)) AS BIGINT),
            CAST(SUM(CAST(substr(x.digits, length(x.digits) - 17, 9) AS BIGINT)) AS BIGINT),
            CAST(SUM(CAST(substr(x.digits, length(x.digits) - 8, 9) AS BIGINT)) AS BIGINT)
        FROM (SELECT DISTINCT a.slot_id, a.number, l.chain_id, '000000000000000000000000000000000000' || a.fee_raw AS digits
                FROM outbound_attempts a JOIN outbound_slots o ON o.id = a.slot_id JOIN outbound_lanes l ON l.id = o.lane_id
                    JOIN outbound_slot_jobs p ON p.slot_id = a.slot_id JOIN outbound_jobs j ON j.id = p.job_id
                WHERE a.paid IS NOT NULL AND a.created_at >= $2 AND a.fee_raw IS NOT NULL AND j.kind = 'withdrawal') x
            JOIN chains c ON c.id = x.chain_id JOIN asset_on_chain k ON k.chain_id = c.id AND k.contract IS NULL JOIN assets s ON s.id = k.asset_id
        GROUP BY c.id, c.name, s.symbol, k.decimals ORDER BY c.name";
}

impl Db {
    /// The figures of what was made since a time, and of what is still open.
    pub async fn withdrawal_figures(&self, since: Timestamp) -> Result<WithdrawalFigures, StoreError> {
        let (first, since) = (id::first_at(since), since.micros());
        let tx = &mut self.read().await?;
        let mut figures = WithdrawalFigures::default();
        for (status, count) in fetch_all!(tx, COUNT_REQUESTS => (String, i64), first)? {
            let state = WithdrawalState::parse(&status).ok_or_else(|| malformed("status"))?;
            figures.requests.insert(state.as_str(), count);
        }
        for (state, count, retried) in fetch_all!(tx, COUNT_JOBS => (String, i64, i64), first)? {
            let state = JobState::parse(&state).ok_or_else(|| malformed("job"))?;
            figures.jobs.insert(state.as_str(), count);
            figures.retried = figures.retried.saturating_add(retried);
        }
        let (count, oldest) = fetch_optional!(tx, READ_PENDING => (i64, Option<i64>))?.unwrap_or_default();
        (figures.pending_approvals, figures.oldest_pending) = (count, oldest.map(Timestamp::from_micros));
        let took = |(count, sum_us): (i64, i64)| Took { count, sum_us };
        figures.approval = fetch_optional!(tx, SUM_APPROVALS => (i64, i64), first)?.map(took).unwrap_or_default();
        figures.confirmation =
            fetch_optional!(tx, SUM_CONFIRMATIONS => (i64, i64), first)?.map(took).unwrap_or_default();
        type Gas = (String, String, i64, i64, i64, i64, i64, i64);
        for (chain, coin, decimals, jobs, first, second, third, fourth) in fetch_all!(tx, SUM_GAS => Gas, first, since)?
        {
            let fee = joined([first, second, third, fourth]).ok_or_else(|| malformed("fee"))?;
            let decimals = u8::try_from(decimals).map_err(|_| malformed("coin"))?;
            figures.gas.push(GasFigure { chain, coin, decimals, jobs, fee });
        }
        let (count, oldest) =
            fetch_optional!(tx, super::check::COUNT_CHECKS => (i64, Option<i64>))?.unwrap_or_default();
        (figures.checks_waiting, figures.oldest_check) = (count, oldest.map(Timestamp::from_micros));
        Ok(figures)
    }
}

/// The sum whose parts are these, each nine digits below the one before.
fn joined(parts: [i64; 4]) -> Option<RawAmount> {
    let mut sum = RawSum::ZERO;
    for (part, zeros) in parts.into_iter().zip([27, 18, 9, 0]) {
        let part: RawAmount =
            if part == 0 { RawAmount::ZERO } else { format!("{part}{}", "0".repeat(zeros)).parse().ok()? };
        sum = sum.plus(RawSum::from(part));
    }
    sum.to_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_nine_digits_make_the_sum_again() {
        for (parts, text) in [
            ([0, 0, 0, 0], "0"),
            ([0, 0, 0, 7], "7"),
            ([0, 0, 1, 999_999_999], "1999999999"),
            // Sums of parts may have more than nine digits.
            ([0, 0, 12_000_000_000, 5_000_000_000], "12000000005000000000"),
            ([1, 0, 0, 1], "1000000000000000000000000001"),
        ] {
            assert_eq!(joined(parts).map(|sum| sum.to_string()).as_deref(), Some(text), "{parts:?}");
        }
    }
}
