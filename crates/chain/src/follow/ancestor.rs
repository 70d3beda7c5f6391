//! Where our blocks and those of a quorum part.

use tx::BlockRef;

use crate::client::Chain;
use crate::error::ChainError;

/// A quorum is asked about so many blocks at once: nearly every fork is found with one question.
pub const LOOK_BACK: u8 = 32;

/// The newest of our blocks that a quorum has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommonAncestor {
    At(BlockRef),
    /// The quorum's chain ends below this height, where we have a block. It lags, or it is on a branch that has not
    /// caught up with ours. Either way it says nothing about our blocks, and nothing may be undone.
    AboveQuorum {
        height: u64,
    },
    /// A quorum has another block at each height where we have one, down to our oldest.
    BelowOldest {
        oldest: BlockRef,
    },
}

/// Searches our blocks from `newest` down, [`LOOK_BACK`] at a time.
///
/// `older` gives our blocks below another of ours, newest first, as many as it likes; none, when that was the oldest.
/// Heights may be left out.
pub async fn common_ancestor<E, F, Fut>(chain: &dyn Chain, newest: BlockRef, older: F) -> Result<CommonAncestor, E>
where
    E: From<ChainError>,
    F: Fn(BlockRef) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Vec<BlockRef>, E>> + Send,
{
    let mut ours = vec![newest];
    ours.extend(older(newest).await?);
    let mut oldest = newest;
    while !ours.is_empty() {
        ours.truncate(usize::from(LOOK_BACK));
        let heights: Vec<u64> = ours.iter().map(|block| block.height).collect();
        let theirs = match chain.headers(&heights).await {
            Err(ChainError::BlockMissing { height }) => return Ok(CommonAncestor::AboveQuorum { height }),
            theirs => theirs?,
        };
        if let Some((block, _)) = ours.iter().zip(&theirs).find(|(ours, theirs)| ours.hash == theirs.hash) {
            return Ok(CommonAncestor::At(*block));
        }
        oldest = ours.last().copied().unwrap_or(oldest);
        ours = older(oldest).await?;
    }
    Ok(CommonAncestor::BelowOldest { oldest })
}
