//! The log: append-only, hash-chained, synced before anything leaves.
//!
//! A folder has segments, `log-<number of the first entry>`, and snapshots, `snapshot-<number of the last entry>`. A start
//! reads the newest snapshot and what came after it; older segments stay, for `verify`, `show` and `simulate`.
//!
//! **Only a torn end is cut**, after the head that somebody was given was found, and what is cut is kept in a file
//! `torn-<last entry>-<hash>`: damage to the last frame looks the same. Whatever else does not fit (a changed byte, a removed entry, a missing segment, a snapshot
//! that is not of this chain) stops the start. That the end of the log is missing cannot be seen in the log itself:
//! whoever got an answer has its [`Head`], and a log that does not contain it is not taken.
//!
//! **After a failed write or sync nothing more is answered.** What reached the disk is not known.

pub mod entry;
pub mod folder;
pub mod frame;
mod snapshot;

use std::collections::BTreeMap;
use std::io;

use crate::digest::{Digest32, sha256};
use crate::policy::file::BadPolicy;
use crate::state::State;
use crate::text::Hash;
use entry::Entry;
use folder::{Folder, FolderFile, read_all, write_all};
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
    length: u64,
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

/// What a segment begins with: which chain it goes on with.
fn segment_start(head: &Head) -> Vec<u8> {
    let mut bytes = b"bursar-signer-log-v1\n".to_vec();
    bytes.extend_from_slice(&head.entries.to_be_bytes());
    bytes.extend_from_slice(&head.hash.0);
    let check = sha256(&bytes);
    bytes.extend_from_slice(&check);
    bytes
}

/// Reads one segment from where `head` says it begins. `visit` gets each frame's entries. Gives the place where the frames
/// end, which is the file's end unless `torn_end` is allowed and the last write was torn.
fn read_segment(
    bytes: &[u8],
    file: &str,
    head: &mut Head,
    torn_end: bool,
    mut visit: impl FnMut(u64, Digest32, Vec<Entry>) -> Result<(), LogError>,
) -> Result<u64, LogError> {
    let place = |at: usize| u64::try_from(at).unwrap_or(u64::MAX);
    let damaged = |at: usize, why| LogError::Damaged { file: file.to_owned(), at: place(at), why };
    let start = segment_start(head);
    if bytes.get(..start.len()) != Some(&start[..]) {
        return Err(damaged(0, "it does not go on where the one before it ends"));
    }
    let mut at = start.len();
    while at < bytes.len() {
        let Some((frame, length)) = frame::read(&bytes[at..]) else {
            if torn_end && !frame::any(&bytes[at + 1..]) {
                return Ok(place(at));
            }
            return Err(damaged(at, "a frame does not fit its hash"));
        };
        if frame.before != head.hash.0 || frame.first != head.entries + 1 {
            return Err(damaged(at, "a frame does not follow the one before it"));
        }
        let entries: Vec<Entry> = serde_json::from_slice(frame.body)
            .map_err(|_| damaged(at, "the entries are not as this version writes them"))?;
        if u32::try_from(entries.len()) != Ok(frame.count) || entries.is_empty() {
            return Err(damaged(at, "the number of entries"));
        }
        head.entries += u64::from(frame.count);
        head.hash = Hash(frame.hash);
        visit(head.entries, frame.hash, entries)?;
        at += length;
    }
    Ok(place(at))
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
            make_whole(&folder, &named(SEGMENT, 1), &segment_start(&head))?;
            segments.push(1);
        }
        // The segment that holds the entry after the snapshot, and those behind it.
        let from = segments.iter().rposition(|first| *first <= head.entries + 1).unwrap_or(0);
        let snapshot = head;
        let mut heads = BTreeMap::from([(head.entries, head.hash)]);
        let (mut name, mut length, mut torn) = (String::new(), 0, Vec::new());
        for (place, first) in segments[from..].iter().enumerate() {
            name = named(SEGMENT, *first);
            let file = on(&folder, "open", &name, folder.open(&name))?;
            let bytes = on(&folder, "read", &name, read_all(&file))?;
            if place == 0 && *first != head.entries + 1 {
                // The snapshot lies within this segment: its entries up to there are read and not taken up again.
                head = start_of(&bytes).ok_or_else(|| LogError::Damaged {
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
            length = read_segment(&bytes, &folder.describe(&name), &mut head, last, |entries, hash, batch| {
                heads.insert(entries, Hash(hash));
                if entries <= snapshot.entries {
                    return Ok(());
                }
                batch.iter().try_for_each(|entry| state.apply(entry).map_err(LogError::from))
            })?;
            torn = usize::try_from(length).ok().and_then(|end| bytes.get(end..)).unwrap_or_default().to_vec();
        }
        if heads.get(&snapshot.entries) != Some(&snapshot.hash) || head.entries < snapshot.entries {
            let file = folder.describe(&named(SNAPSHOT, snapshot.entries));
            return Err(LogError::Damaged { file, at: 0, why: "the snapshot is not of this chain" });
        }
        let file = on(&folder, "open", &name, folder.open(&name))?;
        let from = name.strip_prefix(SEGMENT).and_then(|number| number.parse::<u64>().ok()).unwrap_or(1) - 1;
        let log = Self { folder, file, name, length, head, heads, from, snapshot: snapshot.entries, failed: false };
        if let Some(pinned) = pinned {
            log.check(&pinned)?;
        }
        if !torn.is_empty() {
            let hash = Hash(sha256(&torn)).to_string();
            let aside = format!("{}-{}", named(TORN, log.head.entries), hash.get(..16).unwrap_or_default());
            make_whole(&log.folder, &aside, &torn)?;
            on(&log.folder, "cut", &log.name, log.file.cut(length))?;
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
        let (mut body, mut count) = (Vec::new(), 0);
        for entry in entries {
            let text = serde_json::to_vec(entry).map_err(|_| LogError::TooLong)?;
            // Each frame is durable before the next: behind a torn one there must be none.
            if count > 0 && body.len() + text.len() > LONG_FRAME {
                self.append_frame(&mut body, &mut count)?;
            }
            body.push(if count == 0 { b'[' } else { b',' });
            body.extend_from_slice(&text);
            count += 1;
        }
        self.append_frame(&mut body, &mut count)?;
        self.failed = false;
        Ok(self.head)
    }

    fn append_frame(&mut self, body: &mut Vec<u8>, count: &mut usize) -> Result<(), LogError> {
        body.push(b']');
        let (body, entries) = (std::mem::take(body), std::mem::take(count));
        let first = self.head.entries + 1;
        let (bytes, hash) = frame::write(first, entries, &self.head.hash.0, &body).ok_or(LogError::TooLong)?;
        on(&self.folder, "write to", &self.name, write_all(&self.file, &bytes, self.length))?;
        on(&self.folder, "sync", &self.name, self.file.sync())?;
        self.length = self.length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let entries = u64::try_from(entries).unwrap_or(u64::MAX);
        self.head = Head { entries: self.head.entries.saturating_add(entries), hash: Hash(hash) };
        self.heads.insert(self.head.entries, self.head.hash);
        Ok(())
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
            let start = segment_start(&self.head);
            make_whole(&self.folder, &name, &start)?;
            self.file = on(&self.folder, "open", &name, self.folder.open(&name))?;
            self.name = name;
            self.heads = self.heads.split_off(&self.from);
            self.from = self.head.entries;
            self.length = u64::try_from(start.len()).unwrap_or(u64::MAX);
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

/// The segments before those whose heads are in memory.
pub struct OldHeads<F: Folder> {
    folder: F,
    /// Where memory begins.
    oldest: Head,
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
            let head = head.get_or_insert(start_of(&bytes).unwrap_or_default());
            found |= *head == *pinned;
            read_segment(&bytes, &self.folder.describe(&name), head, false, |entries, hash, _| {
                let here = Head { entries, hash: Hash(hash) };
                found |= here == *pinned;
                linked |= here == self.oldest;
                Ok(())
            })?;
        }
        if found && linked { Ok(()) } else { Err(LogError::Diverged { pinned: pinned.entries }) }
    }
}

/// The head that a segment says it goes on from.
fn start_of(bytes: &[u8]) -> Option<Head> {
    let label = segment_start(&Head::default()).len() - 32 - 32 - 8;
    let (entries, rest) = bytes.get(label..)?.split_first_chunk::<8>()?;
    let head = Head { entries: u64::from_be_bytes(*entries), hash: Hash(*rest.first_chunk::<32>()?) };
    bytes.starts_with(&segment_start(&head)).then_some(head)
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
        read_segment(&bytes, &folder.describe(&name), &mut head, last, |entries, hash, batch| {
            batch_ends(&Head { entries, hash: Hash(hash) });
            let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            for (number, entry) in (entries + 1 - count..).zip(&batch) {
                visit(number, entry);
            }
            Ok(())
        })?;
    }
    Ok(head)
}
