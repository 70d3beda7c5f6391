//! The spot-account engine: balances in RAM behind a write-ahead log.
//!
//! | module | holds |
//! |---|---|
//! | [`operation`], [`answer`] | what can be asked, what is answered, and their bytes |
//! | [`state`] | the state machine: pure, deterministic, with nothing that can fail |
//! | [`log`] | the write-ahead log: format, writing, reading back |
//! | [`snapshot`] | the state in a file, and the recovery that both start-up and snapshots are made of |
//! | [`core`] | a batch: answer in memory, make durable, let the answers go |
//! | [`service`] | the writer's thread, the handle that everyone else holds, snapshots in the background |
//! | [`net`] | the same over TCP: server and client |
//! | [`storage`] | what is asked of a disk |
//! | [`tools`] | reading a log without running it |
//! | [`sim`] | a disk that lies, a simple model, and the seeded simulation that compares the two |
//!
//! **An answer is a promise**: it leaves only after what it says is on the disk. **After a failed write nothing is
//! answered any more.**

pub mod answer;
pub mod core;
pub mod error;
mod ids;
pub mod log;
pub mod net;
pub mod operation;
pub mod service;
pub mod sim;
pub mod snapshot;
pub mod state;
pub mod storage;
mod table;
pub mod tools;

pub use answer::{Answer, Balance, Decision, SpotRefusal, Standing};
pub use core::{Core, SUBMISSION_MAX, Settings, Started};
pub use error::SpotError;
pub use operation::{Move, OpId, Operation, Request, Settle};
pub use service::{Engine, NoAnswer};
pub use storage::Storage;
pub use storage::disk::Disk;
