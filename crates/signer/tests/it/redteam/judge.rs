//! What can be mined of what was signed, counted by nobody's rules but the chains'.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bitcoin::Psbt;
use signer::digest::Digest32;
use signer::names::JobId;
use signer::{IntentKind, SignRequest};
use tx::Coin;

use super::Got;
use crate::world::*;

/// Of each job and round: to whom, how much, and which bytes.
type Rounds = BTreeMap<(JobId, u32), (BTreeSet<String>, i64, Vec<u8>)>;

/// Caps of the world's policy: a payment, an hour, a day.
fn caps(group: &str) -> (u128, u128, u128) {
    if group.starts_with("gas") { (100_000, 200_000, 300_000) } else { (1_000_000, 3_000_000, 10_000_000) }
}

fn fee_caps(chain: &str) -> (u128, u128) {
    let most = match chain {
        "bsc" => 9_000_000_000_000_000,
        "tron" => 200_000_000,
        _ => 100_000,
    };
    (most, most * 100)
}

/// What a payload takes on its chain, and what it costs, read by others' code.
struct Read {
    /// Two transactions that share one of these cannot both be mined.
    claims: BTreeSet<String>,
    fee: u128,
}

fn read(got: &Got) -> Read {
    use alloy_consensus::transaction::RlpEcdsaDecodableTx;
    use alloy_consensus::{TxEip1559, TxLegacy};
    use alloy_rlp::Decodable;
    use prost::Message as _;
    let request = &got.request;
    match request.chain.as_str() {
        "bsc" => {
            let (nonce, gas, price) = if request.payload[0] == 2 {
                let body = <TxEip1559 as RlpEcdsaDecodableTx>::rlp_decode(&mut &request.payload[1..]).unwrap();
                (body.nonce, body.gas_limit, body.max_fee_per_gas)
            } else {
                let body = TxLegacy::decode(&mut &request.payload[..]).unwrap();
                (body.nonce, body.gas_limit, body.gas_price)
            };
            let claims = BTreeSet::from([format!("{}/{}/{nonce}", request.group, request.index)]);
            Read { claims, fee: u128::from(gas) * price }
        }
        "tron" => {
            let raw_data = tx::tron::proto::Raw::decode(&request.payload[..]).unwrap();
            assert!(raw_data.expiration * 1_000 <= NOW + got.at + DAY, "good for longer than a day");
            // Each payload is a transaction of its own.
            let claims = BTreeSet::from([format!("{:?}", signer::digest::sha256(&request.payload))]);
            Read { claims, fee: u128::try_from(raw_data.fee_limit).unwrap() }
        }
        _ => {
            let psbt = Psbt::deserialize(&request.payload).unwrap();
            let claims = psbt.unsigned_tx.input.iter().map(|input| input.previous_output.to_string()).collect();
            let held: u64 = psbt.inputs.iter().map(|input| input.witness_utxo.as_ref().unwrap().value.to_sat()).sum();
            let paid: u64 = psbt.unsigned_tx.output.iter().map(|output| output.value.to_sat()).sum();
            Read { claims, fee: u128::from(held - paid) }
        }
    }
}

/// The most that any span of so long has of these.
fn most_within(events: &[(i64, u128)], span: i64) -> u128 {
    let mut events = events.to_vec();
    events.sort_unstable();
    let (mut most, mut sum, mut first) = (0, 0, 0);
    for last in 0..events.len() {
        sum += events[last].1;
        while events[last].0 - events[first].0 >= span {
            sum -= events[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

pub fn judge(got: &[Got], meant: &BTreeMap<Digest32, u32>, truth: &BTreeMap<(tx::TxHash, u32), u64>) -> String {
    let (mut free, mut fees) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
    // What was signed of a job in a round: all its transactions must exclude each other. One of each is counted.
    let mut rounds: Rounds = BTreeMap::new();
    let mut dearest: BTreeMap<String, (i64, u128, String)> = BTreeMap::new();
    let mut holders: BTreeMap<String, BTreeSet<JobId>> = BTreeMap::new();
    let mut used: BTreeMap<Digest32, BTreeSet<(JobId, u32, Vec<u8>)>> = BTreeMap::new();
    let mut said: BTreeMap<String, BTreeMap<usize, BTreeSet<u64>>> = BTreeMap::new();
    let mut paid: BTreeMap<(JobId, u32), tx::Payment> = BTreeMap::new();
    for one in got {
        let (request, chain) = (&one.request, one.request.chain.to_string());
        if chain != "tron" {
            crate::mutations::judge_but_cancels(request);
        }
        let read = read(one);
        let (most_fee, _) = fee_caps(&chain);
        assert!(read.fee <= most_fee, "{chain}: a fee of {}", read.fee);
        let slot = read.claims.first().unwrap().clone();
        let place = dearest.entry(slot).or_insert((one.at, 0, request.group.to_string()));
        place.1 = place.1.max(read.fee);
        if chain == "btc" {
            note_amounts(request, &mut said);
        }
        for intent in &request.intents {
            for claim in &read.claims {
                if let IntentKind::Pay { .. } = intent.kind {
                    holders.entry(claim.clone()).or_default().insert(intent.job);
                }
            }
            let IntentKind::Pay { payment, owner } = &intent.kind else { continue };
            let role = request.group.as_str().split('-').next().unwrap();
            let ours = owner.as_ref().is_some_and(|owner| own(owner.group.as_str(), owner.index) == payment.to);
            let far =
                owner.as_ref().is_some_and(|owner| owner.index > 9 && !owner.group.as_str().starts_with("deposit"));
            assert!(!far, "coins at a number that only the team knows");
            let owner_role = owner.as_ref().map_or("", |owner| owner.group.as_str().split('-').next().unwrap());
            match role {
                "deposit" => assert!(ours && ["hot", "treasury"].contains(&owner_role), "users' coins leave"),
                "gas" => assert!(ours && owner_role == "deposit" && payment.coin == Coin::Native, "gas leaves"),
                "treasury" => panic!("nobody approved anything of the treasury"),
                _ => {}
            }
            let round = (intent.job, intent.round);
            // What is signed again is the same payment: it is counted once.
            let before = paid.entry(round).or_insert_with(|| payment.clone());
            assert!(before == payment, "{round:?} pays something else when it is signed again");
            let fresh = match rounds.get_mut(&round) {
                Some((claims, expires, payload)) if chain == "tron" => {
                    // Not beside the one before, which is past when this one is asked for.
                    let again = *payload == request.payload;
                    assert!(again || *expires < NOW + one.at, "two TRON transactions of one job at a time");
                    let raw_data = <tx::tron::proto::Raw as prost::Message>::decode(&request.payload[..]).unwrap();
                    (*expires, *payload) = (raw_data.expiration * 1_000, request.payload.clone());
                    claims.extend(read.claims.clone());
                    !again
                }
                Some((claims, ..)) => {
                    *claims = claims.intersection(&read.claims).cloned().collect();
                    assert!(!claims.is_empty(), "{chain}: {round:?} can be mined twice");
                    false
                }
                None => {
                    let expires = if chain == "tron" {
                        <tx::tron::proto::Raw as prost::Message>::decode(&request.payload[..]).unwrap().expiration
                            * 1_000
                    } else {
                        0
                    };
                    rounds.insert(round, (read.claims.clone(), expires, request.payload.clone()));
                    true
                }
            };
            if !fresh {
                continue;
            }
            let amount = u128::try_from(payment.amount.to_u256()).unwrap();
            let digest = intent.digest();
            // What people approved is theirs, as often as they said. Everything else is the window's.
            let times = used.entry(digest).or_default();
            let mine = (intent.job, intent.round, request.payload.clone());
            let approved = meant.get(&digest).is_some_and(|most| {
                times.insert(mine);
                times.len() <= usize::try_from(*most).unwrap()
            });
            if !approved {
                let coin = format!("{}/{:?}", request.group, payment.coin);
                assert!(amount <= caps(role).0, "{coin}: {amount} at once");
                free.entry(coin).or_default().push((one.at, amount));
            }
        }
    }
    for (slot, jobs) in &holders {
        assert!(slot.contains(':') || jobs.len() <= 1, "{slot} pays {jobs:?}");
    }
    for (at, fee, group) in dearest.values() {
        fees.entry(group.clone()).or_default().push((*at, *fee));
    }
    whole_transactions(&said, got, truth);
    report(&free, &fees)
}

fn note_amounts(request: &SignRequest, said: &mut BTreeMap<String, BTreeMap<usize, BTreeSet<u64>>>) {
    let psbt = Psbt::deserialize(&request.payload).unwrap();
    let of_this = said.entry(psbt.unsigned_tx.compute_txid().to_string()).or_default();
    for (number, input) in psbt.inputs.iter().enumerate() {
        of_this.entry(number).or_default().insert(input.witness_utxo.as_ref().unwrap().value.to_sat());
    }
}

/// A signature of an input is good if the true amount was said for it, in whichever request. What all signatures are good for can be mined.
fn whole_transactions(
    said: &BTreeMap<String, BTreeMap<usize, BTreeSet<u64>>>,
    got: &[Got],
    truth: &BTreeMap<(tx::TxHash, u32), u64>,
) {
    let mut seen = BTreeSet::new();
    for one in got.iter().filter(|one| one.request.chain.as_str() == "btc") {
        let psbt = Psbt::deserialize(&one.request.payload).unwrap();
        let id = psbt.unsigned_tx.compute_txid().to_string();
        let (mut held, mut whole) = (0, true);
        for (number, input) in psbt.unsigned_tx.input.iter().enumerate() {
            let output = input.previous_output;
            let real = truth[&(tx::bitcoin::hash_of(output.txid), output.vout)];
            whole &= said[&id][&number].contains(&real);
            held += real;
        }
        if whole && seen.insert(id.clone()) {
            let paid: u64 = psbt.unsigned_tx.output.iter().map(|output| output.value.to_sat()).sum();
            assert!(u128::from(held - paid) <= fee_caps("btc").0, "{id} really costs {}", held - paid);
        }
    }
}

type Events = BTreeMap<String, Vec<(i64, u128)>>;

fn report(free: &Events, fees: &Events) -> String {
    let mut text = String::new();
    for (coin, events) in free {
        let (hour, day) = (most_within(events, HOUR), most_within(events, DAY));
        let (_, most_hour, most_day) = caps(coin);
        assert!(hour <= most_hour && day <= most_day, "{coin}: {hour} in an hour, {day} in a day");
        write!(text, "\n  {coin}: at most {hour} of {most_hour} in an hour, {day} of {most_day} in a day").unwrap();
    }
    for (group, events) in fees {
        let (_, most) = fee_caps(group.split('-').nth(1).unwrap());
        let day = most_within(events, DAY);
        assert!(day <= most, "{group}: fees of {day} in a day");
        write!(text, "\n  {group}: fees of at most {day} of {most} in a day").unwrap();
    }
    // Else it has hardly tried.
    let full = |coin: &str| free.get(coin).is_some_and(|events| most_within(events, HOUR) * 10 >= 6 * caps(coin).1);
    assert!(full("hot-bsc/Native") && full("hot-tron/Native"), "{text}");
    text
}
