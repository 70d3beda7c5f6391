use std::collections::BTreeSet;

use custody::bitcoin::{Costs, Recipient, ScriptKind, Selection, SpendError, Strategy, Target, chooser, plan, select};
use proptest::prelude::*;
use store::utxo::{AddressKind, Candidate, Coin};
use tx::bitcoin::MOST_WEIGHT;

use crate::world::*;

const ALL: [AddressKind; 3] = [AddressKind::P2wpkh, AddressKind::P2tr, AddressKind::Other];
const OURS: [AddressKind; 2] = [AddressKind::P2wpkh, AddressKind::P2tr];

/// The coins that bring more than they cost, largest first.
fn usable(coins: &[Coin], rate: u64) -> Vec<Coin> {
    let worth = |coin: &Coin| {
        let weight: i128 = if coin.kind == AddressKind::P2tr { 230 } else { 272 };
        i128::from(coin.amount) * 4_000 - weight * i128::from(rate)
    };
    let mut all: Vec<Coin> =
        coins.iter().filter(|coin| coin.kind != AddressKind::Other && worth(coin) > 0).cloned().collect();
    all.sort_by_key(|coin| -worth(coin));
    all
}

/// Whether the largest coins, as many as it takes, can pay.
fn enough(coins: &[Coin], target: &Target) -> bool {
    let usable = usable(coins, target.costs.rate);
    (1..=usable.len()).any(|count| {
        let weight = weight_of(&usable[..count], &target.recipients);
        held(&usable[..count]) >= paid(&target.recipients) + fee_for(target.costs.rate, weight)
    })
}

fn check(coins: &[Coin], target: &Target, selection: &Selection) {
    let distinct: BTreeSet<_> = selection.chosen.iter().collect();
    assert_eq!(distinct.len(), selection.chosen.len());
    let chosen = coins_of(coins, &selection.chosen);
    assert!(chosen.iter().all(|coin| coin.kind != AddressKind::Other));
    let mut outputs = target.recipients.clone();
    outputs.extend(selection.change.map(|amount| Recipient { amount, script: change_script(target.change) }));
    assert_eq!(held(&chosen), paid(&outputs) + selection.fee);
    let weight = weight_of(&chosen, &outputs);
    assert_eq!(selection.weight, weight);
    assert!(selection.fee >= fee_for(target.costs.rate, weight));
    assert!(selection.fee <= target.costs.most_fee);
    assert!(selection.change.is_none_or(|change| change >= if target.change == ScriptKind::P2tr { 330 } else { 294 }));
    if selection.change.is_some() {
        assert_eq!(selection.fee, fee_for(target.costs.rate, weight), "what is beyond the fee is change");
    }
    let planned = plan(&chosen, target, &change_script(target.change)).expect("what was chosen can be built");
    assert_eq!((planned.fee, planned.weight), (selection.fee, selection.weight));
    assert_eq!(planned.change.map(|at| planned.outputs[at].amount), selection.change);
}

/// What a choice costs by the measure of each search. `None`: not for that search.
fn scores(plan: &custody::bitcoin::Plan, costs: Costs, change: ScriptKind) -> (Option<i128>, i128) {
    let inputs: u64 = plan.coins.iter().map(|coin| if coin.kind == AddressKind::P2tr { 230 } else { 272 }).sum();
    let premium = i128::from(costs.rate) - i128::from(costs.long_term_rate);
    let given_away = i128::from(plan.fee) - i128::from(fee_for(costs.rate, plan.weight));
    let waste = (i128::from(inputs) * premium).div_euclid(4_000) + given_away;
    let spend = fee_for(costs.long_term_rate, if change == ScriptKind::P2tr { 230 } else { 272 });
    match plan.change {
        None => (Some(waste), i128::from(plan.fee)),
        Some(_) => (None, i128::from(plan.fee) + i128::from(spend)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn money_adds_up_and_enough_is_enough(
        coins in coins(ALL.to_vec(), 40),
        amounts in prop::collection::vec(amount(8), 1..6),
        costs in costs(),
        change in script_kind(),
        cap in prop::option::weighted(0.2, 1_u64..5_000),
    ) {
        let target = target(&amounts, Costs { most_fee: cap.unwrap_or(costs.most_fee), ..costs }, change);
        match select(&candidates(&coins), &target) {
            Ok(selection) => {
                check(&coins, &target, &selection);
                prop_assert!(enough(&coins, &target));
            }
            Err(SpendError::InsufficientFunds { available, missing }) => {
                prop_assert!(!enough(&coins, &target));
                prop_assert_eq!(available, held(&usable(&coins, costs.rate)));
                let fee = fee_for(costs.rate, weight_of(&usable(&coins, costs.rate), &target.recipients));
                prop_assert!(missing > 0);
                prop_assert_eq!(available + missing, paid(&target.recipients) + fee);
            }
            Err(SpendError::Dust { amount, least }) => {
                prop_assert!(amount < least && amounts.contains(&amount));
            }
            Err(SpendError::FeeOverCap { fee, cap: at }) => {
                prop_assert!(cap == Some(at) && fee > at);
                prop_assert!(enough(&coins, &target));
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }

    /// With few coins the searches look at everything, so nothing that they leave is better than what they find.
    #[test]
    fn searches_find_the_best(
        coins in prop_oneof![coins(OURS.to_vec(), 8), alike(8)],
        amounts in prop_oneof![
            prop::collection::vec(330_u64..2_000_000, 1..3),
            prop::collection::vec(20_000_u64..90_000, 1..3),
        ],
        costs in costs(),
        change in script_kind(),
    ) {
        let target = target(&amounts, costs, change);
        let Ok(selection) = select(&candidates(&coins), &target) else { return Ok(()) };
        let usable = usable(&coins, costs.rate);
        let script = change_script(change);
        let (mut least_waste, mut least_fee) = (None, i128::MAX);
        for subset in 1_u32..1 << usable.len() {
            let some: Vec<Coin> = (0..usable.len()).filter(|at| subset >> at & 1 == 1).map(|at| usable[at].clone()).collect();
            if let Ok(plan) = plan(&some, &target, &script) {
                let (waste, fee) = scores(&plan, costs, change);
                least_waste = [least_waste, waste].into_iter().flatten().min();
                least_fee = least_fee.min(fee);
            }
        }
        let found = plan(&coins_of(&coins, &selection.chosen), &target, &script).expect("built");
        let (waste, fee) = scores(&found, costs, change);
        match selection.strategy {
            Strategy::Changeless => prop_assert_eq!(waste, least_waste),
            Strategy::LowestFee | Strategy::LargestFirst => {
                prop_assert_eq!(least_waste, None);
                prop_assert_eq!(fee, least_fee);
            }
            Strategy::Kept => prop_assert!(false, "nothing was kept"),
        }
    }

    #[test]
    fn nothing_panics(
        amounts in prop::collection::vec(any::<i64>(), 0..20),
        wanted in prop::collection::vec(any::<u64>(), 0..4),
        rate in any::<u64>(),
        long_term_rate in 0..20_000_000_u64,
        most_fee in any::<u64>(),
    ) {
        let rate = if most_fee % 2 == 0 { rate } else { rate % 10_000_000 };
        let wanted: Vec<u64> = wanted.iter().map(|amount| if most_fee % 3 == 0 { *amount } else { amount % 2_100_000_000_000_000 }).collect();
        let coins: Vec<Coin> = (1..).zip(amounts).map(|(number, amount)| coin(number, amount, AddressKind::P2tr)).collect();
        let target = target(&wanted, Costs { rate, long_term_rate, most_fee }, ScriptKind::P2tr);
        let chosen = select(&candidates(&coins), &target).map(|selection| coins_of(&coins, &selection.chosen));
        if let Ok(chosen) = chosen {
            prop_assert!(plan(&chosen, &target, &change_script(ScriptKind::P2tr)).is_ok());
        }
        prop_assert!(plan(&coins, &target, &[]).is_err());
    }
}

fn found(coins: &[Coin], target: &Target) -> Selection {
    let selection = select(&candidates(coins), target).expect("enough");
    check(coins, target, &selection);
    selection
}

#[test]
fn a_coin_that_fits_leaves_no_change() {
    let fits = 100_000 + fee_for(10_000, 4 * (8 + 2) + 2 + 272 + 4 * 31);
    let coins = [
        coin(1, 5_000_000, AddressKind::P2wpkh),
        coin(2, i64::try_from(fits).unwrap(), AddressKind::P2wpkh),
        coin(3, 150_000, AddressKind::P2wpkh),
    ];
    let selection = found(&coins, &target(&[100_000], COSTS, ScriptKind::P2wpkh));
    assert_eq!((selection.strategy, selection.change), (Strategy::Changeless, None));
    assert_eq!((selection.chosen, selection.fee), (vec![coins[1].id], fits - 100_000));
}

#[test]
fn without_a_fit_the_cheapest_inputs_are_taken() {
    let coins = [
        // The largest coin is the heavier one.
        coin(1, 700_000, AddressKind::P2wpkh),
        coin(2, 600_001, AddressKind::P2tr),
        coin(3, 60_000, AddressKind::P2tr),
    ];
    let selection = found(&coins, &target(&[500_000], COSTS, ScriptKind::P2tr));
    assert_eq!((selection.strategy, selection.chosen), (Strategy::LowestFee, vec![coins[1].id]));
    assert!(selection.change.is_some());
}

#[test]
fn change_that_costs_more_to_spend_than_it_holds_is_not_made() {
    let one = [coin(1, 1_002_000, AddressKind::P2wpkh)];
    let costly = Costs { rate: 1_000, long_term_rate: 100_000, most_fee: 100_000 };
    let given_away = found(&one, &target(&[1_000_000], costly, ScriptKind::P2wpkh));
    assert_eq!((given_away.change, given_away.fee), (None, 2_000));
    let capped = found(&one, &target(&[1_000_000], Costs { most_fee: 500, ..costly }, ScriptKind::P2wpkh));
    assert_eq!(capped.change, Some(2_000 - capped.fee), "the cap holds: the change is kept");
    let cheap = found(&one, &target(&[1_000_000], Costs { long_term_rate: 1_000, ..costly }, ScriptKind::P2wpkh));
    assert_eq!(cheap.change, Some(2_000 - cheap.fee));
}

#[test]
fn amounts_beyond_the_precision_of_floats_are_exact() {
    // One satoshi less than needed; an f32 cannot tell the two from each other at this size.
    let target = target(&[2_000_000_000_000_000], Costs { rate: 1_000, ..COSTS }, ScriptKind::P2tr);
    let fee = fee_for(1_000, 4 * (8 + 2) + 2 + 230 + 4 * 31);
    let held = |more: u64| vec![coin(1, i64::try_from(2_000_000_000_000_000 + more).unwrap(), AddressKind::P2tr)];
    assert_eq!(found(&held(fee), &target).fee, fee);
    let short = select(&candidates(&held(fee - 1)), &target);
    assert_eq!(short, Err(SpendError::InsufficientFunds { available: 2_000_000_000_000_000 + fee - 1, missing: 1 }));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let coins = candidates(&[coin(1, 1_000_000, AddressKind::P2wpkh)]);
    let code = |target: &Target| select(&coins, target).expect_err("refused").code();
    let of = |amounts: &[u64], costs: Costs| target(amounts, costs, ScriptKind::P2tr);
    assert_eq!(select(&coins, &of(&[], COSTS)), Err(SpendError::NothingToPay));
    assert_eq!(select(&coins, &of(&[10_000, 329], COSTS)), Err(SpendError::Dust { amount: 329, least: 330 }));
    assert_eq!(code(&of(&[293], COSTS)), "UTXO_BAD_TARGET");
    assert!(select(&coins, &of(&[294], COSTS)).is_ok());
    assert_eq!(code(&of(&[u64::MAX, 1_000], COSTS)), "UTXO_BAD_TARGET");
    assert_eq!(code(&of(&[1_000], Costs { rate: 10_000_001, ..COSTS })), "UTXO_BAD_TARGET");
    assert_eq!(code(&of(&[1_000_000], COSTS)), "UTXO_INSUFFICIENT_FUNDS");
    assert_eq!(code(&of(&[1_000], Costs { most_fee: 5, ..COSTS })), "UTXO_FEE_OVER_CAP");
    assert_eq!(code(&of(&[1_000; 3_300], COSTS)), "UTXO_TOO_LARGE");
}

#[test]
fn too_many_small_coins_are_too_large() {
    // All the same: what makes the walk of a search slow if nothing is done about it.
    let coins: Vec<Coin> = (1..=1_800).map(|number| coin(number, 10_000, AddressKind::P2tr)).collect();
    let want = |amount| target(&[amount], Costs { rate: 1_000, ..COSTS }, ScriptKind::P2tr);
    let fits = found(&coins, &want(1_600 * 9_900));
    assert!(fits.weight <= MOST_WEIGHT && fits.chosen.len() > 1_580);
    let refused = select(&candidates(&coins), &want(1_790 * 9_900)).expect_err("too heavy");
    assert!(matches!(refused, SpendError::TooLarge { weight } if weight > MOST_WEIGHT), "{refused}");
    let poor = select(&candidates(&coins), &want(1_800 * 10_000)).expect_err("too poor");
    assert_eq!(poor.code(), "UTXO_INSUFFICIENT_FUNDS");
}

#[test]
fn a_candidate_that_is_given_twice_counts_once() {
    let one = candidate(&coin(1, 60_000, AddressKind::P2wpkh));
    let refused = select(&[one, one], &target(&[100_000], COSTS, ScriptKind::P2tr)).expect_err("60,000 only");
    assert!(matches!(refused, SpendError::InsufficientFunds { available: 60_000, .. }), "{refused:?}");
}

#[test]
fn the_chooser_says_why_it_finds_nothing() {
    let target = target(&[100_000], COSTS, ScriptKind::P2tr);
    let mut refused = None;
    let rich: [Candidate; 1] = [candidate(&coin(1, 200_000, AddressKind::P2tr))];
    let mut choose = chooser(&target, &mut refused);
    assert_eq!(choose(&[]), None);
    drop(choose);
    let missing = 100_000 + fee_for(10_000, 4 * (8 + 2) + 2 + 4 * 31);
    assert_eq!(refused, Some(SpendError::InsufficientFunds { available: 0, missing }));
    assert_eq!(target.wanted(), Ok(i64::try_from(missing).unwrap()));
    assert_eq!(chooser(&target, &mut refused)(&rich), Some(vec![rich[0].id]));
    assert_eq!(refused, None);
}
