//! The engine without threads: a batch is answered in memory, made durable, and only then may the answers leave.
//!
//! The service runs this on a thread of its own; the simulator runs it step by step on a disk that lies.

use std::sync::Arc;

use domain::Timestamp;

use crate::answer::Answer;
use crate::error::{OnFile, SpotError};
use crate::log::format::SegmentHeader;
use crate::log::read::segments;
use crate::log::write::{Log, Spare, make_segment};
use crate::log::{BLOCK, is_unfinished};
use crate::operation::{LONGEST, Request};
use crate::snapshot::{self, Progress, Sealed};
use crate::state::State;
use crate::storage::Storage;

/// The most requests that one submission may hold.
pub const SUBMISSION_MAX: usize = 4_096;
/// A batch takes no further submission once it has so many bytes, so that its write stays short and it fits a segment.
const BATCH_BYTES: usize = 256 << 10;
/// The largest record: a batch just below its limit, one more submission, and two blocks for trailer and padding.
const LARGEST_RECORD: u64 = (BATCH_BYTES + SUBMISSION_MAX * LONGEST + 2 * BLOCK) as u64;
/// The time in the log is never older than an hour while batches come.
const TIME_MICROS: i64 = 3_600 * 1_000_000;
/// The smallest segment still has room for the largest record.
const SEGMENT_MIN: u64 = 1 << 20;
/// The reader holds a whole segment in memory, so a segment has a limit.
const SEGMENT_MAX: u64 = 1 << 30;
const _: () = assert!(SEGMENT_MIN > LARGEST_RECORD + BLOCK as u64, "every record must fit a segment");

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The length of each segment of a new log. An existing log keeps the length that it was created with.
    pub segment_bytes: u64,
    /// How long operation ids are remembered. The time in the newest id counts, not the clock.
    pub retention_micros: i64,
    /// Believe a clock that is far ahead of the log. An operator sets this who knows that the clock is right.
    pub accept_clock: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, retention_micros: 7 * 24 * 3_600 * 1_000_000, accept_clock: false }
    }
}

impl Settings {
    pub fn check(&self) -> Result<(), SpotError> {
        if !(SEGMENT_MIN..=SEGMENT_MAX).contains(&self.segment_bytes) {
            return Err(SpotError::Setting("a segment has between 1 MiB and 1 GiB"));
        }
        if !self.segment_bytes.is_multiple_of(BLOCK as u64) {
            return Err(SpotError::Setting("a segment is a multiple of 4096 bytes"));
        }
        if self.retention_micros < 0 {
            return Err(SpotError::Setting("the retention is not negative"));
        }
        Ok(())
    }
}

/// What a start found in the log.
#[derive(Debug)]
pub struct Started {
    /// The batch of the snapshot that the recovery began with.
    pub snapshot: Option<u64>,
    /// The last batch in the log.
    pub sequence: u64,
    /// How many operations the recovery ran again after the snapshot.
    pub operations: u64,
    /// A record at the end that was never acknowledged, and was cut off: where, and what is wrong with it.
    pub torn: Option<String>,
    /// Snapshots that could not be read.
    pub unusable: Vec<SpotError>,
}

pub struct Core<S: Storage> {
    storage: Arc<S>,
    state: State,
    log: Log<S>,
    retention_micros: i64,
    accept_clock: bool,
    first_segment: u64,
    /// The horizon that is in the log.
    durable_horizon: Timestamp,
    /// The time that is in the log.
    durable_time: Timestamp,
    /// An answer of this batch relies on a horizon that only memory knows.
    relied_on_horizon: bool,
    /// The decisions on the operations in the log's buffer, a byte each.
    decisions: Vec<u8>,
}

impl<S: Storage> Core<S> {
    /// Makes a new, empty log in a folder that has none. `log_id` is a random number.
    pub fn create(storage: &S, log_id: u64, settings: &Settings) -> Result<(), SpotError> {
        settings.check()?;
        if !segments(storage)?.is_empty() || !snapshot::snapshots(storage)?.is_empty() {
            return Err(SpotError::Exists { folder: storage.describe("") });
        }
        let header = SegmentHeader { log_id, number: 1, bytes: settings.segment_bytes };
        make_segment(storage, &header).map(drop)
    }

    /// Recovers the state from the log and makes the log ready for the next batch. Files that an earlier process left
    /// unfinished are removed.
    pub fn open(
        storage: Arc<S>,
        settings: &Settings,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Self, Started), SpotError> {
        settings.check()?;
        for name in storage.names().on_file("list", || storage.describe(""))?.iter().filter(|name| is_unfinished(name))
        {
            storage.remove(name).on_file("remove", || storage.describe(name))?;
        }
        let recovered = snapshot::recover(&*storage, None, progress)?;
        let end = &recovered.end;
        let file = || storage.describe(&crate::log::segment_name(end.segment));
        let torn = end.torn.as_ref().map(|reason| format!("{}, offset {}: {reason}", file(), end.offset));
        let log = Log::resume(Arc::clone(&storage), end, recovered.sequence)?;
        let started = Started {
            snapshot: recovered.snapshot.map(|header| header.sequence),
            sequence: recovered.sequence,
            operations: recovered.operations,
            torn,
            unusable: recovered.unusable,
        };
        let (state, retention_micros) = (recovered.state, settings.retention_micros);
        let first_segment = recovered.snapshot.map_or(1, |header| header.segment);
        let core = Self {
            storage,
            log,
            retention_micros,
            accept_clock: settings.accept_clock,
            first_segment,
            durable_horizon: state.window().horizon,
            durable_time: state.window().time,
            relied_on_horizon: false,
            decisions: Vec::new(),
            state,
        };
        Ok((core, started))
    }

    pub const fn state(&self) -> &State {
        &self.state
    }

    pub const fn log(&self) -> &Log<S> {
        &self.log
    }

    pub fn storage(&self) -> Arc<S> {
        Arc::clone(&self.storage)
    }

    pub fn spare(&self) -> Spare<S::File> {
        self.log.spare()
    }

    /// Opens a batch. A clock that steps back changes nothing, and neither does one that is too far ahead: ids that it
    /// made would move the horizon past every id of a right clock.
    pub fn begin(&mut self, now: Timestamp) {
        let now = if self.clock_is_ahead(now) { self.state.window().time } else { now };
        self.state.set_window(self.state.window_at(now, self.retention_micros));
    }

    /// Is the clock so far ahead of the log that the engine does not believe it? By the retention: ids that such a
    /// clock makes would expire every id that is remembered. A log without a batch has no time yet
    /// and believes every clock.
    pub fn clock_is_ahead(&self, now: Timestamp) -> bool {
        let last = self.state.window().time;
        let farthest = last.plus_micros(self.retention_micros);
        !self.accept_clock && last > Timestamp::from_micros(i64::MIN) && now > farthest
    }

    /// Answers in memory. **The answer must not leave before [`Core::commit`] has returned well.**
    pub fn answer(&mut self, request: &Request) -> Answer {
        let (mut answer, decided) = self.state.answer(request);
        if let Answer::Pair(pair) = &mut answer {
            (pair.log_id, pair.sequence) = (self.log.segment().log_id, self.log.sequence());
        }
        self.relied_on_horizon |= answer == Answer::Expired && self.state.window().horizon > self.durable_horizon;
        if decided && let (Answer::First(decision), Request::Run(operation)) = (answer, request) {
            operation.encode(self.log.buffer());
            self.decisions.push(decision.number());
        }
        answer
    }

    /// Is there room for one more submission in the batch?
    pub fn has_room(&mut self) -> bool {
        self.log.buffer().len() < BATCH_BYTES
    }

    /// Makes the batch durable: one write, one sync. A batch that decided nothing (replays, queries) needs neither,
    /// because its answers come from what is durable already. The one exception is "expired": it must stay true after
    /// the next start, so the horizon that it relies on is logged first. **After an error the caller gives the core
    /// up**: its memory is ahead of the disk, so that even a batch that decides nothing would tell of what may be lost.
    pub fn commit(&mut self) -> Result<(), SpotError> {
        if self.log.has_failed() {
            return Err(SpotError::Stopped);
        }
        // An engine that is only asked logs its time too, so that the next start can tell a jump of the clock from a quiet
        // month.
        let (none, old) = (Timestamp::from_micros(i64::MIN), self.durable_time.plus_micros(TIME_MICROS));
        let old_time = self.durable_time > none && self.state.window().time > old;
        if self.decisions.is_empty() && !self.relied_on_horizon && !old_time { Ok(()) } else { self.append() }
    }

    /// Makes the time of the batch durable although nothing was decided: an idle engine keeps its own time, so that the
    /// next start can tell a jump of the clock from a quiet month.
    pub fn keep_time(&mut self) -> Result<(), SpotError> {
        self.append()
    }

    /// Ends the log in good order with an empty record. A good record proves that the one before it is whole.
    pub fn close(&mut self) -> Result<(), SpotError> {
        self.append()
    }

    fn append(&mut self) -> Result<(), SpotError> {
        let count = u32::try_from(self.decisions.len()).map_err(|_| SpotError::Setting("a batch is too large"))?;
        let decisions = crc32c::crc32c(&self.decisions);
        self.decisions.clear();
        self.log.append(self.state.window(), count, decisions)?;
        self.durable_horizon = self.state.window().horizon;
        self.durable_time = self.state.window().time;
        self.relied_on_horizon = false;
        Ok(())
    }

    /// Ends the current segment, so that a snapshot can be taken of everything up to its end.
    pub fn seal(&mut self) -> Result<Sealed, SpotError> {
        if self.log.offset() > BLOCK as u64 {
            self.log.rotate()?;
        }
        let segment = self.log.segment().number - 1;
        Ok(Sealed { segment, sequence: self.log.sequence() })
    }

    /// The first segment that the newest snapshot does not cover, as of the start.
    pub const fn first_segment(&self) -> u64 {
        self.first_segment
    }
}
