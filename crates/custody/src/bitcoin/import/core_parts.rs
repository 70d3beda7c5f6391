//! What Bitcoin Core's commands print: which file holds which answer, and the fields that we read of it.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::ImportError;
use super::read::{Hex32, HexBytes, Satoshi};

/// One answer, and where it stands.
#[derive(Debug)]
pub(super) struct Part {
    file: PathBuf,
    /// Its name in a file that holds them all.
    name: Option<&'static str>,
    text: String,
}

impl Part {
    pub fn bad(&self, reason: impl Display) -> ImportError {
        match self.name {
            None => ImportError::bad(&self.file, reason),
            Some(name) => ImportError::bad(&self.file, format!("{name}: {reason}")),
        }
    }

    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ImportError> {
        serde_json::from_str(&self.text).map_err(|error| self.bad(error))
    }

    /// An object. A list is refused, because serde would take a list of the values for the object.
    pub fn read_object<T: DeserializeOwned>(&self) -> Result<T, ImportError> {
        if self.text.trim_start().starts_with('[') {
            return Err(self.bad("a list is there instead of an object"));
        }
        self.read()
    }

    /// A list, or one value after the other.
    pub fn read_all<T: DeserializeOwned>(&self) -> Result<Vec<T>, ImportError> {
        if self.text.trim_start().starts_with('[') {
            return self.read();
        }
        let values = serde_json::Deserializer::from_str(&self.text).into_iter();
        values.collect::<Result<_, _>>().map_err(|error| self.bad(error))
    }

    /// What `listtransactions` or `listsinceblock` printed.
    pub fn read_history(&self) -> Result<Vec<Entry>, ImportError> {
        if self.text.trim_start().starts_with('[') {
            self.read()
        } else {
            Ok(self.read_object::<Since>()?.transactions)
        }
    }
}

#[derive(Debug)]
pub(super) struct Parts {
    pub chain: Part,
    pub descriptors: Part,
    pub history: Part,
    pub unspent: Part,
    pub transactions: Part,
    pub locked: Option<Part>,
    pub mempool: Option<Part>,
    pub balances: Option<Part>,
}

/// All of them in one file.
#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow)]
    chain: &'a RawValue,
    #[serde(borrow)]
    descriptors: &'a RawValue,
    #[serde(borrow)]
    history: &'a RawValue,
    #[serde(borrow)]
    unspent: &'a RawValue,
    #[serde(borrow)]
    transactions: &'a RawValue,
    #[serde(borrow)]
    locked: Option<&'a RawValue>,
    #[serde(borrow)]
    mempool: Option<&'a RawValue>,
    #[serde(borrow)]
    balances: Option<&'a RawValue>,
}

impl Parts {
    /// Of the folder that the export makes, or of one file with the same names as its keys.
    pub fn read(path: &Path) -> Result<Self, ImportError> {
        if path.is_dir() { Self::of_folder(path) } else { Self::of_file(path) }
    }

    fn of_folder(folder: &Path) -> Result<Self, ImportError> {
        let required = |name: &str| {
            let file = folder.join(name);
            let text = text_of(&file)?;
            Ok::<_, ImportError>(Part { file, name: None, text })
        };
        let optional = |name: &str| if folder.join(name).exists() { required(name).map(Some) } else { Ok(None) };
        Ok(Self {
            chain: required("chain.json")?,
            descriptors: required("descriptors.json")?,
            history: required("history.json")?,
            unspent: required("unspent.json")?,
            transactions: required("transactions.jsonl")?,
            locked: optional("locked.json")?,
            mempool: optional("mempool.json")?,
            balances: optional("balances.json")?,
        })
    }

    fn of_file(file: &Path) -> Result<Self, ImportError> {
        let text = text_of(file)?;
        let whole: Whole<'_> = serde_json::from_str(&text).map_err(|error| ImportError::bad(file, error))?;
        let part = |name, raw: &RawValue| Part { file: file.to_owned(), name: Some(name), text: raw.get().to_owned() };
        Ok(Self {
            chain: part("chain", whole.chain),
            descriptors: part("descriptors", whole.descriptors),
            history: part("history", whole.history),
            unspent: part("unspent", whole.unspent),
            transactions: part("transactions", whole.transactions),
            locked: whole.locked.map(|raw| part("locked", raw)),
            mempool: whole.mempool.map(|raw| part("mempool", raw)),
            balances: whole.balances.map(|raw| part("balances", raw)),
        })
    }
}

fn text_of(file: &Path) -> Result<String, ImportError> {
    fs::read_to_string(file).map_err(|error| ImportError::bad(file, format!("it cannot be read: {error}")))
}

/// `getblockchaininfo`
#[derive(Debug, Deserialize)]
pub(super) struct ChainInfo {
    pub chain: String,
    pub blocks: u32,
    pub bestblockhash: Hex32,
}

/// `listdescriptors`
#[derive(Debug, Deserialize)]
pub(super) struct Descriptors {
    pub descriptors: Vec<Described>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Described {
    pub desc: String,
    #[serde(default)]
    pub active: bool,
    pub range: Option<(u32, u32)>,
}

#[derive(Debug, Deserialize)]
struct Since {
    transactions: Vec<Entry>,
}

/// One output of a transaction. The fields about the transaction itself are the same in all its entries.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub txid: Hex32,
    pub address: Option<String>,
    pub category: String,
    pub confirmations: i64,
    pub blockhash: Option<Hex32>,
    pub blockheight: Option<u32>,
    pub blockindex: Option<u32>,
    pub blocktime: Option<u32>,
    pub timereceived: Option<u64>,
    #[serde(default)]
    pub abandoned: bool,
    /// Since Core 28.
    #[serde(default)]
    pub mempoolconflicts: Vec<Hex32>,
}

/// `listunspent`
#[derive(Debug, Deserialize)]
pub(super) struct Unspent {
    pub txid: Hex32,
    pub vout: u32,
    pub address: Option<String>,
    #[serde(rename = "scriptPubKey")]
    pub script: HexBytes,
    pub amount: Satoshi,
}

/// `listlockunspent`
#[derive(Debug, Deserialize)]
pub(super) struct Locked {
    pub txid: Hex32,
    pub vout: u32,
}

/// `gettransaction`, of which an export may keep only these two fields.
#[derive(Debug, Deserialize)]
pub(super) struct Raw {
    pub txid: Hex32,
    pub hex: HexBytes,
}

/// `getbalances`
#[derive(Debug, Deserialize)]
pub(super) struct Balances {
    pub mine: Kinds,
    pub watchonly: Option<Kinds>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Kinds {
    pub trusted: Satoshi,
    pub untrusted_pending: Satoshi,
    pub immature: Satoshi,
    pub used: Option<Satoshi>,
}

impl Balances {
    pub fn total(&self) -> i64 {
        let kinds = [Some(&self.mine), self.watchonly.as_ref()];
        let sums = kinds.into_iter().flatten().map(|kinds| {
            [kinds.trusted.0, kinds.untrusted_pending.0, kinds.immature.0, kinds.used.map_or(0, |used| used.0)]
        });
        // Each is at most all the coins there can be, so the sum of eight is far from the end of an i64.
        sums.flatten().sum()
    }
}
