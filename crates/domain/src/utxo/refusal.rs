//! Why an event of a Bitcoin wallet is refused.

use super::types::{ChainSize, Hash, Network, OutPoint, Path, Status};

/// Why nothing was changed. Each has a page in `docs/errors/`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UtxoRefusal {
    #[error("there is no such wallet")]
    UnknownWallet,
    #[error("the wallets of this database are on the network {}", .0.name())]
    OtherNetwork(Network),
    #[error("the script {0} belongs to another wallet or account already")]
    AddressTaken(String),
    #[error("another script of account {account} has the path {}/{}", .path.branch, .path.index)]
    PathTaken { account: u32, path: Path },
    #[error("the script {script} has the path {}/{} already", .path.branch, .path.index)]
    OtherPath { script: String, path: Path },
    #[error("the block does not follow on the last one{}", .0.map_or(String::new(), |(height, hash)| format!(", {height} {hash}")))]
    NotOnTip(Option<(u32, Hash)>),
    #[error("block {height} is another one than the store has")]
    OtherChain { height: u32 },
    #[error("transactions of block {pruned} were pruned; nothing below it can be undone")]
    ReorgTooDeep { pruned: u32 },
    #[error("{count} transactions depend on each other in a line longer than {most}")]
    CascadeTooDeep { count: usize, most: usize },
    #[error("the transaction makes no sense: {0}")]
    BadTransaction(&'static str),
    #[error("the wallet does not know the transaction {0}")]
    UnknownTransaction(Hash),
    #[error("an input of it is spent by {0}")]
    Conflict(Hash),
    #[error("it spends an output that the wallet holds for invalid, of {0}")]
    InvalidParent(Hash),
    #[error("it shares no input with an unconfirmed transaction of ours")]
    NothingReplaced,
    #[error("{0} is in a block and cannot be replaced")]
    Confirmed(Hash),
    #[error("the output {0} is leased to somebody else")]
    Leased(OutPoint),
    #[error("the output {outpoint} is claimed by {by}, which was broadcast and may still be mined")]
    Claimed { outpoint: OutPoint, by: Hash },
    #[error("the output {0} is not there to be leased")]
    NotSpendable(OutPoint),
    #[error("the output {outpoint} is of a coinbase that may be spent from block {from} on")]
    Immature { outpoint: OutPoint, from: u32 },
    #[error(
        "{} unconfirmed transactions of {} bytes would hang together, more than the {} of {} bytes that nodes take",
        .would.transactions, .would.bytes, .most.transactions, .most.bytes
    )]
    ChainTooLong { would: ChainSize, most: ChainSize },
    #[error("the transaction {0} is {1}")]
    NotPending(Hash, Status),
    #[error("the transaction {0} is {1}")]
    NotPublished(Hash, Status),
    #[error("the transaction {hash} is in block {height}")]
    InBlock { hash: Hash, height: u32 },
    #[error("a block has what spends the transaction {0}")]
    ChildInBlock(Hash),
    #[error("the transaction {0} is {1} and is not taken up again")]
    Ended(Hash, Status),
    #[error("it is not final: {0}")]
    NotFinal(&'static str),
    #[error("the wallet is being restored from a backup")]
    Restoring,
    #[error("a rescan holds these outputs until it has read all blocks")]
    Rescanning,
    #[error("the wallet has no such address")]
    UnknownAddress,
    #[error("a label has 1 to 500 characters")]
    BadLabel,
    #[error("the database is not empty: it has {0}")]
    NotEmpty(String),
}

impl UtxoRefusal {
    /// The name of its page in `docs/errors/`.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownWallet => "UTXO_UNKNOWN_WALLET",
            Self::OtherNetwork(_) => "UTXO_OTHER_NETWORK",
            Self::AddressTaken(_) => "UTXO_ADDRESS_TAKEN",
            Self::PathTaken { .. } | Self::OtherPath { .. } => "UTXO_PATH_TAKEN",
            Self::NotOnTip(_) | Self::OtherChain { .. } => "UTXO_NOT_ON_TIP",
            Self::ReorgTooDeep { .. } => "UTXO_REORG_TOO_DEEP",
            Self::CascadeTooDeep { .. } => "UTXO_CASCADE_TOO_DEEP",
            Self::BadTransaction(_) => "UTXO_BAD_TRANSACTION",
            Self::UnknownTransaction(_) => "UTXO_UNKNOWN_TRANSACTION",
            Self::Conflict(_) => "UTXO_CONFLICT",
            Self::InvalidParent(_) => "UTXO_INVALID_PARENT",
            Self::NothingReplaced | Self::Confirmed(_) => "UTXO_NOT_REPLACEABLE",
            Self::Leased(_) => "UTXO_LEASED",
            Self::Claimed { .. } => "UTXO_CLAIMED",
            Self::NotSpendable(_) => "UTXO_NOT_SPENDABLE",
            Self::Immature { .. } => "UTXO_IMMATURE",
            Self::ChainTooLong { .. } => "UTXO_CHAIN_TOO_LONG",
            Self::NotPending(..) => "UTXO_NOT_PENDING",
            Self::NotPublished(..) | Self::InBlock { .. } | Self::ChildInBlock(_) => "UTXO_NOT_WAITING",
            Self::Ended(..) => "UTXO_ENDED",
            Self::NotFinal(_) => "UTXO_NOT_FINAL",
            Self::Restoring => "UTXO_RESTORING",
            Self::Rescanning => "UTXO_RESCANNING",
            Self::UnknownAddress => "UTXO_UNKNOWN_ADDRESS",
            Self::BadLabel => "UTXO_BAD_LABEL",
            Self::NotEmpty(_) => "NOT_A_SCRATCH_DATABASE",
        }
    }

    /// What the reader should do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::UnknownWallet => "list them: bursar utxo balance",
            Self::OtherNetwork(_) => "all wallets of a database are on one network; use another database for another",
            Self::PathTaken { .. } | Self::OtherPath { .. } => {
                "a path leads to one script of a kind; check where the script comes from"
            }
            Self::AddressTaken(_) => "a script has one owner: another wallet, or another account of this one",
            Self::NotOnTip(_) => "bring the wallets up to the nodes' last block first: bursar utxo follow --once",
            Self::OtherChain { .. } => {
                "the source has seen another branch, or another chain; import it into a database of its own"
            }
            Self::ReorgTooDeep { .. } => "import the wallet into a new database from the node",
            Self::CascadeTooDeep { .. } => "this many unconfirmed descendants is not a usual wallet; see the page",
            Self::BadTransaction(_) => "check where the transaction came from",
            Self::UnknownTransaction(_) => "list what is there: bursar utxo list",
            Self::Conflict(_) => "replace that transaction, or choose other inputs",
            Self::InvalidParent(_) => "choose other inputs",
            Self::NothingReplaced => "keep all inputs of the transaction that is to be replaced",
            Self::Confirmed(_) => "it is done: make a new transaction",
            Self::Leased(_) => "wait until the lease ends, or choose other outputs",
            Self::Claimed { .. } => {
                "choose other outputs; it is free when a block proves that the other one cannot be mined"
            }
            Self::NotSpendable(_) => {
                "it is not the wallet's, is spent, or its transaction is no longer valid: bursar utxo list"
            }
            Self::Immature { .. } => "wait until a hundred blocks are on top of its own, or choose other outputs",
            Self::ChainTooLong { .. } => "wait for a block, or spend outputs that are in one",
            Self::NotPending(_, Status::Published) => {
                "others have it: what is in no block yet can be replaced, no more"
            }
            Self::NotPending(..) => "it has ended already: bursar utxo tx shows how",
            Self::NotPublished(_, Status::Pending) => "it was never broadcast: bursar utxo abandon",
            Self::NotPublished(..) => "it has ended already: bursar utxo tx shows how",
            Self::InBlock { .. } | Self::ChildInBlock(_) => "it is mined; there is nothing to give up",
            Self::Ended(..) => "build it anew with another fee or lock time; if it was broadcast, the mempool shows it",
            Self::NotFinal(_) => "wait until it is final: bursar utxo tx shows where it stands",
            Self::Restoring => "ask the nodes what became of it: bursar utxo follow --restore",
            Self::Rescanning => "let a follower read on; it lets go of them by itself: bursar utxo follow --node URL",
            Self::UnknownAddress => "add it first: bursar utxo address add",
            Self::BadLabel => "give 1 to 500 characters, or --clear",
            Self::NotEmpty(_) => "fill a database of its own, with nothing in it but the wallet and its addresses",
        }
    }
}
