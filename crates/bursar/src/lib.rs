//! The `bursar` command: configuration, commands, the demo, the benches.
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | the command line, and which command runs what |
//! | [`config`] | one TOML file plus `BURSAR_…` variables; unknown keys are errors with a suggestion |
//! | [`treasury`] | the declarative file of `bursar apply` |
//! | [`commands`] | one file per command |
//! | [`demo`] | first success: a treasury that runs by itself |
//! | [`sim`] | seeded simulations: crashes, faults, and a model that must agree |
//! | [`bench`] | speed, as a ratio to a yardstick measured in the same run |
//! | [`load`] | many clients over HTTP, every answer looked at |
//! | [`rig`] | a whole Bursar in processes of its own, and customers who keep their own records |
//! | [`chaos`] | the rig under load while its parts are killed |
//! | [`postgres`] | a private PostgreSQL server in a temporary folder |
//! | [`failure`] | what a command that fails says, and its exit code |
//!
//! **Only this crate reads the machine's clock** (`clock.rs`).

pub mod bench;
pub mod chaos;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
pub mod demo;
pub mod failure;
pub mod load;
pub mod output;
pub mod postgres;
pub mod rig;
pub mod sim;
pub mod treasury;

use std::process::ExitCode;

/// Everything behind `main`.
pub fn run() -> ExitCode {
    cli::run()
}
