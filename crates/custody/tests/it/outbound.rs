//! Payments that leave, on the devnets of EVM and TRON with three nodes each and the signer's own core: every job is paid at most once on the
//! chain, and none is stranded. What was paid is asked of the chain, by the recipient's balance.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use chain::Chain;
use custody::outbound::{SendWorker, SentRound, Signs, WatchWorker};
use custody::withdrawal::Remembers;
use devnet::{BroadcastFault, Fate, Key};
use domain::id::{Generator, NodeId};
use domain::outbound::{JobKind, JobState};
use domain::{Approval, ChainKind, Clock, ManualClock, Purpose, RawAmount, WalletRole};
use futures_util::future::BoxFuture;
use proptest::prelude::{Strategy, any, prop};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use signer::SignRequest;
use signer::client::{SignAnswer, SignerError};
use signer::keys::{GroupSecret, Keyring, Mnemonic};
use signer::local::LocalSigner;
use store::grants::DatabaseRole;
use store::outbound::read::JobReply;
use store::outbound::{Added, JobFilter, JobId, NewJob, Payer, ShownJob};
use store::signer_head::SignerHead;
use store::testing::on;
use store::{Db, Engine};
use tx::{Address, Coin, Draft, Family, Fee, FeeCap, Payment, TxHash};

use crate::bent::{Bent, REFUSALS, words};
use crate::deposits::{Place, Rig, id, raw};

const WORDS: &str = "test test test test test test test test test test test junk";

/// A signer within the test, which may be away.
pub struct Pen {
    pub signer: Arc<LocalSigner>,
    pub away: AtomicBool,
    /// It signs, and the answer is lost.
    pub loses: AtomicBool,
}

impl Signs for Pen {
    fn is_ready(&self) -> bool {
        true
    }

    fn sign<'a>(&'a self, requests: &'a [SignRequest]) -> BoxFuture<'a, Result<Vec<SignAnswer>, SignerError>> {
        Box::pin(async move {
            if self.away.load(Ordering::Relaxed) {
                return Err(SignerError::Unavailable { code: "SIGNER_UNAVAILABLE".to_owned(), why: "away".to_owned() });
            }
            let answers = self.signer.sign(requests);
            if self.loses.load(Ordering::Relaxed) {
                return Err(SignerError::Unknown { why: "lost".to_owned() });
            }
            answers
        })
    }

    fn head(&self) -> Option<(String, SignerHead)> {
        None
    }
}

impl Remembers for Pen {
    fn rounds<'a>(&'a self, jobs: &'a [signer::names::JobId]) -> BoxFuture<'a, Result<Vec<Option<u32>>, SignerError>> {
        Box::pin(async move {
            if self.away.load(Ordering::Relaxed) {
                return Err(SignerError::Unavailable { code: "SIGNER_UNAVAILABLE".to_owned(), why: "away".to_owned() });
            }
            Ok(self.signer.rounds(jobs))
        })
    }
}

fn keyring(family: Family) -> Keyring {
    let groups = [("users", Purpose::Deposit, 0), ("gas", Purpose::Gas, 1), ("hot", Purpose::Hot, 2)];
    let secret = |(name, purpose, account)| GroupSecret {
        id: id(name),
        purpose,
        family,
        account,
        mnemonic: Mnemonic::parse(WORDS).unwrap(),
    };
    Keyring::of(groups.map(secret).into_iter().collect()).unwrap()
}

fn policy(kind: ChainKind, token: &str) -> String {
    let much = "1000000000000000000000000000";
    let chain = match kind {
        ChainKind::Evm => "kind = \"evm\", chain_id = 56",
        ChainKind::Tron | ChainKind::Bitcoin => "kind = \"tron\"",
    };
    let coin =
        |name: &str| format!("{{ coin = \"{name}\", payment = \"{much}\", hour = \"{much}\", day = \"{much}\" }}");
    format!(
        "signer = \"desk\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 48\ntron_margin_minutes = 1\n\
         chain = [{{ name = \"net\", {chain} }}]\n\
         [[group]]\nid = \"hot\"\nchain = \"net\"\nrole = \"hot\"\nmost_fee = \"{much}\"\nmost_fee_day = \"{much}\"\n\
         coin = [{}, {}]\n",
        coin("native"),
        coin(token),
    )
}

/// A devnet with its books, a signer, and two hot wallets that have coins.
pub struct Desk<'a> {
    pub rig: Rig<'a>,
    pub pen: Arc<Pen>,
    pub ids: Arc<Generator<Arc<ManualClock>>>,
    made: Mutex<u32>,
}

impl<'a> Desk<'a> {
    pub async fn start(db: &'a store::testing::TestDb, kind: ChainKind, wallets: u64) -> Self {
        Self::with_policy(db, kind, wallets, policy).await
    }

    /// With what its signer allows, for a kind of chain and its token.
    pub async fn with_policy(
        db: &'a store::testing::TestDb,
        kind: ChainKind,
        wallets: u64,
        policy: fn(ChainKind, &str) -> String,
    ) -> Self {
        let mut signer = None;
        let solid = 2;
        let rig = Rig::with_keys(db, Place::Devnet(kind, solid), wallets, |family, clock| {
            let token = match kind {
                ChainKind::Evm => devnet::evm::TETHER.to_string(),
                ChainKind::Tron | ChainKind::Bitcoin => devnet::tron::TOKEN.to_string(),
            };
            let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
            let made = Arc::new(LocalSigner::new(&policy(kind, &token), keyring(family), clock).unwrap());
            let groups = ["users", "gas", "hot"].map(|name| made.group(&id(name)).unwrap()).to_vec();
            signer = Some(made);
            groups
        })
        .await;
        let pen = Pen { signer: signer.unwrap(), away: AtomicBool::new(false), loses: AtomicBool::new(false) };
        let ids = Arc::new(Generator::new(Arc::clone(&rig.clock), NodeId::new(3).unwrap()));
        let desk = Self { rig, pen: Arc::new(pen), ids, made: Mutex::new(0) };
        for wallet in desk.wallets() {
            let native = if kind == ChainKind::Evm { 5_000_000_000_000_000_000 } else { 5_000_000_000 };
            desk.rig.pay(&wallet, &Coin::Native, native);
            desk.rig.pay(&wallet, &desk.rig.token(), 1_000_000_000);
        }
        desk.rig.mine(4);
        desk
    }

    pub fn hot(&self) -> Address {
        self.wallets()[0].clone()
    }

    fn wallets(&self) -> Vec<Address> {
        let hot = self.rig.pinned.wallets().filter(|(_, _, wallet)| wallet.role == WalletRole::Hot);
        hot.map(|(_, _, wallet)| wallet.address.clone()).collect()
    }

    /// Nobody else is paid there.
    pub fn fresh(&self) -> Address {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        *made += 1;
        let key = Key::numbered(1_000 + *made);
        if self.rig.kind == ChainKind::Evm { key.evm() } else { key.tron() }
    }

    pub async fn add(&self, coin: &Coin, amount: u64) -> (JobId, Address) {
        let to = self.fresh();
        let symbol = if *coin == Coin::Native { "COIN" } else { "USDT" };
        let listing = self.rig.row.listings.iter().find(|one| one.symbol.as_str() == symbol).unwrap().id;
        let job = NewJob {
            id: self.ids.next().unwrap(),
            listing,
            kind: JobKind::Withdrawal,
            reference: to.to_string(),
            to: to.to_string(),
            owner: None,
            amount: raw(amount),
            most_fee: self.rig.row.outbound.fee_cap,
            priority: JobKind::Withdrawal.priority(),
            requester: "alice".to_owned(),
            expires: self.rig.clock.now().plus_micros(24 * 3_600 * 1_000_000),
            payer: Payer::Role(WalletRole::Hot),
        };
        let added =
            self.rig.db.add_jobs(self.rig.row.id, std::slice::from_ref(&job), self.rig.clock.now()).await.unwrap();
        assert!(matches!(added.as_slice(), [Added::New { .. }]), "{added:?}");
        (job.id, to)
    }

    /// One round of each, by workers that begin anew.
    pub async fn round_on(&self, db: &Db, name: &str) -> Option<SentRound> {
        self.round_with(db, &*self.rig.chain, name).await
    }

    pub async fn round_with(&self, db: &Db, chain: &dyn Chain, name: &str) -> Option<SentRound> {
        self.round_by((db, db), chain, name).await
    }

    /// By one who sends and one who watches.
    async fn round_by(&self, (sends, watches): (&Db, &Db), chain: &dyn Chain, name: &str) -> Option<SentRound> {
        let make = || self.ids.next::<domain::id::Job>().ok().map(|id| id.number());
        let (row, pinned) = (self.rig.row.clone(), Arc::clone(&self.rig.pinned));
        let signer = "desk".parse().unwrap();
        let worker = format!("{name}-send");
        let sent = SendWorker::new(sends, chain, &*self.pen, signer, &make, row.clone(), Arc::clone(&pinned), worker);
        let sent = sent.unwrap().round(&*self.rig.clock).await;
        let watched = WatchWorker::new(watches, chain, row, pinned, format!("{name}-watch"))
            .unwrap()
            .round(&*self.rig.clock)
            .await;
        watched.ok()?;
        sent.ok()
    }

    pub async fn round(&self) -> SentRound {
        let dbs = (self.rig.db.of(DatabaseRole::Outbound), self.rig.db.of(DatabaseRole::Confirm));
        self.round_by(dbs, &*self.rig.chain, "one").await.expect("a good round")
    }

    /// Rounds and blocks, so many of both.
    pub async fn pass(&self, blocks: u32) {
        for _ in 0..blocks {
            self.round().await;
            self.rig.mine(1);
        }
        self.round().await;
    }

    pub async fn job(&self, id: JobId) -> ShownJob {
        self.rig.db.job(id).await.unwrap().unwrap().0
    }

    pub async fn state(&self, id: JobId) -> JobState {
        self.job(id).await.job.state
    }

    pub async fn paid(&self, to: &Address, coin: &Coin) -> RawAmount {
        self.rig.chain.balances(&[(to.clone(), coin.clone())]).await.unwrap()[0]
    }

    /// A payment of the first hot wallet by somebody who has its words, and a signer of their own.
    pub fn stolen(&self, nonce: u64) -> Vec<u8> {
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.rig.clock);
        let policy = policy(self.rig.kind, &devnet::evm::TETHER.to_string());
        let thief = LocalSigner::new(&policy, keyring(self.rig.family), clock).unwrap();
        self.signed_by(&thief, nonce).0
    }

    /// A payment that our signer has signed, and that no row has: its bytes, whom it pays 9, and the job's number.
    pub fn forgotten(&self, nonce: u64) -> (Vec<u8>, Address, JobId) {
        self.signed_by(&self.pen.signer, nonce)
    }

    fn signed_by(&self, signer: &LocalSigner, nonce: u64) -> (Vec<u8>, Address, JobId) {
        let (to, job) = (self.fresh(), self.ids.next::<domain::id::Job>().unwrap());
        let payment = Payment { to: to.clone(), coin: Coin::Native, amount: raw(9) };
        let fee = Fee::Legacy { gas_price: 30_000_000_000 };
        let from = self.wallets()[0].clone();
        let draft = Draft::Evm { from, nonce, payment: payment.clone(), gas_limit: 21_000, fee };
        let unsigned = tx::evm::build(&draft, 56).unwrap();
        let intent = signer::Intent {
            signer: "desk".parse().unwrap(),
            network: signer::SignerChain::Evm { chain_id: 56 },
            job: signer::names::JobId::Job(job.number()),
            round: 0,
            chain: self.rig.row.name.clone(),
            group: id("hot"),
            kind: signer::IntentKind::Pay { payment, owner: None },
            most_fee: raw(1_000_000_000_000_000_000),
            expires: self.rig.clock.now().plus_micros(3_600_000_000),
            builds: 1,
            requester: "mallory".parse().unwrap(),
        };
        let request = SignRequest {
            id: "theft".parse().unwrap(),
            chain: self.rig.row.name.clone(),
            group: id("hot"),
            index: 0,
            payload: unsigned.bytes,
            intents: vec![intent],
            bitcoin: None,
            replaces: None,
            approvals: Vec::new(),
        };
        match signer.sign(&[request]).unwrap().remove(0) {
            SignAnswer::Signed { signed, .. } => (signed.bytes, to, job),
            refused => panic!("{refused:?}"),
        }
    }

    /// A payment of the first hot wallet, signed by another program that has its words: the bytes, and their hash.
    pub async fn elsewhere(&self, payment: Payment) -> (Vec<u8>, TxHash) {
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.rig.clock);
        let token = match self.rig.kind {
            ChainKind::Evm => devnet::evm::TETHER.to_string(),
            ChainKind::Tron | ChainKind::Bitcoin => devnet::tron::TOKEN.to_string(),
        };
        let other = LocalSigner::new(&policy(self.rig.kind, &token), keyring(self.rig.family), clock).unwrap();
        let (from, now) = (self.wallets()[0].clone(), self.rig.clock.now());
        let cap = match self.rig.kind {
            ChainKind::Evm => FeeCap(Fee::Eip1559 { max_fee: 20_000_000_000, max_priority: 20_000_000_000 }),
            ChainKind::Tron | ChainKind::Bitcoin => FeeCap(Fee::FeeLimit(1_000_000_000)),
        };
        let quote = self.rig.chain.quote(&from, &payment, cap).await.unwrap();
        let (draft, network) = match (self.rig.kind, quote.fee) {
            (ChainKind::Evm, fee) => {
                let nonce = self.rig.chain.nonces(std::slice::from_ref(&from)).await.unwrap()[0].pending;
                let draft = Draft::Evm { from, nonce, payment: payment.clone(), gas_limit: quote.gas, fee };
                (draft, signer::SignerChain::Evm { chain_id: 56 })
            }
            (_, Fee::FeeLimit(fee_limit)) => {
                let (reference, _) = quote.reference.unwrap();
                let expires = now.plus_micros(600_000_000);
                let draft = Draft::Tron { from, payment: payment.clone(), fee_limit, reference, created: now, expires };
                (draft, signer::SignerChain::Tron)
            }
            (_, fee) => panic!("{fee:?}"),
        };
        let unsigned = self.rig.chain.build(&draft).unwrap();
        let intent = signer::Intent {
            signer: "desk".parse().unwrap(),
            network,
            job: signer::names::JobId::Job(self.ids.next::<domain::id::Job>().unwrap().number()),
            round: 0,
            chain: self.rig.row.name.clone(),
            group: id("hot"),
            kind: signer::IntentKind::Pay { payment, owner: None },
            most_fee: raw(1_000_000_000_000_000_000),
            expires: now.plus_micros(3_600_000_000),
            builds: 1,
            requester: "other".parse().unwrap(),
        };
        let request = SignRequest {
            id: format!("other-{}", self.ids.next::<domain::id::Job>().unwrap().number()).parse().unwrap(),
            chain: self.rig.row.name.clone(),
            group: id("hot"),
            index: 0,
            payload: unsigned.bytes,
            intents: vec![intent],
            bitcoin: None,
            replaces: None,
            approvals: Vec::new(),
        };
        match other.sign(&[request]).unwrap().remove(0) {
            SignAnswer::Signed { signed, .. } => (signed.bytes, signed.hash),
            refused => panic!("{refused:?}"),
        }
    }

    /// The rows hold together, and nothing that left our wallets is unexplained.
    pub async fn assert_true(&self) {
        let mut worker = self.rig.worker("books").await;
        self.rig.work(&mut worker).await;
        self.rig.assert_true().await;
        let findings = self.rig.db.open_findings(0, 100).await.unwrap();
        assert!(findings.iter().all(|one| one.kind != "foreign_spend"), "{findings:#?}");
    }
}

fn on_evm(test: impl AsyncFn(Desk<'_>)) {
    on(Engine::Sqlite, async |db| test(Desk::start(db, ChainKind::Evm, 1).await).await);
}

fn on_both(test: impl AsyncFn(Desk<'_>)) {
    on_both_with(Engine::Sqlite, test);
}

fn on_both_with(engine: Engine, test: impl AsyncFn(Desk<'_>)) {
    for kind in [ChainKind::Evm, ChainKind::Tron] {
        on(engine, async |db| test(Desk::start(db, kind, 2).await).await);
    }
}

#[test]
fn every_job_is_paid_once_by_the_wallet_that_has_rested_longest() {
    on_both(pays_each_once);
}

#[test]
fn postgres_every_job_is_paid_once_by_the_wallet_that_has_rested_longest() {
    on_both_with(Engine::Postgres, pays_each_once);
}

pub async fn pays_each_once(desk: Desk<'_>) {
    let mut jobs = Vec::new();
    for number in 0..10_u64 {
        let coin = if number % 2 == 0 { Coin::Native } else { desk.rig.token() };
        let (id, to) = desk.add(&coin, 1_000_000 + number).await;
        jobs.push((id, to, coin, raw(1_000_000 + number)));
    }
    let mut payers: BTreeMap<String, u32> = BTreeMap::new();
    for (id, ..) in &jobs {
        *payers.entry(desk.job(*id).await.from).or_default() += 1;
    }
    assert_eq!(payers.values().copied().collect::<Vec<_>>(), [5, 5], "wallets take turns");
    desk.round().await;
    assert_eq!(desk.state(jobs[0].0).await, JobState::Broadcasted);
    desk.rig.mine(1);
    desk.round().await;
    assert_eq!(desk.state(jobs[0].0).await, JobState::Confirming);
    desk.pass(6).await;
    for (id, to, coin, amount) in &jobs {
        let job = desk.job(*id).await;
        assert_eq!(job.job.state, JobState::Confirmed, "{job:#?}");
        assert_eq!(desk.paid(to, coin).await, *amount);
    }
    // Every slot has come to its end, so nothing is watched any more.
    let lanes = desk.rig.db.lanes(None, None, 0, 10).await.unwrap();
    assert_eq!(lanes.iter().map(|lane| lane.open + lane.waiting).sum::<u64>(), 0);
    desk.assert_true().await;
}

/// The same reference is the same job, and another content is refused.
#[test]
fn a_reference_is_paid_once() {
    on_evm(async |desk| {
        let (id, to) = desk.add(&Coin::Native, 5).await;
        let job = desk.job(id).await.job;
        let again = |amount: u64| NewJob {
            id: desk.ids.next().unwrap(),
            listing: job.listing,
            kind: job.kind,
            reference: job.reference.clone(),
            to: to.to_string(),
            owner: None,
            amount: raw(amount),
            most_fee: job.most_fee,
            priority: 1,
            requester: "bob".to_owned(),
            expires: job.expires,
            payer: Payer::Role(WalletRole::Hot),
        };
        let now = desk.rig.clock.now();
        let twins = [again(5), again(6)];
        let added = desk.rig.db.add_jobs(desk.rig.row.id, &twins, now).await.unwrap();
        assert_eq!(added, [Added::Before(id), Added::Taken(id)]);
        desk.pass(6).await;
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(5));
        assert_eq!(desk.rig.db.add_jobs(desk.rig.row.id, &twins[..1], now).await.unwrap(), [Added::Before(id)]);
    });
}

/// The database fails at every point of every write, and another worker goes on: the outcome is that of a quiet day.
#[test]
fn workers_that_fail_at_every_point_pay_once() {
    on_both(pays_once_whatever_fails);
}

#[test]
fn postgres_workers_that_fail_at_every_point_pay_once() {
    on_both_with(Engine::Postgres, pays_once_whatever_fails);
}

async fn pays_once_whatever_fails(desk: Desk<'_>) {
    let mut jobs = Vec::new();
    for at in 0..70 {
        let coin = if at % 3 == 0 { desk.rig.token() } else { Coin::Native };
        let (id, to) = desk.add(&coin, 1_000_000 + at).await;
        jobs.push((id, to, coin, raw(1_000_000 + at)));
        let faulty: Db = crate::faulty::failing_at(desk.rig.db, i64::try_from(at).unwrap());
        for round in 0..3 {
            desk.pen.loses.store(round == 1 && at % 4 == 1, Ordering::Relaxed);
            desk.round_on(&faulty, "one").await;
        }
        desk.pen.loses.store(false, Ordering::Relaxed);
        desk.rig.mine(1);
        if at % 9 == 8 {
            desk.rig.reorg(2, Fate::Returned);
        }
    }
    desk.pass(12).await;
    for (id, to, coin, amount) in &jobs {
        let job = desk.job(*id).await;
        assert_eq!(desk.paid(to, coin).await, *amount, "{job:#?}");
        assert_eq!(job.job.state, JobState::Confirmed, "{job:#?}");
    }
    desk.assert_true().await;
}

#[test]
fn what_a_reorganisation_removes_is_sent_again_the_same_bytes() {
    on_evm(async |desk| {
        let (id, to) = desk.add(&Coin::Native, 77).await;
        desk.pass(4).await;
        assert_eq!(desk.state(id).await, JobState::Confirmed);
        desk.rig.reorg(4, Fate::Dropped);
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(0), "gone, from the pool as well");
        desk.round().await;
        assert!(matches!(desk.state(id).await, JobState::Broadcasting | JobState::Broadcasted));
        desk.rig.clock.set(desk.rig.clock.now().plus_micros(40_000_000));
        desk.pass(7).await;
        let (job, slots, _) = desk.rig.db.job(id).await.unwrap().unwrap();
        assert_eq!((job.job.state, job.job.rounds), (JobState::Confirmed, 1), "{job:#?}");
        assert_eq!(slots.len(), 1, "no other slot");
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(77));
        desk.assert_true().await;
    });
}

/// Nodes that answer as if they took it and forget; then a price that rises tenfold: the slot is replaced until it is mined.
#[test]
fn what_is_stuck_is_sent_again_and_offers_more() {
    on_evm(async |desk| {
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::Drop));
        let (id, to) = desk.add(&Coin::Native, 5).await;
        desk.pass(2).await;
        assert_eq!(desk.state(id).await, JobState::Broadcasted);
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(0));
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::None));
        desk.rig.model(|model, _| model.fee_factor(3));
        desk.rig.clock.set(desk.rig.clock.now().plus_micros(31_000_000));
        desk.pass(7).await;
        let (job, slots, _) = desk.rig.db.job(id).await.unwrap().unwrap();
        assert_eq!(job.job.state, JobState::Confirmed, "{job:#?} {slots:#?}");
        assert_eq!((slots.len(), job.job.rounds), (1, 1), "in the same slot");
        assert!(slots[0].attempts.len() >= 2, "{slots:#?}");
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(5));
        desk.assert_true().await;
    });
}

/// People want more to be offered than may be: it goes up to the cap, and from then on the same is told no more often than without them.
#[test]
fn what_offers_all_it_may_is_not_told_all_the_time() {
    on_evm(async |desk| {
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::Drop));
        let (id, _) = desk.add(&Coin::Native, 5).await;
        desk.round().await;
        assert_eq!(desk.state(id).await, JobState::Broadcasted);
        let now = || desk.rig.clock.now();
        let mut rounds = 0;
        // Each time an eighth more, until that is above the cap.
        while rounds < 60 {
            if !desk.job(id).await.job.bump {
                assert_eq!(desk.rig.db.bump_job(id, "ann", now()).await.unwrap(), JobReply::Done);
            }
            desk.rig.clock.set(now().plus_micros(5_000_000));
            rounds += 1;
            if desk.round().await.replaced == 0 {
                break;
            }
        }
        assert!((2..60).contains(&rounds), "{rounds}");
        assert!(!desk.job(id).await.job.bump, "nobody waits for more");
        desk.rig.clock.set(now().plus_micros(5_000_000));
        assert_eq!(desk.round().await.told, 0);
    });
}

/// TRON has no slot in which only one of two can be mined.
#[test]
fn nothing_more_is_offered_on_tron() {
    on(Engine::Sqlite, async |db| {
        let desk = Desk::start(db, ChainKind::Tron, 1).await;
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::Drop));
        let (id, _) = desk.add(&Coin::Native, 5).await;
        desk.round().await;
        assert_eq!(desk.state(id).await, JobState::Broadcasted);
        assert_eq!(db.bump_job(id, "ann", desk.rig.clock.now()).await.unwrap(), JobReply::NeverReplaced);
        assert!(!desk.job(id).await.job.bump);
    });
}

/// Whatever nodes say to it, the payment may be out: its slot and its money stay as they are, and it is paid in the end, once.
#[test]
fn no_text_whatever_releases_a_slot_or_money() {
    on_both(nothing_is_let_go_for_words);
}

#[test]
fn postgres_no_text_whatever_releases_a_slot_or_money() {
    on_both_with(Engine::Postgres, nothing_is_let_go_for_words);
}

async fn nothing_is_let_go_for_words(desk: Desk<'_>) {
    let (id, to) = desk.add(&Coin::Native, 77).await;
    let mut runner = TestRunner::new(Config::default());
    let texts = (any::<prop::sample::Index>(), words());
    for _ in 0..40 {
        let (kind, words) = texts.new_tree(&mut runner).unwrap().current();
        let says = (*kind.get(&REFUSALS), words);
        let talkers = Bent::talking(&*desk.rig.chain, says.clone());
        desk.round_with(desk.rig.db, &talkers, "one").await.expect("a good round");
        desk.rig.clock.set(desk.rig.clock.now().plus_micros(31_000_000));
        let (job, slots, _) = desk.rig.db.job(id).await.unwrap().unwrap();
        assert_eq!((job.job.state, job.job.rounds), (JobState::Broadcasted, 1), "{:?}: {job:#?}", says);
        assert_eq!(slots.len(), 1, "{:?}: {slots:#?}", says);
        let said = slots[0].attempts.last().and_then(|attempt| attempt.said.clone());
        assert!(said.is_some_and(|said| said.contains(&says.1)), "it was told: {:?} {slots:#?}", says);
        assert!(job.lane_stopped.is_none(), "{job:#?}");
        let lanes = desk.rig.db.lanes(None, None, 0, 10).await.unwrap();
        assert_eq!(lanes.iter().map(|lane| lane.open).sum::<u64>(), 1);
    }
    desk.pass(8).await;
    let (job, slots, _) = desk.rig.db.job(id).await.unwrap().unwrap();
    assert_eq!(job.job.state, JobState::Confirmed, "{job:#?} {slots:#?}");
    assert_eq!(desk.paid(&to, &Coin::Native).await, raw(77));
    desk.assert_true().await;
}

/// A cancel is no proof: whichever of the two is mined decides.
#[test]
fn a_cancel_takes_the_slot_or_comes_too_late() {
    on_evm(async |desk| {
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::Drop));
        let (id, to) = desk.add(&Coin::Native, 5).await;
        let (late, paid) = desk.add(&Coin::Native, 6).await;
        desk.round().await;
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::None));
        assert_eq!(desk.rig.db.cancel_job(id, "ann", desk.rig.clock.now()).await.unwrap(), JobReply::Done);
        desk.round().await;
        desk.rig.clock.set(desk.rig.clock.now().plus_micros(31_000_000));
        desk.pass(4).await;
        assert_eq!(desk.state(id).await, JobState::Broadcasted, "mined, and it may still leave the chain");
        let too_late = desk.rig.db.cancel_job(late, "ann", desk.rig.clock.now()).await.unwrap();
        assert_eq!(too_late, JobReply::NotNow(JobState::Confirmed));
        desk.pass(5).await;
        assert_eq!(desk.state(id).await, JobState::FailedFinal);
        assert_eq!(desk.state(late).await, JobState::Confirmed);
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(0));
        assert_eq!(desk.paid(&paid, &Coin::Native).await, raw(6));
        // One that has no slot ends at once.
        desk.pen.away.store(true, Ordering::Relaxed);
        let (rests, _) = desk.add(&Coin::Native, 7).await;
        desk.rig.db.cancel_job(rests, "ann", desk.rig.clock.now()).await.unwrap();
        assert_eq!(desk.state(rests).await, JobState::FailedFinal);
        desk.assert_true().await;
    });
}

/// It has a slot while the signer is away, and is given up then. The signer may have signed it before its answer was lost, so it is asked again; but no node
/// ever hears of the payment: its cancel takes the slot, also where the cap lets nothing offer more, and whoever is behind it is paid.
#[test]
fn what_was_given_up_before_any_node_heard_of_it_is_never_told() {
    for capped in [false, true] {
        on_evm(async |desk| never_told(desk, capped).await);
    }
}

#[test]
fn postgres_what_was_given_up_before_any_node_heard_of_it_is_never_told() {
    on(Engine::Postgres, async |db| never_told(Desk::start(db, ChainKind::Evm, 1).await, false).await);
}

async fn never_told(mut desk: Desk<'_>, capped: bool) {
    desk.pen.away.store(true, Ordering::Relaxed);
    let (id, to) = desk.add(&Coin::Native, 5).await;
    let (behind, paid) = desk.add(&Coin::Native, 6).await;
    desk.round().await;
    assert_eq!([desk.state(id).await, desk.state(behind).await], [JobState::Signing; 2]);
    assert_eq!(desk.rig.db.cancel_job(id, "ann", desk.rig.clock.now()).await.unwrap(), JobReply::Done);
    desk.pen.away.store(false, Ordering::Relaxed);
    let usual = desk.rig.row.outbound.price_cap;
    if capped {
        let (_, slots, _) = desk.rig.db.job(id).await.unwrap().unwrap();
        let offered = desk.rig.chain.decode_unsigned(&slots[0].attempts[0].payload).unwrap().fee;
        let (Fee::Legacy { gas_price: price } | Fee::Eip1559 { max_fee: price, .. }) = offered else {
            panic!("{offered:?}")
        };
        desk.rig.row.outbound.price_cap = price.try_into().unwrap();
    }
    let ears = Bent::listening(&*desk.rig.chain);
    for _ in 0..20 {
        desk.round_with(desk.rig.db, &ears, "one").await.expect("a good round");
        desk.rig.mine(1);
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(0));
    }
    let (job, slots, _) = desk.rig.db.job(id).await.unwrap().unwrap();
    assert_eq!(job.job.state, JobState::FailedFinal, "{job:#?} {slots:#?}");
    let attempts = &slots[0].attempts;
    assert_eq!((slots.len(), attempts.len()), (1, 2), "{slots:#?}");
    let heard: Vec<bool> = attempts.iter().map(|one| ears.has_heard(&one.signed.as_ref().unwrap().0)).collect();
    assert_eq!(heard, [false, true], "nodes hear of the cancel alone: {slots:#?}");
    assert_eq!(attempts.iter().map(|one| one.told.is_some()).collect::<Vec<_>>(), heard);
    assert_eq!(desk.state(behind).await, JobState::Confirmed);
    assert_eq!(desk.paid(&paid, &Coin::Native).await, raw(6));
    // Whoever reads the chain's books goes by the treasury's own settings.
    desk.rig.row.outbound.price_cap = usual;
    desk.assert_true().await;
}

/// Somebody else uses the wallet's key: the lane is stopped with a sentence, and goes on when two people say so.
#[test]
fn another_program_with_the_same_key_stops_the_lane() {
    on_evm(async |desk| {
        let (first, _) = desk.add(&Coin::Native, 5).await;
        desk.pass(6).await;
        assert_eq!(desk.state(first).await, JobState::Confirmed);
        // By the same words, outside of everything: it pays somebody with the next nonce.
        let bytes = desk.stolen(1);
        desk.rig.chain.broadcast(&bytes).await.unwrap();
        desk.rig.mine(6);
        let (waits, to) = desk.add(&Coin::Native, 6).await;
        desk.pass(8).await;
        let job = desk.job(waits).await;
        assert!(job.lane_stopped.as_deref().is_some_and(|why| why.contains("somebody else")), "{job:#?}");
        assert_eq!((job.job.state, desk.paid(&to, &Coin::Native).await), (JobState::Queued, raw(0)));
        let lane = desk.rig.db.lanes(None, None, 0, 9).await.unwrap()[0].lane.id;
        let people = Approval::new("ann", "bob", "the old program is gone").unwrap();
        assert!(desk.rig.db.resume_lane(lane, &people, desk.rig.clock.now()).await.unwrap());
        desk.pass(7).await;
        assert_eq!(desk.state(waits).await, JobState::Confirmed);
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(6));
    });
}

/// What the wallet does not have costs no nonce, and after five tries it is over.
#[test]
fn what_cannot_be_paid_takes_no_slot() {
    on_both(async |desk| {
        let (poor, _) = desk.add(&desk.rig.token(), 5_000_000_000_000).await;
        desk.round().await;
        let job = desk.job(poor).await.job;
        assert_eq!((job.state, job.tries, job.rounds), (JobState::FailedRetryable, 1, 0), "{job:#?}");
        let (good, to) = desk.add(&desk.rig.token(), 5).await;
        for _ in 0..8 {
            desk.rig.clock.set(desk.rig.clock.now().plus_micros(20 * 60 * 1_000_000));
            desk.rig.mine(6);
            desk.pass(1).await;
        }
        let job = desk.job(poor).await.job;
        assert_eq!((job.state, job.tries, job.rounds), (JobState::FailedFinal, 5, 0), "{job:#?}");
        desk.pass(6).await;
        assert_eq!(desk.state(good).await, JobState::Confirmed, "{:#?}", desk.job(good).await);
        assert_eq!(desk.paid(&to, &desk.rig.token()).await, raw(5));
    });
}

/// A worker that was paused while another took its lanes over writes nothing, and what it tells nodes was written down before.
#[test]
fn a_worker_that_lost_its_lanes_writes_nothing() {
    on_evm(async |desk| {
        let (id, to) = desk.add(&Coin::Native, 5).await;
        desk.pen.away.store(true, Ordering::Relaxed);
        desk.round_on(desk.rig.db, "first").await.unwrap();
        assert_eq!(desk.state(id).await, JobState::Signing);
        let now = desk.rig.clock.now();
        let lanes = (desk.rig.row.id, store::outbound::Duty::Send);
        // An hour later by the leases.
        let later = now.plus_micros(3_600_000_000);
        let mine = desk.rig.db.take_lanes(lanes, "first-send", 9, now, later).await.unwrap();
        desk.rig.clock.set(later);
        desk.pen.away.store(false, Ordering::Relaxed);
        desk.round_on(desk.rig.db, "second").await.unwrap();
        let before = desk.job(id).await.job;
        let slot = before.slot.unwrap();
        let told = store::outbound::ToldAttempt { lane: before.lane, slot, number: 1, said: "a ghost".to_owned() };
        desk.rig.db.keep_told(&mine, &[told], later).await.unwrap();
        let refused = store::outbound::SignedAttempt {
            lane: before.lane,
            slot,
            number: 1,
            answer: store::outbound::send::SignedAnswer::Refused { words: "a ghost".to_owned(), counts: true },
            spend: None,
        };
        desk.rig.db.keep_signed(&mine, &[refused], None, later).await.unwrap();
        assert_eq!(desk.job(id).await.job, before, "nothing of it was written");
        for _ in 0..8 {
            desk.rig.mine(1);
            desk.round_on(desk.rig.db, "second").await.unwrap();
        }
        assert_eq!(desk.state(id).await, JobState::Confirmed);
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(5));
    });
}

/// TRON: a transaction that no block took is built again only when a solidified block proves that its time is over.
#[test]
fn what_has_expired_by_proof_is_built_again() {
    on(Engine::Sqlite, async |db| {
        let desk = Desk::start(db, ChainKind::Tron, 1).await;
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::Drop));
        let (id, to) = desk.add(&Coin::Native, 1_000_005).await;
        desk.pass(2).await;
        assert_eq!(desk.state(id).await, JobState::Broadcasted);
        // By the local clock its time is long over; no block says so.
        desk.rig.clock.set(desk.rig.clock.now().plus_micros(3_600_000_000));
        desk.round().await;
        let job = desk.job(id).await.job;
        assert_eq!((job.state, job.rounds), (JobState::Broadcasted, 1));
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::None));
        desk.rig.mine(6);
        desk.round().await;
        desk.rig.clock.set(desk.rig.clock.now().plus_micros(120_000_000));
        desk.pass(10).await;
        let (job, slots, _) = desk.rig.db.job(id).await.unwrap().unwrap();
        assert_eq!((job.job.state, slots.len()), (JobState::Confirmed, 2), "{job:#?}");
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(1_000_005));
        desk.assert_true().await;
    });
}

/// 300 jobs of the lowest priority wait; one of the highest is sent with the next block.
#[test]
fn the_highest_priority_goes_first() {
    on_evm(async |desk| {
        for number in 0..60 {
            desk.add(&Coin::Native, 100 + number).await;
        }
        desk.round().await;
        let waiting = desk
            .rig
            .db
            .jobs(&JobFilter { state: Some(JobState::Queued), ..JobFilter::default() }, i64::MAX, 99)
            .await
            .unwrap();
        assert_eq!(waiting.len(), 60 - 16, "as many are out as may be");
        let (id, to) = desk.add(&Coin::Native, 7).await;
        desk.rig
            .db
            .by_hand(&format!("UPDATE outbound_jobs SET priority = 1 WHERE id = {}", id.number()))
            .await
            .unwrap();
        desk.rig.mine(1);
        desk.round().await;
        desk.round().await;
        assert_eq!(desk.state(id).await, JobState::Broadcasted);
        desk.pass(2).await;
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(7));
    });
}
