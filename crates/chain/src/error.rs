//! What goes wrong between us and a chain's nodes. None of it says anything about a transaction.

use crate::endpoint::CallError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("no node could be asked")]
    Unreachable(#[source] CallError),
    #[error("a node refused the call")]
    Refused(#[source] CallError),
    #[error("the nodes do not agree: {agreed} of the {wanted} needed say the same")]
    NoQuorum { wanted: usize, agreed: usize },
    #[error("the block is not there, or not any more")]
    BlockMissing { height: u64 },
    /// A node has the block's header and not the block: it is pruned, or has not got it yet. Asking again does not help.
    #[error("no node that was asked keeps block {height}: {said}")]
    BlockNotKept { height: u64, said: String },
    /// No node that was asked shows a block whose content hashes to the header that a quorum has.
    #[error("block {height} could not be proven: {why}")]
    BlockNotProven { height: u64, why: String },
    /// A block holds what cannot be hashed here. Whoever shows it may be honest.
    #[error("block {height} cannot be hashed: {why}")]
    BlockNotUnderstood { height: u64, why: String },
    #[error("the nodes serve {found}, not {wanted}")]
    WrongNetwork { wanted: String, found: String },
    #[error("an address of another chain was given")]
    ForeignAddress,
}

impl ChainError {
    /// When no node gave an answer, and this is what one of them said: a no in words is a refusal, anything else is silence.
    pub(crate) const fn of_call(error: CallError) -> Self {
        match error {
            CallError::Refused { .. } | CallError::Lacks { .. } => Self::Refused(error),
            CallError::Unreachable { .. }
            | CallError::Timeout { .. }
            | CallError::TooLong { .. }
            | CallError::BadAnswer { .. }
            | CallError::RateLimited { .. }
            | CallError::Credentials { .. } => Self::Unreachable(error),
        }
    }

    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "CHAIN_UNREACHABLE",
            Self::Refused(_) => "CHAIN_CALL_REFUSED",
            Self::NoQuorum { .. } => "CHAIN_NO_QUORUM",
            Self::BlockMissing { .. } => "CHAIN_BLOCK_MISSING",
            Self::BlockNotKept { .. } => "CHAIN_BLOCK_NOT_KEPT",
            Self::BlockNotProven { .. } => "CHAIN_BLOCK_NOT_PROVEN",
            Self::BlockNotUnderstood { .. } => "CHAIN_BLOCK_NOT_UNDERSTOOD",
            Self::WrongNetwork { .. } => "CHAIN_WRONG_NETWORK",
            Self::ForeignAddress => "ADDRESS_WRONG_NETWORK",
        }
    }
}
