//! Counters, and what was seen last, for operators. No decision about money reads them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use domain::Timestamp;
use domain::transfer::State;
use store::transfer::OpenTransfers;

use crate::create::Created;
use crate::update::TransferUpdate;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        #[derive(Debug, Default)]
        pub struct Metrics {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// How long the transactions took that record transfers or move them on, repeated tries included.
            pub commits: Histogram,
            /// The open transfers as they were read last; none if they could not be read.
            open: RwLock<Option<OpenTransfers>>,
        }

        impl Metrics {
            /// Name, help and value of each.
            pub fn read(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $text, self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    transfers_created = "transfers accepted";
    transfers_duplicate = "requests answered with an earlier transfer of the same client_order_id";
    transfers_rejected = "requests refused before anything was recorded";
    transfers_committed = "transfers whose money is at its target";
    transfers_failed = "transfers that the source refused";
    transfers_rolled_back = "transfers that the target refused, and whose money is at its source again";
    transfer_retries = "calls of a leg that were not decided";
    transfer_alerts = "transfers that somebody was told about because they are stuck";
    transfer_batches = "batches recorded";
    transfer_rounds = "transactions that moved transfers on";
    leg_calls = "operations asked of the remote leg";
    transfers_parked = "requests that were only recorded, because the buffer was full";
    alerts_delivered = "messages about what needs a person that a webhook or a command took";
    alerts_undelivered = "messages that it did not take; each is tried again";
}

/// How long something took, counted in a few buckets.
#[derive(Debug, Default)]
pub struct Histogram {
    /// By the first bound that is not passed; the last one is for what passes them all.
    buckets: [AtomicU64; Self::BOUNDS.len() + 1],
    sum_micros: AtomicU64,
}

impl Histogram {
    /// In microseconds, and in seconds as they are shown.
    pub const BOUNDS: [(u64, &'static str); 8] = [
        (1_000, "0.001"),
        (5_000, "0.005"),
        (10_000, "0.01"),
        (50_000, "0.05"),
        (100_000, "0.1"),
        (500_000, "0.5"),
        (2_000_000, "2"),
        (10_000_000, "10"),
    ];

    /// A clock that was set back meanwhile counts as no time.
    pub fn observe(&self, begun: Timestamp, ended: Timestamp) {
        let micros = u64::try_from(ended.micros().saturating_sub(begun.micros())).unwrap_or(0);
        let bucket = Self::BOUNDS.iter().take_while(|(bound, _)| micros > *bound).count();
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// How many took at most as long as each bound, then how many there were, and their sum in microseconds.
    pub fn read(&self) -> ([u64; Self::BOUNDS.len()], u64, u64) {
        let mut count = 0;
        let mut up_to = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let bounds = std::array::from_fn(|index| up_to(&self.buckets[index]));
        let all = up_to(&self.buckets[Self::BOUNDS.len()]);
        (bounds, all, self.sum_micros.load(Ordering::Relaxed))
    }
}

impl Metrics {
    fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn created(&self, created: &[Created]) {
        Self::add(&self.transfer_batches, 1);
        for one in created {
            Self::add(
                match one {
                    Created::New(_) => &self.transfers_created,
                    Created::Duplicate(_) => &self.transfers_duplicate,
                    Created::Rejected(_) => &self.transfers_rejected,
                },
                1,
            );
        }
    }

    pub(crate) fn called(&self, calls: usize) {
        Self::add(&self.leg_calls, calls);
    }

    /// Called after the commit, when the changes are certain.
    pub(crate) fn advanced(&self, updates: &[TransferUpdate]) {
        Self::add(&self.transfer_rounds, 1);
        for update in updates {
            let transfer = &update.transfer;
            match transfer.state {
                State::Committed => Self::add(&self.transfers_committed, 1),
                State::Failed => Self::add(&self.transfers_failed, 1),
                State::RolledBack => Self::add(&self.transfers_rolled_back, 1),
                State::Init | State::SourcePending | State::SourceDone | State::TargetPending | State::Compensating => {
                }
            }
            if update.waits {
                Self::add(&self.transfer_retries, 1);
            }
            if update.waits && transfer.alerted_at == Some(transfer.updated_at) {
                // The alert itself is made from the rows, so that a crash here loses none.
                Self::add(&self.transfer_alerts, 1);
            }
        }
    }

    pub fn set_open(&self, open: Option<OpenTransfers>) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = open;
    }

    pub fn open(&self) -> Option<OpenTransfers> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_each_time_in_every_bucket_that_it_fits() {
        let histogram = Histogram::default();
        let at = Timestamp::from_micros;
        for micros in [0, 1_000, 1_001, 400_000, 60_000_000, -5] {
            histogram.observe(at(100), at(100 + micros));
        }
        assert_eq!(histogram.read(), ([3, 4, 4, 4, 4, 5, 5, 5], 6, 60_402_001));
    }
}
