//! What operators do to withdrawals: who it is and what that person may do is read in the transaction that acts, and what was done or refused is written
//! down by the same.

use domain::Timestamp;
use domain::operator::{OperatorAction, OperatorName};
use domain::outbound::JobState;
use domain::withdrawal::WithdrawalState;

use super::approve::{Counted, NewWithdrawalApproval, WithdrawalApproved, approve};
use super::check;
use super::decide::{Decision, DecisionReply, Said, WithdrawalDecision, decide};
use super::signed::SignedRounds;
use super::types::{WithdrawalId, WithdrawalRow, lock, malformed};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::operator::log::{DONE, Door, NewLogLine, write};
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
    /// It would give money back, and the signer was not asked whether that was paid.
    SignerNotAsked,
    /// The signer has signed it in a time that this database does not know: people look.
    SignerKnowsMore,
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
            Self::SignerNotAsked => "SIGNER_UNAVAILABLE",
            Self::SignerKnowsMore => "WITHDRAWAL_NOT_NOW",
        }
    }
}

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
    /// Whose key it is now, while it is switched on.
    READ_KEY_OWNER = "SELECT operator_id FROM operator_keys WHERE name = $1 AND is_active";
    READ_NEWEST_JOB = "SELECT k.job_id FROM withdrawal_jobs k WHERE k.withdrawal_id = $1 ORDER BY k.number DESC LIMIT 1";
}

impl Db {
    /// Does what an operator wants of a withdrawal, or says why not. Both are written down in the same commit.
    pub async fn operate(
        &self,
        deed: &OperatorDeed,
        signed: &SignedRounds,
        at: Timestamp,
    ) -> Result<OperatorReply, StoreError> {
        transact!(self, tx => {
            let reply = act(tx, deed, signed, at).await?;
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

async fn act(
    tx: &mut Tx,
    deed: &OperatorDeed,
    signed: &SignedRounds,
    at: Timestamp,
) -> Result<OperatorReply, StoreError> {
    if let Err(refused) = admitted(tx, &deed.operator, deed.wish.action()).await? {
        return Ok(refused);
    }
    match &deed.wish {
        OperatorWish::Assign(to) => assign(tx, deed, to.as_ref(), at).await,
        OperatorWish::Retry => try_again(tx, deed.withdrawal, at).await,
        OperatorWish::Review => say(tx, deed, Decision::Review, signed, at).await,
        OperatorWish::Reject => say(tx, deed, Decision::Refuse, signed, at).await,
    }
}

async fn say(
    tx: &mut Tx,
    deed: &OperatorDeed,
    decision: Decision,
    signed: &SignedRounds,
    at: Timestamp,
) -> Result<OperatorReply, StoreError> {
    let (actor, reason) = (deed.operator.to_string(), deed.reason.clone());
    let said = Said::of_decision(&WithdrawalDecision { id: deed.withdrawal, decision, actor, reason });
    Ok(match decide(tx, &[said], signed, at).await?.pop() {
        Some(DecisionReply::Done(row)) => OperatorReply::Done(row),
        Some(DecisionReply::Before(row)) => OperatorReply::Before(row),
        Some(DecisionReply::NotNow(state)) => OperatorReply::NotNow(state),
        Some(DecisionReply::SignerNotAsked) => OperatorReply::SignerNotAsked,
        // Nobody judges here.
        Some(DecisionReply::SignerKnowsMore | DecisionReply::NothingToJudge) => OperatorReply::SignerKnowsMore,
        Some(DecisionReply::NoSuchWithdrawal) | None => OperatorReply::NoSuchWithdrawal,
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
    execute!(tx, INSERT_ASSIGNMENT, row.id.number(), to, deed.operator.as_str(), deed.reason.as_str(), at.micros())?;
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
    let Some((job,)) = job else { return Err(malformed("job")) };
    let id = crate::outbound::JobId::new(job).map_err(|_| malformed("job"))?;
    Ok(match retry(tx, id, at).await? {
        JobReply::Done => OperatorReply::Done(Box::new(row)),
        // Bumps and approvals are answered so.
        JobReply::NoSuchJob | JobReply::NeverReplaced | JobReply::Requester | JobReply::KeyOff => {
            return Err(malformed("job"));
        }
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

/// Somebody hands over a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalDeed {
    pub operator: OperatorName,
    pub door: Door,
    /// Empty over the command line.
    pub request_id: String,
    pub withdrawal: WithdrawalId,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalReply {
    /// Enough people agree.
    Approved {
        row: Box<WithdrawalRow>,
        wanted: u32,
        agree: u32,
    },
    Kept {
        wanted: u32,
        agree: u32,
    },
    /// This person has signed the same before, and counts once.
    Before {
        wanted: u32,
        agree: u32,
    },
    NoSuchWithdrawal,
    NoSuchOperator,
    Forbidden,
    NotNow(WithdrawalState),
    TooLate,
    /// Whoever asked for it does not agree to it.
    Requester,
    /// What pays it is another by now.
    Changed,
    CheckWaits,
    /// It was signed for something else.
    OtherDigest,
    /// This person has no such key now.
    UnknownKey,
    /// It is none of the key's.
    BadSignature(&'static str),
    /// Nobody can say what would be paid.
    Unclear(String),
}

impl ApprovalReply {
    /// As the log has it: `done`, or the code of why not.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Approved { .. } | Self::Kept { .. } | Self::Before { .. } => DONE,
            Self::NoSuchWithdrawal => "WITHDRAWAL_NOT_FOUND",
            Self::NoSuchOperator => "UNAUTHORIZED",
            Self::Forbidden => "OPERATOR_FORBIDDEN",
            Self::NotNow(_) => "WITHDRAWAL_NOT_NOW",
            Self::TooLate => "WITHDRAWAL_EXPIRED",
            Self::Requester => "APPROVAL_BY_REQUESTER",
            Self::Changed | Self::OtherDigest => "APPROVAL_OTHER_DIGEST",
            Self::CheckWaits => "CHECK_WAITS",
            Self::UnknownKey | Self::BadSignature(_) => "APPROVAL_BAD",
            Self::Unclear(_) => "APPROVAL_UNCLEAR",
        }
    }
}

impl ApprovalDeed {
    pub fn line(&self, key: &str, outcome: &str) -> NewLogLine {
        NewLogLine {
            operator: self.operator.to_string(),
            door: self.door,
            action: OperatorAction::Approve.as_str().to_owned(),
            subject: self.withdrawal.to_string(),
            reason: if key.is_empty() { String::new() } else { format!("with the key {key}") },
            request_id: self.request_id.clone(),
            outcome: outcome.to_owned(),
        }
    }
}

impl Db {
    /// Keeps an operator's signature, which whoever calls has verified, and writes down who did it in the same commit. Who the person is, what that person
    /// may do and whose key it is are read once more.
    pub async fn approve_as_operator(
        &self,
        deed: &ApprovalDeed,
        approval: &NewWithdrawalApproval,
        at: Timestamp,
    ) -> Result<ApprovalReply, StoreError> {
        transact!(self, tx => {
            let reply = agree(tx, deed, approval, at).await?;
            write(tx, &[deed.line(&approval.key, reply.outcome())], at).await?;
            Ok(reply)
        })
    }
}

async fn agree(
    tx: &mut Tx,
    deed: &ApprovalDeed,
    approval: &NewWithdrawalApproval,
    at: Timestamp,
) -> Result<ApprovalReply, StoreError> {
    let operator = match admitted(tx, &deed.operator, OperatorAction::Approve).await? {
        Ok(operator) => operator,
        Err(OperatorReply::Forbidden) => return Ok(ApprovalReply::Forbidden),
        Err(_) => return Ok(ApprovalReply::NoSuchOperator),
    };
    let owner = fetch_optional!(tx, READ_KEY_OWNER => (i64,), approval.key.as_str())?;
    if owner != Some((operator.id,)) || approval.person != operator.name.as_str() {
        return Ok(ApprovalReply::UnknownKey);
    }
    let Some(row) = lock(tx, std::iter::once(deed.withdrawal)).await?.pop() else {
        return Ok(ApprovalReply::NoSuchWithdrawal);
    };
    if operator.user == Some(row.user) {
        return Ok(ApprovalReply::Requester);
    }
    let people = row.people.max(1);
    Ok(match approve(tx, approval, Counted::Operators, at).await? {
        WithdrawalApproved::Approved(row) => ApprovalReply::Approved { row, wanted: people, agree: people },
        WithdrawalApproved::Kept { wanted, agree } => ApprovalReply::Kept { wanted, agree },
        WithdrawalApproved::Before { wanted, agree } => ApprovalReply::Before { wanted, agree },
        WithdrawalApproved::NoSuchWithdrawal => ApprovalReply::NoSuchWithdrawal,
        WithdrawalApproved::NotNow(state) => ApprovalReply::NotNow(state),
        WithdrawalApproved::TooLate => ApprovalReply::TooLate,
        WithdrawalApproved::Requester => ApprovalReply::Requester,
        WithdrawalApproved::Changed => ApprovalReply::Changed,
        WithdrawalApproved::CheckWaits => ApprovalReply::CheckWaits,
    })
}
