//! The machine's clock, read here and nowhere else.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use domain::{Clock, Timestamp};

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// By so many milliseconds the clock of this process is ahead of the machine's. `bursar chaos` starts servers with clocks
/// that are wrong; the program for production does not know the variable.
#[cfg(feature = "lab")]
pub const AHEAD_MS: &str = "BURSAR_TEST_CLOCK_AHEAD_MS";

#[cfg(feature = "lab")]
fn ahead_micros() -> i64 {
    static AHEAD: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
    let read = || std::env::var(AHEAD_MS).ok().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    AHEAD.get_or_init(read).saturating_mul(1_000)
}

#[cfg(not(feature = "lab"))]
const fn ahead_micros() -> i64 {
    0
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place where the wall clock enters")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(micros.saturating_add(ahead_micros()))
    }
}

/// How long something took; for progress and benches, never for money.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "the one place where the monotonic clock enters")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
