//! The JSON of blocks, transactions, receipts and logs, written straight into text: a scan asks for thousands.

use alloy_consensus::{Header, Transaction as _, TxType};
use alloy_primitives::{Log, U256};

use super::block::Block;
use super::seen::Seen;
use super::transaction::Received;

/// Writing into a string cannot fail.
macro_rules! put {
    ($out:expr, $($argument:tt)*) => {{
        use std::fmt::Write as _;
        write!($out, $($argument)*).expect("a string takes all that is written to it")
    }};
}
pub(super) use put;

/// A block with the hashes of its transactions, or with all of them.
pub(super) fn block(seen: Seen<'_>, block: &Block, header: &Header, full: bool) -> String {
    let cell = if full { &block.rendered.full } else { &block.rendered.hashes };
    if seen.blocks_are_real()
        && let Some(text) = cell.get()
    {
        return text.clone();
    }
    let hash = seen.hash(block);
    let mut out = String::with_capacity(2_048 + block.transactions.len() * if full { 900 } else { 70 });
    out.push('{');
    put!(out, "\"hash\":\"{hash}\",\"nonce\":\"{}\",\"number\":\"{:#x}\",", header.nonce, header.number);
    put!(out, "\"size\":\"{:#x}\",", block.size());
    header_fields(&mut out, header);
    out.push_str(",\"transactions\":[");
    for index in 0..seen.shown(block) {
        let Some(sent) = block.transactions.get(seen.placed(block, index)) else { continue };
        if index > 0 {
            out.push(',');
        }
        match full {
            true => transaction(&mut out, sent, Some((seen, block, index))),
            false => put!(out, "\"{}\"", sent.hash),
        }
    }
    out.push_str("]}");
    if seen.blocks_are_real() {
        keep(seen, cell, &out);
    }
    out
}

/// A block that is not mined yet: geth shows no hash and no nonce.
pub(super) fn pending_block(header: &Header, transactions: &[&Received], full: bool) -> String {
    let mut out = String::from("{\"hash\":null,\"nonce\":null,\"size\":\"0x0\",");
    put!(out, "\"number\":\"{:#x}\",", header.number);
    header_fields(&mut out, header);
    out.push_str(",\"transactions\":[");
    for (index, sent) in transactions.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        match full {
            true => transaction(&mut out, sent, None),
            false => put!(out, "\"{}\"", sent.hash),
        }
    }
    out.push_str("]}");
    out
}

fn header_fields(out: &mut String, header: &Header) {
    put!(out, "\"parentHash\":\"{}\",\"sha3Uncles\":\"{}\",", header.parent_hash, header.ommers_hash);
    put!(out, "\"miner\":\"{:#x}\",\"stateRoot\":\"{}\",", header.beneficiary, header.state_root);
    put!(out, "\"transactionsRoot\":\"{}\",\"receiptsRoot\":\"{}\",", header.transactions_root, header.receipts_root);
    put!(out, "\"logsBloom\":\"{}\",\"difficulty\":\"{:#x}\",", header.logs_bloom, header.difficulty);
    put!(out, "\"gasLimit\":\"{:#x}\",\"gasUsed\":\"{:#x}\",", header.gas_limit, header.gas_used);
    put!(out, "\"timestamp\":\"{:#x}\",\"extraData\":\"{}\",", header.timestamp, header.extra_data);
    put!(out, "\"mixHash\":\"{}\",\"uncles\":[],\"withdrawals\":[]", header.mix_hash);
    if let Some(fee) = header.base_fee_per_gas {
        put!(out, ",\"baseFeePerGas\":\"{fee:#x}\"");
    }
    for (name, hash) in [
        ("withdrawalsRoot", header.withdrawals_root),
        ("parentBeaconBlockRoot", header.parent_beacon_block_root),
        ("requestsHash", header.requests_hash),
    ] {
        if let Some(hash) = hash {
            put!(out, ",\"{name}\":\"{hash}\"");
        }
    }
    for (name, gas) in [("blobGasUsed", header.blob_gas_used), ("excessBlobGas", header.excess_blob_gas)] {
        if let Some(gas) = gas {
            put!(out, ",\"{name}\":\"{gas:#x}\"");
        }
    }
}

/// Mined at a place, or still waiting.
pub(super) fn transaction(out: &mut String, sent: &Received, place: Option<(Seen<'_>, &Block, usize)>) {
    let envelope = &sent.envelope;
    out.push('{');
    match place {
        None => out.push_str("\"blockHash\":null,\"blockNumber\":null,\"transactionIndex\":null,"),
        Some((seen, block, index)) => {
            put!(out, "\"blockHash\":\"{}\",\"blockNumber\":\"{:#x}\",", seen.hash(block), block.header.number);
            put!(out, "\"transactionIndex\":\"{index:#x}\",");
        }
    }
    let price = match place {
        Some((_, block, _)) => envelope.effective_gas_price(block.header.base_fee_per_gas),
        None => sent.fee_cap(),
    };
    put!(out, "\"from\":\"{:#x}\",\"gas\":\"{:#x}\",\"gasPrice\":\"{price:#x}\",", sent.from, sent.gas());
    if let Some(tip) = envelope.max_priority_fee_per_gas() {
        put!(out, "\"maxFeePerGas\":\"{:#x}\",\"maxPriorityFeePerGas\":\"{tip:#x}\",", sent.fee_cap());
    }
    put!(out, "\"hash\":\"{}\",\"input\":\"{}\",\"nonce\":\"{:#x}\",", sent.hash, envelope.input(), sent.nonce());
    match sent.to() {
        Some(to) => put!(out, "\"to\":\"{to:#x}\","),
        None => out.push_str("\"to\":null,"),
    }
    let value = place.map_or(envelope.value(), |(seen, ..)| seen.value(envelope.value()));
    put!(out, "\"value\":\"{value:#x}\",\"type\":\"{:#x}\",", envelope.tx_type() as u8);
    if let Some(list) = envelope.access_list() {
        out.push_str("\"accessList\":[");
        for (index, item) in list.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            put!(out, "{comma}{{\"address\":\"{:#x}\",\"storageKeys\":[", item.address);
            for (index, key) in item.storage_keys.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                put!(out, "{comma}\"{key}\"");
            }
            out.push_str("]}");
        }
        out.push_str("],");
    }
    let signature = envelope.signature();
    let odd = u64::from(signature.v());
    if let Some(id) = envelope.chain_id() {
        put!(out, "\"chainId\":\"{id:#x}\",");
        match envelope.tx_type() {
            TxType::Legacy => {
                let v = U256::from(id) * U256::from(2) + U256::from(35 + odd);
                put!(out, "\"v\":\"{v:#x}\",");
            }
            _ => put!(out, "\"v\":\"{odd:#x}\",\"yParity\":\"{odd:#x}\","),
        }
    }
    put!(out, "\"r\":\"{:#x}\",\"s\":\"{:#x}\"}}", signature.r(), signature.s());
}

/// All receipts of a block.
pub(super) fn receipts(seen: Seen<'_>, block: &Block) -> String {
    let cell = &block.rendered.receipts;
    if seen.receipts_are_real()
        && let Some(text) = cell.get()
    {
        return text.clone();
    }
    let mut out = String::with_capacity(2 + block.transactions.len() * 1_600);
    out.push('[');
    if !seen.hides_transactions() {
        for index in 0..seen.shown(block) {
            if index > 0 {
                out.push(',');
            }
            receipt(&mut out, seen, block, index);
        }
    }
    out.push(']');
    if seen.receipts_are_real() {
        keep(seen, cell, &out);
    }
    out
}

pub(super) fn receipt(out: &mut String, seen: Seen<'_>, block: &Block, index: usize) {
    let (Some(sent), Some(receipt)) = (block.transactions.get(index), block.receipts.get(index)) else {
        out.push_str("null");
        return;
    };
    put!(out, "{{\"blockHash\":\"{}\",\"blockNumber\":\"{:#x}\",", seen.hash(block), block.header.number);
    match receipt.contract {
        Some(contract) => put!(out, "\"contractAddress\":\"{contract:#x}\","),
        None => out.push_str("\"contractAddress\":null,"),
    }
    put!(out, "\"cumulativeGasUsed\":\"{:#x}\",", receipt.cumulative_gas_used);
    put!(out, "\"effectiveGasPrice\":\"{:#x}\",\"from\":\"{:#x}\",", receipt.gas_price, sent.from);
    put!(out, "\"gasUsed\":\"{:#x}\",\"logs\":[", receipt.gas_used);
    let logs = seen.logs(block, receipt);
    for (number, one) in logs.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        log(out, seen, block, index, receipt.first_log + number, one);
    }
    let bloom = if seen.receipts_are_real() { receipt.bloom } else { alloy_primitives::logs_bloom(logs.iter()) };
    put!(out, "],\"logsBloom\":\"{bloom}\",\"status\":\"{:#x}\",", u8::from(seen.succeeded(receipt)));
    match sent.to() {
        Some(to) => put!(out, "\"to\":\"{to:#x}\","),
        None => out.push_str("\"to\":null,"),
    }
    put!(out, "\"transactionHash\":\"{}\",\"transactionIndex\":\"{index:#x}\",", sent.hash);
    put!(out, "\"type\":\"{:#x}\"}}", sent.envelope.tx_type() as u8);
}

/// `index` is its transaction's place in the block, `number` its own.
pub(super) fn log(out: &mut String, seen: Seen<'_>, block: &Block, index: usize, number: usize, log: &Log) {
    put!(out, "{{\"address\":\"{:#x}\",\"topics\":[", log.address);
    for (index, topic) in log.data.topics().iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        put!(out, "{comma}\"{topic}\"");
    }
    put!(out, "],\"data\":\"{}\",\"blockHash\":\"{}\",", log.data.data, seen.hash(block));
    put!(out, "\"blockNumber\":\"{:#x}\",\"blockTimestamp\":\"{:#x}\",", block.header.number, block.header.timestamp);
    let hash = block.transactions.get(index).map(|sent| sent.hash).unwrap_or_default();
    put!(out, "\"transactionHash\":\"{hash}\",\"transactionIndex\":\"{index:#x}\",");
    put!(out, "\"logIndex\":\"{number:#x}\",\"removed\":false}}");
}

fn keep(seen: Seen<'_>, cell: &std::cell::OnceCell<String>, text: &str) {
    if cell.set(text.to_owned()).is_ok() {
        let rendered = &seen.devnet.rendered;
        rendered.set(rendered.get().saturating_add(text.len()));
    }
}
