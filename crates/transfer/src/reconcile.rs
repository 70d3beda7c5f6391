//! What the spot engine has and the database has not, and the other way round, transfer by transfer; and the mends that
//! both sides' own memory of an id proves.
//!
//! | found | mended by |
//! |---|---|
//! | the engine carried out an operation, and there is no transfer of its id | the transfer is recorded under that id and driven as any other: the engine answers with what it remembers |
//! | the database believes a transfer carried out, and the engine knows nothing of it | the same operation is sent to the engine again, under the same id |
//! | the engine took a user's money out, and the database says that the transfer ended without it | the engine undoes it, under the same id |
//! | both know the id and say different things otherwise | nothing here: two people look at it |
//!
//! Every mend may be made again: ids make it happen once.

use std::collections::BTreeMap;

use domain::id::{self, Id};
use domain::transfer::{Direction, State, Transfer};
use domain::{AccountStatus, Amount, Approval, AssetId, UserId};
use spot::{Mark, OpId, Operation, Standing};
use store::Db;
use store::pair::{PairAuthor, newest_applied, without_transfer};
use store::transfer::read;

use crate::coordinator::{Coordinator, CoordinatorError};
use crate::create::{Created, TransferOrder};
use crate::leg::spot::SpotLeg;
use crate::leg::{Answer, Call, Leg, Reason, Record, Verb};
use crate::pair::PairError;

/// Operations or transfers that are compared with one question.
const PAGE: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Engine,
    Database,
}

/// One side has what the other has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub id: Id<id::Transfer>,
    pub only: Side,
    /// What moved. `None`: the log no longer says, because a snapshot stands in for that part of it.
    pub moved: Option<Moved>,
    /// How the transfer ended at the database without moving money, if it has one that the engine contradicts.
    pub ended: Option<State>,
    /// Set if no mend is provable.
    pub problem: Option<String>,
}

/// How a difference is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mend {
    /// Recorded in the database.
    Record,
    /// Carried out by the engine once more.
    SendAgain,
    /// Undone at the engine: by the database the money never left the user's spot account.
    RollBack,
}

impl Mend {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Record => "recorded in the database",
            Self::SendAgain => "carried out by the engine again",
            Self::RollBack => "undone at the engine",
        }
    }
}

impl Difference {
    /// `None`: no mend is provable.
    pub const fn mend(&self) -> Option<Mend> {
        match (&self.problem, self.only, self.ended) {
            (Some(_), _, _) => None,
            (None, Side::Engine, None) => Some(Mend::Record),
            (None, Side::Engine, Some(_)) => Some(Mend::RollBack),
            (None, Side::Database, _) => Some(Mend::SendAgain),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    pub user: UserId,
    pub asset: AssetId,
    pub amount: Amount,
    pub direction: Direction,
}

impl Moved {
    const fn of(transfer: &Transfer) -> Self {
        Self { user: transfer.user, asset: transfer.asset, amount: transfer.amount, direction: transfer.direction }
    }

    /// What an operation of the engine moved, if it moved money in or out.
    pub const fn by(operation: &Operation) -> Option<Self> {
        let (of, direction) = match operation {
            Operation::Deposit(of) => (of, Direction::ToSpot),
            Operation::Withdraw(of) | Operation::Rollback(of) => (of, Direction::ToFunding),
            Operation::Reserve(_)
            | Operation::Release(_)
            | Operation::Settle(_)
            | Operation::SetStatus { .. }
            | Operation::Mark(_) => return None,
        };
        Some(Self { user: of.user, asset: of.asset, amount: of.amount, direction })
    }
}

/// The ids of operations that the engine has applied and no transfer has, in order.
pub async fn only_at_engine(db: &Db, leg: &SpotLeg) -> Result<Vec<i64>, PairError> {
    let mut found = Vec::new();
    let mut before = OpId::new(i64::MAX);
    while let Some(id) = before {
        let page = leg.crossings(id, PAGE).await.map_err(PairError::NoAnswer)?;
        let applied = page.iter().filter(|(_, standing)| *standing == Standing::Applied);
        let ids: Vec<i64> = applied.map(|(id, _)| id.number()).collect();
        if !ids.is_empty() {
            found.extend(without_transfer(&mut db.read().await?, &ids).await?);
        }
        before = page.last().filter(|_| page.len() == PAGE).map(|(id, _)| *id);
    }
    found.sort_unstable();
    Ok(found)
}

/// All differences, in the order of their ids. `contents` has what the engine's log says of the ids of
/// [`only_at_engine`].
pub async fn differences(
    db: &Db,
    leg: &SpotLeg,
    at_engine: &[i64],
    contents: &BTreeMap<i64, Moved>,
) -> Result<Vec<Difference>, PairError> {
    let mut found = Vec::new();
    let at_engine: Vec<Id<id::Transfer>> = at_engine.iter().filter_map(|number| Id::new(*number).ok()).collect();
    for page in at_engine.chunks(PAGE) {
        let known = read(&mut db.read().await?, page).await?;
        let known: BTreeMap<Id<id::Transfer>, Transfer> = known.into_iter().map(|one| (one.id, one)).collect();
        found.extend(page.iter().map(|id| only_engine(*id, contents.get(&id.number()).copied(), known.get(id))));
    }
    let mut before = i64::MAX;
    loop {
        let most = i64::try_from(PAGE).unwrap_or(i64::MAX);
        let ids = newest_applied(&mut db.read().await?, before, most).await?;
        let Some(last) = ids.last() else { break };
        before = last.number();
        let records = leg.query(&ids).await;
        let mut missing = BTreeMap::new();
        let mut expired = false;
        for (id, record) in ids.iter().zip(&records) {
            match record {
                Record::Applied => {}
                Record::Nothing => drop(missing.insert(*id, None)),
                Record::Refused(_) | Record::RolledBack => {
                    let problem = format!("the engine remembers {record:?}");
                    missing.insert(*id, Some(problem));
                }
                // Older ones are forgotten too.
                Record::Unknown(reason) if reason.code() == "OPERATION_EXPIRED" => expired = true,
                Record::Unknown(reason) => return Err(PairError::NoAnswer(reason.clone())),
            }
        }
        let wanted: Vec<Id<id::Transfer>> = missing.keys().copied().collect();
        if !wanted.is_empty() {
            for transfer in read(&mut db.read().await?, &wanted).await? {
                let problem = missing.remove(&transfer.id).flatten();
                let moved = Some(Moved::of(&transfer));
                found.push(Difference { id: transfer.id, only: Side::Database, moved, ended: None, problem });
            }
        }
        if expired || ids.len() < PAGE {
            break;
        }
    }
    found.sort_unstable_by_key(|difference| difference.id);
    Ok(found)
}

/// The engine has applied an operation that no transfer explains. `transfer` is one of that id which ended without moving
/// money.
fn only_engine(id: Id<id::Transfer>, logged: Option<Moved>, transfer: Option<&Transfer>) -> Difference {
    let (moved, ended) = (transfer.map(Moved::of).or(logged), transfer.map(|transfer| transfer.state));
    let problem = match transfer {
        None if logged.is_none() => Some("the log no longer says what it moved".to_owned()),
        None => None,
        Some(transfer) if logged.is_some_and(|logged| logged != Moved::of(transfer)) => {
            Some("the engine's log says that it moved something else".to_owned())
        }
        // By the database the user's money never left SPOT, and the engine took it out: it gives it back.
        Some(Transfer { direction: Direction::ToFunding, .. }) => None,
        // The user has it in FUNDING, and at the engine too, where it may have been traded since.
        Some(Transfer { direction: Direction::ToSpot, state, .. }) => {
            Some(format!("the database says {state}, and the engine has the money"))
        }
    };
    Difference { id, only: Side::Engine, moved, ended, problem }
}

impl Coordinator {
    /// Mends one difference. `Ok(Err(…))` says why it could not be mended.
    pub async fn mend(
        &self,
        difference: &Difference,
        approval: &Approval,
    ) -> Result<Result<(), String>, CoordinatorError> {
        if let Some(problem) = &difference.problem {
            return Ok(Err(problem.clone()));
        }
        let Some(moved) = difference.moved else { return Ok(Err("it is not known what it moved".to_owned())) };
        match difference.mend() {
            Some(Mend::Record) => self.record_again(difference.id, moved, approval).await,
            Some(Mend::SendAgain) => self.carry_out_again(difference.id, moved, approval).await,
            Some(Mend::RollBack) => {
                let words = "the engine took the money out and the database says otherwise: undone there";
                self.remark(difference.id, words, approval).await?;
                Ok(self.call_engine(difference.id, Verb::Rollback, moved).await)
            }
            None => Ok(Err("no mend is provable".to_owned())),
        }
    }

    /// The transfer that the database lost: recorded under its own id, and driven by the ordinary machine.
    async fn record_again(
        &self,
        id: Id<id::Transfer>,
        moved: Moved,
        approval: &Approval,
    ) -> Result<Result<(), String>, CoordinatorError> {
        let Moved { user, asset, amount, direction } = moved;
        let order = TransferOrder { user, asset, amount, direction, client_order_id: None };
        let created = self.adopt(id, &order).await?;
        let transfer = match created {
            Created::New(transfer) | Created::Duplicate(transfer) => transfer,
            Created::Rejected(rejection) => return Ok(Err(format!("{}: {rejection}", rejection.code()))),
        };
        self.remark(id, "the engine has it and the database had lost it: recorded again", approval).await?;
        let ended = self.step(vec![transfer]).await.map_err(CoordinatorError::Store)?;
        Ok(match ended.first() {
            Some(ended) if ended.state == State::Committed => Ok(()),
            Some(ended) => Err(format!("it is {} now: {}", ended.state, ended.error.as_deref().unwrap_or_default())),
            None => Err("it is on its way".to_owned()),
        })
    }

    /// The operation that the engine lost. It is asked first whether it would take it: a refusal would stand under the id
    /// for good.
    async fn carry_out_again(
        &self,
        id: Id<id::Transfer>,
        moved: Moved,
        approval: &Approval,
    ) -> Result<Result<(), String>, CoordinatorError> {
        let verb = match moved.direction {
            Direction::ToSpot => Verb::Deposit,
            Direction::ToFunding => Verb::Withdraw,
        };
        let pair = [(moved.user, moved.asset)];
        let told = self.leg().holdings(&pair).await.and_then(|told| told.into_iter().next());
        let Some(holding) = told else { return Ok(Err("the engine does not tell what the user has".to_owned())) };
        let status = holding.map_or(AccountStatus::Active, |holding| holding.status);
        let available = holding.map_or(Amount::ZERO, |holding| holding.available);
        match moved.direction {
            Direction::ToSpot if status == AccountStatus::Disabled => {
                return Ok(Err("not sent: the user's spot account is disabled".to_owned()));
            }
            Direction::ToFunding if status != AccountStatus::Active => {
                return Ok(Err("not sent: the user's spot account is not active".to_owned()));
            }
            Direction::ToFunding if available < moved.amount => {
                return Ok(Err("not sent: the user has less than that at the engine".to_owned()));
            }
            Direction::ToSpot | Direction::ToFunding => {}
        }
        self.remark(id, "the database has it and the engine had lost it: sent there again", approval).await?;
        Ok(self.call_engine(id, verb, moved).await)
    }

    async fn call_engine(&self, id: Id<id::Transfer>, verb: Verb, moved: Moved) -> Result<(), String> {
        let call = Call { verb, id, user: moved.user, asset: moved.asset, amount: moved.amount };
        match self.leg().call(&[call]).await.into_iter().next() {
            Some(Answer::Success) => Ok(()),
            Some(Answer::Failed(reason) | Answer::Pending(reason)) => Err(reason.to_string()),
            None => Err("the engine gave no answer".to_owned()),
        }
    }

    /// Makes the two a pair as they are now: the engine hears a counter above all that either side knows, and the
    /// database takes it, and the engine's last batch, as known.
    pub async fn accept_pair(&self, left: &[Difference], approval: &Approval) -> Result<u64, PairError> {
        let Some(leg) = self.leg().spot() else { return Err(PairError::Other("this is not our engine".to_owned())) };
        let (pair, engine) = (self.db().pair().await?, leg.pair().await.map_err(PairError::NoAnswer)?);
        let no_id = |_| PairError::NoAnswer(Reason::new("SPOT_PAIR_UNCHECKED", "no id can be made for a mark"));
        let counter = pair.told.max(engine.counter) + 1;
        let id = self.next_id().map_err(no_id)?;
        let told = leg.mark(Mark { id: id.into(), database: pair.database, counter }).await;
        let standing = told.map_err(|reason| match reason.code() {
            "SPOT_PAIR_OTHER" => PairError::Other(reason.to_string()),
            _ => PairError::NoAnswer(reason),
        })?;
        let reason = approval.reason();
        let author = PairAuthor { actor: approval.actor(), second: Some(approval.second()), reason };
        let problem = |one: &Difference| one.problem.clone().unwrap_or_default();
        let accepted: Vec<(i64, String)> = left.iter().map(|one| (one.id.number(), problem(one))).collect();
        let (engine, sequence, at) = (standing.log_id, standing.sequence, self.now());
        self.db().rebind_engine(engine, counter, sequence, &accepted, author, at).await?;
        Ok(counter)
    }

    /// A row of history that says who mends the transfer, and why: before the mend, so that none goes without.
    async fn remark(&self, id: Id<id::Transfer>, words: &str, approval: &Approval) -> Result<(), CoordinatorError> {
        let (actor, second, reason) = (approval.actor(), approval.second(), approval.reason());
        let words = format!("{words} by {actor} and {second}: {reason}");
        self.note_any(id, &words).await.map(|_| ()).map_err(CoordinatorError::Store)
    }
}
