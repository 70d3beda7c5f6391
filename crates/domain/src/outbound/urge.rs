//! What to do with a transaction that waits for its block.

use crate::time::Timestamp;

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When nodes were last told.
    pub told: Timestamp,
    /// Nothing of its lane waits before it.
    pub first: bool,
    /// It offers less than is asked for now.
    pub cheap: bool,
    /// A person wants more to be offered.
    pub asked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urge {
    Rest,
    /// The same bytes: a pool that forgot them gets them back.
    SendAgain,
    /// More is offered in the same slot.
    Replace,
}

/// Nobody is told more often, whoever asks.
const LEAST_MICROS: i64 = 5_000_000;

impl Wait {
    /// The first of a lane is replaced when it has waited too long, whatever it offers: all others wait for it. Those behind it are
    /// replaced only when they offer too little.
    pub const fn urge(&self, now: Timestamp, after_micros: i64) -> Urge {
        let waited = now.micros().saturating_sub(self.told.micros());
        if self.asked && (waited >= LEAST_MICROS || waited >= after_micros || waited < 0) {
            Urge::Replace
        } else if waited < after_micros && waited >= 0 {
            Urge::Rest
        } else if self.first || self.cheap {
            Urge::Replace
        } else {
            Urge::SendAgain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_too_long_is_sent_again_or_replaced() {
        let told = Timestamp::from_micros(1_000);
        let wait = Wait { told, first: false, cheap: false, asked: false };
        let at = |wait: Wait, micros: i64| wait.urge(told.plus_micros(micros), 30);
        assert_eq!((at(wait, 0), at(wait, 29), at(wait, 30)), (Urge::Rest, Urge::Rest, Urge::SendAgain));
        assert_eq!(at(Wait { first: true, ..wait }, 30), Urge::Replace);
        assert_eq!(at(Wait { cheap: true, ..wait }, 30), Urge::Replace);
        assert_eq!(at(Wait { first: true, cheap: true, ..wait }, 29), Urge::Rest);
        assert_eq!(at(Wait { asked: true, ..wait }, 30), Urge::Replace);
        let asked = Wait { asked: true, ..wait };
        assert_eq!(asked.urge(told.plus_micros(4_999_999), 30_000_000), Urge::Rest);
        assert_eq!(asked.urge(told.plus_micros(5_000_000), 30_000_000), Urge::Replace);
        // It was told by a clock that was ahead. Nobody waits for that clock.
        assert_eq!(at(wait, -1_000), Urge::SendAgain);
    }
}
