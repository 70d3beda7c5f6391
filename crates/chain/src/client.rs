//! The trait [`Chain`]: all that custody may ask of a chain.

use std::collections::HashMap;

use domain::{ChainKind, RawAmount, Timestamp};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tx::{
    Address, BadAddress, BlockRef, BuildError, Coin, DecodeError, Draft, Fee, FeeCap, Meaning, Payment, TxHash,
    Unsigned,
};

use crate::block::{Head, Header, Output, Scan};
use crate::broadcast::Broadcast;
use crate::error::ChainError;
use crate::status::Status;
use crate::survey::NodeReport;
use crate::watch::Watched;

pub type Answer<'a, T> = BoxFuture<'a, Result<T, ChainError>>;

/// To many questions, in their order. Each has an answer of its own: what is said to one says nothing of the others.
pub type Answers<'a, T> = BoxFuture<'a, Vec<Result<T, ChainError>>>;

/// Calls on their way at the same time, where many questions are asked one by one.
pub const AT_ONCE: usize = 16;

/// Each by itself, side by side.
pub fn side_by_side<'a, T: Send + 'a>(calls: Vec<Answer<'a, T>>) -> Answers<'a, T> {
    Box::pin(stream::iter(calls).buffered(AT_ONCE).collect())
}

/// Nonces of an account: the next one after what is mined, and after what the asked node holds as pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonces {
    pub mined: u64,
    pub pending: u64,
}

/// All that a chain has to say before a payment can be drafted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    pub fee: Fee,
    /// The network asks for more than the cap; `fee` is the cap.
    pub capped: bool,
    /// EVM: the gas limit. TRON: the energy. Bitcoin: unused, zero.
    pub gas: u64,
    /// The most that this payment can cost, in the native coin. On Bitcoin it depends on the inputs: zero here, and below.
    pub most: RawAmount,
    /// What it costs by the prices of now.
    pub expected: RawAmount,
    /// What the sender must have of the native coin beside what it pays, or no node takes it.
    pub needs: RawAmount,
    /// TRON: the block to refer to, and the time that it says.
    pub reference: Option<(BlockRef, Timestamp)>,
}

/// A payment whose cost is asked for.
#[derive(Clone, Copy, Debug)]
pub struct QuoteRequest<'a> {
    pub from: &'a Address,
    pub payment: &'a Payment,
    pub cap: FeeCap,
}

/// A transaction that was sent, or may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// From [`Chain::decode_signed`] of the bytes that were stored before the broadcast.
    pub meaning: Meaning,
    pub hash: TxHash,
    /// The chain's height when it was built. No block below this can hold it.
    pub since: u64,
}

/// A mined transaction as a quorum sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    pub block: BlockRef,
    pub ok: bool,
    pub outputs: Vec<Output>,
}

impl Proven {
    /// From which height on one node says more than the agreed answer, which says nothing.
    pub(crate) fn ahead(one: &Option<Self>, agreed: &Option<Self>) -> Option<u64> {
        one.as_ref().filter(|_| agreed.is_none()).map(|proven| proven.block.height)
    }
}

/// One chain. Pure functions build and read bytes; the others ask nodes.
///
/// | asks | believes |
/// |---|---|
/// | `head` | all nodes: the highest block that enough of them have reached, whatever one of them claims: it only finds work |
/// | `quote`, `quotes`, `nonces`, `scan`, `balances`, `glimpse` | one node, another when it fails: they only find work |
/// | `headers`, `prove`, `status`, `statuses` | a quorum: what credits or finalizes rests on them |
/// | `prove_blocks` | a quorum for the headers, and one node for what hashes to them |
/// | `balances_at`, `nonces_at` | a quorum, at one block |
/// | `survey` | nobody: it tells what each node says |
/// | `broadcast`, `broadcast_all` | nobody: it tells all nodes |
pub trait Chain: Send + Sync {
    fn kind(&self) -> ChainKind;

    /// Checks text from outside: form, checksum, network.
    fn parse_address(&self, text: &str) -> Result<Address, BadAddress>;

    /// Whether the nodes serve the network that this client was made for.
    fn check_network(&self) -> Answer<'_, ()>;

    /// The highest block that a quorum of those nodes that answer soon has reached. It may be of fewer than a quorum when no
    /// more answer. Nodes learn here who of them lags.
    fn head(&self) -> Answer<'_, Head>;

    /// By a quorum. A height above the tip is [`ChainError::BlockMissing`].
    fn headers<'a>(&'a self, heights: &'a [u64]) -> Answer<'a, Vec<Header>>;

    /// The blocks `from..=to`, what they pay to watched addresses and what they take from them, from one node.
    fn scan<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan>;

    /// The same as [`Chain::scan`], believed. The headers are a quorum's.
    ///
    /// | chain | what is held against them |
    /// |---|---|
    /// | Bitcoin | one node's block hashes to the merkle root |
    /// | EVM, [`crate::evm::BlockProof::Roots`] | one node's transactions and receipts hash to both roots; senders come from signatures |
    /// | EVM, [`crate::evm::BlockProof::SecondNode`] | a quorum reads the same outputs and spends |
    /// | TRON | one node's transactions hash to the root; a quorum gives the same receipts, which no header commits to |
    ///
    /// What contracts move inside is committed to by nothing: a quorum must say the same. **With one node and a quorum of
    /// one, all that is not hashed is that node's word.** A node whose data do not hash to the header is named
    /// ([`crate::endpoint::Event::Forges`]) and set aside, and the next is asked; when none fits, that is
    /// [`ChainError::BlockNotProven`], never a weaker proof.
    fn prove_blocks<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan>;

    /// What a transaction pays to watched addresses, by a quorum. `None`: it is in no block that a quorum has.
    fn prove<'a>(&'a self, transaction: TxHash, watched: &'a Watched) -> Answer<'a, Option<Proven>>;

    /// In the order of `wanted`. Many at once, in few calls. Bitcoin searches all unspent outputs: seconds, not
    /// milliseconds; the wallet store is what keeps balances there.
    fn balances<'a>(&'a self, wanted: &'a [(Address, Coin)]) -> Answer<'a, Vec<RawAmount>>;

    /// In the order of `wanted`, at one named block, by a quorum.
    ///
    /// | chain | the block |
    /// |---|---|
    /// | EVM | exactly `near`, by its hash; nodes that keep no state of it do not count |
    /// | TRON | the solidified one, which is all that has an exact state there: the answer says which |
    /// | Bitcoin | the newest one when all unspent outputs were searched: the answer says which |
    ///
    /// On the last two, nodes that are at different blocks do not contradict each other; then it is asked again, a few times.
    fn balances_at<'a>(
        &'a self,
        wanted: &'a [(Address, Coin)],
        near: BlockRef,
    ) -> Answer<'a, (BlockRef, Vec<RawAmount>)>;

    /// What each endpoint says and serves, those that are set aside as well.
    fn survey(&self) -> Answer<'_, Vec<NodeReport>>;

    /// Empty pairs on chains without nonces.
    fn nonces<'a>(&'a self, of: &'a [Address]) -> Answer<'a, Vec<Nonces>>;

    /// How many transactions of each are in the chain up to a block, by a quorum: the first nonce that no block up to there has used. Nodes
    /// that keep no state of the block do not count. Empty on chains without nonces.
    fn nonces_at<'a>(&'a self, of: &'a [Address], at: BlockRef) -> Answer<'a, Vec<u64>>;

    /// The fee to offer now, never above the cap.
    fn quote<'a>(&'a self, from: &'a Address, payment: &'a Payment, cap: FeeCap) -> Answer<'a, Quote>;

    /// As [`Chain::quote`] of each, with one price for all of them and in as few calls as the nodes allow. Every payment is simulated by itself.
    fn quotes<'a>(&'a self, requests: &'a [QuoteRequest<'a>]) -> Answers<'a, Quote> {
        side_by_side(requests.iter().map(|one| self.quote(one.from, one.payment, one.cap)).collect())
    }

    fn build(&self, draft: &Draft) -> Result<Unsigned, BuildError>;

    fn decode_unsigned(&self, bytes: &[u8]) -> Result<Meaning, DecodeError>;

    /// Signatures are checked; on Bitcoin that needs the outputs spent, so only their form is.
    fn decode_signed(&self, bytes: &[u8]) -> Result<Meaning, DecodeError>;

    fn broadcast<'a>(&'a self, signed: &'a [u8]) -> Answer<'a, Broadcast>;

    /// As [`Chain::broadcast`] of each, in their order as far as nodes keep to it, in as few calls as they allow.
    fn broadcast_all<'a>(&'a self, signed: &'a [&'a [u8]]) -> Answers<'a, Broadcast> {
        side_by_side(signed.iter().map(|bytes| self.broadcast(bytes)).collect())
    }

    fn status<'a>(&'a self, sent: &'a Sent) -> Answer<'a, Status>;

    /// As [`Chain::status`] of each, in as few calls as the nodes allow.
    fn statuses<'a>(&'a self, sent: &'a [Sent]) -> Answers<'a, Status> {
        side_by_side(sent.iter().map(|one| self.status(one)).collect())
    }

    /// The transactions of the blocks `from..=to`, each with its height: one node's word, which only says where to look. `None`: this chain
    /// has something better to look at.
    fn glimpse(&self, _from: u64, _to: u64) -> Answer<'_, Option<HashMap<TxHash, u64>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
