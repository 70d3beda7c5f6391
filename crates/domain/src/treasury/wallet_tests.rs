//! Amounts are in millionths: TRX and USDT on TRON.

use ruint::aliases::U256;

use super::*;
use crate::treasury::{Condition, Fee, Operator, Pace, Price};

const TRX: CoinId = CoinId(1);
const USDT: CoinId = CoinId(2);
const USDC: CoinId = CoinId(3);
const GAS: RuleId = RuleId::Gas(1);
const SWEEP: RuleId = RuleId::Sweep(2);

fn whole(units: u64) -> RawAmount {
    RawAmount::from_u256(U256::from(units * 1_000_000))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn fee(expected: u64, most: u64) -> Fee {
    Fee { expected: whole(expected), most: whole(most) }
}

fn pace(priority: i64) -> Pace {
    Pace { priority, cool_down_us: 60_000_000, most_per_hour: 100 }
}

struct Rules {
    gas: Vec<GasRule>,
    sweeps: Vec<SweepRule>,
    worths: HashMap<CoinId, Worth>,
    fees: Option<Fees>,
}

/// If TRX < 2, top up 10; if USDT > 100, sweep; 2 % at most.
fn rules() -> Rules {
    let condition = |operator, units| Condition { operator, threshold: whole(units) };
    let worth = |coin, micros| (coin, Worth { coin, decimals: 6, price: Some(Price(micros)) });
    let sweep = |id, coin, units| SweepRule {
        id: RuleId::Sweep(id),
        coin,
        condition: condition(Operator::Above, units),
        most_cost_bps: Some(200),
        pace: pace(400),
    };
    let gas = GasRule { id: GAS, condition: condition(Operator::Below, 2), amount: whole(10), pace: pace(300) };
    Rules {
        gas: vec![gas],
        sweeps: vec![sweep(2, USDT, 100), sweep(3, USDC, 100), sweep(4, TRX, 50)],
        worths: HashMap::from([worth(TRX, 250_000), worth(USDT, 1_000_000), worth(USDC, 1_000_000)]),
        fees: Some(Fees { native: fee(1, 2), tokens: HashMap::from([(USDT, fee(4, 6)), (USDC, fee(4, 6))]) }),
    }
}

impl Rules {
    fn decide(&self, wallet: &WalletNow) -> Verdict {
        self.within(wallet, &mut Budget::default(), at(1_000))
    }

    fn within(&self, wallet: &WalletNow, budget: &mut Budget, now: Timestamp) -> Verdict {
        self.acting(wallet, budget, now, Some(&HashSet::from([TRX, USDT, USDC])))
    }

    fn acting(
        &self,
        wallet: &WalletNow,
        budget: &mut Budget,
        now: Timestamp,
        acting: Option<&HashSet<CoinId>>,
    ) -> Verdict {
        let sight = Sight {
            gas: &self.gas,
            sweeps: &self.sweeps,
            worths: &self.worths,
            fees: self.fees.as_ref(),
            home: Ok(()),
            acting,
            now,
        };
        sight.decide(wallet, budget)
    }
}

fn coin(coin: CoinId, units: u64) -> CoinNow {
    CoinNow { coin, spendable: whole(units), sweep: Former::Never }
}

fn wallet(trx: u64, usdt: u64) -> WalletNow {
    WalletNow { native: coin(TRX, trx), tokens: vec![coin(USDT, usdt)], topup: Former::Never, stopped: false }
}

fn top_up() -> TreasuryAction {
    TreasuryAction::TopUp { rule: GAS, amount: whole(10), priority: 300, expected_cost: whole(1) }
}

fn sweep(units: u64) -> TreasuryAction {
    let (rule, amount) = (SWEEP, whole(units));
    // 2 % of it, at four TRX for one.
    let share = Some(RawAmount::from_u256(U256::from(units * 80_000)));
    TreasuryAction::Sweep { rule, coin: USDT, amount, priority: 400, expected_cost: whole(4), share }
}

#[test]
fn the_four_cycles_of_the_source() {
    let rules = rules();
    // Cycle 1: low gas, so gas is queued and the sweep waits for it.
    let first = rules.decide(&wallet(0, 480));
    assert_eq!(first.needs_gas, [USDT]);
    assert_eq!(first.needs_consolidation, [USDT]);
    assert_eq!(first.actions, [top_up()]);
    assert_eq!(first.waits, [(USDT, Waits::NeedsGas)]);
    // Cycle 2: the job is on its way, then in a block that is not final.
    for (topup, why) in [
        (Former::Open, Waits::GasUnderWay),
        (Former::Ended { at: at(1), settled: false, failures: 0 }, Waits::GasNotFinal),
    ] {
        let verdict = rules.decide(&WalletNow { topup, ..wallet(0, 480) });
        assert_eq!((verdict.needs_gas, verdict.actions), (vec![USDT], vec![]));
        assert_eq!(verdict.waits, [(USDT, why)]);
        // Even if the balance shows it already.
        let verdict = rules.decide(&WalletNow { topup, ..wallet(10, 480) });
        assert_eq!((verdict.needs_gas, verdict.actions), (vec![], vec![]));
        assert_eq!(verdict.waits, [(USDT, why)]);
    }
    // Cycles 3 and 4: the balance is synced, gas is sufficient, and the sweep is queued.
    let fourth =
        rules.decide(&WalletNow { topup: Former::Ended { at: at(1), settled: true, failures: 0 }, ..wallet(10, 480) });
    assert_eq!(fourth.needs_gas, []);
    assert_eq!(fourth.needs_consolidation, [USDT]);
    assert_eq!(fourth.actions, [sweep(480)]);
    assert_eq!(fourth.waits, []);
}

#[test]
fn gas_is_brought_only_where_something_is_to_be_swept() {
    let verdict = rules().decide(&wallet(0, 100));
    assert_eq!(verdict, Verdict::default(), "100 is not above 100, and an empty address needs no gas");
}

#[test]
fn a_second_top_up_rests_until_the_first_is_final_and_cooled_down() {
    let rules = rules();
    let after = |topup, now| rules.within(&WalletNow { topup, ..wallet(0, 480) }, &mut Budget::default(), now);
    let ended = Former::Ended { at: at(1_000), settled: true, failures: 0 };
    assert_eq!(after(ended, at(1_059)).waits.first(), Some(&(USDT, Waits::CoolDown { until: at(1_060) })));
    assert_eq!(after(ended, at(1_060)).actions, [top_up()]);
    let late = Former::Ended { at: at(1_000), settled: false, failures: 0 };
    assert_eq!(after(late, at(9_000)).actions, [], "however long ago it was");
}

#[test]
fn a_sweep_that_is_open_or_not_final_is_not_made_again() {
    let rules = rules();
    let after = |sweep| {
        let mut wallet = wallet(10, 480);
        wallet.tokens[0].sweep = sweep;
        rules.decide(&wallet)
    };
    assert_eq!(after(Former::Open).waits, [(USDT, Waits::SweepUnderWay)]);
    assert_eq!(after(Former::Ended { at: at(1), settled: false, failures: 0 }).waits, [(USDT, Waits::SweepNotFinal)]);
    assert_eq!(after(Former::Ended { at: at(1), settled: true, failures: 0 }).actions, [sweep(480)]);
}

#[test]
fn what_costs_more_than_its_share_waits_and_gets_no_gas() {
    let mut rules = rules();
    // 4 TRX for the sweep and 1 for its gas at 0.25 are 1.25; 2 % of 110 USDT are 2.20.
    assert_eq!(rules.decide(&wallet(0, 110)).actions, [top_up()]);
    rules.fees.as_mut().unwrap().tokens.insert(USDT, fee(9, 10));
    let dear = rules.decide(&wallet(0, 110));
    assert_eq!((dear.needs_gas, dear.needs_consolidation, dear.actions), (vec![], vec![USDT], vec![]));
    assert_eq!(dear.waits, [(USDT, Waits::TooDear { cost: whole(10) })]);
    // Without the price of gas there is nothing to compare; without fees nothing is known.
    rules.worths.remove(&TRX);
    assert_eq!(rules.decide(&wallet(0, 110)).waits, [(USDT, Waits::NoPrice)]);
    rules.fees.as_mut().unwrap().tokens.clear();
    assert_eq!(rules.decide(&wallet(0, 110)).waits, [(USDT, Waits::NoFees)]);
    rules.fees = None;
    assert_eq!(rules.decide(&wallet(0, 110)).waits, [(USDT, Waits::NoFees)]);
}

#[test]
fn tokens_share_the_gas_that_there_is() {
    let rules = rules();
    let two = |trx| {
        let mut wallet = wallet(trx, 480);
        wallet.tokens.push(coin(USDC, 480));
        rules.decide(&wallet)
    };
    assert_eq!(two(12).actions.len(), 2);
    let short = two(11);
    assert_eq!(short.actions, [sweep(480)]);
    assert_eq!(short.waits, [(USDC, Waits::GasBelowFee { has: whole(5), needs: whole(6) })]);
    // A rule that brings less than a fee would bring it for ever: it is told instead.
    assert_eq!(two(3).actions, []);
}

#[test]
fn the_fee_coin_goes_last_and_leaves_its_fee() {
    let rules = rules();
    let native = |units: u64| TreasuryAction::Sweep {
        rule: RuleId::Sweep(4),
        coin: TRX,
        // Half a coin more than it may cost stays, so that more can be offered for it.
        amount: whole(units).checked_sub(RawAmount::from_u256(U256::from(500_000_u64))).unwrap(),
        priority: 400,
        expected_cost: whole(1),
        // 2 % of sixty.
        share: Some(RawAmount::from_u256(U256::from(1_200_000_u64))),
    };
    assert_eq!(rules.decide(&wallet(60, 0)).actions, [native(58)]);
    let both = rules.decide(&wallet(60, 480));
    assert_eq!(both.actions, [sweep(480)]);
    assert_eq!(both.waits, [(TRX, Waits::TokensFirst)]);
    let mut open = wallet(60, 0);
    open.tokens[0].sweep = Former::Open;
    assert_eq!(rules.decide(&open).waits, [(TRX, Waits::TokensFirst)]);
    let mut eaten = rules;
    eaten.sweeps[2].condition.threshold = whole(0);
    eaten.sweeps[2].most_cost_bps = None;
    assert_eq!(eaten.decide(&wallet(2, 0)).waits, [(TRX, Waits::FeeEatsIt)]);
}

#[test]
fn a_pass_makes_no_more_than_an_hour_allows() {
    let rules = rules();
    let mut budget = Budget::new([(GAS, 98)]);
    let made = |budget: &mut Budget| rules.within(&wallet(0, 480), budget, at(1_000)).actions.len();
    assert_eq!([made(&mut budget), made(&mut budget), made(&mut budget)], [1, 1, 0]);
    let verdict = rules.within(&wallet(0, 480), &mut budget, at(1_000));
    assert_eq!(verdict.waits.first(), Some(&(USDT, Waits::MostPerHour)));
}

#[test]
fn the_first_rule_that_matches_decides() {
    let mut rules = rules();
    let first = GasRule { id: RuleId::Gas(9), amount: whole(99), pace: pace(1), ..rules.gas[0].clone() };
    rules.gas.insert(0, first);
    let verdict = rules.decide(&wallet(0, 480));
    assert!(matches!(verdict.actions[..], [TreasuryAction::TopUp { rule: RuleId::Gas(9), .. }]), "{verdict:?}");
}

#[test]
fn tokens_wait_for_a_sweep_of_the_coin_that_pays_their_fees() {
    let rules = rules();
    for native in [Former::Open, Former::Ended { at: at(1), settled: false, failures: 0 }] {
        let mut wallet = wallet(60, 480);
        wallet.native.sweep = native;
        let verdict = rules.decide(&wallet);
        assert_eq!(verdict.actions, []);
        assert!(verdict.waits.contains(&(USDT, Waits::NativeFirst)), "{verdict:?}");
    }
}

#[test]
fn what_failed_is_tried_later_and_later() {
    let rules = rules();
    let mut wallet = wallet(10, 480);
    let mut after = |failures, now| {
        wallet.tokens[0].sweep = Former::Ended { at: at(1_000), settled: true, failures };
        rules.within(&wallet, &mut Budget::default(), at(now)).actions
    };
    assert_eq!(after(0, 1_060), [sweep(480)]);
    assert_eq!(after(1, 1_119), []);
    assert_eq!(after(1, 1_120), [sweep(480)]);
    assert_eq!(after(5, 1_000 + 32 * 60 - 1), []);
}

#[test]
fn without_a_treasury_nothing_is_brought_and_without_fees_a_need_stays_a_need() {
    let (rules, acting) = (rules(), HashSet::from([TRX, USDT]));
    let sight = |home, fees| Sight {
        gas: &rules.gas,
        sweeps: &rules.sweeps,
        worths: &rules.worths,
        fees,
        home,
        acting: Some(&acting),
        now: at(1_000),
    };
    // A treasury whose key may be stolen is none.
    for why in [Waits::NoHome, Waits::HomeStopped] {
        let homeless = sight(Err(why), rules.fees.as_ref()).decide(&wallet(0, 480), &mut Budget::default());
        assert_eq!((homeless.actions, homeless.waits), (vec![], vec![(USDT, why)]));
    }
    let unknown = sight(Ok(()), None).decide(&wallet(0, 480), &mut Budget::default());
    assert_eq!((unknown.needs_gas, unknown.actions, unknown.waits), (vec![USDT], vec![], vec![(USDT, Waits::NoFees)]));
}

#[test]
fn what_is_suspended_waits_and_takes_nothing_of_the_hour() {
    let rules = rules();
    let mut budget = Budget::new([(GAS, 99), (SWEEP, 99)]);
    let mut decide = |wallet: &WalletNow, acting: Option<&[CoinId]>| {
        let acting: Option<HashSet<CoinId>> = acting.map(|coins| coins.iter().copied().collect());
        rules.acting(wallet, &mut budget, at(1_000), acting.as_ref())
    };
    // Gas is of the chain's own coin.
    for (acting, why) in [(None, Waits::ChainSuspended), (Some([USDT].as_slice()), Waits::CoinSuspended)] {
        let verdict = decide(&wallet(0, 480), acting);
        assert_eq!((verdict.needs_gas, verdict.actions, verdict.waits), (vec![USDT], vec![], vec![(USDT, why)]));
    }
    for (acting, why) in [(None, Waits::ChainSuspended), (Some([TRX].as_slice()), Waits::CoinSuspended)] {
        let verdict = decide(&wallet(10, 480), acting);
        assert_eq!((verdict.needs_gas, verdict.actions, verdict.waits), (vec![], vec![], vec![(USDT, why)]));
    }
    let native = decide(&wallet(60, 0), Some([USDT].as_slice()));
    assert_eq!((native.actions, native.waits), (vec![], vec![(TRX, Waits::CoinSuspended)]));
    // Something else says more.
    let open = WalletNow { topup: Former::Open, ..wallet(0, 480) };
    assert_eq!(decide(&open, None).waits, [(USDT, Waits::GasUnderWay)]);
    // Nothing of what the hour allows was used.
    assert_eq!(decide(&wallet(0, 480), Some([TRX].as_slice())).actions, [top_up()]);
    assert_eq!(decide(&wallet(10, 480), Some([USDT].as_slice())).actions, [sweep(480)]);
}

#[test]
fn gas_of_a_sweep_that_is_open_is_not_counted_twice() {
    let mut rules = rules();
    let two = |rules: &Rules, trx, usdt| {
        let mut wallet = wallet(trx, 480);
        wallet.tokens[0].sweep = usdt;
        wallet.tokens.push(coin(USDC, 480));
        rules.decide(&wallet)
    };
    let usdc = |verdict: &Verdict| {
        verdict.actions.iter().any(|one| matches!(one, TreasuryAction::Sweep { coin, .. } if *coin == USDC))
    };
    // Each is sent with six.
    for under_way in [Former::Open, Former::Ended { at: at(1), settled: false, failures: 0 }] {
        let short = two(&rules, 11, under_way);
        assert!(!usdc(&short), "{short:?}");
        assert!(short.waits.contains(&(USDC, Waits::GasBelowFee { has: whole(5), needs: whole(6) })), "{short:?}");
        assert!(usdc(&two(&rules, 12, under_way)));
    }
    assert_eq!(two(&rules, 12, Former::Ended { at: at(1), settled: true, failures: 0 }).actions.len(), 2);
    // What is under way is not asked about: then as much as the dearest.
    rules.fees.as_mut().unwrap().tokens.remove(&USDT);
    assert!(!usdc(&two(&rules, 11, Former::Open)) && usdc(&two(&rules, 12, Former::Open)));
}

/// Whoever has stolen the keys of a group would have the gas as soon as it comes, and the next, for as long as the sweep cannot be sent.
#[test]
fn nothing_is_brought_to_a_group_that_is_stopped() {
    let rules = rules();
    for wallet in [wallet(0, 480), wallet(40, 480), wallet(100, 0)] {
        let verdict = rules.decide(&WalletNow { stopped: true, ..wallet.clone() });
        assert_eq!((verdict.needs_gas, verdict.actions), (vec![], vec![]));
        let needs = if wallet.native.spendable > whole(50) { TRX } else { USDT };
        assert_eq!(verdict.needs_consolidation, [needs], "it is looked at again");
        assert_eq!(verdict.waits, [(needs, Waits::GroupStopped)]);
        assert_eq!(rules.decide(&wallet).actions.len(), 1);
    }
}
