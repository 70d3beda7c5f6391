//! The ledger: accounts, the operations on them, and the journal.
//!
//! | module | reads | writes | never |
//! |---|---|---|---|
//! | [`accounts`] | accounts | accounts, account_status_changes | touches a balance |
//! | [`post`] | accounts, movements | movements, accounts' balances | changes or removes a movement |
//! | [`adjust`] | accounts, movements | movements, accounts' balances | moves money without two people |
//! | [`balances`] | movements, checkpoints | checkpoints | |
//! | [`journal`] | movements, accounts | | |
//! | [`row`] | | | |

pub mod accounts;
pub mod adjust;
pub mod balances;
pub mod journal;
pub mod post;
pub mod row;

pub use accounts::{NewAccount, Opened, StatusChange, open, set_status};
pub use adjust::{Adjusted, spot_adjustments};
pub use post::{MAX_BATCH, decide, load_accounts, lock_accounts, post, system_state};
