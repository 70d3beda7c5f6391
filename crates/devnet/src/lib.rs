//! Three chains that can misbehave, with the real wire formats.
//!
//! A chain is a [`Model`]: plain state, no clock, no I/O. It is served over HTTP on several endpoints, each of which
//! sees the one state through its own [`View`].

pub mod bitcoin;
mod control;
pub mod evm;
mod key;
mod network;
mod serve;
pub mod tron;

use domain::{RawAmount, Timestamp};
use serde::{Deserialize, Serialize};

pub use control::{Chains, Control};
pub use key::{Key, PREFUNDED};
pub use network::{CannotServe, Devnet, DevnetSettings};
pub use serve::{Connection, Endpoint, Garbage, Served, WireFaults};

/// One request as it came over the wire.
#[derive(Clone, Copy, Debug)]
pub struct Wire<'a> {
    /// `GET` or `POST`.
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub body: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireReply {
    pub status: u16,
    /// JSON.
    pub body: Vec<u8>,
}

/// How one endpoint sees the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct View {
    /// It knows nothing of the newest blocks.
    pub lag: u64,
    pub lie: Lie,
    /// From this height on it shows other block hashes (and parents that fit them).
    pub contradict: Option<u64>,
}

/// What an endpoint says about transactions and receipts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lie {
    #[default]
    Truth,
    /// A mined transaction is nowhere: null receipt, not in the mempool.
    Missing,
    /// What failed succeeded, and the other way round.
    Flipped,
    /// Ten times the amount: in logs (EVM, TRON) or outputs (Bitcoin).
    Inflated,
    /// The last log of every block is not there: not in its receipt, not in any search. Blocks and transactions are as they
    /// are. Bitcoin has no logs.
    LogLeftOut,
    /// The last transaction of every block is not there: not in its block, with no receipt, by no name. The header is as it
    /// is, so whoever works the roots out finds it. Bitcoin's first transaction, which makes the coins, is never left out.
    TransactionLeftOut,
    /// Ten times the value in every transaction that a block holds, under the name that it had. On TRON its bytes say so too.
    ValueInflated,
    /// The last two transactions of every block stand in each other's place; Bitcoin's first one stays where it is.
    Swapped,
}

/// What becomes of the transactions of the blocks that a reorganisation removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Mined again in the new branch, all of them in its last block.
    #[default]
    Moved,
    /// Gone, from the pool as well.
    Dropped,
    /// Back in the pool, waiting.
    Returned,
}

/// What the chain does with transactions that are sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BroadcastFault {
    #[default]
    None,
    /// Checked and answered as if taken, and forgotten.
    Drop,
    /// Taken, but not mined before so many further blocks.
    Delay(u64),
    /// Taken twice: the second delivery must change nothing.
    Duplicate,
}

/// A chain as plain state.
pub trait Model: Send + 'static {
    /// A request on the chain's own wire. It answers anything, and panics on nothing.
    fn answer(&mut self, view: &View, wire: Wire<'_>, now: Timestamp) -> WireReply;

    fn height(&self) -> u64;

    /// Mines so many blocks; what waits goes into the first.
    fn mine(&mut self, blocks: u64, now: Timestamp);

    /// Replaces the newest `depth` blocks by `depth + 1` others. `with`: signed transactions (hex) that the first new
    /// block holds, such as ones that conflict with what was removed; what they make impossible is dropped.
    fn reorg(&mut self, depth: u64, fate: Fate, with: &[Vec<u8>], now: Timestamp) -> Result<(), String>;

    /// Gives coins to an address: the native coin, or the named token. In the next block, or at once.
    fn fund(&mut self, address: &str, token: Option<&str>, amount: RawAmount, now: Timestamp) -> Result<(), String>;

    fn broadcasts(&mut self, fault: BroadcastFault);

    /// Fees are so many times what they usually are.
    fn fee_factor(&mut self, times: u32);
}
