//! What one node says about a transaction, and what a quorum of such answers proves.
//!
//! | the nodes say | it is |
//! |---|---|
//! | a receipt, and the block at its height holds the transaction | mined, in that block |
//! | no receipt, or a block without it | nothing: a node may lag, prune, or lie |
//! | a solidified block is later than its expiry, and no block up to there holds it | impossible |

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use alloy_primitives::U256;
use domain::{RawAmount, Timestamp};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use prost::Message as _;
use serde_json::json;
use tx::tron::proto::{Raw, TransferContract};
use tx::tron::{TronAddress, transaction};
use tx::{BlockRef, Coin, TxHash};

use super::movement::{self, Wanted};
use super::scan::{self, CHUNK, Found};
use super::wire;
use crate::block::Place;
use crate::client::Proven;
use crate::endpoint::{CallError, Node};
use crate::status::{Mined, Paid};
use crate::watch::WatchKey;

/// 24 hours of blocks, the longest life of a transaction, and some more for times that were not kept exactly.
pub(super) const MOST_BLOCKS: u64 = 30_000;

/// A block is solid long before so many are above it.
const REORGANISED: u64 = 64;

/// A mined transaction as one node sees it.
struct Seen<'a> {
    block: BlockRef,
    info: wire::Info<'a>,
    ok: bool,
    /// From the bytes whose hash is the transaction's id.
    raw: Raw,
}

/// The transaction's receipt, and the block at the receipt's height. `None`: not in a block of this node.
async fn answers(node: &Node, hash: TxHash) -> Result<Option<(bytes::Bytes, bytes::Bytes)>, CallError> {
    let body = json!({ "value": hash.to_string() });
    let info_answer = wire::ask(node, "/wallet/gettransactioninfobyid", &body).await?;
    let info: wire::Info<'_> = wire::read(node, &info_answer)?;
    let Some(id) = info.id else { return Ok(None) };
    if wire::digest(node, id)? != hash.0 {
        return Err(node.bad("the receipt of another transaction"));
    }
    let block = wire::ask(node, "/wallet/getblockbynum", &json!({ "num": info.height })).await?;
    Ok(Some((info_answer, block)))
}

/// Puts the two together. A receipt whose block does not hold the transaction is what a reorganisation leaves for a
/// moment: it is not mined there.
fn seen<'a>(node: &Node, hash: TxHash, info: &'a [u8], block: &[u8]) -> Result<Option<Seen<'a>>, CallError> {
    let info: wire::Info<'a> = wire::read(node, info)?;
    let block: wire::Block<'_> = wire::read(node, block)?;
    let Some(header) = block.header(node)? else { return Ok(None) };
    if header.height != info.height {
        return Err(node.bad("another block than was asked for"));
    }
    let text = hash.to_string();
    let Some(held) = block.transactions.iter().find(|one| one.id.is_some_and(|id| id.eq_ignore_ascii_case(&text)))
    else {
        return Ok(None);
    };
    seen_in(node, hash, info, header.at(), held).map(Some)
}

/// A receipt, and the transaction as its block holds it.
fn seen_in<'a>(
    node: &Node,
    hash: TxHash,
    info: wire::Info<'a>,
    block: BlockRef,
    held: &wire::Transaction<'_>,
) -> Result<Seen<'a>, CallError> {
    let raw = held.raw_data_hex.and_then(|digits| alloy_primitives::hex::decode(digits).ok());
    let raw = raw.ok_or_else(|| node.bad("a transaction without its bytes"))?;
    if transaction::hash(&raw) != hash {
        return Err(node.bad("a transaction whose bytes are not of its id"));
    }
    // Its bytes are those of its id, so the node is not to blame: java-tron takes fields of a wrong wire type as unknown.
    let raw = Raw::decode(raw.as_slice()).map_err(|_| CallError::Refused {
        endpoint: node.name().to_owned(),
        code: 0,
        message: "a transaction in an encoding that is not read here".to_owned(),
    })?;
    let ok = held.ran();
    if info.ran() != ok {
        return Err(node.bad("a receipt that contradicts its block"));
    }
    Ok(Seen { block, info, ok, raw })
}

/// What a transaction of ours is to pay, when it pays a token, listed or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenPayment {
    pub token: TronAddress,
    pub from: TronAddress,
    pub to: TronAddress,
    pub amount: U256,
}

/// A transaction of ours that is looked for.
pub(super) type AskedHash = (TxHash, Option<TokenPayment>);

/// For [`crate::Chain::status`].
pub(super) async fn mined(node: &Node, (hash, token): AskedHash) -> Result<Option<Mined>, CallError> {
    let Some((info, block)) = answers(node, hash).await? else { return Ok(None) };
    let Some(seen) = seen(node, hash, &info, &block)? else { return Ok(None) };
    judged(node, &seen, token).map(Some)
}

fn judged(node: &Node, seen: &Seen<'_>, token: Option<TokenPayment>) -> Result<Mined, CallError> {
    let fee = u64::try_from(seen.info.fee).map_err(|_| node.bad("a negative fee"))?;
    let paid = match token {
        _ if !seen.ok => Paid::Nothing,
        None => Paid::InFull,
        // A token may return false and end well. What it pays it logs.
        Some(payment) => {
            let mut logged = Vec::new();
            for log in &seen.info.log {
                logged.extend(movement::token_transfer(node, log, &[payment.token])?);
            }
            let logged = logged.into_iter().map(|transfer| (transfer.from, transfer.to, transfer.amount));
            Paid::by_logs((&payment.from, &payment.to, payment.amount), logged)
        }
    };
    Ok(Mined { block: seen.block, paid, fee: Some(RawAmount::from_u256(U256::from(fee))) })
}

/// As [`mined`] of each. Where one was mined, others usually were: that block and its receipts are read once for all of them.
pub(super) async fn mined_all(
    node: Arc<Node>,
    wanted: &[AskedHash],
    calls: usize,
) -> Result<Vec<Option<Mined>>, CallError> {
    let mut found: HashMap<TxHash, Option<Mined>> = HashMap::with_capacity(wanted.len());
    let tokens: HashMap<TxHash, Option<TokenPayment>> = wanted.iter().copied().collect();
    let mut wave = 1;
    loop {
        let open = wanted.iter().map(|(hash, _)| *hash).filter(|hash| !found.contains_key(hash));
        let open: Vec<TxHash> = open.take(wave).collect();
        if open.is_empty() {
            break;
        }
        let mut asked: Vec<BoxFuture<'_, Result<Option<u64>, CallError>>> = Vec::with_capacity(open.len());
        for hash in &open {
            asked.push(Box::pin(height_of(&node, *hash)));
        }
        let heights: Vec<Option<u64>> = stream::iter(asked).buffered(calls).try_collect().await?;
        let blocks: BTreeSet<u64> = heights.iter().copied().flatten().collect();
        let before = found.len();
        for height in &blocks {
            mined_in(&node, *height, &tokens, &mut found).await?;
        }
        // Those in no block, and those whose block has just been replaced.
        for hash in &open {
            found.entry(*hash).or_insert(None);
        }
        // As long as one leads to others, one at a time is enough.
        wave = if found.len() - before > open.len() { 1 } else { calls };
    }
    Ok(wanted.iter().map(|(hash, _)| found.get(hash).copied().flatten()).collect())
}

/// The height of the block that a node says it is in.
async fn height_of(node: &Node, hash: TxHash) -> Result<Option<u64>, CallError> {
    let answer = wire::ask(node, "/wallet/gettransactioninfobyid", &json!({ "value": hash.to_string() })).await?;
    let info: wire::Info<'_> = wire::read(node, &answer)?;
    let Some(id) = info.id else { return Ok(None) };
    if wire::digest(node, id)? != hash.0 {
        return Err(node.bad("the receipt of another transaction"));
    }
    Ok(Some(info.height))
}

/// What a block holds of these transactions.
async fn mined_in(
    node: &Arc<Node>,
    height: u64,
    wanted: &HashMap<TxHash, Option<TokenPayment>>,
    found: &mut HashMap<TxHash, Option<Mined>>,
) -> Result<(), CallError> {
    let block = wire::ask(node, "/wallet/getblockbynum", &json!({ "num": height })).await?;
    let infos = scan::receipts(Arc::clone(node), height).await?;
    let block: wire::Block<'_> = wire::read(node, &block)?;
    let Some(header) = block.header(node)? else { return Ok(()) };
    if header.height != height {
        return Err(node.bad("another block than was asked for"));
    }
    let mut held: HashMap<TxHash, &wire::Transaction<'_>> = HashMap::new();
    for transaction in &block.transactions {
        let hash = transaction.hash(node)?;
        if wanted.contains_key(&hash) {
            held.insert(hash, transaction);
        }
    }
    let wire::Infos { all: infos } = wire::read(node, &infos)?;
    for info in infos {
        let hash = TxHash(wire::digest(node, info.id.ok_or_else(|| node.bad("a receipt without an id"))?)?);
        let (Some(held), Some(token)) = (held.get(&hash), wanted.get(&hash)) else { continue };
        if info.height != height {
            return Err(node.bad("a receipt of another height"));
        }
        let seen = seen_in(node, hash, info, header.at(), held)?;
        found.insert(hash, Some(judged(node, &seen, *token)?));
    }
    Ok(())
}

/// For lists, in the same order: the lowest height from which on one says more, if they differ in nothing else.
pub(super) fn ahead_in(one: &[Option<Mined>], agreed: &[Option<Mined>]) -> Option<u64> {
    let mut lowest = None;
    for (one, agreed) in one.iter().zip(agreed).filter(|(one, agreed)| one != agreed) {
        let from = Mined::ahead(one, agreed)?;
        lowest = Some(lowest.map_or(from, |lowest: u64| lowest.min(from)));
    }
    lowest
}

/// For [`crate::Chain::prove`].
pub(super) async fn proven(node: &Node, hash: TxHash, wanted: Wanted<'_>) -> Result<Option<Proven>, CallError> {
    let Some((info, block)) = answers(node, hash).await? else { return Ok(None) };
    let Some(seen) = seen(node, hash, &info, &block)? else { return Ok(None) };
    let mut outputs = Vec::new();
    if let Some((to, amount)) = transfer(&seen.raw)
        && let Some(watched) = wanted.watched.find(&WatchKey::of_account(&to.0))
    {
        let what = (to, Coin::Native, RawAmount::from_u256(U256::from(amount)));
        outputs.push(movement::output((seen.block, hash), (Place::Value, watched), what, seen.ok));
    }
    let moved = movement::by_info(node, &seen.info, (seen.block, hash), wanted)?;
    outputs.extend(moved.outputs);
    Ok(Some(Proven { block: seen.block, ok: seen.ok, outputs }))
}

/// A TRX transfer, whoever made it: with a memo, by another permission, in an unusual encoding. The chain has taken it
/// already, so what it paid counts and not how it was written.
fn transfer(raw: &Raw) -> Option<(TronAddress, u64)> {
    let [contract] = raw.contract.as_slice() else { return None };
    let parameter = contract.parameter.as_ref()?;
    // java-tron looks only at what follows the last slash.
    let name = |url: &str| url.rsplit_once('/').map(|(_, name)| name.to_owned());
    if contract.r#type != TransferContract::TYPE || name(&parameter.type_url) != name(TransferContract::URL) {
        return None;
    }
    let transfer = TransferContract::decode(parameter.value.as_slice()).ok()?;
    Some((TronAddress::from_prefixed(&transfer.to_address)?, u64::try_from(transfer.amount).ok()?))
}

/// What one node says about a transaction that may have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// No solidified block is later, or the blocks could not all be read.
    Open,
    /// A block holds it.
    Held,
    /// The first block that is as late as the expiry is solidified, and no block up to and with it holds it. A block
    /// takes only what expires after its parent's time, so no later block can.
    Over { block: BlockRef, time: Timestamp },
}

impl Expiry {
    /// Nodes solidify a block at different moments: who has done so first is ahead, however deep the block is.
    pub(super) const fn ahead(one: &Self, agreed: &Self) -> Option<u64> {
        match (one, agreed) {
            (Self::Over { .. }, Self::Open) => Some(u64::MAX),
            _ => None,
        }
    }
}

/// Reads every block that could hold the transaction.
pub(super) async fn expiry(
    node: &Node,
    hash: TxHash,
    since: u64,
    expires: Timestamp,
    calls: usize,
) -> Result<Expiry, CallError> {
    let answer = wire::ask(node, "/walletsolidity/getnowblock", &json!({})).await?;
    let head: wire::Block<'_> = wire::read(node, &answer)?;
    let Some(solid) = head.header(node)? else { return Ok(Expiry::Open) };
    if solid.time <= expires || solid.height < since {
        return Ok(Expiry::Open);
    }
    // The branch on which it was built may be gone, and the new one may hold it lower down.
    let since = since.saturating_sub(REORGANISED);
    let end = solid.height.min(since.saturating_add(MOST_BLOCKS));
    let chunks = (since..=end).step_by(usize::try_from(CHUNK).unwrap_or(1)).map(|start| async move {
        let to = end.min(start.saturating_add(CHUNK - 1));
        let answer = scan::fetch(node, start, to).await?;
        scan::read_blocks(node, &answer, start, to, None)
    });
    // Asked for in parallel, but not so far ahead that much is read in vain once the end is found.
    let mut chunks = stream::iter(chunks).buffered(calls.div_ceil(2));
    let mut before: Option<crate::block::Header> = None;
    while let Some(chunk) = chunks.try_next().await? {
        let Found::Whole(blocks) = chunk else { return Ok(Expiry::Open) };
        for block in blocks {
            let header = block.header;
            // A block that is not the child of the one before, or goes back in time, is of another branch or invented.
            if before.is_some_and(|before| before.hash != header.parent || before.time > header.time) {
                return Ok(Expiry::Open);
            }
            if block.transactions.contains(&hash) {
                return Ok(Expiry::Held);
            }
            if header.time >= expires {
                // Were the very first block as late, nothing would have been read of the time when it could be mined.
                let read = before.is_some();
                return Ok(if read { Expiry::Over { block: header.at(), time: header.time } } else { Expiry::Open });
            }
            before = Some(header);
        }
    }
    Ok(Expiry::Open)
}

/// Whether the node holds it for a coming block. Not every node answers this; no answer is no.
pub(super) async fn pending(node: &Node, hash: TxHash) -> Result<bool, CallError> {
    let body = json!({ "value": hash.to_string() });
    let answer = wire::ask(node, "/wallet/gettransactionfrompending", &body).await?;
    let transaction: wire::Transaction<'_> = wire::read(node, &answer)?;
    match transaction.id {
        None => Ok(false),
        Some(id) => Ok(wire::digest(node, id)? == hash.0),
    }
}
