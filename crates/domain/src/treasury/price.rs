//! What coins are worth beside each other. No float: a price is a whole number of millionths of a unit that all prices share (a dollar, say).

use std::collections::HashMap;

use ruint::Uint;
use ruint::aliases::U256;

use super::CoinId;
use crate::raw::RawAmount;

/// 512 bits hold the product of an amount, a price, a share and a power of ten.
type Wide = Uint<512, 8>;

/// Millionths for a whole coin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(pub u64);

/// What a coin counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worth {
    pub coin: CoinId,
    pub decimals: u8,
    /// `None`: nobody has said.
    pub price: Option<Price>,
}

/// What transactions cost on the chain now, in its own coin: what is expected, and the most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fees {
    /// A payment of the chain's own coin. The most of it is left behind when that coin is swept.
    pub native: Fee,
    /// Payments of tokens. Of one that is missing nobody can say, or it cannot be paid now.
    pub tokens: HashMap<CoinId, Fee>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fee {
    pub expected: RawAmount,
    /// It is sent with so much: the address must have it.
    pub most: RawAmount,
}

impl Fees {
    /// What the dearest of these payments is sent with: of a coin that nobody was asked about now, no less is known.
    pub(super) fn most(&self) -> RawAmount {
        self.tokens.values().map(|fee| fee.most).fold(self.native.most, RawAmount::max)
    }
}

const fn wide(amount: RawAmount) -> Wide {
    let limbs = amount.to_u256().into_limbs();
    Wide::from_limbs([limbs[0], limbs[1], limbs[2], limbs[3], 0, 0, 0, 0])
}

fn ten_to(power: u8) -> Wide {
    Wide::from(10_u64).saturating_pow(Wide::from(power))
}

impl Worth {
    /// So much of the coin in millionths of the unit of all prices, rounded up. `None`: nobody has said what it is worth, or it is beyond all measure.
    pub fn micros(&self, amount: RawAmount) -> Option<u128> {
        let product = wide(amount).saturating_mul(Wide::from(self.price?.0));
        let value = product.div_ceil(ten_to(self.decimals));
        u128::try_from(value).ok()
    }
}

/// A cost as a share of a value, in parts per ten thousand, rounded up. `None`: there is no value.
pub fn share_bps(cost_micros: u128, value_micros: u128) -> Option<u64> {
    let parts = Wide::from(cost_micros).saturating_mul(Wide::from(10_000_u32));
    let value = (value_micros > 0).then(|| Wide::from(value_micros))?;
    u64::try_from(parts.div_ceil(value)).ok()
}

/// Whether a cost is more than a share of a value. `None`: a price is missing.
pub fn is_too_dear(cost: (RawAmount, Worth), value: (RawAmount, Worth), most_bps: u32) -> Option<bool> {
    let (paid, got) = (cost.1.price?, value.1.price?);
    // Both sides times the decimals of both coins, so that nothing is divided.
    let left = wide(cost.0)
        .saturating_mul(Wide::from(paid.0))
        .saturating_mul(ten_to(value.1.decimals))
        .saturating_mul(Wide::from(10_000_u32));
    let right = wide(value.0)
        .saturating_mul(Wide::from(got.0))
        .saturating_mul(ten_to(cost.1.decimals))
        .saturating_mul(Wide::from(most_bps));
    Some(left > right)
}

/// As much of a coin as is worth so great a share of a value, rounded down: what may be paid for it. `None`: a price is missing, or the coin is worth
/// nothing, and then any amount of it is.
pub fn coins_of_share(own: Worth, value: (RawAmount, Worth), most_bps: u32) -> Option<RawAmount> {
    let (paid, got) = (own.price?, value.1.price?);
    let worth = wide(value.0)
        .saturating_mul(Wide::from(got.0))
        .saturating_mul(ten_to(own.decimals))
        .saturating_mul(Wide::from(most_bps));
    let unit = ten_to(value.1.decimals).saturating_mul(Wide::from(paid.0)).saturating_mul(Wide::from(10_000_u32));
    let [one, two, three, four, beyond @ ..] = worth.checked_div(unit)?.into_limbs();
    let coins = if beyond == [0; 4] { U256::from_limbs([one, two, three, four]) } else { U256::MAX };
    Some(RawAmount::from_u256(coins))
}

#[cfg(test)]
mod tests {

    use super::*;

    fn raw(units: u128) -> RawAmount {
        RawAmount::from_u256(U256::from(units))
    }

    fn worth(coin: i64, decimals: u8, price: u64) -> Worth {
        Worth { coin: CoinId(coin), decimals, price: Some(Price(price)) }
    }

    #[test]
    fn a_share_is_a_share_whatever_the_decimals() {
        // 14 TRX at 0.25 are 3.50; 2 % of 175 USDT are 3.50.
        let (trx, usdt) = (worth(1, 6, 250_000), worth(2, 6, 1_000_000));
        let dear = |usdt_raw| is_too_dear((raw(14_000_000), trx), (raw(usdt_raw), usdt), 200);
        assert_eq!(dear(175_000_000), Some(false), "exactly the share is allowed");
        assert_eq!(dear(174_999_999), Some(true));
        // 0.0002 BNB at 600 are 0.12; 1 % of 12 USDT of 18 decimals are 0.12.
        let (bnb, usdt) = (worth(1, 18, 600_000_000), worth(2, 18, 1_000_000));
        let dear = |usdt_raw| is_too_dear((raw(200_000_000_000_000), bnb), (raw(usdt_raw), usdt), 100);
        assert_eq!(dear(12_000_000_000_000_000_000), Some(false));
        assert_eq!(dear(11_999_999_999_999_999_999), Some(true));
    }

    #[test]
    fn what_may_be_paid_is_never_dearer_than_the_share() {
        // 2 % of 175 USDT are 3.50, which 14 TRX at 0.25 are worth.
        let (trx, usdt) = (worth(1, 6, 250_000), worth(2, 6, 1_000_000));
        assert_eq!(coins_of_share(trx, (raw(175_000_000), usdt), 200), Some(raw(14_000_000)));
        // 1 % of 12 USDT are 0.12, which 0.0002 BNB at 600 are worth.
        let (bnb, wide_usdt) = (worth(1, 18, 600_000_000), worth(2, 18, 1_000_000));
        let share = coins_of_share(bnb, (raw(12_000_000_000_000_000_000), wide_usdt), 100);
        assert_eq!(share, Some(raw(200_000_000_000_000)));
        for units in [1, 7, 174_999_999, 1_000_000_000_000_000] {
            let share = coins_of_share(trx, (raw(units), usdt), 123).unwrap();
            assert_eq!(is_too_dear((share, trx), (raw(units), usdt), 123), Some(false), "{units}");
            let more = share.checked_add(raw(1)).unwrap();
            assert_eq!(is_too_dear((more, trx), (raw(units), usdt), 123), Some(true), "{units}");
        }
        assert_eq!(coins_of_share(Worth { price: None, ..trx }, (raw(1), usdt), 100), None);
        assert_eq!(coins_of_share(Worth { price: Some(Price(0)), ..trx }, (raw(1), usdt), 100), None);
        let most = RawAmount::from_u256(U256::MAX);
        assert_eq!(coins_of_share(worth(1, 6, 1), (most, worth(2, 0, u64::MAX)), 10_000), Some(most));
    }

    #[test]
    fn values_and_shares_are_rounded_up_and_never_divided_by_nothing() {
        let (trx, usdt) = (worth(1, 6, 250_000), worth(2, 18, 1_000_000));
        assert_eq!(trx.micros(raw(14_000_000)), Some(3_500_000), "14 TRX at 0.25");
        assert_eq!(trx.micros(raw(1)), Some(1), "a millionth of 0.25 is not nothing");
        assert_eq!(usdt.micros(raw(480_000_000_000_000_000_000)), Some(480_000_000));
        assert_eq!(share_bps(3_500_000, 480_000_000), Some(73), "0.729 % of it");
        assert_eq!(share_bps(1, u128::MAX), Some(1));
        assert_eq!((share_bps(5, 0), share_bps(0, 5)), (None, Some(0)));
        assert_eq!(Worth { price: None, ..trx }.micros(raw(1)), None);
        assert_eq!(worth(1, 0, u64::MAX).micros(RawAmount::from_u256(U256::MAX)), None);
    }

    #[test]
    fn without_a_price_nobody_can_say_and_nothing_overflows() {
        let none = Worth { coin: CoinId(1), decimals: 6, price: None };
        assert_eq!(is_too_dear((raw(1), none), (raw(1), worth(2, 6, 1)), 100), None);
        assert_eq!(is_too_dear((raw(1), worth(2, 6, 1)), (raw(1), none), 100), None);
        let most = RawAmount::from_u256(U256::MAX);
        assert_eq!(is_too_dear((raw(1), worth(1, 0, 1)), (most, worth(2, 77, u64::MAX)), 10_000), Some(false));
    }
}
