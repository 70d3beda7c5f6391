//! The process's place among those that make ids: a node number, lent by the database and renewed in time.
//!
//! **Without a lease that is still good, no id is made.** Two processes with one number could otherwise make the same id.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use domain::id::{self, Generator, Id, NodeId};
use domain::{Clock, Timestamp};
use store::{Db, StoreError};

use crate::settings::micros;

/// How long a lease is good, and how often it is renewed.
const LEASE: Duration = Duration::from_secs(60);
const RENEWAL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process has no node number at the moment, and makes no ids without one")]
pub struct NoLease;

pub struct Node {
    number: NodeId,
    holder: String,
    generator: Generator<Arc<dyn Clock>>,
    good_until: AtomicI64,
}

impl Node {
    /// Borrows a number. `holder` is a text that no other process has. `None`: all numbers are lent.
    pub async fn lease(db: &Db, clock: Arc<dyn Clock>, holder: String) -> Result<Option<Self>, StoreError> {
        let now = clock.now();
        let until = now.plus_micros(micros(LEASE));
        let Some(number) = db.lease_node(&holder, now, until).await? else { return Ok(None) };
        Ok(Some(Self::fixed(number, clock, holder, until)))
    }

    /// A number that is known to be nobody else's until the time given.
    pub fn fixed(number: NodeId, clock: Arc<dyn Clock>, holder: String, good_until: Timestamp) -> Self {
        let good_until = AtomicI64::new(good_until.micros());
        Self { number, holder, generator: Generator::new(clock, number), good_until }
    }

    pub const fn number(&self) -> NodeId {
        self.number
    }

    pub fn next(&self, clock: &dyn Clock) -> Result<Id<id::Transfer>, NoLease> {
        if !self.is_good(clock.now()) {
            return Err(NoLease);
        }
        self.generator.next().map_err(|_| NoLease)
    }

    pub fn is_good(&self, now: Timestamp) -> bool {
        now.micros() < self.good_until.load(Ordering::SeqCst)
    }

    /// Renews the lease for ever. When that fails it goes on trying: the lease may still be good for a while.
    pub async fn keep(&self, db: &Db, clock: &dyn Clock) {
        loop {
            tokio::time::sleep(RENEWAL).await;
            let now = clock.now();
            let until = now.plus_micros(micros(LEASE));
            match db.renew_node(self.number, &self.holder, now, until).await {
                Ok(true) => self.good_until.store(until.micros(), Ordering::SeqCst),
                Ok(false) => tracing::error!(node = self.number.number(), "the lease on the node number was lost"),
                Err(error) => tracing::warn!(code = error.code(), "the lease on the node number was not renewed"),
            }
        }
    }
}
