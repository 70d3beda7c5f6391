//! What nodes answer: only the fields that are needed, read straight from the text, each checked for its form and range.

use std::fmt;

use alloy_primitives::{Address as Account, B256, Bloom, Bytes, U256, hex};
use domain::Timestamp;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use tx::BlockHash;

use super::outputs::Fields;
use crate::block::Header;

/// What is written as hexadecimal text.
pub(super) trait FromHex: Sized {
    fn from_hex(text: &str) -> Option<Self>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hex<T>(pub T);

impl<'de, T: FromHex> Deserialize<'de> for Hex<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<T>(std::marker::PhantomData<T>);

        impl<T: FromHex> Visitor<'_> for Text<T> {
            type Value = Hex<T>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "hexadecimal text for {}", std::any::type_name::<T>())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Hex<T>, E> {
                T::from_hex(text).map(Hex).ok_or_else(|| E::custom("not a number of this size in hexadecimal"))
            }
        }

        deserializer.deserialize_str(Text(std::marker::PhantomData))
    }
}

/// The digits of a quantity: no sign, no leading zero, `0x0` for zero.
fn digits(text: &str) -> Option<&str> {
    let digits = text.strip_prefix("0x")?;
    let canonical = digits == "0" || !digits.starts_with('0');
    (canonical && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digits)
}

impl FromHex for u64 {
    fn from_hex(text: &str) -> Option<Self> {
        Self::from_str_radix(digits(text)?, 16).ok()
    }
}

impl FromHex for u128 {
    fn from_hex(text: &str) -> Option<Self> {
        Self::from_str_radix(digits(text)?, 16).ok()
    }
}

impl FromHex for U256 {
    fn from_hex(text: &str) -> Option<Self> {
        let digits = digits(text)?;
        (digits.len() <= 64).then(|| Self::from_str_radix(digits, 16).ok()).flatten()
    }
}

fn exactly<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text.strip_prefix("0x")?, &mut bytes).ok()?;
    Some(bytes)
}

impl FromHex for B256 {
    fn from_hex(text: &str) -> Option<Self> {
        exactly(text).map(Self)
    }
}

impl FromHex for Account {
    fn from_hex(text: &str) -> Option<Self> {
        exactly(text).map(|bytes: [u8; 20]| Self::from(bytes))
    }
}

impl FromHex for Bloom {
    fn from_hex(text: &str) -> Option<Self> {
        exactly(text).map(|bytes: [u8; 256]| Self::from(bytes))
    }
}

/// Bytes of any length, of which only those of exactly one word are of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub Option<U256>);

impl FromHex for Word {
    fn from_hex(text: &str) -> Option<Self> {
        if text.len() == 2 + 64 {
            return exactly(text).map(|bytes: [u8; 32]| Self(Some(U256::from_be_bytes(bytes))));
        }
        let digits = text.strip_prefix("0x")?;
        (digits.len() % 2 == 0 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(Self(None))
    }
}

impl FromHex for Bytes {
    fn from_hex(text: &str) -> Option<Self> {
        hex::decode(text.strip_prefix("0x")?).ok().map(Self::from)
    }
}

/// Whether an account has code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HasCode(pub bool);

impl FromHex for HasCode {
    fn from_hex(text: &str) -> Option<Self> {
        Word::from_hex(text).map(|_| Self(text != "0x"))
    }
}

pub(super) fn quantity(number: u64) -> String {
    format!("{number:#x}")
}

/// A block, `T` being what is read of its transactions. No `flatten` anywhere: serde would copy everything first.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Block<T> {
    pub number: Hex<u64>,
    pub hash: Hex<B256>,
    pub parent_hash: Hex<B256>,
    pub timestamp: Hex<u64>,
    /// Which contracts have logged what in it, roughly: too much, never too little.
    #[serde(default)]
    pub logs_bloom: Option<Hex<Bloom>>,
    pub transactions: T,
}

/// For whoever asks for a header only.
pub(super) type BlockHead = Block<serde::de::IgnoredAny>;

impl<T> Block<T> {
    /// `None`: its time is beyond all calendars.
    pub(super) fn header(&self) -> Option<Header> {
        let micros = i64::try_from(self.timestamp.0).ok()?.checked_mul(1_000_000)?;
        Some(Header {
            height: self.number.0,
            hash: BlockHash(self.hash.0.0),
            parent: BlockHash(self.parent_hash.0.0),
            time: Timestamp::from_micros(micros),
        })
    }
}

/// What a transaction pays, as far as its own fields say.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Paying {
    pub hash: Hex<B256>,
    pub from: Hex<Account>,
    pub to: Option<Hex<Account>>,
    pub value: Hex<U256>,
}

impl Paying {
    pub(super) fn fields(&self) -> Fields {
        Fields { hash: self.hash.0, from: self.from.0, to: self.to.map(|to| to.0), value: self.value.0 }
    }
}

/// Which transaction of whom.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Numbered {
    pub hash: Hex<B256>,
    pub from: Hex<Account>,
    pub nonce: Hex<u64>,
}

/// A transaction asked for by its hash. One that waits has no block.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Found {
    pub hash: Hex<B256>,
    pub from: Hex<Account>,
    pub to: Option<Hex<Account>>,
    pub value: Hex<U256>,
    pub block_hash: Option<Hex<B256>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Log {
    pub address: Hex<Account>,
    pub topics: Vec<Hex<B256>>,
    pub data: Hex<Word>,
    pub block_hash: Hex<B256>,
    pub block_number: Hex<u64>,
    pub transaction_hash: Hex<B256>,
    pub log_index: Hex<u64>,
    #[serde(default)]
    pub removed: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Receipt {
    pub transaction_hash: Hex<B256>,
    pub transaction_index: Hex<u64>,
    pub block_hash: Hex<B256>,
    pub block_number: Hex<u64>,
    pub status: Hex<u64>,
    pub gas_used: Hex<u64>,
    pub effective_gas_price: Hex<u128>,
    /// Only a transaction that carries blobs has these two, and pays for them besides its gas.
    #[serde(default)]
    pub blob_gas_used: Option<Hex<u64>>,
    #[serde(default)]
    pub blob_gas_price: Option<Hex<u128>>,
    pub logs: Vec<Log>,
}

impl Receipt {
    /// What the transaction cost its sender. It cannot overflow: 64 bits times 128, twice.
    pub(super) fn fee(&self) -> U256 {
        let product = |units: u64, price: u128| U256::from(units).saturating_mul(U256::from(price));
        let blobs = self.blob_gas_used.map_or(0, |used| used.0);
        let blobs = product(blobs, self.blob_gas_price.map_or(0, |price| price.0));
        product(self.gas_used.0, self.effective_gas_price.0).saturating_add(blobs)
    }
}

/// What a header commits to, for whoever holds a block against it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Commitments {
    pub number: Hex<u64>,
    pub hash: Hex<B256>,
    pub parent_hash: Hex<B256>,
    pub timestamp: Hex<u64>,
    pub transactions_root: Hex<B256>,
    pub receipts_root: Hex<B256>,
    pub logs_bloom: Hex<Bloom>,
    #[serde(default)]
    pub base_fee_per_gas: Option<Hex<u64>>,
}

/// All that a transaction is encoded from. Each type has its own fields; which are needed is seen when it is encoded.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Signed {
    #[serde(default, rename = "type")]
    pub kind: Option<Hex<u64>>,
    pub nonce: Option<Hex<u64>>,
    pub gas: Option<Hex<u64>>,
    pub to: Option<Hex<Account>>,
    pub value: Option<Hex<U256>>,
    pub input: Option<Hex<Bytes>>,
    pub gas_price: Option<Hex<u128>>,
    pub max_fee_per_gas: Option<Hex<u128>>,
    pub max_priority_fee_per_gas: Option<Hex<u128>>,
    pub max_fee_per_blob_gas: Option<Hex<u128>>,
    pub blob_versioned_hashes: Option<Vec<Hex<B256>>>,
    pub access_list: Option<Vec<Access>>,
    pub authorization_list: Option<Vec<Authorized>>,
    pub chain_id: Option<Hex<u64>>,
    pub v: Option<Hex<U256>>,
    pub y_parity: Option<Hex<u64>>,
    pub r: Option<Hex<U256>>,
    pub s: Option<Hex<U256>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Access {
    pub address: Hex<Account>,
    pub storage_keys: Vec<Hex<B256>>,
}

/// EIP-7702.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Authorized {
    pub chain_id: Hex<U256>,
    pub address: Hex<Account>,
    pub nonce: Hex<u64>,
    #[serde(alias = "v")]
    pub y_parity: Hex<u64>,
    pub r: Hex<U256>,
    pub s: Hex<U256>,
}

/// A block without anything but its transactions.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Body {
    pub transactions: Vec<Signed>,
}

/// All that a receipt is encoded from.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WholeReceipt {
    /// Which block the node means.
    pub block_hash: Hex<B256>,
    /// Left out before Byzantium, in 2017.
    pub status: Option<Hex<u64>>,
    pub cumulative_gas_used: Hex<u64>,
    pub logs_bloom: Hex<Bloom>,
    pub logs: Vec<WholeLog>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct WholeLog {
    pub address: Hex<Account>,
    pub topics: Vec<Hex<B256>>,
    pub data: Hex<Bytes>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FeeHistory {
    /// Of each block asked for, and of the one after them.
    pub base_fee_per_gas: Vec<Hex<u128>>,
    /// Of each block, at the percentiles asked for.
    #[serde(default)]
    pub reward: Option<Vec<Vec<Hex<u128>>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_form_and_a_range() {
        for (text, number) in [("0x0", 0), ("0x1", 1), ("0xff", 255), ("0xFF", 255), ("0xffffffffffffffff", u64::MAX)] {
            assert_eq!(u64::from_hex(text), Some(number), "{text}");
        }
        for bad in ["", "0x", "0", "1", "0x00", "0x01", "0xg", "0x-1", "0x+1", "-0x1", "0x1 ", "0x10000000000000000"] {
            assert_eq!(u64::from_hex(bad), None, "{bad}");
        }
        let most = format!("0x{}", "f".repeat(64));
        assert_eq!(U256::from_hex(&most), Some(U256::MAX));
        assert_eq!(U256::from_hex(&format!("0x1{}", "0".repeat(64))), None, "2^256");
        assert_eq!(u128::from_hex(&most), None);
    }

    #[test]
    fn bytes_have_their_length() {
        let word = format!("0x{}01", "0".repeat(62));
        assert_eq!(Word::from_hex(&word), Some(Word(Some(U256::from(1)))));
        assert_eq!(Word::from_hex("0x"), Some(Word(None)));
        assert_eq!(Word::from_hex(&format!("{word}00")), Some(Word(None)));
        assert_eq!(Word::from_hex("0x1"), None);
        assert_eq!(Word::from_hex("0xzz"), None);
        assert_eq!(Account::from_hex(&word), None);
        assert_eq!(B256::from_hex(&word[..64]), None);
        assert_eq!(HasCode::from_hex("0x"), Some(HasCode(false)));
        assert_eq!(HasCode::from_hex("0xef01"), Some(HasCode(true)));
    }

    #[test]
    fn a_wrong_type_or_a_missing_field_is_an_error() {
        let good = format!(
            r#"{{"number":"0x1","hash":"0x{0}","parentHash":"0x{0}","timestamp":"0x5","transactions":[],"extra":[1,{{}}]}}"#,
            "ab".repeat(32)
        );
        let head: BlockHead = serde_json::from_str(&good).expect("good");
        assert_eq!(head.header().map(|header| header.time.micros()), Some(5_000_000));
        for bad in [
            good.replace(r#""0x1""#, "1"),
            good.replace(r#""0x1""#, "null"),
            good.replace("parentHash", "parent"),
            good.replace("abab", "ab"),
        ] {
            assert!(serde_json::from_str::<BlockHead>(&bad).is_err(), "{bad}");
        }
        let late = good.replace(r#""0x5""#, r#""0xffffffffffffffff""#);
        let head: BlockHead = serde_json::from_str(&late).expect("a number");
        assert_eq!(head.header(), None);
    }
}
