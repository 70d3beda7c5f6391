//! The worker of one chain's deposits, for ever: it takes the chain when nobody else has it, and works in rounds.

use std::sync::Arc;
use std::time::Duration;

use custody::deposit::work::begin;
use custody::deposit::{DepositError, DepositWorker, Worked};
use custody::wallet::Pinned;
use domain::random::Random;
use domain::{ChainName, Clock};
use store::Db;
use store::entry::{ChainRow, CursorError};
use store::error::Causes;
use terminal::clock::SystemClock;
use tokio::sync::watch;

/// How long a worker rests when there was nothing to do.
const REST: Duration = Duration::from_millis(400);
/// And when something was in its way.
const PAUSE: Duration = Duration::from_secs(2);

/// All that the worker of one chain needs.
#[derive(Clone)]
pub struct DepositRole {
    pub db: Db,
    pub chain: Arc<dyn chain::Chain>,
    pub name: ChainName,
    pub pinned: Arc<Pinned>,
    /// Who it is, for whoever waits for the chain.
    pub worker: String,
    /// The first block of interest, if the chain's books are not begun. `None`: the newest settled one.
    pub from: Option<u64>,
}

impl DepositRole {
    /// Works until it is told to stop. Whatever is in its way, it tries again.
    pub async fn run(self, mut stopped: watch::Receiver<bool>) {
        loop {
            let pause = match self.hold(&mut stopped).await {
                Ok(()) => return,
                Err(error) => {
                    self.tell(&error);
                    PAUSE
                }
            };
            if is_stopped_within(&mut stopped, pause).await {
                return;
            }
        }
    }

    /// Rounds until there is nothing to do: what each came to.
    pub async fn until_idle(&self, mut each: impl FnMut(&Worked)) -> Result<(), DepositError> {
        let mut worker = self.take().await?;
        loop {
            let worked = worker.round(SystemClock.now()).await?;
            if !worked.is_busy() {
                return Ok(worker.leave(SystemClock.now()).await?);
            }
            each(&worked);
        }
    }

    async fn row(&self) -> Result<ChainRow, DepositError> {
        let row = self.db.chain(&self.name).await?;
        row.ok_or_else(|| DepositError::NotBegun { chain: self.name.to_string() })
    }

    async fn take(&self) -> Result<DepositWorker<'_>, DepositError> {
        let (row, now) = (self.row().await?, SystemClock.now());
        begin(&self.db, &*self.chain, &row, self.from, now).await?;
        // Nobody outside can choose addresses that crowd together in the watched set.
        let mut random = Random::from_seed(now.micros().unsigned_abs() ^ u64::from(std::process::id()) << 40);
        DepositWorker::take(&self.db, &*self.chain, row, Arc::clone(&self.pinned), &self.worker, &mut random, now).await
    }

    /// Takes the chain and keeps it. `Ok`: it was told to stop.
    async fn hold(&self, stopped: &mut watch::Receiver<bool>) -> Result<(), DepositError> {
        let mut worker = self.take().await?;
        tracing::info!(chain = self.name.as_str(), worker = self.worker, "reads the chain's deposits");
        loop {
            let rest = match worker.round(SystemClock.now()).await {
                Ok(worked) if worked.is_busy() => {
                    self.tell_work(&worked);
                    Duration::ZERO
                }
                Ok(_) => REST,
                // Another worker has it now, or the settings that this one began with may have changed.
                Err(error @ DepositError::Cursor(CursorError::Fenced)) => return Err(error),
                Err(error) => {
                    self.tell(&error);
                    PAUSE
                }
            };
            if is_stopped_within(stopped, rest).await {
                return Ok(worker.leave(SystemClock.now()).await?);
            }
        }
    }

    fn tell_work(&self, worked: &Worked) {
        let Worked { passed, back_to, proven, proof, posted, settled } = worked;
        tracing::debug!(
            chain = self.name.as_str(),
            passed,
            back_to,
            proven,
            taken_in = proof.taken_in,
            disproven = proof.disproven,
            credited = posted.credited,
            left_over = posted.left_over,
            taken_back = posted.taken_back,
            settled,
            "deposits"
        );
    }

    fn tell(&self, error: &DepositError) {
        let (chain, code) = (self.name.as_str(), error.code());
        match error {
            // Two workers side by side are as they should be: one of them waits.
            DepositError::Cursor(CursorError::Taken { .. } | CursorError::Fenced) => {
                tracing::debug!(chain, code, error = %Causes(error), "waits for the chain");
            }
            _ => tracing::warn!(chain, code, error = %Causes(error), "deposits of the chain wait"),
        }
    }
}

/// Whether it was told to stop, at the latest after so long.
async fn is_stopped_within(stopped: &mut watch::Receiver<bool>, pause: Duration) -> bool {
    if *stopped.borrow() {
        return true;
    }
    // A sender that is gone has ended with everything else.
    tokio::time::timeout(pause, stopped.wait_for(|stop| *stop)).await.is_ok()
}
