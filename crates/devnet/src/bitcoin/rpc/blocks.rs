//! Blocks and headers.

use std::collections::BTreeSet;

use ::bitcoin::BlockHash;
use ::bitcoin::consensus::serialize;

use super::super::describe::{self, Inputs};
use super::super::json::{Json, object};
use super::super::lens::{Lens, Shown};
use super::{BAD_PARAMETER, Call, Failure, RpcResult, UNKNOWN};

/// Of regtest, for ever.
pub(super) const DIFFICULTY: &str = "4.656542373906925e-10";
pub(super) const TARGET: &str = "7fffff0000000000000000000000000000000000000000000000000000000000";

pub(super) fn count(call: &mut Call<'_>) -> RpcResult {
    Ok(call.net.lens(call.view).height().into())
}

pub(super) fn best_hash(call: &mut Call<'_>) -> RpcResult {
    Ok(call.net.lens(call.view).tip().hash.into())
}

pub(super) fn hash(call: &mut Call<'_>) -> RpcResult {
    let height = call.arguments.integer(0)?;
    let lens = call.net.lens(call.view);
    let block = u32::try_from(height).ok().and_then(|height| lens.at_height(height));
    block.map(|block| block.hash.into()).ok_or_else(|| Failure::new(BAD_PARAMETER, "Block height out of range"))
}

pub(super) fn find<'a>(lens: &Lens<'a>, hash: &BlockHash) -> Result<Shown<'a>, Failure> {
    lens.by_hash(hash).ok_or_else(|| Failure::new(UNKNOWN, "Block not found"))
}

/// Two for every block: regtest's work.
pub(super) fn chain_work(height: u32) -> String {
    format!("{:064x}", u64::from(height).saturating_add(1).saturating_mul(2))
}

fn header_json(lens: &Lens<'_>, block: &Shown<'_>) -> Json {
    let (stored, header) = (block.stored, &block.header);
    let version = header.version.to_consensus();
    let mut json = object! {
        "hash" => block.hash,
        "confirmations" => lens.confirmations(block),
        "height" => stored.height,
        "version" => version,
        "versionHex" => format!("{version:08x}"),
        "merkleroot" => header.merkle_root.to_string(),
        "time" => header.time,
        "mediantime" => stored.median_time,
        "nonce" => header.nonce,
        "bits" => format!("{:08x}", header.bits.to_consensus()),
        "target" => TARGET,
        "difficulty" => Json::raw(DIFFICULTY),
        "chainwork" => chain_work(stored.height),
        "nTx" => stored.txids.len(),
    };
    if stored.parent.is_some() {
        json.push("previousblockhash", header.prev_blockhash);
    }
    if let Some(next) = lens.at_height(stored.height.saturating_add(1)).filter(|_| block.active) {
        json.push("nextblockhash", next.hash);
    }
    json
}

pub(super) fn header(call: &mut Call<'_>) -> RpcResult {
    let hash = call.arguments.hash(0, "hash")?;
    let verbose = call.arguments.flag(1, true);
    let lens = call.net.lens(call.view);
    let block = find(&lens, &hash)?;
    Ok(if verbose { header_json(&lens, &block) } else { Json::Hex(serialize(&block.header)) })
}

pub(super) fn block(call: &mut Call<'_>) -> RpcResult {
    let hash = call.arguments.hash(0, "blockhash")?;
    let verbosity = call.arguments.verbosity(1, 1)?;
    let lens = call.net.lens(call.view);
    let block = find(&lens, &hash)?;
    if verbosity <= 0 {
        return Ok(Json::Hex(lens.raw_block(&block)));
    }
    let (stored, mut json) = (block.stored, header_json(&lens, &block));
    let weight = stored.block.weight().to_wu();
    let size = stored.raw.len();
    // Weight is three times the bytes without witnesses, and once all.
    json.push("strippedsize", weight.saturating_sub(u64::try_from(size).unwrap_or(weight)) / 3);
    json.push("size", size);
    json.push("weight", weight);
    if let Some((coinbase, input)) = stored.block.txdata.first().and_then(|first| Some((first, first.input.first()?))) {
        let mut facts = object! {
            "version" => coinbase.version.0,
            "locktime" => coinbase.lock_time.to_consensus_u32(),
            "sequence" => input.sequence.to_consensus_u32(),
            "coinbase" => Json::Hex(input.script_sig.to_bytes()),
        };
        if let Some(item) = input.witness.iter().next() {
            facts.push("witness", Json::Hex(item.to_vec()));
        }
        json.push("coinbase_tx", facts);
    }
    let transactions = if verbosity == 1 {
        stored.txids.iter().take(lens.shown_of(stored)).map(|txid| Json::from(*txid)).collect::<Vec<_>>()
    } else {
        let inputs = if verbosity >= 3 { Inputs::WithSpent } else { Inputs::Plain };
        let all = stored.block.txdata.iter().enumerate().take(lens.shown_of(stored));
        all.map(|(at, transaction)| {
            describe::transaction(Some(&lens), transaction, lens.chain.spent_by(block.at, at), inputs, true)
        })
        .collect()
    };
    json.push("tx", transactions);
    Ok(json)
}

pub(super) fn tips(call: &mut Call<'_>) -> RpcResult {
    let lens = call.net.lens(call.view);
    let all = lens.chain.all();
    let stale: Vec<usize> = (0..all.len()).filter(|at| !lens.chain.is_active(*at)).collect();
    let parents: BTreeSet<usize> = stale.iter().filter_map(|at| all[*at].parent).collect();
    let mut tips = vec![(lens.height(), 0, lens.tip().hash, "active")];
    for at in stale.into_iter().filter(|at| !parents.contains(at) && lens.knows(all[*at].height)) {
        let (mut fork, mut length) = (at, 0_u32);
        while !lens.chain.is_active(fork) {
            length = length.saturating_add(1);
            match all[fork].parent {
                Some(parent) => fork = parent,
                None => break,
            }
        }
        let status = if lens.chain.has_invalid_ancestor(at) { "invalid" } else { "valid-fork" };
        tips.push((all[at].height, length, all[at].hash, status));
    }
    tips.sort_by_key(|tip| std::cmp::Reverse(tip.0));
    let tip = |(height, length, hash, status): (u32, u32, BlockHash, &str)| {
        object! { "height" => height, "hash" => hash, "branchlen" => length, "status" => status }
    };
    Ok(Json::Array(tips.into_iter().map(tip).collect()))
}
