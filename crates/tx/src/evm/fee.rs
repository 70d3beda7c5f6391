//! What a replacement must offer.

use crate::fee::{Fee, FeeCap};

/// An eighth more, rounded up. Nodes ask for a tenth more on both fields, some for an eighth.
fn raised(price: u128) -> Option<u128> {
    price.checked_add(price.div_ceil(8).max(1))
}

/// What a transaction must offer to take the place of one that offered `old`: an eighth more in every field, or what is
/// quoted now where that is more. `None` when the cap does not allow it.
pub fn replacement(old: Fee, quoted: Fee, cap: FeeCap) -> Option<Fee> {
    let (most, most_priority) = prices(cap.0)?;
    let (old_fee, old_priority) = prices(old)?;
    let (now_fee, now_priority) = prices(quoted)?;
    // A cap without a priority fee of its own caps only the whole.
    let most_priority = if matches!(cap.0, Fee::Legacy { .. }) { most } else { most_priority.min(most) };
    let (least, least_priority) = (raised(old_fee)?, raised(old_priority)?);
    if least > most {
        return None;
    }
    let max_fee = least.max(now_fee).min(most);
    if matches!(old, Fee::Legacy { .. }) {
        // A node compares both fields of both kinds; staying with the old kind leaves nothing to interpret.
        return Some(Fee::Legacy { gas_price: max_fee });
    }
    if least_priority > most_priority {
        return None;
    }
    let max_priority = least_priority.max(now_priority).min(most_priority).min(max_fee);
    (max_priority >= least_priority).then_some(Fee::Eip1559 { max_fee, max_priority })
}

const fn prices(fee: Fee) -> Option<(u128, u128)> {
    match fee {
        Fee::Legacy { gas_price } => Some((gas_price, gas_price)),
        Fee::Eip1559 { max_fee, max_priority } => Some((max_fee, max_priority)),
        Fee::PerKvb(_) | Fee::FeeLimit(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn legacy(gas_price: u128) -> Fee {
        Fee::Legacy { gas_price }
    }

    const fn dynamic(max_fee: u128, max_priority: u128) -> Fee {
        Fee::Eip1559 { max_fee, max_priority }
    }

    #[test]
    fn a_replacement_offers_an_eighth_more_in_both_fields_or_is_impossible() {
        for (old, quoted, cap, expected) in [
            (legacy(8), legacy(1), legacy(100), Some(legacy(9))),
            (legacy(8), legacy(50), legacy(100), Some(legacy(50))),
            (legacy(8), legacy(500), legacy(100), Some(legacy(100))),
            (legacy(9), legacy(1), legacy(11), Some(legacy(11))),
            (legacy(9), legacy(1), legacy(10), None),
            (legacy(0), legacy(0), legacy(10), Some(legacy(1))),
            (dynamic(80, 8), dynamic(1, 1), dynamic(1000, 100), Some(dynamic(90, 9))),
            (dynamic(80, 8), dynamic(200, 50), dynamic(1000, 100), Some(dynamic(200, 50))),
            (dynamic(80, 8), dynamic(200, 50), dynamic(1000, 8), None),
            (dynamic(80, 8), dynamic(200, 50), dynamic(89, 100), None),
            (dynamic(80, 80), dynamic(1, 1), dynamic(90, 90), Some(dynamic(90, 90))),
            // The old kind stays, whatever is quoted.
            (legacy(8), dynamic(30, 2), dynamic(100, 10), Some(legacy(30))),
            (dynamic(80, 8), legacy(95), dynamic(100, 95), Some(dynamic(95, 95))),
            (legacy(u128::MAX), legacy(1), legacy(u128::MAX), None),
            (legacy(8), Fee::PerKvb(5), legacy(100), None),
        ] {
            assert_eq!(replacement(old, quoted, FeeCap(cap)), expected, "{old:?} {quoted:?} {cap:?}");
        }
    }

    proptest! {
        #[test]
        fn a_replacement_is_taken_by_a_node_and_allowed_by_the_cap(
            old in (0..u128::MAX / 2, 0..u128::MAX / 2), now: (u128, u128), cap: (u128, u128),
        ) {
            let old = (old.0.max(old.1), old.0.min(old.1));
            let (quoted, most) = (dynamic(now.0, now.1), FeeCap(dynamic(cap.0, cap.1)));
            if let Some(Fee::Eip1559 { max_fee, max_priority }) = replacement(dynamic(old.0, old.1), quoted, most) {
                prop_assert!(max_fee <= cap.0 && max_priority <= cap.1 && max_priority <= max_fee);
                prop_assert!(max_fee > old.0 && max_priority > old.1);
                prop_assert!(max_fee - old.0 >= old.0 / 8 && max_priority - old.1 >= old.1 / 8);
            }
        }
    }
}
