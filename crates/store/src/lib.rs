//! The only SQL of Bursar, on PostgreSQL and on SQLite from one set of constants.
//!
//! | module | holds |
//! |---|---|
//! | [`db`] | `Db` and `Tx`: connect, read from a snapshot, write with retries |
//! | [`sql`] | `Sql` constants, and the macros that run one on either engine with its binds counted |
//! | `template` | placeholders, for statements in which the engines differ by a word |
//! | [`rows`] | statements over many rows at once |
//! | [`dialect`] | everything that truly differs between the engines |
//! | [`error`] | `StoreError`, each with a code and what to do next |
//! | [`migrate`] | the schema, versioned |
//! | [`ledger`] | accounts, operations, balances, the journal |
//! | [`catalog`] | assets, chains, and what an asset is on a chain |
//! | [`transfer`] | internal transfers: their rows, their history, daily limits |
//! | [`utxo`] | the Bitcoin wallet: outputs, the transactions that make and spend them, leases |
//! | [`wallet`] | wallet groups, operation wallets, and users' deposit wallets |
//! | [`entry`] | the chains' own books: what came to our addresses and what left them, block by block |
//! | [`deposit`] | deposits: credited, taken back, assigned |
//! | [`outbound`] | payments that leave: jobs, lanes, slots, and all that was ever signed for them |
//! | [`operator`] | the people who look after all this: their keys, and what each has done |
//! | [`withdrawal`] | what customers want paid out: policies, requests with their holds, address books |
//! | [`node`] | the lease on a node number, which a process makes ids with |
//! | [`pair`] | which spot engine the database belongs to, and how far each knows the other to be |
//! | [`signer_head`] | how far the log of a signer went when it last answered |
//! | [`clock`] | the database's own clock, to be compared with ours |
//! | [`grants`] | PostgreSQL's roles: which role of Bursar may read, add to and change which table |
//! | [`old_withdrawals`] | the withdrawals of another program, read as they stand |
//! | [`sqlite_file`] | a SQLite file that another program has written, read as it stands |
//! | [`copy`] | a whole database, copied to an empty one on either engine |
//! | [`audit`] | the laws, proven over live data |
//! | [`faults`] | where a simulation may make a database fail |
//! | `chaos` | leases that end at once, the chain's books read out whole, deposits at a glance; only with the feature `lab` |
//! | `yardstick` | the bare commit and the plain transfer that the benches compare with; only with the feature `lab` |
//!
//! **No write takes its time from a clock in here**: the caller says what time it is.
//!
//! **No row of the ledger or of a transfer is ever deleted.** Of the Bitcoin wallet, leases end, labels can be cleared,
//! blocks that leave the chain go, and an operator may prune transactions that are final; the history of a transaction
//! stays even then.

#[macro_use]
pub mod sql;

pub mod audit;
pub mod catalog;
#[cfg(feature = "lab")]
pub mod chaos;
pub mod clock;
pub mod copy;
pub mod db;
pub mod deposit;
pub mod dialect;
pub mod entry;
pub mod error;
pub mod faults;
pub mod grants;
pub(crate) mod growth;
pub mod ledger;
pub mod migrate;
pub mod node;
pub mod old_withdrawals;
pub mod operator;
pub mod outbound;
pub mod pair;
pub mod rows;
pub mod signer_head;
pub mod sqlite_file;
mod template;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transfer;
pub mod treasury;
pub mod utxo;
pub mod wallet;
pub mod withdrawal;
#[cfg(feature = "lab")]
pub mod yardstick;

pub use db::{Db, Engine, Options, Tx};
pub use error::StoreError;
pub use rows::Writes;
