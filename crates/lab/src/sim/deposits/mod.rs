//! Deposits under a seeded scheduler: two chains whose nodes fail, lie and contradict each other, workers that die at any moment,
//! and a judge whose books are the chains themselves.
//!
//! | module | holds |
//! |---|---|
//! | [`run`] | the scheduler: what happens next |
//! | `trouble` | what happens around the workers |
//! | `people` | what people do on the chains |
//! | `model`, `net` | the chains as they are: blocks, branches, and nodes that follow as they can |
//! | `answers`, `client` | what the nodes answer, truly or not, and how a worker hears it |
//! | `owner` | which addresses are ours, and what a transaction does to them |
//! | `ground` | what a run begins with |
//! | `world` | what all share: the clock, chance, the chains |
//! | `database` | a database that fails |
//! | `process` | a process with one worker, until it is killed |
//! | `judge` | what must hold at every moment, and at rest |
//! | [`report`] | what happened, counted |
//!
//! The worker, the store with its SQL on a SQLite file, the ledger and the derivation of addresses are the real ones. **The run is a
//! function of the seed.** The nodes are not: an HTTP call has no turn that a scheduler could give. What the clients of `chain` make
//! of real answers is tested on the devnets and on real nodes; here stands what [`chain::Chain`] promises.
//!
//! Bitcoin is left out: its blocks come through the wallet store, which has tests of its own.

mod answers;
mod client;
mod database;
mod ground;
mod judge;
mod model;
mod net;
mod owner;
mod people;
mod process;
pub mod report;
pub mod run;
mod trouble;
mod world;

pub use report::Report;
pub use run::{SimError, run};
