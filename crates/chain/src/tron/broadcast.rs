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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const CODES: [&str; 14] = [
        "SUCCESS",
        "SIGERROR",
        "CONTRACT_VALIDATE_ERROR",
        "CONTRACT_EXE_ERROR",
        "BANDWITH_ERROR",
        "DUP_TRANSACTION_ERROR",
        "TAPOS_ERROR",
        "TOO_BIG_TRANSACTION_ERROR",
        "TRANSACTION_EXPIRATION_ERROR",
        "SERVER_BUSY",
        "NO_CONNECTION",
        "NOT_ENOUGH_EFFECTIVE_CONNECTION",
        "BLOCK_UNSOLIDIFIED",
        "OTHER_ERROR",
    ];

    fn code(name: &str) -> Code {
        serde_json::from_value(json!(name)).expect("any name is a code")
    }

    /// What nodes say, in the middle of whatever else.
    fn words() -> impl Strategy<Value = String> {
        let known = prop_oneof![
            Just("Validate TransferContract error, balance is not sufficient."),
            Just("no OwnerAccount"),
            Just("not enough"),
            Just("Transaction expired"),
            Just("dup transaction"),
            Just("SUCCESS"),
            Just(""),
        ];
        (any::<String>(), known, any::<String>()).prop_map(|(before, known, after)| format!("{before}{known}{after}"))
    }

    /// Every code of java-tron is read as its own, and none of a version to come as one of these.
    #[test]
    fn every_code_is_its_own() {
        let read: Vec<Code> = CODES.iter().map(|name| code(name)).collect();
        for (at, one) in read.iter().enumerate() {
            assert_eq!(read.iter().position(|other| other == one), Some(at), "{}", CODES[at]);
        }
        assert_eq!(code("A_CODE_TO_COME"), Code::OtherError);
        assert_eq!(refusal(Code::TransactionExpirationError, ""), Some(NodeRefusal::Expired));
        assert_eq!(refusal(Code::TaposError, ""), Some(NodeRefusal::BadReference));
    }

    proptest! {
        /// What a node says beside its code makes no refusal of what it has, and nothing taken of what it refused.
        #[test]
        fn no_text_makes_anything_taken(
            name in prop_oneof![select(CODES.to_vec()).prop_map(str::to_owned), any::<String>()], text in words(),
        ) {
            let has_it = name == "SUCCESS" || name == "DUP_TRANSACTION_ERROR";
            prop_assert_eq!(refusal(code(&name), &text).is_none(), has_it);
        }

        /// Words tell only why a contract was not valid; all else says its code alone.
        #[test]
        fn words_only_tell_who_is_too_poor(name in select(CODES.to_vec()), one in words(), other in words()) {
            let (one, other) = (refusal(code(name), &one), refusal(code(name), &other));
            if code(name) == Code::ContractValidateError {
                let harmless = [Some(NodeRefusal::InsufficientFunds), Some(NodeRefusal::Other)];
                prop_assert!(harmless.contains(&one) && harmless.contains(&other));
            } else {
                prop_assert_eq!(one, other);
            }
        }
    }
}
