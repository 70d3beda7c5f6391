//! An adjustment: money that two people move by hand, because nothing else knows of it: the house's own capital, a
//! deposit or payout that was made outside, a correction.

use std::fmt;

use crate::account::{AccountKind, UserId};
use crate::amount::Amount;
use crate::approval::Approval;
use crate::asset::AssetId;
use crate::ledger::OpKey;

/// The keys of adjustments in the journal begin so, and no others do.
pub const PREFIX: &str = "adjust:";

/// One end of an adjustment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Party {
    User(UserId),
    House(AccountKind),
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "funding of user {}", user.get()),
            Self::House(kind) => fmt::Display::fmt(kind, f),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjustment {
    key: OpKey,
    from: Party,
    to: Party,
    asset: AssetId,
    amount: Amount,
    approval: Approval,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAdjustment {
    #[error("a key is 1 to 90 visible ASCII characters")]
    Key,
    #[error("{0} is not moved by hand")]
    Kind(AccountKind),
    #[error("an adjustment is not between two users")]
    TwoUsers,
}

impl Adjustment {
    /// `key` is the operator's own name for it: the same key is the same adjustment.
    pub fn new(
        key: &str,
        (from, to): (Party, Party),
        asset: AssetId,
        amount: Amount,
        approval: Approval,
    ) -> Result<Self, BadAdjustment> {
        if key.is_empty() || key.len() > 90 {
            return Err(BadAdjustment::Key);
        }
        let key = OpKey::new(format!("{PREFIX}{key}")).map_err(|_| BadAdjustment::Key)?;
        for party in [&from, &to] {
            if let Party::House(kind) = party
                && !may_adjust(kind)
            {
                return Err(BadAdjustment::Kind(kind.clone()));
            }
        }
        if matches!((&from, &to), (Party::User(_), Party::User(_))) {
            return Err(BadAdjustment::TwoUsers);
        }
        Ok(Self { key, from, to, asset, amount, approval })
    }

    pub const fn key(&self) -> &OpKey {
        &self.key
    }

    pub const fn from(&self) -> &Party {
        &self.from
    }

    pub const fn to(&self) -> &Party {
        &self.to
    }

    pub const fn asset(&self) -> AssetId {
        self.asset
    }

    pub const fn amount(&self) -> Amount {
        self.amount
    }

    pub const fn approval(&self) -> &Approval {
        &self.approval
    }
}

/// Which of the house's accounts people may move. `clearing:spot` is what transfers brought to the engine and nothing
/// else, `gas` and `dust` are what chains took and left: a hand in them would hide what they tell.
pub const fn may_adjust(kind: &AccountKind) -> bool {
    match kind {
        AccountKind::Custody(_) | AccountKind::External(_) | AccountKind::Fees | AccountKind::Suspense => true,
        AccountKind::Funding | AccountKind::ClearingSpot | AccountKind::Gas | AccountKind::Dust => false,
    }
}

/// Whether the balance makes sense for this account of the house. The ledger does not check system accounts; what people
/// do by hand is checked.
pub const fn makes_sense(kind: &AccountKind, balance: i128) -> bool {
    match kind {
        // Minus the coins on our addresses: there are no fewer than none.
        AccountKind::Custody(_) => balance <= 0,
        // The house pays with what it put in or earned, never with users' money.
        AccountKind::External(_) | AccountKind::Fees => balance >= 0,
        AccountKind::Suspense
        | AccountKind::Funding
        | AccountKind::ClearingSpot
        | AccountKind::Gas
        | AccountKind::Dust => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hand_in_what_transfers_and_chains_tell() {
        let user = || Party::User(UserId::new(7).expect("positive"));
        let house = |kind: &str| Party::House(kind.parse().expect(kind));
        let made = |key: &str, from: Party, to: Party| {
            let approval = Approval::new("ann", "bob", "why").expect("two people");
            Adjustment::new(key, (from, to), AssetId(1), Amount::from_units(1), approval).map(|one| one.key.to_string())
        };
        assert_eq!(made("case-1", house("custody:tron"), user()).as_deref(), Ok("adjust:case-1"));
        for kind in ["clearing:spot", "gas", "dust", "funding"] {
            let refused = BadAdjustment::Kind(kind.parse().expect(kind));
            assert_eq!(made("k", house(kind), user()), Err(refused.clone()));
            assert_eq!(made("k", user(), house(kind)), Err(refused));
        }
        assert_eq!(made("k", user(), user()), Err(BadAdjustment::TwoUsers));
        for key in ["", "a b", &"x".repeat(91)] {
            assert_eq!(made(key, house("fees"), user()), Err(BadAdjustment::Key), "{key:?}");
        }
    }

    #[test]
    fn the_house_pays_only_what_it_has() {
        let balances = |kind: &str| [-1, 0, 1].map(|balance| makes_sense(&kind.parse().expect(kind), balance));
        assert_eq!(balances("custody:bsc"), [true, true, false]);
        assert_eq!(balances("external:bsc"), [false, true, true]);
        assert_eq!(balances("fees"), [false, true, true]);
        assert_eq!(balances("suspense"), [true, true, true]);
    }
}
