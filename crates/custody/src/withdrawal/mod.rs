//! Withdrawals on a chain: what may be paid gets a job, or is settled inside; what became of jobs is settled or given back.
//!
//! | | |
//! |---|---|
//! | reads | approved withdrawals, the ends of their jobs, users' wallets and the keys that they follow from; what the signer has signed |
//! | writes | what people sign; new jobs with the status that says so; settled, released and given back holds with theirs |
//! | may never do | approve by itself; send, sign or watch a payment; change a job; believe a row that an address is ours; give back what the signer has signed and the database has forgotten |
//!
//! | module | holds |
//! |---|---|
//! | [`narrower`] | the server's policy held against the signer's |
//! | [`import`] | what becomes of withdrawals that another program has begun |
//! | [`work`] | one worker of a chain's withdrawals |
//! | [`approve`] | what people sign, and what becomes of it |
//! | [`operate`] | what operators do, and their signatures |
//! | [`check`] | somebody outside is asked before anybody agrees |
//! | [`signed`] | what the signer knows of withdrawals; cancels and refusals, which need that |
//!
//! Nothing is remembered between rounds but where it was: whoever dies anywhere is followed by another that begins at the rows, and two at once are
//! harmless, because each step is taken only from the state that was seen under its lock.

pub mod approve;
pub mod check;
pub mod import;
pub mod narrower;
pub mod operate;
pub mod signed;
pub mod work;

use store::StoreError;

pub use futures_util::future::BoxFuture;

pub use approve::{ApprovalDesk, ApproverKey, Approving};
pub use check::{CheckRound, CheckWorker, HttpCheck};
pub use import::{ImportChange, ImportGround, ImportKind, ImportNames, PlannedImport, changed_imports, plan_import};
pub use signed::{Remembers, cancel, decide, judge, signed_rounds};
pub use work::{WithdrawalRound, WithdrawalWorker};

#[derive(Debug, thiserror::Error)]
pub enum WithdrawalError {
    #[error("the database cannot be used")]
    Store(#[from] StoreError),
    #[error("chain {chain}: there are no wallets of network {network}")]
    Network { chain: String, network: String },
    /// No number can be had for a new job.
    #[error("this process has no number to make ids with")]
    NoIds,
}

impl WithdrawalError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Network { .. } => "CHAIN_WRONG_NETWORK",
            Self::NoIds => "NODE_NUMBERS_EXHAUSTED",
        }
    }
}
