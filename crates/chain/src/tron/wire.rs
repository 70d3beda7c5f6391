//! The JSON of java-tron's HTTP API.
//!
//! Every call is a POST. `{}` means "nothing found", fields that are zero are left out, and a failure inside the node is
//! `{"Error": "class java.lang…"}` with the status 200. Strings are borrowed from the answer and whatever we do not
//! need is skipped, because blocks are large.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use domain::Timestamp;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tx::tron::TronAddress;
use tx::tron::transaction::LAST_MS;
use tx::{BlockHash, TxHash};

use crate::block::Header;
use crate::endpoint::{CallError, Node};

/// No chain gets there: at a block every three seconds it is 26 million years away.
const LAST_HEIGHT: u64 = 1 << 48;

/// An answer in which the node says that it failed is never longer.
const FAILURE_BYTES: usize = 4_096;

#[derive(Deserialize)]
struct Failure {
    #[serde(rename = "Error")]
    error: Option<String>,
}

/// Asks for an object, and reads no further than whether the node failed.
pub(super) async fn ask(node: &Node, path: &str, body: &Value) -> Result<Bytes, CallError> {
    let answer = ask_any(node, path, body).await?;
    begins(node, &answer, b'{').map(|()| answer)
}

/// Asks for a list.
pub(super) async fn ask_list(node: &Node, path: &str, body: &Value) -> Result<Bytes, CallError> {
    let answer = ask_any(node, path, body).await?;
    begins(node, &answer, b'[').map(|()| answer)
}

/// The parser takes a list for an object whose fields come in order, and an empty one for "nothing found".
pub(super) fn begins(node: &Node, body: &[u8], with: u8) -> Result<(), CallError> {
    match body.trim_ascii_start().first() {
        Some(first) if *first == with => Ok(()),
        _ => Err(node.bad(format!("an answer that does not begin with {}", char::from(with)))),
    }
}

async fn ask_any(node: &Node, path: &str, body: &Value) -> Result<Bytes, CallError> {
    let reply = node.post(path, Bytes::from(body.to_string())).await?;
    // It keeps the state and not the history. Its words come bare, without any JSON.
    if reply.body.len() <= FAILURE_BYTES && String::from_utf8_lossy(&reply.body).contains("is a lite fullnode") {
        return Err(node.lacks(format!("{path} of a lite full node")));
    }
    match failure(&reply.body) {
        Some(text) if text.contains("lack of computing resources") => {
            Err(CallError::RateLimited { endpoint: node.name().to_owned() })
        }
        Some(text) => Err(node.bad(printable(&text))),
        None if reply.status.is_success() => Ok(reply.body),
        None => Err(node.bad(format!("status {}", reply.status.as_u16()))),
    }
}

fn failure(body: &[u8]) -> Option<String> {
    if body.len() > FAILURE_BYTES {
        return None;
    }
    serde_json::from_slice::<Failure>(body).ok()?.error
}

pub(super) fn read<'a, T: Deserialize<'a>>(node: &Node, body: &'a [u8]) -> Result<T, CallError> {
    serde_json::from_slice(body).map_err(|error| node.bad(error.to_string()))
}

pub(super) async fn call<T: DeserializeOwned>(node: &Node, path: &str, body: &Value) -> Result<T, CallError> {
    let answer = ask(node, path, body).await?;
    read(node, &answer)
}

/// What a node says in words, fit for a log: java-tron writes some messages as hexadecimal digits.
pub(super) fn printable(text: &str) -> String {
    let decoded = alloy_primitives::hex::decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = decoded.as_deref().filter(|text| !text.is_empty()).unwrap_or(text);
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).take(300).collect()
}

/// A list of at most so many. One of millions of `{}` would take many times its own length in memory.
pub(super) fn at_most<'de, const MOST: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct List<const MOST: usize, T>(PhantomData<T>);
    impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for List<MOST, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = list.next_element()? {
                if items.len() == MOST {
                    return Err(A::Error::custom(format!("more than {MOST} in a list")));
                }
                items.push(item);
            }
            Ok(items)
        }
    }
    deserializer.deserialize_seq(List::<MOST, T>(PhantomData))
}

/// A block has 2 MB, and a transaction more than 100 bytes.
pub(super) const TRANSACTIONS: usize = 20_000;
/// A call costs at least 375 energy for each log.
const LOGS: usize = 100_000;

#[derive(Deserialize)]
pub(super) struct Blocks<'a> {
    #[serde(borrow, default, deserialize_with = "at_most::<100, _, _>")]
    pub block: Vec<Block<'a>>,
}

/// `{}` when there is none.
#[derive(Deserialize)]
pub(super) struct Block<'a> {
    #[serde(rename = "blockID")]
    pub id: Option<&'a str>,
    #[serde(borrow)]
    pub block_header: Option<BlockHeader<'a>>,
    #[serde(borrow, default, deserialize_with = "at_most::<TRANSACTIONS, _, _>")]
    pub transactions: Vec<Transaction<'a>>,
}

#[derive(Deserialize)]
pub(super) struct BlockHeader<'a> {
    #[serde(borrow)]
    pub raw_data: RawHeader<'a>,
}

#[derive(Deserialize)]
pub(super) struct RawHeader<'a> {
    #[serde(default)]
    pub number: u64,
    #[serde(default)]
    pub timestamp: i64,
    #[serde(rename = "parentHash")]
    pub parent: &'a str,
    /// Left out, or zeros, when the block has no transactions.
    #[serde(rename = "txTrieRoot")]
    pub root: Option<&'a str>,
}

#[derive(Deserialize)]
pub(super) struct Transaction<'a> {
    #[serde(rename = "txID")]
    pub id: Option<&'a str>,
    #[serde(borrow, default, deserialize_with = "at_most::<16, _, _>")]
    pub ret: Vec<Ret<'a>>,
    #[serde(borrow)]
    pub raw_data: Option<RawData<'a>>,
    pub raw_data_hex: Option<&'a str>,
}

#[derive(Deserialize)]
pub(super) struct Ret<'a> {
    #[serde(rename = "contractRet")]
    pub contract: Option<&'a str>,
}

#[derive(Deserialize)]
pub(super) struct RawData<'a> {
    #[serde(borrow, default, deserialize_with = "at_most::<16, _, _>")]
    pub contract: Vec<Contract<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Contract<'a> {
    pub r#type: Option<&'a str>,
    /// Read once the type is known: other types have other fields by the same names.
    #[serde(borrow)]
    pub parameter: Option<&'a RawValue>,
}

/// What a contract holds, for a type of which this much is read.
#[derive(Deserialize)]
pub(super) struct Parameter<T> {
    pub value: T,
}

#[derive(Deserialize)]
pub(super) struct TransferValue<'a> {
    /// Left out when nobody needs it: what is paid does not depend on it.
    pub owner_address: Option<&'a str>,
    pub to_address: &'a str,
    #[serde(default)]
    pub amount: i64,
}

#[derive(Deserialize)]
pub(super) struct TriggerValue<'a> {
    pub owner_address: Option<&'a str>,
    pub contract_address: Option<&'a str>,
    #[serde(default)]
    pub call_value: i64,
}

#[derive(Deserialize)]
pub(super) struct CreateValue<'a> {
    pub owner_address: Option<&'a str>,
    #[serde(default)]
    pub new_contract: NewContract,
}

#[derive(Default, Deserialize)]
pub(super) struct NewContract {
    #[serde(default)]
    pub call_value: i64,
}

/// Of any other type. All but shielded transfers have an owner, who pays the fee.
#[derive(Deserialize)]
pub(super) struct OwnedValue<'a> {
    pub owner_address: Option<&'a str>,
}

/// Those of a block.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Infos<'a> {
    #[serde(borrow, deserialize_with = "at_most::<TRANSACTIONS, _, _>")]
    pub all: Vec<Info<'a>>,
}

/// What became of a transaction. `{}` when the node does not know it.
#[derive(Deserialize)]
pub(super) struct Info<'a> {
    pub id: Option<&'a str>,
    #[serde(default)]
    pub fee: i64,
    #[serde(rename = "blockNumber", default)]
    pub height: u64,
    #[serde(borrow, default)]
    pub receipt: Receipt<'a>,
    /// Left out when it ran, `FAILED` when it did not.
    pub result: Option<&'a str>,
    #[serde(borrow, default, deserialize_with = "at_most::<LOGS, _, _>")]
    pub log: Vec<Log<'a>>,
    /// Only nodes that keep them show them (`vm.saveInternalTx`).
    #[serde(borrow, default, deserialize_with = "at_most::<LOGS, _, _>")]
    pub internal_transactions: Vec<Internal<'a>>,
}

/// What a contract did to another account.
#[derive(Deserialize)]
pub(super) struct Internal<'a> {
    pub caller_address: Option<&'a str>,
    #[serde(rename = "transferTo_address")]
    pub to: Option<&'a str>,
    #[serde(borrow, rename = "callValueInfo", default, deserialize_with = "at_most::<16, _, _>")]
    pub values: Vec<CallValue<'a>>,
    /// The text in hexadecimal digits: which kind it is.
    pub note: Option<&'a str>,
    /// It was undone.
    #[serde(default)]
    pub rejected: bool,
}

#[derive(Deserialize)]
pub(super) struct CallValue<'a> {
    #[serde(rename = "callValue", default)]
    pub amount: i64,
    /// A token of TRON's old kind (TRC-10). TRX has none.
    #[serde(rename = "tokenId")]
    pub token: Option<&'a str>,
}

#[derive(Default, Deserialize)]
pub(super) struct Receipt<'a> {
    /// Only contract calls have one.
    pub result: Option<&'a str>,
}

#[derive(Deserialize)]
pub(super) struct Log<'a> {
    /// 20 bytes, without the 41.
    #[serde(default)]
    pub address: &'a str,
    #[serde(borrow, default, deserialize_with = "at_most::<16, _, _>")]
    pub topics: Vec<&'a str>,
    #[serde(default)]
    pub data: &'a str,
}

impl Block<'_> {
    /// Its header, once it fits itself; `None` when the node has no such block.
    pub fn header(&self, node: &Node) -> Result<Option<Header>, CallError> {
        header_of(node, self.id, self.block_header.as_ref())
    }
}

pub(super) fn header_of(
    node: &Node,
    id: Option<&str>,
    header: Option<&BlockHeader<'_>>,
) -> Result<Option<Header>, CallError> {
    let (Some(id), Some(header)) = (id, header) else {
        return match (id, header) {
            (None, None) => Ok(None),
            _ => Err(node.bad("a block without its id or its header")),
        };
    };
    let raw = &header.raw_data;
    let hash = BlockHash(digest(node, id)?);
    let parent = BlockHash(digest(node, raw.parent)?);
    if raw.number > LAST_HEIGHT || !(0..=LAST_MS).contains(&raw.timestamp) {
        return Err(node.bad("a block with an absurd height or time"));
    }
    // The first eight bytes of an id are the height. Only the first block's parent is no block.
    let before = raw.number.checked_sub(1);
    if height_of(&hash) != raw.number || before.is_some_and(|height| height_of(&parent) != height) {
        return Err(node.bad("a block whose id is not of its height"));
    }
    let time = Timestamp::from_micros(raw.timestamp.saturating_mul(1_000));
    Ok(Some(Header { height: raw.number, hash, parent, time }))
}

impl Transaction<'_> {
    pub fn hash(&self, node: &Node) -> Result<TxHash, CallError> {
        let id = self.id.ok_or_else(|| node.bad("a transaction without an id"))?;
        digest(node, id).map(TxHash)
    }

    /// It ran to its end.
    pub fn ran(&self) -> bool {
        matches!(self.ret.as_slice(), [Ret { contract: Some("SUCCESS") }])
    }
}

impl Info<'_> {
    pub fn ran(&self) -> bool {
        // `result` is 0 (SUCESS, in java-tron's spelling) and so left out unless it failed.
        self.result.is_none_or(|result| result == "SUCESS" || result == "SUCCESS")
            && self.receipt.result.is_none_or(|result| result == "SUCCESS")
    }
}

/// The height that a block's id begins with.
pub(super) fn height_of(hash: &BlockHash) -> u64 {
    hash.0.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// 32 bytes, as nodes write them: digits without `0x`.
pub(super) fn digest(node: &Node, text: &str) -> Result<[u8; 32], CallError> {
    let mut bytes = [0; 32];
    match alloy_primitives::hex::decode_to_slice(text, &mut bytes) {
        Ok(()) if text.len() == 64 => Ok(bytes),
        _ => Err(node.bad("a hash that is not 64 digits")),
    }
}

/// 41 and 20 bytes.
pub(super) fn account(node: &Node, text: &str) -> Result<TronAddress, CallError> {
    let mut bytes = [0; 21];
    match alloy_primitives::hex::decode_to_slice(text, &mut bytes) {
        Ok(()) if text.len() == 42 => {
            TronAddress::from_prefixed(&bytes).ok_or_else(|| node.bad("an address without 41"))
        }
        _ => Err(node.bad("an address that is not 42 digits")),
    }
}
