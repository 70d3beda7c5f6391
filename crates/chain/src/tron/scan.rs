//! Blocks in a row and what they pay, from one node.
//!
//! Blocks come in chunks, several chunks at once; the receipts of a chunk's blocks are asked for as soon as the chunk is
//! read. Calls run in tasks of their own, so that the next answers travel while this one is read. A node that
//! reorganises meanwhile gives blocks that do not join, or receipts of another block: then all is asked once more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use alloy_primitives::{B256, U256, b256};
use bytes::Bytes;
use domain::RawAmount;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tx::tron::TronAddress;
use tx::{Address, BlockRef, Coin, TxHash};

use super::wire;
use crate::block::{Header, Output, Place, Scan};
use crate::endpoint::{CallError, Node};
use crate::watch::{WatchKey, Watched};

/// Blocks per call. A node gives 100 at most; full blocks have hundreds of kilobytes each.
pub(super) const CHUNK: u64 = 20;

/// How often blocks that do not join are asked for once more.
const AGAIN: usize = 3;

/// keccak of `Transfer(address,address,uint256)`.
const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// What to look for.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub watched: &'a Watched,
    /// Sorted.
    pub tokens: &'a [TronAddress],
}

/// What came of asking one node.
pub(super) enum Found<T> {
    Whole(T),
    /// It does not have this block.
    Missing(u64),
    /// Its answers are of different branches.
    Torn,
}

/// A block as far as a scan needs it.
pub(super) struct Read {
    pub header: Header,
    pub transactions: Vec<TxHash>,
    /// With the position of their transaction in the block.
    outputs: Vec<(usize, Output)>,
}

/// One node, and how many calls it may have at a time.
struct Caller {
    node: Arc<Node>,
    room: Arc<Semaphore>,
}

/// A call that goes on by itself, and ends with its owner.
struct Ahead(JoinHandle<Result<Bytes, CallError>>);

impl Drop for Ahead {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Future for Ahead {
    type Output = Result<Bytes, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The task is aborted by its owner alone, who then asks for nothing more.
        let lost = || CallError::Unreachable { endpoint: "a call that was given up".to_owned() };
        Pin::new(&mut self.0).poll(context).map(|joined| joined.unwrap_or_else(|_| Err(lost())))
    }
}

impl Caller {
    fn ahead<Fut>(&self, call: impl FnOnce(Arc<Node>) -> Fut) -> Ahead
    where
        Fut: Future<Output = Result<Bytes, CallError>> + Send + 'static,
    {
        let (room, call) = (Arc::clone(&self.room), call(Arc::clone(&self.node)));
        Ahead(tokio::spawn(async move {
            // Nobody closes it; and if somebody did, one call too many would be the least of it.
            let _permit = room.acquire().await;
            call.await
        }))
    }
}

/// `Err` in the answer: the height that the node does not have.
pub(super) async fn scan(
    node: Arc<Node>,
    (from, to): (u64, u64),
    wanted: Wanted<'_>,
    calls: usize,
) -> Result<Result<Scan, u64>, CallError> {
    let caller = Caller { node, room: Arc::new(Semaphore::new(calls)) };
    for _ in 0..AGAIN {
        match scan_once(&caller, (from, to), wanted, calls).await? {
            Found::Whole(scan) => return Ok(Ok(scan)),
            Found::Missing(height) => return Ok(Err(height)),
            Found::Torn => {}
        }
    }
    Err(caller.node.bad("blocks that do not join"))
}

async fn scan_once(
    caller: &Caller,
    (from, to): (u64, u64),
    wanted: Wanted<'_>,
    calls: usize,
) -> Result<Found<Scan>, CallError> {
    let starts = (from..=to).step_by(usize::try_from(CHUNK).unwrap_or(1));
    let chunks = starts.map(|start| chunk(caller, start, to.min(start.saturating_add(CHUNK - 1)), wanted));
    let mut chunks = stream::iter(chunks).buffered(calls.div_ceil(2));
    let mut scan = Scan::default();
    while let Some(chunk) = chunks.try_next().await? {
        let blocks = match chunk {
            Found::Whole(blocks) => blocks,
            Found::Missing(height) => return Ok(Found::Missing(height)),
            Found::Torn => return Ok(Found::Torn),
        };
        for mut block in blocks {
            if scan.headers.last().is_some_and(|before| before.hash != block.header.parent) {
                return Ok(Found::Torn);
            }
            scan.headers.push(block.header);
            block.outputs.sort_by_key(|(position, output)| (*position, output.place));
            scan.outputs.extend(block.outputs.into_iter().map(|(_, output)| output));
        }
    }
    Ok(Found::Whole(scan))
}

async fn chunk(caller: &Caller, from: u64, to: u64, wanted: Wanted<'_>) -> Result<Found<Vec<Read>>, CallError> {
    let node = &*caller.node;
    let mut blocks: Vec<Read> = Vec::new();
    let mut todo = vec![(from, to)];
    while let Some((from, to)) = todo.pop() {
        let answer = match caller.ahead(|node| async move { fetch(&node, from, to).await }).await {
            // Anybody can pay for blocks so full that twenty of them are longer than any answer may be.
            Err(CallError::TooLong { .. }) if from < to => {
                let middle = from + (to - from) / 2;
                todo.extend([(middle + 1, to), (from, middle)]);
                continue;
            }
            answer => answer?,
        };
        match read_blocks(node, &answer, from, to, Some(wanted.watched))? {
            Found::Whole(some) => blocks.extend(some),
            other => return Ok(other),
        }
    }
    if wanted.tokens.is_empty() {
        return Ok(Found::Whole(blocks));
    }
    // The first block of a chain has no receipts, and a block without transactions needs none.
    let asked = blocks.iter_mut().filter(|block| block.header.height > 0 && !block.transactions.is_empty());
    let asked: Vec<_> = asked.map(|block| (caller.ahead(|node| receipts(node, block.header.height)), block)).collect();
    for (answer, block) in asked {
        if !read_receipts(node, &answer.await?, block, wanted)? {
            return Ok(Found::Torn);
        }
    }
    Ok(Found::Whole(blocks))
}

/// Fetches what [`scan`] fetches, as it does, and reads nothing of it. So it cannot tell a block without transactions, and
/// asks for its receipts too. How many bytes came.
pub(super) async fn fetch_only(
    node: Arc<Node>,
    (from, to): (u64, u64),
    receipts_too: bool,
    calls: usize,
) -> Result<u64, CallError> {
    let caller = &Caller { node, room: Arc::new(Semaphore::new(calls)) };
    let starts = (from..=to).step_by(usize::try_from(CHUNK).unwrap_or(1));
    let chunks = starts.map(|start| async move {
        let end = to.min(start.saturating_add(CHUNK - 1));
        let mut bytes = caller.ahead(|node| async move { fetch(&node, start, end).await }).await?.len();
        let asked = (start.max(1)..=end).filter(|_| receipts_too);
        let asked: Vec<_> = asked.map(|height| caller.ahead(|node| receipts(node, height))).collect();
        for answer in asked {
            bytes = bytes.saturating_add(answer.await?.len());
        }
        Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
    });
    let sum = |all: u64, some: u64| std::future::ready(Ok(all.saturating_add(some)));
    stream::iter(chunks).buffered(calls.div_ceil(2)).try_fold(0, sum).await
}

/// What became of a block's transactions, as the node writes it.
async fn receipts(node: Arc<Node>, height: u64) -> Result<Bytes, CallError> {
    wire::ask_list(&node, "/wallet/gettransactioninfobyblocknum", &json!({ "num": height })).await
}

/// The blocks `from..=to` as the node writes them.
pub(super) async fn fetch(node: &Node, from: u64, to: u64) -> Result<Bytes, CallError> {
    let body = json!({ "startNum": from, "endNum": to.saturating_add(1) });
    wire::ask(node, "/wallet/getblockbylimitnext", &body).await
}

/// Reads [`fetch`]'s answer. Without a watched set only ids are read. Whether the blocks join is for the caller to see,
/// who knows the one before.
pub(super) fn read_blocks(
    node: &Node,
    answer: &[u8],
    from: u64,
    to: u64,
    watched: Option<&Watched>,
) -> Result<Found<Vec<Read>>, CallError> {
    let answer: wire::Blocks<'_> = wire::read(node, answer)?;
    let mut blocks: Vec<Read> = Vec::with_capacity(answer.block.len());
    let mut heights = from..=to;
    for block in &answer.block {
        let header = block.header(node)?.ok_or_else(|| node.bad("a block without content"))?;
        if heights.next() != Some(header.height) {
            return Err(node.bad("other blocks than were asked for"));
        }
        blocks.push(read_block(node, block, header, watched)?);
    }
    Ok(heights.next().map_or(Found::Whole(blocks), Found::Missing))
}

fn read_block(
    node: &Node,
    block: &wire::Block<'_>,
    header: Header,
    watched: Option<&Watched>,
) -> Result<Read, CallError> {
    let mut transactions = Vec::with_capacity(block.transactions.len());
    let mut outputs = Vec::new();
    for (position, transaction) in block.transactions.iter().enumerate() {
        let hash = transaction.hash(node)?;
        transactions.push(hash);
        // The first block's transactions only say who had what when the chain began.
        let Some(watched) = watched.filter(|_| header.height > 0) else { continue };
        let payment = match transfer(node, transaction)? {
            Some((to, amount)) => watched.find(&WatchKey::of_account(&to.0)).map(|number| (number, to, amount)),
            None => None,
        };
        if let Some((watched, to, amount)) = payment {
            let ok = transaction.ran();
            let amount = RawAmount::from_u256(U256::from(amount));
            outputs
                .push((position, output(header.at(), hash, (Place::Value, watched), (to, Coin::Native, amount), ok)));
        }
    }
    Ok(Read { header, transactions, outputs })
}

/// The recipient and the sun of a TRX transfer, as the node writes it out.
fn transfer(node: &Node, transaction: &wire::Transaction<'_>) -> Result<Option<(TronAddress, u64)>, CallError> {
    let Some([contract]) = transaction.raw_data.as_ref().map(|raw| raw.contract.as_slice()) else {
        return Err(node.bad("a transaction without its one contract"));
    };
    let (Some(kind), Some(parameter)) = (contract.r#type, contract.parameter) else {
        return Err(node.bad("a contract without its type or its content"));
    };
    if kind != "TransferContract" {
        return Ok(None);
    }
    let parameter: wire::TransferParameter<'_> = wire::read(node, parameter.get().as_bytes())?;
    let amount = u64::try_from(parameter.value.amount).map_err(|_| node.bad("a negative amount"))?;
    wire::account(node, parameter.value.to_address).map(|to| Some((to, amount)))
}

/// Adds what the tokens' logs pay. `false`: these are not the receipts of this block.
fn read_receipts(node: &Node, answer: &[u8], block: &mut Read, wanted: Wanted<'_>) -> Result<bool, CallError> {
    let wire::Infos { all: infos } = wire::read(node, answer)?;
    if infos.len() != block.transactions.len() {
        return Ok(false);
    }
    for (position, (info, transaction)) in infos.iter().zip(&block.transactions).enumerate() {
        let id = info.id.ok_or_else(|| node.bad("a receipt without an id"))?;
        if info.height != block.header.height {
            return Err(node.bad("a receipt of another height"));
        }
        if wire::digest(node, id)? != transaction.0 {
            return Ok(false);
        }
        let logs = token_payments(node, info, (block.header.at(), *transaction), wanted)?;
        block.outputs.extend(logs.into_iter().map(|output| (position, output)));
    }
    Ok(true)
}

/// What the `Transfer` logs of listed tokens pay to watched addresses.
pub(super) fn token_payments(
    node: &Node,
    info: &wire::Info<'_>,
    (block, transaction): (BlockRef, TxHash),
    wanted: Wanted<'_>,
) -> Result<Vec<Output>, CallError> {
    let mut outputs = Vec::new();
    let ok = info.ran();
    for (number, log) in (0_u32..).zip(&info.log) {
        let Some(TokenTransfer { token, to, amount, .. }) = token_transfer(node, log, wanted.tokens)? else { continue };
        if amount.is_zero() {
            continue;
        }
        let Some(watched) = wanted.watched.find(&WatchKey::of_account(&to.0)) else { continue };
        let what = (to, Coin::Token(Address::Tron(token)), RawAmount::from_u256(amount));
        outputs.push(output(block, transaction, (Place::Log(number), watched), what, ok));
    }
    Ok(outputs)
}

/// A transfer of a listed token.
pub(super) struct TokenTransfer {
    pub token: TronAddress,
    pub from: TronAddress,
    pub to: TronAddress,
    pub amount: U256,
}

/// `None`: the log is no `Transfer` of a listed token.
pub(super) fn token_transfer(
    node: &Node,
    log: &wire::Log<'_>,
    tokens: &[TronAddress],
) -> Result<Option<TokenTransfer>, CallError> {
    let mut token = [0; 20];
    if log.address.len() != 40 || alloy_primitives::hex::decode_to_slice(log.address, &mut token).is_err() {
        return Err(node.bad("a log whose address is not 40 digits"));
    }
    let token = TronAddress(token);
    if tokens.binary_search(&token).is_err() {
        return Ok(None);
    }
    let [event, from, to] = log.topics.as_slice() else { return Ok(None) };
    if wire::digest(node, event)? != TRANSFER.0 {
        return Ok(None);
    }
    let account = |word: [u8; 32]| match word.split_at(12) {
        (upper, lower) if upper == [0; 12] => <[u8; 20]>::try_from(lower).ok().map(TronAddress),
        _ => None,
    };
    let (from, to) = (account(wire::digest(node, from)?), account(wire::digest(node, to)?));
    let (Some(from), Some(to)) = (from, to) else {
        // Not the form of a transfer. All nodes say the same, so it must not stop the scan.
        return Ok(None);
    };
    if log.data.len() != 64 {
        return Ok(None);
    }
    let amount = wire::digest(node, log.data)?;
    Ok(Some(TokenTransfer { token, from, to, amount: U256::from_be_bytes(amount) }))
}

pub(super) fn output(
    block: BlockRef,
    transaction: TxHash,
    (place, watched): (Place, u32),
    (to, coin, amount): (TronAddress, Coin, RawAmount),
    ok: bool,
) -> Output {
    Output { block, transaction, place, watched, to: Address::Tron(to), coin, amount, ok, coinbase: false }
}
