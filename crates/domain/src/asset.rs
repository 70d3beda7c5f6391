//! What can be owned (assets), where it lives (chains), and what it looks like there.

use std::fmt;
use std::str::FromStr;

use ruint::aliases::U256;

use crate::amount::{Amount, Precision};
use crate::outbound::OutboundLimits;

/// The store's key of an asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssetId(pub i64);

/// A ticker such as `USDT`: 1 to 16 of `A-Z` and `0-9`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(String);

/// A chain's name such as `bsc`: 1 to 16 of `a-z`, `0-9` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainName(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("an asset symbol is 1 to 16 characters of A-Z and 0-9")]
    Symbol,
    #[error("a chain name is 1 to 16 characters of a-z, 0-9 and -")]
    Chain,
}

fn is_name(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(allowed)
}

impl FromStr for Symbol {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        is_name(text, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
            .then(|| Self(text.to_owned()))
            .ok_or(NameError::Symbol)
    }
}

impl FromStr for ChainName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        is_name(text, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            .then(|| Self(text.to_owned()))
            .ok_or(NameError::Chain)
    }
}

impl Symbol {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ChainName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for ChainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Whether a thing may be used. Nothing is removed; it is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    Active,
    Suspended,
}

impl Availability {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Active, Self::Suspended].into_iter().find(|one| one.as_str() == text)
    }
}

/// What one user may move between own accounts, in ledger units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferLimits {
    pub min: Amount,
    pub max: Amount,
    pub daily: Amount,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    pub symbol: Symbol,
    pub precision: Precision,
    pub status: Availability,
    pub internal_transfer_enabled: bool,
    pub transfer: TransferLimits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    Bitcoin,
    Evm,
    Tron,
}

impl ChainKind {
    pub const ALL: [Self; 3] = [Self::Bitcoin, Self::Evm, Self::Tron];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bitcoin => "bitcoin",
            Self::Evm => "evm",
            Self::Tron => "tron",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub name: ChainName,
    pub kind: ChainKind,
    /// Which network of that kind: an EVM chain id (`56`), or `mainnet`, `testnet`, `regtest`.
    pub network: String,
    /// How deep a block must be before what it pays is credited.
    pub confirmations: u32,
    /// How deep it must be before that may be withdrawn: at least as deep.
    pub final_confirmations: u32,
    /// What may be spent on getting payments through there.
    pub outbound: OutboundLimits,
    pub status: Availability,
}

/// How an asset is counted on one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssetOnChain {
    raw_per_unit: U256,
    decimals: u8,
    /// The token's contract; `None` for the chain's own coin.
    contract: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("the asset keeps {precision} decimals, but the chain only {decimals}: a payout could not be exact")]
    CoarserThanLedger { precision: u8, decimals: u8 },
    #[error("a token has at most 36 decimals")]
    TooManyDecimals,
}

impl AssetOnChain {
    pub const MAX_DECIMALS: u8 = 36;

    pub fn new(precision: Precision, decimals: u8, contract: Option<String>) -> Result<Self, FormError> {
        if decimals > Self::MAX_DECIMALS {
            return Err(FormError::TooManyDecimals);
        }
        let spare = decimals.checked_sub(precision.decimals());
        let spare = spare.ok_or(FormError::CoarserThanLedger { precision: precision.decimals(), decimals })?;
        Ok(Self { raw_per_unit: U256::from(10).pow(U256::from(spare)), decimals, contract })
    }

    /// Raw units in one ledger unit: a power of ten, never zero.
    pub const fn raw_per_unit(&self) -> U256 {
        self.raw_per_unit
    }

    pub const fn decimals(&self) -> u8 {
        self.decimals
    }

    pub fn contract(&self) -> Option<&str> {
        self.contract.as_deref()
    }
}

/// That an asset lives on a chain, and how it is taken in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub asset: Symbol,
    pub chain: ChainName,
    pub form: AssetOnChain,
    /// Less than this is not credited.
    pub min_deposit: Amount,
    pub status: Availability,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_coarser_than_the_ledger_is_refused() {
        let precision = Precision::new(8).expect("at most 18");
        let coarse = FormError::CoarserThanLedger { precision: 8, decimals: 6 };
        assert_eq!(AssetOnChain::new(precision, 6, None), Err(coarse));
        assert_eq!(AssetOnChain::new(precision, 37, None), Err(FormError::TooManyDecimals));
        assert!(AssetOnChain::new(precision, 8, None).is_ok());
    }

    #[test]
    fn names_are_strict() {
        assert!("USDT".parse::<Symbol>().is_ok());
        assert!("bsc".parse::<ChainName>().is_ok());
        for bad in ["", "usdt", "US DT", "ＵＳＤＴ", "TOOLONGTOOLONGTOO", "A'B"] {
            assert_eq!(bad.parse::<Symbol>(), Err(NameError::Symbol), "{bad:?}");
        }
        for bad in ["", "BSC", "a:b", "-\n"] {
            assert_eq!(bad.parse::<ChainName>(), Err(NameError::Chain), "{bad:?}");
        }
    }
}
