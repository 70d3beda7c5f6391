//! What the simulated processes share: the clock, chance, and the chains.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::random::Random;
use domain::{Clock, ManualClock, Timestamp};
use signer::names::RequestId;

use super::super::turn::{Stage, Yield};
use super::model::Net;
use super::report::Report;

pub(crate) struct World {
    pub random: Random,
    pub report: Report,
    pub clock: Arc<ManualClock>,
    pub turn: u64,
    /// Nothing goes wrong any more: all that was asked for must come to its end.
    pub calm: bool,
    pub yielded: Option<Yield>,
    pub nets: Vec<Net>,
    /// The signer is away before this turn.
    pub away_until: u64,
    /// Requests that it has refused, for good.
    pub refused: HashSet<RequestId>,
    pub broken: Option<String>,
    /// Processes that are in the middle of a round.
    pub midway: BTreeSet<usize>,
    /// Rules have asked for the number of a job in this turn.
    pub rules_made: bool,
    /// The newest final block that the rules of each process know at least.
    pub rules_know: BTreeMap<usize, Option<u64>>,
    /// Numbers that were given out.
    pub ids: i64,
}

impl World {
    /// Adds a decision or an answer to the hash of the run.
    pub const fn note(&mut self, what: u64) {
        let hash = self.report.hash ^ what.wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.report.hash = hash.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(what);
    }

    /// Whether a fault strikes now that strikes so often in 100,000 times.
    pub const fn chance(&mut self, in_100_000: u64) -> bool {
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

    pub fn pass(&self, micros: i64) {
        self.clock.set(self.clock.now().plus_micros(micros));
    }

    /// As an id of now, and larger than all before.
    pub fn next_id(&mut self) -> i64 {
        let first = domain::id::first_at(self.clock.now());
        self.ids = first.max(self.ids + 1);
        self.ids
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
        let mut world = self.lock();
        // Several calls of one process are on their way together: if one of them is its end, that is it.
        if world.yielded != Some(Yield::Death) {
            world.yielded = Some(why);
        }
    }

    fn given_back(&self) -> Option<Yield> {
        self.lock().yielded.take()
    }
}
