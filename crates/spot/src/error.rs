//! What can go wrong with the log: each with a code, the place, and what to do next.

use std::io;

use domain::Timestamp;

#[derive(Debug, thiserror::Error)]
pub enum SpotError {
    #[error("cannot {what} {file}")]
    Storage {
        what: &'static str,
        file: String,
        #[source]
        source: io::Error,
    },
    #[error("{file} is damaged at offset {offset}: {reason}")]
    Damaged { file: String, offset: u64, reason: String },
    #[error("{file} belongs to another log: it says {found:016x}, the others say {expected:016x}")]
    Foreign { file: String, found: u64, expected: u64 },
    #[error("{file} has format {found}; this version reads formats up to {known}")]
    Newer { file: String, found: u32, known: u32 },
    #[error("a part of the log is missing: {what}")]
    Incomplete { what: String },
    #[error("there is no log in {folder}")]
    Missing { folder: String },
    #[error("there is a log in {folder} already")]
    Exists { folder: String },
    #[error("another process has the log in {folder}")]
    InUse { folder: String },
    #[error(
        "{file}, offset {offset}: replaying operation {number} of batch {sequence} gives another outcome than it had"
    )]
    Diverged { file: String, offset: u64, sequence: u64, number: u32 },
    #[error("a setting of the engine is out of range: {0}")]
    Setting(&'static str),
    #[error("a snapshot is being taken")]
    SnapshotRunning,
    #[error("the clock says {now}, and the last batch was logged at {last}: one of them is wrong")]
    ClockAhead { now: Timestamp, last: Timestamp },
    #[error("the engine has stopped")]
    Stopped,
}

impl SpotError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Storage { .. } => "SPOT_STORAGE_FAILED",
            Self::Damaged { .. } => "SPOT_LOG_DAMAGED",
            Self::Foreign { .. } => "SPOT_LOG_FOREIGN",
            Self::Newer { .. } => "SPOT_LOG_NEWER",
            Self::Incomplete { .. } => "SPOT_LOG_INCOMPLETE",
            Self::Missing { .. } => "SPOT_LOG_MISSING",
            Self::Exists { .. } => "SPOT_LOG_EXISTS",
            Self::InUse { .. } => "SPOT_LOG_IN_USE",
            Self::Diverged { .. } => "SPOT_LOG_DIVERGED",
            Self::Setting(_) => "SPOT_BAD_SETTING",
            Self::SnapshotRunning => "SPOT_SNAPSHOT_RUNNING",
            Self::ClockAhead { .. } => "SPOT_CLOCK_AHEAD",
            Self::Stopped => "SPOT_STOPPED",
        }
    }

    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Storage { .. } => {
                "look at the disk (space, permissions, kernel log); nothing unacknowledged was answered"
            }
            Self::Damaged { .. } => {
                "do not delete anything; restore this file from a copy of the folder, and see docs/errors/SPOT_LOG_DAMAGED.md"
            }
            Self::Foreign { .. } => {
                "one of the files comes from another engine; find out which, move that one away, and delete nothing"
            }
            Self::Newer { .. } => "run the version of bursar that wrote it, or a later one",
            Self::Incomplete { .. } => "restore the missing files from a copy of the folder; nothing was changed",
            Self::Missing { .. } => "check the path; for a new and empty engine say --create",
            Self::Exists { .. } => "leave out --create",
            Self::InUse { .. } => "stop the other engine first; two on one log would be the end of both",
            Self::Diverged { .. } => "this version decides differently from the one that wrote the log: run that one",
            Self::Setting(_) => "see bursar spot serve --help",
            Self::SnapshotRunning => "wait for it; it holds what was answered before it began",
            Self::ClockAhead { .. } => {
                "set the clock right; if it is, and the engine was idle so long, say --accept-clock"
            }
            Self::Stopped => {
                "the reason was reported when it stopped; restart it, then send what was not answered again"
            }
        }
    }
}

/// The error and its cause in one line, for events.
pub(crate) struct Whole<'a>(pub &'a SpotError);

impl std::fmt::Display for Whole<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        std::error::Error::source(self.0).map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

/// Adds to an error of the operating system the file and what was to be done with it.
pub(crate) trait OnFile<T> {
    fn on_file(self, what: &'static str, file: impl FnOnce() -> String) -> Result<T, SpotError>;
}

impl<T> OnFile<T> for io::Result<T> {
    fn on_file(self, what: &'static str, file: impl FnOnce() -> String) -> Result<T, SpotError> {
        self.map_err(|source| SpotError::Storage { what, file: file(), source })
    }
}
