//! JSON objects in which no member stands twice, at any depth.
//!
//! The standard lets a reader choose the first or the last of two members of one name. Two readers that choose
//! differently see two different tokens under one signature.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The object that the bytes are, and nothing before or after it but white space.
pub(super) fn object(bytes: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::from_slice(bytes)? {
        Unique(Value::Object(members)) => Ok(members),
        Unique(_) => Err(serde_json::Error::custom("not an object")),
    }
}

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = access.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let Unique(value) = access.next_value()?;
            if members.contains_key(&name) {
                return Err(A::Error::custom("a member stands twice"));
            }
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_serde_json_reads() {
        let text = r#"{"a": [1, -2, 2.5, "x\n", null, true, {"a": {}}], "b": 18446744073709551615, "": ""}"#;
        let expected: Value = serde_json::from_str(text).expect("valid");
        assert_eq!(Value::Object(object(text.as_bytes()).expect("valid")), expected);
    }

    #[test]
    fn refuses_members_that_stand_twice() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"b":2,"a":1}"#,
            // Escaped, it is the same name.
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"a":[0,{"b":1,"b":2}]}"#,
        ] {
            let error = object(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains("stands twice"), "{text}: {error}");
        }
        assert!(object(br#"{"a":{"b":1},"b":{"b":1},"c":[{"b":1},{"b":1}]}"#).is_ok());
    }

    #[test]
    fn refuses_what_is_no_object() {
        for text in ["", " ", "1", "null", "[]", "\"a\"", "{", "{}{}", "{} x", "{\"a\":}", "{'a':1}", "{\"a\":1,}"] {
            assert!(object(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(object(b"{\"a\":\"\xff\"}").is_err(), "not UTF-8");
        assert!(object(b"\xef\xbb\xbf{}").is_err(), "byte order mark");
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(2_000), "]".repeat(2_000));
        assert!(object(deep.as_bytes()).is_err(), "deeper than the stack allows");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            object(&bytes).ok();
        }
    }
}
