//! The balance sync of one chain, for ever: all wallets are looked at on their chain, in turn. It has nothing of its own: any number may run beside
//! each other and beside `bursar run deposits`, which looks at what has changed and at a few wallets with each block.

use std::sync::Arc;
use std::time::Duration;

use custody::deposit::{BalanceSync, DepositError, Synced};
use store::error::Causes;
use terminal::clock::{Stopwatch, SystemClock};
use tokio::sync::watch;
use transfer::IdMaker;

use super::base::{KeptRole, RoleBase, Upkeep, keep};
use super::is_stopped_within;

/// How long it rests between rounds: the sources' poll.
pub const REST: Duration = Duration::from_secs(15);
/// What is in the way is told this often.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct BalanceSyncRole {
    pub base: RoleBase,
}

impl BalanceSyncRole {
    /// Goes round until it is told to stop. Whatever is in its way, it tries again.
    pub async fn run(self, stopped: watch::Receiver<bool>) {
        keep(self, stopped).await;
    }

    /// All wallets once.
    pub async fn once(&self) -> Result<Synced, DepositError> {
        self.sync()?.all(&SystemClock).await
    }

    fn sync(&self) -> Result<BalanceSync<'_>, DepositError> {
        let RoleBase { db, chain, row, pinned, .. } = &self.base;
        BalanceSync::new(db, &**chain, row.clone(), Arc::clone(pinned))
    }
}

impl KeptRole for BalanceSyncRole {
    type Error = DepositError;
    const WAITS: &'static str = "the chain's balances are not looked at";
    const PAUSE: Duration = REST;

    fn base(&self) -> &RoleBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut RoleBase {
        &mut self.base
    }

    fn ids(&self) -> Option<&IdMaker> {
        None
    }

    fn code(error: &DepositError) -> &str {
        error.code()
    }

    async fn hold(&self, stopped: &mut watch::Receiver<bool>) -> Result<(), DepositError> {
        let sync = self.sync()?;
        let (mut upkeep, mut told) = (Upkeep::begin(), None::<Stopwatch>);
        loop {
            let synced = sync.round(&SystemClock).await?;
            let chain = self.base.name.as_str();
            if synced.looked.differing > 0 {
                tracing::warn!(
                    chain,
                    differing = synced.looked.differing,
                    "wallets have other balances than their entries"
                );
            }
            match synced.waits {
                None => told = None,
                Some(error) if told.as_ref().is_none_or(|last| last.elapsed() >= PATIENCE) => {
                    tracing::warn!(chain, code = error.code(), error = %Causes(&error), "{}", Self::WAITS);
                    told = Some(Stopwatch::start());
                }
                Some(_) => {}
            }
            if upkeep.is_due_and_outdated(self).await || is_stopped_within(stopped, REST).await {
                return Ok(());
            }
        }
    }

    async fn leave(&self) {}
}
