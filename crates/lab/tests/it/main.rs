//! The simulators under test: whole parts of Bursar crash at any moment, and their laws hold.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod custody_sim;
mod deposits_sim;
mod spot_sim;
mod transfer_sim;
