//! One address of a user: what it needs, what is done about it, or why nothing is.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::CoinId;
use super::price::{Fee, Fees, Worth, coins_of_share, is_too_dear};
use super::rule::{Budget, GasRule, Pace, RuleId, SweepRule, resting};
use crate::raw::RawAmount;
use crate::time::Timestamp;

/// What became of the last job of its kind for an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Former {
    #[default]
    Never,
    /// It may still pay.
    Open,
    /// It is over. `settled`: the chain's own books are final up to its block, so balances know of it. `failures`: so many in a row, this one
    /// the last, have failed.
    Ended { at: Timestamp, settled: bool, failures: u32 },
}

impl Former {
    /// Nothing of the kind is done now: it is open, or not final, or has failed a moment ago.
    pub fn is_busy(self, now: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::Open | Self::Ended { settled: false, .. } => true,
            Self::Ended { at, settled: true, failures } => resting(at, failures, &NO_PACE, now).is_some(),
        }
    }

    /// Nothing of it is still to come.
    pub const fn is_settled(self) -> bool {
        match self {
            Self::Never => true,
            Self::Open => false,
            Self::Ended { settled, .. } => settled,
        }
    }
}

/// Of bands, which rest only for what has failed.
const NO_PACE: Pace = Pace { priority: 0, cool_down_us: 0, most_per_hour: u32::MAX };

/// A coin at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoinNow {
    pub coin: CoinId,
    /// What came in final blocks, less all that has left, final or not.
    pub spendable: RawAmount,
    /// The last sweep of this coin from here.
    pub sweep: Former,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalletNow {
    /// The chain's own coin, which fees are paid in.
    pub native: CoinNow,
    pub tokens: Vec<CoinNow>,
    /// The last gas that was sent here.
    pub topup: Former,
    /// Nothing is sent from its group until people have looked.
    pub stopped: bool,
}

/// What decisions of one pass share. Rules are in the order of their priorities.
#[derive(Clone, Debug)]
pub struct Sight<'a> {
    pub gas: &'a [GasRule],
    pub sweeps: &'a [SweepRule],
    pub worths: &'a HashMap<CoinId, Worth>,
    /// `None`: nobody can say what transactions cost now, so nothing is done.
    pub fees: Option<&'a Fees>,
    /// There is a treasury to bring coins to; or why there is none.
    pub home: Result<(), Waits>,
    /// Coins that are not suspended. `None`: their chain is.
    pub acting: Option<&'a HashSet<CoinId>>,
    pub now: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreasuryAction {
    TopUp {
        rule: RuleId,
        amount: RawAmount,
        priority: i64,
        expected_cost: RawAmount,
    },
    Sweep {
        rule: RuleId,
        coin: CoinId,
        amount: RawAmount,
        priority: i64,
        expected_cost: RawAmount,
        /// So much of the chain's own coin is worth the rule's share of it. `None`: it may cost anything.
        share: Option<RawAmount>,
    },
}

/// Why nothing is done about a coin that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    NeedsGas,
    GasUnderWay,
    GasNotFinal,
    /// No rule asks for gas, and there is too little for the fee.
    GasBelowFee {
        has: RawAmount,
        needs: RawAmount,
    },
    SweepUnderWay,
    SweepNotFinal,
    TooDear {
        cost: RawAmount,
    },
    NoPrice,
    NoFees,
    NoHome,
    /// There is a treasury, and nothing goes there until people have looked: its key may be stolen.
    HomeStopped,
    /// The same of the address itself. Gas for it would be the thief's, and its sweep could not be sent.
    GroupStopped,
    /// The row says another address than its key gives.
    RowDiffers,
    TokensFirst,
    /// Its own sweep takes the coin that fees are paid in.
    NativeFirst,
    FeeEatsIt,
    CoolDown {
        until: Timestamp,
    },
    MostPerHour,
    ChainSuspended,
    CoinSuspended,
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsGas => f.write_str("it waits for gas"),
            Self::GasUnderWay => f.write_str("its gas is under way"),
            Self::GasNotFinal => f.write_str("its gas is not final yet"),
            Self::GasBelowFee { has, needs } => {
                write!(
                    f,
                    "it has {has} of the chain's coin, a sweep is sent with {needs}, and no gas rule asks for more"
                )
            }
            Self::SweepUnderWay => f.write_str("its sweep is under way"),
            Self::SweepNotFinal => f.write_str("its last sweep is not final yet"),
            // Without the figure: it changes with every block, and what is written of an address must not.
            Self::TooDear { .. } => f.write_str("bringing it home would cost more than the rule's share of its value"),
            Self::NoPrice => {
                f.write_str("the rule has a share of the value, and a price is missing or old: bursar treasury price")
            }
            Self::NoFees => f.write_str("what transactions cost cannot be asked now"),
            Self::NoHome => f.write_str("the treasury file has no active treasury wallet on this chain"),
            Self::HomeStopped => f.write_str(
                "the treasury wallet is stopped, and nothing goes there until two people let it: bursar lane resume",
            ),
            Self::GroupStopped => f.write_str(
                "its wallet group is stopped, and nothing is done until two people let it: bursar lane resume",
            ),
            Self::RowDiffers => f.write_str("its row says another address than its key gives: bursar wallet verify"),
            Self::NativeFirst => f.write_str("the coin that its fees are paid in is being swept"),
            Self::TokensFirst => f.write_str("its tokens go first: they need the coin for their fees"),
            Self::FeeEatsIt => f.write_str("it is less than its own fee"),
            Self::CoolDown { until } => write!(f, "the rule rests for this address until {until}"),
            Self::MostPerHour => f.write_str("the rule has made as many jobs as it may in an hour"),
            Self::ChainSuspended => f.write_str("the chain is suspended"),
            Self::CoinSuspended => f.write_str("its coin is suspended"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Coins that wait for the chain's own coin.
    pub needs_gas: Vec<CoinId>,
    /// Coins that a rule wants swept.
    pub needs_consolidation: Vec<CoinId>,
    pub actions: Vec<TreasuryAction>,
    /// One for each coin at most.
    pub waits: Vec<(CoinId, Waits)>,
}

impl Sight<'_> {
    pub fn decide(&self, wallet: &WalletNow, budget: &mut Budget) -> Verdict {
        let mut verdict = Verdict::default();
        let rule = |coin: &CoinNow| {
            self.sweeps.iter().find(|rule| {
                rule.coin == coin.coin && coin.spendable > RawAmount::ZERO && rule.condition.holds(coin.spendable)
            })
        };
        let tokens: Vec<(&CoinNow, &SweepRule)> =
            wallet.tokens.iter().filter_map(|coin| Some((coin, rule(coin)?))).collect();
        let native = rule(&wallet.native);
        verdict.needs_consolidation.extend(tokens.iter().map(|(coin, _)| coin.coin));
        verdict.needs_consolidation.extend(native.map(|_| wallet.native.coin));
        let halted = if wallet.stopped { Err(Waits::GroupStopped) } else { self.home };
        if let Err(why) = halted {
            verdict.waits.extend(verdict.needs_consolidation.iter().map(|coin| (*coin, why)));
            return verdict;
        }
        let Some(fees) = self.fees else {
            // Whether it needs gas does not depend on what that costs.
            if self.gas_rule(wallet).is_some() {
                verdict.needs_gas.extend(tokens.iter().map(|(coin, _)| coin.coin));
            }
            let matched = tokens.iter().copied().chain(native.map(|rule| (&wallet.native, rule)));
            verdict.waits.extend(matched.map(|(coin, rule)| (coin.coin, self.without_fees(wallet, coin, rule))));
            return verdict;
        };
        self.tokens(wallet, &tokens, fees, budget, &mut verdict);
        if let Some(rule) = native {
            let busy = !tokens.is_empty() || wallet.tokens.iter().any(|coin| !coin.sweep.is_settled());
            match self.native(wallet, rule, busy, fees.native, budget) {
                Ok(action) => verdict.actions.push(action),
                Err(why) => verdict.waits.push((wallet.native.coin, why)),
            }
        }
        verdict
    }

    /// Nobody can say what it costs, or it has something under way, so nobody was asked.
    fn without_fees(&self, wallet: &WalletNow, coin: &CoinNow, rule: &SweepRule) -> Waits {
        self.may_sweep(wallet, coin, rule).err().unwrap_or(Waits::NoFees)
    }

    fn gas_rule(&self, wallet: &WalletNow) -> Option<&GasRule> {
        self.gas.iter().find(|rule| rule.condition.holds(wallet.native.spendable))
    }

    /// Tokens need the chain's own coin for their fees: first it is brought, and only when that is final they go.
    fn tokens(
        &self,
        wallet: &WalletNow,
        tokens: &[(&CoinNow, &SweepRule)],
        fees: &Fees,
        budget: &mut Budget,
        verdict: &mut Verdict,
    ) {
        let gas = self.gas_rule(wallet);
        let mut worth = Vec::new();
        for (coin, rule) in tokens {
            let fee = fees.tokens.get(&coin.coin).copied();
            match fee.ok_or_else(|| self.without_fees(wallet, coin, rule)).and_then(|fee| {
                let cost = if gas.is_some() { plus(fees.native.expected, fee.expected) } else { fee.expected };
                self.pays(wallet, coin, rule, cost).map(|()| Fee { expected: cost, ..fee })
            }) {
                Ok(fee) => worth.push((*coin, *rule, fee)),
                Err(why) => verdict.waits.push((coin.coin, why)),
            }
        }
        if worth.is_empty() {
            return;
        }
        if let Some(rule) = gas {
            let why = match self.top_up(wallet, rule, fees.native, budget) {
                Ok(action) => {
                    verdict.actions.push(action);
                    Waits::NeedsGas
                }
                Err(why) => why,
            };
            verdict.waits.extend(worth.iter().map(|(coin, ..)| (coin.coin, why)));
            verdict.needs_gas.extend(worth.iter().map(|(coin, ..)| coin.coin));
            return;
        }
        let mut left = wallet.native.spendable;
        // What another token's sweep is sent with is spoken for until the books have seen what it took.
        for coin in wallet.tokens.iter().filter(|coin| !coin.sweep.is_settled()) {
            let fee = fees.tokens.get(&coin.coin).map_or(fees.most(), |fee| fee.most);
            left = left.checked_sub(fee).unwrap_or(RawAmount::ZERO);
        }
        for (coin, rule, fee) in worth {
            match self.sweep(wallet, (coin, rule), left, fee, budget) {
                Ok(action) => {
                    left = left.checked_sub(fee.most).unwrap_or(RawAmount::ZERO);
                    verdict.actions.push(action);
                }
                Err(why) => verdict.waits.push((coin.coin, why)),
            }
        }
    }

    /// Whether it is worth its cost. What is under way is not asked again.
    fn pays(&self, wallet: &WalletNow, coin: &CoinNow, rule: &SweepRule, cost: RawAmount) -> Result<(), Waits> {
        let Some(most) = rule.most_cost_bps else { return Ok(()) };
        let (own, worth) = (self.worths.get(&wallet.native.coin), self.worths.get(&coin.coin));
        let (Some(own), Some(worth)) = (own, worth) else { return Err(Waits::NoPrice) };
        match is_too_dear((cost, *own), (coin.spendable, *worth), most) {
            None => Err(Waits::NoPrice),
            Some(true) => Err(Waits::TooDear { cost }),
            Some(false) => Ok(()),
        }
    }

    /// What bringing it home may cost: prices may rise until it is sent.
    fn share(&self, wallet: &WalletNow, coin: &CoinNow, rule: &SweepRule) -> Option<RawAmount> {
        let (own, worth) = (self.worths.get(&wallet.native.coin)?, self.worths.get(&coin.coin)?);
        coins_of_share(*own, (coin.spendable, *worth), rule.most_cost_bps?)
    }

    fn top_up(
        &self,
        wallet: &WalletNow,
        rule: &GasRule,
        fee: Fee,
        budget: &mut Budget,
    ) -> Result<TreasuryAction, Waits> {
        match wallet.topup {
            Former::Open => return Err(Waits::GasUnderWay),
            Former::Ended { settled: false, .. } => return Err(Waits::GasNotFinal),
            Former::Ended { at, settled: true, failures } => {
                if let Some(until) = resting(at, failures, &rule.pace, self.now) {
                    return Err(Waits::CoolDown { until });
                }
            }
            Former::Never => {}
        }
        acts(self.acting, wallet.native.coin)?;
        if !budget.take(rule.id, &rule.pace) {
            return Err(Waits::MostPerHour);
        }
        let (amount, priority) = (rule.amount, rule.pace.priority);
        Ok(TreasuryAction::TopUp { rule: rule.id, amount, priority, expected_cost: fee.expected })
    }

    fn sweep(
        &self,
        wallet: &WalletNow,
        (coin, rule): (&CoinNow, &SweepRule),
        left: RawAmount,
        fee: Fee,
        budget: &mut Budget,
    ) -> Result<TreasuryAction, Waits> {
        // What it would pay its fee with may be gone when its turn comes.
        if !wallet.native.sweep.is_settled() {
            return Err(Waits::NativeFirst);
        }
        self.may_sweep(wallet, coin, rule)?;
        if left < fee.most {
            return Err(Waits::GasBelowFee { has: left, needs: fee.most });
        }
        acts(self.acting, coin.coin)?;
        if !budget.take(rule.id, &rule.pace) {
            return Err(Waits::MostPerHour);
        }
        let share = self.share(wallet, coin, rule);
        let (rule, coin, amount, priority) = (rule.id, coin.coin, coin.spendable, rule.pace.priority);
        Ok(TreasuryAction::Sweep { rule, coin, amount, priority, expected_cost: fee.expected, share })
    }

    /// The chain's own coin goes last, and what its fee may take stays.
    fn native(
        &self,
        wallet: &WalletNow,
        rule: &SweepRule,
        busy: bool,
        fee: Fee,
        budget: &mut Budget,
    ) -> Result<TreasuryAction, Waits> {
        let coin = &wallet.native;
        if busy {
            return Err(Waits::TokensFirst);
        }
        self.may_sweep(wallet, coin, rule)?;
        self.pays(wallet, coin, rule, fee.expected)?;
        // A quarter more than it may cost: it must be able to offer more when nobody mines it, out of what it leaves.
        let left = plus(fee.most, RawAmount::from_u256(fee.most.to_u256().wrapping_shr(2)));
        let amount = coin.spendable.checked_sub(left).filter(|amount| *amount > RawAmount::ZERO);
        let amount = amount.ok_or(Waits::FeeEatsIt)?;
        acts(self.acting, coin.coin)?;
        if !budget.take(rule.id, &rule.pace) {
            return Err(Waits::MostPerHour);
        }
        let share = self.share(wallet, coin, rule);
        let (rule, priority) = (rule.id, rule.pace.priority);
        Ok(TreasuryAction::Sweep { rule, coin: coin.coin, amount, priority, expected_cost: fee.expected, share })
    }

    /// Neither gas nor an earlier sweep is still to come.
    fn may_sweep(&self, wallet: &WalletNow, coin: &CoinNow, rule: &SweepRule) -> Result<(), Waits> {
        former_sweep(coin.sweep, &rule.pace, self.now)?;
        match wallet.topup {
            Former::Open => Err(Waits::GasUnderWay),
            Former::Ended { settled: false, .. } => Err(Waits::GasNotFinal),
            Former::Ended { settled: true, .. } | Former::Never => Ok(()),
        }
    }
}

/// Nothing is swept while an earlier sweep is open, or not final, or has ended a moment ago.
pub(super) fn former_sweep(sweep: Former, pace: &Pace, now: Timestamp) -> Result<(), Waits> {
    match sweep {
        Former::Never => Ok(()),
        Former::Open => Err(Waits::SweepUnderWay),
        Former::Ended { settled: false, .. } => Err(Waits::SweepNotFinal),
        Former::Ended { at, settled: true, failures } => {
            resting(at, failures, pace, now).map_or(Ok(()), |until| Err(Waits::CoolDown { until }))
        }
    }
}

/// Nothing is moved of what people have suspended.
pub(super) fn acts(acting: Option<&HashSet<CoinId>>, coin: CoinId) -> Result<(), Waits> {
    match acting {
        None => Err(Waits::ChainSuspended),
        Some(acting) if acting.contains(&coin) => Ok(()),
        Some(_) => Err(Waits::CoinSuspended),
    }
}

fn plus(one: RawAmount, other: RawAmount) -> RawAmount {
    one.checked_add(other).unwrap_or(one.max(other))
}

#[cfg(test)]
#[path = "wallet_tests.rs"]
mod tests;
