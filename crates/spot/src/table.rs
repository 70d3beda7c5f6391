//! Hash tables for millions of small entries of fixed size. They grow without a pause of the writer.
//!
//! A table that doubles would copy everything at once, which takes a third of a second at ten million ids. These tables
//! are made of small shards, and only one shard is ever copied at a time. A shard that has grown has between 70 % and
//! 87 % of its slots in use.

/// An entry that knows its own key, and a value of itself that means "no entry".
pub trait Slot: Copy {
    type Key: Copy + Eq;
    const EMPTY: Self;
    fn key(&self) -> Self::Key;
    fn is_empty(&self) -> bool;
    /// All 64 bits must be well mixed: some of them choose the shard, others the slot.
    fn hash(key: Self::Key) -> u64;
}

/// One table with open addressing, of any size.
pub struct Shard<T> {
    slots: Box<[T]>,
    used: usize,
}

/// The slots of the smallest shard.
const SMALLEST: usize = 8;

/// The slot of a shard where the search for a hash begins. It depends on the upper half of the hash only, because the
/// lower half may have chosen the shard.
fn start(hash: u64, slots: usize) -> usize {
    (((hash >> 32) * slots as u64) >> 32) as usize
}

impl<T: Slot> Shard<T> {
    /// A shard that is 70 % full with so many entries.
    pub fn with_room_for(entries: usize) -> Self {
        Self::with_slots((entries * 10 / 7 + 1).max(SMALLEST))
    }

    /// A shard with so many slots, which grows when 7/8 of them are used.
    pub fn with_slots(slots: usize) -> Self {
        Self { slots: vec![T::EMPTY; slots].into_boxed_slice(), used: 0 }
    }

    pub const fn len(&self) -> usize {
        self.used
    }

    pub const fn bytes(&self) -> usize {
        self.slots.len() * size_of::<T>()
    }

    /// The slot of the key, or the empty slot where it belongs. A shard always has an empty slot, so the search ends.
    fn find(&self, key: T::Key, hash: u64) -> usize {
        let mut at = start(hash, self.slots.len());
        loop {
            let slot = &self.slots[at];
            if slot.is_empty() || slot.key() == key {
                return at;
            }
            at += 1;
            if at == self.slots.len() {
                at = 0;
            }
        }
    }

    pub fn get(&self, key: T::Key, hash: u64) -> Option<&T> {
        Some(&self.slots[self.find(key, hash)]).filter(|slot| !slot.is_empty())
    }

    pub fn get_mut(&mut self, key: T::Key, hash: u64) -> Option<&mut T> {
        let at = self.find(key, hash);
        Some(&mut self.slots[at]).filter(|slot| !slot.is_empty())
    }

    /// Adds an entry whose key is not there, and grows by a quarter when 7 of 8 slots are used.
    pub fn insert(&mut self, entry: T) {
        if self.used * 8 >= self.slots.len() * 7 {
            let mut larger = Self::with_room_for(self.used + 1);
            self.entries().for_each(|entry| larger.put(*entry));
            *self = larger;
        }
        self.put(entry);
    }

    fn put(&mut self, entry: T) {
        let at = self.find(entry.key(), T::hash(entry.key()));
        self.slots[at] = entry;
        self.used += 1;
    }

    pub fn entries(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter(|slot| !slot.is_empty())
    }

    /// Two shards of the right size: the entries that the predicate chooses, and the rest.
    pub fn divided(&self, chosen: impl Fn(&T) -> bool) -> (Self, Self) {
        let count = self.entries().filter(|entry| chosen(entry)).count();
        let (mut yes, mut no) = (Self::with_room_for(count), Self::with_room_for(self.used - count));
        for entry in self.entries() {
            if chosen(entry) { yes.put(*entry) } else { no.put(*entry) }
        }
        (yes, no)
    }
}

/// A shard is split when the table has more entries than this for each shard: few enough that the copy is quick.
const ENTRIES_PER_SHARD: usize = 1_024;

/// A table that grows by splitting one shard after the other (linear hashing).
pub struct Table<T> {
    shards: Vec<Shard<T>>,
    /// Shards before this one were split in this round.
    split: usize,
    /// Shards at the beginning of this round; a power of two.
    round: usize,
    len: usize,
}

impl<T: Slot> Table<T> {
    /// An empty table, about as large as if so many entries had been added one by one.
    pub fn with_room_for(entries: usize) -> Self {
        let shards = (entries / ENTRIES_PER_SHARD).max(1);
        let round = 1 << shards.ilog2();
        let split = shards - round;
        let room = |at: usize| if at < split || at >= round { entries / (2 * round) } else { entries / round };
        Self { shards: (0..shards).map(|at| Shard::with_room_for(room(at))).collect(), split, round, len: 0 }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// The bytes that the table takes in memory.
    pub fn bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(Shard::bytes).sum();
        slots + self.shards.capacity() * size_of::<Shard<T>>()
    }

    fn shard_of(&self, hash: u64) -> usize {
        let at = hash as usize & (self.round - 1);
        if at < self.split { hash as usize & (2 * self.round - 1) } else { at }
    }

    pub fn get(&self, key: T::Key) -> Option<&T> {
        let hash = T::hash(key);
        self.shards[self.shard_of(hash)].get(key, hash)
    }

    pub fn get_mut(&mut self, key: T::Key) -> Option<&mut T> {
        let hash = T::hash(key);
        let at = self.shard_of(hash);
        self.shards[at].get_mut(key, hash)
    }

    /// Adds an entry whose key is not in the table.
    pub fn insert(&mut self, entry: T) {
        if self.len >= self.shards.len() * ENTRIES_PER_SHARD {
            self.split_one();
        }
        let at = self.shard_of(T::hash(entry.key()));
        self.shards[at].insert(entry);
        self.len += 1;
    }

    /// Splits the next shard of the round: one more bit of the hash decides which entries leave it.
    fn split_one(&mut self) {
        let bit = self.round;
        let (gone, stay) = self.shards[self.split].divided(|entry| T::hash(entry.key()) as usize & bit != 0);
        self.shards[self.split] = stay;
        self.shards.push(gone);
        self.split += 1;
        if self.split == self.round {
            self.round *= 2;
            self.split = 0;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.shards.iter().flat_map(Shard::entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::random::Random;
    use std::collections::HashMap;

    impl Slot for (u64, u64) {
        type Key = u64;
        const EMPTY: Self = (0, 0);
        fn key(&self) -> u64 {
            self.0
        }
        fn is_empty(&self) -> bool {
            self.0 == 0
        }
        fn hash(key: u64) -> u64 {
            crate::operation::fold(key, 0x9e37_79b9_7f4a_7c15)
        }
    }

    #[test]
    fn it_holds_what_a_plain_map_holds() {
        let mut random = Random::from_seed(1);
        for room in [0, 100_000] {
            let (mut table, mut map) = (Table::<(u64, u64)>::with_room_for(room), HashMap::new());
            for round in 0..200_000_u64 {
                let key = 1 + random.below(150_000);
                match table.get_mut(key) {
                    Some(slot) => {
                        slot.1 = round;
                        assert!(map.insert(key, round).is_some());
                    }
                    None => {
                        table.insert((key, round));
                        assert!(map.insert(key, round).is_none());
                    }
                }
            }
            assert_eq!(table.len(), map.len());
            assert_eq!(table.iter().copied().collect::<HashMap<u64, u64>>(), map);
            assert!((1..200_000).all(|key| table.get(key).map(|slot| slot.1) == map.get(&key).copied()));
        }
    }

    #[test]
    fn at_any_size_a_slot_in_three_at_most_is_unused() {
        let mut table = Table::with_room_for(0);
        for key in 1..=300_000_u64 {
            table.insert((key, 0));
            if key > 10_000 && key.is_multiple_of(997) {
                assert!(table.bytes() < table.len() * 24, "{} bytes for {} entries", table.bytes(), table.len());
            }
        }
    }
}
