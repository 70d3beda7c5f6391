//! Payments that leave: jobs, the slots that they are signed for, and when they are tried again.
//!
//! | | |
//! |---|---|
//! | decides | which state follows, which nonce is next, which are gaps, how long to wait |
//! | knows nothing of | nodes, keys, rows, clocks |

mod job;
mod nonces;

pub use job::{Illegal, JobEvent, JobState, MOST_TRIES, pause_micros};
pub use nonces::{Nonces, Room};
