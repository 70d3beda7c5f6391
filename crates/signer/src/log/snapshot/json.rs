//! A snapshot of a version before: the head, the state as JSON, and the SHA-256 of both.

use std::collections::{BTreeMap, BTreeSet};

use domain::Timestamp;
use serde::Deserialize;

use crate::caps::SpentByMinute;
use crate::digest::sha256;
use crate::log::Head;
use crate::names::{JobId, KeyName, Person, RequestId};
use crate::policy::file::parse;
use crate::policy::signed::{Accepted, Policies};
use crate::slots::{JobRecord, Slots};
use crate::sorted::Sorted;
use crate::state::{Remembered, Requests, State};
use crate::text::{Hash, SpentOutput};

#[derive(Deserialize)]
struct Image {
    /// Text and microseconds.
    policies: Vec<(String, i64)>,
    slots: SlotsImage,
    spent: SpentByMinute,
    amounts: BTreeMap<String, BTreeMap<SpentOutput, u64>>,
    requests: BTreeMap<RequestId, Remembered>,
    counters: BTreeMap<KeyName, BTreeMap<u32, Hash>>,
    revoked: BTreeSet<(Hash, Person)>,
    last: i64,
    forgotten_before: i64,
}

#[derive(Deserialize)]
struct SlotsImage {
    jobs: BTreeMap<JobId, JobRecord>,
    /// Who holds what. It follows from the jobs, and must.
    holders: BTreeMap<String, BTreeSet<JobId>>,
}

pub(super) fn read(bytes: &[u8]) -> Option<(Head, State)> {
    let (content, check) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if sha256(content) != check {
        return None;
    }
    let (entries, rest) = content.split_first_chunk::<8>()?;
    let (hash, json) = rest.split_first_chunk::<32>()?;
    let state = state(serde_json::from_slice(json).ok()?)?;
    Some((Head { entries: u64::from_be_bytes(*entries), hash: Hash(*hash) }, state))
}

fn state(image: Image) -> Option<State> {
    let mut kept = Vec::new();
    for (text, effective) in image.policies {
        let policy = parse(text.as_bytes()).ok()?;
        kept.push(Accepted { policy, text, effective: Timestamp::from_micros(effective) });
    }
    let mut slots = Slots::default();
    for (job, record) in image.slots.jobs {
        slots.restore(job, record);
    }
    let holders = image.slots.holders.into_iter();
    let said: BTreeSet<_> =
        holders.flat_map(|(slot, jobs)| jobs.into_iter().map(move |job| (slot.clone(), Some(job)))).collect();
    if said != slots.holding() {
        return None;
    }
    let mut requests = Requests::default();
    for (id, remembered) in image.requests {
        requests.insert(&id, remembered);
    }
    let mut amounts = BTreeMap::new();
    for (chain, of_chain) in image.amounts {
        let mut sorted = Sorted::default();
        of_chain.into_iter().try_for_each(|(output, satoshi)| sorted.push(output, satoshi)).ok()?;
        amounts.insert(chain, sorted);
    }
    Some(State {
        policies: Policies::restore(kept),
        slots,
        spent: image.spent,
        amounts,
        requests,
        counters: image.counters,
        revoked: image.revoked,
        last: Timestamp::from_micros(image.last),
        forgotten_before: Timestamp::from_micros(image.forgotten_before),
    })
}
