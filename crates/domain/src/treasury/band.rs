//! Hot wallets: too little, too much, or enough; and where swept coins go.

use super::CoinId;
use crate::raw::RawAmount;

/// What a hot wallet should have of a coin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Below it, a refill is proposed.
    pub floor: RawAmount,
    /// It is filled up to here, and emptied down to here.
    pub target: RawAmount,
    /// Above it, the surplus leaves.
    pub ceiling: RawAmount,
}

/// A hot wallet's coin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotCoin {
    pub coin: CoinId,
    pub band: Band,
    /// What came in final blocks, less what has left and what open jobs will take.
    pub spendable: RawAmount,
    /// What open jobs of ours will bring.
    pub coming: RawAmount,
    /// A job of this wallet's own band is open, or not final yet.
    pub busy: bool,
    /// Its last refill was not paid a moment ago.
    pub refill_rests: bool,
    /// Nothing is sent from it until people have looked: its key may be stolen, so nothing goes there either.
    pub stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandAction {
    /// So much from the treasury. People approve it.
    Refill(RawAmount),
    /// So much to the treasury.
    Surplus(RawAmount),
}

impl HotCoin {
    fn expects(&self) -> RawAmount {
        self.spendable.checked_add(self.coming).unwrap_or(self.spendable)
    }

    /// `None`: it is within its band, or something is under way, or it is stopped.
    pub fn decide(&self) -> Option<BandAction> {
        if self.busy || self.stopped {
            return None;
        }
        let (expects, band) = (self.expects(), self.band);
        if expects < band.floor {
            if self.refill_rests {
                return None;
            }
            return band.target.checked_sub(expects).map(BandAction::Refill);
        }
        // What is still to come cannot leave yet.
        if self.spendable > band.ceiling {
            return self.spendable.checked_sub(band.target).map(BandAction::Surplus);
        }
        None
    }
}

/// The hot wallets that swept coins of one coin may go to. Each sweep that is sent there counts at once.
#[derive(Clone, Debug, Default)]
pub struct Homes(Vec<(usize, HotCoin)>);

impl Homes {
    /// With the number of each wallet in the caller's list.
    pub fn new(hot: impl IntoIterator<Item = (usize, HotCoin)>) -> Self {
        Self(hot.into_iter().collect())
    }

    /// Those that some of a coin may go to, by their numbers.
    pub fn of(&self, coin: CoinId) -> impl Iterator<Item = usize> {
        self.0.iter().filter(move |(_, hot)| hot.coin == coin && !hot.stopped).map(|(number, _)| *number)
    }

    /// Nothing of a coin goes to this one.
    pub fn leave_out(&mut self, coin: CoinId, number: usize) {
        self.0.retain(|(other, hot)| *other != number || hot.coin != coin);
    }

    /// The hot wallet that lacks most of its target, if the whole amount fits below its ceiling, and if it is not stopped. `None`: the treasury.
    pub fn place(&mut self, coin: CoinId, amount: RawAmount) -> Option<usize> {
        let fits = |hot: &HotCoin| {
            let after = hot.expects().checked_add(amount);
            let lacks = hot.coin == coin && !hot.stopped && hot.expects() < hot.band.target;
            lacks && after.is_some_and(|after| after <= hot.band.ceiling)
        };
        let lacks = |hot: &HotCoin| hot.band.target.checked_sub(hot.expects()).unwrap_or(RawAmount::ZERO);
        let (number, hot) = self.0.iter_mut().filter(|(_, hot)| fits(hot)).max_by_key(|(_, hot)| lacks(hot))?;
        hot.coming = hot.coming.checked_add(amount)?;
        Some(*number)
    }
}

#[cfg(test)]
mod tests {
    use ruint::aliases::U256;

    use super::*;

    fn raw(units: u64) -> RawAmount {
        RawAmount::from_u256(U256::from(units))
    }

    fn hot(spendable: u64, coming: u64) -> HotCoin {
        let band = Band { floor: raw(100), target: raw(500), ceiling: raw(900) };
        HotCoin {
            coin: CoinId(1),
            band,
            spendable: raw(spendable),
            coming: raw(coming),
            busy: false,
            refill_rests: false,
            stopped: false,
        }
    }

    #[test]
    fn below_the_floor_it_is_filled_and_above_the_ceiling_it_is_emptied() {
        assert_eq!(hot(99, 0).decide(), Some(BandAction::Refill(raw(401))));
        assert_eq!(hot(100, 0).decide(), None);
        assert_eq!(hot(50, 50).decide(), None, "what comes counts");
        assert_eq!(hot(900, 0).decide(), None);
        assert_eq!(hot(901, 0).decide(), Some(BandAction::Surplus(raw(401))));
        assert_eq!(hot(800, 500).decide(), None, "what is still to come cannot leave");
        assert_eq!(HotCoin { busy: true, ..hot(0, 0) }.decide(), None);
        assert_eq!(HotCoin { refill_rests: true, ..hot(0, 0) }.decide(), None);
        assert_eq!(HotCoin { refill_rests: true, ..hot(901, 0) }.decide(), Some(BandAction::Surplus(raw(401))));
    }

    #[test]
    fn swept_coins_fill_hot_wallets_before_they_go_home() {
        let mut homes = Homes::new([(0, hot(400, 0)), (1, hot(100, 0))]);
        assert_eq!(homes.place(CoinId(1), raw(300)), Some(1), "it lacks more");
        assert_eq!(homes.place(CoinId(1), raw(600)), None, "it would be too much for either");
        assert_eq!(homes.place(CoinId(1), raw(300)), Some(1), "they lack the same");
        assert_eq!(homes.place(CoinId(1), raw(300)), Some(0), "the other has its target by now");
        assert_eq!(homes.place(CoinId(1), raw(1)), None, "all have their target");
        assert_eq!(homes.place(CoinId(2), raw(1)), None);
    }

    /// Whoever has stolen its key would have the coins as soon as they come.
    #[test]
    fn a_wallet_that_is_stopped_gets_nothing_and_gives_nothing() {
        let stopped = |spendable| HotCoin { stopped: true, ..hot(spendable, 0) };
        assert_eq!((stopped(0).decide(), stopped(901).decide()), (None, None));
        let mut homes = Homes::new([(0, stopped(0)), (1, hot(400, 0))]);
        assert_eq!(homes.of(CoinId(1)).collect::<Vec<_>>(), [1]);
        assert_eq!(homes.place(CoinId(1), raw(300)), Some(1), "the other lacks less");
        assert_eq!(homes.place(CoinId(1), raw(300)), None);
    }

    #[test]
    fn a_wallet_that_a_coin_refuses_gets_nothing_of_it() {
        let other = HotCoin { coin: CoinId(2), ..hot(0, 0) };
        let mut homes = Homes::new([(0, hot(0, 0)), (1, hot(400, 0)), (0, other)]);
        homes.leave_out(CoinId(1), 0);
        assert_eq!(homes.place(CoinId(1), raw(300)), Some(1));
        assert_eq!(homes.place(CoinId(2), raw(300)), Some(0), "another coin is another matter");
    }
}
