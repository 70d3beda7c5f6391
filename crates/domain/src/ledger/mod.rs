//! The ledger's rules: what an operation is, and the one function that decides what it does.
//!
//! | module | holds |
//! |---|---|
//! | [`operation`] | `Operation`: a key, an action, its movements |
//! | [`refusal`] | every reason why an operation is refused, with its stored code |
//! | [`book`] | `Book`: accounts and holds in memory; `Book::apply` is the ledger's state machine |
//!
//! The store loads the rows an operation touches into a [`Book`], lets it decide, and writes what it decided in
//! one transaction. The rules are written here once, and hold for both databases.

pub mod book;
pub mod operation;
pub mod refusal;

pub use book::{AccountState, Book, BookError, HoldState, Outcome, Reply};
pub use operation::{Action, BadOperation, Movement, OpKey, Operation, Reference};
pub use refusal::{Difference, Refusal};
