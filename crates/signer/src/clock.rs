//! The time that the signer goes by. The caller reads the machine's clocks.

use domain::Timestamp;

/// The signer's own clock and the machine's may differ by so much: what a clock is corrected by while the process runs.
pub(crate) const MOST_CLOCK_DIFFERENCE_US: i64 = 5 * 60 * 1_000_000;

/// The time, as the caller reads it: the machine's date, and microseconds that only ever go up, from any beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub date: Timestamp,
    pub uptime_us: i64,
}

/// Where a running signer reads the machine's clocks.
pub trait MomentClock: Send + Sync {
    fn moment(&self) -> Moment;
}

/// The signer's own clock: the date at its start, and since then only what the uptime says. A date that is set back cannot
/// open a window again, and one that is set ahead cannot end it, or a TRON transaction's life, before its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnClock {
    start: Timestamp,
    uptime_us: i64,
}

impl OwnClock {
    /// The date, and never before the newest entry of the log.
    pub(crate) fn start(moment: Moment, last: Timestamp) -> Self {
        Self { start: moment.date.max(last), uptime_us: moment.uptime_us }
    }

    pub(crate) const fn read(&self, moment: Moment) -> Timestamp {
        let passed = moment.uptime_us.saturating_sub(self.uptime_us);
        self.start.plus_micros(if passed > 0 { passed } else { 0 })
    }
}
