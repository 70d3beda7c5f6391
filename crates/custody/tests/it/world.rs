//! Coins of the devnet's keys, payments to others, and an honest signer.

use bitcoin::consensus::deserialize;
use bitcoin::hashes::{Hash as _, sha256};
use bitcoin::{Network, Script, ScriptBuf, Transaction};
use custody::bitcoin::{Aim, Costs, Plan, Recipient, ScriptKind, Target, unsigned};
use devnet::Key;
use proptest::prelude::*;
use proptest::sample::select;
use store::utxo::{AddressKind, Candidate, Coin, Hash, OutPoint, UtxoId};
use tx::bitcoin::{estimated_weight, finalize, transaction};
use tx::{Address, Draft, Input, Payment};

pub const NETWORK: Network = Network::Regtest;
/// Those who sign.
const KEYS: u32 = 6;

pub fn script_of(key: u32, kind: AddressKind) -> Vec<u8> {
    let key = Key::numbered(key % KEYS);
    match kind {
        AddressKind::P2wpkh => key.bitcoin(NETWORK).script_bytes().expect("a Bitcoin address"),
        AddressKind::P2tr => key.taproot(NETWORK).script_bytes().expect("a Bitcoin address"),
        AddressKind::Other => ScriptBuf::new_op_return([7; 4]).into_bytes(),
    }
}

pub fn coin(number: u32, amount: i64, kind: AddressKind) -> Coin {
    let hash = Hash(sha256::Hash::hash(&number.to_be_bytes()).to_byte_array());
    Coin {
        id: UtxoId(i64::from(number)),
        outpoint: OutPoint { hash, index: number % 3 },
        amount,
        kind,
        script: script_of(number, kind),
        account: 0,
        path: None,
    }
}

pub fn candidate(coin: &Coin) -> Candidate {
    Candidate { id: coin.id, amount: coin.amount, kind: coin.kind, confirmed: true }
}

pub fn candidates(coins: &[Coin]) -> Vec<Candidate> {
    coins.iter().map(candidate).collect()
}

pub fn coins_of(coins: &[Coin], chosen: &[UtxoId]) -> Vec<Coin> {
    chosen.iter().map(|id| coins.iter().find(|coin| coin.id == *id).expect("a coin that was offered").clone()).collect()
}

/// Scripts of all five kinds that have an owner.
pub fn foreign_script(number: u8) -> Vec<u8> {
    let hash = sha256::Hash::hash(&[number]);
    let bytes = hash.as_byte_array();
    match number % 5 {
        0 => [&[0, 20], &bytes[..20]].concat(),
        1 => [&[0, 32], &bytes[..]].concat(),
        2 => [&[0x76, 0xa9, 20], &bytes[..20], &[0x88, 0xac]].concat(),
        3 => [&[0xa9, 20], &bytes[..20], &[0x87]].concat(),
        _ => Key::numbered(1_000 + u32::from(number)).taproot(NETWORK).script_bytes().expect("a Bitcoin address"),
    }
}

pub fn pay(amounts: &[u64]) -> Vec<Recipient> {
    let numbers = (0_u8..=255).cycle();
    amounts.iter().zip(numbers).map(|(&amount, number)| Recipient { amount, script: foreign_script(number) }).collect()
}

pub const COSTS: Costs = Costs { rate: 10_000, long_term_rate: 5_000, most_fee: 10_000_000 };

pub fn target(amounts: &[u64], costs: Costs, change: ScriptKind) -> Target {
    Target { recipients: pay(amounts), change, costs, aim: Aim::Pay }
}

pub fn change_script(kind: ScriptKind) -> Vec<u8> {
    match kind {
        ScriptKind::P2wpkh => script_of(3, AddressKind::P2wpkh),
        ScriptKind::P2tr => script_of(3, AddressKind::P2tr),
    }
}

/// By chain's own reckoning, from scripts.
pub fn weight_of(coins: &[Coin], outputs: &[Recipient]) -> u64 {
    let spent = coins.iter().map(|coin| Script::from_bytes(&coin.script));
    estimated_weight(spent, outputs.iter().map(|output| Script::from_bytes(&output.script))).expect("ours to spend")
}

pub fn held(coins: &[Coin]) -> u64 {
    coins.iter().map(|coin| u64::try_from(coin.amount).expect("an amount")).sum()
}

pub fn paid(outputs: &[Recipient]) -> u64 {
    outputs.iter().map(|output| output.amount).sum()
}

/// The least fee, written down once more.
pub fn fee_for(rate: u64, weight: u64) -> u64 {
    u64::try_from((u128::from(rate) * u128::from(weight.div_ceil(4))).div_ceil(1_000)).expect("a fee")
}

pub fn signed(plan: &Plan, lock_time: u32) -> Transaction {
    let mut psbt = unsigned(plan, NETWORK, lock_time).expect("a PSBT").bytes;
    for key in 0..KEYS {
        psbt = Key::numbered(key).sign_psbt(&psbt);
    }
    deserialize(&finalize(&psbt).expect("all inputs signed")).expect("a transaction")
}

/// These coins of a key pay these.
pub fn spend(key: u32, coins: &[Input], payments: &[(Address, u64)]) -> Vec<u8> {
    let payment = |(to, satoshi): &(Address, u64)| Payment {
        to: to.clone(),
        coin: tx::Coin::Native,
        amount: satoshi.to_string().parse().expect("digits"),
    };
    let draft =
        Draft::Bitcoin { inputs: coins.to_vec(), payments: payments.iter().map(payment).collect(), lock_time: 0 };
    let unsigned = transaction::build(&draft, NETWORK).expect("a good draft");
    finalize(&Key::numbered(key).sign_psbt(&unsigned.bytes)).expect("the key's own coins")
}

// ---- random worlds ---------------------------------------------------------------------------------------------

/// As many small amounts as large ones.
pub fn amount(most_digits: u32) -> impl Strategy<Value = u64> {
    (0..most_digits, 100_u64..1_000).prop_map(|(zeros, lead)| lead * 10_u64.pow(zeros) + u64::from(zeros) * 37)
}

pub fn kind() -> impl Strategy<Value = AddressKind> {
    select(vec![AddressKind::P2wpkh, AddressKind::P2tr])
}

pub fn script_kind() -> impl Strategy<Value = ScriptKind> {
    select(vec![ScriptKind::P2wpkh, ScriptKind::P2tr])
}

/// From a tenth of a satoshi to 400 per virtual byte.
pub fn rate() -> impl Strategy<Value = u64> {
    (0..4_u32, 100..400_u64).prop_map(|(zeros, lead)| lead * 10_u64.pow(zeros))
}

pub fn costs() -> impl Strategy<Value = Costs> {
    (rate(), rate()).prop_map(|(rate, long_term_rate)| Costs { rate, long_term_rate, most_fee: 100_000_000 })
}

pub fn coins(kinds: Vec<AddressKind>, most: usize) -> impl Strategy<Value = Vec<Coin>> {
    prop::collection::vec((amount(9), select(kinds)), 0..most).prop_map(|all| {
        let numbered = (1_u32..).zip(all);
        numbered.map(|(number, (amount, kind))| coin(number, i64::try_from(amount).expect("an amount"), kind)).collect()
    })
}

/// Coins of about the same size, some of them equal: many ways to pay without change, some better than others.
pub fn alike(most: usize) -> impl Strategy<Value = Vec<Coin>> {
    prop::collection::vec((8_i64..60, kind()), 1..most)
        .prop_map(|all| (1..).zip(all).map(|(number, (amount, kind))| coin(number, amount * 1_500, kind)).collect())
}
