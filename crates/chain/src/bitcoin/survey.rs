//! What one node serves.

use ::bitcoin::Network;
use ::bitcoin::constants::genesis_block;
use ::bitcoin::hashes::Hash;
use serde_json::{Value, json};
use tx::BlockHash;
use tx::bitcoin::turned;

use super::wire;
use crate::endpoint::{CallError, Node};
use crate::survey::{Examined, Feature, Has};

pub(super) async fn examine(node: &Node, network: Network) -> Result<Examined, CallError> {
    let info: wire::ChainInfo = wire::call(node, "getblockchaininfo", json!([])).await?;
    let first = wire::hashes_at(node, &[0]).await?.into_iter().flatten().next();
    let genesis = BlockHash(turned(genesis_block(network).block_hash().to_byte_array()));
    // Regtest is everybody's own chain, and begins as its owner likes.
    let begins_right = network == Network::Regtest || first == Some(genesis);
    let right_network = info.chain == network.to_core_arg() && begins_right;
    let indexes: Result<Value, CallError> = wire::call(node, "getindexinfo", json!([])).await;
    let index = match indexes {
        Ok(indexes) => Has::by(&Ok(indexes["txindex"]["synced"] == json!(true))),
        // Who does not know the question may have an index all the same.
        Err(_) => Has::Unknown,
    };
    let kept_from = info.kept_from.unwrap_or(0);
    let features = vec![(Feature::TransactionIndex, index), (Feature::BlocksFrom(kept_from), Has::Yes)];
    let network = if begins_right { info.chain } else { format!("{} with another first block", info.chain) };
    Ok(Examined { network, right_network, height: info.blocks, features })
}
