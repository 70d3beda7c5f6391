//! What a node says when it does not take a transaction.

use super::wire;
use crate::broadcast::NodeRefusal;
use crate::endpoint::CallError;

/// What the words of a refusal come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The node has it already, in its pool or in its chain.
    HasIt,
    No(NodeRefusal),
}

use Said::{HasIt, No};

/// The beginnings of Core's words, first match wins. Core puts details behind them, in brackets or after a comma.
/// Older releases are in it too: their words have changed over the years.
const WORDS: [(&str, Said); 44] = [
    ("txn-already-in-mempool", HasIt),
    ("txn-already-known", HasIt),
    // The same transaction with other signatures: it pays the same, and has the same hash.
    ("txn-same-nonwitness-data-in-mempool", HasIt),
    ("Transaction already in block chain", HasIt),
    ("transaction already in block chain", HasIt),
    ("Transaction outputs already in utxo set", HasIt),
    ("insufficient fee", No(NodeRefusal::Underpriced)),
    ("replacement-failed", No(NodeRefusal::Underpriced)),
    ("bip125-replacement-disallowed", No(NodeRefusal::Underpriced)),
    ("txn-mempool-conflict", No(NodeRefusal::Underpriced)),
    ("too many potential replacements", No(NodeRefusal::Underpriced)),
    ("replacement-adds-unconfirmed", No(NodeRefusal::Underpriced)),
    ("min relay fee not met", No(NodeRefusal::FeeTooLow)),
    ("mempool min fee not met", No(NodeRefusal::FeeTooLow)),
    ("bad-txns-inputs-missingorspent", No(NodeRefusal::InputMissing)),
    ("missing-inputs", No(NodeRefusal::InputMissing)),
    ("Missing inputs", No(NodeRefusal::InputMissing)),
    ("Inputs missing or spent", No(NodeRefusal::InputMissing)),
    ("bad-txns-premature-spend-of-coinbase", No(NodeRefusal::InputMissing)),
    ("bad-txns-in-belowout", No(NodeRefusal::InsufficientFunds)),
    ("mandatory-script-verify-flag-failed", No(NodeRefusal::BadSignature)),
    ("mempool-script-verify-flag-failed", No(NodeRefusal::BadSignature)),
    ("block-script-verify-flag-failed", No(NodeRefusal::BadSignature)),
    ("non-mandatory-script-verify-flag", No(NodeRefusal::BadSignature)),
    ("bad-witness-nonstandard", No(NodeRefusal::BadSignature)),
    ("non-final", No(NodeRefusal::Other)),
    ("non-BIP68-final", No(NodeRefusal::Other)),
    ("mempool full", No(NodeRefusal::Busy)),
    ("too-long-mempool-chain", No(NodeRefusal::Busy)),
    ("too-large-cluster", No(NodeRefusal::Busy)),
    ("Private broadcast queue is full", No(NodeRefusal::Busy)),
    ("dust", No(NodeRefusal::Malformed)),
    ("tx-size", No(NodeRefusal::Malformed)),
    ("scriptpubkey", No(NodeRefusal::Malformed)),
    ("scriptsig", No(NodeRefusal::Malformed)),
    ("version", No(NodeRefusal::Malformed)),
    ("datacarrier", No(NodeRefusal::Malformed)),
    ("bad-txns-", No(NodeRefusal::Malformed)),
    ("coinbase", No(NodeRefusal::Malformed)),
    ("TX decode failed", No(NodeRefusal::Malformed)),
    ("tx-decode-failed", No(NodeRefusal::Malformed)),
    ("Unspendable output exceeds maximum", No(NodeRefusal::Malformed)),
    ("max-fee-exceeded", No(NodeRefusal::Other)),
    ("Fee exceeds maximum configured", No(NodeRefusal::Other)),
];

pub fn of_words(words: &str) -> Said {
    WORDS.iter().find(|(beginning, _)| words.starts_with(beginning)).map_or(No(NodeRefusal::Other), |(_, said)| *said)
}

/// `None`: the node did not judge the transaction at all.
pub fn of_error(error: &CallError) -> Option<Said> {
    let CallError::Refused { code, message, .. } = error else {
        return None;
    };
    // Old releases put the reject code before the words: `66: min relay fee not met`.
    let words = message.split_once(": ").filter(|(code, _)| code.bytes().all(|byte| byte.is_ascii_digit()));
    let words = words.map_or(message.as_str(), |(_, words)| words);
    match *code {
        wire::ALREADY_IN_CHAIN => Some(HasIt),
        wire::UNDECODABLE => Some(No(NodeRefusal::Malformed)),
        wire::VERIFY_ERROR | wire::VERIFY_REJECTED => Some(of_words(words)),
        _ => Some(match of_words(words) {
            No(refusal) => No(refusal),
            // Only the codes above speak about a transaction. A strange one does not turn a refusal into success.
            HasIt => No(NodeRefusal::Other),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is in no row, and makes no number of a reject code.
    fn noise() -> impl Strategy<Value = String> {
        let outside = |one: &char| !(one.is_ascii_alphanumeric() || " -".contains(*one));
        any::<String>().prop_map(move |text| text.chars().filter(outside).collect())
    }

    fn verdict() -> impl Strategy<Value = i64> {
        prop_oneof![Just(wire::VERIFY_ERROR), Just(wire::VERIFY_REJECTED)]
    }

    proptest! {
        #[test]
        fn words_mean_the_same_whatever_stands_behind_them(
            row in 0..WORDS.len(), code in verdict(), old: Option<u8>, after in noise(),
        ) {
            let (words, said) = WORDS[row];
            let number = old.map_or_else(String::new, |old| format!("{old}: "));
            prop_assert_eq!(refused(code, &format!("{number}{words}{after}")), Some(said));
        }

        /// Core begins with its words. Whoever has something before them says something else.
        #[test]
        fn words_in_the_middle_mean_nothing(
            row in 0..WORDS.len(), code in verdict(),
            before in noise().prop_filter("there is some", |text| !text.is_empty()),
        ) {
            prop_assert_eq!(refused(code, &format!("{before}{}", WORDS[row].0)), Some(No(NodeRefusal::Other)));
        }

        /// Only three codes may say that a node has it, and two of them only in the words for it.
        #[test]
        fn no_other_answer_says_that_a_node_has_it(
            row in 0..WORDS.len(), code in prop_oneof![any::<i64>(), -40..0_i64], text in any::<String>(), whole: bool,
        ) {
            let message = if whole { WORDS[row].0.to_owned() } else { text };
            let has_it = refused(code, &message) == Some(HasIt);
            let says_so = WORDS.iter().any(|(words, said)| *said == HasIt && message.contains(words));
            match code {
                wire::ALREADY_IN_CHAIN => prop_assert!(has_it),
                wire::VERIFY_ERROR | wire::VERIFY_REJECTED => prop_assert!(!has_it || says_so),
                _ => prop_assert!(!has_it),
            }
        }
    }

    fn refused(code: i64, message: &str) -> Option<Said> {
        of_error(&CallError::Refused { endpoint: "a".to_owned(), code, message: message.to_owned() })
    }

    #[test]
    fn words_of_core_are_understood() {
        for (code, words, said) in [
            (-27, "Transaction outputs already in utxo set", HasIt),
            (-27, "whatever it may say", HasIt),
            (-25, "bad-txns-inputs-missingorspent", No(NodeRefusal::InputMissing)),
            (-25, "Missing inputs", No(NodeRefusal::InputMissing)),
            (-26, "txn-already-in-mempool", HasIt),
            (-26, "66: min relay fee not met", No(NodeRefusal::FeeTooLow)),
            (-26, "min relay fee not met, 0 < 110", No(NodeRefusal::FeeTooLow)),
            (-26, "mempool min fee not met, 5 < 110", No(NodeRefusal::FeeTooLow)),
            (-26, "insufficient fee, rejecting replacement abc", No(NodeRefusal::Underpriced)),
            (-26, "non-final", No(NodeRefusal::Other)),
            (-26, "dust", No(NodeRefusal::Malformed)),
            (
                -26,
                "bad-txns-premature-spend-of-coinbase, tried to spend coinbase at depth 1",
                No(NodeRefusal::InputMissing),
            ),
            (-26, "bad-txns-vout-negative", No(NodeRefusal::Malformed)),
            (-26, "words of a release to come", No(NodeRefusal::Other)),
            (-22, "TX decode failed. Make sure the tx has at least one input.", No(NodeRefusal::Malformed)),
            (-32601, "txn-already-in-mempool", No(NodeRefusal::Other)),
        ] {
            assert_eq!(refused(code, words), Some(said), "{code} {words}");
        }
        assert_eq!(of_error(&CallError::Timeout { endpoint: "a".to_owned() }), None);
    }

    #[test]
    fn no_line_of_the_table_hides_a_later_one() {
        for (place, (words, said)) in WORDS.iter().enumerate() {
            let first = WORDS.iter().position(|(beginning, _)| words.starts_with(beginning));
            assert_eq!(first, Some(place), "{words}");
            assert_eq!(of_words(words), *said);
        }
    }
}
