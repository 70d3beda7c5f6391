//! A job is made for each withdrawal that may be paid, in the commit that says so. What the job does follows from the withdrawal's row and from
//! nothing else, and its reference is the withdrawal's name: there is one job for it until that has failed for good.

use std::collections::{BTreeSet, HashMap, HashSet};

use domain::outbound::{JobKind, pause_micros};
use domain::withdrawal::{WithdrawalEvent, WithdrawalPolicy, WithdrawalState};
use domain::{AccountId, Availability, RawAmount, Timestamp, WalletRole};

use super::MOST;
use super::advance::{Change, advance};
use super::approve::COPY_APPROVALS;
use super::decide::signer_knows_more;
use super::facts::{Switches, switches};
use super::signed::{SignedRounds, SignerWord, rounds};
use super::types::{WithdrawalId, WithdrawalRow, lock, malformed, numbers};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::entry::{ChainRow, ListingId};
use crate::error::StoreError;
use crate::outbound::add::{Paying, add_paying};
use crate::outbound::{Added, JobId, NewJob, Payer};
use crate::rows::{Column, ColumnType::Int, RowsSql, execute_rows, expect_rows};
use crate::transact;

/// A withdrawal to pay. What the job does was fixed when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueue {
    pub withdrawal: WithdrawalId,
    /// The number of its job, if one is made.
    pub job: JobId,
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
    /// No hot wallet of its group is active on the chain and sends. It stays approved.
    NoWallet,
    /// Its time is over. It stays approved until that is said of it.
    TooLate,
    /// Its job before ended for want of coins a moment ago. It stays approved, and the next is made later.
    Resting,
    /// The signer was not asked about it. It stays approved.
    SignerNotAsked,
    /// The signer has signed for it in a time that this database does not know. People look.
    SignerKnowsMore(Box<WithdrawalRow>),
    /// A job has its name that was not made for it. People look.
    Doubted {
        row: Box<WithdrawalRow>,
        job: JobId,
    },
}

/// What workers call themselves in the history.
pub(crate) const WORKER: &str = "custody";

statements! {
    /// Those of these to which somebody has agreed since they waited last, whether or not the policy wanted anybody; with a key that is still switched on,
    /// as far as it is an operator's.
    READ_AGREED = "SELECT DISTINCT a.withdrawal_id FROM withdrawal_approvals a WHERE a.withdrawal_id {in $1}
        AND a.version = (SELECT MAX(e.version) FROM withdrawal_events e WHERE e.withdrawal_id = a.withdrawal_id AND e.status IN ('pending', 'manual_review'))
        AND NOT EXISTS (SELECT 1 FROM operator_keys k JOIN operators o ON o.id = k.operator_id
            WHERE k.name = a.key_name AND NOT (k.is_active AND o.is_active))";
    READ_ACTIVE_ACCOUNTS = "SELECT id FROM accounts WHERE id {in $1} AND status = 'active'";
    /// For the audit of one, and for people: the jobs of a withdrawal.
    READ_JOBS_OF_WITHDRAWAL = "SELECT k.number, k.job_id, j.state FROM withdrawal_jobs k JOIN outbound_jobs j ON j.id = k.job_id
        WHERE k.withdrawal_id = $1 ORDER BY k.number";
    /// The one that is next in turn and sends, of those that were asked for while the chain had no hot wallet.
    FIX_GROUPS = "UPDATE withdrawal_requests SET wallet_group = (SELECT g.name FROM operation_wallet_addresses w
                JOIN wallet_groups g ON g.id = w.wallet_group_id JOIN chains c ON c.id = w.chain_id
                LEFT JOIN outbound_lanes o ON o.chain_id = w.chain_id AND o.address = w.address
            WHERE w.chain_id = withdrawal_requests.chain_id AND w.is_active AND w.role = 'hot'
            ORDER BY COALESCE(o.stopped, g.outbound_stopped) IS NOT NULL OR c.kind = 'evm' AND EXISTS (SELECT 1 FROM outbound_slots s
                WHERE s.lane_id = o.id AND s.state = 'open' AND s.imported), COALESCE(w.last_used_at, -1), w.id LIMIT 1)
        WHERE id {in $1} AND wallet_group IS NULL";
}

pub(super) static INSERT_JOB_LINKS: RowsSql = RowsSql::new(
    "INSERT_JOB_LINKS",
    "INSERT INTO withdrawal_jobs (withdrawal_id, number, job_id, at) SELECT r.withdrawal_id, r.number, r.job_id, r.at FROM {rows}",
    &[("withdrawal_id", Int), ("number", Int), ("job_id", Int), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&INSERT_JOB_LINKS];

impl Db {
    /// Says of these which wallets pay them, where that could not be said when they were asked for.
    pub async fn fix_wallet_groups(&self, ids: &[WithdrawalId]) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        transact!(self, tx => execute!(tx, FIX_GROUPS, numbers(ids.iter().copied())).map(|_| ()))
    }

    /// Makes jobs for these withdrawals of one chain, in one transaction, with what people have signed for them. The answers are in their order.
    pub async fn enqueue_withdrawals(
        &self,
        chain: &ChainRow,
        wanted: &[Enqueue],
        signed: &SignedRounds,
        at: Timestamp,
    ) -> Result<Vec<Enqueued>, StoreError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        if wanted.len() > MOST {
            return Err(StoreError::BatchTooLarge { count: wanted.len(), most: MOST });
        }
        transact!(self, tx => enqueue(tx, chain, wanted, signed, at).await)
    }
}

/// What switches say, read in the transaction that acts.
pub(crate) struct Allowed {
    switches: Switches,
    policies: HashMap<ListingId, WithdrawalPolicy>,
    /// Accounts that give something out.
    active: HashSet<AccountId>,
    /// Looked for in an incident only, when it matters.
    agreed: HashSet<i64>,
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
        let doubtful =
            |row: &&WithdrawalRow| row.people == 0 && policies.get(&row.listing).is_some_and(|policy| policy.incident);
        let doubtful: BTreeSet<i64> = rows.iter().filter(doubtful).map(|row| row.id.number()).collect();
        let agreed = if doubtful.is_empty() {
            HashSet::new()
        } else {
            let doubtful = Many(doubtful.into_iter().collect::<Vec<i64>>());
            fetch_all!(tx, READ_AGREED => (i64,), doubtful.clone())?.into_iter().map(|(id,)| id).collect()
        };
        Ok(Self { switches, policies, active, agreed })
    }

    /// In an incident what no person has agreed to waits; who has signed one that the policy would have let pass has agreed to it. What is held on an account that was frozen since waits too: why it was frozen may be
    /// this very withdrawal.
    pub(crate) fn waits(&self, row: &WithdrawalRow) -> Option<Waits> {
        let switches = self.switches.get(&row.listing) == Some(&(Availability::Active, Availability::Active));
        let policy = self.policies.get(&row.listing);
        let agreed = row.people > 0 || self.agreed.contains(&row.id.number());
        if !switches || !policy.is_some_and(|policy| policy.enabled && (!policy.incident || agreed)) {
            return Some(Waits::SwitchedOff);
        }
        (!self.active.contains(&row.account)).then_some(Waits::AccountClosed)
    }
}

fn job(chain: &ChainRow, row: &WithdrawalRow, id: JobId) -> Result<NewJob, StoreError> {
    let listing = chain.listing(row.listing).ok_or_else(|| malformed("coin"))?;
    Ok(NewJob {
        id,
        listing: row.listing,
        kind: JobKind::Withdrawal,
        reference: row.id.to_string(),
        to: row.to.clone(),
        owner: None,
        amount: RawAmount::from_ledger(row.amount, &listing.form).map_err(|_| malformed("amount"))?,
        most_fee: row.network_fee,
        priority: JobKind::Withdrawal.priority(),
        requester: row.requester(),
        expires: row.expires,
        payer: Payer::Role(WalletRole::Hot),
    })
}

/// Why no job is made for one now.
fn unready(
    row: &WithdrawalRow,
    chain: &ChainRow,
    allowed: &Allowed,
    word: SignerWord,
    at: Timestamp,
) -> Option<Enqueued> {
    if row.state != WithdrawalState::Approved {
        return Some(Enqueued::NotNow(row.state));
    }
    if row.chain != chain.id {
        return Some(Enqueued::NoSuchWithdrawal);
    }
    match word {
        SignerWord::Unasked => return Some(Enqueued::SignerNotAsked),
        SignerWord::More => return Some(Enqueued::SignerKnowsMore(Box::new(row.clone()))),
        SignerWord::Same => {}
    }
    if row.expires <= at {
        return Some(Enqueued::TooLate);
    }
    // Each job tries several times by itself. One after another without a pause they would only fill the history.
    if row.jobs > 0 && row.updated.plus_micros(pause_micros(u32::try_from(row.jobs).unwrap_or(u32::MAX))) > at {
        return Some(Enqueued::Resting);
    }
    match allowed.waits(row) {
        Some(Waits::SwitchedOff) => Some(Enqueued::SwitchedOff),
        Some(Waits::AccountClosed) => Some(Enqueued::AccountClosed),
        None if row.group.is_none() => Some(Enqueued::NoWallet),
        None => None,
    }
}

async fn enqueue(
    tx: &mut Tx,
    chain: &ChainRow,
    wanted: &[Enqueue],
    signed: &SignedRounds,
    at: Timestamp,
) -> Result<Vec<Enqueued>, StoreError> {
    let mut rows = lock(tx, wanted.iter().map(|one| one.withdrawal)).await?;
    if rows.iter().any(|row| row.group.is_none()) {
        execute!(tx, FIX_GROUPS, numbers(rows.iter().map(|row| row.id)))?;
        rows = lock(tx, wanted.iter().map(|one| one.withdrawal)).await?;
    }
    let allowed = Allowed::read(tx, &rows).await?;
    let known = rounds(tx, rows.iter().map(|row| row.id)).await?;
    let mut rows: HashMap<WithdrawalId, WithdrawalRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    let (mut answers, mut jobs, mut changes) = (Vec::with_capacity(wanted.len()), Vec::new(), Vec::new());
    for terms in wanted {
        // Each is taken out, so that one that is named twice is not paid twice.
        let Some(row) = rows.remove(&terms.withdrawal) else {
            answers.push(Some(Enqueued::NoSuchWithdrawal));
            continue;
        };
        let refusal = unready(&row, chain, &allowed, signed.word(row.id, &known), at);
        if let Some(Enqueued::SignerKnowsMore(row)) = &refusal {
            changes.push(signer_knows_more((**row).clone()));
        }
        if refusal.is_none() {
            jobs.push((answers.len(), job(chain, &row, terms.job)?, row));
        }
        answers.push(refusal);
    }
    advance(tx, changes, at).await?;
    let new: Vec<(NewJob, Paying)> = jobs
        .iter()
        .map(|(_, job, row)| {
            let rounds = known.get(&row.id).copied().unwrap_or(0);
            (job.clone(), Paying { withdrawal: row.id, rounds, group: row.group.clone() })
        })
        .collect();
    let added = if new.is_empty() { Vec::new() } else { add_paying(tx, chain.id, &new, at).await? };
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
            Added::OfWithdrawal => return Err(malformed("job")),
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
            Added::NoWallet | Added::OfWithdrawal => None,
        };
    }
    link(tx, links, at).await?;
    answers.into_iter().map(|answer| answer.ok_or_else(|| malformed("answer"))).collect()
}

/// Which job pays which withdrawal, and what people have signed for it.
async fn link(tx: &mut Tx, links: [Vec<i64>; 3], at: Timestamp) -> Result<(), StoreError> {
    let count = links[0].len();
    if count == 0 {
        return Ok(());
    }
    let queued = Many(links[0].clone());
    let [withdrawals, numbers, jobs] = links.map(Column::Ints);
    let columns = vec![withdrawals, numbers, jobs, Column::Ints(vec![at.micros(); count])];
    expect_rows(execute_rows(tx, &INSERT_JOB_LINKS, columns).await?, count, "jobs of withdrawals")?;
    execute!(tx, COPY_APPROVALS, queued)?;
    Ok(())
}
