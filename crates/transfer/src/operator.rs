//! What a person may do with a transfer that is stuck: have it tried again, or say how it ended, if the legs' own
//! records prove it. The transfer's history says who did so, and why.

use domain::id::{self, Id};
use domain::transfer::{Direction, State, Transfer, plan};
use store::transfer::{Changed, History, change, lock, read, write_history};
use store::{StoreError, Writes, transact};

use crate::coordinator::Coordinator;
use crate::leg::{Reason, Record};
use crate::update::RemoteEvent;

#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("there is no transfer {0}")]
    NotFound(Id<id::Transfer>),
    #[error("transfer {0} has ended: {1}")]
    Ended(Id<id::Transfer>, State),
    #[error("the legs' records do not prove it: {0}")]
    NotProven(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a person says a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Committed,
    RolledBack,
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
        let what = match wanted {
            Wanted::Committed => "committed",
            Wanted::RolledBack => "rolled back",
        };
        let note = format!("resolved as {what} by {}: {}", author.actor, author.reason);
        let transfer = self.note(id, &note).await?;
        self.tell(&transfer, event).await?;
        let transfer = self.find_any(id).await?;
        if transfer.state.is_terminal() { Ok(transfer) } else { self.drive(transfer).await }
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

    /// A row of history that changes no state.
    async fn note(&self, id: Id<id::Transfer>, reason: &str) -> Result<Transfer, OperatorError> {
        let at = self.now();
        let noted = transact!(self.db(), tx => {
            let Some(mut transfer) = lock(tx, &[id]).await?.into_iter().next() else { return Ok(None) };
            if transfer.state.is_terminal() {
                return Ok(Some(transfer));
            }
            transfer.version += 1;
            transfer.updated_at = at;
            let reason: String = reason.chars().filter(|one| !one.is_control()).take(300).collect();
            let path = transfer.state.as_str().to_owned();
            let row = History { transfer: id, version: transfer.version, path, reason };
            let mut writes = Writes::default();
            change(&mut writes, &[Changed { seen: transfer.state, transfer: &transfer }]);
            write_history(&mut writes, vec![row], at);
            writes.run(tx).await?;
            Ok(Some(transfer))
        })?;
        let transfer = noted.ok_or(OperatorError::NotFound(id))?;
        if transfer.state.is_terminal() { Err(OperatorError::Ended(id, transfer.state)) } else { Ok(transfer) }
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
            let reason = Reason::new("WITHDRAWAL_ROLLED_BACK", "the withdrawal was undone at the remote leg");
            Ok(RemoteEvent::NotWithdrawn(reason))
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
