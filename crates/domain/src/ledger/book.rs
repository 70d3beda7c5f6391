//! The ledger's state machine, over the accounts and holds that a batch touches.

use std::collections::{HashMap, HashSet};

use super::operation::{Action, Movement, OpKey, Operation};
use super::refusal::{Difference, Refusal};
use crate::account::{AccountId, AccountStatus};
use crate::amount::Amount;
use crate::asset::AssetId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountState {
    pub asset: AssetId,
    pub status: AccountStatus,
    /// Both stay zero for a system account: its balance is the sum of its movements and is not stored.
    pub available: Amount,
    pub frozen: Amount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldState {
    pub account: AccountId,
    pub amount: Amount,
    pub ended: bool,
}

/// What an operation came to, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Applied,
    Refused(Refusal),
}

impl Outcome {
    /// The number that stands for it in the journal: 0, or the refusal's.
    pub const fn number(self) -> i16 {
        match self {
            Self::Applied => 0,
            Self::Refused(refusal) => refusal.number(),
        }
    }

    pub fn from_number(number: i16) -> Option<Self> {
        match number {
            0 => Some(Self::Applied),
            _ => Refusal::from_number(number).map(Self::Refused),
        }
    }
}

/// The answer to one operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Decided now, and recorded.
    First(Outcome),
    /// Decided before; nothing was done now.
    Replay(Outcome),
    /// The key stands for something else; nothing was done and nothing is recorded.
    Conflict(Difference),
}

impl Reply {
    /// Whether the operation has taken effect, now or before.
    pub const fn applied(self) -> bool {
        matches!(self, Self::First(Outcome::Applied) | Self::Replay(Outcome::Applied))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// Only without history: the hold must have ended before. Load the history and decide again.
    #[error("cannot be decided without the history of the batch's keys and holds")]
    NeedsHistory,
    /// The books are broken; `bursar audit` says where. Nothing may be decided on them.
    #[error("account {0} has less frozen than an open hold of it")]
    HoldExceedsFrozen(AccountId),
}

/// Accounts, holds and earlier operations in memory, as far as a batch concerns them.
///
/// Without [history](Self::with_history) a book takes every key as new and every hold as open. That is safe only
/// because the unique indexes of the journal refuse the resulting rows where it is not so; the store then
/// decides again with history. It saves two look-ups per operation on the path where nothing is repeated.
#[derive(Debug, Default)]
pub struct Book<'a> {
    accounts: HashMap<AccountId, AccountState>,
    /// Accounts that an applied operation has moved money in or out of.
    touched: HashSet<AccountId>,
    holds: HashMap<OpKey, HoldState>,
    decided: HashMap<&'a OpKey, (&'a Operation, Outcome)>,
    has_history: bool,
}

impl<'a> Book<'a> {
    pub fn new(accounts: HashMap<AccountId, AccountState>, holds: HashMap<OpKey, HoldState>) -> Self {
        Self { accounts, touched: HashSet::new(), holds, decided: HashMap::new(), has_history: false }
    }

    /// Adds what was decided before under the batch's keys. The holds must then say truly whether they ended.
    pub fn with_history(mut self, earlier: &'a [(Operation, Outcome)]) -> Self {
        self.decided = earlier.iter().map(|(operation, outcome)| (operation.key(), (operation, *outcome))).collect();
        self.has_history = true;
        self
    }

    /// The users' accounts that applied operations have moved money in or out of, in the order of their ids.
    pub fn changed(&self) -> Vec<(AccountId, &AccountState)> {
        let states = self.touched.iter().filter_map(|id| self.accounts.get(id).map(|state| (*id, state)));
        let mut changed: Vec<_> = states.collect();
        changed.sort_unstable_by_key(|(id, _)| *id);
        changed
    }

    /// Decides one operation and carries it out in memory.
    pub fn apply(&mut self, operation: &'a Operation) -> Result<Reply, BookError> {
        if let Some((first, outcome)) = self.decided.get(operation.key()) {
            return Ok(match first.difference(operation) {
                None => Reply::Replay(*outcome),
                Some(difference) => Reply::Conflict(difference),
            });
        }
        let outcome = match self.check(operation) {
            Ok(()) => self.carry_out(operation)?,
            Err(refusal) => Outcome::Refused(refusal),
        };
        // Whether a hold has ended is checked before these two refusals. Without history that is not known. The
        // recorded refusal must be the same with and without history, so it is decided again with history.
        let later = [Refusal::HoldAmountMismatch, Refusal::Overflow].map(Outcome::Refused);
        if !self.has_history && operation.action().ends().is_some() && later.contains(&outcome) {
            return Err(BookError::NeedsHistory);
        }
        self.decided.insert(operation.key(), (operation, outcome));
        Ok(Reply::First(outcome))
    }

    /// The rules that do not depend on balances, one refusal per line.
    fn check(&self, operation: &Operation) -> Result<(), Refusal> {
        for movement in operation.movements() {
            if !movement.amount.is_positive() {
                return Err(Refusal::InvalidAmount);
            }
            if operation.action().needs_two_accounts() && movement.from == movement.to {
                return Err(Refusal::SameAccount);
            }
            let (Some(from), Some(to)) = (self.accounts.get(&movement.from), self.accounts.get(&movement.to)) else {
                return Err(Refusal::AccountNotFound);
            };
            if from.asset != movement.asset || to.asset != movement.asset {
                return Err(Refusal::AssetMismatch);
            }
            check_status(operation.action(), movement, from, to)?;
        }
        match operation.action() {
            Action::Move => Ok(()),
            Action::Hold if operation.movements().iter().any(|movement| movement.from.is_system()) => {
                Err(Refusal::SystemAccountHold)
            }
            Action::Hold => Ok(()),
            Action::Settle(hold) | Action::Release(hold) => self.check_hold(hold, operation.movements()),
        }
    }

    fn check_hold(&self, hold: &OpKey, movements: &[Movement]) -> Result<(), Refusal> {
        let hold = self.holds.get(hold).ok_or(Refusal::HoldNotFound)?;
        if movements.iter().any(|movement| movement.from != hold.account) {
            return Err(Refusal::HoldAccountMismatch);
        }
        if hold.ended {
            return Err(Refusal::HoldAlreadyEnded);
        }
        let total = movements.iter().try_fold(Amount::ZERO, |sum, movement| sum.checked_add(movement.amount));
        if total != Some(hold.amount) {
            return Err(Refusal::HoldAmountMismatch);
        }
        Ok(())
    }

    /// Moves the money; on a refusal in a later movement the earlier ones are taken back.
    fn carry_out(&mut self, operation: &Operation) -> Result<Outcome, BookError> {
        let mut undo: Vec<(AccountId, AccountState)> = Vec::with_capacity(2 * operation.movements().len());
        for movement in operation.movements() {
            if let Err(stop) = self.carry_out_one(operation.action(), movement, &mut undo) {
                for (account, state) in undo.into_iter().rev() {
                    self.accounts.insert(account, state);
                }
                return match stop {
                    Stop::Refused(refusal) => Ok(Outcome::Refused(refusal)),
                    Stop::FrozenTooLow if self.has_history => Err(BookError::HoldExceedsFrozen(movement.from)),
                    Stop::FrozenTooLow => Err(BookError::NeedsHistory),
                };
            }
        }
        self.touched.extend(undo.iter().map(|(account, _)| *account));
        match operation.action() {
            Action::Move => {}
            Action::Hold => {
                for movement in operation.movements() {
                    let hold = HoldState { account: movement.from, amount: movement.amount, ended: false };
                    self.holds.insert(operation.key().clone(), hold);
                }
            }
            Action::Settle(hold) | Action::Release(hold) => {
                if let Some(hold) = self.holds.get_mut(hold) {
                    hold.ended = true;
                }
            }
        }
        Ok(Outcome::Applied)
    }

    fn carry_out_one(
        &mut self,
        action: &Action,
        movement: &Movement,
        undo: &mut Vec<(AccountId, AccountState)>,
    ) -> Result<(), Stop> {
        let amount = movement.amount;
        self.change(movement.from, undo, |payer| match action {
            Action::Move | Action::Hold => {
                payer.available = debit(payer.available, amount).ok_or(Stop::Refused(Refusal::InsufficientBalance))?;
                Ok(())
            }
            Action::Settle(_) | Action::Release(_) => {
                payer.frozen = debit(payer.frozen, amount).ok_or(Stop::FrozenTooLow)?;
                Ok(())
            }
        })?;
        self.change(movement.to, undo, |payee| {
            let pot = match action {
                Action::Hold => &mut payee.frozen,
                Action::Move | Action::Settle(_) | Action::Release(_) => &mut payee.available,
            };
            *pot = pot.checked_add(amount).ok_or(Stop::Refused(Refusal::Overflow))?;
            // An audit adds the two up; their sum has to fit as well.
            payee.available.checked_add(payee.frozen).map(|_| ()).ok_or(Stop::Refused(Refusal::Overflow))
        })
    }

    fn change(
        &mut self,
        account: AccountId,
        undo: &mut Vec<(AccountId, AccountState)>,
        change: impl FnOnce(&mut AccountState) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if account.is_system() {
            return Ok(());
        }
        let state = self.accounts.get_mut(&account).ok_or(Stop::Refused(Refusal::AccountNotFound))?;
        undo.push((account, state.clone()));
        change(state)
    }
}

enum Stop {
    Refused(Refusal),
    FrozenTooLow,
}

fn debit(balance: Amount, amount: Amount) -> Option<Amount> {
    balance.checked_sub(amount).filter(|left| *left >= Amount::ZERO)
}

/// A frozen account takes but does not give; a disabled one does neither. A hold still ends as it must: its payout may
/// be on a chain already, and its refund may be the only way back.
fn check_status(action: &Action, movement: &Movement, from: &AccountState, to: &AccountState) -> Result<(), Refusal> {
    let from_pays_available = matches!(action, Action::Move | Action::Hold);
    match from.status {
        AccountStatus::Frozen if from_pays_available => return Err(Refusal::AccountFrozen),
        AccountStatus::Disabled if from_pays_available => return Err(Refusal::AccountDisabled),
        AccountStatus::Active | AccountStatus::Frozen | AccountStatus::Disabled => {}
    }
    let another_takes = movement.from != movement.to;
    if another_takes && to.status == AccountStatus::Disabled {
        return Err(Refusal::AccountDisabled);
    }
    Ok(())
}

impl Action {
    const fn needs_two_accounts(&self) -> bool {
        match self {
            Self::Move | Self::Settle(_) => true,
            Self::Hold | Self::Release(_) => false,
        }
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
