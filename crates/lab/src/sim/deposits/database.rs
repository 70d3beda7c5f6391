//! A database that fails: any statement or commit of a worker may return an error, or its process dies there.

use std::fmt;
use std::future::ready;

use store::StoreError;
use store::faults::{Faults, Point, Strike, simulated};

use super::super::turn::die;
use super::world::{Shared, World};

/// The database as one process sees it.
pub(crate) struct Database {
    pub world: Shared,
    pub process: usize,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("process", &self.process).finish_non_exhaustive()
    }
}

enum Fate {
    Well,
    Fails(StoreError),
    Dies,
}

impl World {
    fn strike(&mut self, process: usize, point: Point) -> Fate {
        let draw = self.random.below(100_000);
        self.commits += u64::from(point == Point::AfterCommit);
        if self.calm {
            return Fate::Well;
        }
        let report = &mut self.report;
        if self.turn < self.cut_off_until[process] && point == Point::Statement {
            report.database_unavailable += 1;
            return Fate::Fails(StoreError::Unavailable(simulated()));
        }
        match (point, draw) {
            (Point::Statement, 0..50) => {
                report.killed_at_statement += 1;
                Fate::Dies
            }
            (Point::Statement, 50..120) => {
                report.database_unavailable += 1;
                Fate::Fails(StoreError::Unavailable(simulated()))
            }
            (Point::Statement, 120..150) | (Point::BeforeCommit, 0..100) => {
                report.transactions_retried += 1;
                Fate::Fails(StoreError::Contention(simulated()))
            }
            (Point::BeforeCommit, 100..500) => {
                report.killed_before_commit += 1;
                Fate::Dies
            }
            (Point::BeforeCommit, 500..900) => {
                report.commit_unknown_undone += 1;
                Fate::Fails(StoreError::CommitUnknown(simulated()))
            }
            (Point::AfterCommit, 0..500) => {
                report.killed_after_commit += 1;
                Fate::Dies
            }
            (Point::AfterCommit, 500..1_000) => {
                report.commit_unknown_done += 1;
                Fate::Fails(StoreError::CommitUnknown(simulated()))
            }
            (Point::Statement | Point::BeforeCommit | Point::AfterCommit, _) => Fate::Well,
        }
    }
}

impl Faults for Database {
    fn strike(&self, point: Point) -> Strike {
        let fate = self.world.lock().strike(self.process, point);
        match fate {
            Fate::Well => Box::pin(ready(Ok(()))),
            Fate::Fails(error) => Box::pin(ready(Err(error))),
            Fate::Dies => {
                let world = self.world.clone();
                Box::pin(async move {
                    die(&world).await;
                    Ok(())
                })
            }
        }
    }
}
