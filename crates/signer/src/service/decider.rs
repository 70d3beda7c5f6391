//! The thread that owns the authorizer. Calls that wait at the same time are decided as one batch with one sync, in the order in which they
//! came; there is no timer. Nothing is signed here.
//!
//! **After a failure of the log this thread ends**, and whoever waits is told that the outcome is not known. What is still in the queue was
//! not looked at, and is told so.
//!
//! | module | holds |
//! |---|---|
//! | `addresses` | the signer's own addresses |
//! | `heads` | whether a head that an asker brings is of this log |
//! | `snapshots` | what is written beside, so that a start is short |

mod addresses;
mod heads;
mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot, watch};

use self::addresses::Cached;
pub(super) use self::heads::shown;
use self::heads::{Place, why_not};
use super::metrics::Counts;
use super::{Limits, Standing};
use crate::approval::GivenApproval;
use crate::authorizer::{ApplyError, Authorizer, RevokeError};
use crate::clock::{Moment, MomentClock};
use crate::intent::SignRequest;
use crate::keys::Keyring;
use crate::log::folder::Folder;
use crate::log::{Head, LogError, WrittenSnapshot};
use crate::names::JobId;
use crate::policy::signed::PolicySignature;
use crate::text::Hash;
use crate::verdict::Verdict;
use crate::wire::{HeadBody, PolicyAnswerBody, PolicyVersionBody};

/// Why a call was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Nothing of it was decided.
    Stopped,
    /// The log does not contain the head that the asker was given. Nothing of it was decided.
    RolledBack,
    /// Nothing of it was decided, and soon it may be.
    Busy,
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
    pub(super) pinned: Option<HeadBody>,
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
    /// In how many slots jobs were signed.
    Rounds {
        jobs: Vec<JobId>,
        reply: Reply<(Vec<Option<u32>>, Head)>,
    },
    /// Whether the log contains a head.
    Head {
        pinned: HeadBody,
        reply: Reply<Head>,
    },
    /// From the thread that looked for an old head: whether the log contains it, and the call that brought it.
    Looked {
        pinned: Head,
        result: Result<(), LogError>,
        call: Box<Self>,
    },
    /// From the thread that writes snapshots: the one that it was given is durable, or could not be written.
    Snapshot(Result<WrittenSnapshot, LogError>),
    /// Takes no more calls, and writes a snapshot.
    Stop,
}

impl Call {
    /// Tells the caller that nothing was done, because the service stops.
    fn turn_away(self) {
        self.answer(Unanswered::Stopped);
    }

    /// Tells the caller why there is no answer.
    fn answer(self, why: Unanswered) {
        // A caller that is gone needs no answer.
        match self {
            Self::Sign(call) => drop(call.reply.send(Err(why))),
            Self::Apply { reply, .. } => drop(reply.send(Err(why))),
            Self::Revoke { reply, .. } => drop(reply.send(Err(why))),
            Self::Policy { reply } => drop(reply.send(Err(why))),
            Self::Rounds { reply, .. } => drop(reply.send(Err(why))),
            Self::Head { reply, .. } => drop(reply.send(Err(why))),
            Self::Looked { call, .. } => call.answer(why),
            Self::Snapshot(_) | Self::Stop => {}
        }
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
    /// How the thread that writes a snapshot is heard of. Weak: whoever asks keeps the queue open, and nobody else.
    pub(super) calls: mpsc::WeakSender<Call>,
    /// Whether another thread looks for an old head.
    pub(super) looking: bool,
    /// The newest entry of the snapshot that is being written.
    pub(super) writing: Option<u64>,
    /// After one that could not be written, none is taken before the log has grown to so many entries since the last good one.
    pub(super) put_off_until: u64,
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

impl<F> Decider<F>
where
    F: Folder + Send + 'static,
    F::File: Send + 'static,
{
    /// Until it is told to stop, or the log fails.
    pub(super) fn run(mut self, mut calls: mpsc::Receiver<Call>) {
        let ended = Ended(self.standing.clone());
        let cached = Cached::new(Arc::clone(&self.keyring));
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
            let Some(call) = next.take().or_else(|| calls.blocking_recv()) else { return self.stop(calls) };
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
                Call::Rounds { jobs, reply } => {
                    let rounds = jobs.iter().map(|job| self.authorizer.rounds(*job)).collect();
                    drop(reply.send(Ok((rounds, self.authorizer.head()))));
                }
                Call::Head { pinned, reply } => match self.place(&pinned) {
                    Place::Within => drop(reply.send(Ok(self.authorizer.head()))),
                    Place::Nowhere => drop(reply.send(Err(Unanswered::RolledBack))),
                    Place::Long => self.look(Head::from(pinned), Call::Head { pinned, reply }),
                    Place::OldCopy(error) => {
                        reply.send(Err(Unanswered::RolledBack)).ok();
                        return Err(error);
                    }
                },
                Call::Looked { pinned, result, call } => {
                    self.looking = false;
                    if let Err(error) = result {
                        call.answer(why_not(&error));
                        return Err(error);
                    }
                    self.remember(pinned);
                    next = Some(*call);
                    continue;
                }
                Call::Snapshot(result) => self.snapshot_ended(result)?,
                Call::Stop => return self.stop(calls),
            }
            self.tell();
            self.snapshot_if_due()?;
        }
    }

    /// All calls as one batch, with one sync.
    fn decide(&mut self, batch: Vec<SignCall>, cached: &Cached) -> Result<(), LogError> {
        let batch = self.admit(batch)?;
        if batch.is_empty() {
            return Ok(());
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
        let version = |accepted: &crate::policy::signed::Accepted| PolicyVersionBody {
            version: accepted.policy.version,
            sha256: Hash(accepted.policy.hash),
            effective: accepted.effective.micros(),
        };
        let in_force = self.authorizer.policy(now).map(|policy| policy.version);
        let all: Vec<PolicyVersionBody> = self.authorizer.state().policies.all().map(version).collect();
        PolicyAnswerBody {
            in_force: all.iter().find(|one| Some(one.version) == in_force).cloned(),
            waiting: all.iter().find(|one| in_force.is_none_or(|held| one.version > held)).cloned(),
            head: shown(&self.keyring, self.authorizer.head()),
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
}
