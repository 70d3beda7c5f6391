//! Files of a signer's folder: private, and replaced as a whole. A crash between any two steps leaves the old file or the new one.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use zeroize::Zeroizing;

use super::error::KeyError;

/// Nothing that is read here is longer.
const MOST_BYTES: u64 = 1 << 20;

/// What a replacement does, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Begun,
    Made,
    Written,
    Synced,
    Renamed,
    FolderSynced,
}

#[cfg(feature = "testing")]
impl Step {
    pub const ALL: [Self; 6] =
        [Self::Begun, Self::Made, Self::Written, Self::Synced, Self::Renamed, Self::FolderSynced];
}

pub(super) fn failed(what: &'static str, file: &Path) -> impl FnOnce(io::Error) -> KeyError {
    let file = file.display().to_string();
    move |source| KeyError::Storage { what, file, source }
}

/// Replaces a file, or makes it. `between` is called after each step; tests stop there, and nobody else does anything.
pub fn replace(
    folder: &Path,
    name: &str,
    bytes: &[u8],
    mut between: impl FnMut(Step) -> io::Result<()>,
) -> io::Result<()> {
    between(Step::Begun)?;
    let (target, aside) = (folder.join(name), folder.join(format!("{name}.new")));
    // What an earlier crash left. It was never promised to anybody.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    between(Step::Made)?;
    file.write_all(bytes)?;
    between(Step::Written)?;
    file.sync_all()?;
    between(Step::Synced)?;
    fs::rename(&aside, &target)?;
    between(Step::Renamed)?;
    File::open(folder)?.sync_all()?;
    between(Step::FolderSynced)
}

/// Makes the folder, for its owner alone, with a name that a crash does not take away.
pub(super) fn make_folder(folder: &Path) -> Result<(), KeyError> {
    let made = || -> io::Result<()> {
        let whole = std::path::absolute(folder)?;
        let missing: Vec<&Path> = whole.ancestors().take_while(|name| !name.exists()).collect();
        DirBuilder::new().recursive(true).mode(0o700).create(&whole)?;
        // Every name that is new, and the folder's own in any case: its maker may have died before the sync.
        for name in missing.into_iter().chain([whole.as_path()]) {
            File::open(name.parent().unwrap_or(name))?.sync_all()?;
        }
        Ok(())
    };
    made().map_err(failed("be made", folder))
}

/// The bytes of a file that only its owner may read.
pub(crate) fn read_private(file: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let opened = File::open(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => KeyError::Missing { file: file.display().to_string() },
        _ => failed("be read", file)(error),
    })?;
    let metadata = opened.metadata().map_err(failed("be read", file))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(KeyError::Exposed { file: file.display().to_string(), mode: metadata.mode() & 0o777 });
    }
    let mut bytes =
        Zeroizing::new(Vec::with_capacity(usize::try_from(metadata.len().min(MOST_BYTES)).unwrap_or(0) + 1));
    opened.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed("be read", file))?;
    if bytes.len() > usize::try_from(MOST_BYTES).unwrap_or(usize::MAX) {
        return Err(KeyError::Damaged { file: file.display().to_string(), why: "it is too long" });
    }
    Ok(bytes)
}

/// Replaces a file of the folder, or makes it, for its owner alone.
pub(crate) fn write_private(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), KeyError> {
    replace(folder, name, bytes, |_| Ok(())).map_err(failed("be written", &folder.join(name)))
}

/// Does something while no other command changes the folder.
pub(crate) fn while_locked<T, E: From<KeyError>>(folder: &Path, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let lock = FolderLock::take(folder)?;
    let done = work();
    drop(lock);
    done
}

/// A process that another thread starts has our lock for a moment, until it runs its own program.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(30);

/// One writer at a time. It is free again when this is dropped, or its process ends.
pub(super) struct FolderLock(#[expect(dead_code, reason = "held, not read")] File);

impl FolderLock {
    pub(super) fn take(folder: &Path) -> Result<Self, KeyError> {
        let name: PathBuf = folder.join("lock");
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&name);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => KeyError::Missing { file: folder.display().to_string() },
            _ => failed("be opened", &name)(error),
        })?;
        for _ in 0..TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => return Err(failed("be locked", &name)(error)),
            }
        }
        Err(KeyError::InUse { folder: folder.display().to_string() })
    }
}
