//! What became of withdrawals: their jobs have ended, or their destination is an address of ours and the books are changed instead.

use std::collections::{BTreeSet, HashMap};

use domain::outbound::JobState;
use domain::withdrawal::{WhenShort, WithdrawalEvent, WithdrawalState};
use domain::{AccountId, AccountStatus, Amount, AssetId, Timestamp, UserId};

use super::MOST;
use super::advance::{Change, advance};
use super::decide::signer_knows_more;
use super::queue::{Allowed, WORKER, Waits};
use super::signed::{SignedRounds, SignerWord, rounds};
use super::types::{MAY_BE_PAID, WithdrawalId, WithdrawalRow, lock, malformed, numbers};
use crate::db::{Db, Tx};
use crate::entry::ListingId;
use crate::error::StoreError;
use crate::ledger::accounts::{NewAccount, Opened, open};
use crate::ledger::post::{Accounts, load_accounts_of};
use crate::transact;

/// What a look at the jobs came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettledBatch {
    pub completed: Vec<WithdrawalId>,
    /// Their holds were released.
    pub failed: Vec<WithdrawalId>,
    /// The hot wallet had too little: they are approved again, and wait for another job.
    pub short: Vec<WithdrawalId>,
    /// The signer has signed for them in a time that this database does not know, or another program may have paid them: people have to look at them.
    pub doubted: Vec<WithdrawalId>,
    /// They had been completed, and were given back.
    pub given_back: Vec<WithdrawalId>,
    /// The same, but the account takes nothing, or it may have been paid otherwise: people have to look at it.
    pub kept: Vec<WithdrawalId>,
}

/// A withdrawal whose destination is an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettleInside {
    pub withdrawal: WithdrawalId,
    /// Whose address it is: derived from the keys, not read from a row.
    pub payee: UserId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsideReply {
    /// The payee has it.
    Settled(Box<WithdrawalRow>),
    NoSuchWithdrawal,
    NotNow(WithdrawalState),
    /// Somebody has switched it off. It stays approved.
    SwitchedOff,
    /// The customer's account is frozen or disabled. It stays approved.
    AccountClosed,
    /// The signer was not asked about it. It stays approved.
    SignerNotAsked,
    /// The payee's account takes nothing, or the signer has signed for it in a time that this database does not know. People look.
    Doubted(Box<WithdrawalRow>),
    /// It is the customer's own address: the hold is released.
    Refused(Box<WithdrawalRow>),
}

statements! {
    /// The newest job of each.
    READ_NEWEST_JOBS = "SELECT w.id, j.state, j.short, j.reason FROM withdrawal_requests w
            JOIN withdrawal_jobs k ON k.withdrawal_id = w.id AND k.number = w.jobs JOIN outbound_jobs j ON j.id = k.job_id
        WHERE w.id {in $1}";
}

impl Db {
    /// Follows the jobs of these withdrawals: what was paid is settled, what never will be is released, what a chain took back for good is given
    /// back. Whatever else is said of them here changes nothing, so it may be said twice, late, or by two at once. What gives money back needs the signer's
    /// word, and is left as it is without it.
    pub async fn settle_withdrawals(
        &self,
        ids: &[WithdrawalId],
        signed: &SignedRounds,
        at: Timestamp,
    ) -> Result<SettledBatch, StoreError> {
        if ids.is_empty() {
            return Ok(SettledBatch::default());
        }
        if ids.len() > MOST {
            return Err(StoreError::BatchTooLarge { count: ids.len(), most: MOST });
        }
        transact!(self, tx => settle(tx, ids, signed, at).await)
    }

    /// Changes the books instead of paying coins to ourselves. The answers are in their order. One that the signer has signed for was paid with coins, so
    /// its word is needed.
    pub async fn settle_inside(
        &self,
        wanted: &[SettleInside],
        signed: &SignedRounds,
        at: Timestamp,
    ) -> Result<Vec<InsideReply>, StoreError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        if wanted.len() > MOST {
            return Err(StoreError::BatchTooLarge { count: wanted.len(), most: MOST });
        }
        transact!(self, tx => inside(tx, wanted, signed, at).await)
    }
}

async fn settle(
    tx: &mut Tx,
    ids: &[WithdrawalId],
    signed: &SignedRounds,
    at: Timestamp,
) -> Result<SettledBatch, StoreError> {
    let rows = lock(tx, ids.iter().copied()).await?;
    let known = rounds(tx, rows.iter().map(|row| row.id)).await?;
    let listings: BTreeSet<ListingId> = rows.iter().map(|row| row.listing).collect();
    let policies = super::policy::newest(tx, &listings.into_iter().collect::<Vec<_>>()).await?;
    let mut ended = newest_jobs(tx, rows.iter().map(|row| row.id)).await?;
    let (mut changes, mut batch) = (Vec::new(), SettledBatch::default());
    for row in rows {
        let Some((job, short, reason)) = ended.remove(&row.id.number()) else { continue };
        let waits = policies.get(&row.listing).is_some_and(|policy| policy.when_short == WhenShort::Wait);
        if is_paid_otherwise(&row) {
            continue;
        }
        let Some(event) = event(row.state, job, short && waits && row.expires > at) else { continue };
        let word = signed.word(row.id, &known);
        // Whatever the signer knows: another program may have paid it, and its money goes back by the word of two people and nothing else.
        if row.rule == MAY_BE_PAID {
            match event {
                // Who agreed to it may not have known that.
                WithdrawalEvent::NeverPaid | WithdrawalEvent::Unfunded => changes.push(ended_unpaid(row, &reason)),
                WithdrawalEvent::TakenBack => batch.kept.push(row.id),
                _ => changes.push(Change::new(row, event, WORKER, reason)),
            }
            continue;
        }
        match (event, word) {
            (WithdrawalEvent::Paid | WithdrawalEvent::Unfunded, _) | (_, SignerWord::Same) => {
                changes.push(Change::new(row, event, WORKER, reason));
            }
            (_, SignerWord::Unasked) => {}
            (WithdrawalEvent::NeverPaid, SignerWord::More) => changes.push(signer_knows_more(row)),
            // It is completed, and stays so until people have looked.
            (_, SignerWord::More) => batch.kept.push(row.id),
        }
    }
    let changes = without_closed(tx, changes, &mut batch.kept).await?;
    let events: Vec<WithdrawalEvent> = changes.iter().map(|change| change.event).collect();
    for (row, event) in advance(tx, changes, at).await?.into_iter().zip(events) {
        match event {
            WithdrawalEvent::Paid => batch.completed.push(row.id),
            WithdrawalEvent::TakenBack => batch.given_back.push(row.id),
            WithdrawalEvent::Unfunded => batch.short.push(row.id),
            WithdrawalEvent::SignerKnowsMore => batch.doubted.push(row.id),
            _ => batch.failed.push(row.id),
        }
    }
    Ok(batch)
}

/// People look at one that another program may have paid, and whose job has ended.
fn ended_unpaid(row: WithdrawalRow, reason: &str) -> Change {
    let words =
        format!("its job has ended ({reason}), and another program may have paid it: two people must say whether");
    Change::new(row, WithdrawalEvent::SignerKnowsMore, WORKER, words)
}

/// Two people have said that it was paid, or the books were changed instead: what became of a job that it had before says nothing of that.
pub(crate) const fn is_paid_otherwise(row: &WithdrawalRow) -> bool {
    row.judged.is_some() || row.payee.is_some()
}

/// The newest job of each that has one: its state, whether it ended for want of coins, and why.
pub(crate) async fn newest_jobs(
    tx: &mut Tx,
    ids: impl Iterator<Item = WithdrawalId>,
) -> Result<HashMap<i64, (JobState, bool, String)>, StoreError> {
    let jobs = fetch_all!(tx, READ_NEWEST_JOBS => (i64, String, bool, String), numbers(ids))?;
    let job = |(id, state, short, reason): (i64, String, bool, String)| {
        Ok((id, (JobState::parse(&state).ok_or_else(|| malformed("job"))?, short, reason)))
    };
    jobs.into_iter().map(job).collect()
}

/// What the end of its job means. A job that is confirmed may leave the chain again, and comes back by itself; one that has failed for good never
/// pays, and never did. `again`: it ended for want of coins, and policy has it wait for another.
const fn event(state: WithdrawalState, job: JobState, again: bool) -> Option<WithdrawalEvent> {
    match (state, job) {
        (WithdrawalState::Queued, JobState::Confirmed) => Some(WithdrawalEvent::Paid),
        (WithdrawalState::Queued, JobState::FailedFinal) if again => Some(WithdrawalEvent::Unfunded),
        (WithdrawalState::Queued, JobState::FailedFinal) => Some(WithdrawalEvent::NeverPaid),
        (WithdrawalState::Completed, JobState::FailedFinal) => Some(WithdrawalEvent::TakenBack),
        (
            WithdrawalState::Queued | WithdrawalState::Completed,
            JobState::Queued
            | JobState::Picked
            | JobState::BuildingTx
            | JobState::Signing
            | JobState::Broadcasting
            | JobState::Broadcasted
            | JobState::Confirming
            | JobState::FailedRetryable,
        )
        | (WithdrawalState::Completed, JobState::Confirmed)
        | (
            WithdrawalState::Pending
            | WithdrawalState::ManualReview
            | WithdrawalState::Approved
            | WithdrawalState::Failed
            | WithdrawalState::Rejected
            | WithdrawalState::Cancelled,
            _,
        ) => None,
    }
}

/// A hold always ends, but an account that is disabled is given nothing back. Those are named, and stay as they are: a refusal of the ledger would
/// be its last word.
async fn without_closed(
    tx: &mut Tx,
    changes: Vec<Change>,
    kept: &mut Vec<WithdrawalId>,
) -> Result<Vec<Change>, StoreError> {
    if !changes.iter().any(|change| change.event == WithdrawalEvent::TakenBack) {
        return Ok(changes);
    }
    let mut room = Room::of(tx, changes.iter().map(|change| &change.row)).await?;
    let mut left = Vec::with_capacity(changes.len());
    for change in changes {
        if change.event != WithdrawalEvent::TakenBack || room.takes(change.row.account, change.row.held()?) {
            left.push(change);
        } else {
            kept.push(change.row.id);
        }
    }
    Ok(left)
}

/// What accounts can take in this batch.
pub(crate) struct Room {
    /// Locked.
    accounts: Accounts,
    taken: HashMap<AccountId, Amount>,
}

impl Room {
    /// All accounts of these rows are locked, in one order: the ledger locks the same.
    pub(crate) async fn of<'r>(tx: &mut Tx, rows: impl Iterator<Item = &'r WithdrawalRow>) -> Result<Self, StoreError> {
        let locks: BTreeSet<AccountId> = rows.map(|row| row.account).collect();
        Ok(Self { accounts: load_accounts_of(tx, &locks, &BTreeSet::new()).await?, taken: HashMap::new() })
    }

    /// Whether the account takes so much more, on top of what the batch has given it.
    pub(crate) fn takes(&mut self, account: AccountId, amount: Amount) -> bool {
        let Some(state) = self.accounts.get(&account) else { return false };
        let taken = self.taken.get(&account).copied().unwrap_or(Amount::ZERO);
        let taken = taken.checked_add(amount);
        let whole = taken.and_then(|taken| state.available.checked_add(state.frozen)?.checked_add(taken));
        let fits = state.status != AccountStatus::Disabled && whole.is_some();
        if let (true, Some(taken)) = (fits, taken) {
            self.taken.insert(account, taken);
        }
        fits
    }
}

async fn inside(
    tx: &mut Tx,
    wanted: &[SettleInside],
    signed: &SignedRounds,
    at: Timestamp,
) -> Result<Vec<InsideReply>, StoreError> {
    let rows = lock(tx, wanted.iter().map(|one| one.withdrawal)).await?;
    let allowed = Allowed::read(tx, &rows).await?;
    let known = rounds(tx, rows.iter().map(|row| row.id)).await?;
    let mut rows: HashMap<WithdrawalId, WithdrawalRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    let (payees, mut room) = open_payees(tx, wanted, &rows, at).await?;
    let (mut answers, mut changes) = (Vec::with_capacity(wanted.len()), Vec::new());
    for one in wanted {
        // Each is taken out, so that one that is named twice is not settled twice.
        let Some(row) = rows.remove(&one.withdrawal) else {
            answers.push(Err(InsideReply::NoSuchWithdrawal));
            continue;
        };
        if row.state != WithdrawalState::Approved {
            answers.push(Err(InsideReply::NotNow(row.state)));
            continue;
        }
        match signed.word(row.id, &known) {
            SignerWord::Same => {}
            SignerWord::Unasked => {
                answers.push(Err(InsideReply::SignerNotAsked));
                continue;
            }
            SignerWord::More => {
                answers.push(Ok(changes.len()));
                changes.push(signer_knows_more(row));
                continue;
            }
        }
        match allowed.waits(&row) {
            None => {}
            Some(Waits::SwitchedOff) => {
                answers.push(Err(InsideReply::SwitchedOff));
                continue;
            }
            Some(Waits::AccountClosed) => {
                answers.push(Err(InsideReply::AccountClosed));
                continue;
            }
        }
        let account = payees.get(&(one.payee, row.asset)).copied().ok_or_else(|| malformed("payee"))?;
        let change = if one.payee == row.user && row.rule == MAY_BE_PAID {
            let words =
                "it is the customer's own address, and another program may have paid it: two people must say whether";
            Change::new(row, WithdrawalEvent::Doubted, WORKER, words)
        } else if one.payee == row.user {
            Change::new(row, WithdrawalEvent::Refused, WORKER, "it is the customer's own address")
        } else if room.takes(account, row.amount) {
            let words = format!("settled inside, with user {}", one.payee.get());
            let payee = Some((one.payee, account));
            Change { payee, ..Change::new(row, WithdrawalEvent::SettledInside, WORKER, words) }
        } else {
            let words = format!("the account of user {} takes nothing", one.payee.get());
            Change::new(row, WithdrawalEvent::Doubted, WORKER, words)
        };
        answers.push(Ok(changes.len()));
        changes.push(change);
    }
    let after = advance(tx, changes, at).await?;
    let answer = |answer: Result<usize, InsideReply>| match answer {
        Ok(place) => {
            let row = Box::new(after[place].clone());
            match row.state {
                WithdrawalState::Completed => InsideReply::Settled(row),
                WithdrawalState::Rejected => InsideReply::Refused(row),
                _ => InsideReply::Doubted(row),
            }
        }
        Err(reply) => reply,
    };
    Ok(answers.into_iter().map(answer).collect())
}

type Payees = HashMap<(UserId, AssetId), AccountId>;

/// The payees' accounts, opened where they are missing, and locked with those of the customers in one order.
async fn open_payees(
    tx: &mut Tx,
    wanted: &[SettleInside],
    rows: &HashMap<WithdrawalId, WithdrawalRow>,
    at: Timestamp,
) -> Result<(Payees, Room), StoreError> {
    let pairs: BTreeSet<(UserId, AssetId)> =
        wanted.iter().filter_map(|one| Some((one.payee, rows.get(&one.withdrawal)?.asset))).collect();
    let new: Vec<NewAccount> = pairs.iter().map(|(user, asset)| NewAccount::funding(*user, *asset)).collect();
    let opened = if new.is_empty() { Vec::new() } else { open(tx, &new, at).await? };
    let mut payees = HashMap::new();
    for (pair, opened) in pairs.into_iter().zip(opened) {
        let Opened::Account(account) = opened else { return Err(malformed("asset")) };
        payees.insert(pair, account);
    }
    let locks: BTreeSet<AccountId> = payees.values().copied().chain(rows.values().map(|row| row.account)).collect();
    let accounts = load_accounts_of(tx, &locks, &BTreeSet::new()).await?;
    Ok((payees, Room { accounts, taken: HashMap::new() }))
}
