//! Amounts, hashes and transactions from text and bytes.

use bitcoin::Transaction;
use bitcoin::consensus::encode::deserialize;
use chain::bitcoin::Sat;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use store::utxo::{Hash, NewTx};

use super::super::read::tx_of;

/// Satoshi, from a JSON number in bitcoin: read from its digits, as `chain` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Satoshi(pub i64);

impl<'de> Deserialize<'de> for Satoshi {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Sat(amount) = Sat::deserialize(deserializer)?;
        i64::try_from(amount).map(Self).map_err(D::Error::custom)
    }
}

/// A hash of 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hex32(pub Hash);

impl<'de> Deserialize<'de> for Hex32 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|error| D::Error::custom(format!("{error}: {}", shorten(&text))))
    }
}

/// Bytes as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HexBytes(pub Vec<u8>);

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = bitcoin::hex::FromHex::from_hex(&text);
        bytes.map(Self).map_err(|error| D::Error::custom(format!("not hexadecimal: {error}")))
    }
}

/// The beginning of a long text: enough for a reader of a message to find it.
pub(super) fn shorten(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST).chain("…".chars()).collect() }
}

/// The transaction of these bytes, whose hash must be the one that the source says.
pub(super) fn transaction(claimed: Hash, raw: &[u8]) -> Result<NewTx, String> {
    let no_transaction = |error: &dyn std::fmt::Display| format!("the bytes of {claimed} are no transaction: {error}");
    let tx: Transaction = deserialize(raw).map_err(|error| no_transaction(&error))?;
    let tx = tx_of(&tx).map_err(|error| no_transaction(&error))?;
    if tx.hash != claimed {
        return Err(format!("the bytes that stand for {claimed} are those of {}", tx.hash));
    }
    Ok(tx)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_SATOSHI: i64 = 2_100_000_000_000_000;

    #[test]
    fn amounts_are_read_to_the_satoshi() {
        let good = [
            ("0", 0),
            ("0.00000001", 1),
            ("1e-08", 1),
            ("1E-8", 1),
            ("1.5e-07", 15),
            ("0.1", 10_000_000),
            ("0.29", 29_000_000),
            ("50.00000000", 5_000_000_000),
            ("2.1e+07", MAX_SATOSHI),
            ("21000000.000000000000", MAX_SATOSHI),
            ("20999999.99999999", MAX_SATOSHI - 1),
        ];
        for (text, amount) in good {
            assert_eq!(serde_json::from_str::<Satoshi>(text).unwrap(), Satoshi(amount), "{text}");
        }
        let huge = format!("1{}", "0".repeat(400));
        let bad = [
            "-0.1",
            "-0",
            "0.000000001",
            "1e-9",
            "21000000.00000001",
            "1e40",
            "1e4000000000",
            "1e-400",
            "null",
            "true",
            "\"1\"",
            "[]",
            "{}",
            "1.",
            ".1",
            "",
            "1e",
            &huge,
        ];
        for text in bad {
            assert!(serde_json::from_str::<Satoshi>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_transaction_is_what_its_hash_says() {
        // The first coinbase of all.
        let raw = "01000000010000000000000000000000000000000000000000000000000000000000000000ffffffff4d04ffff001d0104455468652054696d65\
            732030332f4a616e2f32303039204368616e63656c6c6f72206f6e206272696e6b206f66207365636f6e64206261696c6f757420666f722062616e6b73\
            ffffffff0100f2052a01000000434104678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51e\
            c112de5c384df7ba0b8d578a4c702b6bf11d5fac00000000";
        let raw: Vec<u8> = bitcoin::hex::FromHex::from_hex(raw).unwrap();
        let hash: Hash = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b".parse().unwrap();
        let tx = transaction(hash, &raw).unwrap();
        assert!(tx.coinbase && tx.inputs.is_empty());
        assert_eq!((tx.hash, tx.outputs.len(), tx.outputs[0].amount), (hash, 1, 5_000_000_000));

        assert!(transaction(Hash([1; 32]), &raw).unwrap_err().contains("are those of 4a5e1e4b"));
        assert!(transaction(hash, &raw[..raw.len() - 1]).unwrap_err().contains("no transaction"));
        assert!(transaction(hash, &[raw.clone(), vec![0]].concat()).unwrap_err().contains("no transaction"));
        assert!(transaction(hash, &[]).is_err());
    }
}
