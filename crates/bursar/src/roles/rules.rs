//! The rules of one chain, for ever: gas and sweeps are asked for, and flags and reasons are kept. Several may run side by side; one at a time has
//! a chain's rules. It needs no signer: what it makes are jobs, which others send.

use std::sync::Arc;
use std::time::Duration;

use custody::outbound::MakeId;
use custody::treasury::{RulesRound, RulesWorker, TreasuryError};
use store::error::Causes;
use terminal::clock::SystemClock;
use tokio::sync::watch;
use transfer::IdMaker;

use super::base::{KeptRole, RoleBase, Upkeep, keep, renew};
use super::is_stopped_within;
use super::outbound::OutboundRole;

/// How long it rests when there was nothing to do.
const REST: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct RulesRole {
    pub base: RoleBase,
    pub ids: Arc<IdMaker>,
}

impl RulesRole {
    /// Beside a role that sends, in the same process.
    pub fn of(role: &OutboundRole) -> Self {
        Self { base: role.base.clone(), ids: Arc::clone(&role.ids) }
    }

    /// Evaluates until it is told to stop. Whatever is in its way, it tries again.
    pub async fn run(self, stopped: watch::Receiver<bool>) {
        keep(self, stopped).await;
    }

    /// Rounds until there is nothing more to do at once.
    pub async fn until_idle(&self) -> Result<RulesRound, TreasuryError> {
        renew(&self.ids, &self.base.db).await;
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
    pub fn worker<'a>(&'a self, make: MakeId<'a>) -> Result<RulesWorker<'a>, TreasuryError> {
        let RoleBase { db, chain, row, pinned, worker, .. } = &self.base;
        RulesWorker::new(db, &**chain, make, row.clone(), Arc::clone(pinned), worker.clone())
    }
}

impl KeptRole for RulesRole {
    type Error = TreasuryError;
    const WAITS: &'static str = "the chain's rules wait";
    const PAUSE: Duration = Duration::from_secs(5);

    fn base(&self) -> &RoleBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut RoleBase {
        &mut self.base
    }

    fn ids(&self) -> Option<&IdMaker> {
        Some(&self.ids)
    }

    fn code(error: &TreasuryError) -> &str {
        error.code()
    }

    async fn hold(&self, stopped: &mut watch::Receiver<bool>) -> Result<(), TreasuryError> {
        let make = || self.ids.next(&SystemClock).ok().map(|id| id.number());
        let mut worker = self.worker(&make)?;
        let mut upkeep = Upkeep::begin();
        let mut told: Option<String> = None;
        loop {
            let round = worker.round(&SystemClock).await?;
            if round.waits != told {
                if let Some(why) = &round.waits {
                    let chain = self.base.name.as_str();
                    tracing::warn!(chain, code = "RULES_WAIT", "the chain's rules wait: {why}");
                }
                told = round.waits;
            }
            if upkeep.is_due_and_outdated(self).await {
                return Ok(());
            }
            if is_stopped_within(stopped, if round.more { Duration::ZERO } else { REST }).await {
                return Ok(());
            }
        }
    }

    async fn leave(&self) {
        if let Err(error) = self.base.db.leave_rules(&self.base.worker).await {
            tracing::debug!(code = error.code(), error = %Causes(&error), "its rules are free when their time is over");
        }
    }
}
