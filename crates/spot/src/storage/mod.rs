//! The few things that the engine asks of a disk, as a trait, so that tests can lie about them.
//!
//! `turmoil-fs` was looked at first: its files know lost and torn writes, but not short writes, failing syncs that
//! drop data, garbage in torn blocks or half-done directory changes, and they live in thread-locals
//! (docs/adr/0004-spot-engine.md).

pub mod disk;

use std::io;

use crate::error::{OnFile, SpotError};
use crate::log::UNFINISHED;

/// One folder of files. All names are plain file names.
pub trait Storage: Send + Sync + 'static {
    type File: File;

    fn names(&self) -> io::Result<Vec<String>>;
    /// Makes an empty file, or empties the one that is there.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens a file that is there, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Opens a file that is only written in whole blocks, with a sync after each write.
    fn open_for_blocks(&self, name: &str) -> io::Result<Self::File> {
        self.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// Where the files are, for messages.
    fn describe(&self, name: &str) -> String;
}

/// As the system calls have it: fewer bytes than asked for is no error.
pub trait File: Send + 'static {
    fn length(&self) -> io::Result<u64>;
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    /// fdatasync: what was written is durable when it returns.
    fn sync(&self) -> io::Result<()>;
    /// Forgets what is only remembered, so that the next read is of the disk. After a failed sync the two differ.
    fn forget_cached(&self) -> io::Result<()>;
}

/// Writes all of it, however the file cuts it up.
pub fn write_all(file: &impl File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = bytes.get(written..).ok_or(io::ErrorKind::InvalidData)?;
                at += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends; how much it was.
pub fn read_full(file: &impl File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A file that is there whole or not at all: written under another name, synced, renamed, and the folder synced.
pub(crate) fn make_whole<S: Storage>(
    storage: &S,
    name: &str,
    write: impl FnOnce(&S::File) -> io::Result<()>,
) -> Result<(), SpotError> {
    let unfinished = format!("{name}{UNFINISHED}");
    let path = || storage.describe(&unfinished);
    let finish = || -> Result<(), SpotError> {
        let file = storage.create(&unfinished).on_file("create", path)?;
        write(&file).on_file("write to", path)?;
        file.sync().on_file("sync", path)?;
        storage.rename(&unfinished, name).on_file("rename", path)
    };
    if let Err(error) = finish() {
        // On a full disk the log needs the room. The first error is the one that tells.
        storage.remove(&unfinished).ok();
        return Err(error);
    }
    storage.sync_directory().on_file("sync", || storage.describe(""))
}
