//! Counters and gauges in Prometheus' text form. Every label's values are our own words, so the number of series is bounded.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::log::Head;

/// Bounds of a histogram in microseconds, with the text of each in seconds.
const BOUNDS: [(i64, &str); 9] = [
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_000, "0.002"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (100_000, "0.1"),
    (500_000, "0.5"),
    (2_500_000, "2.5"),
];

#[derive(Debug, Default)]
pub(super) struct Times {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    sum_us: AtomicU64,
}

impl Times {
    pub(super) fn observe(&self, micros: i64) {
        let place = BOUNDS.iter().position(|(bound, _)| micros <= *bound);
        if let Some(bucket) = place.and_then(|place| self.buckets.get(place)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(u64::try_from(micros).unwrap_or(0), Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) approved: AtomicU64,
    pub(super) replayed: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) snapshots: AtomicU64,
    pub(super) snapshots_failed: AtomicU64,
    pub(super) since_snapshot: AtomicU64,
    pub(super) remembered: AtomicU64,
    pub(super) policy: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) decide: Times,
    /// Of the policy and the reading, by code.
    refused: Mutex<BTreeMap<&'static str, u64>>,
    /// Answers, by path and the first digit of the status.
    answers: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// Calls that were not let in, or not taken, by code.
    turned_away: Mutex<BTreeMap<&'static str, u64>>,
}

fn add<K: Ord>(map: &Mutex<BTreeMap<K, u64>>, key: K) -> u64 {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    let count = map.entry(key).or_default();
    *count += 1;
    *count
}

impl Counts {
    pub(super) fn refuse(&self, code: &'static str) -> u64 {
        add(&self.refused, code)
    }

    pub(super) fn answer(&self, path: &'static str, status: u16) {
        add(&self.answers, (path, status / 100));
    }

    pub(super) fn turn_away(&self, code: &'static str) {
        add(&self.turned_away, code);
    }

    /// Writing to a string cannot fail.
    pub(super) fn text(&self, head: Head, ready: bool) -> String {
        let mut families = Families::default();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        families.one("ready", "gauge", "1 while requests are decided", u8::from(ready));
        families.begin("decisions_total", "counter", "requests that were decided, by what became of them");
        families.value("decisions_total", "verdict=\"approved\"", read(&self.approved));
        families.value("decisions_total", "verdict=\"replayed\"", read(&self.replayed));
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        families.value("decisions_total", "verdict=\"refused\"", refused.values().sum::<u64>());
        families.begin("refusals_total", "counter", "refused requests, by the code of the reason");
        for (code, count) in &refused {
            families.value("refusals_total", &format!("code=\"{code}\""), count);
        }
        families.begin("http_answers_total", "counter", "answers by path and the first digit of their status");
        for ((path, class), count) in self.answers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            families.value("http_answers_total", &format!("path=\"{path}\",class=\"{class}xx\""), count);
        }
        families.begin("http_turned_away_total", "counter", "calls that were not let in or not taken, by code");
        for (code, count) in self.turned_away.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            families.value("http_turned_away_total", &format!("code=\"{code}\""), count);
        }
        families.one("batches_total", "counter", "batches that were decided and synced", read(&self.batches));
        families.times("decide_seconds", "how long a batch took to be decided and synced", &self.decide);
        families.one("connections", "gauge", "open connections", read(&self.connections));
        families.one("log_entries", "gauge", "entries of the log", head.entries);
        let help = "entries that the next start has to replay";
        families.one("log_since_snapshot_entries", "gauge", help, read(&self.since_snapshot));
        families.one("snapshots_total", "counter", "snapshots that were written", read(&self.snapshots));
        let help = "snapshots that could not be written; signing goes on, and a start takes longer";
        families.one("snapshots_failed_total", "counter", help, read(&self.snapshots_failed));
        families.one("remembered_requests", "gauge", "approved requests in memory", read(&self.remembered));
        families.one("policy_version", "gauge", "the version in force; 0 if there is none", read(&self.policy));
        families.0
    }
}

#[derive(Default)]
struct Families(String);

impl Families {
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        write!(self.0, "# HELP bursar_signer_{name} {help}\n# TYPE bursar_signer_{name} {kind}\n").ok();
    }

    fn value(&mut self, name: &str, labels: &str, value: impl Display) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        writeln!(self.0, "bursar_signer_{name}{labels} {value}").ok();
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.begin(name, kind, help);
        self.value(name, "", value);
    }

    fn times(&mut self, name: &str, help: &str, times: &Times) {
        self.begin(name, "histogram", help);
        let (bucket, mut below) = (format!("{name}_bucket"), 0);
        for ((_, bound), count) in BOUNDS.iter().zip(&times.buckets) {
            below += count.load(Ordering::Relaxed);
            self.value(&bucket, &format!("le=\"{bound}\""), below);
        }
        let count = times.count.load(Ordering::Relaxed);
        self.value(&bucket, "le=\"+Inf\"", count);
        let micros = times.sum_us.load(Ordering::Relaxed);
        self.value(&format!("{name}_sum"), "", format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000));
        self.value(&format!("{name}_count"), "", count);
    }
}
