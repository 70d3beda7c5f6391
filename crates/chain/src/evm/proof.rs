//! Blocks whose content is proven: it hashes to the roots of headers that a quorum has.
//!
//! Transactions are read always. Receipts are read when they can matter: a watched address has sent or is paid by a
//! transaction, or the bloom of the header, which a quorum has too, says that a listed token may have logged a transfer. All
//! receipts of the block are read then, since only all of them hash to the root. Traces are committed to by nothing: a quorum must
//! say the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use alloy_consensus::TxType;
use alloy_primitives::{Address as Account, B256, U256};
use futures_util::future::try_join_all;
use serde_json::json;

use super::encode::{Encoded, Unencodable, receipts_root, transaction, transactions_root};
use super::outputs::{Fields, TRANSFER, TokenTransfer, Told, find, transfer_of};
use super::rpc::{Sealed, beside, chunked, lacking, receipt, sealed};
use super::scan::{Trouble, in_steps, moved_in, touched};
use super::trace::Moved;
use super::wire::{Body, WholeReceipt};
use super::{BlockProof, EvmChain, EvmSettings};
use crate::block::Scan;
use crate::endpoint::json_rpc::call;
use crate::endpoint::{CallError, Node, ahead};
use crate::error::ChainError;
use crate::proof::{Unfit, in_a_row, until_one_fits};
use crate::watch::Watched;

/// What a transaction came to, by its proven receipt.
struct ProvenRun {
    ok: bool,
    gas: u64,
    transfers: Vec<(u32, TokenTransfer)>,
}

/// A block whose transactions are proven, and its receipts where they matter.
struct Proven {
    sealed: Sealed,
    transactions: Vec<Encoded>,
    outcomes: Option<Vec<ProvenRun>>,
}

/// What contracts moved that concerns a watched address, by the place of the transaction in its block.
type Inside = BTreeMap<usize, Vec<Moved>>;

impl EvmChain {
    pub(super) async fn proven_blocks(&self, from: u64, to: u64, watched: &Watched) -> Result<Scan, ChainError> {
        match self.settings.proof {
            BlockProof::Roots => self.by_roots(from, to, watched).await,
            BlockProof::SecondNode => self.by_quorum(from, to, watched).await,
        }
    }

    /// A quorum must read the same.
    async fn by_quorum(&self, from: u64, to: u64, watched: &Watched) -> Result<Scan, ChainError> {
        let heights: Vec<u64> = (from..=to).collect();
        let read = |node: Arc<Node>| async move {
            let scan = self.scan_of(&node, from, to, watched).await;
            let scan = scan.map_err(|trouble| match trouble {
                Trouble::Call(CallError::Refused { message, .. }) => node.lacks(message),
                Trouble::Call(error) => error,
                Trouble::Moved => node.bad("answers of two branches"),
                Trouble::Missing(height) => node.lacks(format!("there is no block {height}")),
            })?;
            // Their names differ, and must not matter.
            Ok(Scan { source: String::new(), ..scan })
        };
        let scan = self.pool.agree(read).await;
        match scan {
            Err(ChainError::Refused(CallError::Lacks { .. })) => {
                self.agreed_seals(&heights).await?;
                scan
            }
            scan => scan,
        }
    }

    async fn agreed_seals(&self, heights: &[u64]) -> Result<Vec<Sealed>, ChainError> {
        let chunk = self.settings.batch;
        let read = |node: Arc<Node>| async move { sealed(&node, heights, chunk).await };
        let found = self.pool.agree_unless_ahead(read, |one, agreed| ahead(one, agreed, heights)).await?;
        let found = found.into_iter().zip(heights);
        found.map(|(sealed, height)| sealed.ok_or(ChainError::BlockMissing { height: *height })).collect()
    }

    async fn by_roots(&self, from: u64, to: u64, watched: &Watched) -> Result<Scan, ChainError> {
        let heights: Vec<u64> = (from..=to).collect();
        let seals = self.agreed_seals(&heights).await?;
        in_a_row(seals.iter().map(|sealed| &sealed.header))?;
        let (settings, seals) = (&self.settings, seals.as_slice());
        let proven = until_one_fits(&self.pool, |node| async move {
            let name = node.name().to_owned();
            Ok((Prover { settings, node, watched }.blocks(seals).await?, name))
        });
        let (blocks, source) = proven.await?;
        let inside = self.inside(&blocks, watched).await?;
        let mut scan = Scan::default();
        for (block, inside) in blocks.iter().zip(&inside) {
            scan.headers.push(block.sealed.header);
            self.tell_block(block, inside, watched, &mut scan).await?;
        }
        Ok(scan.of_node(&source))
    }

    async fn tell_block(
        &self,
        block: &Proven,
        inside: &Inside,
        watched: &Watched,
        scan: &mut Scan,
    ) -> Result<(), ChainError> {
        for (place, one) in block.transactions.iter().enumerate() {
            let moved = inside.get(&place).map_or(&[][..], Vec::as_slice);
            let outcome = block.outcomes.as_ref().and_then(|outcomes| outcomes.get(place));
            let told = match outcome {
                Some(outcome) => Told {
                    block: block.sealed.header.at(),
                    fields: one.fields,
                    ok: outcome.ok,
                    fee: self.fee(one, outcome, watched).await?,
                    transfers: outcome.transfers.clone(),
                    moved,
                },
                // Nobody who is watched sent it, and it logged nothing that counts. A trace tells nothing of what was undone.
                None if !moved.is_empty() => Told {
                    block: block.sealed.header.at(),
                    fields: one.fields,
                    ok: true,
                    fee: U256::ZERO,
                    transfers: Vec::new(),
                    moved,
                },
                None => continue,
            };
            scan.outputs.extend(told.outputs(watched));
            scan.spends.extend(told.spends(watched));
        }
        Ok(())
    }

    /// What the transaction cost. All of it follows from what is proven, but for the price of blobs, which is asked for when
    /// it matters.
    async fn fee(&self, one: &Encoded, outcome: &ProvenRun, watched: &Watched) -> Result<U256, ChainError> {
        let product = |units: u64, price: u128| U256::from(units).saturating_mul(U256::from(price));
        let gas = product(outcome.gas, one.gas_price);
        if one.blob_gas == 0 || find(watched, &one.fields.from).is_none() {
            return Ok(gas);
        }
        let hash = one.fields.hash;
        let price = |node: Arc<Node>| async move {
            let receipt = receipt(&node, hash).await?.ok_or_else(|| node.lacks("the receipt is not there"))?;
            receipt.blob_gas_price.map(|price| price.0).ok_or_else(|| node.lacks("the price of blobs"))
        };
        Ok(gas.saturating_add(product(one.blob_gas, self.pool.agree(price).await?)))
    }

    /// What contracts moved, for each block, as a quorum traces it.
    async fn inside(&self, blocks: &[Proven], watched: &Watched) -> Result<Vec<Inside>, ChainError> {
        if !self.settings.internal_transfers {
            return Ok(vec![Inside::new(); blocks.len()]);
        }
        let read = |node: Arc<Node>| async move {
            let mut all = Vec::with_capacity(blocks.len());
            for block in blocks {
                let hashes: Vec<B256> = block.transactions.iter().map(|one| one.fields.hash).collect();
                let by = B256::from(block.sealed.header.hash.0).to_string();
                let moved = moved_in(&node, ("debug_traceBlockByHash", by), &hashes).await;
                let moved = moved.map_err(|trouble| match trouble {
                    Trouble::Call(error) => lacking(&node, error),
                    Trouble::Moved | Trouble::Missing(_) => node.bad("a trace of other transactions"),
                })?;
                let ours = |one: &Moved| find(watched, &one.from).is_some() || find(watched, &one.to).is_some();
                let some = moved.into_iter().enumerate().filter(|(_, moved)| moved.iter().any(ours));
                all.push(some.collect::<Inside>());
            }
            Ok(all)
        };
        self.pool.agree(read).await
    }
}

struct Prover<'a> {
    settings: &'a EvmSettings,
    node: Arc<Node>,
    watched: &'a Watched,
}

impl Prover<'_> {
    async fn blocks(&self, seals: &[Sealed]) -> Result<Vec<Proven>, Unfit> {
        let mut blocks = Vec::with_capacity(seals.len());
        let Some(last) = seals.len().checked_sub(1) else { return Ok(blocks) };
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let work = |first: u64, last: u64| self.step(&seals[place(first)..=place(last)]);
        let keep = |some: Vec<Proven>| {
            blocks.extend(some);
            Ok(())
        };
        in_steps((0, u64::try_from(last).unwrap_or(u64::MAX)), self.settings, work, keep).await?;
        Ok(blocks)
    }

    async fn step(&self, seals: &[Sealed]) -> Result<Vec<Proven>, Unfit> {
        let (node, mine) = (Arc::clone(&self.node), seals.to_vec());
        // Hashing and recovering senders takes longer than fetching: beside the caller.
        let bodies = beside_fit(&self.node, async move { bodies(&node, &mine).await }).await?;
        let mut blocks: Vec<Proven> = seals
            .iter()
            .zip(bodies)
            .map(|(sealed, transactions)| Proven { sealed: sealed.clone(), transactions, outcomes: None })
            .collect();
        let needed: Vec<usize> =
            blocks.iter().enumerate().filter(|(_, block)| self.matters(block)).map(|(place, _)| place).collect();
        let asked = needed.iter().map(|place| {
            let block = &blocks[*place];
            let wanted = Wanted {
                sealed: block.sealed.clone(),
                hashes: block.transactions.iter().map(|one| one.fields.hash).collect(),
                kinds: block.transactions.iter().map(|one| one.kind).collect(),
                chunk: self.settings.batch,
            };
            let (node, tokens) = (Arc::clone(&self.node), self.settings.tokens.clone());
            beside_fit(&self.node, async move { outcomes(&node, wanted, &tokens).await })
        });
        let told = try_join_all(asked).await?;
        for (place, outcomes) in needed.into_iter().zip(told) {
            blocks[place].outcomes = Some(outcomes);
        }
        Ok(blocks)
    }

    /// Whether the receipts of the block can tell anything that counts.
    fn matters(&self, block: &Proven) -> bool {
        let logged = |token: &Account| block.sealed.bloom.contains_raw_log(*token, &[TRANSFER]);
        let fields: Vec<Fields> = block.transactions.iter().map(|one| one.fields).collect();
        !block.transactions.is_empty()
            && (self.settings.tokens.iter().any(logged) || !touched(self.watched, &fields).is_empty())
    }
}

/// [`beside`], for work that may find a node lying.
async fn beside_fit<T: Send + 'static>(
    node: &Node,
    work: impl Future<Output = Result<T, Unfit>> + Send + 'static,
) -> Result<T, Unfit> {
    beside(node, async move { Ok(work.await) }).await?
}

fn unfit(node: &Node, height: u64, why: Unencodable) -> Unfit {
    match why {
        Unencodable::Unknown(what) => Unfit::NotUnderstood { height, what: format!("it has {what}") },
        Unencodable::Lacks(field) => Unfit::Call(node.bad(format!("a transaction or receipt without {field}"))),
    }
}

/// The transactions of these blocks, which hash to the roots.
async fn bodies(node: &Node, seals: &[Sealed]) -> Result<Vec<Vec<Encoded>>, Unfit> {
    let hash = |sealed: &Sealed| B256::from(sealed.header.hash.0).to_string();
    let calls: Vec<_> = seals.iter().map(|sealed| ("eth_getBlockByHash", json!([hash(sealed), true]))).collect();
    let found: Vec<Option<Body>> = chunked(node, &calls, calls.len()).await?;
    let mut all = Vec::with_capacity(seals.len());
    for (sealed, body) in seals.iter().zip(found) {
        let height = sealed.header.height;
        let body = body.ok_or_else(|| node.lacks(format!("there is no block {height}")))?;
        let encoded = body.transactions.iter().map(|one| transaction(one, sealed.base_fee));
        let encoded = encoded.collect::<Result<Vec<_>, _>>().map_err(|why| unfit(node, height, why))?;
        if transactions_root(&encoded) != sealed.transactions_root {
            return Err(Unfit::Forged { height, what: "its transactions do not hash to the header's root".to_owned() });
        }
        all.push(encoded);
    }
    Ok(all)
}

/// A block whose receipts are wanted.
struct Wanted {
    sealed: Sealed,
    hashes: Vec<B256>,
    kinds: Vec<TxType>,
    chunk: usize,
}

/// What the transactions of a block came to, by receipts that hash to the root.
async fn outcomes(node: &Node, wanted: Wanted, tokens: &[Account]) -> Result<Vec<ProvenRun>, Unfit> {
    let height = wanted.sealed.header.height;
    let receipts = receipts_of(node, &wanted).await?;
    let forged = |what: &str| Unfit::Forged { height, what: what.to_owned() };
    if receipts.len() != wanted.kinds.len() {
        return Err(forged("it has not as many receipts as transactions"));
    }
    let root = receipts_root(&receipts, &wanted.kinds).map_err(|why| unfit(node, height, why))?;
    if root != wanted.sealed.receipts_root {
        return Err(forged("its receipts do not hash to the header's root"));
    }
    let mut before = 0;
    let read = receipts.iter().map(|receipt| {
        let used = receipt.cumulative_gas_used.0;
        let gas = used.checked_sub(before).ok_or_else(|| forged("its gas goes down"))?;
        before = used;
        let logs = (0_u32..).zip(&receipt.logs);
        let transfers = logs.filter_map(|(place, log)| {
            let [topic, from, to] = log.topics.as_slice() else { return None };
            let amount = (log.data.0.len() == 32).then(|| U256::from_be_slice(&log.data.0));
            Some((place, transfer_of(log.address.0, [topic.0, from.0, to.0], amount, tokens)?))
        });
        let ok = receipt.status.is_some_and(|status| status.0 == 1);
        Ok(ProvenRun { ok, gas, transfers: transfers.collect() })
    });
    read.collect()
}

/// All receipts of a block: at once, or one by one where the node knows no better.
async fn receipts_of(node: &Node, wanted: &Wanted) -> Result<Vec<WholeReceipt>, CallError> {
    let block = B256::from(wanted.sealed.header.hash.0);
    let together: Result<Option<Vec<WholeReceipt>>, _> =
        call(node, "eth_getBlockReceipts", json!([block.to_string()])).await;
    let lacks = || node.lacks("the receipts of a block");
    match together {
        Ok(Some(receipts)) => return Ok(receipts),
        Ok(None) => return Err(lacks()),
        Err(CallError::Refused { .. } | CallError::TooLong { .. }) => {}
        Err(error) => return Err(error),
    }
    let calls: Vec<_> =
        wanted.hashes.iter().map(|hash| ("eth_getTransactionReceipt", json!([hash.to_string()]))).collect();
    let receipts: Vec<Option<WholeReceipt>> = chunked(node, &calls, wanted.chunk).await?;
    let receipts = receipts.into_iter().collect::<Option<Vec<_>>>().ok_or_else(lacks)?;
    // A node that has gone over to another branch is no liar.
    if receipts.iter().any(|receipt| receipt.block_hash.0 != block) {
        return Err(lacks());
    }
    Ok(receipts)
}
