//! Payloads changed at random: none is approved beyond its intent. The judge is other people's code: what was approved is
//! read here by alloy, prost and rust-bitcoin themselves, field by field, without a line of `tx` or of the signer.
//!
//! `BURSAR_TEST_MUTATIONS=1000000` for the long run.

use alloy_consensus::{TxEip1559, TxEip2930, TxLegacy};
use alloy_primitives::{TxKind, U256};
use alloy_rlp::Decodable;
use bitcoin::Psbt;
use domain::RawAmount;
use domain::random::Random;
use prost::Message as _;
use signer::{SignRequest, Verdict};
use tx::tron::proto::{Raw, TransferContract, TriggerSmartContract};
use tx::{Address, Coin};

use crate::readings::good;
use crate::world::*;

fn rounds() -> u64 {
    std::env::var("BURSAR_TEST_MUTATIONS").map_or(20_000, |text| text.parse().expect("a number"))
}

/// Changes one to four places: a bit, a byte, a byte more, a byte less, a piece from elsewhere.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.index(bytes.len());
        match random.below(6) {
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.below(256) as u8,
            3 => bytes.insert(at, random.below(256) as u8),
            4 => drop(bytes.remove(at)),
            _ => {
                let from = random.index(bytes.len());
                bytes[at] = bytes[from];
            }
        }
    }
}

#[test]
fn no_mutated_payload_is_approved_beyond_its_intent() {
    let mut random = Random::from_seed(16);
    let (mut signer, _) = signer();
    let bases = good();
    let (mut asked, mut approved, mut changed) = (0_u64, 0_u64, 0_u64);
    while asked < rounds() {
        // The whole day's window is used up by what is approved, so each signer lives for a while only.
        if asked % 500 == 0 {
            signer = crate::world::signer().0;
        }
        let base = &bases[random.index(bases.len())];
        let mut request = base.clone();
        mutate(&mut request.payload, &mut random);
        request.id = format!("m-{asked}").parse().unwrap();
        for (place, intent) in request.intents.iter_mut().enumerate() {
            intent.job = job(i64::try_from(asked).unwrap() * 10 + i64::try_from(place).unwrap());
        }
        asked += 1;
        if let Verdict::Approved { approved: given, .. } = ask(&mut signer, &request, 0) {
            assert_eq!(given.payload(), request.payload);
            approved += 1;
            changed += u64::from(request.payload != base.payload);
            judge(&request);
        }
    }
    println!("{asked} mutated payloads, {approved} approved within their intents, {changed} of them changed");
    // Else the judge had nothing to judge: a nonce or an expiry may differ.
    assert!(changed > asked / 1_000, "{changed} of {asked}");
}

/// Each bit of each payload, one after the other.
#[test]
fn no_single_bit_changes_what_is_paid() {
    let mut changed = 0;
    for base in good() {
        let (mut signer, _) = signer();
        for bit in 0..base.payload.len() * 8 {
            let mut request = base.clone();
            request.payload[bit / 8] ^= 1 << (bit % 8);
            request.id = format!("b-{bit}").parse().unwrap();
            for (place, intent) in request.intents.iter_mut().enumerate() {
                intent.job = job(i64::try_from(bit * 10 + place).unwrap());
            }
            if ask(&mut signer, &request, 0).approved().is_some() {
                changed += 1;
                judge(&request);
            }
        }
    }
    assert!(changed > 100, "{changed}");
}

/// The same of payments alone: a cancel pays nobody.
pub(crate) fn judge_but_cancels(request: &SignRequest) {
    if request.intents.iter().all(|intent| intent.payment().is_some()) {
        judge(request);
    }
}

fn judge(request: &SignRequest) {
    match request.chain.as_str() {
        "bsc" => judge_evm(request),
        "tron" => judge_tron(request),
        _ => judge_bitcoin(request),
    }
}

fn payment(request: &SignRequest) -> &tx::Payment {
    request.intents[0].payment().unwrap()
}

fn judge_evm(request: &SignRequest) {
    let mut rest = &request.payload[1..];
    let (chain, gas, price, to, value, data) = match request.payload[0] {
        1 => {
            let body = <TxEip2930 as alloy_consensus::transaction::RlpEcdsaDecodableTx>::rlp_decode(&mut rest).unwrap();
            assert!(body.access_list.is_empty());
            (body.chain_id, body.gas_limit, body.gas_price, body.to, body.value, body.input)
        }
        2 => {
            let body = <TxEip1559 as alloy_consensus::transaction::RlpEcdsaDecodableTx>::rlp_decode(&mut rest).unwrap();
            assert!(body.access_list.is_empty());
            (body.chain_id, body.gas_limit, body.max_fee_per_gas, body.to, body.value, body.input)
        }
        _ => {
            let body = TxLegacy::decode(&mut &request.payload[..]).unwrap();
            (body.chain_id.unwrap(), body.gas_limit, body.gas_price, body.to, body.value, body.input)
        }
    };
    assert_eq!(chain, CHAIN_ID);
    let wanted = payment(request);
    let TxKind::Call(to) = to else { panic!("a contract is made") };
    match &wanted.coin {
        Coin::Native => {
            assert!(data.is_empty());
            assert_eq!((Address::Evm(to), RawAmount::from_u256(value)), (wanted.to.clone(), wanted.amount));
        }
        Coin::Token(contract) => {
            assert_eq!((&Address::Evm(to), value), (contract, U256::ZERO));
            let Address::Evm(recipient) = &wanted.to else { panic!("an EVM address") };
            let call = [
                &[0xa9, 0x05, 0x9c, 0xbb][..],
                &[0; 12],
                recipient.as_slice(),
                &wanted.amount.to_u256().to_be_bytes::<32>(),
            ];
            assert_eq!(data.as_ref(), call.concat());
        }
    }
    let cost = U256::from(gas) * U256::from(price);
    assert!(RawAmount::from_u256(cost) <= request.intents[0].most_fee);
}

fn judge_tron(request: &SignRequest) {
    let raw_data = Raw::decode(&request.payload[..]).unwrap();
    assert!(raw_data.data.is_empty() && raw_data.auths.is_empty() && raw_data.scripts.is_empty());
    let expiry = raw_data.expiration * 1_000;
    assert!(expiry > NOW && expiry <= NOW + DAY);
    let [contract] = &raw_data.contract[..] else { panic!("one contract") };
    assert_eq!(contract.permission_id, 0);
    let value = &contract.parameter.as_ref().unwrap().value[..];
    let prefixed = |address: &Address| match address {
        Address::Tron(address) => address.prefixed().to_vec(),
        _ => panic!("a TRON address"),
    };
    let wanted = payment(request);
    let own = prefixed(&own("hot-tron", 0));
    match &wanted.coin {
        Coin::Native => {
            assert_eq!((contract.r#type, raw_data.fee_limit), (1, 0));
            let transfer = TransferContract::decode(value).unwrap();
            assert_eq!((transfer.owner_address, transfer.to_address), (own, prefixed(&wanted.to)));
            assert_eq!(raw(u128::try_from(transfer.amount).unwrap()), wanted.amount);
        }
        Coin::Token(token) => {
            assert_eq!(contract.r#type, 31);
            let call = TriggerSmartContract::decode(value).unwrap();
            assert_eq!((call.owner_address, call.contract_address), (own, prefixed(token)));
            assert_eq!((call.call_value, call.call_token_value, call.token_id), (0, 0, 0));
            let amount = wanted.amount.to_u256().to_be_bytes::<32>();
            assert_eq!(
                call.data,
                [&[0xa9, 0x05, 0x9c, 0xbb][..], &[0; 12], &prefixed(&wanted.to)[1..], &amount].concat()
            );
            assert!(raw(u128::try_from(raw_data.fee_limit).unwrap()) <= request.intents[0].most_fee);
        }
    }
}

fn judge_bitcoin(request: &SignRequest) {
    let psbt = Psbt::deserialize(&request.payload).unwrap();
    let terms = request.bitcoin.as_ref().unwrap();
    assert_eq!(psbt.unsigned_tx.lock_time.to_consensus_u32(), terms.lock_time);
    assert!(psbt.unsigned_tx.input.iter().all(|input| input.sequence.0 == terms.sequence));
    assert!(psbt.inputs.iter().all(|input| input.sighash_type.is_none_or(|kind| kind.to_u32() <= 1)));
    let mut wanted: Vec<(Vec<u8>, u64)> = request
        .intents
        .iter()
        .map(|intent| intent.payment().unwrap())
        .map(|payment| (payment.to.script_bytes().unwrap(), u64::try_from(payment.amount.to_u256()).unwrap()))
        .collect();
    let change = own("hot-btc", CHANGE).script_bytes().unwrap();
    let mut paid = 0;
    for output in &psbt.unsigned_tx.output {
        let (script, satoshi) = (output.script_pubkey.to_bytes(), output.value.to_sat());
        paid += satoshi;
        match wanted.iter().position(|one| *one == (script.clone(), satoshi)) {
            Some(place) => drop(wanted.remove(place)),
            None => assert_eq!(script, change, "an output that nobody asked for"),
        }
    }
    assert!(wanted.is_empty());
    let held: u64 = psbt.inputs.iter().map(|input| input.witness_utxo.as_ref().unwrap().value.to_sat()).sum();
    let agreed: u128 = request.intents.iter().map(|intent| u128::try_from(intent.most_fee.to_u256()).unwrap()).sum();
    assert!(u128::from(held - paid) <= agreed);
    for (input, index) in psbt.inputs.iter().zip(&terms.inputs) {
        let script = input.witness_utxo.as_ref().unwrap().script_pubkey.to_bytes();
        assert_eq!(Some(script), own("hot-btc", *index).script_bytes());
    }
}
