//! Time is data. Code that needs the time is handed a [`Clock`]; only the `bursar` binary reads the machine's.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

/// Microseconds since the Unix epoch. The form in which every table stores time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    pub const fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}

/// RFC 3339 in UTC with microseconds, e.g. `2026-11-15T07:31:31.000000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1_000_000);
        let micros = self.0.rem_euclid(1_000_000);
        let day_second = seconds.rem_euclid(86_400);
        let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{micros:06}Z",
            day_second / 3_600,
            day_second / 60 % 60,
            day_second % 60
        )
    }
}

/// Days since 1970-01-01 to a proleptic Gregorian date (Howard Hinnant's `civil_from_days`).
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// Where the time comes from. Injected, so that a test or the simulator owns it.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// Another clock was read, and ours just before and just after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    pub before: Timestamp,
    pub theirs: Timestamp,
    pub after: Timestamp,
}

impl ClockReading {
    /// By how much ours is ahead (or, below zero, behind) for certain. The other clock was read at some moment between
    /// our two readings, so a slow answer is never taken for a difference.
    pub const fn ahead_micros(&self) -> i64 {
        let (before, theirs, after) = (self.before.micros(), self.theirs.micros(), self.after.micros());
        // Our clock may have been set back between the two.
        let (earliest, latest) = if before <= after { (before, after) } else { (after, before) };
        if theirs < earliest {
            earliest.saturating_sub(theirs)
        } else if theirs > latest {
            latest.saturating_sub(theirs)
        } else {
            0
        }
    }
}

/// A clock that moves only when it is told to, in either direction.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    pub fn at(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.micros()))
    }

    pub fn set(&self, now: Timestamp) {
        self.0.store(now.micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_answer_is_no_difference() {
        let at = Timestamp::from_micros;
        for (before, theirs, after, ahead) in [
            (100, 100, 100, 0),
            (100, 150, 200, 0),
            (100, 99, 200, 1),
            (100, 207, 200, -7),
            // Our clock was set back meanwhile.
            (200, 150, 100, 0),
            (200, 90, 100, 10),
            (i64::MAX, i64::MIN, i64::MAX, i64::MAX),
        ] {
            let reading = ClockReading { before: at(before), theirs: at(theirs), after: at(after) };
            assert_eq!(reading.ahead_micros(), ahead, "{reading:?}");
        }
    }
    use proptest::prelude::*;

    #[test]
    fn prints_known_instants() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_734_912_345_678_901, "2024-12-23T00:05:45.678901Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(Timestamp::from_micros(micros).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn any_timestamp_prints(micros: i64) {
            prop_assert!(Timestamp::from_micros(micros).to_string().ends_with('Z'));
        }
    }
}
