//! A snapshot: the whole state in one file, so that a start need not read what came before.
//!
//! | part | what |
//! |---|---|
//! | start | `bursar-signer-snapshot-v2` and a line end, the head's number and hash |
//! | times | of the newest entry, and from when on jobs are known |
//! | policies | text and when it holds |
//! | chains | their names; a slot has the number of its chain's place here |
//! | spent | by chain, group and counter: minutes and hours with their sums |
//! | counters, revoked | of passkeys and approvals |
//! | amounts | of inputs, by chain |
//! | jobs | number, payment, intent, round, fee, what it holds, and what few have |
//! | holders | of nonces, then of inputs: slot and job |
//! | requests | half of the hash of the id, content, time |
//! | end | SHA-256 of all before it |
//!
//! Numbers are big end first, texts and lists have their length before them, and lists are sorted. It is written and read in
//! slices: beside the state there is never more than a few of them in memory. **No length in the file is believed**: a list is
//! read record by record, and nothing is taken up before the hash at the end fits.
//!
//! Versions before wrote the state as JSON. That is read, and no longer written.

mod json;
mod read;
mod write;

pub(super) use read::read;

use super::folder::FolderFile;
use super::{Head, LogError};
use crate::state::State;

const MAGIC: &[u8] = b"bursar-signer-snapshot-v2\n";
/// So much is written, read and hashed at once.
const SLICE: usize = 1 << 20;
/// No text is longer: a policy is the longest.
const LONGEST_TEXT: u32 = 16 << 20;

/// What of a job's record follows.
const CANCELLED: u8 = 1;
const HAS_SELDOM: u8 = 2;
const HELD_NONCE: u8 = 0;
const HELD_INPUTS: u8 = 4;
const HELD_UNTIL: u8 = 8;
const HELD: u8 = HELD_INPUTS | HELD_UNTIL;

/// A snapshot that is taken and not written yet. Any thread may write it, while signing goes on.
pub struct TakenSnapshot<W> {
    pub(super) file: W,
    /// The file's name as long as it is not whole, for messages.
    pub(super) path: String,
    pub(super) head: Head,
    pub(super) state: State,
}

/// A snapshot whose bytes are durable, and which has not its name yet.
#[derive(Debug)]
pub struct WrittenSnapshot {
    pub(super) entries: u64,
}

impl<W: FolderFile> TakenSnapshot<W> {
    /// The newest entry that it holds.
    pub const fn entries(&self) -> u64 {
        self.head.entries
    }

    /// Writes and syncs it. An error: the log is as it was, and goes on without this snapshot.
    pub fn write(self) -> Result<WrittenSnapshot, LogError> {
        let failed = |what, source| LogError::Storage { what, file: self.path.clone(), source };
        write::write(&self.file, &self.head, &self.state).map_err(|source| failed("write to", source))?;
        self.file.sync().map_err(|source| failed("sync", source))?;
        Ok(WrittenSnapshot { entries: self.head.entries })
    }
}
