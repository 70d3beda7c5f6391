//! Addresses as text: base58check (`T…`), or the hexadecimal form that nodes use (`41…`).

use std::fmt;

use bitcoin::base58;
use bitcoin::hashes::{Hash, sha256d};
use secp256k1::PublicKey;

use crate::address::{BadAddress, account_of};

/// The byte before every account, on the main network and on all test networks alike.
pub const PREFIX: u8 = 0x41;

/// No form of an address is longer, and base58 costs the square of its length.
const LONGEST: usize = 64;

/// The 20 bytes of an account, without the 0x41 before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TronAddress(pub [u8; 20]);

/// base58check, as wallets show it.
impl fmt::Display for TronAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&base58::encode_check(&self.prefixed()))
    }
}

impl TronAddress {
    /// Checks text from outside. Other chains' addresses of the same key are told apart from typing errors.
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        let bare = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let digits = bare.unwrap_or(text);
        let hexadecimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let address = match (hexadecimal, digits.len()) {
            (true, 42) => Self::parse_hex(digits)?,
            // An EVM address. It has the same 20 bytes, but whoever gives it means another chain.
            (true, 40) => return Err(BadAddress::WrongNetwork),
            (true, _) if bare.is_some() => return Err(BadAddress::Length),
            (false, _) if bare.is_some() => return Err(BadAddress::Malformed),
            _ => Self::parse_base58(text)?,
        };
        if address.0 == [0; 20] { Err(BadAddress::Unspendable) } else { Ok(address) }
    }

    fn parse_hex(digits: &str) -> Result<Self, BadAddress> {
        // This form has no checksum. Capitals here and there are what a checksum of another form leaves behind.
        if digits.bytes().any(|byte| byte.is_ascii_uppercase()) && digits.bytes().any(|byte| byte.is_ascii_lowercase())
        {
            return Err(BadAddress::MixedCase);
        }
        let mut bytes = [0; 21];
        alloy_primitives::hex::decode_to_slice(digits, &mut bytes).map_err(|_| BadAddress::Malformed)?;
        Self::from_prefixed(&bytes).ok_or(BadAddress::WrongNetwork)
    }

    fn parse_base58(text: &str) -> Result<Self, BadAddress> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(BadAddress::Length);
        }
        let bytes = base58::decode(text).map_err(|_| BadAddress::Malformed)?;
        let Ok(bytes) = <[u8; 25]>::try_from(bytes) else { return Err(BadAddress::Length) };
        let (prefixed, sum) = bytes.split_at(21);
        if sha256d::Hash::hash(prefixed).as_byte_array()[..4] != *sum {
            // Every address has 34 characters. One that was left out shows in the checksum first.
            return Err(if text.len() == 34 { BadAddress::Checksum } else { BadAddress::Length });
        }
        Self::from_prefixed(prefixed).ok_or(BadAddress::WrongNetwork)
    }

    /// From the 21 bytes that transactions hold.
    pub fn from_prefixed(bytes: &[u8]) -> Option<Self> {
        let (&first, account) = bytes.split_first()?;
        if first != PREFIX {
            return None;
        }
        account.try_into().ok().map(Self)
    }

    /// The 21 bytes that transactions hold.
    pub fn prefixed(&self) -> [u8; 21] {
        let mut bytes = [PREFIX; 21];
        bytes[1..].copy_from_slice(&self.0);
        bytes
    }

    /// As nodes write and read it.
    pub fn wire(&self) -> String {
        alloy_primitives::hex::encode(self.prefixed())
    }

    pub fn of_public(public: &PublicKey) -> Self {
        Self(account_of(public))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "TEEzypREmBid4qC2bLH3ALRZJxiX6LqMdE";
    const HEX: &str = "412edd1fa27321192b3cc17e77317fd4480ad73955";

    #[test]
    fn every_form_of_an_address_is_the_same_address() {
        let known = TronAddress::parse(GOOD).expect("base58check");
        for text in [HEX, &HEX.to_uppercase(), &format!("0x{HEX}"), &format!("0X{HEX}")] {
            assert_eq!(TronAddress::parse(text), Ok(known), "{text}");
        }
        assert_eq!(known.to_string(), GOOD);
        assert_eq!(known.wire(), HEX);
    }

    #[test]
    fn each_wrong_text_is_refused_for_its_own_reason() {
        for (text, why) in [
            ("0x2edd1fa27321192b3cc17e77317fd4480ad73955", BadAddress::WrongNetwork),
            ("2edd1fa27321192b3cc17e77317fd4480ad73955", BadAddress::WrongNetwork),
            ("a02edd1fa27321192b3cc17e77317fd4480ad73955", BadAddress::WrongNetwork),
            ("27TMJX8jcDKjrm1SFvBvKEFHJ6tC8acZPuC", BadAddress::WrongNetwork),
            ("15Gnym3WcTbfuf8Q14dKeBjRQAyCqiaV1i", BadAddress::WrongNetwork),
            ("TEEzypREmBid4qC2bLH3ALRZJxiX6LqMda", BadAddress::Checksum),
            ("TEEzypREmBdi4qC2bLH3ALRZJxiX6LqMdE", BadAddress::Checksum),
            ("TEEzypREmBid4qC2bLH3ALRZJxiX6LqMd", BadAddress::Length),
            ("1TEEzypREmBid4qC2bLH3ALRZJxiX6LqMdE", BadAddress::Length),
            ("6wf4cyxniH2GsiH6M1k4D5rWyde6LLx2a", BadAddress::Length),
            ("0x412edd", BadAddress::Length),
            ("", BadAddress::Length),
            ("0x", BadAddress::Malformed),
            (" TEEzypREmBid4qC2bLH3ALRZJxiX6LqMdE", BadAddress::Malformed),
            ("TEEzypREmBid4qC2bLH3ALRZJxiX6LqMdE\n", BadAddress::Malformed),
            ("TEEzypREmBid4qC2bLH3ALRZJxiX6LqMd0", BadAddress::Malformed),
            ("TEEzypREmBid4qC2bLH3ALRZJxiX6LqMdé", BadAddress::Malformed),
            ("412eDD1fa27321192b3cc17e77317fd4480ad73955", BadAddress::MixedCase),
            ("T9yD14Nj9j7xAB4dbGeiX9h8unkKHxuWwb", BadAddress::Unspendable),
            ("410000000000000000000000000000000000000000", BadAddress::Unspendable),
        ] {
            assert_eq!(TronAddress::parse(text), Err(why), "{text:?}");
        }
        assert_eq!(TronAddress::parse(&"T".repeat(1 << 20)), Err(BadAddress::Length));
    }

    proptest! {
        #[test]
        fn parse_of_print_is_the_identity(account: [u8; 20]) {
            let address = TronAddress(account);
            prop_assert_eq!(TronAddress::parse(&address.to_string()), Ok(address));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            if let Ok(address) = TronAddress::parse(&text) {
                prop_assert_eq!(TronAddress::parse(&address.to_string()), Ok(address));
            }
        }
    }
}
