//! What the fuzz targets of `chain` run: one function each, which takes any bytes at all. `tx-fuzz` says when a target
//! fails.
//!
//! | module | holds |
//! |---|---|
//! | [`watch`] | scripts and the watched set |
//! | [`node`] | a node on loopback that answers with the fuzzer's bytes, and JSON-RPC read from it |
//! | [`evm`], [`tron`], [`bitcoin`] | the whole client on such a node |
//! | `client` | the questions, which are the same on every chain |
//! | [`record`] | writes a corpus of what clients and devnets say to each other |

pub mod bitcoin;
mod client;
pub mod evm;
pub mod node;
pub mod record;
pub mod tron;
pub mod watch;
