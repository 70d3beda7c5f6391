//! Snapshots: the whole state after a batch, in one file.
//!
//! A snapshot is made in the background from the one before and the segments since, by the same code that starts the
//! engine. The writer goes on meanwhile, and every snapshot is a rehearsal of recovery (docs/adr/0004-spot-engine.md).
//! It is written under another name, synced and renamed, and the folder is synced; only then are older files removed.
//! The two newest stay, with the segments since the older one: if the newest cannot be read, the older one and the log
//! give the same state.
//!
//! Layout: a header of 96 bytes, then chunks of accounts (32 bytes each), then chunks of ids (16 bytes each, in
//! order). Each chunk is its length, its crc32c, its bytes. The header says how many accounts and ids there are.

use std::io;

use domain::Timestamp;

use crate::answer::{Answer, Decision};
use crate::error::{OnFile, SpotError};
use crate::ids::Remembered;
use crate::log::read::{End, Record, segments, walk};
use crate::log::{format, segment_name};
use crate::operation::{Fields, Operation, status_number, status_of};
use crate::state::{Account, Pairing, State, Window};
use crate::storage::{File, Storage, make_whole, read_full, write_all};

const MAGIC: [u8; 8] = *b"BURSPOTS";
const HEADER: usize = 96;
/// Where the header says whether the engine is paired: behind its nine numbers.
const PAIRED: usize = 88;
const ACCOUNT: usize = 32;
const ID: usize = 16;
/// EIO: the disk itself cannot read the bytes.
const UNREADABLE: i32 = rustix::io::Errno::IO.raw_os_error();
/// The bytes of a full chunk: a multiple of the length of an account and of an id.
const CHUNK: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    pub log_id: u64,
    /// The last batch that the state holds.
    pub sequence: u64,
    /// The segment that holds the batches after it.
    pub segment: u64,
    pub window: Window,
    pub accounts: u64,
    pub ids: u64,
    pub pairing: Option<Pairing>,
}

pub fn snapshot_name(sequence: u64) -> String {
    format!("snap-{sequence:020}.bin")
}

pub(crate) fn snapshot_sequence(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("snap-")?.strip_suffix(".bin")?;
    digits.parse().ok().filter(|sequence| snapshot_name(*sequence) == name)
}

/// The sequences of all snapshots, newest first.
pub fn snapshots(storage: &impl Storage) -> Result<Vec<u64>, SpotError> {
    let names = storage.names().on_file("list", || storage.describe(""))?;
    let mut sequences: Vec<u64> = names.iter().filter_map(|name| snapshot_sequence(name)).collect();
    sequences.sort_unstable_by(|a, b| b.cmp(a));
    Ok(sequences)
}

impl SnapshotHeader {
    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&format::VERSION.to_le_bytes());
        let fields = [
            self.log_id,
            self.sequence,
            self.segment,
            self.window.time.micros().cast_unsigned(),
            self.window.horizon.micros().cast_unsigned(),
            self.accounts,
            self.ids,
            self.pairing.map_or(0, |pairing| pairing.database),
            self.pairing.map_or(0, |pairing| pairing.counter),
        ];
        for (at, field) in fields.iter().enumerate() {
            bytes[16 + at * 8..24 + at * 8].copy_from_slice(&field.to_le_bytes());
        }
        bytes[PAIRED] = u8::from(self.pairing.is_some());
        let checksum = crc32c::crc32c(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER]) -> Result<Self, Invalid> {
        let [.., a, b, c, d] = *bytes;
        if bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..HEADER - 4]) != u32::from_le_bytes([a, b, c, d]) {
            return Err(Invalid::at(0, "the header is not whole"));
        }
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if !(format::OLDEST_VERSION..=format::VERSION).contains(&version) {
            return Err(Invalid::Newer(version));
        }
        let mut fields = Fields::of(&bytes[16..]);
        let mut next = || fields.u64().map_err(|_| Invalid::at(0, "the header is too short"));
        let (log_id, sequence, segment) = (next()?, next()?, next()?);
        let (time, horizon) = (next()?.cast_signed(), next()?.cast_signed());
        let window = Window { time: Timestamp::from_micros(time), horizon: Timestamp::from_micros(horizon) };
        let (accounts, ids) = (next()?, next()?);
        let (database, counter) = (next()?, next()?);
        let pairing = (bytes[PAIRED] == 1).then_some(Pairing { database, counter });
        Ok(Self { log_id, sequence, segment, window, accounts, ids, pairing })
    }
}

/// Why a snapshot cannot be used.
pub enum Invalid {
    Io(io::Error),
    Newer(u32),
    At { offset: u64, reason: &'static str },
}

impl Invalid {
    const fn at(offset: u64, reason: &'static str) -> Self {
        Self::At { offset, reason }
    }

    pub fn into_error(self, file: String) -> SpotError {
        match self {
            Self::Io(source) => SpotError::Storage { what: "read", file, source },
            Self::Newer(found) => SpotError::Newer { file, found, known: format::VERSION },
            Self::At { offset, reason } => SpotError::Damaged { file, offset, reason: reason.into() },
        }
    }
}

/// Collects entries and writes them chunk by chunk.
struct Chunks<'a, F> {
    file: &'a F,
    at: u64,
    chunk: Vec<u8>,
}

impl<F: File> Chunks<'_, F> {
    fn entry(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let length = u32::try_from(self.chunk.len()).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut head = [0; 8];
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..].copy_from_slice(&crc32c::crc32c(&self.chunk).to_le_bytes());
        write_all(self.file, &head, self.at)?;
        write_all(self.file, &self.chunk, self.at + 8)?;
        self.at += 8 + self.chunk.len() as u64;
        self.chunk.clear();
        // Each chunk is synced by itself, so that the writer's own syncs do not queue behind a whole snapshot.
        self.file.sync()
    }
}

/// Writes the state after batch `sequence`; the batches after it are in `segment` and later ones.
pub fn write<S: Storage>(
    storage: &S,
    state: &State,
    log_id: u64,
    sequence: u64,
    segment: u64,
) -> Result<SnapshotHeader, SpotError> {
    let ids = state.remembered().count() as u64;
    let accounts = state.account_count() as u64;
    let (window, pairing) = (state.window(), state.pairing());
    let header = SnapshotHeader { log_id, sequence, segment, window, accounts, ids, pairing };
    make_whole(storage, &snapshot_name(sequence), |file| write_body(file, &header, state))?;
    Ok(header)
}

fn write_body<F: File>(file: &F, header: &SnapshotHeader, state: &State) -> io::Result<()> {
    write_all(file, &header.encode(), 0)?;
    let mut chunks = Chunks { file, at: HEADER as u64, chunk: Vec::with_capacity(CHUNK) };
    for account in state.accounts() {
        let mut bytes = [0; ACCOUNT];
        bytes[..8].copy_from_slice(&account.user.to_le_bytes());
        bytes[8..16].copy_from_slice(&account.available.to_le_bytes());
        bytes[16..24].copy_from_slice(&account.reserved.to_le_bytes());
        bytes[24..28].copy_from_slice(&account.asset.to_le_bytes());
        bytes[28] = status_number(account.status);
        chunks.entry(&bytes)?;
    }
    chunks.flush()?;
    for remembered in state.remembered() {
        let [id, word] = remembered.words();
        let mut bytes = [0; ID];
        bytes[..8].copy_from_slice(&id.to_le_bytes());
        bytes[8..].copy_from_slice(&word.to_le_bytes());
        chunks.entry(&bytes)?;
    }
    chunks.flush()
}

/// Reads a snapshot. It is used only if every byte of it is sound.
pub fn load<S: Storage>(storage: &S, sequence: u64) -> Result<(SnapshotHeader, State), Invalid> {
    let file = storage.open(&snapshot_name(sequence)).map_err(Invalid::Io)?;
    let mut header = [0; HEADER];
    if read_full(&file, &mut header, 0).map_err(Invalid::Io)? < HEADER {
        return Err(Invalid::at(0, "the file is cut inside its header"));
    }
    let header = SnapshotHeader::decode(&header)?;
    if header.sequence != sequence {
        return Err(Invalid::at(0, "the file was renamed"));
    }
    // Each account takes bytes in the file, so the length of the file bounds the memory that a header can ask for.
    let file_bytes = file.length().map_err(Invalid::Io)?;
    let room = header.accounts.min(file_bytes / ACCOUNT as u64);
    let mut state = State::with_room_for(usize::try_from(room).unwrap_or(0));
    state.set_window(header.window);
    state.restore_pairing(header.pairing);
    let mut at = HEADER as u64;
    let mut chunk = Vec::new();
    let (mut accounts, mut ids) = (header.accounts, header.ids);
    while accounts > 0 || ids > 0 {
        let damaged = |reason| Invalid::at(at, reason);
        let mut head = [0; 8];
        if read_full(&file, &mut head, at).map_err(Invalid::Io)? < head.len() {
            return Err(damaged("the file is cut"));
        }
        let [a, b, c, d, checksum @ ..] = head;
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length == 0 || length > CHUNK {
            return Err(damaged("a chunk has an impossible length"));
        }
        chunk.resize(length, 0);
        if read_full(&file, &mut chunk, at + 8).map_err(Invalid::Io)? < length {
            return Err(damaged("the file is cut"));
        }
        if crc32c::crc32c(&chunk) != u32::from_le_bytes(checksum) {
            return Err(damaged("a chunk's checksum is wrong"));
        }
        let (entry, left) = if accounts > 0 { (ACCOUNT, &mut accounts) } else { (ID, &mut ids) };
        if !length.is_multiple_of(entry) || (length / entry) as u64 > *left {
            return Err(damaged("a chunk has more entries than the header says"));
        }
        *left -= (length / entry) as u64;
        let restored = chunk.chunks_exact(entry).all(|bytes| restore(&mut state, entry, bytes).unwrap_or(false));
        if !restored {
            return Err(damaged("an entry is impossible or there twice"));
        }
        at += 8 + length as u64;
    }
    if file_bytes != at {
        return Err(Invalid::at(at, "there is more in the file than the header says"));
    }
    Ok((header, state))
}

/// Puts one entry back into the state. Anything but `Some(true)` means that no engine ever wrote this entry.
fn restore(state: &mut State, entry: usize, bytes: &[u8]) -> Option<bool> {
    let mut fields = Fields::of(bytes);
    if entry == ID {
        return Some(state.restore_id(Remembered::from_words([fields.u64().ok()?, fields.u64().ok()?])?));
    }
    let (user, available, reserved) = (fields.u64().ok()?, fields.i64().ok()?, fields.i64().ok()?);
    let (asset, status) = (fields.u32().ok()?, status_of(fields.u8().ok()?)?);
    Some(state.restore_account(Account { user, available, reserved, asset, status }))
}

/// How far a recovery is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub segments_done: u64,
    pub segments: u64,
    pub operations: u64,
}

/// What a recovery came to.
pub struct Recovered {
    pub state: State,
    pub sequence: u64,
    pub end: End,
    /// The snapshot that the recovery began with.
    pub snapshot: Option<SnapshotHeader>,
    /// Newer snapshots that could not be used, and why.
    pub unusable: Vec<SpotError>,
    pub operations: u64,
}

/// Recovers the state from the newest snapshot that can be read and the log after it, up to and with segment `last`, or
/// to the end of the log.
pub fn recover<S: Storage>(
    storage: &S,
    last: Option<u64>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Recovered, SpotError> {
    recover_from(storage, newest_snapshot(storage)?, last, progress)
}

fn recover_from<S: Storage>(
    storage: &S,
    newest: NewestSnapshot,
    last: Option<u64>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Recovered, SpotError> {
    let NewestSnapshot { header: snapshot, mut state, unusable } = newest;
    let all = segments(storage)?;
    if all.is_empty() && snapshot.is_none() && unusable.is_empty() {
        return Err(SpotError::Missing { folder: storage.describe("") });
    }
    let first = match &snapshot {
        Some(header) => header.segment,
        // Without a snapshot the log must be there from its beginning.
        None => 1,
    };
    if snapshot.is_none() && !all.contains(&first) {
        let missing = storage.describe(&segment_name(first));
        return Err(unusable.into_iter().next().unwrap_or(SpotError::Incomplete { what: missing }));
    }
    if let Some(header) = &snapshot
        && let Some(expected) = segment_log_id(storage, first)?
        && expected != header.log_id
    {
        let file = storage.describe(&snapshot_name(header.sequence));
        return Err(SpotError::Foreign { file, found: header.log_id, expected });
    }
    let wanted = all.iter().filter(|number| **number >= first && last.is_none_or(|last| **number <= last)).count();
    let mut reached = Progress { segments_done: 0, segments: wanted as u64, operations: 0 };
    let mut sequence = snapshot.map_or(0, |header| header.sequence);
    let end = walk(storage, snapshot.map(|header| header.log_id), first, last, |record| {
        let done = record.segment - first;
        if done > reached.segments_done {
            reached.segments_done = done;
            progress(reached);
        }
        if record.header.sequence != sequence + 1 {
            let file = storage.describe(&segment_name(record.segment));
            let reason = format!("batch {} is there, batch {} is expected", record.header.sequence, sequence + 1);
            return Err(SpotError::Damaged { file, offset: record.offset, reason });
        }
        run_record(storage, &mut state, record, &mut |_, _, _| {})?;
        sequence += 1;
        reached.operations += u64::from(record.header.count);
        Ok(())
    })?;
    reached.segments_done = reached.segments;
    progress(reached);
    Ok(Recovered { state, sequence, end, snapshot, unusable, operations: reached.operations })
}

/// The newest snapshot that can be used: its header and what it holds, or no header and an empty state if there is
/// none.
struct NewestSnapshot {
    header: Option<SnapshotHeader>,
    state: State,
    /// Why newer snapshots cannot be used.
    unusable: Vec<SpotError>,
}

fn newest_snapshot<S: Storage>(storage: &S) -> Result<NewestSnapshot, SpotError> {
    let mut unusable = Vec::new();
    for sequence in snapshots(storage)? {
        match load(storage, sequence) {
            Ok((header, state)) => return Ok(NewestSnapshot { header: Some(header), state, unusable }),
            Err(invalid) => match invalid.into_error(storage.describe(&snapshot_name(sequence))) {
                // An older program must not fall back to an older snapshot because it does not know the format, nor a
                // process that has no permission or no file handle left. Only bytes that the disk itself cannot read
                // count as damage.
                newer @ SpotError::Newer { .. } => return Err(newer),
                SpotError::Storage { what, file, source } if source.raw_os_error() != Some(UNREADABLE) => {
                    return Err(SpotError::Storage { what, file, source });
                }
                other => unusable.push(other),
            },
        }
    }
    Ok(NewestSnapshot { header: None, state: State::default(), unusable })
}

/// Runs the operations of a record again and checks that the decisions are the same as then. `see` is shown each of
/// them.
pub(crate) fn run_record<S: Storage>(
    storage: &S,
    state: &mut State,
    record: &Record<'_>,
    see: &mut dyn FnMut(&Record<'_>, &Operation, Decision),
) -> Result<(), SpotError> {
    let file = || storage.describe(&segment_name(record.segment));
    let diverged = |number: u32| SpotError::Diverged {
        file: file(),
        offset: record.offset,
        sequence: record.header.sequence,
        number,
    };
    state.set_window(record.header.window);
    let mut fields = Fields::of(record.payload);
    let mut decisions = Vec::new();
    for number in 0..record.header.count {
        let operation = Operation::decode(&mut fields).map_err(|bad| SpotError::Damaged {
            file: file(),
            offset: record.offset,
            reason: format!("operation {number}: {bad}"),
        })?;
        match state.answer(&operation.into()) {
            (Answer::First(decision), true) => {
                decisions.push(decision.number());
                see(record, &operation, decision);
            }
            // The log holds only operations that were decided for the first time.
            _ => return Err(diverged(number)),
        }
    }
    if crc32c::crc32c(&decisions) != record.header.decisions || !fields.rest().is_empty() {
        return Err(diverged(record.header.count));
    }
    Ok(())
}

/// A segment that will not be written to any more, and the last batch in it or before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// 0 if there is none yet.
    pub segment: u64,
    pub sequence: u64,
}

/// Takes a snapshot of everything up to and with a sealed segment, and removes files that are no longer needed. `None`
/// if there is no batch since the newest snapshot.
pub fn take<S: Storage>(storage: &S, sealed: Sealed) -> Result<Option<SnapshotHeader>, SpotError> {
    let last = sealed.segment;
    if last == 0 {
        return Ok(None);
    }
    let newest = newest_snapshot(storage)?;
    let base = newest.header;
    set_aside(storage, base.map(|header| header.sequence))?;
    if base.is_some_and(|header| header.segment > last) {
        return Ok(None);
    }
    let recovered = recover_from(storage, newest, Some(last), &mut |_| {})?;
    // Every batch of a sealed segment was acknowledged. If the last one cannot be read, the segment is damaged.
    if recovered.sequence != sealed.sequence {
        let (end, sequence) = (recovered.end, recovered.sequence);
        let file = storage.describe(&segment_name(end.segment));
        let torn = end.torn.unwrap_or_else(|| "nothing is there".into());
        let reason =
            format!("batch {} was acknowledged, batch {sequence} is the last that is whole: {torn}", sealed.sequence);
        return Err(SpotError::Damaged { file, offset: end.offset, reason });
    }
    if base.is_some_and(|header| header.sequence == recovered.sequence) {
        return Ok(None);
    }
    let made = write(storage, &recovered.state, recovered.end.log_id, recovered.sequence, last + 1)?;
    if let Some(base) = base {
        tidy(storage, &base)?;
    }
    Ok(Some(made))
}

/// Renames the damaged snapshots: those that are newer than the one that could be read. They keep their bytes, and no
/// longer count as one of the two that are kept.
fn set_aside<S: Storage>(storage: &S, readable: Option<u64>) -> Result<(), SpotError> {
    for sequence in snapshots(storage)?.into_iter().filter(|sequence| Some(*sequence) > readable) {
        let name = snapshot_name(sequence);
        tracing::error!(file = storage.describe(&name), "a snapshot is damaged and was set aside");
        storage.rename(&name, &format!("{name}.damaged")).on_file("rename", || storage.describe(&name))?;
        storage.sync_directory().on_file("sync", || storage.describe(""))?;
    }
    Ok(())
}

/// Keeps two snapshots: the one just written, and `base`, which it was made from and which was read in full. Older
/// snapshots are removed, and the segments that only those needed.
fn tidy<S: Storage>(storage: &S, base: &SnapshotHeader) -> Result<(), SpotError> {
    for sequence in snapshots(storage)?.into_iter().filter(|sequence| *sequence < base.sequence) {
        let name = snapshot_name(sequence);
        storage.remove(&name).on_file("remove", || storage.describe(&name))?;
    }
    storage.sync_directory().on_file("sync", || storage.describe(""))?;
    for number in segments(storage)?.into_iter().filter(|number| *number < base.segment) {
        let name = segment_name(number);
        storage.remove(&name).on_file("remove", || storage.describe(&name))?;
    }
    Ok(())
}

/// The id of the log that a segment belongs to. `None` if the header cannot be read: `walk` then says why.
fn segment_log_id<S: Storage>(storage: &S, number: u64) -> Result<Option<u64>, SpotError> {
    let name = segment_name(number);
    let file = match storage.open(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.on_file("open", || storage.describe(&name))?,
    };
    let mut bytes = [0; format::HEADER];
    let read = read_full(&file, &mut bytes, 0).on_file("read", || storage.describe(&name))?;
    let header = format::SegmentHeader::decode(&bytes).ok().filter(|_| read == bytes.len());
    Ok(header.map(|header| header.log_id))
}

/// Reads the header alone. `None` if it cannot be read or is not sound.
pub fn read_header<S: Storage>(storage: &S, name: &str) -> Option<SnapshotHeader> {
    let file = storage.open(name).ok()?;
    let mut bytes = [0; HEADER];
    let read = read_full(&file, &mut bytes, 0).ok()?;
    (read == HEADER).then(|| SnapshotHeader::decode(&bytes).ok()).flatten()
}
