//! What the simulated processes share: the clock, the random numbers, the engine, the line to it, and the clients.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::random::Random;
use domain::{Clock, ManualClock, Timestamp};

use super::clients::Clients;
use super::engine::SimEngine;
use super::process::Life;
use super::report::Report;
use super::turn::{Stage, Yield};

pub(crate) struct World {
    pub random: Random,
    pub report: Report,
    pub clock: Arc<ManualClock>,
    pub turn: u64,
    /// Nothing goes wrong any more: every open transfer must end.
    pub calm: bool,
    pub yielded: Option<Yield>,
    pub engine: SimEngine,
    /// No call gets through before this turn.
    pub outage_until: u64,
    /// Submissions whose callers have given up, and that are still on their way.
    pub late: Vec<Late>,
    /// Transfers that the engine is being called for at this moment, and by how many tasks.
    pub in_flight: std::collections::BTreeMap<i64, u32>,
    pub lives: Vec<Life>,
    pub clients: Clients,
    /// The first law that was broken.
    pub broken: Option<String>,
}

/// A submission that is carried out after its caller has given up.
pub(crate) struct Late {
    pub turn: u64,
    pub requests: Vec<spot::Request>,
}

/// The most of them at a time.
const LATE_MAX: usize = 256;

impl World {
    /// Adds a decision or an answer to the hash of the run.
    pub fn note(&mut self, what: u64, words: &[i64]) {
        let mut hash = self.report.hash ^ what.wrapping_mul(0xff51_afd7_ed55_8ccd);
        for word in words {
            hash = (hash.rotate_left(23) ^ word.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        self.report.hash = hash.rotate_left(17).wrapping_add(what);
    }

    /// Whether a fault strikes now that strikes so often in 100,000 times.
    pub fn chance(&mut self, in_100_000: u64) -> bool {
        !self.calm && self.random.below(100_000) < in_100_000
    }

    pub fn breaks(&mut self, what: String) {
        if self.broken.is_none() {
            self.broken = Some(what);
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn pass(&mut self, micros: i64) {
        self.clock.set(self.clock.now().plus_micros(micros));
    }

    /// A submission whose caller has given up stays on its way. One that does not fit is lost.
    pub fn send_late(&mut self, requests: Vec<spot::Request>) {
        let longest = if self.random.below(8) == 0 { 5_000 } else { 200 };
        let after = 1 + self.random.below(longest);
        if self.late.len() < LATE_MAX {
            self.late.push(Late { turn: self.turn + after, requests });
        }
    }
}

/// Cheap to clone; all clones are the same world. It is never locked while a task waits.
#[derive(Clone)]
pub(crate) struct Shared(pub Arc<Mutex<World>>);

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage for Shared {
    fn give_back(&self, why: Yield) {
        self.lock().yielded = Some(why);
    }

    fn given_back(&self) -> Option<Yield> {
        self.lock().yielded.take()
    }
}
