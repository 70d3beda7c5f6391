//! SplitMix64, the same as `domain::random`, and the form in which bdk_wallet takes it.

use rand_core::RngCore;

pub struct Random(u64);

impl Random {
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in `0..bound`, or 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 128-bit product is below `bound`, hence fits.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into a slice of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill_bytes(&mut bytes);
        bytes
    }

    /// 10,000 to 10,000,000 satoshi: each power of ten equally often, evenly within it.
    pub fn sat(&mut self) -> u64 {
        let least = [10_000, 100_000, 1_000_000][self.index(3)];
        least + self.below(9 * least)
    }
}

impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&self.next_u64().to_le_bytes()[..word.len()]);
        }
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}
