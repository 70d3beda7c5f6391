//! Ledger money: a signed count of an asset's smallest ledger unit.
//!
//! Arithmetic is checked or it does not exist. Text is exact: what a precision cannot hold is refused, never
//! rounded, and only plain decimals are read (no sign but `-`, no exponent, no separators, ASCII digits).

use std::fmt;

/// How many decimals an asset's ledger unit has. At most 18, so that one whole coin fits an `i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Precision(u8);

impl Precision {
    pub const MAX: u8 = 18;

    pub const fn new(decimals: u8) -> Option<Self> {
        if decimals <= Self::MAX { Some(Self(decimals)) } else { None }
    }

    pub const fn decimals(self) -> u8 {
        self.0
    }

    /// Ledger units in one whole coin.
    const fn scale(self) -> i64 {
        10_i64.pow(self.0 as u32)
    }
}

/// Ledger units. Negative only as the balance of a system account: a positive balance is what is owed to the
/// account's owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    #[error("an amount is digits with at most one decimal point, such as 12 or 0.5")]
    Malformed,
    #[error("the amount has more than {0} decimals")]
    TooPrecise(u8),
    #[error("the amount does not fit 64 bits")]
    TooLarge,
}

impl Amount {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self(i64::MAX);

    pub const fn from_units(units: i64) -> Self {
        Self(units)
    }

    pub const fn units(self) -> i64 {
        self.0
    }

    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }

    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// Reads a decimal string. Refuses, in this order: text that is not a plain decimal, more decimals than `precision`
    /// (trailing zeros count: they claim a precision that the asset does not have), numbers that do not fit.
    pub fn parse(text: &str, precision: Precision) -> Result<Self, AmountError> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = match digits.split_once('.') {
            Some((_, "")) => return Err(AmountError::Malformed),
            Some((whole, fraction)) => (whole, fraction),
            None => (digits, ""),
        };
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !plain(whole) || !plain(fraction) {
            return Err(AmountError::Malformed);
        }
        if fraction.len() > usize::from(precision.0) {
            return Err(AmountError::TooPrecise(precision.0));
        }
        let padding = usize::from(precision.0) - fraction.len();
        let zeros = std::iter::repeat_n(b'0', padding);
        let mut units: i64 = 0;
        for digit in whole.bytes().chain(fraction.bytes()).chain(zeros) {
            let digit = i64::from(digit - b'0');
            // Built with its sign, so that the most negative amount reads back too.
            units = units
                .checked_mul(10)
                .and_then(|units| if negative { units.checked_sub(digit) } else { units.checked_add(digit) })
                .ok_or(AmountError::TooLarge)?;
        }
        Ok(Self(units))
    }

    /// The decimal string with exactly `precision` decimals.
    pub const fn display(self, precision: Precision) -> DisplayAmount {
        DisplayAmount(self, precision)
    }
}

/// An [`Amount`] with the precision it is printed by.
#[derive(Clone, Copy, Debug)]
pub struct DisplayAmount(Amount, Precision);

impl fmt::Display for DisplayAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Amount(units), precision) = *self;
        let sign = if units < 0 { "-" } else { "" };
        let scale = precision.scale().unsigned_abs();
        let (whole, fraction) = (units.unsigned_abs() / scale, units.unsigned_abs() % scale);
        let text = match precision.0 {
            0 => format!("{sign}{whole}"),
            decimals => format!("{sign}{whole}.{fraction:0width$}", width = usize::from(decimals)),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn precision(decimals: u8) -> Precision {
        Precision::new(decimals).expect("at most 18")
    }

    #[test]
    fn reads_and_refuses_by_the_table() {
        use AmountError::*;
        for (text, decimals, expected) in [
            ("0", 8, Ok(0)),
            ("1", 8, Ok(100_000_000)),
            ("0.00000001", 8, Ok(1)),
            ("1.50", 2, Ok(150)),
            ("007", 0, Ok(7)),
            ("-0.5", 1, Ok(-5)),
            ("92233720368.54775807", 8, Ok(i64::MAX)),
            ("-92233720368.54775808", 8, Ok(i64::MIN)),
            ("92233720368.54775808", 8, Err(TooLarge)),
            ("99999999999999999999999999999999", 0, Err(TooLarge)),
            ("0.001", 2, Err(TooPrecise(2))),
            ("0.100", 2, Err(TooPrecise(2))),
            ("1.0", 0, Err(TooPrecise(0))),
            ("", 8, Err(Malformed)),
            (".", 8, Err(Malformed)),
            (".5", 8, Err(Malformed)),
            ("5.", 8, Err(Malformed)),
            ("+1", 8, Err(Malformed)),
            ("--1", 8, Err(Malformed)),
            ("1e3", 8, Err(Malformed)),
            ("0x10", 8, Err(Malformed)),
            ("1_000", 8, Err(Malformed)),
            ("1,5", 8, Err(Malformed)),
            (" 1", 8, Err(Malformed)),
            ("1.2.3", 8, Err(Malformed)),
            ("١٢", 8, Err(Malformed)),
            ("NaN", 8, Err(Malformed)),
        ] {
            let read = Amount::parse(text, precision(decimals)).map(Amount::units);
            assert_eq!(read, expected, "{text:?} with {decimals} decimals");
        }
    }

    #[test]
    fn a_precision_above_18_does_not_exist() {
        assert_eq!(Precision::new(19), None);
    }

    proptest! {
        #[test]
        fn parse_of_print_is_the_identity(units: i64, decimals in 0_u8..=Precision::MAX) {
            let amount = Amount::from_units(units);
            let text = amount.display(precision(decimals)).to_string();
            prop_assert_eq!(Amount::parse(&text, precision(decimals)), Ok(amount));
        }

        #[test]
        fn no_text_panics(text in ".*", decimals in 0_u8..=Precision::MAX) {
            if let Ok(amount) = Amount::parse(&text, precision(decimals)) {
                let printed = amount.display(precision(decimals)).to_string();
                prop_assert_eq!(Amount::parse(&printed, precision(decimals)), Ok(amount));
            }
        }

        #[test]
        fn number_like_text_does_not_panic(text in "-?[0-9.]{0,40}", decimals in 0_u8..=Precision::MAX) {
            if let Ok(amount) = Amount::parse(&text, precision(decimals)) {
                let printed = amount.display(precision(decimals)).to_string();
                prop_assert_eq!(Amount::parse(&printed, precision(decimals)), Ok(amount));
            }
        }

        #[test]
        fn sums_are_exact_or_refused(a: i64, b: i64) {
            let sum = Amount::from_units(a).checked_add(Amount::from_units(b)).map(Amount::units);
            prop_assert_eq!(sum, i64::try_from(i128::from(a) + i128::from(b)).ok());
            let difference = Amount::from_units(a).checked_sub(Amount::from_units(b)).map(Amount::units);
            prop_assert_eq!(difference, i64::try_from(i128::from(a) - i128::from(b)).ok());
        }
    }
}
