//! Bitcoin Core's JSON-RPC: the calls, the shapes of the answers, and money without floats.

use ::bitcoin::Network;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tx::bitcoin::{hash_of, transaction};
use tx::{BlockHash, BlockRef, TxHash};

use super::raw::{RawBlock, RawHeader};
use crate::block::Header;
use crate::endpoint::{CallError, Node, json_rpc};

/// Core's error codes (`rpc/protocol.h`) that mean something here.
pub const MISC: i64 = -1;
pub const NOT_FOUND: i64 = -5;
pub const BAD_PARAMETER: i64 = -8;
pub const UNDECODABLE: i64 = -22;
pub const VERIFY_ERROR: i64 = -25;
pub const VERIFY_REJECTED: i64 = -26;
pub const ALREADY_IN_CHAIN: i64 = -27;
const WARMING_UP: i64 = -28;
const NO_MEMPOOL: i64 = -33;

/// One call. What only says that this node cannot help now becomes an error that sends the asker to another one.
pub async fn call<T: DeserializeOwned>(node: &Node, method: &str, params: Value) -> Result<T, CallError> {
    json_rpc::call(node, method, params).await.map_err(excused)
}

pub async fn batch<T: DeserializeOwned>(
    node: &Node,
    calls: &[(&str, Value)],
) -> Result<Vec<Result<T, CallError>>, CallError> {
    let answers = json_rpc::batch(node, calls).await.map_err(excused)?;
    Ok(answers.into_iter().map(|answer| answer.map_err(excused)).collect())
}

fn excused(error: CallError) -> CallError {
    match error {
        CallError::Refused { endpoint, code: WARMING_UP | NO_MEMPOOL, .. } => CallError::Unreachable { endpoint },
        // "Block not available (pruned data)", "… (not fully downloaded)", "Undo data not available (pruned data)", and
        // "Block not found on disk", of one that is pruned while it is read.
        CallError::Refused { endpoint, code: MISC, message } if is_not_kept(&message) => {
            CallError::Lacks { endpoint, what: message }
        }
        other => other,
    }
}

/// Whether a node says that it has not got a block, or what belongs to it, although it knows its header.
pub fn is_not_kept(message: &str) -> bool {
    message.contains("not available (") || message == "Block not found on disk"
}

/// So much of what is no amount is told.
const MOST_SHOWN: usize = 40;

/// Bitcoin, as Core writes it: a decimal number. It is read from its digits; it never is a float.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sat(pub u64);

impl<'de> Deserialize<'de> for Sat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        satoshi(text.get()).map(Self).ok_or_else(|| {
            let shown: String = text.get().chars().take(MOST_SHOWN).collect();
            D::Error::custom(format!("not an amount of bitcoin: {shown}"))
        })
    }
}

/// `0.00001000`, `50`, `1e-05` → satoshi, exactly or not at all.
fn satoshi(text: &str) -> Option<u64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.strip_prefix('+').unwrap_or(exponent).parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if whole.is_empty() || digits.len() > 38 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u128 = digits.parse().ok()?;
    let places = exponent.checked_add(8)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_u128.checked_pow(places.unsigned_abs());
    let satoshi = match (value, places) {
        (0, _) => 0,
        (_, 0..) => value.checked_mul(power?)?,
        _ if value.is_multiple_of(power?) => value / power?,
        _ => return None,
    };
    u64::try_from(satoshi).ok().filter(|&satoshi| satoshi <= ::bitcoin::Amount::MAX_MONEY.to_sat())
}

#[derive(Deserialize)]
pub struct ChainInfo {
    pub chain: String,
    pub blocks: u64,
    #[serde(rename = "bestblockhash", deserialize_with = "block_hash")]
    pub best: BlockHash,
    #[serde(default, rename = "pruneheight")]
    pub kept_from: Option<u64>,
}

pub fn block_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BlockHash, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn some_block_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BlockHash>, D::Error> {
    block_hash(deserializer).map(Some)
}

#[derive(Deserialize)]
struct HeaderFacts {
    height: u64,
    /// -1: not in the node's best chain.
    confirmations: i64,
}

#[derive(Deserialize)]
struct TransactionFacts {
    txid: String,
    #[serde(default, rename = "blockhash", deserialize_with = "some_block_hash")]
    block: Option<BlockHash>,
    #[serde(default)]
    fee: Option<Sat>,
}

#[derive(Deserialize)]
struct UnspentFacts {
    #[serde(rename = "bestblock", deserialize_with = "block_hash")]
    best: BlockHash,
    confirmations: u64,
}

/// Core counts blocks in 31 bits.
const MOST_HEIGHT: u64 = (1 << 31) - 1;

pub async fn chain_info(node: &Node, network: Network) -> Result<ChainInfo, CallError> {
    let info: ChainInfo = call(node, "getblockchaininfo", json!([])).await?;
    if info.chain != network.to_core_arg() {
        return Err(node.bad(format!("it serves the network {}", info.chain.escape_debug())));
    }
    if info.blocks > MOST_HEIGHT {
        return Err(node.bad("a height that no chain reaches"));
    }
    Ok(info)
}

/// `None` for a height above the node's tip.
pub async fn hashes_at(node: &Node, heights: &[u64]) -> Result<Vec<Option<BlockHash>>, CallError> {
    let calls: Vec<_> = heights.iter().map(|height| ("getblockhash", json!([height]))).collect();
    let answers: Vec<Result<String, CallError>> = batch(node, &calls).await?;
    let read = |answer: Result<String, CallError>| match answer {
        Ok(text) => text_hash(node, &text).map(Some),
        Err(CallError::Refused { code: BAD_PARAMETER, .. }) => Ok(None),
        Err(error) => Err(error),
    };
    answers.into_iter().map(read).collect()
}

fn text_hash(node: &Node, text: &str) -> Result<BlockHash, CallError> {
    text.parse().map_err(|_| node.bad("not a block hash"))
}

/// The headers of known hashes. Each is checked to hash to what was asked; the height is the asker's word.
pub async fn headers_of(node: &Node, blocks: &[BlockRef]) -> Result<Vec<Header>, CallError> {
    let calls: Vec<_> = blocks.iter().map(|block| ("getblockheader", json!([block.hash.to_string(), false]))).collect();
    let answers: Vec<Result<String, CallError>> = batch(node, &calls).await?;
    let read = |(block, answer): (&BlockRef, Result<String, CallError>)| {
        let text = answer.map_err(|error| match error {
            // That one node lacks what a quorum has is a reason to ask another.
            CallError::Refused { code: NOT_FOUND, .. } => node.bad("it lacks a block that the others have"),
            other => other,
        })?;
        let bytes = unhex(node, &text)?;
        let header = RawHeader::read(&bytes).map_err(|what| node.bad(what))?;
        if header.hash != block.hash || bytes.len() != 80 {
            return Err(node.bad("the header is another one than was asked for"));
        }
        Ok(header.at(block.height))
    };
    blocks.iter().zip(answers).map(read).collect()
}

/// A block as it came, in digits between quotes. `None`: the node does not have it, or not any more.
pub async fn block_text(node: &Node, hash: BlockHash) -> Result<Option<Box<RawValue>>, CallError> {
    match call(node, "getblock", json!([hash.to_string(), 0])).await {
        Ok(text) => Ok(Some(text)),
        Err(CallError::Refused { code: NOT_FOUND, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A block's bytes, as they came.
pub async fn block_bytes(node: &Node, hash: BlockHash) -> Result<Option<Vec<u8>>, CallError> {
    let Some(text) = block_text(node, hash).await? else {
        return Ok(None);
    };
    let digits = text.get().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    unhex(node, digits.ok_or_else(|| node.bad("a block is not text"))?).map(Some)
}

/// A block, checked to be the one that was asked for.
pub async fn block(node: &Node, hash: BlockHash) -> Result<Option<RawBlock>, CallError> {
    let Some(bytes) = block_bytes(node, hash).await? else {
        return Ok(None);
    };
    RawBlock::read(bytes, hash).map(Some).map_err(|what| node.bad(what))
}

fn unhex(node: &Node, text: &str) -> Result<Vec<u8>, CallError> {
    if text.starts_with("0x") {
        return Err(node.bad("not hexadecimal digits"));
    }
    alloy_primitives::hex::decode(text).map_err(|_| node.bad("not hexadecimal digits"))
}

/// Transactions of the node's mempool, each checked to be the one that was asked for.
pub async fn waiting(node: &Node, hashes: &[TxHash]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
    let calls: Vec<_> = hashes.iter().map(|hash| ("getrawtransaction", json!([hash.to_string(), 0]))).collect();
    let answers: Vec<Result<String, CallError>> = batch(node, &calls).await?;
    let read = |(hash, answer): (&TxHash, Result<String, CallError>)| match answer {
        Ok(text) => {
            let bytes = unhex(node, &text)?;
            let transaction = transaction::read_signed(&bytes).map_err(|_| node.bad("not a transaction"))?;
            if hash_of(transaction.compute_txid()) != *hash {
                return Err(node.bad("another transaction than was asked for"));
            }
            Ok(Some(bytes))
        }
        Err(CallError::Refused { code: NOT_FOUND, .. }) => Ok(None),
        Err(error) => Err(error),
    };
    hashes.iter().zip(answers).map(read).collect()
}

/// What one node knows about where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// In this block of the node's best chain, it says; nothing is checked yet.
    Block(BlockRef),
    Mempool,
    /// The node has an index of all transactions, and this is not among them.
    Nowhere,
    /// It has no such index, and no output of the transaction is unspent.
    CannotTell,
}

/// Without an index (`-txindex`) a node finds a transaction while one of its first `outputs` outputs is unspent.
pub async fn locate(node: &Node, transaction: TxHash, outputs: u32) -> Result<Whereabouts, CallError> {
    let text = transaction.to_string();
    match call::<TransactionFacts>(node, "getrawtransaction", json!([text, 1])).await {
        Ok(facts) if facts.txid != text => return Err(node.bad("another transaction than was asked for")),
        Ok(TransactionFacts { block: Some(hash), .. }) => {
            let facts: HeaderFacts = call(node, "getblockheader", json!([hash.to_string(), true])).await?;
            // The index keeps the last block that a transaction was in, also when that block is no longer in the chain.
            let stale = facts.confirmations < 1;
            if facts.height > MOST_HEIGHT {
                return Err(node.bad("a height that no chain reaches"));
            }
            let found = Whereabouts::Block(BlockRef { height: facts.height, hash });
            return Ok(if stale { Whereabouts::Nowhere } else { found });
        }
        Ok(_) => return Ok(Whereabouts::Mempool),
        Err(CallError::Refused { code: NOT_FOUND, message, .. }) => {
            if message.starts_with("No such mempool or blockchain transaction") {
                return Ok(Whereabouts::Nowhere);
            }
        }
        Err(error) => return Err(error),
    }
    let calls: Vec<_> = (0..outputs).map(|index| ("gettxout", json!([text, index, false]))).collect();
    let answers: Vec<Result<Option<UnspentFacts>, CallError>> = batch(node, &calls).await?;
    for answer in answers {
        if let Some(UnspentFacts { best, confirmations: confirmations @ 1.. }) = answer? {
            let facts: HeaderFacts = call(node, "getblockheader", json!([best.to_string(), true])).await?;
            let height = facts.height.checked_sub(confirmations - 1).filter(|height| *height <= MOST_HEIGHT);
            let height = height.ok_or_else(|| node.bad("too many confirmations"))?;
            let hash = hashes_at(node, &[height]).await?.into_iter().flatten().next();
            return Ok(hash.map_or(Whereabouts::CannotTell, |hash| Whereabouts::Block(BlockRef { height, hash })));
        }
    }
    Ok(Whereabouts::CannotTell)
}

/// What a mined transaction cost. `None`: the node does not know its inputs any more.
pub async fn fee_in(node: &Node, transaction: TxHash, block: BlockHash) -> Result<Option<u64>, CallError> {
    let params = json!([transaction.to_string(), 2, block.to_string()]);
    let facts: TransactionFacts = call(node, "getrawtransaction", params).await?;
    Ok(facts.fee.map(|fee| fee.0))
}

/// Whether the node's best chain has all these outputs unspent. One that is not there may be spent, or of an
/// unconfirmed transaction, or of no transaction: that it is missing proves nothing.
pub async fn all_unspent(node: &Node, outputs: &[(TxHash, u32)]) -> Result<bool, CallError> {
    let calls: Vec<_> =
        outputs.iter().map(|(hash, index)| ("gettxout", json!([hash.to_string(), index, false]))).collect();
    let answers: Vec<Result<Option<UnspentFacts>, CallError>> = batch(node, &calls).await?;
    let mut all = true;
    for answer in answers {
        all &= answer?.is_some();
    }
    Ok(all)
}

/// Whether the node could spend all these outputs: each is unspent in its best chain, or made by a transaction that waits and
/// spent by none that does.
pub async fn all_there(node: &Node, outputs: &[(TxHash, u32)]) -> Result<bool, CallError> {
    let asked = |(hash, index): &(TxHash, u32)| {
        [false, true].map(|mempool| ("gettxout", json!([hash.to_string(), index, mempool])))
    };
    let calls: Vec<_> = outputs.iter().flat_map(asked).collect();
    let answers: Vec<Result<Option<UnspentFacts>, CallError>> = batch(node, &calls).await?;
    let there: Vec<bool> = answers.into_iter().map(|answer| Ok(answer?.is_some())).collect::<Result<_, CallError>>()?;
    Ok(there.chunks(2).all(|either| either.contains(&true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn money_is_read_from_its_digits() {
        for (text, sat) in [
            ("0", 0),
            ("0.00000000", 0),
            ("0.00000001", 1),
            ("1e-08", 1),
            ("1E-8", 1),
            ("0.00001", 1_000),
            ("1.5e-05", 1_500),
            ("50.00000000", 5_000_000_000),
            ("20999999.9769", 2_099_999_997_690_000),
            ("21000000", 2_100_000_000_000_000),
            ("2.1e7", 2_100_000_000_000_000),
            ("0.100000000000", 10_000_000),
        ] {
            assert_eq!(satoshi(text), Some(sat), "{text}");
        }
        for text in [
            "",
            "-1",
            "-0.5",
            "1e-09",
            "0.000000001",
            "21000000.00000001",
            "1e99999999999",
            "1e400",
            "\"1\"",
            "null",
            "1.2.3",
            ".5",
        ] {
            assert_eq!(satoshi(text), None, "{text}");
        }
        assert_eq!(satoshi(&format!("{}1", "0".repeat(60))), None);
    }

    proptest! {
        #[test]
        fn every_amount_reads_back(sat in 0_u64..=2_100_000_000_000_000) {
            prop_assert_eq!(satoshi(&format!("{}.{:08}", sat / 100_000_000, sat % 100_000_000)), Some(sat));
        }

        #[test]
        fn no_text_panics(text in "[0-9.eE+-]{0,60}") {
            prop_assert!(satoshi(&text).is_none_or(|sat| sat <= 2_100_000_000_000_000));
        }
    }
}
