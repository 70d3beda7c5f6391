//! Decides what is signed: reads, compares, asks the policy and the slots, logs all of it, and only then gives what may be
//! signed. It has no key, no clock of its own and no network.

mod approvals;
mod effects;

use std::collections::BTreeSet;

use domain::{RawAmount, Timestamp};

use crate::approval::{GivenApproval, revoke_digest};
use crate::approved::{Approved, SignerChain};
use crate::clock::{MOST_CLOCK_DIFFERENCE_US, Moment, OwnClock};
use crate::digest::sha256;
use crate::intent::{Addresses, Intent, IntentKind, SignRequest};
use crate::log::entry::{ApprovalText, Decision, Effects, Entry, IntentText};
use crate::log::folder::Folder;
use crate::log::{Head, Log, LogError, OldHeads, TakenSnapshot, WrittenSnapshot};
use crate::names::JobId;
use crate::policy::Policy;
use crate::policy::judge::{Counter, Part, Question, Refused};
use crate::policy::signed::{Accepted, PolicyError, PolicySignature};
use crate::reading::{self, Claim, Reading};
use crate::refusal::SignerRefusal;
use crate::slots::{SlotQuestion, SlotStanding, claimed};
use crate::state::{State, count};
use crate::text::{Hash, RawText, SpentOutput};
use crate::verdict::{Verdict, Verdicts};

/// Servers make job numbers by their own clocks.
const MOST_AHEAD_US: i64 = 5 * 60 * 1_000_000;

/// New inputs that a group may spend in an hour and a day. Each is remembered for ever, in about fifty bytes.
pub const MOST_NEW_INPUTS_HOUR: usize = 5_000;
pub const MOST_NEW_INPUTS_DAY: usize = 20_000;

#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the revocation is not good: {0}")]
    Bad(&'static str),
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("the signer's clock and the machine's disagree")]
    Clock,
}

pub struct Authorizer<F: Folder> {
    log: Log<F>,
    state: State,
    clock: OwnClock,
}

/// What was found out about a request before it was decided; the log keeps it for a refusal too.
#[derive(Default)]
struct Findings {
    approvals: Vec<ApprovalText>,
    fee: Option<RawAmount>,
    fee_added: RawAmount,
    indexes: Vec<u64>,
    change: Vec<u64>,
    again: Vec<JobId>,
}

impl<F: Folder> Authorizer<F> {
    /// Reads the log. `pinned` is the newest head that anybody was given.
    pub fn open(folder: F, pinned: Option<Head>, moment: Moment) -> Result<Self, LogError> {
        let (log, state) = Log::open(folder, pinned)?;
        if moment.date.plus_micros(MOST_CLOCK_DIFFERENCE_US) < state.last {
            return Err(LogError::ClockBack);
        }
        let clock = OwnClock::start(moment, state.last);
        Ok(Self { log, state, clock })
    }

    pub const fn head(&self) -> Head {
        self.log.head()
    }

    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The policy that holds now.
    pub fn policy(&self, moment: Moment) -> Option<&Policy> {
        self.state.policies.at(self.clock.read(moment))
    }

    fn now(&self, moment: Moment) -> Result<Timestamp, SignerRefusal> {
        let now = self.clock.read(moment);
        let difference = now.micros().saturating_sub(moment.date.micros()).saturating_abs();
        if difference > MOST_CLOCK_DIFFERENCE_US { Err(SignerRefusal::ClockDisagrees) } else { Ok(now) }
    }

    /// Decides a batch in its order, logs it with one sync, and gives the verdicts. An error: nothing may be signed, and
    /// what became of the batch is known after the next start.
    pub fn decide(
        &mut self,
        requests: &[SignRequest],
        moment: Moment,
        addresses: &impl Addresses,
    ) -> Result<Verdicts, LogError> {
        let mut verdicts = Vec::with_capacity(requests.len());
        let mut entries = Vec::with_capacity(requests.len());
        for request in requests {
            let (verdict, entry) = self.decide_one(request, moment, addresses);
            if let Some(entry) = entry {
                self.state.apply(&entry)?;
                entries.push(entry);
            }
            verdicts.push(verdict);
        }
        // The state is ahead of the log here. If the log fails, it is never asked again.
        let head = self.log.append(&entries)?;
        Ok(Verdicts { verdicts, head })
    }

    /// Whether the log contains a head that the asker was given.
    pub fn check_pinned(&self, pinned: &Head) -> Result<(), LogError> {
        self.log.check(pinned)
    }

    /// The same from memory. `None`: it is so old that [`Self::old_heads`] has to be asked, which takes its time.
    pub fn check_recent(&self, pinned: &Head) -> Option<Result<(), LogError>> {
        self.log.check_recent(pinned)
    }

    pub fn old_heads(&self) -> OldHeads<F> {
        self.log.old_heads()
    }

    fn decide_one(
        &self,
        request: &SignRequest,
        moment: Moment,
        addresses: &impl Addresses,
    ) -> (Verdict, Option<Entry>) {
        let own = self.clock.read(moment);
        let policy = self.state.policies.at(own);
        let version = policy.map_or(0, |policy| policy.version);
        let content = Hash(request.digest());
        let mut findings = Findings::default();
        // What is larger than any request of ours is refused before it costs anything, the log's length included.
        let (judged, intents) = match reading::check_size(request) {
            Ok(()) => {
                let judged = self.judge(request, content, moment, policy, addresses, &mut findings);
                (judged, request.intents.iter().map(IntentText::from).collect())
            }
            Err(refusal) => (Err(Refused { refusal, rule: "size".to_owned() }), Vec::new()),
        };
        let decision = |rule: &str| Decision {
            at: own.micros(),
            request: request.id.clone(),
            content,
            policy: version,
            rule: rule.to_owned(),
            chain: request.chain.to_string(),
            group: request.group.clone(),
            intents: intents.clone(),
            approvals: findings.approvals.clone(),
            fee: findings.fee.map(RawText),
            fee_added: RawText(findings.fee_added),
            indexes: findings.indexes.clone(),
            change: findings.change.clone(),
            again: findings.again.clone(),
        };
        match judged {
            Ok(Judged::Replay(approved)) => {
                (Verdict::Approved { approved, policy: version, rule: "replay".to_owned() }, None)
            }
            Ok(Judged::Fresh { approved, effects, rule }) => {
                let entry = Entry::Approved { decision: decision(&rule), effects };
                (Verdict::Approved { approved, policy: version, rule }, Some(entry))
            }
            Err(Refused { refusal, rule }) => {
                let (code, why) = (refusal.code().to_owned(), refusal.to_string());
                let entry = Entry::Refused { decision: decision(&rule), code, why };
                (Verdict::Refused { refusal, policy: version, rule }, Some(entry))
            }
        }
    }

    fn judge(
        &self,
        request: &SignRequest,
        content: Hash,
        moment: Moment,
        policy: Option<&Policy>,
        addresses: &impl Addresses,
        findings: &mut Findings,
    ) -> Result<Judged, Refused> {
        let by = |rule: &str| {
            let rule = rule.to_owned();
            move |refusal| Refused { refusal, rule }
        };
        let now = self.now(moment).map_err(by("clock"))?;
        let policy = policy.ok_or(SignerRefusal::ChainUnknown).map_err(by("no policy"))?;
        let chain = policy.chains.get(&request.chain).copied();
        let chain = chain.ok_or(SignerRefusal::ChainUnknown).map_err(by("chains"))?;
        if policy.group(&request.group, &request.chain).is_none() {
            return Err(by("groups")(SignerRefusal::GroupUnknown(request.group.clone())));
        }
        check_purposes(request, policy, addresses).map_err(by("groups"))?;
        if let Some(remembered) = self.state.requests.get(&request.id) {
            if remembered.content != content {
                return Err(by("request")(SignerRefusal::RequestReused));
            }
            return Ok(Judged::Replay(approved(request, chain)));
        }
        let elsewhere = |intent: &Intent| intent.signer != policy.signer || intent.network != chain;
        if request.intents.iter().any(elsewhere) {
            return Err(by("signer")(SignerRefusal::OtherSigner));
        }
        let reading = reading::read(request, chain, addresses).map_err(by("reading"))?;
        findings.fee = Some(reading.fee);
        findings.indexes = reading.indexes.clone();
        findings.change = request.bitcoin.as_ref().map(|terms| terms.change.clone()).unwrap_or_default();
        self.check_times(request, &reading, policy, now).map_err(by("time"))?;
        self.check_amounts(request, &reading, now).map_err(by("amounts"))?;
        let good = self.check_approvals(request, policy, findings).map_err(by("approvals"))?;
        let payload = Hash(sha256(&request.payload));
        let jobs: BTreeSet<JobId> = request.intents.iter().map(|intent| intent.job).collect();
        let mut standings = Vec::with_capacity(jobs.len());
        let wanted = claimed(&reading.claim);
        for intent in &request.intents {
            let question = SlotQuestion {
                chain: &request.chain,
                intent,
                claim: &reading.claim,
                wanted: &wanted,
                payload,
                replaces: request.replaces.map(Hash),
                jobs: &jobs,
                moved: good.moved.contains(&intent.job),
                now,
                tron_margin_us: policy.tron_margin_us,
            };
            let standing = self.state.slots.judge(&question).map_err(by("slot"))?;
            if standings.is_empty() {
                self.state.slots.check_holders(&question).map_err(by("slot"))?;
            }
            let held = self.state.slots.held(&question, &standing);
            if standing == SlotStanding::Again {
                findings.again.push(intent.job);
            }
            // A replacement of what was signed may come late. One with other terms is asked for now.
            if standing != SlotStanding::Again || !self.is_known(intent) {
                self.check_life(intent, policy, now).map_err(by("expiry"))?;
            }
            standings.push((standing, held));
        }
        findings.fee_added = self.fee_added(request, &standings, reading.fee);
        let mut parts = Vec::with_capacity(jobs.len());
        for (intent, (standing, _)) in request.intents.iter().zip(&standings) {
            let standing = self.standing(intent, standing);
            parts.push(Part { intent, standing, approved_by: good.people(intent) });
        }
        let question = Question {
            chain: &request.chain,
            group: &request.group,
            parts,
            inputs: &reading.indexes,
            change: &findings.change,
            fee: reading.fee,
            fee_added: findings.fee_added,
        };
        let spent = |group: &_, counter: &_| self.state.spent.spent(request.chain.as_str(), group, counter, now);
        let allowed = policy.judge(&question, &spent)?;
        self.check_builds(request, &standings, &allowed.ways, policy).map_err(by("builds"))?;
        let effects = self.effects(request, &reading, payload, standings, &allowed.ways);
        Ok(Judged::Fresh { approved: approved(request, chain), effects, rule: allowed.rule })
    }

    fn check_times(
        &self,
        request: &SignRequest,
        reading: &Reading,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<(), SignerRefusal> {
        for job in request.intents.iter().map(|intent| intent.job) {
            if job.made_at() < self.state.forgotten_before {
                return Err(SignerRefusal::JobTooOld(job));
            }
            if job.made_at() > now.plus_micros(MOST_AHEAD_US) {
                return Err(SignerRefusal::JobFromTheFuture(job));
            }
        }
        match reading.claim {
            // A payload that ends later than the network takes today would be good tomorrow.
            Claim::Expiry(expiry) if expiry <= now || expiry > now.plus_micros(policy.most_tron_life_us) => {
                Err(SignerRefusal::ExpiryOutside)
            }
            Claim::Expiry(_) | Claim::Nonce { .. } | Claim::Inputs(_) => Ok(()),
        }
    }

    fn check_life(&self, intent: &Intent, policy: &Policy, now: Timestamp) -> Result<(), SignerRefusal> {
        if intent.expires <= now {
            Err(SignerRefusal::IntentExpired)
        } else if intent.expires > now.plus_micros(policy.most_intent_life_us) {
            Err(SignerRefusal::IntentLivesTooLong)
        } else {
            Ok(())
        }
    }

    /// One amount per input for ever, unless the previous transaction proves it. Nothing says that an input exists, so only so
    /// many new ones are taken up.
    fn check_amounts(&self, request: &SignRequest, reading: &Reading, now: Timestamp) -> Result<(), SignerRefusal> {
        let (chain, mut new) = (request.chain.as_str(), 0);
        let amounts = self.state.amounts.get(chain);
        for spent in &reading.inputs {
            let input = SpentOutput(spent.input.transaction, spent.input.index);
            match amounts.and_then(|amounts| amounts.get(&input)) {
                Some(before) if !spent.proven && *before != spent.input.amount_sat => {
                    return Err(SignerRefusal::AmountContradicts);
                }
                Some(_) => {}
                None => new += 1,
            }
        }
        let before = self.state.spent.spent(chain, &request.group, &Counter::Inputs, now);
        let within = |before: RawAmount, most| before.checked_add(count(new)).is_some_and(|sum| sum <= count(most));
        if new == 0 || within(before.hour, MOST_NEW_INPUTS_HOUR) && within(before.day, MOST_NEW_INPUTS_DAY) {
            Ok(())
        } else {
            Err(SignerRefusal::TooManyInputs)
        }
    }

    /// In how many slots a job was signed. `None`: it was made in a time that is forgotten.
    pub fn rounds(&self, job: JobId) -> Option<u32> {
        let is_remembered = job.made_at() >= self.state.forgotten_before;
        is_remembered.then(|| self.state.slots.job(job).map_or(0, |record| record.round.saturating_add(1)))
    }

    /// Checks a new policy and logs it. `None`: it is in force already.
    pub fn apply_policy(
        &mut self,
        bytes: &[u8],
        signatures: &[PolicySignature],
        moment: Moment,
    ) -> Result<Option<Accepted>, ApplyError> {
        let now = self.now(moment).map_err(|_| ApplyError::Clock)?;
        let Some(accepted) = self.state.policies.check(bytes, signatures, now)? else { return Ok(None) };
        let entry = Entry::Policy {
            at: now.micros(),
            text: accepted.text.clone(),
            effective: accepted.effective.micros(),
            signed_by: signatures.iter().map(|one| one.by.clone()).collect(),
        };
        self.state.apply(&entry).map_err(LogError::from)?;
        self.log.append(&[entry])?;
        Ok(Some(accepted))
    }

    /// A person takes an approval back: the same person signs [`revoke_digest`] of what was approved.
    pub fn revoke(&mut self, approved: &Hash, given: &GivenApproval, moment: Moment) -> Result<Head, RevokeError> {
        let now = self.clock.read(moment);
        let policy = self.state.policies.at(now).ok_or(RevokeError::Bad("there is no policy"))?;
        let approver = policy.approvers.get(&given.key).ok_or(RevokeError::Bad("the policy has no such key"))?;
        if given.digest != revoke_digest(&approved.0) {
            return Err(RevokeError::Bad("it is for something else"));
        }
        given.check(approver).map_err(RevokeError::Bad)?;
        let (person, key) = (approver.person.clone(), given.key.clone());
        let entry = Entry::Revoked { at: now.micros(), digest: *approved, person, key };
        self.state.apply(&entry).map_err(LogError::from)?;
        Ok(self.log.append(&[entry])?)
    }

    /// How many entries a start would have to replay.
    pub fn since_snapshot(&self) -> u64 {
        self.log.since_snapshot()
    }

    /// Forgets jobs older than the horizon, and writes a snapshot, so that the next start is short.
    pub fn snapshot(&mut self, horizon_us: i64, moment: Moment) -> Result<(), LogError> {
        let now = self.clock.read(moment);
        self.state.forget(now.plus_micros(-horizon_us.max(0)));
        self.log.snapshot(&self.state)
    }

    /// The same in three steps, for a signer that goes on signing: this one takes a moment, [`TakenSnapshot::write`] is for another
    /// thread, and [`Self::finish_snapshot`] ends it. If it never ends, a start reads more of the log, and what was forgotten is
    /// known again until the next snapshot.
    pub fn take_snapshot(
        &mut self,
        horizon_us: i64,
        moment: Moment,
    ) -> Result<Option<TakenSnapshot<F::File>>, LogError> {
        let now = self.clock.read(moment);
        self.state.forget(now.plus_micros(-horizon_us.max(0)));
        self.log.take_snapshot(&self.state)
    }

    pub fn finish_snapshot(&mut self, written: &WrittenSnapshot) -> Result<(), LogError> {
        self.log.finish_snapshot(written)
    }

    /// All but the newest two go.
    pub fn drop_old_snapshots(&self) -> Result<(), LogError> {
        self.log.drop_old_snapshots()
    }

    /// Removes what was written of one that will not be finished: its newest entry says which.
    pub fn drop_snapshot(&self, entries: u64) -> Result<(), LogError> {
        self.log.drop_snapshot(entries)
    }
}

enum Judged {
    Replay(Approved),
    Fresh { approved: Approved, effects: Effects, rule: String },
}

/// A policy that gives users' addresses the role of a hot wallet, by mistake or not, opens nothing.
fn check_purposes(request: &SignRequest, policy: &Policy, addresses: &impl Addresses) -> Result<(), SignerRefusal> {
    let owners = request.intents.iter().filter_map(|intent| match &intent.kind {
        IntentKind::Pay { owner, .. } => owner.as_ref().map(|owner| &owner.group),
        IntentKind::Cancel { .. } => None,
    });
    for id in owners.chain([&request.group]) {
        let role = policy.group(id, &request.chain).map(|group| group.role);
        if role.is_some_and(|role| addresses.purpose(id) != Some(role.purpose())) {
            return Err(SignerRefusal::PurposeDiffers(id.clone()));
        }
    }
    Ok(())
}

fn approved(request: &SignRequest, chain: SignerChain) -> Approved {
    let indexes = request.bitcoin.as_ref().map_or_else(|| vec![request.index], |terms| terms.inputs.clone());
    Approved::new(request.chain.clone(), chain, request.group.clone(), indexes, request.payload.clone())
}
