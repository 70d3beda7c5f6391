//! Withdrawals for people, and what waits for workers.

use domain::outbound::JobState;
use domain::withdrawal::WithdrawalState;
use domain::{Timestamp, UserId};

use super::queue::READ_JOBS_OF_WITHDRAWAL;
use super::types::{
    COLUMNS, Columns, READ_WITHDRAWALS, WithdrawalId, WithdrawalRow, malformed, numbers, withdrawal_id, withdrawal_rows,
};
use crate::db::Db;
use crate::entry::ChainId;
use crate::error::StoreError;
use crate::outbound::JobId;

/// A step of a withdrawal's history: who, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalStep {
    pub version: i64,
    pub state: WithdrawalState,
    pub actor: String,
    pub reason: String,
    pub at: Timestamp,
}

/// What a chain's worker has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithdrawalsDue {
    /// They may be paid, and have no job.
    pub approved: Vec<WithdrawalRow>,
    /// Their jobs have ended.
    pub ended: Vec<WithdrawalId>,
}

statements! {
    /// Newest first. The empty text stands for every status.
    LIST_WITHDRAWALS(COLUMNS) = "SELECT {columns} FROM withdrawal_requests
        WHERE user_id = $1 AND id < $2 AND ($3 = '' OR status = $3) ORDER BY id DESC LIMIT $4";
    READ_WITHDRAWAL_EVENTS = "SELECT version, status, actor, reason, at FROM withdrawal_events WHERE withdrawal_id = $1 ORDER BY version";
    READ_APPROVED(COLUMNS) = "SELECT {columns} FROM withdrawal_requests WHERE status = 'approved' AND chain_id = $1 AND id > $2
        ORDER BY id LIMIT $3";
    READ_ENDED = "SELECT w.id FROM withdrawal_requests w {join} withdrawal_jobs k ON k.withdrawal_id = w.id AND k.number = w.jobs
            {join} outbound_jobs j ON j.id = k.job_id
        WHERE w.status = 'queued' AND w.chain_id = $1 AND j.state IN ('confirmed', 'failed_final') ORDER BY w.id LIMIT $2";
    /// What nobody has agreed to, or has not been paid, in time.
    READ_EXPIRED = "SELECT id FROM withdrawal_requests WHERE status IN ('pending', 'manual_review', 'approved') AND chain_id = $1 AND expires_at <= $2
        ORDER BY id LIMIT $3";
    /// From the jobs' side: of all that was ever completed, few failed later.
    READ_TAKEN_BACK = "SELECT w.id FROM outbound_jobs j {join} withdrawal_jobs k ON k.job_id = j.id
            {join} withdrawal_requests w ON w.id = k.withdrawal_id AND w.jobs = k.number
        WHERE j.state = 'failed_final' AND j.chain_id = $1 AND w.status = 'completed' ORDER BY w.id LIMIT $2";
}

impl Db {
    /// These, as far as they exist, in the order of their ids.
    pub async fn withdrawals(&self, ids: &[WithdrawalId]) -> Result<Vec<WithdrawalRow>, StoreError> {
        withdrawal_rows(fetch_all!(&mut self.read().await?, READ_WITHDRAWALS => Columns, numbers(ids.iter().copied()))?)
    }

    /// A user's, newest first, before a number.
    pub async fn withdrawals_of(
        &self,
        user: UserId,
        state: Option<WithdrawalState>,
        before: Option<WithdrawalId>,
        most: i64,
    ) -> Result<Vec<WithdrawalRow>, StoreError> {
        let before = before.map_or(i64::MAX, WithdrawalId::number);
        let state = state.map_or("", WithdrawalState::as_str);
        let tx = &mut self.read().await?;
        withdrawal_rows(fetch_all!(tx, LIST_WITHDRAWALS => Columns, user.get(), before, state, most)?)
    }

    pub async fn withdrawal_history(&self, id: WithdrawalId) -> Result<Vec<WithdrawalStep>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_WITHDRAWAL_EVENTS => (i64, String, String, String, i64), id.number())?;
        let step = |(version, status, actor, reason, at): (i64, String, String, String, i64)| {
            let state = WithdrawalState::parse(&status).ok_or_else(|| malformed("status"))?;
            Ok(WithdrawalStep { version, state, actor, reason, at: Timestamp::from_micros(at) })
        };
        rows.into_iter().map(step).collect()
    }

    /// The jobs that were made for it, the oldest first.
    pub async fn jobs_of_withdrawal(&self, id: WithdrawalId) -> Result<Vec<(JobId, JobState)>, StoreError> {
        let tx = &mut self.read().await?;
        let rows = fetch_all!(tx, READ_JOBS_OF_WITHDRAWAL => (i64, i64, String), id.number())?;
        let job = |(_, job, state): (i64, i64, String)| {
            let job = JobId::new(job).map_err(|_| malformed("job"))?;
            Ok((job, JobState::parse(&state).ok_or_else(|| malformed("job"))?))
        };
        rows.into_iter().map(job).collect()
    }

    /// What waits for a job behind this one, and whose jobs have ended, on a chain.
    pub async fn withdrawals_due(
        &self,
        chain: ChainId,
        after: Option<WithdrawalId>,
        most: i64,
    ) -> Result<WithdrawalsDue, StoreError> {
        let tx = &mut self.read().await?;
        let after = after.map_or(0, WithdrawalId::number);
        let approved = withdrawal_rows(fetch_all!(tx, READ_APPROVED => Columns, chain.0, after, most)?)?;
        let ended = fetch_all!(tx, READ_ENDED => (i64,), chain.0, most)?;
        let ended = ended.into_iter().map(|(id,)| withdrawal_id(id)).collect::<Result<_, _>>()?;
        Ok(WithdrawalsDue { approved, ended })
    }

    /// Whose time is over, and that have no job. It reads all that wait, so it is asked now and then.
    pub async fn withdrawals_expired(
        &self,
        chain: ChainId,
        now: Timestamp,
        most: i64,
    ) -> Result<Vec<WithdrawalId>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_EXPIRED => (i64,), chain.0, now.micros(), most)?;
        rows.into_iter().map(|(id,)| withdrawal_id(id)).collect()
    }

    /// What was completed, and a chain took back for good. It reads all jobs that ever failed, so it is asked now and then.
    pub async fn withdrawals_taken_back(&self, chain: ChainId, most: i64) -> Result<Vec<WithdrawalId>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_TAKEN_BACK => (i64,), chain.0, most)?;
        rows.into_iter().map(|(id,)| withdrawal_id(id)).collect()
    }
}
