//! What wallets are for. A wallet group has a *purpose*; an operation wallet has a *role*. The words are the same, but for
//! two: users' wallets are no operation wallets, and a cold wallet has no key here, so no group.

/// What the wallets of a group are for. The signer's policy allows each something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Users' addresses.
    Deposit,
    /// Pays withdrawals.
    Hot,
    /// Gives deposit addresses the coin for their fees.
    Gas,
    /// Holds what is not needed now.
    Treasury,
}

impl Purpose {
    pub const ALL: [Self; 4] = [Self::Deposit, Self::Hot, Self::Gas, Self::Treasury];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deposit => "deposit",
            Self::Hot => "hot",
            Self::Gas => "gas",
            Self::Treasury => "treasury",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.as_str() == text)
    }
}

/// What an operation wallet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WalletRole {
    Gas,
    Hot,
    Treasury,
    /// Its key is somewhere else. Its address is written in the treasury file.
    Cold,
}

impl WalletRole {
    pub const ALL: [Self; 4] = [Self::Gas, Self::Hot, Self::Treasury, Self::Cold];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gas => "gas",
            Self::Hot => "hot",
            Self::Treasury => "treasury",
            Self::Cold => "cold",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// The purpose of the groups that a wallet of this role may be of. `None`: it is of no group.
    pub const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Gas => Some(Purpose::Gas),
            Self::Hot => Some(Purpose::Hot),
            Self::Treasury => Some(Purpose::Treasury),
            Self::Cold => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for purpose in Purpose::ALL {
            assert_eq!(Purpose::parse(purpose.as_str()), Some(purpose));
        }
        for role in WalletRole::ALL {
            assert_eq!(WalletRole::parse(role.as_str()), Some(role));
            assert!(role.purpose().is_none_or(|purpose| purpose.as_str() == role.as_str()));
        }
        assert_eq!((Purpose::parse("cold"), WalletRole::parse("deposit")), (None, None));
    }
}
