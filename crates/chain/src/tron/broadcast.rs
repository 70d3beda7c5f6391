//! Tells all nodes of a transaction, and what their words mean.

use serde::Deserialize;
use serde_json::json;

use super::wire;
use crate::broadcast::{Broadcast, NodeRefusal};
use crate::endpoint::{CallError, Node, Pool};
use crate::error::ChainError;

/// java-tron's `response_code`, in its spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Code {
    #[default]
    Success,
    Sigerror,
    ContractValidateError,
    ContractExeError,
    BandwithError,
    DupTransactionError,
    TaposError,
    TooBigTransactionError,
    TransactionExpirationError,
    ServerBusy,
    NoConnection,
    NotEnoughEffectiveConnection,
    BlockUnsolidified,
    #[serde(other)]
    OtherError,
}

#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    result: bool,
    #[serde(default)]
    code: Code,
    #[serde(default)]
    message: String,
    #[serde(rename = "Error")]
    error: Option<String>,
}

async fn tell(node: &Node, transaction: &str) -> Result<Broadcast, CallError> {
    let body = json!({ "transaction": transaction });
    let reply = node.post("/wallet/broadcasthex", bytes::Bytes::from(body.to_string())).await?;
    wire::begins(node, &reply.body, b'{')?;
    let said: Said = wire::read(node, &reply.body)?;
    if let Some(error) = said.error {
        // A failure before the transaction was even read: bytes that are none, or a node that cannot take any now.
        let busy = error.contains("lack of computing resources");
        let refusal = if busy { NodeRefusal::Busy } else { NodeRefusal::Malformed };
        return Ok(Broadcast::Refused(refusal, node.quote(&wire::printable(&error))));
    }
    // A node that has seen it says so, and that is as good.
    if said.result || said.code == Code::DupTransactionError {
        return Ok(Broadcast::Taken);
    }
    let message = node.quote(&wire::printable(&said.message));
    let refusal = refusal(said.code, &message).ok_or_else(|| node.bad("neither taken nor refused"))?;
    Ok(Broadcast::Refused(refusal, message))
}

fn refusal(code: Code, message: &str) -> Option<NodeRefusal> {
    Some(match code {
        Code::Success | Code::DupTransactionError => return None,
        Code::Sigerror => NodeRefusal::BadSignature,
        Code::ContractValidateError if poor(message) => NodeRefusal::InsufficientFunds,
        Code::ContractValidateError | Code::ContractExeError | Code::OtherError => NodeRefusal::Other,
        // The account has neither the bandwidth nor the TRX to burn for it.
        Code::BandwithError => NodeRefusal::InsufficientFunds,
        Code::TaposError => NodeRefusal::BadReference,
        Code::TooBigTransactionError => NodeRefusal::Malformed,
        Code::TransactionExpirationError => NodeRefusal::Expired,
        Code::ServerBusy | Code::NoConnection | Code::NotEnoughEffectiveConnection | Code::BlockUnsolidified => {
            NodeRefusal::Busy
        }
    })
}

/// "balance is not sufficient", and an owner who has no account because nobody ever paid it.
fn poor(message: &str) -> bool {
    let message = message.to_lowercase();
    message.contains("not sufficient") || message.contains("not enough") || message.contains("no owneraccount")
}

/// What says something about the transaction is worth more than what says something about the node.
const fn says(refusal: NodeRefusal) -> u8 {
    match refusal {
        NodeRefusal::Busy => 0,
        NodeRefusal::Other => 1,
        _ => 2,
    }
}

pub(super) async fn broadcast(pool: &Pool, signed: &[u8]) -> Result<Broadcast, ChainError> {
    let transaction = alloy_primitives::hex::encode(signed);
    let transaction = transaction.as_str();
    let answers = pool.each(|node| async move { tell(&node, transaction).await }).await;
    let mut refused = None;
    let mut failed = None;
    for (_, answer) in answers {
        match answer {
            Ok(Broadcast::Taken) => return Ok(Broadcast::Taken),
            Ok(Broadcast::Refused(refusal, message)) => {
                if refused.as_ref().is_none_or(|(before, _)| says(*before) < says(refusal)) {
                    refused = Some((refusal, message));
                }
            }
            Err(error) => failed = Some(error),
        }
    }
    match refused {
        Some((refusal, message)) => Ok(Broadcast::Refused(refusal, message)),
        None => {
            let nobody = CallError::Unreachable { endpoint: "nobody".to_owned() };
            Err(ChainError::Unreachable(failed.unwrap_or(nobody)))
        }
    }
}
