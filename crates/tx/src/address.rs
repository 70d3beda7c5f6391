//! An address that is known to be valid on its chain. Text becomes one only through its chain's parser:
//! [`crate::bitcoin::address::parse`], [`crate::evm::address::parse`], [`crate::tron::TronAddress::parse`].

use std::fmt;

use secp256k1::PublicKey;

use crate::tron::TronAddress;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    Bitcoin(::bitcoin::Address),
    Evm(alloy_primitives::Address),
    Tron(TronAddress),
}

/// The 20 bytes that EVM and TRON know a key by: the last of the keccak of the public key.
pub fn account_of(public: &PublicKey) -> [u8; 20] {
    let hash = alloy_primitives::keccak256(&public.serialize_uncompressed()[1..]);
    let mut account = [0; 20];
    account.copy_from_slice(&hash[12..]);
    account
}

/// Why a text is not an address that can be paid on this chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("this is not an address of this chain")]
    Malformed,
    #[error("the address is too long or too short")]
    Length,
    #[error("the address has a typing error: its checksum does not fit")]
    Checksum,
    #[error("the address belongs to another network")]
    WrongNetwork,
    #[error("the address mixes upper and lower case in a way that its checksum does not allow")]
    MixedCase,
    #[error("what is sent to this address is lost")]
    Unspendable,
}

impl BadAddress {
    pub const fn code(self) -> &'static str {
        match self {
            Self::Malformed => "ADDRESS_MALFORMED",
            Self::Length => "ADDRESS_LENGTH",
            Self::Checksum => "ADDRESS_CHECKSUM",
            Self::WrongNetwork => "ADDRESS_WRONG_NETWORK",
            Self::MixedCase => "ADDRESS_MIXED_CASE",
            Self::Unspendable => "ADDRESS_UNSPENDABLE",
        }
    }
}

impl Address {
    /// The script that a Bitcoin output to it has.
    pub fn script_bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Bitcoin(address) => Some(address.script_pubkey().into_bytes()),
            Self::Evm(_) | Self::Tron(_) => None,
        }
    }

    /// Nobody has its key: 18 bytes of zeros belong to what a chain itself has there (precompiled and system contracts), and to names that people
    /// burn coins under, such as `0x…dEaD`. A token may live there all the same, so this is asked of recipients only.
    pub fn is_nobodys(&self) -> bool {
        let account = match self {
            Self::Bitcoin(_) => return false,
            Self::Evm(address) => address.0.0,
            Self::Tron(address) => address.0,
        };
        account.starts_with(&[0; 18])
    }

    /// The least that a payment to it may have, in satoshi: nodes pass on no Bitcoin output with less. `None`: its chain knows no dust.
    pub fn dust_limit(&self) -> Option<u64> {
        match self {
            Self::Bitcoin(address) => Some(address.script_pubkey().minimal_non_dust().to_sat()),
            Self::Evm(_) | Self::Tron(_) => None,
        }
    }
}

/// The one text that Bursar shows and stores: EIP-55 on EVM, base58check on TRON, the standard form on Bitcoin.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bitcoin(address) => f.pad(&address.to_string()),
            Self::Evm(address) => f.pad(&address.to_checksum(None)),
            Self::Tron(address) => f.pad(&address.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_the_key_of_is_known() {
        let account = |low: [u8; 3]| {
            let mut bytes = [0; 20];
            bytes[17..].copy_from_slice(&low);
            [Address::Evm(bytes.into()), Address::Tron(TronAddress(bytes))]
        };
        for (low, is) in [([0, 0, 1], true), ([0, 0xde, 0xad], true), ([0, 0x10, 0], true), ([1, 0, 0], false)] {
            assert!(account(low).iter().all(|address| address.is_nobodys() == is), "{low:?}");
        }
    }
}
