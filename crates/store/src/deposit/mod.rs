//! Deposits: what users are credited with, and what is taken back.
//!
//! | module | holds |
//! |---|---|
//! | `advance` | a deposit goes on, by one state or by several at once, with its history |
//! | `post` | entries whose time has come are booked in the ledger, in batches |
//! | `given_out` | payments whose money a look had found before, and people may have given out since |
//! | `depth` | what the depth of its block makes of a deposit: proven, and final |
//! | `assign` | two people say whose an unattributed deposit is |
//! | `collect` | what a user owes since a deposit was taken back is collected |
//! | `read` | deposits as users, operators and workers see them |
//! | `audit` | entries, balances, books and histories, held against each other |
//!
//! | | |
//! |---|---|
//! | reads | `chain_entries`, `chain_cursors`, `user_wallets`, `accounts` |
//! | writes | `deposits`, `deposit_events`, `chain_residues`, `chain_entries.posting`, the ledger, and the log of operators |
//! | may never do | credit what is not proven and deep enough, or what its caller did not derive |

pub(crate) mod advance;
pub(crate) mod assign;
pub(crate) mod audit;
pub(crate) mod collect;
pub(crate) mod depth;
pub(crate) mod given_out;
pub(crate) mod post;
pub(crate) mod read;

pub use assign::{Assigned, Assignment};
pub use collect::Collected;
pub use post::{DueEntry, MOST as MOST_DUE, PostedBatch};
pub use read::{DepositEventRow, DepositFilter, DepositRow};
