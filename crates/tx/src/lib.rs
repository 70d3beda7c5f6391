//! Addresses, drafts, transaction bytes and what they mean, on Bitcoin, EVM chains and TRON.
//!
//! | module | holds |
//! |---|---|
//! | [`address`] | an address that is known to be valid on its chain |
//! | [`hash`] | hashes of blocks and transactions |
//! | [`derivation`] | addresses from a group's extended public key |
//! | [`fee`] | what a transaction may cost |
//! | [`transaction`] | what to pay, and what some bytes do when a chain runs them |
//! | [`evm`], [`tron`], [`bitcoin`] | for each chain: addresses, fees, building and reading bytes |
//!
//! **No network, no async, no private key.** The signer links this crate and nothing else that knows a chain, so that what it
//! signs is what it reads here. **The node never builds what we sign**: bytes are made here, and bytes that cannot be
//! explained to the last one are refused.

pub mod address;
pub mod bitcoin;
pub mod derivation;
pub mod evm;
pub mod fee;
pub mod hash;
pub mod transaction;
pub mod tron;

pub use address::{Address, BadAddress, account_of};
pub use derivation::{AccountKey, AddressPath, DerivationError, Family, Group};
pub use fee::{Fee, FeeCap};
pub use hash::{BadHash, BlockHash, BlockRef, TxHash};
pub use transaction::{BuildError, Coin, DecodeError, Draft, Input, Meaning, Payment, Slot, Unsigned};
