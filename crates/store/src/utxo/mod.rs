//! The Bitcoin wallet: outputs that pay our addresses, and the transactions that make and spend them.
//!
//! | module | holds |
//! |---|---|
//! | `types` | wallets, addresses, blocks, transactions as they come in; what is refused |
//! | `wallet` | wallets and their addresses |
//! | `around` | all rows that an event can touch, before `domain::utxo` decides about them |
//! | `load`, `write` | reading those rows and writing what was decided, many at a time |
//! | `blocks` | the blocks that are stored |
//! | `events` | what can happen: a block connected or disconnected, a transaction seen, made, published, replaced, abandoned, given up |
//! | `followed` | what followers share: an open rescan, that addresses were added, and a mark against backups |
//! | `watch` | which transactions of a block can concern a wallet, decided in memory |
//! | `open` | what has to be asked of the nodes about unconfirmed transactions |
//! | `balance` | what an account has |
//! | `coins` | candidates for a selection, lists of outputs |
//! | `lease` | outputs that are reserved for a transaction that is being made |
//! | `claimed` | free outputs that nobody may spend: a transaction which may still be mined spends them |
//! | `selection`, `lease_queue` | outputs chosen for a payment, and leased with those of others |
//! | `cluster` | unconfirmed transactions that hang together: nodes take only so many |
//! | `stat` | how large the tables are, and how many leases there are |
//! | `history` | one transaction with all that is known of it; labels |
//! | `prune` | the only delete of a transaction |
//! | `bulk` | a history written at once, for the bench: only with the feature `lab` |
//! | `explain` | how the engine goes about the hot reads, for the bench: only with the feature `lab` |
//! | `check` | every row that disagrees with the facts |
//!
//! **An output has at most one valid spender, and only valid transactions spend.** Everything else follows: a
//! transaction is *valid* while it is pending or published; `utxos.valid`, `tx_inputs.active` and the spender of an
//! output say so again where the hot paths look, and triggers keep them true.
//!
//! **All changes of transactions wait in one line** (a lock of the database), so none of them meets half of another.
//! Leases do not: they lock their outputs' rows, in the order of their ids.

mod around;
pub(crate) mod balance;
pub(crate) mod blocks;
#[cfg(feature = "lab")]
pub(crate) mod bulk;
pub(crate) mod check;
pub(crate) mod claimed;
pub(crate) mod cluster;
pub(crate) mod coins;
pub(crate) mod events;
#[cfg(feature = "lab")]
mod explain;
pub(crate) mod followed;
pub(crate) mod history;
pub(crate) mod lease;
pub(crate) mod lease_queue;
pub(crate) mod load;
pub(crate) mod open;
pub(crate) mod prune;
pub(crate) mod selection;
pub(crate) mod stat;
mod types;
pub(crate) mod wallet;
pub(crate) mod watch;
pub(crate) mod write;

pub use check::StoredTx;
pub use coins::MOST_FINAL;
#[cfg(feature = "lab")]
pub use explain::Explained;
pub use followed::{Followed, Marked, RESCAN_LOCK};
pub use lease::SWEPT_AT_ONCE;
pub use stat::{LeaseStat, TableStat};
pub use types::*;
pub use wallet::is_watched;
