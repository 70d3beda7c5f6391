//! Blocks on demand, and blocks that are taken back.

use ::bitcoin::consensus::serialize;
use ::bitcoin::{ScriptBuf, Transaction, Txid};
use serde_json::Value;

use super::super::faucet;
use super::super::json::{Json, object};
use super::blocks::find;
use super::transactions::{decoded, script_of};
use super::{BAD_PARAMETER, Call, Failure, MISC, RpcResult, UNDECODABLE, UNKNOWN, VERIFY, WRONG_TYPE};

/// No call mines more than this.
const BLOCKS: i64 = 10_000;

fn generate(call: &mut Call<'_>, script: &ScriptBuf) -> RpcResult {
    let blocks = call.arguments.integer(0)?;
    if blocks > BLOCKS {
        return Err(Failure::new(BAD_PARAMETER, format!("a devnet mines at most {BLOCKS} blocks in one call")));
    }
    let mut hashes = Vec::new();
    for _ in 0..blocks {
        let at = call.net.mine_one(script.clone(), call.now);
        hashes.push(call.net.chain.stored(at).hash.into());
    }
    Ok(Json::Array(hashes))
}

pub(super) fn to_address(call: &mut Call<'_>) -> RpcResult {
    let address = faucet::parse(call.arguments.text(1));
    let script = address.ok_or_else(|| Failure::new(UNKNOWN, "Error: Invalid address"))?.script_pubkey();
    generate(call, &script)
}

pub(super) fn to_descriptor(call: &mut Call<'_>) -> RpcResult {
    let script = script_of(call.arguments.text(1))?;
    generate(call, &script)
}

pub(super) fn block(call: &mut Call<'_>) -> RpcResult {
    let output = call.arguments.text(0);
    let script = script_of(output).ok().or_else(|| faucet::parse(output).map(|address| address.script_pubkey()));
    let script = script.ok_or_else(|| Failure::new(UNKNOWN, "Error: Invalid address or descriptor"))?;
    let mut transactions: Vec<Transaction> = Vec::new();
    for wanted in call.arguments.list(1) {
        let Value::String(text) = wanted else {
            return Err(Failure::new(WRONG_TYPE, "JSON value of another type is not of expected type string"));
        };
        let transaction = match text.parse::<Txid>() {
            Ok(txid) => call
                .net
                .pool
                .get(&txid)
                .map(|entry| entry.transaction.clone())
                .ok_or_else(|| Failure::new(UNKNOWN, format!("Transaction {text} not in mempool.")))?,
            Err(_) => decoded(text).ok_or_else(|| {
                let message = format!("Transaction decode failed for {text}. Make sure the tx has at least one input.");
                Failure::new(UNDECODABLE, message)
            })?,
        };
        transactions.push(transaction);
    }
    let submit = call.arguments.flag(2, true);
    call.net
        .chain
        .check_next(&transactions)
        .map_err(|reject| Failure::new(VERIFY, format!("TestBlockValidity failed: {reject}")))?;
    // As in Core, who names the transactions gives their fees away.
    let block = call.net.block(script, transactions, ::bitcoin::Amount::ZERO, call.now);
    if block.weight().to_wu() > super::super::consensus::BLOCK_WEIGHT {
        return Err(Failure::new(VERIFY, "TestBlockValidity failed: bad-blk-length, size limits failed"));
    }
    let mut json = object! { "hash" => block.block_hash() };
    if submit {
        call.net.append(block).map_err(|reject| Failure::new(MISC, reject.to_string()))?;
    } else {
        json.push("hex", Json::Hex(serialize(&block)));
    }
    Ok(json)
}

fn mark(call: &mut Call<'_>, invalid: bool) -> RpcResult {
    let hash = call.arguments.hash(0, "blockhash")?;
    let lens = call.net.lens(call.view);
    let at = find(&lens, &hash)?.at;
    if invalid && at == 0 {
        // The genesis block stays, as in Core.
        return Err(Failure::new(-20, ""));
    }
    call.net.chain.mark(at, invalid);
    call.net.follow_best();
    Ok(Json::Null)
}

pub(super) fn invalidate(call: &mut Call<'_>) -> RpcResult {
    mark(call, true)
}

pub(super) fn reconsider(call: &mut Call<'_>) -> RpcResult {
    mark(call, false)
}
