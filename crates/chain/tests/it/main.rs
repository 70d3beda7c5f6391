//! The clients, on the devnet and on real nodes.
//!
//! Tests whose name holds `anvil` or `bitcoind` start the real node, whose path is in `BURSAR_TEST_ANVIL` and
//! `BURSAR_TEST_BITCOIND` (`./test` sets both).

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod addresses;
mod bitcoin;
mod endpoint;
mod evm;
mod faults;
mod follow;
#[allow(dead_code, reason = "the devnet's tests share them and ask for more")]
mod nodes;
mod rig;
mod tron;
