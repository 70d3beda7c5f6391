//! The write-ahead log: segments `wal-….log` of fixed size, each a header block and then one record per batch.
//!
//! Everything begins on a block of 4 KiB, and **no block that holds an acknowledged operation is ever written again**:
//! whatever a failing disk does to the block being written, it cannot touch what was promised before.
//! Segments are filled with zeros and synced before they are used, so a sync has only data to write.

pub mod format;
pub mod read;
pub mod write;

/// What a disk writes at once, at best; the unit of everything here.
pub const BLOCK: usize = 4_096;

pub(crate) fn segment_name(number: u64) -> String {
    format!("wal-{number:010}.log")
}

pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("wal-")?.strip_suffix(".log")?;
    digits.parse().ok().filter(|number| segment_name(*number) == name)
}

/// A file that was being made when the machine stopped. Nobody relies on it.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.ends_with(UNFINISHED) && (name.starts_with("wal-") || name.starts_with("snap-"))
}

pub(crate) const UNFINISHED: &str = ".tmp";
