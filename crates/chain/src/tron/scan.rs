//! Blocks in a row, what they pay and what they take, from one node.
//!
//! Blocks come in chunks, several chunks at once; the receipts of a chunk's blocks are asked for as soon as the chunk is
//! read. Calls run in tasks of their own, so that the next answers travel while this one is read. A node that
//! reorganises meanwhile gives blocks that do not join, or receipts of another block: then all is asked once more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use alloy_primitives::U256;
use bytes::Bytes;
use domain::RawAmount;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tx::tron::TronAddress;
use tx::{Coin, TxHash};

use super::movement::{Asked, Wanted, by_info, fee, output, spend};
use super::wire;
use crate::block::{Header, Output, Place, Scan, Spend};
use crate::endpoint::{CallError, Node};
use crate::watch::{WatchKey, Watched};

/// Blocks per call. A node gives 100 at most; full blocks have hundreds of kilobytes each.
pub(super) const CHUNK: u64 = 20;

/// How often blocks that do not join are asked for once more.
const AGAIN: usize = 3;

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
    /// Both with the position of their transaction in the block.
    outputs: Vec<(usize, Output)>,
    spends: Vec<(usize, Spend)>,
    /// The positions of the transactions that a watched address has sent, and who.
    senders: Vec<(usize, u32, TronAddress)>,
    /// Whether it runs contracts, which may move TRX.
    runs_contracts: bool,
}

impl Read {
    pub(super) const fn of(header: Header) -> Self {
        Self {
            header,
            transactions: Vec::new(),
            outputs: Vec::new(),
            spends: Vec::new(),
            senders: Vec::new(),
            runs_contracts: false,
        }
    }

    /// Adds its next transaction, and whether it ran.
    pub(super) fn take(&mut self, (hash, ok): (TxHash, bool), asked: Asked, watched: &Watched) {
        let (position, at) = (self.transactions.len(), (self.header.at(), hash));
        self.transactions.push(hash);
        // The first block's transactions only say who had what when the chain began.
        if self.header.height == 0 {
            return;
        }
        let found = |account: TronAddress| Some((watched.find(&WatchKey::of_account(&account.0))?, account));
        self.runs_contracts |= asked.runs_contract;
        let amount = RawAmount::from_u256(U256::from(asked.amount));
        // What a contract gets is for the contract: only a transfer pays somebody.
        if let Some((number, to)) = asked.to.filter(|_| !asked.runs_contract && asked.amount > 0).and_then(found) {
            let what = (to, Coin::Native, amount);
            self.outputs.push((position, output(at, (Place::Value, number), what, ok)));
        }
        if let Some((number, from)) = asked.owner.and_then(found) {
            self.senders.push((position, number, from));
            if ok && asked.amount > 0 {
                let what = (from, asked.to, Coin::Native, amount);
                self.spends.push((position, spend(at, (Place::Value, number), what, ok)));
            }
        }
    }

    pub(super) fn add(&mut self, receipts: Receipts) {
        self.outputs.extend(receipts.outputs);
        self.spends.extend(receipts.spends);
    }

    /// In the order of the chain.
    pub(super) fn put_into(mut self, scan: &mut Scan) {
        scan.headers.push(self.header);
        self.outputs.sort_by_key(|(position, output)| (*position, output.place));
        scan.outputs.extend(self.outputs.into_iter().map(|(_, output)| output));
        self.spends.sort_by_key(|(position, spend)| (*position, spend.place));
        scan.spends.extend(self.spends.into_iter().map(|(_, spend)| spend));
    }

    /// The first block of a chain has no receipts, and a block without transactions needs none.
    pub(super) fn needs_receipts(&self, wanted: Wanted<'_>) -> bool {
        let tells = !wanted.tokens.is_empty() || !self.senders.is_empty() || (wanted.internal && self.runs_contracts);
        self.header.height > 0 && !self.transactions.is_empty() && tells
    }
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
        for block in blocks {
            if scan.headers.last().is_some_and(|before| before.hash != block.header.parent) {
                return Ok(Found::Torn);
            }
            block.put_into(&mut scan);
        }
    }
    Ok(Found::Whole(scan.of_node(caller.node.name())))
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
    let asked = blocks.iter_mut().filter(|block| block.needs_receipts(wanted));
    let asked: Vec<_> = asked.map(|block| (caller.ahead(|node| receipts(node, block.header.height)), block)).collect();
    for (answer, block) in asked {
        match read_receipts(node, &answer.await?, block, wanted)? {
            Some(told) => block.add(told),
            None => return Ok(Found::Torn),
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
pub(super) async fn receipts(node: Arc<Node>, height: u64) -> Result<Bytes, CallError> {
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
    let mut read = Read::of(header);
    for transaction in &block.transactions {
        let hash = transaction.hash(node)?;
        match watched {
            Some(watched) => read.take((hash, transaction.ran()), Asked::read(node, transaction)?, watched),
            None => read.transactions.push(hash),
        }
    }
    Ok(read)
}

/// What the receipts of a block tell, each with the position of its transaction.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Receipts {
    outputs: Vec<(usize, Output)>,
    spends: Vec<(usize, Spend)>,
}

/// Tokens, what contracts moved, and the fees of watched senders. `None`: these are not the receipts of this block.
pub(super) fn read_receipts(
    node: &Node,
    answer: &[u8],
    block: &Read,
    wanted: Wanted<'_>,
) -> Result<Option<Receipts>, CallError> {
    let wire::Infos { all: infos } = wire::read(node, answer)?;
    if infos.len() != block.transactions.len() {
        return Ok(None);
    }
    let mut told = Receipts::default();
    let mut senders = block.senders.iter().peekable();
    for (position, (info, transaction)) in infos.iter().zip(&block.transactions).enumerate() {
        let id = info.id.ok_or_else(|| node.bad("a receipt without an id"))?;
        if info.height != block.header.height {
            return Err(node.bad("a receipt of another height"));
        }
        if wire::digest(node, id)? != transaction.0 {
            return Ok(None);
        }
        let at = (block.header.at(), *transaction);
        let moved = by_info(node, info, at, wanted)?;
        told.outputs.extend(moved.outputs.into_iter().map(|output| (position, output)));
        told.spends.extend(moved.spends.into_iter().map(|spend| (position, spend)));
        if let Some((_, number, from)) = senders.next_if(|(sent, ..)| *sent == position) {
            told.spends.extend(fee(node, info, at, (*number, *from))?.map(|spend| (position, spend)));
        }
    }
    Ok(Some(told))
}
