//! Withdrawals are asked about outside, for ever, before anybody may agree to them. Any number of these may run side by side: each question is one worker's
//! until it is due again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use custody::signer::SignerWatch;
use custody::withdrawal::{CheckRound, CheckWorker, HttpCheck, Remembers, WithdrawalError};
use store::Db;
use store::error::Causes;
use terminal::clock::SystemClock;
use terminal::failure::Failure;
use terminal::files::read_secret;
use tokio::sync::watch;

use super::is_stopped_within;
use crate::config::Config;

/// How long it rests when there was nothing to do.
const REST: Duration = Duration::from_millis(500);
/// And when something was in its way.
const PAUSE: Duration = Duration::from_secs(2);

/// Who is asked, if the configuration names somebody.
pub fn configured(config: &Config) -> Result<Option<Arc<HttpCheck>>, Failure> {
    let settings = &config.withdrawals;
    if settings.check_url.is_empty() {
        return Ok(None);
    }
    let secret = read_secret(Path::new(&settings.check_key_file))?;
    let timeout = Duration::from_millis(settings.check_timeout_ms.into());
    let check = HttpCheck::new(&settings.check_url, secret, timeout).map_err(|error| {
        let hint = "withdrawals.check_url and withdrawals.check_key_file: see examples/bursar.toml";
        Failure::bad_input("CONFIG_INVALID", format!("the check of withdrawals: {error}"), hint)
    })?;
    Ok(Some(Arc::new(check)))
}

#[derive(Clone)]
pub struct ChecksRole {
    pub db: Db,
    pub check: Arc<HttpCheck>,
    /// What it has signed is asked before money is given back.
    pub signer: Option<Arc<SignerWatch>>,
}

impl ChecksRole {
    fn remembers(&self) -> Option<&dyn Remembers> {
        self.signer.as_deref().map(|signer| signer as &dyn Remembers)
    }

    /// Works until it is told to stop. Whatever is in its way, it tries again.
    pub async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut worker = CheckWorker::new(&self.db, &self.check, self.remembers());
        loop {
            let rest = match worker.round(&SystemClock).await {
                Ok(round) if round.more => Duration::ZERO,
                Ok(_) => REST,
                Err(error) => {
                    tracing::warn!(code = error.code(), error = %Causes(&error), "checks of withdrawals wait");
                    PAUSE
                }
            };
            if is_stopped_within(&mut stopped, rest).await {
                return;
            }
        }
    }

    /// Rounds until nothing is due.
    pub async fn until_idle(&self) -> Result<CheckRound, WithdrawalError> {
        let mut all = CheckRound::default();
        let mut worker = CheckWorker::new(&self.db, &self.check, self.remembers());
        loop {
            let round = worker.round(&SystemClock).await?;
            let more = round.more;
            all.join(round);
            if !more {
                return Ok(all);
            }
        }
    }
}
