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

/// After the prefix, the keys of what [`Adjustment::of_spot`] makes go on so, with the user's number and a colon.
const SPOT: &str = "spot:";

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

    /// The engine has more of a user's money, or less, than transfers brought there, and two people accept that. It is
    /// between `clearing:spot` and `suspense`, and the only way for people to move `clearing:spot`. The key names the
    /// user, so that the audit knows whose money it is about.
    pub fn of_spot(
        key: &str,
        user: UserId,
        engine_has: EngineHas,
        asset: AssetId,
        amount: Amount,
        approval: Approval,
    ) -> Result<Self, BadAdjustment> {
        if key.is_empty() || key.len() > 90 {
            return Err(BadAdjustment::Key);
        }
        let key = OpKey::new(format!("{PREFIX}{SPOT}{}:{key}", user.get())).map_err(|_| BadAdjustment::Key)?;
        let (clearing, suspense) = (Party::House(AccountKind::ClearingSpot), Party::House(AccountKind::Suspense));
        let (from, to) = match engine_has {
            EngineHas::More => (suspense, clearing),
            EngineHas::Less => (clearing, suspense),
        };
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

/// How the engine differs from what transfers brought there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineHas {
    More,
    Less,
}

/// Whose money at the engine the key of an adjustment is about, if it is such a key.
pub fn spot_user(key: &str) -> Option<UserId> {
    let (user, _) = key.strip_prefix(PREFIX)?.strip_prefix(SPOT)?.split_once(':')?;
    UserId::new(user.parse().ok()?)
}

/// Whether an adjustment under this key may be between these two accounts.
pub fn may_be_between(key: &str, from: &AccountKind, to: &AccountKind) -> bool {
    let movable = |kind: &AccountKind| *kind == AccountKind::Funding || may_adjust(kind);
    match (from, to) {
        (AccountKind::ClearingSpot, AccountKind::Suspense) | (AccountKind::Suspense, AccountKind::ClearingSpot) => {
            spot_user(key).is_some()
        }
        _ => movable(from) && movable(to),
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

impl Adjustment {
    /// Whether the balance of one of its accounts makes sense afterwards. The ledger does not check system accounts; what
    /// people do by hand is checked.
    pub fn makes_sense(&self, party: &Party, balance: i128) -> bool {
        let Party::House(kind) = party else { return true };
        match kind {
            // Minus the coins on our addresses: there are no fewer than none.
            AccountKind::Custody(_) => balance <= 0,
            // The house pays with what it put in or earned, never with users' money.
            AccountKind::External(_) | AccountKind::Fees => balance >= 0,
            // It pays out only what is there: more would be users' money. A loss, which is below zero, may be made good
            // in parts. That the engine has too much is such a loss, and is written down, not paid.
            AccountKind::Suspense => {
                balance >= 0 || *party != self.from || self.to == Party::House(AccountKind::ClearingSpot)
            }
            AccountKind::Funding | AccountKind::ClearingSpot | AccountKind::Gas | AccountKind::Dust => true,
        }
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
        let approval = || Approval::new("ann", "bob", "why").expect("two people");
        let balances = |kind: &str, pays: bool| {
            let (user, house) =
                (Party::User(UserId::new(7).expect("positive")), Party::House(kind.parse().expect(kind)));
            let ends = if pays { (house.clone(), user) } else { (user, house.clone()) };
            let one = Adjustment::new("k", ends, AssetId(1), Amount::from_units(1), approval()).expect("fine");
            [-1, 0, 1].map(|balance| one.makes_sense(&house, balance))
        };
        for pays in [true, false] {
            assert_eq!(balances("custody:bsc", pays), [true, true, false]);
            assert_eq!(balances("external:bsc", pays), [false, true, true]);
            assert_eq!(balances("fees", pays), [false, true, true]);
        }
        assert_eq!(balances("suspense", true), [false, true, true]);
        assert_eq!(balances("suspense", false), [true, true, true]);
        let suspense = Party::House(AccountKind::Suspense);
        for engine_has in [EngineHas::More, EngineHas::Less] {
            let user = UserId::new(7).expect("positive");
            let one = Adjustment::of_spot("k", user, engine_has, AssetId(1), Amount::from_units(1), approval());
            assert!(one.expect("fine").makes_sense(&suspense, -1), "a loss is written down");
        }
    }

    #[test]
    fn clearing_moves_only_against_suspense_under_a_key_that_names_the_user() {
        let user = UserId::new(7).expect("positive");
        let approval = Approval::new("ann", "bob", "why").expect("two people");
        let one = Adjustment::of_spot("a:b", user, EngineHas::More, AssetId(1), Amount::from_units(1), approval);
        let one = one.expect("fine");
        assert_eq!((one.key().as_str(), spot_user(one.key().as_str())), ("adjust:spot:7:a:b", Some(user)));
        for key in ["adjust:7:a", "adjust:spot:a", "adjust:spot:0:a", "spot:7:a", "adjust:spot:x:a"] {
            assert_eq!(spot_user(key), None, "{key}");
        }
        let between =
            |key: &str, from: &str, to: &str| may_be_between(key, &from.parse().expect(from), &to.parse().expect(to));
        assert!(between("adjust:spot:7:a", "suspense", "clearing:spot"));
        assert!(between("adjust:spot:7:a", "clearing:spot", "suspense"));
        assert!(!between("adjust:a", "clearing:spot", "suspense"), "whose is it?");
        assert!(!between("adjust:spot:7:a", "clearing:spot", "fees"));
        assert!(!between("adjust:spot:7:a", "clearing:spot", "funding"));
        assert!(between("adjust:a", "fees", "funding"));
    }
}
