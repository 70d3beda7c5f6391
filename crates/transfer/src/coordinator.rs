//! The coordinator takes batches of transfers from state to state, until each has ended or its leg does not answer.
//!
//! A request that waits, a worker and recovery all take this one path. Each round is one transaction, then one call of
//! the remote leg for all transfers that need it:
//!
//! ```text
//! FUNDING → SPOT   commit: INIT … TARGET_PENDING, hold     call: deposit    commit: settle, COMMITTED
//! SPOT → FUNDING   commit: INIT, SOURCE_PENDING            call: withdraw   commit: … deposit, COMMITTED
//! ```
//!
//! **Every call is committed before it is made.** A crash anywhere leaves a row that says what to do, and doing it
//! again is harmless: a row is changed only if its state is still the one that was read, and both legs know the
//! transfer's id.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use domain::id::{self, Id};
use domain::transfer::{Direction, State, Transfer};
use domain::{AccountId, AccountKind, AssetId, Clock, Timestamp, UserId};
use store::error::{Causes, Constraint};
use store::ledger::{NewAccount, Opened};
use store::transfer::{Locked, OpenTransfers, claim, lock_with_accounts, read, read_open, stopped_assets};
use store::{Db, StoreError, Writes, transact};

use crate::create::{Begin, Created, PreparedOrder, RemoteSource, TransferOrder, record};
use crate::id_maker::{IdMaker, NoLease};
use crate::leg::{Answer, Call, Holding, Leg, Reason, Record, Verb};
use crate::metrics::Metrics;
use crate::pair::Gate;
use crate::readiness::{Readiness, Trouble};
use crate::room::{Room, STOPPED};
use crate::settings::{Settings, micros};
use crate::update::{RemoteEvent, Terms, TransferUpdate, WITHDRAWAL_UNDONE, advance, remote_verb, write};

#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    #[error(transparent)]
    NoLease(#[from] NoLease),
    /// Nothing was recorded: a part that every transfer needs does not work.
    #[error("not ready: {part}")]
    NotReady { part: &'static str, trouble: Trouble },
    /// Nothing was recorded.
    #[error("the transfers could not be recorded")]
    Store(#[source] StoreError),
    /// The commit was not answered. If the transfers were recorded, they have these ids.
    #[error("it is not known whether the transfers were recorded")]
    Unknown { ids: Vec<Id<id::Transfer>>, source: StoreError },
}

pub struct Coordinator {
    pub(crate) db: Db,
    pub(crate) leg: Arc<dyn Leg>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<IdMaker>,
    pub(crate) settings: Settings,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    gate: Gate,
    pub(crate) room: Room,
    /// `clearing:spot` of each asset. Accounts are never removed, so an entry stays true.
    clearing: RwLock<HashMap<AssetId, AccountId>>,
}

/// A transfer on its way through `step`, and whether its local deposit is known to be done.
struct Work {
    transfer: Transfer,
    deposited: bool,
}

impl Work {
    /// The remote source would be asked to give the money out.
    fn will_withdraw(&self) -> bool {
        remote_verb(&self.transfer, self.deposited) == Some(Verb::Withdraw)
    }
}

/// Whether stopped assets are looked up before the leg is called.
#[derive(Clone, Copy)]
enum Stops {
    Read,
    /// The transaction that recorded the transfers has refused what is stopped.
    JustRead,
}

/// No transfer needs more rounds than this. One that does has met a defect, and is left to the scanner.
const MOST_ROUNDS: usize = 6;

/// How often orders get new ids because theirs were taken.
const MOST_CLASHES: usize = 4;

impl Coordinator {
    pub fn new(
        db: Db,
        leg: Arc<dyn Leg>,
        clock: Arc<dyn Clock>,
        ids: Arc<IdMaker>,
        settings: Settings,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            db,
            leg,
            clock,
            ids,
            settings,
            metrics,
            readiness: Arc::default(),
            gate: Gate::default(),
            room: Room::default(),
            clearing: RwLock::default(),
        }
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

    /// What keeps this process from taking new transfers. Whoever watches a part of it says so here.
    pub const fn readiness(&self) -> &Arc<Readiness> {
        &self.readiness
    }

    /// Whether calls may go to the engine.
    pub(crate) const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Whether what the engine says may be shown: it is the database's own, as far as is known.
    pub fn trusts_engine(&self) -> bool {
        self.gate.closed().is_none()
    }

    /// Waits until it may.
    pub async fn engine_trusted(&self) {
        self.gate.opened().await;
    }

    pub(crate) fn next_id(&self) -> Result<Id<id::Transfer>, NoLease> {
        self.ids.next(&*self.clock)
    }

    /// A number for something else that this process makes: numbers of all kinds come from one generator, so no two are alike.
    pub fn next_number(&self) -> Result<i64, NoLease> {
        self.next_id().map(Id::number)
    }

    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A background task met an error. A database that is full or away is a state of the process, of which readiness
    /// tells once; other errors are told each time.
    pub(crate) fn note_failure(&self, error: &StoreError, event: &'static str) {
        match error {
            StoreError::Unavailable(_) | StoreError::Full(_) => {
                self.readiness.trouble("database", error.code(), Causes(error).to_string());
            }
            _ => tracing::warn!(code = error.code(), error = %Causes(error), "{event}"),
        }
    }

    /// Whether ids can be made.
    pub fn has_lease(&self) -> bool {
        self.ids.has_lease(self.clock.now())
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Records new transfers, each with its own verdict, and takes their first steps: one transaction.
    pub async fn create(&self, orders: &[TransferOrder], begin: Begin) -> Result<Vec<Created>, CoordinatorError> {
        if orders.is_empty() {
            return Ok(Vec::new());
        }
        // What cannot be carried out is not accepted: holds would pile up behind an engine that is away.
        if let Some((part, trouble)) = self.readiness.first_trouble() {
            return Err(CoordinatorError::NotReady { part, trouble });
        }
        for _ in 0..MOST_CLASHES {
            let number = self.ids.number();
            match self.create_once(orders, begin).await {
                Err(CoordinatorError::Store(StoreError::Violates(Constraint::TransferId))) => {
                    tracing::error!(node = ?number, "ids of new transfers were taken; another node number is borrowed");
                    self.ids.replace(number, &self.db, &self.clock).await.map_err(CoordinatorError::Store)?;
                }
                created => return created,
            }
        }
        self.create_once(orders, begin).await
    }

    async fn create_once(&self, orders: &[TransferOrder], begin: Begin) -> Result<Vec<Created>, CoordinatorError> {
        let ids = orders.iter().map(|_| self.ids.next(&*self.clock)).collect::<Result<Vec<_>, _>>()?;
        // An order that is only written down is not compared with the remote source: a slow remote leg may well be why
        // the buffer is full.
        let holdings = match begin {
            Begin::Now => self.holdings(orders).await,
            Begin::Later => HashMap::new(),
        };
        let assets = orders.iter().map(|order| order.asset);
        let clearing = self.clearing_of(assets).await.map_err(CoordinatorError::Store)?;
        let prepared: Vec<PreparedOrder<'_>> = orders
            .iter()
            .zip(&ids)
            .map(|(order, id)| {
                let holding = match order.direction {
                    Direction::ToSpot => None,
                    Direction::ToFunding => holdings.get(&(order.user, order.asset)).copied(),
                };
                let source = holding.map_or(RemoteSource::NotKnown, RemoteSource::answered);
                PreparedOrder { order, id: *id, source, adopted: false }
            })
            .collect();
        let terms = self.terms(&clearing);
        // What the last try was about to commit: if the commit is not answered, its ids are looked up.
        let mut created = Vec::new();
        let begun = self.clock.now();
        let committed = transact!(self.db, tx => {
            created = record(tx, &prepared, begin, &terms).await?;
            Ok(())
        });
        self.metrics.commits.observe(begun, self.clock.now());
        match committed {
            Ok(()) => {}
            Err(source @ StoreError::CommitUnknown(_)) => self.look_up(&created, source).await?,
            Err(error) => return Err(CoordinatorError::Store(error)),
        }
        self.metrics.created(&created);
        Ok(created)
    }

    /// Records a transfer that the engine has carried out already and the database has lost, under its own id.
    pub(crate) async fn adopt(&self, id: Id<id::Transfer>, order: &TransferOrder) -> Result<Created, CoordinatorError> {
        let found = read(&mut self.db.read().await.map_err(CoordinatorError::Store)?, &[id]).await;
        if let Some(transfer) = found.map_err(CoordinatorError::Store)?.into_iter().next() {
            return Ok(Created::Duplicate(transfer));
        }
        let clearing = self.clearing_of(std::iter::once(order.asset)).await.map_err(CoordinatorError::Store)?;
        let terms = self.terms(&clearing);
        let prepared = [PreparedOrder { order, id, source: RemoteSource::NotKnown, adopted: true }];
        let created = transact!(self.db, tx => record(tx, &prepared, Begin::Now, &terms).await);
        let missing = || StoreError::Corrupt { what: "an order has no verdict".to_owned() };
        created.and_then(|mut created| created.pop().ok_or_else(missing)).map_err(CoordinatorError::Store)
    }

    /// After a commit that was not answered. It was one transaction: if its first transfer is there, all of them are.
    /// If it is not, the commit may still take effect.
    async fn look_up(&self, created: &[Created], source: StoreError) -> Result<(), CoordinatorError> {
        let new = created.iter().filter_map(|one| match one {
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

    /// Drives transfers until each has ended or waits for its next turn. Returns them as they are then, in no order.
    pub async fn step(&self, batch: Vec<Transfer>) -> Result<Vec<Transfer>, StoreError> {
        self.step_from(batch, Stops::Read).await
    }

    /// The same for transfers that this process has just recorded.
    pub async fn step_recorded(&self, batch: Vec<Transfer>) -> Result<Vec<Transfer>, StoreError> {
        self.step_from(batch, Stops::JustRead).await
    }

    async fn step_from(&self, batch: Vec<Transfer>, mut stops: Stops) -> Result<Vec<Transfer>, StoreError> {
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
            let stopped = match stops {
                Stops::Read if open.iter().any(Work::will_withdraw) => self.stopped_assets().await?,
                Stops::Read | Stops::JustRead => HashSet::new(),
            };
            stops = Stops::Read;
            let events = self.ask(&open, &stopped).await;
            let updates = self.round(&open, &events, &clearing).await?;
            work = Vec::with_capacity(updates.len());
            for update in updates {
                if update.waits {
                    ended.push(update.transfer);
                } else {
                    work.push(Work { deposited: update.deposited, transfer: update.transfer });
                }
            }
        }
        ended.extend(work.into_iter().map(|work| work.transfer));
        Ok(ended)
    }

    /// Asked again if others are in the way: nothing was changed.
    async fn stopped_assets(&self) -> Result<HashSet<AssetId>, StoreError> {
        let mut tries = 0;
        loop {
            match async { stopped_assets(&mut self.db.read().await?).await }.await {
                Err(StoreError::Contention(_)) if tries < 5 => tries += 1,
                read => return read,
            }
        }
    }

    /// Calls the remote leg once, for all transfers that need it. Withdrawals of stopped assets are not sent: the leg is
    /// only asked what became of them, because they may have been sent before.
    async fn ask(&self, work: &[Work], stopped: &HashSet<AssetId>) -> HashMap<Id<id::Transfer>, RemoteEvent> {
        let is_held = |work: &&Work| work.will_withdraw() && stopped.contains(&work.transfer.asset);
        let held: Vec<Id<id::Transfer>> = work.iter().filter(is_held).map(|work| work.transfer.id).collect();
        let mut events = self.settle_by_record(&held).await;
        let calls: Vec<Call> = work
            .iter()
            .filter(|work| !is_held(work))
            .filter_map(|work| Some(Call::of(&work.transfer, remote_verb(&work.transfer, work.deposited)?)))
            .collect();
        if calls.is_empty() {
            return events;
        }
        let answers = self.answers(&calls).await;
        events.extend(calls.iter().zip(answers).map(|(call, answer)| {
            let known_refusal = matches!(answer, Answer::Failed(_));
            if known_refusal && matches!(call.verb, Verb::Commit | Verb::Rollback) {
                tracing::error!(transfer = %call.id, verb = ?call.verb, "the leg refuses what it must not refuse");
            }
            (call.id, RemoteEvent::from_answer(call.verb, answer))
        }));
        events
    }

    /// What became of withdrawals that must not be sent now. What the leg knows nothing of waits for the asset to go on.
    async fn settle_by_record(&self, ids: &[Id<id::Transfer>]) -> HashMap<Id<id::Transfer>, RemoteEvent> {
        if ids.is_empty() {
            return HashMap::new();
        }
        let all = |reason: &Reason| ids.iter().map(|id| (*id, RemoteEvent::Undecided(reason.clone()))).collect();
        if let Some(reason) = self.gate.closed() {
            return all(&reason);
        }
        let patience = self.settings.call_timeout * self.leg.turns(ids.len()) + self.settings.slack;
        let Ok(records) = tokio::time::timeout(patience, self.leg.query(ids)).await else {
            return all(&Reason::new("LEG_TIMEOUT", "the leg did not answer in time"));
        };
        if records.len() != ids.len() {
            return all(&Reason::new("LEG_ANSWER_INVALID", "the leg gave too few or too many answers"));
        }
        let event = |record| match record {
            Record::Applied => RemoteEvent::Withdrawn,
            Record::Refused(reason) => RemoteEvent::NotWithdrawn(reason),
            Record::RolledBack => RemoteEvent::NotWithdrawn(WITHDRAWAL_UNDONE),
            Record::Nothing => RemoteEvent::Undecided(STOPPED),
            Record::Unknown(reason) => RemoteEvent::Undecided(reason),
        };
        ids.iter().copied().zip(records.into_iter().map(event)).collect()
    }

    /// As many answers as calls. A call that the leg does not answer in time is `Pending`.
    async fn answers(&self, calls: &[Call]) -> Vec<Answer> {
        let late = || Answer::Pending(Reason::new("LEG_TIMEOUT", "the leg did not answer in time"));
        let wrong = || Answer::Pending(Reason::new("LEG_ANSWER_INVALID", "the leg gave too few or too many answers"));
        if let Some(reason) = self.gate.closed() {
            return calls.iter().map(|_| Answer::Pending(reason.clone())).collect();
        }
        self.metrics.called(calls.len());
        // A leg that takes its calls in turns gives each its own time, and may take that long for all of them.
        let patience = self.settings.call_timeout * self.leg.turns(calls.len()) + self.settings.slack;
        match tokio::time::timeout(patience, self.leg.call(calls)).await {
            Err(_) => calls.iter().map(|_| late()).collect(),
            Ok(answers) if answers.len() != calls.len() => calls.iter().map(|_| wrong()).collect(),
            Ok(answers) => answers,
        }
    }

    /// Takes in what is known of a transfer from elsewhere, as if its leg had just said it.
    pub(crate) async fn tell(&self, transfer: &Transfer, event: RemoteEvent) -> Result<(), StoreError> {
        let clearing = self.clearing_of(std::iter::once(transfer.asset)).await?;
        let events = HashMap::from([(transfer.id, event)]);
        let work = [Work { transfer: transfer.clone(), deposited: false }];
        self.round(&work, &events, &clearing).await.map(|_| ())
    }

    /// One transaction: what happened at the remote leg, and everything local that follows. A transfer that another
    /// worker has moved on in the meantime is left to that worker.
    async fn round(
        &self,
        work: &[Work],
        events: &HashMap<Id<id::Transfer>, RemoteEvent>,
        clearing: &HashMap<AssetId, AccountId>,
    ) -> Result<Vec<TransferUpdate>, StoreError> {
        let ids: Vec<Id<id::Transfer>> = work.iter().map(|work| work.transfer.id).collect();
        let seen: HashMap<Id<id::Transfer>, State> =
            work.iter().map(|work| (work.transfer.id, work.transfer.state)).collect();
        let terms = self.terms(clearing);
        let begun = self.clock.now();
        let committed = transact!(self.db, tx => {
            let Locked { transfers: rows, accounts, stopped } = lock_with_accounts(tx, &ids).await?;
            if rows.len() != ids.len() {
                return Err(StoreError::Corrupt { what: format!("of {} transfers {} are there", ids.len(), rows.len()) });
            }
            let mut updates = Vec::with_capacity(rows.len());
            let mut elsewhere = Vec::new();
            for row in rows {
                if seen.get(&row.id) == Some(&row.state) {
                    let mut update = TransferUpdate::known(row);
                    if let Some(event) = events.get(&update.transfer.id) {
                        update.apply(event, terms.at, terms.settings)?;
                    }
                    updates.push(update);
                } else {
                    elsewhere.push(row);
                }
            }
            let mut writes = Writes::default();
            let reserved = self.room.hold_back(tx, &mut updates, &stopped, &terms).await?;
            advance(tx, &mut updates, Some(accounts), &terms, &mut writes).await?;
            write(tx, &mut updates, terms.at, &mut writes).await?;
            Ok((updates, elsewhere, reserved))
        });
        self.metrics.commits.observe(begun, self.clock.now());
        if committed.is_err() {
            self.room.forget(work.iter().map(|work| work.transfer.asset));
        }
        let (mut updates, elsewhere, reserved) = committed?;
        self.room.note(&updates, reserved);
        self.metrics.advanced(&updates);
        updates.extend(elsewhere.into_iter().map(TransferUpdate::left_to_others));
        Ok(updates)
    }

    /// The transfers that have not ended, and the oldest of those that are stuck. What is stuck follows from the rows and
    /// the settings alone: it does not matter which process tried, or whether it still lives.
    pub async fn open_transfers(&self, most: i64) -> Result<OpenTransfers, StoreError> {
        let before = self.clock.now().plus_micros(-micros(self.settings.alert_after));
        read_open(&mut self.db.read().await?, self.settings.alert_tries, before, most).await
    }

    /// Takes up the transfers that are due. No other scanner takes them up until `grace` has passed.
    pub async fn claim(&self, most: i64) -> Result<Vec<Transfer>, StoreError> {
        let now = self.clock.now();
        let until = now.plus_micros(micros(self.settings.grace));
        // A transfer is put off by the longest pause or by the grace, and two clocks that agree with the database's are at
        // most so far apart. A row that says more was written while a clock was wrong: it is due. Taking up a transfer
        // too early (another process may have longer pauses) asks its leg once more, and does no harm.
        let put_off = self.settings.longest_pause.max(self.settings.grace) + 2 * self.settings.clocks_apart;
        let absurd = now.plus_micros(micros(put_off));
        transact!(self.db, tx => claim(tx, now, until, absurd, most).await)
    }

    pub(crate) fn terms<'a>(&'a self, clearing: &'a HashMap<AssetId, AccountId>) -> Terms<'a> {
        Terms { clearing, freezes: self.leg.freezes(), settings: &self.settings, at: self.clock.now() }
    }

    /// What the users have at the remote source, as far as it tells in time. It only serves to reject early: the
    /// withdrawal itself decides.
    async fn holdings(&self, orders: &[TransferOrder]) -> HashMap<(UserId, AssetId), Option<Holding>> {
        let from_remote = orders.iter().filter(|order| order.direction == Direction::ToFunding);
        let mut pairs: Vec<(UserId, AssetId)> = from_remote.map(|order| (order.user, order.asset)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        if pairs.is_empty() {
            return HashMap::new();
        }
        // An engine that is not known to be the database's own decides nothing, early or late.
        if !self.trusts_engine() {
            return HashMap::new();
        }
        let patience = self.settings.call_timeout.min(self.settings.glance);
        let told = tokio::time::timeout(patience, self.leg.holdings(&pairs)).await;
        match told {
            Ok(Some(holdings)) if holdings.len() == pairs.len() => pairs.into_iter().zip(holdings).collect(),
            Ok(_) | Err(_) => HashMap::new(),
        }
    }

    /// The clearing accounts of these assets. They are opened with their asset; a missing one is opened here.
    pub(crate) async fn clearing_of(
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
