//! What has become of a transaction, and what a transaction has paid.
//!
//! | a node says | it proves |
//! |---|---|
//! | a receipt, and its block is the one at that height | mined |
//! | no receipt | nothing |
//! | another transaction of ours with this nonce, in a settled block | it can never be mined |
//! | the nonce has moved on, and by what is not to be found | nothing |
//! | it does not keep the state of so old a block | nothing, and another node may |

use std::collections::{BTreeSet, HashMap};

use alloy_primitives::{Address as Account, B256, U256};
use domain::RawAmount;
use serde_json::json;
use tx::{BlockRef, TxHash};

use super::EvmSettings;
use super::outputs::{Fields, Told, token_transfer};
use super::rpc::{blocks, chunked, count, header, headers, lacking, receipt, receipts, separately, tip};
use super::scan::trace;
use super::wire::{Found, Hex, Numbered, Receipt, quantity};
use crate::block::Header;
use crate::client::Proven;
use crate::endpoint::json_rpc::call;
use crate::endpoint::{CallError, Node};
use crate::status::{Mined, Paid, Reason};
use crate::watch::Watched;

/// How often a receipt is asked for again whose block has just been replaced.
const TRIES: u32 = 3;

/// What one node's answers prove. Two nodes that see the same say the same, however far each has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Nothing,
    Mined(Mined),
    Taken(Reason),
}

impl Finding {
    /// From which height on it says more than the agreed one, which says nothing.
    pub(super) const fn ahead(&self, agreed: &Self, confirmations: u64) -> Option<u64> {
        match (self, agreed) {
            (Self::Mined(mined), Self::Nothing) => Some(mined.block.height),
            // Nothing is taken before the block that took it is settled.
            (Self::Taken(Reason::NonceTaken { block, .. }), Self::Nothing) => {
                Some(block.height.saturating_add(confirmations))
            }
            _ => None,
        }
    }
}

/// For lists, in the same order: the lowest height from which on one says more, if they differ in nothing else.
pub(super) fn ahead_in(one: &[Finding], agreed: &[Finding], confirmations: u64) -> Option<u64> {
    let mut lowest = None;
    for (one, agreed) in one.iter().zip(agreed).filter(|(one, agreed)| one != agreed) {
        let from = one.ahead(agreed, confirmations)?;
        lowest = Some(lowest.map_or(from, |lowest: u64| lowest.min(from)));
    }
    lowest
}

/// The transaction that is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub hash: B256,
    pub from: Account,
    pub nonce: u64,
    pub since: u64,
    /// The contract, the recipient and the amount, when it pays a token, listed or not.
    pub token: Option<(Account, Account, U256)>,
}

pub(super) async fn find(node: &Node, wanted: Wanted, confirmations: u64) -> Result<Finding, CallError> {
    let receipt = settled_receipt(node, wanted.hash).await.map_err(|error| lacking(node, error))?;
    if let Some((receipt, block)) = receipt {
        return Ok(Finding::Mined(mined(&receipt, block, wanted)));
    }
    let Some(settled) = tip(node).await?.height.checked_sub(confirmations) else { return Ok(Finding::Nothing) };
    match taken(node, wanted, settled).await.map_err(|error| lacking(node, error)) {
        // Whatever its words: it does not know, and must not outvote those that do.
        Err(CallError::Refused { message, .. }) => Err(node.lacks(message)),
        found => found,
    }
}

/// As [`find`] of each, with the receipts, their blocks and the nonces in a few requests.
pub(super) async fn find_all(
    node: &Node,
    wanted: &[Wanted],
    confirmations: u64,
    chunk: usize,
) -> Result<Vec<Finding>, CallError> {
    let found = receipts_of_all(node, wanted, chunk).await.map_err(|error| lacking(node, error))?;
    let open: Vec<Wanted> =
        found.iter().zip(wanted).filter(|(found, _)| found.is_none()).map(|(_, wanted)| *wanted).collect();
    let used = used(node, &open, confirmations, chunk).await.map_err(|error| match lacking(node, error) {
        // Whatever its words: it does not know, and must not outvote those that do.
        CallError::Refused { message, .. } => node.lacks(message),
        error => error,
    })?;
    let mut findings = Vec::with_capacity(wanted.len());
    for (found, wanted) in found.into_iter().zip(wanted) {
        let is_used = || used.get(&wanted.from).is_some_and(|used| *used > wanted.nonce);
        findings.push(match found {
            Some((receipt, block)) => Finding::Mined(mined(&receipt, block, *wanted)),
            // By another, or since it was asked for.
            None if is_used() => find(node, *wanted, confirmations).await?,
            None => Finding::Nothing,
        });
    }
    Ok(findings)
}

/// As [`settled_receipt`] of each.
async fn receipts_of_all(
    node: &Node,
    wanted: &[Wanted],
    chunk: usize,
) -> Result<Vec<Option<(Receipt, BlockRef)>>, CallError> {
    let hashes: Vec<B256> = wanted.iter().map(|wanted| wanted.hash).collect();
    let receipts = receipts(node, &hashes, chunk).await?;
    let heights: BTreeSet<u64> = receipts.iter().flatten().map(|receipt| receipt.block_number.0).collect();
    let heights: Vec<u64> = heights.into_iter().collect();
    let blocks = headers(node, &heights, chunk).await?;
    let blocks: HashMap<u64, Header> = blocks.into_iter().flatten().map(|block| (block.height, block)).collect();
    let mut found = Vec::with_capacity(receipts.len());
    for (receipt, hash) in receipts.into_iter().zip(hashes) {
        let Some(receipt) = receipt else {
            found.push(None);
            continue;
        };
        let block = blocks.get(&receipt.block_number.0).filter(|block| block.hash.0 == receipt.block_hash.0.0);
        found.push(match block.map(Header::at) {
            Some(block) => Some((receipt, block)),
            // Its block has just been replaced.
            None => settled_receipt(node, hash).await?,
        });
    }
    Ok(found)
}

/// The nonces of their senders after all that is settled. Nobody's, when nothing is.
async fn used(
    node: &Node,
    wanted: &[Wanted],
    confirmations: u64,
    chunk: usize,
) -> Result<HashMap<Account, u64>, CallError> {
    let accounts: BTreeSet<Account> = wanted.iter().map(|wanted| wanted.from).collect();
    if accounts.is_empty() {
        return Ok(HashMap::new());
    }
    let Some(settled) = tip(node).await?.height.checked_sub(confirmations) else { return Ok(HashMap::new()) };
    let count = |account: &Account| ("eth_getTransactionCount", json!([format!("{account:#x}"), quantity(settled)]));
    let calls: Vec<_> = accounts.iter().map(count).collect();
    let counts: Vec<Hex<u64>> = chunked(node, &calls, chunk).await?;
    Ok(accounts.into_iter().zip(counts.into_iter().map(|count| count.0)).collect())
}

/// The receipt, when its block is the one at its height.
async fn settled_receipt(node: &Node, hash: B256) -> Result<Option<(Receipt, BlockRef)>, CallError> {
    for _ in 0..TRIES {
        let Some(receipt) = receipt(node, hash).await? else { return Ok(None) };
        let block = header(node, receipt.block_number.0).await?;
        if let Some(block) = block.filter(|block| block.hash.0 == receipt.block_hash.0.0) {
            return Ok(Some((receipt, block.at())));
        }
    }
    Err(node.bad("a receipt of a block that is not in its chain"))
}

fn mined(receipt: &Receipt, block: BlockRef, wanted: Wanted) -> Mined {
    let paid = match wanted.token {
        _ if receipt.status.0 != 1 => Paid::Nothing,
        None => Paid::InFull,
        // A token may return false and end well. What it pays it logs, or it could not be listed: deposits rest on that.
        Some((token, to, amount)) => {
            let transfers = receipt.logs.iter().filter_map(|log| token_transfer(log, &[token]));
            let logged = transfers.map(|transfer| (transfer.from, transfer.to, transfer.amount));
            Paid::by_logs((&wanted.from, &to, amount), logged)
        }
    };
    Mined { block, paid, fee: Some(RawAmount::from_u256(receipt.fee())) }
}

/// Looks for the settled block in which the nonce was used, and for what used it.
async fn taken(node: &Node, wanted: Wanted, settled: u64) -> Result<Finding, CallError> {
    let account = format!("{:#x}", wanted.from);
    let used = async |height: u64| Ok::<_, CallError>(count(node, &account, height).await? > wanted.nonce);
    if !used(settled).await? {
        return Ok(Finding::Nothing);
    }
    // Usually it was used since we built ours. If it was used before, ours was late when it was made.
    let mut low = 0;
    let mut high = settled;
    if let Some(before) = wanted.since.checked_sub(1).filter(|before| *before < settled) {
        if used(before).await? {
            high = before;
        } else {
            low = wanted.since;
        }
    }
    // The nonce is used after block `high`, and not before block `low`.
    while low < high {
        let middle = low + (high - low) / 2;
        if used(middle).await? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let Some((block, transactions, _)) = blocks::<Numbered>(node, high, high).await?.pop().flatten() else {
        return Err(node.bad("a settled block is missing"));
    };
    let same = |one: &&Numbered| one.from.0 == wanted.from && one.nonce.0 == wanted.nonce;
    match transactions.iter().find(same) {
        Some(one) if one.hash.0 == wanted.hash => match settled_receipt(node, wanted.hash).await? {
            Some((receipt, block)) => Ok(Finding::Mined(mined(&receipt, block, wanted))),
            None => Ok(Finding::Nothing),
        },
        Some(one) => Ok(Finding::Taken(Reason::NonceTaken { by: TxHash(one.hash.0.0), block: block.at() })),
        // An account can also use up a nonce by an EIP-7702 authorization. What took ours is not known then.
        None => Ok(Finding::Nothing),
    }
}

/// Whether the node holds it for a coming block.
pub(super) async fn waits(node: &Node, hash: B256) -> Result<bool, CallError> {
    let found = transaction(node, hash).await?;
    Ok(found.is_some_and(|found| found.block_hash.is_none()))
}

/// As [`waits`] of each. What a node cannot say of one is no.
pub(super) async fn wait_all(node: &Node, of: &[B256], chunk: usize) -> Result<Vec<bool>, CallError> {
    let calls: Vec<_> = of.iter().map(|hash| ("eth_getTransactionByHash", json!([hash.to_string()]))).collect();
    let found: Vec<Result<Option<Found>, CallError>> = separately(node, &calls, (chunk, 1)).await?;
    let waits = |(found, hash): (Result<Option<Found>, CallError>, &B256)| {
        found.ok().flatten().is_some_and(|found| found.hash.0 == *hash && found.block_hash.is_none())
    };
    Ok(found.into_iter().zip(of).map(waits).collect())
}

/// `None`: the node has never heard of it.
pub(super) async fn transaction(node: &Node, hash: B256) -> Result<Option<Found>, CallError> {
    let found: Option<Found> = call(node, "eth_getTransactionByHash", json!([hash.to_string()])).await?;
    match found {
        Some(found) if found.hash.0 != hash => Err(node.bad("another transaction than asked for")),
        found => Ok(found),
    }
}

pub(super) async fn prove(
    node: &Node,
    hash: B256,
    settings: &EvmSettings,
    watched: &Watched,
) -> Result<Option<Proven>, CallError> {
    proven(node, hash, settings, watched).await.map_err(|error| lacking(node, error))
}

async fn proven(
    node: &Node,
    hash: B256,
    settings: &EvmSettings,
    watched: &Watched,
) -> Result<Option<Proven>, CallError> {
    let Some((receipt, block)) = settled_receipt(node, hash).await? else { return Ok(None) };
    let found = transaction(node, hash).await?;
    let found = found.filter(|found| found.block_hash.is_some_and(|block| block.0 == receipt.block_hash.0));
    let Some(found) = found else { return Err(node.bad("a receipt of a transaction that is not in its block")) };
    let moved = if settings.internal_transfers { trace(node, hash).await? } else { Vec::new() };
    let fields = Fields { hash, from: found.from.0, to: found.to.map(|to| to.0), value: found.value.0 };
    let told = Told::by_receipt(block, fields, &receipt, &moved, &settings.tokens);
    Ok(Some(Proven { block, ok: told.ok, outputs: told.outputs(watched) }))
}
