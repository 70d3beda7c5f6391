//! Which chains a group's keys are for, and the path of its account.

use bitcoin::bip32::ChildNumber;
use bitcoin::{Network, NetworkKind};
use domain::ChainKind;

use crate::address::{Address, BadAddress};
use crate::tron::TronAddress;

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

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.as_str() == text)
    }

    /// The family of a chain, by its kind and the name that the treasury file gives its network.
    pub fn of_chain(kind: ChainKind, network: &str) -> Option<Self> {
        match (kind, network) {
            (ChainKind::Evm, _) => Some(Self::Evm),
            (ChainKind::Tron, _) => Some(Self::Tron),
            (ChainKind::Bitcoin, "mainnet") => Some(Self::Bitcoin(Network::Bitcoin)),
            (ChainKind::Bitcoin, network) => Self::parse(&format!("bitcoin-{network}")),
        }
    }

    /// A text that is an address of this family.
    pub fn parse_address(self, text: &str) -> Result<Address, BadAddress> {
        match self {
            Self::Bitcoin(network) => crate::bitcoin::address::parse(text, network).map(Address::Bitcoin),
            Self::Evm => crate::evm::address::parse(text).map(Address::Evm),
            Self::Tron => TronAddress::parse(text).map(Address::Tron),
        }
    }

    /// Which prefix an extended key has: `xpub`, or `tpub` for Bitcoin's test networks.
    pub fn kind(self) -> NetworkKind {
        match self {
            Self::Bitcoin(network) => network.into(),
            Self::Evm | Self::Tron => NetworkKind::Main,
        }
    }

    /// Purpose and coin type, both hardened: BIP-84 for Bitcoin, whose addresses are P2WPKH, else BIP-44; coins by SLIP-44.
    pub const fn above_account(self) -> [ChildNumber; 2] {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_the_family_of_its_network() {
        for (kind, network, family) in [
            (ChainKind::Evm, "56", Some("evm")),
            (ChainKind::Tron, "testnet", Some("tron")),
            (ChainKind::Bitcoin, "mainnet", Some("bitcoin")),
            (ChainKind::Bitcoin, "testnet4", Some("bitcoin-testnet4")),
            (ChainKind::Bitcoin, "regtest", Some("bitcoin-regtest")),
            (ChainKind::Bitcoin, "bitcoin", None),
            (ChainKind::Bitcoin, "", None),
        ] {
            assert_eq!(Family::of_chain(kind, network).map(Family::as_str), family, "{network}");
        }
        for family in Family::ALL {
            assert_eq!(Family::parse(family.as_str()), Some(family));
        }
    }
}
