//! How a command speaks: failures with a code and a hint, tables, and the machine's clock.
//!
//! | module | holds |
//! |---|---|
//! | [`failure`] | what a command that fails says, and its exit code |
//! | [`output`] | printing that survives a closed pipe, tables, numbers for people |
//! | [`audit`] | an audit as JSON, as a table, and as a failure |
//! | [`duration`] | times as a person types them |
//! | [`files`] | files that an operator names |
//! | [`prompt`] | what a person types at the terminal, unseen |
//! | [`entropy`] | **the only place that reads the system's random bytes** |
//! | [`clock`] | **the only place that reads the machine's clock** |

pub mod audit;
pub mod clock;
pub mod duration;
pub mod entropy;
mod exit;
pub mod failure;
pub mod files;
pub mod output;
pub mod prompt;
