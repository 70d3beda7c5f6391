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
