//! Reading the log back, and telling a torn end from damage.
//!
//! At most one record is ever on its way to the disk. So a torn write can only have hit the very last record; this
//! record was never acknowledged, and it is cut off. Anything else that is not as it was written is damage, and stops
//! the reader: a bad record with a good one behind it, a gap in the sequence, a file that is shorter than it was made,
//! and a last record that is one bit away from a good one (a torn write loses whole sectors, never a bit). One damage
//! looks like a torn write and is cut off too: several wrong bits in the last record of a log that was not closed in
//! order.

use super::format::{
    Flaw, HEADER, RecordHeader, SegmentHeader, TRAILER, VERSION, one_bit_from_checksum, one_bit_from_header,
};
use super::{BLOCK, segment_name, segment_number};
use crate::error::{OnFile, SpotError};
use crate::storage::{File, Storage, read_full};

/// A whole record, as it stands in its segment.
pub struct Record<'a> {
    pub segment: u64,
    pub offset: u64,
    pub header: RecordHeader,
    pub payload: &'a [u8],
}

/// Where the log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub log_id: u64,
    pub segment: u64,
    pub segment_bytes: u64,
    /// Where the next record goes.
    pub offset: u64,
    /// The last sequence that was read, if any record was.
    pub sequence: Option<u64>,
    /// What is wrong with the bytes behind the last record, if a write was torn there.
    pub torn: Option<String>,
    /// The last segment that is there. It may be one after `segment` that was prepared and has no record yet.
    pub last_segment: u64,
}

/// A segment is read in pieces of so many bytes, so that the writer's own writes do not queue behind a whole segment.
const PIECE: usize = 256 << 10;

/// The numbers of all segments, in order.
pub fn segments(storage: &impl Storage) -> Result<Vec<u64>, SpotError> {
    let names = storage.names().on_file("list", || storage.describe(""))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// What stands at an offset of a segment.
enum Found<'a> {
    Record(RecordHeader, &'a [u8]),
    Blank,
    /// A whole header of another version of the format.
    Newer(u32),
    /// A whole header of another log, with that log's id.
    Foreign(u64),
    /// The checksums are good, and yet no writer ever wrote a record like this.
    Wrong(&'static str),
    /// A header or a record that is not whole.
    Bad(String),
}

fn look(bytes: &[u8], at: usize, log_id: u64) -> Found<'_> {
    let Some(header_bytes) = bytes.get(at..).and_then(|rest| rest.first_chunk::<HEADER>()) else {
        return Found::Blank;
    };
    let header = match RecordHeader::decode(header_bytes) {
        Ok(header) if header.log_id == log_id => header,
        Ok(header) => return Found::Foreign(header.log_id),
        Err(Flaw::Blank) => return Found::Blank,
        Err(Flaw::Newer(version)) => return Found::Newer(version),
        Err(flaw) => return Found::Bad(flaw.to_string()),
    };
    let payload = usize::try_from(header.length).ok().and_then(|length| bytes.get(at + HEADER..)?.get(..length));
    match payload {
        None => Found::Wrong("the record is longer than its segment"),
        Some(payload) if crc32c::crc32c(payload) != header.checksum => {
            Found::Bad("the checksum of the operations is wrong".into())
        }
        Some(payload) => match payload.strip_suffix(&TRAILER) {
            Some(operations) => Found::Record(header, operations),
            None => Found::Wrong("the end of the record is not where it should be"),
        },
    }
}

/// Which bit is wrong, if rot and not a torn write spoiled the bad record at this offset.
fn rotten(bytes: &[u8], at: usize) -> Option<String> {
    let header_bytes = bytes.get(at..)?.first_chunk::<HEADER>()?;
    let say = |bit: usize| format!("one bit is flipped: bit {} of byte {}", bit % 8, at + bit / 8);
    let Ok(header) = RecordHeader::decode(header_bytes) else {
        return one_bit_from_header(header_bytes).map(say);
    };
    let payload = bytes.get(at + HEADER..)?.get(..usize::try_from(header.length).ok()?)?;
    // Every sector of a record holds bytes of an operation or of the trailer that are not zero. A sector of zeros was
    // therefore never written: the write was torn.
    let whole = bytes.get(at..at + HEADER + payload.len())?;
    if whole.chunks(512).any(is_blank) {
        return None;
    }
    one_bit_from_checksum(payload.len(), header.checksum, crc32c::crc32c(payload)).map(|bit| say(HEADER * 8 + bit))
}

/// Reads and checks the segment's header; the whole file must be there.
fn check_segment(name: &str, number: u64, bytes: &[u8], log_id: Option<u64>) -> Result<SegmentHeader, SpotError> {
    let damaged = |offset: u64, reason: &str| SpotError::Damaged { file: name.into(), offset, reason: reason.into() };
    let header = bytes.first_chunk::<HEADER>().ok_or_else(|| damaged(0, "the file is cut inside its header"))?;
    let header = match SegmentHeader::decode(header) {
        Ok(header) => header,
        Err(Flaw::Newer(found)) => return Err(SpotError::Newer { file: name.into(), found, known: VERSION }),
        Err(flaw) => return Err(damaged(0, &flaw.to_string())),
    };
    if let Some(expected) = log_id
        && expected != header.log_id
    {
        return Err(SpotError::Foreign { file: name.into(), found: header.log_id, expected });
    }
    if header.number != number {
        return Err(damaged(0, &format!("it is segment {}: the file was renamed", header.number)));
    }
    if bytes.len() as u64 != header.bytes {
        let reason = format!("the file was made with {} bytes and has {}", header.bytes, bytes.len());
        return Err(damaged(bytes.len() as u64, &reason));
    }
    Ok(header)
}

/// Reads the segments from `first` on, up to and with `last`, and hands each record to `visit`, which may refuse it.
/// `log_id` is the id that all must have, if it is known.
pub fn walk<S: Storage>(
    storage: &S,
    log_id: Option<u64>,
    first: u64,
    last: Option<u64>,
    mut visit: impl FnMut(&Record<'_>) -> Result<(), SpotError>,
) -> Result<End, SpotError> {
    let there = segments(storage)?;
    let wanted = there.into_iter().filter(|number| *number >= first && last.is_none_or(|last| *number <= last));
    let mut end: Option<End> = None;
    let mut bytes = Vec::new();
    let mut expected = first;
    for number in wanted {
        let name = storage.describe(&segment_name(number));
        if number != expected {
            return Err(SpotError::Incomplete { what: storage.describe(&segment_name(expected)) });
        }
        expected = number + 1;
        read_segment(storage, number, &mut bytes)?;
        let log_id = end.as_ref().map(|end| end.log_id).or(log_id);
        let header = check_segment(&name, number, &bytes, log_id)?;
        let mut at = BLOCK;
        let mut sequence = end.as_ref().and_then(|end| end.sequence);
        let mut records = 0;
        let torn = loop {
            match look(&bytes, at, header.log_id) {
                Found::Record(found, payload) => {
                    let offset = at as u64;
                    let refuse = |reason: String| SpotError::Damaged { file: name.clone(), offset, reason };
                    if let Some(sequence) = sequence
                        && found.sequence != sequence + 1
                    {
                        return Err(match end.as_ref().filter(|_| records == 0) {
                            Some(End { torn: Some(reason), segment, offset, .. }) => {
                                let file = storage.describe(&segment_name(*segment));
                                let reason = format!("{reason}, and {name} goes on with batch {}", found.sequence);
                                SpotError::Damaged { file, offset: *offset, reason }
                            }
                            _ => refuse(format!("batch {} follows batch {sequence}", found.sequence)),
                        });
                    }
                    visit(&Record { segment: number, offset, header: found, payload })?;
                    sequence = Some(found.sequence);
                    records += 1;
                    at += usize::try_from(found.blocks_bytes()).unwrap_or(usize::MAX - at);
                }
                Found::Newer(found) => return Err(SpotError::Newer { file: name, found, known: VERSION }),
                Found::Foreign(found) => return Err(SpotError::Foreign { file: name, found, expected: header.log_id }),
                Found::Wrong(reason) => {
                    return Err(SpotError::Damaged { file: name, offset: at as u64, reason: reason.into() });
                }
                Found::Blank => break None,
                Found::Bad(reason) => break Some(reason),
            }
        };
        let torn = check_rest(&bytes, at, header.log_id, torn).map_err(|reason| SpotError::Damaged {
            file: name,
            offset: at as u64,
            reason,
        })?;
        // A good batch in the next segment would prove that the torn record before it was never acknowledged. A second
        // torn record proves nothing.
        if let Some(End { torn: Some(reason), segment, offset, .. }) = &end
            && records == 0
            && torn.is_some()
        {
            let file = storage.describe(&segment_name(*segment));
            return Err(SpotError::Damaged { file, offset: *offset, reason: reason.clone() });
        }
        let begun = records > 0 || torn.is_some() || end.is_none();
        match &mut end {
            // This segment was prepared and has no record: the log ends before it.
            Some(end) if !begun => end.last_segment = number,
            _ => {
                let (log_id, segment_bytes, offset) = (header.log_id, header.bytes, at as u64);
                let segment = number;
                end = Some(End { log_id, segment, segment_bytes, offset, sequence, torn, last_segment: number });
            }
        }
    }
    end.ok_or_else(|| SpotError::Incomplete { what: storage.describe(&segment_name(first)) })
}

/// Are there only zeros? Whole blocks are compared, which is much faster than a look at each byte.
fn is_blank(bytes: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    bytes.chunks(BLOCK).all(|block| *block == ZEROS[..block.len()])
}

/// Checks the rest of a segment behind its last good record. `None`: there is nothing. `Some` describes the remains of
/// one torn write. `Err` says why it is neither.
fn check_rest(bytes: &[u8], at: usize, log_id: u64, bad: Option<String>) -> Result<Option<String>, String> {
    let Some(rest) = bytes.get(at..) else { return Ok(None) };
    if is_blank(rest) {
        return Ok(None);
    }
    let bad = bad.unwrap_or_else(|| "a part of a record is there without its beginning".into());
    let rot = rotten(bytes, at);
    let bad = rot.as_ref().map_or_else(|| bad.clone(), |rot| format!("{bad}: {rot}"));
    for later in (at + BLOCK..bytes.len()).step_by(BLOCK) {
        if let Found::Record(header, _) = look(bytes, later, log_id) {
            return Err(format!("{bad}, and batch {} behind it at offset {later} is whole", header.sequence));
        }
    }
    if rot.is_some() { Err(bad) } else { Ok(Some(bad)) }
}

fn read_segment<S: Storage>(storage: &S, number: u64, bytes: &mut Vec<u8>) -> Result<(), SpotError> {
    let name = segment_name(number);
    let file = storage.open(&name).on_file("open", || storage.describe(&name))?;
    file.forget_cached().on_file("read", || storage.describe(&name))?;
    let length = file.length().on_file("read", || storage.describe(&name))?;
    bytes.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
    let mut read = 0;
    for piece in bytes.chunks_mut(PIECE) {
        read += read_full(&file, piece, read as u64).on_file("read", || storage.describe(&name))?;
    }
    bytes.truncate(read);
    Ok(())
}
