//! Scripts and the watched set.

use std::collections::BTreeMap;

use chain::{WatchKey, Watched};

/// Two scripts that differ have keys that differ. The second is the first with one byte changed.
pub fn script(bytes: &[u8]) {
    let Some((at, script)) = bytes.split_first() else { return };
    let key = |script: &[u8]| WatchKey::of_script(::bitcoin::Script::from_bytes(script));
    if !script.is_empty() {
        let mut other = script.to_vec();
        let at = usize::from(*at) % other.len();
        other[at] ^= 1;
        assert_ne!(key(script), key(&other));
        assert_ne!(key(script), key(&script[1..]));
        assert_ne!(key(script), key(&script[..script.len() - 1]));
    }
}

/// The set answers like a map. Each three bytes are a key.
pub fn watched(bytes: &[u8]) {
    let mut watched = Watched::default();
    let mut model = BTreeMap::new();
    let keys: Vec<WatchKey> = bytes
        .chunks(3)
        .map(|part| {
            let mut account = [0; 20];
            account[..part.len()].copy_from_slice(part);
            WatchKey::of_account(&account)
        })
        .collect();
    let (added, asked) = keys.split_at(keys.len() / 2);
    for key in added {
        let next = u32::try_from(model.len()).expect("the input is short");
        assert_eq!(watched.insert(*key), *model.entry(*key).or_insert(next));
    }
    let mut hits = Vec::new();
    watched.find_all(asked, &mut hits);
    let wanted = asked.iter().enumerate().filter_map(|(at, key)| Some((at, *model.get(key)?)));
    assert!(hits.into_iter().eq(wanted));
}
