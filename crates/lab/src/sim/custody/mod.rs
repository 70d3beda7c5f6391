//! Payments that leave, under a seeded scheduler: three chains that reorganise, spike and halt, nodes that fail and lie, a signer that is away
//! or whose answer is lost, workers that die at any moment, and a judge that counts payments by destination on the chains themselves.
//!
//! | module | holds |
//! |---|---|
//! | [`run`] | the scheduler: what happens next |
//! | `model` | the chains as they are: blocks, pools, prices, and what each destination was paid |
//! | `coins` | the same of Bitcoin: outputs, and what takes whose place in a pool |
//! | `follower` | Bitcoin's wallet store is shown its chain |
//! | `ground` | what a run begins with |
//! | `client` | how a worker hears of them |
//! | `pen` | the signer's own core, and how it fails |
//! | `process` | a process with one worker, until it is killed; a database that fails |
//! | `world` | what all share: the clock, chance, the chains |
//! | [`report`] | what happened, counted |
//!
//! The workers, the store with its SQL on a SQLite file, the signer's policy, slots and log, and the bytes of transactions are the real ones. **The
//! run is a function of the seed.** Each job has a destination of its own: two payments to one are a job that was paid twice, on whatever
//! branch. At rest every job has ended, what is confirmed was paid once, what failed was not paid, and every fee is known.

mod client;
mod coins;
mod follower;
mod ground;
mod model;
mod pen;
mod process;
pub mod report;
pub mod run;
mod world;

pub use report::Report;
pub use run::{SimError, run};
