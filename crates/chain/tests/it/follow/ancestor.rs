//! The search for the newest of our blocks that a quorum has, over blocks that lie close together and far apart.

use std::future::ready;
use std::sync::Mutex;

use chain::follow::{CommonAncestor, LOOK_BACK, common_ancestor};
use chain::{Chain, ChainError};
use devnet::View;
use tx::{BlockHash, BlockRef};

use super::refs;
use crate::rig::{Rig, on_every_chain};

on_every_chain! { start:
    the_newest_block_of_ours_that_a_quorum_has_is_found_at_every_depth
    blocks_that_lie_far_apart_are_searched_like_others
    a_fork_below_our_oldest_block_is_told_with_that_block
    a_height_that_no_quorum_has_reached_says_nothing_about_our_blocks
    a_search_that_fails_says_why
}

/// The true blocks of these heights, newest first.
async fn true_blocks(rig: &Rig, heights: &[u64]) -> Vec<BlockRef> {
    let mut blocks = refs(&rig.truth.headers(heights).await.unwrap());
    blocks.sort_by_key(|block| std::cmp::Reverse(block.height));
    blocks
}

/// The same blocks, the newest of which are of another branch.
fn forked(blocks: &[BlockRef], newest: usize) -> Vec<BlockRef> {
    let other = |block: &BlockRef| BlockRef { hash: BlockHash(block.hash.0.map(|byte| !byte)), ..*block };
    blocks.iter().enumerate().map(|(at, block)| if at < newest { other(block) } else { *block }).collect()
}

/// What is found among our blocks, newest first, when so many at most are given at once; and below which blocks the
/// search wanted more.
async fn search(
    chain: &dyn Chain,
    ours: &[BlockRef],
    at_once: usize,
) -> (Result<CommonAncestor, ChainError>, Vec<BlockRef>) {
    let asked = Mutex::new(Vec::new());
    let older = |than: BlockRef| {
        asked.lock().unwrap().push(than);
        let below = ours.iter().filter(|block| block.height < than.height);
        ready(Ok(below.take(at_once).copied().collect()))
    };
    let found = common_ancestor(chain, ours[0], older).await;
    (found, asked.into_inner().unwrap())
}

async fn the_newest_block_of_ours_that_a_quorum_has_is_found_at_every_depth(rig: Rig) {
    rig.mine(80);
    let (chunk, top) = (usize::from(LOOK_BACK), rig.height());
    let blocks = true_blocks(&rig, &(top - 75..=top).collect::<Vec<_>>()).await;
    for depth in [0, 1, 2, chunk - 1, chunk, chunk + 1, 2 * chunk - 1, 2 * chunk, 2 * chunk + 1, blocks.len() - 1] {
        let ours = forked(&blocks, depth);
        for at_once in [1, 7, chunk - 1, chunk, chunk + 1, blocks.len()] {
            let (found, asked) = search(&*rig.chain, &ours, at_once).await;
            assert_eq!(found, Ok(CommonAncestor::At(blocks[depth])), "{depth} deep, {at_once} at once");
            // No block is asked about twice, and none is left out.
            let first = (at_once + 1).min(chunk);
            let expected: Vec<BlockRef> = std::iter::once(ours[0])
                .chain(
                    (0..)
                        .map(|page| first + page * at_once.min(chunk))
                        .take_while(|end| *end <= depth)
                        .map(|end| ours[end - 1]),
                )
                .collect();
            assert_eq!(asked, expected, "{depth} deep, {at_once} at once");
        }
    }
}

async fn blocks_that_lie_far_apart_are_searched_like_others(rig: Rig) {
    rig.mine(100);
    let top = rig.height();
    let heights: Vec<u64> = [0, 1, 2, 31, 32, 33, 40, 64, 65, 99].map(|below| top - below).into();
    let blocks = true_blocks(&rig, &heights).await;
    for depth in 0..blocks.len() {
        for at_once in [1, 3, blocks.len()] {
            let (found, _) = search(&*rig.chain, &forked(&blocks, depth), at_once).await;
            assert_eq!(found, Ok(CommonAncestor::At(blocks[depth])), "{depth} deep, {at_once} at once");
        }
    }
}

async fn a_fork_below_our_oldest_block_is_told_with_that_block(rig: Rig) {
    rig.mine(70);
    let top = rig.height();
    for count in [1, 2, 31, 32, 33, 64, 65] {
        let blocks = true_blocks(&rig, &(top + 1 - count..=top).collect::<Vec<_>>()).await;
        let ours = forked(&blocks, blocks.len());
        let oldest = *ours.last().unwrap();
        let (found, _) = search(&*rig.chain, &ours, usize::from(LOOK_BACK)).await;
        assert_eq!(found, Ok(CommonAncestor::BelowOldest { oldest }), "{count} blocks");
        let (found, _) = search(&*rig.chain, &forked(&blocks, blocks.len() - 1), usize::from(LOOK_BACK)).await;
        assert_eq!(found, Ok(CommonAncestor::At(blocks[blocks.len() - 1])), "{count} blocks, the oldest is theirs");
    }
}

async fn a_height_that_no_quorum_has_reached_says_nothing_about_our_blocks(rig: Rig) {
    rig.mine(50);
    let top = rig.height();
    let blocks = true_blocks(&rig, &(top - 40..=top).collect::<Vec<_>>()).await;
    // Two of the three lag, so that no quorum has the newest block.
    for endpoint in [1, 2] {
        rig.view(endpoint, View { lag: 1, ..View::default() });
    }
    let (chain, _) = rig.client(2);
    for depth in [0, 1, 20, 35, blocks.len()] {
        let (found, _) = search(&*chain, &forked(&blocks, depth), usize::from(LOOK_BACK)).await;
        assert_eq!(found, Ok(CommonAncestor::AboveQuorum { height: top }), "{depth} deep");
    }
    let (found, _) = search(&*chain, &blocks[1..], usize::from(LOOK_BACK)).await;
    assert_eq!(found, Ok(CommonAncestor::At(blocks[1])), "that far a quorum has come");
}

async fn a_search_that_fails_says_why(rig: Rig) {
    rig.mine(40);
    let top = rig.height();
    let blocks = true_blocks(&rig, &(top - 38..=top).collect::<Vec<_>>()).await;
    let ours = forked(&blocks, blocks.len());
    let broken = |_| ready(Err(ChainError::ForeignAddress));
    assert_eq!(common_ancestor(&*rig.chain, ours[0], broken).await, Err(ChainError::ForeignAddress));
    // The first blocks were given; those below them cannot be.
    let breaks = |than: BlockRef| {
        let first = than == ours[0];
        ready(if first { Ok(ours[1..9].to_vec()) } else { Err(ChainError::ForeignAddress) })
    };
    assert_eq!(common_ancestor(&*rig.chain, ours[0], breaks).await, Err(ChainError::ForeignAddress));
    let dead = devnet::WireFaults { garbage: Some(devnet::Garbage::Html), ..devnet::WireFaults::default() };
    rig.wire_all(dead);
    let (chain, _) = rig.client(2);
    let (found, _) = search(&*chain, &blocks, usize::from(LOOK_BACK)).await;
    assert!(matches!(found, Err(ChainError::Unreachable(_) | ChainError::NoQuorum { .. })), "{found:?}");
}
