//! The `bursar` command: configuration and commands.
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | the command line, and which command runs what |
//! | [`commands`] | one file per command |
//! | [`roles`] | what runs for ever: the workers of chains |
//! | [`chains`] | a client of each chain that is followed, from the database's rows and the configured nodes |
//! | [`pins`] | the wallets that the treasury file pins, and whether the database has the same ones |
//! | [`treasury`] | the declarative file of `bursar apply` |
//! | [`logs`] | where events go, and which |
//! | [`config`] | one TOML file plus `BURSAR_…` variables; unknown keys are errors with a suggestion |
//! | [`paths`] | the settings that name files: where relative ones begin, and what each file must be like |
//!
//! Each module uses only those below it; `tests/architecture.rs` holds that.
//!
//! The feature `lab`, which is on by default, adds the commands that prove and measure: `demo`, `devnet`, `sim`, `chaos`,
//! `bench`, `with-postgres`, `load` and `drill`. A build without it (`--no-default-features`) is the one for production.

pub mod chains;
pub mod cli;
pub mod commands;
pub mod config;
pub mod logs;
pub mod paths;
pub mod pins;
pub mod roles;
pub mod treasury;

use std::process::ExitCode;

/// Everything behind `main`.
pub fn run() -> ExitCode {
    cli::run()
}
