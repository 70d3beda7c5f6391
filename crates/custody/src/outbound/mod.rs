//! Payments that leave: each job is paid at most once on every branch of its chain, and none is stranded.
//!
//! | | |
//! |---|---|
//! | reads | jobs, lanes, slots; what nodes say of nonces, balances and prices; what a quorum says of blocks |
//! | writes | slots and attempts before the signer is asked, bytes before a node is told, then what the chain says |
//! | may never do | hold a key; take a node's word for a payment's end; take a second slot while the first may be mined |
//!
//! | module | holds |
//! |---|---|
//! | [`send`] | one worker of a chain's lanes that sends: what is planned is written down, signed, told |
//! | `plan` | what it is to write: slots for jobs, more for what is stuck, jobs that are put off |
//! | [`watch`] | one that watches: what became of slots, until it is final |
//! | `imported` | what the chain says of payments that another program has sent |
//! | `purse` | who pays a job and what it pays, as addresses that keys give and not as rows claim |
//! | `gather`, `raise`, `till` | Bitcoin: payouts that share a transaction, more that is offered for one, the coins that pay |
//! | `bundle` | Bitcoin: coins of users' addresses that go home together |
//! | `draft` | the bytes to be signed: a payment, one that offers more, a cancel |
//! | [`approve`] | what people sign so that the signer pays what it does not pay by itself |
//! | `ask` | how the signer is asked, and what its answers are worth |
//!
//! Whoever dies anywhere is followed by another that begins at the rows: an attempt without bytes is signed (the same request gets the same
//! bytes), bytes that no node was told of are told, and whatever may be out is watched until the chain says.

pub mod approve;
mod ask;
mod bundle;
pub(crate) mod draft;
mod gather;
mod imported;
pub(crate) mod plan;
mod purse;
mod raise;
pub mod send;
mod till;
pub mod watch;

use chain::ChainError;
use domain::Timestamp;
use futures_util::future::BoxFuture;
use signer::client::{SignAnswer, SignerError};
use signer::{SignRequest, names::BadName};
use store::StoreError;
use store::signer_head::SignerHead;
use store::utxo::UtxoError;

use crate::deposit::BadCoins;
use crate::signer::SignerWatch;
use crate::wallet::WalletError;

pub use send::{SendWorker, SentRound};
pub use watch::{WatchWorker, WatchedRound};

/// A worker's hold on its lanes, renewed with every round.
const LEASE_MICROS: i64 = 60_000_000;

/// Lanes that one worker has at a time. Others have the rest.
const MOST_LANES: i64 = 256;

/// So many send side by side in one process, each its share of a chain's lanes: while one waits for the database another asks nodes, and a third
/// has something signed.
pub const SENDERS: i64 = 4;

const fn lease(now: Timestamp) -> Timestamp {
    now.plus_micros(LEASE_MICROS)
}

#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    #[error("the chain cannot be asked now")]
    Chain(#[from] ChainError),
    #[error("the database cannot be used")]
    Store(#[from] StoreError),
    #[error("the Bitcoin wallet cannot be used")]
    Wallet(#[from] UtxoError),
    #[error("whose addresses coins lie at cannot be looked up")]
    Users(#[from] WalletError),
    #[error("the signer cannot be asked")]
    Signer(#[from] SignerError),
    #[error("chain {chain} cannot be paid on")]
    Coins { chain: String, source: BadCoins },
    #[error("chain {chain}: there are no wallets of network {network}")]
    Network { chain: String, network: String },
    #[error("a name is none")]
    Name(#[from] BadName),
    /// Payments that this database has forgotten would not be noticed before a second one is sent.
    #[error(
        "the chain's own books are proven to block {proven} of {settled}: does bursar run deposits work, or on Bitcoin bursar utxo follow?"
    )]
    BooksBehind { proven: u64, settled: u64 },
    /// No number can be had for a new slot.
    #[error("this process has no number to make ids with")]
    NoIds,
}

impl OutboundError {
    pub fn code(&self) -> &str {
        match self {
            Self::Chain(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Wallet(error) => error.code(),
            Self::Users(error) => error.code(),
            Self::Signer(error) => error.code(),
            Self::Coins { .. } => "CHAIN_COINS",
            Self::Network { .. } => "CHAIN_WRONG_NETWORK",
            Self::Name(_) => "CONFIG_INVALID",
            Self::BooksBehind { .. } => "OUTBOUND_WAITS",
            Self::NoIds => "NODE_NUMBERS_EXHAUSTED",
        }
    }
}

/// Who signs. The service behind a socket; a simulation has the signer's core without one.
pub trait Signs: Send + Sync {
    /// Whether it has the keys of the treasury file.
    fn is_ready(&self) -> bool;

    fn sign<'a>(&'a self, requests: &'a [SignRequest]) -> BoxFuture<'a, Result<Vec<SignAnswer>, SignerError>>;

    /// How far its log went with the last answer: to be kept with what was signed. With the name that it is kept under.
    fn head(&self) -> Option<(String, SignerHead)>;
}

impl Signs for SignerWatch {
    fn is_ready(&self) -> bool {
        self.agrees()
    }

    fn sign<'a>(&'a self, requests: &'a [SignRequest]) -> BoxFuture<'a, Result<Vec<SignAnswer>, SignerError>> {
        Box::pin(self.client().sign(requests))
    }

    fn head(&self) -> Option<(String, SignerHead)> {
        self.newest_head()
    }
}

/// Numbers of slots and of cancels. `None`: this process has none to give now.
pub type MakeId<'a> = &'a (dyn Fn() -> Option<i64> + Send + Sync);
