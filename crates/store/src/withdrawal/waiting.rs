//! Withdrawals as operators see them: what waits, for whom, since when, and who sees to it. Whatever belongs to a page of them is read by one statement
//! for the whole page.

use std::collections::HashMap;

use domain::operator::OperatorName;
use domain::outbound::JobState;
use domain::withdrawal::WithdrawalState;
use domain::{Precision, Timestamp, UserId};

use super::check::{CheckRow, read_checks};
use super::types::{COLUMNS, Columns, WithdrawalId, WithdrawalRow, malformed, numbers, withdrawal_rows};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::error::StoreError;
use crate::outbound::JobId;

/// Which of them. What is left open lets all through.
#[derive(Clone, Debug, Default)]
pub struct WaitingFilter {
    /// Empty: what waits for people.
    pub states: Vec<WithdrawalState>,
    /// A chain's name, and an asset's symbol.
    pub chain: String,
    pub asset: String,
    pub user: Option<UserId>,
    /// Whoever sees to it.
    pub assigned: Option<OperatorName>,
}

/// Who sees to a withdrawal, by whom and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignee {
    pub to: OperatorName,
    pub actor: String,
    pub at: Timestamp,
}

/// A withdrawal, with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownWithdrawal {
    pub row: WithdrawalRow,
    pub asset: String,
    pub precision: Precision,
    pub chain: String,
    pub check: Option<CheckRow>,
    pub assigned: Option<Assignee>,
    /// The newest job, if there is one.
    pub job: Option<(JobId, JobState, String)>,
}

statements! {
    /// The oldest first: who has waited longest.
    LIST_WAITING(COLUMNS) = "SELECT {columns w} FROM withdrawal_requests w JOIN chains c ON c.id = w.chain_id JOIN assets a ON a.id = w.asset_id
        WHERE w.id > $1 AND w.status {in $2} AND ($3 = '' OR c.name = $3) AND ($4 = '' OR a.symbol = $4) AND ($5 = 0 OR w.user_id = $5)
            AND ($6 = '' OR $6 = (SELECT o.name FROM withdrawal_assignments s JOIN operators o ON o.id = s.operator_id
                WHERE s.id = (SELECT MAX(n.id) FROM withdrawal_assignments n WHERE n.withdrawal_id = w.id)))
        ORDER BY w.id LIMIT $7";
    READ_WITHDRAWAL_NAMES = "SELECT w.id, a.symbol, a.precision, c.name FROM withdrawal_requests w JOIN assets a ON a.id = w.asset_id
        JOIN chains c ON c.id = w.chain_id WHERE w.id {in $1}";
    READ_ASSIGNMENTS = "SELECT s.withdrawal_id, o.name, s.actor, s.at FROM withdrawal_assignments s JOIN operators o ON o.id = s.operator_id
        WHERE s.withdrawal_id {in $1} AND s.id = (SELECT MAX(n.id) FROM withdrawal_assignments n WHERE n.withdrawal_id = s.withdrawal_id)";
    READ_JOBS_OF_PAGE = "SELECT w.id, j.id, j.state, j.reason FROM withdrawal_requests w JOIN withdrawal_jobs k ON k.withdrawal_id = w.id AND k.number = w.jobs
        JOIN outbound_jobs j ON j.id = k.job_id WHERE w.id {in $1}";
}

impl Db {
    /// The oldest first, behind a number.
    pub async fn withdrawals_waiting(
        &self,
        filter: &WaitingFilter,
        after: Option<WithdrawalId>,
        most: i64,
    ) -> Result<Vec<ShownWithdrawal>, StoreError> {
        let waits = [WithdrawalState::Pending, WithdrawalState::ManualReview];
        let states = if filter.states.is_empty() { &waits[..] } else { &filter.states };
        let states = Many(states.iter().map(|state| state.as_str().to_owned()).collect::<Vec<String>>());
        let (chain, asset) = (filter.chain.as_str(), filter.asset.as_str());
        let user = filter.user.map_or(0, UserId::get);
        let assigned = filter.assigned.as_ref().map_or("", OperatorName::as_str);
        let after = after.map_or(0, WithdrawalId::number);
        let tx = &mut self.read().await?;
        let rows = fetch_all!(tx, LIST_WAITING => Columns, after, states.clone(), chain, asset, user, assigned, most)?;
        around(tx, withdrawal_rows(rows)?).await
    }

    /// One of them.
    pub async fn withdrawal_shown(&self, id: WithdrawalId) -> Result<Option<ShownWithdrawal>, StoreError> {
        let tx = &mut self.read().await?;
        let rows = fetch_all!(tx, super::types::READ_WITHDRAWALS => Columns, numbers(std::iter::once(id)))?;
        Ok(around(tx, withdrawal_rows(rows)?).await?.pop())
    }
}

async fn around(tx: &mut Tx, rows: Vec<WithdrawalRow>) -> Result<Vec<ShownWithdrawal>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let ids = numbers(rows.iter().map(|row| row.id));
    type Names = (i64, String, i64, String);
    let names = fetch_all!(tx, READ_WITHDRAWAL_NAMES => Names, ids.clone())?;
    let mut names: HashMap<i64, Names> = names.into_iter().map(|names| (names.0, names)).collect();
    let mut checks = read_checks(tx, rows.iter().map(|row| row.id)).await?;
    let mut assigned = HashMap::new();
    for (id, name, actor, at) in fetch_all!(tx, READ_ASSIGNMENTS => (i64, String, String, i64), ids.clone())? {
        let to = name.parse().map_err(|_| malformed("assignment"))?;
        assigned.insert(id, Assignee { to, actor, at: Timestamp::from_micros(at) });
    }
    let mut jobs = HashMap::new();
    for (id, job, state, reason) in fetch_all!(tx, READ_JOBS_OF_PAGE => (i64, i64, String, String), ids.clone())? {
        let job = JobId::new(job).map_err(|_| malformed("job"))?;
        jobs.insert(id, (job, JobState::parse(&state).ok_or_else(|| malformed("job"))?, reason));
    }
    let shown = |row: WithdrawalRow| {
        let id = row.id.number();
        let (_, asset, precision, chain) = names.remove(&id).ok_or_else(|| malformed("coin"))?;
        let precision = u8::try_from(precision).ok().and_then(Precision::new).ok_or_else(|| malformed("precision"))?;
        let (check, assigned, job) = (checks.remove(&id), assigned.remove(&id), jobs.remove(&id));
        Ok(ShownWithdrawal { row, asset, precision, chain, check, assigned, job })
    };
    rows.into_iter().map(shown).collect()
}
