//! Other people's wallets, taken over with their whole history.
//!
//! | module | holds |
//! |---|---|
//! | `core`, `core_parts` | what Bitcoin Core's commands print, as `docs/import.md` has them saved |
//! | `bdk`, `bdk_file` | the SQLite file of `bdk_wallet` |
//! | `descriptor` | the scripts that a descriptor stands for |
//! | `read` | amounts, hashes and transactions from text and bytes |
//! | `order` | which transactions lost their inputs to others, and the order in which all are stored |
//! | `run` | an [`Export`] into the store, and the proof that nothing is missing |
//!
//! **A source is only ever read.** **What it claims is proven at the end**: every unspent output and each kind of balance,
//! or the import fails with `UTXO_IMPORT_MISMATCH`. **An import can be run again** at any time, after a crash too: what is
//! stored already is passed over.

mod bdk;
mod bdk_file;
mod core;
mod core_parts;
mod descriptor;
mod order;
mod read;
mod run;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use store::utxo::{Hash, Imported, NewAddress, OutPoint, UtxoError};

pub use bdk::read_bdk;
pub use core::read_core;
pub use run::{Progress, Report, Step, import};

/// A wallet as its source has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub network: store::utxo::Network,
    pub addresses: Vec<NewAddress>,
    /// The last block that the source knew.
    pub tip: Option<(u32, Hash)>,
    /// In the order in which they are stored: by height, then those in no block; each that lost its inputs to another comes
    /// before that one.
    pub transactions: Vec<Imported>,
    /// What the source says is unspent.
    pub unspent: BTreeMap<OutPoint, Claim>,
    /// Transactions that the source no longer holds for valid, and that nothing in it contradicts: why.
    pub left_out: Vec<(Hash, &'static str)>,
    /// What the owner should know.
    pub notes: Vec<String>,
}

/// An unspent output, as the source has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Satoshi.
    pub amount: i64,
    /// `None`: in no block.
    pub height: Option<u32>,
    pub coinbase: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{}: {reason}", .file.display())]
    BadFile { file: PathBuf, reason: String },
    #[error("what was imported does not come to what the source says: {}", Listed(.0))]
    Mismatch(Vec<String>),
    #[error(transparent)]
    Store(#[from] UtxoError),
}

impl ImportError {
    /// The name of its page in `docs/errors/`.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BadFile { .. } => "UTXO_IMPORT_BAD_FILE",
            Self::Mismatch(_) => "UTXO_IMPORT_MISMATCH",
            Self::Store(error) => error.code(),
        }
    }

    /// What the reader should do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::BadFile { .. } => "make the export again as docs/import.md says; nothing of a bad file is stored",
            Self::Mismatch(_) => {
                "export again and import once more; if it stays, do not use the wallet before it is explained"
            }
            Self::Store(error) => error.hint(),
        }
    }

    fn bad(file: &Path, reason: impl fmt::Display) -> Self {
        Self::BadFile { file: file.to_owned(), reason: reason.to_string() }
    }
}

/// So many differences say enough.
const LISTED: usize = 5;

struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, difference) in self.0.iter().take(LISTED).enumerate() {
            write!(formatter, "{}{difference}", if index == 0 { "" } else { "; " })?;
        }
        match self.0.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(formatter, "; and {more} more"),
        }
    }
}
