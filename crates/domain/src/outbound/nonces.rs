//! Nonces of one wallet, without a counter: what is mined and what is held say which is next.
//!
//! A counter drifts from the chain as soon as something else happens than what was counted: a restored backup, a slot that the signer
//! refused, another program. These are worked out anew each time, from what a quorum says and from every slot that is written down.

use std::collections::BTreeSet;

/// What is known of a wallet's nonces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonces {
    /// The first that no settled block has used, by a quorum.
    mined: u64,
    /// Those that a slot of ours holds and that are not mined.
    held: BTreeSet<u64>,
}

/// Whether one more may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// With this nonce.
    Next(u64),
    /// Nobody can be mined before these: they are filled first.
    Gap(Vec<u64>),
    /// As many are out as may be.
    Full,
}

impl Nonces {
    /// Slots below what is mined are settled: they hold nothing any more.
    pub fn new(mined: u64, slots: impl IntoIterator<Item = u64>) -> Self {
        Self { mined, held: slots.into_iter().filter(|slot| *slot >= mined).collect() }
    }

    /// One more slot of ours holds this one.
    pub fn hold(&mut self, nonce: u64) {
        if nonce >= self.mined {
            self.held.insert(nonce);
        }
    }

    /// One more than the highest of what is mined and of what a slot holds. `None`: there is none left.
    pub fn next(&self) -> Option<u64> {
        match self.held.last() {
            Some(highest) => highest.checked_add(1),
            None => Some(self.mined),
        }
    }

    /// Those that nothing holds although a later one is held. At most so many.
    pub fn gaps(&self, most: usize) -> Vec<u64> {
        let Some(highest) = self.held.last() else { return Vec::new() };
        // As many are held as there are numbers: nothing needs to be looked for.
        if u64::try_from(self.held.len()).is_ok_and(|held| held == highest.saturating_sub(self.mined).saturating_add(1))
        {
            return Vec::new();
        }
        (self.mined..*highest).filter(|nonce| !self.held.contains(nonce)).take(most).collect()
    }

    /// Whether one more may be sent, with at most so many in flight.
    pub fn room(&self, most: usize) -> Room {
        let gaps = self.gaps(most);
        if !gaps.is_empty() {
            return Room::Gap(gaps);
        }
        match self.next().filter(|_| self.held.len() < most) {
            Some(next) => Room::Next(next),
            None => Room::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_next_is_beyond_what_is_mined_and_what_is_held() {
        assert_eq!(Nonces::new(0, []).room(4), Room::Next(0));
        assert_eq!(Nonces::new(7, []).room(4), Room::Next(7));
        assert_eq!(Nonces::new(7, [7, 8]).room(4), Room::Next(9));
        // A restored backup has forgotten slots that are mined by now.
        assert_eq!(Nonces::new(640, [7, 8]).room(4), Room::Next(640));
        assert_eq!(Nonces::new(7, [7, 8, 9, 10]).room(4), Room::Full);
        assert_eq!(Nonces::new(u64::MAX, [u64::MAX]).room(4), Room::Full);
    }

    #[test]
    fn a_gap_comes_before_everything() {
        assert_eq!(Nonces::new(7, [8, 10]).room(4), Room::Gap(vec![7, 9]));
        assert_eq!(Nonces::new(0, [5_000_000_000]).room(3), Room::Gap(vec![0, 1, 2]), "and no more than may be out");
    }

    /// Whatever is mined, held and forgotten: no nonce is given that a slot holds, and none that is mined.
    #[test]
    fn no_nonce_is_given_twice() {
        let mut random = Random::from_seed(18);
        for _ in 0..20_000 {
            let mined = random.below(20);
            let held: BTreeSet<u64> = (0..random.below(8)).map(|_| random.below(24)).collect();
            let most = 1 + usize::try_from(random.below(8)).unwrap();
            let given = match Nonces::new(mined, held.clone()).room(most) {
                Room::Next(next) => vec![next],
                Room::Gap(gaps) => gaps,
                Room::Full => Vec::new(),
            };
            let (mut one_by_one, mut together) = (Nonces::new(mined, held.clone()), held.clone());
            for nonce in given {
                assert!(nonce >= mined && !held.contains(&nonce), "{nonce} with {mined} mined and {held:?} held");
                one_by_one.hold(nonce);
                together.insert(nonce);
                assert_eq!(one_by_one, Nonces::new(mined, together.clone()));
            }
        }
    }
}
