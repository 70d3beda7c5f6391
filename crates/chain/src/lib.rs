//! Bitcoin, EVM and TRON nodes behind one trait. What is paid and how its bytes read is in [`tx`].
//!
//! | module | holds |
//! |---|---|
//! | [`client`] | the trait [`Chain`]: all that custody may ask of a chain |
//! | [`block`] | heads, headers, what blocks pay to watched addresses and take from them |
//! | [`broadcast`] | what nodes say to a transaction that is sent to them |
//! | [`status`] | what is known about a transaction that was sent |
//! | [`survey`] | what each node of a chain says and serves |
//! | [`watch`] | the watched set: ten million addresses |
//! | [`follow`] | walks a chain block by block and finds the fork when it reorganises |
//! | `head` | where a chain ends, by all of its nodes |
//! | `proof` | holds what one node shows of a block against what a quorum has |
//! | [`endpoint`] | several nodes per chain: failover, limits, and the read quorum |
//! | [`evm`], [`tron`], [`bitcoin`] | the three clients |
//!
//! **No key is ever here.** **Nothing here decides that a payment failed**:
//! [`status::Status`] has no such value. **No answer of a node is believed further than it proves**: what credits or
//! finalizes goes through the quorum of [`endpoint::Pool`].

pub mod bitcoin;
pub mod block;
pub mod broadcast;
pub mod client;
pub mod endpoint;
pub mod error;
pub mod evm;
pub mod follow;
mod head;
mod proof;
pub mod status;
pub mod survey;
pub mod tron;
pub mod watch;

pub use block::{Head, Header, Output, Place, Scan, Spend};
pub use broadcast::{Broadcast, NodeRefusal};
pub use client::{Answer, Answers, Chain, Quote, QuoteRequest};
pub use error::ChainError;
pub use status::{Proof, Status};
pub use survey::{Feature, Has, NodeReport};
pub use watch::{WatchKey, Watched};
