//! A job in memory. There are millions: what few of them have is kept apart.

use std::collections::BTreeMap;

use domain::RawAmount;

use super::{JobRecord, Slots};
use crate::names::JobId;
use crate::slot::{Held, KeptHeld, KeptSlot, KeptUntil};
use crate::text::Hash;

/// [`JobRecord`] in memory. The payload's hash is kept where it is asked for, which is TRON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptJob {
    pub payment: Hash,
    pub intent: Hash,
    pub held: KeptHeld,
    pub seldom: Option<Box<Seldom>>,
    /// A fee that is larger is in [`Seldom`].
    pub small_fee: u64,
    pub round: u32,
    pub cancelled: bool,
}

/// What few jobs have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seldom {
    pub cancels: Vec<JobId>,
    pub approved: Option<Hash>,
    pub builds: BTreeMap<Hash, u32>,
    pub large_fee: Option<RawAmount>,
}

impl KeptJob {
    /// `taken` are the slots of what the record holds.
    pub(super) fn new(record: JobRecord, taken: &[KeptSlot]) -> Self {
        let inputs = taken.iter().filter_map(|slot| match slot {
            KeptSlot::Input(input) => Some(*input),
            KeptSlot::Nonce(_) => None,
        });
        let held = match (record.held, taken) {
            (Held::Nonce(_), [KeptSlot::Nonce(nonce)]) => KeptHeld::Nonce(*nonce),
            (Held::Until(micros), _) => KeptHeld::Until(Box::new(KeptUntil { micros, payload: record.payload })),
            (Held::Nonce(_) | Held::Inputs(_), _) => KeptHeld::Inputs(inputs.collect()),
        };
        let mut kept = Self {
            payment: record.payment,
            intent: record.intent,
            held,
            seldom: None,
            small_fee: 0,
            round: record.round,
            cancelled: record.cancelled,
        };
        let (small, large) = split_fee(record.fee.0);
        kept.small_fee = small;
        kept.set_seldom(Seldom {
            cancels: record.cancels,
            approved: record.approved,
            builds: record.builds,
            large_fee: large,
        });
        kept
    }

    pub(crate) fn set_seldom(&mut self, seldom: Seldom) {
        self.seldom = (seldom != Seldom::default()).then(|| Box::new(seldom));
    }

    pub(crate) fn cancels(&self) -> &[JobId] {
        self.seldom.as_ref().map_or(&[], |seldom| &seldom.cancels)
    }

    pub(crate) fn approved(&self) -> Option<Hash> {
        self.seldom.as_ref().and_then(|seldom| seldom.approved)
    }

    pub(crate) fn builds(&self) -> BTreeMap<Hash, u32> {
        self.seldom.as_ref().map(|seldom| seldom.builds.clone()).unwrap_or_default()
    }

    pub(crate) fn built(&self, intent: &Hash) -> u32 {
        self.seldom.as_ref().and_then(|seldom| seldom.builds.get(intent)).copied().unwrap_or_default()
    }

    /// What was counted of fees for the job in its slot.
    pub(crate) fn fee(&self) -> RawAmount {
        let large = self.seldom.as_ref().and_then(|seldom| seldom.large_fee);
        large.unwrap_or_else(|| raw(self.small_fee))
    }
}

fn raw(small: u64) -> RawAmount {
    small.try_into().map_or(RawAmount::MAX, RawAmount::from_u256)
}

fn split_fee(fee: RawAmount) -> (u64, Option<RawAmount>) {
    match u64::try_from(fee.to_u256()) {
        Ok(small) => (small, None),
        Err(_) => (0, Some(fee)),
    }
}

/// The same jobs with the same slots, whatever numbers their chains have.
impl PartialEq for Slots {
    fn eq(&self, other: &Self) -> bool {
        let same = |(key, one): (_, &KeptJob)| {
            let there = other.jobs.get(key);
            let held = |slots: &Self| crate::names::JobKey::job(*key).and_then(|job| slots.held_by(job));
            there.is_some_and(|two| {
                let rest =
                    |job: &KeptJob| (job.payment, job.intent, job.seldom.clone(), job.fee(), job.round, job.cancelled);
                let payload = |job: &KeptJob| match &job.held {
                    KeptHeld::Until(until) => Some(until.payload),
                    KeptHeld::Nonce(_) | KeptHeld::Inputs(_) => None,
                };
                rest(one) == rest(two) && payload(one) == payload(two) && held(self) == held(other)
            })
        };
        let held = self.holding() == other.holding() && self.payloads == other.payloads;
        self.jobs.len() == other.jobs.len() && self.jobs.iter().all(same) && held
    }
}

impl Eq for Slots {}

impl Slots {
    /// Every slot that is held and by whom, as text.
    pub(crate) fn holding(&self) -> std::collections::BTreeSet<(String, Option<JobId>)> {
        let text = |chain, place| match self.chains.name(chain) {
            Some(name) => crate::slot::Slot { chain: name.clone(), place }.to_string(),
            None => String::new(),
        };
        let nonces = self.nonces.iter().map(|((slot, key), ())| (text(slot.chain, slot.place()), key.job()));
        let inputs = self.inputs.iter().map(|((slot, key), ())| (text(slot.chain, slot.place()), key.job()));
        nonces.chain(inputs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::RawText;

    #[test]
    fn nothing_of_a_record_is_lost_in_memory() {
        let slot = |text: &str| Held::Inputs(vec![text.parse().expect("a slot")]);
        let until = Held::Until(-7);
        let input = slot("btc:abababababababababababababababababababababababababababababababab:10");
        let most = RawAmount::MAX.to_string();
        for fee in ["0", "7", "18446744073709551615", "18446744073709551616", &most] {
            for (number, held) in [until.clone(), input.clone()].into_iter().enumerate() {
                let fee: RawText = fee.parse().expect("an amount");
                let rare = number == 1;
                let hash = |byte: u8| Hash([byte; 32]);
                let record = JobRecord {
                    payment: hash(1),
                    round: 3,
                    held: held.clone(),
                    cancelled: rare,
                    cancels: if rare { vec![JobId::Job(5), JobId::Withdrawal(6)] } else { Vec::new() },
                    intent: hash(2),
                    approved: rare.then(|| hash(3)),
                    builds: if rare { BTreeMap::from([(hash(4), 8)]) } else { BTreeMap::new() },
                    fee,
                    payload: hash(5),
                };
                let (mut slots, job) = (Slots::default(), JobId::Withdrawal(9));
                slots.restore(job, record.clone());
                let kept = slots.job(job).expect("it was kept");
                assert_eq!((kept.payment, kept.intent, kept.round), (record.payment, record.intent, record.round));
                assert_eq!((kept.fee(), kept.cancelled, kept.approved()), (fee.0, rare, record.approved));
                assert_eq!((kept.cancels(), kept.builds()), (&record.cancels[..], record.builds.clone()));
                assert_eq!((kept.built(&hash(4)), kept.built(&hash(1))), (if rare { 8 } else { 0 }, 0));
                assert_eq!(slots.held_by(job), Some(held));
                if let KeptHeld::Until(until) = &kept.held {
                    assert_eq!(until.payload, record.payload);
                }
            }
        }
        // A job is small, unless it is one of the few.
        assert_eq!(size_of::<KeptJob>(), 128);
    }
}
