//! Makes the ids of transfers with a node number that the database lends to this process. The lease is renewed in time.
//!
//! **Without a good lease, no id is made.** Two processes with one node number could otherwise make the same id.

use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use domain::id::{self, Generator, Id, NodeId};
use domain::{Clock, Timestamp};
use store::error::Causes;
use store::{Db, StoreError};

use crate::settings::micros;

/// How long a lease is good, and how often it is renewed.
const LEASE: Duration = Duration::from_secs(60);
const RENEWAL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process has no node number at the moment, and makes no ids without one")]
pub struct NoLease;

pub struct IdMaker {
    holder: String,
    current: RwLock<Generator<Arc<dyn Clock>>>,
    number: AtomicU16,
    good_until: AtomicI64,
}

impl IdMaker {
    /// Borrows a node number. `holder` is a text that no other process has. `None`: all numbers are lent.
    pub async fn lease(db: &Db, clock: Arc<dyn Clock>, holder: String) -> Result<Option<Self>, StoreError> {
        let now = clock.now();
        let until = now.plus_micros(micros(LEASE));
        let Some(number) = db.lease_node(&holder, now, until).await? else { return Ok(None) };
        Ok(Some(Self::fixed(number, clock, holder, until)))
    }

    /// With a node number that no other process has until the time given.
    pub fn fixed(number: NodeId, clock: Arc<dyn Clock>, holder: String, good_until: Timestamp) -> Self {
        let current = RwLock::new(Generator::new(clock, number));
        let (number, good_until) = (AtomicU16::new(number.number()), AtomicI64::new(good_until.micros()));
        Self { holder, current, number, good_until }
    }

    pub fn next(&self, clock: &dyn Clock) -> Result<Id<id::Transfer>, NoLease> {
        if !self.has_lease(clock.now()) {
            return Err(NoLease);
        }
        self.current.read().unwrap_or_else(PoisonError::into_inner).next().map_err(|_| NoLease)
    }

    pub fn has_lease(&self, now: Timestamp) -> bool {
        now.micros() < self.good_until.load(Ordering::SeqCst)
    }

    /// Renews the lease for ever. If it was lost, because this process or the database slept too long, another number
    /// is borrowed.
    pub async fn keep_lease(&self, db: &Db, clock: &Arc<dyn Clock>) {
        loop {
            tokio::time::sleep(RENEWAL).await;
            if let Err(error) = self.renew(db, clock).await {
                // The lease may still be good for a while.
                tracing::warn!(code = error.code(), error = %Causes(&error), "the lease on the node number was not renewed");
            }
        }
    }

    pub async fn renew(&self, db: &Db, clock: &Arc<dyn Clock>) -> Result<(), StoreError> {
        let now = clock.now();
        let until = now.plus_micros(micros(LEASE));
        let number = self.number.load(Ordering::SeqCst);
        let renewed = match NodeId::new(number) {
            Some(number) => db.renew_node(number, &self.holder, now, until).await?,
            None => false,
        };
        if renewed {
            self.good_until.store(until.micros(), Ordering::SeqCst);
            return Ok(());
        }
        self.good_until.store(0, Ordering::SeqCst);
        tracing::error!(node = number, "the lease on the node number was lost; another is borrowed");
        if let Some(number) = db.lease_node(&self.holder, now, until).await? {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = Generator::new(Arc::clone(clock), number);
            self.number.store(number.number(), Ordering::SeqCst);
            self.good_until.store(until.micros(), Ordering::SeqCst);
        }
        Ok(())
    }
}
