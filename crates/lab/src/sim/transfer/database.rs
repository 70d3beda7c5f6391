//! A database that fails: an error at any statement or commit, or the process dies there.
//!
//! Nobody waits here: whoever has begun a transaction ends it, gives it up, or dies, before anybody else runs.

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

enum Fate {
    Well,
    Fails(StoreError),
    Dies,
}

impl World {
    fn strike(&mut self, process: usize, point: Point) -> Fate {
        let (calm, turn) = (self.calm, self.turn);
        let draw = self.random.below(100_000);
        let life = &mut self.lives[process];
        let report = &mut self.report;
        if point == Point::AfterCommit {
            life.committed();
        }
        if calm {
            return Fate::Well;
        }
        if turn < life.cut_off_until && point == Point::Statement {
            report.database_unavailable += 1;
            return Fate::Fails(StoreError::Unavailable(simulated()));
        }
        match (point, draw) {
            (Point::Statement, 0..100) => {
                report.killed_at_statement += 1;
                Fate::Dies
            }
            (Point::Statement, 100..250) => {
                report.database_unavailable += 1;
                Fate::Fails(StoreError::Unavailable(simulated()))
            }
            (Point::Statement, 250..310) | (Point::BeforeCommit, 0..200) => {
                report.transactions_retried += 1;
                Fate::Fails(StoreError::Contention(simulated()))
            }
            (Point::BeforeCommit, 200..700) => {
                report.killed_before_commit += 1;
                Fate::Dies
            }
            (Point::BeforeCommit, 700..1_200) => {
                life.doubt();
                report.commit_unknown_undone += 1;
                Fate::Fails(StoreError::CommitUnknown(simulated()))
            }
            (Point::AfterCommit, 0..700) => {
                report.killed_after_commit += 1;
                Fate::Dies
            }
            (Point::AfterCommit, 700..1_400) => {
                life.doubt();
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
