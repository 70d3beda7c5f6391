//! A job is made for each withdrawal that may be paid, in the commit that says so. What the job does follows from the withdrawal's row and from
//! nothing else, and its reference is the withdrawal's name: there is one job for it until that has failed for good.

use std::collections::{BTreeSet, HashMap, HashSet};

use domain::outbound::JobKind;
use domain::withdrawal::{WithdrawalEvent, WithdrawalPolicy, WithdrawalState};
use domain::{AccountId, Availability, RawAmount, Timestamp, WalletRole};

use super::MOST;
use super::advance::{Change, advance};
use super::facts::{Switches, switches};
use super::types::{WithdrawalId, WithdrawalRow, lock, malformed};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::entry::{ChainRow, ListingId};
use crate::error::StoreError;
use crate::outbound::add::add;
use crate::outbound::{Added, JobId, NewJob, Payer};
use crate::rows::{Column, ColumnType::Int, RowsSql, execute_rows, expect_rows};
use crate::transact;

/// A withdrawal to pay, and under which terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueue {
    pub withdrawal: WithdrawalId,
    /// The number of its job, if one is made.
    pub job: JobId,
    /// The most that the payment may cost, in the chain's own coin.
    pub most_fee: RawAmount,
    /// It is not signed after this time.
    pub expires: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The job pays it, from this address.
    Queued {
        row: Box<WithdrawalRow>,
        job: JobId,
        from: String,
    },
    NoSuchWithdrawal,
    /// It is in this state, in which no job is made.
    NotNow(WithdrawalState),
    /// Somebody has switched it off, or suspended its chain or its asset. It stays approved.
    SwitchedOff,
    /// The customer's account is frozen or disabled: it gives nothing out. It stays approved.
    AccountClosed,
    /// No hot wallet is active on the chain. It stays approved.
    NoWallet,
    /// A job has its name that was not made for it. People look.
    Doubted {
        row: Box<WithdrawalRow>,
        job: JobId,
    },
}

/// What workers call themselves in the history.
pub(crate) const WORKER: &str = "custody";

statements! {
    READ_ACTIVE_ACCOUNTS = "SELECT id FROM accounts WHERE id {in $1} AND status = 'active'";
    /// For the audit of one, and for people: the jobs of a withdrawal.
    READ_JOBS_OF_WITHDRAWAL = "SELECT k.number, k.job_id, j.state FROM withdrawal_jobs k JOIN outbound_jobs j ON j.id = k.job_id
        WHERE k.withdrawal_id = $1 ORDER BY k.number";
}

pub(super) static INSERT_JOB_LINKS: RowsSql = RowsSql::new(
    "INSERT_JOB_LINKS",
    "INSERT INTO withdrawal_jobs (withdrawal_id, number, job_id, at) SELECT r.withdrawal_id, r.number, r.job_id, r.at FROM {rows}",
    &[("withdrawal_id", Int), ("number", Int), ("job_id", Int), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&INSERT_JOB_LINKS];

impl Db {
    /// Makes jobs for these withdrawals of one chain, in one transaction. The answers are in their order.
    pub async fn enqueue_withdrawals(
        &self,
        chain: &ChainRow,
        wanted: &[Enqueue],
        at: Timestamp,
    ) -> Result<Vec<Enqueued>, StoreError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        if wanted.len() > MOST {
            return Err(StoreError::BatchTooLarge { count: wanted.len(), most: MOST });
        }
        transact!(self, tx => enqueue(tx, chain, wanted, at).await)
    }
}

/// What switches say, read in the transaction that acts.
pub(crate) struct Allowed {
    switches: Switches,
    policies: HashMap<ListingId, WithdrawalPolicy>,
    /// Accounts that give something out.
    active: HashSet<AccountId>,
}

/// Why a withdrawal that was approved is not paid now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    SwitchedOff,
    AccountClosed,
}

impl Allowed {
    pub(crate) async fn read(tx: &mut Tx, rows: &[WithdrawalRow]) -> Result<Self, StoreError> {
        let listings: HashSet<ListingId> = rows.iter().map(|row| row.listing).collect();
        let listings: Vec<ListingId> = listings.into_iter().collect();
        let switches = switches(tx, listings.iter().copied()).await?;
        let policies = super::policy::newest(tx, &listings).await?;
        let accounts: BTreeSet<i64> = rows.iter().map(|row| row.account.0).collect();
        let accounts = Many(accounts.into_iter().collect::<Vec<i64>>());
        let active = fetch_all!(tx, READ_ACTIVE_ACCOUNTS => (i64,), accounts.clone())?;
        let active = active.into_iter().map(|(id,)| AccountId(id)).collect();
        Ok(Self { switches, policies, active })
    }

    /// In an incident what no person has agreed to waits. What is held on an account that was frozen since waits too: why it was frozen may be
    /// this very withdrawal.
    pub(crate) fn waits(&self, row: &WithdrawalRow) -> Option<Waits> {
        let switches = self.switches.get(&row.listing) == Some(&(Availability::Active, Availability::Active));
        let policy = self.policies.get(&row.listing);
        if !switches || !policy.is_some_and(|policy| policy.enabled && (!policy.incident || row.people > 0)) {
            return Some(Waits::SwitchedOff);
        }
        (!self.active.contains(&row.account)).then_some(Waits::AccountClosed)
    }
}

fn job(chain: &ChainRow, row: &WithdrawalRow, terms: &Enqueue) -> Result<NewJob, StoreError> {
    let listing = chain.listing(row.listing).ok_or_else(|| malformed("coin"))?;
    Ok(NewJob {
        id: terms.job,
        listing: row.listing,
        kind: JobKind::Withdrawal,
        reference: row.id.to_string(),
        to: row.to.clone(),
        owner: None,
        amount: RawAmount::from_ledger(row.amount, &listing.form).map_err(|_| malformed("amount"))?,
        most_fee: terms.most_fee,
        priority: JobKind::Withdrawal.priority(),
        requester: format!("user-{}", row.user.get()),
        expires: terms.expires,
        payer: Payer::Role(WalletRole::Hot),
    })
}

async fn enqueue(
    tx: &mut Tx,
    chain: &ChainRow,
    wanted: &[Enqueue],
    at: Timestamp,
) -> Result<Vec<Enqueued>, StoreError> {
    let rows = lock(tx, wanted.iter().map(|one| one.withdrawal)).await?;
    let allowed = Allowed::read(tx, &rows).await?;
    let mut rows: HashMap<WithdrawalId, WithdrawalRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    let (mut answers, mut jobs) = (Vec::with_capacity(wanted.len()), Vec::new());
    for terms in wanted {
        // Each is taken out, so that one that is named twice is not paid twice.
        let Some(row) = rows.remove(&terms.withdrawal) else {
            answers.push(Some(Enqueued::NoSuchWithdrawal));
            continue;
        };
        let refusal = if row.state != WithdrawalState::Approved {
            Some(Enqueued::NotNow(row.state))
        } else if row.chain != chain.id {
            Some(Enqueued::NoSuchWithdrawal)
        } else {
            match allowed.waits(&row) {
                Some(Waits::SwitchedOff) => Some(Enqueued::SwitchedOff),
                Some(Waits::AccountClosed) => Some(Enqueued::AccountClosed),
                None => {
                    jobs.push((answers.len(), job(chain, &row, terms)?, row));
                    None
                }
            }
        };
        answers.push(refusal);
    }
    let new: Vec<NewJob> = jobs.iter().map(|(_, job, _)| job.clone()).collect();
    let added = if new.is_empty() { Vec::new() } else { add(tx, chain.id, &new, at).await? };
    let (mut changes, mut places) = (Vec::new(), Vec::new());
    for ((place, _, row), added) in jobs.into_iter().zip(added) {
        let (event, words) = match &added {
            Added::New { id, from } => (WithdrawalEvent::Queued, format!("{id} pays it from {from}")),
            Added::Before(id) | Added::Taken(id) => {
                (WithdrawalEvent::Doubted, format!("{id} has its name and was not made for it"))
            }
            Added::NoWallet => {
                answers[place] = Some(Enqueued::NoWallet);
                continue;
            }
        };
        changes.push(Change::new(row, event, WORKER, words));
        places.push((place, added));
    }
    let after = advance(tx, changes, at).await?;
    let mut links: [Vec<i64>; 3] = Default::default();
    for ((place, added), row) in places.into_iter().zip(after) {
        answers[place] = match added {
            Added::New { id, from } => {
                links[0].push(row.id.number());
                links[1].push(row.jobs);
                links[2].push(id.number());
                Some(Enqueued::Queued { row: Box::new(row), job: id, from })
            }
            Added::Before(job) | Added::Taken(job) => Some(Enqueued::Doubted { row: Box::new(row), job }),
            Added::NoWallet => None,
        };
    }
    let count = links[0].len();
    if count > 0 {
        let [withdrawals, numbers, jobs] = links.map(Column::Ints);
        let columns = vec![withdrawals, numbers, jobs, Column::Ints(vec![at.micros(); count])];
        expect_rows(execute_rows(tx, &INSERT_JOB_LINKS, columns).await?, count, "jobs of withdrawals")?;
    }
    answers.into_iter().map(|answer| answer.ok_or_else(|| malformed("answer"))).collect()
}
