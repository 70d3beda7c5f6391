//! The simulators under test: whole parts of Bursar crash at any moment, and their laws hold.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod deposits_sim;
mod spot_sim;
mod transfer_sim;
