//! Bitcoin: coins of many users' addresses go home together, in one transaction; or why they do not.
//!
//! There a balance is many coins, and each costs something to spend. So a rule is held against what the addresses of a group have together.
//! Nothing comes back: the signer lets no change go to users' addresses, because each of them is somebody's.

use std::collections::HashSet;

use ruint::aliases::U256;

use super::CoinId;
use super::rule::{Budget, RuleId, SweepRule};
use super::wallet::{Former, TreasuryAction, Waits, acts, former_sweep};
use crate::raw::RawAmount;
use crate::time::Timestamp;

/// So many coins go home in one transaction at most: some 14,000 virtual bytes, which leaves room for payouts that spend what it brings before
/// it is in a block.
pub const MOST_BUNDLED: usize = 200;

/// A coin at a user's address, in a final block, that nobody is about to spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LooseCoin {
    pub satoshi: u64,
    /// Weight units of the input that spends it.
    pub weight: u64,
}

/// What the addresses of a group have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LooseCoins {
    pub coin: CoinId,
    /// The largest first. There may be more than these.
    pub coins: Vec<LooseCoin>,
    /// What all of them hold, in satoshi.
    pub total: u64,
    /// The last sweep of the group.
    pub sweep: Former,
    /// Nothing is sent from the group until people have looked.
    pub stopped: bool,
}

/// What a transaction costs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleCosts {
    /// Satoshi for 1,000 virtual bytes.
    pub rate: u64,
    /// Weight units of all but its inputs.
    pub frame: u64,
    /// Satoshi.
    pub most_fee: u64,
    /// The least that nodes pass on.
    pub dust: u64,
}

/// What decisions over groups share. Rules are in the order of their priorities.
#[derive(Clone, Debug)]
pub struct BundleSight<'a> {
    pub sweeps: &'a [SweepRule],
    /// `None`: nobody can say, or the network asks for more than is allowed.
    pub costs: Option<BundleCosts>,
    /// There is a treasury to bring coins to; or why there is none.
    pub home: Result<(), Waits>,
    /// Coins that are not suspended. `None`: their chain is.
    pub acting: Option<&'a HashSet<CoinId>>,
    pub now: Timestamp,
}

/// Coins that go home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    pub rule: RuleId,
    /// Places in the list of coins.
    pub coins: Vec<usize>,
    /// What comes home: what the coins hold, less the fee.
    pub amount: RawAmount,
    pub fee: RawAmount,
    pub priority: i64,
}

impl Bundle {
    pub const fn action(&self, coin: CoinId) -> TreasuryAction {
        let Self { rule, amount, priority, fee, .. } = *self;
        // What it offers is fixed with what it brings.
        TreasuryAction::Sweep { rule, coin, amount, priority, expected_cost: fee, share: None }
    }
}

impl BundleCosts {
    /// Satoshi for so much weight, which counts in whole virtual bytes; rounded up.
    fn fee(&self, weight: u64) -> u64 {
        let fee = (u128::from(self.rate) * u128::from(weight.div_ceil(4))).div_ceil(1_000);
        u64::try_from(fee).unwrap_or(u64::MAX)
    }
}

/// Whether a cost is more than a share of a value in the same coin: no price is needed.
fn is_dear(cost: u64, value: u64, most_bps: Option<u32>) -> bool {
    most_bps.is_some_and(|most| u128::from(cost) * 10_000 > u128::from(value) * u128::from(most))
}

impl BundleSight<'_> {
    /// `None`: no rule matches what the group has.
    pub fn decide(&self, group: &LooseCoins, budget: &mut Budget) -> Option<Result<Bundle, Waits>> {
        let total = satoshi(group.total);
        let matches = |rule: &&SweepRule| rule.coin == group.coin && group.total > 0 && rule.condition.holds(total);
        let rule = self.sweeps.iter().find(matches)?;
        Some(self.bundle(group, rule, budget))
    }

    fn bundle(&self, group: &LooseCoins, rule: &SweepRule, budget: &mut Budget) -> Result<Bundle, Waits> {
        if group.stopped {
            return Err(Waits::GroupStopped);
        }
        self.home?;
        former_sweep(group.sweep, &rule.pace, self.now)?;
        let costs = self.costs.ok_or(Waits::NoFees)?;
        let (coins, held, fee) = choose(&group.coins, rule, &costs)?;
        if is_dear(fee, held, rule.most_cost_bps) {
            return Err(Waits::TooDear { cost: satoshi(fee) });
        }
        let amount = held.checked_sub(fee).filter(|amount| *amount >= costs.dust).ok_or(Waits::FeeEatsIt)?;
        acts(self.acting, group.coin)?;
        if !budget.take(rule.id, &rule.pace) {
            return Err(Waits::MostPerHour);
        }
        let (amount, fee, priority) = (satoshi(amount), satoshi(fee), rule.pace.priority);
        Ok(Bundle { rule: rule.id, coins, amount, fee, priority })
    }
}

/// The largest that are worth their own input, as many as may go together; what they hold, and the fee. A coin that costs more than the rule's
/// share of itself is left for cheaper times.
fn choose(coins: &[LooseCoin], rule: &SweepRule, costs: &BundleCosts) -> Result<(Vec<usize>, u64, u64), Waits> {
    let (mut chosen, mut held, mut weight) = (Vec::new(), 0_u64, costs.frame);
    let mut dear = None;
    for (place, coin) in coins.iter().enumerate() {
        let alone = costs.fee(coin.weight);
        if coin.satoshi <= alone {
            continue;
        }
        if is_dear(alone, coin.satoshi, rule.most_cost_bps) {
            dear.get_or_insert(alone);
            continue;
        }
        let with = weight.saturating_add(coin.weight);
        if chosen.len() >= MOST_BUNDLED || costs.fee(with) > costs.most_fee {
            break;
        }
        chosen.push(place);
        (held, weight) = (held.saturating_add(coin.satoshi), with);
    }
    match (chosen.is_empty(), dear) {
        (false, _) => Ok((chosen, held, costs.fee(weight))),
        (true, Some(cost)) => Err(Waits::TooDear { cost: satoshi(cost) }),
        (true, None) => Err(Waits::FeeEatsIt),
    }
}

fn satoshi(amount: u64) -> RawAmount {
    RawAmount::from_u256(U256::from(amount))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::treasury::{Condition, Operator, Pace};

    const BTC: CoinId = CoinId(1);
    const INPUT: u64 = 272;
    /// Eleven virtual bytes, and an output of 31.
    const FRAME: u64 = 42 + 124;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn rule(threshold: u64, most_cost_bps: Option<u32>) -> SweepRule {
        let pace = Pace { priority: 400, cool_down_us: 60_000_000, most_per_hour: 2 };
        let condition = Condition { operator: Operator::Above, threshold: satoshi(threshold) };
        SweepRule { id: RuleId::Sweep(1), coin: BTC, condition, most_cost_bps, pace }
    }

    fn group(amounts: &[u64]) -> LooseCoins {
        let coins = amounts.iter().map(|satoshi| LooseCoin { satoshi: *satoshi, weight: INPUT }).collect();
        LooseCoins { coin: BTC, coins, total: amounts.iter().sum(), sweep: Former::Never, stopped: false }
    }

    fn costs(rate: u64) -> BundleCosts {
        BundleCosts { rate, frame: FRAME, most_fee: 50_000, dust: 294 }
    }

    fn decide(rule: &SweepRule, costs: Option<BundleCosts>, group: &LooseCoins) -> Option<Result<Bundle, Waits>> {
        let acting = HashSet::from([BTC]);
        let (sweeps, acting) = (std::slice::from_ref(rule), Some(&acting));
        let sight = BundleSight { sweeps, costs, home: Ok(()), acting, now: at(1_000) };
        sight.decide(group, &mut Budget::default())
    }

    #[test]
    fn what_a_group_has_together_meets_the_rule_and_goes_home_less_its_fee() {
        let three = group(&[60_000, 30_000, 20_000]);
        assert_eq!(decide(&rule(110_000, None), Some(costs(1_000)), &three), None, "110,000 is not above 110,000");
        let bundle = decide(&rule(100_000, None), Some(costs(1_000)), &three).unwrap().unwrap();
        // 166 + 3 * 272 units are 246 virtual bytes.
        assert_eq!((bundle.coins, bundle.fee, bundle.amount), (vec![0, 1, 2], satoshi(246), satoshi(109_754)));
        assert_eq!(decide(&rule(0, None), Some(costs(1_000)), &group(&[])), None, "nothing is nothing to bring");
    }

    #[test]
    fn a_coin_that_costs_more_than_it_holds_or_than_its_share_stays() {
        // At ten satoshi for a virtual byte an input costs 680.
        let mixed = group(&[100_000, 40_000, 10_000, 680]);
        let bundle = |bps| decide(&rule(1, bps), Some(costs(10_000)), &mixed).unwrap().unwrap();
        assert_eq!(bundle(None).coins, [0, 1, 2], "it holds exactly what it costs");
        assert_eq!(bundle(Some(200)).coins, [0, 1], "680 are more than two percent of 10,000");
        let waits =
            |bps, amounts: &[u64]| decide(&rule(1, bps), Some(costs(10_000)), &group(amounts)).unwrap().unwrap_err();
        assert_eq!(waits(None, &[680, 500]), Waits::FeeEatsIt);
        assert_eq!(waits(Some(200), &[10_000, 500]), Waits::TooDear { cost: satoshi(680) });
        // Its input is within the share, and the whole transaction is not.
        assert_eq!(waits(Some(200), &[40_000]), Waits::TooDear { cost: satoshi(1_100) });
        assert_eq!(waits(None, &[1_200]), Waits::FeeEatsIt, "a hundred satoshi are dust");
    }

    #[test]
    fn so_many_go_together_as_one_transaction_and_its_fee_allow() {
        let many = group(&[100_000; 300]);
        let bundle = decide(&rule(1, None), Some(costs(1_000)), &many).unwrap().unwrap();
        assert_eq!(bundle.coins.len(), MOST_BUNDLED);
        // 100 satoshi for a virtual byte: 50,000 are 500 of them, which are six inputs.
        let dear = decide(&rule(1, None), Some(costs(100_000)), &many).unwrap().unwrap();
        assert_eq!((dear.coins.len(), dear.fee), (6, satoshi(45_000)));
    }

    #[test]
    fn one_sweep_of_a_group_at_a_time() {
        let after = |sweep| decide(&rule(1, None), Some(costs(1_000)), &LooseCoins { sweep, ..group(&[100_000]) });
        let ended = |at_s, settled, failures| Former::Ended { at: at(at_s), settled, failures };
        assert_eq!(after(Former::Open), Some(Err(Waits::SweepUnderWay)));
        assert_eq!(after(ended(1, false, 0)), Some(Err(Waits::SweepNotFinal)));
        assert_eq!(after(ended(990, true, 0)), Some(Err(Waits::CoolDown { until: at(1_050) })));
        assert_eq!(after(ended(900, true, 1)), Some(Err(Waits::CoolDown { until: at(1_020) })));
        assert!(after(ended(900, true, 0)).unwrap().is_ok());
    }

    #[test]
    fn without_a_price_a_treasury_or_room_in_the_hour_it_waits() {
        let (rule, coins) = (rule(1, None), group(&[100_000]));
        assert_eq!(decide(&rule, None, &coins), Some(Err(Waits::NoFees)));
        let (acting, sweeps) = (HashSet::from([BTC]), std::slice::from_ref(&rule));
        let home = Err(Waits::NoHome);
        let mut sight = BundleSight { sweeps, costs: Some(costs(1_000)), home, acting: None, now: at(1) };
        let mut budget = Budget::new([(RuleId::Sweep(1), 1)]);
        assert_eq!(sight.decide(&coins, &mut budget), Some(Err(Waits::NoHome)));
        sight.home = Err(Waits::HomeStopped);
        assert_eq!(sight.decide(&coins, &mut budget), Some(Err(Waits::HomeStopped)));
        sight.home = Ok(());
        let stopped = LooseCoins { stopped: true, ..coins.clone() };
        assert_eq!(sight.decide(&stopped, &mut budget), Some(Err(Waits::GroupStopped)));
        assert_eq!(sight.decide(&coins, &mut budget), Some(Err(Waits::ChainSuspended)));
        sight.acting = Some(&acting);
        assert!(sight.decide(&coins, &mut budget).unwrap().is_ok());
        assert_eq!(sight.decide(&coins, &mut budget), Some(Err(Waits::MostPerHour)));
    }
}
