//! The calls that more than one subject makes. Each checks that the answer is one to its question.

use alloy_primitives::{B256, Bloom};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::wire::{Block, BlockHead, Commitments, Hex, Receipt, quantity};
use crate::block::Header;
use crate::endpoint::json_rpc::{batch, batch_unread, call};
use crate::endpoint::{CallError, Node};

/// A block, what is read of its transactions, and its bloom where the node tells it.
pub(super) type Told<T> = (Header, Vec<T>, Option<Hex<Bloom>>);

/// Runs it beside its caller, on another thread when there is one: answers are long, and one is read while the next
/// comes in. It ends with its caller.
pub(super) async fn beside<T: Send + 'static>(
    node: &Node,
    work: impl Future<Output = Result<T, CallError>> + Send + 'static,
) -> Result<T, CallError> {
    let mut tasks = JoinSet::new();
    tasks.spawn(work);
    match tasks.join_next().await {
        Some(Ok(answer)) => answer,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Some(Err(_)) | None => Err(CallError::Unreachable { endpoint: node.name().to_owned() }),
    }
}

/// JSON-RPC's "method not found".
const NO_METHOD: i64 = -32_601;
/// What nodes say of the state and the blocks that they have thrown away.
const THROWN_AWAY: [&str; 4] = ["missing trie node", "pruned", "historical state", "state not available"];

/// A refusal that says nothing about the chain, only about the node: it does not serve the method, or keeps no state of so
/// old a block. Another node may.
pub(super) fn lacking(node: &Node, error: CallError) -> CallError {
    let CallError::Refused { code, message, .. } = &error else { return error };
    let words = message.to_ascii_lowercase();
    if *code == NO_METHOD || THROWN_AWAY.iter().any(|known| words.contains(known)) {
        return node.lacks(message);
    }
    error
}

/// Many calls, `chunk` of them in a request. The first that fails fails all.
pub(super) async fn chunked<T: DeserializeOwned>(
    node: &Node,
    calls: &[(&str, Value)],
    chunk: usize,
) -> Result<Vec<T>, CallError> {
    let mut answers = Vec::with_capacity(calls.len());
    for some in calls.chunks(chunk.max(1)) {
        for answer in batch(node, some).await? {
            answers.push(answer?);
        }
    }
    Ok(answers)
}

/// Many calls, so many of them in a request and so many requests on their way. Each has an answer of its own.
pub(super) async fn separately<T: DeserializeOwned + Send>(
    node: &Node,
    calls: &[(&str, Value)],
    (chunk, at_once): (usize, usize),
) -> Result<Vec<Result<T, CallError>>, CallError> {
    let mut requests = Vec::new();
    for some in calls.chunks(chunk.max(1)) {
        requests.push(batch::<T>(node, some));
    }
    let answers: Vec<Vec<Result<T, CallError>>> = stream::iter(requests).buffered(at_once.max(1)).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

fn header_of<T>(node: &Node, block: &Block<T>, asked: Option<u64>) -> Result<Header, CallError> {
    let header = block.header().ok_or_else(|| node.bad("a block of a time that cannot be"))?;
    match asked {
        Some(height) if height != header.height => {
            Err(node.bad(format!("block {} where {height} was asked for", header.height)))
        }
        _ => Ok(header),
    }
}

pub(super) async fn tip(node: &Node) -> Result<Header, CallError> {
    let block: BlockHead = call(node, "eth_getBlockByNumber", json!(["latest", false])).await?;
    header_of(node, &block, None)
}

/// `None`: the node does not have it, or not yet.
pub(super) async fn headers(node: &Node, heights: &[u64], chunk: usize) -> Result<Vec<Option<Header>>, CallError> {
    let calls: Vec<_> =
        heights.iter().map(|height| ("eth_getBlockByNumber", json!([quantity(*height), false]))).collect();
    let blocks: Vec<Option<BlockHead>> = chunked(node, &calls, chunk).await?;
    let headers = blocks
        .iter()
        .zip(heights)
        .map(|(block, height)| block.as_ref().map(|block| header_of(node, block, Some(*height))).transpose());
    headers.collect()
}

pub(super) async fn header(node: &Node, height: u64) -> Result<Option<Header>, CallError> {
    Ok(headers(node, &[height], 1).await?.pop().flatten())
}

/// A header and what it commits to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sealed {
    pub header: Header,
    pub transactions_root: B256,
    pub receipts_root: B256,
    pub bloom: Bloom,
    pub base_fee: Option<u64>,
}

/// As [`headers`], with all that a proof of the block needs.
pub(super) async fn sealed(node: &Node, heights: &[u64], chunk: usize) -> Result<Vec<Option<Sealed>>, CallError> {
    let calls: Vec<_> =
        heights.iter().map(|height| ("eth_getBlockByNumber", json!([quantity(*height), false]))).collect();
    let found: Vec<Option<Commitments>> = chunked(node, &calls, chunk).await?;
    let read = |(found, height): (Option<Commitments>, &u64)| {
        let Some(found) = found else { return Ok(None) };
        let head = BlockHead {
            number: found.number,
            hash: found.hash,
            parent_hash: found.parent_hash,
            timestamp: found.timestamp,
            logs_bloom: None,
            transactions: serde::de::IgnoredAny,
        };
        Ok(Some(Sealed {
            header: header_of(node, &head, Some(*height))?,
            transactions_root: found.transactions_root.0,
            receipts_root: found.receipts_root.0,
            bloom: found.logs_bloom.0,
            base_fee: found.base_fee_per_gas.map(|fee| fee.0),
        }))
    };
    found.into_iter().zip(heights).map(read).collect()
}

fn block_calls(first: u64, last: u64) -> Vec<(&'static str, Value)> {
    (first..=last).map(|height| ("eth_getBlockByNumber", json!([quantity(height), true]))).collect()
}

/// The calls of [`blocks`], and how many bytes came back.
pub(super) async fn unread(node: &Node, first: u64, last: u64) -> Result<u64, CallError> {
    batch_unread(node, &block_calls(first, last)).await
}

/// The blocks `first..=last` with their transactions.
pub(super) async fn blocks<T: DeserializeOwned + Send>(
    node: &Node,
    first: u64,
    last: u64,
) -> Result<Vec<Option<Told<T>>>, CallError> {
    let calls = block_calls(first, last);
    let answers: Vec<Option<Block<Vec<T>>>> = chunked(node, &calls, calls.len()).await?;
    let blocks = answers.into_iter().zip(first..=last).map(|(block, height)| {
        let block =
            block.map(|block| Ok((header_of(node, &block, Some(height))?, block.transactions, block.logs_bloom)));
        block.transpose()
    });
    blocks.collect()
}

/// In the order of the hashes. `None`: it is in no block that the node has.
pub(super) async fn receipts(node: &Node, of: &[B256], chunk: usize) -> Result<Vec<Option<Receipt>>, CallError> {
    let calls: Vec<_> = of.iter().map(|hash| ("eth_getTransactionReceipt", json!([hash.to_string()]))).collect();
    let receipts: Vec<Option<Receipt>> = chunked(node, &calls, chunk).await?;
    for (receipt, hash) in receipts.iter().zip(of) {
        let Some(receipt) = receipt else { continue };
        if receipt.transaction_hash.0 != *hash {
            return Err(node.bad("the receipt of another transaction"));
        }
        if receipt.status.0 > 1 {
            return Err(node.bad("a receipt whose status is neither 0 nor 1"));
        }
        let foreign = |log: &super::wire::Log| {
            log.transaction_hash.0 != *hash || log.block_hash.0 != receipt.block_hash.0 || log.removed
        };
        if receipt.logs.iter().any(foreign) {
            return Err(node.bad("a receipt with a log of something else"));
        }
        if receipt.status.0 == 0 && !receipt.logs.is_empty() {
            return Err(node.bad("a receipt of a transaction that reverted, with logs"));
        }
    }
    Ok(receipts)
}

pub(super) async fn receipt(node: &Node, of: B256) -> Result<Option<Receipt>, CallError> {
    Ok(receipts(node, &[of], 1).await?.pop().flatten())
}

/// The nonce after all that is mined up to this block.
pub(super) async fn count(node: &Node, account: &str, at: u64) -> Result<u64, CallError> {
    let Hex(count) = call(node, "eth_getTransactionCount", json!([account, quantity(at)])).await?;
    Ok(count)
}
