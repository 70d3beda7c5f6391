//! Clocks are compared: ours with the database's and with the remote leg's, at the start and before every renewal of the
//! lease.
//!
//! The time is in every id, and it says when a transfer is due. A clock that is ahead makes ids that the engine takes
//! for the future and that another process makes again later; it hides transfers from the other processes. So
//! **a process whose clock disagrees makes no transfer**. It still drives those that are there.

use domain::ClockReading;
use store::StoreError;

use crate::coordinator::Coordinator;
use crate::id_maker::RENEWAL;
use crate::settings::micros;

/// What came of an attempt to have a node number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    Number,
    /// All numbers are lent.
    NoneFree,
    /// Our clock disagrees with another. It would say wrongly how long the lease is good.
    WrongClock,
}

impl Coordinator {
    /// Renews the lease on the node number for ever.
    pub async fn keep_lease(&self) {
        loop {
            tokio::time::sleep(RENEWAL).await;
            match self.renew_lease().await {
                Ok(Lent::Number | Lent::WrongClock) => {}
                Ok(Lent::NoneFree) => tracing::error!("all node numbers are lent"),
                // The lease may still be good for a while.
                Err(error) => tracing::warn!(code = error.code(), "the lease on the node number was not renewed"),
            }
        }
    }

    /// Compares the clocks, and renews the lease on the node number or borrows one if they agree.
    pub async fn renew_lease(&self) -> Result<Lent, StoreError> {
        if !self.compare_clocks().await? {
            self.ids.suspend();
            return Ok(Lent::WrongClock);
        }
        Ok(if self.ids.renew(&self.db, &self.clock).await? { Lent::Number } else { Lent::NoneFree })
    }

    /// Gives the node number back, after the last transfer was made. If that fails, the lease ends by itself.
    pub async fn give_back_lease(&self) {
        if let Err(error) = self.ids.give_back(&self.db).await {
            tracing::warn!(code = error.code(), "the node number was not given back");
        }
    }

    /// Whether our clock agrees with the others, as far as they tell. An answer that is missing proves nothing: who does
    /// not answer is reported by others.
    async fn compare_clocks(&self) -> Result<bool, StoreError> {
        let most = micros(self.settings.clocks_apart);
        let database = self.db.clock(&*self.clock).await?;
        let database = database.map(|reading| ("the database's", reading.ahead_micros()));
        // An engine's time never goes back, however its clock does: to be behind it says nothing, to be ahead does.
        let engine = self.engine_clock().await.map(|reading| ("the spot engine's", reading.ahead_micros().max(0)));
        for (whose, ahead) in database.into_iter().chain(engine) {
            if ahead.saturating_abs() > most {
                let word = if ahead > 0 { "ahead of" } else { "behind" };
                let seconds = ahead.saturating_abs() / 1_000_000;
                let words = format!("this server's clock is {seconds} s {word} {whose}");
                self.readiness().trouble("clock", "CLOCK_DISAGREES", words);
                return Ok(false);
            }
        }
        self.readiness().well("clock");
        Ok(true)
    }

    async fn engine_clock(&self) -> Option<ClockReading> {
        let before = self.clock.now();
        let told = tokio::time::timeout(self.settings.call_timeout, self.leg.time()).await;
        let theirs = told.ok().flatten()?;
        Some(ClockReading { before, theirs, after: self.clock.now() })
    }
}
