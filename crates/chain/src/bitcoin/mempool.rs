//! What is needed to replace a waiting transaction (RBF, BIP 125) or to push it by a child (CPFP), and the fees that do.
//!
//! A node's mempool is its own. These answers come from one node and are only good for choosing a fee.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use tx::TxHash;
use tx::bitcoin::{PackageFacts, at_rate, cpfp_fee};

use super::BitcoinChain;
use super::fee;
use super::refusal::{Said, of_words};
use super::wire::{self, NOT_FOUND, Sat};
use crate::broadcast::NodeRefusal;
use crate::endpoint::{CallError, Node};
use crate::error::ChainError;

/// A transaction that waits, as one node sees it. Counts, sizes and fees of ancestors and descendants include its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MempoolFacts {
    pub fee: u64,
    /// Virtual bytes.
    pub size: u64,
    pub weight: u64,
    pub ancestors: PackageFacts,
    pub descendants: PackageFacts,
    /// What it would be mined together with: fee, and weight units. Releases before 31 do not say: itself then.
    pub chunk: (u64, u64),
    /// Core since 28 lets every transaction be replaced. `Some(false)` only from an older one that wants the signal.
    pub replaceable: Option<bool>,
    /// Unconfirmed parents, and children.
    pub depends: Vec<TxHash>,
    pub spent_by: Vec<TxHash>,
}

/// Why a transaction that is in no block may still be mined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// It waits in a mempool.
    Waits,
    /// It waits nowhere, but all that it spends is there.
    Unspent,
}

/// What a node would say to a transaction, without taking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    pub size: Option<u64>,
    pub fee: Option<u64>,
    /// `None`: it would be taken, or is there already.
    pub refusal: Option<(NodeRefusal, String)>,
}

#[derive(Deserialize)]
struct Entry {
    vsize: u64,
    weight: u64,
    ancestorcount: u64,
    ancestorsize: u64,
    descendantcount: u64,
    descendantsize: u64,
    #[serde(default)]
    chunkweight: Option<u64>,
    fees: Fees,
    #[serde(deserialize_with = "hashes")]
    depends: Vec<TxHash>,
    #[serde(deserialize_with = "hashes")]
    spentby: Vec<TxHash>,
    #[serde(default, rename = "bip125-replaceable")]
    signals: Option<bool>,
}

#[derive(Deserialize)]
struct Fees {
    base: Sat,
    ancestor: Sat,
    descendant: Sat,
    #[serde(default)]
    chunk: Option<Sat>,
}

#[derive(Deserialize)]
struct Tested {
    allowed: Option<bool>,
    #[serde(default)]
    vsize: Option<u64>,
    #[serde(default)]
    fees: Option<TestedFees>,
    #[serde(default, rename = "reject-reason")]
    reason: Option<String>,
}

#[derive(Deserialize)]
struct TestedFees {
    base: Sat,
}

#[derive(Deserialize)]
struct Package {
    package_msg: String,
    #[serde(rename = "tx-results")]
    results: BTreeMap<String, PackageResult>,
}

#[derive(Deserialize)]
struct PackageResult {
    txid: String,
    #[serde(default)]
    error: Option<String>,
}

fn hashes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TxHash>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

impl From<Entry> for MempoolFacts {
    fn from(entry: Entry) -> Self {
        let chunk = entry.fees.chunk.zip(entry.chunkweight).map(|(fee, weight)| (fee.0, weight));
        Self {
            fee: entry.fees.base.0,
            size: entry.vsize,
            weight: entry.weight,
            ancestors: PackageFacts {
                count: entry.ancestorcount,
                size: entry.ancestorsize,
                fee: entry.fees.ancestor.0,
            },
            descendants: PackageFacts {
                count: entry.descendantcount,
                size: entry.descendantsize,
                fee: entry.fees.descendant.0,
            },
            chunk: chunk.unwrap_or((entry.fees.base.0, entry.weight)),
            replaceable: entry.signals,
            depends: entry.depends,
            spent_by: entry.spentby,
        }
    }
}

/// Everything that leaves a node's mempool when these transactions are replaced: they and all that builds on them.
async fn evicted(node: &Node, conflicts: &[TxHash]) -> Result<Option<BTreeMap<TxHash, MempoolFacts>>, CallError> {
    let mut all = BTreeMap::new();
    for &conflict in conflicts {
        let Some(own) = entry(node, conflict).await? else {
            return Ok(None);
        };
        all.insert(conflict, own);
        let params = json!([conflict.to_string(), true]);
        let below: BTreeMap<String, Entry> = match wire::call(node, "getmempooldescendants", params).await {
            Err(CallError::Refused { code: NOT_FOUND, .. }) => return Ok(None),
            other => other?,
        };
        for (text, entry) in below {
            let hash = text.parse().map_err(|_| node.bad("not a transaction's hash"))?;
            all.insert(hash, entry.into());
        }
    }
    Ok(Some(all))
}

async fn entry(node: &Node, transaction: TxHash) -> Result<Option<MempoolFacts>, CallError> {
    match wire::call::<Entry>(node, "getmempoolentry", json!([transaction.to_string()])).await {
        Ok(entry) => Ok(Some(entry.into())),
        Err(CallError::Refused { code: NOT_FOUND, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl BitcoinChain {
    /// `None`: the asked node does not hold it.
    pub async fn mempool_facts(&self, transaction: TxHash) -> Result<Option<MempoolFacts>, ChainError> {
        self.pool.any(|node| async move { entry(&node, transaction).await }).await
    }

    /// Which waiting transactions spend these outputs, in their order.
    pub async fn spenders(&self, outputs: &[(TxHash, u32)]) -> Result<Vec<Option<TxHash>>, ChainError> {
        #[derive(Deserialize)]
        struct Spender {
            #[serde(default)]
            spendingtxid: Option<String>,
        }
        let asked: Vec<_> =
            outputs.iter().map(|(hash, index)| json!({ "txid": hash.to_string(), "vout": index })).collect();
        let asked = &asked;
        let count = outputs.len();
        self.pool
            .any(|node| async move {
                if count == 0 {
                    return Ok(Vec::new());
                }
                let found: Vec<Spender> = wire::call(&node, "gettxspendingprevout", json!([asked])).await?;
                if found.len() != count {
                    return Err(node.bad("the answers do not fit the question"));
                }
                let read = |one: Spender| one.spendingtxid.map(|text| text.parse()).transpose();
                let read: Result<Vec<_>, _> = found.into_iter().map(read).collect();
                read.map_err(|_| node.bad("not a transaction's hash"))
            })
            .await
    }

    /// The hashes of the transactions that wait at a quorum of the nodes: what one node alone shows, it may have made up.
    /// In the order in which the first of them lists them.
    pub async fn mempool(&self) -> Result<Vec<TxHash>, ChainError> {
        let answers = self
            .pool
            .each(|node| async move {
                let hashes: Vec<String> = wire::call(&node, "getrawmempool", json!([false])).await?;
                let read: Result<Vec<TxHash>, _> = hashes.iter().map(|text| text.parse()).collect();
                read.map_err(|_| node.bad("not a transaction's hash"))
            })
            .await;
        let (mut order, mut holders): (Vec<TxHash>, HashMap<TxHash, usize>) = Default::default();
        let mut failure = None;
        let mut answered = 0;
        for (_, answer) in answers {
            match answer {
                Ok(hashes) => {
                    answered += 1;
                    // A node that lists one twice has it once.
                    let mut told = HashSet::new();
                    for hash in hashes.into_iter().filter(|hash| told.insert(*hash)) {
                        let count = holders.entry(hash).or_insert(0);
                        if *count == 0 {
                            order.push(hash);
                        }
                        *count += 1;
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        let quorum = self.pool.quorum();
        match failure {
            Some(error) if answered < quorum => Err(ChainError::of_call(error)),
            Some(_) | None => {
                order.retain(|hash| holders.get(hash).is_some_and(|count| *count >= quorum));
                Ok(order)
            }
        }
    }

    /// Why this transaction, which spends these outputs, may still be mined, as far as any of the nodes can tell. `None`: none of
    /// them can, and a quorum has answered. That proves nothing: what it spends may come yet.
    pub async fn prospect(
        &self,
        transaction: TxHash,
        inputs: &[(TxHash, u32)],
    ) -> Result<Option<Prospect>, ChainError> {
        let ask = |node: std::sync::Arc<Node>| async move {
            if entry(&node, transaction).await?.is_some() {
                return Ok(Some(Prospect::Waits));
            }
            Ok(wire::all_there(&node, inputs).await?.then_some(Prospect::Unspent))
        };
        let (mut found, mut failure, mut answered) = (None, None, 0);
        for (_, answer) in self.pool.each(ask).await {
            match answer {
                Ok(prospect) => {
                    answered += 1;
                    found = [found, prospect].into_iter().flatten().min_by_key(|one| *one == Prospect::Unspent);
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if answered < self.pool.quorum() => Err(ChainError::of_call(error)),
            Some(_) | None => Ok(found),
        }
    }

    /// The bytes of waiting transactions, in the order asked for. `None`: none of the nodes has it waiting, or not any more.
    /// (A node with `-txindex` gives mined ones too.)
    ///
    /// One node is asked for all; those that it lacks are asked of every node, because the one that was asked need not be
    /// among those that made the quorum.
    pub async fn waiting(&self, hashes: &[TxHash]) -> Result<Vec<Option<Vec<u8>>>, ChainError> {
        let mut found = Vec::with_capacity(hashes.len());
        for some in hashes.chunks(super::BATCH) {
            let shown = self.pool.any(|node| async move { wire::waiting(&node, some).await }).await?;
            let lacking: Vec<TxHash> =
                some.iter().zip(&shown).filter(|(_, bytes)| bytes.is_none()).map(|(hash, _)| *hash).collect();
            let mut elsewhere = self.waiting_anywhere(&lacking).await.into_iter();
            found.extend(shown.into_iter().map(|bytes| bytes.or_else(|| elsewhere.next().flatten())));
        }
        Ok(found)
    }

    /// What any node shows of these. A node that fails shows nothing.
    async fn waiting_anywhere(&self, hashes: &[TxHash]) -> Vec<Option<Vec<u8>>> {
        let mut found = vec![None; hashes.len()];
        if hashes.is_empty() {
            return found;
        }
        for (_, answer) in self.pool.each(|node| async move { wire::waiting(&node, hashes).await }).await {
            for (bytes, shown) in found.iter_mut().zip(answer.unwrap_or_default()) {
                *bytes = bytes.take().or(shown);
            }
        }
        found
    }

    /// The least fee with which a transaction of this weight replaces the given ones. `None`: the asked node does not
    /// hold one of them any more.
    ///
    /// BIP 125: it pays for what leaves the mempool (rule 3) and for its own size at the incremental rate (rule 4).
    /// Core since 31 wants besides that every miner earns more by it; where the replacement is heavier than what it
    /// replaces, the surplus is counted at the best rate of what leaves. With several independent conflicts that may be
    /// more than needed, never less.
    pub async fn replacement_fee(&self, conflicts: &[TxHash], weight: u64) -> Result<Option<u64>, ChainError> {
        let target = self.settings.target_blocks;
        self.pool
            .any(|node| async move {
                let Some(evicted) = evicted(&node, conflicts).await? else {
                    return Ok(None);
                };
                let facts = fee::facts(&node, target).await?;
                let evicted: Vec<MempoolFacts> = evicted.into_values().collect();
                let minimum = facts.mempool_minimum.max(facts.relay_minimum);
                Ok(least_replacement(&evicted, weight, facts.increment, minimum))
            })
            .await
    }

    /// The fee of a child of this weight that brings its unconfirmed parent, with all that the parent depends on, to
    /// the wanted rate. `None`: the asked node does not hold the parent.
    pub async fn push_fee(&self, parent: TxHash, weight: u64, per_kvb: u64) -> Result<Option<u64>, ChainError> {
        let relay = self.fee_facts().await?.relay_minimum;
        let facts = self.mempool_facts(parent).await?;
        Ok(facts.map(|facts| cpfp_fee(facts.ancestors, weight.div_ceil(4), per_kvb, relay)))
    }

    /// What the asked node would say to it.
    pub async fn rehearse(&self, signed: &[u8]) -> Result<Acceptance, ChainError> {
        let hex = &alloy_primitives::hex::encode(signed);
        let tested = self
            .pool
            .any(|node| async move {
                let mut answers: Vec<Tested> = wire::call(&node, "testmempoolaccept", json!([[hex]])).await?;
                answers.pop().ok_or_else(|| node.bad("the answers do not fit the question"))
            })
            .await?;
        let size = tested.vsize;
        let fee = tested.fees.map(|fees| fees.base.0);
        if tested.allowed == Some(true) {
            return Ok(Acceptance { size, fee, refusal: None });
        }
        let words = tested.reason.unwrap_or_default();
        let refusal = match of_words(&words) {
            Said::HasIt => None,
            Said::No(refusal) => Some((refusal, words)),
        };
        Ok(Acceptance { size, fee, refusal })
    }

    /// Sends parents and their child together, so that the child's fee counts for the parents. The refusals are those of
    /// the single transactions; none: all are taken. To one node, another when it fails.
    pub async fn broadcast_package(
        &self,
        signed: &[Vec<u8>],
    ) -> Result<Vec<(TxHash, NodeRefusal, String)>, ChainError> {
        let hex: Vec<String> = signed.iter().map(alloy_primitives::hex::encode).collect();
        let hex = &hex;
        self.pool
            .any(|node| async move {
                let answer: Package = wire::call(&node, "submitpackage", json!([hex])).await?;
                if answer.package_msg == "success" {
                    return Ok(Vec::new());
                }
                let mut refusals = Vec::new();
                for result in answer.results.into_values() {
                    let hash = result.txid.parse().map_err(|_| node.bad("not a transaction's hash"))?;
                    let words = result.error.unwrap_or_else(|| answer.package_msg.clone());
                    let refusal = match of_words(&words) {
                        Said::HasIt => continue,
                        Said::No(refusal) => refusal,
                    };
                    refusals.push((hash, refusal, words));
                }
                Ok(refusals)
            })
            .await
    }
}

fn least_replacement(evicted: &[MempoolFacts], weight: u64, increment: u64, minimum: u64) -> Option<u64> {
    let size = weight.div_ceil(4);
    let fees = evicted.iter().try_fold(0_u64, |sum, one| sum.checked_add(one.fee))?;
    let weights = evicted.iter().try_fold(0_u64, |sum, one| sum.checked_add(one.weight))?;
    let surplus = u128::from(weight.saturating_sub(weights));
    let at_chunk = |(fee, chunk): (u64, u64)| (surplus * u128::from(fee)).div_ceil(u128::from(chunk.max(1)));
    let dearest = evicted.iter().map(|one| at_chunk(one.chunk)).max().unwrap_or(0);
    let improved = u128::from(fees).saturating_add(dearest);
    let relayed = fees.checked_add(at_rate(increment, size))?;
    Some(u64::try_from(improved).ok()?.max(relayed).max(at_rate(minimum, size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(fee: u64, weight: u64, chunk: (u64, u64)) -> MempoolFacts {
        let own = PackageFacts { count: 1, size: weight.div_ceil(4), fee };
        MempoolFacts {
            fee,
            size: weight.div_ceil(4),
            weight,
            ancestors: own,
            descendants: own,
            chunk,
            replaceable: None,
            depends: Vec::new(),
            spent_by: Vec::new(),
        }
    }

    #[test]
    fn a_replacement_pays_for_what_leaves_and_for_itself() {
        let one = [waiting(1_000, 440, (1_000, 440))];
        assert_eq!(least_replacement(&one, 440, 100, 100), Some(1_011));
        assert_eq!(least_replacement(&one, 437, 100, 100), Some(1_011), "110 virtual bytes");
        assert_eq!(least_replacement(&one, 437, 1_000, 100), Some(1_110));
        assert_eq!(least_replacement(&one, 437, 100, 20_000), Some(2_200), "what the mempool asks for now");
        let two = [waiting(1_000, 440, (1_000, 440)), waiting(5_000, 600, (5_000, 600))];
        assert_eq!(least_replacement(&two, 440, 100, 100), Some(6_011), "a child that leaves too");
    }

    #[test]
    fn a_heavier_replacement_keeps_the_rate() {
        let one = [waiting(1_000, 440, (1_000, 440))];
        assert_eq!(least_replacement(&one, 880, 100, 100), Some(2_000));
        assert_eq!(least_replacement(&[waiting(u64::MAX, 4, (u64::MAX, 1))], 880, 100, 100), None);
    }
}
