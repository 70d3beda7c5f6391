//! Fills a watched set with strangers, and counts how often its filter errs: for `bursar bench scan`.

use domain::ChainKind;
use domain::random::Random;

use super::{WatchKey, Watched};

/// Adds so many addresses of nobody, of the usual form on that kind of chain.
pub fn fill_with_strangers(watched: &mut Watched, kind: ChainKind, count: u32, random: &mut Random) {
    for _ in 0..count {
        watched.insert(stranger(kind, random));
    }
}

/// How many of so many further strangers pass the filter although nobody watches them.
pub fn false_positives(watched: &Watched, kind: ChainKind, probes: u32, random: &mut Random) -> u32 {
    let mut wrong = 0;
    for _ in 0..probes {
        let key = stranger(kind, random);
        if watched.passes_filter(&key) && watched.find(&key).is_none() {
            wrong += 1;
        }
    }
    wrong
}

fn stranger(kind: ChainKind, random: &mut Random) -> WatchKey {
    let bytes = any_bytes(random);
    match kind {
        ChainKind::Evm | ChainKind::Tron => WatchKey::of_account(&bytes),
        ChainKind::Bitcoin => {
            // P2WPKH.
            let mut script = [0x14; 22];
            script[0] = 0;
            script[2..].copy_from_slice(&bytes);
            WatchKey::of_script(bitcoin::Script::from_bytes(&script))
        }
    }
}

/// 160 bits of chance: never the same twice.
fn any_bytes(random: &mut Random) -> [u8; 20] {
    let mut bytes = [0; 20];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&random.next_u64().to_le_bytes()[..part.len()]);
    }
    bytes
}

#[cfg(test)]
pub(super) fn any_account(random: &mut Random) -> WatchKey {
    stranger(ChainKind::Evm, random)
}
