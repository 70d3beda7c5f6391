//! What people may do with a transfer that is stuck: have it tried again, or say how it ended, if the legs' own records
//! prove it. Where no record can ever prove anything, two people may say it ([`Coordinator::resolve_without_proof`]).
//! The transfer's history says who did so, and why.

use domain::Approval;
use domain::id::{self, Id};
use domain::transfer::{Direction, State, Transfer, plan};
use store::transfer::{
    Changed, History, Locked, Unproven, change, lock, lock_with_accounts, mark_unproven, read, write_history,
};
use store::{StoreError, Writes, transact};

use crate::coordinator::Coordinator;
use crate::leg::{Reason, Record};
use crate::update::{RemoteEvent, Terms, TransferUpdate, WITHDRAWAL_UNDONE, advance, write};

#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("there is no transfer {0}")]
    NotFound(Id<id::Transfer>),
    #[error("transfer {0} has ended: {1}")]
    Ended(Id<id::Transfer>, State),
    #[error("the legs' records do not prove it: {0}")]
    NotProven(String),
    /// A resolution without proof is only for what no record can prove.
    #[error("it can still be proven, or may still happen: {0}")]
    Provable(String),
    /// Nothing of the asset comes back to FUNDING, by anybody's word.
    #[error("transfers of the asset of {0} from SPOT to FUNDING are stopped")]
    Stopped(Id<id::Transfer>),
    /// The ledger refuses what the end needs: the user's account is disabled, say.
    #[error("the ledger does not take that end ({0})")]
    NotTaken(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a person says a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Committed,
    RolledBack,
}

impl Wanted {
    const fn words(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled back",
        }
    }
}

/// Words for a row of history.
fn clean(words: &str) -> String {
    words.chars().filter(|one| !one.is_control()).take(500).collect()
}

/// Who, and why.
#[derive(Clone, Debug)]
pub struct Author {
    pub actor: String,
    pub reason: String,
}

impl Coordinator {
    /// Tries the transfer at once instead of when it is due, and returns where it stands then.
    pub async fn retry(&self, id: Id<id::Transfer>, author: &Author) -> Result<Transfer, OperatorError> {
        let transfer = self.note(id, &format!("retry by {}: {}", author.actor, author.reason)).await?;
        self.drive(transfer).await
    }

    /// Ends the transfer as wanted, if the records of both legs prove that end. The state machine then does what it
    /// would have done on hearing the leg's answer: it skips no state, and moves no other money.
    pub async fn resolve(
        &self,
        id: Id<id::Transfer>,
        wanted: Wanted,
        author: &Author,
    ) -> Result<Transfer, OperatorError> {
        let transfer = self.find(id).await?;
        let record = self.leg().query(&[id]).await.into_iter().next();
        let record = record.unwrap_or(Record::Unknown(Reason::new("LEG_ANSWER_INVALID", "the leg said nothing")));
        let event = proven(&transfer, wanted, &record).map_err(OperatorError::NotProven)?;
        let what = wanted.words();
        let note = format!("resolved as {what} by {}: {}", author.actor, author.reason);
        let transfer = self.note(id, &note).await?;
        self.tell(&transfer, event).await?;
        let transfer = self.find_any(id).await?;
        if transfer.state.is_terminal() { Ok(transfer) } else { self.drive(transfer).await }
    }

    /// Ends the transfer as two people say, where the engine has forgotten what it did, and for ever.
    ///
    /// Their word counts like an answer of the engine: the books move as they would have moved then, and the transfer is
    /// marked. So nothing is left open: if the engine did the opposite, its total differs from the books, the check that
    /// runs by itself finds it and stops the asset, and people settle the difference with `suspense`.
    pub async fn resolve_without_proof(
        &self,
        id: Id<id::Transfer>,
        wanted: Wanted,
        approval: &Approval,
        evidence: &str,
    ) -> Result<Transfer, OperatorError> {
        let seen = self.find(id).await?;
        let record = self.leg().query(&[id]).await.into_iter().next();
        let answer = forgotten(record.as_ref()).map_err(OperatorError::Provable)?;
        let event = unproven(&seen, wanted).map_err(OperatorError::Provable)?;
        let clearing = self.clearing_of(std::iter::once(seen.asset)).await?;
        // There is nothing to commit at an engine that has forgotten.
        let terms = Terms { freezes: false, ..self.terms(&clearing) };
        let note = format!("resolved without proof as {} by {approval}; evidence: {evidence}", wanted.words());
        let mark = Unproven { answer, approval: approval.clone(), evidence: evidence.to_owned() };
        let ended = transact!(self.db(), tx => {
            let Locked { transfers: rows, accounts, stopped } = lock_with_accounts(tx, &[id]).await?;
            let Some(row) = rows.into_iter().next() else { return Ok(Err(OperatorError::NotFound(id))) };
            if row.state.is_terminal() {
                return Ok(Err(OperatorError::Ended(id, row.state)));
            }
            if row.state != seen.state {
                return Ok(Err(OperatorError::Provable(format!("it has just moved on to {}", row.state))));
            }
            let mut updates = [TransferUpdate::known(row)];
            updates[0].apply(&event, terms.at, terms.settings)?;
            let mut writes = Writes::default();
            let reserved = self.room.hold_back(tx, &mut updates, &stopped, &terms).await?;
            if updates[0].waits {
                // Of the transfer nothing has been written. If it asks for more than was given, the stop is written.
                return Ok(Err(OperatorError::Stopped(id)));
            }
            advance(tx, &mut updates, Some(accounts), &terms, &mut writes).await?;
            let state = updates[0].transfer.state;
            if !state.is_terminal() {
                // Nothing has been written yet.
                let error = updates[0].transfer.error.clone();
                return Ok(Err(OperatorError::NotTaken(error.unwrap_or_else(|| state.to_string()))));
            }
            updates[0].note(clean(&note));
            mark_unproven(tx, id, &mark, terms.at).await?;
            write(tx, &mut updates, terms.at, &mut writes).await?;
            Ok(Ok((updates, reserved)))
        });
        if ended.is_err() {
            self.room.forget(std::iter::once(seen.asset));
        }
        let (updates, reserved) = ended??;
        self.room.note(&updates, reserved);
        self.find_any(id).await
    }

    async fn drive(&self, transfer: Transfer) -> Result<Transfer, OperatorError> {
        let id = transfer.id;
        self.step(vec![transfer]).await?;
        self.find_any(id).await
    }

    async fn find_any(&self, id: Id<id::Transfer>) -> Result<Transfer, OperatorError> {
        let found = read(&mut self.db().read().await?, &[id]).await?;
        found.into_iter().next().ok_or(OperatorError::NotFound(id))
    }

    async fn find(&self, id: Id<id::Transfer>) -> Result<Transfer, OperatorError> {
        let transfer = self.find_any(id).await?;
        if transfer.state.is_terminal() { Err(OperatorError::Ended(id, transfer.state)) } else { Ok(transfer) }
    }

    /// A row of history that changes no state, of a transfer that has not ended.
    async fn note(&self, id: Id<id::Transfer>, reason: &str) -> Result<Transfer, OperatorError> {
        let transfer = self.find(id).await?;
        let noted = self.note_any(transfer.id, reason).await?.ok_or(OperatorError::NotFound(id))?;
        if noted.state.is_terminal() { Err(OperatorError::Ended(id, noted.state)) } else { Ok(noted) }
    }

    /// The same of any transfer. `None`: there is none.
    pub(crate) async fn note_any(&self, id: Id<id::Transfer>, reason: &str) -> Result<Option<Transfer>, StoreError> {
        let at = self.now();
        transact!(self.db(), tx => {
            let Some(mut transfer) = lock(tx, &[id]).await?.into_iter().next() else { return Ok(None) };
            transfer.version += 1;
            transfer.updated_at = at;
            let reason = clean(reason);
            let path = transfer.state.as_str().to_owned();
            let row = History { transfer: id, version: transfer.version, path, reason };
            let mut writes = Writes::default();
            change(&mut writes, &[Changed { seen: transfer.state, transfer: &transfer }]);
            write_history(&mut writes, vec![row], at);
            writes.run(tx).await?;
            Ok(Some(transfer))
        })
    }
}

/// The answers after which a leg will never again say what became of a transfer, nor carry it out.
const FORGOTTEN: [&str; 1] = ["OPERATION_EXPIRED"];

/// What the leg said, if it has forgotten the transfer for good. All else proves something, or may do so yet.
fn forgotten(record: Option<&Record>) -> Result<String, String> {
    match record {
        Some(Record::Unknown(reason)) if FORGOTTEN.contains(&reason.code()) => Ok(reason.to_string()),
        Some(Record::Unknown(reason)) => Err(format!("the remote leg cannot say just now ({reason})")),
        Some(Record::Nothing) => Err("the remote leg knows nothing of it yet, and it may still arrive".to_owned()),
        Some(Record::Applied) => Err("the remote leg says that it took effect".to_owned()),
        Some(Record::Refused(reason)) => Err(format!("the remote leg says that it refused ({reason})")),
        Some(Record::RolledBack) => Err("the remote leg says that it was undone".to_owned()),
        None => Err("the remote leg said nothing".to_owned()),
    }
}

/// What is taken to have happened at the remote leg, because two people say so.
fn unproven(transfer: &Transfer, wanted: Wanted) -> Result<RemoteEvent, String> {
    use domain::transfer::Action;
    let reason = || Reason::new("RESOLVED_WITHOUT_PROOF", "two people say that it did not happen");
    match (plan(transfer.state), transfer.direction, wanted) {
        (Action::Deposit, Direction::ToSpot, Wanted::Committed) => Ok(RemoteEvent::Deposited),
        (Action::Deposit, Direction::ToSpot, Wanted::RolledBack) => Ok(RemoteEvent::NotDeposited(reason())),
        (Action::Withdraw, Direction::ToFunding, Wanted::Committed) => Ok(RemoteEvent::Withdrawn),
        (Action::Withdraw, Direction::ToFunding, Wanted::RolledBack) => Ok(RemoteEvent::NotWithdrawn(reason())),
        (Action::RollBack, Direction::ToFunding, Wanted::RolledBack) => Ok(RemoteEvent::RolledBack),
        _ => Err(format!("a transfer in state {} cannot end as {}", transfer.state, wanted.words())),
    }
}

/// What happened at the remote leg, if its own record proves the wanted end.
fn proven(transfer: &Transfer, wanted: Wanted, record: &Record) -> Result<RemoteEvent, String> {
    use domain::transfer::Action;
    let told = match record {
        Record::Applied => "the remote leg says that it took effect".to_owned(),
        Record::Refused(reason) => format!("the remote leg says that it refused ({reason})"),
        Record::RolledBack => "the remote leg says that it was undone, or forbidden before it came".to_owned(),
        Record::Nothing => "the remote leg knows nothing of it, and it may still arrive".to_owned(),
        Record::Unknown(reason) => format!("the remote leg cannot say ({reason})"),
    };
    let no = || Err(format!("in state {} {told}", transfer.state));
    match (plan(transfer.state), transfer.direction, wanted, record) {
        (Action::Deposit, Direction::ToSpot, Wanted::Committed, Record::Applied) => Ok(RemoteEvent::Deposited),
        (Action::Deposit, Direction::ToSpot, Wanted::RolledBack, Record::Refused(reason)) => {
            Ok(RemoteEvent::NotDeposited(reason.clone()))
        }
        (Action::Withdraw, Direction::ToFunding, Wanted::Committed, Record::Applied) => Ok(RemoteEvent::Withdrawn),
        // The money never left its source: the state machine calls that FAILED.
        (Action::Withdraw, Direction::ToFunding, Wanted::RolledBack, Record::Refused(reason)) => {
            Ok(RemoteEvent::NotWithdrawn(reason.clone()))
        }
        (Action::Withdraw, Direction::ToFunding, Wanted::RolledBack, Record::RolledBack) => {
            Ok(RemoteEvent::NotWithdrawn(WITHDRAWAL_UNDONE))
        }
        (Action::RollBack, Direction::ToFunding, Wanted::RolledBack, Record::RolledBack) => Ok(RemoteEvent::RolledBack),
        _ => no(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{AccountId, Amount, AssetId, Timestamp, UserId};

    fn transfer(direction: Direction, state: State) -> Transfer {
        Transfer {
            id: Id::new(7).expect("positive"),
            user: UserId::new(1).expect("positive"),
            asset: AssetId(1),
            amount: Amount::from_units(5),
            direction,
            funding: AccountId(1),
            state,
            error: None,
            client_order_id: None,
            tries: 0,
            due_at: Timestamp::default(),
            alerted_at: None,
            version: 1,
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
        }
    }

    #[test]
    fn only_a_record_proves() {
        use Direction::{ToFunding, ToSpot};
        let reason = || Reason::new("ACCOUNT_DISABLED", "no");
        let records = [
            Record::Applied,
            Record::Refused(reason()),
            Record::RolledBack,
            Record::Nothing,
            Record::Unknown(reason()),
        ];
        let mut proofs = Vec::new();
        for direction in [ToSpot, ToFunding] {
            for state in State::ALL {
                for wanted in [Wanted::Committed, Wanted::RolledBack] {
                    for (at, record) in records.iter().enumerate() {
                        if proven(&transfer(direction, state), wanted, record).is_ok() {
                            proofs.push((direction, state, wanted, at));
                        }
                    }
                }
            }
        }
        use Wanted::{Committed, RolledBack};
        assert_eq!(
            proofs,
            [
                (ToSpot, State::TargetPending, Committed, 0),
                (ToSpot, State::TargetPending, RolledBack, 1),
                (ToFunding, State::SourcePending, Committed, 0),
                (ToFunding, State::SourcePending, RolledBack, 1),
                (ToFunding, State::SourcePending, RolledBack, 2),
                (ToFunding, State::Compensating, RolledBack, 2),
            ]
        );
    }
}
