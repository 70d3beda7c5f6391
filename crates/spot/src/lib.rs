//! The spot-account engine: balances in RAM behind a write-ahead log.
//!
//! | module | holds |
//! |---|---|
//! | [`operation`], [`answer`] | requests and answers, and their bytes |
//! | `state` | the state machine: pure, deterministic, with nothing that can fail |
//! | [`log`] | the write-ahead log: format, writing, reading back |
//! | [`snapshot`] | the state in a file, and the recovery that both start-up and snapshots are made of |
//! | `core` | a batch: answer in memory, make durable, let the answers go |
//! | [`service`] | the writer's thread, the handle on it, snapshots in the background |
//! | [`net`] | the same over TCP: server and client |
//! | [`storage`] | what the engine needs of a disk |
//! | [`tools`] | reading and checking a log without starting an engine on it |
//! | `sim` | with the feature `sim`: a disk that lies and a plain model, for tests and for the simulator in `lab` |
//!
//! **An answer is a promise**: it leaves the engine only when everything that it relies on is on the disk. **After a
//! failed write the engine answers nothing any more.**

pub mod answer;
mod core;
pub mod error;
mod ids;
pub mod log;
pub mod net;
pub mod operation;
pub mod service;
#[cfg(feature = "sim")]
pub mod sim;
pub mod snapshot;
mod state;
pub mod storage;
mod table;
pub mod tools;

pub use answer::{Answer, Balance, Decision, PairStanding, SpotRefusal, Standing};
pub use core::{Core, SUBMISSION_MAX, Settings, Started};
pub use error::SpotError;
pub use operation::{Mark, Move, OpId, Operation, Request, Settle};
pub use service::{Engine, NoAnswer};
pub use state::{Pairing, State};
pub use storage::Storage;
pub use storage::disk::Disk;
