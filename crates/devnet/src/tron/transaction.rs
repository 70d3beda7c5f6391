//! A signed transaction as the devnet keeps it, from protobuf or from JSON.

use alloy_primitives::hex;
use bitcoin::hashes::{Hash, sha256};
use prost::Message;
use serde_json::{Map, Value};

use super::proto::{self, Any, Contract, Raw, Ret, Transaction, Transfer, Trigger};
use super::refusal::Failed;

pub type Id = [u8; 32];

#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    pub id: Id,
    pub raw: Raw,
    /// `raw` encoded again: what the id is the hash of, whatever order the sender wrote the fields in.
    pub raw_bytes: Vec<u8>,
    pub signatures: Vec<Vec<u8>>,
    /// Bytes of the whole transaction without its result: what bandwidth counts.
    pub size: usize,
    pub action: Action,
}

/// What the one contract of a transaction asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Transfer(Transfer),
    Trigger(Trigger),
    /// A kind of contract that this devnet has not, or bytes that are none.
    Other,
}

impl Received {
    pub fn new(raw: Raw, signatures: Vec<Vec<u8>>) -> Self {
        let raw_bytes = raw.encode_to_vec();
        let id = sha256::Hash::hash(&raw_bytes).to_byte_array();
        let action = raw.contract.first().map_or(Action::Other, action);
        let unsigned = Self { id, raw, raw_bytes, signatures: Vec::new(), size: 0, action };
        unsigned.signed(signatures)
    }

    pub fn signed(mut self, signatures: Vec<Vec<u8>>) -> Self {
        self.signatures = signatures;
        self.size = self.message(None).encoded_len();
        self
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, prost::DecodeError> {
        let transaction = Transaction::decode(bytes)?;
        Ok(Self::new(transaction.raw_data.unwrap_or_default(), transaction.signature))
    }

    fn message(&self, ret: Option<i32>) -> Transaction {
        let ret = ret.map(|contract_ret| Ret { contract_ret, ..Ret::default() });
        let signature = self.signatures.clone();
        Transaction { raw_data: Some(self.raw.clone()), signature, ret: ret.into_iter().collect() }
    }

    /// With the result that a block gives it.
    pub fn encoded(&self, ret: i32) -> Vec<u8> {
        self.message(Some(ret)).encode_to_vec()
    }

    /// 21 bytes, if the sender wrote an address.
    pub fn owner(&self) -> &[u8] {
        match &self.action {
            Action::Transfer(transfer) => &transfer.owner_address,
            Action::Trigger(trigger) => &trigger.owner_address,
            Action::Other => &[],
        }
    }
}

fn action(contract: &Contract) -> Action {
    let value = contract.parameter.as_ref().map_or(&[][..], |parameter| &parameter.value);
    let action = match contract.kind {
        proto::TRANSFER => Transfer::decode(value).map(Action::Transfer),
        proto::TRIGGER => Trigger::decode(value).map(Action::Trigger),
        _ => Ok(Action::Other),
    };
    action.unwrap_or(Action::Other)
}

/// Reads the JSON form as java-tron does: `raw_data` alone counts, `raw_data_hex` and `txID` do not, and a contract
/// that cannot be read is left out.
pub fn from_json(json: &Map<String, Value>, visible: bool) -> Result<Received, Failed> {
    let null = || Failed::new("java.lang.NullPointerException", "null");
    let raw_json = json.get("raw_data").and_then(Value::as_object).ok_or_else(null)?;
    let contracts = raw_json.get("contract").and_then(Value::as_array).ok_or_else(null)?;
    let raw = Raw {
        ref_block_bytes: bytes(raw_json, "ref_block_bytes")?,
        ref_block_num: integer(raw_json, "ref_block_num")?,
        ref_block_hash: bytes(raw_json, "ref_block_hash")?,
        expiration: integer(raw_json, "expiration")?,
        data: bytes(raw_json, "data")?,
        contract: contracts.iter().filter_map(|contract| contract_from(contract.as_object()?, visible)).collect(),
        scripts: bytes(raw_json, "scripts")?,
        timestamp: integer(raw_json, "timestamp")?,
        fee_limit: integer(raw_json, "fee_limit")?,
    };
    let signatures = match json.get("signature") {
        Some(Value::Array(signatures)) => {
            signatures.iter().map(|text| text.as_str().and_then(unhex).ok_or_else(not_hex)).collect::<Result<_, _>>()?
        }
        _ => Vec::new(),
    };
    Ok(Received::new(raw, signatures))
}

fn contract_from(json: &Map<String, Value>, visible: bool) -> Option<Contract> {
    let parameter = json.get("parameter")?.as_object()?;
    let value = parameter.get("value")?.as_object()?;
    let address = |name| match value.get(name) {
        None => Some(Vec::new()),
        Some(text) => address_bytes(text.as_str()?, visible),
    };
    let (kind, url, value) = match json.get("type")?.as_str()? {
        "TransferContract" => {
            let (owner_address, to_address) = (address("owner_address")?, address("to_address")?);
            let transfer = Transfer { owner_address, to_address, amount: integer(value, "amount").ok()? };
            (proto::TRANSFER, Transfer::URL, transfer.encode_to_vec())
        }
        "TriggerSmartContract" => {
            let trigger = Trigger {
                owner_address: address("owner_address")?,
                contract_address: address("contract_address")?,
                call_value: integer(value, "call_value").ok()?,
                data: bytes(value, "data").ok()?,
                call_token_value: integer(value, "call_token_value").ok()?,
                token_id: integer(value, "token_id").ok()?,
            };
            (proto::TRIGGER, Trigger::URL, trigger.encode_to_vec())
        }
        _ => return None,
    };
    let type_url = parameter.get("type_url").and_then(Value::as_str).unwrap_or(url).to_owned();
    let permission_id = i32::try_from(integer(json, "Permission_id").ok()?).ok()?;
    Some(Contract { kind, parameter: Some(Any { type_url, value }), permission_id, ..Contract::default() })
}

fn not_hex() -> Failed {
    Failed::new("org.tron.core.services.http.JsonFormat$ParseException", "INVALID hex String")
}

fn bytes(json: &Map<String, Value>, name: &str) -> Result<Vec<u8>, Failed> {
    match json.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(text) => text.as_str().and_then(unhex).ok_or_else(not_hex),
    }
}

/// A number, or a text with one.
pub fn integer(json: &Map<String, Value>, name: &str) -> Result<i64, Failed> {
    let number = match json.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(Value::Number(number)) => number.as_i64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    number.ok_or_else(|| Failed::new("java.lang.NumberFormatException", format!("For input string: \"{name}\"")))
}

/// Hex with or without `0x`; a missing first digit is a zero.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix("0x").unwrap_or(text);
    if text.len() % 2 == 1 { hex::decode(format!("0{text}")).ok() } else { hex::decode(text).ok() }
}

/// The bytes that a text says an address is; whether they are one is for the checks to say.
pub fn address_bytes(text: &str, visible: bool) -> Option<Vec<u8>> {
    if visible { bitcoin::base58::decode_check(text).ok() } else { unhex(text) }
}
