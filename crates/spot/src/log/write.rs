//! Appending to the log: one write and one sync for each batch.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::format::{HEADER, RecordHeader, SegmentHeader, TRAILER};
use super::read::End;
use super::{BLOCK, segment_name};
use crate::error::{OnFile, SpotError};
use crate::snapshot::Sealed;
use crate::state::Window;
use crate::storage::{File, Storage, make_whole, write_all};

/// The newest segment, and its file if the writer has not taken it yet. **The thread that makes a segment holds the
/// lock meanwhile**, so that no segment is made twice: the second would replace one that is in use.
pub struct NewestSegment<F> {
    number: u64,
    file: Option<F>,
}

pub type Spare<F> = Arc<Mutex<NewestSegment<F>>>;

/// Makes a segment before the writer needs it, unless it is there.
pub fn prepare<S: Storage>(storage: &S, spare: &Spare<S::File>, header: &SegmentHeader) -> Result<(), SpotError> {
    let mut newest = spare.lock().unwrap_or_else(PoisonError::into_inner);
    if header.number > newest.number {
        let file = make_segment(storage, header)?;
        *newest = NewestSegment { number: header.number, file: Some(file) };
    }
    Ok(())
}

/// Makes a new segment: a header, and zeros to the end.
pub fn make_segment<S: Storage>(storage: &S, header: &SegmentHeader) -> Result<S::File, SpotError> {
    let name = segment_name(header.number);
    make_whole(storage, &name, |file| {
        fill(file, 0, header.bytes)?;
        write_all(file, &header.encode(), 0)
    })?;
    storage.open_for_blocks(&name).on_file("open", || storage.describe(&name))
}

/// Writes zeros from one offset to another. Each mebibyte is synced by itself, so that the writer's own syncs do not
/// queue behind a whole segment.
fn fill<F: File>(file: &F, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = from;
    while at < to {
        let piece = usize::try_from(to - at).unwrap_or(zeros.len()).min(zeros.len());
        write_all(file, &zeros[..piece], at)?;
        at += piece as u64;
        file.sync()?;
    }
    Ok(())
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
    /// The record of the open batch: room for its header, then operations.
    buffer: Vec<u8>,
    spare: Spare<S::File>,
    /// The segment that was sealed last since the start.
    sealed: Option<Sealed>,
    failed: bool,
}

impl<S: Storage> Log<S> {
    /// Goes on where the log ends, or in the last segment that was prepared: **a segment that another follows is never
    /// written to again**, because a snapshot may take it for finished, even a snapshot that cannot be read just now. A
    /// torn record is overwritten with zeros. The last record is synced once more: the process that wrote it may have
    /// died before its sync, and from now on answers rely on it.
    pub fn resume(storage: Arc<S>, end: &End, sequence: u64) -> Result<Self, SpotError> {
        let name = segment_name(end.segment);
        let path = || storage.describe(&name);
        let mut file = storage.open_for_blocks(&name).on_file("open", path)?;
        if end.torn.is_some() {
            fill(&file, end.offset, end.segment_bytes).on_file("cut the torn record of", path)?;
        }
        file.sync().on_file("sync", path)?;
        storage.sync_directory().on_file("sync", || storage.describe(""))?;
        let (mut offset, mut sealed) = (end.offset, None);
        if end.last_segment > end.segment {
            let name = segment_name(end.last_segment);
            file = storage.open_for_blocks(&name).on_file("open", || storage.describe(&name))?;
            offset = BLOCK as u64;
            sealed = Some(Sealed { segment: end.last_segment - 1, sequence });
        }
        let header = SegmentHeader { log_id: end.log_id, number: end.last_segment, bytes: end.segment_bytes };
        let buffer = vec![0; HEADER];
        let spare = Arc::new(Mutex::new(NewestSegment { number: end.last_segment, file: None }));
        Ok(Self { storage, file, header, offset, sequence, buffer, spare, sealed, failed: false })
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

    /// A write or a sync has failed: memory is ahead of the disk from then on.
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// The record of the open batch; operations are added at its end.
    pub const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Makes the batch in the buffer durable. After an error nothing may be answered any more: how much reached the
    /// disk is not known, and only a recovery can tell.
    pub fn append(&mut self, window: Window, count: u32, decisions: u32) -> Result<(), SpotError> {
        if self.failed {
            return Err(SpotError::Stopped);
        }
        let result = self.write(window, count, decisions);
        self.failed = result.is_err();
        result
    }

    fn write(&mut self, window: Window, count: u32, decisions: u32) -> Result<(), SpotError> {
        self.buffer.extend_from_slice(&TRAILER);
        let payload = &self.buffer[HEADER..];
        let header = RecordHeader {
            length: u32::try_from(payload.len()).map_err(|_| SpotError::Setting("a batch is too large"))?,
            sequence: self.sequence + 1,
            log_id: self.header.log_id,
            window,
            count,
            decisions,
            checksum: crc32c::crc32c(payload),
        };
        self.buffer[..HEADER].copy_from_slice(&header.encode());
        self.buffer.resize(self.buffer.len().next_multiple_of(BLOCK), 0);
        if self.offset + self.buffer.len() as u64 > self.header.bytes {
            self.rotate()?;
        }
        let path = || self.storage.describe(&segment_name(self.header.number));
        write_all(&self.file, &self.buffer, self.offset).on_file("write to", path)?;
        self.file.sync().on_file("sync", path)?;
        self.offset += self.buffer.len() as u64;
        self.sequence += 1;
        self.buffer.clear();
        self.buffer.resize(HEADER, 0);
        Ok(())
    }

    /// Goes on in the next segment: in the spare one if it is ready, else in one that is made now.
    pub fn rotate(&mut self) -> Result<(), SpotError> {
        let header = SegmentHeader { number: self.header.number + 1, ..self.header };
        let mut newest = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = newest.file.take().filter(|_| newest.number == header.number);
        self.file = match ready {
            Some(file) => file,
            None => make_segment(&*self.storage, &header)?,
        };
        newest.number = header.number;
        drop(newest);
        self.sealed = Some(Sealed { segment: self.header.number, sequence: self.sequence });
        self.header = header;
        self.offset = BLOCK as u64;
        Ok(())
    }
}
