//! Sums of chain money, with a sign: what an address has by all of its entries.

use std::fmt;
use std::ops::Neg;
use std::str::FromStr;

use ruint::aliases::{U256, U512};

use crate::raw::{RawAmount, RawAmountError};

/// A signed count of chain units. 512 bits: a listed token may log any number of any 256-bit amounts, and the sum must not
/// stop a scan. Stored as decimal text, with `-` before what is below zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawSum {
    /// Never set for zero.
    negative: bool,
    size: U512,
}

impl RawSum {
    pub const ZERO: Self = Self { negative: false, size: U512::ZERO };

    fn new(negative: bool, size: U512) -> Self {
        Self { negative: negative && !size.is_zero(), size }
    }

    /// The sum after a change. It stays within 512 bits for 2^256 entries of any size.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        if self.negative == other.negative {
            return Self::new(self.negative, self.size.saturating_add(other.size));
        }
        let (larger, smaller) = if self.size >= other.size { (self, other) } else { (other, self) };
        Self::new(larger.negative, larger.size.saturating_sub(smaller.size))
    }

    pub const fn is_negative(self) -> bool {
        self.negative
    }

    pub fn is_zero(self) -> bool {
        self.size.is_zero()
    }

    /// `None` below zero and beyond 256 bits.
    pub fn to_raw(self) -> Option<RawAmount> {
        let size = U256::checked_from_limbs_slice(self.size.as_limbs())?;
        (!self.negative).then_some(RawAmount::from_u256(size))
    }

    /// How much, whatever the sign. `None` beyond 256 bits.
    pub fn magnitude(self) -> Option<RawAmount> {
        U256::checked_from_limbs_slice(self.size.as_limbs()).map(RawAmount::from_u256)
    }

    /// Whole times that `unit` goes into it, rounded down, and the rest: `0 <= rest < unit`. `None`: more than 64 bits.
    pub(crate) fn div_floor(self, unit: U256) -> Option<(i64, RawAmount)> {
        let unit = U512::from(unit);
        let (mut times, mut rest) = self.size.div_rem(unit);
        if self.negative && !rest.is_zero() {
            times += U512::from(1);
            rest = unit - rest;
        }
        let times = i64::try_from(times).ok()?;
        let rest = U256::checked_from_limbs_slice(rest.as_limbs()).map(RawAmount::from_u256)?;
        Some((if self.negative { -times } else { times }, rest))
    }
}

impl From<RawAmount> for RawSum {
    fn from(raw: RawAmount) -> Self {
        Self::new(false, U512::from(raw.to_u256()))
    }
}

impl Neg for RawSum {
    type Output = Self;

    fn neg(self) -> Self {
        Self::new(!self.negative, self.size)
    }
}

impl fmt::Display for RawSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        fmt::Display::fmt(&self.size, f)
    }
}

impl FromStr for RawSum {
    type Err = RawAmountError;

    fn from_str(text: &str) -> Result<Self, RawAmountError> {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let canonical = if digits == "0" { !negative } else { !digits.starts_with('0') };
        if !plain || !canonical {
            return Err(RawAmountError::NotCanonical);
        }
        U512::from_str_radix(digits, 10).map(|size| Self::new(negative, size)).map_err(|_| RawAmountError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(value: i128) -> RawSum {
        value.to_string().parse().expect("canonical")
    }

    #[test]
    fn text_is_canonical_or_refused() {
        for text in
            ["0", "7", "-7", "-100000000000000000000000000000000000000000000000000000000000000000000000000000000"]
        {
            assert_eq!(text.parse::<RawSum>().expect(text).to_string(), text);
        }
        for text in ["", "-", "-0", "+1", "01", "-01", "1.0", " 1", "--1"] {
            assert_eq!(text.parse::<RawSum>(), Err(RawAmountError::NotCanonical), "{text:?}");
        }
    }

    #[test]
    fn the_largest_amounts_add_up() {
        let most = RawSum::from(RawAmount::MAX);
        assert_eq!(most.plus(most).plus(-most).to_raw(), Some(RawAmount::MAX));
        assert_eq!(most.plus(most).to_raw(), None);
        assert_eq!(most.plus(-most), RawSum::ZERO);
        assert!(!(-RawSum::ZERO).is_negative());
    }

    proptest! {
        #[test]
        fn it_adds_as_whole_numbers_do(one in -(1_i128 << 100)..(1_i128 << 100), other in -(1_i128 << 100)..(1_i128 << 100)) {
            prop_assert_eq!(sum(one).plus(sum(other)), sum(one + other));
            prop_assert_eq!(-sum(one), sum(-one));
        }

        #[test]
        fn it_divides_as_whole_numbers_do(value in -(1_i128 << 90)..(1_i128 << 90), digits in 10_u32..20) {
            let unit = 10_i128.pow(digits);
            let (times, rest) = (value.div_euclid(unit), value.rem_euclid(unit));
            let divided = sum(value).div_floor(U256::from(unit.unsigned_abs()));
            let wanted = i64::try_from(times).ok().filter(|times| *times > i64::MIN);
            prop_assert_eq!(divided.map(|(times, rest)| (times, rest.to_string())), wanted.map(|times| (times, rest.to_string())));
        }
    }
}
