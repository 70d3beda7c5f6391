//! An operation: what a caller asks of the ledger, under a key of its own.

use std::fmt;
use std::sync::Arc;

use super::refusal::Difference;
use crate::account::AccountId;
use crate::amount::Amount;
use crate::asset::AssetId;

/// An operation that comes again under the same key is the same operation: 1 to 100 visible ASCII characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpKey(Arc<str>);

/// Free text for people: what the operation was for. At most 200 bytes, no control characters.
#[derive(Clone, PartialEq, Eq)]
pub struct Reference(Arc<str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOperation {
    #[error("an operation key is 1 to 100 visible ASCII characters")]
    Key,
    #[error("a reference is at most 200 bytes without control characters")]
    Reference,
    #[error("an operation has 1 to 16 movements")]
    MovementCount,
}

impl OpKey {
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, BadOperation> {
        let text = text.into();
        let fits = (1..=100).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(Self(text)) } else { Err(BadOperation::Key) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Reference {
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, BadOperation> {
        let text = text.into();
        let fits = text.len() <= 200 && !text.chars().any(char::is_control);
        if fits { Ok(Self(text)) } else { Err(BadOperation::Reference) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for OpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for OpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A debit and its credit in one value, which therefore cannot be unbalanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    pub from: AccountId,
    pub to: AccountId,
    pub asset: AssetId,
    pub amount: Amount,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `from.available → to.available`, for each movement. Listings call it `post`.
    Move,
    /// `available → frozen` of one account.
    Hold,
    /// `from.frozen → to.available`, for each movement; ends the hold with this key.
    Settle(OpKey),
    /// `frozen → available` of one account; ends the hold with this key.
    Release(OpKey),
}

impl Action {
    /// The number that stands for it in the journal.
    pub const fn number(&self) -> i16 {
        match self {
            Self::Move => 1,
            Self::Hold => 2,
            Self::Settle(_) => 3,
            Self::Release(_) => 4,
        }
    }

    /// The name that listings print.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Move => "post",
            Self::Hold => "hold",
            Self::Settle(_) => "settle",
            Self::Release(_) => "release",
        }
    }

    /// The hold that it ends.
    pub const fn ends(&self) -> Option<&OpKey> {
        match self {
            Self::Settle(hold) | Self::Release(hold) => Some(hold),
            Self::Move | Self::Hold => None,
        }
    }

    /// Back from the journal's columns; `None` when they make no sense together.
    pub fn from_columns(number: i16, ends: Option<OpKey>) -> Option<Self> {
        match (number, ends) {
            (1, None) => Some(Self::Move),
            (2, None) => Some(Self::Hold),
            (3, Some(hold)) => Some(Self::Settle(hold)),
            (4, Some(hold)) => Some(Self::Release(hold)),
            _ => None,
        }
    }
}

/// Its movements stand or fall together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    key: OpKey,
    action: Action,
    movements: Vec<Movement>,
    reference: Reference,
}

impl Operation {
    pub const MAX_MOVEMENTS: usize = 16;

    /// For the constructors below, and to read an operation back from the journal.
    pub fn new(
        key: OpKey,
        action: Action,
        movements: Vec<Movement>,
        reference: Reference,
    ) -> Result<Self, BadOperation> {
        let one_account = matches!(action, Action::Hold | Action::Release(_));
        let most = if one_account { 1 } else { Self::MAX_MOVEMENTS };
        if (1..=most).contains(&movements.len()) {
            Ok(Self { key, action, movements, reference })
        } else {
            Err(BadOperation::MovementCount)
        }
    }

    /// Moves available money.
    pub fn move_available(key: OpKey, movements: Vec<Movement>, reference: Reference) -> Result<Self, BadOperation> {
        Self::new(key, Action::Move, movements, reference)
    }

    pub fn hold(key: OpKey, account: AccountId, asset: AssetId, amount: Amount, reference: Reference) -> Self {
        let movements = vec![Movement { from: account, to: account, asset, amount }];
        Self { key, action: Action::Hold, movements, reference }
    }

    /// Pays a hold out. The movements come from the held account and add up to the hold.
    pub fn settle(
        key: OpKey,
        hold: OpKey,
        movements: Vec<Movement>,
        reference: Reference,
    ) -> Result<Self, BadOperation> {
        Self::new(key, Action::Settle(hold), movements, reference)
    }

    /// Gives a hold back. Account, asset and amount must be those of the hold: the ledger compares them.
    pub fn release(
        key: OpKey,
        hold: OpKey,
        account: AccountId,
        asset: AssetId,
        amount: Amount,
        reference: Reference,
    ) -> Self {
        let movements = vec![Movement { from: account, to: account, asset, amount }];
        Self { key, action: Action::Release(hold), movements, reference }
    }

    pub const fn key(&self) -> &OpKey {
        &self.key
    }

    pub const fn action(&self) -> &Action {
        &self.action
    }

    pub fn movements(&self) -> &[Movement] {
        &self.movements
    }

    pub const fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The accounts whose rows must be locked before this is decided: the users' accounts that it touches, or its first
    /// payer if it touches none. So when the same operation is sent twice at once, the second waits for the first.
    pub fn locks(&self) -> impl Iterator<Item = AccountId> + '_ {
        let touched = || self.movements.iter().flat_map(|movement| [movement.from, movement.to]);
        let anchor = if touched().all(AccountId::is_system) { touched().next() } else { None };
        touched().filter(|account| !account.is_system()).chain(anchor)
    }

    /// In what another operation with the same key differs from this one, field by field.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        if self.action.number() != other.action.number() {
            return Some(Difference::Action);
        }
        if self.action != other.action {
            return Some(Difference::Hold);
        }
        if self.movements.len() != other.movements.len() {
            return Some(Difference::MovementCount);
        }
        for (mine, theirs) in self.movements.iter().zip(&other.movements) {
            if mine.from != theirs.from {
                return Some(Difference::From);
            }
            if mine.to != theirs.to {
                return Some(Difference::To);
            }
            if mine.asset != theirs.asset {
                return Some(Difference::Asset);
            }
            if mine.amount != theirs.amount {
                return Some(Difference::Amount);
            }
        }
        (self.reference != other.reference).then_some(Difference::Reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_references_are_strict() {
        assert!(OpKey::new("sr-1:hold").is_ok());
        for bad in ["", " ", "a b", "é", "a\n", &"x".repeat(101)] {
            assert_eq!(OpKey::new(bad), Err(BadOperation::Key), "{bad:?}");
        }
        assert!(Reference::new("").is_ok() && Reference::new("для Ани").is_ok());
        for bad in ["a\nb", "\u{7f}", &"x".repeat(201)] {
            assert_eq!(Reference::new(bad), Err(BadOperation::Reference), "{bad:?}");
        }
    }

    #[test]
    fn an_operation_has_a_bounded_number_of_movements() {
        let movement =
            Movement { from: AccountId(1), to: AccountId(2), asset: AssetId(1), amount: Amount::from_units(1) };
        let made = |count| {
            let key = OpKey::new("k").expect("a key");
            Operation::move_available(key, vec![movement; count], Reference::new("").expect("empty")).map(|_| ())
        };
        assert_eq!([made(0), made(17)], [Err(BadOperation::MovementCount); 2]);
        assert_eq!([made(1), made(16)], [Ok(()); 2]);
    }
}
