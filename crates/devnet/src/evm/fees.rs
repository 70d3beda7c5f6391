//! What to pay.

use serde_json::Value;

use super::block::Block;
use super::methods::list;
use super::parameters::{Args, RpcError, number};
use super::render::put;
use super::seen::Seen;

/// As geth has it.
const MOST_BLOCKS: u64 = 1_024;
const MOST_PERCENTILES: usize = 100;

pub(super) fn gas_price(seen: Seen<'_>) -> String {
    let price = u128::from(seen.devnet.next_base_fee()).saturating_add(seen.devnet.usual_tip());
    format!("\"{price:#x}\"")
}

pub(super) fn tip(seen: Seen<'_>) -> String {
    format!("\"{:#x}\"", seen.devnet.usual_tip())
}

pub(super) fn history(seen: Seen<'_>, args: &Args) -> Result<String, RpcError> {
    let wanted = args.required(0)?;
    let wanted = match wanted.as_u64() {
        Some(count) => count,
        None => number(wanted).map_err(|problem| RpcError::argument(0, problem))?,
    };
    let newest = seen.height(args.block(1)?).ok_or_else(|| RpcError::server("request beyond head block"))?;
    let percentiles = percentiles(args.optional(2))?;
    let count = wanted.min(MOST_BLOCKS).min(newest + 1);
    if count == 0 {
        return Ok("{\"oldestBlock\":\"0x0\",\"gasUsedRatio\":null}".to_owned());
    }
    let oldest = newest + 1 - count;
    let blocks: Vec<_> = (oldest..=newest).filter_map(|height| seen.block(height)).collect();
    let next = match seen.devnet.chain.block(newest + 1) {
        Some(block) => block.base_fee(),
        None => seen.devnet.next_base_fee(),
    };
    let base_fees = blocks.iter().map(|block| block.base_fee()).chain([next]).map(|fee| format!("\"{fee:#x}\""));
    let mut out = format!("{{\"oldestBlock\":\"{oldest:#x}\",\"baseFeePerGas\":{}", list(base_fees));
    put!(out, ",\"gasUsedRatio\":{}", list(blocks.iter().map(|block| ratio(block))));
    let blob_fees = (0..=blocks.len()).map(|_| "\"0x1\"".to_owned());
    let blob_ratios = blocks.iter().map(|_| "0".to_owned());
    put!(out, ",\"baseFeePerBlobGas\":{},\"blobGasUsedRatio\":{}", list(blob_fees), list(blob_ratios));
    if !percentiles.is_empty() {
        let rewards = blocks.iter().map(|block| list(rewards(block, &percentiles)));
        put!(out, ",\"reward\":{}", list(rewards));
    }
    out.push('}');
    Ok(out)
}

/// How full a block is, in nine digits and without floats.
fn ratio(block: &Block) -> String {
    let (used, limit) = (u128::from(block.header.gas_used), u128::from(block.header.gas_limit.max(1)));
    let billionths = used * 1_000_000_000 / limit;
    match billionths {
        0 => "0".to_owned(),
        1_000_000_000.. => "1".to_owned(),
        _ => format!("0.{billionths:09}"),
    }
}

/// In millionths of a percent, rising.
fn percentiles(value: Option<&Value>) -> Result<Vec<u64>, RpcError> {
    let values = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(values)) => values,
        Some(_) => return Err(RpcError::argument(2, "not a list of percentiles")),
    };
    if values.len() > MOST_PERCENTILES {
        return Err(RpcError::server("over the query limit 100"));
    }
    let mut found = Vec::new();
    for value in values {
        let number = value.as_number().ok_or_else(|| RpcError::argument(2, "not a number"))?;
        let percentile = millionths(&number.to_string()).filter(|percentile| *percentile <= 100_000_000);
        let percentile = percentile.ok_or_else(|| RpcError::server(&format!("invalid reward percentile: {number}")))?;
        if found.last().is_some_and(|last| *last > percentile) {
            return Err(RpcError::server("invalid reward percentile: they must rise"));
        }
        found.push(percentile);
    }
    Ok(found)
}

fn millionths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(digits.parse().ok()?)
}

/// The tip below which so much of the block's gas paid.
fn rewards(block: &Block, percentiles: &[u64]) -> Vec<String> {
    let base_fee = u128::from(block.base_fee());
    let paid = block.receipts.iter().map(|receipt| (receipt.gas_price.saturating_sub(base_fee), receipt.gas_used));
    let mut paid: Vec<_> = paid.collect();
    paid.sort_unstable();
    let total = u128::from(block.header.gas_used);
    let reward = |percentile: &u64| {
        let bar = total * u128::from(*percentile) / 100_000_000;
        let mut sum = 0;
        let found = paid.iter().find(|(_, gas)| {
            sum += u128::from(*gas);
            sum >= bar
        });
        found.or(paid.last()).map_or(0, |(tip, _)| *tip)
    };
    percentiles.iter().map(|percentile| format!("\"{:#x}\"", reward(percentile))).collect()
}
