//! Balances: a search of all unspent outputs, since Core keeps no balance of an address.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::RawAmount;
use ruint::aliases::U256;
use serde::Deserialize;
use serde_json::{Value, json};
use tx::{Address, BlockHash, BlockRef, Coin};

use super::BitcoinChain;
use super::wire::{self, BAD_PARAMETER, Sat};
use crate::endpoint::{CallError, Node};
use crate::error::ChainError;
use tx::bitcoin::address::is_on;

/// So many scripts are searched for at once: a request of half a megabyte.
const AT_ONCE: usize = 5_000;
/// A node searches for one asker at a time; the others wait for it, so often and so long.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    success: bool,
    /// The block that the unspent outputs are of.
    height: u64,
    #[serde(rename = "bestblock", deserialize_with = "wire::block_hash")]
    best: BlockHash,
    #[serde(default)]
    unspents: Vec<Unspent>,
}

#[derive(Deserialize)]
struct Unspent {
    #[serde(rename = "scriptPubKey")]
    script: String,
    amount: Sat,
}

impl BitcoinChain {
    /// Coinbase outputs that are not spendable yet count too. On the main network a search takes a minute or more: the
    /// pool's deadline must allow for it.
    pub(super) async fn search_unspent(&self, wanted: &[(Address, Coin)]) -> Result<Vec<RawAmount>, ChainError> {
        let (scripts, distinct) = self.scripts(wanted)?;
        let mut held: BTreeMap<String, u64> = BTreeMap::new();
        for some in distinct.chunks(AT_ONCE) {
            let (_, mut some) = self.pool.any(|node| async move { search(&node, some).await }).await?;
            held.append(&mut some);
        }
        Ok(balances(&scripts, &held))
    }

    /// The same by a quorum, all at one block.
    pub(super) async fn unspent_at(
        &self,
        wanted: &[(Address, Coin)],
    ) -> Result<(BlockRef, Vec<RawAmount>), ChainError> {
        let (scripts, distinct) = self.scripts(wanted)?;
        let distinct = distinct.as_slice();
        let read = |node: Arc<Node>| async move {
            let (at, mut held) = search(&node, distinct.get(..AT_ONCE).unwrap_or(distinct)).await?;
            for some in distinct.get(AT_ONCE..).unwrap_or_default().chunks(AT_ONCE) {
                let (later, mut some) = search(&node, some).await?;
                if later != at {
                    return Err(node.lacks("the chain moves faster than it can be searched"));
                }
                held.append(&mut some);
            }
            Ok((at, held))
        };
        let (at, held) = self.pool.agree_at_a_block(read).await?;
        Ok((at, balances(&scripts, &held)))
    }

    /// The scripts of these addresses in their order, and each once, sorted.
    fn scripts(&self, wanted: &[(Address, Coin)]) -> Result<(Vec<String>, Vec<String>), ChainError> {
        let mut scripts = Vec::with_capacity(wanted.len());
        for (address, coin) in wanted {
            match (address, coin) {
                (Address::Bitcoin(address), Coin::Native) if is_on(address, self.settings.network) => {
                    scripts.push(alloy_primitives::hex::encode(address.script_pubkey().as_bytes()));
                }
                _ => return Err(ChainError::ForeignAddress),
            }
        }
        let mut distinct = scripts.clone();
        distinct.sort();
        distinct.dedup();
        Ok((scripts, distinct))
    }
}

fn balances(scripts: &[String], held: &BTreeMap<String, u64>) -> Vec<RawAmount> {
    let balance = |script| RawAmount::from_u256(U256::from(held.get(script).copied().unwrap_or(0)));
    scripts.iter().map(balance).collect()
}

/// What these scripts hold, and at which block.
async fn search(node: &Node, scripts: &[String]) -> Result<(BlockRef, BTreeMap<String, u64>), CallError> {
    let descriptors: Vec<String> = scripts.iter().map(|script| format!("raw({script})")).collect();
    let mut tries = 0;
    let found: Search = loop {
        match wire::call(node, "scantxoutset", json!(["start", descriptors])).await {
            Err(CallError::Refused { code: BAD_PARAMETER, message, .. })
                if message.starts_with("Scan already in progress") =>
            {
                tries += 1;
                if tries == TRIES {
                    return Err(CallError::Timeout { endpoint: node.name().to_owned() });
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(error @ CallError::Timeout { .. }) => {
                // The node would search on for nobody, and refuse whoever comes next.
                let stopped: Result<Value, CallError> = wire::call(node, "scantxoutset", json!(["abort"])).await;
                if let Err(error) = stopped {
                    tracing::debug!(endpoint = node.name(), %error, "a search goes on without an asker");
                }
                return Err(error);
            }
            other => break other?,
        }
    };
    if !found.success {
        return Err(node.bad("the search was broken off"));
    }
    let mut held = BTreeMap::new();
    for unspent in found.unspents {
        if scripts.binary_search(&unspent.script).is_err() {
            return Err(node.bad("it found what was not searched for"));
        }
        let sum: &mut u64 = held.entry(unspent.script).or_default();
        *sum = sum
            .checked_add(unspent.amount.0)
            .filter(|&sum| sum <= ::bitcoin::Amount::MAX_MONEY.to_sat())
            .ok_or_else(|| node.bad("more money than there is"))?;
    }
    Ok((BlockRef { height: found.height, hash: found.best }, held))
}
