//! The operation ids that are remembered, with what stands under each: 16 bytes an id, and about a fifth of the slots
//! is empty.
//!
//! An id says when it was made, and most ids that come are the newest. So ids are kept in stretches of time, each a
//! small hash table of its own: the newest stretch stays in the processor's cache however many there are, and ids that
//! are older than the horizon are forgotten a whole stretch at a time.

use std::collections::VecDeque;

use crate::answer::Standing;
use crate::operation::{OpId, fold};
use crate::table::{Shard, Slot};

/// One remembered id. The word holds what stands under it in its lowest seven bits, then a bit for operations that move
/// money between the engine and its database, and seven bytes of the fingerprint. No standing has a number above 127.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    id: u64,
    word: u64,
}

const CROSSES: u64 = 0x80;

impl Remembered {
    pub fn new(id: OpId, fingerprint: u64, standing: Standing, crosses: bool) -> Self {
        let crosses = if crosses { CROSSES } else { 0 };
        Self { id: id.number().cast_unsigned(), word: fingerprint << 8 | crosses | u64::from(standing.number()) }
    }

    /// Did the operation move money between the engine and its database, or try to?
    pub const fn crosses(&self) -> bool {
        self.word & CROSSES != 0
    }

    const fn standing_number(word: u64) -> u8 {
        (word & (CROSSES - 1)) as u8
    }

    pub const fn number(&self) -> u64 {
        self.id
    }

    pub fn standing(&self) -> Standing {
        // The byte was made by `new` or checked by `from_words`, so it always is a standing.
        Standing::from_number(Self::standing_number(self.word)).unwrap_or(Standing::Applied)
    }

    pub fn set_standing(&mut self, standing: Standing) {
        self.word = self.word & !(CROSSES - 1) | u64::from(standing.number());
    }

    pub const fn is_of(&self, fingerprint: u64) -> bool {
        self.word >> 8 == fingerprint << 8 >> 8
    }

    pub const fn words(&self) -> [u64; 2] {
        [self.id, self.word]
    }

    pub fn from_words([id, word]: [u64; 2]) -> Option<Self> {
        OpId::new(i64::try_from(id).ok()?)?;
        Standing::from_number(Self::standing_number(word))?;
        Some(Self { id, word })
    }
}

impl Slot for Remembered {
    type Key = u64;
    const EMPTY: Self = Self { id: 0, word: 0 };

    fn key(&self) -> u64 {
        self.id
    }

    fn is_empty(&self) -> bool {
        self.id == 0
    }

    fn hash(id: u64) -> u64 {
        fold(id ^ 0x2d35_8dcc_aa6c_78a5, 0x9e37_79b9_7f4a_7c15)
    }
}

/// The ids from `from` up to the beginning of the next stretch.
struct Stretch {
    from: u64,
    newest: u64,
    entries: Shard<Remembered>,
}

/// When the newest stretch has so many ids, a new stretch begins with the next id that is newer than all of them.
const FULL: usize = 16_384;
/// A stretch that grows to so many, because ids keep coming to it late, is divided in two.
const TOO_FULL: usize = FULL + FULL / 4;

pub struct Ids {
    /// In order, without gaps: the first begins at 0.
    stretches: VecDeque<Stretch>,
    len: usize,
}

impl Default for Ids {
    fn default() -> Self {
        Self { stretches: VecDeque::from([Stretch { from: 0, newest: 0, entries: Shard::with_room_for(0) }]), len: 0 }
    }
}

impl Ids {
    pub const fn len(&self) -> usize {
        self.len
    }

    pub fn bytes(&self) -> usize {
        let slots: usize = self.stretches.iter().map(|stretch| stretch.entries.bytes()).sum();
        slots + self.stretches.capacity() * size_of::<Stretch>()
    }

    fn stretch_of(&self, id: u64) -> usize {
        match self.stretches.back() {
            Some(last) if last.from <= id => self.stretches.len() - 1,
            // The first stretch begins at 0, so at least one begins at or before every id.
            _ => self.stretches.partition_point(|stretch| stretch.from <= id).saturating_sub(1),
        }
    }

    pub fn get(&self, id: u64) -> Option<&Remembered> {
        self.stretches[self.stretch_of(id)].entries.get(id, Remembered::hash(id))
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Remembered> {
        let at = self.stretch_of(id);
        self.stretches[at].entries.get_mut(id, Remembered::hash(id))
    }

    /// Adds an id that is not there yet. Whenever this begins a new stretch, the stretches that lie wholly before
    /// `oldest` are forgotten.
    pub fn insert(&mut self, entry: Remembered, oldest: u64) {
        let mut at = self.stretch_of(entry.id);
        let stretch = &self.stretches[at];
        if stretch.entries.len() >= FULL && at + 1 == self.stretches.len() && entry.id > stretch.newest {
            // It is made as large as it will most likely be: 80 % full when the next stretch begins.
            let entries = Shard::with_slots(FULL / 4 * 5);
            self.stretches.push_back(Stretch { from: entry.id, newest: 0, entries });
            self.forget(oldest);
            at = self.stretches.len() - 1;
        } else if stretch.entries.len() >= TOO_FULL {
            self.divide(at);
            at = self.stretch_of(entry.id);
        }
        let stretch = &mut self.stretches[at];
        stretch.newest = stretch.newest.max(entry.id);
        stretch.entries.insert(entry);
        self.len += 1;
    }

    fn forget(&mut self, oldest: u64) {
        while self.stretches.get(1).is_some_and(|second| second.from <= oldest) {
            self.len -= self.stretches.pop_front().map_or(0, |gone| gone.entries.len());
            if let Some(first) = self.stretches.front_mut() {
                first.from = 0;
            }
        }
    }

    fn divide(&mut self, at: usize) {
        let stretch = &self.stretches[at];
        let mut ids: Vec<u64> = stretch.entries.entries().map(|entry| entry.id).collect();
        let middle = ids.len() / 2;
        let (_, middle, _) = ids.select_nth_unstable(middle);
        let middle = *middle;
        let (later, earlier) = stretch.entries.divided(|entry| entry.id >= middle);
        let later = Stretch { from: middle, newest: stretch.newest, entries: later };
        let newest = earlier.entries().map(|entry| entry.id).max().unwrap_or(0);
        self.stretches[at] = Stretch { from: stretch.from, newest, entries: earlier };
        self.stretches.insert(at + 1, later);
    }

    /// All ids from `oldest` on, in order. One stretch at a time is sorted.
    pub fn sorted(&self, oldest: u64) -> impl Iterator<Item = Remembered> {
        self.stretches.iter().skip(self.stretch_of(oldest)).flat_map(move |stretch| {
            let mut entries: Vec<Remembered> =
                stretch.entries.entries().filter(|entry| entry.id >= oldest).copied().collect();
            entries.sort_unstable_by_key(|entry| entry.id);
            entries
        })
    }

    /// All ids before `before`, the newest first. One stretch at a time is sorted.
    pub fn newest_first(&self, before: u64) -> impl Iterator<Item = Remembered> {
        self.stretches.iter().rev().filter(move |stretch| stretch.from < before).flat_map(move |stretch| {
            let mut entries: Vec<Remembered> =
                stretch.entries.entries().filter(|entry| entry.id < before).copied().collect();
            entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.id));
            entries
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::random::Random;
    use std::collections::BTreeMap;

    fn entry(id: u64, fingerprint: u64) -> Remembered {
        let id = OpId::new(i64::try_from(id).expect("small")).expect("positive");
        Remembered::new(id, fingerprint, Standing::Applied, fingerprint.is_multiple_of(2))
    }

    /// In every order in which ids may come: ascending, nearly ascending, backwards, and at random.
    #[test]
    fn it_holds_what_a_plain_map_holds() {
        let orders: [fn(u64, &mut Random) -> u64; 4] = [
            |number, _| number + 1,
            |number, random| (number * 100 + 1 + random.below(500_000)) | 1,
            |number, _| 10_000_000 - number,
            |_, random| 1 + random.below(1 << 40),
        ];
        for (kind, order) in orders.iter().enumerate() {
            let mut random = Random::from_seed(3);
            let (mut ids, mut map) = (Ids::default(), BTreeMap::new());
            for number in 0..120_000 {
                let id = order(number, &mut random);
                assert_eq!(ids.get(id).map(Remembered::words), map.get(&id).map(Remembered::words), "order {kind}");
                map.entry(id).or_insert_with(|| {
                    ids.insert(entry(id, number), 0);
                    entry(id, number)
                });
            }
            assert_eq!(ids.len(), map.len());
            assert!(ids.sorted(0).eq(map.values().copied()), "order {kind}");
            assert!(ids.newest_first(u64::MAX).eq(map.values().rev().copied()), "order {kind}");
            let (middle, _) = map.iter().nth(map.len() / 2).expect("there");
            assert!(ids.sorted(*middle).eq(map.range(middle..).map(|(_, entry)| *entry)), "order {kind}");
            assert!(ids.newest_first(*middle).eq(map.range(..middle).rev().map(|(_, entry)| *entry)), "order {kind}");
            // The second term is the stretch that is being filled.
            let bound = ids.len() * 23 + FULL / 4 * 5 * 16;
            assert!(ids.bytes() <= bound, "order {kind}: {} bytes for {}", ids.bytes(), ids.len());
        }
    }

    #[test]
    fn what_is_older_than_the_horizon_goes_and_its_memory_with_it() {
        let mut ids = Ids::default();
        for id in 1..=500_000_u64 {
            ids.insert(entry(id, 0), id.saturating_sub(20_000));
        }
        assert!(ids.len() < 20_000 + 2 * FULL, "{}", ids.len());
        assert!((480_001..=500_000).all(|id| ids.get(id).is_some()));
        assert!(ids.get(1).is_none());
        ids.insert(entry(2, 0), 0);
        assert!(ids.get(2).is_some(), "the first stretch begins at 0 again");
    }
}
