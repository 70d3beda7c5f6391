//! What one node serves.

use serde_json::{Value, json};

use super::rpc::tip;
use super::wire::Hex;
use crate::endpoint::json_rpc::call;
use crate::endpoint::{CallError, Node};
use crate::survey::{Examined, Feature, Has};

pub(super) async fn examine(node: &Node, chain_id: u64) -> Result<Examined, CallError> {
    let Hex(found): Hex<u64> = call(node, "eth_chainId", json!([])).await?;
    let tip = tip(node).await?;
    let hash = format!("0x{}", tip.hash);
    let nobody = format!("0x{}", "0".repeat(40));
    let asked = [
        (Feature::ReceiptsByBlock, "eth_getBlockReceipts", json!([hash])),
        (Feature::Traces, "debug_traceBlockByHash", json!([hash, { "tracer": "callTracer" }])),
        (Feature::BalancesByBlockHash, "eth_getBalance", json!([nobody, { "blockHash": hash }])),
    ];
    let mut features = Vec::with_capacity(asked.len());
    for (feature, method, params) in asked {
        let answer: Result<Value, CallError> = call(node, method, params).await;
        features.push((feature, Has::by(&answer.map(|answer| !answer.is_null()))));
    }
    Ok(Examined { network: found.to_string(), right_network: found == chain_id, height: tip.height, features })
}
