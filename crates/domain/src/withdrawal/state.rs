//! The states of a withdrawal, and the one function that moves it on.
//!
//! ```text
//! pending ─┬──────────────────► approved ─► queued ─► completed
//!          └─► manual_review ──►   │  ▲────────┤          │
//!                   │              │  unfunded └► failed ◄┘ the chain took the payment back, and it can never be paid
//!                   └──────────────┴─► rejected, cancelled; failed when its time is over
//! ```
//!
//! What the signer has signed in a time that the database does not know (a backup was put back) goes to `manual_review` from wherever it is, and two people
//! say whether it was paid.
//!
//! The money is held from the first state on. **From `queued` on nothing that people say gives it back, only what became of the job.**

use std::fmt;

/// The words are those of the source, and of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WithdrawalState {
    /// The customer has asked, and people have to agree.
    Pending,
    /// Somebody has to look at it before anybody agrees.
    ManualReview,
    /// It may be paid.
    Approved,
    /// There is a job that pays it.
    Queued,
    /// It was paid.
    Completed,
    /// It was not paid, and never will be.
    Failed,
    /// People have refused it.
    Rejected,
    /// The customer has thought better of it.
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WithdrawalEvent {
    /// Policy, or as many people as it wants, agree.
    Approved,
    /// Somebody has to look at it.
    Doubted,
    Refused,
    Cancelled,
    /// A job that pays it was made, in the same commit.
    Queued,
    /// Its destination is an address of ours: the books were changed, and no coin moves.
    SettledInside,
    /// Its job is confirmed.
    Paid,
    /// Its job is over, and has paid nothing.
    NeverPaid,
    /// Its job is over because the hot wallet had too little, and the house pays it later by another job.
    Unfunded,
    /// Its job was confirmed; then the chain took the payment back, and proves that it can never be made.
    TakenBack,
    /// Its time was over before it had a job.
    Expired,
    /// The signer has signed for it in a time that this database does not know.
    SignerKnowsMore,
    /// Another program, from which it was taken over, has gone on with it: it may have been paid there.
    ChangedThere,
    /// Two people say that it was paid in that time. Of one that is completed only when the chain took its payment back: it stays so.
    JudgedPaid,
    /// Two people say that it was not, and never will be. Of one that is completed only when the chain took its payment back.
    JudgedUnpaid,
}

/// What a step does to the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MoneyStep {
    /// It stays where it is.
    Stays,
    /// The hold goes back to the customer.
    Release,
    /// The hold is paid out.
    Settle,
    /// What was paid out is the customer's again.
    GiveBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a withdrawal that is {state} cannot meet {event:?}")]
pub struct IllegalStep {
    pub state: WithdrawalState,
    pub event: WithdrawalEvent,
}

impl WithdrawalEvent {
    pub const ALL: [Self; 15] = [
        Self::Approved,
        Self::Doubted,
        Self::Refused,
        Self::Cancelled,
        Self::Queued,
        Self::SettledInside,
        Self::Paid,
        Self::NeverPaid,
        Self::Unfunded,
        Self::TakenBack,
        Self::Expired,
        Self::SignerKnowsMore,
        Self::ChangedThere,
        Self::JudgedPaid,
        Self::JudgedUnpaid,
    ];
}

impl WithdrawalState {
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::ManualReview,
        Self::Approved,
        Self::Queued,
        Self::Completed,
        Self::Failed,
        Self::Rejected,
        Self::Cancelled,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::ManualReview => "manual_review",
            Self::Approved => "approved",
            Self::Queued => "queued",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether amount and fee are held on the customer's account.
    pub const fn holds(self) -> bool {
        match self {
            Self::Pending | Self::ManualReview | Self::Approved | Self::Queued => true,
            Self::Completed | Self::Failed | Self::Rejected | Self::Cancelled => false,
        }
    }

    /// Whether the customer has the money back.
    pub const fn is_released(self) -> bool {
        match self {
            Self::Failed | Self::Rejected | Self::Cancelled => true,
            Self::Pending | Self::ManualReview | Self::Approved | Self::Queued | Self::Completed => false,
        }
    }

    /// Each pair is decided here, and nowhere else.
    pub const fn next(self, event: WithdrawalEvent) -> Result<Self, IllegalStep> {
        use WithdrawalEvent::{
            Approved, Cancelled, ChangedThere, Doubted, Expired, JudgedPaid, JudgedUnpaid, NeverPaid, Paid, Queued,
            Refused, SettledInside, SignerKnowsMore, TakenBack, Unfunded,
        };
        let illegal = Err(IllegalStep { state: self, event });
        match self {
            Self::Pending => match event {
                Approved => Ok(Self::Approved),
                Doubted | SignerKnowsMore | ChangedThere => Ok(Self::ManualReview),
                Refused => Ok(Self::Rejected),
                Cancelled => Ok(Self::Cancelled),
                Expired => Ok(Self::Failed),
                Queued | SettledInside | Paid | NeverPaid | Unfunded | TakenBack | JudgedPaid | JudgedUnpaid => illegal,
            },
            Self::ManualReview => match event {
                Approved => Ok(Self::Approved),
                // People know less than they thought.
                ChangedThere => Ok(Self::ManualReview),
                Refused => Ok(Self::Rejected),
                Cancelled => Ok(Self::Cancelled),
                Expired | JudgedUnpaid => Ok(Self::Failed),
                JudgedPaid => Ok(Self::Completed),
                Doubted | SignerKnowsMore | Queued | SettledInside | Paid | NeverPaid | Unfunded | TakenBack => illegal,
            },
            Self::Approved => match event {
                Doubted | SignerKnowsMore | ChangedThere => Ok(Self::ManualReview),
                Refused => Ok(Self::Rejected),
                Cancelled => Ok(Self::Cancelled),
                Queued => Ok(Self::Queued),
                SettledInside => Ok(Self::Completed),
                Expired => Ok(Self::Failed),
                Approved | Paid | NeverPaid | Unfunded | TakenBack | JudgedPaid | JudgedUnpaid => illegal,
            },
            Self::Queued => match event {
                Paid => Ok(Self::Completed),
                NeverPaid => Ok(Self::Failed),
                Unfunded => Ok(Self::Approved),
                SignerKnowsMore => Ok(Self::ManualReview),
                // Its job goes on, or is called off; how it ends says nothing any more of whether it was paid.
                ChangedThere => Ok(Self::Queued),
                Approved | Doubted | Refused | Cancelled | Queued | SettledInside | TakenBack | Expired
                | JudgedPaid | JudgedUnpaid => illegal,
            },
            Self::Completed => match event {
                TakenBack | JudgedUnpaid => Ok(Self::Failed),
                // By something else than its job.
                JudgedPaid => Ok(Self::Completed),
                Approved | Doubted | Refused | Cancelled | Queued | SettledInside | Paid | NeverPaid | Unfunded
                | Expired | SignerKnowsMore | ChangedThere => illegal,
            },
            Self::Failed | Self::Rejected | Self::Cancelled => illegal,
        }
    }

    /// What a step to another state does to the money.
    pub const fn money_to(self, next: Self) -> MoneyStep {
        match (self.holds(), next.holds(), next.is_released()) {
            (true, false, true) => MoneyStep::Release,
            (true, false, false) => MoneyStep::Settle,
            (false, false, true) if !self.is_released() => MoneyStep::GiveBack,
            (true, true, _) | (false, _, _) => MoneyStep::Stays,
        }
    }
}

impl fmt::Display for WithdrawalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
