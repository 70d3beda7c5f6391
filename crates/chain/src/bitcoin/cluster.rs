//! How many unconfirmed transactions may hang together before a node refuses the next one.

use serde::Deserialize;
use serde_json::json;

use super::BitcoinChain;
use super::wire;
use crate::error::ChainError;

/// The strictest of the nodes' limits, as far as they say them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterLimits {
    pub transactions: u32,
    /// Virtual bytes.
    pub size: u32,
}

/// Bitcoin Core says them from version 31 on. Those before it count ancestors and descendants, and tell nobody how many.
#[derive(Deserialize)]
struct PoolInfo {
    #[serde(default, rename = "limitclustercount")]
    count: Option<u32>,
    #[serde(default, rename = "limitclustersize")]
    size: Option<u32>,
}

impl BitcoinChain {
    /// `None`: no node that answered says any.
    pub async fn cluster_limits(&self) -> Result<Option<ClusterLimits>, ChainError> {
        let answers =
            self.pool.each_soon(|node| async move { wire::call::<PoolInfo>(&node, "getmempoolinfo", json!([])).await });
        let (mut strictest, mut failure, mut answered) = (None::<ClusterLimits>, None, false);
        for (_, answer) in answers.await {
            match answer {
                Ok(info) => {
                    answered = true;
                    if let (Some(transactions), Some(size)) = (info.count, info.size) {
                        let before = strictest.unwrap_or(ClusterLimits { transactions, size });
                        strictest = Some(ClusterLimits {
                            transactions: before.transactions.min(transactions),
                            size: before.size.min(size),
                        });
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if !answered => Err(ChainError::of_call(error)),
            Some(_) | None => Ok(strictest),
        }
    }
}
