//! A sorted map for millions of small records: leaves of neighbouring keys, each in one piece of memory.
//!
//! A `BTreeMap` that grows at its end, as job numbers do, leaves its nodes half empty. Here a leaf that is full stays full. A clone
//! shares its leaves with the map that it was made from, until one of the two changes one: so a snapshot is taken in a moment and
//! written while signing goes on.

use std::sync::Arc;

/// So many records make a leaf. What a change copies, if a clone shares the leaf, is this much.
const MOST: usize = 256;
/// So many make a leaf whose neighbours are still to come. A full leaf becomes two when it gets one more, and all leaves behind it make place.
const ROOMY: usize = MOST / 8 * 7;

#[derive(Clone)]
struct Leaf<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

/// Every key of a leaf is at least its bound, and less than the bound of the next. No leaf is empty.
#[derive(Clone)]
pub struct Sorted<K, V> {
    leaves: Vec<(K, Arc<Leaf<K, V>>)>,
    length: usize,
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self { leaves: Vec::new(), length: 0 }
    }
}

/// The key is not greater than the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSorted;

impl<K: Ord + Copy, V: Clone> Sorted<K, V> {
    pub const fn len(&self) -> usize {
        self.length
    }

    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The leaf that has the key, if any has.
    fn leaf(&self, key: &K) -> Option<usize> {
        self.leaves.partition_point(|(bound, _)| bound <= key).checked_sub(1)
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        let leaf = &self.leaves[self.leaf(key)?].1;
        leaf.keys.binary_search(key).ok().map(|place| &leaf.values[place])
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let leaf = self.leaf(key)?;
        let place = self.leaves[leaf].1.keys.binary_search(key).ok()?;
        Some(&mut Arc::make_mut(&mut self.leaves[leaf].1).values[place])
    }

    /// Gives the value that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some(number) = self.leaf(&key) else {
            // Before all others.
            match self.leaves.first_mut() {
                Some((bound, _)) => *bound = key,
                None => self.leaves.push((key, Arc::new(Leaf { keys: Vec::new(), values: Vec::new() }))),
            }
            return self.insert_in(0, 0, key, value);
        };
        match self.leaves[number].1.keys.binary_search(&key) {
            Ok(place) => {
                let leaf = Arc::make_mut(&mut self.leaves[number].1);
                Some(std::mem::replace(&mut leaf.values[place], value))
            }
            Err(place) => self.insert_in(number, place, key, value),
        }
    }

    fn insert_in(&mut self, number: usize, place: usize, key: K, value: V) -> Option<V> {
        self.length += 1;
        let leaf = Arc::make_mut(&mut self.leaves[number].1);
        if leaf.keys.len() < MOST {
            leaf.keys.insert(place, key);
            leaf.values.insert(place, value);
            return None;
        }
        // At its end a full leaf stays as it is; elsewhere it becomes two halves.
        let at = if place == MOST { MOST } else { MOST / 2 };
        let mut next = Leaf { keys: leaf.keys.split_off(at), values: leaf.values.split_off(at) };
        if place >= at {
            next.keys.insert(place - at, key);
            next.values.insert(place - at, value);
        } else {
            leaf.keys.insert(place, key);
            leaf.values.insert(place, value);
        }
        let bound = next.keys[0];
        self.leaves.insert(number + 1, (bound, Arc::new(next)));
        None
    }

    /// Adds a key that is greater than all others. For keys that will always come in their order, so that full leaves stay as they are.
    pub fn push(&mut self, key: K, value: V) -> Result<(), NotSorted> {
        self.push_within(MOST, key, value)
    }

    /// The same for keys that will come in any order: the leaves have room for them.
    pub fn push_roomy(&mut self, key: K, value: V) -> Result<(), NotSorted> {
        self.push_within(ROOMY, key, value)
    }

    fn push_within(&mut self, most: usize, key: K, value: V) -> Result<(), NotSorted> {
        if let Some((_, leaf)) = self.leaves.last_mut() {
            if leaf.keys.last().is_some_and(|last| *last >= key) {
                return Err(NotSorted);
            }
            if leaf.keys.len() < most {
                let leaf = Arc::make_mut(leaf);
                leaf.keys.push(key);
                leaf.values.push(value);
                self.length += 1;
                return Ok(());
            }
        }
        let mut leaf = Leaf { keys: Vec::with_capacity(MOST), values: Vec::with_capacity(MOST) };
        leaf.keys.push(key);
        leaf.values.push(value);
        self.leaves.push((key, Arc::new(leaf)));
        self.length += 1;
        Ok(())
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let number = self.leaf(key)?;
        let place = self.leaves[number].1.keys.binary_search(key).ok()?;
        let leaf = Arc::make_mut(&mut self.leaves[number].1);
        leaf.keys.remove(place);
        let value = leaf.values.remove(place);
        if leaf.keys.is_empty() {
            self.leaves.remove(number);
        }
        self.length -= 1;
        Some(value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.leaves.iter().flat_map(|(_, leaf)| leaf.keys.iter().zip(&leaf.values))
    }

    /// From a key on.
    pub fn range_from(&self, key: K) -> impl Iterator<Item = (&K, &V)> {
        let from = self.leaf(&key).unwrap_or_default();
        let leaves = self.leaves.get(from..).unwrap_or_default().iter().enumerate();
        leaves.flat_map(move |(number, (_, leaf))| {
            let skip = if number == 0 { leaf.keys.partition_point(|one| *one < key) } else { 0 };
            leaf.keys[skip..].iter().zip(&leaf.values[skip..])
        })
    }

    /// Removes what does not stay. Only leaves that lose something are touched, and small neighbours become one.
    pub fn retain(&mut self, stays: impl Fn(&K, &V) -> bool) {
        let mut kept: Vec<(K, Arc<Leaf<K, V>>)> = Vec::with_capacity(self.leaves.len());
        self.length = 0;
        for (bound, mut leaf) in std::mem::take(&mut self.leaves) {
            if !leaf.keys.iter().zip(&leaf.values).all(|(key, value)| stays(key, value)) {
                let pairs = leaf.keys.iter().zip(&leaf.values).filter(|(key, value)| stays(key, value));
                let (keys, values): (Vec<K>, Vec<V>) = pairs.map(|(key, value)| (*key, value.clone())).unzip();
                leaf = Arc::new(Leaf { keys, values });
            }
            self.length += leaf.keys.len();
            match kept.last_mut() {
                _ if leaf.keys.is_empty() => {}
                Some((_, before)) if before.keys.len() + leaf.keys.len() <= MOST => {
                    let before = Arc::make_mut(before);
                    before.keys.extend_from_slice(&leaf.keys);
                    before.values.extend_from_slice(&leaf.values);
                }
                Some(_) | None => kept.push((bound, leaf)),
            }
        }
        self.leaves = kept;
    }
}

impl<K: Ord + Copy, V: Clone + PartialEq> PartialEq for Sorted<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.iter().eq(other.iter())
    }
}

impl<K: Ord + Copy, V: Clone + Eq> Eq for Sorted<K, V> {}

impl<K: Ord + Copy + std::fmt::Debug, V: Clone + std::fmt::Debug> std::fmt::Debug for Sorted<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use domain::random::Random;

    use super::*;

    fn check(sorted: &Sorted<u32, u64>, model: &BTreeMap<u32, u64>) {
        assert!(sorted.iter().eq(model.iter()));
        assert_eq!(sorted.len(), model.len());
        for pair in sorted.leaves.windows(2) {
            let last = pair[0].1.keys.last().copied();
            assert!(last.is_some_and(|last| pair[0].0 <= pair[0].1.keys[0] && last < pair[1].0));
        }
        assert!(sorted.leaves.iter().all(|(_, leaf)| (1..=MOST).contains(&leaf.keys.len())));
    }

    #[test]
    fn it_does_what_a_map_of_the_library_does_and_a_clone_stays_as_it_was() {
        for seed in 0..8 {
            let mut random = Random::from_seed(seed);
            let (mut sorted, mut model) = (Sorted::default(), BTreeMap::new());
            let mut before = (sorted.clone(), model.clone());
            let span = [40, 3_000, 100_000, 4_000_000][usize::try_from(seed % 4).unwrap_or(0)];
            for step in 0..20_000_u32 {
                // Half of the keys come in their order, as job numbers do.
                let any = u32::try_from(random.below(span)).unwrap_or(0);
                let key = if random.below(2) == 0 { step } else { any };
                match random.below(10) {
                    0..6 => assert_eq!(sorted.insert(key, step.into()), model.insert(key, step.into())),
                    6..8 => assert_eq!(sorted.remove(&key), model.remove(&key)),
                    8 => {
                        assert_eq!(sorted.get(&key), model.get(&key));
                        assert_eq!(sorted.get_mut(&key), model.get_mut(&key));
                        if let (Some(one), Some(other)) = (sorted.get_mut(&key), model.get_mut(&key)) {
                            (*one, *other) = (7, 7);
                        }
                    }
                    _ => assert!(sorted.range_from(key).take(5).eq(model.range(key..).take(5))),
                }
                if step % 4_000 == 0 {
                    let odd = random.below(3);
                    sorted.retain(|key, _| u64::from(*key) % 3 != odd);
                    model.retain(|key, _| u64::from(*key) % 3 != odd);
                    check(&sorted, &model);
                    check(&before.0, &before.1);
                    before = (sorted.clone(), model.clone());
                }
            }
            check(&sorted, &model);
            check(&before.0, &before.1);
            let mut pushed = Sorted::default();
            assert!(model.iter().all(|(key, value)| pushed.push(*key, *value).is_ok()));
            assert_eq!(pushed, sorted);
            check(&pushed, &model);
            // One more for each leaf: none has to become two.
            let mut roomy = Sorted::default();
            assert!(model.iter().all(|(key, value)| roomy.push_roomy(*key, *value).is_ok()));
            assert_eq!(roomy, sorted);
            let leaves = roomy.leaves.len();
            let more: Vec<u32> = roomy.leaves.iter().map(|(bound, _)| bound.saturating_add(1)).collect();
            for key in more {
                assert_eq!(roomy.insert(key, 1), model.insert(key, 1));
            }
            assert_eq!(roomy.leaves.len(), leaves);
            check(&roomy, &model);
        }
    }

    #[test]
    fn what_is_not_greater_than_the_last_is_not_added_at_the_end() {
        let mut sorted = Sorted::default();
        assert_eq!(sorted.push(5, ()), Ok(()));
        assert_eq!((sorted.push(5, ()), sorted.push(4, ()), sorted.len()), (Err(NotSorted), Err(NotSorted), 1));
    }
}
