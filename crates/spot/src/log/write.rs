//! Appending to the log: one write and one sync for each batch.

use std::sync::{Arc, Mutex, PoisonError};

use super::format::{HEADER, RecordHeader, SegmentHeader};
use super::read::End;
use super::{BLOCK, UNFINISHED, segment_name};
use crate::error::{SpotError, Told};
use crate::snapshot::Sealed;
use crate::state::Window;
use crate::storage::{File, Storage, write_all};

/// A segment that was prepared ahead of its time, with its number. Locked while it is being made, so that a writer that
/// cannot wait for it does.
pub type Spare<F> = Arc<Mutex<Option<(u64, F)>>>;

/// A new segment: zeros to its end, its header, synced, then named.
pub fn make_segment<S: Storage>(storage: &S, header: &SegmentHeader) -> Result<S::File, SpotError> {
    let name = segment_name(header.number);
    let unfinished = format!("{name}{UNFINISHED}");
    let path = || storage.describe(&unfinished);
    let file = storage.create(&unfinished).told("create", path)?;
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    while at < header.bytes {
        let piece = usize::try_from(header.bytes - at).unwrap_or(zeros.len()).min(zeros.len());
        write_all(&file, &zeros[..piece], at).told("prepare", path)?;
        at += piece as u64;
        // Piece by piece, so that the writer's own syncs do not queue behind a whole segment.
        file.sync().told("sync", path)?;
    }
    write_all(&file, &header.encode(), 0).told("prepare", path)?;
    file.sync().told("sync", path)?;
    storage.rename(&unfinished, &name).told("rename", path)?;
    storage.sync_directory().told("sync", || storage.describe(""))?;
    storage.open_for_blocks(&name).told("open", || storage.describe(&name))
}

/// The writing end of a log.
pub struct Log<S: Storage> {
    storage: Arc<S>,
    file: S::File,
    header: SegmentHeader,
    /// Where the next record goes.
    offset: u64,
    /// The last batch that is durable.
    sequence: u64,
    /// The record in the making: room for its header, then operations.
    buffer: Vec<u8>,
    spare: Spare<S::File>,
    /// What was sealed last, since the start.
    sealed: Option<Sealed>,
    failed: bool,
}

impl<S: Storage> Log<S> {
    /// Goes on where the log ends. A torn record is wiped out first.
    pub fn resume(storage: Arc<S>, end: &End, sequence: u64) -> Result<Self, SpotError> {
        let name = segment_name(end.segment);
        let path = || storage.describe(&name);
        let file = storage.open_for_blocks(&name).told("open", path)?;
        if end.torn.is_some() {
            let zeros = vec![0; usize::try_from(end.segment_bytes - end.offset).unwrap_or(0)];
            write_all(&file, &zeros, end.offset).told("cut the torn record of", path)?;
            file.sync().told("sync", path)?;
        }
        let header = SegmentHeader { log: end.log, number: end.segment, bytes: end.segment_bytes };
        let buffer = vec![0; HEADER];
        let spare = Spare::default();
        Ok(Self { storage, file, header, offset: end.offset, sequence, buffer, spare, sealed: None, failed: false })
    }

    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    pub const fn segment(&self) -> SegmentHeader {
        self.header
    }

    pub const fn offset(&self) -> u64 {
        self.offset
    }

    pub const fn sealed(&self) -> Option<Sealed> {
        self.sealed
    }

    pub fn spare(&self) -> Spare<S::File> {
        Arc::clone(&self.spare)
    }

    /// The record in the making; operations are added at its end.
    pub const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Makes the batch in the buffer durable. After an error nothing may be answered any more: what reached the disk
    /// is not known, and only reading it again can tell.
    pub fn append(&mut self, window: Window, count: u32, outcomes: u32) -> Result<(), SpotError> {
        if self.failed {
            return Err(SpotError::Stopped);
        }
        let result = self.write(window, count, outcomes);
        self.failed = result.is_err();
        result
    }

    fn write(&mut self, window: Window, count: u32, outcomes: u32) -> Result<(), SpotError> {
        let payload = &self.buffer[HEADER..];
        let header = RecordHeader {
            length: u32::try_from(payload.len()).map_err(|_| SpotError::Setting("a batch is too large"))?,
            sequence: self.sequence + 1,
            log: self.header.log,
            window,
            count,
            outcomes,
            checksum: crc32c::crc32c(payload),
        };
        self.buffer[..HEADER].copy_from_slice(&header.encode());
        self.buffer.resize(self.buffer.len().next_multiple_of(BLOCK), 0);
        if self.offset + self.buffer.len() as u64 > self.header.bytes {
            self.rotate()?;
        }
        let path = || self.storage.describe(&segment_name(self.header.number));
        write_all(&self.file, &self.buffer, self.offset).told("write to", path)?;
        self.file.sync().told("sync", path)?;
        self.offset += self.buffer.len() as u64;
        self.sequence += 1;
        self.buffer.clear();
        self.buffer.resize(HEADER, 0);
        Ok(())
    }

    /// Goes on in the next segment: the spare one if it is ready, or one made now.
    pub fn rotate(&mut self) -> Result<(), SpotError> {
        let header = SegmentHeader { number: self.header.number + 1, ..self.header };
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.file = match spare {
            Some((number, file)) if number == header.number => file,
            _ => make_segment(&*self.storage, &header)?,
        };
        self.sealed = Some(Sealed { segment: self.header.number, sequence: self.sequence });
        self.header = header;
        self.offset = BLOCK as u64;
        Ok(())
    }
}
