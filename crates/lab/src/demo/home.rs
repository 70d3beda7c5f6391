//! What the house does by itself: gas for users' addresses, and their coins brought home.

use std::time::Duration;

use terminal::clock::Stopwatch;
use terminal::failure::{CommandResult, Failure};

use super::Stage;
use super::ground::Worker;
use super::watch::State;
use super::wrong;
use crate::rig::program;

/// Gas, its blocks, then the sweep and its blocks.
const PATIENCE: Duration = Duration::from_secs(180);

/// What it came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Home {
    pub gas: usize,
    pub sweeps: usize,
}

impl Stage<'_> {
    /// The workers that it takes. What they do goes on while customers trade.
    pub async fn start_home(&mut self) -> CommandResult {
        for worker in [Worker::Rules, Worker::Outbound, Worker::Confirm] {
            self.parts.start_worker(worker, self.files, self.chains).await?;
        }
        Ok(())
    }

    /// Until customers' addresses have nothing left of what they paid in, on any chain.
    pub async fn home(&mut self) -> CommandResult {
        let watch = Stopwatch::start();
        while self.still_at_users().await? > 0 {
            if watch.elapsed() > PATIENCE {
                return Err(wrong(format!("waited in vain for users' coins: {}", self.why_not_home().await?)));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let is_over = |state: &State, kind: &str| {
            let (done, all) = state.jobs_of(kind);
            done == all && all > 0
        };
        let state = self.watch.wait("what came home is confirmed", |state| {
            is_over(state, "gas_topup") && is_over(state, "consolidation")
        });
        let state = state.await?;
        self.hot_wallets_can_pay().await?;
        self.found.home = Home { gas: state.jobs_of("gas_topup").0, sweeps: state.jobs_of("consolidation").0 };
        self.screen.tell(format!(
            "6. treasury: rules gave {} addresses gas, and brought all customers' coins home in {} transactions; nothing is left \
             at their addresses",
            self.found.home.gas, self.found.home.sweeps
        ));
        Ok(())
    }

    /// Until what the hot wallets were brought lies in final blocks: they pay with nothing else.
    async fn hot_wallets_can_pay(&self) -> CommandResult {
        let watch = Stopwatch::start();
        loop {
            let told = program::told(&self.files.workers, &["treasury", "bands"]).await?;
            let rows = told["bands"].as_array().map_or(&[][..], Vec::as_slice);
            if !rows.is_empty() && rows.iter().all(|row| row["coming"] == "0" && row["spendable"] != "0") {
                return Ok(());
            }
            if watch.elapsed() > PATIENCE {
                return Err(wrong(format!("waited in vain for the hot wallets: {told}")));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn why_not_home(&self) -> Result<String, Failure> {
        program::shown(&self.files.workers, &["rule", "eval", "--dry-run"]).await
    }
}
