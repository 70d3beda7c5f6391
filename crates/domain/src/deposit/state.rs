//! The states of a deposit, and the one function that moves it on.
//!
//! A deposit is one mining of one payment: its transaction, its place, and a generation. A payment that leaves the chain
//! with its block and is mined again is a new deposit of the next generation, so no state is ever left twice.
//!
//! ```text
//! detected ─► proven ─► credited ─► final
//!     │          │ └──► unattributed ─► credited (two people)
//!     └──────────┴► orphaned     └───────┴────┴─► reversed
//! refused ─► orphaned
//! ```

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DepositState {
    /// One node shows it.
    Detected,
    /// Its block was proven against a header that a quorum has.
    Proven,
    /// The user has it. It may not be withdrawn yet.
    Credited,
    /// Deep enough to be withdrawn.
    Final,
    /// Its block left the chain before it was credited.
    Orphaned,
    /// Its block left the chain after it was in the books: it was taken back.
    Reversed,
    /// Its transaction did not run to its end: it paid nothing.
    Refused,
    /// It is ours, and no user's: `suspense` has it until two people say whose it is.
    Unattributed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepositEvent {
    /// Its block was proven.
    Proven,
    /// The ledger gave it to its user.
    Credited,
    /// The ledger gave it to `suspense`.
    LeftOver,
    /// Two people said whose it is.
    Assigned,
    /// It is as deep as the chain's finality.
    Settled,
    /// Its block left the chain, or the proof does not have it, and the books have nothing of it.
    Gone,
    /// The same, and the books gave it back.
    TakenBack,
    /// It was taken back, and what its user owed was collected.
    Collected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a deposit that is {state} cannot meet {event:?}")]
pub struct Illegal {
    pub state: DepositState,
    pub event: DepositEvent,
}

impl DepositState {
    pub const ALL: [Self; 8] = [
        Self::Detected,
        Self::Proven,
        Self::Credited,
        Self::Final,
        Self::Orphaned,
        Self::Reversed,
        Self::Refused,
        Self::Unattributed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Detected => "detected",
            Self::Proven => "proven",
            Self::Credited => "credited",
            Self::Final => "final",
            Self::Orphaned => "orphaned",
            Self::Reversed => "reversed",
            Self::Refused => "refused",
            Self::Unattributed => "unattributed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether the ledger has postings of it that stand.
    pub const fn is_posted(self) -> bool {
        match self {
            Self::Credited | Self::Final | Self::Unattributed => true,
            Self::Detected | Self::Proven | Self::Orphaned | Self::Reversed | Self::Refused => false,
        }
    }

    /// What a deposit meets when the ledger books it, in order: each state of the way has its own event, also when all of them are
    /// reached at once. `credited` says whether its user gets it. A deposit whose block is not proven does not meet the proof, so that
    /// [`Self::next`] refuses the rest.
    pub fn booked(self, is_proven: bool, credited: bool, is_final: bool) -> Vec<DepositEvent> {
        let proof = match self {
            Self::Detected if is_proven => Some(DepositEvent::Proven),
            Self::Detected
            | Self::Proven
            | Self::Credited
            | Self::Final
            | Self::Orphaned
            | Self::Reversed
            | Self::Refused
            | Self::Unattributed => None,
        };
        let given = if credited { DepositEvent::Credited } else { DepositEvent::LeftOver };
        let settled = (credited && is_final).then_some(DepositEvent::Settled);
        proof.into_iter().chain([given]).chain(settled).collect()
    }

    /// Each pair is decided here, and nowhere else.
    pub const fn next(self, event: DepositEvent) -> Result<Self, Illegal> {
        use DepositEvent::{Assigned, Collected, Credited, Gone, LeftOver, Proven, Settled, TakenBack};
        match (self, event) {
            (Self::Detected, Proven) => Ok(Self::Proven),
            (Self::Proven, Credited) => Ok(Self::Credited),
            (Self::Proven, LeftOver) => Ok(Self::Unattributed),
            (Self::Unattributed, Assigned) => Ok(Self::Credited),
            (Self::Credited, Settled) => Ok(Self::Final),
            (Self::Detected | Self::Proven | Self::Refused, Gone) => Ok(Self::Orphaned),
            (Self::Credited | Self::Final | Self::Unattributed, TakenBack) | (Self::Reversed, Collected) => {
                Ok(Self::Reversed)
            }
            (Self::Detected, Credited | LeftOver | Assigned | Settled | TakenBack | Collected)
            | (Self::Proven, Proven | Assigned | Settled | TakenBack | Collected)
            | (Self::Credited, Proven | Credited | LeftOver | Assigned | Gone | Collected)
            | (Self::Final, Proven | Credited | LeftOver | Assigned | Settled | Gone | Collected)
            | (Self::Unattributed, Proven | Credited | LeftOver | Settled | Gone | Collected)
            | (Self::Refused, Proven | Credited | LeftOver | Assigned | Settled | TakenBack | Collected)
            | (Self::Reversed, Proven | Credited | LeftOver | Assigned | Settled | Gone | TakenBack)
            | (Self::Orphaned, _) => Err(Illegal { state: self, event }),
        }
    }
}

impl fmt::Display for DepositState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [DepositEvent; 7] = [
        DepositEvent::Proven,
        DepositEvent::Credited,
        DepositEvent::LeftOver,
        DepositEvent::Assigned,
        DepositEvent::Settled,
        DepositEvent::Gone,
        DepositEvent::TakenBack,
    ];

    #[test]
    fn states_read_back() {
        for state in DepositState::ALL {
            assert_eq!(DepositState::parse(state.as_str()), Some(state));
        }
    }

    #[test]
    fn only_what_is_in_the_books_is_taken_back_and_only_what_is_not_is_gone() {
        for state in DepositState::ALL {
            assert_eq!(state.next(DepositEvent::TakenBack).is_ok(), state.is_posted(), "{state}");
            if state.is_posted() {
                assert!(state.next(DepositEvent::Gone).is_err(), "{state}");
            }
        }
    }

    #[test]
    fn nothing_is_credited_without_proof_and_nothing_ends_twice() {
        let credited = DepositState::ALL.into_iter().filter(|state| state.next(DepositEvent::Credited).is_ok());
        assert_eq!(credited.collect::<Vec<_>>(), [DepositState::Proven]);
        for ended in [DepositState::Orphaned, DepositState::Reversed] {
            assert!(EVENTS.iter().all(|event| ended.next(*event).is_err()), "{ended}");
        }
    }

    /// Where the events lead, if every one of them is allowed.
    fn walked(state: DepositState, events: &[DepositEvent]) -> Result<DepositState, Illegal> {
        events.iter().try_fold(state, |state, event| state.next(*event))
    }

    #[test]
    fn what_is_booked_at_once_skips_no_state_and_needs_its_proof() {
        use DepositEvent::{Credited, LeftOver, Proven, Settled};
        for (events, wanted) in [
            (DepositState::Detected.booked(true, true, true), &[Proven, Credited, Settled][..]),
            (DepositState::Detected.booked(true, true, false), &[Proven, Credited]),
            (DepositState::Detected.booked(true, false, true), &[Proven, LeftOver]),
            (DepositState::Proven.booked(true, true, true), &[Credited, Settled]),
        ] {
            assert_eq!(events, wanted);
        }
        for (credited, is_final) in [(true, true), (true, false), (false, true), (false, false)] {
            let end = match (credited, is_final) {
                (true, true) => DepositState::Final,
                (true, false) => DepositState::Credited,
                (false, true | false) => DepositState::Unattributed,
            };
            for state in DepositState::ALL {
                let waits = matches!(state, DepositState::Detected | DepositState::Proven);
                let proven = walked(state, &state.booked(true, credited, is_final));
                assert_eq!(proven.ok(), waits.then_some(end), "{state}");
            }
            let unproven = DepositState::Detected.booked(false, credited, is_final);
            assert!(walked(DepositState::Detected, &unproven).is_err(), "nothing is booked without its proof");
        }
    }

    /// From every state the way ends: there is no circle.
    #[test]
    fn no_state_is_left_twice() {
        fn walk(state: DepositState, seen: &mut Vec<DepositState>) {
            assert!(!seen.contains(&state), "{state} again after {seen:?}");
            seen.push(state);
            for event in EVENTS {
                if let Ok(next) = state.next(event) {
                    walk(next, seen);
                }
            }
            seen.pop();
        }
        for state in DepositState::ALL {
            walk(state, &mut Vec::new());
        }
    }
}
