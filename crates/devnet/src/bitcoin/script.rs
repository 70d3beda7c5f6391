//! Runs the scripts with Core's own interpreter, and finds words for what it refused.
//!
//! `bitcoinconsensus` knows the rules of blocks (taproot's too) but neither the stricter ones of relay nor a reason, so
//! both are here for the forms that wallets use: one key in P2PK, P2PKH, P2WPKH, P2SH-P2WPKH and P2TR. What other scripts
//! do wrong is told apart more roughly than Core does.

use ::bitcoin::consensus::serialize;
use ::bitcoin::hashes::{Hash, hash160, sha256};
use ::bitcoin::opcodes::all::{OP_CHECKMULTISIG, OP_CHECKSIG};
use ::bitcoin::script::Instruction;
use ::bitcoin::taproot::ControlBlock;
use ::bitcoin::{EcdsaSighashType, Script, Transaction, TxIn};
use bitcoinconsensus::Utxo;
use secp256k1::{SECP256K1, XOnlyPublicKey};

use super::chain::Coin;
use super::policy::{Form, last_push};

const FALSE: &str = "Script evaluated without error but finished with a false/empty top stack element";
const EQUAL_VERIFY: &str = "Script failed an OP_EQUALVERIFY operation";
const NULL_FAIL: &str = "Signature must be zero for failed CHECK(MULTI)SIG operation";
const DER: &str = "Non-canonical DER signature";
const HIGH_S: &str = "Non-canonical signature: S value is unnecessarily high";
const HASH_TYPE: &str = "Signature hash type missing or not understood";
const KEY_TYPE: &str = "Public key is neither compressed or uncompressed";
const UNCOMPRESSED: &str = "Using non-compressed keys in segwit";
const STACK: &str = "Operation not valid with the current stack size";
const CLEAN_STACK: &str = "Stack size must be exactly one after execution";
const MINIMAL: &str = "Data push larger than necessary";
const WITNESS_EMPTY: &str = "Witness program was passed an empty witness";
const WITNESS_MISMATCH: &str = "Witness program hash mismatch";
const WITNESS_MALLEATED: &str = "Witness requires empty scriptSig";
const WITNESS_MALLEATED_P2SH: &str = "Witness requires only-redeemscript scriptSig";
const SCHNORR: &str = "Invalid Schnorr signature";
const SCHNORR_SIZE: &str = "Invalid Schnorr signature size";
const SCHNORR_HASH_TYPE: &str = "Invalid Schnorr signature hash type";
const CONTROL_SIZE: &str = "Invalid Taproot control block size";
const LEAF_VERSION: &str = "Taproot version reserved for soft-fork upgrades";

/// The rules of blocks. The input that fails, and why.
pub(super) fn verify(transaction: &Transaction, coins: &[Coin]) -> Result<(), (usize, &'static str)> {
    let raw = serialize(transaction);
    let utxos: Vec<Utxo> = coins
        .iter()
        .map(|coin| Utxo {
            script_pubkey: coin.out.script_pubkey.as_bytes().as_ptr(),
            script_pubkey_len: u32::try_from(coin.out.script_pubkey.len()).unwrap_or(0),
            value: i64::try_from(coin.out.value.to_sat()).unwrap_or(0),
        })
        .collect();
    for (at, (input, coin)) in transaction.input.iter().zip(coins).enumerate() {
        let script = &coin.out.script_pubkey;
        let result = bitcoinconsensus::verify(script.as_bytes(), coin.out.value.to_sat(), &raw, Some(&utxos), at);
        if result.is_err() {
            return Err((at, explain(input, script)));
        }
    }
    Ok(())
}

/// The rules of blocks and, input by input, the stricter ones of relay.
pub(super) fn verify_standard(transaction: &Transaction, coins: &[Coin]) -> Result<(), (usize, &'static str)> {
    let consensus = verify(transaction, coins);
    let first_bad = consensus.as_ref().err().map_or(usize::MAX, |(at, _)| *at);
    for (at, (input, coin)) in transaction.input.iter().zip(coins).enumerate().take_while(|(at, _)| *at < first_bad) {
        if let Some(why) = stricter(input, &coin.out.script_pubkey) {
            return Err((at, why));
        }
    }
    consensus
}

enum Signed<'a> {
    /// A signature and a key that must have this hash.
    Key { signature: &'a [u8], key: &'a [u8], hash: &'a [u8], segwit: bool },
    /// The form already says what is wrong.
    Wrong(&'static str),
    /// Another script; these are its arguments.
    Other(Vec<&'a [u8]>),
}

fn pushes(script: &Script) -> Option<Vec<&[u8]>> {
    script
        .instructions()
        .map(|instruction| match instruction {
            Ok(Instruction::PushBytes(bytes)) => Some(bytes.as_bytes()),
            Ok(Instruction::Op(_)) => Some(&[1_u8][..]),
            Err(_) => None,
        })
        .collect()
}

fn witness_key<'a>(input: &'a TxIn, hash: &'a [u8]) -> Signed<'a> {
    match input.witness.len() {
        2 => Signed::Key { signature: &input.witness[0], key: &input.witness[1], hash, segwit: true },
        _ => Signed::Wrong(WITNESS_MISMATCH),
    }
}

fn read<'a>(input: &'a TxIn, script: &'a Script) -> Signed<'a> {
    match Form::of(script) {
        Form::WitnessKeyHash if !input.script_sig.is_empty() => Signed::Wrong(WITNESS_MALLEATED),
        Form::WitnessKeyHash => witness_key(input, &script.as_bytes()[2..]),
        Form::PubKeyHash => {
            if input.script_sig.instructions_minimal().any(|instruction| instruction.is_err()) {
                return Signed::Wrong(MINIMAL);
            }
            match pushes(&input.script_sig).as_deref() {
                Some([.., signature, key]) => {
                    Signed::Key { signature, key, hash: &script.as_bytes()[3..23], segwit: false }
                }
                _ => Signed::Wrong(STACK),
            }
        }
        Form::ScriptHash => {
            let Some(arguments) = pushes(&input.script_sig) else { return Signed::Wrong(FALSE) };
            match arguments.as_slice() {
                [.., last] if hash160::Hash::hash(last).as_byte_array() != &script.as_bytes()[2..22] => {
                    Signed::Wrong(FALSE)
                }
                [only] if Script::from_bytes(only).is_p2wpkh() => witness_key(input, &only[2..]),
                [.., last] if Script::from_bytes(last).is_p2wpkh() => Signed::Wrong(WITNESS_MALLEATED_P2SH),
                _ => Signed::Other(arguments),
            }
        }
        Form::WitnessScriptHash => match input.witness.last() {
            _ if !input.script_sig.is_empty() => Signed::Wrong(WITNESS_MALLEATED),
            None => Signed::Wrong(WITNESS_EMPTY),
            Some(inner) if sha256::Hash::hash(inner).as_byte_array() != &script.as_bytes()[2..] => {
                Signed::Wrong(WITNESS_MISMATCH)
            }
            Some(_) => Signed::Other(input.witness.iter().collect()),
        },
        _ => Signed::Other(pushes(&input.script_sig).unwrap_or_default()),
    }
}

/// What a signature must be before anybody asks whether it is right.
fn encoding(signature: &[u8]) -> Option<&'static str> {
    let (kind, der) = signature.split_last()?;
    let Ok(parsed) = secp256k1::ecdsa::Signature::from_der(der) else { return Some(DER) };
    let mut low = parsed;
    low.normalize_s();
    if low != parsed {
        return Some(HIGH_S);
    }
    EcdsaSighashType::from_standard(u32::from(*kind)).is_err().then_some(HASH_TYPE)
}

fn key_encoding(key: &[u8], segwit: bool) -> Option<&'static str> {
    match (key.first(), key.len()) {
        (Some(2 | 3), 33) => None,
        (Some(4), 65) if segwit => Some(UNCOMPRESSED),
        (Some(4), 65) => None,
        _ => Some(KEY_TYPE),
    }
}

/// What relay refuses though blocks may hold it.
fn stricter(input: &TxIn, script: &Script) -> Option<&'static str> {
    if Form::of(script) == Form::Taproot {
        let leaf = input.witness.last().and_then(|control| control.first()).map(|first| first & 0xfe);
        return (input.witness.len() >= 2 && leaf != Some(0xc0)).then_some(LEAF_VERSION);
    }
    match read(input, script) {
        Signed::Key { signature, key, segwit, .. } => {
            encoding(signature).or_else(|| key_encoding(key, segwit)).or_else(|| {
                let extra = Form::of(script) == Form::PubKeyHash && input.script_sig.instructions().count() > 2;
                extra.then_some(CLEAN_STACK)
            })
        }
        // Whatever is wrong with the form was refused by the rules of blocks, but for a push longer than it need be.
        Signed::Wrong(why) => Some(why),
        Signed::Other(arguments) => arguments
            .iter()
            .filter(|argument| argument.len() > 60 && argument.len() < 74 && argument.first() == Some(&0x30))
            .find_map(|signature| encoding(signature)),
    }
}

/// Why the interpreter may have refused an input.
fn explain(input: &TxIn, script: &Script) -> &'static str {
    if Form::of(script) == Form::Taproot {
        return explain_taproot(input, &script.as_bytes()[2..]);
    }
    match read(input, script) {
        Signed::Wrong(why) => why,
        Signed::Key { key, hash, .. } if hash160::Hash::hash(key).as_byte_array() != hash => EQUAL_VERIFY,
        Signed::Key { signature, key, segwit, .. } => {
            let fails = if signature.is_empty() { FALSE } else { NULL_FAIL };
            encoding(signature).or_else(|| key_encoding(key, segwit)).unwrap_or(fails)
        }
        Signed::Other(arguments) => {
            let inner = match Form::of(script) {
                Form::WitnessScriptHash => input.witness.last().map(|last| Script::from_bytes(last).to_owned()),
                Form::ScriptHash => last_push(&input.script_sig),
                _ => Some(script.to_owned()),
            };
            let signed = inner.is_some_and(|inner| {
                let checks = |op| op == OP_CHECKSIG || op == OP_CHECKMULTISIG;
                inner.instructions().any(|found| matches!(found, Ok(Instruction::Op(op)) if checks(op)))
            });
            let any = arguments.iter().any(|argument| argument.len() > 8);
            if signed && any {
                NULL_FAIL
            } else if arguments.is_empty() {
                STACK
            } else {
                FALSE
            }
        }
    }
}

fn explain_taproot(input: &TxIn, output_key: &[u8]) -> &'static str {
    if !input.script_sig.is_empty() {
        return WITNESS_MALLEATED;
    }
    match (input.witness.len(), input.witness.last()) {
        (1, Some(signature)) => match signature {
            [_, .., kind] if signature.len() == 65 => {
                let known = matches!(kind, 1..=3 | 0x81..=0x83);
                if known { SCHNORR } else { SCHNORR_HASH_TYPE }
            }
            _ if signature.len() == 64 => SCHNORR,
            _ => SCHNORR_SIZE,
        },
        (_, Some(control)) => {
            let fits = control.len() >= 33 && (control.len() - 33) % 32 == 0 && control.len() <= 33 + 32 * 128;
            let script = input.witness.nth(input.witness.len() - 2).unwrap_or_default();
            let committed = || {
                let key = XOnlyPublicKey::from_slice(output_key).ok()?;
                let control = ControlBlock::decode(control).ok()?;
                Some(control.verify_taproot_commitment(SECP256K1, key, Script::from_bytes(script)))
            };
            match (fits, committed()) {
                (false, _) => CONTROL_SIZE,
                (true, Some(true)) if input.witness.iter().any(|item| matches!(item.len(), 64 | 65)) => SCHNORR,
                (true, Some(true)) => FALSE,
                (true, _) => WITNESS_MISMATCH,
            }
        }
        (_, None) => WITNESS_EMPTY,
    }
}
