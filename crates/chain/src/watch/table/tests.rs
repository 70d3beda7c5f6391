use domain::random::Random;

use super::*;
use crate::watch::measure::any_account;

/// A hash under which only `word` of a key counts, or nothing at all: what a chooser of keys who knew the secret could
/// bring about.
fn weak(word: Option<usize>, plus: u128) -> Secret {
    let mut words = [0; 3];
    if let Some(word) = word {
        words[word] = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    }
    Secret { words, plus }
}

/// A secret under which every key belongs into the last slot of its shard, at every size up to `slots`.
fn all_in_the_last_slot(slots: usize) -> Secret {
    let last = |plus: &u128| {
        let hash = weak(None, *plus).hash(&account(0));
        (hash >> 32) as usize & (slots - 1) == slots - 1
    };
    // One in 512 fits.
    weak(None, (0..100_000).map(|high: u128| high << 64).find(last).unwrap())
}

fn account(number: u32) -> WatchKey {
    let mut bytes = [0; 20];
    bytes[16..].copy_from_slice(&number.to_be_bytes());
    WatchKey::of_account(&bytes)
}

fn hits(table: &Table, keys: &[WatchKey]) -> Vec<(usize, u32)> {
    let mut hits = Vec::new();
    table.find_block(keys, |at, number| hits.push((at, number)));
    hits
}

/// Adds accounts one by one and looks at all of them, and at others, after each.
fn assert_exact(secret: Secret, count: u32) {
    let mut table = Table::with_capacity(0, secret);
    for number in 0..count {
        assert_eq!(table.find(&account(number)), None);
        assert_eq!(table.insert(account(number)), Ok(number));
        for known in 0..=number {
            assert_eq!(table.find(&account(known)), Some(known));
            assert_eq!(table.insert(account(known)), Ok(known));
        }
        let keys = [account(number), account(number + 1), account(0)];
        let wanted = [(0, number), (2, 0)];
        assert_eq!(hits(&table, &keys), wanted);
    }
    assert_eq!(table.len(), count as usize);
}

#[test]
fn keys_that_all_look_the_same_to_the_filter_are_still_told_apart() {
    assert_exact(weak(None, 0), 200);
    let mut table = Table::with_capacity(0, weak(None, 0));
    assert!(!table.passes_filter(&account(1)));
    table.insert(account(0)).unwrap();
    assert!(table.passes_filter(&account(1)), "the filter errs, as it was made to");
    assert_eq!(table.find(&account(1)), None);
}

#[test]
fn keys_that_differ_only_where_the_hash_does_not_look_are_still_told_apart() {
    for word in 0..3 {
        assert_exact(weak(Some(word), 77), 100);
    }
}

#[test]
fn probing_goes_on_at_the_first_slot_after_the_last() {
    assert_exact(all_in_the_last_slot(512), 200);
    let mut table = Table::with_capacity(0, all_in_the_last_slot(8));
    for number in 0..3 {
        table.insert(account(number)).unwrap();
    }
    let shard = table.shards.iter().find(|shard| shard.used > 0).unwrap();
    let numbers: Vec<u32> = shard.slots.iter().map(|slot| *slot as u32).collect();
    assert_eq!(numbers, [2, 3, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_shard_grows_when_three_quarters_are_used_and_loses_nothing() {
    let mut table = Table::with_capacity(0, weak(None, 5));
    let mut sizes = Vec::new();
    for number in 0..100 {
        table.insert(account(number)).unwrap();
        let shard = table.shards.iter().find(|shard| shard.used > 0).unwrap();
        assert_eq!(shard.used, number as usize + 1);
        assert!(shard.used * 4 <= shard.slots.len() * 3, "a quarter is free, so that every search ends");
        if sizes.last() != Some(&shard.slots.len()) {
            sizes.push(shard.slots.len());
        }
    }
    assert_eq!(sizes, [8, 16, 32, 64, 128, 256]);
}

#[test]
fn every_shard_and_every_slot_gets_its_part() {
    let mut random = Random::from_seed(2);
    for sequential in [false, true] {
        let mut table = Table::with_capacity(0, Secret::new(&mut random));
        for number in 0..200_000 {
            table.insert(if sequential { account(number) } else { any_account(&mut random) }).unwrap();
        }
        // 195 each by chance, give or take 14.
        assert!(table.shards.iter().all(|shard| (110..=300).contains(&shard.used)));
        // How far keys stand from home: chance has it that most stand within a cache line.
        let far = table.shards.iter().flat_map(|shard| {
            shard.slots.iter().enumerate().filter(|(_, slot)| **slot != 0).map(|(at, slot)| {
                let key = table.keys.get(*slot as u32 - 1).unwrap();
                at.wrapping_sub(shard.home(table.secret.hash(key))) & (shard.slots.len() - 1)
            })
        });
        let (count, sum) = far.fold((0, 0), |(count, sum), far| (count + 1, sum + far));
        assert_eq!(count, 200_000);
        assert!(sum < 4 * count, "{sum} slots from home in all");
    }
}

#[test]
fn the_fingerprint_is_apart_from_the_place() {
    // Keys of one shard and one home share no more fingerprints than chance has it: none of a few thousand.
    let secret = Secret::new(&mut Random::from_seed(6));
    let mut random = Random::from_seed(7);
    let hashes: Vec<u64> = (0..2_000_000).map(|_| secret.hash(&any_account(&mut random))).collect();
    let same_place = |hash: &&u64| **hash >> 54 == hashes[0] >> 54;
    let mut prints: Vec<u64> = hashes.iter().filter(same_place).map(|hash| fingerprint(*hash)).collect();
    let count = prints.len();
    prints.sort_unstable();
    prints.dedup();
    assert!(count > 1_000);
    assert!(count - prints.len() <= 1);
}

#[test]
fn a_hint_gives_just_the_room_that_is_needed() {
    assert_eq!(slots_for(0), 0);
    for keys in 1..5_000 {
        let slots = slots_for(keys);
        assert!(slots.is_power_of_two() && slots >= FIRST_SLOTS);
        assert!(keys * 4 <= slots * 3, "{keys} keys crowd {slots} slots");
        assert!(slots == FIRST_SLOTS || keys * 4 > slots / 2 * 3, "{keys} keys would fit half of {slots} slots");
    }
    let table = Table::with_capacity(10_000_000, weak(None, 0));
    assert!(table.bytes() + 10_000_000 * WatchKey::BYTES < 350_000_000);
}

#[test]
fn a_full_set_is_an_error_and_never_wraps() {
    let last = u32::MAX as usize - 1;
    assert_eq!(numbers_after(0), Ok((0, 1)));
    assert_eq!(numbers_after(last), Ok((u32::MAX - 1, u32::MAX)));
    for len in [last + 1, last + 2, usize::MAX] {
        assert_eq!(numbers_after(len), Err(Full));
    }
}

#[test]
fn keys_stand_in_full_chunks_in_the_order_of_their_numbers() {
    let mut keys = Keys::default();
    let count = 2 * CHUNK as u32 + 1;
    for number in 0..count {
        assert_eq!(keys.len(), number as usize);
        assert_eq!(keys.get(number), None);
        keys.push(account(number));
    }
    assert!((0..count).all(|number| keys.get(number) == Some(&account(number))));
    assert_eq!(keys.chunks.iter().map(Vec::len).collect::<Vec<_>>(), [CHUNK, CHUNK, 1]);
    assert!(keys.chunks.iter().all(|chunk| chunk.capacity() == CHUNK), "no chunk ever moved");
    assert!(keys.bytes() >= 3 * CHUNK * WatchKey::BYTES, "what is not used yet is taken all the same");
}
