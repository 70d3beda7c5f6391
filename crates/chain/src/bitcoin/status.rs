//! What is known about a transaction that was sent.
//!
//! | answer | rests on |
//! |---|---|
//! | `Mined` | a quorum has the block at its height, and the block's own bytes hold the transaction |
//! | `Impossible` | a quorum has a block that spends an input otherwise, and enough blocks above it |
//! | `Mempool` | one node's word |
//! | `Unknown` | everything else; above all, that an input is no longer unspent |

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::RawAmount;
use ruint::aliases::U256;
use serde_json::{Value, json};
use tx::{Address, BlockRef, Coin, Meaning, Slot, TxHash};

use super::BitcoinChain;
use super::raw::RawTransaction;
use super::scan::{Found, read_blocks};
use super::wire::{self, NOT_FOUND};
use crate::client::Sent;
use crate::endpoint::{CallError, Node};
use crate::error::ChainError;
use crate::status::{Mined, Paid, Proof, Reason, Status};

/// So many blocks are read in the time of one procedure, also when all are full.
const AT_ONCE: usize = 24;

/// So many transactions are remembered at a time. Each takes about a hundred bytes.
const REMEMBERED: usize = 50_000;

/// Up to where the settled blocks were read for transactions, none of which held one or anything against it. Only the time
/// of reading them again depends on it: a process that starts anew begins where the transaction was built.
#[derive(Default)]
pub(super) struct Searched(Mutex<BTreeMap<TxHash, BlockRef>>);

impl Searched {
    fn all(&self) -> MutexGuard<'_, BTreeMap<TxHash, BlockRef>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last block that was read.
    fn last(&self, transaction: &TxHash) -> Option<BlockRef> {
        self.all().get(transaction).copied()
    }

    fn reached(&self, transaction: TxHash, last: BlockRef) {
        let mut all = self.all();
        if all.len() >= REMEMBERED && !all.contains_key(&transaction) {
            all.pop_first();
        }
        all.insert(transaction, last);
    }

    fn forget(&self, transaction: &TxHash) {
        self.all().remove(transaction);
    }
}

/// A node's view of a transaction that no block is known to hold.
#[derive(Clone, Copy)]
struct Stance {
    waiting: bool,
    /// Its inputs are unspent in the node's chain, so that chain neither holds it nor anything against it.
    open: bool,
}

/// What a chain holds that spends an input of the transaction: itself, or another.
#[derive(Clone, Copy)]
enum Spender {
    Itself,
    Other {
        input: (TxHash, u32),
        by: TxHash,
    },
    /// Another hash, but the same inputs and the same payments: the same payment with other signatures or sequence
    /// numbers. It paid, so this transaction must not be called impossible; it was not mined either.
    Twin,
}

impl BitcoinChain {
    pub(super) async fn status_of(&self, sent: &Sent) -> Result<Status, ChainError> {
        let Slot::Inputs(inputs) = &sent.meaning.slot else {
            return Err(ChainError::ForeignAddress);
        };
        let outputs = u32::try_from(sent.meaning.payments.len()).unwrap_or(u32::MAX);
        if let Found::Block(block) = self.whereabouts(sent.hash, Some(outputs)).await?
            && self.in_block(block, sent.hash, |_| ()).await?.is_some()
        {
            return self.mined(sent.hash, block).await;
        }
        let hash = sent.hash;
        let stances = self.pool.each_soon(|node| async move { stance(&node, hash, inputs).await }).await;
        let stances: Vec<Stance> = stances.into_iter().filter_map(|(_, answer)| answer.ok()).collect();
        let waiting = stances.iter().any(|stance| stance.waiting);
        // Reading a thousand blocks is not for one node's word.
        let closed = stances.iter().filter(|stance| !stance.waiting && !stance.open).count();
        if closed >= self.pool.quorum()
            && let Some(status) = self.search(sent, inputs).await?
        {
            return Ok(status);
        }
        Ok(if waiting { Status::Mempool } else { Status::Unknown })
    }

    async fn mined(&self, transaction: TxHash, block: BlockRef) -> Result<Status, ChainError> {
        self.searched.forget(&transaction);
        let fee_in = |node: Arc<Node>| async move { wire::fee_in(&node, transaction, block.hash).await };
        let answers = self.pool.each_soon(fee_in).await;
        let fees: Vec<u64> = answers.into_iter().filter_map(|(_, answer)| answer.ok().flatten()).collect();
        // The fee is not in the block: it is believed when as many as a quorum name it and none another.
        let agreed = fees.len() >= self.pool.quorum() && fees.windows(2).all(|pair| pair[0] == pair[1]);
        let fee = fees.first().filter(|_| agreed).map(|&fee| RawAmount::from_u256(U256::from(fee)));
        Ok(Status::Mined(Mined { block, paid: Paid::InFull, fee }))
    }

    /// Reads the blocks since it was built, for the transaction or for what conflicts with it: so many in one call, and in
    /// the next one those that follow, without an end.
    async fn search(&self, sent: &Sent, inputs: &[(TxHash, u32)]) -> Result<Option<Status>, ChainError> {
        let height = self.height_of_quorum().await?;
        let since = self.unread(sent).await?;
        let last = height.min(since.saturating_add(self.settings.search_blocks.max(1) - 1));
        if since > last {
            return Ok(None);
        }
        let end = last.saturating_add(1);
        // Nodes need not be of one mind about the newest blocks: those are asked for by themselves.
        let settled = height.checked_sub(self.settings.confirmations);
        let old = settled.map_or(since, |settled| settled.saturating_add(1).clamp(since, end));
        let mut found = self.search_in(sent, inputs, since..old).await?;
        if found.is_none() {
            // These are settled, and a quorum has them: they need not be read again.
            if let Some(height) = old.checked_sub(1).filter(|height| *height >= since)
                && let [Some(hash)] = self.agreed(&[height]).await?[..]
            {
                self.searched.reached(sent.hash, BlockRef { height, hash });
            }
            found = match self.search_in(sent, inputs, old..end).await {
                Err(ChainError::NoQuorum { .. }) => None,
                found => found?,
            };
        }
        let Some((block, spender)) = found else {
            return Ok(None);
        };
        let (input, by) = match spender {
            Spender::Itself => return self.mined(sent.hash, block).await.map(Some),
            Spender::Twin => {
                tracing::warn!(
                    transaction = %sent.hash, block = %block.hash, height = block.height,
                    "another transaction with the same inputs and payments was mined"
                );
                return Ok(None);
            }
            Spender::Other { input, by } => (input, by),
        };
        // The same nodes must have the block and the one that settles it: one question, one answer.
        let depth = block.height.saturating_add(self.settings.confirmations.max(1));
        match self.agreed(&[block.height, depth]).await?[..] {
            [Some(hash), Some(_)] if hash == block.hash => {
                self.searched.forget(&sent.hash);
                Ok(Some(Status::Impossible(Proof::new(Reason::InputSpent { input, by, block }))))
            }
            _ => Ok(None),
        }
    }

    /// The first block that was not read for this transaction. When even a settled block has been replaced, all of them are
    /// read again.
    async fn unread(&self, sent: &Sent) -> Result<u64, ChainError> {
        let Some(last) = self.searched.last(&sent.hash).filter(|last| last.height >= sent.since) else {
            return Ok(sent.since);
        };
        let still = self.agreed(&[last.height]).await? == [Some(last.hash)];
        Ok(if still { last.height.saturating_add(1) } else { sent.since })
    }

    /// The height that enough nodes have reached. One that lags must not hide what the others have.
    async fn height_of_quorum(&self) -> Result<u64, ChainError> {
        let (network, wanted) = (self.settings.network, self.pool.quorum());
        let infos = self.pool.each_soon(|node| async move { wire::chain_info(&node, network).await }).await;
        let mut heights: Vec<u64> = infos.into_iter().filter_map(|(_, info)| Some(info.ok()?.blocks)).collect();
        heights.sort_unstable_by(|a, b| b.cmp(a));
        let agreed = heights.len();
        heights.get(wanted.saturating_sub(1)).copied().ok_or(ChainError::NoQuorum { wanted, agreed })
    }

    /// In blocks that a quorum has at their heights.
    async fn search_in(
        &self,
        sent: &Sent,
        inputs: &[(TxHash, u32)],
        heights: Range<u64>,
    ) -> Result<Option<(BlockRef, Spender)>, ChainError> {
        let heights: Vec<u64> = heights.collect();
        for some in heights.chunks(AT_ONCE) {
            let hashes = self.agreed(some).await?;
            let blocks = some.iter().zip(hashes).map_while(|(&height, hash)| Some(BlockRef { height, hash: hash? }));
            let blocks: Vec<BlockRef> = blocks.collect();
            let blocks = &blocks;
            let found = self
                .pool
                .any(|node| async move {
                    let mut found = None;
                    let gone = read_blocks(&node, blocks, |at, block| {
                        let spender = block.transactions().find_map(|one| spender(sent, inputs, &one));
                        found = spender.map(|spender| (at, spender));
                        found.is_none()
                    });
                    match gone.await? {
                        None => Ok(found),
                        Some(_) => Err(node.bad("it lacks a block that the others have")),
                    }
                })
                .await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

fn spender(sent: &Sent, inputs: &[(TxHash, u32)], one: &RawTransaction<'_>) -> Option<Spender> {
    let input = one.spends().find(|spent| inputs.contains(spent))?;
    let by = one.hash();
    Some(if by == sent.hash {
        Spender::Itself
    } else if one.spends().eq(inputs.iter().copied()) && pays_the_same(&sent.meaning, one) {
        Spender::Twin
    } else {
        Spender::Other { input, by }
    })
}

fn pays_the_same(meaning: &Meaning, one: &RawTransaction<'_>) -> bool {
    let wanted = meaning.payments.iter().map(|payment| match (&payment.to, &payment.coin) {
        (Address::Bitcoin(to), Coin::Native) => Some((payment.amount.to_u256(), to.script_pubkey())),
        _ => None,
    });
    let paid = one.outputs().map(|(satoshi, script)| Some((U256::from(satoshi), script.to_owned())));
    paid.eq(wanted)
}

async fn stance(node: &Node, transaction: TxHash, inputs: &[(TxHash, u32)]) -> Result<Stance, CallError> {
    let entry: Result<Value, CallError> = wire::call(node, "getmempoolentry", json!([transaction.to_string()])).await;
    let waiting = match entry {
        Ok(_) => true,
        Err(CallError::Refused { code: NOT_FOUND, .. }) => false,
        Err(error) => return Err(error),
    };
    let open = waiting || wire::all_unspent(node, inputs).await?;
    Ok(Stance { waiting, open })
}
