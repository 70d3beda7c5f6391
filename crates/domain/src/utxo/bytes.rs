//! What the bytes of a Bitcoin transaction spend and pay in total: enough to know what it cost, when all that it spends is ours.

/// Of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendTotals {
    pub inputs: usize,
    /// Satoshi of all its outputs.
    pub paid: u64,
}

impl SpendTotals {
    /// `None`: these are not the bytes of a transaction, to the last one.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut left = bytes;
        skip(&mut left, 4)?;
        // A marker of no inputs and a flag: witnesses follow the outputs.
        let has_witnesses = left.starts_with(&[0, 1]);
        if has_witnesses {
            skip(&mut left, 2)?;
        }
        let inputs = count(&mut left)?;
        for _ in 0..inputs {
            skip(&mut left, 36)?;
            bytes_of_length(&mut left)?;
            skip(&mut left, 4)?;
        }
        let mut paid: u64 = 0;
        for _ in 0..count(&mut left)? {
            let amount = left.split_first_chunk::<8>()?;
            paid = paid.checked_add(u64::from_le_bytes(*amount.0))?;
            left = amount.1;
            bytes_of_length(&mut left)?;
        }
        if has_witnesses {
            for _ in 0..inputs {
                for _ in 0..count(&mut left)? {
                    bytes_of_length(&mut left)?;
                }
            }
        }
        skip(&mut left, 4)?;
        left.is_empty().then_some(Self { inputs, paid })
    }
}

fn skip(left: &mut &[u8], length: usize) -> Option<()> {
    *left = left.get(length..)?;
    Some(())
}

fn bytes_of_length(left: &mut &[u8]) -> Option<()> {
    let length = count(left)?;
    skip(left, length)
}

/// A number in one, three, five or nine bytes.
fn count(left: &mut &[u8]) -> Option<usize> {
    let (first, rest) = left.split_first()?;
    *left = rest;
    let length = match first {
        0xfd => 2,
        0xfe => 4,
        0xff => 8,
        small => return Some(usize::from(*small)),
    };
    let mut number = [0; 8];
    number.get_mut(..length)?.copy_from_slice(left.get(..length)?);
    skip(left, length)?;
    usize::try_from(u64::from_le_bytes(number)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
    }

    /// The example of BIP-143 (P2WPKH): two inputs, one of them with a witness, and outputs of 1.1234 and 2.2345 BTC.
    const BIP_143: &str = "01000000000102fff7f7881a8099afa6940d42d1e7f6362bec38171ea3edf433541db4e4ad969f00000000494830450221008b9d1dc26ba6a9cb62127b02742fa9d754cd3bebf337f7a55d114c8e5cdd30be022040529b194ba3f9281a99f2b1c0a19c0489bc22ede944ccf4ecbab4cc618ef3ed01eeffffffef51e1b804cc89d182d279655c3aa89e815b1b309fe287d9b2b55d57b90ec68a0100000000ffffffff02202cb206000000001976a9148280b37df378db99f66f85c95a783a76ac7a6d5988ac9093510d000000001976a9143bde42dbee7e4dbe6a21b2d50ce2f0167faa815988ac000247304402203609e17b84f6a7d30c80bfa610b5b4542f32a8a0d5447a12fb1366d7f01cc44a0220573a954c4518331561406f90300e8f3358f51928d43c212a8caed02de67eebee0121025476c2e83188368da1ff3e292e7acafcdb3566bb0ad253f62fc70f07aeee635711000000";

    #[test]
    fn the_example_of_bip_143_is_read_to_its_last_byte() {
        let bytes = unhex(BIP_143);
        let paid = 112_340_000 + 223_450_000;
        assert_eq!(SpendTotals::of(&bytes), Some(SpendTotals { inputs: 2, paid }));
        for cut in 0..bytes.len() {
            assert_eq!(SpendTotals::of(&bytes[..cut]), None, "{cut}");
        }
        let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(SpendTotals::of(&longer), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
            let _read = SpendTotals::of(&bytes);
        }
    }
}
