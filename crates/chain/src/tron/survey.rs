//! What one node serves.

use serde_json::json;

use super::{Network, head, header, wire};
use crate::endpoint::{CallError, Node};
use crate::survey::{Examined, Feature, Has};

/// So many of the newest blocks are looked through for what contracts moved.
const LOOKED_AT: u64 = 5;

pub(super) async fn examine(node: &Node, wanted: Network) -> Result<Examined, CallError> {
    let genesis = header(node, 0).await?.map(|header| header.hash).unwrap_or_default();
    let found = Network::of_genesis(&genesis);
    let network = if found == Network::Devnet { format!("devnet {genesis}") } else { found.name().to_owned() };
    let answer = wire::ask(node, "/wallet/getnowblock", &json!({})).await?;
    let tip = wire::read::<wire::Block<'_>>(node, &answer)?.header(node)?;
    let tip = tip.ok_or_else(|| node.bad("no block at all"))?;
    let solid = head(node).await.map(|head| head.settled.is_some());
    let (mut receipts, mut inside) = (Has::Unknown, Has::Unknown);
    for height in (1..=tip.height).rev().take(usize::try_from(LOOKED_AT).unwrap_or(1)) {
        let body = json!({ "num": height });
        let answer = wire::ask_list(node, "/wallet/gettransactioninfobyblocknum", &body).await;
        receipts = Has::by(&answer.as_ref().map(|_| true).map_err(Clone::clone));
        let Ok(answer) = answer else { break };
        let infos: wire::Infos<'_> = wire::read(node, &answer)?;
        if infos.all.iter().any(|info| !info.internal_transactions.is_empty()) {
            inside = Has::Yes;
        }
    }
    let features = vec![
        (Feature::SolidifiedState, Has::by(&solid)),
        (Feature::ReceiptsByBlock, receipts),
        (Feature::InternalTransactions, inside),
    ];
    Ok(Examined { network, right_network: found == wanted, height: tip.height, features })
}
