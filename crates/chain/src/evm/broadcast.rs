//! Telling nodes about a transaction, and understanding what they say to it.

use alloy_primitives::{B256, hex};
use futures_util::{StreamExt, stream};
use serde_json::json;

use super::rpc::separately;
use super::status::transaction;
use super::wire::Hex;
use crate::broadcast::{Broadcast, NodeRefusal};
use crate::endpoint::json_rpc::call;
use crate::endpoint::{CallError, Node};
use crate::error::ChainError;

/// What a node said to each of many, or why it said nothing.
pub(super) type SaidOfAll = Result<Vec<Result<Said, CallError>>, CallError>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Taken,
    Refused(NodeRefusal, String),
}

const SEND: &str = "eth_sendRawTransaction";
/// Transactions that are on their way to a node at the same time, where it takes no list of them.
const AT_ONCE: usize = 16;

pub(super) async fn send(node: &Node, bytes: &[u8], hash: B256) -> Result<Said, CallError> {
    let sent = call::<Hex<B256>>(node, SEND, json!([hex::encode_prefixed(bytes)])).await;
    judge(node, sent, hash).await
}

/// As [`send`] of each. In one request after the other: many nodes keep what comes before its time, some do not. Some nodes take no list of
/// transactions; they are told of each by itself.
pub(super) async fn send_all(node: &Node, signed: &[(&[u8], B256)], chunk: usize) -> SaidOfAll {
    if let [(bytes, hash)] = signed {
        return Ok(vec![send(node, bytes, *hash).await]);
    }
    let calls: Vec<_> = signed.iter().map(|(bytes, _)| (SEND, json!([hex::encode_prefixed(bytes)]))).collect();
    let sent: Vec<Result<Hex<B256>, CallError>> = match separately(node, &calls, (chunk, 1)).await {
        Ok(sent) => sent,
        Err(_) => return send_each(node, signed).await,
    };
    let mut said = Vec::with_capacity(sent.len());
    for (answer, (_, hash)) in sent.into_iter().zip(signed) {
        said.push(judge(node, answer, *hash).await);
    }
    Ok(said)
}

async fn send_each(node: &Node, signed: &[(&[u8], B256)]) -> SaidOfAll {
    let mut sent = Vec::with_capacity(signed.len());
    for (bytes, hash) in signed {
        sent.push(send(node, bytes, *hash));
    }
    Ok(stream::iter(sent).buffered(AT_ONCE).collect().await)
}

/// What an answer is worth.
async fn judge(node: &Node, sent: Result<Hex<B256>, CallError>, hash: B256) -> Result<Said, CallError> {
    match sent {
        Ok(Hex(said)) if said == hash => Ok(Said::Taken),
        Ok(_) => Err(node.bad("the hash of another transaction")),
        Err(CallError::Refused { message, .. }) => match understand(&message) {
            Words::Known => Ok(Said::Taken),
            Words::Refused(refusal @ (NodeRefusal::NonceTooLow | NodeRefusal::Underpriced | NodeRefusal::Other)) => {
                // Once it is mined, or waits there already, some nodes say this of the very transaction.
                match transaction(node, hash).await {
                    Ok(Some(_)) => Ok(Said::Taken),
                    Ok(None) | Err(_) => Ok(Said::Refused(refusal, message)),
                }
            }
            Words::Refused(refusal) => Ok(Said::Refused(refusal, message)),
        },
        Err(error) => Err(error),
    }
}

/// What all nodes together have said to one transaction.
pub(super) fn outcome(said: impl Iterator<Item = Result<Said, CallError>>) -> Result<Broadcast, ChainError> {
    let mut refusals = Vec::new();
    let mut lost = CallError::Unreachable { endpoint: "nobody".to_owned() };
    for said in said {
        match said {
            Ok(Said::Taken) => return Ok(Broadcast::Taken),
            Ok(Said::Refused(refusal, words)) => refusals.push((refusal, words)),
            Err(error) => lost = error,
        }
    }
    match together(refusals) {
        Some((refusal, words)) => Ok(Broadcast::Refused(refusal, words)),
        // It may have arrived all the same.
        None => Err(ChainError::Unreachable(lost)),
    }
}

/// One word for what several nodes said, none of which has taken it: the one that says most.
fn together(said: Vec<(NodeRefusal, String)>) -> Option<(NodeRefusal, String)> {
    said.into_iter().min_by_key(|(refusal, _)| match refusal {
        NodeRefusal::Busy => 1,
        NodeRefusal::Other => 2,
        _ => 0,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    Known,
    Refused(NodeRefusal),
}

/// The first row whose words are in the message (in small letters) says what it means. Rows stand before others whose
/// words they contain.
const TABLE: [(&str, Words); 60] = [
    // geth, BSC and erigon; anvil; hardhat and besu; OpenEthereum; nethermind.
    ("already known", Words::Known),
    ("already imported", Words::Known),
    ("known transaction", Words::Known),
    ("alreadyknown", Words::Known),
    ("existing tx with same hash", Words::Known),
    ("already in mempool", Words::Known),
    ("already exists", Words::Known),
    // geth's "replacement transaction underpriced" against "transaction underpriced": two different things.
    ("replacement transaction underpriced", Words::Refused(NodeRefusal::Underpriced)),
    ("replacement not allowed", Words::Refused(NodeRefusal::Underpriced)),
    ("replacementnotallowed", Words::Refused(NodeRefusal::Underpriced)),
    ("could not replace existing tx", Words::Refused(NodeRefusal::Underpriced)),
    ("another transaction with same nonce", Words::Refused(NodeRefusal::Underpriced)),
    ("future transaction tries to replace pending", Words::Refused(NodeRefusal::Underpriced)),
    ("nonce too low", Words::Refused(NodeRefusal::NonceTooLow)),
    ("nonce is too low", Words::Refused(NodeRefusal::NonceTooLow)),
    ("oldnonce", Words::Refused(NodeRefusal::NonceTooLow)),
    ("nonce too high", Words::Refused(NodeRefusal::NonceTooHigh)),
    ("noncegap", Words::Refused(NodeRefusal::NonceTooHigh)),
    ("nonce gap", Words::Refused(NodeRefusal::NonceTooHigh)),
    ("gapped-nonce", Words::Refused(NodeRefusal::NonceTooHigh)),
    ("noncetoofarinfuture", Words::Refused(NodeRefusal::NonceTooHigh)),
    ("nonce too far in the future", Words::Refused(NodeRefusal::NonceTooHigh)),
    ("insufficient funds", Words::Refused(NodeRefusal::InsufficientFunds)),
    ("insufficientfunds", Words::Refused(NodeRefusal::InsufficientFunds)),
    ("insufficient balance", Words::Refused(NodeRefusal::InsufficientFunds)),
    ("doesn't have enough funds", Words::Refused(NodeRefusal::InsufficientFunds)),
    ("upfront cost exceeds", Words::Refused(NodeRefusal::InsufficientFunds)),
    ("transaction underpriced", Words::Refused(NodeRefusal::FeeTooLow)),
    ("underpriced", Words::Refused(NodeRefusal::FeeTooLow)),
    ("feetoolow", Words::Refused(NodeRefusal::FeeTooLow)),
    ("fee too low", Words::Refused(NodeRefusal::FeeTooLow)),
    ("less than block base fee", Words::Refused(NodeRefusal::FeeTooLow)),
    ("is too low for the next block", Words::Refused(NodeRefusal::FeeTooLow)),
    ("gas price below", Words::Refused(NodeRefusal::FeeTooLow)),
    ("below configured minimum", Words::Refused(NodeRefusal::FeeTooLow)),
    ("gas price supplied is too low", Words::Refused(NodeRefusal::FeeTooLow)),
    ("gas price too low", Words::Refused(NodeRefusal::FeeTooLow)),
    ("invalid chain id", Words::Refused(NodeRefusal::WrongNetwork)),
    ("invalid chainid", Words::Refused(NodeRefusal::WrongNetwork)),
    ("wrong chain", Words::Refused(NodeRefusal::WrongNetwork)),
    ("for another chain", Words::Refused(NodeRefusal::WrongNetwork)),
    ("chain id mismatch", Words::Refused(NodeRefusal::WrongNetwork)),
    ("incompatible eip-155", Words::Refused(NodeRefusal::WrongNetwork)),
    ("replay-protected", Words::Refused(NodeRefusal::WrongNetwork)),
    ("invalid sender", Words::Refused(NodeRefusal::BadSignature)),
    ("failedtoresolvesender", Words::Refused(NodeRefusal::BadSignature)),
    ("invalid signature", Words::Refused(NodeRefusal::BadSignature)),
    ("signature values", Words::Refused(NodeRefusal::BadSignature)),
    ("rlp", Words::Refused(NodeRefusal::Malformed)),
    ("failed to decode", Words::Refused(NodeRefusal::Malformed)),
    ("typed transaction too short", Words::Refused(NodeRefusal::Malformed)),
    ("transaction type not supported", Words::Refused(NodeRefusal::Malformed)),
    ("intrinsic gas too low", Words::Refused(NodeRefusal::Malformed)),
    ("pool is full", Words::Refused(NodeRefusal::Busy)),
    ("txpoolisfull", Words::Refused(NodeRefusal::Busy)),
    ("limit exceeded", Words::Refused(NodeRefusal::Busy)),
    ("limit reached", Words::Refused(NodeRefusal::Busy)),
    ("too many", Words::Refused(NodeRefusal::Busy)),
    ("spammer", Words::Refused(NodeRefusal::Busy)),
    ("rate limit", Words::Refused(NodeRefusal::Busy)),
];

fn understand(message: &str) -> Words {
    let message = message.to_ascii_lowercase();
    let row = TABLE.iter().find(|(words, _)| message.contains(words));
    row.map_or(Words::Refused(NodeRefusal::Other), |(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    /// What is in no row: letters, digits, and what stands between words.
    fn noise() -> impl Strategy<Value = String> {
        let outside = |one: &char| !(one.is_ascii_alphanumeric() || " '-".contains(*one));
        any::<String>().prop_map(move |text| text.chars().filter(outside).collect())
    }

    /// Pieces of rows and noise, one behind the other, as a node of tomorrow may say them.
    fn jumble() -> impl Strategy<Value = String> {
        let piece = (0..TABLE.len(), any::<Index>(), any::<bool>(), noise());
        vec(piece, 0..5).prop_map(|pieces| {
            let one = |(row, at, front, noise): (usize, Index, bool, String)| {
                let (words, _) = TABLE[row];
                let (head, tail) = words.split_at(at.index(words.len() + 1));
                format!("{noise}{}", if front { head } else { tail })
            };
            pieces.into_iter().map(one).collect()
        })
    }

    proptest! {
        #[test]
        fn words_mean_the_same_whatever_stands_around_them(
            row in 0..TABLE.len(), loud: bool, before in noise(), after in noise(),
        ) {
            let (words, meaning) = TABLE[row];
            let words = if loud { words.to_ascii_uppercase() } else { words.to_owned() };
            prop_assert_eq!(understand(&format!("{before}{words}{after}")), meaning);
        }

        /// Above all a node "has it" only by words that say so: whatever else is said is a refusal, which proves nothing.
        #[test]
        fn nothing_is_heard_that_was_not_said(message in prop_oneof![any::<String>(), jumble()]) {
            let said = message.to_ascii_lowercase();
            let rows: Vec<Words> =
                TABLE.iter().filter(|(words, _)| said.contains(words)).map(|(_, meaning)| *meaning).collect();
            let heard = understand(&message);
            if rows.is_empty() {
                prop_assert_eq!(heard, Words::Refused(NodeRefusal::Other));
            } else {
                prop_assert!(rows.contains(&heard), "{:?} of {:?}", heard, message);
            }
        }

        /// As long as one node has answered, its words are not made an error of ours; and one that has taken it outweighs all the others.
        #[test]
        fn what_nodes_say_together_is_taken_or_one_of_their_refusals(
            said in vec(prop_oneof![jumble().prop_map(Some), Just(None)], 0..5), taken in any::<Option<Index>>(),
        ) {
            let lost = || CallError::Timeout { endpoint: "a".to_owned() };
            let refused = |words: String| match understand(&words) {
                Words::Known => Said::Taken,
                Words::Refused(refusal) => Said::Refused(refusal, words),
            };
            let mut answers: Vec<Result<Said, CallError>> =
                said.into_iter().map(|words| words.map(refused).ok_or_else(lost)).collect();
            if let Some(at) = taken {
                answers.insert(at.index(answers.len() + 1), Ok(Said::Taken));
            }
            let any_taken = answers.iter().any(|answer| matches!(answer, Ok(Said::Taken)));
            let any_said = answers.iter().any(Result::is_ok);
            match outcome(answers.clone().into_iter()) {
                Ok(Broadcast::Taken) => prop_assert!(any_taken),
                Ok(Broadcast::Refused(refusal, words)) => {
                    prop_assert!(!any_taken);
                    prop_assert!(answers.contains(&Ok(Said::Refused(refusal, words))));
                }
                Err(_) => prop_assert!(!any_said, "{:?}", answers),
            }
        }
    }

    #[test]
    fn the_words_of_nodes_are_understood() {
        use NodeRefusal::{
            BadSignature, Busy, FeeTooLow, InsufficientFunds, Malformed, NonceTooHigh, NonceTooLow, Other, Underpriced,
            WrongNetwork,
        };
        for known in [
            "already known",
            "transaction already imported",
            "Known transaction: 0xabc",
            "AlreadyKnown",
            "ALREADY_EXISTS: already known",
            "existing tx with same hash",
            "Transaction with the same hash was already imported.",
            "Known transaction",
        ] {
            assert_eq!(understand(known), Words::Known, "{known}");
        }
        for (message, refusal) in [
            ("nonce too low: next nonce 5, tx nonce 4", NonceTooLow),
            ("nonce too low", NonceTooLow),
            ("Nonce too low. Expected nonce to be 1 but got 0.", NonceTooLow),
            ("Transaction nonce is too low. Try incrementing the nonce.", NonceTooLow),
            ("OldNonce, Current nonce: 5, nonce of rejected tx: 4", NonceTooLow),
            ("nonce too high", NonceTooHigh),
            ("Nonce too high. Expected nonce to be 0 but got 7.", NonceTooHigh),
            ("NonceGap, Future nonce. Expected nonce: 1", NonceTooHigh),
            ("replacement transaction underpriced", Underpriced),
            ("Replacement transaction underpriced. A gasPrice/maxFeePerGas of at least 9 is necessary", Underpriced),
            ("could not replace existing tx", Underpriced),
            ("ReplacementNotAllowed", Underpriced),
            ("Transaction gas price supplied is too low. There is another transaction with same nonce", Underpriced),
            ("transaction underpriced: tip needed 1000000000, tip permitted 1", FeeTooLow),
            ("max fee per gas less than block base fee: address 0x1", FeeTooLow),
            ("transaction gas price below minimum: gas tip cap 0, minimum needed 1", FeeTooLow),
            ("FeeTooLow, EffectivePriorityFeePerGas too low", FeeTooLow),
            ("Transaction maxFeePerGas (1) is too low for the next block, which has a baseFeePerGas of 7", FeeTooLow),
            ("Gas price below configured minimum gas price", FeeTooLow),
            ("insufficient funds for gas * price + value: balance 0, tx cost 1, overshot 1", InsufficientFunds),
            ("Insufficient funds for gas * price + value", InsufficientFunds),
            ("InsufficientFunds, Account balance: 0, cumulative cost: 1", InsufficientFunds),
            ("Sender doesn't have enough funds to send tx. The max upfront cost is: 1", InsufficientFunds),
            ("Upfront cost exceeds account balance", InsufficientFunds),
            ("invalid chain id for signer: have 56 want 1", WrongNetwork),
            ("Trying to send an incompatible EIP-155 transaction, signed for another chain.", WrongNetwork),
            ("only replay-protected (EIP-155) transactions allowed over RPC", WrongNetwork),
            ("invalid sender", BadSignature),
            ("FailedToResolveSender", BadSignature),
            ("rlp: expected input list for types.LegacyTx", Malformed),
            ("Failed to decode transaction", Malformed),
            ("typed transaction too short", Malformed),
            ("intrinsic gas too low: gas 20000, minimum needed 21000", Malformed),
            ("txpool is full", Busy),
            ("pending sub-pool is full", Busy),
            ("account limit exceeded", Busy),
            ("the moon is in the wrong house", Other),
            ("", Other),
        ] {
            assert_eq!(understand(message), Words::Refused(refusal), "{message}");
        }
    }

    #[test]
    fn every_row_can_be_reached() {
        for (words, meaning) in TABLE {
            assert_eq!(words, words.to_ascii_lowercase());
            assert_eq!(understand(words), meaning, "{words} is hidden by an earlier row");
        }
    }

    #[test]
    fn the_word_that_says_most_is_kept() {
        let said = |refusal| (refusal, String::new());
        let together = |refusals: &[NodeRefusal]| super::together(refusals.iter().copied().map(said).collect());
        assert_eq!(together(&[]), None);
        let best =
            together(&[NodeRefusal::Other, NodeRefusal::Busy, NodeRefusal::NonceTooLow]).map(|(refusal, _)| refusal);
        assert_eq!(best, Some(NodeRefusal::NonceTooLow));
        assert_eq!(
            together(&[NodeRefusal::Other, NodeRefusal::Busy]).map(|(refusal, _)| refusal),
            Some(NodeRefusal::Busy)
        );
    }
}
