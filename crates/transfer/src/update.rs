//! A transfer while one transaction changes it: where it began, the states it passes, and what it needs next.
//!
//! Everything here is decided in memory. What the ledger must do is asked of it wave by wave ([`crate::round`]).

use domain::AccountId;
use domain::ledger::{BadOperation, Operation, Outcome, Reply};
use domain::transfer::{Action, Direction, Event, State, Transfer, next, plan};
use domain::{Timestamp, random::Random};
use store::StoreError;
use store::transfer::History;

use crate::leg::{Answer, Reason, Verb, funding};
use crate::settings::{Settings, micros};

/// What a remote call came to, in the words of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The remote source gave the money out, or refused to.
    Withdrawn,
    NotWithdrawn(Reason),
    /// The remote target took it in, or refused to.
    Deposited,
    NotDeposited(Reason),
    /// The remote source made its withdrawal final.
    Committed,
    /// The remote source has its money back.
    RolledBack,
    /// Nobody knows.
    Nothing(Reason),
}

impl Happened {
    pub fn from_answer(verb: Verb, answer: Answer) -> Self {
        match (verb, answer) {
            (Verb::Withdraw, Answer::Success) => Self::Withdrawn,
            (Verb::Withdraw, Answer::Failed(reason)) => Self::NotWithdrawn(reason),
            (Verb::Deposit, Answer::Success) => Self::Deposited,
            (Verb::Deposit, Answer::Failed(reason)) => Self::NotDeposited(reason),
            (Verb::Commit, Answer::Success) => Self::Committed,
            (Verb::Rollback, Answer::Success) => Self::RolledBack,
            // What was once given out can be refused neither its end nor its way back.
            (Verb::Commit | Verb::Rollback, Answer::Failed(reason)) => Self::Nothing(reason),
            (_, Answer::Pending(reason)) => Self::Nothing(reason),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub transfer: Transfer,
    /// The state of the locked row; nothing for a transfer that has no row yet.
    pub seen: Option<State>,
    path: Vec<State>,
    reason: String,
    /// The remote target has the money: the hold may be settled.
    confirmed: bool,
    /// The local target has the money: the remote source may be committed.
    pub deposited: bool,
    /// It was asked without an answer, and waits for its next turn.
    pub waits: bool,
    changed: bool,
}

impl Draft {
    pub fn new(transfer: Transfer) -> Self {
        let path = vec![transfer.state];
        let reason = "accepted".to_owned();
        Self { transfer, seen: None, path, reason, confirmed: false, deposited: false, waits: false, changed: true }
    }

    pub fn known(transfer: Transfer) -> Self {
        let (seen, path) = (Some(transfer.state), vec![transfer.state]);
        let reason = String::new();
        Self { transfer, seen, path, reason, confirmed: false, deposited: false, waits: false, changed: false }
    }

    /// Somebody else has moved it on; it is not ours to drive any more.
    pub fn left_to_others(transfer: Transfer) -> Self {
        Self { waits: true, ..Self::known(transfer) }
    }

    fn happen(&mut self, event: Event) -> Result<(), StoreError> {
        let state = next(self.transfer.state, event)
            .map_err(|illegal| StoreError::Corrupt { what: format!("transfer {}: {illegal}", self.transfer.id) })?;
        if state != self.transfer.state {
            self.path.push(state);
            self.transfer.state = state;
        }
        self.changed = true;
        Ok(())
    }

    fn because(&mut self, reason: &Reason) {
        self.transfer.error = Some(reason.code().to_owned());
        self.reason = reason.to_string();
    }

    /// What a remote leg said.
    pub fn apply(&mut self, happened: &Happened, at: Timestamp, settings: &Settings) -> Result<(), StoreError> {
        match happened {
            Happened::Withdrawn => self.happen(Event::SourceOk),
            Happened::NotWithdrawn(reason) => {
                self.because(reason);
                self.happen(Event::SourceFail)
            }
            Happened::Deposited => {
                self.confirmed = true;
                Ok(())
            }
            Happened::NotDeposited(reason) => {
                self.because(reason);
                self.happen(Event::TargetFail)
            }
            Happened::Committed => self.happen(Event::TargetOk),
            Happened::RolledBack => self.happen(Event::RollbackOk),
            Happened::Nothing(reason) => self.wait(reason, at, settings),
        }
    }

    /// Ask again later, each time after a longer pause. The refusal that sends money back stays the transfer's error.
    fn wait(&mut self, reason: &Reason, at: Timestamp, settings: &Settings) -> Result<(), StoreError> {
        self.happen(Event::Retry)?;
        self.waits = true;
        let transfer = &mut self.transfer;
        transfer.tries = transfer.tries.saturating_add(1);
        let doublings = u32::try_from(transfer.tries.min(20) - 1).unwrap_or(0);
        let pause = settings.first_pause.saturating_mul(1 << doublings).min(settings.longest_pause);
        // Half of it at random, from what is at hand: a crowd that failed together does not come back together.
        let half = micros(pause) / 2;
        let mut random = Random::from_seed(transfer.id.number().cast_unsigned() ^ transfer.tries.cast_unsigned());
        let jitter = random.below(half.unsigned_abs().max(1));
        transfer.due_at = at.plus_micros(half + i64::try_from(jitter).unwrap_or(0));
        let new_trouble = transfer.state != State::Compensating && transfer.error.as_deref() != Some(reason.code());
        let age = at.micros().saturating_sub(transfer.created_at.micros());
        let stuck = transfer.tries >= settings.alert_tries || age >= micros(settings.alert_after);
        if transfer.state != State::Compensating {
            transfer.error = Some(reason.code().to_owned());
        }
        if stuck && transfer.alerted_at.is_none() {
            transfer.alerted_at = Some(at);
            self.reason = format!("ALERT after {} tries: {reason}", transfer.tries);
        } else if new_trouble {
            self.reason = reason.to_string();
        }
        Ok(())
    }

    /// Goes on as far as nobody has to be asked, and says what the ledger must do next, if anything.
    pub fn local(&mut self, clearing: AccountId) -> Result<Option<Operation>, StoreError> {
        loop {
            let operation = match (plan(self.transfer.state), self.transfer.direction) {
                _ if self.waits => None,
                (Action::CallSource, _) => {
                    self.happen(Event::SourceCall)?;
                    continue;
                }
                (Action::CallTarget, _) => {
                    self.happen(Event::TargetCall)?;
                    continue;
                }
                (Action::Withdraw, Direction::ToSpot) => Some(funding::hold(&self.transfer)),
                (Action::Deposit, Direction::ToSpot) => {
                    self.confirmed.then(|| funding::settle(&self.transfer, clearing))
                }
                (Action::Deposit, Direction::ToFunding) => {
                    (!self.deposited).then(|| funding::deposit(&self.transfer, clearing))
                }
                (Action::RollBack, Direction::ToSpot) => Some(funding::release(&self.transfer)),
                (Action::Withdraw | Action::RollBack, Direction::ToFunding) | (Action::Rest, _) => None,
            };
            return operation.transpose().map_err(|error: BadOperation| StoreError::Corrupt {
                what: format!("transfer {} makes no operation: {error}", self.transfer.id),
            });
        }
    }

    /// What the ledger did with [`Self::local`]'s operation.
    pub fn posted(
        &mut self,
        reply: Reply,
        freezes: bool,
        at: Timestamp,
        settings: &Settings,
    ) -> Result<(), StoreError> {
        let outcome = match reply {
            Reply::First(outcome) | Reply::Replay(outcome) => outcome,
            // Somebody wrote something else under our key. Only a person can tell what that means.
            Reply::Conflict(difference) => {
                let reason = Reason::foreign(difference.code(), &difference.to_string());
                return self.wait(&reason, at, settings);
            }
        };
        let refused = match outcome {
            Outcome::Applied => None,
            Outcome::Refused(refusal) => Some(funding::reason(refusal)),
        };
        match (plan(self.transfer.state), refused) {
            (Action::Withdraw, None) => self.happen(Event::SourceOk),
            (Action::Withdraw, Some(reason)) => {
                self.because(&reason);
                self.happen(Event::SourceFail)
            }
            (Action::Deposit, None) if self.transfer.direction == Direction::ToFunding && freezes => {
                self.deposited = true;
                Ok(())
            }
            (Action::Deposit, None) => self.happen(Event::TargetOk),
            (Action::Deposit, Some(reason)) if self.transfer.direction == Direction::ToFunding => {
                self.because(&reason);
                self.happen(Event::TargetFail)
            }
            (Action::RollBack, None) => self.happen(Event::RollbackOk),
            // The target has the money, or the user must get it back: the ledger's refusal is a defect, not an answer.
            (Action::Deposit | Action::RollBack, Some(reason)) => self.wait(&reason, at, settings),
            (Action::CallSource | Action::CallTarget | Action::Rest, _) => Ok(()),
        }
    }

    /// The row of history for this commit, if there is anything to tell.
    pub fn history(&mut self) -> Option<History> {
        let moved = self.path.len() > 1 || self.seen.is_none();
        if !moved && self.reason.is_empty() {
            return None;
        }
        if self.transfer.state == State::Committed {
            self.transfer.error = None;
        }
        self.transfer.version += 1;
        let path: Vec<&str> = self.path.iter().map(|state| state.as_str()).collect();
        let reason = if self.reason.is_empty() { default_reason(self.transfer.state) } else { &self.reason };
        Some(History {
            transfer: self.transfer.id,
            version: self.transfer.version,
            path: path.join(">"),
            reason: reason.to_owned(),
        })
    }

    pub const fn is_changed(&self) -> bool {
        self.changed
    }
}

/// What the remote leg must be asked about a transfer, as far as its row tells.
pub(crate) fn remote(transfer: &Transfer, deposited: bool) -> Option<Verb> {
    match (plan(transfer.state), transfer.direction) {
        (Action::Withdraw, Direction::ToFunding) => Some(Verb::Withdraw),
        (Action::Deposit, Direction::ToSpot) => Some(Verb::Deposit),
        (Action::Deposit, Direction::ToFunding) => deposited.then_some(Verb::Commit),
        (Action::RollBack, Direction::ToFunding) => Some(Verb::Rollback),
        (Action::Withdraw | Action::RollBack, Direction::ToSpot)
        | (Action::CallSource | Action::CallTarget | Action::Rest, _) => None,
    }
}

const fn default_reason(state: State) -> &'static str {
    match state {
        State::Init => "accepted",
        State::SourcePending => "the source is asked",
        State::SourceDone => "the source gave the money out",
        State::TargetPending => "the target is asked",
        State::Committed => "the target has the money",
        State::Failed => "the source refused",
        State::Compensating => "the target refused",
        State::RolledBack => "the source has the money back",
    }
}
