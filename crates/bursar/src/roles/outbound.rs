//! Payments of one chain, for ever: one role sends, the other watches what became of it. Several of each may run side by side; a lane is one
//! worker's at a time.

use std::sync::Arc;
use std::time::Duration;

use custody::outbound::{MakeId, OutboundError, SendWorker, WatchWorker};
use custody::signer::SignerWatch;
use custody::wallet::Pinned;
use domain::{ChainName, Clock};
use signer::names::SignerName;
use store::Db;
use store::entry::ChainRow;
use store::error::Causes;
use terminal::clock::{Stopwatch, SystemClock};
use tokio::sync::watch;
use transfer::IdMaker;

use super::{is_stopped_within, reopen};
use crate::config::Config;

/// How long a worker rests when there was nothing to do.
const REST: Duration = Duration::from_millis(200);
/// And when something was in its way.
const PAUSE: Duration = Duration::from_secs(2);
/// How often it is looked whether somebody has applied another treasury file, and the node number is renewed.
const UPKEEP: Duration = Duration::from_secs(10);
/// What is in the way is told this often.
const PATIENCE: Duration = Duration::from_secs(30);

/// All that a worker of one chain's payments needs.
#[derive(Clone)]
pub struct OutboundRole {
    pub db: Db,
    pub config: Arc<Config>,
    pub chain: Arc<dyn chain::Chain>,
    /// What that client was made of.
    pub row: ChainRow,
    pub name: ChainName,
    pub pinned: Arc<Pinned>,
    /// Only who sends needs it.
    pub signer: Arc<SignerWatch>,
    pub signer_name: SignerName,
    pub ids: Arc<IdMaker>,
    pub worker: String,
}

/// What is in the way, and since when somebody knows.
struct Trouble {
    told: Option<Stopwatch>,
    upkeep: Stopwatch,
}

impl Default for Trouble {
    fn default() -> Self {
        Self { told: None, upkeep: Stopwatch::start() }
    }
}

impl OutboundRole {
    /// Sends until it is told to stop. Whatever is in its way, it tries again.
    pub async fn send(self, stopped: watch::Receiver<bool>) {
        self.work(stopped, true).await;
    }

    /// The same for what was sent.
    pub async fn confirm(self, stopped: watch::Receiver<bool>) {
        self.work(stopped, false).await;
    }

    async fn work(mut self, mut stopped: watch::Receiver<bool>, sends: bool) {
        loop {
            self.keep_up().await;
            // Until somebody has applied another treasury file, or it is told to stop.
            let ended =
                if sends { self.hold_sending(&mut stopped).await } else { self.hold_watching(&mut stopped).await };
            let failed = ended.is_err();
            if let Err(error) = ended {
                let (chain, code) = (self.name.as_str(), error.code());
                tracing::warn!(chain, code, error = %Causes(&error), "payments of the chain wait");
            }
            if is_stopped_within(&mut stopped, if failed { PAUSE } else { Duration::ZERO }).await {
                self.leave(sends).await;
                return;
            }
        }
    }

    async fn hold_sending(&self, stopped: &mut watch::Receiver<bool>) -> Result<(), OutboundError> {
        let make = || self.ids.next(&SystemClock).ok().map(|id| id.number());
        let mut worker = self.sender(&make)?;
        let mut trouble = Trouble::default();
        loop {
            let done = worker.round(&SystemClock).await.map(|sent| (sent.is_busy(), sent.waits));
            if self.rests(done, &mut trouble, stopped).await {
                return Ok(());
            }
        }
    }

    async fn hold_watching(&self, stopped: &mut watch::Receiver<bool>) -> Result<(), OutboundError> {
        let mut worker = self.watcher()?;
        let mut trouble = Trouble::default();
        loop {
            let done = worker.round(&SystemClock).await.map(|watched| (false, watched.waits));
            if self.rests(done, &mut trouble, stopped).await {
                return Ok(());
            }
        }
    }

    /// Rests as long as a round asks for. True: it is to begin anew, or to stop.
    async fn rests(
        &self,
        done: Result<(bool, Option<String>), OutboundError>,
        trouble: &mut Trouble,
        stopped: &mut watch::Receiver<bool>,
    ) -> bool {
        let (rest, why) = match done {
            Ok((true, _)) => (Duration::ZERO, None),
            Ok((false, waits)) => (REST, waits.map(|why| ("OUTBOUND_WAITS".to_owned(), why))),
            Err(error) => (PAUSE, Some((error.code().to_owned(), Causes(&error).to_string()))),
        };
        match why {
            None => trouble.told = None,
            Some((code, words)) if trouble.told.as_ref().is_none_or(|last| last.elapsed() >= PATIENCE) => {
                tracing::warn!(chain = self.name.as_str(), code, error = words, "payments of the chain wait");
                trouble.told = Some(Stopwatch::start());
            }
            Some(_) => {}
        }
        if trouble.upkeep.elapsed() >= UPKEEP {
            self.keep_up_ids().await;
            trouble.upkeep = Stopwatch::start();
            if self.is_outdated().await {
                return true;
            }
        }
        is_stopped_within(stopped, rest).await
    }

    fn sender<'a>(&'a self, make: MakeId<'a>) -> Result<SendWorker<'a>, OutboundError> {
        SendWorker::new(
            &self.db,
            &*self.chain,
            &*self.signer,
            self.signer_name.clone(),
            make,
            self.row.clone(),
            Arc::clone(&self.pinned),
            self.worker.clone(),
        )
    }

    fn watcher(&self) -> Result<WatchWorker<'_>, OutboundError> {
        let (row, pinned) = (self.row.clone(), Arc::clone(&self.pinned));
        WatchWorker::new(&self.db, &*self.chain, row, pinned, self.worker.clone())
    }

    /// Rounds until there is nothing to do: what was sent, or what has changed.
    pub async fn until_idle(&self, sends: bool) -> Result<usize, OutboundError> {
        self.keep_up_ids().await;
        let mut count = 0;
        if sends {
            let make = || self.ids.next(&SystemClock).ok().map(|id| id.number());
            let mut worker = self.sender(&make)?;
            loop {
                let sent = worker.round(&SystemClock).await?;
                count += sent.told;
                if !sent.is_busy() {
                    break;
                }
            }
        } else {
            count = self.watcher()?.round(&SystemClock).await?.changed;
        }
        self.leave(sends).await;
        Ok(count)
    }

    async fn keep_up_ids(&self) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        match self.ids.renew(&self.db, &clock).await {
            Ok(true) => {}
            Ok(false) => tracing::error!("all node numbers are lent; nothing new is sent"),
            Err(error) => {
                tracing::debug!(code = error.code(), error = %Causes(&error), "the node number was not renewed")
            }
        }
    }

    /// Whether somebody has applied another treasury file.
    async fn is_outdated(&self) -> bool {
        match self.db.chain(&self.name).await {
            Ok(row) => row.is_some_and(|row| row != self.row),
            Err(error) => {
                tracing::debug!(code = error.code(), error = %Causes(&error), "the chain's settings were not read");
                false
            }
        }
    }

    /// Coins, caps and confirmations are as the newest treasury file says.
    async fn keep_up(&mut self) {
        self.keep_up_ids().await;
        if !self.is_outdated().await {
            return;
        }
        match reopen(&self.config, &self.db, &self.name).await {
            Ok((pinned, chain, row)) => (self.pinned, self.chain, self.row) = (pinned, chain, row),
            Err(failure) => {
                tracing::warn!(chain = self.name.as_str(), code = %failure.code, "the chain's settings have changed");
            }
        }
    }

    async fn leave(&self, sends: bool) {
        let duty = if sends { store::outbound::Duty::Send } else { store::outbound::Duty::Watch };
        if let Err(error) = self.db.leave_lanes(&self.worker, duty).await {
            tracing::debug!(code = error.code(), error = %Causes(&error), "its lanes are free when their time is over");
        }
    }
}
