//! Reads and checks a whole log without starting an engine on it. Nothing is changed.

use crate::answer::Decision;
use crate::error::SpotError;
use crate::log::read::{End, Record, segments, walk};
use crate::log::segment_name;
use crate::operation::Operation;
use crate::snapshot::{Progress, SnapshotHeader, load, run_record, snapshot_name, snapshots};
use crate::state::State;
use crate::storage::Storage;

/// What a complete reading found.
pub struct Verified {
    pub end: End,
    /// Every snapshot, oldest first. Each but the one that the reading began with holds the same state as the log
    /// there.
    pub snapshots: Vec<SnapshotHeader>,
    pub segments: u64,
    pub batches: u64,
    pub operations: u64,
    pub first_sequence: Option<u64>,
    pub sequence: u64,
    pub state: State,
}

/// Reads all snapshots and segments and runs every operation again: from the first segment on if none is missing, else
/// from the oldest snapshot on. Compares the state with each snapshot on the way. The first thing that is wrong is the
/// error. `see` is shown every operation with its decision.
pub fn verify<S: Storage>(
    storage: &S,
    progress: &mut dyn FnMut(Progress),
    see: &mut dyn FnMut(&Record<'_>, &Operation, Decision),
) -> Result<Verified, SpotError> {
    let mut sequences = snapshots(storage)?;
    sequences.reverse();
    let there = segments(storage)?;
    if there.is_empty() && sequences.is_empty() {
        return Err(SpotError::Missing { folder: storage.describe("") });
    }
    // The reading begins with the first segment if none is missing, else where the oldest snapshot ends.
    let complete = there.iter().zip(1..).all(|(number, expected)| *number == expected);
    // An engine can only start from a snapshot if the segment with the next batches is there.
    let goes_on = |header: &SnapshotHeader| match there.contains(&header.segment) {
        true => Ok(()),
        false => Err(SpotError::Incomplete { what: storage.describe(&segment_name(header.segment)) }),
    };
    let mut headers = Vec::new();
    let mut state = State::default();
    let mut sequence = 0;
    let mut remaining = sequences.iter().copied().peekable();
    if !complete || there.is_empty() {
        let Some(oldest) = remaining.next() else {
            return Err(SpotError::Incomplete { what: storage.describe(&segment_name(1)) });
        };
        let (header, restored) = read(storage, oldest)?;
        goes_on(&header)?;
        (state, sequence) = (restored, header.sequence);
        headers.push(header);
    }
    let start = headers.first().map_or(1, |header| header.segment);
    let mut reached = Progress {
        segments_done: 0,
        segments: there.iter().filter(|number| **number >= start).count() as u64,
        operations: 0,
    };
    let (mut batches, mut first_sequence) = (0, None);
    let mut check = |sequence: u64, state: &State| -> Result<(), SpotError> {
        if remaining.next_if_eq(&sequence).is_some() {
            let (header, snapshot) = read(storage, sequence)?;
            goes_on(&header)?;
            if snapshot.digest() != state.digest() {
                let file = storage.describe(&snapshot_name(sequence));
                let reason = "it does not hold what the log comes to at its place".into();
                return Err(SpotError::Damaged { file, offset: 0, reason });
            }
            headers.push(header);
        }
        Ok(())
    };
    let log_id = headers_log_id(storage, &sequences)?;
    let end = walk(storage, log_id, start, None, |record| {
        let file = || storage.describe(&segment_name(record.segment));
        if record.header.sequence != sequence + 1 {
            let reason = format!("batch {} is there, batch {} is expected", record.header.sequence, sequence + 1);
            return Err(SpotError::Damaged { file: file(), offset: record.offset, reason });
        }
        run_record(storage, &mut state, record, see)?;
        sequence += 1;
        batches += 1;
        first_sequence.get_or_insert(sequence);
        reached.operations += u64::from(record.header.count);
        if record.segment - start > reached.segments_done {
            reached.segments_done = record.segment - start;
            progress(reached);
        }
        check(sequence, &state)
    })?;
    if let Some(beyond) = remaining.next() {
        let file = storage.describe(&snapshot_name(beyond));
        return Err(SpotError::Incomplete {
            what: format!("{file} holds batch {beyond}, the log ends with {sequence}"),
        });
    }
    let segments = there.len() as u64;
    Ok(Verified {
        end,
        snapshots: headers,
        segments,
        batches,
        operations: reached.operations,
        first_sequence,
        sequence,
        state,
    })
}

fn read<S: Storage>(storage: &S, sequence: u64) -> Result<(SnapshotHeader, State), SpotError> {
    load(storage, sequence).map_err(|invalid| invalid.into_error(storage.describe(&snapshot_name(sequence))))
}

/// The id of the log, if the header of any snapshot can be read. All headers must agree.
fn headers_log_id<S: Storage>(storage: &S, sequences: &[u64]) -> Result<Option<u64>, SpotError> {
    let mut log_id = None;
    for sequence in sequences {
        let name = snapshot_name(*sequence);
        if let Some(header) = crate::snapshot::read_header(storage, &name) {
            let expected = *log_id.get_or_insert(header.log_id);
            if expected != header.log_id {
                return Err(SpotError::Foreign { file: storage.describe(&name), found: header.log_id, expected });
            }
        }
    }
    Ok(log_id)
}
