//! A database that fails once, at a point that the test names.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use store::faults::{Faults, Point, Strike, simulated};
use store::{Db, StoreError};

#[derive(Debug)]
struct FailsAt(AtomicI64);

impl Faults for FailsAt {
    fn strike(&self, point: Point) -> Strike {
        let fails = self.0.fetch_sub(1, Ordering::SeqCst) == 0;
        let error = match point {
            Point::Statement | Point::BeforeCommit => StoreError::Unavailable(simulated()),
            Point::AfterCommit => StoreError::CommitUnknown(simulated()),
        };
        Box::pin(std::future::ready(if fails { Err(error) } else { Ok(()) }))
    }
}

/// The same database, which loses its connection at its point number `at`.
pub fn failing_at(db: &Db, at: i64) -> Db {
    db.with_faults(Arc::new(FailsAt(AtomicI64::new(at))))
}

/// Does it on a database that fails at its first point, on one that fails at its second, and so on, until one has not failed. Says how often it has.
pub async fn killed_everywhere(db: &Db, work: impl AsyncFn(Db)) -> i64 {
    for at in 0..5_000 {
        let faults = Arc::new(FailsAt(AtomicI64::new(at)));
        work(db.with_faults(Arc::<FailsAt>::clone(&faults))).await;
        // Each point takes one, the one that fails too.
        if faults.0.load(Ordering::SeqCst) >= 0 {
            return at;
        }
    }
    panic!("it has new points for ever");
}
