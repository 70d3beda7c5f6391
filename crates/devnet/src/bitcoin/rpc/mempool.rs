//! What waits.

use std::collections::BTreeSet;

use ::bitcoin::{OutPoint, Txid};

use super::super::json::{Json, object};
use super::super::lens::Lens;
use super::super::policy::{INCREMENTAL, MIN_RELAY};
use super::super::pool::Entry;
use super::arguments::hash;
use super::{BAD_PARAMETER, Call, Failure, RpcResult, UNKNOWN, WRONG_TYPE};

pub(super) fn info(call: &mut Call<'_>) -> RpcResult {
    let pool = &call.net.pool;
    Ok(object! {
        "loaded" => true,
        "size" => pool.len(),
        "bytes" => pool.bytes,
        "usage" => pool.bytes.saturating_mul(4),
        "total_fee" => Json::amount(pool.total_fee()),
        "maxmempool" => 300_000_000,
        "mempoolminfee" => Json::amount(MIN_RELAY),
        "minrelaytxfee" => Json::amount(MIN_RELAY),
        "incrementalrelayfee" => Json::amount(INCREMENTAL),
        "unbroadcastcount" => 0,
        "permitbaremultisig" => true,
        "maxdatacarriersize" => 100_000,
        "limitclustercount" => 64,
        "limitclustersize" => 101_000,
        "optimal" => true,
    })
}

fn describe(lens: &Lens<'_>, entry: &Entry) -> Json {
    let pool = lens.pool();
    let sum = |txids: &BTreeSet<Txid>, what: fn(&Entry) -> u64| {
        txids.iter().filter_map(|txid| pool.get(txid)).map(what).fold(0, u64::saturating_add)
    };
    let (ancestors, descendants) = (pool.ancestors(&entry.txid), pool.descendants(&entry.txid));
    let chunk = pool.chunk_of(&entry.txid);
    let list = |txids: BTreeSet<Txid>| {
        // Core sorts the printed digits.
        let texts: BTreeSet<String> = txids.into_iter().map(|txid| txid.to_string()).collect();
        texts.into_iter().map(Json::from).collect::<Vec<_>>()
    };
    object! {
        "vsize" => entry.vsize(),
        "weight" => entry.weight,
        "time" => entry.time,
        "height" => entry.height,
        "descendantcount" => descendants.len(),
        "descendantsize" => sum(&descendants, Entry::vsize),
        "ancestorcount" => ancestors.len(),
        "ancestorsize" => sum(&ancestors, Entry::vsize),
        "wtxid" => entry.wtxid,
        "chunkweight" => chunk.weight,
        "fees" => object! {
            "base" => Json::amount(entry.fee),
            "modified" => Json::amount(entry.fee),
            "ancestor" => Json::amount(sum(&ancestors, |entry| entry.fee)),
            "descendant" => Json::amount(sum(&descendants, |entry| entry.fee)),
            "chunk" => Json::amount(chunk.fee),
        },
        "depends" => list(pool.parents(&entry.transaction)),
        "spentby" => list(pool.children(&entry.txid)),
        "unbroadcast" => false,
    }
}

fn listed<'a>(lens: &Lens<'_>, entries: impl Iterator<Item = &'a Entry>, verbose: bool) -> Json {
    if verbose {
        return Json::Object(entries.map(|entry| (entry.txid.to_string().into(), describe(lens, entry))).collect());
    }
    Json::Array(entries.map(|entry| entry.txid.into()).collect())
}

pub(super) fn all(call: &mut Call<'_>) -> RpcResult {
    let (verbose, sequence) = (call.arguments.flag(0, false), call.arguments.flag(1, false));
    if verbose && sequence {
        return Err(Failure::new(BAD_PARAMETER, "Verbose results cannot contain mempool sequence values."));
    }
    let lens = call.net.lens(call.view);
    let txids = listed(&lens, lens.all_waiting(), verbose);
    if sequence {
        return Ok(object! { "txids" => txids, "mempool_sequence" => lens.pool().sequence.saturating_add(1) });
    }
    Ok(txids)
}

fn find<'a>(lens: &Lens<'a>, txid: &Txid) -> Result<&'a Entry, Failure> {
    lens.waiting(txid).ok_or_else(|| Failure::new(UNKNOWN, "Transaction not in mempool"))
}

pub(super) fn entry(call: &mut Call<'_>) -> RpcResult {
    let txid = call.arguments.hash(0, "txid")?;
    let lens = call.net.lens(call.view);
    Ok(describe(&lens, find(&lens, &txid)?))
}

fn family(call: &mut Call<'_>, of: fn(&super::super::Pool, &Txid) -> BTreeSet<Txid>) -> RpcResult {
    let txid = call.arguments.hash(0, "txid")?;
    let verbose = call.arguments.flag(1, false);
    let lens = call.net.lens(call.view);
    find(&lens, &txid)?;
    let mut txids = of(lens.pool(), &txid);
    txids.remove(&txid);
    Ok(listed(&lens, txids.iter().filter_map(|txid| lens.waiting(txid)), verbose))
}

pub(super) fn ancestors(call: &mut Call<'_>) -> RpcResult {
    family(call, super::super::Pool::ancestors)
}

pub(super) fn descendants(call: &mut Call<'_>) -> RpcResult {
    family(call, super::super::Pool::descendants)
}

pub(super) fn spending(call: &mut Call<'_>) -> RpcResult {
    if call.arguments.list(0).is_empty() {
        return Err(Failure::new(BAD_PARAMETER, "Invalid parameter, outputs are missing"));
    }
    let option = |name: &str| call.arguments.get(1).get(name).and_then(serde_json::Value::as_bool);
    let (pool_only, with_transaction) = (option("mempool_only"), option("return_spending_tx").unwrap_or(false));
    let mut outpoints = Vec::new();
    for wanted in call.arguments.list(0) {
        let text = wanted.get("txid").and_then(serde_json::Value::as_str);
        let txid: Txid = hash(text.ok_or_else(|| Failure::new(WRONG_TYPE, "Missing txid"))?, "txid")?;
        let vout = wanted.get("vout").and_then(serde_json::Value::as_i64);
        let vout = vout.ok_or_else(|| Failure::new(WRONG_TYPE, "Missing vout"))?;
        let vout = u32::try_from(vout)
            .ok()
            .filter(|vout| i32::try_from(*vout).is_ok())
            .ok_or_else(|| Failure::new(BAD_PARAMETER, "Invalid parameter, vout cannot be negative"))?;
        outpoints.push(OutPoint { txid, vout });
    }
    let lens = call.net.lens(call.view);
    let mut answers = Vec::new();
    for outpoint in outpoints {
        let mut json = object! { "txid" => outpoint.txid, "vout" => outpoint.vout };
        let spender = lens.pool().spender(&outpoint).and_then(|txid| lens.waiting(&txid));
        if let Some(entry) = spender {
            json.push("spendingtxid", entry.txid);
            if with_transaction {
                json.push("spendingtx", Json::Hex(lens.raw_transaction(&entry.transaction)));
            }
        } else if pool_only == Some(false) {
            let message = "Mempool lacks a relevant spend, and txospenderindex is unavailable.";
            return Err(Failure::new(super::MISC, message));
        }
        answers.push(json);
    }
    Ok(Json::Array(answers))
}
