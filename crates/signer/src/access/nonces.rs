//! Which stamps were used. A stamp is good for thirty seconds on either side of its time, so only those need to be remembered.

use std::collections::{BTreeMap, BTreeSet};

use domain::Timestamp;

use crate::digest::sha256;
use crate::names::KeyName;

/// A stamp's time and the signer's clock may differ by so much.
pub const WINDOW_US: i64 = 30_000_000;
/// Of one key within the window. Beyond that it has to wait: no key may take the memory of all.
const MOST_OF_A_KEY: usize = 1 << 18;

/// Why a stamp is not good now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFresh {
    /// Too old, too new, or from before the start, of which no nonce is known.
    Stale,
    Replayed,
    TooMany,
}

/// Sixteen bytes of a nonce's hash: their time is with them, and nobody but the key's holder can choose them.
type NonceHash = [u8; 16];

#[derive(Debug)]
pub struct Nonces {
    /// Of stamps before this time nothing is known: from before the start, or forgotten. It never goes back, whatever the date does.
    known_from_us: i64,
    used: BTreeMap<KeyName, BTreeSet<(i64, NonceHash)>>,
}

impl Nonces {
    pub const fn new(started: Timestamp) -> Self {
        Self { known_from_us: started.micros(), used: BTreeMap::new() }
    }

    /// Takes the nonce, once.
    pub fn take(&mut self, key: &KeyName, time_us: i64, nonce: &str, now: Timestamp) -> Result<(), NotFresh> {
        let difference = now.micros().saturating_sub(time_us).saturating_abs();
        if difference > WINDOW_US || time_us < self.known_from_us {
            return Err(NotFresh::Stale);
        }
        // What is forgotten is refused from now on, also if the date is set back.
        self.known_from_us = self.known_from_us.max(now.micros().saturating_sub(WINDOW_US));
        let (oldest, used) = ((self.known_from_us, NonceHash::default()), self.used.entry(key.clone()).or_default());
        while used.first().is_some_and(|first| *first < oldest) {
            used.pop_first();
        }
        let mut hash = NonceHash::default();
        hash.copy_from_slice(&sha256(nonce.as_bytes())[..16]);
        if used.contains(&(time_us, hash)) {
            return Err(NotFresh::Replayed);
        }
        if used.len() >= MOST_OF_A_KEY {
            return Err(NotFresh::TooMany);
        }
        used.insert((time_us, hash));
        Ok(())
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.used.values().map(BTreeSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_000_000_000;
    const NONCE: &str = "0123456789abcdef";

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(START + micros)
    }

    fn nonces() -> (Nonces, KeyName) {
        (Nonces::new(at(0)), "server".parse().unwrap())
    }

    #[test]
    fn a_stamp_is_good_once_and_within_its_window() {
        let (mut nonces, key) = nonces();
        let later = 100_000_000;
        for (time, expected) in [
            (later - WINDOW_US - 1, Err(NotFresh::Stale)),
            (later + WINDOW_US + 1, Err(NotFresh::Stale)),
            (later - WINDOW_US, Ok(())),
            (later + WINDOW_US, Ok(())),
            (later, Ok(())),
        ] {
            assert_eq!(nonces.take(&key, START + time, NONCE, at(later)), expected, "{time}");
            let again = if expected.is_ok() { Err(NotFresh::Replayed) } else { expected };
            assert_eq!(nonces.take(&key, START + time, NONCE, at(later)), again, "{time}");
        }
        assert_eq!(nonces.take(&key, START + later, "another-nonce-16", at(later)), Ok(()));
        assert_eq!(nonces.take(&"other".parse().unwrap(), START + later, NONCE, at(later)), Ok(()));
    }

    #[test]
    fn what_was_used_before_the_start_is_not_known_and_so_refused() {
        let (mut nonces, key) = nonces();
        assert_eq!(nonces.take(&key, START - 1, NONCE, at(0)), Err(NotFresh::Stale));
        assert_eq!(nonces.take(&key, START, NONCE, at(0)), Ok(()));
    }

    #[test]
    fn only_the_window_is_remembered_and_never_forgotten_too_early() {
        let (mut nonces, key) = nonces();
        // A stamp from the future is good for a minute in all.
        assert_eq!(nonces.take(&key, START + WINDOW_US, NONCE, at(0)), Ok(()));
        for now in (0..=2 * WINDOW_US).step_by(1_000_000) {
            assert_eq!(nonces.take(&key, START + WINDOW_US, NONCE, at(now)), Err(NotFresh::Replayed), "{now}");
        }
        assert_eq!(nonces.take(&key, START + WINDOW_US, NONCE, at(2 * WINDOW_US + 1)), Err(NotFresh::Stale));
        assert_eq!(nonces.take(&key, START + 2 * WINDOW_US + 1, NONCE, at(2 * WINDOW_US + 1)), Ok(()));
        assert_eq!(nonces.count(), 1);
    }

    #[test]
    fn a_date_that_is_set_back_opens_nothing_again() {
        let (mut nonces, key) = nonces();
        let hour = 3_600_000_000;
        assert_eq!(nonces.take(&key, START + hour, NONCE, at(hour)), Ok(()));
        assert_eq!(nonces.take(&key, START + 2 * hour, NONCE, at(2 * hour)), Ok(()));
        // An hour back: what was used then is forgotten, and refused all the same.
        assert_eq!(nonces.take(&key, START + hour, NONCE, at(hour)), Err(NotFresh::Stale));
        // Half a minute back, and everything goes on as soon as that has passed.
        let back = 2 * hour - WINDOW_US;
        assert_eq!(nonces.take(&key, START + back - 1, "another-nonce-16", at(back)), Err(NotFresh::Stale));
        assert_eq!(nonces.take(&key, START + back, "another-nonce-16", at(back)), Ok(()));
    }

    #[test]
    fn one_key_does_not_take_the_memory_of_all() {
        let (mut nonces, key) = nonces();
        for number in 0..MOST_OF_A_KEY {
            assert_eq!(nonces.take(&key, START, &format!("nonce-{number:012}"), at(0)), Ok(()));
        }
        assert_eq!(nonces.take(&key, START, NONCE, at(0)), Err(NotFresh::TooMany));
        assert_eq!(nonces.take(&"other".parse().unwrap(), START, NONCE, at(0)), Ok(()));
        assert_eq!(nonces.take(&key, START + WINDOW_US + 1, NONCE, at(WINDOW_US + 1)), Ok(()));
    }
}
