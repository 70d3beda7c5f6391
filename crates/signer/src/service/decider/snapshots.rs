//! Snapshots. Another thread writes them, while the decider goes on deciding, and hands the result back through the queue. A snapshot that could not be
//! written costs the next start some time and nothing else, so signing goes on.

use std::sync::atomic::Ordering;

use tokio::sync::mpsc;

use super::{Call, Decider};
use crate::log::folder::{Folder, FolderFile};
use crate::log::{LogError, TakenSnapshot, WrittenSnapshot};

/// A start replays at most one entry for so many that are remembered, or [`super::super::Limits::snapshot_entries`]: an entry takes as long to replay as some sixty
/// jobs take to be read from a snapshot.
const REPLAYED_SHARE: u64 = 200;

impl<F> Decider<F>
where
    F: Folder + Send + 'static,
    F::File: Send + 'static,
{
    /// A start reads the newest snapshot and replays what came after it, which must be little. A snapshot costs as much as the state is large, so of a
    /// very large one a share is let come after it. Taking one is a moment's work; another thread writes it.
    pub(super) fn snapshot_if_due(&mut self) -> Result<(), LogError> {
        let remembered = u64::try_from(self.authorizer.state().requests.len()).unwrap_or(u64::MAX);
        let due = self.limits.snapshot_entries.max(remembered / REPLAYED_SHARE).max(self.put_off_until);
        if self.writing.is_some() || self.authorizer.since_snapshot() < due {
            return Ok(());
        }
        // Nobody can ask any more: the snapshot of the end is next.
        let Some(calls) = self.calls.upgrade() else { return Ok(()) };
        let Some(taken) = self.authorizer.take_snapshot(self.limits.horizon_us, self.clock.moment())? else {
            return Ok(());
        };
        let entries = taken.entries();
        let writer = std::thread::Builder::new().name("signer-snapshot".to_owned());
        self.writing = Some(entries);
        if let Err(source) = writer.spawn(move || write(taken, &calls)) {
            let file = "the thread that writes a snapshot".to_owned();
            self.snapshot_ended(Err(LogError::Storage { what: "start", file, source }))?;
        }
        Ok(())
    }

    pub(super) fn snapshot_ended(&mut self, result: Result<WrittenSnapshot, LogError>) -> Result<(), LogError> {
        let entries = self.writing.take();
        match result {
            Ok(written) => {
                self.authorizer.finish_snapshot(&written)?;
                self.counts.snapshots.fetch_add(1, Ordering::Relaxed);
                self.put_off_until = 0;
                self.drop_old();
            }
            Err(error) => {
                tracing::error!(code = error.code(), %error, "a snapshot could not be written; signing goes on without it");
                self.counts.snapshots_failed.fetch_add(1, Ordering::Relaxed);
                // What is there of it may be what fills the disk.
                if let Some(Err(error)) = entries.map(|entries| self.authorizer.drop_snapshot(entries)) {
                    tracing::warn!(code = error.code(), %error, "what was written of a snapshot could not be removed");
                }
                let grown = self.authorizer.since_snapshot();
                self.put_off_until = grown.saturating_add(self.limits.snapshot_entries);
            }
        }
        self.tell();
        Ok(())
    }

    /// Snapshots of before are as large as this one.
    fn drop_old(&self) {
        if let Err(error) = self.authorizer.drop_old_snapshots() {
            tracing::warn!(code = error.code(), %error, "an old snapshot could not be removed");
        }
    }

    /// After the snapshot that is being written, one of the end.
    pub(super) fn stop(&mut self, calls: &mut mpsc::Receiver<Call>) -> Result<(), LogError> {
        while self.writing.is_some() {
            match calls.blocking_recv() {
                Some(Call::Snapshot(result)) => self.snapshot_ended(result)?,
                Some(other) => other.turn_away(),
                None => break,
            }
        }
        self.authorizer.snapshot(self.limits.horizon_us, self.clock.moment())?;
        self.drop_old();
        Ok(())
    }
}

/// The work of the other thread. However it ends, the decider hears of it.
fn write<W: FolderFile>(taken: TakenSnapshot<W>, calls: &mpsc::Sender<Call>) {
    let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| taken.write()));
    // A decider that has ended needs no snapshot: the next start reads the log.
    calls.blocking_send(Call::Snapshot(written.unwrap_or(Err(LogError::Stopped)))).ok();
}
