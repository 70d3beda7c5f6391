//! What the signer answers.

use crate::approved::Approved;
use crate::log::Head;
use crate::refusal::SignerRefusal;

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Approved { approved: Approved, policy: u64, rule: String },
    Refused { refusal: SignerRefusal, policy: u64, rule: String },
}

impl Verdict {
    pub const fn approved(&self) -> Option<&Approved> {
        match self {
            Self::Approved { approved, .. } => Some(approved),
            Self::Refused { .. } => None,
        }
    }

    pub const fn refusal(&self) -> Option<&SignerRefusal> {
        match self {
            Self::Approved { .. } => None,
            Self::Refused { refusal, .. } => Some(refusal),
        }
    }
}

/// The verdicts of a batch in its order, and how far the log goes. The asker keeps the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdicts {
    pub verdicts: Vec<Verdict>,
    pub head: Head,
}
