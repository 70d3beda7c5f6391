//! What blocks pay to watched scripts, and where a transaction is.

use std::sync::{Arc, Mutex, PoisonError};

use domain::RawAmount;
use futures_util::{StreamExt, stream};
use ruint::aliases::U256;
use tx::{Address, BlockRef, Coin, TxHash};

use super::raw::{RawBlock, RawTransaction};
use super::wire::{self, Whereabouts};
use super::{BATCH, BitcoinChain};
use crate::block::{Output, Place, Scan};
use crate::client::Proven;
use crate::endpoint::{CallError, Node};
use crate::error::ChainError;
use crate::proof::{Unfit, in_a_row, until_one_fits};
use crate::watch::{WatchKey, Watched};
use tx::bitcoin::address::of_script;

/// Blocks asked for at a time: while one is read, the node prepares the next ones.
const IN_FLIGHT: usize = 16;
/// A chain that changes while it is read is read again, so often.
const TRIES: usize = 4;
/// Where the number of outputs is not known, so many are asked for.
const GUESSED_OUTPUTS: u32 = 32;
const MOST_OUTPUTS: u32 = 100;

/// What reading some blocks of one node came to.
enum Read<T> {
    Done(T),
    /// The chain changed under the reader, or does not reach this height.
    Gone(u64),
}

/// Hands the blocks to the visitor in their order, each checked against its hash, until it has seen enough. `Some`: the
/// node does not have this one.
pub(super) async fn read_blocks(
    node: &Arc<Node>,
    blocks: &[BlockRef],
    mut visit: impl FnMut(BlockRef, &RawBlock) -> bool,
) -> Result<Option<u64>, CallError> {
    // Tasks of their own: a block arrives and is checked while the one before it is looked through.
    let fetched = blocks.iter().copied().map(|block| {
        let asked = Arc::clone(node);
        let task = tokio::spawn(async move { wire::block(&asked, block.hash).await });
        async move { (block, task.await) }
    });
    let mut fetched = stream::iter(fetched).buffered(IN_FLIGHT);
    while let Some((block, read)) = fetched.next().await {
        let Some(raw) = read.map_err(|_| node.bad("reading it broke off"))?? else {
            return Ok(Some(block.height));
        };
        if !visit(block, &raw) {
            break;
        }
    }
    Ok(None)
}

impl BitcoinChain {
    pub(super) async fn scan_blocks(&self, from: u64, to: u64, watched: &Watched) -> Result<Scan, ChainError> {
        // That a node lacks a block is a reason to ask another, and only then one to give up.
        let gone = &Mutex::new(None);
        for _ in 0..TRIES {
            let read = self.pool.any(|node| async move {
                match self.scan_once(&node, from, to, watched).await? {
                    Read::Done(scan) => Ok(scan.of_node(node.name())),
                    Read::Gone(height) => {
                        *gone.lock().unwrap_or_else(PoisonError::into_inner) = Some(height);
                        Err(node.lacks(format!("there is no block {height}")))
                    }
                }
            });
            match (read.await, *gone.lock().unwrap_or_else(PoisonError::into_inner)) {
                (Err(ChainError::Refused(CallError::Lacks { .. })), Some(_)) => {}
                (read, _) => return read,
            }
        }
        let height = gone.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(from);
        Err(ChainError::BlockMissing { height })
    }

    /// The bytes of a block that a quorum has, checked against its hash: any one node will do.
    pub async fn block_bytes(&self, block: BlockRef) -> Result<Vec<u8>, ChainError> {
        let read = self.pool.any(|node| async move {
            let found = wire::block(&node, block.hash).await?;
            found.map(RawBlock::into_bytes).ok_or_else(|| node.lacks(format!("there is no block {}", block.height)))
        });
        match read.await {
            Err(ChainError::Refused(CallError::Lacks { what, .. })) if wire::is_not_kept(&what) => {
                Err(ChainError::BlockNotKept { height: block.height, said: what })
            }
            Err(ChainError::Refused(CallError::Lacks { .. })) => Err(ChainError::BlockMissing { height: block.height }),
            read => read,
        }
    }

    async fn scan_once(
        &self,
        node: &Arc<Node>,
        from: u64,
        to: u64,
        watched: &Watched,
    ) -> Result<Read<Scan>, CallError> {
        let mut scan = Scan::default();
        let mut next = from;
        while next <= to {
            let last = to.min(next.saturating_add(BATCH as u64 - 1));
            let heights: Vec<u64> = (next..=last).collect();
            let mut blocks = Vec::with_capacity(heights.len());
            for (&height, hash) in heights.iter().zip(wire::hashes_at(node, &heights).await?) {
                match hash {
                    Some(hash) => blocks.push(BlockRef { height, hash }),
                    None => return Ok(Read::Gone(height)),
                }
            }
            let gone = read_blocks(node, &blocks, |at, block| {
                scan.headers.push(block.header.at(at.height));
                self.collect(at, block.transactions(), watched, &mut scan.outputs);
                true
            });
            if let Some(height) = gone.await? {
                return Ok(Read::Gone(height));
            }
            let Some(above) = last.checked_add(1) else { break };
            next = above;
        }
        // The hashes were asked for one by one: the chain may have changed between two of them.
        let broken = scan.headers.windows(2).find(|pair| pair[1].parent != pair[0].hash).map(|pair| pair[1].height);
        Ok(broken.map_or(Read::Done(scan), Read::Gone))
    }

    /// The blocks that a quorum has, from one node whose bytes hash to them. Nobody's word is needed for more than the hash.
    pub(super) async fn proven_blocks(&self, from: u64, to: u64, watched: &Watched) -> Result<Scan, ChainError> {
        let mut scan = Scan::default();
        let mut next = from;
        while next <= to {
            let last = to.min(next.saturating_add(BATCH as u64 - 1));
            let heights: Vec<u64> = (next..=last).collect();
            let mut blocks = Vec::with_capacity(heights.len());
            for (&height, hash) in heights.iter().zip(self.agreed(&heights).await?) {
                blocks.push(BlockRef { height, hash: hash.ok_or(ChainError::BlockMissing { height })? });
            }
            let blocks = &blocks;
            let part = until_one_fits(&self.pool, |node| async move { self.fitting(&node, blocks, watched).await });
            let part = part.await?;
            scan.headers.extend(part.headers);
            scan.outputs.extend(part.outputs);
            scan.source = part.source;
            let Some(above) = last.checked_add(1) else { break };
            next = above;
        }
        in_a_row(&scan.headers)?;
        Ok(scan)
    }

    async fn fitting(&self, node: &Arc<Node>, blocks: &[BlockRef], watched: &Watched) -> Result<Scan, Unfit> {
        let mut scan = Scan::default();
        let fetched = blocks.iter().copied().map(|block| {
            let asked = Arc::clone(node);
            let task = tokio::spawn(async move {
                let bytes = wire::block_bytes(&asked, block.hash).await?;
                Ok::<_, CallError>(bytes.map(|bytes| RawBlock::read(bytes, block.hash)))
            });
            async move { (block, task.await) }
        });
        let mut fetched = stream::iter(fetched).buffered(IN_FLIGHT);
        while let Some((block, read)) = fetched.next().await {
            let height = block.height;
            let read = read.map_err(|_| node.bad("reading it broke off"))??;
            let read = read.ok_or_else(|| node.lacks(format!("there is no block {height}")))?;
            let raw = read.map_err(|what| Unfit::Forged { height, what: what.to_owned() })?;
            scan.headers.push(raw.header.at(height));
            self.collect(block, raw.transactions(), watched, &mut scan.outputs);
        }
        Ok(scan.of_node(node.name()))
    }

    /// What these transactions of a block pay. All their scripts are looked up together: in a set of millions each
    /// lookup waits for memory, and so the waits overlap.
    fn collect<'a>(
        &self,
        block: BlockRef,
        transactions: impl Iterator<Item = RawTransaction<'a>> + Clone,
        watched: &Watched,
        found: &mut Vec<Output>,
    ) {
        let outputs = transactions.flat_map(|one| (0_u32..).zip(one.outputs()).map(move |output| (one, output)));
        let keys: Vec<WatchKey> = outputs.clone().map(|(_, (_, (_, script)))| WatchKey::of_script(script)).collect();
        let mut hits = Vec::new();
        watched.find_all(&keys, &mut hits);
        let mut outputs = (0..).zip(outputs);
        for (hit, number) in hits {
            let paid = outputs.find(|(at, _)| *at == hit);
            let Some((_, (transaction, (index, (satoshi, script))))) = paid else { return };
            // Whatever is watched is an address; a script that is none was matched by a key that is no address's.
            let Some(to) = of_script(script, self.settings.network) else {
                continue;
            };
            found.push(Output {
                block,
                transaction: transaction.hash(),
                place: Place::Output(index),
                watched: number,
                to: Address::Bitcoin(to),
                coin: Coin::Native,
                amount: RawAmount::from_u256(U256::from(satoshi)),
                ok: true,
                coinbase: transaction.coinbase,
            });
        }
    }

    /// The size of the blocks `from..=to`, fetched as a scan fetches them and thrown away unread: the yardstick of a
    /// scan.
    pub async fn fetch_only(&self, from: u64, to: u64) -> Result<u64, ChainError> {
        self.pool
            .any(|node| async move {
                let mut bytes = 0;
                let heights: Vec<u64> = (from..=to).collect();
                for some in heights.chunks(BATCH) {
                    let hashes = wire::hashes_at(&node, some).await?;
                    let fetched = hashes.into_iter().flatten().map(|hash| {
                        let asked = Arc::clone(&node);
                        tokio::spawn(async move { wire::block_text(&asked, hash).await })
                    });
                    let mut fetched = stream::iter(fetched).buffered(IN_FLIGHT);
                    while let Some(text) = fetched.next().await {
                        let text = text.map_err(|_| node.bad("reading it broke off"))??;
                        bytes += text.map_or(0, |text| text.get().len() as u64 / 2);
                    }
                }
                Ok(bytes)
            })
            .await
    }

    /// Where the nodes say that a transaction is. A block is returned only when a quorum has it at its height.
    pub(super) async fn whereabouts(&self, transaction: TxHash, outputs: Option<u32>) -> Result<Found, ChainError> {
        let outputs = outputs.unwrap_or(GUESSED_OUTPUTS).clamp(1, MOST_OUTPUTS);
        let answers = self.pool.each_soon(|node| async move { wire::locate(&node, transaction, outputs).await }).await;
        let mut hints: Vec<BlockRef> = Vec::new();
        let (mut absent, mut answered, mut failure) = (0, 0, None);
        for (_, answer) in answers {
            answered += usize::from(answer.is_ok());
            match answer {
                Ok(Whereabouts::Block(block)) if !hints.contains(&block) => hints.push(block),
                Ok(Whereabouts::Block(_) | Whereabouts::CannotTell) => {}
                Ok(Whereabouts::Mempool | Whereabouts::Nowhere) => absent += 1,
                Err(error) => failure = Some(error),
            }
        }
        for block in hints {
            let agreed = match self.agreed(&[block.height]).await {
                Ok(agreed) => agreed,
                // A height that only a liar can reach, or that is none, must not hide what the others say.
                Err(ChainError::NoQuorum { .. } | ChainError::Refused(_)) => continue,
                Err(error) => return Err(error),
            };
            // Nor must a block that is there and does not hold it: a liar's hint would stand before all others.
            if agreed.first() == Some(&Some(block.hash)) && self.in_block(block, transaction, |_| ()).await?.is_some() {
                return Ok(Found::Block(block));
            }
        }
        if absent >= self.pool.quorum() {
            return Ok(Found::Nowhere);
        }
        match failure {
            Some(error) if answered == 0 => Err(ChainError::of_call(error)),
            _ => Ok(Found::CannotTell { agreed: absent }),
        }
    }

    /// What the transaction pays, from the block itself. `None`: the block does not hold it.
    pub(super) async fn in_block<T: Send>(
        &self,
        at: BlockRef,
        transaction: TxHash,
        take: impl Fn(&RawTransaction<'_>) -> T + Send + Sync,
    ) -> Result<Option<T>, ChainError> {
        let take = &take;
        self.pool
            .any(|node: Arc<Node>| async move {
                let block = wire::block(&node, at.hash).await?;
                let block = block.ok_or_else(|| node.bad("it lacks a block that the others have"))?;
                Ok(block.transactions().find(|one| one.hash() == transaction).map(|one| take(&one)))
            })
            .await
    }

    pub(super) async fn prove_payment(
        &self,
        transaction: TxHash,
        watched: &Watched,
    ) -> Result<Option<Proven>, ChainError> {
        let block = match self.whereabouts(transaction, None).await? {
            Found::Block(block) => block,
            Found::Nowhere => return Ok(None),
            Found::CannotTell { agreed } => {
                return Err(ChainError::NoQuorum { wanted: self.pool.quorum(), agreed });
            }
        };
        let outputs = self
            .in_block(block, transaction, |one| {
                let mut outputs = Vec::new();
                self.collect(block, std::iter::once(*one), watched, &mut outputs);
                outputs
            })
            .await?;
        Ok(outputs.map(|outputs| Proven { block, ok: true, outputs }))
    }
}

pub(super) enum Found {
    Block(BlockRef),
    /// A quorum of nodes that know all transactions has it in no block.
    Nowhere,
    /// Too few nodes can tell: `agreed` say that it is in no block.
    CannotTell {
        agreed: usize,
    },
}
