//! The log: append-only, hash-chained, synced before anything leaves.
//!
//! A folder has segments, `log-<number of the first entry>`, and snapshots, `snapshot-<number of the last entry>`. A start
//! reads the newest snapshot and what came after it; older segments stay, for `verify`, `show` and `simulate`.
//!
//! **Only a torn end is cut**, after the head that somebody was given was found, and what is cut is kept in a file
//! `torn-<last entry>-<hash>`: damage to the last frame looks the same. Zeros behind the last frame are room for the next ones ([`segment`]). Whatever else does not fit (a changed byte, a removed entry, a missing segment, a snapshot
//! that is not of this chain) stops the start. That the end of the log is missing cannot be seen in the log itself:
//! whoever got an answer has its [`Head`], and a log that does not contain it is not taken.
//!
//! **After a failed write or sync nothing more is answered.** What reached the disk is not known.

pub mod entry;
pub mod folder;
pub mod frame;
mod past;
mod segment;
mod snapshot;

use std::collections::BTreeMap;
use std::io;

use crate::digest::sha256;
use crate::policy::file::BadPolicy;
use crate::state::State;
use crate::text::Hash;
use entry::Entry;
use folder::{Folder, FolderFile, read_all, write_all};
pub use past::{OldHeads, walk, walk_frames};
pub use snapshot::{TakenSnapshot, WrittenSnapshot};

const SEGMENT: &str = "log-";
const SNAPSHOT: &str = "snapshot-";
const TORN: &str = "torn-";
const UNFINISHED: &str = ".new";
/// The newest, and the one before it for people who look into what has happened.
const KEPT_SNAPSHOTS: usize = 2;
/// A longer batch becomes several frames. One entry is never near the longest frame: requests are bounded.
const LONG_FRAME: usize = 8 << 20;

/// How far the chain goes: its newest entry's number, and the hash of the frame that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub entries: u64,
    pub hash: Hash,
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot {what} {file}")]
    Storage { what: &'static str, file: String, source: io::Error },
    #[error("{file} is damaged at byte {at}: {why}")]
    Damaged { file: String, at: u64, why: &'static str },
    #[error("an entry holds a policy that cannot be read")]
    Policy(#[from] BadPolicy),
    #[error("the log ends before entry {pinned}, which was answered")]
    RolledBack { pinned: u64 },
    #[error("the log has another entry {pinned} than the one that was answered")]
    Diverged { pinned: u64 },
    #[error("the machine's clock is before the newest entry")]
    ClockBack,
    #[error("the batch is too long to log")]
    TooLong,
    #[error("a write to the log has failed; nothing more is signed until the signer is started again")]
    Stopped,
}

impl LogError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Storage { .. } | Self::Stopped | Self::TooLong => "SIGNER_LOG_UNWRITABLE",
            Self::Damaged { .. } | Self::Policy(_) => "SIGNER_LOG_DAMAGED",
            Self::RolledBack { .. } | Self::Diverged { .. } => "SIGNER_LOG_ROLLED_BACK",
            Self::ClockBack => "SIGNER_CLOCK_DISAGREES",
        }
    }
}

pub struct Log<F: Folder> {
    folder: F,
    file: F::File,
    name: String,
    /// Where the next frame begins.
    length: u64,
    /// So far the file is written: behind the frames with zeros.
    prepared: u64,
    head: Head,
    /// The heads that can still be asked for: those since the snapshot before the newest, or since the start.
    heads: BTreeMap<u64, Hash>,
    /// The entry that this segment goes on from.
    from: u64,
    /// The newest entry of the newest snapshot that is whole.
    snapshot: u64,
    failed: bool,
}

fn on<F: Folder, T>(folder: &F, what: &'static str, name: &str, result: io::Result<T>) -> Result<T, LogError> {
    result.map_err(|source| LogError::Storage { what, file: folder.describe(name), source })
}

fn bytes_long(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn named(prefix: &str, number: u64) -> String {
    format!("{prefix}{number:020}")
}

/// The files of one kind, by their numbers.
fn numbered<F: Folder>(folder: &F, prefix: &str) -> Result<Vec<u64>, LogError> {
    let names = on(folder, "list", "", folder.names())?;
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| name.strip_prefix(prefix)?.parse().ok().filter(|number| named(prefix, *number) == *name))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes a file that is there whole or not at all.
fn make_whole<F: Folder>(folder: &F, name: &str, bytes: &[u8]) -> Result<(), LogError> {
    let unfinished = format!("{name}{UNFINISHED}");
    let file = on(folder, "create", &unfinished, folder.create(&unfinished))?;
    on(folder, "write to", &unfinished, write_all(&file, bytes, 0))?;
    on(folder, "sync", &unfinished, file.sync())?;
    on(folder, "rename", &unfinished, folder.rename(&unfinished, name))?;
    on(folder, "sync", "", folder.sync_folder())
}

impl<F: Folder> Log<F> {
    /// Opens the folder, and gives the state that its log ends with. `pinned` is the newest head that anybody was given.
    pub fn open(folder: F, pinned: Option<Head>) -> Result<(Self, State), LogError> {
        for name in on(&folder, "list", "", folder.names())?.iter().filter(|name| name.ends_with(UNFINISHED)) {
            on(&folder, "remove", name, folder.remove(name))?;
        }
        let mut segments = numbered(&folder, SEGMENT)?;
        let (mut head, mut state) = match numbered(&folder, SNAPSHOT)?.last() {
            None => (Head::default(), State::default()),
            Some(number) => {
                let name = named(SNAPSHOT, *number);
                let file = on(&folder, "open", &name, folder.open(&name))?;
                let read = on(&folder, "read", &name, snapshot::read(&file))?;
                let damaged = || LogError::Damaged {
                    file: folder.describe(&name),
                    at: 0,
                    why: "the snapshot does not fit its hash",
                };
                read.filter(|(head, _)| head.entries == *number).ok_or_else(damaged)?
            }
        };
        if segments.is_empty() {
            if head.entries > 0 {
                let file = folder.describe(&named(SEGMENT, head.entries + 1));
                return Err(LogError::Damaged { file, at: 0, why: "it is missing" });
            }
            make_whole(&folder, &named(SEGMENT, 1), &segment::start(&head))?;
            segments.push(1);
        }
        // The segment that holds the entry after the snapshot, and those behind it.
        let from = segments.iter().rposition(|first| *first <= head.entries + 1).unwrap_or(0);
        let snapshot = head;
        let mut heads = BTreeMap::from([(head.entries, head.hash)]);
        let (mut name, mut length, mut prepared, mut torn) = (String::new(), 0, 0, Vec::new());
        for (place, first) in segments[from..].iter().enumerate() {
            name = named(SEGMENT, *first);
            let file = on(&folder, "open", &name, folder.open(&name))?;
            let bytes = on(&folder, "read", &name, read_all(&file))?;
            if place == 0 && *first != head.entries + 1 {
                // The snapshot lies within this segment: its entries up to there are read and not taken up again.
                head = segment::start_of(&bytes).ok_or_else(|| LogError::Damaged {
                    file: folder.describe(&name),
                    at: 0,
                    why: "it has no start",
                })?;
                heads = BTreeMap::from([(head.entries, head.hash)]);
            }
            if *first != head.entries + 1 {
                return Err(LogError::Damaged { file: folder.describe(&name), at: 0, why: "a segment is missing" });
            }
            let last = from + place + 1 == segments.len();
            let end = segment::read(&bytes, &folder.describe(&name), &mut head, last, |batch| {
                heads.insert(batch.entries, Hash(batch.hash));
                if batch.entries <= snapshot.entries {
                    return Ok(());
                }
                batch.read()?.iter().try_for_each(|entry| state.apply(entry).map_err(LogError::from))
            })?;
            (length, prepared) = (bytes_long(end.frames), bytes_long(bytes.len()));
            torn = bytes.get(end.frames..end.torn).unwrap_or_default().to_vec();
        }
        if heads.get(&snapshot.entries) != Some(&snapshot.hash) || head.entries < snapshot.entries {
            let file = folder.describe(&named(SNAPSHOT, snapshot.entries));
            return Err(LogError::Damaged { file, at: 0, why: "the snapshot is not of this chain" });
        }
        let file = on(&folder, "open", &name, folder.open(&name))?;
        let from = name.strip_prefix(SEGMENT).and_then(|number| number.parse::<u64>().ok()).unwrap_or(1) - 1;
        let (snapshot, failed) = (snapshot.entries, false);
        let mut log = Self { folder, file, name, length, prepared, head, heads, from, snapshot, failed };
        if let Some(pinned) = pinned {
            log.check(&pinned)?;
        }
        if !torn.is_empty() {
            let hash = Hash(sha256(&torn)).to_string();
            let aside = format!("{}-{}", named(TORN, log.head.entries), hash.get(..16).unwrap_or_default());
            make_whole(&log.folder, &aside, &torn)?;
            on(&log.folder, "cut", &log.name, log.file.cut(length))?;
            log.prepared = length;
        }
        // What a process wrote and did not sync before it died is there to read, and not durable yet.
        on(&log.folder, "sync", &log.name, log.file.sync())?;
        Ok((log, state))
    }

    pub const fn head(&self) -> Head {
        self.head
    }

    /// How many entries a start would have to replay.
    pub const fn since_snapshot(&self) -> u64 {
        self.head.entries - self.snapshot
    }

    /// Whether the chain contains a head that somebody was given.
    pub fn check(&self, pinned: &Head) -> Result<(), LogError> {
        self.check_recent(pinned).unwrap_or_else(|| self.old_heads().check(pinned))
    }

    /// The same from memory. `None`: the head is older than what is kept there, and [`Self::old_heads`] has to be asked.
    pub fn check_recent(&self, pinned: &Head) -> Option<Result<(), LogError>> {
        if pinned.entries > self.head.entries {
            return Some(Err(LogError::RolledBack { pinned: pinned.entries }));
        }
        let oldest = self.heads.first_key_value().map_or(0, |(oldest, _)| *oldest);
        match self.heads.get(&pinned.entries) {
            Some(hash) if *hash == pinned.hash => Some(Ok(())),
            None if pinned.entries < oldest => None,
            Some(_) | None => Some(Err(LogError::Diverged { pinned: pinned.entries })),
        }
    }

    /// What is on the disk before the heads in memory. It no longer changes, so any thread may read it while this log is appended to.
    pub fn old_heads(&self) -> OldHeads<F> {
        let (oldest, hash) =
            self.heads.first_key_value().map_or((0, Hash::default()), |(oldest, hash)| (*oldest, *hash));
        OldHeads { folder: self.folder.reader(), oldest: Head { entries: oldest, hash } }
    }

    /// Appends a batch and syncs it. Only then may anything of it be answered.
    pub fn append(&mut self, entries: &[Entry]) -> Result<Head, LogError> {
        if self.failed {
            return Err(LogError::Stopped);
        }
        if entries.is_empty() {
            return Ok(self.head);
        }
        // Until it is known to be durable, it is taken to have failed.
        self.failed = true;
        let (mut bytes, mut count) = (frame::begin(), 0);
        for entry in entries {
            let before = bytes.len();
            bytes.push(if count == 0 { b'[' } else { b',' });
            serde_json::to_writer(&mut bytes, entry).map_err(|_| LogError::TooLong)?;
            // Each frame is durable before the next: behind a torn one there must be none.
            if count > 0 && bytes.len() > LONG_FRAME {
                let mut next = frame::begin();
                next.push(b'[');
                next.extend_from_slice(&bytes[before + 1..]);
                bytes.truncate(before);
                self.append_frame(std::mem::replace(&mut bytes, next), std::mem::take(&mut count))?;
            }
            count += 1;
        }
        self.append_frame(bytes, count)?;
        self.failed = false;
        Ok(self.head)
    }

    fn append_frame(&mut self, mut bytes: Vec<u8>, entries: u32) -> Result<(), LogError> {
        bytes.push(b']');
        let first = self.head.entries + 1;
        let hash = frame::seal(&mut bytes, first, entries, &self.head.hash.0).ok_or(LogError::TooLong)?;
        on(&self.folder, "write to", &self.name, write_all(&self.file, &bytes, self.length))?;
        let end = self.length.saturating_add(bytes_long(bytes.len()));
        if end > self.prepared {
            self.prepare(end);
        }
        on(&self.folder, "sync", &self.name, self.file.sync())?;
        self.length = end;
        self.head = Head { entries: self.head.entries.saturating_add(entries.into()), hash: Hash(hash) };
        self.heads.insert(self.head.entries, self.head.hash);
        Ok(())
    }

    /// Makes room behind the frames: what is written over zeros that are there is synced without a word about the file, in half the time. A disk without
    /// room for the zeros may have some for a frame, so this fails nobody.
    fn prepare(&mut self, end: u64) {
        let zeros = vec![0; self.folder.room()];
        let written = write_all(&self.file, &zeros, end).is_ok();
        self.prepared = if written { end.saturating_add(bytes_long(zeros.len())) } else { end };
    }

    /// Writes the state aside and goes on in a new segment, so that a start need not read what came before. Nothing is signed
    /// meanwhile; [`Self::take_snapshot`] is for a state that takes long to write.
    pub fn snapshot(&mut self, state: &State) -> Result<(), LogError> {
        let Some(taken) = self.take_snapshot(state)? else { return Ok(()) };
        self.failed = true;
        let written = taken.write()?;
        self.failed = false;
        self.finish_snapshot(&written)
    }

    /// Goes on in a new segment, and gives what is to be written aside: by any thread, while this log is appended to. Until it is
    /// finished a start reads the snapshot before and the segments since. `None`: there is nothing new.
    pub fn take_snapshot(&mut self, state: &State) -> Result<Option<TakenSnapshot<F::File>>, LogError> {
        if self.failed {
            return Err(LogError::Stopped);
        }
        if self.head.entries == self.snapshot {
            return Ok(None);
        }
        self.failed = true;
        let name = named(SEGMENT, self.head.entries + 1);
        if name != self.name {
            // Nothing follows in the segment that ends here. If it comes back after a crash, the room was no entry anyway.
            if self.prepared > self.length {
                on(&self.folder, "cut", &self.name, self.file.cut(self.length))?;
            }
            let start = segment::start(&self.head);
            make_whole(&self.folder, &name, &start)?;
            self.file = on(&self.folder, "open", &name, self.folder.open(&name))?;
            self.name = name;
            self.heads = self.heads.split_off(&self.from);
            self.from = self.head.entries;
            self.length = bytes_long(start.len());
            self.prepared = self.length;
        }
        let unfinished = format!("{}{UNFINISHED}", named(SNAPSHOT, self.head.entries));
        let file = on(&self.folder, "create", &unfinished, self.folder.create(&unfinished))?;
        self.failed = false;
        let path = self.folder.describe(&unfinished);
        Ok(Some(TakenSnapshot { file, path, head: self.head, state: state.clone() }))
    }

    /// Gives a snapshot that was written its name. From now on a start reads it.
    pub fn finish_snapshot(&mut self, written: &WrittenSnapshot) -> Result<(), LogError> {
        if self.failed {
            return Err(LogError::Stopped);
        }
        self.failed = true;
        let name = named(SNAPSHOT, written.entries);
        let unfinished = format!("{name}{UNFINISHED}");
        on(&self.folder, "rename", &unfinished, self.folder.rename(&unfinished, &name))?;
        on(&self.folder, "sync", "", self.folder.sync_folder())?;
        self.snapshot = self.snapshot.max(written.entries);
        self.failed = false;
        Ok(())
    }

    /// Removes all snapshots but the newest two. A start reads the newest, and none of the others.
    pub fn drop_old_snapshots(&self) -> Result<(), LogError> {
        let numbers = numbered(&self.folder, SNAPSHOT)?;
        for number in numbers.iter().rev().skip(KEPT_SNAPSHOTS) {
            let name = named(SNAPSHOT, *number);
            on(&self.folder, "remove", &name, self.folder.remove(&name))?;
        }
        Ok(())
    }

    /// Removes what was written of a snapshot that will not be finished. The log is as it was.
    pub fn drop_snapshot(&self, entries: u64) -> Result<(), LogError> {
        let unfinished = format!("{}{UNFINISHED}", named(SNAPSHOT, entries));
        on(&self.folder, "remove", &unfinished, self.folder.remove(&unfinished))
    }
}
