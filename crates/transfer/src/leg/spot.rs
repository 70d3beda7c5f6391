//! The spot engine as a leg, in this process or over TCP. A batch of calls is one submission, one sync.

use std::sync::Arc;

use domain::id::{self, Id};
use domain::{Amount, AssetId, Timestamp, UserId};
use spot::net::{Client, ClientError, ConnectionState, Welcome};
use spot::{Answer as Told, Decision, Engine, Mark, Move, OpId, Operation, PairStanding, Request, SUBMISSION_MAX};
use spot::{SpotRefusal, Standing};

use crate::pair::Floor;

use super::{Answer, Answered, Call, Holding, Leg, Reason, Record, Verb, sane};
use crate::readiness::Trouble;

pub struct SpotLeg {
    way: Way,
    /// What is known of the engine: each new connection is held against it.
    floor: Arc<Floor>,
}

enum Way {
    Engine(Engine),
    /// An engine in another process.
    Client(Client),
    /// Another way to an engine, such as the simulator's line that loses messages.
    Other(Box<dyn Submit>),
}

/// What a client asks of each connection before anything is sent on it.
pub type Acceptance = Box<dyn Fn(&Welcome) -> Result<(), ClientError> + Send + Sync>;

/// A way to an engine: it takes a submission there and brings the answers back, or says why there are none.
pub trait Submit: Send + Sync {
    fn submit<'a>(&'a self, requests: &'a [Request]) -> Answered<'a, Result<Vec<Told>, Reason>>;
}

impl SpotLeg {
    /// The engine of this process.
    pub fn engine(engine: Engine) -> Self {
        Self { way: Way::Engine(engine), floor: Arc::default() }
    }

    /// An engine in another process. `connect` gets what each connection must be asked before anything is sent on it.
    pub fn elsewhere(connect: impl FnOnce(Acceptance) -> Client) -> Self {
        let floor: Arc<Floor> = Arc::default();
        let known = Arc::clone(&floor);
        let accept: Acceptance = Box::new(move |welcome| {
            let refuse = |error: crate::pair::PairError| ClientError::Unacceptable {
                code: error.code(),
                words: error.to_string(),
            };
            known.check(&welcome.pair).map_err(refuse)?;
            known.connected();
            Ok(())
        });
        Self { way: Way::Client(connect(accept)), floor }
    }

    pub fn other(way: Box<dyn Submit>) -> Self {
        Self { way: Way::Other(way), floor: Arc::default() }
    }

    pub(crate) fn floor(&self) -> &Floor {
        &self.floor
    }

    /// Which engine this is, and how far it has come.
    pub async fn pair(&self) -> Result<PairStanding, Reason> {
        match self.submit(&[Request::Pair]).await?.first() {
            Some(Told::Pair(pair)) => Ok(*pair),
            _ => Err(Reason::new("LEG_ANSWER_INVALID", "the engine does not say who it is")),
        }
    }

    /// Tells the engine how far its database has come, and returns how far the engine had come before.
    pub(crate) async fn mark(&self, mark: Mark) -> Result<PairStanding, Reason> {
        let told = self.submit(&[Request::Pair, Operation::Mark(mark).into()]).await?;
        match told[..] {
            [Told::Pair(pair), Told::First(Decision::Applied) | Told::Replay(Decision::Applied)] => Ok(pair),
            [_, Told::First(Decision::Refused(refusal)) | Told::Replay(Decision::Refused(refusal))] => {
                Err(refused(refusal))
            }
            [_, undecided] => {
                let code = undecided.code().unwrap_or("LEG_ANSWER_INVALID");
                Err(Reason::foreign(code, "the engine did not take the mark"))
            }
            _ => Err(Reason::new("LEG_ANSWER_INVALID", "the engine did not take the mark")),
        }
    }

    /// The newest operations before `before` that moved money in or out, the newest first.
    pub async fn crossings(&self, before: OpId, most: usize) -> Result<Vec<(OpId, Standing)>, Reason> {
        match &self.way {
            Way::Engine(engine) => {
                engine.crossings(before, most).await.map_err(|error| Reason::foreign(error.code(), &error.to_string()))
            }
            Way::Client(client) => {
                client.crossings(before, most).await.map_err(|error| Reason::foreign(error.code(), &error.to_string()))
            }
            Way::Other(_) => Err(Reason::new("LEG_ANSWER_INVALID", "this way to the engine lists nothing")),
        }
    }

    /// All answers, or why there are none. Without answers, the engine may have done any part of the requests.
    async fn submit(&self, requests: &[Request]) -> Result<Vec<Told>, Reason> {
        let mut answers = Vec::with_capacity(requests.len());
        for part in requests.chunks(SUBMISSION_MAX) {
            let told = match &self.way {
                Way::Engine(engine) => engine
                    .submit(part.to_vec())
                    .await
                    .map_err(|error| Reason::foreign(error.code(), &error.to_string())),
                Way::Client(client) => {
                    client.submit(part).await.map_err(|error| Reason::foreign(error.code(), &error.to_string()))
                }
                Way::Other(way) => way.submit(part).await,
            };
            answers.extend(told?);
        }
        if answers.len() == requests.len() {
            Ok(answers)
        } else {
            Err(Reason::new("LEG_ANSWER_INVALID", "the engine gave more or fewer answers than it was asked for"))
        }
    }
}

fn operation(call: &Call) -> Operation {
    let of = Move { id: call.id.into(), user: call.user, asset: call.asset, amount: call.amount };
    match call.verb {
        Verb::Withdraw => Operation::Withdraw(of),
        Verb::Deposit => Operation::Deposit(of),
        // A withdrawal from the engine is final at once: committing it is asking for it again.
        Verb::Commit => Operation::Withdraw(of),
        Verb::Rollback => Operation::Rollback(of),
    }
}

/// Only a decision of the engine is `Success` or `Failed`.
fn answer(verb: Verb, told: &Told) -> Answer {
    let undecided = |told: &Told| {
        let code = told.code().unwrap_or("LEG_ANSWER_INVALID");
        Answer::Pending(Reason::foreign(code, "the engine decided nothing"))
    };
    match told {
        Told::First(Decision::Applied) | Told::Replay(Decision::Applied) => Answer::Success,
        Told::First(Decision::Refused(refusal)) | Told::Replay(Decision::Refused(refusal)) => {
            let reason = refused(*refusal);
            match verb {
                Verb::Withdraw | Verb::Deposit => Answer::Failed(reason),
                // A withdrawal must be made final or undone in the end, so the call is made again.
                Verb::Commit | Verb::Rollback => Answer::Pending(reason),
            }
        }
        Told::Conflict
        | Told::Expired
        | Told::TooEarly
        | Told::NoRoom
        | Told::Standing(_)
        | Told::Balance(_)
        | Told::Total(_)
        | Told::Pair(_) => undecided(told),
    }
}

fn refused(refusal: SpotRefusal) -> Reason {
    Reason::foreign(refusal.code(), &refusal.to_string())
}

impl Leg for SpotLeg {
    fn call<'a>(&'a self, calls: &'a [Call]) -> Answered<'a, Vec<Answer>> {
        Box::pin(async move {
            let checked: Vec<Result<(), Reason>> = calls.iter().map(|call| sane(call.amount, call.asset)).collect();
            let good = calls.iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
            let requests: Vec<Request> = good.map(|(call, _)| operation(call).into()).collect();
            let told = if requests.is_empty() { Ok(Vec::new()) } else { self.submit(&requests).await };
            let mut told = told.map(Vec::into_iter);
            let each = calls.iter().zip(checked).map(|(call, checked)| match (checked, &mut told) {
                // The engine was not asked, so it did not refuse either: a person must look at it.
                (Err(reason), _) => Answer::Pending(reason),
                (Ok(()), Err(reason)) => Answer::Pending(reason.clone()),
                (Ok(()), Ok(told)) => told.next().map_or_else(
                    || Answer::Pending(Reason::new("LEG_ANSWER_INVALID", "the engine gave too few answers")),
                    |told| answer(call.verb, &told),
                ),
            });
            each.collect()
        })
    }

    fn query<'a>(&'a self, ids: &'a [Id<id::Transfer>]) -> Answered<'a, Vec<Record>> {
        Box::pin(async move {
            let requests: Vec<Request> = ids.iter().map(|id| Request::Query((*id).into())).collect();
            match self.submit(&requests).await {
                Err(reason) => ids.iter().map(|_| Record::Unknown(reason.clone())).collect(),
                Ok(told) => told.iter().map(record).collect(),
            }
        })
    }

    fn holdings<'a>(&'a self, of: &'a [(UserId, AssetId)]) -> Answered<'a, Option<Vec<Option<Holding>>>> {
        Box::pin(async move {
            let requests: Vec<Request> =
                of.iter().map(|(user, asset)| Request::Balance { user: *user, asset: *asset }).collect();
            let told = self.submit(&requests).await.ok()?;
            told.into_iter()
                .map(|one| match one {
                    Told::Balance(balance) => Some(balance.map(|balance| Holding {
                        available: balance.available,
                        reserved: balance.reserved,
                        status: balance.status,
                    })),
                    _ => None,
                })
                .collect()
        })
    }

    fn totals<'a>(&'a self, of: &'a [AssetId]) -> Answered<'a, Option<Vec<Amount>>> {
        Box::pin(async move {
            let requests: Vec<Request> = of.iter().map(|asset| Request::Total(*asset)).collect();
            let told = self.submit(&requests).await.ok()?;
            told.into_iter().map(|one| if let Told::Total(total) = one { Some(total) } else { None }).collect()
        })
    }

    fn time(&self) -> Answered<'_, Option<Timestamp>> {
        Box::pin(async { Some(self.pair().await.ok()?.time) })
    }

    fn reach(&self, _unused: Id<id::Transfer>) -> Answered<'_, Result<(), Trouble>> {
        Box::pin(async move {
            let Way::Client(client) = &self.way else { return Ok(()) };
            let trouble = |code: &'static str, words: String| Err(Trouble { code, words });
            let mut state = client.state();
            // The first connection is made within seconds, or has failed by then.
            let state = state.wait_for(|state| *state != ConnectionState::Connecting).await;
            match state.as_deref() {
                Ok(ConnectionState::Connected(_)) => Ok(()),
                Ok(ConnectionState::Rejected(error)) => trouble(error.code(), error.to_string()),
                Ok(ConnectionState::Away(why)) => trouble("LEG_UNREACHABLE", why.to_string()),
                Ok(ConnectionState::Connecting) | Err(_) => trouble("LEG_UNREACHABLE", "not connected".to_owned()),
            }
        })
    }

    fn freezes(&self) -> bool {
        false
    }

    fn spot(&self) -> Option<&SpotLeg> {
        Some(self)
    }
}

fn record(told: &Told) -> Record {
    match told {
        Told::Standing(None) => Record::Nothing,
        Told::Standing(Some(Standing::Applied)) => Record::Applied,
        Told::Standing(Some(Standing::Refused(refusal))) => Record::Refused(refused(*refusal)),
        Told::Standing(Some(Standing::RolledBack | Standing::Void)) => Record::RolledBack,
        Told::Expired => Record::Unknown(Reason::new("OPERATION_EXPIRED", "the engine has forgotten so old an id")),
        Told::First(_)
        | Told::Replay(_)
        | Told::Conflict
        | Told::TooEarly
        | Told::NoRoom
        | Told::Balance(_)
        | Told::Total(_)
        | Told::Pair(_) => Record::Unknown(Reason::new("LEG_ANSWER_INVALID", "the engine answered something else")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_engine_decided_decides() {
        let refusal = SpotRefusal::InsufficientBalance;
        let failed = || Answer::Failed(refused(refusal));
        for (verb, told, expected) in [
            (Verb::Withdraw, Told::First(Decision::Applied), Some(Answer::Success)),
            (Verb::Deposit, Told::Replay(Decision::Applied), Some(Answer::Success)),
            (Verb::Withdraw, Told::First(Decision::Refused(refusal)), Some(failed())),
            (Verb::Deposit, Told::Replay(Decision::Refused(refusal)), Some(failed())),
            // Nothing that goes wrong with a rollback makes it fail.
            (Verb::Rollback, Told::First(Decision::Refused(refusal)), None),
            (Verb::Commit, Told::First(Decision::Refused(refusal)), None),
            (Verb::Deposit, Told::Conflict, None),
            (Verb::Deposit, Told::Expired, None),
            (Verb::Withdraw, Told::TooEarly, None),
            (Verb::Rollback, Told::NoRoom, None),
            (Verb::Deposit, Told::Total(Amount::ZERO), None),
            (Verb::Deposit, Told::Standing(Some(Standing::Applied)), None),
        ] {
            let found = answer(verb, &told);
            match expected {
                Some(expected) => assert_eq!(found, expected, "{verb:?} {told:?}"),
                None => assert!(matches!(found, Answer::Pending(_)), "{verb:?} {told:?}: {found:?}"),
            }
        }
    }
}
