//! The few things that the log asks of a disk, as a trait, so that tests can run it on one that fails.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Enough for a thousand payments, and written in a few milliseconds.
const ROOM: usize = 1 << 20;

/// One folder of files. All names are plain file names.
pub trait Folder {
    type File: FolderFile;

    fn names(&self) -> io::Result<Vec<String>>;
    /// Makes an empty file, or empties the one that is there.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    fn open(&self, name: &str) -> io::Result<Self::File>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_folder(&self) -> io::Result<()>;
    /// The path of a file, for messages.
    fn describe(&self, name: &str) -> String;
    /// How many zeros are written ahead of the log, so that most syncs need not write how long the file is.
    fn room(&self) -> usize {
        ROOM
    }
    /// The same folder, for another thread that only reads.
    fn reader(&self) -> Self
    where
        Self: Sized;
}

/// Behaves like the system calls: a read or a write of fewer bytes than asked for is no error.
pub trait FolderFile {
    fn length(&self) -> io::Result<u64>;
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    fn cut(&self, length: u64) -> io::Result<()>;
    /// fdatasync: when it returns, all that was written is durable.
    fn sync(&self) -> io::Result<()>;
}

pub fn write_all(file: &impl FolderFile, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = bytes.get(written..).ok_or(io::ErrorKind::InvalidData)?;
                at = at.saturating_add(u64::try_from(written).map_err(io::Error::other)?);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The whole file.
pub fn read_all(file: &impl FolderFile) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], u64::try_from(filled).map_err(io::Error::other)?) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// A real folder. It is locked for as long as this exists: two signers with one log would each allow the whole window.
pub struct DiskFolder {
    folder: PathBuf,
    lock: Option<fs::File>,
}

impl DiskFolder {
    /// `Ok(None)`: another process has it.
    pub fn exclusive(folder: &Path) -> io::Result<Option<Self>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(parent)?.sync_all()?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(folder.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { folder: folder.to_owned(), lock: Some(lock) })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// For reading beside the process that writes.
    pub fn for_reading(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), lock: None }
    }
}

impl Folder for DiskFolder {
    type File = fs::File;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<fs::File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600).open(self.folder.join(name))
    }

    fn open(&self, name: &str) -> io::Result<fs::File> {
        OpenOptions::new().read(true).write(self.lock.is_some()).open(self.folder.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.folder.join(from), self.folder.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        fs::File::open(&self.folder)?.sync_all()
    }

    fn describe(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn reader(&self) -> Self {
        Self::for_reading(&self.folder)
    }
}

impl FolderFile for fs::File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, at)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
