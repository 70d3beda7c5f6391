//! Hashes of blocks and transactions, and a block named by both its height and its hash. A hash is 32 bytes in the order
//! in which the chain's people print them, so that the text is what an explorer takes. Bitcoin's are turned round at its
//! edge, and nowhere else.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 hexadecimal digits, with or without 0x")]
pub struct BadHash;

fn parse(text: &str) -> Result<[u8; 32], BadHash> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // What reads the digits would take another `0x` before them.
    if digits.len() != 64 {
        return Err(BadHash);
    }
    let mut bytes = [0; 32];
    alloy_primitives::hex::decode_to_slice(digits, &mut bytes).map_err(|_| BadHash)?;
    Ok(bytes)
}

macro_rules! hash {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        /// Plain digits. Ethereum's people write `0x` before them; its client does so where it speaks to a node.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&alloy_primitives::hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadHash;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                parse(text).map(Self)
            }
        }
    };
}

hash!(
    /// A block's hash; on TRON its id, whose first eight bytes are the height.
    BlockHash
);
hash!(
    /// A transaction's hash (EVM), id (TRON) or txid (Bitcoin).
    TxHash
);

/// A block, by its height and its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockRef {
    pub height: u64,
    pub hash: BlockHash,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_64_digits_or_refused() {
        let digits = "0123456789abcdef".repeat(4);
        assert_eq!(digits.parse::<TxHash>().expect("64 digits").to_string(), digits);
        assert_eq!(format!("0x{digits}").parse::<BlockHash>().expect("64 digits").to_string(), digits);
        for bad in [
            "",
            "0x",
            "00",
            &digits[1..],
            &format!("0x0x{}", &digits[2..]),
            &format!("0x0x{digits}"),
            &"g".repeat(64),
            &"é".repeat(32),
        ] {
            assert_eq!(bad.parse::<TxHash>(), Err(BadHash), "{bad:?}");
        }
    }
}
