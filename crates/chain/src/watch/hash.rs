//! The seeded hash of the watched set.

use domain::random::Random;

use super::key::WatchKey;

/// The multipliers of a vector multiply-shift hash (Dietzfelbinger): any two keys, chosen by whoever does not know the
/// secret, get the same 64 bits with a chance of 2^-64, and the same place and fingerprint in the table as rarely as
/// chance has it. That is proven, unlike for the folded multiplication of the usual fast hashes, and the time that it
/// takes is small beside the one wait for memory.
#[derive(Clone, Debug)]
pub(super) struct Secret {
    pub(super) words: [u128; 3],
    pub(super) plus: u128,
}

impl Secret {
    pub(super) fn new(random: &mut Random) -> Self {
        let mut draw = || u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        Self { words: [draw(), draw(), draw()], plus: draw() }
    }

    pub(super) fn hash(&self, key: &WatchKey) -> u64 {
        let [first, second, third] = words(key.as_bytes());
        let sum = self.words[0]
            .wrapping_mul(first)
            .wrapping_add(self.words[1].wrapping_mul(second))
            .wrapping_add(self.words[2].wrapping_mul(third))
            .wrapping_add(self.plus);
        // Keys in a row get sums in a row, which would crowd a table that probes linearly. To mix is to rename the
        // sums one to one, so what is proven of them stays true. The high half is below 2^64.
        mix((sum >> 64) as u64)
    }
}

/// All 21 bytes, as three numbers below 2^64.
fn words(key: &[u8; WatchKey::BYTES]) -> [u128; 3] {
    let [kind, bytes @ ..] = key;
    let all = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    [all(&bytes[..8]), all(&bytes[8..16]), all(&bytes[16..]) << 8 | u64::from(*kind)].map(u128::from)
}

/// The end of MurmurHash3: every step can be undone.
const fn mix(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^= word >> 33;
    word = word.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_key_changes_about_half_of_the_hash() {
        let secret = Secret::new(&mut Random::from_seed(3));
        let hash_of = |account: u128, kind: bool| {
            let mut bytes = [0; 20];
            bytes[..16].copy_from_slice(&account.to_le_bytes());
            bytes[19] = u8::from(kind);
            secret.hash(&WatchKey::of_account(&bytes))
        };
        let still = hash_of(0, false);
        for bit in 0..128 {
            let changed = (hash_of(1 << bit, false) ^ still).count_ones();
            assert!((12..=52).contains(&changed), "bit {bit} changes {changed} bits");
        }
        assert!((12..=52).contains(&(hash_of(0, true) ^ still).count_ones()));
    }

    #[test]
    fn every_byte_of_a_key_counts() {
        let secret = Secret::new(&mut Random::from_seed(5));
        let still = secret.hash(&WatchKey::of_account(&[7; 20]));
        for at in 0..20 {
            let mut account = [7; 20];
            account[at] = 8;
            assert_ne!(secret.hash(&WatchKey::of_account(&account)), still, "byte {at}");
        }
        let script = bitcoin::ScriptBuf::new_p2wpkh(&bitcoin::hashes::Hash::from_byte_array([7; 20]));
        assert_ne!(secret.hash(&WatchKey::of_script(&script)), still, "the kind");
    }

    #[test]
    fn another_seed_is_another_hash() {
        let key = WatchKey::of_account(&[1; 20]);
        let [one, other] = [1, 2].map(|seed| Secret::new(&mut Random::from_seed(seed)).hash(&key));
        assert_ne!(one, other);
    }
}
