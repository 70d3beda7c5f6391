//! What the fuzz targets of `tx` run: one function each, which takes any bytes at all.
//!
//! | module | holds |
//! |---|---|
//! | [`hash()`] | hashes as text |
//! | [`evm`], [`tron`], [`bitcoin`] | addresses, unsigned and signed transactions |
//! | `any_chain` | what a target asserts, which is the same on every chain |
//! | `budget` | the memory that a target may take; the targets of `chain` and `devnet` have the same budget |
//!
//! A target fails when it panics, when it takes too long (libFuzzer's `-timeout`), or when it allocates more than
//! [`within_budget`] allows: libFuzzer's own `-malloc_limit_mb` works only with a sanitizer, which these workspaces do
//! without. There is no unsafe code to watch in `tx`, `chain` and `devnet`, and plain builds take half of the time.

mod any_chain;
pub mod bitcoin;
mod budget;
pub mod evm;
pub mod tron;

pub use budget::within_budget;

use tx::{BlockHash, TxHash};

/// Text that is a hash is shown as the same digits.
pub fn hash(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let hash = text.parse::<TxHash>();
    assert_eq!(hash.map(|hash| hash.0), text.parse::<BlockHash>().map(|hash| hash.0));
    if let Ok(hash) = hash {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        assert!(hash.to_string().eq_ignore_ascii_case(digits));
    }
}
