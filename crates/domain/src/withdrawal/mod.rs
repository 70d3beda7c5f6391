//! Withdrawals: what a customer wants paid out, whether it may be, and what becomes of it and of the money that is held for it.
//!
//! | | |
//! |---|---|
//! | decides | which state follows, what that does to the hold, whether a request is taken and who has to agree |
//! | knows nothing of | transactions, wallets that pay, tries, fees of a network: those are the job's (`outbound`) |

pub mod policy;
mod refusal;
mod state;

pub use policy::{
    Facts, FeeQuote, FeeRule, FeeTerms, Judgement, PolicyError, Request, USUAL_LIFE_US, Velocity, Verdict, WhenShort,
    WithdrawalPolicy,
};
pub use refusal::WithdrawalRefusal;
pub use state::{IllegalStep, MoneyStep, WithdrawalEvent, WithdrawalState};
