//! The worker of one chain's deposits, for ever: it takes the chain when nobody else has it, and works in rounds.

use std::sync::Arc;
use std::time::Duration;

use custody::deposit::work::begin;
use custody::deposit::{DepositError, DepositWorker, Worked};
use domain::Clock;
use domain::random::Random;
use store::entry::{CursorError, Finding, FindingKind};
use store::error::Causes;
use terminal::clock::{Stopwatch, SystemClock};
use tokio::sync::watch;

use super::base::RoleBase;
use super::is_stopped_within;

/// How long a worker rests when there was nothing to do.
const REST: Duration = Duration::from_millis(400);
/// And when something was in its way.
const PAUSE: Duration = Duration::from_secs(2);
/// Nodes are never all at the same block: what waits for them is told when it has waited for so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// And somebody is to look when it has waited for so long.
const TOO_LONG: Duration = Duration::from_secs(600);

/// A chain that does not go on.
struct Waiting {
    since: Stopwatch,
    told: Stopwatch,
    found: bool,
}

impl Waiting {
    fn begin() -> Self {
        Self { since: Stopwatch::start(), told: Stopwatch::start(), found: false }
    }
}

/// All that the worker of one chain needs.
#[derive(Clone)]
pub struct DepositRole {
    pub base: RoleBase,
    /// The first block of interest, if the chain's books are not begun. `None`: the newest settled one.
    pub from: Option<u64>,
}

impl DepositRole {
    /// Works until it is told to stop. Whatever is in its way, it tries again.
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let (mut waiting, mut outdated) = (None, false);
        loop {
            let why = match if outdated { self.base.reload().await } else { Ok(()) } {
                // Whoever has the right file may have the chain meanwhile.
                Err(failure) => Some((failure.code.to_string(), failure.messages.join(": "))),
                Ok(()) => match self.hold(&mut stopped, &mut waiting).await {
                    Ok(()) => return,
                    Err(error) => {
                        self.tell(&error);
                        outdated = matches!(error, DepositError::Changed { .. });
                        // That others have the chain is as it should be.
                        let idle =
                            matches!(error, DepositError::Cursor(CursorError::Taken { .. } | CursorError::Fenced));
                        (!idle && !outdated).then(|| (error.code().to_owned(), Causes(&error).to_string()))
                    }
                },
            };
            self.tell_waiting(&mut waiting, why).await;
            if is_stopped_within(&mut stopped, PAUSE).await {
                return;
            }
        }
    }

    /// Rounds until there is nothing to do: what each came to.
    pub async fn until_idle(&self, mut each: impl FnMut(&Worked)) -> Result<(), DepositError> {
        let mut worker = self.take().await?;
        let mut patience = 10;
        loop {
            let worked = worker.round(&SystemClock).await?;
            if !worked.is_busy() && worked.waits.is_some() && patience > 0 {
                // Nodes are never all at the same block.
                patience -= 1;
                tokio::time::sleep(PAUSE).await;
            } else if !worked.is_busy() {
                worker.leave(SystemClock.now()).await?;
                // What could not be proven is not done.
                return worked.waits.map_or(Ok(()), |error| Err(error.into()));
            }
            each(&worked);
        }
    }

    async fn take(&self) -> Result<DepositWorker<'_>, DepositError> {
        // The row that the client was made of: if another one is applied meanwhile, the worker notices.
        let RoleBase { db, chain, row, pinned, worker, .. } = &self.base;
        let now = SystemClock.now();
        begin(db, &**chain, row, self.from, now).await?;
        // Nobody outside can choose addresses that crowd together in the watched set.
        let mut random = Random::from_seed(now.micros().unsigned_abs() ^ u64::from(std::process::id()) << 40);
        DepositWorker::take(db, &**chain, row.clone(), Arc::clone(pinned), worker, &mut random, now).await
    }

    /// Takes the chain and keeps it. `Ok`: it was told to stop.
    async fn hold(
        &self,
        stopped: &mut watch::Receiver<bool>,
        waiting: &mut Option<Waiting>,
    ) -> Result<(), DepositError> {
        let mut worker = self.take().await?;
        tracing::info!(chain = self.base.name.as_str(), worker = self.base.worker, "reads the chain's deposits");
        loop {
            let rest = match worker.round(&SystemClock).await {
                Ok(worked) => {
                    let why = worked.waits.as_ref().map(|error| (error.code().to_owned(), Causes(error).to_string()));
                    self.tell_waiting(waiting, why).await;
                    if worked.is_busy() {
                        self.tell_work(&worked);
                        Duration::ZERO
                    } else {
                        REST
                    }
                }
                // Another worker has it now.
                Err(error @ DepositError::Cursor(CursorError::Fenced)) => return Err(error),
                // It has to be read in another way. Who knows how may have it at once.
                Err(error @ DepositError::Changed { .. }) => {
                    worker.leave(SystemClock.now()).await?;
                    return Err(error);
                }
                Err(error) => {
                    if waiting.is_none() {
                        self.tell(&error);
                    }
                    let why = (error.code().to_owned(), Causes(&error).to_string());
                    self.tell_waiting(waiting, Some(why)).await;
                    PAUSE
                }
            };
            if is_stopped_within(stopped, rest).await {
                return Ok(worker.leave(SystemClock.now()).await?);
            }
        }
    }

    /// What keeps the chain from going on, if anything does: told when it has lasted, and a finding when it lasts on.
    async fn tell_waiting(&self, waiting: &mut Option<Waiting>, why: Option<(String, String)>) {
        let Some((code, words)) = why else {
            *waiting = None;
            return;
        };
        let waiting = waiting.get_or_insert_with(Waiting::begin);
        let chain = self.base.name.as_str();
        if waiting.told.elapsed() >= PATIENCE {
            waiting.told = Stopwatch::start();
            tracing::warn!(chain, code, error = words, "deposits of the chain wait");
        }
        if waiting.since.elapsed() < TOO_LONG || waiting.found {
            return;
        }
        let finding = Finding { kind: FindingKind::Waits, subject: code, detail: words };
        let added = match self.base.db.chain(&self.base.name).await {
            Ok(Some(row)) => self.base.db.add_findings(row.id, &[finding], SystemClock.now()).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match added {
            Ok(()) => waiting.found = true,
            Err(error) => {
                tracing::error!(chain, code = error.code(), error = %Causes(&error), "a finding was not written")
            }
        }
    }

    fn tell_work(&self, worked: &Worked) {
        let Worked { passed, back_to, read_again, proven, proof, looked, posted, settled, marked: _, waits: _ } =
            worked;
        tracing::debug!(
            chain = self.base.name.as_str(),
            passed,
            back_to,
            read_again,
            proven,
            taken_in = proof.taken_in,
            disproven = proof.disproven,
            looked = looked.same,
            differing = looked.differing,
            credited = posted.credited,
            left_over = posted.left_over,
            taken_back = posted.taken_back,
            settled,
            "deposits"
        );
    }

    fn tell(&self, error: &DepositError) {
        let (chain, code) = (self.base.name.as_str(), error.code());
        match error {
            // Two workers side by side are as they should be: one of them waits.
            DepositError::Cursor(CursorError::Taken { .. } | CursorError::Fenced) => {
                tracing::debug!(chain, code, error = %Causes(error), "waits for the chain");
            }
            _ => tracing::warn!(chain, code, error = %Causes(error), "deposits of the chain wait"),
        }
    }
}
