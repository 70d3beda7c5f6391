//! What an operator may choose about transfers.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a remote leg may take before its answer counts as unknown.
    pub call_timeout: Duration,
    /// Added to it, so that a leg that watches the time of its calls by itself can still say that they took too long.
    pub slack: Duration,
    /// How long the remote leg may take to say what a user has. After that an order is accepted without this check.
    pub glance: Duration,
    /// How long a new transfer is left to the process that made it before the scanner takes it up.
    pub grace: Duration,
    /// The first pause between two tries; it doubles, up to the longest.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// After so many tries, or so much time, operators are alerted.
    pub alert_tries: i64,
    pub alert_after: Duration,
    /// How far our clock may be from the database's and from the remote leg's. Beyond that no transfer is made.
    pub clocks_apart: Duration,
    /// Transfers of one user in one day; 0 for no limit.
    pub daily_transfers: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            call_timeout: Duration::from_secs(2),
            slack: Duration::from_millis(100),
            glance: Duration::from_millis(200),
            grace: Duration::from_secs(10),
            first_pause: Duration::from_millis(250),
            longest_pause: Duration::from_secs(60),
            alert_tries: 10,
            alert_after: Duration::from_secs(300),
            clocks_apart: Duration::from_secs(5),
            daily_transfers: 100,
        }
    }
}

/// Microseconds, for times that are stored.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
