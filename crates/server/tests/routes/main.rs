//! The HTTP interface as a stranger meets it: the real server on a real port, over a real database and a real spot
//! engine. Files are named after what they ask for.
//!
//! **What is refused changes nothing**: every test that is told no looks at the books of everybody, before and after.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod bad_input;
mod balances;
mod batch;
mod client;
mod health;
mod internal_transfer;
mod list;
mod openapi;
mod order;
mod rules;
mod shutdown;
mod snapshots;
mod support;
mod tokens;
mod transfer_alias;
