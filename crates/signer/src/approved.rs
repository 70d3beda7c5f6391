//! What may be signed. Only this crate's decision makes one, so whatever holds keys needs no rule of its own: it signs
//! an [`Approved`], and has no function that takes anything else.

use std::fmt;
use std::str::FromStr;

use bitcoin::Network;
use domain::ChainName;
use tx::TxHash;

use crate::keys::Family;
use crate::names::GroupId;

/// What bytes mean depends on it: the kind of chain, and which of its networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignerChain {
    Evm {
        chain_id: u64,
    },
    /// TRON's bytes do not say which network they are for, so a group's keys belong to one network only.
    Tron,
    Bitcoin(Network),
}

impl SignerChain {
    /// Which groups can sign for it.
    pub const fn family(self) -> Family {
        match self {
            Self::Evm { .. } => Family::Evm,
            Self::Tron => Family::Tron,
            Self::Bitcoin(network) => Family::Bitcoin(network),
        }
    }
}

/// As people sign it: `evm:56`, `tron`, `bitcoin:regtest`.
impl fmt::Display for SignerChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evm { chain_id } => write!(f, "evm:{chain_id}"),
            Self::Tron => f.write_str("tron"),
            Self::Bitcoin(network) => write!(f, "bitcoin:{network}"),
        }
    }
}

impl FromStr for SignerChain {
    type Err = &'static str;

    /// Only the one text that [`Display`](fmt::Display) gives: it is a part of what people sign.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let chain = match text.split_once(':') {
            None if text == "tron" => Some(Self::Tron),
            Some(("evm", number)) => number.parse().ok().map(|chain_id| Self::Evm { chain_id }),
            Some(("bitcoin", network)) => network.parse().ok().map(Self::Bitcoin),
            _ => None,
        };
        chain.filter(|chain| chain.to_string() == text).ok_or("a network is evm:<chain id>, tron or bitcoin:<network>")
    }
}

/// Bytes that were read, explained by their intents, allowed by the policy, and logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approved {
    chain: ChainName,
    protocol: SignerChain,
    group: GroupId,
    indexes: Vec<u64>,
    payload: Vec<u8>,
}

impl Approved {
    pub(crate) const fn new(
        chain: ChainName,
        protocol: SignerChain,
        group: GroupId,
        indexes: Vec<u64>,
        payload: Vec<u8>,
    ) -> Self {
        Self { chain, protocol, group, indexes, payload }
    }

    /// For tests of signatures, which have no policy. Production is built without it; a test of the workspace looks.
    #[cfg(feature = "testing")]
    pub const fn for_tests(
        chain: ChainName,
        protocol: SignerChain,
        group: GroupId,
        indexes: Vec<u64>,
        payload: Vec<u8>,
    ) -> Self {
        Self::new(chain, protocol, group, indexes, payload)
    }

    pub const fn chain(&self) -> &ChainName {
        &self.chain
    }

    pub const fn protocol(&self) -> SignerChain {
        self.protocol
    }

    pub const fn group(&self) -> &GroupId {
        &self.group
    }

    /// Whose key signs: one index for EVM and TRON, one for each input in its order for Bitcoin.
    pub fn indexes(&self) -> &[u64] {
        &self.indexes
    }

    /// EVM: the payload whose keccak is signed. TRON: `raw_data`. Bitcoin: a PSBT.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

/// What nodes take, and the hash that they will know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    pub bytes: Vec<u8>,
    pub hash: TxHash,
}
