//! Payments that leave: jobs, the slots that they are signed for, and when they are tried again.
//!
//! | | |
//! |---|---|
//! | decides | which state follows, which nonce is next, which are gaps, what a slot's end means for its jobs, when to offer more, when payouts that gather go |
//! | knows nothing of | nodes, keys, rows, clocks |

mod fate;
mod gather;
mod job;
mod kind;
mod limits;
mod nonces;
mod urge;

pub use fate::{Effect, SlotWord, fate};
pub use gather::{Gathering, goes};
pub use job::{Illegal, JobEvent, JobState, MOST_TRIES, pause_micros};
pub use kind::JobKind;
pub use limits::OutboundLimits;
pub use nonces::{Nonces, Room};
pub use urge::{Urge, Wait};
