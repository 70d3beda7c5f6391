//! Internal transfers: money between a user's funding account (the SQL ledger) and spot account (a remote engine). The
//! two cannot share a transaction; no crash, timeout, replay, race or lie may create, lose or strand a unit.
//!
//! | module | holds |
//! |---|---|
//! | [`coordinator`] | `create` and `step`: the one path that every transfer takes |
//! | [`create`] | the rules that need the database, and the first commit of a transfer |
//! | `update`, `round` | what one transaction does to a batch of transfers |
//! | [`leg`] | the two ends: the ledger, and whatever engine is on the other side |
//! | [`intake`] | the bounded buffer in front of the coordinator, and its lanes |
//! | [`scanner`] | recovery: whatever has not ended is taken up again, for ever |
//! | [`assets`] | the assets as the database has them, at hand |
//! | [`operator`] | what a person may do with a transfer that is stuck |
//! | [`audit`] | the two ends held against each other |
//! | [`id_maker`] | the lease on a node number that ids are made with |
//! | [`metrics`] | counters |
//!
//! **Only an explicit refusal sends money back.** **What is called has been committed before.** **Nothing here holds
//! money in memory**: a process that dies loses the answers it owed, and nothing else.

pub mod assets;
pub mod audit;
pub mod coordinator;
pub mod create;
pub mod intake;
mod update;
pub mod leg;
pub mod metrics;
pub mod id_maker;
pub mod operator;
mod round;
pub mod scanner;
pub mod settings;

pub use assets::Assets;
pub use coordinator::{Coordinator, CoordinatorError};
pub use create::{Begin, Created, Wish};
pub use intake::{Desk, DeskError, DeskSettings};
pub use metrics::Metrics;
pub use id_maker::Node;
pub use settings::Settings;
