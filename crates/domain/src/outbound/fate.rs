//! What becomes of a job when the chain has said something about its slot.
//!
//! A slot holds the job's bytes, each replacement of them, and maybe a cancel. At most one of them is ever mined. So what the mined one
//! paid is what the job was paid, and as long as its block can leave the chain, so can that.

use super::job::{JobEvent, JobState};

/// What the mined transaction of a slot did for the jobs of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It paid them in full.
    InFull,
    /// It paid nothing of them: it did not run to its end, or was their cancel.
    Nothing,
    /// It paid something else. Whether that is enough is for people to say.
    Unclear,
}

/// What the chain says of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotWord {
    /// One of its transactions is in a block that a quorum has.
    Mined(Effect),
    /// None is, although one was.
    Left,
    /// The block is as deep as for a credit.
    Deep(Effect),
    /// It is as deep as it takes to be believed for good. This and `Lost` are the only ends.
    Final(Effect),
    /// No transaction of the slot can ever be mined, by proof: its time is over, or its nonce was used by somebody else.
    Lost,
}

/// The events that a job meets then, in their order; none if it knows already. `None`: this cannot be, and people must look.
pub fn fate(state: JobState, said: SlotWord) -> Option<Vec<JobEvent>> {
    use JobEvent::{Deep, Mined, PaidNothing, Told, Unmined};
    // What is not slotted has nothing on a chain; what waits for its signature was shown to nobody.
    if !state.may_be_out() || state == JobState::Signing {
        return None;
    }
    // What it takes to be told and in no block.
    let waiting: &[JobEvent] = match state {
        JobState::Broadcasting => &[Told],
        JobState::Confirming | JobState::Confirmed => &[Unmined, Told],
        _ => &[],
    };
    let with = |start: &[JobEvent], end: &[JobEvent]| Some([start, end].concat());
    match said {
        SlotWord::Mined(Effect::InFull) => match state {
            JobState::Confirming | JobState::Confirmed => Some(Vec::new()),
            _ => with(waiting, &[Mined]),
        },
        SlotWord::Deep(Effect::InFull) | SlotWord::Final(Effect::InFull) => match state {
            JobState::Confirmed => Some(Vec::new()),
            JobState::Confirming => Some(vec![Deep]),
            _ => with(waiting, &[Mined, Deep]),
        },
        SlotWord::Mined(Effect::Nothing | Effect::Unclear)
        | SlotWord::Deep(Effect::Nothing | Effect::Unclear)
        | SlotWord::Final(Effect::Unclear) => with(waiting, &[]),
        SlotWord::Left => match state {
            JobState::Confirming | JobState::Confirmed => Some(vec![Unmined]),
            _ => Some(Vec::new()),
        },
        SlotWord::Final(Effect::Nothing) | SlotWord::Lost => with(waiting, &[PaidNothing]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [SlotWord; 11] = [
        SlotWord::Mined(Effect::InFull),
        SlotWord::Mined(Effect::Nothing),
        SlotWord::Mined(Effect::Unclear),
        SlotWord::Left,
        SlotWord::Deep(Effect::InFull),
        SlotWord::Deep(Effect::Nothing),
        SlotWord::Deep(Effect::Unclear),
        SlotWord::Final(Effect::InFull),
        SlotWord::Final(Effect::Nothing),
        SlotWord::Final(Effect::Unclear),
        SlotWord::Lost,
    ];

    fn after(state: JobState, said: SlotWord) -> Option<JobState> {
        let events = fate(state, said)?;
        Some(events.into_iter().fold(state, |state, event| state.next(event).unwrap()))
    }

    /// Every path is one that the machine allows.
    #[test]
    fn a_job_goes_only_where_it_may() {
        for state in JobState::ALL {
            for said in ALL {
                assert_eq!(after(state, said).is_some(), state.may_be_out() && state != JobState::Signing);
            }
        }
    }

    /// A slot's end is final, or proven: nothing else lets a job be paid in another slot.
    #[test]
    fn only_an_end_lets_go() {
        for state in [JobState::Broadcasting, JobState::Broadcasted, JobState::Confirming, JobState::Confirmed] {
            for said in ALL {
                let ended = matches!(said, SlotWord::Final(Effect::Nothing) | SlotWord::Lost);
                let after = after(state, said).unwrap();
                assert_eq!(after == JobState::FailedRetryable, ended, "{state} {said:?}");
                assert_eq!(after.may_be_out(), !ended, "{state} {said:?}");
            }
        }
    }

    #[test]
    fn what_was_paid_and_is_gone_is_sent_again() {
        for state in [JobState::Confirming, JobState::Confirmed] {
            assert_eq!(after(state, SlotWord::Left), Some(JobState::Broadcasting));
            // The cancel of the same slot is in its place.
            assert_eq!(after(state, SlotWord::Mined(Effect::Nothing)), Some(JobState::Broadcasted));
        }
    }

    #[test]
    fn the_same_again_changes_nothing() {
        for state in JobState::ALL {
            for said in ALL {
                if let Some(once) = after(state, said).filter(|once| once.may_be_out()) {
                    assert_eq!(after(once, said), Some(once), "{state} {said:?}");
                }
            }
        }
    }
}
