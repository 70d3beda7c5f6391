//! How the log writes what has one text: amounts, hashes, names, jobs.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use domain::RawAmount;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};
use tx::TxHash;

use crate::approved::SignerChain;
use crate::digest::{Digest32, hex, hex32, unhex32};
use crate::names::{JobId, KeyName, Person, RequestId, SignerName};
use crate::slot::Slot;

/// An amount as decimal text, because JSON's numbers end at 2^53.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RawText(pub RawAmount);

/// 32 bytes as small hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(pub Digest32);

/// An output of a Bitcoin transaction that was spent. 36 bytes, because one is kept for every input ever signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpentOutput(pub TxHash, pub u32);

impl fmt::Display for SpentOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

impl FromStr for SpentOutput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (transaction, index) = text.split_once(':')?;
            Some(Self(transaction.parse().ok()?, index.parse().ok()?))
        };
        read().ok_or_else(|| "an output is its transaction, a colon and its number".to_owned())
    }
}

impl fmt::Display for RawText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for RawText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|error: domain::raw::RawAmountError| error.to_string())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        unhex32(text).map(Self).ok_or_else(|| "a hash is 64 small hexadecimal digits".to_owned())
    }
}

/// Reads what has one text, without a copy of it.
struct OfText<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for OfText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(de::Error::custom)
    }
}

fn of_text<'de, T: FromStr<Err: fmt::Display>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_str(OfText(PhantomData))
}

macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                of_text(deserializer)
            }
        }
    )*};
}

as_text!(RawText, SpentOutput, Slot, JobId, KeyName, Person, RequestId, SignerName, SignerChain);

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&hex32(&self.0)) {
            Ok(digits) => serializer.serialize_str(digits),
            Err(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        of_text(deserializer)
    }
}
