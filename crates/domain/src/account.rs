//! Who may own what in the ledger.

use std::fmt;
use std::str::FromStr;

use crate::asset::ChainName;

/// A customer, as the exchange numbers them. Always positive; 0 is the house.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(u64);

impl UserId {
    pub fn new(id: i64) -> Option<Self> {
        u64::try_from(id).ok().filter(|id| *id > 0).map(Self)
    }

    /// The number fits an `i64`, because it was made from one.
    pub const fn get(self) -> i64 {
        self.0.cast_signed()
    }
}

/// An account's number. **Users' are positive, system accounts' negative**: the sign alone tells the hot path
/// which rows to lock and which balances to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub i64);

impl AccountId {
    pub const fn is_system(self) -> bool {
        self.0 < 0
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What an account is for. A positive balance is owed to the account's owner. So a custody account is negative by the
/// coins on its addresses, and all accounts of an asset add up to zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccountKind {
    /// A user's own money at rest.
    Funding,
    /// What the spot engine owes to users: equal to its total.
    ClearingSpot,
    /// Minus the coins on our addresses of a chain.
    Custody(ChainName),
    /// What the house itself put in from, or took out to, the outside of a chain.
    External(ChainName),
    /// Fees earned from users.
    Fees,
    /// Network fees paid, as a negative balance.
    Gas,
    /// Chain amounts too small for a ledger unit.
    Dust,
    /// Losses and mismatches that a person must resolve.
    Suspense,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown account kind")]
pub struct UnknownAccountKind;

impl AccountKind {
    pub const fn is_system(&self) -> bool {
        !matches!(self, Self::Funding)
    }
}

impl fmt::Display for AccountKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Funding => f.pad("funding"),
            Self::ClearingSpot => f.pad("clearing:spot"),
            Self::Custody(chain) => f.pad(&format!("custody:{chain}")),
            Self::External(chain) => f.pad(&format!("external:{chain}")),
            Self::Fees => f.pad("fees"),
            Self::Gas => f.pad("gas"),
            Self::Dust => f.pad("dust"),
            Self::Suspense => f.pad("suspense"),
        }
    }
}

impl FromStr for AccountKind {
    type Err = UnknownAccountKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let chain = |name: &str| name.parse::<ChainName>().map_err(|_| UnknownAccountKind);
        match text.split_once(':') {
            None => match text {
                "funding" => Ok(Self::Funding),
                "fees" => Ok(Self::Fees),
                "gas" => Ok(Self::Gas),
                "dust" => Ok(Self::Dust),
                "suspense" => Ok(Self::Suspense),
                _ => Err(UnknownAccountKind),
            },
            Some(("clearing", "spot")) => Ok(Self::ClearingSpot),
            Some(("custody", name)) => chain(name).map(Self::Custody),
            Some(("external", name)) => chain(name).map(Self::External),
            Some(_) => Err(UnknownAccountKind),
        }
    }
}

/// What an account may do. Holds taken before a change of status still settle and release: money in flight is
/// never stranded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountStatus {
    Active,
    /// Takes credits, gives nothing out.
    Frozen,
    /// Neither takes nor gives.
    Disabled,
}

impl AccountStatus {
    pub const ALL: [Self; 3] = [Self::Active, Self::Frozen, Self::Disabled];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Frozen => "frozen",
            Self::Disabled => "disabled",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_read_back() {
        for text in ["funding", "clearing:spot", "custody:bsc", "external:tron", "fees", "gas", "dust", "suspense"] {
            assert_eq!(text.parse::<AccountKind>().expect(text).to_string(), text);
        }
        for text in ["", "Funding", "clearing", "custody:", "custody:BSC", "fees:bsc"] {
            assert_eq!(text.parse::<AccountKind>(), Err(UnknownAccountKind), "{text:?}");
        }
    }

    #[test]
    fn a_user_is_never_the_house() {
        assert_eq!(UserId::new(0), None);
        assert_eq!(UserId::new(-1), None);
        assert_eq!(UserId::new(i64::MAX).map(UserId::get), Some(i64::MAX));
    }
}
