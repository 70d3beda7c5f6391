//! The path of an address below its group's account: `hi/lo`. It follows from a user's number, or from a small index of an
//! operation wallet, and from nothing that is stored.

use std::fmt;

use bitcoin::bip32::ChildNumber;
use domain::UserId;

use super::DerivationError;

/// The lower 31 bits: what one level of a path can hold without being hardened.
const LOW: u64 = (1 << 31) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressPath {
    hi: u32,
    lo: u32,
}

impl AddressPath {
    /// A user's deposit address, or an operation wallet's own: `hi` is the number's upper part, which for ordinary numbers is 0
    /// as in BIP-44.
    pub fn of_number(number: u64) -> Result<Self, DerivationError> {
        let level = |part: u64| u32::try_from(part).ok().filter(|part| u64::from(*part) <= LOW);
        let (hi, lo) = (level(number >> 31), level(number & LOW));
        hi.zip(lo).map(|(hi, lo)| Self { hi, lo }).ok_or(DerivationError::NumberTooLarge(number))
    }

    pub fn of_user(user: UserId) -> Result<Self, DerivationError> {
        Self::of_number(user.get().cast_unsigned())
    }

    /// The number that gives this path. `1/index`, where BIP-84 puts a wallet's change, is 2^31 + index; in a deposit group that
    /// is a user's.
    pub const fn number(self) -> u64 {
        ((self.hi as u64) << 31) | self.lo as u64
    }

    pub const fn hi(self) -> u32 {
        self.hi
    }

    pub const fn lo(self) -> u32 {
        self.lo
    }

    pub const fn children(self) -> [ChildNumber; 2] {
        [ChildNumber::Normal { index: self.hi }, ChildNumber::Normal { index: self.lo }]
    }
}

impl fmt::Display for AddressPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hi, self.lo)
    }
}
