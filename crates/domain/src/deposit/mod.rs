//! What chains pay to our addresses, and what becomes of it.
//!
//! | module | holds |
//! |---|---|
//! | [`entry`] | one change of a balance of ours, as the chain shows it: where, how much, and why |
//! | [`state`] | the states of a deposit, and the one function that moves it on |
//! | [`look`] | what a wallet has on its chain, held against its entries |
//! | [`posting`] | what an entry does to the ledger, to the last unit of the chain |
//!
//! **An entry is a fact of the chain; a posting is what the books make of it.** Nothing is posted before its block is
//! proven and deep enough, and what a reorganisation takes away is posted back.

pub mod entry;
pub mod look;
pub mod posting;
pub mod state;

pub use entry::{Cause, Place, Side};
pub use posting::{Attribution, Due, Posted, Posting, PostingError, Reason};
pub use state::{DepositEvent, DepositState, Illegal};
