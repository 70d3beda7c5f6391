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

use super::Reason;

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
