//! Heads, headers, and what blocks pay to watched addresses and take from them.

use domain::{RawAmount, Timestamp};
use tx::{Address, BlockHash, BlockRef, Coin, TxHash};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub height: u64,
    pub hash: BlockHash,
    pub parent: BlockHash,
    /// What its producer said. Only TRON's expiry depends on it.
    pub time: Timestamp,
}

impl Header {
    pub const fn at(&self) -> BlockRef {
        BlockRef { height: self.height, hash: self.hash }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub tip: Header,
    /// The highest block that can no longer change: TRON's solidified height; elsewhere the tip less the chain's
    /// confirmations. `None` while the chain is younger than that, or fewer nodes than a quorum have answered.
    pub settled: Option<u64>,
}

/// Where in its transaction a payment stands. With the transaction's hash it is the key of a deposit, so it must not
/// depend on the block: a transaction that is mined again elsewhere keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The value of an EVM transaction, or the amount of a TRX transfer.
    Value,
    /// An output of a Bitcoin transaction.
    Output(u32),
    /// A log, counted within its own transaction (a node counts within the block).
    Log(u32),
    /// A value moved by a contract: counted from 1 among those that the transaction's trace shows.
    Internal(u32),
    /// What a transaction cost its sender. A transaction has at most one.
    Fee,
}

/// A payment to a watched address in a mined block. One node's word: see [`crate::Chain::prove`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub block: BlockRef,
    pub transaction: TxHash,
    pub place: Place,
    /// Its number in the watched set.
    pub watched: u32,
    pub to: Address,
    pub coin: Coin,
    pub amount: RawAmount,
    /// The transaction ran to its end. One that reverted paid nothing; it is reported all the same.
    pub ok: bool,
    /// Newly made coins, which cannot be spent until they are 100 blocks deep.
    pub coinbase: bool,
}

/// What left a watched address in a mined block: each of these made its balance smaller by `amount`.
///
/// | place | what left |
/// |---|---|
/// | `Value` | the transaction's own coin, when it ran |
/// | `Log` | a listed token, by its `Transfer` |
/// | `Internal` | coin that a contract moved out of the address; EIP-7702 gives an address code |
/// | `Fee` | what the transaction cost, also when it failed |
///
/// A payment of an address to itself is a spend and an output. Bitcoin has no spends here: an input names an earlier
/// output, whose amount and address only the wallet store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spend {
    pub block: BlockRef,
    pub transaction: TxHash,
    pub place: Place,
    /// The number of `from` in the watched set.
    pub watched: u32,
    pub from: Address,
    /// `None`: a fee, or coin that goes into a contract that the transaction makes.
    pub to: Option<Address>,
    pub coin: Coin,
    /// Never zero.
    pub amount: RawAmount,
    /// The transaction ran to its end. Of one that did not, only the fee is here.
    pub ok: bool,
}

/// Some blocks in a row, what they pay and what they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Each is the parent of the next.
    pub headers: Vec<Header>,
    /// In the order of the chain.
    pub outputs: Vec<Output>,
    /// In the order of the chain: by transaction, then by place. Always empty on Bitcoin.
    pub spends: Vec<Spend>,
    /// The name of the node whose blocks these are. Empty when there are no blocks, or when several nodes read them alike
    /// ([`crate::evm::BlockProof::SecondNode`]).
    pub source: String,
}

impl Scan {
    /// Says whose blocks these are.
    pub(crate) fn of_node(mut self, name: &str) -> Self {
        if !self.headers.is_empty() {
            name.clone_into(&mut self.source);
        }
        self
    }
}
