//! Transactions and scripts as Core describes them.

use ::bitcoin::opcodes::all::OP_CHECKMULTISIG;
use ::bitcoin::script::Instruction;
use ::bitcoin::{Address, EcdsaSighashType, Network, Script, Transaction};

use super::chain::{Coin, is_unspendable};
use super::json::{Json, object};
use super::lens::Lens;
use super::policy::Form;

/// rust-bitcoin has shorter names for these two. With a space, so that nobody takes them for codes of Bursar.
const LOCK_NAMES: [&str; 2] = ["OP CHECKLOCKTIMEVERIFY", "OP CHECKSEQUENCEVERIFY"];

/// Core's text for a script. In inputs the kind of a signature is written out.
pub(super) fn asm(script: &Script, signatures: bool) -> String {
    let mut words = Vec::new();
    for instruction in script.instructions() {
        match instruction {
            Ok(Instruction::PushBytes(bytes)) if bytes.len() <= 4 => words.push(small(bytes.as_bytes()).to_string()),
            Ok(Instruction::PushBytes(bytes)) => words.push(match bytes.as_bytes() {
                [der @ .., kind] if signatures && !is_unspendable(script) => {
                    signature(der, *kind).unwrap_or_else(|| alloy_primitives::hex::encode(bytes.as_bytes()))
                }
                other => alloy_primitives::hex::encode(other),
            }),
            Ok(Instruction::Op(op)) => words.push(match op.to_u8() {
                0x4f => "-1".to_owned(),
                number @ 0x51..=0x60 => (number - 0x50).to_string(),
                0xb1 | 0xb2 => LOCK_NAMES[usize::from(op.to_u8() - 0xb1)].replace(" ", "_"),
                _ => op.to_string(),
            }),
            Err(_) => {
                words.push("[error]".to_owned());
                break;
            }
        }
    }
    words.join(" ")
}

fn signature(der: &[u8], kind: u8) -> Option<String> {
    secp256k1::ecdsa::Signature::from_der(der).ok()?;
    let kind = EcdsaSighashType::from_standard(u32::from(kind)).ok()?;
    let (name, alone) = match kind {
        EcdsaSighashType::All => ("ALL", ""),
        EcdsaSighashType::None => ("NONE", ""),
        EcdsaSighashType::Single => ("SINGLE", ""),
        EcdsaSighashType::AllPlusAnyoneCanPay => ("ALL", "|ANYONECANPAY"),
        EcdsaSighashType::NonePlusAnyoneCanPay => ("NONE", "|ANYONECANPAY"),
        EcdsaSighashType::SinglePlusAnyoneCanPay => ("SINGLE", "|ANYONECANPAY"),
    };
    Some(format!("{}[{name}{alone}]", alloy_primitives::hex::encode(der)))
}

/// A script's number: little-endian, the highest bit is the sign.
fn small(bytes: &[u8]) -> i64 {
    let Some((last, rest)) = bytes.split_last() else { return 0 };
    let high = i64::from(last & 0x7f);
    let value = rest.iter().rev().fold(high, |sum, byte| (sum << 8) | i64::from(*byte));
    if last & 0x80 == 0 { value } else { -value }
}

const CHARSET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const INPUTS: &str = concat!(
    "0123456789()[],'/*abcdefgh@:$%{}",
    "IJKLMNOPQRSTUVWXYZ&+-.;<=>?!^_|~",
    "ijklmnopqrstuvwxyzABCDEFGH`#\"\\ "
);

/// The eight letters after `#`, or nothing for a text with other letters than descriptors have.
pub(super) fn checksum(descriptor: &str) -> Option<String> {
    let (mut state, mut class, mut classes) = (1_u64, 0_u64, 0_u32);
    for letter in descriptor.chars() {
        let position = u64::try_from(INPUTS.find(letter)?).ok()?;
        state = step(state, position & 31);
        class = class * 3 + (position >> 5);
        classes += 1;
        if classes == 3 {
            state = step(state, class);
            (class, classes) = (0, 0);
        }
    }
    if classes > 0 {
        state = step(state, class);
    }
    for _ in 0..8 {
        state = step(state, 0);
    }
    state ^= 1;
    let letter = |at: u32| usize::try_from((state >> (5 * (7 - at))) & 31).ok().and_then(|at| CHARSET.get(at));
    (0..8).map(|at| letter(at).map(|letter| char::from(*letter))).collect()
}

fn step(state: u64, value: u64) -> u64 {
    const GENERATOR: [u64; 5] = [0xf5_dee5_1989, 0xa9_fdca_3312, 0x1b_ab10_e32d, 0x37_06b1_677a, 0x64_4d62_6ffd];
    let top = state >> 35;
    let next = ((state & 0x7_ffff_ffff) << 5) ^ value;
    GENERATOR
        .iter()
        .enumerate()
        .filter(|(at, _)| (top >> at) & 1 == 1)
        .fold(next, |sum, (_, generator)| sum ^ generator)
}

pub(super) fn address(script: &Script) -> Option<String> {
    Address::from_script(script, Network::Regtest).ok().map(|address| address.to_string())
}

/// The descriptor that Core infers when it knows no keys.
pub(super) fn descriptor(script: &Script) -> String {
    let hex = |bytes: &[u8]| alloy_primitives::hex::encode(bytes);
    let bytes = script.as_bytes();
    let text = match Form::of(script) {
        Form::PubKey => format!("pk({})", hex(&bytes[1..bytes.len() - 1])),
        Form::Taproot if secp256k1::XOnlyPublicKey::from_slice(&bytes[2..]).is_ok() => {
            format!("rawtr({})", hex(&bytes[2..]))
        }
        Form::Multisig => {
            let keys =
                script.instructions().filter_map(|found| found.ok()?.push_bytes().map(|key| hex(key.as_bytes())));
            let needed = bytes[0].saturating_sub(0x50);
            debug_assert_eq!(bytes.last(), Some(&OP_CHECKMULTISIG.to_u8()));
            format!("multi({needed},{})", keys.collect::<Vec<_>>().join(","))
        }
        _ => match address(script) {
            Some(address) => format!("addr({address})"),
            None => format!("raw({})", hex(bytes)),
        },
    };
    match checksum(&text) {
        Some(sum) => format!("{text}#{sum}"),
        None => text,
    }
}

pub(super) fn script(script: &Script) -> Json {
    let form = Form::of(script);
    let mut json = object! {
        "asm" => asm(script, false),
        "desc" => descriptor(script),
        "hex" => Json::Hex(script.to_bytes()),
    };
    if let Some(address) = address(script).filter(|_| form != Form::PubKey) {
        json.push("address", address);
    }
    json.push("type", form.name());
    json
}

/// How much of the inputs is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Inputs {
    Plain,
    WithSpent,
}

/// `spent` are the coins of the inputs, if they are known; then there is a fee. A lens may inflate what it shows.
pub(super) fn transaction(
    lens: Option<&Lens<'_>>,
    transaction: &Transaction,
    spent: Option<&[Coin]>,
    inputs: Inputs,
    hex: bool,
) -> Json {
    let value = |amount: ::bitcoin::Amount| Json::amount(lens.map_or(amount.to_sat(), |lens| lens.value(amount)));
    let mut vin = Vec::with_capacity(transaction.input.len());
    for (at, input) in transaction.input.iter().enumerate() {
        let mut json = if transaction.is_coinbase() {
            object! { "coinbase" => Json::Hex(input.script_sig.to_bytes()) }
        } else {
            object! {
                "txid" => input.previous_output.txid,
                "vout" => input.previous_output.vout,
                "scriptSig" => object! {
                    "asm" => asm(&input.script_sig, true),
                    "hex" => Json::Hex(input.script_sig.to_bytes()),
                },
            }
        };
        if !input.witness.is_empty() {
            json.push("txinwitness", input.witness.iter().map(|item| Json::Hex(item.to_vec())).collect::<Vec<_>>());
        }
        if let Some(coin) = spent.and_then(|spent| spent.get(at)).filter(|_| inputs == Inputs::WithSpent) {
            json.push(
                "prevout",
                object! {
                    "generated" => coin.coinbase,
                    "height" => coin.height,
                    "value" => value(coin.out.value),
                    "scriptPubKey" => script(&coin.out.script_pubkey),
                },
            );
        }
        json.push("sequence", input.sequence.to_consensus_u32());
        vin.push(json);
    }
    let out = |(n, output): (usize, &::bitcoin::TxOut)| {
        object! {
            "value" => value(output.value),
            "n" => n,
            "scriptPubKey" => script(&output.script_pubkey),
        }
    };
    let weight = transaction.weight().to_wu();
    let mut json = object! {
        "txid" => transaction.compute_txid(),
        "hash" => transaction.compute_wtxid(),
        "version" => u32::from_ne_bytes(transaction.version.0.to_ne_bytes()),
        "size" => transaction.total_size(),
        "vsize" => weight.div_ceil(4),
        "weight" => weight,
        "locktime" => transaction.lock_time.to_consensus_u32(),
        "vin" => vin,
        "vout" => transaction.output.iter().enumerate().map(out).collect::<Vec<_>>(),
    };
    if let Some(spent) = spent {
        let total = |amounts: &mut dyn Iterator<Item = u64>| amounts.fold(0, u64::saturating_add);
        let paid = total(&mut spent.iter().map(|coin| coin.out.value.to_sat()));
        let received = total(&mut transaction.output.iter().map(|output| output.value.to_sat()));
        json.push("fee", Json::amount(paid.saturating_sub(received)));
    }
    if hex {
        let raw =
            lens.map_or_else(|| ::bitcoin::consensus::serialize(transaction), |lens| lens.raw_transaction(transaction));
        json.push("hex", Json::Hex(raw));
    }
    json
}
