//! A server with a treasury behind it.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use custody::wallet::Pinned;
use custody::withdrawal::{BoxFuture, Remembers};
use domain::asset::TransferLimits;
use domain::id::{self, Id, NodeId};
use domain::ledger::{Movement, OpKey, Operation, Reference};
use domain::{
    AccountId, AccountKind, AccountStatus, Amount, Asset, AssetId, Availability, Clock, ManualClock, Precision, Symbol,
    UserId,
};
use server::api::operator::OperatorAccess;
use server::api::{App, BODY_TIME, Pages, Requests, operations_router, router};
use server::auth::{Claims, Keys, Verifier, sign_hs256};
use server::coins::Coins;
use server::limit::PerSecond;
use server::listen::{Bounds, serve};
use server::withdrawal_intake::{WithdrawalIntake, WithdrawalIntakeSettings};
use spot::service::Limits;
use spot::{Core, Disk, Engine};
use store::Db;
use store::catalog::{Author, Catalog};
use store::grants::DatabaseRole;
use store::ledger::journal::{AccountFilter, list_accounts};
use store::ledger::{NewAccount, Opened, StatusChange};
use store::testing::{NOW, TestDb};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use transfer::leg::spot::SpotLeg;
use transfer::leg::{Answer, Answered, Call, Holding, Leg, Record};
use transfer::supervisor::Pauses;
use transfer::{Assets, Coordinator, IdMaker, Intake, IntakeSettings, Metrics, Settings};

pub use crate::client::{Ask, Line, Reply};

pub const SECRET: [u8; 32] = [7; 32];
pub const TRANSFERS: &str = "/api/v1/internal_transfer";
pub const BATCH: &str = "/api/v1/internal_transfer/batch";
pub const ALIAS: &str = "/api/v1/transfer";
pub const BALANCES: &str = "/api/v1/balances";
/// Users who have accounts of USDT and WIDE with [`FUNDS`] in each. Others are unknown.
pub const USERS: i64 = 4;
/// Units of 0.01.
pub const FUNDS: i64 = 10_000;

pub const AUTHOR: Author<'static> = Author { actor: "test", reason: "set-up" };

/// Like this, in units of 0.01:
///
/// | asset | status | own transfers | least | most | in a day |
/// |---|---|---|---|---|---|
/// | USDT | active | yes | 10 | 5,000 | 20,000 |
/// | BTC | the same; no user has an account | | | | |
/// | WIDE | active | yes | 1 | no limit | no limit |
/// | HALTED | suspended | yes | | | |
/// | FIXED | active | no | | | |
pub fn catalog() -> Catalog {
    use Availability::{Active, Suspended};
    let narrow = TransferLimits {
        min: Amount::from_units(10),
        max: Amount::from_units(5_000),
        daily: Amount::from_units(20_000),
    };
    let wide = TransferLimits { min: Amount::from_units(1), max: Amount::MAX, daily: Amount::MAX };
    let mut catalog = Catalog::default();
    for (symbol, status, internal_transfer_enabled, transfer) in [
        ("USDT", Active, true, narrow),
        ("BTC", Active, true, narrow),
        ("WIDE", Active, true, wide),
        ("HALTED", Suspended, true, narrow),
        ("FIXED", Active, false, narrow),
    ] {
        let symbol: Symbol = symbol.parse().unwrap();
        let precision = Precision::new(2).unwrap();
        let asset = Asset { symbol: symbol.clone(), precision, status, internal_transfer_enabled, transfer };
        catalog.assets.insert(symbol, asset);
    }
    catalog
}

/// The spot engine, behind a valve: calls wait while it is closed.
pub struct Valve {
    inner: SpotLeg,
    closed: watch::Sender<bool>,
    pub calls: AtomicUsize,
    /// The engine does not tell balances, so that only the call itself can be refused.
    pub silent: AtomicBool,
    /// The next question for balances panics, after a moment in which others may come in.
    pub panics: AtomicBool,
}

impl Valve {
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    pub fn open(&self) {
        self.closed.send_replace(false);
    }
}

impl Leg for Valve {
    fn call<'a>(&'a self, calls: &'a [Call]) -> Answered<'a, Vec<Answer>> {
        Box::pin(async move {
            self.calls.fetch_add(calls.len(), Ordering::SeqCst);
            self.closed.subscribe().wait_for(|closed| !closed).await.unwrap();
            self.inner.call(calls).await
        })
    }

    fn query<'a>(&'a self, ids: &'a [Id<id::Transfer>]) -> Answered<'a, Vec<Record>> {
        self.inner.query(ids)
    }

    fn holdings<'a>(&'a self, of: &'a [(UserId, AssetId)]) -> Answered<'a, Option<Vec<Option<Holding>>>> {
        if self.silent.load(Ordering::SeqCst) {
            return Box::pin(async { None });
        }
        if self.panics.swap(false, Ordering::SeqCst) {
            return Box::pin(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                panic!("on purpose");
            });
        }
        self.inner.holdings(of)
    }

    fn totals<'a>(&'a self, of: &'a [AssetId]) -> Answered<'a, Option<Vec<domain::Amount>>> {
        self.inner.totals(of)
    }

    fn freezes(&self) -> bool {
        false
    }
}

/// Limits that do not get in the way, unless the test is about them.
#[derive(Clone, Copy)]
pub struct Choice {
    pub per_second: u32,
    pub daily_transfers: i64,
    /// How long a request waits for the end of its transfer.
    pub wait: Duration,
    /// How long a withdrawal waits to be taken.
    pub patience: Duration,
    /// In how many slots the signer says that it has signed each payment. `None`: there is no signer.
    pub signed: Option<u32>,
    /// How long the lease on the node number is good.
    pub lease: Duration,
    /// Of a lane that panicked.
    pub pauses: Pauses,
    pub bounds: Bounds,
    pub body_time: Duration,
    pub pages: Pages,
}

impl Default for Choice {
    fn default() -> Self {
        let day = Duration::from_secs(86_400);
        let pauses =
            Pauses { first: Duration::from_millis(20), settled: Duration::from_millis(500), ..Pauses::default() };
        Self {
            per_second: 0,
            daily_transfers: 0,
            wait: Duration::from_secs(5),
            patience: Duration::from_secs(30),
            signed: Some(0),
            lease: 1_000 * day,
            pauses,
            bounds: Bounds::default(),
            body_time: BODY_TIME,
            pages: Pages { docs: true, metrics: true },
        }
    }
}

pub struct Server {
    pub address: SocketAddr,
    /// Where operators ask.
    pub operations: SocketAddr,
    pub app: Arc<App>,
    /// As the owner of the tables sees it. The server itself logs in as its role, where the test has made that.
    pub db: Db,
    pub clock: Arc<ManualClock>,
    pub leg: Arc<Valve>,
    pub assets: BTreeMap<Symbol, AssetId>,
    engine: Engine,
    funding: HashMap<(i64, AssetId), AccountId>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

pub fn user(number: i64) -> UserId {
    UserId::new(number).unwrap()
}

impl Server {
    pub async fn start(db: &TestDb) -> Self {
        Self::with(db, Choice::default()).await
    }

    pub async fn with(db: &TestDb, choice: Choice) -> Self {
        db.apply_catalog(&catalog(), &AUTHOR, NOW).await.unwrap();
        Self::pinning(db, choice, Arc::default()).await
    }

    /// On a database whose treasury was applied already, with the wallet groups of its file.
    pub async fn pinning(db: &TestDb, choice: Choice, pinned: Arc<Pinned>) -> Self {
        let own = db.of(DatabaseRole::Api);
        let assets = Arc::new(Assets::load(own).await.unwrap());
        let ids: BTreeMap<Symbol, AssetId> =
            assets.all().iter().map(|(id, asset)| (asset.symbol.clone(), *id)).collect();
        let clock = Arc::new(ManualClock::at(NOW));
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let folder = tempfile::tempdir().unwrap();
        let engine = open_engine(folder.path(), Arc::clone(&shared));
        let leg = Arc::new(Valve {
            inner: SpotLeg::engine(engine.clone()),
            closed: watch::Sender::new(false),
            calls: AtomicUsize::new(0),
            silent: AtomicBool::new(false),
            panics: AtomicBool::new(false),
        });
        let good_until = NOW.plus_micros(i64::try_from(choice.lease.as_micros()).unwrap());
        let maker = IdMaker::fixed(NodeId::new(1).unwrap(), Arc::clone(&shared), "test".into(), good_until);
        let coordinator = Arc::new(Coordinator::new(
            own.clone(),
            Arc::clone(&leg) as Arc<dyn Leg>,
            Arc::clone(&shared),
            Arc::new(maker),
            Settings { daily_transfers: choice.daily_transfers, ..Settings::default() },
            Arc::new(Metrics::default()),
        ));
        let mut keys = Keys::default();
        keys.add_hs256(None, SECRET.to_vec()).unwrap();
        let patience = choice.patience;
        let app = Arc::new(App {
            withdrawals: WithdrawalIntake::open(
                &coordinator,
                WithdrawalIntakeSettings { patience, pauses: choice.pauses, ..WithdrawalIntakeSettings::default() },
            ),
            coins: Arc::new(Coins::load(own).await.unwrap()),
            intake: Intake::open(
                coordinator,
                IntakeSettings { wait: choice.wait, pauses: choice.pauses, ..IntakeSettings::default() },
            ),
            assets,
            verifier: Verifier::new(keys, "login", "bursar", 30).beside("bursar-operators"),
            operators: Some(operators(&choice)),
            per_second: PerSecond::new(choice.per_second),
            clock: shared,
            docs: "https://bursar.example/".into(),
            stopping: false.into(),
            requests: Requests::new(0xb),
            connections: Arc::default(),
            wallets: Arc::default(),
            wallet_rows: Arc::default(),
            treasury: Arc::default(),
            signer: None,
            remembers: choice.signed.map(|rounds| Arc::new(Signed(rounds)) as Arc<dyn Remembers>),
            pinned,
            body_time: choice.body_time,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, mut stopped) = watch::channel(false);
        let mut also_stopped = stopped.clone();
        let (public, counts) = (router(Arc::clone(&app), choice.pages), Arc::clone(&app.connections));
        let serving = tokio::spawn(serve(listener, public, choice.bounds, counts, async move {
            // A test that fails takes the sender with it.
            stopped.wait_for(|stop| *stop).await.ok();
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let operations = listener.local_addr().unwrap();
        let for_operators = operations_router(Arc::clone(&app));
        tokio::spawn(serve(listener, for_operators, Bounds::default(), Arc::default(), async move {
            also_stopped.wait_for(|stop| *stop).await.ok();
        }));
        let db = db.db.clone();
        let funding = HashMap::new();
        let mut server = Self {
            address,
            operations,
            app,
            db,
            clock,
            leg,
            assets: ids,
            engine,
            funding,
            stop,
            serving,
            _folder: folder,
        };
        let everybody = (1..=USERS).flat_map(|number| [(number, "USDT", FUNDS), (number, "WIDE", FUNDS)]);
        server.fund_all(&everybody.collect::<Vec<_>>()).await;
        server
    }

    pub fn asset(&self, symbol: &str) -> AssetId {
        self.assets[&symbol.parse().unwrap()]
    }

    /// Opens the user's account if need be, and pays into it from outside.
    pub async fn fund(&mut self, number: i64, symbol: &str, units: i64) {
        self.fund_all(&[(number, symbol, units)]).await;
    }

    async fn fund_all(&mut self, wanted: &[(i64, &str, i64)]) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let outside = AccountKind::External("bsc".parse().unwrap());
        let pairs = wanted.iter().flat_map(|(number, symbol, _)| {
            let asset = self.asset(symbol);
            [NewAccount::system(&outside, asset).unwrap(), NewAccount::funding(user(*number), asset)]
        });
        let opened = self.db.open(&pairs.collect::<Vec<_>>(), NOW).await.unwrap();
        let mut payments = Vec::new();
        for ((number, symbol, units), pair) in wanted.iter().zip(opened.chunks(2)) {
            let [Opened::Account(from), Opened::Account(to)] = pair[..] else { panic!("{symbol} is there") };
            let asset = self.asset(symbol);
            self.funding.insert((*number, asset), to);
            if *units > 0 {
                let movement = Movement { from, to, asset, amount: Amount::from_units(*units) };
                let key = OpKey::new(format!("fund-{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap();
                payments
                    .push(Operation::move_available(key, vec![movement], Reference::new("funds").unwrap()).unwrap());
            }
        }
        assert!(self.db.post(&payments, NOW).await.unwrap().iter().all(|reply| reply.applied()));
    }

    pub async fn set_funding_status(&self, number: i64, symbol: &str, status: AccountStatus) {
        let change = StatusChange {
            key: OpKey::new(format!("{number}-{symbol}-{status:?}")).unwrap(),
            account: self.funding[&(number, self.asset(symbol))],
            status,
            actor: "test".into(),
            reason: "test".into(),
        };
        assert!(self.db.set_status(&[change], NOW).await.unwrap()[0].applied());
    }

    pub async fn set_spot_status(&self, number: i64, symbol: &str, status: AccountStatus) {
        let (id, user, asset) = (self.spot_id(), user(number), self.asset(symbol));
        let answer = self.engine.ask(spot::Operation::SetStatus { id, user, asset, status }).await.unwrap();
        assert_eq!(answer, spot::Answer::First(spot::Decision::Applied));
    }

    /// Money at the engine that never was in funding: a trade's, say.
    pub async fn give_spot(&self, number: i64, symbol: &str, units: i64) {
        let amount = Amount::from_units(units);
        let one = spot::Move { id: self.spot_id(), user: user(number), asset: self.asset(symbol), amount };
        let answer = self.engine.ask(spot::Operation::Deposit(one)).await.unwrap();
        assert_eq!(answer, spot::Answer::First(spot::Decision::Applied));
    }

    /// With another node number than the server's, so that no id is made twice.
    fn spot_id(&self) -> spot::OpId {
        static NEXT: AtomicI64 = AtomicI64::new(1);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        spot::OpId::new(id::first_at(self.clock.now()) + (5 << 12) + next).unwrap()
    }

    pub fn pass(&self, time: Duration) {
        self.clock.set(self.clock.now().plus_micros(i64::try_from(time.as_micros()).unwrap()));
    }

    /// Good for ten minutes.
    pub fn token(&self, number: i64) -> String {
        let now = self.clock.now();
        let claims = Claims {
            user: user(number),
            issuer: "login".into(),
            audience: "bursar".into(),
            issued_at: now,
            expires_at: now.plus_micros(600_000_000),
        };
        sign_hs256(&SECRET, None, &claims).unwrap()
    }

    pub async fn line(&self) -> Line {
        Line::open(self.address).await.expect("the server listens")
    }

    /// On a connection of its own.
    pub async fn send(&self, ask: &Ask) -> Reply {
        self.raw(&ask.bytes()).await.expect("an answer")
    }

    /// `None`: the server hung up without a word.
    pub async fn raw(&self, bytes: &[u8]) -> Option<Reply> {
        self.line().await.exchange(bytes).await
    }

    /// The same, from a client that closes its side after it.
    pub async fn raw_and_done(&self, bytes: &[u8]) -> Option<Reply> {
        let mut line = self.line().await;
        line.write(bytes).await;
        line.hang_up().await;
        line.read().await
    }

    pub async fn get(&self, number: i64, path: impl Into<String>) -> Reply {
        self.send(&Ask::get(path).token(&self.token(number))).await
    }

    pub async fn post(&self, number: i64, path: &str, body: impl Into<Vec<u8>>) -> Reply {
        self.send(&Ask::post(path, body).token(&self.token(number))).await
    }

    pub async fn transfer(&self, number: i64, body: impl Into<Vec<u8>>) -> Reply {
        self.post(number, TRANSFERS, body).await
    }

    /// Moves USDT and expects the end; its `req_id`.
    pub async fn moved(&self, number: i64, body: &str) -> String {
        let reply = self.transfer(number, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (200, "COMMITTED"), "{reply:?}");
        reply.json()["req_id"].as_str().unwrap().to_owned()
    }

    /// The balances of all users at both ends, and every transfer that was ever recorded.
    pub async fn books(&self) -> Books {
        let mut tx = self.db.read().await.unwrap();
        let mut books = Books::default();
        let accounts = list_accounts(&mut tx, &AccountFilter::All, i64::MIN, 10_000).await.unwrap();
        for account in accounts.into_iter().filter(|account| account.owner > 0) {
            books.funding.insert((account.owner, account.symbol), (account.available, account.frozen));
        }
        let places = || self.assets.iter().flat_map(|one| (1..=9).map(move |number| (number, one)));
        let pairs: Vec<_> = places().map(|(number, (_, asset))| (user(number), *asset)).collect();
        let spot = self.leg.inner.holdings(&pairs).await.unwrap();
        for ((number, (symbol, _)), holding) in places().zip(spot) {
            if let Some(holding) = holding {
                assert_eq!(holding.reserved, Amount::ZERO, "nobody trades here");
                books.spot.insert((number, symbol.to_string()), holding.available.units());
            }
        }
        for number in 1..=9 {
            for transfer in store::transfer::list(&mut tx, user(number), &Default::default(), 10_000).await.unwrap() {
                books.transfers.insert(transfer.id.to_string(), transfer.state.as_str());
            }
        }
        books
    }

    /// Available and frozen in funding, and what spot has, in units of USDT.
    pub async fn usdt(&self, number: i64) -> (i64, i64, i64) {
        let (books, key) = (self.books().await, (number, "USDT".to_owned()));
        let (available, frozen) = books.funding.get(&key).copied().unwrap_or_default();
        (available, frozen, books.spot.get(&key).copied().unwrap_or_default())
    }

    /// Sends a request that must be refused, and checks that it changed nothing.
    pub async fn refuses(&self, attack: &str, ask: &Ask, status: u16, code: &str) -> Reply {
        let before = self.books().await;
        let reply = self.send(ask).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{attack}: {reply:?}");
        assert!(self.books().await == before, "{attack}: refused, and yet something changed");
        reply
    }

    /// Stops as the program does: not ready, no new connections, then the open requests, the intake and the engine end.
    pub async fn shut_down(self) {
        self.app.stopping.store(true, Ordering::Relaxed);
        self.stop.send_replace(true);
        self.serving.await.unwrap();
        self.app.withdrawals.close().await;
        self.app.intake.close().await;
        self.engine.stop().await;
    }

    pub fn is_serving(&self) -> bool {
        !self.serving.is_finished()
    }

    /// Only the first part of that: connected clients may finish what they began.
    pub fn begin_to_stop(&self) {
        self.app.stopping.store(true, Ordering::Relaxed);
        self.stop.send_replace(true);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Available and frozen.
    pub funding: BTreeMap<(i64, String), (i64, i64)>,
    pub spot: BTreeMap<(i64, String), i64>,
    /// Each with its state.
    pub transfers: BTreeMap<String, &'static str>,
}

/// A signer that says the same of every payment.
struct Signed(u32);

impl Remembers for Signed {
    fn rounds<'a>(
        &'a self,
        jobs: &'a [signer::names::JobId],
    ) -> BoxFuture<'a, Result<Vec<Option<u32>>, signer::client::SignerError>> {
        Box::pin(std::future::ready(Ok(vec![Some(self.0); jobs.len()])))
    }
}

/// The worst case: operators' tokens are checked with the customers' key.
fn operators(choice: &Choice) -> OperatorAccess {
    let mut keys = Keys::default();
    keys.add_hs256(None, SECRET.to_vec()).unwrap();
    let verifier = Verifier::new(keys, "login", "bursar-operators", 30).beside("bursar");
    OperatorAccess { verifier, signer: "signer-1".parse().unwrap(), per_second: PerSecond::new(choice.per_second) }
}

fn open_engine(folder: &std::path::Path, clock: Arc<dyn Clock>) -> Engine {
    let disk = Disk::exclusive(folder).unwrap().unwrap();
    let settings = spot::Settings { segment_bytes: 1 << 20, ..spot::Settings::default() };
    Core::create(&disk, 7, &settings).unwrap();
    let (core, _) = Core::open(Arc::new(disk), &settings, &mut |_| {}).unwrap();
    Engine::start(core, Limits::default(), clock).unwrap()
}

/// A body with these members in place of the usual ones: 1.00 USDT from FUNDING to SPOT. `null` takes one away.
pub fn body(changes: serde_json::Value) -> String {
    let mut body = serde_json::json!({"from": "FUNDING", "to": "SPOT", "asset": "USDT", "amount": "1.00"});
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            body.as_object_mut().unwrap().remove(name);
        } else {
            body[name] = value.clone();
        }
    }
    body.to_string()
}

/// 1.00 USDT would be this.
pub fn to_spot(amount: &str) -> String {
    body(serde_json::json!({ "amount": amount }))
}

pub fn to_funding(amount: &str) -> String {
    body(serde_json::json!({ "from": "SPOT", "to": "FUNDING", "amount": amount }))
}

/// For laws that do not depend on the database.
pub fn on_sqlite(test: impl AsyncFnOnce(&TestDb)) {
    store::testing::on(store::Engine::Sqlite, test);
}
