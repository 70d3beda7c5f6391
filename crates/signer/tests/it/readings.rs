//! A payload does what its intents say, or it is refused.

use domain::RawAmount;
use signer::{IntentKind, Owner, SignRequest, SignerRefusal};
use tx::{Coin, Fee};

use crate::world::*;

fn change(mut request: SignRequest, change: impl FnOnce(&mut SignRequest)) -> SignRequest {
    change(&mut request);
    request
}

fn pay(request: &mut SignRequest) -> &mut tx::Payment {
    match &mut request.intents[0].kind {
        IntentKind::Pay { payment, .. } => payment,
        IntentKind::Cancel { .. } => panic!("a payment"),
    }
}

fn less(amount: RawAmount) -> RawAmount {
    amount.checked_sub(raw(1)).unwrap()
}

fn more(amount: RawAmount) -> RawAmount {
    amount.checked_add(raw(1)).unwrap()
}

/// One good request for each form that is signed.
pub(crate) fn good() -> Vec<SignRequest> {
    let bep20 = Coin::Token(token());
    let trc20 = Coin::Token(devnet::Key::numbered(90).tron());
    let mut forms = vec![
        evm(1, 0, 900).request("evm-1559"),
        evm(2, 1, 900).gas_price(5).request("evm-legacy"),
        evm(3, 2, 900).coin(bep20.clone()).request("evm-token"),
        tron(5, 900, Coin::Native, 0, HOUR),
        tron(6, 900, trc20, 0, HOUR),
        bitcoin_request("btc", &[coin_input(1, 5, 80_000), coin_input(2, 6, 70_000)], &[(7, 60_000), (8, 50_000)]),
    ];
    forms.push(listed(&evm(4, 3, 900).coin(bep20).gas_price(5)));
    forms
}

/// The same payment in EIP-2930's form.
fn listed(evm: &Evm) -> SignRequest {
    use alloy_consensus::{SignableTransaction, TxEip2930, TxLegacy};
    use alloy_rlp::Decodable;
    let mut request = evm.request("evm-2930");
    let body = TxLegacy::decode(&mut &request.payload[..]).unwrap();
    let Fee::Legacy { gas_price } = evm.fee else { panic!("a legacy fee") };
    let (nonce, gas_limit, to, value, input) = (body.nonce, body.gas_limit, body.to, body.value, body.input);
    let listed = TxEip2930 {
        chain_id: CHAIN_ID,
        nonce,
        gas_price,
        gas_limit,
        to,
        value,
        access_list: Default::default(),
        input,
    };
    request.payload = listed.encoded_for_signing();
    request
}

#[test]
fn a_payload_that_does_what_its_intents_say_is_approved() {
    let (mut signer, _) = signer();
    for request in good() {
        approved(&mut signer, &request, 0);
    }
}

/// Each lie is as small as it can be, and is about one thing.
#[test]
fn an_intent_that_lies_by_one_unit_one_byte_or_one_network_is_refused() {
    type Lie = fn(&mut SignRequest);
    let lies: [(&str, Lie, SignerRefusal); 8] = [
        ("a unit more", |one| pay(one).amount = more(pay(one).amount), SignerRefusal::Unexplained),
        ("a unit less", |one| pay(one).amount = less(pay(one).amount), SignerRefusal::Unexplained),
        ("another chain", |one| one.chain = "tron-2".parse().unwrap(), SignerRefusal::ChainUnknown),
        (
            "another job twice",
            |one| one.intents.push(one.intents[0].clone()),
            SignerRefusal::Inconsistent("a job is named twice"),
        ),
        ("no intent", |one| one.intents.clear(), SignerRefusal::Inconsistent("")),
        (
            "an intent of another group",
            |one| one.intents[0].group = group("gas-bsc"),
            SignerRefusal::Inconsistent("an intent is of another chain or group"),
        ),
        (
            "a wallet that is not there",
            |one| one.group = group("hot-eth"),
            SignerRefusal::GroupUnknown(group("hot-eth")),
        ),
        (
            "an owner who has another address",
            |one| {
                let IntentKind::Pay { owner, .. } = &mut one.intents[0].kind else { panic!("a payment") };
                *owner = Some(Owner { group: group("deposit-bsc"), index: 5 });
            },
            SignerRefusal::OwnerDiffers,
        ),
    ];
    let (mut signer, _) = signer();
    for base in good() {
        for (what, lie, expected) in &lies {
            let refusal = refusal(&mut signer, &change(base.clone(), lie), 0);
            let same = std::mem::discriminant(&refusal) == std::mem::discriminant(expected);
            assert!(same, "{}: {what}: {refusal:?}", base.id);
        }
        // A fee that is a unit more than agreed. Bitcoin's intents agree to 4,000 together, and 2,000 are paid.
        let cut = change(base.clone(), |one| {
            let fee = if one.bitcoin.is_some() { raw(2_001) } else { one.intents[0].most_fee };
            for intent in &mut one.intents {
                intent.most_fee = RawAmount::ZERO;
            }
            one.intents[0].most_fee = less(fee);
        });
        if cut.bitcoin.is_none() {
            assert_eq!(refusal_of(&mut signer, &cut), SignerRefusal::FeeAboveIntent, "{}", base.id);
        } else {
            approved(&mut signer, &cut, 0);
            let cut = change(cut, |one| {
                one.id = "less".parse().unwrap();
                one.intents[0].most_fee = raw(1_999);
            });
            assert_eq!(refusal_of(&mut signer, &cut), SignerRefusal::FeeAboveIntent);
        }
    }
}

fn refusal_of(signer: &mut signer::Authorizer<crate::faulty::FaultyFolder>, request: &SignRequest) -> SignerRefusal {
    refusal(signer, request, 0)
}

#[test]
fn a_recipient_a_coin_a_network_and_a_wallet_must_be_the_ones_asked_for() {
    let (mut signer, _) = signer();
    let mut expect = |request: SignRequest, expected: SignerRefusal| {
        assert_eq!(refusal(&mut signer, &request, 0), expected, "{}", request.id);
    };
    let native = evm(1, 0, 900).request("native");
    expect(change(native.clone(), |one| pay(one).to = stranger(3).evm()), SignerRefusal::Unexplained);
    expect(change(native.clone(), |one| pay(one).to = stranger(1).tron()), SignerRefusal::Unexplained);
    expect(change(native.clone(), |one| pay(one).coin = Coin::Token(token())), SignerRefusal::Unexplained);
    // The same payment on Ethereum.
    let draft = tx::Draft::Evm {
        from: own("hot-bsc", 0),
        nonce: 0,
        payment: pay(&mut native.clone()).clone(),
        gas_limit: 60_000,
        fee: Fee::Legacy { gas_price: GWEI },
    };
    let ethereum = tx::evm::build(&draft, 1).unwrap().bytes;
    expect(change(native, |one| one.payload = ethereum), SignerRefusal::OtherNetwork);
    // TRON says who pays.
    let trx = tron(5, 900, Coin::Native, 0, HOUR);
    expect(change(trx.clone(), |one| one.index = 1), SignerRefusal::OtherWallet);
    expect(tron(5, 900, Coin::Native, -2 * HOUR, HOUR), SignerRefusal::ExpiryOutside);
    expect(tron(5, 900, Coin::Native, 2 * HOUR, 23 * HOUR), SignerRefusal::ExpiryOutside);
    expect(
        change(trx, |one| one.intents[0].kind = IntentKind::Cancel { jobs: vec![job(1)] }),
        SignerRefusal::Inconsistent("nothing cancels a TRON transaction but its expiry"),
    );
}

#[test]
fn every_output_lock_and_input_of_a_bitcoin_transaction_is_explained() {
    let (mut signer, _) = signer();
    let base =
        || bitcoin_request("btc", &[coin_input(1, 5, 80_000), coin_input(2, 6, 70_000)], &[(7, 60_000), (8, 50_000)]);
    let terms = |request: &mut SignRequest, change: fn(&mut signer::BitcoinTerms)| {
        change(request.bitcoin.as_mut().unwrap());
    };
    let mut expect = |request: SignRequest, expected: SignerRefusal| {
        assert_eq!(refusal(&mut signer, &request, 0), expected);
    };
    // The change is a stranger's as long as the signer does not derive it, and a payout that no intent asks for is one.
    expect(change(base(), |one| terms(one, |terms| terms.change = vec![41])), SignerRefusal::Unexplained);
    expect(change(base(), |one| terms(one, |terms| terms.change.clear())), SignerRefusal::Unexplained);
    expect(change(base(), |one| one.intents.truncate(1)), SignerRefusal::Unexplained);
    let extra = evm(9, 0, 1).request("x").intents.remove(0);
    let network = base().intents[0].network;
    let extra = signer::Intent { network, chain: "btc".parse().unwrap(), group: group("hot-btc"), ..extra };
    expect(change(base(), |one| one.intents.push(extra)), SignerRefusal::NotPaid);
    expect(
        change(base(), |one| terms(one, |terms| terms.change = vec![CHANGE, 41])),
        SignerRefusal::Inconsistent("a change address that no output pays"),
    );
    expect(change(base(), |one| terms(one, |terms| terms.inputs = vec![6, 5])), SignerRefusal::OtherWallet);
    expect(
        change(base(), |one| terms(one, |terms| terms.inputs = vec![5])),
        SignerRefusal::Inconsistent("an address for each input"),
    );
    expect(change(base(), |one| terms(one, |terms| terms.lock_time = 0)), SignerRefusal::LockDiffers);
    expect(change(base(), |one| terms(one, |terms| terms.sequence = 0xffff_fffe)), SignerRefusal::LockDiffers);
    approved(&mut signer, &base(), 0);
}

/// Two versions of one transaction, each with another input's amount understated, give two signatures that fit together.
#[test]
fn an_inputs_amount_is_the_same_for_ever_or_proven() {
    let (mut signer, folder) = signer();
    let low = bitcoin_request("low", &[coin_input(1, 5, 80_000), coin_input(2, 6, 70_000)], &[(7, 60_000)]);
    approved(&mut signer, &low, 0);
    let high = |id: &str, job| {
        let mut input = coin_input(2, 6, 970_000);
        input.0.amount_sat = 970_000;
        bitcoin_request(id, &[coin_input(3, 7, 90_000), input], &[(job, 60_000)])
    };
    assert_eq!(refusal(&mut signer, &high("high", 9), 0), SignerRefusal::AmountContradicts);
    let mut signer = reopen(&folder, None, 0);
    assert_eq!(
        refusal(&mut signer, &high("high-2", 9), 0),
        SignerRefusal::AmountContradicts,
        "not after a start either"
    );
}

#[test]
fn a_previous_transaction_proves_what_was_said_wrongly_before() {
    use bitcoin::hashes::Hash;
    use bitcoin::transaction::Version;
    use bitcoin::{Amount, Psbt, ScriptBuf, Transaction, TxOut, absolute::LockTime};
    let (mut signer, _) = signer();
    let (mut input, index) = coin_input(1, 5, 80_000);
    let output = |satoshi| TxOut {
        value: Amount::from_sat(satoshi),
        script_pubkey: ScriptBuf::from_bytes(own("hot-btc", 5).script_bytes().unwrap()),
    };
    let spends = bitcoin::TxIn {
        previous_output: bitcoin::OutPoint::new(bitcoin::Txid::from_byte_array([8; 32]), 0),
        ..bitcoin::TxIn::default()
    };
    let previous = Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        input: vec![spends],
        output: vec![output(1), output(2), output(3), output(95_000)],
    };
    input.transaction = tx::bitcoin::hash_of(previous.compute_txid());
    approved(&mut signer, &bitcoin_request("said", &[(input.clone(), index)], &[(7, 60_000)]), 0);
    input.amount_sat = 95_000;
    let said = bitcoin_request("said-2", &[(input.clone(), index)], &[(7, 60_000)]);
    assert_eq!(refusal(&mut signer, &said, 0), SignerRefusal::AmountContradicts);
    let proven = |satoshi: u64| {
        let mut input = input.clone();
        input.amount_sat = satoshi;
        let mut request = bitcoin_request("proven", &[(input, index)], &[(7, 60_000)]);
        let mut psbt = Psbt::deserialize(&request.payload).unwrap();
        psbt.inputs[0].non_witness_utxo = Some(previous.clone());
        request.payload = psbt.serialize();
        request
    };
    assert!(matches!(refusal(&mut signer, &proven(96_000), 0), SignerRefusal::Unreadable(_)));
    approved(&mut signer, &proven(95_000), 0);
}

#[test]
fn a_large_batch_is_explained_and_one_without_bounds_is_refused() {
    let (mut signer, _) = signer();
    let inputs: Vec<_> = (1..=100).map(|number| coin_input(number, u64::from(number), 90_000)).collect();
    let payouts: Vec<_> = (0..300).map(|number| (number, 9_000)).collect();
    let mut request = bitcoin_request("large", &inputs, &payouts);
    approved(&mut signer, &request, 0);
    // Two payouts of one amount to one address are two, and not one.
    let twice = |id: &str| {
        let mut twice = bitcoin_request(id, &[coin_input(101, 1, 90_000)], &[(400, 9_000), (401, 9_000)]);
        let first = twice.intents[0].payment().unwrap().clone();
        let IntentKind::Pay { payment, .. } = &mut twice.intents[1].kind else { panic!("a payment") };
        *payment = first;
        twice
    };
    assert_eq!(refusal(&mut signer, &twice("twice"), 0), SignerRefusal::Unexplained);
    request.bitcoin.as_mut().unwrap().inputs = vec![0; 200];
    request.id = "larger".parse().unwrap();
    assert!(matches!(refusal(&mut signer, &request, 0), SignerRefusal::Inconsistent(_)));
}
