//! What the log said earlier: whether it contains an old head, and the whole chain for those who look into it.

use super::entry::Entry;
use super::folder::{Folder, read_all};
use super::{Head, LogError, SEGMENT, named, numbered, on, segment};

/// The segments before those whose heads are in memory.
pub struct OldHeads<F: Folder> {
    pub(super) folder: F,
    /// Where memory begins.
    pub(super) oldest: Head,
}

impl<F: Folder> OldHeads<F> {
    /// Reads from the segment that holds the head up to where memory begins.
    pub fn check(&self, pinned: &Head) -> Result<(), LogError> {
        let segments = numbered(&self.folder, SEGMENT)?;
        let from = segments.iter().rposition(|first| *first <= pinned.entries + 1).unwrap_or(0);
        let (mut head, mut found, mut linked) = (None, false, false);
        for first in segments.iter().skip(from).take_while(|first| **first <= self.oldest.entries) {
            let name = named(SEGMENT, *first);
            let file = on(&self.folder, "open", &name, self.folder.open(&name))?;
            let bytes = on(&self.folder, "read", &name, read_all(&file))?;
            let head = head.get_or_insert(segment::start_of(&bytes).unwrap_or_default());
            found |= *head == *pinned;
            segment::read(&bytes, &self.folder.describe(&name), head, false, |batch| {
                found |= batch.head() == *pinned;
                linked |= batch.head() == self.oldest;
                Ok(())
            })?;
        }
        if found && linked { Ok(()) } else { Err(LogError::Diverged { pinned: pinned.entries }) }
    }
}

/// Reads the whole chain from its first entry, without changing anything: for `verify`, `show`, `export` and `simulate`.
/// An end that is torn is not an error: the process may be writing.
pub fn walk<F: Folder>(folder: &F, visit: impl FnMut(u64, &Entry)) -> Result<Head, LogError> {
    walk_frames(folder, |_| {}, visit)
}

/// The same, with the head after each batch.
pub fn walk_frames<F: Folder>(
    folder: &F,
    mut batch_ends: impl FnMut(&Head),
    mut visit: impl FnMut(u64, &Entry),
) -> Result<Head, LogError> {
    let mut head = Head::default();
    let segments = numbered(folder, SEGMENT)?;
    for (place, first) in segments.iter().enumerate() {
        let name = named(SEGMENT, *first);
        if *first != head.entries + 1 {
            return Err(LogError::Damaged { file: folder.describe(&name), at: 0, why: "a segment is missing" });
        }
        let file = on(folder, "open", &name, folder.open(&name))?;
        let bytes = on(folder, "read", &name, read_all(&file))?;
        let last = place + 1 == segments.len();
        segment::read(&bytes, &folder.describe(&name), &mut head, last, |batch| {
            batch_ends(&batch.head());
            let entries = batch.read()?;
            let count = u64::try_from(entries.len()).unwrap_or(u64::MAX);
            for (number, entry) in (batch.entries + 1 - count..).zip(&entries) {
                visit(number, entry);
            }
            Ok(())
        })?;
    }
    Ok(head)
}
