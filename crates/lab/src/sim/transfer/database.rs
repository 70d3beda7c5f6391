//! A database that fails: any statement or commit may return an error, or the process dies there.
//!
//! No task waits for another here: a task that has begun a transaction ends it, gives it up, or dies, before the next
//! task runs.

use std::fmt;
use std::future::ready;

use store::StoreError;
use store::faults::{Faults, Point, Strike, simulated};

use super::turn::die;
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

enum StatementFate {
    Well,
    Fails(StoreError),
    Dies,
}

impl World {
    fn strike(&mut self, process: usize, point: Point) -> StatementFate {
        let (calm, turn) = (self.calm, self.turn);
        let draw = self.random.below(100_000);
        let life = &mut self.lives[process];
        let report = &mut self.report;
        if point == Point::AfterCommit {
            life.committed();
        }
        if calm {
            return StatementFate::Well;
        }
        if turn < life.cut_off_until && point == Point::Statement {
            report.database_unavailable += 1;
            return StatementFate::Fails(StoreError::Unavailable(simulated()));
        }
        match (point, draw) {
            (Point::Statement, 0..100) => {
                report.killed_at_statement += 1;
                StatementFate::Dies
            }
            (Point::Statement, 100..250) => {
                report.database_unavailable += 1;
                StatementFate::Fails(StoreError::Unavailable(simulated()))
            }
            (Point::Statement, 250..310) | (Point::BeforeCommit, 0..200) => {
                report.transactions_retried += 1;
                StatementFate::Fails(StoreError::Contention(simulated()))
            }
            (Point::BeforeCommit, 200..700) => {
                report.killed_before_commit += 1;
                StatementFate::Dies
            }
            (Point::BeforeCommit, 700..1_200) => {
                life.doubt();
                report.commit_unknown_undone += 1;
                StatementFate::Fails(StoreError::CommitUnknown(simulated()))
            }
            (Point::AfterCommit, 0..700) => {
                report.killed_after_commit += 1;
                StatementFate::Dies
            }
            (Point::AfterCommit, 700..1_400) => {
                life.doubt();
                report.commit_unknown_done += 1;
                StatementFate::Fails(StoreError::CommitUnknown(simulated()))
            }
            (Point::Statement | Point::BeforeCommit | Point::AfterCommit, _) => StatementFate::Well,
        }
    }
}

impl Faults for Database {
    fn strike(&self, point: Point) -> Strike {
        let fate = self.world.lock().strike(self.process, point);
        match fate {
            StatementFate::Well => Box::pin(ready(Ok(()))),
            StatementFate::Fails(error) => Box::pin(ready(Err(error))),
            StatementFate::Dies => {
                let world = self.world.clone();
                Box::pin(async move {
                    die(&world).await;
                    Ok(())
                })
            }
        }
    }
}
