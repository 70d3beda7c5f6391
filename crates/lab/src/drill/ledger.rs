//! `bursar drill ledger` (hidden): posts batches for ever and says on standard output what was acknowledged. A test
//! kills it at random moments and then holds the database against what it had said.

use std::io::Write;

use domain::ledger::{Movement, OpKey, Operation, Outcome as Decided, Reference, Reply};
use domain::random::Random;
use domain::{AccountId, AccountKind, Amount, AssetId, Clock, UserId};
use store::Db;
use store::ledger::{NewAccount, Opened};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};

use crate::scratch;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Makes the keys of this run its own
    #[arg(long)]
    run: u64,
    #[arg(long, default_value_t = 4)]
    writers: usize,
}

const USERS: i64 = 40;
const BATCH: u64 = 16;

pub async fn run(db: Db, arguments: &Arguments) -> CommandResult {
    scratch::check(&db, "drill").await?;
    let assets = store::catalog::read_assets(&mut db.read().await?).await?;
    let asset = *assets.keys().next().ok_or_else(|| {
        Failure::bad_input("INVALID_ASSET", "there are no assets", "bursar apply examples/treasury.toml")
    })?;
    // Not clearing:spot: that one belongs to transfers.
    let clearing = NewAccount::system(&AccountKind::Suspense, asset).into_iter();
    let users = (1..=USERS).filter_map(UserId::new).map(|user| NewAccount::funding(user, asset));
    let wanted: Vec<NewAccount> = clearing.chain(users).collect();
    let opened = db.open(&wanted, SystemClock.now()).await?;
    let ids: Vec<AccountId> = opened
        .into_iter()
        .filter_map(|one| match one {
            Opened::Account(id) => Some(id),
            Opened::UnknownAsset => None,
        })
        .collect();
    let tasks: Vec<_> = (0..arguments.writers)
        .map(|writer| {
            let seed = arguments.run.wrapping_mul(1_000).wrapping_add(writer as u64);
            let drill = Drill { db: db.clone(), asset, ids: ids.clone(), random: Random::from_seed(seed), seed };
            tokio::spawn(drill.post_for_ever())
        })
        .collect();
    for task in tasks {
        let ended = task.await.map_err(|error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar"))?;
        ended?;
    }
    Ok(())
}

struct Drill {
    db: Db,
    asset: AssetId,
    /// The clearing account, then the users'.
    ids: Vec<AccountId>,
    random: Random,
    seed: u64,
}

impl Drill {
    async fn post_for_ever(mut self) -> CommandResult {
        let mut holds = Vec::new();
        for batch in 0_u64.. {
            let operations: Vec<Operation> = (0..BATCH)
                .filter_map(|number| self.operation(&format!("{}-{batch}-{number}", self.seed), &mut holds))
                .collect();
            let replies = self.db.post(&operations, SystemClock.now()).await?;
            acknowledge(&operations, &replies)?;
        }
        Ok(())
    }

    fn operation(&mut self, name: &str, holds: &mut Vec<(OpKey, AccountId, Amount)>) -> Option<Operation> {
        let key = OpKey::new(name).ok()?;
        let note = Reference::new("drill").ok()?;
        let (clearing, users) = self.ids.split_first()?;
        let user = *users.get(self.random.index(users.len()))?;
        let amount = Amount::from_units(1 + i64::try_from(self.random.below(100)).ok()?);
        let movement = |from, to, amount| vec![Movement { from, to, asset: self.asset, amount }];
        match self.random.below(4) {
            0 => Operation::move_available(key, movement(*clearing, user, amount), note).ok(),
            1 => {
                let other = *users.get(self.random.index(users.len()))?;
                Operation::move_available(key, movement(user, other, amount), note).ok()
            }
            2 => {
                holds.push((key.clone(), user, amount));
                Some(Operation::hold(key, user, self.asset, amount, note))
            }
            _ => {
                let (hold, user, amount) = holds.pop()?;
                Operation::settle(key, hold, movement(user, *clearing, amount), note).ok()
            }
        }
    }
}

/// One line per operation, `KEY NUMBER`, written in one piece and only after the commit.
fn acknowledge(operations: &[Operation], replies: &[Reply]) -> CommandResult {
    let mut text = String::new();
    for (operation, reply) in operations.iter().zip(replies) {
        if let Reply::First(outcome) | Reply::Replay(outcome) = reply {
            let number = match outcome {
                Decided::Applied => 0,
                Decided::Refused(refusal) => refusal.number(),
            };
            text.push_str(&format!("{} {number}\n", operation.key()));
        }
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::outside("OUTPUT_CLOSED", &error, "keep standard output open"))
}
