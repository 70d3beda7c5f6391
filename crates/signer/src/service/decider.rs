//! The thread that owns the authorizer. Calls that wait at the same time are decided as one batch with one sync, in the order in which they
//! came; there is no timer. Nothing is signed here.
//!
//! **After a failure of the log this thread ends**, and whoever waits is told that the outcome is not known. What is still in the queue was
//! not looked at, and is told so.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot, watch};
use tx::Address;

use super::metrics::Counts;
use super::{Limits, Standing};
use crate::approval::GivenApproval;
use crate::authorizer::{ApplyError, Authorizer, RevokeError};
use crate::clock::{Moment, MomentClock};
use crate::intent::{Addresses, SignRequest};
use crate::keys::{Keyring, Purpose};
use crate::log::folder::Folder;
use crate::log::{Head, LogError};
use crate::names::GroupId;
use crate::policy::signed::PolicySignature;
use crate::text::Hash;
use crate::verdict::Verdict;
use crate::wire::{PolicyAnswerBody, PolicyVersionBody};

/// So many heads that were found in the log are kept.
const MOST_FOUND: usize = 4_096;
/// So many addresses of operation wallets are kept. Policies allow tens.
const MOST_CACHED: usize = 4_096;

/// Why a call was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Nothing of it was decided.
    Stopped,
    /// The log does not contain the head that the asker was given. Nothing of it was decided.
    RolledBack,
    /// The log failed while it was decided.
    Unknown,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, Unanswered>>;

pub(super) struct Decided {
    pub(super) verdicts: Vec<Verdict>,
    /// For each: whether something was signed under its id, now or earlier.
    pub(super) remembered: Vec<bool>,
    pub(super) head: Head,
}

pub(super) struct SignCall {
    pub(super) requests: Vec<SignRequest>,
    pub(super) pinned: Option<Head>,
    pub(super) reply: Reply<Decided>,
}

pub(super) enum Call {
    Sign(SignCall),
    Apply {
        text: Vec<u8>,
        signatures: Vec<PolicySignature>,
        reply: Reply<Result<PolicyAnswerBody, ApplyError>>,
    },
    Revoke {
        approved: Hash,
        given: GivenApproval,
        reply: Reply<Result<Head, RevokeError>>,
    },
    Policy {
        reply: Reply<PolicyAnswerBody>,
    },
    /// Takes no more calls, and writes a snapshot.
    Stop,
}

impl Call {
    /// Tells the caller that nothing was done.
    fn turn_away(self) {
        // A caller that is gone needs no answer.
        match self {
            Self::Sign(call) => drop(call.reply.send(Err(Unanswered::Stopped))),
            Self::Apply { reply, .. } => drop(reply.send(Err(Unanswered::Stopped))),
            Self::Revoke { reply, .. } => drop(reply.send(Err(Unanswered::Stopped))),
            Self::Policy { reply } => drop(reply.send(Err(Unanswered::Stopped))),
            Self::Stop => {}
        }
    }
}

/// The signer's own addresses. Those of operation wallets are asked for again and again.
struct Cached {
    keyring: Arc<Keyring>,
    known: RefCell<BTreeMap<GroupId, BTreeMap<u64, Address>>>,
    count: RefCell<usize>,
}

impl Addresses for Cached {
    fn address(&self, group: &GroupId, index: u64) -> Option<Address> {
        if self.purpose(group)? == Purpose::Deposit {
            return Addresses::address(&*self.keyring, group, index);
        }
        if let Some(address) = self.known.borrow().get(group).and_then(|known| known.get(&index)) {
            return Some(address.clone());
        }
        let address = Addresses::address(&*self.keyring, group, index)?;
        let mut count = self.count.borrow_mut();
        if *count < MOST_CACHED {
            *count += 1;
            self.known.borrow_mut().entry(group.clone()).or_default().insert(index, address.clone());
        }
        Some(address)
    }

    fn purpose(&self, group: &GroupId) -> Option<Purpose> {
        Addresses::purpose(&*self.keyring, group)
    }
}

pub(super) struct Decider<F: Folder> {
    pub(super) authorizer: Authorizer<F>,
    pub(super) keyring: Arc<Keyring>,
    pub(super) clock: Arc<dyn MomentClock>,
    pub(super) limits: Limits,
    pub(super) counts: Arc<Counts>,
    /// Heads of askers that the log contains: a log only grows.
    pub(super) found: BTreeMap<u64, Hash>,
    pub(super) head: watch::Sender<Head>,
    pub(super) standing: watch::Sender<Standing>,
}

/// Says that the thread has ended, however it did.
struct Ended(watch::Sender<Standing>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.send_if_modified(|standing| {
            let panicked = matches!(standing, Standing::Running);
            if panicked {
                *standing = Standing::Failed(Arc::new(LogError::Stopped));
            }
            panicked
        });
    }
}

impl<F: Folder> Decider<F> {
    /// Until it is told to stop, or the log fails.
    pub(super) fn run(mut self, mut calls: mpsc::Receiver<Call>) {
        let ended = Ended(self.standing.clone());
        let cached =
            Cached { keyring: Arc::clone(&self.keyring), known: RefCell::default(), count: RefCell::default() };
        let outcome = self.work(&mut calls, &cached);
        // Before anybody in the queue is told: whoever asks next must not be let in.
        let standing = match outcome {
            Ok(()) => Standing::Stopped,
            Err(error) => {
                tracing::error!(code = error.code(), %error, "the signer signs nothing more");
                Standing::Failed(Arc::new(error))
            }
        };
        self.standing.send_replace(standing);
        calls.close();
        while let Some(call) = calls.blocking_recv() {
            call.turn_away();
        }
        drop(ended);
    }

    fn work(&mut self, calls: &mut mpsc::Receiver<Call>, cached: &Cached) -> Result<(), LogError> {
        let mut next = None;
        loop {
            let Some(call) = next.take().or_else(|| calls.blocking_recv()) else { return self.stop() };
            match call {
                Call::Sign(first) => {
                    let mut batch = vec![first];
                    let mut count = batch[0].requests.len();
                    while count < self.limits.batch {
                        match calls.try_recv() {
                            Ok(Call::Sign(more)) => {
                                count += more.requests.len();
                                batch.push(more);
                            }
                            Ok(other) => {
                                next = Some(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    if let Err(error) = self.decide(batch, cached) {
                        if let Some(call) = next {
                            call.turn_away();
                        }
                        return Err(error);
                    }
                }
                Call::Apply { text, signatures, reply } => {
                    match self.authorizer.apply_policy(&text, &signatures, self.clock.moment()) {
                        Err(ApplyError::Log(error)) => {
                            reply.send(Err(Unanswered::Unknown)).ok();
                            return Err(error);
                        }
                        Err(error) => drop(reply.send(Ok(Err(error)))),
                        Ok(_) => drop(reply.send(Ok(Ok(self.policy())))),
                    }
                }
                Call::Revoke { approved, given, reply } => {
                    match self.authorizer.revoke(&approved, &given, self.clock.moment()) {
                        Err(RevokeError::Log(error)) => {
                            reply.send(Err(Unanswered::Unknown)).ok();
                            return Err(error);
                        }
                        other => drop(reply.send(Ok(other))),
                    }
                }
                Call::Policy { reply } => drop(reply.send(Ok(self.policy()))),
                Call::Stop => return self.stop(),
            }
            self.tell();
            self.snapshot_if_due()?;
        }
    }

    /// All calls as one batch, with one sync.
    fn decide(&mut self, mut batch: Vec<SignCall>, cached: &Cached) -> Result<(), LogError> {
        // Who was answered from a newer log is told so before anything is decided.
        if let Some((place, error)) = self.first_astray(&batch) {
            let call = batch.swap_remove(place);
            let rolled_back = matches!(error, LogError::RolledBack { .. } | LogError::Diverged { .. });
            call.reply.send(Err(if rolled_back { Unanswered::RolledBack } else { Unanswered::Stopped })).ok();
            batch.into_iter().for_each(|call| Call::Sign(call).turn_away());
            return Err(error);
        }
        let mut requests = Vec::with_capacity(batch.iter().map(|call| call.requests.len()).sum());
        let mut waiting = Vec::with_capacity(batch.len());
        for call in batch {
            waiting.push((call.requests.len(), call.reply));
            requests.extend(call.requests);
        }
        let begun = self.clock.moment();
        let decided = match self.authorizer.decide(&requests, begun, cached) {
            Ok(decided) => decided,
            Err(error) => {
                for (_, reply) in waiting {
                    reply.send(Err(Unanswered::Unknown)).ok();
                }
                return Err(error);
            }
        };
        self.count(&decided.verdicts, begun, self.clock.moment());
        // Before anybody has it: who asks for something else next must not be shown an older one.
        self.head.send_replace(decided.head);
        let remembered = &self.authorizer.state().requests;
        let mut verdicts = decided.verdicts.into_iter();
        let mut ids = requests.iter().map(|request| remembered.contains_key(&request.id));
        for (count, reply) in waiting {
            let verdicts: Vec<Verdict> = verdicts.by_ref().take(count).collect();
            let remembered: Vec<bool> = ids.by_ref().take(count).collect();
            // A caller that is gone asks again, under the same ids.
            reply.send(Ok(Decided { verdicts, remembered, head: decided.head })).ok();
        }
        Ok(())
    }

    /// The first call whose asker has a head that the log does not contain. Old heads are read from the disk, once each.
    fn first_astray(&mut self, batch: &[SignCall]) -> Option<(usize, LogError)> {
        for (place, call) in batch.iter().enumerate() {
            let Some(pinned) = call.pinned else { continue };
            if self.found.get(&pinned.entries) == Some(&pinned.hash) {
                continue;
            }
            if let Err(error) = self.authorizer.check_pinned(&pinned) {
                return Some((place, error));
            }
            self.found.insert(pinned.entries, pinned.hash);
            while self.found.len() > MOST_FOUND {
                self.found.pop_first();
            }
        }
        None
    }

    fn count(&self, verdicts: &[Verdict], begun: Moment, ended: Moment) {
        let counts = &self.counts;
        counts.batches.fetch_add(1, Ordering::Relaxed);
        counts.decide.observe(ended.uptime_us.saturating_sub(begun.uptime_us));
        for verdict in verdicts {
            match verdict {
                Verdict::Approved { rule, .. } if rule == "replay" => counts.replayed.fetch_add(1, Ordering::Relaxed),
                Verdict::Approved { .. } => counts.approved.fetch_add(1, Ordering::Relaxed),
                Verdict::Refused { refusal, .. } => counts.refuse(refusal.code()),
            };
        }
    }

    fn policy(&self) -> PolicyAnswerBody {
        let now = self.clock.moment();
        let shown = |accepted: &crate::policy::signed::Accepted| PolicyVersionBody {
            version: accepted.policy.version,
            sha256: Hash(accepted.policy.hash),
            effective: accepted.effective.micros(),
        };
        let in_force = self.authorizer.policy(now).map(|policy| policy.version);
        let all: Vec<PolicyVersionBody> = self.authorizer.state().policies.all().map(shown).collect();
        PolicyAnswerBody {
            in_force: all.iter().find(|one| Some(one.version) == in_force).cloned(),
            waiting: all.iter().find(|one| in_force.is_none_or(|held| one.version > held)).cloned(),
            head: self.authorizer.head().into(),
        }
    }

    /// What others may know without asking this thread.
    pub(super) fn tell(&self) {
        self.head.send_replace(self.authorizer.head());
        let counts = &self.counts;
        let policy = self.authorizer.policy(self.clock.moment()).map_or(0, |policy| policy.version);
        counts.policy.store(policy, Ordering::Relaxed);
        counts.since_snapshot.store(self.authorizer.since_snapshot(), Ordering::Relaxed);
        let remembered = u64::try_from(self.authorizer.state().requests.len()).unwrap_or(u64::MAX);
        counts.remembered.store(remembered, Ordering::Relaxed);
    }

    /// A snapshot costs as much as the state is large, so it waits until the log has grown by as much.
    fn snapshot_if_due(&mut self) -> Result<(), LogError> {
        let remembered = u64::try_from(self.authorizer.state().requests.len()).unwrap_or(u64::MAX);
        if self.authorizer.since_snapshot() < self.limits.snapshot_entries.max(remembered) {
            return Ok(());
        }
        self.authorizer.snapshot(self.limits.horizon_us, self.clock.moment())?;
        self.counts.snapshots.fetch_add(1, Ordering::Relaxed);
        self.tell();
        Ok(())
    }

    fn stop(&mut self) -> Result<(), LogError> {
        self.authorizer.snapshot(self.limits.horizon_us, self.clock.moment())
    }
}
