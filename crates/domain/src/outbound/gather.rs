//! When payouts that could share a Bitcoin transaction wait no longer for others.

use super::kind::JobKind;
use super::limits::OutboundLimits;
use crate::time::Timestamp;

/// A payout that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    pub since: Timestamp,
    pub priority: i64,
}

/// Whether these go now: one of them is more urgent than customers usually are, one has waited long enough, or there are enough of them.
pub fn goes(waiting: &[Gathering], limits: &OutboundLimits, now: Timestamp) -> bool {
    let enough = u32::try_from(waiting.len()).unwrap_or(u32::MAX) >= limits.gather_most;
    let after = i64::from(limits.gather_s) * 1_000_000;
    let is_over = |one: &Gathering| {
        let waited = now.micros().saturating_sub(one.since.micros());
        // It was made by a clock that was ahead: nobody waits for that clock.
        one.priority < JobKind::Withdrawal.priority() || waited >= after || waited < 0
    };
    !waiting.is_empty() && (enough || waiting.iter().any(is_over))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asset::ChainKind;

    #[test]
    fn payouts_go_when_there_are_enough_or_one_has_waited_or_is_urgent() {
        let limits = OutboundLimits { gather_s: 30, gather_most: 3, ..OutboundLimits::usual(ChainKind::Bitcoin) };
        let now = Timestamp::from_micros(100_000_000);
        let one = |seconds: i64, priority: i64| Gathering { since: now.plus_micros(-seconds * 1_000_000), priority };
        assert!(!goes(&[], &limits, now));
        assert!(!goes(&[one(0, 100), one(29, 100)], &limits, now));
        assert!(goes(&[one(0, 100), one(30, 100)], &limits, now));
        assert!(goes(&[one(0, 100), one(0, 400), one(0, 100)], &limits, now));
        assert!(goes(&[one(0, 99)], &limits, now));
        assert!(goes(&[one(-5, 100)], &limits, now));
    }
}
