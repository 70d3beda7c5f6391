//! What each node of a chain says, for whoever looks after them.

use std::sync::Arc;

use tx::BlockHash;

use crate::endpoint::{CallError, Node, Pool};

/// One endpoint, as it answered just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    pub endpoint: String,
    /// What it says that it serves: a chain id, or a network's name.
    pub network: Option<String>,
    pub right_network: bool,
    pub height: Option<u64>,
    /// How many blocks it is behind the highest of those that serve the right network.
    pub lag: Option<u64>,
    /// Whether its block at the height that all have reached is the one that a quorum has. `None`: it did not say, or there is no
    /// quorum.
    pub agrees: Option<bool>,
    pub features: Vec<(Feature, Has)>,
    /// Why it did not answer.
    pub error: Option<String>,
    /// A moving average.
    pub latency_ms: Option<u64>,
}

/// What a node may serve beyond the least that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// EVM, TRON: all receipts of a block in one call.
    ReceiptsByBlock,
    /// EVM: what contracts move.
    Traces,
    /// EVM: balances at a block that is named by its hash (EIP-1898).
    BalancesByBlockHash,
    /// Bitcoin: where any transaction is.
    TransactionIndex,
    /// Bitcoin: blocks from this height on are kept.
    BlocksFrom(u64),
    /// TRON: what is solidified.
    SolidifiedState,
    /// TRON: what contracts move.
    InternalTransactions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    Yes,
    No,
    /// Nothing that it showed tells.
    Unknown,
}

impl Has {
    /// By what came of asking for it. A refusal is a no; whatever else goes wrong says nothing.
    pub(crate) fn by(answer: &Result<bool, CallError>) -> Self {
        match answer {
            Ok(true) => Self::Yes,
            Ok(false) | Err(CallError::Refused { .. } | CallError::Lacks { .. }) => Self::No,
            Err(_) => Self::Unknown,
        }
    }
}

/// What one node says of itself.
pub(crate) struct Examined {
    pub network: String,
    pub right_network: bool,
    pub height: u64,
    pub features: Vec<(Feature, Has)>,
}

/// Asks all nodes, those that are set aside as well. `hash_at`: a node's block at a height.
pub(crate) async fn of_all<E, FutE, H, FutH>(pool: &Pool, examine: E, hash_at: H) -> Vec<NodeReport>
where
    E: Fn(Arc<Node>) -> FutE + Send + Sync,
    FutE: Future<Output = Result<Examined, CallError>> + Send,
    H: Fn(Arc<Node>, u64) -> FutH + Send + Sync,
    FutH: Future<Output = Result<Option<BlockHash>, CallError>> + Send,
{
    let examined = pool.each(examine).await;
    let right = examined.iter().filter_map(|(_, found)| found.as_ref().ok()).filter(|found| found.right_network);
    let heights: Vec<u64> = right.map(|found| found.height).collect();
    let (lowest, best) = (heights.iter().min().copied(), heights.iter().max().copied());
    let hashes: Vec<Option<BlockHash>> = match lowest {
        Some(height) => {
            let asked = pool.each(|node| hash_at(node, height)).await;
            asked.into_iter().map(|(_, hash)| hash.ok().flatten()).collect()
        }
        None => vec![None; examined.len()],
    };
    let votes = |hash: &BlockHash| hashes.iter().flatten().filter(|one| *one == hash).count();
    let agreed = hashes.iter().flatten().find(|hash| votes(hash) >= pool.quorum());
    let health = pool.health();
    let reports = examined.into_iter().zip(&hashes).map(|((node, found), hash)| {
        let latency = health.iter().find(|one| one.endpoint == node.name()).and_then(|one| one.latency_micros);
        let mut report = NodeReport {
            endpoint: node.name().to_owned(),
            network: None,
            right_network: false,
            height: None,
            lag: None,
            agrees: None,
            features: Vec::new(),
            error: None,
            latency_ms: latency.map(|micros| micros / 1_000),
        };
        match found {
            Ok(found) => {
                report.network = Some(found.network);
                report.right_network = found.right_network;
                report.height = Some(found.height);
                report.lag = best.filter(|_| found.right_network).map(|best| best.saturating_sub(found.height));
                report.agrees = agreed.zip(hash.as_ref()).map(|(agreed, hash)| agreed == hash);
                report.features = found.features;
            }
            Err(error) => report.error = Some(error.to_string()),
        }
        report
    });
    reports.collect()
}
