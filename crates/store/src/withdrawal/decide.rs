//! What people and customers say of withdrawals that have no job yet. From the job on nobody is asked any more. What gives money back needs the signer's
//! word that it has signed nothing that this database has forgotten.

use std::collections::{HashMap, HashSet};

use domain::outbound::JobState;
use domain::withdrawal::{WithdrawalEvent, WithdrawalState};
use domain::{Approval, Timestamp, UserId};

use super::MOST;
use super::advance::{Change, advance};
use super::queue::WORKER;
use super::settle::{Room, is_paid_otherwise, newest_jobs};
use super::signed::{SignedRounds, SignerWord, rounds};
use super::types::{MAY_BE_PAID, WithdrawalId, WithdrawalRow, lock, malformed};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::operator::log::{DONE, NewLogLine, write};
use crate::transact;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Somebody has to look at it.
    Review,
    Refuse,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalDecision {
    pub id: WithdrawalId,
    pub decision: Decision,
    pub actor: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionReply {
    Done(Box<WithdrawalRow>),
    /// The same was said before.
    Before(Box<WithdrawalRow>),
    NoSuchWithdrawal,
    /// It is in this state, in which that cannot be said.
    NotNow(WithdrawalState),
    /// It would give money back, and the signer has not been asked whether that was paid: try again later.
    SignerNotAsked,
    /// It would give money back, and the signer has signed for it in a time that this database does not know: people look.
    SignerKnowsMore,
    /// The signer knows no more of it than this database, so there is nothing to judge.
    NothingToJudge,
}

impl DecisionReply {
    /// As the log of operators has it: `done`, or the code of why not.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Done(_) | Self::Before(_) => DONE,
            Self::NoSuchWithdrawal => "WITHDRAWAL_NOT_FOUND",
            Self::NotNow(_) | Self::SignerKnowsMore | Self::NothingToJudge => "WITHDRAWAL_NOT_NOW",
            Self::SignerNotAsked => "SIGNER_UNAVAILABLE",
        }
    }
}

/// What two people say of one that the signer has signed in a time that this database does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithdrawalVerdict {
    /// It was paid.
    Paid,
    /// It was not paid, and never will be: nothing that was signed for it can be mined any more.
    Unpaid,
    /// The same of one that another program may have paid and that our signer has signed too: the people have looked at both.
    UnpaidAnywhere,
}

impl WithdrawalVerdict {
    /// As it is typed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::Unpaid => "unpaid",
            Self::UnpaidAnywhere => "unpaid-anywhere",
        }
    }
}

/// What is to be said of one, as the machine takes it.
pub(crate) struct Said {
    id: WithdrawalId,
    /// Whose it must be; `None`: anybody's.
    user: Option<UserId>,
    event: WithdrawalEvent,
    actor: String,
    reason: String,
    /// Who judges, if the event is a verdict.
    judged: Option<String>,
    /// Whether they know that it may have been paid by either of two programs.
    of_both: bool,
}

impl Db {
    /// What people say of these, in their order. A refusal gives money back, so it needs what the signer knows.
    pub async fn decide_withdrawals(
        &self,
        decisions: &[WithdrawalDecision],
        signed: &SignedRounds,
        at: Timestamp,
    ) -> Result<Vec<DecisionReply>, StoreError> {
        let said: Vec<Said> = decisions.iter().map(Said::of_decision).collect();
        self.say(&said, signed, at).await
    }

    /// Users call these off. One that is not the user's own is not there.
    pub async fn cancel_withdrawals(
        &self,
        wanted: &[(UserId, WithdrawalId)],
        signed: &SignedRounds,
        at: Timestamp,
    ) -> Result<Vec<DecisionReply>, StoreError> {
        let cancel = |(user, id): &(UserId, WithdrawalId)| Said {
            id: *id,
            user: Some(*user),
            event: WithdrawalEvent::Cancelled,
            actor: format!("user {}", user.get()),
            reason: "called off".to_owned(),
            judged: None,
            of_both: false,
        };
        let said: Vec<Said> = wanted.iter().map(cancel).collect();
        self.say(&said, signed, at).await
    }

    /// Two people say of these whether they were paid in the time that this database does not know. Of others there is nothing to say. One that is
    /// completed they judge only when its chain took its payment back for good: it is not given back by itself while the signer knows more. Judged paid it
    /// stays completed, and is nobody's any more who looks. People judge at the command line only; each of the two has a line in the log of operators,
    /// also of what was refused.
    pub async fn judge_withdrawals(
        &self,
        verdicts: &[(WithdrawalId, WithdrawalVerdict)],
        people: &Approval,
        signed: &SignedRounds,
        at: Timestamp,
    ) -> Result<Vec<DecisionReply>, StoreError> {
        let judge = |(id, verdict): &(WithdrawalId, WithdrawalVerdict)| {
            let (event, reason) = match verdict {
                WithdrawalVerdict::Paid => (WithdrawalEvent::JudgedPaid, "it was paid"),
                WithdrawalVerdict::Unpaid => (WithdrawalEvent::JudgedUnpaid, "it was not paid"),
                WithdrawalVerdict::UnpaidAnywhere => {
                    (WithdrawalEvent::JudgedUnpaid, "it was paid neither there nor here")
                }
            };
            let of_both = *verdict == WithdrawalVerdict::UnpaidAnywhere;
            let (actor, judged) = (people.to_string(), Some(people.to_string()));
            Said { id: *id, user: None, event, actor, reason: reason.to_owned(), judged, of_both }
        };
        let said: Vec<Said> = verdicts.iter().map(judge).collect();
        if !fits(&said)? {
            return Ok(Vec::new());
        }
        transact!(self, tx => {
            let replies = decide(tx, &said, signed, at).await?;
            let of_one = |((id, verdict), reply): (&(WithdrawalId, WithdrawalVerdict), &DecisionReply)| {
                NewLogLine::by_two(people, "judge", id, verdict.as_str(), reply.outcome())
            };
            let lines: Vec<NewLogLine> = verdicts.iter().zip(&replies).flat_map(of_one).collect();
            write(tx, &lines, at).await?;
            Ok(replies)
        })
    }

    /// The time of these is over before there was a job for them. Those of which it is not are left as they are.
    pub async fn expire_withdrawals(
        &self,
        ids: &[WithdrawalId],
        signed: &SignedRounds,
        at: Timestamp,
    ) -> Result<Vec<DecisionReply>, StoreError> {
        let expire = |id: &WithdrawalId| Said {
            id: *id,
            user: None,
            event: WithdrawalEvent::Expired,
            actor: WORKER.to_owned(),
            reason: "its time was over before it could be paid".to_owned(),
            judged: None,
            of_both: false,
        };
        let said: Vec<Said> = ids.iter().map(expire).collect();
        self.say(&said, signed, at).await
    }

    async fn say(&self, said: &[Said], signed: &SignedRounds, at: Timestamp) -> Result<Vec<DecisionReply>, StoreError> {
        if !fits(said)? {
            return Ok(Vec::new());
        }
        transact!(self, tx => decide(tx, said, signed, at).await)
    }
}

/// Whether there is anything to say; refused if it is too much for one batch.
const fn fits(said: &[Said]) -> Result<bool, StoreError> {
    match said.len() {
        0 => Ok(false),
        count if count > MOST => Err(StoreError::BatchTooLarge { count, most: MOST }),
        _ => Ok(true),
    }
}

impl Said {
    pub(crate) fn of_decision(decision: &WithdrawalDecision) -> Self {
        let event = match &decision.decision {
            Decision::Review => WithdrawalEvent::Doubted,
            Decision::Refuse => WithdrawalEvent::Refused,
        };
        let (actor, reason) = (decision.actor.clone(), decision.reason.clone());
        Self { id: decision.id, user: None, event, actor, reason, judged: None, of_both: false }
    }

    const fn is_verdict(&self) -> bool {
        matches!(self.event, WithdrawalEvent::JudgedPaid | WithdrawalEvent::JudgedUnpaid)
    }

    /// What is done to the row, or why nothing.
    fn meets(&self, row: &WithdrawalRow, word: SignerWord, at: Timestamp) -> Result<Change, DecisionReply> {
        if self.user.is_some_and(|user| user != row.user) {
            return Err(DecisionReply::NoSuchWithdrawal);
        }
        let early = self.event == WithdrawalEvent::Expired && row.expires > at;
        let Some(next) = row.state.next(self.event).ok().filter(|_| !early) else {
            // Sent again, it is what was done.
            let done = match self.event {
                WithdrawalEvent::Cancelled => row.state == WithdrawalState::Cancelled,
                WithdrawalEvent::Refused => row.state == WithdrawalState::Rejected,
                _ => false,
            };
            return Err(if done {
                DecisionReply::Before(Box::new(row.clone()))
            } else {
                DecisionReply::NotNow(row.state)
            });
        };
        if row.rule == MAY_BE_PAID {
            // It was another program's: nobody gives the money back alone, and no time does.
            return match (&self.judged, next.is_released(), word) {
                (None, false, _) => Ok(self.change(row)),
                (None, true, _) => Err(DecisionReply::NotNow(row.state)),
                (Some(_), _, SignerWord::Unasked) => Err(DecisionReply::SignerNotAsked),
                // It was agreed to and signed here as well. Who has only looked at the other program's books does not know.
                (Some(_), true, SignerWord::More) if !self.of_both => Err(DecisionReply::SignerKnowsMore),
                (Some(_), _, SignerWord::Same | SignerWord::More) => Ok(self.change(row)),
            };
        }
        if self.judged.is_some() {
            return match word {
                SignerWord::Unasked => Err(DecisionReply::SignerNotAsked),
                SignerWord::Same => Err(DecisionReply::NothingToJudge),
                SignerWord::More => Ok(self.change(row)),
            };
        }
        match (next.is_released(), word) {
            (false, _) | (true, SignerWord::Same) => Ok(self.change(row)),
            (true, SignerWord::Unasked) => Err(DecisionReply::SignerNotAsked),
            // Where people do not look at it yet, they do now.
            (true, SignerWord::More) => match row.state.next(WithdrawalEvent::SignerKnowsMore) {
                Ok(_) => Ok(signer_knows_more(row.clone())),
                Err(_) => Err(DecisionReply::SignerKnowsMore),
            },
        }
    }

    fn change(&self, row: &WithdrawalRow) -> Change {
        let change = Change::new(row.clone(), self.event, &self.actor, self.reason.as_str());
        Change { judged: self.judged.clone(), ..change }
    }
}

/// People look at it.
pub(crate) fn signer_knows_more(row: WithdrawalRow) -> Change {
    let words = "the signer has signed for it in a time that this database does not know: two people must say whether it was paid";
    Change::new(row, WithdrawalEvent::SignerKnowsMore, WORKER, words)
}

/// Those of the completed ones that are judged whose payments their chain took back for good.
struct Lost {
    ids: HashSet<i64>,
    room: Option<Room>,
}

impl Lost {
    async fn of(tx: &mut Tx, said: &[Said], rows: &[WithdrawalRow]) -> Result<Self, StoreError> {
        let completed = rows.iter().filter(|row| row.state == WithdrawalState::Completed && !is_paid_otherwise(row));
        let completed: Vec<WithdrawalId> = completed.map(|row| row.id).collect();
        if completed.is_empty() || !said.iter().any(Said::is_verdict) {
            return Ok(Self { ids: HashSet::new(), room: None });
        }
        let jobs = newest_jobs(tx, completed.into_iter()).await?;
        let failed = jobs.into_iter().filter(|(_, (job, ..))| *job == JobState::FailedFinal);
        let ids = failed.map(|(id, _)| id).collect();
        // Of the whole batch: those that are released are locked in the same order.
        Ok(Self { ids, room: Some(Room::of(tx, rows.iter()).await?) })
    }

    fn has(&self, row: &WithdrawalRow) -> bool {
        self.ids.contains(&row.id.number())
    }

    /// Whether its account takes it back.
    fn takes(&mut self, row: &WithdrawalRow) -> Result<bool, StoreError> {
        let Some(room) = self.room.as_mut().filter(|_| self.ids.contains(&row.id.number())) else { return Ok(false) };
        Ok(room.takes(row.account, row.held()?))
    }
}

pub(crate) async fn decide(
    tx: &mut Tx,
    said: &[Said],
    signed: &SignedRounds,
    at: Timestamp,
) -> Result<Vec<DecisionReply>, StoreError> {
    let rows = lock(tx, said.iter().map(|one| one.id)).await?;
    let known = rounds(tx, rows.iter().map(|row| row.id)).await?;
    let mut lost = Lost::of(tx, said, &rows).await?;
    let mut rows: HashMap<WithdrawalId, WithdrawalRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    let (mut replies, mut changes) = (Vec::with_capacity(said.len()), Vec::new());
    let mut changed: HashMap<WithdrawalId, WithdrawalState> = HashMap::new();
    for one in said {
        // Of two who speak of one withdrawal in a batch, the first is heard.
        if let Some(state) = changed.get(&one.id) {
            replies.push(Err(DecisionReply::NotNow(*state)));
            continue;
        }
        let Some(row) = rows.get(&one.id) else {
            replies.push(Err(DecisionReply::NoSuchWithdrawal));
            continue;
        };
        // What was settled is judged only if the chain took the payment back, and given back only if the account takes it.
        let judges = row.state == WithdrawalState::Completed && one.is_verdict();
        let gives_back = judges && one.event == WithdrawalEvent::JudgedUnpaid;
        if judges && !lost.has(row) {
            replies.push(Err(DecisionReply::NotNow(row.state)));
            continue;
        }
        match one.meets(row, signed.word(one.id, &known), at) {
            Ok(_) if gives_back && !lost.takes(row)? => replies.push(Err(DecisionReply::NotNow(row.state))),
            Ok(change) => {
                let next = row.state.next(change.event).map_err(|_| malformed("step"))?;
                changed.insert(one.id, next);
                replies.push(Ok((one.id, change.event)));
                changes.push(change);
            }
            Err(reply) => replies.push(Err(reply)),
        }
    }
    rows.extend(advance(tx, changes, at).await?.into_iter().map(|row| (row.id, row)));
    let reply = |reply: Result<(WithdrawalId, WithdrawalEvent), DecisionReply>| match reply {
        Ok((_, WithdrawalEvent::SignerKnowsMore)) => DecisionReply::SignerKnowsMore,
        Ok((id, _)) => {
            rows.get(&id).map_or(DecisionReply::NoSuchWithdrawal, |row| DecisionReply::Done(Box::new(row.clone())))
        }
        Err(reply) => reply,
    };
    Ok(replies.into_iter().map(reply).collect())
}
