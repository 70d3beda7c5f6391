//! Names that files, requests and rows share: 1 to 64 of `a-z`, `0-9`, `-`, `_` and `.`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Why a text is no name. It says what a name of this kind is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadName(&'static str);

impl BadName {
    pub const fn new(why: &'static str) -> Self {
        Self(why)
    }
}

/// A name becomes a part of a path in a secret store: none is `..`.
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with(['.', '-'])
}

/// A wallet group: one mnemonic, one chain family, one purpose.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(String);

impl GroupId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WHY: BadName = BadName("a wallet group's id is 1 to 64 of a-z, 0-9, -, _ and .");
        is_name(text).then(|| Self(text.to_owned())).ok_or(WHY)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for GroupId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GroupId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_strict() {
        assert_eq!("users-evm.2".parse::<GroupId>().expect("a name").as_str(), "users-evm.2");
        for bad in ["", ".", "..", "-x", "Users", "a/b", "a b", "é", &"a".repeat(65)] {
            assert!(bad.parse::<GroupId>().is_err(), "{bad:?}");
        }
    }
}
