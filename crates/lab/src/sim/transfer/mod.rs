//! Transfers under a seeded scheduler that crashes every part of them, while the laws (docs/laws.md) are checked.
//!
//! | module | holds |
//! |---|---|
//! | [`run`] | the scheduler: which task runs next |
//! | `trouble` | what goes wrong around the processes meanwhile |
//! | `ground` | what a run begins with |
//! | `world` | what all share: the clock, chance, the engine, the clients |
//! | `process` | a process with its coordinator and its tasks, until it is killed |
//! | `database`, `line`, `engine` | a database that fails, a line that loses, an engine that crashes |
//! | `clients` | what clients were told |
//! | `laws` | what holds at every moment |
//! | `proof` | what holds of everything that was recorded |
//! | [`report`] | what happened, counted |
//!
//! The coordinator, the scanner, the legs, the SQL on a SQLite file and the spot engine are the real ones. **The run is
//! a function of the seed**: no task waits for a thing that the scheduler does not decide.

mod clients;
mod database;
mod engine;
mod ground;
mod laws;
mod line;
mod process;
mod proof;
pub mod report;
pub mod run;
mod trouble;
mod world;

use super::turn;

pub use report::Report;
pub use run::{SimError, run};
