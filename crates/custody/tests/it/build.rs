use bitcoin::psbt::Psbt;
use bitcoin::{Amount, Network};
use custody::bitcoin::{Plan, Recipient, SEQUENCE, ScriptKind, SpendError, Target, plan, select, unsigned};
use proptest::prelude::*;
use store::utxo::{AddressKind, Coin, Hash};
use tx::BuildError;

use crate::world::*;

fn planned(coins: &[Coin], target: &Target) -> Plan {
    let selection = select(&candidates(coins), target).expect("enough");
    plan(&coins_of(coins, &selection.chosen), target, &change_script(target.change)).expect("a plan")
}

/// Signs it, and holds what came out against what was planned.
fn check_signed(plan: &Plan, rate: u64) {
    let transaction = signed(plan, 700_123);
    let weight = transaction.weight().to_wu();
    let inputs = u64::try_from(plan.coins.len()).expect("a count");
    assert!(weight <= plan.weight && weight + 4 * inputs >= plan.weight, "{weight} of {}", plan.weight);
    let out: u64 = transaction.output.iter().map(|output| output.value.to_sat()).sum();
    let fee = held(&plan.coins) - out;
    assert_eq!(fee, plan.fee);
    let size = u64::try_from(transaction.vsize()).expect("a size");
    assert!(fee * 1_000 >= rate * size, "{fee} for {size}");
    assert_eq!(transaction.lock_time.to_consensus_u32(), 700_123);
    assert!(transaction.input.iter().all(|input| input.sequence.0 == SEQUENCE && input.sequence.is_rbf()));
    let outputs = transaction.output.iter().map(|output| (output.value.to_sat(), output.script_pubkey.as_bytes()));
    assert!(outputs.eq(plan.outputs.iter().map(|output| (output.amount, &output.script[..]))));
    assert!(transaction.output.iter().all(|output| output.value >= output.script_pubkey.minimal_non_dust()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_is_planned_can_be_signed(
        coins in coins(vec![AddressKind::P2wpkh, AddressKind::P2tr], 12),
        amounts in prop::collection::vec(600_u64..5_000_000, 1..6),
        costs in costs(),
        change in script_kind(),
    ) {
        let target = target(&amounts, costs, change);
        if select(&candidates(&coins), &target).is_ok() {
            check_signed(&planned(&coins, &target), costs.rate);
        }
    }
}

#[test]
fn one_two_and_a_hundred_are_paid_from_each_kind_of_coin() {
    let kinds = [vec![AddressKind::P2wpkh], vec![AddressKind::P2tr], vec![AddressKind::P2wpkh, AddressKind::P2tr]];
    for kinds in kinds {
        let coins: Vec<Coin> =
            (1..=20).zip(kinds.iter().cycle()).map(|(number, &kind)| coin(number, 500_000, kind)).collect();
        for count in [1, 2, 100] {
            for change in [ScriptKind::P2wpkh, ScriptKind::P2tr] {
                let amounts: Vec<u64> = (0..count).map(|at| 70_000 + at).collect();
                let target = target(&amounts, COSTS, change);
                let plan = planned(&coins, &target);
                let extra = usize::from(plan.change.is_some());
                assert_eq!(plan.outputs.len(), target.recipients.len() + extra);
                assert!(target.recipients.iter().all(|recipient| plan.outputs.contains(recipient)));
                check_signed(&plan, COSTS.rate);
            }
        }
    }
}

#[test]
fn the_psbt_shows_what_each_input_spends() {
    let coins = [coin(1, 70_000, AddressKind::P2wpkh), coin(2, 80_000, AddressKind::P2tr)];
    let plan = plan(&coins, &target(&[100_000], COSTS, ScriptKind::P2tr), &change_script(ScriptKind::P2tr)).unwrap();
    let psbt = Psbt::deserialize(&unsigned(&plan, NETWORK, 0).unwrap().bytes).unwrap();
    for (input, coin) in psbt.inputs.iter().zip(&plan.coins) {
        let spent = input.witness_utxo.as_ref().expect("the output spent");
        assert_eq!(
            (spent.value, spent.script_pubkey.as_bytes()),
            (Amount::from_sat(held(std::slice::from_ref(coin))), &coin.script[..])
        );
        assert_eq!(input.sighash_type, None, "all inputs and outputs");
        assert!(input.tap_scripts.is_empty() && input.tap_merkle_root.is_none(), "by the key alone");
    }
}

/// BIP 69: inputs by the hash as it is printed, then by index; outputs by amount, then by script.
#[test]
fn the_order_follows_from_what_is_in_it() {
    let at = |number: u32, first: u8, last: u8, index: u32| {
        let mut coin = coin(number, 50_000, AddressKind::P2wpkh);
        let mut bytes = [9; 32];
        (bytes[0], bytes[31]) = (first, last);
        (coin.outpoint.hash, coin.outpoint.index) = (Hash(bytes), index);
        coin
    };
    let coins = [at(1, 2, 1, 0), at(2, 1, 3, 11), at(3, 1, 3, 2), at(4, 1, 2, 4)];
    let mut target = target(&[60_000, 20_000], COSTS, ScriptKind::P2wpkh);
    let twin = Recipient { amount: 20_000, script: foreign_script(5) };
    target.recipients.push(twin);
    let mut backwards = coins.clone();
    backwards.reverse();
    let script = change_script(ScriptKind::P2wpkh);
    let one = plan(&coins, &target, &script).unwrap();
    target.recipients.reverse();
    assert_eq!(one, plan(&backwards, &target, &script).unwrap());
    assert_eq!(one.coins.iter().map(|coin| coin.id.0).collect::<Vec<_>>(), [4, 3, 2, 1]);
    assert!(one.outputs.is_sorted_by(|a, b| (a.amount, &a.script) < (b.amount, &b.script)));
    assert_eq!(one.outputs[one.change.unwrap()].script, script);
    let transaction = signed(&one, 0);
    let spent: Vec<String> = transaction.input.iter().map(|input| input.previous_output.to_string()).collect();
    let planned: Vec<String> = one.coins.iter().map(|coin| coin.outpoint.to_string()).collect();
    assert_eq!(spent, planned, "the hashes are not turned round");
}

#[test]
fn what_contradicts_itself_is_not_planned() {
    let target = target(&[100_000], COSTS, ScriptKind::P2tr);
    let script = change_script(ScriptKind::P2tr);
    let good = coin(1, 200_000, AddressKind::P2wpkh);
    assert!(plan(std::slice::from_ref(&good), &target, &script).is_ok());
    let contradiction =
        |coins: &[Coin], script: &[u8]| matches!(plan(coins, &target, script), Err(SpendError::Contradiction(_)));
    assert!(contradiction(&[good.clone(), good.clone()], &script), "twice");
    assert!(contradiction(std::slice::from_ref(&good), &change_script(ScriptKind::P2wpkh)), "other change");
    assert!(contradiction(&[Coin { kind: AddressKind::P2tr, ..good.clone() }], &script), "another kind");
    assert!(contradiction(&[coin(2, 200_000, AddressKind::Other)], &script), "nobody's");
    assert!(contradiction(&[Coin { amount: -1, ..good.clone() }], &script), "less than nothing");
    let poor = plan(&[Coin { amount: 100_100, ..good.clone() }], &target, &script);
    assert!(matches!(poor, Err(SpendError::InsufficientFunds { available: 100_100, .. })), "{poor:?}");

    let plan = plan(&[good], &target, &script).unwrap();
    let lied = unsigned(&Plan { fee: plan.fee + 1, ..plan.clone() }, NETWORK, 0);
    assert!(matches!(lied, Err(SpendError::Contradiction(_))), "{lied:?}");
    let nowhere = Recipient { amount: 1_000, script: vec![0x6a, 1, 1] };
    let lost = Plan { outputs: vec![nowhere], ..plan.clone() };
    assert_eq!(unsigned(&lost, NETWORK, 0).map_err(|refusal| refusal.code()), Err("UTXO_BAD_TARGET"));
    let seconds = unsigned(&plan, NETWORK, 1_700_000_000);
    assert!(matches!(seconds, Err(SpendError::NotBuilt(BuildError::Inconsistent(_)))), "{seconds:?}");
    assert!(unsigned(&plan, Network::Bitcoin, 800_000).is_ok(), "scripts are the same on all networks");
}
