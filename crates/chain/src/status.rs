//! What is known about a transaction that was sent.
//!
//! There is no `Failed`. A node that has never heard of a transaction, a null receipt, a nonce that moved on: none of
//! them proves anything, and all of them are [`Status::Unknown`]. Only a [`Proof`] ends the waiting.

use alloy_primitives::U256;
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
    pub paid: Paid,
    /// What it cost, in the native coin. Bitcoin: `None` when the node does not know the inputs any more.
    pub fee: Option<RawAmount>,
}

impl Mined {
    /// From which height on one node says more than the agreed answer, which says nothing.
    pub(crate) fn ahead(one: &Option<Self>, agreed: &Option<Self>) -> Option<u64> {
        one.filter(|_| agreed.is_none()).map(|mined| mined.block.height)
    }
}

/// What a mined transaction did with what it was to pay. Coin is moved as the signed bytes say, or not at all. A token does
/// what it likes, so it is judged by its logs, whether it is still listed or not: the sender, the recipient, and the exact
/// amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paid {
    /// All of it, by this sender to this recipient.
    InFull,
    /// Nothing: it did not run to its end, or the token logged no transfer of this sender or to this recipient. It cost only
    /// its fee.
    Nothing,
    /// Something else: a token that takes a fee, for one, gives the recipient less. **This is neither paid nor unpaid**: who
    /// pays it again pays twice. A person must look.
    Otherwise,
}

impl Paid {
    /// By the transfers that the token logged, in a transaction that ran to its end: from, to, amount.
    pub(crate) fn by_logs<A: PartialEq>(
        (sender, recipient, amount): (&A, &A, U256),
        logged: impl IntoIterator<Item = (A, A, U256)>,
    ) -> Self {
        let (mut exact, mut touched) = (false, false);
        // What it got and what was taken from it again in the same transaction.
        let (mut got, mut gave) = (U256::ZERO, U256::ZERO);
        for (from, to, sum) in logged.into_iter().filter(|(.., sum)| !sum.is_zero()) {
            touched |= from == *sender || to == *recipient;
            exact |= from == *sender && to == *recipient && sum == amount;
            if to == *recipient {
                got = got.saturating_add(sum);
            }
            if from == *recipient && from != *sender {
                gave = gave.saturating_add(sum);
            }
        }
        match (exact && got.saturating_sub(gave) >= amount, touched) {
            (true, _) => Self::InFull,
            (false, true) => Self::Otherwise,
            (false, false) => Self::Nothing,
        }
    }
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

    /// For simulations, whose chains are models. Production is built without it.
    #[cfg(feature = "lab")]
    pub const fn simulated(reason: Reason) -> Self {
        Self(reason)
    }

    pub const fn reason(&self) -> Reason {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sender 1, recipient 2, amount 100.
    #[test]
    fn a_token_has_paid_when_this_sender_gave_this_recipient_exactly_this() {
        for (logged, paid) in [
            (&[(1, 2, 100)][..], Paid::InFull),
            (&[(1, 2, 100), (8, 9, 5)], Paid::InFull),
            (&[(1, 2, 100), (9, 2, 3)], Paid::InFull),
            (&[], Paid::Nothing),
            (&[(8, 9, 100)], Paid::Nothing),
            (&[(1, 2, 0)], Paid::Nothing),
            // A fee: taken before, taken besides, taken back.
            (&[(1, 2, 99)], Paid::Otherwise),
            (&[(1, 2, 99), (1, 9, 1)], Paid::Otherwise),
            (&[(1, 2, 100), (2, 9, 1)], Paid::Otherwise),
            (&[(1, 2, 101)], Paid::Otherwise),
            (&[(1, 2, 50), (1, 2, 50)], Paid::Otherwise),
            // Another recipient, another sender.
            (&[(1, 3, 100)], Paid::Otherwise),
            (&[(3, 2, 100)], Paid::Otherwise),
        ] {
            let told = logged.iter().map(|(from, to, sum)| (*from, *to, U256::from(*sum)));
            assert_eq!(Paid::by_logs((&1, &2, U256::from(100)), told), paid, "{logged:?}");
        }
        let to_itself = [(1, 1, U256::from(100))];
        assert_eq!(Paid::by_logs((&1, &1, U256::from(100)), to_itself), Paid::InFull);
    }
}
