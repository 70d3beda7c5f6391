//! What a job is for, and who pays it.

use crate::wallet::WalletRole;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKind {
    /// A customer's payout.
    Withdrawal,
    /// Coins for a hot wallet.
    Refill,
    /// The coin for the fees of a user's address.
    GasTopup,
    /// A user's address is emptied.
    Consolidation,
}

impl JobKind {
    pub const ALL: [Self; 4] = [Self::Withdrawal, Self::Refill, Self::GasTopup, Self::Consolidation];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Withdrawal => "withdrawal",
            Self::Refill => "refill",
            Self::GasTopup => "gas_topup",
            Self::Consolidation => "consolidation",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// The wallets that pay it. `None`: a user's own address does.
    pub const fn payer(self) -> Option<WalletRole> {
        match self {
            Self::Withdrawal => Some(WalletRole::Hot),
            Self::Refill => Some(WalletRole::Treasury),
            Self::GasTopup => Some(WalletRole::Gas),
            Self::Consolidation => None,
        }
    }

    /// Of two that wait in one lane the lower number goes first: customers, then what customers wait for, then the house's own.
    pub const fn priority(self) -> i64 {
        match self {
            Self::Withdrawal => 100,
            Self::Refill => 200,
            Self::GasTopup => 300,
            Self::Consolidation => 400,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_customers_come_first() {
        for kind in JobKind::ALL {
            assert_eq!(JobKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(JobKind::parse("cancel"), None);
        assert!(JobKind::ALL.windows(2).all(|pair| pair[0].priority() < pair[1].priority()));
    }
}
