//! The filter, and the exact keys behind it.
//!
//! The keys stand in a list of chunks, in the order of their numbers. The filter is split into [`SHARDS`] tables with
//! open addressing, whose slots hold 32 bits of the key's hash and its number. Both grow in small steps, so the memory
//! never peaks above what it ends at: a new chunk leaves the others where they are, and only one shard at a time is
//! there twice.
//!
//! Ten million keys take 210 MB, their slots 134 MB. A key that is not watched costs one read from far memory: slots
//! that are probed one after the other stand side by side.

use super::BLOCK;
use super::hash::Secret;
use super::key::WatchKey;

/// A power of two. One thousandth of the set is what an addition may have to move, and what may be there twice.
const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 10;

/// The first size of a shard. Sizes are powers of two.
const FIRST_SLOTS: usize = 8;

/// Keys per chunk: 21 kB, which fit into the gaps that shards leave in the heap when they grow.
const CHUNK: usize = 1024;

/// There is no number left: numbers have 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watched set holds as many addresses as it can number")]
pub struct Full;

#[derive(Debug)]
pub(super) struct Table {
    secret: Secret,
    shards: Box<[Shard]>,
    keys: Keys,
}

/// The upper half of a slot is the fingerprint; the lower half is the number plus one, so that zero is an empty slot.
#[derive(Debug, Default)]
struct Shard {
    slots: Box<[u64]>,
    used: usize,
}

#[derive(Debug, Default)]
struct Keys {
    /// Each but the last is full.
    chunks: Vec<Vec<WatchKey>>,
}

impl Table {
    pub(super) fn with_capacity(keys: u32, secret: Secret) -> Self {
        // Shards that get more than their part grow by themselves. Room for them all would often double the whole.
        let slots = slots_for((keys as usize).div_ceil(SHARDS));
        let shards = (0..SHARDS).map(|_| Shard { slots: vec![0; slots].into(), used: 0 }).collect();
        Self { secret, shards, keys: Keys::default() }
    }

    /// Its number; the same when it is there already. Memory is asked for before anything is changed; nothing after
    /// that can panic, so the table is whole whatever happens.
    pub(super) fn insert(&mut self, key: WatchKey) -> Result<u32, Full> {
        let hash = self.secret.hash(&key);
        let shard = &mut self.shards[shard_of(hash)];
        if let Some(number) = shard.find(hash, &key, &self.keys) {
            return Ok(number);
        }
        let (number, next) = numbers_after(self.keys.len())?;
        if shard.is_crowded() {
            shard.grow(&self.keys, &self.secret);
        }
        self.keys.push(key);
        shard.put(hash, next);
        Ok(number)
    }

    pub(super) fn find(&self, key: &WatchKey) -> Option<u32> {
        let hash = self.secret.hash(key);
        self.shards[shard_of(hash)].find(hash, key, &self.keys)
    }

    /// Up to [`BLOCK`] keys: hashes all, then reads the first slot of all, then looks at what was read. No read depends
    /// on the one before it, so the processor has many under way at once.
    pub(super) fn find_block(&self, keys: &[WatchKey], mut hit: impl FnMut(usize, u32)) {
        let mut hashes = [0; BLOCK];
        let mut firsts = [0; BLOCK];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.secret.hash(key);
        }
        for (first, hash) in firsts.iter_mut().zip(&hashes[..keys.len()]) {
            *first = self.shards[shard_of(*hash)].first(*hash);
        }
        for (at, key) in keys.iter().enumerate() {
            // An empty first slot ends the search, and most of the rest find all they need in the same cache line.
            if firsts[at] != 0
                && let Some(number) = self.shards[shard_of(hashes[at])].find(hashes[at], key, &self.keys)
            {
                hit(at, number);
            }
        }
    }

    pub(super) fn passes_filter(&self, key: &WatchKey) -> bool {
        let hash = self.secret.hash(key);
        self.shards[shard_of(hash)].candidates(hash).next().is_some()
    }

    pub(super) fn key_of(&self, number: u32) -> Option<WatchKey> {
        self.keys.get(number).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(|shard| size_of_val(&*shard.slots)).sum();
        size_of_val(&*self.shards) + slots + self.keys.bytes()
    }
}

impl Shard {
    fn find(&self, hash: u64, key: &WatchKey, keys: &Keys) -> Option<u32> {
        self.candidates(hash).find(|number| keys.get(*number) == Some(key))
    }

    /// The numbers whose fingerprint is that of `hash`, and that stand where it would stand.
    fn candidates(&self, hash: u64) -> impl Iterator<Item = u32> {
        self.probe(hash)
            .map(|at| self.slots[at])
            .take_while(|slot| *slot != 0)
            .filter(move |slot| slot >> 32 == fingerprint(hash))
            // The lower half, less the one that was added.
            .map(|slot| (slot as u32).wrapping_sub(1))
    }

    /// The slot where `hash` belongs, and all others in the order in which they are tried.
    fn probe(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let slots = self.slots.len();
        let home = self.home(hash);
        (home..slots).chain(0..home)
    }

    /// Zero in a shard without slots: nothing is read there.
    fn home(&self, hash: u64) -> usize {
        // Sizes are powers of two. The fingerprint has the lower 32 bits, the shard the upper ten.
        (hash >> 32) as usize & self.slots.len().saturating_sub(1)
    }

    fn first(&self, hash: u64) -> u64 {
        self.slots.get(self.home(hash)).copied().unwrap_or_default()
    }

    /// Three quarters are used. Beyond that the ways to an empty slot get long.
    fn is_crowded(&self) -> bool {
        self.used >= self.slots.len() / 4 * 3
    }

    fn grow(&mut self, keys: &Keys, secret: &Secret) {
        let slots = (self.slots.len() * 2).max(FIRST_SLOTS);
        let old = std::mem::replace(&mut self.slots, vec![0; slots].into());
        self.used = 0;
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            let next = slot as u32;
            if let Some(key) = keys.get(next.wrapping_sub(1)) {
                self.put(secret.hash(key), next);
            }
        }
    }

    /// There is an empty slot: a quarter is always free.
    fn put(&mut self, hash: u64, next: u32) {
        if let Some(at) = self.probe(hash).find(|at| self.slots[*at] == 0) {
            self.slots[at] = fingerprint(hash) << 32 | u64::from(next);
            self.used += 1;
        }
    }
}

impl Keys {
    fn get(&self, number: u32) -> Option<&WatchKey> {
        self.chunks.get(number as usize / CHUNK)?.get(number as usize % CHUNK)
    }

    fn push(&mut self, key: WatchKey) {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(key),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(key);
                self.chunks.push(chunk);
            }
        }
    }

    fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    fn bytes(&self) -> usize {
        let keys: usize = self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<WatchKey>()).sum();
        self.chunks.capacity() * size_of::<Vec<WatchKey>>() + keys
    }
}

const fn shard_of(hash: u64) -> usize {
    (hash >> (64 - SHARD_BITS)) as usize
}

const fn fingerprint(hash: u64) -> u64 {
    hash & 0xffff_ffff
}

/// The slots of a shard that is not crowded by so many keys.
fn slots_for(keys: usize) -> usize {
    match keys {
        0 => 0,
        _ => (keys * 4).div_ceil(3).next_power_of_two().max(FIRST_SLOTS),
    }
}

/// The number of the next key, and the one after it: that too must have 32 bits, since slots hold it.
fn numbers_after(len: usize) -> Result<(u32, u32), Full> {
    let number = u32::try_from(len).map_err(|_| Full)?;
    Ok((number, number.checked_add(1).ok_or(Full)?))
}

#[cfg(test)]
mod tests;
