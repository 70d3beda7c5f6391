//! The states of a job, and the one function that moves it on.
//!
//! ```text
//! queued ─► picked ─► building_tx ─► signing ─► broadcasting ─► broadcasted ─► confirming ─► confirmed
//!   ▲          └───────────┴────────────┤            ▲               │              │             │
//!   │                                   ▼            └───────────────│──────────────┴─────────────┘  its block left the chain
//!   └──────────────────────── failed_retryable ◄─────────────────────┘  proven: its slot paid nothing
//!                                       └─► failed_final
//! ```
//!
//! From `broadcasting` on its bytes are out, or may be: **nothing that anybody says ends it, only what the chain proves.**

use std::fmt;

/// The words are those of the sources, and of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    Queued,
    /// A worker of its lane has it.
    Picked,
    /// It would be paid: simulated, and covered by what its wallet has beyond other jobs.
    BuildingTx,
    /// Its slot is written down.
    Signing,
    /// Its bytes and their hash are written down.
    Broadcasting,
    /// Every node was told. What they said means nothing.
    Broadcasted,
    /// A quorum has a block with it.
    Confirming,
    /// That block is deep enough. It is watched until it is final.
    Confirmed,
    /// It paid nothing, and will be tried again.
    FailedRetryable,
    /// It paid nothing, and never will.
    FailedFinal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobEvent {
    /// A worker took it.
    Picked,
    /// The worker lost its lane before it took a slot.
    PutBack,
    /// It was simulated, and is covered.
    Checked,
    /// A slot is its own, durably, before anybody signs.
    Slotted,
    /// The signer's bytes are durable, before any node sees them.
    Signed,
    /// Every node was told.
    Told,
    /// One of its transactions is in a block of a quorum, and pays in full.
    Mined,
    /// As deep as the chain's confirmations.
    Deep,
    /// The block left the chain. The same bytes are sent again.
    Unmined,
    /// It cannot be paid now, and nothing was signed for it.
    NotNow,
    /// It can never be paid, and nothing was signed for it.
    Never,
    /// Its slot is used up, in a settled block, by what paid nothing of it: it reverted, was cancelled, or somebody else took the slot.
    PaidNothing,
    /// Its pause is over.
    Due,
    /// People gave it up.
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {state} cannot meet {event:?}")]
pub struct Illegal {
    pub state: JobState,
    pub event: JobEvent,
}

impl JobState {
    pub const ALL: [Self; 10] = [
        Self::Queued,
        Self::Picked,
        Self::BuildingTx,
        Self::Signing,
        Self::Broadcasting,
        Self::Broadcasted,
        Self::Confirming,
        Self::Confirmed,
        Self::FailedRetryable,
        Self::FailedFinal,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Picked => "picked",
            Self::BuildingTx => "building_tx",
            Self::Signing => "signing",
            Self::Broadcasting => "broadcasting",
            Self::Broadcasted => "broadcasted",
            Self::Confirming => "confirming",
            Self::Confirmed => "confirmed",
            Self::FailedRetryable => "failed_retryable",
            Self::FailedFinal => "failed_final",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether bytes that pay it may be out. Its coins are spoken for, and nobody may pay it in another slot.
    pub const fn may_be_out(self) -> bool {
        match self {
            Self::Signing | Self::Broadcasting | Self::Broadcasted | Self::Confirming | Self::Confirmed => true,
            Self::Queued | Self::Picked | Self::BuildingTx | Self::FailedRetryable | Self::FailedFinal => false,
        }
    }

    /// Each pair is decided here, and nowhere else.
    pub const fn next(self, event: JobEvent) -> Result<Self, Illegal> {
        use JobEvent::{
            Checked, Deep, Due, GivenUp, Mined, Never, NotNow, PaidNothing, Picked, PutBack, Signed, Slotted, Told,
            Unmined,
        };
        match (self, event) {
            (Self::Queued, Picked) => Ok(Self::Picked),
            (Self::Picked, Checked) => Ok(Self::BuildingTx),
            (Self::BuildingTx, Slotted) => Ok(Self::Signing),
            (Self::Signing, Signed) => Ok(Self::Broadcasting),
            (Self::Broadcasting, Told) => Ok(Self::Broadcasted),
            (Self::Broadcasted, Mined) => Ok(Self::Confirming),
            (Self::Confirming, Deep) => Ok(Self::Confirmed),
            (Self::Picked | Self::BuildingTx, PutBack) | (Self::FailedRetryable, Due) => Ok(Self::Queued),
            (Self::Confirming | Self::Confirmed, Unmined) => Ok(Self::Broadcasting),
            (Self::Picked | Self::BuildingTx | Self::Signing, NotNow) | (Self::Broadcasted, PaidNothing) => {
                Ok(Self::FailedRetryable)
            }
            (Self::Picked | Self::BuildingTx | Self::Signing, Never)
            | (Self::Queued | Self::FailedRetryable, GivenUp) => Ok(Self::FailedFinal),
            (
                Self::Queued,
                Checked | Slotted | Signed | Told | Mined | Deep | Unmined | PutBack | NotNow | Never | PaidNothing
                | Due,
            )
            | (Self::Picked, Picked | Slotted | Signed | Told | Mined | Deep | Unmined | PaidNothing | Due | GivenUp)
            | (
                Self::BuildingTx,
                Picked | Checked | Signed | Told | Mined | Deep | Unmined | PaidNothing | Due | GivenUp,
            )
            | (
                Self::Signing,
                Picked | PutBack | Checked | Slotted | Told | Mined | Deep | Unmined | PaidNothing | Due | GivenUp,
            )
            | (
                Self::Broadcasting,
                Picked | PutBack | Checked | Slotted | Signed | Mined | Deep | Unmined | NotNow | Never | PaidNothing
                | Due | GivenUp,
            )
            | (
                Self::Broadcasted,
                Picked | PutBack | Checked | Slotted | Signed | Told | Deep | Unmined | NotNow | Never | Due | GivenUp,
            )
            | (
                Self::Confirming,
                Picked | PutBack | Checked | Slotted | Signed | Told | Mined | NotNow | Never | PaidNothing | Due
                | GivenUp,
            )
            | (
                Self::Confirmed,
                Picked | PutBack | Checked | Slotted | Signed | Told | Mined | Deep | NotNow | Never | PaidNothing
                | Due | GivenUp,
            )
            | (
                Self::FailedRetryable,
                Picked | PutBack | Checked | Slotted | Signed | Told | Mined | Deep | Unmined | NotNow | Never
                | PaidNothing,
            )
            | (Self::FailedFinal, _) => Err(Illegal { state: self, event }),
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A job is tried so often before its first broadcast; then it is over. Afterwards nothing is counted: it goes on until the chain says.
pub const MOST_TRIES: u32 = 5;

/// How long a job rests after so many tries: 30 s, and twice as long each time.
pub const fn pause_micros(tries: u32) -> i64 {
    let doubled = if tries < MOST_TRIES { tries } else { MOST_TRIES };
    30_000_000 << doubled
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::JobEvent::*;
    use super::*;

    const EVENTS: [JobEvent; 14] = [
        Picked,
        PutBack,
        Checked,
        Slotted,
        Signed,
        Told,
        Mined,
        Deep,
        Unmined,
        NotNow,
        Never,
        PaidNothing,
        Due,
        GivenUp,
    ];

    #[test]
    fn the_way_of_a_payment() {
        let way = [Picked, Checked, Slotted, Signed, Told, Mined, Deep];
        let mut state = JobState::Queued;
        let mut seen = vec![state];
        for event in way {
            state = state.next(event).unwrap();
            seen.push(state);
        }
        assert_eq!(seen, JobState::ALL[..8], "no state is skipped");
    }

    #[test]
    fn what_may_be_out_ends_by_proof_alone() {
        for state in JobState::ALL.into_iter().filter(|state| state.may_be_out()) {
            let ends: BTreeSet<JobEvent> =
                EVENTS.into_iter().filter(|event| state.next(*event).is_ok_and(|next| !next.may_be_out())).collect();
            let allowed: &[JobEvent] = match state {
                // A slot is its own, and the signer said that it signed nothing for it.
                JobState::Signing => &[NotNow, Never],
                JobState::Broadcasted => &[PaidNothing],
                _ => &[],
            };
            assert_eq!(ends, allowed.iter().copied().collect(), "{state}");
        }
    }

    #[test]
    fn people_give_up_only_what_was_never_signed() {
        let given_up: Vec<JobState> = JobState::ALL.into_iter().filter(|state| state.next(GivenUp).is_ok()).collect();
        assert_eq!(given_up, [JobState::Queued, JobState::FailedRetryable]);
    }

    #[test]
    fn what_left_the_chain_is_sent_again_and_not_built_again() {
        for state in [JobState::Confirming, JobState::Confirmed] {
            assert_eq!(state.next(Unmined), Ok(JobState::Broadcasting));
        }
        // A block is not left twice by what waits.
        assert!(JobState::Broadcasted.next(Unmined).is_err());
    }

    #[test]
    fn every_state_but_the_last_can_come_to_an_end() {
        for from in JobState::ALL {
            let (mut reached, mut open) = (BTreeSet::from([from]), vec![from]);
            while let Some(state) = open.pop() {
                for next in EVENTS.into_iter().filter_map(|event| state.next(event).ok()) {
                    if reached.insert(next) {
                        open.push(next);
                    }
                }
            }
            let ends = reached.contains(&JobState::Confirmed) || reached.contains(&JobState::FailedFinal);
            assert!(ends, "{from} is stranded");
        }
    }

    #[test]
    fn words_are_read_back() {
        for state in JobState::ALL {
            assert_eq!(JobState::parse(state.as_str()), Some(state));
        }
        assert_eq!(JobState::parse("done"), None);
    }

    #[test]
    fn pauses_double_and_do_not_grow_for_ever() {
        let pauses: Vec<i64> = [0, 1, 2, 3, 4, 5, 6, u32::MAX].into_iter().map(pause_micros).collect();
        let seconds: Vec<i64> = pauses.iter().map(|micros| micros / 1_000_000).collect();
        assert_eq!(seconds, [30, 60, 120, 240, 480, 960, 960, 960]);
    }
}
