//! Deposits: what chains pay to our addresses, found, proven, credited once, and taken back when the chain takes it back.
//!
//! | | |
//! |---|---|
//! | reads | blocks of nodes; the rows of users' wallets, each held against its key before anything is credited |
//! | writes | the chains' own books and the ledger, by the functions of the crate `store` |
//! | may never do | credit what one node alone says, or what a row alone says; hold a key |
//!
//! | module | holds |
//! |---|---|
//! | [`read`] | what blocks mean for our books: entries with their causes |
//! | [`watching`] | the addresses that a scan looks for |
//! | `look` | the balances of wallets on their chain, held against their entries |
//! | [`sync`] | the balance sync: looks at all wallets in turn, beside the worker of the chain |
//! | [`owner`] | whose a payment is, by the keys |
//! | [`work`] | one worker of one chain: pass, prove, look, book, settle |
//!
//! **The scan runs ahead with one node, the proof follows.** The proof reads blocks whose hashes are fixed before the newest
//! addresses are loaded: whoever is paid in one of them had a row before. So what the scan misses, the proof takes in.

mod look;
pub mod owner;
pub mod read;
pub mod sync;
pub mod watching;
pub mod work;

pub use read::{BadCoins, Coins, House};
pub use sync::{BalanceSync, Synced};
pub use watching::Watching;
pub use work::{DepositError, DepositWorker, Worked};
