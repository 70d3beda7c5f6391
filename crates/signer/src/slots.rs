//! One slot per job. A job is signed for one nonce, or one set of inputs; again only there, and only with the same
//! payment. Moving it needs the signer's own earlier cancel of the first slot, or an operator's signature. TRON has no
//! slot: again only when the old expiry is past by a margin, and only by an asker that names the transaction before.
//!
//! **What one job was signed for pays at most once**, as long as it has not moved: on EVM all its transactions have one
//! nonce, on Bitcoin all have a common input (`core`), on TRON the one before can no longer be mined.

mod kept;

use std::collections::{BTreeMap, BTreeSet};

use domain::{ChainName, Timestamp};
use serde::{Deserialize, Serialize};

use crate::intent::{Intent, IntentKind};
use crate::names::{JobId, JobKey};
use crate::reading::Claim;
use crate::refusal::SignerRefusal;
pub use crate::slot::Held;
use crate::slot::{Chains, KeptHeld, KeptInput, KeptNonce, KeptSlot, Place, Slot};
use crate::sorted::Sorted;
use crate::text::{Hash, RawText, SpentOutput};
pub(crate) use kept::{KeptJob, Seldom};

/// What a signature makes of a job, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// [`Intent::payment_digest`].
    pub payment: Hash,
    pub round: u32,
    pub held: Held,
    /// The signer has signed a cancel of this slot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cancelled: bool,
    /// The jobs that it cancels.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cancels: Vec<JobId>,
    /// The digest of the intent that was signed last.
    pub intent: Hash,
    /// The intent that people approved for this slot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub approved: Option<Hash>,
    /// For every intent that people approved: how many transactions were built under it. It never starts again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub builds: BTreeMap<Hash, u32>,
    /// What was counted of fees for the job in this slot.
    pub fee: RawText,
    /// SHA-256 of the last payload.
    pub payload: Hash,
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Clone, Debug, Default)]
pub struct Slots {
    pub(crate) chains: Chains,
    pub(crate) jobs: Sorted<JobKey, KeptJob>,
    /// Who holds a nonce. Most have one holder, so each pair is a record of its own.
    pub(crate) nonces: Sorted<(KeptNonce, JobKey), ()>,
    /// Who has an input in its core.
    pub(crate) inputs: Sorted<(KeptInput, JobKey), ()>,
    /// Whose a TRON payload is: the same bytes are the same transaction, which pays one job. It follows from the jobs.
    pub(crate) payloads: Sorted<(Hash, JobKey), ()>,
}

/// How a job's claim stands to what it was signed for before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotStanding {
    /// Its first slot, or after a move another one.
    Taken,
    /// The same slot.
    Again,
    /// TRON: the one before is past.
    Rebuilt,
}

pub struct SlotQuestion<'a> {
    pub chain: &'a ChainName,
    pub intent: &'a Intent,
    pub claim: &'a Claim,
    /// [`claimed`] of the same.
    pub wanted: &'a BTreeSet<Place>,
    pub payload: Hash,
    /// TRON: the transaction that this one is to follow.
    pub replaces: Option<Hash>,
    /// All jobs of the same transaction.
    pub jobs: &'a BTreeSet<JobId>,
    /// An operator signed that the job may leave its slot.
    pub moved: bool,
    pub now: Timestamp,
    pub tron_margin_us: i64,
}

/// What a payload takes on its chain.
pub fn claimed(claim: &Claim) -> BTreeSet<Place> {
    match claim {
        Claim::Nonce { account, nonce } => BTreeSet::from([Place::Nonce { account: *account, nonce: *nonce }]),
        Claim::Inputs(outpoints) => {
            outpoints.iter().map(|(transaction, output)| Place::Input(SpentOutput(*transaction, *output))).collect()
        }
        Claim::Expiry(_) => BTreeSet::new(),
    }
}

impl Slots {
    pub(crate) fn job(&self, job: JobId) -> Option<&KeptJob> {
        self.jobs.get(&job.into())
    }

    /// What a job holds, as it is written.
    pub fn held_by(&self, job: JobId) -> Option<Held> {
        let named = |chain, place| Some(Slot { chain: self.chains.name(chain)?.clone(), place });
        match &self.job(job)?.held {
            KeptHeld::Nonce(nonce) => named(nonce.chain, nonce.place()).map(Held::Nonce),
            KeptHeld::Inputs(core) => {
                let core = core.iter().map(|input| named(input.chain, input.place()));
                core.collect::<Option<Vec<Slot>>>().map(Held::Inputs)
            }
            KeptHeld::Until(until) => Some(Held::Until(until.micros)),
        }
    }

    pub fn count(&self) -> usize {
        self.jobs.len()
    }

    /// Decides whether the job may have what its payload claims.
    pub fn judge(&self, question: &SlotQuestion<'_>) -> Result<SlotStanding, SignerRefusal> {
        let intent = question.intent;
        let wanted = question.wanted;
        let standing = match self.job(intent.job) {
            None if intent.round == 0 => SlotStanding::Taken,
            None => return Err(SignerRefusal::SlotDiffers(intent.job)),
            Some(record) => self.judge_known(question, record, wanted)?,
        };
        if let IntentKind::Cancel { jobs } = &intent.kind
            && standing == SlotStanding::Taken
            && !jobs.iter().all(|job| self.holds(*job, question.chain, wanted))
        {
            return Err(SignerRefusal::NothingToCancel);
        }
        Ok(standing)
    }

    /// Whether all that a payload takes is free, or held by its own jobs. Once for a request: its jobs stand together.
    pub fn check_holders(&self, question: &SlotQuestion<'_>) -> Result<(), SignerRefusal> {
        let cancelled: BTreeSet<JobId> = match &question.intent.kind {
            IntentKind::Cancel { jobs } => jobs.iter().copied().collect(),
            IntentKind::Pay { .. } => BTreeSet::new(),
        };
        if let Claim::Expiry(_) = question.claim
            && let Some(other) = holders(&self.payloads, question.payload).find(|other| *other != question.intent.job)
        {
            return Err(SignerRefusal::SlotTaken(other));
        }
        // A chain without a number has no holders.
        let Some(chain) = self.chains.number(question.chain) else { return Ok(()) };
        for place in question.wanted {
            let taken = match place.kept(chain) {
                KeptSlot::Nonce(nonce) => self.stranger(holders(&self.nonces, nonce), question.jobs, &cancelled),
                KeptSlot::Input(input) => {
                    let alive = holders(&self.inputs, input).filter(|other| !self.has_let_go(*other));
                    self.stranger(alive, question.jobs, &cancelled)
                }
            };
            if let Some(other) = taken {
                return Err(SignerRefusal::SlotTaken(self.named(other, question)));
            }
        }
        Ok(())
    }

    fn judge_known(
        &self,
        question: &SlotQuestion<'_>,
        record: &KeptJob,
        wanted: &BTreeSet<Place>,
    ) -> Result<SlotStanding, SignerRefusal> {
        let job = question.intent.job;
        if record.payment != Hash(question.intent.payment_digest()) {
            return Err(SignerRefusal::JobChanged(job));
        }
        let round = question.intent.round;
        if let KeptHeld::Until(until) = &record.held {
            let past = question.now.micros() > until.micros.saturating_add(question.tron_margin_us);
            return if until.payload == question.payload && round == record.round {
                Ok(SlotStanding::Again)
            } else if !past {
                Err(SignerRefusal::NotExpiredYet(job))
            } else if question.replaces != Some(until.payload) {
                // Its rows are older than this log: the transaction that they do not know may have paid.
                Err(SignerRefusal::BuildUnknown(job))
            } else if round == record.round || Some(round) == record.round.checked_add(1) {
                Ok(SlotStanding::Rebuilt)
            } else {
                Err(SignerRefusal::SlotDiffers(job))
            };
        }
        if self.holds(job, question.chain, wanted) {
            match record.held {
                _ if round == record.round => return Ok(SlotStanding::Again),
                // One that may go elsewhere may also have some of its old inputs among the new ones.
                KeptHeld::Inputs(_) => {}
                KeptHeld::Nonce(_) | KeptHeld::Until(_) => return Err(SignerRefusal::SlotDiffers(job)),
            }
        }
        let next = Some(round) == record.round.checked_add(1);
        if next && (record.cancelled || question.moved) {
            Ok(SlotStanding::Taken)
        } else {
            Err(SignerRefusal::SlotDiffers(job))
        }
    }

    /// Whether a transaction with these claims can never be mined beside what the job was signed for.
    fn holds(&self, job: JobId, chain: &ChainName, wanted: &BTreeSet<Place>) -> bool {
        let Some(chain) = self.chains.number(chain) else { return false };
        match self.job(job).map(|record| &record.held) {
            Some(KeptHeld::Nonce(nonce)) => nonce.chain == chain && wanted.contains(&nonce.place()),
            Some(KeptHeld::Inputs(core)) => {
                core.iter().any(|input| input.chain == chain && wanted.contains(&input.place()))
            }
            Some(KeptHeld::Until(_)) | None => false,
        }
    }

    /// A job whose inputs were cancelled may take others, so it holds these no more than its cancel does: whoever else spends one of them
    /// can be mined beside neither.
    fn has_let_go(&self, job: JobId) -> bool {
        self.job(job).is_some_and(|record| record.cancelled || !record.cancels().is_empty())
    }

    /// The first holder that may not share the slot with these jobs.
    fn stranger(
        &self,
        mut holders: impl Iterator<Item = JobId>,
        jobs: &BTreeSet<JobId>,
        cancelled: &BTreeSet<JobId>,
    ) -> Option<JobId> {
        holders.find(|other| !self.may_share(*other, jobs, cancelled))
    }

    /// Of a cancel that shares the slot with what it cancels, the latter: another cancel of that shares with both.
    fn named(&self, holder: JobId, question: &SlotQuestion<'_>) -> JobId {
        let cancels = self.job(holder).map_or(&[][..], KeptJob::cancels);
        cancels.iter().copied().find(|job| self.holds(*job, question.chain, question.wanted)).unwrap_or(holder)
    }

    /// Jobs of one transaction share its slot; a cancel shares that of what it cancels.
    fn may_share(&self, other: JobId, jobs: &BTreeSet<JobId>, cancelled: &BTreeSet<JobId>) -> bool {
        let ours = |job: &JobId| jobs.contains(job) || cancelled.contains(job);
        ours(&other) || self.job(other).is_some_and(|record| record.cancels().iter().any(ours))
    }

    /// What the job will hold once this is signed.
    pub fn held(&self, question: &SlotQuestion<'_>, standing: &SlotStanding) -> Held {
        let on_chain = |place: &Place| Slot { chain: question.chain.clone(), place: *place };
        match question.claim {
            Claim::Expiry(until) => Held::Until(until.micros()),
            Claim::Nonce { account, nonce } => {
                Held::Nonce(on_chain(&Place::Nonce { account: *account, nonce: *nonce }))
            }
            Claim::Inputs(_) => match (standing, self.held_by(question.intent.job)) {
                (SlotStanding::Again, Some(Held::Inputs(core))) => {
                    let common = |slot: &Slot| slot.chain == *question.chain && question.wanted.contains(&slot.place);
                    Held::Inputs(core.into_iter().filter(common).collect())
                }
                _ => Held::Inputs(question.wanted.iter().map(on_chain).collect()),
            },
        }
    }

    /// Takes up what was logged.
    pub fn record(&mut self, job: JobId, record: JobRecord) {
        let taken: Vec<KeptSlot> = record.held.slots().iter().map(|slot| self.keep(slot)).collect();
        let key = JobKey::from(job);
        let distinct: BTreeSet<KeptSlot> = taken.iter().copied().collect();
        for cancelled in &record.cancels {
            let same =
                self.job(*cancelled).is_some_and(|other| slots(&other.held).any(|slot| distinct.contains(&slot)));
            if let Some(other) = self.jobs.get_mut(&JobKey::from(*cancelled)).filter(|_| same) {
                other.cancelled = true;
            }
        }
        self.release(job);
        // A cancel that was signed stays signed while the job stays where it is.
        let cancelled = self.job(job).is_some_and(|before| before.cancelled && before.round == record.round);
        self.insert(key, JobRecord { cancelled, ..record }, &taken);
    }

    /// Takes up a job as an older version's snapshot has it.
    pub(crate) fn restore(&mut self, job: JobId, record: JobRecord) {
        let taken: Vec<KeptSlot> = record.held.slots().iter().map(|slot| self.keep(slot)).collect();
        self.insert(job.into(), record, &taken);
    }

    fn insert(&mut self, key: JobKey, record: JobRecord, taken: &[KeptSlot]) {
        for slot in taken {
            match slot {
                KeptSlot::Nonce(nonce) => self.nonces.insert((*nonce, key), ()),
                KeptSlot::Input(input) => self.inputs.insert((*input, key), ()),
            };
        }
        let job = KeptJob::new(record, taken);
        if let KeptHeld::Until(until) = &job.held {
            self.payloads.insert((until.payload, key), ());
        }
        self.jobs.insert(key, job);
    }

    fn keep(&mut self, slot: &Slot) -> KeptSlot {
        slot.place.kept(self.chains.keep(&slot.chain))
    }

    fn release(&mut self, job: JobId) {
        let key = JobKey::from(job);
        let Some(record) = self.jobs.get(&key) else { return };
        if let KeptHeld::Until(until) = &record.held {
            self.payloads.remove(&(until.payload, key));
        }
        for slot in slots(&record.held) {
            match slot {
                KeptSlot::Nonce(nonce) => self.nonces.remove(&(nonce, key)),
                KeptSlot::Input(input) => self.inputs.remove(&(input, key)),
            };
        }
    }

    /// Forgets jobs that were made before a time. They are refused by their number from now on.
    pub fn forget(&mut self, before: Timestamp) {
        let old = |key: &JobKey| key.job().is_some_and(|job| job.made_at() < before);
        // Jobs are in the order of their numbers, and so of their times: the first of each kind is the oldest.
        let mut firsts = JobKey::KINDS.iter().filter_map(|kind| self.jobs.range_from(*kind).next());
        if !firsts.any(|(key, _)| old(key)) {
            return;
        }
        self.jobs.retain(|key, _| !old(key));
        self.nonces.retain(|(_, key), ()| !old(key));
        self.inputs.retain(|(_, key), ()| !old(key));
        self.payloads.retain(|(_, key), ()| !old(key));
    }
}

/// Whose each payload is, of all jobs. A job has one payload, so no pair is there twice, and there is always an answer.
pub(crate) fn payloads_of(jobs: &Sorted<JobKey, KeptJob>) -> Option<Sorted<(Hash, JobKey), ()>> {
    let until = |(key, job): (&JobKey, &KeptJob)| match &job.held {
        KeptHeld::Until(until) => Some((until.payload, *key)),
        KeptHeld::Nonce(_) | KeptHeld::Inputs(_) => None,
    };
    let mut pairs: Vec<(Hash, JobKey)> = jobs.iter().filter_map(until).collect();
    pairs.sort_unstable();
    let mut payloads = Sorted::default();
    for pair in pairs {
        payloads.push_roomy(pair, ()).ok()?;
    }
    Some(payloads)
}

/// Who holds a slot, in the order of their numbers.
fn holders<S: Ord + Copy>(pairs: &Sorted<(S, JobKey), ()>, slot: S) -> impl Iterator<Item = JobId> {
    let pairs = pairs.range_from((slot, JobKey::FIRST)).map(|(pair, ())| *pair);
    pairs.take_while(move |(one, _)| *one == slot).filter_map(|(_, key)| key.job())
}

fn slots(held: &KeptHeld) -> impl Iterator<Item = KeptSlot> {
    let (nonce, inputs): (_, &[KeptInput]) = match held {
        KeptHeld::Nonce(nonce) => (Some(KeptSlot::Nonce(*nonce)), &[]),
        KeptHeld::Inputs(core) => (None, core),
        KeptHeld::Until(_) => (None, &[]),
    };
    nonce.into_iter().chain(inputs.iter().map(|input| KeptSlot::Input(*input)))
}
