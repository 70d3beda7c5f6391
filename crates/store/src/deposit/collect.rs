//! What a user owes since a deposit was taken back is collected, by the word of two people.

use std::collections::BTreeSet;

use domain::deposit::{DepositEvent, DepositState};
use domain::ledger::{Movement, OpKey, Operation, Outcome, Reference, Reply};
use domain::{AccountKind, AccountStatus, Amount, Approval, AssetId, Timestamp, UserId};

use super::advance::{Change, Set, advance};
use crate::db::{Db, Tx};
use crate::entry::ChainId;
use crate::entry::cursor::hold_chain;
use crate::error::StoreError;
use crate::ledger::accounts::{NewAccount, Opened, StatusChange, open, set_status};
use crate::ledger::post::{load_accounts_of, post};
use crate::operator::log::{DONE, NewLogLine, write};
use crate::transact;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collected {
    /// `suspense` has so much of it back, and so much is still owed.
    Done {
        amount: Amount,
        left: Amount,
    },
    NoSuchDeposit,
    /// It was not taken back, or its user owes nothing of it.
    NothingOwed,
    /// The payment was mined again, and that deposit has repaid it. If it was taken back as well, what is owed is owed for that one.
    RepaidBy(i64),
    /// The user has nothing that could be taken.
    NothingThere,
}

impl Collected {
    /// As the log of operators has it: `done`, or the code of why not.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Done { .. } => DONE,
            Self::NoSuchDeposit => "DEPOSIT_NOT_FOUND",
            Self::NothingOwed | Self::RepaidBy(_) | Self::NothingThere => "DEPOSIT_NOTHING_OWED",
        }
    }
}

statements! {
    READ_OWING = "SELECT d.chain_id, d.state, d.user_id, d.receivable, l.asset_id, d.version,
            (SELECT MAX(p.id) FROM deposits p WHERE p.chain_id = d.chain_id AND p.tx_hash = d.tx_hash AND p.place = d.place
                AND p.generation > d.generation AND p.user_id = d.user_id AND p.state IN ('credited', 'final', 'reversed') AND p.repaid > 0)
        FROM deposits d JOIN asset_on_chain l ON l.id = d.listing_id WHERE d.id = $1";
}

type Columns = (i64, String, Option<i64>, i64, i64, i64, Option<i64>);

impl Db {
    /// Takes what the user has of it, at most all that is owed, from an account that is frozen as well: nobody else can take anything
    /// in between. What is collected is not owed any more, so that it is not kept back again when the payment is mined again. Each of the two has a
    /// line in the log of operators, also of what was refused.
    pub async fn collect_receivable(
        &self,
        deposit: i64,
        people: &Approval,
        at: Timestamp,
    ) -> Result<Collected, StoreError> {
        transact!(self, tx => {
            let collected = collect(tx, deposit, people, at).await?;
            let subject = format!("dp-{deposit}");
            write(tx, &NewLogLine::by_two(people, "collect", &subject, "", collected.outcome()), at).await?;
            Ok(collected)
        })
    }
}

async fn collect(tx: &mut Tx, deposit: i64, people: &Approval, at: Timestamp) -> Result<Collected, StoreError> {
    let Some((chain, ..)) = fetch_optional!(tx, READ_OWING => Columns, deposit)? else {
        return Ok(Collected::NoSuchDeposit);
    };
    // What a worker credits or takes back, and what people collect, wait for each other.
    hold_chain(tx, ChainId(chain)).await?;
    let row = fetch_optional!(tx, READ_OWING => Columns, deposit)?;
    let Some((_, state, user, receivable, asset, version, again)) = row else { return Ok(Collected::NoSuchDeposit) };
    let user = user.and_then(UserId::new).filter(|_| state == DepositState::Reversed.as_str() && receivable > 0);
    let Some(user) = user else { return Ok(Collected::NothingOwed) };
    if let Some(again) = again {
        return Ok(Collected::RepaidBy(again));
    }
    let asset = AssetId(asset);
    let suspense = NewAccount::system(&AccountKind::Suspense, asset);
    let accounts: Vec<NewAccount> = [NewAccount::funding(user, asset)].into_iter().chain(suspense).collect();
    let opened = open(tx, &accounts, at).await?;
    let [Opened::Account(from), Opened::Account(to)] = opened.as_slice() else {
        return Err(StoreError::Corrupt { what: format!("the asset {} has no accounts", asset.0) });
    };
    let now = load_accounts_of(tx, &BTreeSet::from([*from]), &BTreeSet::new()).await?;
    let now = now.get(from).ok_or_else(|| StoreError::Corrupt { what: format!("account {from} is gone") })?;
    let (available, status) = (now.available, now.status);
    let amount = Amount::from_units(receivable.min(available.units()));
    if amount <= Amount::ZERO {
        return Ok(Collected::NothingThere);
    }
    let key = |what: &str| OpKey::new(format!("deposit:{deposit}:{what}:{version}"));
    let broken = |_| StoreError::Corrupt { what: "a collection makes no operation".to_owned() };
    // A frozen account pays nothing. It is let go for this one movement, and is as it was when the transaction ends.
    let turn = |what: &str, status: AccountStatus| -> Result<StatusChange, StoreError> {
        let reason = format!("what is owed for dp-{deposit} is collected: {}", people.reason());
        Ok(StatusChange {
            key: key(what).map_err(broken)?,
            account: *from,
            status,
            actor: people.actor().to_owned(),
            reason,
        })
    };
    if status != AccountStatus::Active {
        set_status(tx, &[turn("open", AccountStatus::Active)?], at).await?;
    }
    let reference = Reference::new(people.to_string()).map_err(broken)?;
    let movement = Movement { from: *from, to: *to, asset, amount };
    let operation =
        Operation::move_available(key("collect").map_err(broken)?, vec![movement], reference).map_err(broken)?;
    let replies = post(tx, &[operation], at).await?;
    if replies.first() != Some(&Reply::First(Outcome::Applied)) {
        return Err(StoreError::Corrupt { what: format!("the ledger refused to collect dp-{deposit}: {replies:?}") });
    }
    if status != AccountStatus::Active {
        set_status(tx, &[turn("close", status)?], at).await?;
    }
    let left = Amount::from_units(receivable - amount.units());
    let set = Set { receivable: Some(left), ..Set::default() };
    let change = Change::new(deposit, DepositEvent::Collected, people.to_string());
    advance(tx, vec![Change { set, ..change }], at).await?;
    Ok(Collected::Done { amount, left })
}
