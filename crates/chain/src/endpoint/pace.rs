//! Time that never runs backwards, calls per second, and the budget of retries. All in microseconds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::Clock;

pub(super) const SECOND: u64 = 1_000_000;

/// Nobody can be asked more often than this, limit or not; it bounds what a window remembers.
const WINDOW_MOST: usize = 100_000;

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// No state here can be left half changed, so a panic elsewhere does not spoil it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The injected clock, as time since the pool was made. A clock that is set back stands still here: a pause neither
/// ends early nor lasts for the hours by which somebody corrected the clock.
pub(super) struct Ticks {
    clock: Arc<dyn Clock>,
    /// The last reading, and the time that has passed until then.
    seen: Mutex<(i64, u64)>,
}

impl Ticks {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let seen = Mutex::new((clock.now().micros(), 0));
        Self { clock, seen }
    }

    pub(super) fn now(&self) -> u64 {
        let mut seen = lock(&self.seen);
        let read = self.clock.now().micros();
        let passed = u64::try_from(read.saturating_sub(seen.0)).unwrap_or(0);
        *seen = (read, seen.1.saturating_add(passed));
        seen.1
    }
}

/// At most so many calls in any second. It remembers when the last ones were sent, or will be.
pub(super) struct Window {
    most: usize,
    sent: VecDeque<u64>,
}

impl Window {
    pub(super) fn new(per_second: u32) -> Self {
        let most = usize::try_from(per_second).unwrap_or(WINDOW_MOST).clamp(1, WINDOW_MOST);
        Self { most, sent: VecDeque::new() }
    }

    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// When so many calls can be sent together, if asked now. No more than [`Self::most`] ever can.
    pub(super) fn earliest(&self, now: u64, calls: usize) -> u64 {
        let calls = calls.clamp(1, self.most);
        let oldest = (self.sent.len() + calls).checked_sub(self.most + 1).and_then(|index| self.sent.get(index));
        oldest.map_or(now, |sent| now.max(sent.saturating_add(SECOND)))
    }

    /// Takes the room that [`Self::earliest`] found, or later room.
    pub(super) fn take(&mut self, at: u64, calls: usize) {
        let at = self.sent.back().map_or(at, |last| at.max(*last));
        for _ in 0..calls.clamp(1, self.most) {
            if self.sent.len() == self.most {
                self.sent.pop_front();
            }
            self.sent.push_back(at);
        }
    }
}

/// A bucket of tokens: one for each attempt after the first, so that a provider that dies does not make us ask all
/// others many times over.
pub(super) struct Budget {
    most: u64,
    per_second: u64,
    /// Millionths of a token.
    tokens: u64,
    filled: u64,
}

impl Budget {
    pub(super) fn new(most: u32, per_second: u32) -> Self {
        let most = u64::from(most) * SECOND;
        Self { most, per_second: u64::from(per_second), tokens: most, filled: 0 }
    }

    pub(super) fn take(&mut self, now: u64) -> bool {
        let gained = now.saturating_sub(self.filled).saturating_mul(self.per_second);
        self.tokens = self.tokens.saturating_add(gained).min(self.most);
        self.filled = self.filled.max(now);
        let left = self.tokens.checked_sub(SECOND);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use domain::{ManualClock, Timestamp};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_clock_that_is_set_back_neither_ends_a_pause_nor_prolongs_it() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000)));
        let ticks = Ticks::new(clock.clone());
        clock.set(Timestamp::from_micros(1_500));
        assert_eq!(ticks.now(), 500);
        clock.set(Timestamp::from_micros(-9_000_000));
        assert_eq!(ticks.now(), 500);
        clock.set(Timestamp::from_micros(-8_999_900));
        assert_eq!(ticks.now(), 600);
        clock.set(Timestamp::from_micros(i64::MAX));
        clock.set(Timestamp::from_micros(i64::MIN));
        assert_eq!(ticks.now(), 600);
    }

    #[test]
    fn an_empty_budget_refuses_until_it_has_filled() {
        let mut budget = Budget::new(2, 4);
        assert_eq!([budget.take(0), budget.take(0), budget.take(0)], [true, true, false]);
        assert!(!budget.take(249_999));
        assert!(budget.take(250_000));
        assert!(!budget.take(250_000));
        // It never holds more than it may, however long it waited.
        let later = 3_600 * SECOND;
        assert_eq!([budget.take(later), budget.take(later), budget.take(later)], [true, true, false]);
    }

    #[test]
    fn calls_go_at_once_while_there_is_room() {
        let mut window = Window::new(3);
        for _ in 0..3 {
            assert_eq!(window.earliest(10, 1), 10);
            window.take(10, 1);
        }
        assert_eq!(window.earliest(10, 1), 10 + SECOND);
        assert_eq!(window.earliest(10 + SECOND, 3), 10 + SECOND);
    }

    proptest! {
        #[test]
        fn no_second_ever_holds_more_calls_than_allowed(
            per_second in 1_u32..20,
            calls in prop::collection::vec((0_u64..300_000, 1_usize..25), 1..200),
        ) {
            let mut window = Window::new(per_second);
            let (mut now, mut sent) = (0, Vec::new());
            for (pause, calls) in calls {
                now += pause;
                let calls = calls.min(window.most());
                let at = window.earliest(now, calls);
                prop_assert!(at >= now);
                window.take(at, calls);
                sent.extend(std::iter::repeat_n(at, calls));
            }
            for (first, start) in sent.iter().enumerate() {
                let within = sent[first..].iter().filter(|at| **at < start + SECOND).count();
                prop_assert!(within <= usize::try_from(per_second).unwrap());
            }
            // And it gives all the room that there is: with nothing to wait for, a call goes at once.
            let idle = sent.last().unwrap() + SECOND;
            prop_assert_eq!(window.earliest(idle, window.most()), idle);
        }
    }
}
