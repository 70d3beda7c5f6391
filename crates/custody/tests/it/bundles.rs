//! Bitcoin: what users' addresses hold comes home together, in one transaction from which nothing comes back. Three nodes of the devnet or a real one, the
//! wallet's own follower, the chain's books, rules and the signer's core. What came home is asked of the chain.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use bitcoin::consensus::{deserialize, serialize};
use bitcoin::{Network, Transaction};
use chain::Chain;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::{EndpointSettings, Pool, PoolSettings};
use custody::bitcoin::{Follow, Step};
use custody::deposit::DepositWorker;
use custody::deposit::work::begin;
use custody::outbound::{SendWorker, WatchWorker};
use custody::treasury::{Decided, RulesWorker};
use custody::wallet::house::watch_house;
use custody::wallet::{Pinned, assign};
use devnet::bitcoin::{BitcoinDevnet, Settings};
use devnet::{Fate, Key, Model, Served};
use domain::deposit::DepositState;
use domain::id::{Generator, NodeId};
use domain::outbound::{JobKind, JobState, OutboundLimits};
use domain::random::Random;
use domain::treasury::{Operator, Waits};
use domain::utxo::Hash;
use domain::{Amount, Clock, ManualClock, Purpose, Timestamp, UserId, WalletRole};
use signer::keys::{GroupSecret, Keyring, Mnemonic};
use signer::local::LocalSigner;
use store::catalog::{Author, Catalog};
use store::deposit::{DepositFilter, DepositRow};
use store::entry::ChainRow;
use store::grants::DatabaseRole;
use store::outbound::{JobFilter, NewJob, Payer, ShownJob};
use store::testing::{TestDb, on};
use store::treasury::cost::CostKind;
use store::treasury::{BandSetting, SweepRuleSetting};
use store::utxo::{LockId, WalletId};
use store::{Db, Engine};
use tx::{Address, Coin, Family};

use crate::deposits::{id, raw};
use crate::node::Node;
use crate::outbound::Pen;
use crate::payouts::{GATHER, catalog};
use crate::wallet_rows::tamper;

const WORDS: &str = "test test test test test test test test test test test junk";
const NETWORK: Network = Network::Regtest;
const CONFIRMATIONS: u64 = 3;
const GROUPS: [(&str, Purpose, u32); 3] =
    [("users", Purpose::Deposit, 0), ("hot", Purpose::Hot, 1), ("treasury", Purpose::Treasury, 2)];

fn keyring() -> Keyring {
    let secret = |(name, purpose, account)| GroupSecret {
        id: id(name),
        purpose,
        family: Family::Bitcoin(NETWORK),
        account,
        mnemonic: Mnemonic::parse(WORDS).unwrap(),
    };
    Keyring::of(GROUPS.map(secret).into_iter().collect()).unwrap()
}

fn policy() -> String {
    let much = "2100000000000000";
    let group = |name: &str, role: &str, coin: &str| {
        format!(
            "[[group]]\nid = \"{name}\"\nchain = \"net\"\nrole = \"{role}\"\nmost_fee = \"{much}\"\nmost_fee_day = \"{much}\"\n\
             coin = [{{ coin = \"native\"{coin} }}]\n"
        )
    };
    let capped = format!(", payment = \"{much}\", hour = \"{much}\", day = \"{much}\"");
    [
        "signer = \"desk\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 48\n\
         chain = [{ name = \"net\", kind = \"bitcoin\", network = \"regtest\" }]\n"
            .to_owned(),
        group("users", "deposit", ""),
        group("hot", "hot", &capped),
        group("treasury", "treasury", ""),
    ]
    .concat()
}

/// If users' addresses have more than so much together, bring it home.
fn rules(threshold: i64, most_cost_bps: Option<u32>) -> Catalog {
    let mut catalog = catalog(OutboundLimits { fee_cap: raw(50_000), ..GATHER });
    let sweep = SweepRuleSetting {
        chain: "net".parse().unwrap(),
        asset: "BTC".parse().unwrap(),
        operator: Operator::Above,
        threshold: Amount::from_units(threshold),
        most_cost_bps,
        priority: 400,
        cool_down_s: 60,
        most_per_hour: 100,
        active: true,
    };
    catalog.rules.sweeps.insert("btc".to_owned(), sweep);
    catalog
}

/// Who makes the blocks.
enum Net {
    Devnet(Served<BitcoinDevnet>),
    Bitcoind(Box<tokio::sync::Mutex<Node>>),
}

/// Nodes, wallets and books, a signer, a hot wallet and a treasury.
struct Town<'a> {
    db: &'a TestDb,
    net: Net,
    clock: Arc<ManualClock>,
    chain: BitcoinChain,
    pinned: Arc<Pinned>,
    row: ChainRow,
    pen: Pen,
    ids: Generator<Arc<ManualClock>>,
}

impl<'a> Town<'a> {
    async fn start(db: &'a TestDb, rules: &Catalog) -> Self {
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
        let settings = BitcoinSettings { confirmations: CONFIRMATIONS, ..BitcoinSettings::new(NETWORK) };
        let chain = BitcoinChain::new(settings, pool);
        Self::at(db, rules, Net::Devnet(served), chain, clock).await
    }

    async fn on_bitcoind(db: &'a TestDb, rules: &Catalog) -> Self {
        let node = Node::start().await;
        let (chain, clock) = (node.client(), Arc::new(ManualClock::at(Settings::default().start)));
        Self::at(db, rules, Net::Bitcoind(Box::new(tokio::sync::Mutex::new(node))), chain, clock).await
    }

    async fn at(db: &'a TestDb, rules: &Catalog, net: Net, chain: BitcoinChain, clock: Arc<ManualClock>) -> Self {
        let signer = LocalSigner::new(&policy(), keyring(), Arc::<ManualClock>::clone(&clock)).unwrap();
        let mut pinned = Pinned::default();
        for (name, ..) in GROUPS {
            pinned.add_group(signer.group(&id(name)).unwrap(), true).unwrap();
        }
        let family = Family::Bitcoin(NETWORK);
        for (role, group) in [(WalletRole::Hot, "hot"), (WalletRole::Treasury, "treasury")] {
            pinned.add_derived(("net".parse().unwrap(), family), role, (&id(group), 0), true).unwrap();
        }
        let author = Author { actor: "test", reason: "set-up" };
        db.apply_treasury(rules, &pinned.settings(), &author, clock.now()).await.unwrap();
        watch_house(db, &pinned, (&"net".parse().unwrap(), family), clock.now()).await.unwrap();
        let row = db.chain(&"net".parse().unwrap()).await.unwrap().unwrap();
        let ids = Generator::new(Arc::clone(&clock), NodeId::new(3).unwrap());
        let pen = Pen { signer: Arc::new(signer), away: AtomicBool::new(false), loses: AtomicBool::new(false) };
        let town = Self { db, net, clock, chain, pinned: Arc::new(pinned), row, pen, ids };
        let first = town.chain.head().await.unwrap().tip.height;
        town.follow().await;
        begin(db.of(DatabaseRole::Deposits), &town.chain, &town.row, Some(first), town.clock.now()).await.unwrap();
        town
    }

    fn act<T>(&self, act: impl FnOnce(&mut BitcoinDevnet, Timestamp) -> T) -> T {
        let Net::Devnet(served) = &self.net else { panic!("bitcoind does not do that") };
        act(&mut served.model.lock().unwrap_or_else(PoisonError::into_inner), self.clock.now())
    }

    async fn address(&self, user: i64) -> Address {
        let user = UserId::new(user).unwrap();
        let now = self.clock.now();
        assign(self.db.of(DatabaseRole::Api), &self.pinned, &id("users"), &[user], now)
            .await
            .unwrap()
            .wallets
            .remove(0)
            .address
    }

    fn house(&self, role: WalletRole) -> Address {
        self.pinned.wallets().find(|(_, _, wallet)| wallet.role == role).unwrap().2.address.clone()
    }

    async fn pay(&self, user: i64, satoshi: u64) -> Address {
        let to = self.address(user).await;
        match &self.net {
            Net::Devnet(_) => self.act(|model, now| model.fund(&to.to_string(), None, raw(satoshi), now)).unwrap(),
            Net::Bitcoind(node) => {
                let mut node = node.lock().await;
                let coin = node.purse.pop().unwrap();
                node.send(&node.pays(&coin, &[(to.clone(), satoshi)], 5_000)).await.unwrap();
            }
        }
        to
    }

    fn wait(&self, seconds: i64) {
        self.clock.set(self.clock.now().plus_micros(seconds * 1_000_000));
    }

    /// Blocks, with whatever waits in the first of them; and the books.
    async fn mine(&self, blocks: u64) {
        self.wait(60);
        match &self.net {
            Net::Devnet(_) => self.act(|model, now| model.mine(blocks, now)),
            Net::Bitcoind(node) => node.lock().await.mine(blocks).await,
        }
        self.follow().await;
        self.book().await;
    }

    async fn reorg(&self, depth: u64, fate: Fate, with: &[Vec<u8>]) {
        self.act(|model, now| model.reorg(depth, fate, with, now)).unwrap();
        self.follow().await;
        self.book().await;
    }

    async fn follow(&self) {
        let mut follow = Follow::new(self.db.of(DatabaseRole::Follower), &self.chain, 0);
        while follow.step(50, self.clock.now()).await.unwrap() != Step::Idle {}
        follow.look(self.clock.now()).await.unwrap();
    }

    /// Deposits are credited.
    async fn book(&self) {
        let (row, pinned, mut random) = (self.row.clone(), Arc::clone(&self.pinned), Random::from_seed(7));
        let now = self.clock.now();
        let taken = DepositWorker::take(
            self.db.of(DatabaseRole::Deposits),
            &self.chain,
            row,
            pinned,
            "books",
            &mut random,
            now,
        )
        .await;
        let mut worker = taken.unwrap();
        while worker.round(&*self.clock).await.unwrap().is_busy() {}
    }

    /// The rules, by a worker that begins anew: how many jobs were made.
    async fn rules_on(&self, db: &Db, name: &str) -> Option<usize> {
        let make = || self.ids.next::<domain::id::Job>().ok().map(|id| id.number());
        let (row, pinned) = (self.row.clone(), Arc::clone(&self.pinned));
        let mut worker = RulesWorker::new(db, &self.chain, &make, row, pinned, name.to_owned()).unwrap();
        worker.round(&*self.clock).await.ok().map(|round| round.jobs)
    }

    async fn evaluate(&self) -> usize {
        self.rules_on(self.db.of(DatabaseRole::Rules), "rules").await.unwrap()
    }

    /// What would be decided.
    async fn eval(&self) -> Vec<Decided> {
        let (row, pinned, none) = (self.row.clone(), Arc::clone(&self.pinned), || None);
        let worker = RulesWorker::new(self.db, &self.chain, &none, row, pinned, "people".to_owned()).unwrap();
        let dry = worker.dry_run(None, self.clock.now()).await.unwrap();
        assert_eq!(dry.waits, None);
        dry.decided
    }

    async fn waits(&self) -> Option<Waits> {
        self.eval().await.first().and_then(|one| one.verdict.waits.first()).map(|(_, why)| *why)
    }

    async fn send_on(&self, db: &Db) -> Option<()> {
        self.send_by(db, db).await
    }

    async fn send_by(&self, sends: &Db, watches: &Db) -> Option<()> {
        let make = || self.ids.next::<domain::id::Job>().ok().map(|id| id.number());
        let (row, pinned) = (self.row.clone(), Arc::clone(&self.pinned));
        let (chain, signer, name) = (&self.chain, "desk".parse().unwrap(), "send".to_owned());
        let send = SendWorker::new(sends, chain, &self.pen, signer, &make, row.clone(), Arc::clone(&pinned), name);
        let sent = send.unwrap().round(&*self.clock).await;
        let watch =
            WatchWorker::new(watches, chain, row, pinned, "watch".to_owned()).unwrap().round(&*self.clock).await;
        sent.ok()?;
        watch.ok().map(|_| ())
    }

    async fn send(&self) {
        self.send_by(self.db.of(DatabaseRole::Outbound), self.db.of(DatabaseRole::Confirm)).await.unwrap();
    }

    /// Blocks with rounds of those who send, until everything is final.
    async fn settle(&self) {
        for _ in 0..8 {
            self.mine(1).await;
            self.send().await;
        }
    }

    /// Three customers pay, and their coins are final.
    async fn three_pay(&self) {
        for (user, satoshi) in [(7, 300_000), (8, 200_000), (4_711, 100_000)] {
            self.pay(user, satoshi).await;
        }
        self.mine(7).await;
    }

    async fn sweeps(&self) -> Vec<ShownJob> {
        let all = self.db.jobs(&JobFilter::default(), i64::MAX, 1_000).await.unwrap();
        assert!(all.iter().all(|shown| shown.job.kind == JobKind::Consolidation));
        all
    }

    /// What rules believe that the hot wallet has.
    async fn band(&self) -> u64 {
        let rows = self.db.hot_wallets(&self.row, 0).await.unwrap();
        rows[0].spendable.to_string().parse().unwrap()
    }

    /// A customer's payout by the hot wallet.
    async fn withdraw(&self, satoshi: u64) -> Address {
        let to = Key::numbered(2_001).bitcoin(NETWORK);
        let job = NewJob {
            id: self.ids.next().unwrap(),
            listing: self.row.listings[0].id,
            kind: JobKind::Withdrawal,
            reference: to.to_string(),
            to: to.to_string(),
            owner: None,
            amount: raw(satoshi),
            most_fee: self.row.outbound.fee_cap,
            priority: JobKind::Withdrawal.priority(),
            requester: "alice".to_owned(),
            expires: self.clock.now().plus_micros(3_600 * 1_000_000),
            payer: Payer::Role(WalletRole::Hot),
        };
        self.db.add_jobs(self.row.id, &[job], self.clock.now()).await.unwrap();
        to
    }

    async fn users_wallet(&self) -> WalletId {
        self.db.wallets().await.unwrap().into_iter().find(|one| one.name == "users").unwrap().id
    }

    /// A person leases one of the customers' coins: the largest, or the one after that.
    async fn lease_largest(&self, place: usize) -> LockId {
        let (wallet, now, lock) = (self.users_wallet().await, self.clock.now(), LockId([7; 32]));
        let coin = self.db.final_coins(wallet, 0, 1_000_000, now).await.unwrap()[place].outpoint;
        self.db.lease(wallet, &[coin], lock, now.plus_micros(i64::MAX / 4), now).await.unwrap();
        lock
    }

    /// All that was signed for a job.
    async fn signed(&self, job: &ShownJob) -> Vec<Transaction> {
        let slots = self.db.job(job.job.id).await.unwrap().unwrap().1;
        let attempts = slots.iter().flat_map(|slot| &slot.attempts);
        attempts.filter_map(|one| Some(deserialize(&one.signed.as_ref()?.0).unwrap())).collect()
    }

    async fn has(&self, of: &Address) -> u64 {
        let found = self.chain.balances(&[(of.clone(), Coin::Native)]).await.unwrap();
        found[0].to_string().parse().unwrap()
    }

    async fn deposits(&self) -> Vec<DepositRow> {
        self.db.deposits(&DepositFilter::default(), i64::MAX, 1_000).await.unwrap()
    }

    /// What a user was credited.
    async fn credited(&self, user: i64) -> i64 {
        let mut tx = self.db.read().await.unwrap();
        let accounts = store::ledger::balances::funding_of(&mut tx, UserId::new(user).unwrap()).await.unwrap();
        accounts.iter().map(|(_, account)| account.available.units()).sum()
    }

    /// The books are in order; each wallet has in the store and in its entries what the chain says; nothing is held by what is over.
    async fn agree(&self) {
        let report = self.db.audit(|_| {}).await.unwrap();
        assert!(report.clean(), "{report:?}");
        for wallet in self.db.wallets().await.unwrap() {
            assert_eq!(self.db.leases(wallet.id, None, 9).await.unwrap(), [], "of {}", wallet.name);
        }
        for balance in self.db.wallet_balances(&self.row, "", 1_000).await.unwrap() {
            let script = bitcoin::ScriptBuf::from_hex(balance.address.strip_prefix("script:").unwrap()).unwrap();
            let address = Address::Bitcoin(bitcoin::Address::from_script(&script, NETWORK).unwrap());
            assert_eq!(self.has(&address).await.to_string(), balance.raw, "{address}");
        }
    }

    /// The three payments came home once: each credited once, their addresses empty.
    async fn all_home(&self) {
        let [sweep] = self.sweeps().await.try_into().unwrap();
        assert_eq!(sweep.job.state, JobState::Confirmed, "{}", sweep.job.reason);
        let (home, amount) = (self.has(&self.house(WalletRole::Treasury)).await, sweep.job.amount.to_string());
        assert_eq!(home.to_string(), amount);
        assert!((590_000..600_000).contains(&home), "{home}");
        for (user, satoshi) in [(7, 300_000), (8, 200_000), (4_711, 100_000)] {
            assert_eq!(self.has(&self.address(user).await).await, 0);
            assert_eq!(self.credited(user).await, satoshi);
        }
        let credited = |row: &&DepositRow| matches!(row.state, DepositState::Credited | DepositState::Final);
        assert_eq!(self.deposits().await.iter().filter(credited).count(), 3, "what comes home is nobody's deposit");
        self.agree().await;
    }
}

fn on_engines(test: impl AsyncFn(Town<'_>)) {
    for engine in crate::engines() {
        on(engine, async |db| test(Town::start(db, &rules(500_000, None)).await).await);
    }
}

#[test]
fn what_three_customers_paid_comes_home_in_one_transaction() {
    for engine in crate::engines() {
        on(engine, async |db| comes_home(db).await);
    }
}

pub async fn comes_home(db: &TestDb) {
    let town = Town::start(db, &rules(500_000, None)).await;
    town.pay(7, 300_000).await;
    town.pay(8, 200_000).await;
    town.mine(7).await;
    assert_eq!(town.evaluate().await, 0, "500,000 is not above 500,000");
    assert_eq!(town.eval().await, []);
    town.pay(4_711, 100_000).await;
    town.mine(4).await;
    assert_eq!(town.evaluate().await, 0, "the last one is not final");
    town.mine(3).await;
    assert_eq!(town.eval().await.len(), 1, "what would be done can be seen before");
    assert_eq!(town.evaluate().await, 1);
    assert_eq!(town.evaluate().await, 0, "once");
    assert_eq!(town.waits().await, Some(Waits::SweepUnderWay));
    town.send().await;
    let [sweep] = town.sweeps().await.try_into().unwrap();
    let [made] = town.signed(&sweep).await.try_into().unwrap();
    assert_eq!((made.input.len(), made.output.len()), (3, 1), "nothing comes back to a user's address");
    town.settle().await;
    town.all_home().await;
    town.wait(3_600);
    assert_eq!(town.evaluate().await, 0, "nothing is left");
    assert_eq!(town.eval().await, []);
    // It cost what the chain took, which is what was expected.
    let costs = town.db.costs(Timestamp::from_micros(0)).await.unwrap();
    let [row] = costs.rows.try_into().unwrap();
    assert_eq!((row.kind, row.jobs, row.expected), (CostKind::Consolidation, 1, Some(row.fee)));
    let home = town.has(&town.house(WalletRole::Treasury)).await;
    assert_eq!(row.fee.to_string(), (600_000 - home).to_string());
    // What is paid later comes home by the next generation.
    town.pay(7, 600_000).await;
    town.mine(7).await;
    assert_eq!(town.evaluate().await, 1);
    town.settle().await;
    assert!(town.has(&town.house(WalletRole::Treasury)).await > 1_190_000);
    assert_eq!(town.credited(7).await, 900_000);
    town.agree().await;
}

/// Whoever has stolen the keys of a group has what comes to its addresses, and nothing can be sent from them.
#[test]
fn coins_are_brought_neither_from_nor_to_a_group_that_is_stopped() {
    on_engines(async |town| {
        with_band(&town, [0, 400_000, 900_000]).await;
        town.three_pay().await;
        let stop = async |group: &str| {
            let sql = format!(
                "UPDATE wallet_groups SET outbound_stopped = NULL; UPDATE wallet_groups SET outbound_stopped = 'stolen' WHERE name = '{group}'"
            );
            town.db.by_hand(&sql).await.unwrap();
        };
        for (group, why) in [("users", Waits::GroupStopped), ("treasury", Waits::HomeStopped)] {
            stop(group).await;
            assert_eq!((town.evaluate().await, town.waits().await), (0, Some(why)));
        }
        // It lacks some, and would have got it all.
        stop("hot").await;
        assert_eq!(town.evaluate().await, 1);
        let [sweep] = town.sweeps().await.try_into().unwrap();
        assert_eq!(sweep.job.to, town.house(WalletRole::Treasury).to_string());
        town.settle().await;
        town.all_home().await;
    });
}

/// A real node takes the transaction, and its own set of unspent outputs says where the coins are. What it forgets it is told again.
#[test]
fn what_three_customers_paid_comes_home_on_bitcoind() {
    for engine in crate::engines() {
        on(engine, async |db| {
            let town = Town::on_bitcoind(db, &rules(500_000, None)).await;
            town.three_pay().await;
            assert_eq!(town.evaluate().await, 1);
            town.send().await;
            let Net::Bitcoind(node) = &town.net else { panic!("it is bitcoind's") };
            let [sweep] = town.sweeps().await.try_into().unwrap();
            let [made] = town.signed(&sweep).await.try_into().unwrap();
            assert_eq!(node.lock().await.mempool().await, std::slice::from_ref(&made));
            node.lock().await.restart().await;
            assert_eq!(node.lock().await.mempool().await, []);
            town.wait(120);
            town.send().await;
            assert_eq!(node.lock().await.mempool().await, std::slice::from_ref(&made));
            town.mine(1).await;
            let lost = node.lock().await.height().await;
            let lost = node.lock().await.hash_at(lost).await;
            node.lock().await.invalidate(&lost).await;
            town.settle().await;
            let mut scripts = vec![town.house(WalletRole::Treasury).script_bytes().unwrap()];
            for user in [7, 8, 4_711] {
                scripts.push(town.address(user).await.script_bytes().unwrap());
            }
            let unspent = node.lock().await.unspent(&scripts).await;
            let unspent: Vec<(Hash, i64)> = unspent.iter().map(|one| (one.hash, one.amount)).collect();
            let amount = i64::try_from(made.output[0].value.to_sat()).unwrap();
            assert_eq!(unspent, [(custody::bitcoin::tx_of(&made).unwrap().hash, amount)]);
            town.wait(3_600);
            assert_eq!(town.evaluate().await, 0);
            town.all_home().await;
        });
    }
}

/// Every worker dies at every point of every write, and blocks leave the chain between: one job, one transaction, the same end.
#[test]
fn coins_come_home_once_with_every_worker_killed_at_every_step() {
    on(Engine::Sqlite, async |db| {
        let town = Town::start(db, &rules(500_000, None)).await;
        town.three_pay().await;
        // Whatever failed, the next one begins at the rows. Another worker has the rules every second time.
        for at in 0..60 {
            let faulty = crate::faulty::failing_at(db, at);
            town.rules_on(&faulty, ["one", "two"][usize::from(at % 2 == 0)]).await;
            // A worker that died has its leases until they are over.
            town.wait(121);
        }
        assert_eq!(town.sweeps().await.len(), 1);
        for at in 0..100 {
            let faulty = crate::faulty::failing_at(db, at);
            town.send_on(&faulty).await;
            if at % 16 == 15 {
                town.mine(1).await;
            }
            if at % 48 == 47 {
                town.reorg(2, Fate::Moved, &[]).await;
            }
            town.wait(61);
        }
        town.settle().await;
        town.evaluate().await;
        town.settle().await;
        let [sweep] = town.sweeps().await.try_into().unwrap();
        assert_eq!(town.signed(&sweep).await.len(), 1);
        town.all_home().await;
    });
}

#[test]
fn two_workers_at_once_make_one_job() {
    on_engines(async |town| {
        town.three_pay().await;
        let (one, two) = tokio::join!(town.rules_on(town.db, "one"), town.rules_on(town.db, "two"));
        assert_eq!(one.unwrap_or(0) + two.unwrap_or(0), 1);
        // And one that has the rules after it knows of it.
        town.wait(121);
        assert_eq!(town.rules_on(town.db, "three").await, Some(0));
        town.settle().await;
        town.all_home().await;
    });
}

/// A row that says that an address is another user's: what lies there stays, the others come home.
#[test]
fn an_address_whose_row_somebody_has_changed_is_not_swept() {
    on(Engine::Sqlite, async |db| {
        let town = Town::start(db, &rules(250_000, None)).await;
        town.three_pay().await;
        tamper(db, "UPDATE user_wallets SET user_id = 9, derivation_index = 9 WHERE user_id = 8").await;
        assert_eq!(town.evaluate().await, 1);
        town.send().await;
        let [sweep] = town.sweeps().await.try_into().unwrap();
        let [made] = town.signed(&sweep).await.try_into().unwrap();
        assert_eq!(made.input.len(), 2);
        assert!(made.output[0].value.to_sat() < 400_000);
        // Nothing else matches the rule, and why is said.
        town.settle().await;
        tamper(db, "UPDATE user_wallets SET user_id = 10, derivation_index = 10 WHERE user_id = 7").await;
        town.act(|model, now| {
            let address = made_address(&town, 7);
            model.fund(&address, None, raw(900_000), now)
        })
        .unwrap();
        town.mine(7).await;
        assert_eq!(town.evaluate().await, 0);
        assert_eq!(town.waits().await, Some(Waits::RowDiffers));
    });
}

fn made_address(town: &Town<'_>, user: u64) -> String {
    town.pinned.group(&id("users")).unwrap().group.address(user).unwrap().to_string()
}

/// The row is changed when the job is there already: nothing is signed for it.
#[test]
fn a_job_whose_address_changes_its_row_is_not_sent() {
    on(Engine::Sqlite, async |db| {
        let town = Town::start(db, &rules(500_000, None)).await;
        town.three_pay().await;
        assert_eq!(town.evaluate().await, 1);
        tamper(db, "UPDATE user_wallets SET user_id = 9, derivation_index = 9 WHERE user_id = 8").await;
        town.send().await;
        let [sweep] = town.sweeps().await.try_into().unwrap();
        assert!(sweep.job.reason.contains("WALLET_ROW_DIFFERS"), "{}", sweep.job.reason);
        assert_eq!(town.signed(&sweep).await, []);
        // As soon as it is mended the same job goes.
        tamper(db, "UPDATE user_wallets SET user_id = 8, derivation_index = 8 WHERE user_id = 9").await;
        town.wait(600);
        town.settle().await;
        town.all_home().await;
    });
}

/// A sweep whose block leaves the chain is sent again, the same bytes; a deposit that leaves it before is not there to be swept.
#[test]
fn a_reorganisation_takes_a_deposit_before_and_the_sweep_after() {
    on(Engine::Sqlite, async |db| {
        let town = Town::start(db, &rules(500_000, None)).await;
        town.pay(7, 400_000).await;
        town.mine(7).await;
        let late = town.pay(8, 200_000).await;
        town.mine(2).await;
        town.reorg(2, Fate::Dropped, &[]).await;
        town.mine(7).await;
        assert_eq!(town.has(&late).await, 0);
        assert_eq!(town.evaluate().await, 0, "what was dropped does not count");
        town.pay(8, 200_000).await;
        town.mine(7).await;
        assert_eq!(town.evaluate().await, 1);
        town.send().await;
        let [sweep] = town.sweeps().await.try_into().unwrap();
        let made = town.signed(&sweep).await;
        town.mine(2).await;
        town.send().await;
        town.reorg(2, Fate::Dropped, &[]).await;
        for _ in 0..6 {
            town.wait(61);
            town.send().await;
            town.evaluate().await;
        }
        town.settle().await;
        let [sweep] = town.sweeps().await.try_into().unwrap();
        assert_eq!((sweep.job.state, town.signed(&sweep).await), (JobState::Confirmed, made));
        assert_eq!((town.credited(7).await, town.credited(8).await), (400_000, 200_000));
        town.agree().await;
    });
}

/// The block of a swept deposit moves, with the deposit: the sweep spends the same coin.
#[test]
fn a_swept_deposit_that_moves_to_another_block_changes_nothing() {
    on(Engine::Sqlite, async |db| {
        let town = Town::start(db, &rules(500_000, None)).await;
        town.three_pay().await;
        assert_eq!(town.evaluate().await, 1);
        town.send().await;
        let [sweep] = town.sweeps().await.try_into().unwrap();
        let made = serialize(&town.signed(&sweep).await[0]);
        town.reorg(7, Fate::Moved, &[]).await;
        for _ in 0..6 {
            town.wait(61);
            town.send().await;
        }
        town.settle().await;
        town.settle().await;
        let [sweep] = town.sweeps().await.try_into().unwrap();
        assert_eq!(serialize(&town.signed(&sweep).await[0]), made);
        town.all_home().await;
    });
}

/// What costs more than its share waits with its reason, and goes when the price falls; so does a job whose price has risen since.
#[test]
fn what_is_too_dear_waits() {
    on(Engine::Sqlite, async |db| {
        let town = Town::start(db, &rules(500_000, Some(100))).await;
        town.three_pay().await;
        town.act(|model, _| model.fee_factor(4));
        assert_eq!(town.evaluate().await, 0);
        assert!(matches!(town.waits().await, Some(Waits::TooDear { .. })), "{:?}", town.waits().await);
        town.act(|model, _| model.fee_factor(100_000));
        assert_eq!(town.evaluate().await, 0);
        assert_eq!(town.waits().await, Some(Waits::NoFees), "it asks for more than is allowed");
        town.act(|model, _| model.fee_factor(1));
        assert_eq!(town.evaluate().await, 1);
        town.act(|model, _| model.fee_factor(4));
        town.send().await;
        let [sweep] = town.sweeps().await.try_into().unwrap();
        assert!(sweep.job.reason.contains("twice what it offers"), "{}", sweep.job.reason);
        town.act(|model, _| model.fee_factor(1));
        town.wait(120);
        town.settle().await;
        town.all_home().await;
    });
}

/// It has nothing more to offer, so it is told again until prices fall; and it is still the same transaction.
#[test]
fn a_sweep_that_waits_is_told_again_and_never_replaced() {
    on(Engine::Sqlite, async |db| {
        let town = Town::start(db, &rules(500_000, None)).await;
        town.pay(7, 5_000_000).await;
        town.three_pay().await;
        // Another coin at an address that it spends from could pay for more, and is not part of it.
        let lock = town.lease_largest(0).await;
        town.evaluate().await;
        db.release(town.users_wallet().await, lock).await.unwrap();
        // One worker, which knows the addresses that it has signed for.
        let make = || town.ids.next::<domain::id::Job>().ok().map(|id| id.number());
        let (row, pinned, signer) = (town.row.clone(), Arc::clone(&town.pinned), "desk".parse().unwrap());
        let name = "send".to_owned();
        let mut worker = SendWorker::new(db, &town.chain, &town.pen, signer, &make, row, pinned, name).unwrap();
        worker.round(&*town.clock).await.unwrap();
        let [sweep] = town.sweeps().await.try_into().unwrap();
        let asked = db.bump_job(sweep.job.id, "ann", town.clock.now()).await.unwrap();
        assert_eq!(asked, store::outbound::read::JobReply::NeverReplaced);
        town.act(|model, _| model.fee_factor(4));
        for _ in 0..5 {
            town.wait(1_200);
            let sent = worker.round(&*town.clock).await.unwrap();
            assert_eq!((sent.replaced, sent.told), (0, 1));
            town.evaluate().await;
        }
        let [sweep] = town.sweeps().await.try_into().unwrap();
        assert_eq!(town.signed(&sweep).await.len(), 1);
        assert_eq!(sweep.job.state, JobState::Broadcasted);
        town.act(|model, _| model.fee_factor(1));
        town.settle().await;
        assert_eq!(town.sweeps().await[0].job.state, JobState::Confirmed);
    });
}

/// Coins fill a hot wallet that lacks some before they go to the treasury, and pay withdrawals from there. What it has too much of leaves.
#[test]
fn what_customers_paid_fills_the_hot_wallet_and_pays_withdrawals() {
    on_engines(async |town| {
        let mut rules = rules(500_000, None);
        let key = ("net".parse().unwrap(), id("hot"), 0, "BTC".parse().unwrap());
        let units = Amount::from_units;
        let band = BandSetting { floor: units(0), target: units(400_000), ceiling: units(900_000), active: true };
        rules.rules.bands.insert(key, band);
        let (settings, author) = (town.pinned.settings(), Author { actor: "test", reason: "bands" });
        town.db.apply_treasury(&rules, &settings, &author, town.clock.now()).await.unwrap();
        let (hot, treasury) = (town.house(WalletRole::Hot), town.house(WalletRole::Treasury));
        town.three_pay().await;
        assert_eq!(town.evaluate().await, 1);
        town.settle().await;
        let came = town.has(&hot).await;
        assert!(came > 590_000, "it was below its target: {came}");
        // A customer is paid out of it, and again below its target it gets the next coins, also while its change is in no final block.
        let to = town.withdraw(300_000).await;
        town.wait(60);
        town.send().await;
        town.mine(1).await;
        town.pay(8, 550_000).await;
        town.mine(1).await;
        assert_eq!(town.band().await, town.has(&hot).await, "what is its own is known at once");
        town.settle().await;
        assert_eq!(town.has(&to).await, 300_000);
        assert_eq!(town.evaluate().await, 1);
        assert_eq!(town.evaluate().await, 0, "what comes counts: nothing is refilled");
        town.settle().await;
        let full = town.has(&hot).await;
        assert!(full > 800_000 && town.has(&treasury).await == 0, "{full}");
        // The next ones are too much for it.
        town.pay(7, 700_000).await;
        town.mine(7).await;
        assert_eq!(town.evaluate().await, 1);
        town.settle().await;
        assert!(town.has(&treasury).await > 690_000);
        assert_eq!(town.has(&hot).await, full);
        // Somebody pays it directly: above the ceiling it goes down to the target.
        town.act(|model, now| model.fund(&hot.to_string(), None, raw(300_000), now)).unwrap();
        town.mine(7).await;
        assert_eq!(town.evaluate().await, 1);
        town.wait(60);
        town.send().await;
        assert_eq!(town.evaluate().await, 0);
        town.settle().await;
        let left = town.has(&hot).await;
        assert!((395_000..=400_000).contains(&left), "{left}");
        town.agree().await;
    });
}

/// A coin that somebody else has taken in the meantime: the job ends by itself, and the others go with the next one.
#[test]
fn a_job_whose_coin_is_held_ends_and_another_takes_the_rest() {
    on(Engine::Sqlite, async |db| {
        let town = Town::start(db, &rules(250_000, None)).await;
        town.three_pay().await;
        assert_eq!(town.evaluate().await, 1);
        town.lease_largest(1).await;
        for _ in 0..6 {
            town.send().await;
            town.wait(1_000);
        }
        let [sweep] = town.sweeps().await.try_into().unwrap();
        assert_eq!(sweep.job.state, JobState::FailedFinal, "{}", sweep.job.reason);
        assert_eq!(town.signed(&sweep).await, []);
        town.mine(1).await;
        assert_eq!(town.evaluate().await, 1);
        town.settle().await;
        let jobs = town.sweeps().await;
        assert_eq!((jobs.len(), jobs[0].job.state), (2, JobState::Confirmed));
        assert_eq!(town.signed(&jobs[0]).await[0].input.len(), 2);
        assert_eq!(town.has(&town.address(8).await).await, 200_000);
    });
}

/// With a band for the hot wallet.
async fn with_band(town: &Town<'_>, [floor, target, ceiling]: [i64; 3]) {
    let mut rules = rules(500_000, None);
    let key = ("net".parse().unwrap(), id("hot"), 0, "BTC".parse().unwrap());
    let units = Amount::from_units;
    let band = BandSetting { floor: units(floor), target: units(target), ceiling: units(ceiling), active: true };
    rules.rules.bands.insert(key, band);
    let (settings, author) = (town.pinned.settings(), Author { actor: "test", reason: "bands" });
    town.db.apply_treasury(&rules, &settings, &author, town.clock.now()).await.unwrap();
}

/// A payment that may still leave the chain, or that only waits: whoever made it could have it back when the house has moved its own coins.
#[test]
fn what_strangers_have_not_paid_for_good_moves_no_band() {
    on_engines(async |town| {
        with_band(&town, [0, 400_000, 900_000]).await;
        let hot = town.house(WalletRole::Hot);
        town.three_pay().await;
        assert_eq!(town.evaluate().await, 1);
        town.settle().await;
        town.act(|model, now| model.fund(&hot.to_string(), None, raw(500_000), now)).unwrap();
        town.follow().await;
        assert_eq!(town.evaluate().await, 0, "it is in no block");
        town.mine(1).await;
        assert_eq!(town.evaluate().await, 0, "its block is not final");
        town.mine(6).await;
        assert_eq!(town.evaluate().await, 1, "now it is too much");
    });
}

/// Nobody can offer more for a sweep, so a payout that spends it could wait with it for ever.
#[test]
fn no_payout_builds_on_a_sweep_that_is_in_no_block() {
    on(Engine::Sqlite, async |db| {
        let town = Town::start(db, &rules(500_000, None)).await;
        with_band(&town, [0, 400_000, 900_000]).await;
        town.three_pay().await;
        assert_eq!(town.evaluate().await, 1);
        town.send().await;
        town.follow().await;
        let to = town.withdraw(300_000).await;
        town.wait(60);
        town.send().await;
        let jobs = town.db.jobs(&JobFilter::default(), i64::MAX, 10).await.unwrap();
        let payout = jobs.iter().find(|shown| shown.job.kind == JobKind::Withdrawal).unwrap();
        assert_eq!(payout.job.slot, None, "{payout:#?}");
        town.settle().await;
        town.wait(3_000);
        town.settle().await;
        assert_eq!(town.has(&to).await, 300_000);
    });
}
