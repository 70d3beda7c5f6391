//! Transactions and coins of the chain.

use std::collections::{BTreeMap, BTreeSet};

use ::bitcoin::consensus::deserialize;
use ::bitcoin::{OutPoint, ScriptBuf, Transaction, Txid};
use alloy_primitives::hex;
use serde_json::Value;

use super::super::chain::Coin;
use super::super::describe::{self, Inputs};
use super::super::faucet;
use super::super::json::{Json, object};
use super::super::policy::Form;
use super::{BAD_PARAMETER, Call, Failure, MISC, RpcResult, UNDECODABLE, UNKNOWN};

pub(super) fn decoded(text: &str) -> Option<Transaction> {
    deserialize(&hex::decode(text).ok().filter(|_| !text.starts_with("0x"))?).ok()
}

pub(super) fn raw_transaction(call: &mut Call<'_>) -> RpcResult {
    let txid: Txid = call.arguments.hash(0, "parameter 1")?;
    let verbosity = call.arguments.verbosity(1, 0)?;
    let block = if call.arguments.is_given(2) { Some(call.arguments.hash(2, "parameter 3")?) } else { None };
    let lens = call.net.lens(call.view);
    if lens.chain.stored(0).txids.contains(&txid) {
        let message = "The genesis block coinbase is not considered an ordinary transaction and cannot be retrieved";
        return Err(Failure::new(UNKNOWN, message));
    }
    let missing = |what: &str| Failure::new(UNKNOWN, format!("{what}. Use gettransaction for wallet transactions."));
    let place = match block {
        Some(hash) => {
            let block = lens.by_hash(&hash).ok_or_else(|| Failure::new(UNKNOWN, "Block hash not found"))?;
            let position = block.stored.txids.iter().position(|other| *other == txid).filter(|_| !lens.hides());
            Some((block, position.ok_or_else(|| missing("No such transaction found in the provided block"))?))
        }
        None => lens.mined(&txid),
    };
    let transaction = match (place, lens.waiting(&txid)) {
        (Some((block, position)), _) => &block.stored.block.txdata[position],
        (None, Some(entry)) => &entry.transaction,
        (None, None) => return Err(missing("No such mempool or blockchain transaction")),
    };
    if verbosity <= 0 {
        return Ok(Json::Hex(lens.raw_transaction(transaction)));
    }
    let spent = place.filter(|_| verbosity >= 2).and_then(|(shown, at)| lens.chain.spent_by(shown.at, at));
    let mut json = describe::transaction(Some(&lens), transaction, spent, Inputs::WithSpent, true);
    if let Some((shown, _)) = place {
        if let (Some(_), Json::Object(fields)) = (block, &mut json) {
            fields.insert(0, ("in_active_chain".into(), shown.active.into()));
        }
        json.push("blockhash", shown.hash);
        json.push("confirmations", lens.confirmations(&shown).max(0));
        if shown.active {
            json.push("time", shown.header.time);
            json.push("blocktime", shown.header.time);
        }
    }
    Ok(json)
}

pub(super) fn decode(call: &mut Call<'_>) -> RpcResult {
    let transaction = decoded(call.arguments.text(0));
    let transaction = transaction.ok_or_else(|| Failure::new(UNDECODABLE, "TX decode failed"))?;
    Ok(describe::transaction(None, &transaction, None, Inputs::Plain, false))
}

pub(super) fn decode_script(call: &mut Call<'_>) -> RpcResult {
    let text = call.arguments.text(0);
    let bytes = hex::decode(text)
        .map_err(|_| Failure::new(BAD_PARAMETER, format!("argument must be hexadecimal string (not '{text}')")))?;
    let script = ScriptBuf::from_bytes(bytes);
    let mut json = describe::script(&script);
    if let Json::Object(fields) = &mut json {
        fields.retain(|(key, _)| key != "hex");
    }
    if !matches!(Form::of(&script), Form::ScriptHash | Form::NullData | Form::NonStandard | Form::Taproot) {
        json.push("p2sh", describe::address(&script.to_p2sh()).unwrap_or_default());
        if !script.is_witness_program() {
            let inner = if script.is_p2pkh() {
                // The same hash under the mark of a witness.
                ScriptBuf::from_bytes([&[0x00, 0x14][..], &script.as_bytes()[3..23]].concat())
            } else {
                script.to_p2wsh()
            };
            let mut segwit = describe::script(&inner);
            segwit.push("p2sh-segwit", describe::address(&inner.to_p2sh()).unwrap_or_default());
            json.push("segwit", segwit);
        }
    }
    Ok(json)
}

pub(super) fn output(call: &mut Call<'_>) -> RpcResult {
    let txid = call.arguments.hash(0, "txid")?;
    let vout = call.arguments.get(1).as_u64().and_then(|vout| u32::try_from(vout).ok());
    let vout = vout.ok_or_else(|| Failure::new(MISC, "JSON integer out of range"))?;
    let with_pool = call.arguments.flag(2, true);
    let lens = call.net.lens(call.view);
    let outpoint = OutPoint { txid, vout };
    let waiting = || {
        let out = lens.pool().output(&outpoint).filter(|_| with_pool && !lens.hides())?;
        Some((out, 0, false))
    };
    let mined = |coin: &Coin| i64::from(lens.height()).saturating_sub(i64::from(coin.height)).saturating_add(1);
    let coin = lens.coin(&outpoint).map(|coin| (&coin.out, mined(coin), coin.coinbase)).or_else(waiting);
    let spent = with_pool && lens.pool().spender(&outpoint).is_some();
    let Some((out, confirmations, coinbase)) = coin.filter(|_| !spent) else { return Ok(Json::Null) };
    Ok(object! {
        "bestblock" => lens.tip().hash,
        "confirmations" => confirmations,
        "value" => Json::amount(lens.value(out.value)),
        "scriptPubKey" => describe::script(&out.script_pubkey),
        "coinbase" => coinbase,
    })
}

pub(super) fn set_info(call: &mut Call<'_>) -> RpcResult {
    let lens = call.net.lens(call.view);
    let (mut count, mut size, mut total, mut txids) = (0_u64, 0_usize, 0_u64, BTreeSet::new());
    for (outpoint, coin) in lens.coins() {
        count = count.saturating_add(1);
        size = size.saturating_add(50).saturating_add(coin.out.script_pubkey.len());
        total = total.saturating_add(lens.value(coin.out.value));
        txids.insert(outpoint.txid);
    }
    Ok(object! {
        "height" => lens.height(),
        "bestblock" => lens.tip().hash,
        "txouts" => count,
        "bogosize" => size,
        "total_amount" => Json::amount(total),
        "transactions" => txids.len(),
        "disk_size" => 0,
    })
}

/// The script of `addr(…)` or `raw(…)`, with or without a checksum.
pub(super) fn script_of(text: &str) -> Result<ScriptBuf, Failure> {
    let bad = |message: String| Failure::new(UNKNOWN, message);
    let (body, given) = text.split_once('#').map_or((text, None), |(body, given)| (body, Some(given)));
    if let Some(given) = given {
        let computed = describe::checksum(body).ok_or_else(|| bad("Invalid characters in payload".to_owned()))?;
        if given.len() != 8 {
            return Err(bad(format!("Expected 8 character checksum, not {} characters", given.len())));
        }
        if given != computed {
            let message = format!("Provided checksum '{given}' does not match computed checksum '{computed}'");
            return Err(bad(message));
        }
    }
    let inner = |name: &str| body.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(address) = inner("addr") {
        let address = faucet::parse(address).ok_or_else(|| bad("Address is not valid".to_owned()))?;
        return Ok(address.script_pubkey());
    }
    if let Some(digits) = inner("raw") {
        let bytes = hex::decode(digits).map_err(|_| bad("Raw script is not hex".to_owned()))?;
        return Ok(ScriptBuf::from_bytes(bytes));
    }
    let name = body.split('(').next().unwrap_or_default();
    Err(bad(match name {
        "combo" | "pk" | "pkh" | "wpkh" | "sh" | "wsh" | "tr" | "rawtr" | "multi" => {
            format!("this devnet knows the descriptors addr() and raw(), not {name}()")
        }
        _ => format!("'{body}' is not a valid descriptor function"),
    }))
}

pub(super) fn scan(call: &mut Call<'_>) -> RpcResult {
    match call.arguments.text(0) {
        "status" => return Ok(Json::Null),
        "abort" => return Ok(false.into()),
        "start" => {}
        other => return Err(Failure::new(BAD_PARAMETER, format!("Invalid action '{other}'"))),
    }
    if !call.arguments.is_given(1) {
        return Err(Failure::new(MISC, "scanobjects argument is required for the start action"));
    }
    let mut wanted = BTreeMap::new();
    for object in call.arguments.list(1) {
        let text = match object {
            Value::String(text) => text.as_str(),
            Value::Object(fields) => fields
                .get("desc")
                .and_then(Value::as_str)
                .ok_or_else(|| Failure::new(BAD_PARAMETER, "Descriptor needs to be provided in scan object"))?,
            _ => {
                return Err(Failure::new(BAD_PARAMETER, "Scan object needs to be either a string or an object"));
            }
        };
        let script = script_of(text)?;
        let descriptor = describe::descriptor(&script);
        wanted.insert(script, descriptor);
    }
    let lens = call.net.lens(call.view);
    let (mut count, mut total, mut unspents) = (0_u64, 0_u64, Vec::new());
    for (outpoint, coin) in lens.coins() {
        count = count.saturating_add(1);
        let Some(descriptor) = wanted.get(&coin.out.script_pubkey) else { continue };
        let value = lens.value(coin.out.value);
        total = total.saturating_add(value);
        unspents.push(object! {
            "txid" => outpoint.txid,
            "vout" => outpoint.vout,
            "scriptPubKey" => Json::Hex(coin.out.script_pubkey.to_bytes()),
            "desc" => descriptor.as_str(),
            "amount" => Json::amount(value),
            "coinbase" => coin.coinbase,
            "height" => coin.height,
            "blockhash" => lens.at_height(coin.height).map_or(Json::Null, |block| block.hash.into()),
            "confirmations" => lens.height().saturating_sub(coin.height).saturating_add(1),
        });
    }
    Ok(object! {
        "success" => true,
        "txouts" => count,
        "height" => lens.height(),
        "bestblock" => lens.tip().hash,
        "unspents" => unspents,
        "total_amount" => Json::amount(total),
    })
}
