//! Unsigned form: a PSBT (BIP 174, version 0) with the spent output of every input. Signed form: the raw transaction.
//!
//! **The fee that a PSBT shows is as true as the amounts of its inputs**, which the asker wrote there. A signature of
//! segwit version 0 commits to the amount of *its own* input, one of taproot to those of *all* inputs; a signature made
//! over a false amount is worth nothing. What remains for a signer to know: of a transaction with several P2WPKH inputs
//! it could be shown two versions, each with another input's amount understated, and the two good signatures of the two
//! versions make one transaction with a fee that neither showed. So a signer keeps to one amount per output for ever, or
//! wants the whole previous transaction (`non_witness_utxo`), which is checked here when it is there. An input that is
//! neither (P2PKH, P2SH) commits to no amount at all and is refused without it.

use std::collections::BTreeSet;

use ::bitcoin::absolute::LockTime;
use ::bitcoin::consensus::{deserialize, serialize};
use ::bitcoin::hashes::Hash;
use ::bitcoin::psbt::Psbt;
use ::bitcoin::sighash::{EcdsaSighashType, Prevouts, SighashCache, TapSighashType};
use ::bitcoin::transaction::Version;
use ::bitcoin::{
    Amount, CompressedPublicKey, Network, OutPoint, Script, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Witness,
    XOnlyPublicKey, ecdsa, psbt, taproot,
};
use domain::RawAmount;
use ruint::aliases::U256;
use secp256k1::{Message, SECP256K1};

use super::address::{is_on, of_script, payable};
use super::hash::{hash_of, txid_of};
use crate::address::Address;
use crate::fee::Fee;
use crate::transaction::{BuildError, Coin, DecodeError, Draft, Input, Meaning, Payment, Slot, Unsigned};

/// Nodes pass on nothing heavier.
pub const MOST_WEIGHT: u64 = 400_000;
/// Nothing that we read is longer: a block's worth of bytes.
pub const MOST_BYTES: usize = 4_000_000;
/// What Core itself refuses to send without being told to: 0.1 BTC per 1,000 virtual bytes.
pub const MOST_FEE_PER_KVB: u64 = 10_000_000;
/// No transaction costs more than 1 BTC, however large.
pub const MOST_FEE: u64 = 100_000_000;
/// Sequence numbers without this bit delay the input (BIP 68).
const NO_RELATIVE_LOCK: u32 = 1 << 31;
/// Lock times from here on are seconds, not heights.
const LOCK_TIME_SECONDS: u32 = 500_000_000;

fn raw(satoshi: u64) -> RawAmount {
    RawAmount::from_u256(U256::from(satoshi))
}

/// Weight units that the signature of an input adds, at most. `None`: not a script that we can sign for.
fn witness_weight(script: &Script) -> Option<u64> {
    if script.is_p2wpkh() {
        // Count of items; signature of 71 or 72 bytes with its length; public key with its length.
        Some(1 + 1 + 72 + 1 + 33)
    } else if script.is_p2tr() {
        Some(1 + 1 + 64)
    } else {
        None
    }
}

/// The weight once signed; it may turn out one unit less for each P2WPKH input. `None`: an input that we cannot sign.
pub fn estimated_weight<'a>(
    spent: impl IntoIterator<Item = &'a Script>,
    paid: impl IntoIterator<Item = &'a Script>,
) -> Option<u64> {
    let mut input = Vec::new();
    // Marker and flag of a transaction that has witnesses.
    let mut witnesses = 2;
    for script in spent {
        witnesses += witness_weight(script)?;
        input.push(TxIn::default());
    }
    let output = paid.into_iter().map(|script| TxOut { value: Amount::ZERO, script_pubkey: script.to_owned() });
    let bare = Transaction { version: Version::TWO, lock_time: LockTime::ZERO, input, output: output.collect() };
    Some(4 * u64::try_from(bare.base_size()).ok()? + witnesses)
}

pub fn build(draft: &Draft, network: Network) -> Result<Unsigned, BuildError> {
    let Draft::Bitcoin { inputs, payments, lock_time } = draft else {
        return Err(BuildError::OtherChain);
    };
    let output = payments.iter().map(|payment| output_of(payment, network)).collect::<Result<Vec<_>, _>>()?;
    check_inputs(inputs)?;
    if output.is_empty() {
        return Err(BuildError::NothingToPay);
    }
    if *lock_time >= LOCK_TIME_SECONDS {
        return Err(BuildError::Inconsistent("the lock time is not a height"));
    }
    if *lock_time > 0 && inputs.iter().all(|input| input.sequence == u32::MAX) {
        return Err(BuildError::Inconsistent("a lock time that no input minds"));
    }
    let fee = fee_of(inputs, &output)?;
    let spent = inputs.iter().map(|input| Script::from_bytes(&input.script));
    let weight = estimated_weight(spent, output.iter().map(|out| out.script_pubkey.as_script()))
        .ok_or(BuildError::Inconsistent("only P2WPKH and P2TR outputs can be spent"))?;
    if weight > MOST_WEIGHT {
        return Err(BuildError::Inconsistent("the transaction is larger than nodes pass on"));
    }
    let size = weight.div_ceil(4);
    if fee > MOST_FEE || fee.saturating_mul(1_000) > size.saturating_mul(MOST_FEE_PER_KVB) {
        return Err(BuildError::FeeTooLarge);
    }
    let input = inputs.iter().map(|input| TxIn {
        previous_output: OutPoint::new(txid_of(input.transaction), input.index),
        script_sig: ScriptBuf::new(),
        sequence: Sequence(input.sequence),
        witness: Witness::new(),
    });
    let transaction = Transaction {
        version: Version::TWO,
        lock_time: LockTime::from_consensus(*lock_time),
        input: input.collect(),
        output,
    };
    let mut psbt = Psbt::from_unsigned_tx(transaction).map_err(|_| BuildError::Inconsistent("not unsigned"))?;
    for (map, input) in psbt.inputs.iter_mut().zip(inputs) {
        map.witness_utxo = Some(TxOut {
            value: Amount::from_sat(input.amount_sat),
            script_pubkey: ScriptBuf::from_bytes(input.script.clone()),
        });
    }
    let bytes = psbt.serialize();
    // What is handed to a signer means what its own reading of it says, and nothing else.
    let meaning = decode_unsigned(&bytes, network).map_err(|error| match error {
        DecodeError::Malformed(what) | DecodeError::NotUnderstood(what) => BuildError::Inconsistent(what),
        DecodeError::OtherNetwork | DecodeError::BadSignature => BuildError::OtherChain,
    })?;
    Ok(Unsigned { bytes, meaning })
}

fn output_of(payment: &Payment, network: Network) -> Result<TxOut, BuildError> {
    let Address::Bitcoin(to) = &payment.to else {
        return Err(BuildError::OtherChain);
    };
    if payment.coin != Coin::Native || !is_on(to, network) {
        return Err(BuildError::OtherChain);
    }
    if payable(to).is_none() {
        return Err(BuildError::Inconsistent("a payment to an address without an owner"));
    }
    let satoshi = u64::try_from(payment.amount.to_u256()).map_err(|_| BuildError::AmountTooLarge)?;
    let value = Amount::from_sat(satoshi);
    let script_pubkey = to.script_pubkey();
    if satoshi == 0 {
        Err(BuildError::NothingToPay)
    } else if value > Amount::MAX_MONEY {
        Err(BuildError::AmountTooLarge)
    } else if value < script_pubkey.minimal_non_dust() {
        Err(BuildError::Dust)
    } else {
        Ok(TxOut { value, script_pubkey })
    }
}

fn check_inputs(inputs: &[Input]) -> Result<(), BuildError> {
    if inputs.is_empty() {
        return Err(BuildError::Inconsistent("no input"));
    }
    let distinct: BTreeSet<_> = inputs.iter().map(|input| (input.transaction, input.index)).collect();
    if distinct.len() != inputs.len() {
        return Err(BuildError::Inconsistent("an output is spent twice"));
    }
    for input in inputs {
        if input.sequence & NO_RELATIVE_LOCK == 0 {
            return Err(BuildError::Inconsistent("the sequence number locks the input for a time"));
        }
        if OutPoint::new(txid_of(input.transaction), input.index).is_null() {
            return Err(BuildError::Inconsistent("an input spends no output"));
        }
    }
    Ok(())
}

fn fee_of(inputs: &[Input], output: &[TxOut]) -> Result<u64, BuildError> {
    let held = total(inputs.iter().map(|input| input.amount_sat)).ok_or(BuildError::AmountTooLarge)?;
    let paid = total(output.iter().map(|output| output.value.to_sat())).ok_or(BuildError::AmountTooLarge)?;
    held.checked_sub(paid).ok_or(BuildError::InputsTooSmall)
}

/// `None` beyond all the money that there can be.
fn total(amounts: impl IntoIterator<Item = u64>) -> Option<u64> {
    let sum = amounts.into_iter().try_fold(0_u64, u64::checked_add)?;
    (sum <= Amount::MAX_MONEY.to_sat()).then_some(sum)
}

/// A PSBT read whole: what a signer needs beside the meaning, because signatures of the older kinds do not bind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spending {
    pub meaning: Meaning,
    pub inputs: Vec<SpentInput>,
    pub lock_time: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpentInput {
    pub input: Input,
    /// The previous transaction is in the PSBT, so amount and script are known and not merely said.
    pub proven: bool,
}

/// What a PSBT does once signed. Strict: a field that is not understood refuses the whole.
pub fn decode_unsigned(bytes: &[u8], network: Network) -> Result<Meaning, DecodeError> {
    read_unsigned(bytes, network).map(|spending| spending.meaning)
}

/// The same, with the inputs.
pub fn read_unsigned(bytes: &[u8], network: Network) -> Result<Spending, DecodeError> {
    let psbt = read_psbt(bytes)?;
    check_shape(&psbt.unsigned_tx)?;
    if psbt.version != 0 || !psbt.unknown.is_empty() || !psbt.proprietary.is_empty() {
        return Err(DecodeError::NotUnderstood("fields that nobody here knows"));
    }
    if psbt.outputs.iter().any(|output| !output.unknown.is_empty() || !output.proprietary.is_empty()) {
        return Err(DecodeError::NotUnderstood("fields that nobody here knows"));
    }
    let mut segwit = true;
    let mut inputs = Vec::with_capacity(psbt.inputs.len());
    let mut weight = 2;
    for (spending, input) in psbt.unsigned_tx.input.iter().zip(&psbt.inputs) {
        check_unsigned(input)?;
        let spent = spent_output(spending, input)?;
        segwit &= spent.script_pubkey.is_witness_program();
        weight += witness_weight(&spent.script_pubkey).unwrap_or(MOST_INPUT_WEIGHT);
        let input_read = Input {
            transaction: hash_of(spending.previous_output.txid),
            index: spending.previous_output.vout,
            amount_sat: spent.value.to_sat(),
            script: spent.script_pubkey.to_bytes(),
            sequence: spending.sequence.0,
        };
        inputs.push(SpentInput { input: input_read, proven: input.non_witness_utxo.is_some() });
    }
    let payments = payments_of(&psbt.unsigned_tx, network)?;
    let held = total(inputs.iter().map(|spent| spent.input.amount_sat))
        .ok_or(DecodeError::Malformed("more money than there is"))?;
    let paid = total(psbt.unsigned_tx.output.iter().map(|output| output.value.to_sat()))
        .ok_or(DecodeError::Malformed("more money than there is"))?;
    let fee = held.checked_sub(paid).ok_or(DecodeError::Malformed("it pays more than its inputs hold"))?;
    let size = u64::try_from(psbt.unsigned_tx.base_size()).unwrap_or(u64::MAX).saturating_mul(4).saturating_add(weight);
    let meaning = Meaning {
        hash: segwit.then(|| hash_of(psbt.unsigned_tx.compute_txid())),
        from: None,
        payments,
        most_fee: Some(raw(fee)),
        fee: Fee::PerKvb(fee.saturating_mul(1_000) / size.div_ceil(4).max(1)),
        slot: slot_of(&psbt.unsigned_tx),
        chain_id: None,
    };
    Ok(Spending { meaning, inputs, lock_time: psbt.unsigned_tx.lock_time.to_consensus_u32() })
}

/// A guess for inputs whose scripts are somebody else's: P2PKH, and what a small multisignature takes.
const MOST_INPUT_WEIGHT: u64 = 4 * 108;

fn read_psbt(mut bytes: &[u8]) -> Result<Psbt, DecodeError> {
    if bytes.len() > MOST_BYTES {
        return Err(DecodeError::Malformed("longer than a block"));
    }
    let psbt = Psbt::deserialize_from_reader(&mut bytes).map_err(|_| DecodeError::Malformed("not a PSBT"))?;
    if !bytes.is_empty() {
        return Err(DecodeError::Malformed("bytes follow the PSBT"));
    }
    let (inputs, outputs) = (psbt.unsigned_tx.input.len(), psbt.unsigned_tx.output.len());
    if psbt.inputs.len() != inputs || psbt.outputs.len() != outputs {
        return Err(DecodeError::Malformed("not a PSBT"));
    }
    Ok(psbt)
}

fn check_shape(transaction: &Transaction) -> Result<(), DecodeError> {
    if transaction.input.is_empty() || transaction.output.is_empty() {
        return Err(DecodeError::Malformed("a transaction has inputs and outputs"));
    }
    if !(1..=2).contains(&transaction.version.0) {
        return Err(DecodeError::NotUnderstood("a version with other rules"));
    }
    if transaction.lock_time.to_consensus_u32() >= LOCK_TIME_SECONDS {
        return Err(DecodeError::NotUnderstood("locked until a time"));
    }
    let mut seen = BTreeSet::new();
    for input in &transaction.input {
        if input.previous_output.is_null() || !seen.insert(input.previous_output) {
            return Err(DecodeError::Malformed("an output is spent twice, or does not exist"));
        }
        if input.sequence.0 & NO_RELATIVE_LOCK == 0 {
            return Err(DecodeError::NotUnderstood("an input is locked for a time"));
        }
    }
    Ok(())
}

fn check_unsigned(input: &psbt::Input) -> Result<(), DecodeError> {
    let signed = !input.partial_sigs.is_empty()
        || input.tap_key_sig.is_some()
        || !input.tap_script_sigs.is_empty()
        || input.final_script_sig.is_some()
        || input.final_script_witness.is_some();
    if signed {
        return Err(DecodeError::NotUnderstood("an input is signed already"));
    }
    let preimages = !input.ripemd160_preimages.is_empty()
        || !input.sha256_preimages.is_empty()
        || !input.hash160_preimages.is_empty()
        || !input.hash256_preimages.is_empty();
    let scripts = !input.tap_scripts.is_empty() || input.tap_merkle_root.is_some();
    if preimages || scripts || !input.unknown.is_empty() || !input.proprietary.is_empty() {
        return Err(DecodeError::NotUnderstood("fields that nobody here knows"));
    }
    // 0 is taproot's default and 1 is ALL: every output and every input is signed for. With any other type the holder
    // of the signature could still change where the money goes.
    if input.sighash_type.is_some_and(|kind| kind.to_u32() > 1) {
        return Err(DecodeError::NotUnderstood("a signature that would not cover all inputs and outputs"));
    }
    Ok(())
}

/// The output that an input spends, as far as the PSBT can be believed.
fn spent_output<'a>(spending: &TxIn, input: &'a psbt::Input) -> Result<&'a TxOut, DecodeError> {
    let proven = match &input.non_witness_utxo {
        Some(previous) if previous.compute_txid() != spending.previous_output.txid => {
            return Err(DecodeError::Malformed("the previous transaction is another one"));
        }
        Some(previous) => {
            let index = usize::try_from(spending.previous_output.vout).unwrap_or(usize::MAX);
            let output = previous.output.get(index).ok_or(DecodeError::Malformed("the output spent does not exist"))?;
            Some(output)
        }
        None => None,
    };
    match (&input.witness_utxo, proven) {
        (Some(said), Some(proven)) if said != proven => {
            Err(DecodeError::NotUnderstood("the output spent contradicts its own transaction"))
        }
        (_, Some(proven)) => Ok(proven),
        (Some(said), None) if said.script_pubkey.is_witness_program() => Ok(said),
        (Some(_), None) => Err(DecodeError::NotUnderstood("nothing binds the amount of an input")),
        (None, None) => Err(DecodeError::NotUnderstood("the amount of an input is missing")),
    }
}

fn payments_of(transaction: &Transaction, network: Network) -> Result<Vec<Payment>, DecodeError> {
    let read = |output: &TxOut| {
        let to = of_script(&output.script_pubkey, network)
            .ok_or(DecodeError::NotUnderstood("an output that is not a payment to an address"))?;
        if output.value > Amount::MAX_MONEY {
            return Err(DecodeError::Malformed("more money than there is"));
        }
        Ok(Payment { to: Address::Bitcoin(to), coin: Coin::Native, amount: raw(output.value.to_sat()) })
    };
    transaction.output.iter().map(read).collect()
}

fn slot_of(transaction: &Transaction) -> Slot {
    let inputs =
        transaction.input.iter().map(|input| (hash_of(input.previous_output.txid), input.previous_output.vout));
    Slot::Inputs(inputs.collect())
}

/// What a signed transaction does. Its fee is not known from its bytes: `most_fee` is `None` and the rate is zero.
/// Only the form of signatures can be checked, and that each covers the whole transaction.
pub fn decode_signed(bytes: &[u8], network: Network) -> Result<Meaning, DecodeError> {
    let transaction = read_signed(bytes)?;
    check_shape(&transaction)?;
    for input in &transaction.input {
        check_witness(input)?;
    }
    Ok(Meaning {
        hash: Some(hash_of(transaction.compute_txid())),
        from: None,
        payments: payments_of(&transaction, network)?,
        most_fee: None,
        fee: Fee::PerKvb(0),
        slot: slot_of(&transaction),
        chain_id: None,
    })
}

pub fn read_signed(bytes: &[u8]) -> Result<Transaction, DecodeError> {
    if bytes.len() > MOST_BYTES {
        return Err(DecodeError::Malformed("longer than a block"));
    }
    deserialize(bytes).map_err(|_| DecodeError::Malformed("not a transaction"))
}

fn check_witness(input: &TxIn) -> Result<(), DecodeError> {
    let partial = DecodeError::NotUnderstood("a signature that does not cover all inputs and outputs");
    let malformed = DecodeError::Malformed("a signature has no form");
    if !input.script_sig.is_empty() {
        return Err(DecodeError::NotUnderstood("an input that is neither P2WPKH nor P2TR"));
    }
    let items: Vec<&[u8]> = input.witness.iter().take(3).collect();
    match items[..] {
        [] => Err(DecodeError::Malformed("an input is not signed")),
        [signature] => match taproot::Signature::from_slice(signature) {
            Ok(read) if matches!(read.sighash_type, TapSighashType::Default | TapSighashType::All) => Ok(()),
            Ok(_) => Err(partial),
            Err(_) => Err(malformed),
        },
        [signature, key] if CompressedPublicKey::from_slice(key).is_ok() => {
            match ecdsa::Signature::from_slice(signature) {
                Ok(read) if read.sighash_type == EcdsaSighashType::All => Ok(()),
                Ok(_) => Err(partial),
                Err(_) => Err(malformed),
            }
        }
        _ => Err(DecodeError::NotUnderstood("an input that is neither P2WPKH nor P2TR")),
    }
}

/// A PSBT with all its signatures becomes the raw transaction. Every signature is checked against the output that it
/// spends, so what comes out is what nodes take, if the outputs are as the PSBT says.
pub fn finalize(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let psbt = read_psbt(bytes)?;
    check_shape(&psbt.unsigned_tx)?;
    let mut spent = Vec::with_capacity(psbt.inputs.len());
    for (spending, input) in psbt.unsigned_tx.input.iter().zip(&psbt.inputs) {
        spent.push(spent_output(spending, input)?.clone());
    }
    let mut witnesses = Vec::with_capacity(spent.len());
    let mut cache = SighashCache::new(&psbt.unsigned_tx);
    for (index, (input, output)) in psbt.inputs.iter().zip(&spent).enumerate() {
        if output.script_pubkey.is_p2wpkh() {
            let (key, signature) = ecdsa_signature(input)?;
            if ScriptBuf::new_p2wpkh(&key.wpubkey_hash()) != output.script_pubkey {
                return Err(DecodeError::BadSignature);
            }
            let digest = cache
                .p2wpkh_signature_hash(index, &output.script_pubkey, output.value, EcdsaSighashType::All)
                .map_err(|_| DecodeError::BadSignature)?;
            let message = Message::from_digest(digest.to_byte_array());
            SECP256K1.verify_ecdsa(&message, &signature.signature, &key.0).map_err(|_| DecodeError::BadSignature)?;
            witnesses.push(Witness::p2wpkh(&signature, &key.0));
        } else if output.script_pubkey.is_p2tr() {
            let signature = taproot_signature(input)?;
            let digest = cache
                .taproot_key_spend_signature_hash(index, &Prevouts::All(&spent), signature.sighash_type)
                .map_err(|_| DecodeError::BadSignature)?;
            let key = XOnlyPublicKey::from_slice(&output.script_pubkey.as_bytes()[2..])
                .map_err(|_| DecodeError::BadSignature)?;
            let message = Message::from_digest(digest.to_byte_array());
            SECP256K1.verify_schnorr(&signature.signature, &message, &key).map_err(|_| DecodeError::BadSignature)?;
            witnesses.push(Witness::p2tr_key_spend(&signature));
        } else {
            return Err(DecodeError::NotUnderstood("an input that is neither P2WPKH nor P2TR"));
        }
    }
    let mut transaction = psbt.unsigned_tx;
    for (input, witness) in transaction.input.iter_mut().zip(witnesses) {
        input.witness = witness;
    }
    Ok(serialize(&transaction))
}

fn ecdsa_signature(input: &psbt::Input) -> Result<(CompressedPublicKey, ecdsa::Signature), DecodeError> {
    let read = match &input.final_script_witness {
        Some(witness) if witness.len() == 2 => witness.nth(0).zip(witness.nth(1)).and_then(|(signature, key)| {
            Some((CompressedPublicKey::from_slice(key).ok()?, ecdsa::Signature::from_slice(signature).ok()?))
        }),
        Some(_) => None,
        None => match input.partial_sigs.iter().collect::<Vec<_>>()[..] {
            [(key, signature)] if key.compressed => Some((CompressedPublicKey(key.inner), *signature)),
            _ => None,
        },
    };
    match read {
        Some((key, signature)) if signature.sighash_type == EcdsaSighashType::All => Ok((key, signature)),
        Some(_) => Err(DecodeError::NotUnderstood("a signature that does not cover all inputs and outputs")),
        None => Err(DecodeError::Malformed("an input is not signed, or not once")),
    }
}

fn taproot_signature(input: &psbt::Input) -> Result<taproot::Signature, DecodeError> {
    let read = match &input.final_script_witness {
        Some(witness) if witness.len() == 1 => witness.nth(0).and_then(|one| taproot::Signature::from_slice(one).ok()),
        Some(_) => None,
        None => input.tap_key_sig,
    };
    match read {
        Some(signature) if matches!(signature.sighash_type, TapSighashType::Default | TapSighashType::All) => {
            Ok(signature)
        }
        Some(_) => Err(DecodeError::NotUnderstood("a signature that does not cover all inputs and outputs")),
        None => Err(DecodeError::Malformed("an input is not signed")),
    }
}
