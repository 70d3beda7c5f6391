//! Where a chain ends, by all of its nodes.
//!
//! The head is the highest block that enough nodes have reached ([`Pool::enough`]). So one that lags does not pull it
//! back, and one that boasts does not push it to where nobody else has blocks. Every node is asked each time, because the
//! heights tell who lags ([`Pool::saw_height`]), and one that lags must be asked to be known to have caught up.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::block::Head;
use crate::endpoint::{CallError, Node, Pool};
use crate::error::ChainError;

pub(crate) struct Found {
    pub head: Head,
    /// Whether a quorum has come so far. If not, too few answered.
    pub by_quorum: bool,
}

/// A tip below `floor` is not believed.
pub(crate) async fn find<F, Fut>(pool: &Pool, floor: u64, ask: F) -> Result<Found, ChainError>
where
    F: Fn(Arc<Node>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Head, CallError>> + Send,
{
    let mut heads: Vec<(Arc<Node>, Head)> = Vec::new();
    let (mut refused, mut lost) = (None, None);
    for (node, answer) in pool.each_soon(ask).await {
        match answer {
            Ok(head) => heads.push((node, head)),
            Err(error @ CallError::Refused { .. }) => refused = Some(error),
            Err(error) => lost = Some(error),
        }
    }
    // The highest first, so that each is held against all that are above it.
    heads.sort_by_key(|(_, head)| Reverse(head.tip.height));
    for (node, head) in &heads {
        pool.saw_height(node, head.tip.height);
        if head.tip.height < floor {
            lost = Some(node.bad(format!("its tip {} is below the settled block {floor}", head.tip.height)));
        }
    }
    let enough = pool.enough(heads.len());
    heads.retain(|(_, head)| head.tip.height >= floor);
    // Who lags or contradicted does not count, unless nobody is left without it: a doubt ends only when there is work to
    // agree on, and without a head nobody would look for any.
    if heads.iter().any(|(node, _)| pool.counts(node)) {
        heads.retain(|(node, _)| pool.counts(node));
    }
    let enough = enough.min(heads.len());
    let Some(reached) = enough.checked_sub(1).and_then(|last| heads.get(last)).map(|(_, head)| head.tip.height) else {
        let nobody = || CallError::Unreachable { endpoint: "nobody".to_owned() };
        return Err(match (lost, refused) {
            (None, Some(error)) => ChainError::Refused(error),
            (lost, _) => ChainError::Unreachable(lost.unwrap_or_else(nobody)),
        });
    };
    let mut settled: Vec<Option<u64>> = heads.iter().map(|(_, head)| head.settled).collect();
    settled.sort_by_key(|height| Reverse(*height));
    // Nodes that are at the same height may be on two branches: what most of them have.
    let there = || heads.iter().map(|(_, head)| head.tip).filter(|tip| tip.height == reached);
    let tip = there().max_by_key(|tip| there().filter(|other| other.hash == tip.hash).count());
    let tip = tip.ok_or_else(|| ChainError::Unreachable(CallError::Unreachable { endpoint: "nobody".to_owned() }))?;
    let by_quorum = enough >= pool.quorum();
    // The tip only finds work, but what is settled is credited: fewer than a quorum settle nothing.
    let settled = settled.get(enough - 1).copied().flatten().filter(|_| by_quorum);
    Ok(Found { head: Head { tip, settled }, by_quorum })
}
