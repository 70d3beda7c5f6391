//! What Bursar is about, with no I/O and no async: money, assets, accounts, ids, time, and the ledger's rules.
//!
//! | module | holds |
//! |---|---|
//! | [`amount`] | `Amount`: ledger units in an `i64`, and its decimal text |
//! | [`raw`] | `RawAmount`: chain units in a `U256`, and the exact conversion between the two |
//! | [`raw_sum`] | `RawSum`: sums of chain units, with a sign |
//! | [`asset`] | assets, chains, and an asset's form on a chain |
//! | [`account`] | account ids, kinds and statuses |
//! | [`approval`] | two people who answer for an action, and why |
//! | [`operator`] | the people who look after all this, and what each may do |
//! | [`adjustment`] | money that two people move by hand |
//! | [`ledger`] | operations, and the one function that decides what each of them does |
//! | [`transfer`] | the state machine of an internal transfer |
//! | [`deposit`] | what chains pay to our addresses: entries, the states of a deposit, what the ledger makes of them |
//! | [`treasury`] | gas for users' addresses, their coins brought home, hot wallets within their bands |
//! | [`withdrawal`] | what customers want paid out: its states, and the policy that judges it |
//! | [`wallet`], [`name`] | what wallets are for, and the names of their groups |
//! | [`utxo`] | Bitcoin wallets: outputs, transactions, and what each event does to them |
//! | [`id`] | snowflake ids with a prefix per kind |
//! | [`time`] | `Timestamp` and the injected `Clock` |
//! | [`random`] | the seeded generator; there is no other randomness |
//!
//! Nothing here panics on any input, and nothing reads a clock, a random source or the environment.

pub mod account;
pub mod adjustment;
pub mod amount;
pub mod approval;
pub mod asset;
pub mod deposit;
pub mod id;
pub mod ledger;
pub mod name;
pub mod operator;
pub mod outbound;
pub mod random;
pub mod raw;
pub mod raw_sum;
pub mod time;
pub mod transfer;
pub mod treasury;
pub mod utxo;
pub mod wallet;
pub mod withdrawal;

pub use account::{AccountId, AccountKind, AccountStatus, UserId};
pub use amount::{Amount, AmountError, Precision};
pub use approval::{Approval, BadApproval};
pub use asset::{Asset, AssetId, AssetOnChain, Availability, Chain, ChainKind, ChainName, Listing, Symbol};
pub use name::{BadName, GroupId};
pub use raw::RawAmount;
pub use raw_sum::RawSum;
pub use time::{Clock, ClockReading, ManualClock, Timestamp};
pub use wallet::{Purpose, WalletRole};
