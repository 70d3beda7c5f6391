//! Two people say whose an unattributed deposit is.

use std::collections::BTreeSet;

use domain::deposit::posting::Given;
use domain::deposit::{DepositEvent, DepositState};
use domain::ledger::{AccountState, Movement, OpKey, Operation, Outcome, Reference, Reply};
use domain::{AccountKind, AccountStatus, Amount, Approval, AssetId, Timestamp, UserId};

use super::advance::{Change, Set, advance};
use crate::db::{Db, Tx};
use crate::entry::ChainId;
use crate::entry::cursor::hold_chain;
use crate::error::StoreError;
use crate::ledger::accounts::{NewAccount, Opened, open};
use crate::ledger::post::{load_accounts_of, post};
use crate::operator::log::{DONE, NewLogLine, write};
use crate::transact;

/// Who gets which deposit, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub deposit: i64,
    pub user: UserId,
    pub people: Approval,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// The user has it now.
    Done {
        amount: Amount,
    },
    /// The same was done before.
    Before,
    NoSuchDeposit,
    /// Only an unattributed deposit can be assigned.
    NotUnattributed(DepositState),
    /// Its block has left the chain, or it is more than an account can hold: there is nothing to give.
    Nothing,
    /// The user's account is disabled, or would have more than an account can hold.
    TakesNothing,
    /// Nothing of its chain moves: the deposit may be of a branch that is dead.
    Halted {
        why: String,
    },
}

impl Assigned {
    /// As the log of operators has it: `done`, or the code of why not.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Done { .. } | Self::Before => DONE,
            Self::NoSuchDeposit => "DEPOSIT_NOT_FOUND",
            Self::NotUnattributed(_) | Self::Nothing | Self::TakesNothing => "DEPOSIT_NOT_ASSIGNABLE",
            Self::Halted { .. } => "CHAIN_HALTED",
        }
    }
}

statements! {
    READ_OWED = "SELECT p.receivable FROM deposits d JOIN deposits p ON p.chain_id = d.chain_id AND p.tx_hash = d.tx_hash
            AND p.place = d.place AND p.generation < d.generation AND p.state = 'reversed' AND (p.receivable > 0 OR p.repaid > 0)
        WHERE d.id = $1 AND p.user_id = $2 ORDER BY p.generation DESC LIMIT 1";
    READ_ASSIGNABLE = "SELECT d.state, d.user_id, d.left_over, l.asset_id, e.alive, d.chain_id
        FROM deposits d JOIN chain_entries e ON e.id = d.id JOIN asset_on_chain l ON l.id = d.listing_id WHERE d.id = $1";
}

impl Db {
    /// Gives an unattributed deposit to a user, by the word of two people. The same again changes nothing. Each of the two has a line in the log of
    /// operators, also of what was refused.
    pub async fn assign_deposit(&self, wanted: &Assignment, at: Timestamp) -> Result<Assigned, StoreError> {
        transact!(self, tx => {
            let assigned = assign(tx, wanted, at).await?;
            let (deposit, whose) = (format!("dp-{}", wanted.deposit), format!("user {}", wanted.user.get()));
            let lines = NewLogLine::by_two(&wanted.people, "assign", &deposit, &whose, assigned.outcome());
            write(tx, &lines, at).await?;
            Ok(assigned)
        })
    }
}

type Columns = (String, Option<i64>, i64, i64, bool, i64);

async fn assign(tx: &mut Tx, wanted: &Assignment, at: Timestamp) -> Result<Assigned, StoreError> {
    let Some((_, _, _, _, _, chain)) = fetch_optional!(tx, READ_ASSIGNABLE => Columns, wanted.deposit)? else {
        return Ok(Assigned::NoSuchDeposit);
    };
    // What a worker books, and what people assign, wait for each other.
    if let Some(why) = hold_chain(tx, ChainId(chain)).await? {
        return Ok(Assigned::Halted { why });
    }
    let row = fetch_optional!(tx, READ_ASSIGNABLE => Columns, wanted.deposit)?;
    let Some((state, user, left_over, asset, alive, _)) = row else { return Ok(Assigned::NoSuchDeposit) };
    let unknown = || StoreError::Corrupt { what: format!("deposit dp-{} has the state {state:?}", wanted.deposit) };
    match DepositState::parse(&state).ok_or_else(unknown)? {
        DepositState::Unattributed => {}
        DepositState::Credited | DepositState::Final if user == Some(wanted.user.get()) => return Ok(Assigned::Before),
        other => return Ok(Assigned::NotUnattributed(other)),
    }
    if !alive || left_over <= 0 {
        return Ok(Assigned::Nothing);
    }
    // What the user owes from an earlier mining of this payment stays in suspense.
    let owed = fetch_optional!(tx, READ_OWED => (i64,), wanted.deposit, wanted.user.get())?.map_or(0, |row| row.0);
    let repaid = Amount::from_units(owed.min(left_over));
    let (asset, amount) = (AssetId(asset), Amount::from_units(left_over - owed.min(left_over)));
    let suspense = NewAccount::system(&AccountKind::Suspense, asset);
    let accounts: Vec<NewAccount> = suspense.into_iter().chain([NewAccount::funding(wanted.user, asset)]).collect();
    let opened = open(tx, &accounts, at).await?;
    let [Opened::Account(from), Opened::Account(to)] = opened.as_slice() else {
        return Err(StoreError::Corrupt { what: format!("the asset {} has no accounts", asset.0) });
    };
    let now = load_accounts_of(tx, &BTreeSet::from([*to]), &BTreeSet::new()).await?;
    let takes = now.get(to).is_some_and(|now| takes(now, amount));
    if amount > Amount::ZERO && !takes {
        return Ok(Assigned::TakesNothing);
    }
    let broken = |_| StoreError::Corrupt { what: "an assignment makes no operation".to_owned() };
    let key = OpKey::new(format!("deposit:{}:assign", wanted.deposit)).map_err(broken)?;
    let reference = Reference::new(wanted.people.to_string()).map_err(broken)?;
    let movement = Movement { from: *from, to: *to, asset, amount };
    let operation = Operation::move_available(key, vec![movement], reference).map_err(broken)?;
    let moved = amount > Amount::ZERO;
    let replies = if moved { post(tx, &[operation], at).await? } else { Vec::new() };
    match replies.first() {
        None if !moved => {}
        Some(Reply::First(Outcome::Applied)) => {}
        // A refusal is recorded under the key, so another account is another assignment: nothing of this one is kept.
        _ => {
            return Err(StoreError::Corrupt {
                what: format!("the ledger refused to assign dp-{}: {replies:?}", wanted.deposit),
            });
        }
    }
    let set = Set {
        given: Some(Given { user: amount, repaid, left_over: Amount::ZERO }),
        user: Some(Some(wanted.user)),
        ..Set::default()
    };
    let change = Change::new(wanted.deposit, DepositEvent::Assigned, wanted.people.to_string());
    advance(tx, vec![Change { set, ..change }], at).await?;
    Ok(Assigned::Done { amount })
}

fn takes(account: &AccountState, amount: Amount) -> bool {
    let sum = account.available.checked_add(account.frozen).and_then(|sum| sum.checked_add(amount));
    account.status != AccountStatus::Disabled && sum.is_some()
}
