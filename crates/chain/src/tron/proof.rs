//! Blocks whose transactions are proven: they hash to the root of headers that a quorum has.
//!
//! java-tron's tree: a leaf is the SHA-256 of the whole transaction, with its signatures and what became of it; two
//! neighbours make the SHA-256 of both, and one without a neighbour moves up as it is. So who paid whom, and whether it ran, is
//! proven. What the receipts say, which are tokens, what contracts move, and fees, is committed to by no header: a quorum must say the
//! same.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::bitcoin::hashes::{Hash, sha256};
use futures_util::{StreamExt, TryStreamExt, stream};
use prost::Message as _;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tx::TxHash;
use tx::tron::proto::Envelope;

use super::TronChain;
use super::movement::{Asked, Wanted};
use super::scan::{CHUNK, Read, Receipts, fetch, read_receipts, receipts, scan};
use super::wire::{self, TRANSACTIONS, at_most};
use crate::block::{Header, Scan};
use crate::endpoint::{CallError, Node, ahead};
use crate::error::ChainError;
use crate::proof::{Unfit, in_a_row, until_one_fits};
use crate::watch::Watched;

/// A header, and the root of its transactions.
type Sealed = (Header, [u8; 32]);

/// What became of a transaction, by the numbers of `Transaction.Result.contractResult`.
const RESULTS: [&str; 16] = [
    "DEFAULT",
    "SUCCESS",
    "REVERT",
    "BAD_JUMP_DESTINATION",
    "OUT_OF_MEMORY",
    "PRECOMPILED_CONTRACT",
    "STACK_TOO_SMALL",
    "STACK_TOO_LARGE",
    "ILLEGAL_OPERATION",
    "STACK_OVERFLOW",
    "OUT_OF_ENERGY",
    "OUT_OF_TIME",
    "JVM_STACK_OVER_FLOW",
    "UNKNOWN",
    "TRANSFER_FAILED",
    "INVALID_CODE",
];
const RAN: i32 = 1;

/// `Transaction.Result`, as far as blocks have it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Ret {
    #[prost(int64, tag = "1")]
    fee: i64,
    #[prost(int32, tag = "2")]
    ret: i32,
    #[prost(int32, tag = "3")]
    contract_ret: i32,
}

#[derive(Deserialize)]
struct WholeBlocks<'a> {
    #[serde(borrow, default, deserialize_with = "at_most::<100, _, _>")]
    block: Vec<WholeBlock<'a>>,
}

#[derive(Deserialize)]
struct WholeBlock<'a> {
    #[serde(rename = "blockID")]
    id: Option<&'a str>,
    #[serde(borrow)]
    block_header: Option<wire::BlockHeader<'a>>,
    #[serde(borrow, default, deserialize_with = "at_most::<TRANSACTIONS, _, _>")]
    transactions: Vec<WholeTransaction<'a>>,
}

/// Only what is hashed: what a node writes out beside it is not looked at.
#[derive(Deserialize)]
struct WholeTransaction<'a> {
    raw_data_hex: &'a str,
    #[serde(borrow, default, deserialize_with = "at_most::<64, _, _>")]
    signature: Vec<&'a str>,
    #[serde(borrow, default, deserialize_with = "at_most::<16, _, _>")]
    ret: Vec<BTreeMap<&'a str, &'a RawValue>>,
}

/// A transaction as it is hashed.
struct Leaf {
    hash: [u8; 32],
    raw: Vec<u8>,
    ok: bool,
}

impl TronChain {
    pub(super) async fn proven_blocks(&self, from: u64, to: u64, watched: &Watched) -> Result<Scan, ChainError> {
        let heights: Vec<u64> = (from..=to).collect();
        let (wanted, calls) = (self.wanted(watched), self.calls());
        let seals = |node: Arc<Node>| {
            let heights = heights.as_slice();
            async move { seals(&node, heights, calls).await }
        };
        let found = self.pool.agree_unless_ahead(seals, |one, agreed| ahead(one, agreed, &heights)).await?;
        let found = found.into_iter().zip(&heights);
        let seals = found.map(|(sealed, height)| sealed.ok_or(ChainError::BlockMissing { height: *height }));
        let seals = seals.collect::<Result<Vec<Sealed>, _>>()?;
        in_a_row(seals.iter().map(|(header, _)| header))?;
        let seals = seals.as_slice();
        let proven = until_one_fits(&self.pool, |node| async move {
            Ok((blocks(&node, seals, watched, calls).await?, node.name().to_owned()))
        });
        let (mut blocks, source) = match proven.await {
            // Anybody may send a transaction that is read in another way here, and it must not stop the chain's deposits. A quorum
            // must then read the same, as for receipts.
            Err(ChainError::BlockNotUnderstood { height, why }) => {
                tracing::warn!(height, why, "a block of TRON cannot be hashed here: a quorum is asked what it pays");
                return self.by_quorum(seals, watched).await;
            }
            proven => proven?,
        };
        let told = self.agreed_receipts(&blocks, wanted).await?;
        let mut scan = Scan::default();
        for (block, told) in blocks.iter_mut().zip(told) {
            block.add(told.unwrap_or_default());
        }
        for block in blocks {
            block.put_into(&mut scan);
        }
        Ok(scan.of_node(&source))
    }

    /// These blocks as a quorum reads them.
    async fn by_quorum(&self, seals: &[Sealed], watched: &Watched) -> Result<Scan, ChainError> {
        let (Some((first, _)), Some((last, _))) = (seals.first(), seals.last()) else { return Ok(Scan::default()) };
        let (from, to) = (first.height, last.height);
        let read = |node: Arc<Node>| async move {
            let scan = scan(Arc::clone(&node), (from, to), self.wanted(watched), self.calls()).await?;
            let scan = scan.map_err(|height| node.lacks(format!("there is no block {height}")))?;
            if !scan.headers.iter().eq(seals.iter().map(|(header, _)| header)) {
                return Err(node.lacks("blocks of another branch"));
            }
            // Their names differ, and must not matter.
            Ok(Scan { source: String::new(), ..scan })
        };
        self.pool.agree(read).await
    }

    /// What the receipts of these blocks tell, as a quorum says it. `None`: they cannot matter.
    async fn agreed_receipts(&self, blocks: &[Read], wanted: Wanted<'_>) -> Result<Vec<Option<Receipts>>, ChainError> {
        let calls = self.calls();
        let read = |node: Arc<Node>| async move {
            let asked = (0..blocks.len()).map(|place| {
                let node = Arc::clone(&node);
                async move {
                    let block = &blocks[place];
                    if !block.needs_receipts(wanted) {
                        return Ok(Some(None));
                    }
                    let height = block.header.height;
                    let answer = receipts(Arc::clone(&node), height).await?;
                    let told = read_receipts(&node, &answer, block, wanted)?;
                    // That it has none at all is no lie: it may not have come so far.
                    if told.is_none() && answer.trim_ascii() == b"[]" {
                        return Err(node.lacks(format!("there are no receipts of block {height}")));
                    }
                    // Those of other transactions are an answer, and one that contradicts.
                    Ok(told.map(Some))
                }
            });
            let told: Vec<Option<Option<Receipts>>> = stream::iter(asked).buffered(calls).try_collect().await?;
            Ok(told)
        };
        let told = self.pool.agree(read).await?;
        let told = told.into_iter().zip(blocks).map(|(told, block)| {
            let height = block.header.height;
            told.ok_or_else(|| ChainError::BlockNotProven { height, why: "its receipts are of others".to_owned() })
        });
        told.collect()
    }
}

async fn seals(node: &Node, heights: &[u64], calls: usize) -> Result<Vec<Option<Sealed>>, CallError> {
    let asked = heights.iter().copied().map(|height| async move {
        let body = json!({ "id_or_num": height.to_string(), "detail": false });
        let answer = wire::ask(node, "/wallet/getblock", &body).await?;
        let block: WholeBlock<'_> = wire::read(node, &answer)?;
        let Some(sealed) = block.sealed(node)? else { return Ok(None) };
        if sealed.0.height != height {
            return Err(node.bad("another block than was asked for"));
        }
        Ok(Some(sealed))
    });
    stream::iter(asked).buffered(calls).try_collect().await
}

impl WholeBlock<'_> {
    fn sealed(&self, node: &Node) -> Result<Option<Sealed>, CallError> {
        let Some(header) = wire::header_of(node, self.id, self.block_header.as_ref())? else { return Ok(None) };
        let root = self.block_header.as_ref().and_then(|header| header.raw_data.root);
        let root = root.filter(|root| !root.is_empty()).map_or(Ok([0; 32]), |root| wire::digest(node, root))?;
        Ok(Some((header, root)))
    }
}

/// These blocks, from one node, with transactions that hash to the roots.
async fn blocks(node: &Arc<Node>, seals: &[Sealed], watched: &Watched, calls: usize) -> Result<Vec<Read>, Unfit> {
    let size = usize::try_from(CHUNK).unwrap_or(1);
    let chunks = (0..seals.len()).step_by(size).map(|start| async move {
        let end = seals.len().min(start.saturating_add(size));
        let mut read = Vec::with_capacity(end - start);
        let mut todo = vec![(start, end)];
        while let Some((start, end)) = todo.pop() {
            let some = &seals[start..end];
            let (Some((first, _)), Some((last, _))) = (some.first(), some.last()) else { continue };
            match fetch(node, first.height, last.height).await {
                // Blocks may be so full that twenty of them are longer than any answer may be.
                Err(CallError::TooLong { .. }) if some.len() > 1 => {
                    let middle = start + some.len() / 2;
                    todo.extend([(middle, end), (start, middle)]);
                }
                answer => read.extend(read_blocks(node, &answer?, some, watched)?),
            }
        }
        Ok::<_, Unfit>(read)
    });
    let read: Vec<Vec<Read>> = stream::iter(chunks).buffered(calls.div_ceil(2)).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

fn read_blocks(node: &Node, answer: &[u8], seals: &[Sealed], watched: &Watched) -> Result<Vec<Read>, Unfit> {
    let answer: WholeBlocks<'_> = wire::read(node, answer)?;
    let mut read = Vec::with_capacity(seals.len());
    for (place, (header, root)) in seals.iter().enumerate() {
        let missing = || node.lacks(format!("there is no block {}", header.height));
        let block = answer.block.get(place).ok_or_else(missing)?;
        // One of another branch is no lie: the node has to find back.
        if block.sealed(node)?.is_none_or(|(shown, _)| shown.hash != header.hash) {
            return Err(missing().into());
        }
        read.push(read_block(node, block, (header, root), watched)?);
    }
    Ok(read)
}

fn read_block(
    node: &Node,
    block: &WholeBlock<'_>,
    (header, root): (&Header, &[u8; 32]),
    watched: &Watched,
) -> Result<Read, Unfit> {
    let height = header.height;
    let leaves = block.transactions.iter().map(|one| leaf(node, one, height)).collect::<Result<Vec<_>, _>>()?;
    if merkle_root(leaves.iter().map(|leaf| leaf.hash).collect()) != *root {
        return Err(Unfit::Forged { height, what: "its transactions do not hash to the header's root".to_owned() });
    }
    let mut read = Read::of(*header);
    for leaf in leaves {
        let id = TxHash(sha256::Hash::hash(&leaf.raw).to_byte_array());
        let asked = Asked::of_bytes(&leaf.raw);
        let what = || format!("transaction {id} has bytes that are not understood");
        let asked = asked.ok_or_else(|| Unfit::NotUnderstood { height, what: what() })?;
        read.take((id, leaf.ok), asked, watched);
    }
    Ok(read)
}

fn leaf(node: &Node, one: &WholeTransaction<'_>, height: u64) -> Result<Leaf, Unfit> {
    let unhex = |text: &str| alloy_primitives::hex::decode(text).map_err(|_| node.bad("bytes that are no digits"));
    let unknown = |what: String| Unfit::NotUnderstood { height, what };
    let raw = unhex(one.raw_data_hex)?;
    let signature = one.signature.iter().map(|text| unhex(text)).collect::<Result<Vec<_>, _>>()?;
    let ret = one.ret.iter().map(|ret| result(ret).map_err(unknown)).collect::<Result<Vec<_>, _>>()?;
    let ok = matches!(ret.as_slice(), [Ret { contract_ret: RAN, .. }]);
    let whole = Envelope { raw_data: raw.clone(), signature, ret: ret.iter().map(Ret::encode_to_vec).collect() };
    let whole = whole.encode_to_vec();
    // Two hashes are 64 bytes: an inner node of the tree must not be shown as a transaction. None is so short.
    if whole.len() == 64 {
        return Err(Unfit::Forged { height, what: "it shows an inner node as a transaction".to_owned() });
    }
    Ok(Leaf { hash: sha256::Hash::hash(&whole).to_byte_array(), raw, ok })
}

/// Old blocks may have more in a result than is known here. That is said, not left out.
fn result(fields: &BTreeMap<&str, &RawValue>) -> Result<Ret, String> {
    let mut ret = Ret::default();
    for (name, value) in fields {
        let odd = || format!("a result with {name} {}", value.get().chars().take(40).collect::<String>());
        let text = value.get().trim_matches('"');
        match *name {
            "fee" => ret.fee = text.parse().map_err(|_| odd())?,
            "ret" => ret.ret = ["SUCESS", "FAILED"].iter().zip(0..).find(|(name, _)| **name == text).ok_or_else(odd)?.1,
            "contractRet" => {
                ret.contract_ret = RESULTS.iter().zip(0..).find(|(name, _)| **name == text).ok_or_else(odd)?.1;
            }
            _ => return Err(odd()),
        }
    }
    Ok(ret)
}

/// Zeros when there is nothing.
fn merkle_root(mut level: Vec<[u8; 32]>) -> [u8; 32] {
    while level.len() > 1 {
        let join = |pair: &[[u8; 32]]| match pair {
            [left, right] => sha256::Hash::hash(&[*left, *right].concat()).to_byte_array(),
            other => other.first().copied().unwrap_or_default(),
        };
        level = level.chunks(2).map(join).collect();
    }
    level.first().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(bytes: &[u8]) -> [u8; 32] {
        sha256::Hash::hash(bytes).to_byte_array()
    }

    #[test]
    fn one_without_a_neighbour_moves_up_as_it_is() {
        let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|number| [number; 32]);
        let join = |left: [u8; 32], right: [u8; 32]| digest(&[left, right].concat());
        assert_eq!(merkle_root(vec![]), [0; 32]);
        assert_eq!(merkle_root(vec![a]), a);
        assert_eq!(merkle_root(vec![a, b]), join(a, b));
        assert_eq!(merkle_root(vec![a, b, c]), join(join(a, b), c));
        assert_eq!(merkle_root(vec![a, b, c, d, e]), join(join(join(a, b), join(c, d)), e));
        assert_ne!(merkle_root(vec![a, b, c]), merkle_root(vec![a, b, c, c]), "none is repeated in silence");
    }

    #[test]
    fn a_result_is_encoded_whole_or_not_at_all() {
        let read = |text: &'static str| result(&serde_json::from_str(text).expect("an object"));
        for (text, bytes) in [
            ("{}", &[][..]),
            (r#"{"contractRet":"SUCCESS"}"#, &[0x18, 1]),
            (r#"{"contractRet":"DEFAULT"}"#, &[]),
            (r#"{"contractRet":"OUT_OF_ENERGY"}"#, &[0x18, 10]),
            (r#"{"fee":100000,"ret":"FAILED","contractRet":"REVERT"}"#, &[0x08, 0xa0, 0x8d, 6, 0x10, 1, 0x18, 2]),
        ] {
            assert_eq!(read(text).map(|ret| ret.encode_to_vec()), Ok(bytes.to_vec()), "{text}");
        }
        for odd in [
            r#"{"contractRet":"MAYBE"}"#,
            r#"{"contractRet":"SUCCESS","withdraw_amount":5}"#,
            r#"{"fee":"much"}"#,
            r#"{"ret":"PERHAPS"}"#,
        ] {
            assert!(read(odd).is_err(), "{odd}");
        }
    }
}
