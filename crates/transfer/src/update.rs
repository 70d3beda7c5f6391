//! One transaction that takes a batch of transfers on: what the remote leg said, every local action that follows from
//! it, the new states and their history, all or nothing.
//!
//! A [`TransferUpdate`] decides in memory: where the transfer was, the states that it passes, and what it needs next.
//! [`advance`] does in the ledger what the updates of a batch need, wave by wave; [`write`] writes their rows.

use std::collections::HashMap;

use domain::ledger::{AccountState, BadOperation, HoldState, OpKey, Operation, Outcome, Reply};
use domain::transfer::{Action, Direction, Event, State, Transfer, next, plan};
use domain::{AccountId, AssetId, Timestamp, random::Random};
use store::ledger::{decide, load_accounts, system_state};
use store::transfer::{Changed, History, change, insert, write_history};
use store::{StoreError, Tx, Writes};

use crate::leg::{Answer, Reason, Verb, funding};
use crate::settings::{Settings, micros};

/// What happened at the remote leg, in the words of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteEvent {
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
    /// The call was not answered, or its answer decides nothing.
    Undecided(Reason),
}

impl RemoteEvent {
    pub fn from_answer(verb: Verb, answer: Answer) -> Self {
        match (verb, answer) {
            (Verb::Withdraw, Answer::Success) => Self::Withdrawn,
            (Verb::Withdraw, Answer::Failed(reason)) => Self::NotWithdrawn(reason),
            (Verb::Deposit, Answer::Success) => Self::Deposited,
            (Verb::Deposit, Answer::Failed(reason)) => Self::NotDeposited(reason),
            (Verb::Commit, Answer::Success) => Self::Committed,
            (Verb::Rollback, Answer::Success) => Self::RolledBack,
            // A leg that gave money out may refuse neither to make that final nor to take the money back.
            (Verb::Commit | Verb::Rollback, Answer::Failed(reason)) => Self::Undecided(reason),
            (_, Answer::Pending(reason)) => Self::Undecided(reason),
        }
    }
}

/// A withdrawal that was sent, and undone or forbidden since, never takes effect again.
pub(crate) const WITHDRAWAL_UNDONE: Reason =
    Reason::new("WITHDRAWAL_ROLLED_BACK", "the withdrawal was undone at the remote leg");

/// A transfer while one transaction changes it.
#[derive(Clone, Debug)]
pub(crate) struct TransferUpdate {
    pub transfer: Transfer,
    /// The state of the locked row; `None` for a transfer that has no row yet.
    pub seen: Option<State>,
    path: Vec<State>,
    reason: String,
    /// The remote target has the money: the hold may be settled.
    confirmed: bool,
    /// The local target has the money: the remote source may be committed.
    pub deposited: bool,
    /// The remote leg was asked and did not decide: the transfer waits for its next turn.
    pub waits: bool,
    changed: bool,
    /// What this transaction gave to `clearing:spot`, or took from it, in ledger units.
    given: i128,
}

impl TransferUpdate {
    /// For a transfer that this transaction records.
    pub fn new(transfer: Transfer) -> Self {
        let path = vec![transfer.state];
        let reason = "accepted".to_owned();
        Self {
            transfer,
            seen: None,
            path,
            reason,
            confirmed: false,
            deposited: false,
            waits: false,
            changed: true,
            given: 0,
        }
    }

    /// For a transfer whose row this transaction has locked.
    pub fn known(transfer: Transfer) -> Self {
        let (seen, path) = (Some(transfer.state), vec![transfer.state]);
        Self {
            transfer,
            seen,
            path,
            reason: String::new(),
            confirmed: false,
            deposited: false,
            waits: false,
            changed: false,
            given: 0,
        }
    }

    /// Another worker has moved the transfer on, and drives it from here.
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

    /// What the history shall say of this commit, instead of what follows from its states.
    pub fn note(&mut self, words: String) {
        self.reason = words;
    }

    /// Takes in what the remote leg said.
    pub fn apply(&mut self, event: &RemoteEvent, at: Timestamp, settings: &Settings) -> Result<(), StoreError> {
        match event {
            RemoteEvent::Withdrawn => self.happen(Event::SourceOk),
            RemoteEvent::NotWithdrawn(reason) => {
                self.because(reason);
                self.happen(Event::SourceFail)
            }
            RemoteEvent::Deposited => {
                self.confirmed = true;
                Ok(())
            }
            RemoteEvent::NotDeposited(reason) => {
                self.because(reason);
                self.happen(Event::TargetFail)
            }
            RemoteEvent::Committed => self.happen(Event::TargetOk),
            RemoteEvent::RolledBack => self.happen(Event::RollbackOk),
            RemoteEvent::Undecided(reason) => self.wait(reason, at, settings),
        }
    }

    /// The leg is asked again later, each time after a longer pause. A refusal that sends money back stays the
    /// transfer's error, whatever goes wrong on the way back.
    fn wait(&mut self, reason: &Reason, at: Timestamp, settings: &Settings) -> Result<(), StoreError> {
        self.happen(Event::Retry)?;
        self.waits = true;
        let transfer = &mut self.transfer;
        transfer.tries = transfer.tries.saturating_add(1);
        // The pause doubles with each try. Twenty doublings reach any longest pause, and the shift cannot overflow.
        let doublings = u32::try_from(transfer.tries.min(20) - 1).unwrap_or(0);
        let pause = settings.first_pause.saturating_mul(1 << doublings).min(settings.longest_pause);
        // Half of the pause is random, so that transfers that failed together do not come back together. The seed is
        // the transfer's own: a simulated run repeats it.
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

    /// Whether this transaction will credit the user's funding account from `clearing:spot`. Of an engine that freezes it
    /// is not known whether it was done before: then it does not count.
    pub fn will_credit(&self, freezes: bool) -> bool {
        let due = match self.transfer.state {
            State::SourceDone => true,
            State::TargetPending => !freezes,
            State::Init
            | State::SourcePending
            | State::Committed
            | State::Failed
            | State::Compensating
            | State::RolledBack => false,
        };
        due && self.transfer.direction == Direction::ToFunding && !self.waits && !self.deposited
    }

    /// Leaves the transfer on its way, without the step that would bring money to FUNDING or ask for it.
    pub fn hold_back(&mut self, reason: &Reason, terms: &Terms<'_>) -> Result<(), StoreError> {
        if self.waits || self.transfer.direction == Direction::ToSpot {
            return Ok(());
        }
        match self.transfer.state {
            State::Init => self.happen(Event::SourceCall)?,
            State::SourceDone => self.happen(Event::TargetCall)?,
            State::SourcePending | State::TargetPending => {}
            // The way back to SPOT is open.
            State::Compensating | State::Committed | State::Failed | State::RolledBack => return Ok(()),
        }
        self.wait(reason, terms.at, terms.settings)
    }

    pub const fn given(&self) -> i128 {
        self.given
    }

    /// Takes the transfer on as far as no leg has to be asked, and says what the ledger must do next, if anything.
    fn local_operation(
        &mut self,
        clearing: AccountId,
        at: Timestamp,
        settings: &Settings,
    ) -> Result<Option<Operation>, StoreError> {
        loop {
            // A row that makes no sense waits for a person, by itself: its neighbours in the batch go on.
            if !self.waits
                && matches!(plan(self.transfer.state), Action::Withdraw | Action::Deposit | Action::RollBack)
                && let Err(reason) = funding::check(&self.transfer, clearing)
            {
                self.wait(&reason, at, settings)?;
                return Ok(None);
            }
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

    /// Takes in what the ledger did with the operation of [`Self::local_operation`].
    fn posted(&mut self, reply: Reply, terms: &Terms<'_>) -> Result<(), StoreError> {
        let (at, settings) = (terms.at, terms.settings);
        let outcome = match reply {
            Reply::First(outcome) | Reply::Replay(outcome) => outcome,
            // Another operation stands under this transfer's key. Only a person can tell what that means.
            Reply::Conflict(difference) => {
                let reason = Reason::foreign(difference.code(), &difference.to_string());
                return self.wait(&reason, at, settings);
            }
        };
        if reply == Reply::First(Outcome::Applied) && plan(self.transfer.state) == Action::Deposit {
            let amount = i128::from(self.transfer.amount.units());
            self.given = match self.transfer.direction {
                Direction::ToSpot => amount,
                Direction::ToFunding => -amount,
            };
        }
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
            (Action::Deposit, None) if self.transfer.direction == Direction::ToFunding && terms.freezes => {
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
    fn history(&mut self) -> Option<History> {
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
}

/// What the remote leg must be asked about a transfer, by its row and by whether its local deposit is done.
pub(crate) fn remote_verb(transfer: &Transfer, deposited: bool) -> Option<Verb> {
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

/// What is the same for all transfers of a transaction.
pub(crate) struct Terms<'a> {
    pub clearing: &'a HashMap<AssetId, AccountId>,
    pub freezes: bool,
    pub settings: &'a Settings,
    pub at: Timestamp,
}

/// Does in the ledger what the updates need, wave by wave, until each transfer has ended or needs its remote leg.
/// `locked` are the accounts that this transaction has locked already, if those are all that the first wave needs. The
/// rows of the last wave are only collected, so that they are written together with the transfers.
pub(crate) async fn advance(
    tx: &mut Tx,
    updates: &mut [TransferUpdate],
    mut locked: Option<HashMap<AccountId, AccountState>>,
    terms: &Terms<'_>,
    writes: &mut Writes,
) -> Result<(), StoreError> {
    loop {
        let mut operations: Vec<Operation> = Vec::new();
        let mut owners: Vec<usize> = Vec::new();
        for (at, update) in updates.iter_mut().enumerate() {
            let asset = update.transfer.asset;
            let clearing = *terms.clearing.get(&asset).ok_or_else(|| StoreError::Corrupt {
                what: format!("asset {} has no clearing:spot account", asset.0),
            })?;
            if let Some(operation) = update.local_operation(clearing, terms.at, terms.settings)? {
                operations.push(operation);
                owners.push(at);
            }
        }
        if operations.is_empty() {
            return Ok(());
        }
        let (accounts, holds) = match locked.take() {
            Some(mut accounts) => {
                let system = terms.clearing.iter().map(|(asset, account)| (*account, system_state(*asset)));
                accounts.extend(system);
                (accounts, Some(holds_of(updates)?))
            }
            None => {
                writes.run(tx).await?;
                (load_accounts(tx, &operations).await?, None)
            }
        };
        let replies = decide(tx, accounts, holds, &operations, terms.at, writes).await?;
        for (owner, reply) in owners.into_iter().zip(replies) {
            updates[owner].posted(reply, terms)?;
        }
    }
}

/// The open holds of the batch, by the states of its transfers: the commit that took a transfer to one of these states
/// also recorded its hold.
fn holds_of(updates: &[TransferUpdate]) -> Result<HashMap<OpKey, HoldState>, StoreError> {
    let broken = |_| StoreError::Corrupt { what: "a transfer's id makes no key".to_owned() };
    let held = updates.iter().map(|update| &update.transfer).filter(|transfer| {
        transfer.direction == Direction::ToSpot
            && matches!(transfer.state, State::SourceDone | State::TargetPending | State::Compensating)
    });
    held.map(|transfer| {
        let hold = HoldState { account: transfer.funding, amount: transfer.amount, ended: false };
        Ok((funding::key(transfer, "hold").map_err(broken)?, hold))
    })
    .collect()
}

/// Writes the transfers that have changed and their history, with the rows that [`advance`] has collected.
pub(crate) async fn write(
    tx: &mut Tx,
    updates: &mut [TransferUpdate],
    at: Timestamp,
    writes: &mut Writes,
) -> Result<(), StoreError> {
    let mut history = Vec::new();
    for update in updates.iter_mut().filter(|update| update.changed) {
        update.transfer.updated_at = at;
        history.extend(update.history());
    }
    let new: Vec<_> = updates.iter().filter(|update| update.seen.is_none()).map(|update| &update.transfer).collect();
    insert(writes, &new);
    let known = updates.iter().filter(|update| update.changed);
    let known: Vec<Changed<'_>> =
        known.filter_map(|update| update.seen.map(|seen| Changed { seen, transfer: &update.transfer })).collect();
    change(writes, &known);
    write_history(writes, history, at);
    writes.run(tx).await
}
