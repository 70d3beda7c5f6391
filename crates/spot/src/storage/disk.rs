//! A real folder.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Advice, OFlags, fadvise};

use crate::error::SpotError;
use crate::log::BLOCK;

use super::{File, Storage};

pub struct Disk {
    folder: PathBuf,
    /// Locked as long as this exists: two engines that write to one log would destroy it.
    lock: Option<fs::File>,
}

const LOCK: &str = "lock";

impl Disk {
    /// Opens the folder for the one process that may write to it. `Ok(None)`: another process has it.
    pub fn exclusive(folder: &Path) -> io::Result<Option<Self>> {
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(folder.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { folder: folder.to_owned(), lock: Some(lock) })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// The folder for this process alone; an error says why it cannot be had.
    pub fn lock(folder: &Path) -> Result<Self, SpotError> {
        let name = folder.display().to_string();
        match Self::exclusive(folder) {
            Ok(Some(disk)) => Ok(disk),
            Ok(None) => Err(SpotError::InUse { folder: name }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SpotError::Missing { folder: name }),
            Err(source) => Err(SpotError::Storage { what: "open", file: name, source }),
        }
    }

    /// Makes the folder with all that is missing above it, and makes each of their names durable.
    pub fn make_folder(folder: &Path) -> io::Result<()> {
        make_folder(folder, |parent| fs::File::open(parent)?.sync_all())
    }

    /// Opens the folder for reading, beside the process that writes to it.
    pub fn for_reading(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), lock: None }
    }
}

/// A new folder is an entry of its parent, so the parent of each is synced, the highest first. The parent of a folder that
/// was there is synced too: the process that made it may have died before it came to that.
fn make_folder(folder: &Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let missing = folder.ancestors().take_while(|one| !one.as_os_str().is_empty() && !one.exists()).count();
    fs::create_dir_all(folder)?;
    let changed: Vec<&Path> = folder.ancestors().skip(1).take(missing.max(1)).collect();
    for parent in changed.into_iter().rev() {
        sync(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    }
    Ok(())
}

/// An open file. A file that is written in blocks goes past the page cache where the file system allows it: a sync then
/// need not look for changed pages, which saves a tenth of its time, and the kernel copies nothing.
pub struct DiskFile {
    file: fs::File,
    /// A buffer for writes past the page cache, which must come from aligned memory. `None`: through the page cache.
    blocks: Option<Mutex<Vec<u8>>>,
}

impl From<fs::File> for DiskFile {
    fn from(file: fs::File) -> Self {
        Self { file, blocks: None }
    }
}

impl Storage for Disk {
    type File = DiskFile;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            // All names of the log are text, so a name that is not text belongs to something else.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<DiskFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        options.open(self.folder.join(name)).map(DiskFile::from)
    }

    fn open(&self, name: &str) -> io::Result<DiskFile> {
        let file = OpenOptions::new().read(true).write(self.lock.is_some()).open(self.folder.join(name))?;
        Ok(file.into())
    }

    fn open_for_blocks(&self, name: &str) -> io::Result<DiskFile> {
        let flag = OFlags::DIRECT.bits().cast_signed();
        let opened = OpenOptions::new().read(true).write(true).custom_flags(flag).open(self.folder.join(name));
        match opened {
            Ok(file) => Ok(DiskFile { file, blocks: Some(Mutex::default()) }),
            // The file system cannot write past the page cache, so the file is written through it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.open(name),
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.folder.join(from), self.folder.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        fs::File::open(&self.folder)?.sync_all()
    }

    fn describe(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl File for DiskFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let Some(blocks) = &self.blocks else { return FileExt::write_at(&self.file, bytes, at) };
        let mut blocks = blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.len() < bytes.len() + BLOCK {
            blocks.resize(bytes.len() + BLOCK, 0);
        }
        let aligned = blocks.as_ptr().align_offset(BLOCK);
        let aligned = blocks.get_mut(aligned..aligned + bytes.len()).ok_or(io::ErrorKind::InvalidData)?;
        aligned.copy_from_slice(bytes);
        FileExt::write_at(&self.file, aligned, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn forget_cached(&self) -> io::Result<()> {
        // Without this the kernel would read megabytes ahead, and the writer's own writes would wait behind them.
        fadvise(&self.file, 0, None, Advice::Random)?;
        Ok(fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_a_new_folder_needs_is_durable() {
        let top = tempfile::tempdir().expect("a folder");
        let synced = |folder: PathBuf| {
            let mut synced = Vec::new();
            make_folder(&folder, |parent| {
                // The name must be there before its folder is synced.
                assert!(folder.is_dir());
                synced.push(parent.strip_prefix(top.path()).expect("below the top").display().to_string());
                Ok(())
            })
            .expect("made");
            synced
        };
        assert_eq!(synced(top.path().join("a/b/c")), ["", "a", "a/b"]);
        assert_eq!(synced(top.path().join("a/b/c")), ["a/b"], "its maker may have died before the sync");
        assert_eq!(synced(top.path().join("a/d")), ["a"]);
        let failed = make_folder(&top.path().join("x"), |_| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(failed.expect_err("the sync failed").kind(), io::ErrorKind::StorageFull);
    }

    /// The kernel refuses to sync a pipe or a folder of /proc. Whoever does not hear of that did not ask for a sync.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_sync_is_asked_of_the_kernel() {
        let folder = tempfile::tempdir().expect("a folder");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        let disk = Disk::lock(folder.path()).expect("nobody else has it");
        let refused = |done: io::Result<()>| done.expect_err("refused").kind() == io::ErrorKind::InvalidInput;
        assert!(refused(disk.open("pipe").expect("opened").sync()));
        assert!(refused(disk.create("pipe").expect("opened").sync()));
        assert!(refused(Disk::for_reading(Path::new("/proc/self")).sync_directory()));
        assert!(refused(Disk::make_folder(Path::new("/proc/self"))), "the parent of a folder that is there");
        disk.sync_directory().expect("a real folder");
    }
}
