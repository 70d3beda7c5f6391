//! What operators do to withdrawals: who it is and what that person may do is read in the transaction that acts, and what was done or refused is written
//! down by the same.

use domain::Timestamp;
use domain::operator::{OperatorAction, OperatorName};
use domain::outbound::JobState;
use domain::withdrawal::WithdrawalState;

use super::check;
use super::decide::{Decision, DecisionReply, Said, WithdrawalDecision, decide};
use super::types::{WithdrawalId, WithdrawalRow, lock};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::operator::log::{Door, NewLogLine, write};
use crate::operator::read::{OperatorRow, lock as lock_operator};
use crate::outbound::read::{JobReply, retry};
use crate::transact;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorWish {
    /// This person sees to it; `None`: nobody in particular.
    Assign(Option<OperatorName>),
    Review,
    Retry,
    Reject,
}

/// Somebody wants something of a withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorDeed {
    pub operator: OperatorName,
    pub door: Door,
    /// Empty over the command line.
    pub request_id: String,
    pub withdrawal: WithdrawalId,
    pub wish: OperatorWish,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorReply {
    Done(Box<WithdrawalRow>),
    /// The same was said before.
    Before(Box<WithdrawalRow>),
    NoSuchWithdrawal,
    /// Nobody by that name may do anything now.
    NoSuchOperator,
    /// The person's role does not allow it.
    Forbidden,
    /// It is in this state, in which that cannot be done.
    NotNow(WithdrawalState),
    /// Trying again is not provably safe, or would change nothing; in words.
    NotSafe(String),
    /// Whoever is to see to it does not exist, or is switched off.
    NoSuchAssignee,
}

impl OperatorReply {
    /// As the log has it: `done`, or the code of why not.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Done(_) | Self::Before(_) => DONE,
            Self::NoSuchWithdrawal => "WITHDRAWAL_NOT_FOUND",
            Self::NoSuchOperator => "UNAUTHORIZED",
            Self::Forbidden => "OPERATOR_FORBIDDEN",
            Self::NotNow(_) => "WITHDRAWAL_NOT_NOW",
            Self::NotSafe(_) => "RETRY_NOT_SAFE",
            Self::NoSuchAssignee => "OPERATOR_NOT_FOUND",
        }
    }
}

/// The outcome of what was done.
pub const DONE: &str = "done";

impl OperatorWish {
    pub const fn action(&self) -> OperatorAction {
        match self {
            Self::Assign(_) => OperatorAction::Assign,
            Self::Review => OperatorAction::Review,
            Self::Retry => OperatorAction::Retry,
            Self::Reject => OperatorAction::Reject,
        }
    }
}

statements! {
    INSERT_ASSIGNMENT = "INSERT INTO withdrawal_assignments (withdrawal_id, operator_id, actor, reason, at) VALUES ($1, $2, $3, $4, $5)";
    READ_NEWEST_JOB = "SELECT k.job_id FROM withdrawal_jobs k WHERE k.withdrawal_id = $1 ORDER BY k.number DESC LIMIT 1";
}

impl Db {
    /// Does what an operator wants of a withdrawal, or says why not. Both are written down in the same commit.
    pub async fn operate(&self, deed: &OperatorDeed, at: Timestamp) -> Result<OperatorReply, StoreError> {
        transact!(self, tx => {
            let reply = act(tx, deed, at).await?;
            let line = NewLogLine {
                operator: deed.operator.to_string(),
                door: deed.door,
                action: deed.wish.action().as_str().to_owned(),
                subject: deed.withdrawal.to_string(),
                reason: deed.reason.clone(),
                request_id: deed.request_id.clone(),
                outcome: reply.outcome().to_owned(),
            };
            write(tx, &[line], at).await?;
            Ok(reply)
        })
    }
}

/// Who it is, if that person may do this now.
pub(crate) async fn admitted(
    tx: &mut Tx,
    name: &OperatorName,
    action: OperatorAction,
) -> Result<Result<OperatorRow, OperatorReply>, StoreError> {
    let found = lock_operator(tx, name).await?.filter(|operator| operator.active);
    Ok(match found {
        None => Err(OperatorReply::NoSuchOperator),
        Some(operator) if !operator.role.may(action) => Err(OperatorReply::Forbidden),
        Some(operator) => Ok(operator),
    })
}

async fn act(tx: &mut Tx, deed: &OperatorDeed, at: Timestamp) -> Result<OperatorReply, StoreError> {
    if let Err(refused) = admitted(tx, &deed.operator, deed.wish.action()).await? {
        return Ok(refused);
    }
    match &deed.wish {
        OperatorWish::Assign(to) => assign(tx, deed, to.as_ref(), at).await,
        OperatorWish::Retry => try_again(tx, deed.withdrawal, at).await,
        OperatorWish::Review => say(tx, deed, Decision::Review, at).await,
        OperatorWish::Reject => say(tx, deed, Decision::Refuse, at).await,
    }
}

async fn say(tx: &mut Tx, deed: &OperatorDeed, decision: Decision, at: Timestamp) -> Result<OperatorReply, StoreError> {
    let (actor, reason) = (deed.operator.to_string(), deed.reason.clone());
    let said = Said::of_decision(&WithdrawalDecision { id: deed.withdrawal, decision, actor, reason });
    Ok(match decide(tx, &[said], at).await?.pop() {
        Some(DecisionReply::Done(row)) => OperatorReply::Done(row),
        Some(DecisionReply::Before(row)) => OperatorReply::Before(row),
        Some(DecisionReply::NotNow(state)) => OperatorReply::NotNow(state),
        // Nobody approves here.
        Some(DecisionReply::NoSuchWithdrawal | DecisionReply::TooFew { .. } | DecisionReply::CheckWaits) | None => {
            OperatorReply::NoSuchWithdrawal
        }
    })
}

async fn assign(
    tx: &mut Tx,
    deed: &OperatorDeed,
    to: Option<&OperatorName>,
    at: Timestamp,
) -> Result<OperatorReply, StoreError> {
    let Some(row) = lock(tx, std::iter::once(deed.withdrawal)).await?.pop() else {
        return Ok(OperatorReply::NoSuchWithdrawal);
    };
    let to = match to {
        None => None,
        Some(name) => match lock_operator(tx, name).await?.filter(|operator| operator.active) {
            None => return Ok(OperatorReply::NoSuchAssignee),
            Some(operator) => Some(operator.id),
        },
    };
    execute!(
        tx,
        INSERT_ASSIGNMENT,
        row.id.number(),
        to,
        deed.operator.as_str(),
        deed.reason.as_str(),
        at.micros()
    )?;
    Ok(OperatorReply::Done(Box::new(row)))
}

/// Only what rests is tried now: a check that has no answer, or a job that has no slot. Of everything else it is said what it waits for.
async fn try_again(tx: &mut Tx, id: WithdrawalId, at: Timestamp) -> Result<OperatorReply, StoreError> {
    let Some(row) = lock(tx, std::iter::once(id)).await?.pop() else { return Ok(OperatorReply::NoSuchWithdrawal) };
    let not_safe = |words: &str| Ok(OperatorReply::NotSafe(words.to_owned()));
    match row.state {
        WithdrawalState::Pending | WithdrawalState::ManualReview => {
            if check::ask_now(tx, id, at).await? {
                Ok(OperatorReply::Done(Box::new(row)))
            } else {
                not_safe("it waits for people, and for nothing that could be tried again")
            }
        }
        WithdrawalState::Approved => {
            not_safe("it has no job yet; a worker makes one as soon as switches, account and hot wallet allow it")
        }
        WithdrawalState::Queued => retry_its_job(tx, row, at).await,
        WithdrawalState::Completed => not_safe("it was paid: another payment would pay it twice"),
        WithdrawalState::Failed | WithdrawalState::Rejected | WithdrawalState::Cancelled => {
            not_safe("the customer has the money back: whoever wants it paid asks anew")
        }
    }
}

async fn retry_its_job(tx: &mut Tx, row: WithdrawalRow, at: Timestamp) -> Result<OperatorReply, StoreError> {
    let job = fetch_optional!(tx, READ_NEWEST_JOB => (i64,), row.id.number())?;
    let Some((job,)) = job else { return Err(super::types::malformed("job")) };
    let id = crate::outbound::JobId::new(job).map_err(|_| super::types::malformed("job"))?;
    Ok(match retry(tx, id, at).await? {
        JobReply::Done => OperatorReply::Done(Box::new(row)),
        JobReply::NoSuchJob => return Err(super::types::malformed("job")),
        JobReply::NotNow(state) => OperatorReply::NotSafe(format!("{id} {}", why_not(state))),
    })
}

/// Why a job is not simply tried again.
const fn why_not(state: JobState) -> &'static str {
    match state {
        JobState::Queued | JobState::FailedRetryable => "rests",
        JobState::Picked | JobState::BuildingTx | JobState::Signing => {
            "is being signed for: its transaction may be out at any moment"
        }
        JobState::Broadcasting | JobState::Broadcasted => {
            "is out, and may be mined: bursar job bump offers more in the same slot"
        }
        JobState::Confirming | JobState::Confirmed => "is in a block: it is paid",
        JobState::FailedFinal => "has failed for good: the customer gets the money back",
    }
}
