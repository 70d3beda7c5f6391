//! Gas wallets: how long what they have will do.

use ruint::Uint;

use crate::raw::RawAmount;

const DAY_MINUTES: u32 = 24 * 60;

/// A gas wallet's coin, in chain units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GasSupply {
    pub has: RawAmount,
    /// What open jobs will take out of it.
    pub leaving: RawAmount,
    /// What left it in the last day: gas that it gave, and fees.
    pub used: RawAmount,
}

impl GasSupply {
    /// What there is when all open jobs are paid. `None`: they will not all be paid.
    pub fn left(&self) -> Option<RawAmount> {
        self.has.checked_sub(self.leaving)
    }

    /// How long that will do, if every day is like the last one. `None`: nothing was used.
    pub fn lasts_minutes(&self) -> Option<u64> {
        if self.used == RawAmount::ZERO {
            return None;
        }
        let wide = |amount: RawAmount| {
            let limbs = amount.to_u256().into_limbs();
            Uint::<320, 5>::from_limbs([limbs[0], limbs[1], limbs[2], limbs[3], 0])
        };
        let left = wide(self.left().unwrap_or(RawAmount::ZERO));
        let minutes = left.saturating_mul(Uint::from(DAY_MINUTES)) / wide(self.used);
        Some(u64::try_from(minutes).unwrap_or(u64::MAX))
    }

    /// Within a day, if that is like the last one; or at once, for what waits already.
    pub fn runs_dry(&self) -> bool {
        let Some(left) = self.left() else { return true };
        self.used > RawAmount::ZERO && left < self.used
    }
}

#[cfg(test)]
mod tests {
    use ruint::aliases::U256;

    use super::*;

    fn supply(has: u64, leaving: u64, used: u64) -> GasSupply {
        let raw = |units: u64| RawAmount::from_u256(U256::from(units));
        GasSupply { has: raw(has), leaving: raw(leaving), used: raw(used) }
    }

    #[test]
    fn a_wallet_runs_dry_when_it_has_less_than_the_last_day_used() {
        assert!(!supply(100, 0, 100).runs_dry(), "it lasts for exactly a day");
        assert!(supply(99, 0, 100).runs_dry());
        assert!(supply(150, 51, 100).runs_dry(), "what waits is as good as gone");
        assert!(!supply(150, 50, 100).runs_dry());
    }

    #[test]
    fn one_that_nobody_uses_does_not_run_dry_unless_jobs_wait_that_it_cannot_pay() {
        assert!(!supply(0, 0, 0).runs_dry());
        assert!(!supply(5, 5, 0).runs_dry());
        assert!(supply(5, 6, 0).runs_dry());
    }

    #[test]
    fn how_long_it_lasts_is_said_in_minutes() {
        assert_eq!(supply(100, 0, 100).lasts_minutes(), Some(1_440));
        assert_eq!(supply(150, 100, 100).lasts_minutes(), Some(720));
        assert_eq!(supply(50, 60, 100).lasts_minutes(), Some(0));
        assert_eq!(supply(50, 0, 0).lasts_minutes(), None);
        let most = RawAmount::from_u256(U256::MAX);
        let one = RawAmount::from_u256(U256::from(1_u8));
        assert_eq!(GasSupply { has: most, leaving: RawAmount::ZERO, used: one }.lasts_minutes(), Some(u64::MAX));
    }
}
