//! Withdrawals for people, and what waits for workers.

use domain::outbound::JobState;
use domain::transfer::ClientOrderId;
use domain::utxo::Hash;
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
    /// Their jobs are confirmed.
    pub paid: Vec<WithdrawalId>,
    /// Their jobs have failed for good.
    pub failed: Vec<WithdrawalId>,
}

/// Behind which ones a worker goes on: what stays where it is does not keep those behind it waiting. What is paid has none, because it is settled
/// whenever it is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DueAfter {
    pub approved: Option<WithdrawalId>,
    pub failed: Option<WithdrawalId>,
}

/// How many of a chain are in a state in which they hold money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenWithdrawals {
    pub chain: String,
    pub state: WithdrawalState,
    pub count: u64,
    /// When the oldest of them was asked for.
    pub oldest: Timestamp,
}

/// Which withdrawals are wanted. `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithdrawalFilter {
    pub user: Option<UserId>,
    pub chain: Option<String>,
    pub asset: Option<String>,
    pub state: Option<WithdrawalState>,
    pub client_order_id: Option<ClientOrderId>,
}

/// The payment of a withdrawal, in the block that has it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinedPayment {
    pub transaction: Hash,
    pub height: i64,
}

statements! {
    /// Newest first. The empty text stands for any.
    LIST_WITHDRAWALS_OF_USER(COLUMNS) = "SELECT {columns w} FROM withdrawal_requests w JOIN chains c ON c.id = w.chain_id
            JOIN assets a ON a.id = w.asset_id
        WHERE w.user_id = $1 AND w.id < $2 AND ($3 = '' OR w.status = $3) AND ($4 = '' OR c.name = $4) AND ($5 = '' OR a.symbol = $5)
            AND ($6 = '' OR w.client_order_id = $6) ORDER BY w.id DESC LIMIT $7";
    LIST_ALL_WITHDRAWALS(COLUMNS) = "SELECT {columns w} FROM withdrawal_requests w JOIN chains c ON c.id = w.chain_id
            JOIN assets a ON a.id = w.asset_id
        WHERE w.id < $1 AND ($2 = '' OR w.status = $2) AND ($3 = '' OR c.name = $3) AND ($4 = '' OR a.symbol = $4)
            AND ($5 = '' OR w.client_order_id = $5) ORDER BY w.id DESC LIMIT $6";
    /// Of its newest job: what a block has now, and nothing that was merely sent.
    READ_MINED_PAYMENT = "SELECT t.tx_hash, t.mined_height FROM withdrawal_requests w
            {join} withdrawal_jobs k ON k.withdrawal_id = w.id AND k.number = w.jobs {join} outbound_slot_jobs o ON o.job_id = k.job_id
            {join} outbound_attempts t ON t.slot_id = o.slot_id
        WHERE w.id = $1 AND t.kind = 'pay' AND t.paid = 'in_full' AND t.tx_hash IS NOT NULL AND t.mined_height IS NOT NULL
        ORDER BY o.round DESC, o.slot_id DESC LIMIT 1";
    COUNT_OPEN = "SELECT c.name, w.status, COUNT(*), MIN(w.created_at) FROM withdrawal_requests w JOIN chains c ON c.id = w.chain_id
        WHERE w.status IN ('pending', 'manual_review', 'approved', 'queued') GROUP BY c.name, w.status ORDER BY c.name, w.status";
    /// Newest first. The empty text stands for every status.
    LIST_WITHDRAWALS(COLUMNS) = "SELECT {columns} FROM withdrawal_requests
        WHERE user_id = $1 AND id < $2 AND ($3 = '' OR status = $3) ORDER BY id DESC LIMIT $4";
    /// What was settled inside for its payee, what came last first. A row that is completed changes no more while it is, so the time of its last change is
    /// when it came; its number is that of when it was asked for.
    LIST_RECEIVED(COLUMNS) = "SELECT {columns} FROM withdrawal_requests
        WHERE payee_id = $1 AND status = 'completed'
            AND (updated_at, id) < (COALESCE((SELECT c.updated_at FROM withdrawal_requests c WHERE c.id = $2 AND c.payee_id = $1), 9223372036854775807), $2)
        ORDER BY updated_at DESC, id DESC LIMIT $3";
    READ_WITHDRAWAL_EVENTS = "SELECT version, status, actor, reason, at FROM withdrawal_events WHERE withdrawal_id = $1 ORDER BY version";
    READ_APPROVED(COLUMNS) = "SELECT {columns} FROM withdrawal_requests WHERE status = 'approved' AND chain_id = $1 AND id > $2
        ORDER BY id LIMIT $3";
    READ_ENDED = "SELECT w.id FROM withdrawal_requests w {join} withdrawal_jobs k ON k.withdrawal_id = w.id AND k.number = w.jobs
            {join} outbound_jobs j ON j.id = k.job_id
        WHERE w.status = 'queued' AND w.chain_id = $1 AND j.state = $2 AND w.id > $3 ORDER BY w.id LIMIT $4";
    /// What nobody has agreed to, or has not been paid, in time.
    READ_EXPIRED = "SELECT id FROM withdrawal_requests WHERE status IN ('pending', 'manual_review', 'approved') AND chain_id = $1 AND expires_at <= $2
            AND rule <> 'imported_may_be_paid' AND id > $3
        ORDER BY id LIMIT $4";
    /// From the jobs' side: of all that was ever completed, few failed later. What was paid otherwise than by its job does not come back with it.
    READ_TAKEN_BACK = "SELECT w.id FROM outbound_jobs j {join} withdrawal_jobs k ON k.job_id = j.id
            {join} withdrawal_requests w ON w.id = k.withdrawal_id AND w.jobs = k.number
        WHERE j.failed AND j.chain_id = $1 AND w.status = 'completed'
            AND w.judged IS NULL AND w.payee_id IS NULL AND w.id > $2 ORDER BY w.id LIMIT $3";
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

    /// A page, the newest first, before a number.
    pub async fn list_withdrawals(
        &self,
        filter: &WithdrawalFilter,
        before: Option<WithdrawalId>,
        most: i64,
    ) -> Result<Vec<WithdrawalRow>, StoreError> {
        let before = before.map_or(i64::MAX, WithdrawalId::number);
        let state = filter.state.map_or("", WithdrawalState::as_str);
        let (chain, asset) = (filter.chain.as_deref().unwrap_or(""), filter.asset.as_deref().unwrap_or(""));
        let name = filter.client_order_id.as_ref().map_or("", ClientOrderId::as_str);
        let tx = &mut self.read().await?;
        let rows = match filter.user {
            Some(user) => {
                fetch_all!(tx, LIST_WITHDRAWALS_OF_USER => Columns, user.get(), before, state, chain, asset, name, most)?
            }
            None => fetch_all!(tx, LIST_ALL_WITHDRAWALS => Columns, before, state, chain, asset, name, most)?,
        };
        withdrawal_rows(rows)
    }

    /// Other customers' that were settled inside in this user's favour, what came last first, before one of them.
    pub async fn received_inside(
        &self,
        payee: UserId,
        before: Option<WithdrawalId>,
        most: i64,
    ) -> Result<Vec<WithdrawalRow>, StoreError> {
        let before = before.map_or(i64::MAX, WithdrawalId::number);
        withdrawal_rows(fetch_all!(&mut self.read().await?, LIST_RECEIVED => Columns, payee.get(), before, most)?)
    }

    /// What a block has of its payment. A chain may take the block back, and have another of our transactions in the next.
    pub async fn mined_payment(&self, id: WithdrawalId) -> Result<Option<MinedPayment>, StoreError> {
        let row = fetch_optional!(&mut self.read().await?, READ_MINED_PAYMENT => (Vec<u8>, i64), id.number())?;
        let payment = |(hash, height): (Vec<u8>, i64)| {
            let bytes = <[u8; 32]>::try_from(hash.as_slice()).map_err(|_| malformed("hash"))?;
            Ok(MinedPayment { transaction: Hash(bytes), height })
        };
        row.map(payment).transpose()
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

    /// What holds money, by chain and state.
    pub async fn open_withdrawals(&self) -> Result<Vec<OpenWithdrawals>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, COUNT_OPEN => (String, String, i64, i64))?;
        let one = |(chain, status, count, oldest): (String, String, i64, i64)| {
            let state = WithdrawalState::parse(&status).ok_or_else(|| malformed("status"))?;
            let count = u64::try_from(count).unwrap_or(0);
            Ok(OpenWithdrawals { chain, state, count, oldest: Timestamp::from_micros(oldest) })
        };
        rows.into_iter().map(one).collect()
    }

    /// What waits for a job, and whose jobs have ended, on a chain: so many of each.
    pub async fn withdrawals_due(
        &self,
        chain: ChainId,
        after: DueAfter,
        most: i64,
    ) -> Result<WithdrawalsDue, StoreError> {
        let tx = &mut self.read().await?;
        let rows = fetch_all!(tx, READ_APPROVED => Columns, chain.0, behind(after.approved), most)?;
        let approved = withdrawal_rows(rows)?;
        let paid = fetch_all!(tx, READ_ENDED => (i64,), chain.0, JobState::Confirmed.as_str(), 0_i64, most)?;
        let failed = JobState::FailedFinal.as_str();
        let failed = fetch_all!(tx, READ_ENDED => (i64,), chain.0, failed, behind(after.failed), most)?;
        Ok(WithdrawalsDue { approved, paid: ids(paid)?, failed: ids(failed)? })
    }

    /// Whose time is over, and that have no job, behind this one. It reads all that wait, so it is asked now and then.
    pub async fn withdrawals_expired(
        &self,
        chain: ChainId,
        now: Timestamp,
        after: Option<WithdrawalId>,
        most: i64,
    ) -> Result<Vec<WithdrawalId>, StoreError> {
        let (at, after) = (now.micros(), behind(after));
        ids(fetch_all!(&mut self.read().await?, READ_EXPIRED => (i64,), chain.0, at, after, most)?)
    }

    /// What was completed, and a chain took back for good, behind this one. It reads all jobs that ever failed, so it is asked now and then.
    pub async fn withdrawals_taken_back(
        &self,
        chain: ChainId,
        after: Option<WithdrawalId>,
        most: i64,
    ) -> Result<Vec<WithdrawalId>, StoreError> {
        ids(fetch_all!(&mut self.read().await?, READ_TAKEN_BACK => (i64,), chain.0, behind(after), most)?)
    }
}

fn behind(after: Option<WithdrawalId>) -> i64 {
    after.map_or(0, WithdrawalId::number)
}

fn ids(rows: Vec<(i64,)>) -> Result<Vec<WithdrawalId>, StoreError> {
    rows.into_iter().map(|(id,)| withdrawal_id(id)).collect()
}
