//! Calls that change nothing: `eth_call`, `eth_estimateGas`, and traces of what was mined.

use alloy_consensus::Transaction as _;
use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_primitives::{Address, Bytes, TxKind, U256};
use revm::DatabaseCommit;
use revm::context::TxEnv;
use revm::context::result::ExecutionResult;
use revm::database::CacheDB;
use serde_json::{Map, Value, json};

use super::block::Block;
use super::execute::{self, block_env, halt_words, revert_reason, words};
use super::parameters::{self, Args, RpcError};
use super::seen::Seen;
use super::state::At;
use super::trace::Frame;
use super::transaction::GAS_CAP;

type Answer = Result<String, RpcError>;

/// A transfer of coins and nothing else.
const PLAIN_GAS: u64 = 21_000;

pub(super) fn call(seen: Seen<'_>, args: &Args) -> Answer {
    let (block, at, request) = prepare(seen, args)?;
    let limit = seen.devnet.settings.gas_limit;
    let transaction = TxEnv { gas_limit: request.gas_limit.min(limit), ..request };
    let result = execute::call(at, seen.devnet.settings.chain_id, block_env(&block.header), transaction);
    match result.map_err(|failure| RpcError::server(&words(&failure)))? {
        ExecutionResult::Success { output, .. } => Ok(format!("\"{}\"", output.into_data())),
        ExecutionResult::Revert { output, .. } => Err(reverted(&output)),
        ExecutionResult::Halt { reason, .. } => Err(RpcError::server(&halt_words(&reason))),
    }
}

/// The least gas with which it succeeds.
pub(super) fn estimate(seen: Seen<'_>, args: &Args) -> Answer {
    let (block, at, request) = prepare(seen, args)?;
    let chain_id = seen.devnet.settings.chain_id;
    let env = block_env(&block.header);
    let run = |gas: u64| {
        let transaction = TxEnv { gas_limit: gas, ..request.clone() };
        execute::call(at, chain_id, env.clone(), transaction)
    };
    if let TxKind::Call(to) = request.kind
        && request.data.is_empty()
        && !at.account(to).has_code()
        && request.gas_limit >= PLAIN_GAS
        && run(PLAIN_GAS).is_ok_and(|result| result.is_success())
    {
        return Ok(format!("\"{PLAIN_GAS:#x}\""));
    }
    let mut high = request.gas_limit.min(seen.devnet.settings.gas_limit).min(GAS_CAP);
    if request.gas_price > 0 {
        let left = at.account(request.caller).balance.checked_sub(request.value);
        let left = left.ok_or_else(|| RpcError::server("insufficient funds for transfer"))?;
        let affordable = left / U256::from(request.gas_price);
        high = u64::try_from(affordable).map_or(high, |affordable| affordable.min(high));
    }
    let first = run(high).map_err(|failure| RpcError::server(&words(&failure)))?;
    let used = match &first {
        ExecutionResult::Success { gas, .. } => gas.tx_gas_used(),
        ExecutionResult::Revert { output, .. } => return Err(reverted(output)),
        ExecutionResult::Halt { reason, .. } => {
            let words = halt_words(reason);
            let words = match words == "out of gas" {
                true => format!("gas required exceeds allowance ({high})"),
                false => words,
            };
            return Err(RpcError::server(&words));
        }
    };
    let mut low = used.saturating_sub(1);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        match run(middle).is_ok_and(|result| result.is_success()) {
            true => high = middle,
            false => low = middle,
        }
    }
    Ok(format!("\"{high:#x}\""))
}

fn reverted(output: &Bytes) -> RpcError {
    let message = match revert_reason(output) {
        Some(reason) => format!("execution reverted: {reason}"),
        None => "execution reverted".to_owned(),
    };
    RpcError { code: 3, message, data: Some(output.to_string()) }
}

fn prepare<'a>(seen: Seen<'a>, args: &Args) -> Result<(&'a Block, At<'a>, TxEnv), RpcError> {
    let Value::Object(object) = args.required(0)? else { return Err(RpcError::argument(0, "not an object")) };
    for index in [2, 3] {
        if args.optional(index).is_some_and(|value| value.as_object().is_none_or(|object| !object.is_empty())) {
            return Err(RpcError::argument(index, "overrides are not supported"));
        }
    }
    let (block, at) = seen.at(args.block_or_latest(1)?)?;
    let request = request(object, seen.devnet.settings.chain_id)?;
    Ok((block, at, request))
}

fn request(object: &Map<String, Value>, chain_id: u64) -> Result<TxEnv, RpcError> {
    let given = |name: &str| object.get(name).filter(|value| !value.is_null());
    let bad = |problem: &str| RpcError::argument(0, problem);
    let address = |name| given(name).map(parameters::address).transpose().map_err(bad);
    let number = |name| given(name).map(parameters::number).transpose().map_err(bad);
    let fee = |name| -> Result<Option<u128>, RpcError> {
        let Some(value) = given(name) else { return Ok(None) };
        let fee = parameters::big(value).map_err(bad)?;
        u128::try_from(fee).map(Some).map_err(|_| RpcError::server("max fee per gas higher than 2^128-1"))
    };
    let bytes = |name| given(name).map(parameters::bytes).transpose().map_err(bad);
    let (data, input) = (bytes("data")?, bytes("input")?);
    if data.is_some() && input.is_some() && data != input {
        return Err(RpcError::server(
            "both \"data\" and \"input\" are set and not equal. Please use \"input\" to pass transaction call data",
        ));
    }
    if number("chainId")?.is_some_and(|id| id != chain_id) {
        return Err(RpcError::server(&format!("chainId does not match node's (want={chain_id})")));
    }
    let (price, cap, tip) = (fee("gasPrice")?, fee("maxFeePerGas")?, fee("maxPriorityFeePerGas")?);
    if price.is_some() && (cap.is_some() || tip.is_some()) {
        return Err(RpcError::server("both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified"));
    }
    let value = given("value").map(parameters::big).transpose().map_err(bad)?;
    let access_list = given("accessList").map(access_list).transpose()?.unwrap_or_default();
    let dynamic = cap.is_some() || tip.is_some();
    let tx_type = if dynamic { 2 } else { u8::from(!access_list.0.is_empty()) };
    Ok(TxEnv {
        tx_type,
        caller: address("from")?.unwrap_or(Address::ZERO),
        gas_limit: number("gas")?.unwrap_or(u64::MAX / 2),
        gas_price: price.or(cap).or(tip).unwrap_or_default(),
        kind: address("to")?.map_or(TxKind::Create, TxKind::Call),
        value: value.unwrap_or_default(),
        data: input.or(data).unwrap_or_default(),
        nonce: 0,
        chain_id: Some(chain_id),
        access_list,
        gas_priority_fee: dynamic.then(|| tip.unwrap_or_default()),
        ..TxEnv::default()
    })
}

fn access_list(value: &Value) -> Result<AccessList, RpcError> {
    let bad = || RpcError::argument(0, "invalid access list");
    let item = |value: &Value| {
        let address = value.get("address").and_then(|value| parameters::address(value).ok()).ok_or_else(bad)?;
        let keys = value.get("storageKeys").and_then(Value::as_array).ok_or_else(bad)?;
        let keys = keys.iter().map(|key| parameters::hash(key).map_err(|_| bad()));
        Ok(AccessListItem { address, storage_keys: keys.collect::<Result<_, RpcError>>()? })
    };
    let items = value.as_array().ok_or_else(bad)?;
    items.iter().map(item).collect::<Result<_, RpcError>>().map(AccessList)
}

pub(super) fn trace_transaction(seen: Seen<'_>, args: &Args) -> Answer {
    let shallow = only_top(args)?;
    let found = seen.place(args.hash(0)?);
    let (block, index) = found.ok_or_else(|| RpcError::server("transaction not found"))?;
    let frames = frames(seen, block, index + 1)?;
    let frame = frames.get(index).ok_or_else(|| RpcError::server("transaction not found"))?;
    Ok(frame_json(frame, shallow).to_string())
}

pub(super) fn trace_block(seen: Seen<'_>, height: Option<u64>, args: &Args) -> Answer {
    let shallow = only_top(args)?;
    let block = height.and_then(|height| seen.block(height));
    let block = block.ok_or_else(|| RpcError::server("block not found"))?;
    if block.header.number == 0 {
        return Err(RpcError::server("genesis is not traceable"));
    }
    let frames = frames(seen, block, block.transactions.len())?;
    let traces = block.transactions.iter().zip(&frames);
    let traces = traces
        .take(seen.shown(block))
        .filter(|_| !seen.hides_transactions())
        .map(|(sent, frame)| json!({ "txHash": sent.hash.to_string(), "result": frame_json(frame, shallow) }));
    Ok(Value::Array(traces.collect()).to_string())
}

/// The only tracer that there is, and its only option.
fn only_top(args: &Args) -> Result<bool, RpcError> {
    let tracer = args.optional(1).and_then(|options| options.get("tracer"));
    if tracer.and_then(Value::as_str) != Some("callTracer") {
        return Err(RpcError::server("tracer not found: only callTracer is"));
    }
    let configuration = args.optional(1).and_then(|options| options.get("tracerConfig"));
    let only_top = configuration.and_then(|options| options.get("onlyTopCall"));
    Ok(only_top.and_then(Value::as_bool).unwrap_or_default())
}

/// Runs the block's first transactions once more.
fn frames(seen: Seen<'_>, block: &Block, count: usize) -> Result<Vec<Frame>, RpcError> {
    let (chain, settings) = (&seen.devnet.chain, &seen.devnet.settings);
    let parent = block.header.number.checked_sub(1).and_then(|height| chain.at(height, settings.history));
    let parent = parent.ok_or_else(|| RpcError::server("required historical state unavailable (reexec=128)"))?;
    let mut state = CacheDB::new(parent);
    let mut frames = Vec::new();
    for sent in block.transactions.iter().take(count) {
        let env = block_env(&block.header);
        let (outcome, frame) = execute::traced(&state, settings.chain_id, env, sent.env())
            .map_err(|failure| RpcError::server(&format!("tracing failed: {}", words(&failure))))?;
        let mut frame = frame.ok_or_else(|| RpcError::server("tracing failed: no frame"))?;
        // geth counts the intrinsic gas and the refund into the outermost frame.
        frame.gas = sent.envelope.gas_limit();
        frame.gas_used = outcome.result.tx_gas_used();
        state.commit(outcome.state);
        frames.push(frame);
    }
    Ok(frames)
}

fn frame_json(frame: &Frame, shallow: bool) -> Value {
    let mut fields = json!({
        "type": frame.kind.to_ascii_uppercase(),
        "from": format!("{:#x}", frame.from),
        "gas": format!("{:#x}", frame.gas),
        "gasUsed": format!("{:#x}", frame.gas_used),
        "input": frame.input.to_string(),
    });
    let Some(object) = fields.as_object_mut() else { return fields };
    let mut put = |name: &str, value: Value| {
        object.insert(name.to_owned(), value);
    };
    if let Some(to) = frame.to {
        put("to", Value::from(format!("{to:#x}")));
    }
    if let Some(value) = frame.value {
        put("value", Value::from(format!("{value:#x}")));
    }
    if !frame.output.is_empty() {
        put("output", Value::from(frame.output.to_string()));
    }
    if let Some(error) = &frame.error {
        put("error", Value::from(error.clone()));
    }
    if let Some(reason) = &frame.reason {
        put("revertReason", Value::from(reason.clone()));
    }
    if !shallow && !frame.calls.is_empty() {
        put("calls", Value::Array(frame.calls.iter().map(|call| frame_json(call, false)).collect()));
    }
    fields
}
