//! The rules of one chain, for ever: gas and sweeps are asked for, and flags and reasons are kept. Several may run side by side; one at a time has
//! a chain's rules. It needs no signer: what it makes are jobs, which others send.

use std::sync::Arc;
use std::time::Duration;

use custody::treasury::{RulesRound, RulesWorker, TreasuryError};
use custody::wallet::Pinned;
use domain::{ChainKind, ChainName, Clock};
use store::Db;
use store::entry::ChainRow;
use store::error::Causes;
use terminal::clock::{Stopwatch, SystemClock};
use tokio::sync::watch;
use transfer::IdMaker;

use super::outbound::OutboundRole;
use super::{is_stopped_within, reopen};
use crate::config::Config;

/// How long it rests when there was nothing to do.
const REST: Duration = Duration::from_secs(1);
/// And when something was in its way.
const PAUSE: Duration = Duration::from_secs(5);
/// How often it is looked whether somebody has applied another treasury file, and the node number is renewed.
const UPKEEP: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct RulesRole {
    pub db: Db,
    pub config: Arc<Config>,
    pub chain: Arc<dyn chain::Chain>,
    pub row: ChainRow,
    pub name: ChainName,
    pub pinned: Arc<Pinned>,
    pub ids: Arc<IdMaker>,
    pub worker: String,
}

impl RulesRole {
    /// Beside a role that sends, in the same process. `None`: Bitcoin has no rules.
    pub fn of(role: &OutboundRole) -> Option<Self> {
        let role = role.clone();
        (role.row.kind != ChainKind::Bitcoin).then_some(Self {
            db: role.db,
            config: role.config,
            chain: role.chain,
            row: role.row,
            name: role.name,
            pinned: role.pinned,
            ids: role.ids,
            worker: role.worker,
        })
    }

    /// Evaluates until it is told to stop. Whatever is in its way, it tries again.
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        loop {
            self.keep_up().await;
            let ended = self.hold(&mut stopped).await;
            let failed = ended.is_err();
            if let Err(error) = ended {
                let (chain, code) = (self.name.as_str(), error.code());
                tracing::warn!(chain, code, error = %Causes(&error), "the chain's rules wait");
            }
            if is_stopped_within(&mut stopped, if failed { PAUSE } else { Duration::ZERO }).await {
                self.leave().await;
                return;
            }
        }
    }

    /// Rounds until there is nothing more to do at once.
    pub async fn until_idle(&self) -> Result<RulesRound, TreasuryError> {
        self.keep_up_ids().await;
        let make = || self.ids.next(&SystemClock).ok().map(|id| id.number());
        let mut worker = self.worker(&make)?;
        let mut all = RulesRound::default();
        loop {
            let round = worker.round(&SystemClock).await?;
            all.looked += round.looked;
            all.jobs += round.jobs;
            all.flags += round.flags;
            all.waits = round.waits;
            if !round.more {
                break;
            }
        }
        self.leave().await;
        Ok(all)
    }

    /// One worker of it, which may also only look.
    pub fn worker<'a>(&'a self, make: custody::outbound::MakeId<'a>) -> Result<RulesWorker<'a>, TreasuryError> {
        let (row, pinned) = (self.row.clone(), Arc::clone(&self.pinned));
        RulesWorker::new(&self.db, &*self.chain, make, row, pinned, self.worker.clone())
    }

    /// Until somebody has applied another treasury file, or it is told to stop.
    async fn hold(&self, stopped: &mut watch::Receiver<bool>) -> Result<(), TreasuryError> {
        let make = || self.ids.next(&SystemClock).ok().map(|id| id.number());
        let mut worker = self.worker(&make)?;
        let mut upkeep = Stopwatch::start();
        let mut told: Option<String> = None;
        loop {
            let round = worker.round(&SystemClock).await?;
            if round.waits != told {
                if let Some(why) = &round.waits {
                    tracing::warn!(chain = self.name.as_str(), code = "RULES_WAIT", "the chain's rules wait: {why}");
                }
                told = round.waits;
            }
            if upkeep.elapsed() >= UPKEEP {
                self.keep_up_ids().await;
                upkeep = Stopwatch::start();
                if self.is_outdated().await {
                    return Ok(());
                }
            }
            if is_stopped_within(stopped, if round.more { Duration::ZERO } else { REST }).await {
                return Ok(());
            }
        }
    }

    async fn keep_up_ids(&self) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        match self.ids.renew(&self.db, &clock).await {
            Ok(true) => {}
            Ok(false) => tracing::error!("all node numbers are lent; rules make no jobs"),
            Err(error) => {
                tracing::debug!(code = error.code(), error = %Causes(&error), "the node number was not renewed")
            }
        }
    }

    async fn is_outdated(&self) -> bool {
        match self.db.chain(&self.name).await {
            Ok(row) => row.is_some_and(|row| row != self.row),
            Err(error) => {
                tracing::debug!(code = error.code(), error = %Causes(&error), "the chain's settings were not read");
                false
            }
        }
    }

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

    async fn leave(&self) {
        if let Err(error) = self.db.leave_rules(&self.worker).await {
            tracing::debug!(code = error.code(), error = %Causes(&error), "its rules are free when their time is over");
        }
    }
}
