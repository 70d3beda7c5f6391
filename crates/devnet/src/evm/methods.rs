//! What can be asked.

use alloy_primitives::{B256, keccak256};
use domain::Timestamp;
use serde_json::Value;

use super::block::Block;
use super::parameters::{Args, BlockId, RpcError, number};
use super::render::{self, put};
use super::seen::Seen;
use super::transaction::Received;
use super::{EvmDevnet, calls, fees, logs};
use crate::{Model, View};

type Answer = Result<String, RpcError>;

/// `evm_mine` makes no more blocks at once.
const MOST_BLOCKS: u64 = 1_024;

pub(super) fn answer(devnet: &mut EvmDevnet, view: &View, method: &str, params: Vec<Value>, now: Timestamp) -> Answer {
    match method {
        "eth_sendRawTransaction" => {
            let raw = Args::new(params, 1)?.bytes(0)?;
            let hash = devnet.deliver(&raw).map_err(|reason| RpcError::server(&reason))?;
            return Ok(format!("\"{hash}\""));
        }
        "evm_mine" => {
            let blocks = blocks_to_mine(&Args::new(params, 1)?)?;
            devnet.mine(blocks, now);
            return Ok("\"0x0\"".to_owned());
        }
        _ => {}
    }
    let at_most = most_arguments(method)
        .ok_or_else(|| RpcError::new(-32_601, format!("the method {method} does not exist/is not available")))?;
    let args = Args::new(params, at_most)?;
    let seen = devnet.seen(view);
    read(seen, method, &args, now)
}

fn blocks_to_mine(args: &Args) -> Result<u64, RpcError> {
    let Some(Value::Object(options)) = args.optional(0) else { return Ok(1) };
    let Some(blocks) = options.get("blocks") else { return Ok(1) };
    let count = match blocks.as_u64() {
        Some(count) => count,
        None => number(blocks).map_err(|problem| RpcError::argument(0, problem))?,
    };
    match count {
        1..=MOST_BLOCKS => Ok(count),
        _ => Err(RpcError::argument(0, "that many blocks are not mined at once")),
    }
}

/// None for a method that is not there.
fn most_arguments(method: &str) -> Option<usize> {
    Some(match method {
        "eth_chainId"
        | "net_version"
        | "web3_clientVersion"
        | "eth_syncing"
        | "eth_blockNumber"
        | "eth_accounts"
        | "net_listening"
        | "eth_gasPrice"
        | "eth_maxPriorityFeePerGas" => 0,
        "web3_sha3"
        | "eth_getBlockReceipts"
        | "eth_getTransactionByHash"
        | "eth_getTransactionReceipt"
        | "eth_getBlockTransactionCountByNumber"
        | "eth_getBlockTransactionCountByHash"
        | "eth_getRawTransactionByHash"
        | "eth_getLogs" => 1,
        "eth_getBlockByNumber"
        | "eth_getBlockByHash"
        | "eth_getTransactionByBlockNumberAndIndex"
        | "eth_getTransactionByBlockHashAndIndex"
        | "eth_getTransactionCount"
        | "eth_getBalance"
        | "eth_getCode"
        | "debug_traceTransaction"
        | "debug_traceBlockByNumber"
        | "debug_traceBlockByHash" => 2,
        "eth_getStorageAt" | "eth_feeHistory" => 3,
        "eth_call" | "eth_estimateGas" => 4,
        _ => return None,
    })
}

fn read(seen: Seen<'_>, method: &str, args: &Args, now: Timestamp) -> Answer {
    let settings = &seen.devnet.settings;
    match method {
        "eth_chainId" => Ok(format!("\"{:#x}\"", settings.chain_id)),
        "net_version" => Ok(format!("\"{}\"", settings.chain_id)),
        "net_listening" => Ok("true".to_owned()),
        "web3_clientVersion" => Ok("\"BursarDevnet/v1/evm\"".to_owned()),
        "web3_sha3" => Ok(format!("\"{}\"", keccak256(args.bytes(0)?))),
        "eth_syncing" => Ok("false".to_owned()),
        "eth_blockNumber" => Ok(format!("\"{:#x}\"", seen.head())),
        "eth_accounts" => {
            let accounts: Vec<_> = EvmDevnet::accounts().iter().map(|account| format!("\"{account:#x}\"")).collect();
            Ok(format!("[{}]", accounts.join(",")))
        }
        "eth_gasPrice" => Ok(fees::gas_price(seen)),
        "eth_maxPriorityFeePerGas" => Ok(fees::tip(seen)),
        "eth_feeHistory" => fees::history(seen, args),
        "eth_getBlockByNumber" => block_by_number(seen, args.block(0)?, args.flag(1)?, now),
        "eth_getBlockByHash" => Ok(block_text(seen, seen.height_of(args.hash(0)?), args.flag(1)?)),
        "eth_getBlockReceipts" => {
            let block = seen.height(args.block(0)?).and_then(|height| seen.block(height));
            Ok(block.map_or_else(null, |block| render::receipts(seen, block)))
        }
        "eth_getBlockTransactionCountByNumber" => Ok(count(seen, seen.height(args.block(0)?))),
        "eth_getBlockTransactionCountByHash" => Ok(count(seen, seen.height_of(args.hash(0)?))),
        "eth_getTransactionByHash" => Ok(transaction(seen, args.hash(0)?)),
        "eth_getRawTransactionByHash" => {
            let (sent, _) = find(seen, args.hash(0)?).unzip();
            Ok(sent.map_or_else(|| "\"0x\"".to_owned(), |sent| format!("\"{}\"", sent.raw)))
        }
        "eth_getTransactionByBlockNumberAndIndex" => {
            Ok(transaction_at(seen, seen.height(args.block(0)?), args.number(1)?))
        }
        "eth_getTransactionByBlockHashAndIndex" => {
            Ok(transaction_at(seen, seen.height_of(args.hash(0)?), args.number(1)?))
        }
        "eth_getTransactionReceipt" => {
            let Some((block, index)) = seen.place(args.hash(0)?) else { return Ok(null()) };
            let mut out = String::new();
            render::receipt(&mut out, seen, block, index);
            Ok(out)
        }
        "eth_getTransactionCount" => {
            let address = args.address(0)?;
            let nonce = match args.block_or_latest(1)? {
                BlockId::Pending => seen.pending_nonce(address),
                id => seen.at(id)?.1.account(address).nonce,
            };
            Ok(format!("\"{nonce:#x}\""))
        }
        "eth_getBalance" => {
            let address = args.address(0)?;
            let (_, at) = seen.at(args.block_or_latest(1)?)?;
            Ok(format!("\"{:#x}\"", at.account(address).balance))
        }
        "eth_getCode" => {
            let address = args.address(0)?;
            let (_, at) = seen.at(args.block_or_latest(1)?)?;
            Ok(format!("\"{}\"", at.code(at.account(address).code).original_bytes()))
        }
        "eth_getStorageAt" => {
            let (address, slot) = (args.address(0)?, args.slot(1)?);
            let (_, at) = seen.at(args.block_or_latest(2)?)?;
            Ok(format!("\"{}\"", B256::from(at.slot(address, slot))))
        }
        "eth_call" => calls::call(seen, args),
        "eth_estimateGas" => calls::estimate(seen, args),
        "eth_getLogs" => logs::answer(seen, args),
        "debug_traceTransaction" => calls::trace_transaction(seen, args),
        "debug_traceBlockByNumber" => calls::trace_block(seen, seen.height(args.block(0)?), args),
        "debug_traceBlockByHash" => calls::trace_block(seen, seen.height_of(args.hash(0)?), args),
        _ => Err(RpcError::new(-32_601, format!("the method {method} does not exist/is not available"))),
    }
}

fn null() -> String {
    "null".to_owned()
}

fn block_by_number(seen: Seen<'_>, id: BlockId, full: bool, now: Timestamp) -> Answer {
    if id != BlockId::Pending {
        return Ok(block_text(seen, seen.height(id), full));
    }
    let devnet = seen.devnet;
    let header = devnet.chain.next_header(&devnet.settings, devnet.next_base_fee(), now);
    let state = devnet.chain.state();
    let mut ready: Vec<&Received> = Vec::new();
    for sender in devnet.pool.senders() {
        let next = state.account(*sender).nonce;
        let waiting = (next..devnet.pool.next_nonce(*sender, next)).filter_map(|nonce| devnet.pool.at(*sender, nonce));
        ready.extend(waiting.map(|waiting| &*waiting.sent));
    }
    Ok(render::pending_block(&header, &ready, full))
}

fn block_text(seen: Seen<'_>, height: Option<u64>, full: bool) -> String {
    let block = height.and_then(|height| seen.block(height));
    block.map_or_else(null, |block| render::block(seen, block, seen.header(block), full))
}

fn count(seen: Seen<'_>, height: Option<u64>) -> String {
    let block = height.and_then(|height| seen.block(height));
    block.map_or_else(null, |block| format!("\"{:#x}\"", seen.shown(block)))
}

type Place<'a> = Option<(Seen<'a>, &'a Block, usize)>;

/// Mined, waiting, or in a block that this endpoint does not know yet and so waiting for all it knows.
fn find<'a>(seen: Seen<'a>, hash: B256) -> Option<(&'a Received, Place<'a>)> {
    if let Some((block, index)) = seen.place(hash) {
        return Some((block.transactions.get(index)?, Some((seen, block, index))));
    }
    if let Some(sent) = seen.devnet.pool.get(hash) {
        return Some((sent, None));
    }
    let (height, index) = seen.devnet.chain.place(hash)?;
    if height <= seen.head() {
        return None;
    }
    let block = seen.devnet.chain.block(height)?;
    Some((block.transactions.get(index)?, None))
}

fn transaction(seen: Seen<'_>, hash: B256) -> String {
    let Some((sent, place)) = find(seen, hash) else { return null() };
    let mut out = String::new();
    render::transaction(&mut out, sent, place);
    out
}

fn transaction_at(seen: Seen<'_>, height: Option<u64>, index: u64) -> String {
    let found = height.and_then(|height| seen.block(height)).and_then(|block| {
        let index = usize::try_from(index).ok().filter(|index| *index < seen.shown(block))?;
        Some((block, index, block.transactions.get(index)?))
    });
    let Some((block, index, sent)) = found else { return null() };
    let mut out = String::new();
    render::transaction(&mut out, sent, Some((seen, block, index)));
    out
}

/// A list of texts that are JSON already.
pub(super) fn list(items: impl IntoIterator<Item = String>) -> String {
    let mut out = String::from("[");
    for (index, item) in items.into_iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        put!(out, "{comma}{item}");
    }
    out.push(']');
    out
}
