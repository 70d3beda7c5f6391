//! Bitcoin's follower: it shows the wallet store what a quorum has, a block at a time, and what waits.

use std::collections::HashSet;
use std::sync::Arc;

use chain::ChainError;
use custody::bitcoin::tx_of_bytes;
use custody::outbound::OutboundError;
use domain::{Clock, ManualClock};
use store::Db;
use store::utxo::{Block, Hash, NewTx, UtxoError, UtxoRefusal};

use super::client::SimChain;
use super::model::{Block as Truth, Branch};

pub(crate) struct Follower<'a> {
    pub db: &'a Db,
    pub chain: &'a SimChain,
    pub clock: &'a Arc<ManualClock>,
}

fn height_of(height: u64) -> Result<u32, OutboundError> {
    u32::try_from(height).map_err(|_| ChainError::BlockMissing { height }.into())
}

fn read(bytes: &[u8]) -> NewTx {
    tx_of_bytes(bytes).expect("what is in blocks and pools was read before")
}

impl Follower<'_> {
    /// One block on, one branch back, or a look at the pool.
    pub async fn step(&self) -> Result<(), OutboundError> {
        let (agreed, pool) = self.chain.everything().await?;
        let now = self.clock.now();
        let Some((height, hash)) = self.db.tip().await? else {
            return self.connect(agreed.0.first()).await;
        };
        let here = agreed.at(u64::from(height));
        if here.is_none() && u64::from(height) > agreed.tip().height {
            return Ok(());
        }
        if here.is_none_or(|block| block.hash.0 != hash.0) {
            let down_to = self.common(&agreed, height).await?;
            return passed(self.db.disconnect_blocks((height, hash), down_to, &[], now).await);
        }
        if let Some(next) = agreed.at(u64::from(height) + 1) {
            return self.connect(Some(next)).await;
        }
        let waiting: HashSet<Hash> = pool.iter().map(|one| Hash(one.hash.0)).collect();
        let shown = pool.iter().map(|one| read(&one.bytes)).collect::<Vec<NewTx>>();
        passed(self.db.see_mempool(&shown, &waiting, now).await)
    }

    async fn connect(&self, block: Option<&Arc<Truth>>) -> Result<(), OutboundError> {
        let Some(block) = block else { return Ok(()) };
        let height = height_of(block.height)?;
        let time = u32::try_from(block.time.micros() / 1_000_000).unwrap_or(u32::MAX);
        let stored = Block { height, hash: Hash(block.hash.0), parent: Hash(block.parent.0), time };
        let transactions = block.transactions.iter().map(|one| read(&one.bytes)).collect::<Vec<_>>();
        passed(self.db.connect_block(&stored, &transactions, self.clock.now()).await)
    }

    /// The highest block of the store that is in the branch.
    async fn common(&self, agreed: &Branch, tip: u32) -> Result<u32, OutboundError> {
        // The branch has no block below its first: older ones need not be read, of which a long run has very many.
        let first = agreed.0.first().map_or(0, |block| block.height);
        let mut stored = self.db.block_hashes(height_of(first)?, tip).await?;
        stored.sort_unstable();
        let common = stored
            .iter()
            .rev()
            .find(|(height, hash)| agreed.at(u64::from(*height)).is_some_and(|block| block.hash.0 == hash.0));
        Ok(common.map_or(0, |(height, _)| *height))
    }
}

/// Another follower was quicker.
fn passed<T>(done: Result<T, UtxoError>) -> Result<(), OutboundError> {
    match done {
        Ok(_) | Err(UtxoError::Refused(UtxoRefusal::NotOnTip(_))) => Ok(()),
        Err(UtxoError::Store(error)) => Err(error.into()),
        Err(error) => Err(error.into()),
    }
}
