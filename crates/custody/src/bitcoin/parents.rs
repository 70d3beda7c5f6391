//! The transactions that unconfirmed ones of ours depend on, although they are nobody's here.
//!
//! A deposit that spends a stranger's unconfirmed transaction can be mined only if that one is. The store learns what
//! becomes of it as of any other, once it has its inputs. So it is shown it: out of the mempool, and out of blocks that
//! leave the chain. Then a block that spends an input of the parent ends the deposit too, and a reorganisation brings
//! both back.

use std::collections::HashSet;

use domain::Timestamp;
use store::utxo::{Hash, NewTx};
use tx::TxHash;

use super::follow::{Follow, FollowError, block_ref};
use super::read::{block_of_bytes, tx_hash_of};

/// Nodes take no longer lines of unconfirmed transactions than 25; twice as many is no end that is met.
const MOST_GENERATIONS: usize = 50;

impl Follow<'_> {
    /// Shows the store the waiting transactions that ours depend on, and those that they depend on. `all` is what waits.
    pub(super) async fn show_parents(
        &self,
        waiting: &HashSet<TxHash>,
        all: &HashSet<Hash>,
        at: Timestamp,
    ) -> Result<(), FollowError> {
        let mut asked: HashSet<TxHash> = HashSet::new();
        for _ in 0..MOST_GENERATIONS {
            let unknown = self.db.unknown_parents(None).await?.into_iter().map(tx_hash_of);
            let wanted: Vec<TxHash> = unknown.filter(|hash| waiting.contains(hash) && asked.insert(*hash)).collect();
            if wanted.is_empty() {
                break;
            }
            let bytes = self.chain.waiting(&wanted).await?;
            self.show(bytes.into_iter().flatten(), all, at).await?;
        }
        Ok(())
    }

    /// The transactions of blocks above a height that ours depend on, in the order of the blocks. A block that no node
    /// has any more is passed over.
    pub(super) async fn stale_parents(&self, above: u32) -> Result<Vec<NewTx>, FollowError> {
        let mut wanted: HashSet<Hash> = self.db.unknown_parents(Some(above)).await?.into_iter().collect();
        let mut found: Vec<NewTx> = Vec::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        let gone = self.db.block_hashes(above.saturating_add(1), u32::MAX).await?;
        for (height, hash) in gone.into_iter().rev() {
            // Whatever keeps a node from showing it: the block has to go all the same.
            let Ok(bytes) = self.chain.block_bytes(block_ref(height, hash)).await else { continue };
            let Ok((_, transactions)) = block_of_bytes(height, &bytes) else { continue };
            for one in transactions.into_iter().rev().filter(|one| wanted.contains(&one.hash)).collect::<Vec<_>>() {
                wanted.extend(one.inputs.iter().map(|input| input.hash));
                found.push(one);
            }
        }
        found.reverse();
        Ok(found)
    }
}
