//! Background tasks that must not end: one that panics is reported, makes the process not ready, and is started again
//! after a pause.
//!
//! A panic is a defect, so nothing is known of what the task was doing. That is what the rest of the design is made for:
//! what a task has committed is in the database, and what it has not committed did not happen. The task is started from
//! the beginning, as after a crash of the process.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;

use crate::readiness::Readiness;

/// How long a supervisor waits.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// Between a panic and the next start. It doubles with every panic in a row, up to the longest.
    pub first: Duration,
    pub longest: Duration,
    /// A task that has run for so long since it was started again is well.
    pub settled: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), longest: Duration::from_secs(60), settled: Duration::from_secs(5) }
    }
}

/// Keeps the tasks of one part running. Several tasks may share a part, as the lanes of the intake do: the part is well
/// when all of them are.
#[derive(Debug)]
pub struct Supervisor {
    readiness: Arc<Readiness>,
    part: &'static str,
    pauses: Pauses,
    /// How many tasks of this part have panicked and are not well yet.
    ill: Mutex<usize>,
}

impl Supervisor {
    pub const fn new(readiness: Arc<Readiness>, part: &'static str, pauses: Pauses) -> Self {
        Self { readiness, part, pauses, ill: Mutex::new(0) }
    }

    /// Runs a task until it ends by itself. `start` makes it anew after every panic.
    pub async fn run<F: Future<Output = ()>>(&self, mut start: impl FnMut() -> F) {
        let mut pause = self.pauses.first;
        let mut illness = None;
        loop {
            let task = caught(start());
            tokio::pin!(task);
            let ended = tokio::select! {
                ended = &mut task => ended,
                () = tokio::time::sleep(self.pauses.settled) => {
                    illness = None;
                    pause = self.pauses.first;
                    task.await
                }
            };
            let Err(words) = ended else { return };
            // A second panic before the task was well takes the place of the first.
            illness.get_or_insert_with(|| Illness::begin(self));
            self.readiness.trouble(self.part, "TASK_PANICKED", words);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.pauses.longest);
        }
    }
}

/// A task that is not well. Dropped when it is, or when its supervisor is told to end.
struct Illness<'a>(&'a Supervisor);

impl<'a> Illness<'a> {
    fn begin(supervisor: &'a Supervisor) -> Self {
        *supervisor.ill.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(supervisor)
    }
}

impl Drop for Illness<'_> {
    fn drop(&mut self) {
        // The lock is held until the part is called well, so that a panic at the same moment comes before or after both.
        let mut ill = self.0.ill.lock().unwrap_or_else(PoisonError::into_inner);
        *ill -= 1;
        if *ill == 0 {
            self.0.readiness.well(self.0.part);
        }
    }
}

/// What the future gives, or the words of its panic.
///
/// What a future shares with others must be sound after a panic at any `.await` or call. All that is shared here is in
/// the database, in channels, or behind locks that are used whether poisoned or not.
pub async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|panic| words_of(&*panic))
}

/// What `panic!` was given, if it is text.
pub fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const PAUSES: Pauses =
        Pauses { first: Duration::from_secs(1), longest: Duration::from_secs(4), settled: Duration::from_secs(10) };

    /// When each start came, in seconds, and whether the process was ready a moment later.
    #[expect(clippy::disallowed_methods, reason = "the runtime's time is the test's to control")]
    async fn starts(panics: usize, after: Duration) -> (Vec<u64>, bool) {
        let readiness = Arc::new(Readiness::default());
        let supervisor = Arc::new(Supervisor::new(Arc::clone(&readiness), "scanner", PAUSES));
        let begun = tokio::time::Instant::now();
        let times = Arc::new(Mutex::new(Vec::new()));
        let count = AtomicUsize::new(0);
        let noted = Arc::clone(&times);
        let running = tokio::spawn(async move {
            let start = || {
                noted.lock().expect("no panic").push(begun.elapsed().as_secs());
                let panics = count.fetch_add(1, Ordering::SeqCst) < panics;
                async move {
                    assert!(!panics, "on purpose");
                    std::future::pending::<()>().await;
                }
            };
            supervisor.run(start).await;
        });
        tokio::time::sleep(after).await;
        let ready = readiness.first_trouble().is_none();
        running.abort();
        let times = times.lock().expect("no panic").clone();
        (times, ready)
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_makes_the_process_not_ready_and_is_started_again_after_a_growing_pause() {
        assert_eq!(starts(0, Duration::from_secs(1)).await, (vec![0], true));
        assert_eq!(starts(1, Duration::from_millis(10)).await, (vec![0], false), "it is in its pause");
        assert_eq!(starts(1, Duration::from_secs(5)).await, (vec![0, 1], false), "it runs, and is not trusted yet");
        assert_eq!(starts(1, Duration::from_secs(12)).await, (vec![0, 1], true), "it has run for a while");
        assert_eq!(starts(9, Duration::from_secs(16)).await, (vec![0, 1, 3, 7, 11, 15], false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_is_well_when_all_of_its_tasks_are() {
        let readiness = Arc::new(Readiness::default());
        let supervisor = Arc::new(Supervisor::new(Arc::clone(&readiness), "lanes", PAUSES));
        let panic_after = |wait: Duration| {
            let (supervisor, first) = (Arc::clone(&supervisor), AtomicUsize::new(0));
            tokio::spawn(async move {
                let start = || {
                    let panics = first.fetch_add(1, Ordering::SeqCst) == 0;
                    async move {
                        tokio::time::sleep(wait).await;
                        assert!(!panics, "on purpose");
                        std::future::pending::<()>().await;
                    }
                };
                supervisor.run(start).await;
            })
        };
        let tasks = [panic_after(Duration::from_millis(1)), panic_after(Duration::from_secs(8))];
        for (passed, ready) in [(1, false), (12, false), (20, true)] {
            tokio::time::sleep(Duration::from_secs(passed)).await;
            assert_eq!(readiness.first_trouble().is_none(), ready, "after {passed} more seconds");
        }
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn the_words_of_a_panic_are_kept() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let number = 7;
        assert_eq!(caught(async move { assert!(number == 8, "not {number}") }).await, Err("not 7".to_owned()));
        assert_eq!(caught(async { panic!("plain") }).await, Err::<(), _>("plain".to_owned()));
        assert_eq!(caught(async { std::panic::panic_any(7) }).await, Err::<(), _>("no words".to_owned()));
    }
}
