//! Payments of one chain, for ever: one role sends, the other watches what became of it. Several of each may run side by side; a lane is one
//! worker's at a time.

use std::sync::Arc;
use std::time::Duration;

use custody::outbound::{MakeId, OutboundError, SENDERS, SendWorker, WatchWorker};
use custody::signer::SignerWatch;
use signer::names::SignerName;
use store::error::Causes;
use store::outbound::{Duty, Share};
use terminal::clock::{Stopwatch, SystemClock};
use tokio::sync::watch;
use tokio::task::JoinSet;
use transfer::IdMaker;

use super::base::{KeptRole, RoleBase, Upkeep, keep, renew};
use super::is_stopped_within;

/// How long a worker rests when there was nothing to do.
const REST: Duration = Duration::from_millis(200);
/// And when something was in its way.
const PAUSE: Duration = Duration::from_secs(2);
/// What is in the way is told this often.
const PATIENCE: Duration = Duration::from_secs(30);

/// All that a worker of one chain's payments needs.
#[derive(Clone)]
pub struct OutboundRole {
    pub base: RoleBase,
    /// Only who sends needs it.
    pub signer: Arc<SignerWatch>,
    pub signer_name: SignerName,
    pub ids: Arc<IdMaker>,
    /// The lanes that it sends from.
    pub share: Share,
}

/// One of its two duties.
struct Worker {
    role: OutboundRole,
    duty: Duty,
}

impl OutboundRole {
    /// Sends until it is told to stop, several side by side, each its share of the lanes. Whatever is in its way, it tries again.
    pub async fn send(self, stopped: watch::Receiver<bool>) {
        let mut senders = JoinSet::new();
        for part in 0..SENDERS {
            let mut role = self.clone();
            role.base.worker = format!("{}.{part}", self.base.worker);
            role.share = Share { part, of: SENDERS };
            senders.spawn(keep(Worker { role, duty: Duty::Send }, stopped.clone()));
        }
        while let Some(ended) = senders.join_next().await {
            // Nobody here has its lanes then: this process ends as if it had only one.
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }

    /// The same for what was sent.
    pub async fn confirm(self, stopped: watch::Receiver<bool>) {
        keep(Worker { role: self, duty: Duty::Watch }, stopped).await;
    }

    fn sender<'a>(&'a self, make: MakeId<'a>) -> Result<SendWorker<'a>, OutboundError> {
        let RoleBase { db, chain, row, pinned, worker, .. } = &self.base;
        let (signer, name) = (&*self.signer, self.signer_name.clone());
        let sender =
            SendWorker::new(db, &**chain, signer, name, make, row.clone(), Arc::clone(pinned), worker.clone())?;
        Ok(sender.with_share(self.share))
    }

    fn watcher(&self) -> Result<WatchWorker<'_>, OutboundError> {
        let RoleBase { db, chain, row, pinned, worker, .. } = &self.base;
        WatchWorker::new(db, &**chain, row.clone(), Arc::clone(pinned), worker.clone())
    }

    /// Rounds until there is nothing to do: what was sent, or what has changed.
    pub async fn until_idle(&self, duty: Duty) -> Result<usize, OutboundError> {
        renew(&self.ids, &self.base.db).await;
        let mut count = 0;
        match duty {
            Duty::Send => {
                let make = || self.ids.next(&SystemClock).ok().map(|id| id.number());
                let mut worker = self.sender(&make)?;
                loop {
                    let sent = worker.round(&SystemClock).await?;
                    count += sent.told;
                    if !sent.is_busy() {
                        break;
                    }
                }
            }
            Duty::Watch => count = self.watcher()?.round(&SystemClock).await?.changed,
        }
        self.leave(duty).await;
        Ok(count)
    }

    async fn leave(&self, duty: Duty) {
        if let Err(error) = self.base.db.leave_lanes(&self.base.worker, duty).await {
            tracing::debug!(code = error.code(), error = %Causes(&error), "its lanes are free when their time is over");
        }
    }
}

impl KeptRole for Worker {
    type Error = OutboundError;
    const WAITS: &'static str = "payments of the chain wait";
    const PAUSE: Duration = PAUSE;

    fn base(&self) -> &RoleBase {
        &self.role.base
    }

    fn base_mut(&mut self) -> &mut RoleBase {
        &mut self.role.base
    }

    fn ids(&self) -> Option<&IdMaker> {
        Some(&self.role.ids)
    }

    fn code(error: &OutboundError) -> &str {
        error.code()
    }

    async fn hold(&self, stopped: &mut watch::Receiver<bool>) -> Result<(), OutboundError> {
        let (mut upkeep, mut told) = (Upkeep::begin(), None);
        match self.duty {
            Duty::Send => {
                let make = || self.role.ids.next(&SystemClock).ok().map(|id| id.number());
                let mut worker = self.role.sender(&make)?;
                loop {
                    let done = worker.round(&SystemClock).await.map(|sent| (sent.is_busy(), sent.waits));
                    let rest = self.rest_after(done, &mut told);
                    if upkeep.is_due_and_outdated(self).await || is_stopped_within(stopped, rest).await {
                        return Ok(());
                    }
                }
            }
            Duty::Watch => {
                let mut worker = self.role.watcher()?;
                loop {
                    let done = worker.round(&SystemClock).await.map(|watched| (watched.changed > 0, watched.waits));
                    let rest = self.rest_after(done, &mut told);
                    if upkeep.is_due_and_outdated(self).await || is_stopped_within(stopped, rest).await {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn leave(&self) {
        self.role.leave(self.duty).await;
    }
}

impl Worker {
    /// How long it rests after a round that was busy or waits, or failed. What is in the way is told every now and then.
    fn rest_after(
        &self,
        done: Result<(bool, Option<String>), OutboundError>,
        told: &mut Option<Stopwatch>,
    ) -> Duration {
        let (rest, why) = match done {
            Ok((true, _)) => (Duration::ZERO, None),
            Ok((false, waits)) => (REST, waits.map(|why| ("OUTBOUND_WAITS".to_owned(), why))),
            Err(error) => (PAUSE, Some((error.code().to_owned(), Causes(&error).to_string()))),
        };
        match why {
            None => *told = None,
            Some((code, words)) if told.as_ref().is_none_or(|last| last.elapsed() >= PATIENCE) => {
                let chain = self.role.base.name.as_str();
                tracing::warn!(chain, code, error = words, "payments of the chain wait");
                *told = Some(Stopwatch::start());
            }
            Some(_) => {}
        }
        rest
    }
}
