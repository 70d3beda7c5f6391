//! Bitcoin wallets: the outputs that pay us, the transactions that make and spend them, and what each event does to
//! them.
//!
//! | module | holds |
//! |---|---|
//! | `types` | transactions, blocks, outputs, statuses |
//! | `graph` | the transactions around an event, as they are stored and as they are to become |
//! | `decide` | the events, and what each of them does |
//! | `claimed` | free outputs that a transaction which may still be mined spends |
//! | `totals` | what an event does to the accounts' totals |
//! | `bytes` | what the bytes of a transaction spend and pay in total |
//! | `refusal` | why nothing was changed |
//!
//! **An output has at most one valid spender, and only valid transactions spend.** A transaction is *valid* while it is
//! pending or published.

mod bytes;
mod claimed;
mod decide;
#[cfg(test)]
mod decide_tests;
mod graph;
mod refusal;
mod totals;
mod types;

pub use bytes::SpendTotals;
pub use decide::{MOST_GENERATIONS, Word, check_sense};
pub use graph::{AGE_OF_NEW, Graph, Ours, Row, Spent, State, Told, TxEntry, UNCONFIRMED};
pub use refusal::UtxoRefusal;
pub use totals::Delta;
pub use types::*;
