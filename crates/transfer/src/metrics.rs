//! Counters for operators. No decision about money reads them.

use std::sync::atomic::{AtomicU64, Ordering};

use domain::transfer::State;

use crate::create::Created;
use crate::update::TransferUpdate;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        #[derive(Debug, Default)]
        pub struct Metrics { $($(#[$doc])* pub $name: AtomicU64,)* }

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
                Self::add(&self.transfer_alerts, 1);
                tracing::error!(
                    transfer = %transfer.id, state = %transfer.state, tries = transfer.tries,
                    error = transfer.error.as_deref().unwrap_or_default(), "a transfer is stuck"
                );
            }
        }
    }
}
