//! The HTTP interface as a client meets it: the real server on a real port, over a real database and a real spot engine.
//! Files are named after the paths and rules that they test.
//!
//! **A refused request changes nothing**: every test of a refusal compares the books of all users before and after.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod alerts;
mod assets;
mod bad_http;
mod bad_input;
mod balances;
mod batch;
mod client;
mod connections;
mod deposit_address;
mod deposits;
mod health;
mod internal_transfer;
mod list;
mod logs;
mod openapi;
mod operators;
mod order;
mod rules;
mod shutdown;
mod signer_alert;
mod snapshots;
mod support;
mod tokens;
mod transfer_alias;
mod withdrawal_intake;
mod withdrawals;
