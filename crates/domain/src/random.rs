//! The seeded generator. Everything that needs chance (retry jitter, the demo, simulations) is handed one, so
//! that a run can be repeated from its seed. Not for secrets.

/// SplitMix64: one word of state, passes BigCrush, and any seed is a good seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`, or 0 when `bound` is 0. The bias (below `bound / 2^64`) does not matter here.
    pub const fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 128-bit product is below `bound`, hence fits.
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// An index into a slice of `len` elements.
    pub const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let mut random = Random::from_seed(1_234_567);
        // Reference values of SplitMix64 for this seed.
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below() {
        let mut random = Random::from_seed(7);
        for bound in [1, 2, 3, 10, u64::MAX] {
            for _ in 0..1_000 {
                assert!(random.below(bound) < bound);
            }
        }
        assert_eq!(random.below(0), 0);
    }
}
