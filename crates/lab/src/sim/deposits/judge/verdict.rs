//! What must become of one payment: by the chain and the list of addresses, in the words of the design.

use domain::AccountStatus;
use store::deposit::DepositRow;
use tx::{BlockHash, BlockRef, TxHash};

use super::super::ground::{HOLLOW, TOKEN};
use super::super::model::Money;
use super::super::net::{Net, Record, number};
use super::super::owner::{Effect, Kind, Owner};
use super::{Account, PaymentKey, Seen};

/// What the books must have of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    User { user: i64, units: i64 },
    Nobody { reason: &'static str, units: i64 },
}

/// The payment that a deposit claims to be.
pub(super) struct Claim<'a> {
    pub record: Option<&'a Record>,
    /// As the block really has it. `None`: the block has no such payment, or another amount, or to somebody else.
    pub effect: Option<Effect>,
}

pub(super) fn key_of(net: usize, row: &DepositRow) -> PaymentKey {
    (net, TxHash(row.transaction.0), row.place.clone())
}

pub(super) fn block_of(row: &DepositRow) -> BlockRef {
    BlockRef { height: row.height.unsigned_abs(), hash: BlockHash(row.block.0) }
}

pub(super) fn money_of(row: &DepositRow) -> Money {
    match row.asset.as_str() {
        TOKEN => Money::Token,
        HOLLOW => Money::Hollow,
        _ => Money::Native,
    }
}

fn place_text(place: chain::Place) -> String {
    match place {
        chain::Place::Value => "value".to_owned(),
        chain::Place::Output(number) => format!("output:{number}"),
        chain::Place::Log(number) => format!("log:{number}"),
        chain::Place::Internal(number) => format!("internal:{number}"),
        chain::Place::Fee => "fee".to_owned(),
    }
}

/// Payments to us in a block, with their keys.
pub(super) fn payments(net: &Net, at: usize, block: &super::super::model::Block) -> Vec<(PaymentKey, Effect)> {
    let mut found = Vec::new();
    for transaction in &block.transactions {
        for effect in net.owners.effects(transaction) {
            if matches!(effect.kind, Kind::Deposit | Kind::Reverted | Kind::Logged) {
                found.push(((at, transaction.hash, place_text(effect.place)), effect));
            }
        }
    }
    found
}

pub(super) fn claim<'a>(net: &'a Net, at: usize, row: &DepositRow) -> Claim<'a> {
    let record = net.records.get(&BlockHash(row.block.0));
    let address = net.owners.by_text(&row.address);
    let key = key_of(at, row);
    let effect = record.and_then(|record| {
        let same = |(found, effect): &(PaymentKey, Effect)| {
            *found == key
                && Some(&effect.address) == address
                && effect.money == money_of(row)
                && effect.raw.to_string() == row.amount_raw
        };
        let of_height = record.block.height == row.height.unsigned_abs();
        payments(net, at, &record.block).into_iter().find(|one| same(one) && of_height).map(|(_, effect)| effect)
    });
    Claim { record, effect }
}

/// Whose a payment is, in the order in which the rules are looked at. `account` is the user's at that moment.
pub(super) fn decide(net: &Net, effect: &Effect, account: impl Fn(i64) -> Account) -> Verdict {
    let unit = net.spec.unit.get(&effect.money).copied().unwrap_or(1);
    let units = number(effect.raw, unit).and_then(|raw| i64::try_from(raw / i128::try_from(unit).unwrap_or(1)).ok());
    let Some(units) = units else { return Verdict::Nobody { reason: "beyond_ledger", units: 0 } };
    let nobody = |reason| Verdict::Nobody { reason, units };
    // Whoever's address it is: the coins are not there.
    if effect.kind == Kind::Logged {
        return nobody("balance_differs");
    }
    match net.owners.of(&effect.address) {
        None => nobody("no_user"),
        Some(Owner::Gas | Owner::Hot) => nobody("house_wallet"),
        Some(Owner::Spoilt) => nobody("row_differs"),
        Some(Owner::User(user)) => {
            let account = account(user);
            if units < net.spec.least {
                nobody("below_minimum")
            } else if account.status == AccountStatus::Disabled {
                nobody("account_disabled")
            } else if account.available.checked_add(units).is_none() {
                nobody("beyond_ledger")
            } else {
                Verdict::User { user, units }
            }
        }
    }
}

/// A deposit may only go if its block is not there, never was, or has not got it.
pub(super) fn may_go(claim: &Claim<'_>, seen: &Seen) -> bool {
    match (claim.record, &claim.effect) {
        (Some(record), Some(_)) => !record.agreed || record.left.is_some_and(|turn| turn >= seen.since),
        (None, _) | (_, None) => true,
    }
}
