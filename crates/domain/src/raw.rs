//! Chain money: an unsigned 256-bit count of a token's smallest unit on its chain, and the exact conversion to
//! and from ledger units.

use std::fmt;
use std::str::FromStr;

use ruint::aliases::U256;

use crate::amount::Amount;
use crate::asset::AssetOnChain;

/// Chain units. Stored as canonical decimal text: ASCII digits, no leading zero, `0` for zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawAmount(U256);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RawAmountError {
    #[error("a raw amount is a decimal integer without sign or leading zeros")]
    NotCanonical,
    #[error("the raw amount does not fit 256 bits")]
    TooLarge,
    #[error("the raw amount is more than the ledger's 64 bits can hold")]
    BeyondLedger,
    #[error("a negative ledger amount has no form on a chain")]
    Negative,
}

/// What a chain amount is in the ledger: whole ledger units, and the raw units that are too small for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floored {
    pub amount: Amount,
    /// Always less than one ledger unit. It goes to the asset's `dust` account; it is never dropped.
    pub residue: RawAmount,
}

impl RawAmount {
    pub const ZERO: Self = Self(U256::ZERO);
    pub const MAX: Self = Self(U256::MAX);

    pub const fn from_u256(units: U256) -> Self {
        Self(units)
    }

    pub const fn to_u256(self) -> U256 {
        self.0
    }

    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Rounded down. `None`: by zero.
    pub fn checked_div(self, parts: u64) -> Option<Self> {
        self.0.checked_div(U256::from(parts)).map(Self)
    }

    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// In whole coins of so many decimals, to the last digit that is not zero.
    pub fn in_coins(self, decimals: u8) -> String {
        let (digits, decimals) = (self.0.to_string(), usize::from(decimals));
        let padded = format!("{digits:0>width$}", width = decimals + 1);
        let (whole, part) = padded.split_at(padded.len() - decimals);
        let part = part.trim_end_matches('0');
        if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") }
    }

    /// Chain to ledger: floors to the ledger unit and hands back the residue.
    pub fn to_ledger(self, form: &AssetOnChain) -> Result<Floored, RawAmountError> {
        let (units, residue) = self.0.div_rem(form.raw_per_unit());
        let units = i64::try_from(units).map_err(|_| RawAmountError::BeyondLedger)?;
        Ok(Floored { amount: Amount::from_units(units), residue: Self(residue) })
    }

    /// Ledger to chain: always exact, because a form on a chain has at least the asset's precision.
    pub fn from_ledger(amount: Amount, form: &AssetOnChain) -> Result<Self, RawAmountError> {
        let units = u64::try_from(amount.units()).map_err(|_| RawAmountError::Negative)?;
        U256::from(units).checked_mul(form.raw_per_unit()).map(Self).ok_or(RawAmountError::TooLarge)
    }
}

impl fmt::Display for RawAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for RawAmount {
    type Err = RawAmountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let canonical = text == "0" || !text.starts_with('0');
        if !digits || !canonical {
            return Err(RawAmountError::NotCanonical);
        }
        U256::from_str_radix(text, 10).map(Self).map_err(|_| RawAmountError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Precision;
    use proptest::prelude::*;

    fn form(precision: u8, decimals: u8) -> AssetOnChain {
        let precision = Precision::new(precision).expect("at most 18");
        AssetOnChain::new(precision, decimals, None).expect("decimals hold the precision")
    }

    fn any_raw() -> impl Strategy<Value = RawAmount> {
        any::<[u64; 4]>().prop_map(|limbs| RawAmount(U256::from_limbs(limbs)))
    }

    #[test]
    fn chain_units_are_shown_in_whole_coins_to_the_last_digit() {
        let raw = |text: &str| text.parse::<RawAmount>().unwrap();
        assert_eq!(raw("0").in_coins(6), "0");
        assert_eq!(raw("1").in_coins(6), "0.000001");
        assert_eq!(raw("1500000").in_coins(6), "1.5");
        assert_eq!(raw("1000000000000000000").in_coins(18), "1");
        assert_eq!(raw("12").in_coins(0), "12");
    }

    #[test]
    fn text_is_canonical_or_refused() {
        let max = RawAmount::MAX.to_string();
        for text in ["0", "1", "100000000000000000000", max.as_str()] {
            assert_eq!(text.parse::<RawAmount>().expect(text).to_string(), text);
        }
        for text in ["", "00", "01", "-1", "+1", "1.0", "1e3", " 1", "0x1", "1_0", "١"] {
            assert_eq!(text.parse::<RawAmount>(), Err(RawAmountError::NotCanonical), "{text:?}");
        }
        let beyond = format!("{max}0");
        assert_eq!(beyond.parse::<RawAmount>(), Err(RawAmountError::TooLarge));
    }

    #[test]
    fn eighteen_decimals_floor_to_six() {
        let floored =
            "1234567890123456789".parse::<RawAmount>().expect("canonical").to_ledger(&form(6, 18)).expect("fits");
        assert_eq!(floored.amount.units(), 1_234_567);
        assert_eq!(floored.residue.to_string(), "890123456789");
    }

    #[test]
    fn beyond_the_ledger_is_refused_not_wrapped() {
        assert_eq!(RawAmount::MAX.to_ledger(&form(8, 8)), Err(RawAmountError::BeyondLedger));
        let negative = Amount::from_units(-1);
        assert_eq!(RawAmount::from_ledger(negative, &form(8, 8)), Err(RawAmountError::Negative));
    }

    proptest! {
        #[test]
        fn parse_of_print_is_the_identity(raw in any_raw()) {
            prop_assert_eq!(raw.to_string().parse::<RawAmount>(), Ok(raw));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            if let Ok(raw) = text.parse::<RawAmount>() {
                prop_assert_eq!(raw.to_string(), text);
            }
        }

        /// The ledger amount and the residue add up to the raw amount, to the last unit.
        #[test]
        fn conversion_conserves(
            limbs: [u64; 2], (precision, decimals) in (0_u8..=18).prop_flat_map(|p| (Just(p), p..=30)),
        ) {
            let form = form(precision, decimals);
            let raw = RawAmount(U256::from_limbs([limbs[0], limbs[1], 0, 0]));
            match raw.to_ledger(&form) {
                Ok(floored) => {
                    let back = RawAmount::from_ledger(floored.amount, &form).expect("exact");
                    prop_assert_eq!(back.checked_add(floored.residue), Some(raw));
                    prop_assert!(floored.residue.0 < form.raw_per_unit());
                }
                Err(error) => prop_assert_eq!(error, RawAmountError::BeyondLedger),
            }
        }

        #[test]
        fn ledger_to_chain_and_back_is_the_identity(
            units in 0..=i64::MAX, (precision, decimals) in (0_u8..=18).prop_flat_map(|p| (Just(p), p..=30)),
        ) {
            let form = form(precision, decimals);
            let amount = Amount::from_units(units);
            let raw = RawAmount::from_ledger(amount, &form).expect("at most 2^63 * 10^30");
            prop_assert_eq!(raw.to_ledger(&form), Ok(Floored { amount, residue: RawAmount::ZERO }));
        }
    }
}
