//! The withdrawals of one chain, for ever: what may be paid gets a job, what became of jobs is settled or given back. Any number may run side by side: each
//! step is taken from the state that was seen under its lock.

use std::sync::Arc;
use std::time::Duration;

use custody::outbound::MakeId;
use custody::signer::SignerWatch;
use custody::withdrawal::{WithdrawalError, WithdrawalRound, WithdrawalWorker};
use terminal::clock::SystemClock;
use tokio::sync::watch;
use transfer::IdMaker;

use super::base::{KeptRole, RoleBase, Upkeep, keep, renew};
use super::is_stopped_within;
use super::outbound::OutboundRole;

/// How long it rests when there was nothing to do.
const REST: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub struct WithdrawalsRole {
    pub base: RoleBase,
    /// What it has signed is asked before money is given back or a job is made.
    pub signer: Arc<SignerWatch>,
    pub ids: Arc<IdMaker>,
}

impl WithdrawalsRole {
    /// Beside a role that sends, in the same process.
    pub fn of(role: &OutboundRole) -> Self {
        Self { base: role.base.clone(), signer: Arc::clone(&role.signer), ids: Arc::clone(&role.ids) }
    }

    /// Works until it is told to stop. Whatever is in its way, it tries again.
    pub async fn run(self, stopped: watch::Receiver<bool>) {
        keep(self, stopped).await;
    }

    /// Rounds until there is nothing more to do at once.
    pub async fn until_idle(&self) -> Result<WithdrawalRound, WithdrawalError> {
        renew(&self.ids, &self.base.db).await;
        let make = || self.ids.next(&SystemClock).ok().map(|id| id.number());
        let mut worker = self.worker(&make)?;
        let mut all = WithdrawalRound::default();
        loop {
            let round = worker.round(&SystemClock).await?;
            let more = round.more;
            all.join(round);
            if !more {
                return Ok(all);
            }
        }
    }

    fn worker<'a>(&'a self, make: MakeId<'a>) -> Result<WithdrawalWorker<'a>, WithdrawalError> {
        let RoleBase { db, row, pinned, .. } = &self.base;
        WithdrawalWorker::new(db, &*self.signer, make, row.clone(), Arc::clone(pinned))
    }
}

impl KeptRole for WithdrawalsRole {
    type Error = WithdrawalError;
    const WAITS: &'static str = "withdrawals of the chain wait";
    const PAUSE: Duration = Duration::from_secs(2);

    fn base(&self) -> &RoleBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut RoleBase {
        &mut self.base
    }

    fn ids(&self) -> Option<&IdMaker> {
        Some(&self.ids)
    }

    fn code(error: &WithdrawalError) -> &str {
        error.code()
    }

    async fn hold(&self, stopped: &mut watch::Receiver<bool>) -> Result<(), WithdrawalError> {
        let make = || self.ids.next(&SystemClock).ok().map(|id| id.number());
        let mut worker = self.worker(&make)?;
        let mut upkeep = Upkeep::begin();
        let mut told: Option<String> = None;
        loop {
            let round = worker.round(&SystemClock).await?;
            if round.waits != told {
                if let Some(why) = &round.waits {
                    let chain = self.base.name.as_str();
                    tracing::warn!(chain, code = "WITHDRAWALS_WAIT", "withdrawals of the chain wait: {why}");
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

    /// It leases nothing.
    async fn leave(&self) {}
}
