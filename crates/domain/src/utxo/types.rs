//! Transactions, blocks and outputs of Bitcoin wallets, and the words that are stored for them.

use std::fmt;

/// A transaction's or block's hash, in the order in which it is printed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::str::FromStr for Hash {
    type Err = BadHash;

    fn from_str(text: &str) -> Result<Self, BadHash> {
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or(BadHash)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(bytes))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 hexadecimal digits")]
pub struct BadHash;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalletId(pub i64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutPoint {
    pub hash: Hash,
    pub index: u32,
}

impl fmt::Display for OutPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.hash, self.index)
    }
}

/// Text and value of an enumeration that is stored as text.
macro_rules! stored_as_text {
    ($(#[$doc:meta])* $Name:ident { $($(#[$variant_doc:meta])* $Variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Name { $($(#[$variant_doc])* $Variant),* }

        impl $Name {
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];

            pub const fn text(self) -> &'static str {
                match self { $(Self::$Variant => $text),* }
            }

            pub fn of_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$Variant),)* _ => None }
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.text())
            }
        }
    };
}

stored_as_text! {
    Network {
        Bitcoin = "bitcoin",
        Testnet = "testnet",
        Testnet4 = "testnet4",
        Signet = "signet",
        Regtest = "regtest",
    }
}

impl Network {
    /// What people call it, in the treasury file too. The rows have the names of `002`, where the first one is `bitcoin`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bitcoin => "mainnet",
            Self::Testnet | Self::Testnet4 | Self::Signet | Self::Regtest => self.text(),
        }
    }

    /// By what people call it, or by its name in the rows.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|network| network.name() == name || network.text() == name)
    }
}

stored_as_text! {
    /// What it takes to spend from an address.
    AddressKind {
        P2wpkh = "p2wpkh",
        P2tr = "p2tr",
        /// Seen and counted, not selected.
        Other = "other",
    }
}

stored_as_text! {
    WalletStatus {
        Active = "active",
        /// A backup was put back: nothing is selected until the node was asked what is unconfirmed.
        Restoring = "restoring",
    }
}

stored_as_text! {
    /// `Pending` and `Published` transactions are valid, the others are history.
    Status {
        Pending = "pending",
        Published = "published",
        Replaced = "replaced",
        Failed = "failed",
        Orphaned = "orphaned",
    }
}

impl Status {
    pub const fn is_valid(self) -> bool {
        match self {
            Self::Pending | Self::Published => true,
            Self::Replaced | Self::Failed | Self::Orphaned => false,
        }
    }
}

/// The end of a derivation path: `branch` is 0 for receiving, 1 for change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    pub branch: u8,
    pub index: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub height: u32,
    pub hash: Hash,
    pub parent: Hash,
    /// Seconds since 1970, as its header says.
    pub time: u32,
}

/// A transaction as the chain or a builder shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTx {
    pub hash: Hash,
    pub raw: Vec<u8>,
    pub coinbase: bool,
    /// Empty for a coinbase.
    pub inputs: Vec<OutPoint>,
    pub outputs: Vec<NewOutput>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOutput {
    pub script: Vec<u8>,
    /// Satoshi.
    pub amount: i64,
}

/// A coinbase is spendable with this many blocks above it. Consensus asks for one less; Bitcoin Core's wallet waits as
/// we do.
pub const COINBASE_MATURITY: u32 = 100;

/// A block with this many others on top is final: nothing in it is undone any more.
pub const FINAL_DEPTH: u32 = COINBASE_MATURITY;

pub const fn is_mature(coinbase_height: u32, tip: u32) -> bool {
    tip >= coinbase_height && tip - coinbase_height >= COINBASE_MATURITY
}

/// Unconfirmed transactions that hang together: each spends an output of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainSize {
    pub transactions: u32,
    /// Of the transactions as they are sent. Nodes count virtual bytes, which are never more.
    pub bytes: u32,
}

impl ChainSize {
    /// What every node takes that has not been told otherwise, whatever its version: Bitcoin Core up to 30 counts 25
    /// ancestors and 25 descendants, from 31 on a cluster of 64; both count 101,000 virtual bytes.
    pub const USUAL: Self = Self { transactions: 25, bytes: 101_000 };

    /// The stricter of the two.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self { transactions: self.transactions.min(other.transactions), bytes: self.bytes.min(other.bytes) }
    }

    pub const fn fits(self, most: Self) -> bool {
        self.transactions <= most.transactions && self.bytes <= most.bytes
    }
}
