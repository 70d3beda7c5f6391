//! What nodes say to a transaction that is sent to them. None of it proves anything.

/// What the nodes said to a transaction that was sent to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broadcast {
    /// At least one node has taken it, or has it already.
    Taken,
    /// Every node that answered refused it. **This is not a proof**: another node may have it, or take it later.
    Refused(NodeRefusal, String),
}

/// Why a node refused, as far as its words can be understood. It helps to decide what to try next, never whether a
/// payment has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeRefusal {
    NonceTooLow,
    NonceTooHigh,
    /// It would replace another and offers too little more.
    Underpriced,
    FeeTooLow,
    InsufficientFunds,
    /// An input is spent or was never there.
    InputMissing,
    Expired,
    /// It refers to a block that the node does not have.
    BadReference,
    BadSignature,
    WrongNetwork,
    Malformed,
    /// The node can take no more now.
    Busy,
    Other,
}
