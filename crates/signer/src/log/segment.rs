//! One segment: what it begins with, its frames, and where they end.
//!
//! **Behind the last frame there may be zeros**: room that was written beforehand, so that a sync has the bytes of a frame to write and nothing about the
//! file. No frame begins with a zero, so they are no entry and no damage. Older versions left no room, and their segments are read as they are.

use super::entry::Entry;
use super::{Head, LogError, frame};
use crate::digest::{Digest32, sha256};
use crate::text::Hash;

/// What a segment begins with: which chain it goes on with.
pub(super) fn start(head: &Head) -> Vec<u8> {
    let mut bytes = b"bursar-signer-log-v1\n".to_vec();
    bytes.extend_from_slice(&head.entries.to_be_bytes());
    bytes.extend_from_slice(&head.hash.0);
    let check = sha256(&bytes);
    bytes.extend_from_slice(&check);
    bytes
}

/// The head that a segment says it goes on from.
pub(super) fn start_of(bytes: &[u8]) -> Option<Head> {
    let label = start(&Head::default()).len() - 32 - 32 - 8;
    let (entries, rest) = bytes.get(label..)?.split_first_chunk::<8>()?;
    let head = Head { entries: u64::from_be_bytes(*entries), hash: Hash(*rest.first_chunk::<32>()?) };
    bytes.starts_with(&start(&head)).then_some(head)
}

/// A frame that proved itself and its place in the chain. Its entries are read when they are asked for.
pub(super) struct Batch<'a> {
    /// The number of its last entry.
    pub(super) entries: u64,
    pub(super) hash: Digest32,
    count: u32,
    body: &'a [u8],
    file: &'a str,
    at: u64,
}

impl Batch<'_> {
    pub(super) const fn head(&self) -> Head {
        Head { entries: self.entries, hash: Hash(self.hash) }
    }

    pub(super) fn read(&self) -> Result<Vec<Entry>, LogError> {
        let damaged = |why| LogError::Damaged { file: self.file.to_owned(), at: self.at, why };
        let entries: Vec<Entry> = serde_json::from_slice(self.body)
            .map_err(|_| damaged("the entries are not as this version writes them"))?;
        if u32::try_from(entries.len()) != Ok(self.count) {
            return Err(damaged("the number of entries"));
        }
        Ok(entries)
    }
}

/// Where the frames of a segment end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    pub(super) frames: usize,
    /// What is left of a write that was torn ends here. The same place: nothing was torn.
    pub(super) torn: usize,
}

/// Where the last byte is that is no zero.
fn without_zeros(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Reads one segment from where `head` says it begins. A torn end is an error unless it is allowed.
pub(super) fn read(
    bytes: &[u8],
    file: &str,
    head: &mut Head,
    torn_end: bool,
    mut visit: impl FnMut(&Batch<'_>) -> Result<(), LogError>,
) -> Result<End, LogError> {
    let place = |at: usize| u64::try_from(at).unwrap_or(u64::MAX);
    let damaged = |at: usize, why| LogError::Damaged { file: file.to_owned(), at: place(at), why };
    let start = start(head);
    if bytes.get(..start.len()) != Some(&start[..]) {
        return Err(damaged(0, "it does not go on where the one before it ends"));
    }
    let mut at = start.len();
    while at < bytes.len() {
        let Some((frame, length)) = frame::read(&bytes[at..]) else {
            let torn = at + without_zeros(&bytes[at..]);
            if torn == at || torn_end && !frame::any(&bytes[at + 1..]) {
                return Ok(End { frames: at, torn });
            }
            return Err(damaged(at, "a frame does not fit its hash"));
        };
        if frame.before != head.hash.0 || frame.first != head.entries + 1 {
            return Err(damaged(at, "a frame does not follow the one before it"));
        }
        if frame.count == 0 {
            return Err(damaged(at, "the number of entries"));
        }
        *head = Head { entries: head.entries + u64::from(frame.count), hash: Hash(frame.hash) };
        let (entries, hash, count, body) = (head.entries, frame.hash, frame.count, frame.body);
        visit(&Batch { entries, hash, count, body, file, at: place(at) })?;
        at += length;
    }
    Ok(End { frames: at, torn: at })
}
