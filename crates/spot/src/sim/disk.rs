//! A folder in memory that behaves as badly as a real one may.
//!
//! In a crash each sector of a block that was written to since the last sync is old, new or garbage. A sync that fails
//! has written some blocks and forgets the others. Creations, renames and removals are lost from some point on if the
//! folder was not synced. Reads and writes may be short; writes may fail or find the disk full; and the power may go at
//! any operation.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::random::Random;

use crate::log::BLOCK;
use crate::storage::{File, Storage};

const SECTOR: usize = 512;

/// What goes wrong. The first three are chances in a thousand operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// For reads too.
    pub short_write: u64,
    pub write_error: u64,
    pub sync_error: u64,
    /// All files together may not grow beyond so many bytes.
    pub capacity: Option<usize>,
    /// The power goes after so many more operations.
    pub power_after: Option<u64>,
}

/// A file. Names lead to it by its number, as they lead to an inode.
#[derive(Clone, Debug, Default)]
struct FileEntry {
    /// The bytes that a reader sees.
    now: Vec<u8>,
    /// The bytes that are on the disk. A crash may change the dirty blocks of them.
    durable: Vec<u8>,
    /// Blocks that were written to since the last sync.
    dirty: BTreeSet<usize>,
}

/// A change of the folder that is not synced yet.
#[derive(Clone, Debug)]
enum Change {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Create(name, number) => {
                names.insert(name.clone(), *number);
            }
            Self::Rename(from, to) => {
                if let Some(number) = names.remove(from) {
                    names.insert(to.clone(), number);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

struct Inner {
    files: Vec<FileEntry>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    changes: Vec<Change>,
    faults: Faults,
    random: Random,
    /// Counts crashes and kills. Files that were opened in an earlier life are dead.
    life: u64,
    /// Operations since the beginning.
    operations: u64,
    /// The power is gone.
    dead: bool,
}

impl Inner {
    fn chance(&mut self, per_thousand: u64) -> bool {
        per_thousand > 0 && self.random.below(1_000) < per_thousand
    }

    /// Counts an operation; an error if the power is gone.
    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        if let Some(left) = &mut self.faults.power_after {
            if *left == 0 {
                self.dead = true;
            } else {
                *left -= 1;
            }
        }
        if self.dead { Err(io::Error::other("the power is gone")) } else { Ok(()) }
    }

    fn total(&self) -> usize {
        self.names.values().map(|number| self.files[*number].now.len()).sum()
    }
}

/// Cheap to clone; all clones are the same disk.
#[derive(Clone)]
pub struct FaultyDisk(Arc<Mutex<Inner>>);

impl FaultyDisk {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            faults: Faults::default(),
            random: Random::from_seed(seed),
            life: 0,
            operations: 0,
            dead: false,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_faults(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    /// How many operations there were, for tests that cut the power at each of them in turn.
    pub fn operations(&self) -> u64 {
        self.inner().operations
    }

    /// The power goes and comes back. Open files are dead; sectors that were not synced are old, new or garbage.
    pub fn crash(&self) {
        let mut inner = self.inner();
        let Inner { files, names, durable_names, changes, random, .. } = &mut *inner;
        let kept = random.index(changes.len() + 1);
        for change in &changes[..kept] {
            change.apply(durable_names);
        }
        changes.clear();
        *names = durable_names.clone();
        for file in files.iter_mut() {
            tear(file, random);
        }
        // Files that no name leads to are gone.
        let live: BTreeSet<usize> = names.values().copied().collect();
        for (number, file) in files.iter_mut().enumerate() {
            if !live.contains(&number) {
                *file = FileEntry::default();
            }
        }
        inner.life += 1;
        inner.dead = false;
        inner.faults = Faults::default();
    }

    /// The process dies and the machine lives on: open files are dead, and everything that was written can be read,
    /// durable or not.
    pub fn kill(&self) {
        let mut inner = self.inner();
        inner.life += 1;
        inner.dead = false;
        inner.faults = Faults::default();
    }

    /// The bytes that a reader of the file sees, for tests that damage it.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.inner();
        inner.names.get(name).map(|number| inner.files[*number].now.clone())
    }

    /// Writes a whole file durably, for tests that damage one or restore it.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut inner = self.inner();
        let file = FileEntry { durable: bytes.clone(), now: bytes, dirty: BTreeSet::new() };
        let number = match inner.names.get(name).copied() {
            Some(number) => {
                inner.files[number] = file;
                number
            }
            None => {
                inner.files.push(file);
                inner.files.len() - 1
            }
        };
        inner.names.insert(name.to_owned(), number);
        inner.durable_names.insert(name.to_owned(), number);
    }

    /// An independent copy of the disk, on which all files are durable as a reader sees them.
    #[must_use]
    pub fn copy(&self, seed: u64) -> Self {
        let copy = Self::new(seed);
        let inner = self.inner();
        for (name, number) in &inner.names {
            copy.put(name, inner.files[*number].now.clone());
        }
        copy
    }
}

/// Decides what a crash, or a sync that fails, makes of the dirty blocks of a file.
fn tear(file: &mut FileEntry, random: &mut Random) {
    if file.dirty.is_empty() && file.now.len() == file.durable.len() {
        file.now = file.durable.clone();
        return;
    }
    let length = if random.below(2) == 0 { file.now.len() } else { file.durable.len() };
    let mut result = file.durable.clone();
    result.resize(length, 0);
    for block in &file.dirty {
        let fate = random.below(8);
        for at in (block * BLOCK..(block + 1) * BLOCK).step_by(SECTOR) {
            let Some(sector) = result.get_mut(at..).map(|rest| {
                let end = rest.len().min(SECTOR);
                &mut rest[..end]
            }) else {
                continue;
            };
            // Most blocks are old or new as a whole, as disks do it; in some, each sector is decided by itself.
            let fate = if fate < 6 { fate % 2 } else { random.below(3) };
            match fate {
                0 => {}
                1 => {
                    let new = file.now.get(at..).unwrap_or(&[]);
                    let length = new.len().min(sector.len());
                    sector[..length].copy_from_slice(&new[..length]);
                }
                _ => sector.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            }
        }
    }
    file.now = result.clone();
    file.durable = result;
    file.dirty.clear();
}

pub struct FaultyFile {
    disk: FaultyDisk,
    number: usize,
    life: u64,
}

impl FaultyFile {
    fn operate(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.disk.inner();
        if inner.life != self.life {
            return Err(io::Error::other("the file was open in an earlier life"));
        }
        inner.operate()?;
        Ok(inner)
    }
}

impl Storage for FaultyDisk {
    type File = FaultyFile;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut inner = self.inner();
        inner.operate()?;
        Ok(inner.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<FaultyFile> {
        let mut inner = self.inner();
        inner.operate()?;
        let number = inner.files.len();
        inner.files.push(FileEntry::default());
        let change = Change::Create(name.to_owned(), number);
        change.apply(&mut inner.names);
        inner.changes.push(change);
        Ok(FaultyFile { disk: self.clone(), number, life: inner.life })
    }

    fn open(&self, name: &str) -> io::Result<FaultyFile> {
        let mut inner = self.inner();
        inner.operate()?;
        let number = *inner.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(FaultyFile { disk: self.clone(), number, life: inner.life })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.operate()?;
        if !inner.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let change = Change::Rename(from.to_owned(), to.to_owned());
        change.apply(&mut inner.names);
        inner.changes.push(change);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.operate()?;
        let change = Change::Remove(name.to_owned());
        change.apply(&mut inner.names);
        inner.changes.push(change);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut inner = self.inner();
        inner.operate()?;
        let rate = inner.faults.sync_error;
        if inner.chance(rate) {
            return Err(io::Error::other("the folder could not be synced"));
        }
        inner.durable_names = inner.names.clone();
        inner.changes.clear();
        Ok(())
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

impl File for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.operate()?.files[self.number].now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut inner = self.operate()?;
        let from = usize::try_from(at).map_err(io::Error::other)?;
        let available = inner.files[self.number].now.len().saturating_sub(from);
        let mut length = available.min(buffer.len());
        // Short reads have the chance of short writes.
        let rate = inner.faults.short_write;
        if length > 1 && inner.chance(rate) {
            length = 1 + inner.random.index(length - 1);
        }
        buffer[..length].copy_from_slice(&inner.files[self.number].now[from.min(from + length)..from + length]);
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let mut inner = self.operate()?;
        let faults = inner.faults;
        if inner.chance(faults.write_error) {
            return Err(io::Error::other("the disk reports an error"));
        }
        let mut length = bytes.len();
        if length > 1 && inner.chance(faults.short_write) {
            length = 1 + inner.random.index(length - 1);
        }
        let from = usize::try_from(at).map_err(io::Error::other)?;
        let grows = (from + length).saturating_sub(inner.files[self.number].now.len());
        if faults.capacity.is_some_and(|capacity| inner.total() + grows > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = &mut inner.files[self.number];
        if file.now.len() < from + length {
            file.now.resize(from + length, 0);
        }
        file.now[from..from + length].copy_from_slice(&bytes[..length]);
        file.dirty.extend(from / BLOCK..(from + length).div_ceil(BLOCK));
        Ok(length)
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.operate()?;
        let rate = inner.faults.sync_error;
        let fails = inner.chance(rate);
        let Inner { files, random, .. } = &mut *inner;
        let file = &mut files[self.number];
        if fails {
            // The kernel marks the pages clean all the same, so bytes that did not reach the disk are never written
            // again.
            let seen = file.now.clone();
            tear(file, random);
            file.now = seen;
            return Err(io::Error::other("the disk reports an error"));
        }
        if file.now.len() == file.durable.len() {
            for block in &file.dirty {
                let range = block * BLOCK..file.now.len().min((block + 1) * BLOCK);
                file.durable[range.clone()].copy_from_slice(&file.now[range]);
            }
        } else {
            file.durable = file.now.clone();
        }
        file.dirty.clear();
        Ok(())
    }

    fn forget_cached(&self) -> io::Result<()> {
        let mut inner = self.operate()?;
        let file = &mut inner.files[self.number];
        for (number, block) in file.now.chunks_mut(BLOCK).enumerate() {
            // Dirty blocks stay in the cache.
            if !file.dirty.contains(&number)
                && let Some(durable) = file.durable.get(number * BLOCK..number * BLOCK + block.len())
            {
                block.copy_from_slice(durable);
            }
        }
        Ok(())
    }
}
