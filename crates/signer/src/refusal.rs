//! Every reason why the signer does not sign. Each has a code, which is a page of `docs/errors`.

use tx::DecodeError;

use crate::names::{GroupId, JobId, KeyName};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignerRefusal {
    // What was asked for.
    #[error("the request contradicts itself: {0}")]
    Inconsistent(&'static str),
    #[error("the request's id was used for other content")]
    RequestReused,
    #[error("the policy has no chain of this name")]
    ChainUnknown,
    #[error("the policy has no wallet group {0} on this chain")]
    GroupUnknown(GroupId),
    #[error("the group has no address of this number")]
    IndexUnknown,
    #[error("the keys of {0} were made for another purpose than the policy says")]
    PurposeDiffers(GroupId),
    // What the bytes do, against what the intents say.
    #[error("the payload cannot be read: {0}")]
    Unreadable(DecodeError),
    #[error("the payload is for another network")]
    OtherNetwork,
    #[error("an intent is for another signer, or another network")]
    OtherSigner,
    #[error("the payload spends from a wallet that is not the one asked for")]
    OtherWallet,
    #[error("the payload pays what no intent explains")]
    Unexplained,
    #[error("an intent is not carried out by the payload")]
    NotPaid,
    #[error("the address is not the one that the signer derives")]
    OwnerDiffers,
    #[error("the payload may cost more than the intents agree to")]
    FeeAboveIntent,
    #[error("an input's amount is another one than it was before")]
    AmountContradicts,
    #[error("the lock time or a sequence number is not the one asked for")]
    LockDiffers,
    #[error("the group has spent more new inputs in the last hour or day than the signer remembers for it")]
    TooManyInputs,
    #[error("the payload's expiry is past, or further off than the policy allows")]
    ExpiryOutside,
    // Time.
    #[error("the intent has expired")]
    IntentExpired,
    #[error("the intent expires later than the policy allows")]
    IntentLivesTooLong,
    #[error("{0} is older than what the signer remembers")]
    JobTooOld(JobId),
    #[error("{0} was made in the future")]
    JobFromTheFuture(JobId),
    #[error("the signer's clock and the machine's disagree")]
    ClockDisagrees,
    // What the policy allows.
    #[error("the group's role does not allow it: {0}")]
    RoleForbids(&'static str),
    #[error("the policy does not list this coin for the group")]
    CoinNotListed,
    #[error("the policy does not allow this destination")]
    DestinationForbidden,
    #[error("the policy does not allow change to this number of the group")]
    ChangeForbidden,
    #[error("the fee is above the group's cap")]
    FeeAboveCap,
    #[error("the group's fees of the day are used up")]
    FeesOfTheDay,
    #[error("the cap per {0} is reached, and approvals do not lift it")]
    CapReached(&'static str),
    #[error("{given} of {needed} approvals")]
    ApprovalsMissing { given: usize, needed: usize },
    #[error("the amount is above every step of the policy")]
    AboveAllSteps,
    // Approvals themselves.
    #[error("the approval of {0} is not good: {1}")]
    BadApproval(KeyName, &'static str),
    // Slots.
    #[error("{0} was signed with other payments")]
    JobChanged(JobId),
    #[error("{0} has a slot already, and was neither cancelled there nor moved by an operator")]
    SlotDiffers(JobId),
    #[error("the slot belongs to {0}")]
    SlotTaken(JobId),
    #[error("the transaction signed before for {0} may still be mined")]
    NotExpiredYet(JobId),
    #[error("{0} was built before, and the request does not name that transaction as the one that it follows")]
    BuildUnknown(JobId),
    #[error("the approvals of {0} are used up: it was built as often as they say")]
    BuildsUsedUp(JobId),
    #[error("what is to be cancelled has no slot, or another one")]
    NothingToCancel,
}

impl SignerRefusal {
    /// Whose the slot is that was asked for. A cancel of it shares the slot.
    pub const fn holder(&self) -> Option<JobId> {
        if let Self::SlotTaken(holder) = self { Some(*holder) } else { None }
    }

    pub const fn code(&self) -> &'static str {
        match self {
            Self::Inconsistent(_) => "SIGNER_REQUEST_INCONSISTENT",
            Self::RequestReused => "SIGNER_REQUEST_REUSED",
            Self::ChainUnknown | Self::GroupUnknown(_) | Self::IndexUnknown | Self::PurposeDiffers(_) => {
                "SIGNER_WALLET_UNKNOWN"
            }
            Self::Unreadable(_) => "SIGNER_PAYLOAD_UNREADABLE",
            Self::OtherNetwork | Self::OtherSigner => "SIGNER_OTHER_NETWORK",
            Self::OtherWallet => "SIGNER_OTHER_WALLET",
            Self::Unexplained | Self::NotPaid => "SIGNER_PAYMENT_UNEXPLAINED",
            Self::OwnerDiffers => "SIGNER_OWNER_DIFFERS",
            Self::FeeAboveIntent => "SIGNER_FEE_ABOVE_INTENT",
            Self::AmountContradicts => "SIGNER_AMOUNT_CONTRADICTS",
            Self::TooManyInputs => "SIGNER_TOO_MANY_INPUTS",
            Self::LockDiffers => "SIGNER_LOCK_DIFFERS",
            Self::ExpiryOutside => "SIGNER_EXPIRY_OUTSIDE",
            Self::IntentExpired | Self::IntentLivesTooLong => "SIGNER_INTENT_EXPIRED",
            Self::JobTooOld(_) | Self::JobFromTheFuture(_) => "SIGNER_JOB_TIME",
            Self::ClockDisagrees => "SIGNER_CLOCK_DISAGREES",
            Self::RoleForbids(_) => "SIGNER_ROLE_FORBIDS",
            Self::CoinNotListed => "SIGNER_COIN_NOT_LISTED",
            Self::DestinationForbidden | Self::ChangeForbidden => "SIGNER_DESTINATION_FORBIDDEN",
            Self::FeeAboveCap => "SIGNER_FEE_ABOVE_CAP",
            // Tomorrow it passes.
            Self::CapReached(_) | Self::FeesOfTheDay => "SIGNER_CAP_REACHED",
            Self::ApprovalsMissing { .. } => "SIGNER_APPROVALS_MISSING",
            Self::AboveAllSteps => "SIGNER_ABOVE_ALL_STEPS",
            Self::BadApproval(..) => "SIGNER_APPROVAL_BAD",
            Self::JobChanged(_) => "SIGNER_JOB_CHANGED",
            Self::SlotDiffers(_) => "SIGNER_SLOT_DIFFERS",
            Self::SlotTaken(_) => "SIGNER_SLOT_TAKEN",
            Self::NotExpiredYet(_) => "SIGNER_NOT_EXPIRED_YET",
            Self::BuildUnknown(_) => "SIGNER_BUILD_UNKNOWN",
            Self::BuildsUsedUp(_) => "SIGNER_BUILDS_USED_UP",
            Self::NothingToCancel => "SIGNER_NOTHING_TO_CANCEL",
        }
    }
}

impl From<DecodeError> for SignerRefusal {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::OtherNetwork => Self::OtherNetwork,
            other => Self::Unreadable(other),
        }
    }
}
