//! Withdrawals, as rows: what customers want paid out, and the money that is held for it.
//!
//! | module | holds |
//! |---|---|
//! | `types` | withdrawals as rows have them |
//! | [`allowance`] | what a user may still withdraw today |
//! | [`policy`] | policies, each version a row |
//! | [`settings`] | policies as the treasury file says them |
//! | [`book`] | users' address books |
//! | [`create`] | new ones, in batches: facts, verdict, hold and row in one commit |
//! | `facts` | what a verdict rests on, read while the accounts are locked |
//! | `advance` | a withdrawal goes on to its next states, with its history and its money |
//! | [`approve`] | what people sign; enough of them approve it |
//! | [`check`] | what somebody outside says of a withdrawal before anybody may agree to it |
//! | [`decide`] | what people and customers say of one that has no job |
//! | [`figures`] | the figures of operators |
//! | [`operate`] | what operators do to one, and the line of their log |
//! | [`import`] | those that another program has begun, taken over |
//! | [`signed`] | what the signer knows, held against what is known here |
//! | [`queue`] | a job is made for each that may be paid, in the commit that says so |
//! | [`settle`] | what became of the jobs; what is settled inside |
//! | [`read`] | withdrawals for people |
//! | [`waiting`] | withdrawals for operators: what waits, for whom, and since when |
//! | `audit` | what must hold of all of them |
//!
//! | | |
//! |---|---|
//! | reads | `withdrawal_*`, accounts, deposits that are not final, wallets, the states of outbound jobs |
//! | writes | `withdrawal_*`, movements and balances, new outbound jobs, the log of operators |
//! | may never do | change a job; give back what a job may still pay; change or remove an event or a verdict |
//!
//! Rows are locked in one order: withdrawals by their ids, then accounts by theirs, then the sums of a day.

pub(crate) mod advance;
pub mod allowance;
pub mod approve;
pub(crate) mod audit;
pub mod book;
pub mod check;
pub mod create;
pub mod decide;
pub(crate) mod facts;
pub mod figures;
pub mod import;
pub mod operate;
pub mod policy;
pub mod queue;
pub mod read;
pub mod settings;
pub mod settle;
pub mod signed;
mod types;
pub mod waiting;

pub use allowance::Allowance;
pub use approve::{NewWithdrawalApproval, WithdrawalApproval, WithdrawalApproved};
pub use book::{BookEntry, NewBookEntry};
pub use check::{BadTravelRule, CheckHeard, CheckRow, CheckState, CheckVerdict, ChecksKept, DueCheck, TravelRule};
pub use create::{CreatedWithdrawal, NewWithdrawal};
pub use decide::{Decision, DecisionReply, WithdrawalDecision, WithdrawalVerdict};
pub use import::{
    ChangedReply, ChangedThere, FollowedPayment, ImportCourse, ImportRefusal, ImportReply, ImportedWithdrawal,
    NewImport,
};
pub use operate::{ApprovalDeed, ApprovalReply, OperatorDeed, OperatorReply, OperatorWish};
pub use policy::PolicyRow;
pub use queue::{Enqueue, Enqueued};
pub use read::{DueAfter, MinedPayment, OpenWithdrawals, WithdrawalFilter, WithdrawalStep, WithdrawalsDue};
pub use settings::{CoinName, PolicySetting, PolicySettings, coin_names};
pub use settle::{InsideReply, SettleInside, SettledBatch};
pub use signed::SignedRounds;
pub use types::{WithdrawalId, WithdrawalRow};

/// The most that one batch may have.
pub const MOST: usize = 2_048;

#[cfg(feature = "testing")]
pub(crate) mod statements {
    use crate::rows::RowsSql;
    use crate::sql::Sql;

    pub(crate) const ALL: [&[Sql]; 17] = [
        super::allowance::STATEMENTS,
        super::approve::STATEMENTS,
        super::audit::STATEMENTS,
        super::book::STATEMENTS,
        super::check::STATEMENTS,
        super::facts::STATEMENTS,
        super::figures::STATEMENTS,
        super::operate::STATEMENTS,
        super::import::STATEMENTS,
        super::policy::STATEMENTS,
        super::queue::STATEMENTS,
        super::read::STATEMENTS,
        super::settings::STATEMENTS,
        super::settle::STATEMENTS,
        super::signed::STATEMENTS,
        super::types::STATEMENTS,
        super::waiting::STATEMENTS,
    ];

    pub(crate) fn rows() -> Vec<&'static RowsSql> {
        let groups: [&'static [&'static RowsSql]; 8] = [
            &super::advance::ROWS_STATEMENTS,
            &super::book::ROWS_STATEMENTS,
            &super::check::ROWS_STATEMENTS,
            &super::create::ROWS_STATEMENTS,
            &super::facts::ROWS_STATEMENTS,
            &super::import::ROWS_STATEMENTS,
            &super::policy::ROWS_STATEMENTS,
            &super::queue::ROWS_STATEMENTS,
        ];
        groups.into_iter().flatten().copied().collect()
    }
}
