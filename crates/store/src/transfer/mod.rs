//! Internal transfers as rows: the transfers, their history, and the use of daily limits.
//!
//! | module | holds |
//! |---|---|
//! | [`row`] | a transfer as it stands in its row |
//! | [`read`] | one, a user's list, what is open, the history |
//! | [`open`](mod@open) | those that have not ended, counted for operators, and which are stuck |
//! | [`write`] | insert, lock, change under the condition that the state is still the one seen, claim what is due |
//! | [`sums`] | what transfers come to, to be compared with the remote leg |
//! | [`funding_account`] | the accounts that new transfers concern, locked, with the rules of their assets |
//! | `audit` | every history is legal, and the journal says the same as the states |
//! | [`flow`] | what went through `clearing:spot`, and what is on its way |
//! | [`stops`] | assets whose transfers from SPOT to FUNDING are stopped |
//! | [`unproven`] | transfers that two people ended without proof |
//! | [`days`] | what daily limits have used up |
//!
//! **A change of a transfer locks its row first, and its update names the state that it saw.** Rows are locked in one
//! order: transfers by id, then accounts by id, then days. What follows from a state is decided in `domain` and done in
//! the crate `transfer`; here is only the SQL.

pub(crate) mod audit;
pub mod days;
pub mod flow;
pub mod funding_account;
pub mod open;
pub mod read;
pub mod row;
pub mod stops;
pub mod sums;
pub mod unproven;
pub mod write;

pub use days::{Day, lock_days, set_days};
pub use funding_account::{FundingAccount, lock_funding_accounts};
pub use open::{OpenInState, OpenTransfers, read_open};
pub use read::{Filter, HistoryRow, histories, history, list, open, page, read, read_by_orders};
pub use stops::{Stop, read_stops, stop_asset, stopped_assets};
pub use unproven::{Unproven, count_unproven, mark_unproven, read_unproven};
pub use write::{Changed, History, Locked, change, claim, insert, lock, lock_with_accounts, write_history};
