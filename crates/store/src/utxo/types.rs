//! What comes in and goes out. The types that decide are `domain::utxo`'s.

use domain::Timestamp;
pub use domain::utxo::{
    AddressKind, BadHash, Block, COINBASE_MATURITY, ChainSize, FINAL_DEPTH, Hash, MOST_GENERATIONS, Network, NewOutput,
    NewTx, OutPoint, Path, Status, UtxoRefusal, WalletId, WalletStatus, is_mature,
};

use crate::error::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtxoId(pub i64);

/// The holder of leases: chosen by the caller, one for each piece of work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockId(pub [u8; 32]);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wallet {
    pub id: WalletId,
    pub name: String,
    pub network: Network,
    pub status: WalletStatus,
    /// From this block on the chain was not read for all of its addresses.
    pub unread_from: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAddress {
    pub account: u32,
    pub path: Option<Path>,
    pub kind: AddressKind,
    pub script: Vec<u8>,
}

/// What to do with a path that another script has, or a script that has another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// All of it is refused: two keys were mixed up.
    Exact,
    /// A wallet had several keys in turn. The first one with the path keeps it; the other script is watched, and
    /// nothing is spent from it.
    WhereFree,
}

/// What became of addresses that were given; the others were there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    pub new: usize,
    /// They were there without a path, and have it now.
    pub learned: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum UtxoError {
    #[error(transparent)]
    Refused(#[from] UtxoRefusal),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl UtxoError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Store(error) => error.code(),
        }
    }

    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.hint(),
            Self::Store(error) => error.hint(),
        }
    }
}

// ---- outputs as they are read ------------------------------------------------------------------------------

/// An output that a selection may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: UtxoId,
    pub amount: i64,
    pub kind: AddressKind,
    /// Whether it is in a block. If not it is our own change, or the caller asked for more.
    pub confirmed: bool,
}

/// An output with all that a transaction needs to spend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coin {
    pub id: UtxoId,
    pub outpoint: OutPoint,
    pub amount: i64,
    pub kind: AddressKind,
    pub script: Vec<u8>,
    pub account: u32,
    pub path: Option<Path>,
}

/// What a selection may use besides confirmed and mature outputs and our own published change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Change of transactions that were not broadcast yet: zero-latency chaining.
    pub pending: bool,
    /// Outputs of other people's unconfirmed transactions.
    pub unconfirmed_foreign: bool,
    /// Of other people's confirmed ones only those up to this block: what is above may leave the chain, and what spends it with it.
    pub settled: Option<u32>,
}

/// Satoshi. Immature and leased outputs are in `confirmed` or `unconfirmed` as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    pub confirmed: i64,
    pub unconfirmed: i64,
    /// Of `confirmed`: coinbases that may not be spent yet.
    pub immature: i64,
    /// Of both: outputs under a lease, or claimed by a transaction that may still be mined.
    pub leased: i64,
    pub outputs: i64,
}

// ---- what an event has changed -----------------------------------------------------------------------------

/// Empty: the event was nothing new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub transactions: Vec<TxChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxChange {
    pub wallet: WalletId,
    pub hash: Hash,
    pub status: Status,
    pub height: Option<u32>,
    pub reason: &'static str,
}

/// A transaction that another wallet's history says to be in a block (height, hash, time), or in none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub tx: NewTx,
    pub block: Option<(u32, Hash, u32)>,
    /// It is in no block, and its source says that another one took its inputs, or those of a transaction that it
    /// spends.
    pub lost: bool,
}

// ---- lists and details -------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListFilter {
    pub account: Option<u32>,
    pub unspent_only: bool,
    /// Begin after this one.
    pub after: Option<UtxoId>,
    pub most: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRow {
    pub id: UtxoId,
    pub outpoint: OutPoint,
    pub amount: i64,
    pub account: u32,
    pub kind: AddressKind,
    pub script: Vec<u8>,
    pub path: Option<Path>,
    pub label: Option<String>,
    /// Of the transaction that made it.
    pub status: Status,
    pub height: Option<u32>,
    pub coinbase: bool,
    pub spent_by: Option<Hash>,
    /// While it is under a lease.
    pub leased_until: Option<Timestamp>,
    /// A transaction that was broadcast, spends it, and may still be mined, while nothing valid spends it.
    pub claimed_by: Option<Hash>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    pub id: UtxoId,
    pub outpoint: OutPoint,
    pub amount: i64,
    pub account: u32,
    /// Who holds the lease; from `until` on others may lease the output. Neither: it is only claimed.
    pub lock: Option<LockId>,
    pub until: Option<Timestamp>,
    /// A transaction that was broadcast, spends it, and may still be mined.
    pub claimed_by: Option<Hash>,
}

/// What a sweep has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub count: u64,
    /// The end of the lease that had ended first.
    pub oldest: Option<Timestamp>,
}

/// An address of a wallet as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRow {
    /// Grows with the order in which addresses were added.
    pub id: i64,
    pub account: u32,
    pub kind: AddressKind,
    pub path: Option<Path>,
    pub script: Vec<u8>,
    pub label: Option<String>,
    /// An output has paid it, spent or not.
    pub paid: bool,
    pub added: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDetail {
    pub hash: Hash,
    pub status: Status,
    pub height: Option<u32>,
    pub received: Timestamp,
    pub coinbase: bool,
    pub own: bool,
    /// Two people gave it up although it was broadcast.
    pub given_up: bool,
    pub raw: Vec<u8>,
    pub label: Option<String>,
    pub inputs: Vec<InputRow>,
    /// Those of ours.
    pub outputs: Vec<OutputRow>,
    pub replaced: Vec<Hash>,
    pub replaced_by: Vec<Hash>,
    pub events: Vec<EventRow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRow {
    pub outpoint: OutPoint,
    /// Account and amount, if it is ours.
    pub ours: Option<(u32, i64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// A status, or `pruned`.
    pub status: String,
    pub height: Option<u32>,
    pub reason: String,
    pub cause: Option<Hash>,
    pub actor: String,
    pub at: Timestamp,
}

/// A row that disagrees with the facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which rule.
    pub check: &'static str,
    pub wallet: WalletId,
    pub what: String,
}

/// What a selection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Satoshi, fees not counted: candidates are of about this size, and smaller ones.
    pub target: i64,
    pub allow: Allow,
    /// Spreads selections that happen at once over different outputs.
    pub seed: u64,
}
