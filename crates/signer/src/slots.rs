//! One slot per job. A job is signed for one nonce, or one set of inputs; again only there, and only with the same
//! payment. Moving it needs the signer's own earlier cancel of the first slot, or an operator's signature. TRON has no
//! slot: again only when the old expiry is past by a margin.
//!
//! **What one job was signed for pays at most once**, as long as it has not moved: on EVM all its transactions have one
//! nonce, on Bitcoin all have a common input (`core`), on TRON the one before can no longer be mined.

use std::collections::{BTreeMap, BTreeSet};

use domain::{ChainName, Timestamp};
use serde::{Deserialize, Serialize};

use crate::intent::{Intent, IntentKind};
use crate::names::JobId;
use crate::reading::{Claim, Outpoint};
use crate::refusal::SignerRefusal;
use crate::text::{Hash, RawText};

/// A slot's one text: `bsc:0x…:7`, or `bitcoin:<transaction>:<output>` for one input.
pub type SlotText = String;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    Nonce(SlotText),
    /// Inputs that every transaction of the job has spent.
    Inputs(Vec<SlotText>),
    /// Microseconds: when the last transaction of the job ends.
    Until(i64),
}

impl Held {
    /// As an operator signs it.
    pub fn text(&self) -> String {
        match self {
            Self::Nonce(slot) => slot.clone(),
            Self::Inputs(core) => core.join(","),
            Self::Until(micros) => micros.to_string(),
        }
    }
}

/// What the signer remembers of a job.
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

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    jobs: BTreeMap<JobId, JobRecord>,
    /// Who holds a nonce, or has an input in its core.
    holders: BTreeMap<SlotText, BTreeSet<JobId>>,
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
    pub wanted: &'a BTreeSet<SlotText>,
    pub payload: Hash,
    /// All jobs of the same transaction.
    pub jobs: &'a BTreeSet<JobId>,
    /// An operator signed that the job may leave its slot.
    pub moved: bool,
    pub now: Timestamp,
    pub tron_margin_us: i64,
}

pub fn nonce_text(chain: &ChainName, account: &tx::Address, nonce: u64) -> SlotText {
    format!("{chain}:{account}:{nonce}")
}

pub fn input_text(chain: &ChainName, (transaction, output): &Outpoint) -> SlotText {
    format!("{chain}:{transaction}:{output}")
}

/// The slots that a payload takes.
pub fn claimed(chain: &ChainName, claim: &Claim) -> BTreeSet<SlotText> {
    match claim {
        Claim::Nonce { account, nonce } => BTreeSet::from([nonce_text(chain, account, *nonce)]),
        Claim::Inputs(outpoints) => outpoints.iter().map(|one| input_text(chain, one)).collect(),
        Claim::Expiry(_) => BTreeSet::new(),
    }
}

impl Slots {
    pub fn job(&self, job: JobId) -> Option<&JobRecord> {
        self.jobs.get(&job)
    }

    pub fn count(&self) -> usize {
        self.jobs.len()
    }

    /// Decides whether the job may have what its payload claims.
    pub fn judge(&self, question: &SlotQuestion<'_>) -> Result<SlotStanding, SignerRefusal> {
        let intent = question.intent;
        let wanted = question.wanted;
        let standing = match self.jobs.get(&intent.job) {
            None if intent.round == 0 => SlotStanding::Taken,
            None => return Err(SignerRefusal::SlotDiffers(intent.job)),
            Some(record) => self.judge_known(question, record, wanted)?,
        };
        if let IntentKind::Cancel { jobs } = &intent.kind
            && standing == SlotStanding::Taken
            && !jobs.iter().all(|job| self.holds(*job, wanted))
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
        for slot in question.wanted {
            let others = self.holders.get(slot).into_iter().flatten();
            if let Some(other) = others.copied().find(|other| !self.may_share(*other, question.jobs, &cancelled)) {
                return Err(SignerRefusal::SlotTaken(other));
            }
        }
        Ok(())
    }

    fn judge_known(
        &self,
        question: &SlotQuestion<'_>,
        record: &JobRecord,
        wanted: &BTreeSet<SlotText>,
    ) -> Result<SlotStanding, SignerRefusal> {
        let job = question.intent.job;
        if record.payment != Hash(question.intent.payment_digest()) {
            return Err(SignerRefusal::JobChanged(job));
        }
        let round = question.intent.round;
        if let Held::Until(micros) = record.held {
            let past = question.now.micros() > micros.saturating_add(question.tron_margin_us);
            return if record.payload == question.payload && round == record.round {
                Ok(SlotStanding::Again)
            } else if !past {
                Err(SignerRefusal::NotExpiredYet(job))
            } else if round == record.round || Some(round) == record.round.checked_add(1) {
                Ok(SlotStanding::Rebuilt)
            } else {
                Err(SignerRefusal::SlotDiffers(job))
            };
        }
        if self.holds(job, wanted) {
            return if round == record.round { Ok(SlotStanding::Again) } else { Err(SignerRefusal::SlotDiffers(job)) };
        }
        let next = Some(round) == record.round.checked_add(1);
        if next && (record.cancelled || question.moved) {
            Ok(SlotStanding::Taken)
        } else {
            Err(SignerRefusal::SlotDiffers(job))
        }
    }

    /// Whether a transaction with these claims can never be mined beside what the job was signed for.
    fn holds(&self, job: JobId, wanted: &BTreeSet<SlotText>) -> bool {
        match self.jobs.get(&job).map(|record| &record.held) {
            Some(Held::Nonce(slot)) => wanted.contains(slot),
            Some(Held::Inputs(core)) => core.iter().any(|input| wanted.contains(input)),
            Some(Held::Until(_)) | None => false,
        }
    }

    /// Jobs of one transaction share its slot; a cancel shares that of what it cancels.
    fn may_share(&self, other: JobId, jobs: &BTreeSet<JobId>, cancelled: &BTreeSet<JobId>) -> bool {
        let ours = |job: &JobId| jobs.contains(job) || cancelled.contains(job);
        ours(&other) || self.jobs.get(&other).is_some_and(|record| record.cancels.iter().any(ours))
    }

    /// What the job will hold once this is signed.
    pub fn held(&self, question: &SlotQuestion<'_>, standing: &SlotStanding) -> Held {
        let wanted = question.wanted;
        match question.claim {
            Claim::Expiry(until) => Held::Until(until.micros()),
            Claim::Nonce { account, nonce } => Held::Nonce(nonce_text(question.chain, account, *nonce)),
            Claim::Inputs(_) => match (standing, self.jobs.get(&question.intent.job).map(|record| &record.held)) {
                (SlotStanding::Again, Some(Held::Inputs(core))) => {
                    Held::Inputs(core.iter().filter(|input| wanted.contains(*input)).cloned().collect())
                }
                _ => Held::Inputs(wanted.iter().cloned().collect()),
            },
        }
    }

    /// Takes up what was logged.
    pub fn record(&mut self, job: JobId, record: JobRecord) {
        let taken: BTreeSet<&SlotText> = slots(&record.held).iter().collect();
        for cancelled in &record.cancels {
            if let Some(other) = self.jobs.get_mut(cancelled)
                && slots(&other.held).iter().any(|slot| taken.contains(slot))
            {
                other.cancelled = true;
            }
        }
        self.release(job);
        for slot in slots(&record.held) {
            self.holders.entry(slot.clone()).or_default().insert(job);
        }
        // A cancel that was signed stays signed while the job stays where it is.
        let cancelled = self.jobs.get(&job).is_some_and(|before| before.cancelled && before.round == record.round);
        self.jobs.insert(job, JobRecord { cancelled, ..record });
    }

    fn release(&mut self, job: JobId) {
        let Some(record) = self.jobs.get(&job) else { return };
        for slot in slots(&record.held) {
            if let Some(holders) = self.holders.get_mut(slot) {
                holders.remove(&job);
                if holders.is_empty() {
                    self.holders.remove(slot);
                }
            }
        }
    }

    /// Forgets jobs that were made before a time. They are refused by their number from now on.
    pub fn forget(&mut self, before: Timestamp) {
        let old: Vec<JobId> = self.jobs.keys().copied().filter(|job| job.made_at() < before).collect();
        for job in old {
            self.release(job);
            self.jobs.remove(&job);
        }
    }
}

fn slots(held: &Held) -> &[SlotText] {
    match held {
        Held::Nonce(slot) => std::slice::from_ref(slot),
        Held::Inputs(core) => core,
        Held::Until(_) => &[],
    }
}
