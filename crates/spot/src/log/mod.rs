//! The write-ahead log: segments `wal-….log` of fixed size, each a header block and then one record per batch.
//!
//! Every record begins on a block of 4 KiB, and **no block that holds an acknowledged operation is ever written
//! again**: a disk that fails may spoil the block that it writes, and this block holds nothing that was promised
//! before. Segments are filled with zeros and synced before they are used, so a sync writes data and no metadata.

pub(crate) mod format;
pub mod read;
pub(crate) mod write;

/// The most that a disk writes whole or not at all, at best. Records, segments and writes are multiples of it.
pub const BLOCK: usize = 4_096;

pub(crate) fn segment_name(number: u64) -> String {
    format!("wal-{number:010}.log")
}

pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("wal-")?.strip_suffix(".log")?;
    digits.parse().ok().filter(|number| segment_name(*number) == name)
}

/// Is this a file that was being made when the process ended? It never got its name, so nothing relies on it.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.ends_with(UNFINISHED) && (name.starts_with("wal-") || name.starts_with("snap-"))
}

pub(crate) const UNFINISHED: &str = ".tmp";
