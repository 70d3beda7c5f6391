//! The few operations that the engine needs of a disk, as a trait, so that tests can run it on a disk that fails.
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
    /// Opens a file that is there, for reading, and for writing if this process may write to the folder.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Opens a file that is only written in whole blocks, with a sync after each write.
    fn open_for_blocks(&self, name: &str) -> io::Result<Self::File> {
        self.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// The path of a file, or of the folder if the name is empty, for messages.
    fn describe(&self, name: &str) -> String;
}

/// Behaves like the system calls: a read or a write of fewer bytes than asked for is no error.
pub trait File: Send + 'static {
    fn length(&self) -> io::Result<u64>;
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    /// fdatasync: when it returns, all that was written is durable.
    fn sync(&self) -> io::Result<()>;
    /// Drops cached pages that are clean, so that the next read comes from the disk. After a failed sync the cache
    /// holds bytes that the disk does not.
    fn forget_cached(&self) -> io::Result<()>;
}

/// Writes all bytes, in as many writes as the file needs.
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

/// Reads until the buffer is full or the file ends, and returns how many bytes it read.
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

/// Makes a file that is there whole or not at all: it is written under another name, synced and renamed, and the folder
/// is synced.
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
        // The log may need the room on a full disk. An error of the removal is ignored: the first one says what is
        // wrong.
        storage.remove(&unfinished).ok();
        return Err(error);
    }
    storage.sync_directory().on_file("sync", || storage.describe(""))
}
