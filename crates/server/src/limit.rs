//! How many requests a user may make in a second. A batch counts as many as it has transfers.
//!
//! A sliding window over the times of the requests that were let through. A token bucket would need less memory, but
//! lets through up to twice its limit in a second: a full bucket, and what flows in meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use domain::{Timestamp, UserId};

const WINDOW_MICROS: i64 = 1_000_000;
/// Users of different shards do not wait for each other.
const SHARDS: usize = 64;
/// How many users each request checks for being gone. A request adds at most one user to the table, so with two checks
/// the users who are gone become fewer with every request.
const LOOKS: usize = 2;
/// Tables smaller than this are not worth shrinking.
const SMALL: usize = 64;

/// The user must wait for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests in one second: retry in {micros} microseconds")]
pub struct RetryAfter {
    micros: i64,
}

impl RetryAfter {
    /// Between 1 and 1,000,000.
    pub const fn micros(self) -> i64 {
        self.micros
    }

    /// Rounded up, as the HTTP header wants it: waiting for so long is enough, and never 0.
    pub const fn seconds(self) -> i64 {
        (self.micros + WINDOW_MICROS - 1) / WINDOW_MICROS
    }
}

/// At most so many requests of one user in any one second; a request that is refused does not count.
///
/// Time is what the caller says. Threads that call at the same moment may come in another order than they read the
/// clock, and a window is then shorter by that difference.
#[derive(Debug)]
pub struct PerSecond {
    limit: usize,
    shards: Vec<Mutex<Shard>>,
}

impl PerSecond {
    /// 0 is no limit.
    pub fn new(limit: u32) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { limit, shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// As many as a request may count at the most. `None`: any number.
    pub const fn most(&self) -> Option<usize> {
        if self.limit == 0 { None } else { Some(self.limit) }
    }

    /// 0 is no limit.
    pub fn limit(&self) -> u32 {
        u32::try_from(self.limit).unwrap_or(u32::MAX)
    }

    /// Lets a request through that counts as `count`, whole or not at all.
    pub fn allow(&self, user: UserId, count: usize, now: Timestamp) -> Result<(), RetryAfter> {
        self.allow_number(user.get(), count, now)
    }

    /// The same of whoever has this number: an operator, by the number of that person's row. Customers and operators have a `PerSecond` each.
    pub fn allow_number(&self, number: i64, count: usize, now: Timestamp) -> Result<(), RetryAfter> {
        if self.limit == 0 {
            return Ok(());
        }
        // Users are numbered one after the other, so that the remainder spreads them evenly.
        let place = number.unsigned_abs() % self.shards.len() as u64;
        let shard = &self.shards[place as usize];
        // A thread that panicked while it had the lock left a list of times behind, and any list of times is usable.
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        shard.forget(now);
        shard.allow(number, count, now, self.limit)
    }
}

#[derive(Debug, Default)]
struct Shard {
    /// By the users' numbers.
    windows: HashMap<i64, Window>,
    /// Each user of the table once, with a time at which the user made a request.
    seen: VecDeque<(i64, Timestamp)>,
}

impl Shard {
    fn allow(&mut self, user: i64, count: usize, now: Timestamp, limit: usize) -> Result<(), RetryAfter> {
        let window = self.windows.entry(user).or_insert_with(|| {
            self.seen.push_back((user, now));
            Window::default()
        });
        window.slide(now);
        let over = window.0.len().saturating_add(count).saturating_sub(limit);
        if over == 0 {
            window.0.extend(std::iter::repeat_n(now, count));
            return Ok(());
        }
        // There is room when so many have left the window. One that counts more than the limit never fits.
        let last = window.0.get(over - 1).copied().unwrap_or(now);
        Err(RetryAfter { micros: WINDOW_MICROS - now.micros().saturating_sub(last.micros()) })
    }

    /// Takes out users who are gone, a few at a time.
    fn forget(&mut self, now: Timestamp) {
        for _ in 0..LOOKS {
            match self.seen.front() {
                Some((user, seen)) if !is_within(*seen, now) => {
                    let user = *user;
                    self.seen.pop_front();
                    self.look(user, now);
                }
                Some(_) | None => break,
            }
        }
        if self.windows.capacity() > SMALL && self.windows.len() < self.windows.capacity() / 8 {
            // Shrinking takes as long as the removals that led here, so it costs each request the same at most.
            self.windows.shrink_to(self.windows.len() * 2);
            self.seen.shrink_to(self.seen.len() * 2);
        }
    }

    /// A user with requests in the last second goes to the end of the queue; another is removed.
    fn look(&mut self, user: i64, now: Timestamp) {
        let Some(window) = self.windows.get_mut(&user) else { return };
        window.slide(now);
        match window.0.back() {
            Some(newest) => self.seen.push_back((user, *newest)),
            None => {
                self.windows.remove(&user);
            }
        }
    }
}

/// When a user's requests of the last second were let through, oldest first.
#[derive(Debug, Default)]
struct Window(VecDeque<Timestamp>);

impl Window {
    fn slide(&mut self, now: Timestamp) {
        // After the clock was set back, times that seem to be in the future become now: these requests still count, but
        // for no longer than a second.
        for time in self.0.iter_mut().rev().take_while(|time| **time > now) {
            *time = now;
        }
        while self.0.front().is_some_and(|oldest| !is_within(*oldest, now)) {
            self.0.pop_front();
        }
    }
}

/// Whether the time is in the second that ends now. A time in the future is not, so that its user is checked again.
const fn is_within(time: Timestamp, now: Timestamp) -> bool {
    let age = now.micros().saturating_sub(time.micros());
    0 <= age && age < WINDOW_MICROS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn user(id: i64) -> UserId {
        UserId::new(id).expect("positive")
    }

    const fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    impl PerSecond {
        fn users(&self) -> usize {
            let count = |shard: &Mutex<Shard>| {
                let shard = shard.lock().expect("no panic");
                assert_eq!(shard.windows.len(), shard.seen.len(), "each user is queued once");
                shard.windows.len()
            };
            self.shards.iter().map(count).sum()
        }

        fn capacity(&self) -> usize {
            self.shards.iter().map(|shard| shard.lock().expect("no panic").windows.capacity()).sum()
        }
    }

    #[test]
    fn no_more_than_the_limit_in_any_second() {
        let limit = PerSecond::new(3);
        for (micros, expected) in [
            (0, Ok(())),
            (400_000, Ok(())),
            (900_000, Ok(())),
            (900_000, Err(100_000)),
            (999_999, Err(1)),
            // The first is out of the window, the other two are not.
            (1_000_000, Ok(())),
            (1_000_000, Err(400_000)),
            (1_399_999, Err(1)),
            (1_400_000, Ok(())),
            (9_000_000, Ok(())),
            (9_000_000, Ok(())),
            (9_000_000, Ok(())),
            (9_000_000, Err(1_000_000)),
        ] {
            assert_eq!(limit.allow(user(1), 1, at(micros)).map_err(RetryAfter::micros), expected, "{micros}");
        }
    }

    #[test]
    fn a_batch_counts_as_many() {
        let limit = PerSecond::new(5);
        assert_eq!(limit.most(), Some(5));
        for (micros, count, expected) in [
            (0, 2, Ok(())),
            (100_000, 2, Ok(())),
            // One is left. Two fit when the first of the two at 0 has left, four when those at 100,000 have begun to.
            (200_000, 2, Err(800_000)),
            (200_000, 4, Err(900_000)),
            (200_000, 1, Ok(())),
            (200_000, 5, Err(1_000_000)),
            (999_999, 1, Err(1)),
            (1_000_000, 2, Ok(())),
            // What can never fit is told to wait, and waits in vain.
            (5_000_000, 6, Err(1_000_000)),
            (6_000_000, 6, Err(1_000_000)),
            (6_000_000, 5, Ok(())),
        ] {
            let allowed = limit.allow(user(1), count, at(micros)).map_err(RetryAfter::micros);
            assert_eq!(allowed, expected, "{count} at {micros}");
        }
        assert_eq!(PerSecond::new(0).most(), None);
    }

    #[test]
    fn users_do_not_share_a_limit() {
        let limit = PerSecond::new(1);
        // 1 and 65 share a shard.
        for id in [1, 2, 65] {
            assert_eq!(limit.allow(user(id), 1, at(0)), Ok(()));
            assert!(limit.allow(user(id), 1, at(0)).is_err());
        }
    }

    #[test]
    fn zero_is_no_limit() {
        let limit = PerSecond::new(0);
        for _ in 0..10_000 {
            assert_eq!(limit.allow(user(1), 1, at(0)), Ok(()));
        }
        assert_eq!(limit.users(), 0);
    }

    #[test]
    fn the_seconds_to_wait_are_rounded_up() {
        for (micros, seconds) in [(1, 1), (999_999, 1), (1_000_000, 1)] {
            assert_eq!(RetryAfter { micros }.seconds(), seconds);
        }
    }

    #[test]
    fn a_clock_set_back_locks_nobody_out_for_longer_than_a_second() {
        let hour = 3_600 * WINDOW_MICROS;
        for step in [1, 500_000, WINDOW_MICROS, hour, i64::MAX] {
            let limit = PerSecond::new(2);
            let (before, after) = (hour, hour.saturating_sub(step));
            assert_eq!(limit.allow(user(1), 1, at(before)), Ok(()));
            assert_eq!(limit.allow(user(1), 1, at(before)), Ok(()));
            let wait = limit.allow(user(1), 1, at(after)).expect_err("they still count").micros();
            assert!((1..=WINDOW_MICROS).contains(&wait), "{step}: {wait}");
            assert!(limit.allow(user(1), 1, at(after + wait - 1)).is_err(), "{step}");
            assert_eq!(limit.allow(user(1), 1, at(after + wait)), Ok(()), "{step}");
        }
    }

    #[test]
    fn users_who_are_gone_are_forgotten() {
        let limit = PerSecond::new(20);
        for id in 1..=100_000 {
            assert_eq!(limit.allow(user(id), 1, at(0)), Ok(()));
        }
        assert_eq!(limit.users(), 100_000);
        let full = limit.capacity();
        // Each request of others forgets two of them.
        for id in 1..=100_000 {
            assert_eq!(limit.allow(user(200_000 + id % 640), 1, at(2_000_000 + id * 100)), Ok(()));
        }
        assert_eq!(limit.users(), 640);
        assert!(limit.capacity() < full / 8, "the memory is given back");
    }

    #[test]
    fn users_are_forgotten_after_the_clock_was_set_back() {
        let limit = PerSecond::new(5);
        for id in 1..=1_000 {
            assert_eq!(limit.allow(user(id), 1, at(1_000 * WINDOW_MICROS)), Ok(()));
        }
        for time in 0..10 {
            for id in 1..=640 {
                assert_eq!(limit.allow(user(10_000 + id), 1, at(time * WINDOW_MICROS)), Ok(()));
            }
        }
        assert_eq!(limit.users(), 640);
    }

    #[test]
    fn a_steady_stream_of_new_users_stays_bounded() {
        let limit = PerSecond::new(5);
        // 10,000 a second, each once.
        for id in 1..=100_000 {
            assert_eq!(limit.allow(user(id), 1, at(id * 100)), Ok(()));
            if id % 10_000 == 0 {
                assert!(limit.users() <= 11_000, "{}", limit.users());
            }
        }
    }

    #[test]
    fn threads_share_one_limit() {
        let limit = PerSecond::new(100);
        let allowed: usize = std::thread::scope(|scope| {
            let count = || (0..1_000).filter(|_| limit.allow(user(7), 1, at(0)).is_ok()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(allowed, 100);
    }

    proptest! {
        /// Against a list of all requests that were let through.
        #[test]
        fn as_a_plain_list_would_decide(
            limit in 1_u32..6,
            requests in prop::collection::vec((1_i64..5, 1_usize..4, 0_i64..600_000), 1..200),
        ) {
            let per_second = PerSecond::new(limit);
            let mut allowed: Vec<(i64, i64)> = Vec::new();
            let mut now = 0;
            for (id, count, pause) in requests {
                // Users 64 apart share a shard.
                now += pause;
                let recent = allowed.iter().filter(|(other, time)| *other == id && now - time < WINDOW_MICROS);
                let recent: Vec<i64> = recent.map(|(_, time)| *time).collect();
                let over = (recent.len() + count).saturating_sub(limit as usize);
                let expected = if over == 0 {
                    allowed.extend(std::iter::repeat_n((id, now), count));
                    Ok(())
                } else {
                    Err(recent.get(over - 1).copied().unwrap_or(now) + WINDOW_MICROS - now)
                };
                prop_assert_eq!(per_second.allow(user(id * 64), count, at(now)).map_err(RetryAfter::micros), expected);
            }
        }

        /// The clock may jump to any time between two requests.
        #[test]
        fn no_clock_panics_and_a_second_is_always_enough(
            limit in 1_u32..4,
            requests in prop::collection::vec((1_i64..4, any::<i64>(), -1_500_000_i64..1_500_000), 1..100),
            jump: bool,
        ) {
            let per_second = PerSecond::new(limit);
            let mut now = 0_i64;
            for (id, anywhere, step) in requests {
                now = if jump { anywhere } else { now + step };
                if let Err(wait) = per_second.allow(user(id * 64), 1, at(now)) {
                    prop_assert!((1..=WINDOW_MICROS).contains(&wait.micros()));
                    if let Some(later) = now.checked_add(wait.micros()) {
                        now = later;
                        prop_assert_eq!(per_second.allow(user(id * 64), 1, at(now)), Ok(()));
                    }
                }
            }
            prop_assert!(per_second.users() <= 3);
        }
    }
}
