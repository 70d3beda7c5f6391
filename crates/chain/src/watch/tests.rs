use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use domain::ChainKind;

use super::measure::any_account;
use super::*;

fn account(number: u64) -> WatchKey {
    let mut bytes = [0; 20];
    bytes[12..].copy_from_slice(&number.to_be_bytes());
    WatchKey::of_account(&bytes)
}

/// What a set must be: each key with its number, in both directions, one by one and all at once.
fn assert_holds(watched: &Watched, model: &BTreeMap<WatchKey, u32>, others: &[WatchKey]) {
    assert_eq!(watched.len(), model.len());
    assert_eq!(watched.is_empty(), model.is_empty());
    let asked: Vec<WatchKey> = model.keys().chain(others).chain(model.keys()).copied().collect();
    for key in &asked {
        assert_eq!(watched.find(key), model.get(key).copied());
        assert!(watched.passes_filter(key) || !model.contains_key(key), "the filter hides a watched key");
    }
    let mut hits = vec![(usize::MAX, 0)];
    watched.find_all(&asked, &mut hits);
    let wanted = asked.iter().enumerate().filter_map(|(at, key)| Some((at, *model.get(key)?)));
    assert!(hits.iter().copied().eq(std::iter::once((usize::MAX, 0)).chain(wanted)), "a batch differs from one by one");
    for (key, number) in model {
        assert_eq!(watched.key_of(*number), Some(*key));
    }
    assert_eq!(watched.key_of(u32::try_from(model.len()).unwrap()), None);
    assert_eq!(watched.key_of(u32::MAX), None);
}

fn any_key() -> impl Strategy<Value = WatchKey> {
    prop_oneof![
        // So few that many come again.
        any::<u8>().prop_map(|number| account(number.into())),
        any::<u64>().prop_map(account),
        // One bit apart.
        (0..160_usize).prop_map(|bit| {
            let mut bytes = [0; 20];
            bytes[bit / 8] = 1 << (bit % 8);
            WatchKey::of_account(&bytes)
        }),
        // The same bytes in other scripts.
        (any::<u8>(), 0..3_usize).prop_map(|(byte, form)| {
            let (begin, end): (&[u8], &[u8]) =
                [(&[0x76, 0xa9, 0x14][..], &[0x88, 0xac][..]), (&[0xa9, 0x14], &[0x87]), (&[0, 0x14], &[])][form];
            let script = [begin, &[byte; 20], end].concat();
            WatchKey::of_script(bitcoin::Script::from_bytes(&script))
        }),
        proptest::collection::vec(any::<u8>(), 0..40)
            .prop_map(|script| WatchKey::of_script(bitcoin::Script::from_bytes(&script))),
    ]
}

proptest! {
    #[test]
    fn it_answers_like_a_map(
        seed in any::<u64>(),
        capacity in prop_oneof![Just(0_u32), 0..5_000_u32],
        keys in proptest::collection::vec((any_key(), any::<bool>()), 0..400),
        others in proptest::collection::vec(any_key(), 0..100),
    ) {
        let mut watched = Watched::with_capacity(capacity, &mut Random::from_seed(seed));
        let mut model = BTreeMap::new();
        for (key, alone) in keys {
            let next = u32::try_from(model.len()).unwrap();
            let number = *model.entry(key).or_insert(next);
            prop_assert_eq!(if alone { watched.insert(key) } else { watched.add(key).unwrap() }, number);
        }
        assert_holds(&watched, &model, &others);
    }
}

#[test]
fn a_number_never_changes_while_the_set_grows() {
    let mut watched = Watched::default();
    // Enough for each shard to double four times, and for many chunks.
    let count = 100_000;
    for number in 0..count {
        assert_eq!(watched.insert(account(number.into())), number);
        assert_eq!(watched.insert(account(u64::from(number) / 2)), number / 2, "a repeated key keeps its number");
    }
    let model = (0..count).map(|number| (account(number.into()), number)).collect();
    let others: Vec<_> = (u64::from(count)..200_000).map(account).collect();
    assert_holds(&watched, &model, &others);
}

#[test]
fn a_hint_changes_nothing_but_the_growth() {
    let mut random = Random::from_seed(9);
    let keys: Vec<_> = (0..30_000).map(|_| any_account(&mut random)).collect();
    let mut hinted = Watched::with_capacity(30_000, &mut Random::from_seed(1));
    let before = hinted.bytes();
    let mut grown = Watched::new(&mut Random::from_seed(1));
    for key in &keys {
        assert_eq!(hinted.insert(*key), grown.insert(*key));
    }
    // All that came is the keys, their list, and the few shards that chance gave more than their part.
    let keys_alone = 30_000 * WatchKey::BYTES;
    assert!(hinted.bytes() - before < keys_alone + keys_alone / 8, "{} {before}", hinted.bytes());
}

#[test]
fn the_memory_told_is_what_the_keys_and_slots_take() {
    // 8192 keys per shard at most: a set of a tenth of ten million, in the same proportions.
    let (watched, _) = strangers(1_000_000, 4);
    let bytes = watched.bytes();
    // 21 bytes each, and two to the twentieth times two slots of 8 bytes.
    let least = 1_000_000 * 21 + (1 << 21) * 8;
    assert!(bytes >= least, "{bytes}");
    assert!(bytes <= 40_000_000, "{bytes}");
}

#[test]
fn the_filter_errs_less_than_once_in_ten_thousand() {
    let (watched, mut random) = strangers(100_000, 8);
    // By chance one in a thousand runs like this has one; the seed is fixed.
    assert_eq!(false_positives(&watched, ChainKind::Evm, 200_000, &mut random), 0);
}

#[test]
fn a_reader_sees_every_key_that_was_added_before_it_asked() {
    let watched = Arc::new(Watched::default());
    let count = 20_000_u32;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for number in 0..count {
                    watched.add(account(number.into())).unwrap();
                }
            });
        }
        scope.spawn(|| {
            let mut known = 0;
            while known < watched.len() || known < count as usize {
                known = watched.len();
                let keys: Vec<_> = (0..known as u64).rev().take(500).collect();
                let keys: Vec<_> = keys.into_iter().map(account).collect();
                let mut hits = Vec::new();
                watched.find_all(&keys, &mut hits);
                assert_eq!(hits.len(), keys.len());
            }
        });
    });
    // Both writers added the same keys: each got in once.
    assert_eq!(watched.len(), count as usize);
}

#[test]
fn it_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Watched>();
}

fn strangers(count: u32, seed: u64) -> (Watched, Random) {
    let mut random = Random::from_seed(seed);
    let mut watched = Watched::new(&mut random);
    fill_with_strangers(&mut watched, ChainKind::Evm, count, &mut random);
    (watched, random)
}
