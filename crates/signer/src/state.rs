//! All that the signer remembers. It changes by entries of the log and by nothing else, so a start that reads the log ends
//! with the same state.

use std::collections::{BTreeMap, BTreeSet};

use domain::{RawAmount, Timestamp};
use serde::{Deserialize, Serialize};

use crate::caps::SpentByMinute;
use crate::log::entry::{Decision, Effects, Entry};
use crate::names::{KeyName, Person, RequestId, RequestKey};
use crate::policy::file::{BadPolicy, parse};
use crate::policy::judge::Counter;
use crate::policy::signed::{Accepted, Policies};
use crate::slots::Slots;
use crate::sorted::Sorted;
use crate::text::{Hash, SpentOutput};

/// Counters of a passkey so far below its highest are taken for a copy's.
const COUNTERS_KEPT: u32 = 1_000;

/// A number of things as the counters have it.
pub(crate) fn count(things: usize) -> RawAmount {
    things.to_string().parse().unwrap_or(RawAmount::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    pub content: Hash,
    pub at: i64,
}

/// Requests by their ids, of which half the hash is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(pub(crate) Sorted<RequestKey, Remembered>);

impl Requests {
    pub fn get(&self, id: &RequestId) -> Option<&Remembered> {
        self.0.get(&id.into())
    }

    pub fn contains_key(&self, id: &RequestId) -> bool {
        self.get(id).is_some()
    }

    pub(crate) fn insert(&mut self, id: &RequestId, remembered: Remembered) {
        self.0.insert(id.into(), remembered);
    }

    pub const fn len(&self) -> usize {
        self.0.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub policies: Policies,
    pub slots: Slots,
    pub spent: SpentByMinute,
    /// Of every input that was ever signed, by its chain: its satoshi, for ever.
    pub amounts: BTreeMap<String, Sorted<SpentOutput, u64>>,
    /// What was approved, by the asker's name for it.
    pub requests: Requests,
    /// Of each passkey: which digest a counter was used for.
    pub counters: BTreeMap<KeyName, BTreeMap<u32, Hash>>,
    pub revoked: BTreeSet<(Hash, Person)>,
    /// The time of the newest entry.
    pub last: Timestamp,
    /// Jobs that were made before are refused.
    pub forgotten_before: Timestamp,
}

impl State {
    /// Takes up one entry. An error: the entry holds a policy that is none, which nothing of ours writes.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), BadPolicy> {
        self.last = self.last.max(entry.at());
        match entry {
            Entry::Approved { decision, effects } => self.approve(decision, effects),
            Entry::Refused { .. } => {}
            Entry::Policy { at, text, effective, .. } => {
                let policy = parse(text.as_bytes())?;
                let accepted = Accepted { policy, text: text.clone(), effective: Timestamp::from_micros(*effective) };
                self.policies.accept(accepted, Timestamp::from_micros(*at));
            }
            Entry::Revoked { digest, person, .. } => {
                self.revoked.insert((*digest, person.clone()));
            }
        }
        Ok(())
    }

    fn approve(&mut self, decision: &Decision, effects: &Effects) {
        let at = Timestamp::from_micros(decision.at);
        for (coin, amount) in &effects.counted {
            self.spent.add(&decision.chain, &decision.group, coin, amount.0, at);
        }
        self.spent.add(&decision.chain, &decision.group, &Counter::Fee.text(), decision.fee_added.0, at);
        if !effects.amounts.is_empty() {
            let amounts = self.amounts.entry(decision.chain.clone()).or_default();
            let new =
                effects.amounts.iter().filter(|(input, satoshi)| amounts.insert(*input, *satoshi).is_none()).count();
            self.spent.add(&decision.chain, &decision.group, &Counter::Inputs.text(), count(new), at);
        }
        for (job, record) in &effects.jobs {
            self.slots.record(*job, record.clone());
        }
        for approval in decision.approvals.iter().filter(|approval| approval.counter > 0) {
            let counters = self.counters.entry(approval.key.clone()).or_default();
            counters.insert(approval.counter, approval.digest);
            let highest = counters.last_key_value().map_or(0, |(highest, _)| *highest);
            *counters = counters.split_off(&highest.saturating_sub(COUNTERS_KEPT));
        }
        let remembered = Remembered { content: decision.content, at: decision.at };
        self.requests.insert(&decision.request, remembered);
    }

    /// Whether a passkey's counter may stand under this digest. Approvals are collected elsewhere and come in any order,
    /// so a lower counter than the last is no sign of a copy; the same counter for two digests is one, and so is one from
    /// long ago, or none after there were some.
    pub fn counter_is_good(&self, key: &KeyName, counter: u32, digest: &Hash) -> bool {
        let Some(counters) = self.counters.get(key) else { return true };
        let Some((highest, _)) = counters.last_key_value() else { return true };
        match counters.get(&counter) {
            Some(used) => used == digest,
            None => counter > 0 && counter >= highest.saturating_sub(COUNTERS_KEPT),
        }
    }

    /// Forgets what was made before a time, and refuses it from now on. Amounts of inputs are never forgotten.
    pub fn forget(&mut self, before: Timestamp) {
        if before <= self.forgotten_before {
            return;
        }
        self.forgotten_before = before;
        self.slots.forget(before);
        // Whatever was approved then was made still earlier, so a replay of it is refused by its job's number.
        self.requests.0.retain(|_, one| one.at >= before.micros());
    }
}
