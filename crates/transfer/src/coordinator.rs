//! The coordinator: takes batches of transfers from state to state until each has ended or its leg does not answer.
//!
//! One code path for the request that waits, the worker, and recovery. Each round is one transaction, then one call of
//! the remote leg for all that need it:
//!
//! ```text
//! FUNDING → SPOT   commit: INIT … TARGET_PENDING, hold     call: deposit    commit: settle, COMMITTED
//! SPOT → FUNDING   commit: INIT, SOURCE_PENDING            call: withdraw   commit: … deposit, COMMITTED
//! ```
//!
//! **What is called has been committed before.** A crash anywhere leaves a row that says what to do, and doing it again
//! is harmless: rows are changed only if their state is still the one seen, and both legs know the transfer's id.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use domain::id::{self, Id};
use domain::transfer::{Direction, State, Transfer};
use domain::{AccountId, AccountKind, AssetId, Clock, Timestamp, UserId};
use store::ledger::{NewAccount, Opened};
use store::transfer::{claim, lock_with_accounts, read};
use store::{Db, StoreError, Writes, transact};

use crate::create::{Asked, Begin, Created, Wish, create};
use crate::update::{Draft, Happened, remote};
use crate::leg::{Answer, Call, Holding, Leg, Reason, Verb};
use crate::metrics::Metrics;
use crate::id_maker::{NoLease, Node};
use crate::round::{Terms, advance, write};
use crate::settings::{Settings, micros};

#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    #[error(transparent)]
    NoLease(#[from] NoLease),
    /// Nothing was recorded.
    #[error("the transfers could not be recorded")]
    Store(#[source] StoreError),
    /// Whether they were recorded nobody knows yet. They have these ids, if they were.
    #[error("it is not known whether the transfers were recorded")]
    Unknown { ids: Vec<Id<id::Transfer>>, source: StoreError },
}

pub struct Coordinator {
    db: Db,
    leg: Arc<dyn Leg>,
    clock: Arc<dyn Clock>,
    node: Arc<Node>,
    settings: Settings,
    metrics: Arc<Metrics>,
    /// `clearing:spot` of each asset. Accounts are never removed, so what was found stays true.
    clearing: RwLock<HashMap<AssetId, AccountId>>,
}

/// A transfer on its way through `step`, and whether its local deposit is known to be done.
struct Work {
    transfer: Transfer,
    deposited: bool,
}

/// No transfer needs more rounds than this; one that does is left to the scanner.
const MOST_ROUNDS: usize = 6;

const DAY_MICROS: i64 = 86_400_000_000;

impl Coordinator {
    pub fn new(
        db: Db,
        leg: Arc<dyn Leg>,
        clock: Arc<dyn Clock>,
        node: Arc<Node>,
        settings: Settings,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { db, leg, clock, node, settings, metrics, clearing: RwLock::default() }
    }

    pub const fn db(&self) -> &Db {
        &self.db
    }

    pub fn leg(&self) -> &dyn Leg {
        &*self.leg
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether ids can be made.
    pub fn has_lease(&self) -> bool {
        self.node.is_good(self.clock.now())
    }

    /// Keeps a node number for ever.
    pub async fn keep_lease(&self) {
        self.node.keep(&self.db, &self.clock).await;
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Records new transfers, each with its own verdict, and takes their first steps: one transaction.
    pub async fn create(&self, wishes: &[Wish], begin: Begin) -> Result<Vec<Created>, CoordinatorError> {
        if wishes.is_empty() {
            return Ok(Vec::new());
        }
        let ids = wishes.iter().map(|_| self.node.next(&*self.clock)).collect::<Result<Vec<_>, _>>()?;
        // What is only written down needs no look at the other side: it may well be the reason why.
        let holdings = match begin {
            Begin::Now => self.holdings(wishes).await,
            Begin::Later => HashMap::new(),
        };
        let assets = wishes.iter().map(|wish| wish.asset);
        let clearing = self.clearing_of(assets).await.map_err(CoordinatorError::Store)?;
        let asked: Vec<Asked<'_>> = wishes
            .iter()
            .zip(&ids)
            .map(|(wish, id)| {
                let holding = match wish.direction {
                    Direction::ToSpot => None,
                    Direction::ToFunding => holdings.get(&(wish.user, wish.asset)).copied(),
                };
                Asked { wish, id: *id, holding }
            })
            .collect();
        let terms = self.terms(&clearing);
        // What the last try was about to commit.
        let mut decided = Vec::new();
        let committed = transact!(self.db, tx => {
            decided = create(tx, &asked, begin, &terms).await?;
            Ok(())
        });
        match committed {
            Ok(()) => {}
            Err(source @ StoreError::CommitUnknown(_)) => self.look_up(&decided, source).await?,
            Err(error) => return Err(CoordinatorError::Store(error)),
        }
        let created = decided;
        self.metrics.created(&created);
        Ok(created)
    }

    /// After a commit without an answer. It was one transaction: if one of its transfers is there, all of it is. If none
    /// is, it may still come.
    async fn look_up(&self, decided: &[Created], source: StoreError) -> Result<(), CoordinatorError> {
        let new = decided.iter().filter_map(|created| match created {
            Created::New(transfer) => Some(transfer.id),
            Created::Duplicate(_) | Created::Rejected(_) => None,
        });
        let ids: Vec<Id<id::Transfer>> = new.collect();
        if ids.is_empty() {
            return Ok(());
        }
        let found = match self.db.read().await {
            Ok(mut tx) => read(&mut tx, &ids[..1]).await.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        if found.is_empty() { Err(CoordinatorError::Unknown { ids, source }) } else { Ok(()) }
    }

    /// Drives transfers until each has ended, or waits for its next turn. Where they are then is returned, in no order.
    pub async fn step(&self, batch: Vec<Transfer>) -> Result<Vec<Transfer>, StoreError> {
        let mut ended = Vec::with_capacity(batch.len());
        let mut work: Vec<Work> = batch.into_iter().map(|transfer| Work { transfer, deposited: false }).collect();
        let clearing = self.clearing_of(work.iter().map(|work| work.transfer.asset)).await?;
        for _ in 0..MOST_ROUNDS {
            let (open, done): (Vec<Work>, Vec<Work>) =
                work.into_iter().partition(|work| !work.transfer.state.is_terminal());
            ended.extend(done.into_iter().map(|work| work.transfer));
            if open.is_empty() {
                return Ok(ended);
            }
            let happened = self.ask(&open).await;
            let drafts = self.round(&open, &happened, &clearing).await?;
            work = Vec::with_capacity(drafts.len());
            for draft in drafts {
                if draft.waits {
                    ended.push(draft.transfer);
                } else {
                    work.push(Work { deposited: draft.deposited, transfer: draft.transfer });
                }
            }
        }
        ended.extend(work.into_iter().map(|work| work.transfer));
        Ok(ended)
    }

    /// Calls the remote leg for all that need it, at once.
    async fn ask(&self, work: &[Work]) -> HashMap<Id<id::Transfer>, Happened> {
        let calls: Vec<Call> = work
            .iter()
            .filter_map(|work| Some(Call::of(&work.transfer, remote(&work.transfer, work.deposited)?)))
            .collect();
        if calls.is_empty() {
            return HashMap::new();
        }
        let answers = self.answers(&calls).await;
        let happened = calls.iter().zip(answers).map(|(call, answer)| {
            let known_refusal = matches!(answer, Answer::Failed(_));
            if known_refusal && matches!(call.verb, Verb::Commit | Verb::Rollback) {
                tracing::error!(transfer = %call.id, verb = ?call.verb, "the leg refuses what it must not refuse");
            }
            (call.id, Happened::from_answer(call.verb, answer))
        });
        happened.collect()
    }

    /// As many answers as calls, within the time.
    async fn answers(&self, calls: &[Call]) -> Vec<Answer> {
        let late = || Answer::Pending(Reason::new("LEG_TIMEOUT", "the leg did not answer in time"));
        let wrong = || Answer::Pending(Reason::new("LEG_ANSWER_INVALID", "the leg gave too few or too many answers"));
        self.metrics.called(calls.len());
        // A leg that takes its calls in turns watches the time of each by itself, and must be heard to the end.
        let patience = self.settings.call_timeout * self.leg.turns(calls.len()) + self.settings.slack;
        match tokio::time::timeout(patience, self.leg.call(calls)).await {
            Err(_) => calls.iter().map(|_| late()).collect(),
            Ok(answers) if answers.len() != calls.len() => calls.iter().map(|_| wrong()).collect(),
            Ok(answers) => answers,
        }
    }

    /// What is known of a transfer from elsewhere, as if its leg had just said it.
    pub(crate) async fn tell(&self, transfer: &Transfer, happened: Happened) -> Result<(), StoreError> {
        let clearing = self.clearing_of(std::iter::once(transfer.asset)).await?;
        let happened = HashMap::from([(transfer.id, happened)]);
        let work = [Work { transfer: transfer.clone(), deposited: false }];
        self.round(&work, &happened, &clearing).await.map(|_| ())
    }

    /// One transaction: what happened, and everything local that follows. A transfer that somebody else has moved on in
    /// the meantime is left to them.
    async fn round(
        &self,
        work: &[Work],
        happened: &HashMap<Id<id::Transfer>, Happened>,
        clearing: &HashMap<AssetId, AccountId>,
    ) -> Result<Vec<Draft>, StoreError> {
        let ids: Vec<Id<id::Transfer>> = work.iter().map(|work| work.transfer.id).collect();
        let seen: HashMap<Id<id::Transfer>, State> =
            work.iter().map(|work| (work.transfer.id, work.transfer.state)).collect();
        let terms = self.terms(clearing);
        let (mut drafts, elsewhere) = transact!(self.db, tx => {
            let (rows, accounts) = lock_with_accounts(tx, &ids).await?;
            if rows.len() != ids.len() {
                return Err(StoreError::Corrupt { what: format!("of {} transfers {} are there", ids.len(), rows.len()) });
            }
            let mut drafts = Vec::with_capacity(rows.len());
            let mut elsewhere = Vec::new();
            for row in rows {
                if seen.get(&row.id) == Some(&row.state) {
                    let mut draft = Draft::known(row);
                    if let Some(happened) = happened.get(&draft.transfer.id) {
                        draft.apply(happened, terms.at, terms.settings)?;
                    }
                    drafts.push(draft);
                } else {
                    elsewhere.push(row);
                }
            }
            let mut writes = Writes::default();
            advance(tx, &mut drafts, Some(accounts), &terms, &mut writes).await?;
            write(tx, &mut drafts, terms.at, &mut writes).await?;
            Ok((drafts, elsewhere))
        })?;
        self.metrics.advanced(&drafts);
        drafts.extend(elsewhere.into_iter().map(Draft::left_to_others));
        Ok(drafts)
    }

    /// Takes up what is due: nobody else does so until `grace` has passed.
    pub async fn claim(&self, most: i64) -> Result<Vec<Transfer>, StoreError> {
        let now = self.clock.now();
        let until = now.plus_micros(micros(self.settings.grace));
        // Nothing is ever put off for so long. Where it says so, a clock was wrong when it was written.
        let absurd = now.plus_micros(micros(self.settings.longest_pause + self.settings.grace) + DAY_MICROS);
        transact!(self.db, tx => claim(tx, now, until, absurd, most).await)
    }

    fn terms<'a>(&'a self, clearing: &'a HashMap<AssetId, AccountId>) -> Terms<'a> {
        Terms { clearing, freezes: self.leg.freezes(), settings: &self.settings, at: self.clock.now() }
    }

    /// What the users have at the remote source, as far as it tells in time. Only to refuse early: the withdrawal itself
    /// decides.
    async fn holdings(&self, wishes: &[Wish]) -> HashMap<(UserId, AssetId), Option<Holding>> {
        let from_remote = wishes.iter().filter(|wish| wish.direction == Direction::ToFunding);
        let mut pairs: Vec<(UserId, AssetId)> = from_remote.map(|wish| (wish.user, wish.asset)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        if pairs.is_empty() {
            return HashMap::new();
        }
        let patience = self.settings.call_timeout.min(self.settings.glance);
        let told = tokio::time::timeout(patience, self.leg.holdings(&pairs)).await;
        match told {
            Ok(Some(holdings)) if holdings.len() == pairs.len() => pairs.into_iter().zip(holdings).collect(),
            Ok(_) | Err(_) => HashMap::new(),
        }
    }

    /// The clearing accounts of these assets. Opened with their asset; one that is missing is opened here.
    async fn clearing_of(
        &self,
        assets: impl Iterator<Item = AssetId>,
    ) -> Result<HashMap<AssetId, AccountId>, StoreError> {
        let mut assets: Vec<AssetId> = assets.collect();
        assets.sort_unstable();
        assets.dedup();
        let found: HashMap<AssetId, AccountId> = {
            let known = self.clearing.read().unwrap_or_else(PoisonError::into_inner);
            assets.iter().filter_map(|asset| Some((*asset, *known.get(asset)?))).collect()
        };
        if found.len() == assets.len() {
            return Ok(found);
        }
        let wanted: Vec<NewAccount> =
            assets.iter().filter_map(|asset| NewAccount::system(&AccountKind::ClearingSpot, *asset)).collect();
        let opened = self.db.open(&wanted, self.clock.now()).await?;
        let found: HashMap<AssetId, AccountId> = assets
            .into_iter()
            .zip(opened)
            .filter_map(|(asset, opened)| match opened {
                Opened::Account(account) => Some((asset, account)),
                Opened::UnknownAsset => None,
            })
            .collect();
        self.clearing.write().unwrap_or_else(PoisonError::into_inner).extend(&found);
        Ok(found)
    }
}
