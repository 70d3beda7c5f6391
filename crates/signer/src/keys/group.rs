//! What a wallet group is: one mnemonic, one purpose, one chain family, one account; so one extended public key.

use bitcoin::bip32::ChildNumber;
use bitcoin::{Network, NetworkKind};

use super::account::AccountKey;
use super::error::KeyError;
use super::mnemonic::Mnemonic;
use crate::names::GroupId;

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

    pub fn parse(text: &str) -> Result<Self, KeyError> {
        Self::ALL.into_iter().find(|purpose| purpose.as_str() == text).ok_or(KeyError::BadGroup("purpose"))
    }
}

/// Which chains a group's keys are for. All EVM chains share their addresses, so they share a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Bitcoin(Network),
    Evm,
    Tron,
}

impl Family {
    pub const ALL: [Self; 7] = [
        Self::Bitcoin(Network::Bitcoin),
        Self::Bitcoin(Network::Testnet),
        Self::Bitcoin(Network::Testnet4),
        Self::Bitcoin(Network::Signet),
        Self::Bitcoin(Network::Regtest),
        Self::Evm,
        Self::Tron,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bitcoin(Network::Bitcoin) => "bitcoin",
            Self::Bitcoin(Network::Testnet) => "bitcoin-testnet",
            Self::Bitcoin(Network::Testnet4) => "bitcoin-testnet4",
            Self::Bitcoin(Network::Signet) => "bitcoin-signet",
            Self::Bitcoin(Network::Regtest) => "bitcoin-regtest",
            Self::Evm => "evm",
            Self::Tron => "tron",
        }
    }

    pub fn parse(text: &str) -> Result<Self, KeyError> {
        Self::ALL.into_iter().find(|family| family.as_str() == text).ok_or(KeyError::BadGroup("chain"))
    }

    /// Which prefix an extended key has: `xpub`, or `tpub` for Bitcoin's test networks.
    pub fn kind(self) -> NetworkKind {
        match self {
            Self::Bitcoin(network) => network.into(),
            Self::Evm | Self::Tron => NetworkKind::Main,
        }
    }

    /// Purpose and coin type, both hardened: BIP-84 for Bitcoin, whose addresses are P2WPKH, else BIP-44; coins by SLIP-44.
    pub(super) fn above_account(self) -> [ChildNumber; 2] {
        let (purpose, coin) = match self {
            Self::Bitcoin(Network::Bitcoin) => (84, 0),
            Self::Bitcoin(_) => (84, 1),
            Self::Evm => (44, 60),
            Self::Tron => (44, 195),
        };
        [ChildNumber::Hardened { index: purpose }, ChildNumber::Hardened { index: coin }]
    }

    /// The path of an account, as wallets print it.
    pub fn account_path(self, account: u32) -> String {
        let [purpose, coin] = self.above_account();
        format!("m/{purpose}/{coin}/{account}'")
    }
}

/// A group as everybody may know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub id: GroupId,
    pub purpose: Purpose,
    /// Family and account are the key's own.
    pub key: AccountKey,
}

impl Group {
    pub const fn family(&self) -> Family {
        self.key.family()
    }

    pub const fn account(&self) -> u32 {
        self.key.account()
    }
}

/// A group with its mnemonic, on its way from a source to a keyring or back.
#[derive(Debug)]
pub struct GroupSecret {
    pub id: GroupId,
    pub purpose: Purpose,
    pub family: Family,
    pub account: u32,
    pub mnemonic: Mnemonic,
}

impl GroupSecret {
    /// What may be known of it.
    pub fn group(&self) -> Result<Group, KeyError> {
        let key = super::secret::AccountSecret::of(&self.mnemonic, self.family, self.account)?.public()?;
        Ok(Group { id: self.id.clone(), purpose: self.purpose, key })
    }
}
