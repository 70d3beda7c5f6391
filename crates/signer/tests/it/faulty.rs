//! A folder in memory that behaves as badly as a real one may: in a crash, what was written since the last sync is there in
//! part, as garbage or not at all, sector by sector where it was written over something, and names are as they were at the last sync of the folder or as they were since. The
//! disk may be full, a sync may fail and forget what it had to write, and the power may go at any operation.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use domain::random::Random;
use signer::log::folder::{Folder, FolderFile};

#[derive(Clone, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// The power goes after so many more operations.
    pub power_after: Option<u64>,
    /// Of all files together.
    pub capacity: Option<usize>,
    /// The next sync fails.
    pub sync_fails: bool,
    /// Writes give up in their middle.
    pub short_writes: bool,
}

struct Inner {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    faults: Faults,
    random: Random,
    operations: u64,
    life: u64,
    dead: bool,
    room: usize,
}

/// So much is written at once or not at all. Disks have more; small frames have several of these.
pub const SECTOR: usize = 64;

/// Clones are the same folder.
#[derive(Clone)]
pub struct FaultyFolder(Arc<Mutex<Inner>>, Arc<Gates>);

/// Whoever writes a snapshot, or reads the log, waits while its gate is closed.
#[derive(Default)]
struct Gates {
    snapshots: Gate,
    log: Gate,
}

#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.closed.lock().unwrap(), |closed| *closed).unwrap());
    }
}

impl FaultyFolder {
    pub fn new(seed: u64) -> Self {
        Self(
            Arc::new(Mutex::new(Inner {
                files: Vec::new(),
                names: BTreeMap::new(),
                durable_names: BTreeMap::new(),
                faults: Faults::default(),
                random: Random::from_seed(seed),
                operations: 0,
                life: 0,
                dead: false,
                room: 3_000,
            })),
            Arc::default(),
        )
    }

    /// From now on the bytes of a snapshot are not written until the next call with `false`.
    pub fn hold_snapshots(&self, closed: bool) {
        self.1.snapshots.set(closed);
    }

    /// The same for whoever reads segments.
    pub fn hold_readers(&self, closed: bool) {
        self.1.log.set(closed);
    }

    /// So many zeros are written ahead of the log from now on. None: as older versions wrote it.
    pub fn set_room(&self, room: usize) {
        self.inner().room = room;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    fn operate(&self, life: Option<u64>) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.inner();
        inner.operations += 1;
        match &mut inner.faults.power_after {
            Some(0) => inner.dead = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if inner.dead || life.is_some_and(|life| life != inner.life) {
            return Err(io::Error::other("the power is gone"));
        }
        Ok(inner)
    }

    pub fn operations(&self) -> u64 {
        self.inner().operations
    }

    pub fn set_faults(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    /// The power goes and comes back.
    pub fn crash(&self) {
        let mut inner = self.inner();
        let Inner { files, names, durable_names, random, .. } = &mut *inner;
        if random.below(2) == 0 {
            *names = durable_names.clone();
        } else {
            *durable_names = names.clone();
        }
        for file in files.iter_mut() {
            let mut kept = file.durable.clone();
            if file.now != file.durable {
                let common = kept.iter().zip(&file.now).take_while(|(one, other)| one == other).count();
                match random.below(6) {
                    0 => {}
                    1 => kept = file.now.clone(),
                    // Each sector as it was or as it is, in any order, and either length.
                    4 | 5 => {
                        let length = if random.below(2) == 0 { kept.len() } else { file.now.len() };
                        kept.resize(kept.len().max(file.now.len()), 0);
                        for (old, new) in kept.chunks_mut(SECTOR).zip(file.now.chunks(SECTOR)) {
                            if random.below(2) == 0 {
                                old[..new.len()].copy_from_slice(new);
                            }
                        }
                        kept.truncate(length);
                    }
                    // The length is there and some of the bytes are not.
                    fate => {
                        let length = common + random.index(file.now.len().saturating_sub(common) + 1);
                        let whole = if fate == 2 { length } else { file.now.len().max(length) };
                        kept = file.now[..length].to_vec();
                        let garbage = random.below(2) == 0;
                        kept.resize_with(whole, || if garbage { random.below(256) as u8 } else { 0 });
                    }
                }
            }
            file.now = kept.clone();
            file.durable = kept;
        }
        inner.revive();
    }

    /// The process dies and the machine lives on.
    pub fn kill(&self) {
        self.inner().revive();
    }

    pub fn files(&self) -> Vec<String> {
        self.inner().names.keys().cloned().collect()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        let inner = self.inner();
        inner.files[inner.names[name]].now.clone()
    }

    /// A segment without the room behind its frames.
    pub fn frames(&self, name: &str) -> Vec<u8> {
        let mut bytes = self.read(name);
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        bytes
    }

    /// Changes a file behind everybody's back. `None` removes it.
    pub fn put(&self, name: &str, bytes: Option<Vec<u8>>) {
        let mut inner = self.inner();
        inner.names.remove(name);
        if let Some(bytes) = bytes {
            inner.files.push(Content { now: bytes.clone(), durable: bytes });
            let number = inner.files.len() - 1;
            inner.names.insert(name.to_owned(), number);
        }
        inner.durable_names = inner.names.clone();
    }

    /// Another folder with the same files.
    pub fn copy(&self) -> Self {
        let copy = Self::new(2);
        for name in self.files() {
            copy.put(&name, Some(self.read(&name)));
        }
        copy
    }
}

impl Inner {
    fn revive(&mut self) {
        self.life += 1;
        self.dead = false;
        self.faults = Faults::default();
    }
}

pub struct FaultyFile {
    folder: FaultyFolder,
    number: usize,
    life: u64,
    is_snapshot: bool,
}

impl Folder for FaultyFolder {
    type File = FaultyFile;

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.operate(None)?.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<FaultyFile> {
        let mut inner = self.operate(None)?;
        inner.files.push(Content::default());
        let number = inner.files.len() - 1;
        inner.names.insert(name.to_owned(), number);
        let is_snapshot = name.starts_with("snapshot-");
        Ok(FaultyFile { folder: self.clone(), number, life: inner.life, is_snapshot })
    }

    fn open(&self, name: &str) -> io::Result<FaultyFile> {
        let inner = self.operate(None)?;
        let number = *inner.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let is_snapshot = name.starts_with("snapshot-");
        Ok(FaultyFile { folder: self.clone(), number, life: inner.life, is_snapshot })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.operate(None)?;
        let number = inner.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        inner.names.insert(to.to_owned(), number);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.operate(None)?.names.remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut inner = self.operate(None)?;
        inner.durable_names = inner.names.clone();
        Ok(())
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }

    fn room(&self) -> usize {
        self.inner().room
    }

    fn reader(&self) -> Self {
        self.clone()
    }
}

impl FolderFile for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.folder.operate(Some(self.life))?.files[self.number].now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        if !self.is_snapshot {
            self.folder.1.log.pass();
        }
        let inner = self.folder.operate(Some(self.life))?;
        let rest = inner.files[self.number].now.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        if self.is_snapshot {
            self.folder.1.snapshots.pass();
        }
        let mut inner = self.folder.operate(Some(self.life))?;
        let from = usize::try_from(at).unwrap();
        let mut length = bytes.len();
        if inner.faults.short_writes && length > 1 {
            length = 1 + inner.random.index(length - 1);
        }
        let total: usize = inner.names.values().map(|number| inner.files[*number].now.len()).sum();
        if let Some(capacity) = inner.faults.capacity {
            let room = (capacity + inner.files[self.number].now.len()).saturating_sub(total + from);
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            length = length.min(room);
        }
        let now = &mut inner.files[self.number].now;
        now.resize(now.len().max(from + length), 0);
        now[from..from + length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        let mut inner = self.folder.operate(Some(self.life))?;
        inner.files[self.number].now.truncate(usize::try_from(length).unwrap());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.folder.operate(Some(self.life))?;
        if inner.faults.sync_fails {
            inner.faults.sync_fails = false;
            return Err(io::Error::other("the disk reports an error"));
        }
        let file = &mut inner.files[self.number];
        file.durable = file.now.clone();
        Ok(())
    }
}
