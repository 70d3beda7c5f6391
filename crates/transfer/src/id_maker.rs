//! Makes the ids of transfers with a node number that the database lends to this process. The lease is renewed in time.
//!
//! **Without a good lease, no id is made.** Two processes with one node number could otherwise make the same id.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use domain::id::{self, Generator, Id, NodeId};
use domain::{Clock, Timestamp};
use store::{Db, StoreError};

use crate::settings::micros;

/// How long a lease is good, and how often it is renewed.
const LEASE: Duration = Duration::from_secs(60);
/// The end of a lease that is not good any more.
const NEVER: Timestamp = Timestamp::from_micros(i64::MIN);
pub(crate) const RENEWAL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process has no node number at the moment, and makes no ids without one")]
pub struct NoLease;

pub struct IdMaker {
    holder: String,
    lease: RwLock<Option<Lease>>,
}

struct Lease {
    number: NodeId,
    begun: Timestamp,
    good_until: Timestamp,
    ids: Generator<Arc<dyn Clock>>,
}

impl IdMaker {
    /// Without a node number: it makes no ids until one is borrowed. `holder` is a text that no other process has.
    pub const fn new(holder: String) -> Self {
        Self { holder, lease: RwLock::new(None) }
    }

    /// With a node number that no other process has until the time given.
    pub fn fixed(number: NodeId, clock: Arc<dyn Clock>, holder: String, good_until: Timestamp) -> Self {
        let maker = Self::new(holder);
        maker.set(Lease { number, begun: clock.now(), good_until, ids: Generator::new(clock, number) });
        maker
    }

    fn set(&self, lease: Lease) {
        *self.lease.write().unwrap_or_else(PoisonError::into_inner) = Some(lease);
    }

    fn with_lease<T>(&self, read: impl FnOnce(&Lease) -> T) -> Option<T> {
        self.lease.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(read)
    }

    pub fn next(&self, clock: &dyn Clock) -> Result<Id<id::Transfer>, NoLease> {
        let now = clock.now();
        let made = self.with_lease(|lease| if now < lease.good_until { lease.ids.next().ok() } else { None });
        made.flatten().ok_or(NoLease)
    }

    pub fn has_lease(&self, now: Timestamp) -> bool {
        self.with_lease(|lease| now < lease.good_until).unwrap_or(false)
    }

    /// The number that ids are made with.
    pub fn number(&self) -> Option<NodeId> {
        self.with_lease(|lease| lease.number)
    }

    /// Renews the lease. If there is none, or it was lost because this process or the database slept too long, a number
    /// is borrowed. False: all numbers are lent.
    pub async fn renew(&self, db: &Db, clock: &Arc<dyn Clock>) -> Result<bool, StoreError> {
        let now = clock.now();
        let until = now.plus_micros(micros(LEASE));
        if let Some(number) = self.number() {
            if let Some(until) = db.renew_node(number, &self.holder, now, until).await? {
                self.end_at(number, until);
                return Ok(true);
            }
            self.end_at(number, NEVER);
            tracing::error!(node = number.number(), "the lease on the node number was lost; another is borrowed");
        }
        self.borrow(db, clock).await
    }

    async fn borrow(&self, db: &Db, clock: &Arc<dyn Clock>) -> Result<bool, StoreError> {
        let begun = clock.now();
        let good_until = begun.plus_micros(micros(LEASE));
        let Some(number) = db.lease_node(&self.holder, begun, good_until).await? else { return Ok(false) };
        self.set(Lease { number, begun, good_until, ids: Generator::new(Arc::clone(clock), number) });
        Ok(true)
    }

    /// Ids of this number are there already: another process had it while a clock was wrong. It is left to its lease's
    /// end, and another is borrowed, unless that has happened meanwhile.
    pub async fn replace(&self, clashed: Option<NodeId>, db: &Db, clock: &Arc<dyn Clock>) -> Result<(), StoreError> {
        if self.number() != clashed {
            return Ok(());
        }
        if !self.borrow(db, clock).await? {
            tracing::error!("all node numbers are lent; ids are made with one that has clashed");
        }
        Ok(())
    }

    /// No more ids are made until the lease is renewed.
    pub fn suspend(&self) {
        if let Some(number) = self.number() {
            self.end_at(number, NEVER);
        }
    }

    /// What the database said of one number says nothing about another that was borrowed meanwhile.
    fn end_at(&self, number: NodeId, good_until: Timestamp) {
        let mut lease = self.lease.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(lease) = lease.as_mut().filter(|lease| lease.number == number) {
            lease.good_until = good_until;
        }
    }

    /// Gives the number back: this process makes no more ids.
    pub async fn give_back(&self, db: &Db) -> Result<(), StoreError> {
        let lease = self.lease.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(lease) = lease else { return Ok(()) };
        let last = lease.ids.last_at().unwrap_or(lease.begun).max(lease.begun);
        db.give_back_node(lease.number, &self.holder, last).await
    }
}
