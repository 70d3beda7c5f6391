use std::collections::BTreeSet;

use custody::bitcoin::{
    Costs, Plan, Recipient, ReplacementTerms, ScriptKind, SpendError, Strategy, Target, Waiting, child, plan,
    replacement, select,
};
use proptest::prelude::*;
use store::utxo::{AddressKind, Candidate, Coin};
use tx::bitcoin::{PackageFacts, cpfp_fee};

use crate::world::*;

/// A transaction that was signed and sent.
fn waiting(coins: &[Coin], target: &Target) -> Option<(Plan, Waiting)> {
    let selection = select(&candidates(coins), target).ok()?;
    let plan = plan(&coins_of(coins, &selection.chosen), target, &change_script(target.change)).expect("a plan");
    let change = plan.change.map(|at| plan.outputs[at].clone());
    let weight = signed(&plan, 0).weight().to_wu();
    let waiting = Waiting { coins: plan.coins.clone(), recipients: target.recipients.clone(), change, weight };
    assert_eq!(waiting.fee(), Ok(plan.fee));
    Some((plan, waiting))
}

fn paid_to_others(plan: &Plan) -> Vec<Recipient> {
    let outputs = plan.outputs.iter().enumerate();
    outputs.filter(|(at, _)| Some(*at) != plan.change).map(|(_, output)| output.clone()).collect()
}

/// The rules, by the signed bytes of both.
fn check_replacement(old: &Plan, waiting: &Waiting, new: &Plan, terms: ReplacementTerms, rate: u64) {
    let inputs: BTreeSet<_> = new.coins.iter().map(|coin| coin.outpoint).collect();
    assert!(old.coins.iter().all(|coin| inputs.contains(&coin.outpoint)));
    assert_eq!(paid_to_others(new), paid_to_others(old));
    let transaction = signed(new, 0);
    let size = u64::try_from(transaction.vsize()).expect("a size");
    assert!(new.fee >= old.fee + terms.evicted_fee + (terms.increment * size).div_ceil(1_000), "rules 3 and 4");
    assert!(new.fee >= terms.at_least);
    assert!(new.fee * 1_000 >= rate * size);
    let weight = transaction.weight().to_wu();
    assert!(
        u128::from(new.fee) * u128::from(waiting.weight) > u128::from(old.fee) * u128::from(weight),
        "a better rate"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_replacement_pays_the_same_and_keeps_the_rules(
        coins in coins(vec![AddressKind::P2wpkh, AddressKind::P2tr], 8),
        more in prop::collection::vec((amount(7), kind(), any::<bool>()), 0..6),
        amounts in prop::collection::vec(600_u64..3_000_000, 1..4),
        costs in costs(),
        faster in rate(),
        change in script_kind(),
        evicted_fee in prop_oneof![Just(0_u64), 1..5_000_u64],
        at_least in prop_oneof![Just(0_u64), 1..50_000_u64],
    ) {
        let Some((old, waiting)) = waiting(&coins, &target(&amounts, costs, change)) else { return Ok(()) };
        let terms = ReplacementTerms { evicted_fee, increment: 1_000, at_least };
        let target = replacement(&waiting, terms, Costs { rate: faster, ..costs }, change).expect("a target");
        let more: Vec<(Coin, bool)> = (100..).zip(more).map(|(number, (amount, kind, confirmed))| {
            (coin(number, i64::try_from(amount).expect("an amount"), kind), confirmed)
        }).collect();
        let offered: Vec<Candidate> =
            more.iter().map(|(coin, confirmed)| Candidate { confirmed: *confirmed, ..candidate(coin) }).collect();
        let script = change_script(change);
        match select(&offered, &target) {
            Ok(selection) => {
                let extra: Vec<Coin> = more.iter().filter(|(coin, _)| selection.chosen.contains(&coin.id)).map(|(coin, confirmed)| {
                    assert!(confirmed, "BIP 125, rule 2");
                    coin.clone()
                }).collect();
                prop_assert_eq!(extra.is_empty(), plan(&[], &target, &script).is_ok());
                let new = plan(&extra, &target, &script).expect("what was chosen can be built");
                prop_assert_eq!((new.fee, new.change.is_some()), (selection.fee, selection.change.is_some()));
                check_replacement(&old, &waiting, &new, terms, faster);
            }
            Err(SpendError::InsufficientFunds { .. }) => {
                let confirmed: Vec<Coin> = more.iter().filter(|(_, confirmed)| *confirmed).map(|(coin, _)| coin.clone()).collect();
                let worth: Vec<Coin> = confirmed.into_iter().filter(|coin| {
                    u64::try_from(coin.amount).expect("an amount") > fee_for(faster.max(1_000), 272) + 2
                }).collect();
                prop_assert!(plan(&worth, &target, &script).is_err());
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn a_child_brings_its_package_to_the_rate(
        own in (amount(7), kind()),
        more in prop::collection::vec((amount(7), kind()), 0..5),
        size in 100_u64..20_000,
        fee_rate in 0_u64..20_000,
        costs in costs(),
        to in script_kind(),
    ) {
        let ancestors = PackageFacts { count: 2, size, fee: fee_rate * size / 1_000 };
        let stuck = coin(1, i64::try_from(own.0).unwrap(), own.1);
        let target = child(stuck.clone(), ancestors, 1_000, costs, to);
        let more: Vec<Coin> = (100..).zip(more).map(|(number, (amount, kind))| coin(number, i64::try_from(amount).expect("an amount"), kind)).collect();
        let script = change_script(to);
        match select(&candidates(&more), &target) {
            Ok(selection) => {
                let child = plan(&coins_of(&more, &selection.chosen), &target, &script).expect("a plan");
                prop_assert_eq!(child.outputs.len(), 1);
                prop_assert_eq!(&child.outputs[0].script, &script);
                prop_assert!(child.coins.contains(&stuck));
                let transaction = signed(&child, 0);
                let own_size = u64::try_from(transaction.vsize()).expect("a size");
                prop_assert!((ancestors.fee + child.fee) * 1_000 >= costs.rate * (size + own_size));
                prop_assert!(child.fee * 1_000 >= 1_000 * own_size, "nodes pass it on");
                let least = cpfp_fee(ancestors, child.weight.div_ceil(4), costs.rate, 1_000);
                prop_assert_eq!(child.fee, least, "and no more than that");
                prop_assert_eq!(selection.strategy == Strategy::Kept, child.coins.len() == 1);
            }
            Err(SpendError::FeeOverCap { fee, cap }) => {
                // More than the chain's crate builds: 0.1 BTC per 1,000 virtual bytes.
                prop_assert!(fee > cap && cap < 10_000_000);
                // The fee is for the ancestors and for the child itself, whose six inputs make less than 500 bytes.
                prop_assert!(costs.rate * (size + 500) > 1_000 * cap);
            }
            Err(refusal) => {
                prop_assert_eq!(refusal.code(), "UTXO_INSUFFICIENT_FUNDS");
                prop_assert!(plan(&[], &target, &script).is_err());
            }
        }
    }
}

fn bumped(waiting: &Waiting, rate: u64, terms: ReplacementTerms, more: &[Coin]) -> Result<Plan, SpendError> {
    let target = replacement(waiting, terms, Costs { rate, ..COSTS }, ScriptKind::P2tr)?;
    let selection = select(&candidates(more), &target)?;
    plan(&coins_of(more, &selection.chosen), &target, &change_script(target.change))
}

const INCREMENT: ReplacementTerms = ReplacementTerms { evicted_fee: 0, increment: 1_000, at_least: 0 };

#[test]
fn the_fee_comes_from_the_change_then_from_further_coins() {
    let coins = [coin(1, 120_000, AddressKind::P2wpkh)];
    let (old, waiting) = waiting(&coins, &target(&[100_000], COSTS, ScriptKind::P2wpkh)).unwrap();
    let old_change = waiting.change.clone().unwrap();
    let more = [coin(2, 50_000, AddressKind::P2tr), coin(3, 30_000, AddressKind::P2tr)];

    let from_change = bumped(&waiting, 40_000, INCREMENT, &more).unwrap();
    assert_eq!(from_change.coins, old.coins);
    let change = &from_change.outputs[from_change.change.unwrap()];
    assert_eq!(change.script, old_change.script);
    assert_eq!(old_change.amount - change.amount, from_change.fee - old.fee);

    // 20,000 for 110 virtual bytes: all of the change, and not enough for an output besides.
    let all_change = bumped(&waiting, 180_000, INCREMENT, &more).unwrap();
    assert_eq!((all_change.coins.len(), all_change.change, all_change.fee), (1, None, 20_000));

    let further = bumped(&waiting, 300_000, INCREMENT, &more).unwrap();
    assert_eq!(further.coins.len(), 2);
    assert!(further.coins.contains(&more[0]), "the largest");
    check_replacement(&old, &waiting, &further, INCREMENT, 300_000);

    let refused = bumped(&waiting, 5_000_000, INCREMENT, &more).unwrap_err();
    assert_eq!(refused.code(), "UTXO_INSUFFICIENT_FUNDS");
}

#[test]
fn all_inputs_stay_though_one_would_do() {
    let coins = [coin(1, 120_000, AddressKind::P2wpkh), coin(2, 90_000, AddressKind::P2tr)];
    let target = target(&[80_000], COSTS, ScriptKind::P2wpkh);
    let old = plan(&coins, &target, &change_script(target.change)).unwrap();
    let change = old.change.map(|at| old.outputs[at].clone());
    let weight = signed(&old, 0).weight().to_wu();
    let waiting = Waiting { coins: coins.to_vec(), recipients: target.recipients, change, weight };
    let new = bumped(&waiting, 20_000, INCREMENT, &[]).unwrap();
    assert_eq!(new.coins, old.coins);
    check_replacement(&old, &waiting, &new, INCREMENT, 20_000);
}

#[test]
fn a_replacement_pays_for_all_that_leaves() {
    let coins = [coin(1, 200_000, AddressKind::P2tr)];
    let (old, waiting) = waiting(&coins, &target(&[100_000], COSTS, ScriptKind::P2tr)).unwrap();
    let new = bumped(&waiting, 0, INCREMENT, &[]).unwrap();
    assert_eq!(new.fee, old.fee + fee_for(1_000, new.weight), "even when a lower rate is wanted");
    let with_child = bumped(&waiting, 0, ReplacementTerms { evicted_fee: 7_000, ..INCREMENT }, &[]).unwrap();
    assert_eq!(with_child.fee, new.fee + 7_000);
    let demanded = bumped(&waiting, 0, ReplacementTerms { at_least: 33_333, ..INCREMENT }, &[]).unwrap();
    assert_eq!(demanded.fee, 33_333);
}

#[test]
fn a_replacement_that_grows_keeps_a_better_rate() {
    // The old one has no change and a high rate; its replacement needs a second input.
    let coins = [coin(1, 150_000, AddressKind::P2wpkh)];
    let high = Costs { rate: 400_000, ..COSTS };
    let (old, waiting) = waiting(&coins, &target(&[105_000], high, ScriptKind::P2wpkh)).unwrap();
    assert_eq!(old.change, None);
    let new = bumped(&waiting, 1_000, INCREMENT, &[coin(2, 900_000, AddressKind::P2wpkh)]).unwrap();
    assert!(new.coins.len() == 2 && new.fee > old.fee + 3 * fee_for(1_000, new.weight));
    check_replacement(&old, &waiting, &new, INCREMENT, 1_000);
}

#[test]
fn an_old_transaction_that_cannot_be_is_refused() {
    let coins = [coin(1, 120_000, AddressKind::P2wpkh)];
    let (_, waiting) = waiting(&coins, &target(&[100_000], COSTS, ScriptKind::P2wpkh)).unwrap();
    let code = |waiting: Waiting| replacement(&waiting, INCREMENT, COSTS, ScriptKind::P2tr).unwrap_err().code();
    assert_eq!(code(Waiting { coins: vec![], ..waiting.clone() }), "UTXO_BAD_TARGET");
    assert_eq!(code(Waiting { weight: 0, ..waiting.clone() }), "UTXO_BAD_TARGET");
    assert_eq!(code(Waiting { recipients: pay(&[200_000]), ..waiting.clone() }), "UTXO_BAD_TARGET");
    let odd = Some(Recipient { amount: 1_000, script: vec![0x6a] });
    assert_eq!(code(Waiting { change: odd, ..waiting.clone() }), "UTXO_BAD_TARGET");
    let foreign = replacement(
        &Waiting { coins: vec![coin(1, 120_000, AddressKind::Other)], ..waiting },
        INCREMENT,
        COSTS,
        ScriptKind::P2tr,
    );
    assert_eq!(select(&[], &foreign.unwrap()).unwrap_err().code(), "UTXO_BAD_TARGET");
}

#[test]
fn an_output_too_small_to_push_gets_company() {
    let stuck = coin(1, 1_000, AddressKind::P2wpkh);
    let ancestors = PackageFacts { count: 1, size: 141, fee: 141 };
    let target = child(stuck, ancestors, 1_000, Costs { rate: 20_000, ..COSTS }, ScriptKind::P2wpkh);
    assert_eq!(select(&[], &target).unwrap_err().code(), "UTXO_INSUFFICIENT_FUNDS");
    let more = coin(2, 80_000, AddressKind::P2wpkh);
    let waiting = Candidate { confirmed: false, ..candidate(&more) };
    assert_eq!(select(&[waiting], &target).unwrap_err().code(), "UTXO_INSUFFICIENT_FUNDS", "parents of its own");
    let selection = select(&[candidate(&more)], &target).unwrap();
    assert_eq!(selection.chosen, [more.id]);
    assert_eq!(selection.change, Some(81_000 - selection.fee));
}
