//! Where a simulation may make a database fail: before any statement, and on both sides of a commit.
//!
//! Nothing else uses it: a [`Db`](crate::Db) has no faults unless it is given some.

use std::fmt::Debug;
use std::pin::Pin;

use crate::error::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    Statement,
    /// All statements ran. A failure here rolls them back.
    BeforeCommit,
    /// It is committed, but the caller does not learn of it.
    AfterCommit,
}

/// The caller gets the error; a future that never ends stands for a process that died there.
pub type Strike = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

pub trait Faults: Debug + Send + Sync {
    fn strike(&self, point: Point) -> Strike;
}

/// The cause of a database's error. A simulation puts it into the [`StoreError`] that it wants.
pub type Cause = sqlx::Error;

pub fn simulated() -> Cause {
    sqlx::Error::Io(std::io::Error::other("a simulated fault"))
}
