//! What a transaction may cost.

/// A price, in the chain's own terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fee {
    /// Wei per gas, before EIP-1559 and on chains without a base fee.
    Legacy { gas_price: u128 },
    /// Wei per gas: at most, and of it for the producer.
    Eip1559 { max_fee: u128, max_priority: u128 },
    /// Satoshi per 1,000 virtual bytes, as Bitcoin Core counts.
    PerKvb(u64),
    /// Sun: the most that the energy of a contract call may burn. A TRX transfer has none.
    FeeLimit(i64),
}

/// The most that may be offered. What the network asks beyond it is not followed: the payment waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeCap(pub Fee);

/// What may take the place of a transaction that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    To(Fee),
    /// More than the cap would be needed: the same bytes are sent again, so that falling prices find them.
    AtCap,
    /// This chain has no fee to raise in the same slot, or the two are of different kinds.
    Never,
}

impl Fee {
    /// What replaces a transaction with this fee, when the network asks for so much now. Nodes want every field to rise by at least a tenth, some
    /// by an eighth: it is an eighth, rounded up, and never nothing.
    pub fn raised(self, asked: Self, FeeCap(cap): FeeCap) -> Raise {
        let up = |old: u128, asked: u128| {
            let least = old.checked_add(old.div_ceil(8).max(1))?;
            Some(least.max(asked))
        };
        let within =
            |new: Option<u128>, least: u128, cap: u128| new.map(|new| new.min(cap)).filter(|new| *new >= least);
        match (self, asked, cap) {
            (
                Self::Legacy { gas_price },
                Self::Legacy { gas_price: asked },
                Self::Legacy { gas_price: most } | Self::Eip1559 { max_fee: most, .. },
            ) => {
                let Some(least) = up(gas_price, 0) else { return Raise::AtCap };
                within(up(gas_price, asked), least, most)
                    .map_or(Raise::AtCap, |gas_price| Raise::To(Self::Legacy { gas_price }))
            }
            (
                Self::Eip1559 { max_fee, max_priority },
                Self::Eip1559 { max_fee: asked_fee, max_priority: asked_priority },
                Self::Eip1559 { max_fee: most, max_priority: most_priority },
            ) => {
                let (Some(least), Some(least_priority)) = (up(max_fee, 0), up(max_priority, 0)) else {
                    return Raise::AtCap;
                };
                let fee = within(up(max_fee, asked_fee), least, most);
                let priority = within(up(max_priority, asked_priority), least_priority, most_priority);
                match fee.zip(priority) {
                    // The producer's part is never more than the whole; it was not before, and both have risen alike.
                    Some((max_fee, max_priority)) => Raise::To(Self::Eip1559 {
                        max_fee: max_fee.max(least),
                        max_priority: max_priority.min(max_fee),
                    }),
                    None => Raise::AtCap,
                }
            }
            _ => Raise::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn legacy(gas_price: u128) -> Fee {
        Fee::Legacy { gas_price }
    }

    const fn both(max_fee: u128, max_priority: u128) -> Fee {
        Fee::Eip1559 { max_fee, max_priority }
    }

    #[test]
    fn every_field_rises_by_an_eighth_rounded_up() {
        let cap = FeeCap(legacy(20_000_000_000));
        for (old, asked, new) in [
            (8, 0, Raise::To(legacy(9))),
            (9, 0, Raise::To(legacy(11))),
            (0, 0, Raise::To(legacy(1))),
            (5_000_000_000, 9_000_000_000, Raise::To(legacy(9_000_000_000))),
            (5_000_000_000, 90_000_000_000, Raise::To(legacy(20_000_000_000))),
            // At 17.8 Gwei an eighth more is beyond the cap; so is everything at the cap itself.
            (17_777_777_778, 0, Raise::AtCap),
            (20_000_000_000, 90_000_000_000, Raise::AtCap),
            (u128::MAX, 0, Raise::AtCap),
        ] {
            assert_eq!(legacy(old).raised(legacy(asked), cap), new, "{old} when {asked} is asked");
        }
        let cap = FeeCap(both(1_000, 100));
        assert_eq!(both(80, 8).raised(both(0, 0), cap), Raise::To(both(90, 9)));
        assert_eq!(both(80, 0).raised(both(0, 0), cap), Raise::To(both(90, 1)), "also one that is nothing");
        assert_eq!(both(80, 8).raised(both(500, 50), cap), Raise::To(both(500, 50)));
        assert_eq!(both(80, 8).raised(both(5_000, 500), cap), Raise::To(both(1_000, 100)));
        assert_eq!(both(80, 95).raised(both(0, 0), cap), Raise::AtCap, "one field alone is not enough");
    }

    #[test]
    fn what_has_no_such_fee_is_never_raised() {
        for (fee, asked) in
            [(Fee::PerKvb(1), Fee::PerKvb(9)), (Fee::FeeLimit(1), Fee::FeeLimit(9)), (legacy(1), both(9, 9))]
        {
            assert_eq!(fee.raised(asked, FeeCap(asked)), Raise::Never, "{fee:?}");
        }
    }

    /// A replacement is never above the cap, and never so low that a node would refuse it.
    #[test]
    fn a_raise_is_enough_and_within_the_cap() {
        for old in 0..200_u128 {
            for asked in [0, 1, 50, 120, 400] {
                for most in [0, 1, 60, 150, 1_000] {
                    let (cap, old_fee) = (FeeCap(both(most, most / 2)), both(old, old / 3));
                    let Raise::To(Fee::Eip1559 { max_fee, max_priority }) = old_fee.raised(both(asked, asked / 4), cap)
                    else {
                        continue;
                    };
                    assert!(max_fee <= most && max_priority <= most / 2 && max_priority <= max_fee);
                    assert!(max_fee * 8 >= old * 9 && max_priority * 8 >= old / 3 * 9);
                    assert!(max_fee > old && max_priority > old / 3, "nodes want more, not the same");
                }
            }
        }
    }
}
