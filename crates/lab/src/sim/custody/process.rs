//! A simulated process: one worker of one chain, as the roles run it, until it is killed; and a database that fails.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use chain::follow::FollowError;
use custody::deposit::{DepositError, DepositWorker};
use custody::outbound::{OutboundError, SendWorker, WatchWorker};
use custody::treasury::{RulesWorker, TreasuryError};
use custody::wallet::Pinned;
use custody::withdrawal::{WithdrawalError, WithdrawalWorker};
use domain::random::Random;
use domain::{ChainName, Clock, ManualClock};
use store::entry::CursorError;
use store::faults::{Faults, Point, Strike, simulated};
use store::utxo::UtxoError;
use store::{Db, StoreError};

use super::super::turn::{Work, die, park};
use super::client::SimChain;
use super::follower::Follower;
use super::ground::Ground;
use super::pen::Pen;
use super::world::{Shared, World};

struct Role {
    world: Shared,
    db: Db,
    /// As the judge sees it: it does not fail.
    rows: Db,
    chain: SimChain,
    pen: Pen,
    pinned: Arc<Pinned>,
    chain_name: ChainName,
    clock: Arc<ManualClock>,
    name: String,
    duty: Part,
    /// Its place among the processes.
    at: usize,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Sends,
    Watches,
    /// Bitcoin: shows the wallet store the chain.
    Follows,
    /// Keeps the chain's own books.
    Keeps,
    /// Evaluates rules.
    Rules,
    /// Pays what customers have asked for, and ends it.
    Withdraws,
}

/// Why a round has failed.
#[derive(Debug, thiserror::Error)]
enum Met {
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    #[error(transparent)]
    Deposit(#[from] DepositError),
    #[error(transparent)]
    Treasury(#[from] TreasuryError),
    #[error(transparent)]
    Withdrawal(#[from] WithdrawalError),
}

impl From<StoreError> for Met {
    fn from(error: StoreError) -> Self {
        Self::Outbound(error.into())
    }
}

/// Starts a worker of a chain.
pub(crate) fn start(ground: &Ground, world: &Shared, at: usize, (net, duty): (usize, Part), name: String) -> Work {
    let clock = Arc::clone(&world.lock().clock);
    let role = Role {
        world: world.clone(),
        db: ground.db.with_faults(Arc::new(Database { world: world.clone() })),
        rows: ground.db.clone(),
        chain: SimChain { world: world.clone(), net, kind: ground.rows[net].kind },
        pen: Pen { world: world.clone(), signer: Arc::clone(&ground.signer) },
        pinned: Arc::clone(&ground.pinned),
        chain_name: ground.rows[net].name.clone(),
        clock,
        name,
        duty,
        at,
    };
    Box::pin(role.run())
}

impl Role {
    /// As the role does: a worker goes on over rounds that fail, with what it remembers, until its process dies.
    async fn run(self) {
        loop {
            let ended = match self.duty {
                Part::Sends => self.send().await,
                Part::Watches => self.watch().await,
                Part::Follows => {
                    let follower = Follower { db: &self.db, chain: &self.chain, clock: &self.clock };
                    follower.step().await.map_err(Met::from)
                }
                Part::Keeps => self.keep_books().await,
                Part::Rules => self.evaluate().await,
                Part::Withdraws => self.withdraw().await,
            };
            self.rest(ended).await;
        }
    }

    /// Notes how a round has ended, and gives the turn back.
    async fn rest(&self, ended: Result<(), impl Into<Met>>) {
        {
            let mut world = self.world.lock();
            world.report.rounds += 1;
            world.midway.remove(&self.at);
            if let Err(error) = ended {
                world.meet(&error.into());
            }
        }
        park(&self.world).await;
        self.world.lock().midway.insert(self.at);
    }

    /// Ends only when there is no worker to begin with.
    async fn send(&self) -> Result<(), Met> {
        let Some(row) = self.db.chain(&self.chain_name).await? else { return Ok(()) };
        let make = || Some(self.world.lock().next_id());
        let signer = "sim".parse().map_err(OutboundError::from)?;
        let (pinned, name) = (Arc::clone(&self.pinned), self.name.clone());
        let mut worker = SendWorker::new(&self.db, &self.chain, &self.pen, signer, &make, row, pinned, name)?;
        loop {
            let ended = worker.round(&*self.clock).await.map(|sent| {
                let mut world = self.world.lock();
                world.report.replacements += sent.replaced as u64;
                world.report.sent_again += sent.told.saturating_sub(sent.signed) as u64;
                world.note(11 + sent.slots as u64);
            });
            self.rest(ended).await;
        }
    }

    async fn watch(&self) -> Result<(), Met> {
        let Some(row) = self.db.chain(&self.chain_name).await? else { return Ok(()) };
        let (pinned, name) = (Arc::clone(&self.pinned), self.name.clone());
        let mut worker = WatchWorker::new(&self.db, &self.chain, row, pinned, name)?;
        loop {
            let ended = worker.round(&*self.clock).await;
            let ended = ended.map(|watched| self.world.lock().note(23 + watched.changed as u64));
            self.rest(ended).await;
        }
    }

    /// Takes the chain and keeps its books until another has it.
    async fn keep_books(&self) -> Result<(), Met> {
        let Some(row) = self.db.chain(&self.chain_name).await? else { return Ok(()) };
        let mut random = Random::from_seed(self.world.lock().random.next_u64());
        let (pinned, now) = (Arc::clone(&self.pinned), self.clock.now());
        let mut worker = DepositWorker::take(&self.db, &self.chain, row, pinned, &self.name, &mut random, now).await?;
        loop {
            match worker.round(&*self.clock).await {
                Ok(worked) => {
                    {
                        let mut world = self.world.lock();
                        world.note(31 + worked.passed as u64 + 7 * worked.proven as u64);
                        world.report.deposits_credited += worked.posted.credited as u64;
                        world.report.books_went_back += u64::from(worked.back_to.is_some());
                    }
                    self.rest(Ok::<(), Met>(())).await;
                }
                Err(error @ (DepositError::Cursor(CursorError::Fenced) | DepositError::Changed { .. })) => {
                    return Err(error.into());
                }
                Err(error) => self.rest(Err(error)).await,
            }
        }
    }

    async fn evaluate(&self) -> Result<(), Met> {
        let Some(row) = self.db.chain(&self.chain_name).await? else { return Ok(()) };
        let make = || {
            let mut world = self.world.lock();
            world.rules_made = true;
            Some(world.next_id())
        };
        let (pinned, name) = (Arc::clone(&self.pinned), self.name.clone());
        let mut worker = RulesWorker::new(&self.db, &self.chain, &make, row.clone(), pinned, name)?;
        loop {
            // What is final by the books now, rules know at least.
            let settled = self.rows.settled_height(&row).await?;
            self.world.lock().rules_know.insert(self.at, settled.and_then(|height| u64::try_from(height).ok()));
            let ended = worker.round(&*self.clock).await.map(|round| {
                let mut world = self.world.lock();
                world.note(43 + round.looked as u64 + 7 * round.flags as u64);
            });
            self.rest(ended).await;
        }
    }

    async fn withdraw(&self) -> Result<(), Met> {
        let Some(row) = self.db.chain(&self.chain_name).await? else { return Ok(()) };
        let make = || {
            let mut world = self.world.lock();
            world.rules_made = true;
            Some(world.next_id())
        };
        let mut worker = WithdrawalWorker::new(&self.db, &self.pen, &make, row, Arc::clone(&self.pinned))?;
        loop {
            let ended = worker.round(&*self.clock).await.map(|round| {
                let mut world = self.world.lock();
                if let Some(one) = round.doubted.first().or(round.kept.first()) {
                    world.breaks(format!("{one} is doubted"));
                }
                world.note(53 + round.queued as u64 + 7 * round.completed as u64 + 11 * round.failed as u64);
            });
            self.rest(ended).await;
        }
    }
}

impl World {
    /// An error that the simulator did not cause is a defect.
    fn meet(&mut self, error: &Met) {
        let expected = match error {
            Met::Outbound(OutboundError::Chain(_) | OutboundError::Signer(_))
            | Met::Deposit(DepositError::Chain(_) | DepositError::Follow(FollowError::Chain(_)))
            | Met::Treasury(TreasuryError::Chain(_)) => true,
            Met::Deposit(DepositError::Cursor(CursorError::Fenced)) => {
                self.report.books_taken_over += 1;
                true
            }
            Met::Deposit(DepositError::Cursor(CursorError::Taken { .. })) => true,
            // Something was suspended, or is active again.
            Met::Deposit(DepositError::Changed { .. }) => {
                self.report.settings_changed += 1;
                true
            }
            Met::Outbound(OutboundError::Store(error) | OutboundError::Wallet(UtxoError::Store(error)))
            | Met::Deposit(DepositError::Store(error) | DepositError::Cursor(CursorError::Store(error)))
            | Met::Treasury(TreasuryError::Store(error))
            | Met::Withdrawal(WithdrawalError::Store(error)) => {
                matches!(error, StoreError::Unavailable(_) | StoreError::CommitUnknown(_) | StoreError::Contention(_))
            }
            Met::Outbound(_) | Met::Deposit(_) | Met::Treasury(_) | Met::Withdrawal(_) => false,
        };
        if !expected {
            self.breaks(format!("a worker met: {error} ({error:?})"));
        }
    }

    fn strike(&mut self, point: Point) -> Fault {
        let draw = self.random.below(100_000);
        if self.calm {
            return Fault::None;
        }
        let report = &mut self.report;
        match (point, draw) {
            (Point::Statement, 0..60) => {
                report.killed_at_statement += 1;
                Fault::Dies
            }
            (Point::Statement, 60..140) => {
                report.database_unavailable += 1;
                Fault::Fails(StoreError::Unavailable(simulated()))
            }
            (Point::Statement, 140..170) | (Point::BeforeCommit, 0..150) => {
                report.transactions_retried += 1;
                Fault::Fails(StoreError::Contention(simulated()))
            }
            (Point::BeforeCommit, 150..700) => {
                report.killed_before_commit += 1;
                Fault::Dies
            }
            (Point::BeforeCommit, 700..1_200) => {
                report.commit_unknown_undone += 1;
                Fault::Fails(StoreError::CommitUnknown(simulated()))
            }
            (Point::AfterCommit, 0..700) => {
                report.killed_after_commit += 1;
                Fault::Dies
            }
            (Point::AfterCommit, 700..1_400) => {
                report.commit_unknown_done += 1;
                Fault::Fails(StoreError::CommitUnknown(simulated()))
            }
            (Point::Statement | Point::BeforeCommit | Point::AfterCommit, _) => Fault::None,
        }
    }
}

enum Fault {
    None,
    Fails(StoreError),
    Dies,
}

/// The database as a process sees it.
struct Database {
    world: Shared,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Faults for Database {
    fn strike(&self, point: Point) -> Strike {
        let fault = self.world.lock().strike(point);
        match fault {
            Fault::None => Box::pin(ready(Ok(()))),
            Fault::Fails(error) => Box::pin(ready(Err(error))),
            Fault::Dies => {
                let world = self.world.clone();
                Box::pin(async move {
                    die(&world).await;
                    Ok(())
                })
            }
        }
    }
}
