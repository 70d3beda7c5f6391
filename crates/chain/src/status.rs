//! What is known about a transaction that was sent.
//!
//! There is no `Failed`. A node that has never heard of a transaction, a null receipt, a nonce that moved on: none of
//! them proves anything, and all of them are [`Status::Unknown`]. Only a [`Proof`] ends the waiting.

use domain::{RawAmount, Timestamp};
use tx::{BlockRef, TxHash};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nobody has it that we asked. It may still be mined.
    Unknown,
    /// At least one node holds it for a coming block.
    Mempool,
    Mined(Mined),
    /// It can never be mined.
    Impossible(Proof),
}

/// In a block that a quorum has. It is as settled as that block is deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mined {
    pub block: BlockRef,
    /// It ran to its end and, if it pays a listed token, the token says that it paid. If not, it cost only its fee.
    pub ok: bool,
    /// What it cost, in the native coin. Bitcoin: `None` when the node does not know the inputs any more.
    pub fee: Option<RawAmount>,
}

/// Why a transaction can never be mined. Only this crate makes one, and only from what a quorum says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof(Reason);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// EVM: another transaction with this nonce is in a settled block.
    NonceTaken { by: TxHash, block: BlockRef },
    /// TRON: a block later than its expiry is solidified, and none up to there holds it.
    Expired { solidified: BlockRef, time: Timestamp },
    /// Bitcoin: another transaction in a settled block spends one of its inputs.
    InputSpent { input: (TxHash, u32), by: TxHash, block: BlockRef },
}

impl Proof {
    pub(crate) const fn new(reason: Reason) -> Self {
        Self(reason)
    }

    pub const fn reason(&self) -> Reason {
        self.0
    }
}
