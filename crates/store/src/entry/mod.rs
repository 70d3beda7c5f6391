//! The chains' own books: every change of a balance of ours, as the chain shows it.
//!
//! | module | holds |
//! |---|---|
//! | `types` | a chain and its coins as rows know them, entries as they are found, findings |
//! | `cursor` | who reads a chain, how far, and that nobody else writes meanwhile |
//! | `blocks` | blocks passed, proven and undone, each with its entries in one transaction |
//! | `bitcoin` | the same of Bitcoin, from the rows of the wallet store |
//! | `write` | entries, the balances that follow from them, and new deposits |
//! | `look` | what wallets have on their chain, held against their entries |
//! | `orders` | what people order: blocks read again, a chain that goes back, or on |
//! | `read` | what addresses of ours have |
//! | `findings` | what somebody should know of a chain |
//!
//! | | |
//! |---|---|
//! | reads | `chains`, `asset_on_chain`, `user_wallets`, and all that it writes |
//! | writes | `chain_cursors`, `chain_blocks`, `chain_entries`, `wallet_balances`, `chain_findings`, new `deposits` |
//! | may never do | touch the ledger, or change what an entry says |

pub(crate) mod bitcoin;
pub(crate) mod blocks;
pub(crate) mod cursor;
pub(crate) mod findings;
pub(crate) mod look;
pub(crate) mod orders;
pub(crate) mod read;
pub(crate) mod types;
pub(crate) mod write;

pub use blocks::{Passed, Proof};
pub use cursor::{ChainStanding, CursorError, Worker};
pub use findings::{Finding, FindingKind, OpenFinding};
pub use look::{Heard, Holding, LookedBatch};
pub use orders::OrderRefusal;
pub use read::WalletBalance;
pub use types::{BlockRow, ChainId, ChainRow, EntryKey, FoundEntry, ListingId, ListingRow};
