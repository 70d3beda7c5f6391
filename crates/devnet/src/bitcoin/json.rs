//! Answers as Core writes them: keys in its order, amounts with eight decimals, and no float anywhere.

use std::borrow::Cow;

use alloy_primitives::hex;

#[derive(Clone, Debug)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// Digits as they are.
    Number(String),
    Text(String),
    /// Bytes that are shown in hexadecimal digits.
    Hex(Vec<u8>),
    Array(Vec<Json>),
    Object(Vec<(Cow<'static, str>, Json)>),
    /// What the client sent.
    Echo(serde_json::Value),
}

/// `1.00000000`.
pub(super) fn coins(sat: u64) -> String {
    format!("{}.{:08}", sat / 100_000_000, sat % 100_000_000)
}

impl Json {
    pub fn amount(sat: u64) -> Self {
        Self::Number(coins(sat))
    }

    pub fn raw(digits: &str) -> Self {
        Self::Number(digits.to_owned())
    }

    /// Adds a field to an object.
    pub fn push(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Self>) {
        if let Self::Object(fields) = self {
            fields.push((key.into(), value.into()));
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Self::Number(digits) => out.extend_from_slice(digits.as_bytes()),
            Self::Text(text) => out.extend_from_slice(&serde_json::to_vec(text).unwrap_or_default()),
            Self::Hex(bytes) => {
                out.push(b'"');
                let from = out.len();
                out.resize(from + bytes.len() * 2, b'0');
                // The room is twice the bytes, which is all that this can fail for.
                hex::encode_to_slice(bytes, &mut out[from..]).unwrap_or_default();
                out.push(b'"');
            }
            Self::Array(items) => {
                out.push(b'[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Self::Object(fields) => {
                out.push(b'{');
                for (at, (key, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(&serde_json::to_vec(key).unwrap_or_default());
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
            Self::Echo(value) => out.extend_from_slice(&serde_json::to_vec(value).unwrap_or_default()),
        }
    }
}

/// `object! { "key" => value, … }`
macro_rules! object {
    ($($key:expr => $value:expr),* $(,)?) => {
        $crate::bitcoin::json::Json::Object(vec![
            $((std::borrow::Cow::from($key), $crate::bitcoin::json::Json::from($value))),*
        ])
    };
}
pub(super) use object;

macro_rules! from {
    ($($from:ty => |$value:ident| $json:expr),* $(,)?) => {
        $(impl From<$from> for Json {
            fn from($value: $from) -> Self {
                $json
            }
        })*
    };
}

from! {
    bool => |value| Self::Bool(value),
    i32 => |value| Self::Number(value.to_string()),
    i64 => |value| Self::Number(value.to_string()),
    u32 => |value| Self::Number(value.to_string()),
    u64 => |value| Self::Number(value.to_string()),
    usize => |value| Self::Number(value.to_string()),
    &str => |value| Self::Text(value.to_owned()),
    String => |value| Self::Text(value),
    Vec<Json> => |value| Self::Array(value),
    ::bitcoin::Txid => |value| Self::Text(value.to_string()),
    ::bitcoin::Wtxid => |value| Self::Text(value.to_string()),
    ::bitcoin::BlockHash => |value| Self::Text(value.to_string()),
}
