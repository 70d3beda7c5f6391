//! Transfers under a scheduler that crashes everything, from a seed, held against the laws.
//!
//! | module | holds |
//! |---|---|
//! | [`run`] | the scheduler: who runs next |
//! | `trouble` | what goes wrong around them meanwhile |
//! | `ground` | what a run begins with |
//! | `turn` | whose turn it is |
//! | `world` | what all share: the clock, chance, the engine, the clients |
//! | `process` | a process with its coordinator and its tasks, until it is killed |
//! | `database`, `line`, `engine` | a database that fails, a line that loses, an engine that crashes |
//! | `clients` | what clients were told |
//! | `laws` | what holds at every moment |
//! | `proof` | what holds of everything that was recorded |
//! | [`report`] | what happened, counted |
//!
//! Real are the coordinator, the scanner, the legs' answers, the SQL on a SQLite file and the spot engine. **The run is a
//! function of the seed**: nothing waits for a thing that the scheduler does not decide.

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
mod turn;
mod world;

pub use report::Report;
pub use run::{SimError, run};
