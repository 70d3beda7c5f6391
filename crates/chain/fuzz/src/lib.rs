//! What the fuzz targets run: one function each, which takes any bytes at all.
//!
//! | module | holds |
//! |---|---|
//! | [`plain`] | hashes, scripts, the watched set |
//! | [`node`] | a node on loopback that answers with the fuzzer's bytes, and JSON-RPC read from it |
//! | `evm`, `tron`, `bitcoin` | addresses, unsigned and signed transactions, and the whole client on such a node |
//! | `devnet` | the three models, asked anything |
//! | `record` | writes a corpus of what clients and devnets say to each other |
//!
//! A target fails when it panics, when it takes too long (libFuzzer's `-timeout`), or when it allocates more than its
//! [`budget`]: libFuzzer's own `-malloc_limit_mb` works only with a sanitizer, which this does without. There is no
//! unsafe code to watch in `chain`, and plain builds take half of the time.

mod budget;
#[cfg(any(feature = "bitcoin", feature = "evm", feature = "tron"))]
mod client;
pub mod node;
pub mod plain;
#[cfg(all(feature = "bitcoin", feature = "evm", feature = "tron"))]
pub mod record;

#[cfg(feature = "bitcoin")]
pub mod bitcoin;
#[cfg(any(feature = "bitcoin", feature = "evm", feature = "tron"))]
pub mod devnet;
#[cfg(feature = "evm")]
pub mod evm;
#[cfg(feature = "tron")]
pub mod tron;

pub use budget::within_budget;
