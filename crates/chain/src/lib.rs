//! Bitcoin, EVM and TRON clients behind one trait, and `devnet`: the three chains in-process.
//!
//! | module | holds |
//! |---|---|
//! | [`client`] | the trait [`Chain`]: all that custody may ask of a chain |
//! | [`address`] | an address that is known to be valid on its chain |
//! | [`hash`] | hashes of blocks and transactions |
//! | [`block`] | heads, headers, and the outputs of blocks that pay watched addresses |
//! | [`transaction`] | what to pay, and what some bytes do when a chain runs them |
//! | [`fee`] | what a transaction may cost |
//! | [`status`] | what is known about a transaction that was sent |
//! | [`watch`] | the watched set: ten million addresses |
//! | [`follow`] | walks a chain block by block and finds the fork when it reorganises |
//! | `head` | where a chain ends, by all of its nodes |
//! | [`endpoint`] | several nodes per chain: failover, limits, and the read quorum |
//! | [`evm`], [`tron`], [`bitcoin`] | the three clients |
//! | [`devnet`] | three chains that can misbehave, with the real wire formats |
//!
//! **No key is ever here**, but for the public test keys of `devnet`. **Nothing here decides that a payment failed**:
//! [`status::Status`] has no such value. **No answer of a node is believed further than it proves**: what credits or
//! finalizes goes through the quorum of [`endpoint::Pool`].

pub mod address;
pub mod bitcoin;
pub mod block;
pub mod client;
pub mod devnet;
pub mod endpoint;
pub mod error;
pub mod evm;
pub mod fee;
pub mod follow;
pub mod hash;
mod head;
pub mod status;
pub mod transaction;
pub mod tron;
pub mod watch;

pub use address::{Address, BadAddress};
pub use block::{BlockRef, Coin, Head, Header, Output, Place, Scan};
pub use client::{Answer, Chain};
pub use error::ChainError;
pub use fee::{Fee, FeeCap, Quote};
pub use hash::{BlockHash, TxHash};
pub use status::{Proof, Status};
pub use transaction::{Broadcast, BuildError, DecodeError, Draft, Meaning, Payment, Refusal, Slot, Unsigned};
pub use watch::{WatchKey, Watched};
