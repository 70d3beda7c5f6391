//! What people and customers say of withdrawals that have no job yet. From the job on nobody is asked any more.

use std::collections::{BTreeSet, HashMap};

use domain::withdrawal::{WithdrawalEvent, WithdrawalState};
use domain::{Timestamp, UserId};

use super::MOST;
use super::advance::{Change, advance};
use super::check;
use super::types::{WithdrawalId, WithdrawalRow, lock};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::transact;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// These people agree. Whoever hands this over knows who they are; that they are enough is looked at here.
    Approve(BTreeSet<String>),
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
    /// The check outside has not let it pass yet, and nobody agrees before.
    CheckWaits,
    /// So many people have to agree, and so many do.
    TooFew {
        wanted: u32,
        agree: usize,
    },
}

/// What is to be said of one, as the machine takes it.
pub(crate) struct Said {
    id: WithdrawalId,
    /// Whose it must be; `None`: anybody's.
    user: Option<UserId>,
    event: WithdrawalEvent,
    /// Who agrees, if the event is an approval.
    people: usize,
    actor: String,
    reason: String,
}

impl Db {
    /// What people say of these, in their order.
    pub async fn decide_withdrawals(
        &self,
        decisions: &[WithdrawalDecision],
        at: Timestamp,
    ) -> Result<Vec<DecisionReply>, StoreError> {
        let said: Vec<Said> = decisions.iter().map(Said::of_decision).collect();
        self.say(&said, at).await
    }

    /// Users call these off. One that is not the user's own is not there.
    pub async fn cancel_withdrawals(
        &self,
        wanted: &[(UserId, WithdrawalId)],
        at: Timestamp,
    ) -> Result<Vec<DecisionReply>, StoreError> {
        let cancel = |(user, id): &(UserId, WithdrawalId)| Said {
            id: *id,
            user: Some(*user),
            event: WithdrawalEvent::Cancelled,
            people: 0,
            actor: format!("user {}", user.get()),
            reason: "called off".to_owned(),
        };
        let said: Vec<Said> = wanted.iter().map(cancel).collect();
        self.say(&said, at).await
    }

    async fn say(&self, said: &[Said], at: Timestamp) -> Result<Vec<DecisionReply>, StoreError> {
        if said.is_empty() {
            return Ok(Vec::new());
        }
        if said.len() > MOST {
            return Err(StoreError::BatchTooLarge { count: said.len(), most: MOST });
        }
        transact!(self, tx => decide(tx, said, at).await)
    }
}

impl Said {
    pub(crate) fn of_decision(decision: &WithdrawalDecision) -> Self {
        let (event, people) = match &decision.decision {
            Decision::Approve(people) => (WithdrawalEvent::Approved, distinct(people)),
            Decision::Review => (WithdrawalEvent::Doubted, 0),
            Decision::Refuse => (WithdrawalEvent::Refused, 0),
        };
        let (actor, reason) = (decision.actor.clone(), decision.reason.clone());
        Self { id: decision.id, user: None, event, people, actor, reason }
    }

    /// What the row comes to, or why not.
    fn meets(&self, row: &WithdrawalRow) -> Result<WithdrawalState, DecisionReply> {
        if self.user.is_some_and(|user| user != row.user) {
            return Err(DecisionReply::NoSuchWithdrawal);
        }
        let Ok(next) = row.state.next(self.event) else {
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
        // One that was sent to people needs at least one of them, whatever the policy wanted.
        let wanted = row.people.max(1);
        let agree = u32::try_from(self.people).unwrap_or(u32::MAX);
        if self.event == WithdrawalEvent::Approved && agree < wanted {
            return Err(DecisionReply::TooFew { wanted, agree: self.people });
        }
        Ok(next)
    }
}

/// Blanks around a name and the size of its letters do not make another person.
fn distinct(people: &BTreeSet<String>) -> usize {
    let names: BTreeSet<String> = people.iter().map(|name| name.trim().to_lowercase()).collect();
    names.iter().filter(|name| !name.is_empty()).count()
}

pub(crate) async fn decide(tx: &mut Tx, said: &[Said], at: Timestamp) -> Result<Vec<DecisionReply>, StoreError> {
    let rows = lock(tx, said.iter().map(|one| one.id)).await?;
    let approved = said.iter().filter(|one| one.event == WithdrawalEvent::Approved);
    let held_up = check::held_up(tx, approved.map(|one| one.id)).await?;
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
        match one.meets(row) {
            Ok(_) if one.event == WithdrawalEvent::Approved && held_up.contains(&one.id.number()) => {
                replies.push(Err(DecisionReply::CheckWaits));
            }
            Ok(next) => {
                changed.insert(one.id, next);
                changes.push(Change::new(row.clone(), one.event, &one.actor, one.reason.as_str()));
                replies.push(Ok(one.id));
            }
            Err(reply) => replies.push(Err(reply)),
        }
    }
    rows.extend(advance(tx, changes, at).await?.into_iter().map(|row| (row.id, row)));
    let reply = |reply: Result<WithdrawalId, DecisionReply>| match reply {
        Ok(id) => {
            rows.get(&id).map_or(DecisionReply::NoSuchWithdrawal, |row| DecisionReply::Done(Box::new(row.clone())))
        }
        Err(reply) => reply,
    };
    Ok(replies.into_iter().map(reply).collect())
}
