//! Parameters of calls, checked as strictly as geth checks them, and its errors.

use alloy_primitives::{Address, B256, Bytes, U256, hex};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    pub code: i32,
    pub message: String,
    pub data: Option<String>,
}

impl RpcError {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The code that geth gives to nearly everything.
    pub(super) fn server(message: &str) -> Self {
        Self::new(-32_000, message)
    }

    pub(super) fn argument(index: usize, problem: &str) -> Self {
        Self::new(-32_602, format!("invalid argument {index}: {problem}"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockId {
    Number(u64),
    Hash(B256),
    Latest,
    Pending,
    Earliest,
    Safe,
    Finalized,
}

/// The parameters by position.
pub(super) struct Args(Vec<Value>);

impl Args {
    pub(super) fn new(values: Vec<Value>, at_most: usize) -> Result<Self, RpcError> {
        if values.len() > at_most {
            return Err(RpcError::new(-32_602, format!("too many arguments, want at most {at_most}")));
        }
        Ok(Self(values))
    }

    pub(super) fn optional(&self, index: usize) -> Option<&Value> {
        self.0.get(index).filter(|value| !value.is_null())
    }

    pub(super) fn required(&self, index: usize) -> Result<&Value, RpcError> {
        let missing = || RpcError::new(-32_602, format!("missing value for required argument {index}"));
        self.optional(index).ok_or_else(missing)
    }

    pub(super) fn address(&self, index: usize) -> Result<Address, RpcError> {
        address(self.required(index)?).map_err(|problem| RpcError::argument(index, problem))
    }

    pub(super) fn hash(&self, index: usize) -> Result<B256, RpcError> {
        hash(self.required(index)?).map_err(|problem| RpcError::argument(index, problem))
    }

    pub(super) fn number(&self, index: usize) -> Result<u64, RpcError> {
        number(self.required(index)?).map_err(|problem| RpcError::argument(index, problem))
    }

    pub(super) fn bytes(&self, index: usize) -> Result<Bytes, RpcError> {
        bytes(self.required(index)?).map_err(|problem| RpcError::argument(index, problem))
    }

    pub(super) fn flag(&self, index: usize) -> Result<bool, RpcError> {
        match self.optional(index) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(RpcError::argument(index, "not a boolean")),
        }
    }

    pub(super) fn block(&self, index: usize) -> Result<BlockId, RpcError> {
        block(self.required(index)?).map_err(|problem| RpcError::argument(index, problem))
    }

    pub(super) fn block_or_latest(&self, index: usize) -> Result<BlockId, RpcError> {
        let Some(value) = self.optional(index) else { return Ok(BlockId::Latest) };
        block(value).map_err(|problem| RpcError::argument(index, problem))
    }

    /// A word of storage may be written short.
    pub(super) fn slot(&self, index: usize) -> Result<U256, RpcError> {
        let digits = prefixed(self.required(index)?).map_err(|problem| RpcError::argument(index, problem))?;
        let fits = !digits.is_empty() && digits.len() <= 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let slot = fits.then(|| U256::from_str_radix(digits, 16).ok()).flatten();
        slot.ok_or_else(|| RpcError::argument(index, "unable to decode storage key: hex string invalid"))
    }
}

type Parsed<T> = Result<T, &'static str>;

fn prefixed(value: &Value) -> Parsed<&str> {
    let text = value.as_str().ok_or("non-string")?;
    if text.is_empty() {
        return Err("empty hex string");
    }
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).ok_or("hex string without 0x prefix")
}

/// A number without leading zeros.
fn quantity(value: &Value) -> Parsed<&str> {
    let digits = prefixed(value)?;
    if digits.is_empty() {
        return Err("hex string \"0x\"");
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Err("hex number with leading zero digits");
    }
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("invalid hex string");
    }
    Ok(digits)
}

pub(super) fn number(value: &Value) -> Parsed<u64> {
    u64::from_str_radix(quantity(value)?, 16).map_err(|_| "hex number > 64 bits")
}

pub(super) fn big(value: &Value) -> Parsed<U256> {
    let digits = quantity(value)?;
    if digits.len() > 64 {
        return Err("hex number > 256 bits");
    }
    U256::from_str_radix(digits, 16).map_err(|_| "invalid hex string")
}

pub(super) fn bytes(value: &Value) -> Parsed<Bytes> {
    let digits = prefixed(value)?;
    if digits.len() % 2 == 1 {
        return Err("hex string of odd length");
    }
    // The decoder would take a second prefix.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("invalid hex string");
    }
    hex::decode(digits).map(Bytes::from).map_err(|_| "invalid hex string")
}

pub(super) fn address(value: &Value) -> Parsed<Address> {
    let bytes = bytes(value)?;
    Address::try_from(bytes.as_ref()).map_err(|_| "hex string has the wrong length, want 40 for common.Address")
}

/// An address as people write it, for which a checksum, when there is one, must hold.
pub(super) fn address_text(text: &str) -> Option<Address> {
    let plain = address(&Value::from(text)).ok()?;
    let digits = text.get(2..)?;
    let mixed = digits.bytes().any(|b| b.is_ascii_uppercase()) && digits.bytes().any(|b| b.is_ascii_lowercase());
    (!mixed || plain.to_string() == text).then_some(plain)
}

pub(super) fn hash(value: &Value) -> Parsed<B256> {
    let bytes = bytes(value)?;
    B256::try_from(bytes.as_ref()).map_err(|_| "hex string has the wrong length, want 64 for common.Hash")
}

/// A tag, a number, or the object of EIP-1898.
pub(super) fn block(value: &Value) -> Parsed<BlockId> {
    if let Value::Object(object) = value {
        return match (object.get("blockNumber"), object.get("blockHash")) {
            (Some(_), Some(_)) => Err("cannot specify both BlockHash and BlockNumber, choose one or the other"),
            (Some(number), None) => plain_block(number),
            (None, Some(value)) => hash(value).map(BlockId::Hash),
            (None, None) => Err("block number or hash is missing"),
        };
    }
    // A bare hash is 32 bytes, which no number is.
    match value.as_str().is_some_and(|text| text.len() == 66) {
        true => hash(value).map(BlockId::Hash),
        false => plain_block(value),
    }
}

fn plain_block(value: &Value) -> Parsed<BlockId> {
    Ok(match value.as_str() {
        Some("latest") => BlockId::Latest,
        Some("pending") => BlockId::Pending,
        Some("earliest") => BlockId::Earliest,
        Some("safe") => BlockId::Safe,
        Some("finalized") => BlockId::Finalized,
        Some(_) | None => BlockId::Number(number(value)?),
    })
}
