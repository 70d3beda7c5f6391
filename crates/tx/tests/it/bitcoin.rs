//! What is built is what was asked for; what is read is all that there is, or is refused.

use ::bitcoin::absolute::LockTime;
use ::bitcoin::consensus::serialize;
use ::bitcoin::hashes::Hash;
use ::bitcoin::psbt::{Psbt, PsbtSighashType, raw::Key as RawKey};
use ::bitcoin::transaction::Version;
use ::bitcoin::*;
use devnet::Key;
use domain::RawAmount;
use proptest::prelude::*;
use ruint::aliases::U256;
use tx::bitcoin::transaction::MOST_BYTES;
use tx::bitcoin::*;
use tx::{
    Address, BlockHash, BlockRef, BuildError, Coin, DecodeError, Draft, Input, Meaning, Payment, Slot, TxHash, Unsigned,
};

fn raw(satoshi: u64) -> RawAmount {
    RawAmount::from_u256(U256::from(satoshi))
}

const NETWORK: Network = Network::Regtest;

fn coin(number: u8, address: &Address, amount_sat: u64) -> Input {
    let Address::Bitcoin(address) = address else { panic!("a Bitcoin address") };
    Input {
        transaction: TxHash([number; 32]),
        index: u32::from(number),
        amount_sat,
        script: address.script_pubkey().into_bytes(),
        sequence: 0xffff_fffd,
    }
}

fn pay(number: u32, satoshi: u64) -> Payment {
    Payment { to: Key::numbered(number).bitcoin(NETWORK), coin: Coin::Native, amount: raw(satoshi) }
}

/// One P2WPKH and one P2TR input of the first key, a payment and change: a fee of 1,000.
fn draft() -> Draft {
    let key = Key::numbered(0);
    Draft::Bitcoin {
        inputs: vec![coin(1, &key.bitcoin(NETWORK), 60_000), coin(2, &key.taproot(NETWORK), 50_000)],
        payments: vec![pay(1, 90_000), Payment { to: key.taproot(NETWORK), ..pay(0, 19_000) }],
        lock_time: 0,
    }
}

type Parts<'a> = (&'a mut Vec<Input>, &'a mut Vec<Payment>, &'a mut u32);

fn changed_draft(change: impl FnOnce(Parts<'_>)) -> Draft {
    let mut draft = draft();
    let Draft::Bitcoin { inputs, payments, lock_time } = &mut draft else { panic!("a Bitcoin draft") };
    change((inputs, payments, lock_time));
    draft
}

fn changed(change: impl FnOnce(Parts<'_>)) -> Result<Unsigned, BuildError> {
    build(&changed_draft(change), NETWORK)
}

fn signed() -> Vec<u8> {
    finalize(&Key::numbered(0).sign_psbt(&build(&draft(), NETWORK).expect("good").bytes)).expect("signed by its owner")
}

#[test]
fn what_is_built_is_what_is_read_and_what_is_signed() {
    let unsigned = build(&draft(), NETWORK).expect("good");
    assert_eq!(build(&draft(), NETWORK), Ok(unsigned.clone()), "the same draft gives the same bytes");
    assert_eq!(decode_unsigned(&unsigned.bytes, NETWORK), Ok(unsigned.meaning.clone()));
    let Draft::Bitcoin { payments, inputs, .. } = draft() else { panic!("a Bitcoin draft") };
    assert_eq!(unsigned.meaning.payments, payments, "change is a payment like the others");
    assert_eq!(unsigned.meaning.most_fee, Some(raw(1_000)));
    assert_eq!(unsigned.meaning.slot, Slot::Inputs(inputs.iter().map(|one| (one.transaction, one.index)).collect()));

    let bytes = signed();
    let meaning = decode_signed(&bytes, NETWORK).expect("signed");
    assert_eq!(meaning.hash, unsigned.meaning.hash, "the hash is known before signing");
    assert_eq!(meaning.payments, payments);
    assert_eq!(meaning.slot, unsigned.meaning.slot);
    assert_eq!(meaning.most_fee, None);

    let transaction = read_signed(&bytes).expect("a transaction");
    let weight = transaction.weight().to_wu();
    let scripts = inputs.iter().map(|input| Script::from_bytes(&input.script));
    let estimated = estimated_weight(scripts, transaction.output.iter().map(|out| out.script_pubkey.as_script()));
    let estimated = estimated.expect("scripts that we sign for");
    assert!((weight..=weight + 1).contains(&estimated), "{estimated} for {weight}");
}

#[test]
fn the_signatures_are_valid_by_consensus() {
    let transaction = signed();
    let Draft::Bitcoin { inputs, .. } = draft() else { panic!("a Bitcoin draft") };
    // The library knows the rules up to segwit; taproot is checked against a real node.
    let result = bitcoinconsensus::verify(&inputs[0].script, inputs[0].amount_sat, &transaction, None, 0);
    assert_eq!(result, Ok(()));
    let lie = bitcoinconsensus::verify(&inputs[0].script, inputs[0].amount_sat + 1, &transaction, None, 0);
    assert!(lie.is_err(), "a signature over a false amount is worth nothing");
}

#[test]
fn a_draft_that_would_lose_money_is_refused() {
    let main = "bc1qtzz8gdlwlpvtpva6c55yct4r0ew8pgzr2dqq5k";
    let main = Address::Bitcoin(tx::bitcoin::address::parse(main, Network::Bitcoin).expect("an address"));
    let anchor = ::bitcoin::Address::from_script(Script::from_bytes(&[0x51, 2, 0x4e, 0x73]), NETWORK).expect("P2A");
    assert_eq!(changed(|(inputs, ..)| inputs.clear()), Err(BuildError::Inconsistent("no input")));
    assert_eq!(changed(|(_, payments, _)| payments.clear()), Err(BuildError::NothingToPay));
    assert_eq!(changed(|(_, payments, _)| payments[0].amount = raw(0)), Err(BuildError::NothingToPay));
    assert_eq!(changed(|(_, payments, _)| payments[0].amount = raw(293)), Err(BuildError::Dust));
    assert_eq!(changed(|(_, payments, _)| payments[1].amount = raw(329)), Err(BuildError::Dust), "P2TR is larger");
    assert!(changed(|(_, payments, _)| payments[0].amount = raw(294)).is_ok());
    assert!(changed(|(_, payments, _)| payments[1].amount = raw(330)).is_ok());
    assert_eq!(changed(|(_, payments, _)| payments[0].amount = raw(91_001)), Err(BuildError::InputsTooSmall));
    let no_fee = changed(|(_, payments, _)| payments[0].amount = raw(91_000)).expect("a package may pay for it");
    assert_eq!(no_fee.meaning.most_fee, Some(raw(0)));
    for much in [raw(2_100_000_000_000_001), RawAmount::MAX, raw(u64::MAX)] {
        assert_eq!(changed(|(_, payments, _)| payments[0].amount = much), Err(BuildError::AmountTooLarge));
    }
    assert_eq!(changed(|(inputs, ..)| inputs[0].amount_sat = u64::MAX), Err(BuildError::AmountTooLarge));
    assert_eq!(changed(|(inputs, ..)| inputs[0].amount_sat = 21_000_000_000_000), Err(BuildError::FeeTooLarge));
    assert_eq!(
        changed(|(inputs, ..)| inputs[0].amount_sat += 2_100_000),
        Err(BuildError::FeeTooLarge),
        "a tenth per kvB"
    );
    assert!(changed(|(inputs, ..)| inputs[0].amount_sat += 1_900_000).is_ok());
    assert_eq!(changed(|(_, payments, _)| payments[0].to = main), Err(BuildError::OtherChain));
    assert_eq!(changed(|(_, payments, _)| payments[0].to = Key::numbered(1).evm()), Err(BuildError::OtherChain));
    let token = Coin::Token(Key::numbered(1).bitcoin(NETWORK));
    assert_eq!(changed(|(_, payments, _)| payments[0].coin = token), Err(BuildError::OtherChain));
    let ownerless = Err(BuildError::Inconsistent("a payment to an address without an owner"));
    assert_eq!(changed(|(_, payments, _)| payments[0].to = Address::Bitcoin(anchor)), ownerless);
    let twice = Err(BuildError::Inconsistent("an output is spent twice"));
    assert_eq!(changed(|(inputs, ..)| inputs[1] = inputs[0].clone()), twice);
    let locked = Err(BuildError::Inconsistent("the sequence number locks the input for a time"));
    assert_eq!(changed(|(inputs, ..)| inputs[0].sequence = 6), locked);
    let seconds = Err(BuildError::Inconsistent("the lock time is not a height"));
    assert_eq!(changed(|(.., lock_time)| *lock_time = 500_000_000), seconds);
    let ignored = changed(|(inputs, _, lock_time)| {
        *lock_time = 7;
        inputs.iter_mut().for_each(|input| input.sequence = u32::MAX);
    });
    assert_eq!(ignored, Err(BuildError::Inconsistent("a lock time that no input minds")));
    let legacy = changed(|(inputs, ..)| {
        inputs[0].script = ScriptBuf::new_p2pkh(&::bitcoin::PubkeyHash::all_zeros()).into_bytes()
    });
    assert_eq!(legacy, Err(BuildError::Inconsistent("only P2WPKH and P2TR outputs can be spent")));
    let huge = changed(|(inputs, payments, _)| {
        inputs[0].amount_sat = 3_300 * 1_000;
        *payments = vec![pay(3, 1_000); 3_300];
    });
    assert_eq!(huge, Err(BuildError::Inconsistent("the transaction is larger than nodes pass on")));
    let other = Draft::Tron {
        from: Key::numbered(0).tron(),
        payment: pay(0, 1),
        fee_limit: 0,
        reference: BlockRef { height: 0, hash: BlockHash::default() },
        created: domain::Timestamp::default(),
        expires: domain::Timestamp::default(),
    };
    assert_eq!(build(&other, NETWORK), Err(BuildError::OtherChain));
}

fn psbt() -> Psbt {
    Psbt::deserialize(&build(&draft(), NETWORK).expect("good").bytes).expect("a PSBT")
}

fn read(change: impl FnOnce(&mut Psbt)) -> Result<Meaning, DecodeError> {
    let mut psbt = psbt();
    change(&mut psbt);
    decode_unsigned(&psbt.serialize(), NETWORK)
}

#[test]
fn a_psbt_that_does_more_than_pay_is_refused() {
    let understood = |result: Result<Meaning, DecodeError>| !matches!(result, Err(DecodeError::NotUnderstood(_)));
    let signed = Psbt::deserialize(&Key::numbered(0).sign_psbt(&psbt().serialize())).expect("a PSBT");
    type Change = Box<dyn FnOnce(&mut Psbt)>;
    let cases: [(&str, Change); 15] = [
        ("no amount", Box::new(|psbt| psbt.inputs[0].witness_utxo = None)),
        ("OP_RETURN", Box::new(|psbt| psbt.unsigned_tx.output[0].script_pubkey = ScriptBuf::new_op_return([1; 4]))),
        ("no script", Box::new(|psbt| psbt.unsigned_tx.output[0].script_pubkey = ScriptBuf::new())),
        (
            "a future script",
            Box::new(|psbt| {
                psbt.unsigned_tx.output[0].script_pubkey = ScriptBuf::from_bytes([vec![0x52, 32], vec![1; 32]].concat())
            }),
        ),
        ("NONE", Box::new(|psbt| psbt.inputs[0].sighash_type = Some(PsbtSighashType::from_u32(2)))),
        ("SINGLE", Box::new(|psbt| psbt.inputs[0].sighash_type = Some(PsbtSighashType::from_u32(3)))),
        ("ALL, anyone can pay", Box::new(|psbt| psbt.inputs[1].sighash_type = Some(PsbtSighashType::from_u32(0x81)))),
        (
            "an ECDSA signature",
            Box::new({
                let signed = signed.clone();
                move |psbt: &mut Psbt| psbt.inputs[0] = signed.inputs[0].clone()
            }),
        ),
        ("a taproot signature", Box::new(move |psbt| psbt.inputs[1] = signed.inputs[1].clone())),
        ("a final witness", Box::new(|psbt| psbt.inputs[0].final_script_witness = Some(Witness::from_slice(&[[1]])))),
        ("a final script", Box::new(|psbt| psbt.inputs[0].final_script_sig = Some(ScriptBuf::from_bytes(vec![1])))),
        (
            "an unknown field",
            Box::new(|psbt| drop(psbt.inputs[0].unknown.insert(RawKey { type_value: 0x77, key: vec![1] }, vec![2]))),
        ),
        (
            "an unknown field of all",
            Box::new(|psbt| drop(psbt.unknown.insert(RawKey { type_value: 0x77, key: vec![1] }, vec![2]))),
        ),
        ("a relative lock", Box::new(|psbt| psbt.unsigned_tx.input[0].sequence = Sequence(10))),
        ("a lock of seconds", Box::new(|psbt| psbt.unsigned_tx.lock_time = LockTime::from_consensus(1_700_000_000))),
    ];
    for (what, change) in cases {
        assert!(!understood(read(change)), "{what}");
    }
    assert!(read(|psbt| psbt.inputs[0].sighash_type = Some(PsbtSighashType::from_u32(1))).is_ok(), "ALL");
    assert!(read(|psbt| psbt.inputs[1].sighash_type = Some(PsbtSighashType::from_u32(0))).is_ok(), "taproot's default");
    let malformed = |result: Result<Meaning, DecodeError>| matches!(result, Err(DecodeError::Malformed(_)));
    assert!(malformed(read(
        |psbt| psbt.unsigned_tx.input[1].previous_output = psbt.unsigned_tx.input[0].previous_output
    )));
    assert!(malformed(read(|psbt| psbt.unsigned_tx.output[0].value = Amount::from_sat(120_000))), "more than it has");
    assert!(malformed(read(|psbt| psbt.unsigned_tx.output[0].value = Amount::from_sat(u64::MAX))));
    let mut bytes = psbt().serialize();
    bytes.push(0);
    assert!(malformed(decode_unsigned(&bytes, NETWORK)), "bytes follow");
    assert!(malformed(decode_unsigned(&vec![0; MOST_BYTES + 1], NETWORK)));
    let main = decode_unsigned(&psbt().serialize(), Network::Bitcoin).expect("a script has no network");
    assert!(main.payments[0].to.to_string().starts_with("bc1"));
}

#[test]
fn an_amount_must_be_bound_by_the_signature_or_by_the_previous_transaction() {
    let script = ScriptBuf::new_p2pkh(&::bitcoin::PubkeyHash::from_byte_array([7; 20]));
    let previous = Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        input: vec![TxIn::default()],
        output: vec![TxOut { value: Amount::from_sat(60_000), script_pubkey: script.clone() }],
    };
    let spend = |psbt: &mut Psbt| {
        psbt.unsigned_tx.input[0].previous_output = OutPoint::new(previous.compute_txid(), 0);
        psbt.inputs[0].witness_utxo = None;
        psbt.inputs[0].non_witness_utxo = Some(previous.clone());
    };
    let proven = read(spend).expect("the previous transaction proves the amount");
    assert_eq!(proven.hash, None, "a signature of P2PKH changes the hash");
    assert_eq!(proven.most_fee, Some(raw(1_000)));
    let said = read(|psbt| {
        psbt.inputs[0].witness_utxo = Some(previous.output[0].clone());
    });
    assert_eq!(said, Err(DecodeError::NotUnderstood("nothing binds the amount of an input")));
    let lie = read(|psbt| {
        spend(psbt);
        psbt.inputs[0].witness_utxo = Some(TxOut { value: Amount::from_sat(59_000), script_pubkey: script.clone() });
    });
    assert_eq!(lie, Err(DecodeError::NotUnderstood("the output spent contradicts its own transaction")));
    let other = read(|psbt| {
        spend(psbt);
        psbt.unsigned_tx.input[0].previous_output.txid = ::bitcoin::Txid::all_zeros();
    });
    assert_eq!(other, Err(DecodeError::Malformed("the previous transaction is another one")));
    let beyond = read(|psbt| {
        spend(psbt);
        psbt.unsigned_tx.input[0].previous_output.vout = 1;
    });
    assert_eq!(beyond, Err(DecodeError::Malformed("the output spent does not exist")));
}

/// A signer holds these against what it was asked for.
#[test]
fn a_psbt_is_read_with_its_inputs_and_its_lock() {
    let draft = changed_draft(|(inputs, _, lock_time)| {
        inputs[1].sequence = 0xffff_fffe;
        *lock_time = 777;
    });
    let Draft::Bitcoin { inputs, .. } = &draft else { panic!("a Bitcoin draft") };
    let bytes = build(&draft, NETWORK).expect("good").bytes;
    let read = read_unsigned(&bytes, NETWORK).expect("ours");
    let said: Vec<SpentInput> = inputs.iter().map(|input| SpentInput { input: input.clone(), proven: false }).collect();
    assert_eq!((&read.inputs, read.lock_time), (&said, 777));
    assert_eq!(Ok(read.meaning), decode_unsigned(&bytes, NETWORK));
    // The previous transaction proves an amount, or refuses another one.
    let mut psbt = Psbt::deserialize(&bytes).expect("ours");
    let spent = psbt.inputs[0].witness_utxo.clone().expect("there");
    let previous = Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        input: vec![TxIn::default()],
        output: vec![spent],
    };
    psbt.unsigned_tx.input[0].previous_output = OutPoint::new(previous.compute_txid(), 0);
    psbt.inputs[0].non_witness_utxo = Some(previous);
    let read = read_unsigned(&psbt.serialize(), NETWORK).expect("proven");
    assert_eq!(read.inputs.iter().map(|spent| spent.proven).collect::<Vec<_>>(), [true, false]);
    psbt.inputs[0].witness_utxo.as_mut().expect("there").value = Amount::from_sat(60_001);
    assert!(matches!(read_unsigned(&psbt.serialize(), NETWORK), Err(DecodeError::NotUnderstood(_))));
}

#[test]
fn only_good_signatures_become_a_transaction() {
    let unsigned = psbt().serialize();
    let bare = Err(DecodeError::Malformed("an input is not signed, or not once"));
    assert_eq!(finalize(&unsigned), bare);
    assert_eq!(finalize(&Key::numbered(1).sign_psbt(&unsigned)), bare, "a stranger signs nothing");
    let mut signed = Psbt::deserialize(&Key::numbered(0).sign_psbt(&unsigned)).expect("a PSBT");
    assert!(finalize(&signed.serialize()).is_ok());
    let mut half = signed.clone();
    half.inputs[1].tap_key_sig = None;
    assert_eq!(finalize(&half.serialize()), Err(DecodeError::Malformed("an input is not signed")));
    let mut none = signed.clone();
    none.inputs[0].partial_sigs.values_mut().for_each(|one| one.sighash_type = EcdsaSighashType::None);
    assert!(matches!(finalize(&none.serialize()), Err(DecodeError::NotUnderstood(_))));
    let mut moved = signed.clone();
    moved.unsigned_tx.output[0].value = Amount::from_sat(89_999);
    assert_eq!(finalize(&moved.serialize()), Err(DecodeError::BadSignature), "an output was changed after signing");
    let mut lie = signed.clone();
    lie.inputs[1].witness_utxo.as_mut().expect("there").value = Amount::from_sat(50_001);
    assert_eq!(finalize(&lie.serialize()), Err(DecodeError::BadSignature), "an amount was changed after signing");
    let plain = changed(|(inputs, payments, _)| {
        inputs.truncate(1);
        payments[0].amount = raw(30_000);
    });
    let mut plain = Psbt::deserialize(&Key::numbered(0).sign_psbt(&plain.expect("good").bytes)).expect("a PSBT");
    assert!(finalize(&plain.serialize()).is_ok());
    plain.unsigned_tx.output[0].value = Amount::from_sat(29_999);
    assert_eq!(finalize(&plain.serialize()), Err(DecodeError::BadSignature), "P2WPKH alone");
    let stranger = ::bitcoin::PublicKey::new(Key::numbered(1).public());
    let (_, signature) = signed.inputs[0].partial_sigs.pop_first().expect("signed");
    signed.inputs[0].partial_sigs.insert(stranger, signature);
    assert_eq!(finalize(&signed.serialize()), Err(DecodeError::BadSignature), "another key");
}

#[test]
fn a_signed_transaction_is_read_strictly() {
    let good = signed();
    assert!(decode_signed(&good, NETWORK).is_ok());
    let mut long = good.clone();
    long.push(0);
    assert_eq!(decode_signed(&long, NETWORK), Err(DecodeError::Malformed("not a transaction")));
    assert!(decode_signed(&good[..good.len() - 1], NETWORK).is_err());
    let with = |change: &dyn Fn(&mut Transaction)| {
        let mut transaction = read_signed(&good).expect("a transaction");
        change(&mut transaction);
        decode_signed(&serialize(&transaction), NETWORK)
    };
    let unsigned = with(&|transaction| transaction.input[0].witness = Witness::new());
    assert_eq!(unsigned, Err(DecodeError::Malformed("an input is not signed")));
    let none = with(&|transaction| {
        let mut items = transaction.input[0].witness.to_vec();
        *items[0].last_mut().expect("a signature") = 2;
        transaction.input[0].witness = Witness::from_slice(&items);
    });
    assert!(matches!(none, Err(DecodeError::NotUnderstood(_))), "a signature over nothing: anyone may move the money");
    let single = with(&|transaction| {
        let mut items = transaction.input[1].witness.to_vec();
        items[0].push(0x83);
        transaction.input[1].witness = Witness::from_slice(&items);
    });
    assert!(matches!(single, Err(DecodeError::NotUnderstood(_))));
    let script = with(&|transaction| transaction.input[0].script_sig = ScriptBuf::from_bytes(vec![0x51]));
    assert!(matches!(script, Err(DecodeError::NotUnderstood(_))));
    let burn = with(&|transaction| transaction.output[0].script_pubkey = ScriptBuf::new_op_return([1; 4]));
    assert!(matches!(burn, Err(DecodeError::NotUnderstood(_))));
}

proptest! {
    #[test]
    fn damaged_bytes_never_panic(place in 0_usize..2_000, byte: u8, cut in 0_usize..2_000) {
        for bytes in [psbt().serialize(), Key::numbered(0).sign_psbt(&psbt().serialize()), signed()] {
            let mut damaged = bytes.clone();
            let place = place % damaged.len();
            damaged[place] = byte;
            damaged.truncate(bytes.len() - cut % 3);
            drop((decode_unsigned(&damaged, NETWORK), decode_signed(&damaged, NETWORK), finalize(&damaged)));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let psbt = [b"psbt\xff".as_slice(), &bytes].concat();
        for bytes in [&bytes, &psbt] {
            prop_assert!(decode_signed(bytes, NETWORK).is_err() || !bytes.is_empty());
            drop((decode_unsigned(bytes, NETWORK), finalize(bytes), Key::numbered(0).sign_psbt(bytes)));
        }
    }

    /// Whatever is built costs exactly what the inputs hold beyond the payments.
    #[test]
    fn nothing_is_lost_between_inputs_and_payments(
        held in proptest::collection::vec(1_000_u64..10_000_000, 1..20), share in 1_u64..100,
    ) {
        let sum: u64 = held.iter().sum();
        let paid = (sum / 100 * share).max(300);
        let inputs = held.iter().zip(1..).map(|(&sat, n)| coin(n, &Key::numbered(0).bitcoin(NETWORK), sat)).collect();
        let draft = Draft::Bitcoin { inputs, payments: vec![pay(1, paid)], lock_time: 100 };
        match build(&draft, NETWORK) {
            Ok(unsigned) => prop_assert_eq!(unsigned.meaning.most_fee, Some(raw(sum - paid))),
            Err(error) => prop_assert_eq!(error, BuildError::FeeTooLarge),
        }
    }
}
