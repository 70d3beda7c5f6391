//! Watches the engine at the far end of all transfers, and says in [`Readiness`](crate::Readiness) how it stands.
//!
//! While it is away, or does not want this server, new transfers are refused: each would only add a hold that nobody can
//! end. Those that have begun are asked for as ever.

use std::time::Duration;

use domain::id::{self, Id, NodeId, first_at};
use tokio::time::{sleep, timeout};

use crate::coordinator::Coordinator;
use crate::readiness::Trouble;

/// The name of the part.
const PART: &str = "engine";
/// How often the engine is looked at.
const PAUSE: Duration = Duration::from_millis(500);

impl Coordinator {
    /// Looks at the engine once and says how it stands. True: it can be worked with.
    pub async fn check_engine(&self) -> bool {
        let reached = self.reach_engine().await;
        match &reached {
            Ok(()) => self.readiness().well(PART),
            Err(Trouble { code, words }) => self.readiness().trouble(PART, code, words.as_str()),
        }
        reached.is_ok()
    }

    /// Looks at the engine for ever. The first look counts at once. Later it takes two in a row to call it a trouble:
    /// an engine that is back at the next look was hardly gone.
    pub async fn watch_engine(&self) {
        let mut doubted = true;
        loop {
            doubted = if doubted { !self.check_engine().await } else { self.reach_engine().await.is_err() };
            sleep(PAUSE).await;
        }
    }

    async fn reach_engine(&self) -> Result<(), Trouble> {
        let patience = self.settings().call_timeout + self.settings().slack;
        let late = || Trouble { code: "LEG_TIMEOUT", words: "the engine did not answer in time".to_owned() };
        timeout(patience, self.leg().reach(self.unused_id())).await.unwrap_or_else(|_| Err(late()))
    }

    /// An id of this moment that no transfer has: its node number is lent to nobody.
    fn unused_id(&self) -> Id<id::Transfer> {
        let number = first_at(self.now()).saturating_add(i64::from(NodeId::UNLENT) << 12);
        Id::new(number.max(1)).expect("positive")
    }
}
