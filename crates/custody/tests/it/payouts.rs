//! Payouts on Bitcoin: several share a transaction, one that waits too long is replaced by one that pays the same, and each is paid once,
//! whichever is mined. Three nodes of the devnet, the wallet's own follower, and the signer's core. What was paid is asked of the chain.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bitcoin::consensus::deserialize;
use bitcoin::{Network, Transaction};
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::{EndpointSettings, Pool, PoolSettings};
use chain::{Chain, Place, WatchKey, Watched};
use custody::bitcoin::{Aim, Costs, Follow, Recipient, SEQUENCE, ScriptKind, Step, Target, plan, unsigned};
use custody::deposit::DepositWorker;
use custody::deposit::work::begin;
use custody::outbound::{SENDERS, SendWorker, SentRound, WatchWorker};
use custody::wallet::house::watch_house;
use custody::wallet::{Pinned, assign};
use devnet::bitcoin::{BitcoinDevnet, Settings};
use devnet::{BroadcastFault, Fate, Key, Model, Served};
use domain::asset::TransferLimits;
use domain::id::{Generator, NodeId};
use domain::outbound::{JobKind, JobState, OutboundLimits};
use domain::random::Random;
use domain::{
    AccountKind, Amount, Approval, Asset, AssetOnChain, Availability, ChainKind, Clock, Listing, ManualClock,
    Precision, Purpose, RawAmount, UserId, WalletRole,
};
use signer::client::SignAnswer;
use signer::keys::{GroupSecret, Keyring, Mnemonic};
use signer::local::LocalSigner;
use signer::{BitcoinTerms, Intent, IntentKind, SignRequest, SignerChain};
use store::Engine;
use store::catalog::{Author, Catalog};
use store::deposit::DepositFilter;
use store::entry::ChainRow;
use store::grants::DatabaseRole;
use store::outbound::read::{JobReply, JobVerdict};
use store::outbound::{Added, JobId, NewJob, Payer, Share, ShownJob, SlotId};
use store::testing::{TestDb, on};
use store::utxo::{ListFilter, LockId, NewAddress, Paths};
use tx::{Address, Coin, Family, Payment};

use crate::deposits::{id, raw};
use crate::outbound::Pen;

const WORDS: &str = "test test test test test test test test test test test junk";
const NETWORK: Network = Network::Regtest;
const CONFIRMATIONS: u32 = 3;

fn keyring() -> Keyring {
    let secret = |(name, purpose, account)| GroupSecret {
        id: id(name),
        purpose,
        family: Family::Bitcoin(NETWORK),
        account,
        mnemonic: Mnemonic::parse(WORDS).unwrap(),
    };
    Keyring::of([("users", Purpose::Deposit, 0), ("hot", Purpose::Hot, 1)].map(secret).into_iter().collect()).unwrap()
}

const POLICY: &str = "signer = \"desk\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 48\n\
     chain = [{ name = \"net\", kind = \"bitcoin\", network = \"regtest\" }]\n\
     [[group]]\nid = \"hot\"\nchain = \"net\"\nrole = \"hot\"\nmost_fee = \"2100000000000000\"\nmost_fee_day = \"2100000000000000\"\n\
     coin = [{ coin = \"native\", payment = \"2100000000000000\", hour = \"2100000000000000\", day = \"2100000000000000\" }]\n";

pub fn catalog(limits: OutboundLimits) -> Catalog {
    let mut catalog = Catalog::default();
    let precision = Precision::new(8).unwrap();
    let chain = domain::Chain {
        name: "net".parse().unwrap(),
        kind: ChainKind::Bitcoin,
        network: "regtest".to_owned(),
        confirmations: CONFIRMATIONS,
        final_confirmations: CONFIRMATIONS + 2,
        outbound: limits,
        status: Availability::Active,
    };
    let most = Amount::from_units(9);
    let asset = Asset {
        symbol: "BTC".parse().unwrap(),
        precision,
        status: Availability::Active,
        internal_transfer_enabled: true,
        transfer: TransferLimits { min: Amount::from_units(1), max: most, daily: most },
    };
    let listing = Listing {
        asset: asset.symbol.clone(),
        chain: chain.name.clone(),
        form: AssetOnChain::new(precision, 8, None).unwrap(),
        min_deposit: Amount::from_units(10),
        status: Availability::Active,
    };
    catalog.listings.insert((asset.symbol.clone(), chain.name.clone()), listing);
    catalog.assets.insert(asset.symbol.clone(), asset);
    catalog.chains.insert(chain.name.clone(), chain);
    catalog
}

/// A devnet, its wallet with a follower, a signer, and one hot wallet with coins.
pub struct House<'a> {
    pub db: &'a TestDb,
    served: Served<BitcoinDevnet>,
    pub clock: Arc<ManualClock>,
    pub chain: BitcoinChain,
    pub pinned: Arc<Pinned>,
    pub row: ChainRow,
    pen: Pen,
    ids: Generator<Arc<ManualClock>>,
    made: Mutex<u32>,
}

pub const GATHER: OutboundLimits = OutboundLimits {
    price_cap: 200_000,
    fee_cap: RawAmount::ZERO,
    in_flight: 16,
    stuck_after_s: 600,
    gather_s: 30,
    gather_most: 5,
    join_below: 3_000,
};

impl<'a> House<'a> {
    pub async fn start(db: &'a TestDb, coins: &[u64]) -> Self {
        Self::with(db, coins, OutboundLimits { fee_cap: raw(50_000), ..GATHER }, 1).await
    }

    /// All coins are the first wallet's.
    async fn with(db: &'a TestDb, coins: &[u64], limits: OutboundLimits, wallets: u64) -> Self {
        let settings = Settings::default();
        let clock = Arc::new(ManualClock::at(settings.start));
        let free: SocketAddr = ([127, 0, 0, 1], 0).into();
        let served =
            Served::start(BitcoinDevnet::new(settings), &[free; 3], Arc::<ManualClock>::clone(&clock)).await.unwrap();
        let endpoint = |(number, endpoint): (usize, &devnet::Endpoint)| EndpointSettings {
            name: format!("node {number}"),
            url: endpoint.url(),
            authorization: None,
            key: None,
            headers: Vec::new(),
            per_second: 0,
        };
        let endpoints: Vec<_> = served.endpoints.iter().enumerate().map(endpoint).collect();
        let pool = PoolSettings { quorum: Some(2), ..PoolSettings::default() };
        let pool = Pool::new(&endpoints, &pool, Arc::<ManualClock>::clone(&clock)).unwrap();
        let confirmations = u64::from(CONFIRMATIONS);
        let chain = BitcoinChain::new(BitcoinSettings { confirmations, ..BitcoinSettings::new(NETWORK) }, pool);
        let signer = LocalSigner::new(POLICY, keyring(), Arc::<ManualClock>::clone(&clock)).unwrap();
        let mut pinned = Pinned::default();
        for name in ["users", "hot"] {
            pinned.add_group(signer.group(&id(name)).unwrap(), true).unwrap();
        }
        let family = Family::Bitcoin(NETWORK);
        let net = || ("net".parse().unwrap(), family);
        for index in 0..wallets {
            pinned.add_derived(net(), WalletRole::Hot, (&id("hot"), index), true).unwrap();
        }
        let author = Author { actor: "test", reason: "set-up" };
        db.apply_treasury(&catalog(limits), &pinned.settings(), &author, clock.now()).await.unwrap();
        watch_house(db, &pinned, (&"net".parse().unwrap(), family), clock.now()).await.unwrap();
        let row = db.chain(&"net".parse().unwrap()).await.unwrap().unwrap();
        let ids = Generator::new(Arc::clone(&clock), NodeId::new(3).unwrap());
        let pen = Pen { signer: Arc::new(signer), away: AtomicBool::new(false), loses: AtomicBool::new(false) };
        let pinned = Arc::new(pinned);
        let house = Self { db, served, clock, chain, pinned, row, pen, ids, made: Mutex::new(0) };
        let first = house.chain.head().await.unwrap().tip.height;
        house.follow().await;
        begin(db.of(DatabaseRole::Deposits), &house.chain, &house.row, Some(first), house.clock.now()).await.unwrap();
        for coin in coins {
            house.fund(&house.own(), *coin);
        }
        house.mine(6).await;
        house
    }

    fn own(&self) -> Address {
        self.wallets()[0].clone()
    }

    fn wallets(&self) -> Vec<Address> {
        let hot = self.pinned.wallets().filter(|(_, _, wallet)| wallet.role == WalletRole::Hot);
        hot.map(|(_, _, wallet)| wallet.address.clone()).collect()
    }

    pub fn act<T>(&self, act: impl FnOnce(&mut BitcoinDevnet) -> T) -> T {
        act(&mut self.served.model.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn fund(&self, to: &Address, amount: u64) {
        self.act(|model| model.fund(&to.to_string(), None, raw(amount), self.clock.now())).unwrap();
    }

    pub fn pass(&self, seconds: i64) {
        self.clock.set(self.clock.now().plus_micros(seconds * 1_000_000));
    }

    /// Blocks, and whatever waits in the first of them.
    pub async fn mine(&self, blocks: u64) {
        self.pass(60);
        self.act(|model| model.mine(blocks, self.clock.now()));
        self.follow().await;
    }

    pub async fn follow(&self) {
        let mut follow = Follow::new(self.db.of(DatabaseRole::Follower), &self.chain, 0);
        while follow.step(50, self.clock.now()).await.unwrap() != Step::Idle {}
        follow.look(self.clock.now()).await.unwrap();
    }

    pub async fn add_with(&self, amount: u64, priority: i64) -> (JobId, Address) {
        self.add_for(amount, priority, 24).await
    }

    async fn add_for(&self, amount: u64, priority: i64, hours: i64) -> (JobId, Address) {
        let to = {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            *made += 1;
            Key::numbered(2_000 + *made).bitcoin(NETWORK)
        };
        let job = NewJob {
            id: self.ids.next().unwrap(),
            listing: self.row.listings[0].id,
            kind: JobKind::Withdrawal,
            reference: to.to_string(),
            to: to.to_string(),
            owner: None,
            amount: raw(amount),
            most_fee: self.row.outbound.fee_cap,
            priority,
            requester: "alice".to_owned(),
            expires: self.clock.now().plus_micros(hours * 3_600 * 1_000_000),
            payer: Payer::Role(WalletRole::Hot),
        };
        let added = self.db.add_jobs(self.row.id, std::slice::from_ref(&job), self.clock.now()).await.unwrap();
        assert!(matches!(added.as_slice(), [Added::New { .. }]), "{added:?}");
        (job.id, to)
    }

    async fn add(&self, amount: u64) -> (JobId, Address) {
        self.add_with(amount, JobKind::Withdrawal.priority()).await
    }

    /// One round of each, by workers that begin anew.
    async fn round(&self) -> SentRound {
        self.round_with(&self.chain).await
    }

    /// The same with a chain that is bent.
    pub async fn round_with(&self, chain: &dyn Chain) -> SentRound {
        let sent = self.send_as(chain, "one-send", Share::ALL).await;
        self.watch(chain).await;
        sent
    }

    /// The same with as many senders as a process has.
    async fn round_of_all(&self) -> SentRound {
        let mut all = SentRound::default();
        for part in 0..SENDERS {
            let sent = self.send_as(&self.chain, &format!("one-send.{part}"), Share { part, of: SENDERS }).await;
            all.slots += sent.slots;
            all.replaced += sent.replaced;
        }
        self.watch(&self.chain).await;
        all
    }

    async fn send_as(&self, chain: &dyn Chain, name: &str, share: Share) -> SentRound {
        let make = || self.ids.next::<domain::id::Job>().ok().map(|id| id.number());
        let (row, pinned) = (self.row.clone(), Arc::clone(&self.pinned));
        let signer = "desk".parse().unwrap();
        let name = name.to_owned();
        let mut worker =
            SendWorker::new(self.db.of(DatabaseRole::Outbound), chain, &self.pen, signer, &make, row, pinned, name)
                .unwrap()
                .with_share(share);
        worker.round(&*self.clock).await.unwrap()
    }

    async fn watch(&self, chain: &dyn Chain) {
        let (row, pinned) = (self.row.clone(), Arc::clone(&self.pinned));
        let mut watcher =
            WatchWorker::new(self.db.of(DatabaseRole::Confirm), chain, row, pinned, "one-watch".to_owned()).unwrap();
        let watched = watcher.round(&*self.clock).await.unwrap();
        assert_eq!(watched.waits, None);
    }

    /// Blocks and rounds until everything is final.
    pub async fn settle(&self) {
        for _ in 0..8 {
            self.mine(1).await;
            self.round().await;
        }
    }

    pub async fn shown(&self, job: JobId) -> ShownJob {
        self.db.job(job).await.unwrap().unwrap().0
    }

    async fn state(&self, job: JobId) -> JobState {
        self.shown(job).await.job.state
    }

    /// What was signed in the slot that a job is in, in its order.
    pub async fn signed(&self, job: JobId) -> Vec<Transaction> {
        let slots = self.db.job(job).await.unwrap().unwrap().1;
        let slot = self.shown(job).await.job.slot;
        let slot = slots.into_iter().find(|one| Some(one.id) == slot).unwrap();
        slot.attempts.iter().filter_map(|one| Some(deserialize(&one.signed.as_ref()?.0).unwrap())).collect()
    }

    async fn slot(&self, job: JobId) -> SlotId {
        self.shown(job).await.job.slot.unwrap()
    }

    pub async fn balance(&self, of: &Address) -> u64 {
        let found = self.chain.balances(&[(of.clone(), Coin::Native)]).await.unwrap();
        found[0].to_string().parse().unwrap()
    }

    /// Each was paid what it asked for, once; the wallet has what the chain says; nothing is out of order.
    pub async fn agree(&self, jobs: &[(JobId, Address)], amount: u64) {
        for (job, to) in jobs {
            assert_eq!(self.state(*job).await, JobState::Confirmed, "{}", self.shown(*job).await.job.reason);
            assert_eq!(self.balance(to).await, amount);
        }
        let wallet = self.db.wallets().await.unwrap().into_iter().find(|one| one.name == "hot").unwrap();
        let stored = self.db.balance(wallet.id, self.clock.now()).await.unwrap();
        let stored: i64 = stored.values().map(|one| one.confirmed).sum();
        let mut there = 0;
        for wallet in self.wallets() {
            there += self.balance(&wallet).await;
        }
        assert_eq!(u64::try_from(stored).unwrap(), there);
        assert_eq!(self.db.leases(wallet.id, None, 9).await.unwrap(), [], "no coin is held by what is over");
        let report = self.db.audit(|_| {}).await.unwrap();
        assert!(report.clean(), "{report:?}");
    }
}

fn people() -> Approval {
    Approval::new("ann", "bob", "we looked").unwrap()
}

fn inputs(of: &Transaction) -> BTreeSet<bitcoin::OutPoint> {
    of.input.iter().map(|input| input.previous_output).collect()
}

#[test]
fn payouts_of_a_window_share_one_transaction() {
    for engine in crate::engines() {
        on(engine, async |db| share_one_transaction(db).await);
    }
}

pub async fn share_one_transaction(db: &TestDb) {
    let house = House::start(db, &[5_000_000, 7_000_000]).await;
    let mut jobs = vec![house.add(20_000).await, house.add(20_000).await, house.add(20_000).await];
    assert_eq!(house.round().await.slots, 0, "they wait for others");
    house.pass(30);
    let sent = house.round().await;
    assert_eq!((sent.slots, sent.signed, sent.told), (1, 1, 1));
    let made = house.signed(jobs[0].0).await;
    assert_eq!(made[0].output.len(), 4, "three payments, and what comes back");
    let slots: BTreeSet<SlotId> = [house.slot(jobs[0].0).await, house.slot(jobs[2].0).await].into();
    assert_eq!(slots.len(), 1);
    // Five are enough at once; and one that is urgent does not wait.
    for _ in 0..5 {
        jobs.push(house.add(20_000).await);
    }
    assert_eq!(house.round().await.slots, 1);
    jobs.push(house.add_with(20_000, 1).await);
    assert_eq!(house.round().await.slots, 1);
    house.settle().await;
    house.agree(&jobs, 20_000).await;
}

/// Whoever dies between lease, signature and broadcast leaves one transaction.
#[test]
fn a_worker_that_dies_anywhere_leaves_one_transaction() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[5_000_000, 7_000_000]).await;
        let jobs = [house.add_with(30_000, 1).await, house.add_with(30_000, 1).await];
        house.pen.away.store(true, Ordering::Relaxed);
        assert_eq!(house.round().await.slots, 1);
        assert_eq!(house.state(jobs[0].0).await, JobState::Signing);
        house.pen.away.store(false, Ordering::Relaxed);
        house.pen.loses.store(true, Ordering::Relaxed);
        assert_eq!(house.round().await.signed, 0);
        house.pen.loses.store(false, Ordering::Relaxed);
        // Hours later: the coins are still its own.
        house.pass(7_200);
        assert_eq!(db.sweep_leases(house.clock.now()).await.unwrap(), 0);
        let sent = house.round().await;
        assert_eq!((sent.slots, sent.signed, sent.told), (0, 1, 1));
        house.settle().await;
        house.agree(&jobs, 30_000).await;
    });
}

/// Two people judge one of two payouts while nobody has signed for them: the transaction that would pay both is never signed, and the other payout
/// gets one of its own.
#[test]
fn what_people_have_judged_is_not_paid_by_the_slot_that_it_shared() {
    for engine in crate::engines() {
        on(engine, async |db| {
            let house = House::start(db, &[5_000_000, 7_000_000]).await;
            let (judged, other) = (house.add_with(30_000, 1).await, house.add_with(30_000, 1).await);
            house.pen.away.store(true, Ordering::Relaxed);
            assert_eq!(house.round().await.slots, 1);
            let (lane, people) = (house.shown(judged.0).await.job.lane, people());
            db.stop_lane(lane, "a test", house.clock.now()).await.unwrap();
            let said = db.judge_job(judged.0, JobVerdict::Unpaid, &people, house.clock.now()).await.unwrap();
            assert_eq!(said, JobReply::Done);
            house.pen.away.store(false, Ordering::Relaxed);
            assert!(db.resume_lane(lane, &people, house.clock.now()).await.unwrap());
            let sent = house.round().await;
            assert_eq!((sent.slots, sent.signed, sent.told), (1, 1, 1), "{sent:?}");
            house.settle().await;
            house.agree(&[other], 30_000).await;
            assert_eq!(house.state(judged.0).await, JobState::FailedFinal);
            assert_eq!(house.balance(&judged.1).await, 0);
        });
    }
}

/// A slot waits for its signature, or its bytes for a node, and people halt: nothing goes out until they let it, and then once.
#[test]
fn a_halt_stops_what_is_written_down() {
    for engine in crate::engines() {
        on(engine, async |db| {
            let house = House::start(db, &[5_000_000]).await;
            let job = house.add_with(30_000, 1).await;
            house.pen.away.store(true, Ordering::Relaxed);
            assert_eq!(house.round().await.slots, 1);
            house.pen.away.store(false, Ordering::Relaxed);
            let halts = [
                ("chains SET status = 'suspended'", "chains SET status = 'active'"),
                ("assets SET status = 'suspended'", "assets SET status = 'active'"),
                ("asset_on_chain SET status = 'suspended'", "asset_on_chain SET status = 'active'"),
                ("wallet_groups SET outbound_stopped = 'a test'", "wallet_groups SET outbound_stopped = NULL"),
            ];
            let hour_of_halts = async || {
                for (halt, over) in halts {
                    db.by_hand(&format!("UPDATE {halt}")).await.unwrap();
                    house.pass(61);
                    let sent = house.round().await;
                    assert_eq!((sent.signed, sent.told), (0, 0), "{halt}: {sent:?}");
                    db.by_hand(&format!("UPDATE {over}")).await.unwrap();
                }
            };
            hour_of_halts().await;
            // It is signed, and whoever did that died before a node heard of it.
            house.act(|model| model.broadcasts(BroadcastFault::Drop));
            assert_eq!(house.round().await.signed, 1);
            db.by_hand("UPDATE outbound_attempts SET told_at = NULL, said = NULL").await.unwrap();
            house.act(|model| model.broadcasts(BroadcastFault::None));
            hour_of_halts().await;
            let sent = house.round().await;
            assert_eq!((sent.slots, sent.signed, sent.told), (0, 0, 1), "{sent:?}");
            house.settle().await;
            assert_eq!(house.signed(job.0).await.len(), 1);
            house.agree(&[job], 30_000).await;
        });
    }
}

/// A database may have such a slot from before: what it would pay is not signed, and people see why.
#[test]
fn what_pays_a_job_that_is_over_is_not_signed() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[5_000_000, 7_000_000]).await;
        let (over, other) = (house.add_with(30_000, 1).await, house.add_with(30_000, 1).await);
        house.pen.away.store(true, Ordering::Relaxed);
        assert_eq!(house.round().await.slots, 1);
        let id = over.0.number();
        db.by_hand(&format!("UPDATE outbound_jobs SET state = 'failed_final', slot_id = NULL WHERE id = {id}"))
            .await
            .unwrap();
        house.pen.away.store(false, Ordering::Relaxed);
        let sent = house.round().await;
        assert_eq!((sent.signed, sent.told), (0, 0), "{sent:?}");
        let why = house.shown(other.0).await.lane_stopped.unwrap();
        assert!(why.contains("makes no sense"), "{why}");
        let said = db.judge_job(other.0, JobVerdict::Unpaid, &people(), house.clock.now()).await.unwrap();
        assert_eq!(said, JobReply::Done, "its coins are free");
    });
}

/// The replacement pays the same and spends all the same coins, so only one of them can be mined.
#[test]
fn what_waits_too_long_is_replaced_by_what_pays_the_same() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[40_000, 50_000, 60_000, 5_000_000]).await;
        let jobs = [house.add_with(30_000, 1).await, house.add_with(30_000, 1).await, house.add_with(30_000, 1).await];
        house.round().await;
        house.act(|model| model.fee_factor(4));
        house.pass(599);
        assert_eq!(house.round().await.replaced, 0);
        house.pass(1);
        let sent = house.round().await;
        assert_eq!((sent.replaced, sent.signed, sent.told), (1, 1, 1), "{sent:?}");
        let made = house.signed(jobs[0].0).await;
        assert_eq!(made.len(), 2);
        assert!(inputs(&made[0]).is_subset(&inputs(&made[1])), "a coin that was dropped would let both be mined");
        assert!(
            house.shown(jobs[0].0).await.job.reason.contains("nodes have it"),
            "{:?}",
            house.shown(jobs[0].0).await
        );
        house.settle().await;
        house.agree(&jobs, 30_000).await;
    });
}

/// The one that was replaced is mined after all.
#[test]
fn the_replaced_one_may_win() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[5_000_000]).await;
        let jobs = [house.add_with(30_000, 1).await];
        house.round().await;
        db.bump_job(jobs[0].0, "ann", house.clock.now()).await.unwrap();
        house.pass(10);
        assert_eq!(house.round().await.replaced, 1);
        let made = house.signed(jobs[0].0).await;
        house.mine(1).await;
        house.round().await;
        assert_eq!(house.state(jobs[0].0).await, JobState::Confirming);
        let first = bitcoin::consensus::serialize(&made[0]);
        house.act(|model| model.reorg(1, Fate::Dropped, &[first], house.clock.now())).unwrap();
        house.follow().await;
        house.settle().await;
        house.agree(&jobs, 30_000).await;
    });
}

/// What builds on the one that was replaced can never be mined: its payouts are made again, once.
#[test]
fn what_builds_on_a_loser_is_paid_by_another() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[5_000_000]).await;
        let first = house.add_with(30_000, 1).await;
        house.round().await;
        db.bump_job(first.0, "ann", house.clock.now()).await.unwrap();
        house.pass(10);
        assert_eq!(house.round().await.replaced, 1);
        let made = house.signed(first.0).await;
        // It spends what the replacement brings back.
        let second = house.add_with(30_000, 1).await;
        assert_eq!(house.round().await.slots, 1);
        let child = house.signed(second.0).await;
        assert!(inputs(&child[0]).iter().any(|input| input.txid == made[1].compute_txid()));
        house.mine(1).await;
        let loser = bitcoin::consensus::serialize(&made[0]);
        house.act(|model| model.reorg(1, Fate::Dropped, &[loser], house.clock.now())).unwrap();
        house.follow().await;
        for _ in 0..4 {
            house.settle().await;
            house.pass(60);
        }
        let jobs = [first, second];
        house.agree(&jobs, 30_000).await;
    });
}

/// The last one of a line pays for those before it, and those are left alone.
#[test]
fn the_last_of_a_line_pays_for_all() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[5_000_000]).await;
        let mut jobs = Vec::new();
        for _ in 0..3 {
            jobs.push(house.add_with(30_000, 1).await);
            assert_eq!(house.round().await.slots, 1);
        }
        house.act(|model| model.fee_factor(4));
        house.pass(600);
        assert_eq!(house.round().await.replaced, 1);
        let mut counts = Vec::new();
        for (job, _) in &jobs {
            counts.push(house.signed(*job).await.len());
        }
        assert_eq!(counts, [1, 1, 2]);
        house.settle().await;
        house.agree(&jobs, 30_000).await;
    });
}

/// The same when they are of two wallets, whose lanes the senders of a process share.
#[test]
fn the_last_of_a_line_of_two_wallets_pays_for_all() {
    for engine in crate::engines() {
        on(engine, async |db| {
            let limits = OutboundLimits { fee_cap: raw(50_000), ..GATHER };
            let house = House::with(db, &[5_000_000], limits, 2).await;
            let mut jobs = Vec::new();
            for _ in 0..3 {
                jobs.push(house.add_with(30_000, 1).await);
                assert_eq!(house.round_of_all().await.slots, 1);
            }
            let mut lanes = BTreeSet::new();
            for (job, _) in &jobs {
                lanes.insert(house.shown(*job).await.job.lane);
            }
            assert_eq!(lanes.len(), 2);
            house.act(|model| model.fee_factor(4));
            house.pass(600);
            assert_eq!(house.round_of_all().await.replaced, 1);
            let (mut counts, mut line) = (Vec::new(), Vec::new());
            for (job, _) in &jobs {
                let mut made = house.signed(*job).await;
                counts.push(made.len());
                line.push(made.pop().unwrap());
            }
            assert_eq!(counts, [1, 1, 2]);
            let size: u64 = line.iter().map(|one| u64::try_from(one.vsize()).unwrap()).sum();
            let back: u64 =
                line[2].output.iter().map(|output| output.value.to_sat()).filter(|value| *value != 30_000).sum();
            let fees = 5_000_000 - 3 * 30_000 - back;
            assert!(fees >= size * 35, "it pays {fees} for {size} bytes: the network asks for 40 for each");
            house.settle().await;
            house.agree(&jobs, 30_000).await;
        });
    }
}

/// Further coins are leased while a replacement is planned. One that is not written after all, because people halt, holds none.
#[test]
fn a_replacement_that_is_not_written_holds_no_coin() {
    for engine in crate::engines() {
        on(engine, async |db| {
            let house = House::start(db, &[33_000, 5_000_000]).await;
            let wallet = db.wallets().await.unwrap().into_iter().find(|one| one.name == "hot").unwrap().id;
            let filter = ListFilter { account: None, unspent_only: true, after: None, most: 9 };
            let outputs = db.list_outputs(wallet, &filter, house.clock.now()).await.unwrap();
            let large = outputs.iter().find(|output| output.amount == 5_000_000).unwrap().outpoint;
            let (lock, until) = (LockId([9; 32]), house.clock.now().plus_micros(3_600_000_000));
            db.lease(wallet, &[large], lock, until, house.clock.now()).await.unwrap();
            let jobs = [house.add_with(30_000, 1).await];
            assert_eq!(house.round().await.told, 1, "it has the small coin");
            assert_eq!(db.release(wallet, lock).await.unwrap(), 1);
            house.act(|model| model.fee_factor(4));
            house.pass(600);
            db.by_hand("UPDATE chains SET status = 'suspended'").await.unwrap();
            let sent = house.round().await;
            assert_eq!((sent.replaced, sent.told), (0, 1), "what nodes have they are told again");
            assert_eq!(db.leases(wallet, None, 9).await.unwrap(), []);
            db.by_hand("UPDATE chains SET status = 'active'").await.unwrap();
            house.pass(600);
            assert_eq!(house.round().await.replaced, 1);
            assert_eq!(house.signed(jobs[0].0).await[1].input.len(), 2);
            house.settle().await;
            house.agree(&jobs, 30_000).await;
        });
    }
}

#[test]
fn what_a_reorganisation_takes_is_sent_again() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[5_000_000]).await;
        let jobs = [house.add_with(30_000, 1).await];
        house.round().await;
        let made = house.signed(jobs[0].0).await;
        for _ in 0..4 {
            house.mine(1).await;
            house.round().await;
        }
        assert_eq!(house.state(jobs[0].0).await, JobState::Confirmed);
        house.act(|model| model.reorg(5, Fate::Dropped, &[], house.clock.now())).unwrap();
        house.follow().await;
        house.round().await;
        assert!(house.state(jobs[0].0).await != JobState::Confirmed);
        house.pass(60);
        house.settle().await;
        assert_eq!(house.signed(jobs[0].0).await, made, "the same bytes");
        house.agree(&jobs, 30_000).await;
    });
}

/// A reorganisation deeper than what is believed for good spends otherwise what a payout's coin was made of. The payout can be mined nowhere, and no
/// node proves that of it; the books prove it of the coin. So two people may say what becomes of one payout, and the other is paid again, once.
#[test]
fn people_end_what_spends_a_coin_that_has_vanished() {
    for verdict in [JobVerdict::Unpaid, JobVerdict::Again] {
        for engine in crate::engines() {
            on(engine, async |db| {
                let house = House::start(db, &[]).await;
                let (stranger, elsewhere) = (Key::numbered(77).bitcoin(NETWORK), Key::numbered(78).bitcoin(NETWORK));
                house.fund(&stranger, 6_000_000);
                house.mine(1).await;
                let tip = house.chain.head().await.unwrap().tip.height;
                let mut watched = Watched::default();
                watched.insert(WatchKey::of(&stranger));
                let scan = house.chain.scan(tip, tip, &watched).await.unwrap();
                let [coin] = scan.outputs.as_slice() else { panic!("{:?}", scan.outputs) };
                let Place::Output(index) = coin.place else { panic!("{coin:?}") };
                let script = stranger.script_bytes().unwrap();
                let coin = tx::Input {
                    transaction: coin.transaction,
                    index,
                    amount_sat: 6_000_000,
                    script,
                    sequence: SEQUENCE,
                };
                let deposit = crate::world::spend(77, std::slice::from_ref(&coin), &[(house.own(), 5_950_000)]);
                let rival = crate::world::spend(77, &[coin], &[(elsewhere, 5_900_000)]);
                house.chain.broadcast(&deposit).await.unwrap();
                house.mine(6).await;
                let jobs = [house.add_with(30_000, 1).await, house.add_with(30_000, 1).await];
                assert_eq!(house.round().await.told, 1);
                let judge = async || db.judge_job(jobs[0].0, verdict, &people(), house.clock.now()).await.unwrap();
                assert_eq!(judge().await, JobReply::NotNow(JobState::Broadcasted), "it may still be mined");
                house.act(|model| model.reorg(6, Fate::Dropped, &[rival], house.clock.now())).unwrap();
                house.follow().await;
                house.pass(60);
                house.round().await;
                assert_eq!(house.state(jobs[0].0).await, JobState::Broadcasted, "the chain proves nothing of it");
                assert_eq!(judge().await, JobReply::Done);
                house.fund(&house.own(), 4_000_000);
                house.mine(6).await;
                for _ in 0..3 {
                    house.settle().await;
                }
                let (paid, over) = match verdict {
                    JobVerdict::Unpaid => (&jobs[1..], &jobs[..1]),
                    JobVerdict::Again | JobVerdict::Paid => (&jobs[..], &jobs[..0]),
                };
                house.agree(paid, 30_000).await;
                for (job, to) in over {
                    assert_eq!(house.state(*job).await, JobState::FailedFinal);
                    assert_eq!(house.balance(to).await, 0);
                }
            });
        }
    }
}

/// Small coins are taken along while that is cheap, and stay where they are when it is not.
#[test]
fn small_coins_are_joined_while_that_is_cheap() {
    // The devnet asks for 10,000.
    for (join_below, taken) in [(9_999, 1), (10_000, 5)] {
        on(Engine::Sqlite, async |db| {
            let limits = OutboundLimits { fee_cap: raw(50_000), join_below, ..GATHER };
            let house = House::with(db, &[900, 1_000, 1_100, 1_200, 5_000_000], limits, 1).await;
            let job = house.add_with(30_000, 1).await;
            house.round().await;
            let made = house.signed(job.0).await;
            assert_eq!(made[0].input.len(), taken);
            house.settle().await;
            house.agree(&[job], 30_000).await;
        });
    }
}

/// A small coin that another payout needs is not taken along by the first.
#[test]
fn small_coins_that_a_payout_could_need_are_not_joined() {
    on(Engine::Sqlite, async |db| {
        // Each in a transaction of its own. The devnet asks for 10,000: up to 34,000 is small.
        let limits = OutboundLimits { fee_cap: raw(5_000), join_below: 10_000, gather_most: 1, ..GATHER };
        let house = House::with(db, &[5_000_000, 100_000, 20_000], limits, 1).await;
        let large = house.add_with(4_000_000, 1).await;
        let needy = house.add_with(110_000, 2).await;
        assert_eq!(house.round().await.slots, 2, "{}", house.shown(needy.0).await.job.reason);
        assert_eq!(house.signed(large.0).await[0].input.len(), 1);
        assert_eq!(house.signed(needy.0).await[0].input.len(), 2);
        house.settle().await;
        house.agree(&[large], 4_000_000).await;
        house.agree(&[needy], 110_000).await;
    });
    // Nor one that a payout of another wallet of the group needs, which spends the same coins.
    on(Engine::Sqlite, async |db| {
        let limits = OutboundLimits { fee_cap: raw(5_000), join_below: 10_000, gather_most: 1, ..GATHER };
        let house = House::with(db, &[5_000_000, 100_000, 20_000], limits, 2).await;
        let large = house.add_with(4_000_000, 1).await;
        let needy = house.add_with(110_000, 2).await;
        assert_ne!(house.shown(large.0).await.from, house.shown(needy.0).await.from);
        assert_eq!(house.round().await.slots, 2, "{}", house.shown(needy.0).await.job.reason);
        assert_eq!(house.signed(large.0).await[0].input.len(), 1);
        assert_eq!(house.signed(needy.0).await[0].input.len(), 2);
        house.settle().await;
        house.agree(&[large], 4_000_000).await;
        house.agree(&[needy], 110_000).await;
    });
    // With enough for all it goes along.
    on(Engine::Sqlite, async |db| {
        let limits = OutboundLimits { fee_cap: raw(5_000), join_below: 10_000, gather_most: 1, ..GATHER };
        let house = House::with(db, &[5_000_000, 200_000, 20_000], limits, 1).await;
        let large = house.add_with(4_000_000, 1).await;
        let other = house.add_with(110_000, 2).await;
        assert_eq!(house.round().await.slots, 2, "{}", house.shown(other.0).await.job.reason);
        assert_eq!(house.signed(large.0).await[0].input.len(), 2);
        house.settle().await;
        house.agree(&[large], 4_000_000).await;
    });
}

/// What cannot be paid rests; what can be is not kept by it.
#[test]
fn too_little_for_all_is_enough_for_some() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[100_000]).await;
        let good = house.add_with(30_000, 1).await;
        let large = house.add_with(90_000, 2).await;
        let dust = house.add_with(100, 2).await;
        house.round().await;
        assert_eq!(house.state(dust.0).await, JobState::FailedFinal);
        house.round().await;
        assert_eq!(house.state(large.0).await, JobState::FailedRetryable);
        house.settle().await;
        house.agree(&[good], 30_000).await;
        assert_eq!((house.balance(&large.1).await, house.balance(&dust.1).await), (0, 0));
    });
}

/// One that the signer refuses does not take the others with it.
#[test]
fn what_is_refused_goes_alone_from_then_on() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[5_000_000, 4_000_000, 3_000_000]).await;
        let good = [house.add_with(30_000, 1).await, house.add_with(30_000, 1).await];
        // No intent may live so long.
        let bad = house.add_for(30_000, 1, 100).await;
        let sent = house.round().await;
        assert_eq!((sent.slots, sent.refused), (1, 1));
        house.pass(61);
        assert_eq!(house.round().await.slots, 3);
        for _ in 0..6 {
            house.pass(1_000);
            house.settle().await;
        }
        house.agree(&good, 30_000).await;
        assert_eq!(house.state(bad.0).await, JobState::FailedFinal);
        assert_eq!(house.balance(&bad.1).await, 0);
    });
}

/// Nothing of its transaction is signed: it ends when the signer refuses it, and is not tried again. When something is signed nothing calls it off.
#[test]
fn what_nobody_has_signed_can_be_given_up() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[5_000_000, 4_000_000, 3_000_000]).await;
        let good = [house.add_with(30_000, 1).await];
        // No intent may live so long.
        let bad = house.add_for(30_000, 1, 100).await;
        house.pen.away.store(true, Ordering::Relaxed);
        assert_eq!(house.round().await.slots, 1);
        assert_eq!([house.state(good[0].0).await, house.state(bad.0).await], [JobState::Signing; 2]);
        let give_up = async |job: JobId| db.cancel_job(job, "ann", house.clock.now()).await.unwrap();
        assert_eq!(give_up(bad.0).await, JobReply::Done);
        house.pen.away.store(false, Ordering::Relaxed);
        assert_eq!(house.round().await.refused, 1);
        assert_eq!(house.state(bad.0).await, JobState::FailedFinal, "{}", house.shown(bad.0).await.job.reason);
        house.pass(61);
        assert_eq!(house.round().await.slots, 1);
        assert_eq!(give_up(good[0].0).await, JobReply::NotNow(JobState::Broadcasted));
        for _ in 0..3 {
            house.settle().await;
        }
        house.agree(&good, 30_000).await;
        assert_eq!(house.balance(&bad.1).await, 0);
    });
}

/// All coins are at the first wallet; the second pays with them too, and what is left stays where the signer lets it.
#[test]
fn wallets_of_a_group_pay_with_its_coins() {
    on(Engine::Sqlite, async |db| {
        let limits = OutboundLimits { fee_cap: raw(50_000), ..GATHER };
        let house = House::with(db, &[5_000_000, 4_000_000, 3_000_000], limits, 2).await;
        let jobs = [house.add_with(30_000, 1).await, house.add_with(30_000, 1).await];
        assert_eq!(house.round().await.slots, 2, "one of each wallet");
        house.settle().await;
        house.agree(&jobs, 30_000).await;
    });
}

/// Anybody can pay to an address that no wallet of the house has any more. That stops nothing.
#[test]
fn coins_of_a_former_wallet_are_left_where_they_are() {
    on(Engine::Sqlite, async |db| {
        let limits = OutboundLimits { fee_cap: raw(50_000), join_below: 20_000, ..GATHER };
        let house = House::with(db, &[5_000_000], limits, 1).await;
        let former = house.pinned.group(&id("hot")).unwrap().group.address(7).unwrap();
        let wallet = db.wallets().await.unwrap().into_iter().find(|one| one.name == "hot").unwrap().id;
        let script = former.script_bytes().unwrap();
        let kind = custody::bitcoin::kind_of_script(&script);
        let address = NewAddress { account: 1, path: None, kind, script };
        db.add_addresses(wallet, &[address], Paths::Exact, house.clock.now()).await.unwrap();
        for amount in [900, 35_000, 6_000_000] {
            house.fund(&former, amount);
        }
        house.mine(6).await;
        let jobs = [house.add_with(30_000, 1).await];
        assert_eq!(house.round().await.told, 1);
        house.settle().await;
        assert_eq!(house.state(jobs[0].0).await, JobState::Confirmed);
        assert_eq!(house.balance(&former).await, 6_035_900);
    });
}

/// Coins that leave by a transaction that is none of ours stop all that its keys sign.
#[test]
fn a_stranger_with_the_key_stops_the_group() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[5_000_000, 4_000_000]).await;
        let paid = house.add_with(30_000, 1).await;
        house.round().await;
        house.settle().await;
        assert_eq!(house.shown(paid.0).await.lane_stopped, None, "what we pay stops nothing");
        // The same keys, and a memory of its own.
        let stranger = LocalSigner::new(POLICY, keyring(), Arc::<ManualClock>::clone(&house.clock)).unwrap();
        let wallet = db.wallets().await.unwrap().into_iter().find(|one| one.name == "hot").unwrap().id;
        let filter = ListFilter { account: None, unspent_only: true, after: None, most: 9 };
        let outputs = db.list_outputs(wallet, &filter, house.clock.now()).await.unwrap();
        let coin = db.coins_of(wallet, &[outputs[0].outpoint]).await.unwrap();
        let to = Key::numbered(4_000).bitcoin(NETWORK);
        let costs = Costs { rate: 5_000, long_term_rate: 1_000, most_fee: 50_000 };
        let recipients = vec![Recipient { amount: 700_000, script: to.script_bytes().unwrap() }];
        let target = Target { recipients, change: ScriptKind::P2wpkh, costs, aim: Aim::Pay };
        let planned = plan(&coin, &target, &house.own().script_bytes().unwrap()).unwrap();
        let unsigned = unsigned(&planned, NETWORK, 0).unwrap();
        let intent = Intent {
            signer: "desk".parse().unwrap(),
            network: SignerChain::Bitcoin(NETWORK),
            job: signer::names::JobId::Job(house.ids.next::<domain::id::Job>().unwrap().number()),
            round: 0,
            chain: "net".parse().unwrap(),
            group: id("hot"),
            kind: IntentKind::Pay { payment: Payment { to, coin: Coin::Native, amount: raw(700_000) }, owner: None },
            most_fee: raw(50_000),
            expires: house.clock.now().plus_micros(3_600_000_000),
            builds: 1,
            requester: "mallory".parse().unwrap(),
        };
        let bitcoin = BitcoinTerms { inputs: vec![0], change: vec![0], lock_time: 0, sequence: SEQUENCE };
        let request = SignRequest {
            id: "theft".parse().unwrap(),
            chain: "net".parse().unwrap(),
            group: id("hot"),
            index: 0,
            payload: unsigned.bytes,
            intents: vec![intent],
            bitcoin: Some(bitcoin),
            replaces: None,
            approvals: Vec::new(),
        };
        let answers = stranger.sign(&[request]).unwrap();
        let [SignAnswer::Signed { signed, .. }] = answers.as_slice() else { panic!("{answers:?}") };
        house.chain.broadcast(&signed.bytes).await.unwrap();
        house.mine(1).await;
        let job = house.add_with(30_000, 1).await;
        assert_eq!(house.round().await.slots, 0);
        let why = house.shown(job.0).await.lane_stopped.unwrap();
        assert!(why.contains("none of ours"), "{why}");
    });
}

// ---- the chain's books -----------------------------------------------------------------------------------------

/// What the network takes ends in `gas`, as on other chains; what is left in `suspense` is what the payouts were settled with, to the satoshi. A reorganisation
/// takes both back, and brings them again.
#[test]
fn what_a_payout_costs_ends_in_gas() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[1_000_000, 300_000]).await;
        let jobs = [house.add_with(600_000, 1).await.0, house.add_with(600_000, 1).await.0];
        house.pass(31);
        house.round().await;
        let mut random = Random::from_seed(7);
        let (row, pinned) = (house.row.clone(), Arc::clone(&house.pinned));
        let mut worker =
            DepositWorker::take(db, &house.chain, row, pinned, "one", &mut random, house.clock.now()).await.unwrap();
        let system = async |kind: AccountKind| {
            let asset = house.row.listings[0].asset;
            let wanted = [store::ledger::NewAccount::system(&kind, asset).unwrap()];
            let opened = db.open(&wanted, house.clock.now()).await.unwrap();
            let store::ledger::Opened::Account(account) = opened[0] else { panic!("{kind}") };
            let sums = store::ledger::balances::system_balances(&mut db.read().await.unwrap()).await.unwrap();
            sums.get(&account).copied().unwrap_or(0)
        };
        let post = async |worker: &mut DepositWorker<'_>| {
            for _ in 0..20 {
                worker.round(&*house.clock).await.unwrap();
            }
        };
        for _ in 0..4 {
            house.mine(1).await;
            house.round().await;
        }
        post(&mut worker).await;
        let (gas, suspense) = (system(AccountKind::Gas).await, system(AccountKind::Suspense).await);
        assert!(gas < 0);
        assert_eq!(suspense, 1_300_000 - 1_200_000);
        house.act(|model| model.reorg(5, Fate::Dropped, &[], house.clock.now())).unwrap();
        house.follow().await;
        post(&mut worker).await;
        assert_eq!(
            (system(AccountKind::Gas).await, system(AccountKind::Suspense).await),
            (0, 1_300_000),
            "it is taken back"
        );
        house.pass(60);
        house.settle().await;
        post(&mut worker).await;
        assert_eq!(house.state(jobs[0]).await, JobState::Confirmed);
        let costs = db.slot_fees(house.row.id, 0, 99).await.unwrap();
        let costs: i128 = costs.iter().map(|(_, fee)| fee.to_string().parse::<i128>().unwrap()).sum();
        assert_eq!((-costs, 100_000), (gas, suspense));
        assert_eq!((system(AccountKind::Gas).await, system(AccountKind::Suspense).await), (gas, suspense));
        assert!(db.audit(|_| {}).await.unwrap().clean());
    });
}

// ---- deposits --------------------------------------------------------------------------------------------------

/// Whoever owns the database gives a user another's address, or writes a stranger's: nothing is credited by that.
#[test]
fn a_row_that_does_not_fit_its_key_credits_nobody_on_bitcoin() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[]).await;
        let users = [7, 8, 9].map(|number| UserId::new(number).unwrap());
        let wallets = assign(db, &house.pinned, &id("users"), &users, house.clock.now()).await.unwrap().wallets;
        for wallet in &wallets {
            house.fund(&wallet.address, 100_000);
        }
        house.mine(1).await;
        let rows = [
            // User 6 is said to have the address of user 7; and that of user 9 is said to be one of a stranger.
            "UPDATE user_wallets SET user_id = 6, derivation_index = 6 WHERE user_id = 7".to_owned(),
            format!("UPDATE user_wallets SET address = '{}' WHERE user_id = 9", Key::numbered(9).bitcoin(NETWORK)),
        ];
        for row in &rows {
            crate::wallet_rows::tamper(db, row).await;
        }
        house.mine(8).await;
        let mut random = Random::from_seed(7);
        let (row, pinned) = (house.row.clone(), Arc::clone(&house.pinned));
        let mut worker =
            DepositWorker::take(db, &house.chain, row, pinned, "one", &mut random, house.clock.now()).await.unwrap();
        let (mut credited, mut left_over) = (0, 0);
        for _ in 0..20 {
            let worked = worker.round(&*house.clock).await.unwrap();
            credited += worked.posted.credited;
            left_over += worked.posted.left_over;
        }
        assert_eq!((credited, left_over), (1, 2));
        let deposits = db.deposits(&DepositFilter::default(), i64::MAX, 10).await.unwrap();
        let mut ends: Vec<(Option<i64>, Option<&str>)> =
            deposits.iter().map(|one| (one.user, one.reason.as_deref())).collect();
        ends.sort();
        assert_eq!(ends, [(None, Some("no_user")), (None, Some("row_differs")), (Some(8), None)], "{deposits:#?}");
        let findings = db.open_findings(0, 10).await.unwrap();
        assert!(findings.iter().any(|one| one.kind == "row_differs"), "{findings:#?}");
        assert!(db.audit(|_| {}).await.unwrap().clean());
    });
}
