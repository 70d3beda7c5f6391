//! What comes in and goes out, and what is refused.

use std::fmt;

use domain::Timestamp;

use crate::error::StoreError;

/// A transaction's or block's hash, in the order in which it is printed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::str::FromStr for Hash {
    type Err = BadHash;

    fn from_str(text: &str) -> Result<Self, BadHash> {
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or(BadHash)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(bytes))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 hexadecimal digits")]
pub struct BadHash;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalletId(pub i64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtxoId(pub i64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutPoint {
    pub hash: Hash,
    pub index: u32,
}

impl fmt::Display for OutPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.hash, self.index)
    }
}

/// The holder of leases: chosen by the caller, one for each piece of work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockId(pub [u8; 32]);

/// Text and value of an enumeration that is stored as text.
macro_rules! stored_as_text {
    ($(#[$doc:meta])* $Name:ident { $($(#[$variant_doc:meta])* $Variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Name { $($(#[$variant_doc])* $Variant),* }

        impl $Name {
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];

            pub const fn text(self) -> &'static str {
                match self { $(Self::$Variant => $text),* }
            }

            pub fn of_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$Variant),)* _ => None }
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.text())
            }
        }
    };
}

stored_as_text! {
    Network {
        Bitcoin = "bitcoin",
        Testnet = "testnet",
        Testnet4 = "testnet4",
        Signet = "signet",
        Regtest = "regtest",
    }
}

impl Network {
    /// What people call it, in the treasury file too. The rows have the names of `002`, where the first one is `bitcoin`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bitcoin => "mainnet",
            Self::Testnet | Self::Testnet4 | Self::Signet | Self::Regtest => self.text(),
        }
    }

    /// By what people call it, or by its name in the rows.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|network| network.name() == name || network.text() == name)
    }
}

stored_as_text! {
    /// What it takes to spend from an address.
    AddressKind {
        P2wpkh = "p2wpkh",
        P2tr = "p2tr",
        /// Seen and counted, not selected.
        Other = "other",
    }
}

stored_as_text! {
    WalletStatus {
        Active = "active",
        /// A backup was put back: nothing is selected until the node was asked what is unconfirmed.
        Restoring = "restoring",
    }
}

stored_as_text! {
    /// `Pending` and `Published` transactions are valid, the others are history.
    Status {
        Pending = "pending",
        Published = "published",
        Replaced = "replaced",
        Failed = "failed",
        Orphaned = "orphaned",
    }
}

impl Status {
    pub const fn is_valid(self) -> bool {
        match self {
            Self::Pending | Self::Published => true,
            Self::Replaced | Self::Failed | Self::Orphaned => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wallet {
    pub id: WalletId,
    pub name: String,
    pub network: Network,
    pub status: WalletStatus,
    /// From this block on the chain was not read for all of its addresses.
    pub unread_from: Option<u32>,
}

/// The end of a derivation path: `branch` is 0 for receiving, 1 for change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    pub branch: u8,
    pub index: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAddress {
    pub account: u32,
    pub path: Option<Path>,
    pub kind: AddressKind,
    pub script: Vec<u8>,
}

/// What to do with a path that another script has, or a script that has another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// All of it is refused: two keys were mixed up.
    Exact,
    /// A wallet had several keys in turn. The first one with the path keeps it; the other script is watched, and
    /// nothing is spent from it.
    WhereFree,
}

/// What became of addresses that were given; the others were there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    pub new: usize,
    /// They were there without a path, and have it now.
    pub learned: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub height: u32,
    pub hash: Hash,
    pub parent: Hash,
    /// Seconds since 1970, as its header says.
    pub time: u32,
}

/// A transaction as the chain or a builder shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTx {
    pub hash: Hash,
    pub raw: Vec<u8>,
    pub coinbase: bool,
    /// Empty for a coinbase.
    pub inputs: Vec<OutPoint>,
    pub outputs: Vec<NewOutput>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOutput {
    pub script: Vec<u8>,
    /// Satoshi.
    pub amount: i64,
}

/// A coinbase is spendable with this many blocks above it. Consensus asks for one less; Bitcoin Core's wallet waits as
/// we do.
pub const COINBASE_MATURITY: u32 = 100;

/// A block with this many others on top is final: nothing in it is undone any more.
pub const FINAL_DEPTH: u32 = COINBASE_MATURITY;

pub const fn is_mature(coinbase_height: u32, tip: u32) -> bool {
    tip >= coinbase_height && tip - coinbase_height >= COINBASE_MATURITY
}

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
    #[error("the output {0} is not there to be leased")]
    NotSpendable(OutPoint),
    #[error("the transaction {0} is {1}")]
    NotPending(Hash, Status),
    #[error("the transaction {0} is {1} and is not taken up again")]
    Ended(Hash, Status),
    #[error("it is not final: {0}")]
    NotFinal(&'static str),
    #[error("the wallet is being restored from a backup")]
    Restoring,
    #[error("the wallet has no such address")]
    UnknownAddress,
    #[error("a label has 1 to 500 characters")]
    BadLabel,
    #[cfg(feature = "lab")]
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
            Self::NotSpendable(_) => "UTXO_NOT_SPENDABLE",
            Self::NotPending(..) => "UTXO_NOT_PENDING",
            Self::Ended(..) => "UTXO_ENDED",
            Self::NotFinal(_) => "UTXO_NOT_FINAL",
            Self::Restoring => "UTXO_RESTORING",
            Self::UnknownAddress => "UTXO_UNKNOWN_ADDRESS",
            Self::BadLabel => "UTXO_BAD_LABEL",
            #[cfg(feature = "lab")]
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
            Self::NotSpendable(_) => {
                "it is not the wallet's, is spent, or its transaction is no longer valid: bursar utxo list"
            }
            Self::NotPending(_, Status::Published) => {
                "others have it: what is in no block yet can be replaced, no more"
            }
            Self::NotPending(..) => "it has ended already: bursar utxo tx shows how",
            Self::Ended(..) => "build it anew with another fee or lock time; if it was broadcast, the mempool shows it",
            Self::NotFinal(_) => "wait until it is final: bursar utxo tx shows where it stands",
            Self::Restoring => "ask the nodes what became of it: bursar utxo follow --restore",
            Self::UnknownAddress => "add it first: bursar utxo address add",
            Self::BadLabel => "give 1 to 500 characters, or --clear",
            #[cfg(feature = "lab")]
            Self::NotEmpty(_) => "fill a database of its own, with nothing in it but the wallet and its addresses",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum UtxoError {
    #[error(transparent)]
    Refused(#[from] UtxoRefusal),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl UtxoError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Store(error) => error.code(),
        }
    }

    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.hint(),
            Self::Store(error) => error.hint(),
        }
    }
}

// ---- outputs as they are read ------------------------------------------------------------------------------

/// An output that a selection may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: UtxoId,
    pub amount: i64,
    pub kind: AddressKind,
    /// Whether it is in a block. If not it is our own change, or the caller asked for more.
    pub confirmed: bool,
}

/// An output with all that a transaction needs to spend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coin {
    pub id: UtxoId,
    pub outpoint: OutPoint,
    pub amount: i64,
    pub kind: AddressKind,
    pub script: Vec<u8>,
    pub account: u32,
    pub path: Option<Path>,
}

/// What a selection may use besides confirmed and mature outputs and our own published change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Change of transactions that were not broadcast yet: zero-latency chaining.
    pub pending: bool,
    /// Outputs of other people's unconfirmed transactions.
    pub unconfirmed_foreign: bool,
}

/// Satoshi. Immature and leased outputs are in `confirmed` or `unconfirmed` as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    pub confirmed: i64,
    pub unconfirmed: i64,
    /// Of `confirmed`: coinbases that may not be spent yet.
    pub immature: i64,
    /// Of both: outputs under a lease.
    pub leased: i64,
    pub outputs: i64,
}

// ---- what an event has changed -----------------------------------------------------------------------------

/// Empty: the event was nothing new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub transactions: Vec<TxChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxChange {
    pub wallet: WalletId,
    pub hash: Hash,
    pub status: Status,
    pub height: Option<u32>,
    pub reason: &'static str,
}

/// A transaction that another wallet's history says to be in a block (height, hash, time), or in none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub tx: NewTx,
    pub block: Option<(u32, Hash, u32)>,
    /// It is in no block, and its source says that another one took its inputs, or those of a transaction that it
    /// spends.
    pub lost: bool,
}

// ---- lists and details -------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListFilter {
    pub account: Option<u32>,
    pub unspent_only: bool,
    /// Begin after this one.
    pub after: Option<UtxoId>,
    pub most: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRow {
    pub id: UtxoId,
    pub outpoint: OutPoint,
    pub amount: i64,
    pub account: u32,
    pub kind: AddressKind,
    pub script: Vec<u8>,
    pub path: Option<Path>,
    pub label: Option<String>,
    /// Of the transaction that made it.
    pub status: Status,
    pub height: Option<u32>,
    pub coinbase: bool,
    pub spent_by: Option<Hash>,
    /// While it is under a lease.
    pub leased_until: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    pub id: UtxoId,
    pub outpoint: OutPoint,
    pub amount: i64,
    pub account: u32,
    pub lock: LockId,
    /// From then on others may lease the output.
    pub until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDetail {
    pub hash: Hash,
    pub status: Status,
    pub height: Option<u32>,
    pub received: Timestamp,
    pub coinbase: bool,
    pub own: bool,
    pub raw: Vec<u8>,
    pub label: Option<String>,
    pub inputs: Vec<InputRow>,
    /// Those of ours.
    pub outputs: Vec<OutputRow>,
    pub replaced: Vec<Hash>,
    pub replaced_by: Vec<Hash>,
    pub events: Vec<EventRow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRow {
    pub outpoint: OutPoint,
    /// Account and amount, if it is ours.
    pub ours: Option<(u32, i64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// A status, or `pruned`.
    pub status: String,
    pub height: Option<u32>,
    pub reason: String,
    pub cause: Option<Hash>,
    pub actor: String,
    pub at: Timestamp,
}

/// A row that disagrees with the facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which rule.
    pub check: &'static str,
    pub wallet: WalletId,
    pub what: String,
}

/// What a selection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Satoshi, fees not counted: candidates are of about this size, and smaller ones.
    pub target: i64,
    pub allow: Allow,
    /// Spreads selections that happen at once over different outputs.
    pub seed: u64,
}
