//! Amounts, hashes and transactions from text and bytes.

use bitcoin::consensus::encode::deserialize;
use bitcoin::hashes::Hash as _;
use bitcoin::{Transaction, Txid};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use store::utxo::{Hash, Network, NewOutput, NewTx, OutPoint};

/// All the coins there can be.
const MAX_SATOSHI: i64 = 2_100_000_000_000_000;

/// Satoshi, from a JSON number in bitcoin. It is read from its digits: a float would round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Satoshi(pub i64);

impl<'de> Deserialize<'de> for Satoshi {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let amount =
            satoshi(raw.get()).ok_or_else(|| D::Error::custom(format!("not an amount: {}", shorten(raw.get()))))?;
        Ok(Self(amount))
    }
}

/// `0.1`, `1e-08` and `21000000.00000000`, as Core and jq print them; nothing negative, nothing finer than a satoshi.
fn satoshi(text: &str) -> Option<i64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // Longer ones are no amount, whatever their exponent.
    if whole.is_empty() || whole.len() + fraction.len() > 40 || !(-40..=40).contains(&exponent) {
        return None;
    }
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut point = i32::try_from(whole.len()).ok()? + exponent + 8;
    while point < 0 {
        digits.insert(0, b'0');
        point += 1;
    }
    let point = usize::try_from(point).ok()?;
    while digits.len() < point {
        digits.push(b'0');
    }
    if digits[point..].iter().any(|digit| *digit != b'0') {
        return None;
    }
    let value = digits[..point]
        .iter()
        .try_fold(0_i64, |value, digit| value.checked_mul(10)?.checked_add(i64::from(digit - b'0')))?;
    (value <= MAX_SATOSHI).then_some(value)
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

/// Enough to find it again, for a message.
pub(super) fn shorten(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST).chain("…".chars()).collect() }
}

/// The transaction of these bytes, whose hash must be the one that the source says.
pub(super) fn transaction(claimed: Hash, raw: Vec<u8>) -> Result<NewTx, String> {
    let tx: Transaction =
        deserialize(&raw).map_err(|error| format!("the bytes of {claimed} are no transaction: {error}"))?;
    let hash = hash_of(tx.compute_txid());
    if hash != claimed {
        return Err(format!("the bytes that stand for {claimed} are those of {hash}"));
    }
    let coinbase = tx.is_coinbase();
    let outputs = tx.output.iter().map(|output| {
        let amount = i64::try_from(output.value.to_sat()).ok().filter(|amount| *amount <= MAX_SATOSHI);
        let amount = amount.ok_or_else(|| format!("{claimed} has an output of more than there is"))?;
        Ok(NewOutput { script: output.script_pubkey.to_bytes(), amount })
    });
    let outputs = outputs.collect::<Result<Vec<_>, String>>()?;
    let inputs = tx.input.iter().filter(|_| !coinbase);
    let inputs: Vec<OutPoint> = inputs
        .map(|input| OutPoint { hash: hash_of(input.previous_output.txid), index: input.previous_output.vout })
        .collect();
    Ok(NewTx { hash, raw, coinbase, inputs, outputs })
}

/// Hashes are printed in the opposite order of their bytes.
fn hash_of(txid: Txid) -> Hash {
    let mut bytes = txid.to_byte_array();
    bytes.reverse();
    Hash(bytes)
}

pub(super) const fn network_kind(network: Network) -> bitcoin::Network {
    match network {
        Network::Bitcoin => bitcoin::Network::Bitcoin,
        Network::Testnet => bitcoin::Network::Testnet,
        Network::Testnet4 => bitcoin::Network::Testnet4,
        Network::Signet => bitcoin::Network::Signet,
        Network::Regtest => bitcoin::Network::Regtest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let tx = transaction(hash, raw.clone()).unwrap();
        assert!(tx.coinbase && tx.inputs.is_empty());
        assert_eq!((tx.hash, tx.outputs.len(), tx.outputs[0].amount), (hash, 1, 5_000_000_000));

        assert!(transaction(Hash([1; 32]), raw.clone()).unwrap_err().contains("are those of 4a5e1e4b"));
        assert!(transaction(hash, raw[..raw.len() - 1].to_vec()).unwrap_err().contains("no transaction"));
        assert!(transaction(hash, [raw.clone(), vec![0]].concat()).unwrap_err().contains("no transaction"));
        assert!(transaction(hash, Vec::new()).is_err());
    }
}
