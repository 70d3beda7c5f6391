//! Bytes against bytes: the golden vectors of other people's libraries, and what is built here read back.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod bitcoin;
mod bitcoin_vectors;
mod evm_vectors;
mod tron;
