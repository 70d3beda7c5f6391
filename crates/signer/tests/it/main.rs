//! Integration tests of the signer.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod approvals;
mod crashes;
mod faulty;
mod mutations;
mod policies;
mod readings;
mod slots;
mod windows;
mod world;
