//! Several nodes per chain: failover, limits, and the read quorum.
//!
//! A *procedure* is what a client wants to know from one node, in one or more calls. [`Pool::any`] runs it on one node
//! and goes to another when that fails; [`Pool::agree`] runs it on several until enough of them say the same;
//! [`Pool::each`] runs it on all, and [`Pool::each_soon`] on all without waiting for those that hang. A procedure reads: it may run on more nodes than were needed for the answer.
//!
//! | module | holds |
//! |---|---|
//! | `pool` | the nodes of one chain, which of them to ask, `any` and `each` |
//! | `agree` | the read quorum |
//! | `node` | one node: address, credentials, one call |
//! | [`json_rpc`] | JSON-RPC 2.0 on a node, single and batched |
//! | `standing` | what is known of a node: latency, failures, height, why it is set aside |
//! | `pace` | time that never runs backwards, calls per second, the budget of retries |
//! | `event` | what the outside hears of all this |
//!
//! **An address is shown nowhere**: it may hold a provider's key. Settings, nodes, errors and events show the name.
//! **No lock is held over an await.** **Nothing that a node sends is kept without bound.**

mod agree;
mod event;
pub mod json_rpc;
mod node;
mod pace;
mod pool;
mod standing;

pub(crate) use agree::ahead;
pub use event::{Event, Health, Why};
pub use node::{EndpointSettings, Node, Reply};
pub use pool::{Pool, PoolSettings};

/// What one call of one node came to, when it did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("{endpoint} could not be reached, or hung up")]
    Unreachable { endpoint: String },
    #[error("{endpoint} did not answer in time")]
    Timeout { endpoint: String },
    #[error("{endpoint} wants fewer calls")]
    RateLimited { endpoint: String },
    #[error("{endpoint} refused our credentials")]
    Credentials { endpoint: String },
    #[error("{endpoint} gave an answer that is longer than {most} bytes")]
    TooLong { endpoint: String, most: usize },
    #[error("{endpoint} gave an answer that cannot be: {what}")]
    BadAnswer { endpoint: String, what: String },
    /// The node is well and has no such thing: not this method, or not so old a state, or not this block. Another may.
    #[error("{endpoint} does not have it: {what}")]
    Lacks { endpoint: String, what: String },
    /// The node understood, and said no. It is as good as any other answer, and no reason to ask another node.
    #[error("{endpoint} says {code}: {message}")]
    Refused { endpoint: String, code: i64, message: String },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    #[error("the address of {name} must be http://… or https://… without a query, a fragment or a password")]
    Url { name: String },
    #[error("the credentials of {name} have characters that no header can have, or a header that is not theirs")]
    Credentials { name: String },
    #[error("{quorum} of {endpoints} nodes are no quorum: it takes more than half of them, and no more than all")]
    Quorum { quorum: usize, endpoints: usize },
    /// A node that counts twice would make a quorum of itself.
    #[error("{name} is there twice, by its name or by its address")]
    Twice { name: String },
}
