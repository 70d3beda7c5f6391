//! Blocks in a row, what they pay to watched addresses and what they take from them, all from one node.
//!
//! Blocks come in batches, several at a time, and one is read while the next is on its way. The receipts that a batch of
//! blocks calls for are asked for together as well; traces are not, since that of one block is long already. What binds
//! the answers together is checked: every header names the one before it, and every log and receipt names the hash of its
//! block. When it does not fit, the chain has moved during the scan, and the scan is made again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alloy_primitives::{Address as Account, B256};
use futures_util::StreamExt;
use futures_util::future::try_join;
use futures_util::stream::FuturesOrdered;
use serde_json::json;

use super::EvmSettings;
use super::outputs::{Fields, TRANSFER, TokenTransfer, Told, find, token_transfer};
use super::rpc::{beside, blocks, chunked, receipts, unread};
use super::trace::{Moved, Traced, moved};
use super::window::{Window, too_much};
use super::wire::{Log, Paying, Receipt, quantity};
use crate::block::{Header, Scan};
use crate::endpoint::json_rpc::call;
use crate::endpoint::{CallError, Node};
use crate::watch::{WatchKey, Watched};

/// How often a scan is made again because the chain moved under it.
const TRIES: u32 = 4;

pub(super) enum Trouble {
    Call(CallError),
    /// The answers are of two branches.
    Moved,
    Missing(u64),
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

pub(super) struct Scanner<'a> {
    pub settings: &'a EvmSettings,
    pub window: &'a Window,
    pub node: Arc<Node>,
    pub watched: &'a Watched,
}

/// A transfer that the filter found, and where its receipt must have it.
struct Hint {
    log_index: u64,
    transfer: TokenTransfer,
}

/// A block, and what has to be known of it.
struct Read {
    header: Header,
    transactions: Vec<Paying>,
    /// Both by the place of the transaction in the block.
    hints: BTreeMap<usize, Vec<Hint>>,
    moved: Vec<Vec<Moved>>,
    /// The transactions that may pay or cost somebody who is watched: their receipts tell.
    wanted: BTreeSet<usize>,
}

impl Read {
    fn wanted_hashes(&self) -> impl Iterator<Item = B256> {
        self.wanted.iter().map(|index| self.transactions[*index].hash.0)
    }
}

/// Does it with the blocks `from..=to`, `batch` of them at a time and `concurrency` of these at once, in their order.
pub(super) async fn in_steps<T, Fut, E>(
    (from, to): (u64, u64),
    settings: &EvmSettings,
    work: impl Fn(u64, u64) -> Fut,
    mut each: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E>
where
    Fut: Future<Output = Result<T, E>>,
{
    let step = u64::try_from(settings.batch).unwrap_or(1);
    let mut next = Some(from).filter(|first| *first <= to);
    let mut running = FuturesOrdered::new();
    loop {
        while let Some(first) = next.filter(|_| running.len() < settings.concurrency) {
            let last = first.saturating_add(step - 1).min(to);
            running.push_back(work(first, last));
            next = last.checked_add(1).filter(|first| *first <= to);
        }
        match running.next().await {
            Some(done) => each(done?)?,
            None => return Ok(()),
        }
    }
}

/// Fetches what [`Scanner::scan`] fetches of the blocks, as it does, and reads nothing of it. How many bytes came.
pub(super) async fn fetch_only(
    node: &Arc<Node>,
    (from, to): (u64, u64),
    settings: &EvmSettings,
) -> Result<u64, CallError> {
    let mut bytes = 0_u64;
    let fetch = |first, last| {
        let asked = Arc::clone(node);
        beside(node, async move { unread(&asked, first, last).await })
    };
    let count = |some| {
        bytes = bytes.saturating_add(some);
        Ok(())
    };
    in_steps((from, to), settings, fetch, count).await?;
    Ok(bytes)
}

impl Scanner<'_> {
    pub(super) async fn scan(&self, from: u64, to: u64) -> Result<Scan, Trouble> {
        for _ in 0..TRIES {
            match self.once(from, to).await {
                Err(Trouble::Moved) => {}
                settled => return settled,
            }
        }
        Err(self.node.bad("the chain moves faster than it can be read").into())
    }

    async fn once(&self, from: u64, to: u64) -> Result<Scan, Trouble> {
        let mut scan = Scan::default();
        let join = |part: Scan| {
            for header in part.headers {
                if scan.headers.last().is_some_and(|before: &Header| before.hash != header.parent) {
                    return Err(Trouble::Moved);
                }
                scan.headers.push(header);
            }
            scan.outputs.extend(part.outputs);
            scan.spends.extend(part.spends);
            Ok(())
        };
        in_steps((from, to), self.settings, |first, last| self.chunk(first, last), join).await?;
        Ok(scan.of_node(self.node.name()))
    }

    async fn chunk(&self, first: u64, last: u64) -> Result<Scan, Trouble> {
        let node = Arc::clone(&self.node);
        let fetch = beside(&self.node, async move { blocks::<Paying>(&node, first, last).await });
        let (blocks, logs) = try_join(fetch, self.logs(first, last)).await?;
        let mut hints: BTreeMap<u64, Vec<Log>> = BTreeMap::new();
        for log in logs {
            if !(first..=last).contains(&log.block_number.0) {
                return Err(self.node.bad("a log of a block that was not asked for").into());
            }
            hints.entry(log.block_number.0).or_default().push(log);
        }
        // Behind one address there are often many nodes, and one that has not come so far answers with no logs at all, not
        // with an error. Asked for a block by its hash it must have the block, or say that it has not.
        let silent = blocks.iter().flatten().filter(|(header, _, bloom)| {
            let logged = |token: &Account| bloom.is_some_and(|bloom| bloom.0.contains_raw_log(*token, &[TRANSFER]));
            !hints.contains_key(&header.height) && self.settings.tokens.iter().any(logged)
        });
        let silent: Vec<Header> = silent.map(|(header, ..)| *header).collect();
        for (header, logs) in silent.iter().zip(self.logs_of(&silent).await?) {
            if logs.iter().any(|log| log.block_number.0 != header.height) {
                return Err(self.node.bad("a log of a block that was not asked for").into());
            }
            hints.insert(header.height, logs);
        }
        let mut read = Vec::with_capacity(blocks.len());
        for (block, height) in blocks.into_iter().zip(first..=last) {
            let (header, transactions, _) = block.ok_or(Trouble::Missing(height))?;
            let logs = hints.remove(&height).unwrap_or_default();
            read.push(self.read(header, transactions, &logs).await?);
        }
        let hashes: Vec<B256> = read.iter().flat_map(Read::wanted_hashes).collect();
        let receipts = if hashes.is_empty() {
            Vec::new()
        } else {
            let (node, chunk) = (Arc::clone(&self.node), self.settings.batch);
            beside(&self.node, async move { receipts(&node, &hashes, chunk).await }).await?
        };
        let (mut receipts, mut scan) = (receipts.iter(), Scan::default());
        for block in &read {
            for (index, receipt) in block.wanted.iter().zip(receipts.by_ref()) {
                let told = self.told(block, *index, receipt.as_ref())?;
                scan.outputs.extend(told.outputs(self.watched));
                scan.spends.extend(told.spends(self.watched));
            }
            scan.headers.push(block.header);
        }
        Ok(scan)
    }

    async fn read(&self, header: Header, transactions: Vec<Paying>, logs: &[Log]) -> Result<Read, Trouble> {
        let hints = self.hints(&header, &transactions, logs)?;
        let moved = self.moved(&header, &transactions).await?;
        let mut wanted: BTreeSet<usize> = hints.keys().copied().collect();
        let fields: Vec<Fields> = transactions.iter().map(Paying::fields).collect();
        wanted.extend(touched(self.watched, &fields));
        for (index, moved) in moved.iter().enumerate() {
            if moved.iter().any(|one| self.watches(&one.from) || self.watches(&one.to)) {
                wanted.insert(index);
            }
        }
        Ok(Read { header, transactions, hints, moved, wanted })
    }

    /// What the transaction at this place of the block pays and costs, by its receipt.
    fn told<'b>(&self, block: &'b Read, index: usize, receipt: Option<&Receipt>) -> Result<Told<'b>, Trouble> {
        let receipt = receipt.filter(|receipt| receipt.block_hash.0.0 == block.header.hash.0);
        let receipt = receipt.ok_or(Trouble::Moved)?;
        if usize::try_from(receipt.transaction_index.0) != Ok(index) {
            return Err(self.node.bad("a receipt of another place in its block").into());
        }
        let held: BTreeMap<u64, &Log> = receipt.logs.iter().map(|log| (log.log_index.0, log)).collect();
        for hint in block.hints.get(&index).into_iter().flatten() {
            let transfer = held.get(&hint.log_index).and_then(|log| token_transfer(log, &self.settings.tokens));
            if transfer != Some(hint.transfer) {
                return Err(self.node.bad("a log that its receipt does not have").into());
            }
        }
        let fields = block.transactions[index].fields();
        let moved = block.moved.get(index).map_or(&[][..], Vec::as_slice);
        Ok(Told::by_receipt(block.header.at(), fields, receipt, moved, &self.settings.tokens))
    }

    fn watches(&self, account: &Account) -> bool {
        find(self.watched, account).is_some()
    }

    /// The transactions whose logs pay somebody who is watched or take from him, by their place in the block.
    fn hints(
        &self,
        header: &Header,
        transactions: &[Paying],
        logs: &[Log],
    ) -> Result<BTreeMap<usize, Vec<Hint>>, Trouble> {
        let mut hints: BTreeMap<usize, Vec<Hint>> = BTreeMap::new();
        if logs.is_empty() {
            return Ok(hints);
        }
        let places: BTreeMap<B256, usize> =
            transactions.iter().zip(0..).map(|(one, place)| (one.hash.0, place)).collect();
        for log in logs {
            if log.removed || log.block_hash.0.0 != header.hash.0 {
                return Err(Trouble::Moved);
            }
            let Some(transfer) = token_transfer(log, &self.settings.tokens) else { continue };
            if !self.watches(&transfer.to) && !self.watches(&transfer.from) {
                continue;
            }
            let index = places.get(&log.transaction_hash.0).copied();
            let index = index.ok_or_else(|| self.node.bad("a log of a transaction that its block does not have"))?;
            hints.entry(index).or_default().push(Hint { log_index: log.log_index.0, transfer });
        }
        Ok(hints)
    }

    /// The `Transfer` events of listed contracts, in windows that the provider allows.
    async fn logs(&self, first: u64, last: u64) -> Result<Vec<Log>, CallError> {
        let mut logs = Vec::new();
        // An empty list of contracts would be read as all of them.
        if self.settings.tokens.is_empty() {
            return Ok(logs);
        }
        let tokens: Vec<String> = self.settings.tokens.iter().map(|token| format!("{token:#x}")).collect();
        let mut next = first;
        loop {
            let span = self.window.blocks().min(last - next + 1);
            let end = next + (span - 1);
            let filter = json!([{
                "fromBlock": quantity(next),
                "toBlock": quantity(end),
                "address": tokens,
                "topics": [TRANSFER.to_string()],
            }]);
            let node = Arc::clone(&self.node);
            let found: Result<Vec<Log>, _> =
                beside(&self.node, async move { call(&node, "eth_getLogs", filter).await }).await;
            match found {
                Ok(found) => logs.extend(found),
                Err(error) if span > 1 && too_much(&error) => {
                    self.window.shrink(span);
                    tracing::debug!(node = self.node.name(), span, "a provider wants smaller windows of logs");
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.window.answered();
            if end >= last {
                return Ok(logs);
            }
            next = end + 1;
        }
    }

    /// The same of single blocks, by their hashes.
    async fn logs_of(&self, blocks: &[Header]) -> Result<Vec<Vec<Log>>, CallError> {
        let tokens: Vec<String> = self.settings.tokens.iter().map(|token| format!("{token:#x}")).collect();
        let filter = |block: &Header| {
            let hash = B256::from(block.hash.0).to_string();
            json!([{ "blockHash": hash, "address": tokens, "topics": [TRANSFER.to_string()] }])
        };
        let calls: Vec<_> = blocks.iter().map(|block| ("eth_getLogs", filter(block))).collect();
        chunked(&self.node, &calls, self.settings.batch).await
    }

    /// What contracts moved, for each transaction of the block. Empty when nobody wants to know.
    async fn moved(&self, header: &Header, transactions: &[Paying]) -> Result<Vec<Vec<Moved>>, Trouble> {
        if !self.settings.internal_transfers {
            return Ok(Vec::new());
        }
        let hashes: Vec<B256> = transactions.iter().map(|one| one.hash.0).collect();
        moved_in(&self.node, ("debug_traceBlockByNumber", quantity(header.height)), &hashes).await
    }
}

/// The places of the transactions that a watched address has sent or is paid by. All are looked up together: in a set of
/// millions each lookup waits for memory, and so the waits overlap.
pub(super) fn touched(watched: &Watched, transactions: &[Fields]) -> Vec<usize> {
    let (mut keys, mut places) = (Vec::new(), Vec::new());
    for (place, transaction) in transactions.iter().enumerate() {
        let paid = transaction.to.filter(|_| !transaction.value.is_zero());
        for account in [Some(transaction.from), paid].into_iter().flatten() {
            keys.push(WatchKey::of_account(&account.into_array()));
            places.push(place);
        }
    }
    let mut hits = Vec::new();
    watched.find_all(&keys, &mut hits);
    hits.into_iter().filter_map(|(at, _)| places.get(at).copied()).collect()
}

/// What contracts moved in the transactions of a block, which is named by its height or its hash.
pub(super) async fn moved_in(
    node: &Arc<Node>,
    (method, block): (&'static str, String),
    transactions: &[B256],
) -> Result<Vec<Vec<Moved>>, Trouble> {
    if transactions.is_empty() {
        return Ok(Vec::new());
    }
    let asked = Arc::clone(node);
    let traced = beside(node, async move {
        let traced: Vec<Traced> = call(&asked, method, json!([block, { "tracer": "callTracer" }])).await?;
        let read = |one: Traced| match moved(one.result.get()) {
            Some(moved) => Ok((one.tx_hash, moved)),
            None => Err(asked.bad("a trace that is none")),
        };
        traced.into_iter().map(read).collect::<Result<Vec<_>, _>>()
    });
    let traced = match traced.await {
        Ok(traced) => traced,
        Err(CallError::TooLong { .. } | CallError::Timeout { .. }) => return moved_each(node, transactions).await,
        Err(error) => return Err(error.into()),
    };
    let fits = |(one, transaction): (&(Option<super::wire::Hex<B256>>, _), &B256)| {
        one.0.is_none_or(|hash| hash.0 == *transaction)
    };
    if traced.len() != transactions.len() || !traced.iter().zip(transactions).all(fits) {
        return Err(Trouble::Moved);
    }
    Ok(traced.into_iter().map(|(_, moved)| moved).collect())
}

/// Anybody can pay for a transaction whose trace is longer than any answer may be. It must not stop the scan: what such a
/// transaction moves inside is not found, and said so.
async fn moved_each(node: &Node, transactions: &[B256]) -> Result<Vec<Vec<Moved>>, Trouble> {
    let mut all = Vec::with_capacity(transactions.len());
    for transaction in transactions {
        all.push(match trace(node, *transaction).await {
            Ok(moved) => moved,
            // A node that is slow today may not be tomorrow: that it said nothing must not read as if nothing had moved.
            Err(CallError::TooLong { .. }) => {
                let hash = transaction.to_string();
                tracing::warn!(node = node.name(), hash, "a trace is too long to be read");
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        });
    }
    Ok(all)
}

pub(super) async fn trace(node: &Node, transaction: B256) -> Result<Vec<Moved>, CallError> {
    let params = json!([transaction.to_string(), { "tracer": "callTracer" }]);
    let text: Box<serde_json::value::RawValue> = call(node, "debug_traceTransaction", params).await?;
    moved(text.get()).ok_or_else(|| node.bad("a trace that is none"))
}
