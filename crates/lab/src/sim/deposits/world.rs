//! What the simulated processes share: the clock, chance, and the chains.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use custody::deposit::{DepositError, Worked};
use domain::random::Random;
use domain::{Clock, ManualClock, Timestamp};
use store::StoreError;
use store::entry::CursorError;

use super::super::turn::{Stage, Yield};
use super::net::Net;
use super::report::Report;

pub(crate) struct World {
    pub random: Random,
    pub report: Report,
    pub clock: Arc<ManualClock>,
    pub turn: u64,
    /// Nothing goes wrong any more: all that is due must be booked.
    pub calm: bool,
    pub yielded: Option<Yield>,
    pub nets: Vec<Net>,
    /// Commits of workers: without one, a turn has changed nothing that anybody can see.
    pub commits: u64,
    /// Which processes wait for the lease of another.
    pub waits: Vec<bool>,
    /// The database is out of the reach of a process before this turn.
    pub cut_off_until: Vec<u64>,
    /// The first thing that was not as it should be.
    pub broken: Option<String>,
}

impl World {
    /// Adds a decision or an answer to the hash of the run.
    pub const fn note(&mut self, what: u64, words: &[u64]) {
        let mut hash = self.report.hash ^ what.wrapping_mul(0xff51_afd7_ed55_8ccd);
        let mut at = 0;
        while at < words.len() {
            hash = (hash.rotate_left(23) ^ words[at]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            at += 1;
        }
        self.report.hash = hash.rotate_left(17).wrapping_add(what);
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

    /// A worker has ended a round.
    pub fn worked(&mut self, (net, process): (usize, usize), worked: &Worked) {
        self.waits[process] = false;
        let Worked { passed, back_to, proven, proof, posted, settled, marked: _, read_again: _, looked, waits } =
            worked;
        let (taken_in, disproven) = (proof.taken_in, proof.disproven);
        let counts = [*passed, *proven, taken_in, disproven, posted.credited, posted.taken_back, *settled, looked.same];
        self.note(3, &counts.map(|count| count as u64));
        self.report.rounds += 1;
        self.report.went_back += u64::from(back_to.is_some());
        self.report.proof_took_in += taken_in as u64;
        self.report.proof_disproved += disproven as u64;
        self.report.balances_looked_at += (looked.same + looked.differing) as u64;
        // What waits for the nodes is not at rest.
        let idle = !worked.is_busy() && waits.is_none();
        self.nets[net].idle_rounds = if idle { self.nets[net].idle_rounds + 1 } else { 0 };
    }

    /// An error that the simulator did not cause is a defect.
    pub fn meet(&mut self, (net, process): (usize, usize), error: &DepositError) {
        self.note(4, &[]);
        self.waits[process] = matches!(error, DepositError::Cursor(CursorError::Taken { .. }));
        // The one that waits for the lease says nothing about the one that has it.
        if !self.waits[process] {
            self.nets[net].idle_rounds = 0;
        }
        let expected = match error {
            DepositError::Chain(_) | DepositError::Follow(chain::follow::FollowError::Chain(_)) => true,
            DepositError::Cursor(CursorError::Fenced) => {
                self.report.fenced += 1;
                true
            }
            DepositError::Cursor(CursorError::Taken { .. }) => {
                self.report.waited_for_the_lease += 1;
                true
            }
            // The token was suspended, or is active again.
            DepositError::Changed { .. } => {
                self.report.settings_changed += 1;
                true
            }
            DepositError::Store(error) | DepositError::Cursor(CursorError::Store(error)) => is_simulated(error),
            DepositError::Cursor(
                CursorError::Halted { .. }
                | CursorError::NotOnTrail
                | CursorError::SecondBitcoin
                | CursorError::NotRead { .. },
            )
            | DepositError::Follow(_)
            | DepositError::House(_)
            | DepositError::Coins { .. }
            | DepositError::Network { .. }
            | DepositError::NotBegun { .. } => false,
        };
        // Two workers wait for each other on a calm day too, and what a node said before may come late.
        let of_database = matches!(error, DepositError::Store(_) | DepositError::Cursor(CursorError::Store(_)));
        if !expected || (self.calm && of_database) {
            self.breaks(format!("a worker met: {error} ({error:?})"));
        }
    }
}

const fn is_simulated(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_) | StoreError::CommitUnknown(_) | StoreError::Contention(_))
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
