//! A simulated process: one worker of one chain, as the role `deposits` runs it, until it is killed.

use std::sync::Arc;

use custody::deposit::{DepositError, DepositWorker};
use custody::wallet::Pinned;
use domain::random::Random;
use domain::{ChainName, ManualClock};
use store::Db;
use store::entry::CursorError;

use super::super::turn::{Work, park};
use super::client::SimChain;
use super::database::Database;
use super::ground::Ground;
use super::world::Shared;

/// What one process needs to work, for ever.
struct Role {
    world: Shared,
    db: Db,
    chain: SimChain,
    /// Its chain, and its own number.
    place: (usize, usize),
    pinned: Arc<Pinned>,
    chain_name: ChainName,
    name: String,
    random: Random,
}

/// Starts a worker of a chain. It takes the chain when nobody else has it.
pub(crate) fn start(ground: &Ground, world: &Shared, process: usize, net: usize, name: String) -> Work {
    let random = Random::from_seed(world.lock().random.next_u64());
    let role = Role {
        world: world.clone(),
        db: ground.db.with_faults(Arc::new(Database { world: world.clone(), process })),
        chain: SimChain::new(world, net),
        place: (net, process),
        pinned: Arc::clone(&ground.pinned),
        chain_name: ground.rows[net].name.clone(),
        name,
        random,
    };
    Box::pin(role.run())
}

impl Role {
    async fn run(self) {
        let mut random = self.random.clone();
        loop {
            if let Err(error) = self.hold(&mut random).await {
                self.world.lock().meet(self.place, &error);
            }
            park(&self.world).await;
        }
    }

    /// Takes the chain and keeps it until another has it.
    async fn hold(&self, random: &mut Random) -> Result<(), DepositError> {
        let missing = || DepositError::NotBegun { chain: self.chain_name.to_string() };
        let row = self.db.chain(&self.chain_name).await?.ok_or_else(missing)?;
        let (pinned, now) = (Arc::clone(&self.pinned), self.world.lock().now());
        let worker = DepositWorker::take(&self.db, &self.chain, row, pinned, &self.name, random, now).await?;
        let mut worker = worker.one_by_one();
        loop {
            let now = self.world.lock().now();
            match worker.round(&ManualClock::at(now)).await {
                Ok(worked) => self.world.lock().worked(self.place, &worked),
                Err(error @ (DepositError::Cursor(CursorError::Fenced) | DepositError::Changed { .. })) => {
                    return Err(error);
                }
                Err(error) => self.world.lock().meet(self.place, &error),
            }
            park(&self.world).await;
        }
    }
}
