//! Payments that leave and coins that come home, under a seeded scheduler: three chains that reorganise, spike and halt, nodes that fail and lie, a
//! signer that is away or whose answer is lost, workers that die at any moment, and a judge that counts payments on the chains themselves.
//!
//! | module | holds |
//! |---|---|
//! | [`run`] | the scheduler: what happens next |
//! | `around` | blocks, branches, nodes, prices, thieves and strangers |
//! | `people` | users and payouts; what rules have made is noticed |
//! | `withdrawals` | customers who want to be paid out, people who let them, and what must be true of it |
//! | `laws` | rests: everything comes to its end, and is held against the chains |
//! | `model` | the chains as they are: blocks, pools, prices, and what each destination was paid |
//! | `coins` | the same of Bitcoin: outputs, and what takes whose place in a pool |
//! | `blocks` | what nodes show of blocks and balances |
//! | `treasury` | what may move between wallets of ours, as the chains have it |
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
//! branch. What moves between wallets of ours was asked for by a job, once, from that wallet to that one; and each such job had a reason when it was
//! made: gas for an address with something to sweep and without gas on the way, a sweep of coins that are there for good. At rest every job has
//! ended, what is confirmed was paid once, what failed was not paid, every fee is known, users' addresses are swept, hot wallets are within their
//! bands, every wallet has what its entries say,
//! and every customer has what the withdrawals that were paid have left.

mod around;
mod blocks;
mod client;
mod coins;
mod follower;
mod ground;
mod laws;
mod model;
mod pen;
mod people;
mod process;
pub mod report;
pub mod run;
mod treasury;
mod withdrawals;
mod world;

pub use report::Report;
pub use run::{SimError, run};
