//! What every role of one chain is made of, and how it is kept as the newest treasury file says.

use std::sync::Arc;
use std::time::Duration;

use custody::wallet::{Pinned, is_outdated};
use domain::{ChainName, Clock};
use store::Db;
use store::entry::ChainRow;
use store::error::Causes;
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::Failure;
use tokio::sync::watch;
use transfer::IdMaker;

use super::{is_stopped_within, reopen};
use crate::config::Config;

/// How often it is looked whether somebody has applied another treasury file, and the node number is renewed.
const UPKEEP: Duration = Duration::from_secs(10);

/// One chain, as a worker of it sees it.
#[derive(Clone)]
pub struct RoleBase {
    pub db: Db,
    /// Its nodes and the treasury file are read again when somebody has applied another one.
    pub config: Arc<Config>,
    pub chain: Arc<dyn chain::Chain>,
    /// What that client was made of.
    pub row: ChainRow,
    pub name: ChainName,
    pub pinned: Arc<Pinned>,
    /// Who it is, for whoever waits for the same.
    pub worker: String,
}

impl RoleBase {
    /// Somebody has applied another treasury file: wallets, coins and confirmations are as it says from now on.
    pub async fn reload(&mut self) -> Result<(), Failure> {
        (self.pinned, self.chain, self.row) = reopen(&self.config, &self.db, &self.name).await?;
        Ok(())
    }

    /// Whether somebody has applied another treasury file.
    async fn is_outdated(&self) -> bool {
        is_outdated(&self.db, &self.row, &self.pinned).await.unwrap_or_else(|error| {
            tracing::debug!(code = error.code(), error = %Causes(&error), "the chain's settings were not read");
            false
        })
    }
}

/// Keeps the number that new jobs are numbered with.
pub async fn renew(ids: &IdMaker, db: &Db) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    match ids.renew(db, &clock).await {
        Ok(true) => {}
        Ok(false) => tracing::error!("all node numbers are lent; no new jobs are made or sent"),
        Err(error) => {
            tracing::debug!(code = error.code(), error = %Causes(&error), "the node number was not renewed")
        }
    }
}

/// A role that works in rounds, beside others of its kind.
pub trait KeptRole {
    type Error: std::error::Error + 'static;
    /// What is said of the chain when something is in the way.
    const WAITS: &'static str;
    /// How long it rests then.
    const PAUSE: Duration;

    fn base(&self) -> &RoleBase;
    fn base_mut(&mut self) -> &mut RoleBase;
    /// `None`: it makes nothing that needs a number.
    fn ids(&self) -> Option<&IdMaker>;
    fn code(error: &Self::Error) -> &str;
    /// Rounds until [`Upkeep::is_due_and_outdated`] says so, or it is told to stop.
    fn hold(&self, stopped: &mut watch::Receiver<bool>) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// Lets another begin at once.
    fn leave(&self) -> impl Future<Output = ()> + Send;
}

/// Works until it is told to stop. Whatever is in its way, it tries again; each time with the newest settings.
pub async fn keep<R: KeptRole>(mut role: R, mut stopped: watch::Receiver<bool>) {
    loop {
        if let Some(ids) = role.ids() {
            renew(ids, &role.base().db).await;
        }
        if role.base().is_outdated().await
            && let Err(failure) = role.base_mut().reload().await
        {
            // It must not go on with wallets that somebody has taken out of use.
            let chain = role.base().name.as_str();
            tracing::warn!(chain, code = %failure.code, "the chain's settings have changed, and cannot be read");
            role.leave().await;
            if is_stopped_within(&mut stopped, R::PAUSE).await {
                return;
            }
            continue;
        }
        let ended = role.hold(&mut stopped).await;
        let failed = ended.is_err();
        if let Err(error) = ended {
            let (chain, code) = (role.base().name.as_str(), R::code(&error));
            tracing::warn!(chain, code, error = %Causes(&error), "{}", R::WAITS);
        }
        if is_stopped_within(&mut stopped, if failed { R::PAUSE } else { Duration::ZERO }).await {
            role.leave().await;
            return;
        }
    }
}

/// What a role sees to between its rounds.
pub struct Upkeep(Stopwatch);

impl Upkeep {
    pub fn begin() -> Self {
        Self(Stopwatch::start())
    }

    /// True: somebody has applied another treasury file, and the role begins anew.
    pub async fn is_due_and_outdated<R: KeptRole>(&mut self, role: &R) -> bool {
        if self.0.elapsed() < UPKEEP {
            return false;
        }
        self.0 = Stopwatch::start();
        if let Some(ids) = role.ids() {
            renew(ids, &role.base().db).await;
        }
        role.base().is_outdated().await
    }
}
