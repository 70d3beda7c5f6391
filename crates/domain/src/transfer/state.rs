//! The state machine of an internal transfer, as a pure function.
//!
//! The coordinator makes each state durable before it acts on it; [`plan`] says what to do in a state, [`next`] where
//! an outcome leads. No state is ever skipped, though several may commit together.
//!
//! **Only an explicit refusal of the target sends the money back.** A call that was not answered leaves the transfer
//! where it is, and is made again, for ever: the operation is idempotent, and "not found" cannot be told from "not yet
//! arrived".

use std::fmt;

/// Where a transfer stands. The numbers are stored; negative ones lead to an end without the money at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Accepted. The money is at its source.
    Init,
    /// The source was, or will be, asked to give the money out.
    SourcePending,
    /// The source gave it out: it is in flight.
    SourceDone,
    /// The target was, or will be, asked to take it in.
    TargetPending,
    /// The money is at its target. The end.
    Committed,
    /// The source refused: nothing moved. The end.
    Failed,
    /// The target refused: the source was, or will be, asked to take the money back.
    Compensating,
    /// The money is at its source again. The end.
    RolledBack,
}

/// What happened to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The source is about to be called.
    SourceCall,
    SourceOk,
    /// The source refused, explicitly.
    SourceFail,
    /// The target is about to be called.
    TargetCall,
    TargetOk,
    /// The target refused, explicitly.
    TargetFail,
    RollbackOk,
    /// The source did not take the money back yet. It will be asked again.
    RollbackFail,
    /// No answer, or one that decides nothing.
    Retry,
}

/// What to do with a transfer in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Persist that the source is about to be called.
    CallSource,
    /// Withdraw from the source, under the transfer's id.
    Withdraw,
    /// Persist that the target is about to be called.
    CallTarget,
    /// Deposit at the target, under the transfer's id; then settle the source.
    Deposit,
    /// Give the money back to the source, under the transfer's id.
    RollBack,
    /// Nothing more, ever.
    Rest,
}

/// An event that cannot happen in a state: a bug, or a lie. The state stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to a transfer in {state}")]
pub struct Illegal {
    pub state: State,
    pub event: Event,
}

impl State {
    pub const ALL: [Self; 8] = [
        Self::Init,
        Self::SourcePending,
        Self::SourceDone,
        Self::TargetPending,
        Self::Committed,
        Self::Failed,
        Self::Compensating,
        Self::RolledBack,
    ];

    /// The number that stands for it in the database.
    pub const fn number(self) -> i16 {
        match self {
            Self::Init => 0,
            Self::SourcePending => 10,
            Self::SourceDone => 20,
            Self::TargetPending => 30,
            Self::Committed => 40,
            Self::Failed => -10,
            Self::Compensating => -20,
            Self::RolledBack => -30,
        }
    }

    pub fn from_number(number: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Init => "INIT",
            Self::SourcePending => "SOURCE_PENDING",
            Self::SourceDone => "SOURCE_DONE",
            Self::TargetPending => "TARGET_PENDING",
            Self::Committed => "COMMITTED",
            Self::Failed => "FAILED",
            Self::Compensating => "COMPENSATING",
            Self::RolledBack => "ROLLED_BACK",
        }
    }

    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Committed | Self::Failed | Self::RolledBack => true,
            Self::Init | Self::SourcePending | Self::SourceDone | Self::TargetPending | Self::Compensating => false,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Event {
    pub const ALL: [Self; 9] = [
        Self::SourceCall,
        Self::SourceOk,
        Self::SourceFail,
        Self::TargetCall,
        Self::TargetOk,
        Self::TargetFail,
        Self::RollbackOk,
        Self::RollbackFail,
        Self::Retry,
    ];
}

/// Where an event leads.
pub const fn next(state: State, event: Event) -> Result<State, Illegal> {
    use Event::{Retry, RollbackFail, RollbackOk, SourceCall, SourceFail, SourceOk, TargetCall, TargetFail, TargetOk};
    let illegal = Err(Illegal { state, event });
    match state {
        State::Init => match event {
            SourceCall => Ok(State::SourcePending),
            SourceOk | SourceFail | TargetCall | TargetOk | TargetFail | RollbackOk | RollbackFail | Retry => illegal,
        },
        State::SourcePending => match event {
            SourceOk => Ok(State::SourceDone),
            SourceFail => Ok(State::Failed),
            Retry => Ok(State::SourcePending),
            SourceCall | TargetCall | TargetOk | TargetFail | RollbackOk | RollbackFail => illegal,
        },
        State::SourceDone => match event {
            TargetCall => Ok(State::TargetPending),
            SourceCall | SourceOk | SourceFail | TargetOk | TargetFail | RollbackOk | RollbackFail | Retry => illegal,
        },
        State::TargetPending => match event {
            TargetOk => Ok(State::Committed),
            TargetFail => Ok(State::Compensating),
            Retry => Ok(State::TargetPending),
            SourceCall | SourceOk | SourceFail | TargetCall | RollbackOk | RollbackFail => illegal,
        },
        State::Compensating => match event {
            RollbackOk => Ok(State::RolledBack),
            RollbackFail | Retry => Ok(State::Compensating),
            SourceCall | SourceOk | SourceFail | TargetCall | TargetOk | TargetFail => illegal,
        },
        State::Committed | State::Failed | State::RolledBack => illegal,
    }
}

/// What to do in a state.
pub const fn plan(state: State) -> Action {
    match state {
        State::Init => Action::CallSource,
        State::SourcePending => Action::Withdraw,
        State::SourceDone => Action::CallTarget,
        State::TargetPending => Action::Deposit,
        State::Compensating => Action::RollBack,
        State::Committed | State::Failed | State::RolledBack => Action::Rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transitions of the source (004 §2.2, with the names of 003 §4.2), row by row. What is not here is illegal.
    const TABLE: &str = "
        INIT            SourceCall    SOURCE_PENDING
        SOURCE_PENDING  SourceOk      SOURCE_DONE
        SOURCE_PENDING  SourceFail    FAILED
        SOURCE_PENDING  Retry         SOURCE_PENDING
        SOURCE_DONE     TargetCall    TARGET_PENDING
        TARGET_PENDING  TargetOk      COMMITTED
        TARGET_PENDING  TargetFail    COMPENSATING
        TARGET_PENDING  Retry         TARGET_PENDING
        COMPENSATING    RollbackOk    ROLLED_BACK
        COMPENSATING    RollbackFail  COMPENSATING
        COMPENSATING    Retry         COMPENSATING";

    #[test]
    fn every_state_with_every_event_is_as_the_table_says() {
        let rows: Vec<Vec<&str>> = TABLE
            .lines()
            .map(|line| line.split_whitespace().collect())
            .filter(|row: &Vec<&str>| row.len() == 3)
            .collect();
        assert_eq!(rows.len(), 11);
        for state in State::ALL {
            for event in Event::ALL {
                let expected = rows.iter().find(|row| row[0] == state.as_str() && row[1] == format!("{event:?}"));
                let found = next(state, event).map(State::as_str);
                let expected = expected.map(|row| row[2]).ok_or(Illegal { state, event });
                assert_eq!(found, expected, "{state} with {event:?}");
            }
        }
    }

    #[test]
    fn states_have_the_numbers_of_the_source_and_read_back() {
        let numbers = State::ALL.map(State::number);
        assert_eq!(numbers, [0, 10, 20, 30, 40, -10, -20, -30]);
        for state in State::ALL {
            assert_eq!(State::from_number(state.number()), Some(state));
        }
        assert_eq!(State::from_number(5), None);
    }

    #[test]
    fn a_transfer_rests_exactly_when_it_is_over() {
        for state in State::ALL {
            assert_eq!(plan(state) == Action::Rest, state.is_terminal());
            let leaves = Event::ALL.iter().any(|event| next(state, *event).is_ok());
            assert_eq!(leaves, !state.is_terminal(), "{state}");
        }
    }

    /// Law 4: only an explicit answer moves the transfer.
    #[test]
    fn a_timeout_never_refunds() {
        for state in [State::SourcePending, State::TargetPending, State::Compensating] {
            assert_eq!(next(state, Event::Retry), Ok(state));
        }
        let leads_back: Vec<(State, Event)> = State::ALL
            .into_iter()
            .flat_map(|state| Event::ALL.map(|event| (state, event)))
            .filter(|(state, event)| *state != State::Compensating && next(*state, *event) == Ok(State::Compensating))
            .collect();
        assert_eq!(leads_back, [(State::TargetPending, Event::TargetFail)]);
    }
}
