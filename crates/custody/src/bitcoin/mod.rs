//! The Bitcoin wallet: it chooses coins and makes transactions of them, and keeps its store in step with the chain.
//!
//! | | |
//! |---|---|
//! | reads | coins and transactions of the store; blocks and mempools, by a quorum of nodes; exports of other wallets |
//! | writes | blocks and transactions of the store (`follow`), wallets that are taken over (`import`) |
//! | may never do | hold a key, sign, broadcast, reckon in floats, or call a transaction failed that a node has lost |
//!
//! | module | holds |
//! |---|---|
//! | `target` | what a transaction has to do; the arithmetic of its size and of its fee |
//! | `select` | which coins it spends |
//! | `search` | branch and bound over the coins, scored in whole satoshi |
//! | `build` | coins and payments in their order, and the PSBT |
//! | `bump` | replacing a transaction that waits (RBF), or pushing it by a child (CPFP) |
//! | `read` | bytes and blocks as the store takes them |
//! | `follow` | the store kept in step with the chain and the mempool; a backup brought up to date |
//! | `parents` | the store shown the strangers' transactions that unconfirmed ones of ours depend on |
//! | `upkeep` | ended leases swept, the nodes' limits learned, what an operator watches |
//! | `import` | wallets of other programs, taken over with their whole history |
//! | `check` | the rows held against the transactions' bytes |
//!
//! All but the last four are pure: no I/O, no clock, no randomness.
//!
//! Making a transaction takes two steps, because coins are leased in between. [`chooser`] goes into
//! `Db::select_and_lease`; of the coins that come back, [`plan`] makes the transaction, by the same arithmetic.
//!
//! **No amount is ever a float.** The search ranks by integers too; see `search`.
//!
//! **All money is accounted for**: inputs = payments + change + fee, the fee is at least the wanted rate times the size
//! that the signed transaction has at most, and at most the cap.

mod build;
mod bump;
mod check;
mod follow;
pub mod import;
mod parents;
mod read;
mod search;
mod select;
mod target;
mod upkeep;

pub use build::{Plan, SEQUENCE, plan, plan_whole, unsigned};
pub use bump::{ReplacementTerms, Waiting, child, replacement};
pub use check::check;
pub use follow::{Behind, Follow, FollowError, Restored, Step};
pub use read::{
    BadBytes, block_of, block_of_bytes, hash_of_block, hash_of_tx, kind_of_script, network_of, tx_hash_of, tx_of,
    tx_of_bytes,
};
pub use select::{Selection, Strategy, chooser, select};
pub use target::{Aim, Costs, Pushed, Recipient, Replaced, ScriptKind, SpendError, Target};
pub use upkeep::{Sweeps, Upkeep, WalletStanding, learn_chain_limits};
