//! What to offer.

use domain::RawAmount;
use serde::Deserialize;
use serde_json::json;
use tx::{Address, Coin, Fee, FeeCap, Payment};

use super::BitcoinChain;
use super::wire::{self, Sat};
use crate::client::Quote;
use crate::endpoint::{CallError, Node};
use crate::error::ChainError;
use tx::bitcoin::address::is_on;

/// All rates are satoshi per 1,000 virtual bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeFacts {
    /// `None` while the node has seen too little: always so on regtest.
    pub estimate: Option<u64>,
    /// Below this the node takes nothing now.
    pub mempool_minimum: u64,
    pub relay_minimum: u64,
    /// What a replacement pays for its own size beyond what it replaces.
    pub increment: u64,
}

#[derive(Deserialize)]
struct Estimate {
    #[serde(default)]
    feerate: Option<Sat>,
}

#[derive(Deserialize)]
struct PoolInfo {
    #[serde(rename = "mempoolminfee")]
    minimum: Sat,
    #[serde(rename = "minrelaytxfee")]
    relay: Sat,
    /// Not said by releases before 24; their default is the relay fee's.
    #[serde(default, rename = "incrementalrelayfee")]
    increment: Option<Sat>,
}

pub(super) async fn facts(node: &Node, target_blocks: u16) -> Result<FeeFacts, CallError> {
    let info: PoolInfo = wire::call(node, "getmempoolinfo", json!([])).await?;
    let estimate: Result<Estimate, CallError> = wire::call(node, "estimatesmartfee", json!([target_blocks])).await;
    let estimate = match estimate {
        Ok(estimate) => estimate.feerate.map(|rate| rate.0).filter(|&rate| rate > 0),
        // Switched off, or the target is out of its range: the fallback does.
        Err(CallError::Refused { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(FeeFacts {
        estimate,
        mempool_minimum: info.minimum.0,
        relay_minimum: info.relay.0,
        increment: info.increment.unwrap_or(info.relay).0,
    })
}

impl BitcoinChain {
    pub async fn fee_facts(&self) -> Result<FeeFacts, ChainError> {
        let target = self.settings.target_blocks;
        self.pool.any(|node| async move { facts(&node, target).await }).await
    }

    pub(super) async fn offer(&self, from: &Address, payment: &Payment, cap: FeeCap) -> Result<Quote, ChainError> {
        let network = self.settings.network;
        let ours = |address: &Address| matches!(address, Address::Bitcoin(address) if is_on(address, network));
        let FeeCap(Fee::PerKvb(cap)) = cap else {
            return Err(ChainError::ForeignAddress);
        };
        if !ours(from) || !ours(&payment.to) || payment.coin != Coin::Native {
            return Err(ChainError::ForeignAddress);
        }
        let facts = self.fee_facts().await?;
        let wanted = wanted_rate(&facts, self.settings.fallback_fee);
        Ok(Quote {
            fee: Fee::PerKvb(wanted.min(cap)),
            capped: wanted > cap,
            gas: 0,
            most: RawAmount::ZERO,
            expected: RawAmount::ZERO,
            needs: RawAmount::ZERO,
            reference: None,
        })
    }
}

/// The estimate or the fallback, and never less than what nodes take at all.
fn wanted_rate(facts: &FeeFacts, fallback: u64) -> u64 {
    facts.estimate.unwrap_or(fallback).max(facts.mempool_minimum).max(facts.relay_minimum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_estimate_the_fallback_is_offered_but_never_less_than_nodes_take() {
        let facts = FeeFacts { estimate: None, mempool_minimum: 5_000, relay_minimum: 1_000, increment: 1_000 };
        assert_eq!(wanted_rate(&facts, 7_000), 7_000);
        assert_eq!(wanted_rate(&facts, 2_000), 5_000);
        assert_eq!(wanted_rate(&FeeFacts { relay_minimum: 9_000, ..facts }, 2_000), 9_000);
        assert_eq!(wanted_rate(&FeeFacts { estimate: Some(6_000), ..facts }, 7_000), 6_000);
        assert_eq!(wanted_rate(&FeeFacts { estimate: Some(1), ..facts }, 7_000), 5_000);
    }
}
