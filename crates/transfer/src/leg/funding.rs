//! The local leg: what a transfer does in the SQL ledger, as operations with keys of their own.
//!
//! | operation | key | when |
//! |---|---|---|
//! | hold | `sr-…:hold` | FUNDING is the source: the money is put aside |
//! | settle | `sr-…:settle` | the target has it: from the hold to `clearing:spot`, with COMMITTED |
//! | release | `sr-…:release` | the target refused: back to the user, with ROLLED_BACK |
//! | deposit | `sr-…:deposit` | FUNDING is the target: from `clearing:spot` to the user |

use domain::AccountId;
use domain::ledger::{BadOperation, Movement, OpKey, Operation, Reference, Refusal};
use domain::transfer::Transfer;

use super::{Reason, sane};

/// What this leg checks again by itself, before it makes an operation. The ledger's own rules come after.
pub fn check(transfer: &Transfer, clearing: AccountId) -> Result<(), Reason> {
    sane(transfer.amount, transfer.asset)?;
    if transfer.funding.0 <= 0 {
        return Err(Reason::new("SOURCE_ACCOUNT_NOT_FOUND", "the funding account is not one of a user"));
    }
    if !clearing.is_system() {
        return Err(Reason::new("TARGET_ACCOUNT_NOT_FOUND", "the clearing account is not one of the system"));
    }
    Ok(())
}

pub(crate) fn key(transfer: &Transfer, what: &str) -> Result<OpKey, BadOperation> {
    OpKey::new(format!("{}:{what}", transfer.id))
}

fn reference() -> Result<Reference, BadOperation> {
    Reference::new("internal transfer")
}

pub fn hold(transfer: &Transfer) -> Result<Operation, BadOperation> {
    let Transfer { funding, asset, amount, .. } = *transfer;
    Ok(Operation::hold(key(transfer, "hold")?, funding, asset, amount, reference()?))
}

pub fn settle(transfer: &Transfer, clearing: AccountId) -> Result<Operation, BadOperation> {
    let movement = movement(transfer.funding, clearing, transfer);
    Operation::settle(key(transfer, "settle")?, key(transfer, "hold")?, vec![movement], reference()?)
}

pub fn release(transfer: &Transfer) -> Result<Operation, BadOperation> {
    let Transfer { funding, asset, amount, .. } = *transfer;
    let (key, hold) = (key(transfer, "release")?, key(transfer, "hold")?);
    Ok(Operation::release(key, hold, funding, asset, amount, reference()?))
}

pub fn deposit(transfer: &Transfer, clearing: AccountId) -> Result<Operation, BadOperation> {
    let movement = movement(clearing, transfer.funding, transfer);
    Operation::move_available(key(transfer, "deposit")?, vec![movement], reference()?)
}

const fn movement(from: AccountId, to: AccountId, transfer: &Transfer) -> Movement {
    Movement { from, to, asset: transfer.asset, amount: transfer.amount }
}

/// Why the ledger refused, as a leg says it.
pub fn reason(refusal: Refusal) -> Reason {
    Reason::foreign(refusal.code(), &refusal.to_string())
}

#[cfg(test)]
mod tests {
    use domain::id::Id;
    use domain::transfer::{Direction, MOST, State};
    use domain::{Amount, AssetId, Timestamp, UserId};

    use super::*;

    fn transfer() -> Transfer {
        let at = Timestamp::from_micros(0);
        Transfer {
            id: Id::new(7).expect("positive"),
            user: UserId::new(1).expect("positive"),
            asset: AssetId(1),
            amount: MOST,
            direction: Direction::ToSpot,
            funding: AccountId(1),
            state: State::SourcePending,
            error: None,
            client_order_id: None,
            tries: 0,
            due_at: at,
            alerted_at: None,
            version: 1,
            created_at: at,
            updated_at: at,
        }
    }

    #[test]
    fn the_local_leg_checks_every_field_again() {
        let good = transfer();
        assert_eq!(check(&good, AccountId(-1)), Ok(()));
        let more = Amount::from_units(MOST.units() + 1);
        for (bad, clearing, code) in [
            (Transfer { amount: Amount::ZERO, ..good.clone() }, -1, "INVALID_AMOUNT"),
            (Transfer { amount: Amount::from_units(-1), ..good.clone() }, -1, "INVALID_AMOUNT"),
            (Transfer { amount: more, ..good.clone() }, -1, "OVERFLOW"),
            (Transfer { asset: AssetId(0), ..good.clone() }, -1, "INVALID_ASSET"),
            (Transfer { asset: AssetId(1 << 32), ..good.clone() }, -1, "INVALID_ASSET"),
            (Transfer { funding: AccountId(-3), ..good.clone() }, -1, "SOURCE_ACCOUNT_NOT_FOUND"),
            (good.clone(), 1, "TARGET_ACCOUNT_NOT_FOUND"),
        ] {
            let found = check(&bad, AccountId(clearing));
            assert_eq!(found.as_ref().map_err(Reason::code), Err(code), "{bad:?}");
        }
    }
}
