//! What waits for a block: who spends whom, and in which order a miner wants it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use ::bitcoin::{OutPoint, Transaction, TxOut, Txid, Wtxid};

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub transaction: Transaction,
    pub txid: Txid,
    pub wtxid: Wtxid,
    pub fee: u64,
    pub weight: u64,
    pub sigops: u64,
    /// In seconds.
    pub time: i64,
    pub height: u32,
    /// No block below this height takes it: [`super::super::BroadcastFault::Delay`].
    pub not_before: u32,
    pub sequence: u64,
}

impl Entry {
    /// What it takes of a block, many signature checks being as dear as bytes.
    pub fn adjusted_weight(&self) -> u64 {
        self.weight.max(self.sigops.saturating_mul(20))
    }

    pub fn vsize(&self) -> u64 {
        self.adjusted_weight().div_ceil(4)
    }
}

/// Transactions that a miner takes together, since the later ones pay for the earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    pub txids: Vec<Txid>,
    pub fee: u64,
    pub weight: u64,
}

impl Chunk {
    /// The higher fee rate is the greater.
    pub fn compare_rate(&self, other: &Self) -> Ordering {
        compare_rate((self.fee, self.weight), (other.fee, other.weight))
    }
}

fn compare_rate(left: (u64, u64), right: (u64, u64)) -> Ordering {
    let cross = |fee: u64, weight: u64| u128::from(fee).saturating_mul(u128::from(weight));
    cross(left.0, right.1).cmp(&cross(right.0, left.1))
}

/// A part of the pool, and perhaps one transaction that is not in it yet.
#[derive(Default)]
pub(super) struct Graph {
    nodes: BTreeMap<Txid, PoolNode>,
}

struct PoolNode {
    fee: u64,
    weight: u64,
    parents: BTreeSet<Txid>,
}

impl Graph {
    pub fn add(&mut self, entry: &Entry) {
        let parents = entry.transaction.input.iter().map(|input| input.previous_output.txid).collect();
        self.nodes.insert(entry.txid, PoolNode { fee: entry.fee, weight: entry.adjusted_weight(), parents });
    }

    /// What must come before it, and itself, of what is left.
    fn package(&self, txid: Txid, left: &BTreeSet<Txid>) -> BTreeSet<Txid> {
        let (mut found, mut next) = (BTreeSet::from([txid]), vec![txid]);
        while let Some(txid) = next.pop() {
            let Some(node) = self.nodes.get(&txid) else { continue };
            next.extend(node.parents.iter().filter(|parent| left.contains(*parent) && found.insert(**parent)));
        }
        found
    }

    /// The package that pays best comes first, again and again. Core finds better orders for tangled clusters.
    pub fn chunks(&self) -> Vec<Chunk> {
        let mut left: BTreeSet<Txid> = self.nodes.keys().copied().collect();
        let mut chunks: Vec<Chunk> = Vec::new();
        while !left.is_empty() {
            let best = left
                .iter()
                .map(|txid| {
                    let package = self.package(*txid, &left);
                    let nodes = || package.iter().filter_map(|txid| self.nodes.get(txid));
                    let fee = nodes().map(|node| node.fee).fold(0, u64::saturating_add);
                    let weight = nodes().map(|node| node.weight).fold(0, u64::saturating_add);
                    (package, fee, weight)
                })
                .reduce(|best, other| {
                    let order = compare_rate((other.1, other.2), (best.1, best.2));
                    if order.then(best.2.cmp(&other.2)) == Ordering::Greater { other } else { best }
                });
            let Some((package, fee, weight)) = best else { break };
            let mut chunk = Chunk { txids: self.sorted(&package), fee, weight };
            for txid in &package {
                left.remove(txid);
            }
            // What pays better than what it stands on joins it.
            while chunks.last().is_some_and(|last| chunk.compare_rate(last) == Ordering::Greater) {
                let Some(mut last) = chunks.pop() else { break };
                last.txids.append(&mut chunk.txids);
                last.fee = last.fee.saturating_add(chunk.fee);
                last.weight = last.weight.saturating_add(chunk.weight);
                chunk = last;
            }
            chunks.push(chunk);
        }
        chunks
    }

    /// Parents before children.
    fn sorted(&self, package: &BTreeSet<Txid>) -> Vec<Txid> {
        let (mut sorted, mut left) = (Vec::with_capacity(package.len()), package.clone());
        while !left.is_empty() {
            let ready = |txid: &&Txid| self.nodes.get(*txid).is_none_or(|node| node.parents.is_disjoint(&left));
            let Some(next) = left.iter().find(ready).copied() else { break };
            left.remove(&next);
            sorted.push(next);
        }
        sorted
    }
}

/// Whether the first fee diagram is nowhere below the second, and somewhere above it.
pub(super) fn improves(new: &[Chunk], old: &[Chunk]) -> bool {
    let (new, old) = (diagram(new), diagram(old));
    let mut above = false;
    for weight in new.iter().chain(&old).map(|point| point.0) {
        match compare_fraction(fee_at(&new, weight), fee_at(&old, weight)) {
            Ordering::Less => return false,
            Ordering::Greater => above = true,
            Ordering::Equal => {}
        }
    }
    above
}

fn diagram(chunks: &[Chunk]) -> Vec<(u64, u64)> {
    let mut sorted: Vec<&Chunk> = chunks.iter().collect();
    sorted.sort_by(|left, right| right.compare_rate(left));
    let mut points = vec![(0, 0)];
    for chunk in sorted {
        let (weight, fee) = *points.last().unwrap_or(&(0, 0));
        points.push((chunk.weight.saturating_add(weight), chunk.fee.saturating_add(fee)));
    }
    points
}

/// As a fraction; flat beyond the last point.
fn fee_at(points: &[(u64, u64)], weight: u64) -> (u128, u128) {
    for pair in points.windows(2) {
        if let [(from, low), (to, high)] = *pair
            && weight <= to
            && from < to
        {
            let (width, along) = (u128::from(to - from), u128::from(weight.saturating_sub(from)));
            let rise = u128::from(high.saturating_sub(low));
            return (u128::from(low) * width + rise * along, width);
        }
    }
    (u128::from(points.last().map_or(0, |point| point.1)), 1)
}

fn compare_fraction(left: (u128, u128), right: (u128, u128)) -> Ordering {
    left.0.saturating_mul(right.1).cmp(&right.0.saturating_mul(left.1))
}

#[derive(Clone, Default)]
pub(super) struct Pool {
    entries: BTreeMap<Txid, Entry>,
    spenders: BTreeMap<OutPoint, Txid>,
    /// Counts what came and went, as `mempool_sequence`.
    pub sequence: u64,
    pub bytes: u64,
}

impl Pool {
    pub fn get(&self, txid: &Txid) -> Option<&Entry> {
        self.entries.get(txid)
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn spender(&self, outpoint: &OutPoint) -> Option<Txid> {
        self.spenders.get(outpoint).copied()
    }

    pub fn output(&self, outpoint: &OutPoint) -> Option<&TxOut> {
        self.entries.get(&outpoint.txid)?.transaction.output.get(usize::try_from(outpoint.vout).ok()?)
    }

    pub fn insert(&mut self, mut entry: Entry) {
        self.sequence = self.sequence.saturating_add(1);
        entry.sequence = self.sequence;
        self.bytes = self.bytes.saturating_add(entry.vsize());
        for input in &entry.transaction.input {
            self.spenders.insert(input.previous_output, entry.txid);
        }
        self.entries.insert(entry.txid, entry);
    }

    pub fn remove(&mut self, txid: &Txid) -> Option<Entry> {
        let entry = self.entries.remove(txid)?;
        self.sequence = self.sequence.saturating_add(1);
        self.bytes = self.bytes.saturating_sub(entry.vsize());
        for input in &entry.transaction.input {
            self.spenders.remove(&input.previous_output);
        }
        Some(entry)
    }

    /// A pool of these alone.
    pub fn clone_part(&self, txids: &BTreeSet<Txid>) -> Self {
        let mut part = Self::default();
        for entry in txids.iter().filter_map(|txid| self.entries.get(txid)) {
            part.insert(entry.clone());
        }
        part
    }

    /// All of it, in the order in which it came.
    pub fn drain(&mut self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = std::mem::take(&mut self.entries).into_values().collect();
        entries.sort_by_key(|entry| entry.sequence);
        self.spenders.clear();
        self.bytes = 0;
        entries
    }

    /// With it goes all that spends its outputs.
    pub fn remove_with_descendants(&mut self, txid: &Txid) {
        for txid in self.descendants(txid) {
            self.remove(&txid);
        }
    }

    pub fn parents(&self, transaction: &Transaction) -> BTreeSet<Txid> {
        let inputs = transaction.input.iter().map(|input| input.previous_output.txid);
        inputs.filter(|txid| self.entries.contains_key(txid)).collect()
    }

    pub fn children(&self, txid: &Txid) -> BTreeSet<Txid> {
        let outputs = self.entries.get(txid).map_or(0, |entry| entry.transaction.output.len());
        let spender = |vout| self.spender(&OutPoint { txid: *txid, vout });
        (0_u32..).take(outputs).filter_map(spender).collect()
    }

    fn closure(&self, from: impl IntoIterator<Item = Txid>, step: impl Fn(&Txid) -> BTreeSet<Txid>) -> BTreeSet<Txid> {
        let mut found: BTreeSet<Txid> = from.into_iter().filter(|txid| self.entries.contains_key(txid)).collect();
        let mut next: Vec<Txid> = found.iter().copied().collect();
        while let Some(txid) = next.pop() {
            next.extend(step(&txid).into_iter().filter(|txid| found.insert(*txid)));
        }
        found
    }

    fn parents_of(&self, txid: &Txid) -> BTreeSet<Txid> {
        self.entries.get(txid).map(|entry| self.parents(&entry.transaction)).unwrap_or_default()
    }

    /// With itself.
    pub fn ancestors(&self, txid: &Txid) -> BTreeSet<Txid> {
        self.closure([*txid], |txid| self.parents_of(txid))
    }

    /// With itself.
    pub fn descendants(&self, txid: &Txid) -> BTreeSet<Txid> {
        self.closure([*txid], |txid| self.children(txid))
    }

    /// All that is tied to any of these by spending, however far.
    pub fn cluster(&self, of: impl IntoIterator<Item = Txid>) -> BTreeSet<Txid> {
        self.closure(of, |txid| {
            let mut tied = self.parents_of(txid);
            tied.append(&mut self.children(txid));
            tied
        })
    }

    pub fn graph(&self, txids: &BTreeSet<Txid>) -> Graph {
        let mut graph = Graph::default();
        for entry in txids.iter().filter_map(|txid| self.entries.get(txid)) {
            graph.add(entry);
        }
        graph
    }

    /// The chunk that it is mined with.
    pub fn chunk_of(&self, txid: &Txid) -> Chunk {
        let chunks = self.graph(&self.cluster([*txid])).chunks();
        chunks.into_iter().find(|chunk| chunk.txids.contains(txid)).unwrap_or_default()
    }

    /// What the next block holds, parents first.
    pub fn template(&self, height: u32, weight_limit: u64) -> Vec<Txid> {
        let held = self.entries.values().filter(|entry| entry.not_before > height).map(|entry| entry.txid);
        let held = self.closure(held, |txid| self.children(txid));
        let mut seen = held.clone();
        let mut chunks = Vec::new();
        for txid in self.entries.keys() {
            if seen.contains(txid) {
                continue;
            }
            let cluster: BTreeSet<Txid> = self.cluster([*txid]).difference(&held).copied().collect();
            seen.extend(&cluster);
            chunks.extend(self.graph(&cluster).chunks());
        }
        // A stable sort: within a cluster the rates already fall.
        chunks.sort_by(|left, right| right.compare_rate(left));
        let (mut block, mut taken, mut weight) = (Vec::new(), BTreeSet::new(), 0_u64);
        for chunk in chunks {
            let total = weight.saturating_add(chunk.weight);
            let complete = |txid: &Txid| {
                self.parents_of(txid).iter().all(|parent| taken.contains(parent) || chunk.txids.contains(parent))
            };
            if total <= weight_limit && chunk.txids.iter().all(complete) {
                weight = total;
                taken.extend(chunk.txids.iter().copied());
                block.extend(chunk.txids);
            }
        }
        block
    }

    pub fn total_fee(&self) -> u64 {
        self.entries.values().map(|entry| entry.fee).fold(0, u64::saturating_add)
    }
}
