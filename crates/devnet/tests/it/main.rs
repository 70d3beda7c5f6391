//! The devnet, held against real nodes and driven by other people's clients.
//!
//! Tests whose name holds `anvil` or `bitcoind` start the real node, whose path is in `BURSAR_TEST_ANVIL` and
//! `BURSAR_TEST_BITCOIND` (`./test` sets both). Tests whose name holds `foreign` drive the devnet with a client that
//! others have written, from the folder `BURSAR_TEST_NODE_MODULES`, or with the Python in `BURSAR_TEST_PYTHON`.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod cases_bitcoin;
mod cases_evm;
mod cases_tron;
mod control;
mod devnet_bitcoin;
mod devnet_evm;
mod devnet_tron;
// The same real nodes that the clients' tests start.
#[path = "../../../chain/tests/it/nodes/mod.rs"]
#[allow(dead_code, reason = "the clients' tests ask more of a node than these do")]
mod nodes;
