//! A treasury, a spot engine, and a coordinator between them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::transfer::leg::spot::SpotLeg;
use ::transfer::leg::{Answer, Answered, Call, Holding, Leg, Reason, Record, Verb};
use ::transfer::{Begin, Coordinator, Created, IdMaker, Metrics, Settings, TransferOrder};
use domain::asset::TransferLimits;
use domain::id::{self, Id, NodeId};
use domain::ledger::{Movement, OpKey, Operation, Reference};
use domain::transfer::{ClientOrderId, Direction, Transfer};
use domain::*;
use spot::service::Limits;
use spot::{Core, Disk, Engine};
use store::Db;
use store::catalog::{Author, Catalog};
use store::ledger::{NewAccount, Opened};
use store::testing::{NOW, TestDb};

pub const AUTHOR: Author<'static> = Author { actor: "test", reason: "set-up" };
/// What every user has in funding at first, in units of 0.01.
pub const FUNDS: i64 = 10_000;

pub fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let limits = TransferLimits {
        min: Amount::from_units(10),
        max: Amount::from_units(5_000),
        daily: Amount::from_units(20_000),
    };
    for symbol in ["USDT", "BTC"] {
        let symbol: Symbol = symbol.parse().unwrap();
        let asset = Asset {
            symbol: symbol.clone(),
            precision: Precision::new(2).unwrap(),
            status: Availability::Active,
            internal_transfer_enabled: true,
            transfer: limits,
        };
        catalog.assets.insert(symbol, asset);
    }
    catalog
}

/// What a [`Moody`] leg does with its next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Carried out; the caller gets no answer.
    LoseAnswer,
    /// Not carried out; the caller gets no answer.
    LoseCall,
    /// Carried out twice.
    Twice,
    /// An answer to another question.
    TooManyAnswers,
    /// A defect: carried out, and then a panic.
    Panic,
    /// Not carried out, though the answer says so: what an engine did and lost again.
    Pretend,
}

/// A real leg behind one that misbehaves as told.
pub struct Moody {
    inner: SpotLeg,
    moods: Mutex<VecDeque<Mood>>,
    pub freezes: bool,
    pub calls: Mutex<Vec<Verb>>,
    time: Mutex<Option<Timestamp>>,
}

impl Moody {
    pub fn plan(&self, moods: &[Mood]) {
        self.moods.lock().unwrap().extend(moods);
    }

    pub fn has_plans(&self) -> bool {
        !self.moods.lock().unwrap().is_empty()
    }

    /// What the leg says when it is asked for the time.
    pub fn tell_time(&self, time: Option<Timestamp>) {
        *self.time.lock().unwrap() = time;
    }
}

impl Leg for Moody {
    fn call<'a>(&'a self, calls: &'a [Call]) -> Answered<'a, Vec<Answer>> {
        Box::pin(async move {
            self.calls.lock().unwrap().extend(calls.iter().map(|call| call.verb));
            let mood = self.moods.lock().unwrap().pop_front();
            let lost = || Answer::Pending(Reason::new("LEG_TIMEOUT", "lost"));
            match mood {
                None => self.inner.call(calls).await,
                Some(Mood::Pretend) => calls.iter().map(|_| Answer::Success).collect(),
                Some(Mood::LoseCall) => calls.iter().map(|_| lost()).collect(),
                Some(Mood::LoseAnswer) => {
                    self.inner.call(calls).await;
                    calls.iter().map(|_| lost()).collect()
                }
                Some(Mood::Twice) => {
                    self.inner.call(calls).await;
                    self.inner.call(calls).await
                }
                Some(Mood::Panic) => {
                    self.inner.call(calls).await;
                    panic!("on purpose");
                }
                Some(Mood::TooManyAnswers) => {
                    let mut answers = self.inner.call(calls).await;
                    answers.push(Answer::Success);
                    answers
                }
            }
        })
    }

    fn query<'a>(&'a self, ids: &'a [Id<id::Transfer>]) -> Answered<'a, Vec<Record>> {
        self.inner.query(ids)
    }

    fn holdings<'a>(&'a self, of: &'a [(UserId, AssetId)]) -> Answered<'a, Option<Vec<Option<Holding>>>> {
        self.inner.holdings(of)
    }

    fn totals<'a>(&'a self, of: &'a [AssetId]) -> Answered<'a, Option<Vec<Amount>>> {
        self.inner.totals(of)
    }

    fn time(&self) -> Answered<'_, Option<Timestamp>> {
        Box::pin(async { *self.time.lock().unwrap() })
    }

    fn freezes(&self) -> bool {
        self.freezes
    }

    fn spot(&self) -> Option<&SpotLeg> {
        Some(&self.inner)
    }
}

pub struct World {
    pub db: Db,
    pub clock: Arc<ManualClock>,
    pub engine: Engine,
    pub leg: Arc<Moody>,
    pub coordinator: Arc<Coordinator>,
    pub usdt: AssetId,
    pub btc: AssetId,
    pub users: Vec<AccountId>,
    _folder: tempfile::TempDir,
}

pub fn user(number: i64) -> UserId {
    UserId::new(number).unwrap()
}

pub fn settings() -> Settings {
    Settings { daily_transfers: 0, ..Settings::default() }
}

impl World {
    pub async fn open(db: &TestDb, users: i64) -> Self {
        Self::with(db, users, settings(), false).await
    }

    pub async fn with(db: &TestDb, users: i64, settings: Settings, freezes: bool) -> Self {
        db.apply_catalog(&catalog(), &AUTHOR, NOW).await.unwrap();
        let assets = store::catalog::read_assets(&mut db.read().await.unwrap()).await.unwrap();
        let id_of = |symbol: &str| *assets.iter().find(|(_, asset)| asset.symbol.as_str() == symbol).unwrap().0;
        let (usdt, btc) = (id_of("USDT"), id_of("BTC"));
        let system = [AccountKind::External("bsc".parse().unwrap()), AccountKind::ClearingSpot];
        let wanted: Vec<NewAccount> = system
            .iter()
            .map(|kind| NewAccount::system(kind, usdt).unwrap())
            .chain((1..=users).map(|number| NewAccount::funding(user(number), usdt)))
            .collect();
        let opened = db.open(&wanted, NOW).await.unwrap();
        let opened = opened.into_iter().map(|one| match one {
            Opened::Account(id) => id,
            Opened::UnknownAsset => panic!("the asset is there"),
        });
        let opened: Vec<AccountId> = opened.collect();
        let fund: Vec<Operation> = opened[2..]
            .iter()
            .map(|account| {
                let movement =
                    Movement { from: opened[0], to: *account, asset: usdt, amount: Amount::from_units(FUNDS) };
                let key = OpKey::new(format!("fund-{account}")).unwrap();
                Operation::move_available(key, vec![movement], Reference::new("funds").unwrap()).unwrap()
            })
            .collect();
        assert!(db.post(&fund, NOW).await.unwrap().iter().all(|reply| reply.applied()));

        let clock = Arc::new(ManualClock::at(NOW));
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::exclusive(folder.path()).unwrap().unwrap();
        let spot_settings = spot::Settings { segment_bytes: 1 << 20, ..spot::Settings::default() };
        Core::create(&disk, 7, &spot_settings).unwrap();
        let (core, _) = Core::open(Arc::new(disk), &spot_settings, &mut |_| {}).unwrap();
        let engine = Engine::start(core, Limits::default(), Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        let leg = Arc::new(Moody {
            inner: SpotLeg::engine(engine.clone()),
            moods: Mutex::default(),
            freezes,
            calls: Mutex::default(),
            time: Mutex::default(),
        });
        let db = db.db.clone();
        let users = opened[2..].to_vec();
        let coordinator = Arc::new(coordinator(db.clone(), leg.clone(), clock.clone(), 1, settings));
        Self { db, clock, engine, leg, coordinator, usdt, btc, users, _folder: folder }
    }

    pub fn order(&self, number: i64, direction: Direction, amount: i64) -> TransferOrder {
        let amount = Amount::from_units(amount);
        TransferOrder { user: user(number), asset: self.usdt, amount, direction, client_order_id: None }
    }

    pub fn named(&self, number: i64, direction: Direction, amount: i64, name: &str) -> TransferOrder {
        let name = ClientOrderId::new(name).unwrap();
        TransferOrder { client_order_id: Some(name), ..self.order(number, direction, amount) }
    }

    /// Records an order and drives its transfer as far as it goes.
    pub async fn transfer(&self, order: TransferOrder) -> Transfer {
        let created = self.coordinator.create(&[order], Begin::Now).await.unwrap();
        let Created::New(transfer) = &created[0] else { panic!("{created:?}") };
        self.coordinator.step(vec![transfer.clone()]).await.unwrap().remove(0)
    }

    /// Lets time pass and the scanner work until nothing is due.
    pub async fn recover(&self) {
        self.recover_with(&self.coordinator).await;
    }

    pub async fn recover_with(&self, coordinator: &Coordinator) {
        for _ in 0..200 {
            self.wait(Duration::from_secs(120));
            let taken = ::transfer::scanner::scan_once(coordinator).await.unwrap();
            let mut tx = self.db.read().await.unwrap();
            let (open, _) = store::transfer::read::count_open(&mut tx).await.unwrap();
            if open == 0 {
                return;
            }
            if taken == 0 {
                // A process that died still holds the rows, until its connection is found to be gone.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        panic!("something is due for ever");
    }

    pub fn wait(&self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap();
        self.clock.set(self.clock.now().plus_micros(micros));
    }

    pub async fn read(&self, id: Id<id::Transfer>) -> Transfer {
        store::transfer::read(&mut self.db.read().await.unwrap(), &[id]).await.unwrap().remove(0)
    }

    pub async fn all(&self) -> Vec<Transfer> {
        let mut tx = self.db.read().await.unwrap();
        let mut all = Vec::new();
        for number in 1..=self.users.len() {
            let number = i64::try_from(number).unwrap();
            all.extend(store::transfer::list(&mut tx, user(number), &Default::default(), 10_000).await.unwrap());
        }
        all
    }

    /// The paths of a transfer, commit by commit.
    pub async fn paths(&self, id: Id<id::Transfer>) -> Vec<String> {
        let rows = store::transfer::history(&mut self.db.read().await.unwrap(), id).await.unwrap();
        rows.into_iter().map(|row| row.path).collect()
    }

    /// Available, frozen, and what the spot engine has, in units.
    pub async fn books(&self, number: i64) -> (i64, i64, i64) {
        let mut tx = self.db.read().await.unwrap();
        let funding = store::ledger::balances::funding_of(&mut tx, user(number)).await.unwrap();
        let (_, funding) = funding.into_iter().find(|(_, state)| state.asset == self.usdt).unwrap();
        let spot = self.leg.holdings(&[(user(number), self.usdt)]).await.unwrap()[0];
        let spot = spot.map_or(0, |holding| holding.available.units() + holding.reserved.units());
        (funding.available.units(), funding.frozen.units(), spot)
    }

    /// Nothing created, nothing lost, and the books of both ends agree. Only when nothing is in flight.
    pub async fn assert_whole(&self) {
        let mut spot_total = 0;
        for number in 1..=self.users.len() {
            let number = i64::try_from(number).unwrap();
            let (available, frozen, spot) = self.books(number).await;
            assert_eq!(available + frozen + spot, FUNDS, "user {number}: {available} {frozen} {spot}");
            assert_eq!(frozen, 0, "user {number} has nothing in flight");
            spot_total += spot;
        }
        let mut tx = self.db.read().await.unwrap();
        let totals = store::ledger::balances::totals(&mut tx).await.unwrap();
        assert_eq!(totals[&self.usdt].system.get("clearing:spot").copied().unwrap_or(0), i128::from(spot_total));
        drop(tx);
        let report = self.db.audit(|_| {}).await.unwrap();
        assert!(report.clean(), "{:?}", report.findings);
        for transfer in self.all().await {
            assert!(transfer.state.is_terminal(), "{transfer:?}");
        }
    }
}

pub fn coordinator(db: Db, leg: Arc<dyn Leg>, clock: Arc<ManualClock>, node: u16, settings: Settings) -> Coordinator {
    // The lease never runs out.
    let far = Timestamp::from_micros(i64::MAX);
    let clock: Arc<dyn Clock> = clock;
    let ids = IdMaker::fixed(NodeId::new(node).unwrap(), Arc::clone(&clock), "test".into(), far);
    Coordinator::new(db, leg, clock, Arc::new(ids), settings, Arc::new(Metrics::default()))
}

/// A process whose lease has run out.
pub fn without_lease(world: &World) -> Arc<Coordinator> {
    let clock: Arc<dyn Clock> = world.clock.clone();
    let ids = IdMaker::fixed(NodeId::new(9).unwrap(), Arc::clone(&clock), "test".into(), Timestamp::from_micros(0));
    let metrics = Arc::new(Metrics::default());
    Arc::new(Coordinator::new(world.db.clone(), world.leg.clone(), clock, Arc::new(ids), settings(), metrics))
}

/// Freezes or disables an account at the engine.
pub async fn set_spot_status(world: &World, number: i64, status: AccountStatus) {
    static NEXT: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(1);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let id = spot::OpId::new(id::first_at(world.clock.now()) + (5 << 12) + next).unwrap();
    let operation = spot::Operation::SetStatus { id, user: user(number), asset: world.usdt, status };
    let answer = world.engine.ask(operation).await.unwrap();
    assert_eq!(answer, spot::Answer::First(spot::Decision::Applied));
}

pub async fn set_funding_status(world: &World, number: i64, status: AccountStatus, key: &str) {
    let change = store::ledger::StatusChange {
        key: OpKey::new(key).unwrap(),
        account: world.users[usize::try_from(number - 1).unwrap()],
        status,
        actor: "test".into(),
        reason: "test".into(),
    };
    assert!(world.db.set_status(&[change], NOW).await.unwrap()[0].applied());
}
