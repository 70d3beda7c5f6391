//! What a transaction of some size pays at some rate, and what a child must pay to push its parents.

/// Transactions that wait and are mined together: how many, their virtual bytes, their fees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackageFacts {
    pub count: u64,
    pub size: u64,
    pub fee: u64,
}

/// Satoshi for so many virtual bytes, rounded up as Core rounds.
pub fn at_rate(per_kvb: u64, size: u64) -> u64 {
    let fee = (u128::from(per_kvb) * u128::from(size)).div_ceil(1_000);
    u64::try_from(fee).unwrap_or(u64::MAX)
}

/// The fee of a child of `size` virtual bytes that brings the whole package to the wanted rate. `ancestors` are the
/// parent's: it, and all that it depends on. The child pays its own relay fee in any case.
pub fn cpfp_fee(ancestors: PackageFacts, size: u64, per_kvb: u64, relay: u64) -> u64 {
    let whole = at_rate(per_kvb, ancestors.size.saturating_add(size));
    whole.saturating_sub(ancestors.fee).max(at_rate(relay, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_pays_what_its_ancestors_lack() {
        let parent = PackageFacts { count: 1, size: 200, fee: 200 };
        assert_eq!(cpfp_fee(parent, 100, 10_000, 1_000), 2_800);
        assert_eq!(cpfp_fee(parent, 100, 1_000, 1_000), 100);
        assert_eq!(cpfp_fee(PackageFacts { fee: 90_000, ..parent }, 100, 10_000, 1_000), 100);
    }

    #[test]
    fn a_fee_is_rounded_up() {
        assert_eq!(at_rate(100, 110), 11);
        assert_eq!(at_rate(100, 111), 12);
        assert_eq!(at_rate(0, 111), 0);
        assert_eq!(at_rate(u64::MAX, u64::MAX), u64::MAX);
    }
}
