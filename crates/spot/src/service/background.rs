//! The two threads beside the writer: one prepares segments, one takes snapshots. What panics there is reported and tried
//! again; the log, and with it every answer, is the writer's alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Shared, SnapshotTaken};
use crate::error::Whole;
use crate::log::format::SegmentHeader;
use crate::log::write::{Spare, prepare};
use crate::snapshot::{self, Sealed};
use crate::storage::Storage;

/// The pause after a snapshot has panicked. It doubles, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often a thread in its pause looks whether the engine ends.
const GLANCE: Duration = Duration::from_millis(20);

/// The caller that ordered a snapshot. As long as this exists no other order is taken, so that a crowd of orders cannot
/// keep the engine busy with snapshots alone.
pub(super) struct SnapshotCaller {
    pub(super) sender: oneshot::Sender<SnapshotTaken>,
    pub(super) turn: Turn,
}

/// The right to order a snapshot, given back when it is dropped.
pub(super) struct Turn(pub(super) Arc<Shared>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.snapshot_asked.store(false, Ordering::Release);
    }
}

pub(super) fn prepare_segments<S: Storage>(
    storage: &S,
    spare: &Spare<S::File>,
    orders: &mpsc::Receiver<SegmentHeader>,
) {
    for header in orders {
        // The writer makes the segment itself when it needs it, and stops if that fails too.
        match catch_unwind(AssertUnwindSafe(|| prepare(storage, spare, &header))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(code = error.code(), error = %Whole(&error), "the next segment could not be prepared");
            }
            Err(_) => tracing::error!(code = "TASK_PANICKED", "the next segment could not be prepared"),
        }
    }
}

pub(super) fn take_snapshots<S: Storage>(
    storage: &S,
    shared: &Shared,
    orders: &mpsc::Receiver<(Sealed, Option<SnapshotCaller>)>,
) {
    // The writer comes first: this thread, and only this one, gets a lower priority (5 of at most 19). If that fails,
    // snapshots are taken all the same.
    if let Err(error) = rustix::process::nice(5) {
        tracing::debug!(%error, "snapshots run with the writer's priority");
    }
    for (sealed, caller) in orders {
        // The engine ends, and the log has everything. A caller that waits learns that the engine has stopped.
        let Some(taken) = take_snapshot(storage, shared, sealed) else { continue };
        match &taken {
            Ok(Some(header)) => shared.counters.snapshot.store(header.sequence, Ordering::Relaxed),
            Ok(None) => {}
            // The engine goes on, because everything is in the log. The next snapshot covers this one too.
            Err(error) => {
                shared.counters.snapshot_failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(code = error.code(), error = %Whole(error), "no snapshot could be taken");
            }
        }
        if let Some(SnapshotCaller { sender, turn }) = caller {
            // The turn goes back first: a caller that has its answer may order the next snapshot at once.
            drop(turn);
            sender.send(taken).ok();
        }
    }
}

/// Takes a snapshot, however often that panics: what can be replayed for no snapshot cannot be replayed at the next start
/// either, so somebody has to look. `None` when the engine ends.
fn take_snapshot<S: Storage>(storage: &S, shared: &Shared, sealed: Sealed) -> Option<SnapshotTaken> {
    let mut pause = FIRST_PAUSE;
    while !shared.is_ending() {
        // A snapshot is made in files of its own, which count only when they are whole.
        if let Ok(taken) = catch_unwind(AssertUnwindSafe(|| snapshot::take(storage, sealed))) {
            shared.counters.snapshots_panicking.store(false, Ordering::Relaxed);
            return Some(taken);
        }
        shared.counters.snapshot_failures.fetch_add(1, Ordering::Relaxed);
        shared.counters.snapshots_panicking.store(true, Ordering::Relaxed);
        tracing::error!(code = "TASK_PANICKED", "no snapshot could be taken");
        rest(shared, pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    None
}

/// Sleeps for so long, or until the engine ends.
fn rest(shared: &Shared, pause: Duration) {
    let mut left = pause;
    while !left.is_zero() && !shared.is_ending() {
        let slice = left.min(GLANCE);
        thread::sleep(slice);
        left -= slice;
    }
}
