//! Bitcoin wallets: the outputs that pay us, the transactions that make and spend them, and what each event does to
//! them.
//!
//! | module | holds |
//! |---|---|
//! | `types` | transactions, blocks, outputs, statuses |
//! | `refusal` | why nothing was changed |

mod refusal;
mod types;

pub use refusal::UtxoRefusal;
pub use types::*;

/// How long a line of transactions, each spending the one before, is followed. Nodes relay lines of 25, so a line of
/// this many is a fault of the source that we read.
pub const MOST_GENERATIONS: usize = 5_000;
