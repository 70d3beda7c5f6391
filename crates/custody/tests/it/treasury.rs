//! "Low Gas Wallet" of the sources, word for word, through its four cycles, on the devnets of TRON and EVM and on anvil, with the signer's own core: an address with
//! tokens and no gas gets gas first, and is emptied when that is final. Then the same while the database fails at every point, blocks leave the
//! chain, and two workers meet. What was paid is asked of the chain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chain::Chain;
use custody::deposit::{BalanceSync, DepositWorker, Synced};
use custody::outbound::{SendWorker, WatchWorker};
use custody::treasury::{RulesRound, RulesWorker};
use custody::wallet::{UserWallet, assign};
use devnet::{Fate, Key};
use domain::id::{Generator, NodeId};
use domain::outbound::{JobKind, JobState};
use domain::random::Random;
use domain::treasury::{Operator, Price};
use domain::{Amount, ChainKind, Clock, ManualClock, Purpose, UserId, WalletRole};
use signer::keys::{GroupSecret, Keyring, Mnemonic};
use signer::local::LocalSigner;
use signer::policy::signed::SigningKey;
use store::catalog::{Author, Catalog};
use store::grants::DatabaseRole;
use store::outbound::{JobFilter, JobId, NewJob, Payer, ShownJob};
use store::testing::on;
use store::treasury::cost::CostKind;
use store::treasury::{BandSetting, GasRuleSetting, SweepRuleSetting};
use store::{Db, Engine};
use tx::{Address, Coin, Family, Fee, FeeCap, Payment};

use crate::deposits::{CONFIRMATIONS, Place, Rig, deep_catalog, id, raw};
use crate::outbound::Pen;
use crate::wallet_rows::tamper;

const WORDS: &str = "test test test test test test test test test test test junk";
const AUTHOR: Author<'static> = Author { actor: "test", reason: "rules" };
/// Beyond the keys that the devnet gives coins to.
pub const USER: i64 = 4_711;

fn keyring(family: Family) -> Keyring {
    let groups = [
        ("users", Purpose::Deposit, 0),
        ("gas", Purpose::Gas, 1),
        ("hot", Purpose::Hot, 2),
        ("treasury", Purpose::Treasury, 3),
    ];
    let secret = |(name, purpose, account)| GroupSecret {
        id: id(name),
        purpose,
        family,
        account,
        mnemonic: Mnemonic::parse(WORDS).unwrap(),
    };
    Keyring::of(groups.map(secret).into_iter().collect()).unwrap()
}

/// Gas wallets give gas to users' addresses, which give what they have to treasury and hot wallets.
fn policy(kind: ChainKind, token: &str) -> String {
    let much = "1000000000000000000000000000";
    let chain = match kind {
        ChainKind::Evm => "kind = \"evm\", chain_id = 56",
        ChainKind::Tron | ChainKind::Bitcoin => "kind = \"tron\"",
    };
    let capped = |coin: &str| {
        format!("\n[[group.coin]]\ncoin = \"{coin}\"\npayment = \"{much}\"\nhour = \"{much}\"\nday = \"{much}\"\n")
    };
    let plain = |coin: &str| format!("\n[[group.coin]]\ncoin = \"{coin}\"\n");
    // A hot wallet pays little without people: what it has too much of goes to the treasury all the same.
    let little = |coin: &str| {
        format!(
            "\n[[group.coin]]\ncoin = \"{coin}\"\npayment = \"50000000\"\nhour = \"50000000\"\nday = \"50000000\"\n"
        )
    };
    let approved = |coin: &str| {
        let step = format!("step = [{{ up_to = \"{much}\", approvals = 2, of = [\"ann\", \"bob\"] }}]\n");
        plain(coin) + &step
    };
    let approver = |person: &str| {
        let public = signer::digest::hex(&approving_key(person).public());
        format!("\n[[approver]]\nkey = \"{person}\"\nperson = \"{person}\"\ned25519 = \"{public}\"\n")
    };
    let group = |name: &str, role: &str, coins: String| {
        format!(
            "\n[[group]]\nid = \"{name}\"\nchain = \"net\"\nrole = \"{role}\"\nmost_fee = \"{much}\"\nmost_fee_day = \"{much}\"\n{coins}"
        )
    };
    let head = format!(
        "signer = \"desk\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 48\ntron_margin_minutes = 1\n\
         chain = [{{ name = \"net\", {chain} }}]\n"
    );
    [
        head,
        approver("ann"),
        approver("bob"),
        group("gas", "gas", capped("native")),
        group("users", "deposit", plain("native") + &plain(token)),
        group("hot", "hot", capped("native") + &little(token)),
        group("treasury", "treasury", approved("native") + &approved(token)),
    ]
    .concat()
}

/// Whoever approves: a key that follows from the name.
pub fn approving_key(person: &str) -> SigningKey {
    let mut seed = [7_u8; 32];
    seed[..person.len()].copy_from_slice(person.as_bytes());
    let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    SigningKey::read(&[&head[..], &seed].concat()).unwrap()
}

/// A devnet with its books, a signer, rules, a gas wallet with coins, and an empty treasury.
pub struct Yard<'a> {
    pub rig: Rig<'a>,
    pen: Pen,
    ids: Generator<Arc<ManualClock>>,
    /// Chain units of what the source calls one TRX: on EVM a ten thousandth of the coin pays for as much.
    pub one: u64,
    /// So many of these are brought where there are fewer than two.
    brought: u64,
}

impl<'a> Yard<'a> {
    pub async fn start(db: &'a store::testing::TestDb, place: Place) -> Self {
        Self::with(db, (place, CONFIRMATIONS), 40).await
    }

    /// With the source's own figures: ten are brought, and are there for good after 19 blocks on TRON and 12 on EVM.
    pub async fn of_the_source(db: &'a store::testing::TestDb, place: Place) -> Self {
        let place = match place {
            Place::Devnet(ChainKind::Evm, depth) => (Place::Devnet(ChainKind::Evm, depth), 12),
            Place::Devnet(kind, _) => (Place::Devnet(kind, 18), 19),
            Place::Anvil => (Place::Anvil, 12),
        };
        Self::with(db, place, 10).await
    }

    async fn with(db: &'a store::testing::TestDb, (place, confirmations): (Place, u32), brought: u64) -> Self {
        let mut signer = None;
        let kind = place.kind();
        let rig = Rig::with_depth(db, (place, confirmations), 1, |family, clock| {
            let token = match kind {
                ChainKind::Evm => devnet::evm::TETHER.to_string(),
                ChainKind::Tron | ChainKind::Bitcoin => devnet::tron::TOKEN.to_string(),
            };
            let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
            let made = Arc::new(LocalSigner::new(&policy(kind, &token), keyring(family), clock).unwrap());
            let groups = ["users", "gas", "hot", "treasury"].map(|name| made.group(&id(name)).unwrap()).to_vec();
            signer = Some(made);
            groups
        })
        .await;
        let pen = Pen { signer: signer.unwrap(), away: AtomicBool::new(false), loses: AtomicBool::new(false) };
        let ids = Generator::new(Arc::clone(&rig.clock), NodeId::new(3).unwrap());
        let one = if kind == ChainKind::Evm { 100_000_000_000_000 } else { 1_000_000 };
        let yard = Self { rig, pen, ids, one, brought };
        yard.apply(&yard.rules(100, None)).await;
        // The token's contract knows the treasury, so a sweep costs what it will cost every day.
        yard.rig.pay(&yard.rig.house(WalletRole::Treasury), &yard.rig.token(), 1_000_000);
        yard.rig.pay(&yard.rig.house(WalletRole::Gas), &Coin::Native, 10_000 * yard.one);
        yard.rig.mine(1);
        yard
    }

    /// If the coin < 2, top up; if USDT > threshold, sweep.
    pub fn rules(&self, threshold: i64, most_cost_bps: Option<u32>) -> Catalog {
        let mut catalog = deep_catalog(self.rig.kind, self.rig.row.confirmations);
        let units = |whole: u64| Amount::from_units(i64::try_from(whole * self.one / 100).unwrap());
        let gas = GasRuleSetting {
            chain: "net".parse().unwrap(),
            asset: "COIN".parse().unwrap(),
            operator: Operator::Below,
            threshold: units(2),
            amount: units(self.brought),
            priority: 300,
            cool_down_s: 60,
            most_per_hour: 100,
            active: true,
        };
        let sweep = SweepRuleSetting {
            chain: "net".parse().unwrap(),
            asset: "USDT".parse().unwrap(),
            operator: Operator::Above,
            threshold: Amount::from_units(threshold * 10_000),
            most_cost_bps,
            priority: 400,
            cool_down_s: 60,
            most_per_hour: 100,
            active: true,
        };
        catalog.rules.gas.insert("low-gas".to_owned(), gas);
        catalog.rules.sweeps.insert("usdt".to_owned(), sweep);
        catalog
    }

    pub async fn apply(&self, rules: &Catalog) {
        let settings = self.rig.pinned.settings();
        self.rig.db.apply_treasury(rules, &settings, &AUTHOR, self.rig.clock.now()).await.unwrap();
    }

    /// The rule execution worker, until it has nothing more to do at once.
    pub async fn rules_on(&self, db: &Db, name: &str) -> Option<RulesRound> {
        self.rules_with(db, &*self.rig.chain, name).await
    }

    /// The same with a chain that is bent.
    pub async fn rules_with(&self, db: &Db, chain: &dyn Chain, name: &str) -> Option<RulesRound> {
        let make = || self.ids.next::<domain::id::Job>().ok().map(|id| id.number());
        let (row, pinned) = (self.rig.row.clone(), Arc::clone(&self.rig.pinned));
        let mut worker = RulesWorker::new(db, chain, &make, row, pinned, name.to_owned()).unwrap();
        let mut sum = RulesRound::default();
        for _ in 0..20 {
            let round = worker.round(&*self.rig.clock).await.ok()?;
            sum.jobs += round.jobs;
            sum.looked += round.looked;
            if !round.more {
                return Some(sum);
            }
        }
        panic!("its rules never rest");
    }

    pub async fn evaluate(&self) -> RulesRound {
        self.rules_on(self.rig.db.of(DatabaseRole::Rules), "rules").await.unwrap()
    }

    /// The workers that send and confirm.
    pub async fn send_on(&self, db: &Db) -> Option<()> {
        self.send_by(db, db).await
    }

    /// Each with its own log-in.
    pub async fn send(&self) {
        let db = self.rig.db;
        self.send_by(db.of(DatabaseRole::Outbound), db.of(DatabaseRole::Confirm)).await.unwrap();
    }

    async fn send_by(&self, sends: &Db, watches: &Db) -> Option<()> {
        let make = || self.ids.next::<domain::id::Job>().ok().map(|id| id.number());
        let (chain, row, pinned) = (&*self.rig.chain, self.rig.row.clone(), Arc::clone(&self.rig.pinned));
        let signer = "desk".parse().unwrap();
        let send = SendWorker::new(
            sends,
            chain,
            &self.pen,
            signer,
            &make,
            row.clone(),
            Arc::clone(&pinned),
            "send".to_owned(),
        );
        let sent = send.unwrap().round(&*self.rig.clock).await;
        let watch =
            WatchWorker::new(watches, chain, row, pinned, "watch".to_owned()).unwrap().round(&*self.rig.clock).await;
        sent.ok()?;
        watch.ok().map(|_| ())
    }

    /// The chain's own books.
    pub async fn sync(&self) {
        let mut worker = self.rig.worker("books").await;
        self.rig.work(&mut worker).await;
    }

    /// The books and the balance sync, on a database that may fail anywhere.
    async fn books_on(&self, db: &Db) {
        let (row, pinned) = (self.rig.row.clone(), Arc::clone(&self.rig.pinned));
        let (mut random, now) = (Random::from_seed(7), self.rig.clock.now());
        let taken = DepositWorker::take(db, &*self.rig.chain, row.clone(), pinned, "books", &mut random, now).await;
        if let Ok(mut worker) = taken {
            while worker.round(&*self.rig.clock).await.is_ok_and(|worked| worked.is_busy()) {}
        }
        let sync = BalanceSync::new(db, &*self.rig.chain, row, Arc::clone(&self.rig.pinned)).unwrap();
        drop(sync.all(&*self.rig.clock).await);
    }

    /// The balance sync worker: all wallets are looked at on the chain.
    async fn balance_sync(&self) -> Synced {
        let (row, pinned) = (self.rig.row.clone(), Arc::clone(&self.rig.pinned));
        BalanceSync::new(self.rig.db.of(DatabaseRole::BalanceSync), &*self.rig.chain, row, pinned)
            .unwrap()
            .all(&*self.rig.clock)
            .await
            .unwrap()
    }

    /// The states that a job came to, in order.
    async fn way(&self, job: JobId) -> Vec<String> {
        let (_, _, steps) = self.rig.db.job(job).await.unwrap().unwrap();
        steps.into_iter().map(|step| step.state).collect()
    }

    /// Blocks, each with a round of those who send and of the books.
    pub async fn pass(&self, blocks: u64) {
        for _ in 0..blocks {
            self.rig.mine(1);
            self.sync().await;
            self.send().await;
        }
    }

    pub async fn jobs(&self, kind: JobKind) -> Vec<ShownJob> {
        let all = self.rig.db.jobs(&JobFilter::default(), i64::MAX, 1_000).await.unwrap();
        all.into_iter().filter(|shown| shown.job.kind == kind).collect()
    }

    /// `needs_gas`, `needs_consolidation`, and why the tokens of the address wait.
    pub async fn flags(&self, address: &Address) -> (bool, bool, Option<String>) {
        let settled = self.rig.db.settled_height(&self.rig.row).await.unwrap().unwrap();
        let found = self.rig.db.wallets_at(self.rig.row.id, &[address.to_string()], settled).await.unwrap();
        let usdt = self.rig.row.listings.iter().find(|one| one.symbol.as_str() == "USDT").unwrap().id;
        let coin = found[0].coins.iter().find(|coin| coin.listing == usdt).unwrap();
        (coin.needs_gas, coin.needs_consolidation, coin.waits.clone())
    }

    pub async fn has(&self, address: &Address, coin: &Coin) -> u128 {
        let balance = self.rig.chain.balances(&[(address.clone(), coin.clone())]).await.unwrap()[0];
        u128::try_from(balance.to_u256()).unwrap()
    }

    /// One top-up and one sweep cost what the chain took from the wallets that sent them, beside what was expected.
    async fn assert_costs(&self, wallet: &Address) {
        let costs = self.rig.db.costs(domain::Timestamp::from_micros(0)).await.unwrap();
        let jobs: Vec<(CostKind, u64)> = costs.rows.iter().map(|row| (row.kind, row.jobs)).collect();
        assert_eq!(jobs, [(CostKind::GasTopup, 1), (CostKind::Consolidation, 1)]);
        let fee = |kind| costs.rows.iter().find(|row| row.kind == kind).unwrap().fee;
        let brought = u128::from(self.brought * self.one);
        let left = self.has(wallet, &Coin::Native).await;
        assert_eq!(fee(CostKind::Consolidation).to_string(), (brought - left).to_string());
        let gas = self.has(&self.rig.house(WalletRole::Gas), &Coin::Native).await;
        let spent = u128::from(10_000 * self.one) - gas;
        assert_eq!(fee(CostKind::GasTopup).to_string(), (spent - brought).to_string());
        for row in &costs.rows {
            let (fee, expected) = (u128::try_from(row.fee.to_u256()).unwrap(), row.expected.unwrap());
            let expected = u128::try_from(expected.to_u256()).unwrap();
            assert!(
                expected > 0 && fee <= 3 * expected && expected <= 4 * fee,
                "{:?}: {fee}, expected {expected}",
                row.kind
            );
        }
        // The gas wallet has far more than it gave.
        let [supply] = self.rig.db.gas_wallets(&costs).await.unwrap().try_into().unwrap();
        assert_eq!(
            (supply.supply.used.to_string(), supply.supply.has.to_string()),
            (spent.to_string(), gas.to_string())
        );
        assert!(!supply.supply.runs_dry());
        // And nothing of it is older than the time that is asked for.
        let later = self.rig.db.costs(self.rig.clock.now()).await.unwrap();
        assert!(later.rows.is_empty());
    }

    async fn price(&self, symbol: &str, micros: u64) {
        let (symbol, now) = (symbol.parse().unwrap(), self.rig.clock.now());
        assert!(self.rig.db.set_price(&symbol, Price(micros), "ann", now).await.unwrap());
    }

    /// An address with so many USDT in a final block, and no gas.
    pub async fn low_gas_wallet(&self, user: i64, usdt: u64) -> Address {
        let wallet = self.rig.address(user).await;
        self.rig.pay(&wallet, &self.rig.token(), usdt * 1_000_000);
        self.rig.mine(1);
        self.pass(self.depth() + 3).await;
        wallet
    }

    /// So many blocks above make a payment confirmed.
    fn depth(&self) -> u64 {
        u64::from(self.rig.row.confirmations)
    }
}

pub const TRON: Place = Place::Devnet(ChainKind::Tron, 2);
pub const EVM: Place = Place::Devnet(ChainKind::Evm, 2);

pub fn on_both(test: impl AsyncFn(Yard<'_>)) {
    for place in [TRON, EVM] {
        at(place, &test);
    }
}

fn as_in_the_source(places: &[Place]) {
    for place in places {
        for engine in crate::engines() {
            on(engine, async |db| low_gas_wallet(Yard::of_the_source(db, *place).await).await);
        }
    }
}

fn at(place: Place, test: impl AsyncFn(Yard<'_>)) {
    for engine in crate::engines() {
        on(engine, async |db| test(Yard::start(db, place).await).await);
    }
}

fn waits(why: &str) -> Option<String> {
    Some(why.to_owned())
}

/// "Test Scenario: Low Gas Wallet". The words in quotes are the source's, and so are the figures: its TRX, its ten, its 19 blocks on TRON and 12 on EVM.
pub async fn low_gas_wallet(yard: Yard<'_>) {
    // "Setup: 1. Wallet has 480 USDT (needs consolidation)  2. Wallet has 0 TRX (needs gas)  3. Gas topup rule: if TRX < 2, topup".
    let wallet = yard.low_gas_wallet(USER, 480).await;
    let (usdt, treasury) = (yard.rig.token(), yard.rig.house(WalletRole::Treasury));
    assert_eq!(yard.has(&wallet, &usdt).await, 480_000_000);
    assert_eq!(yard.has(&wallet, &Coin::Native).await, 0);
    let before = yard.has(&treasury, &usdt).await;

    // "Cycle 1 (Rule Execution)"
    assert_eq!(yard.evaluate().await.jobs, 1, "Detects low gas (0 < 2)");
    let (needs_gas, needs_consolidation, waits_for) = yard.flags(&wallet).await;
    assert!(needs_gas, "Sets needs_gas = true");
    assert!(needs_consolidation, "Sets needs_consolidation = true");
    let [topup] = yard.jobs(JobKind::GasTopup).await.try_into().expect("Queues gas topup");
    assert_eq!((topup.job.state, topup.job.amount), (JobState::Queued, raw(10 * yard.one)));
    assert_eq!(yard.jobs(JobKind::Consolidation).await.len(), 0, "Does NOT queue consolidation (gas blocks it)");
    assert_eq!(waits_for, waits("its gas is under way"));

    // "Cycle 2 (Gas Top-Up Worker): Picks gas topup job"
    let gas = yard.rig.house(WalletRole::Gas).to_string();
    assert_eq!(topup.from, gas, "Loads funding wallet (operation_wallet_address): the rule worker has chosen it");
    // "Builds TRX transfer. Calls signer service. Broadcasts transaction."
    yard.send().await;
    let way = yard.way(topup.job.id).await;
    let none_skipped = ["queued", "picked", "building_tx", "signing", "broadcasting", "broadcasted"].map(str::to_owned);
    assert_eq!(way, none_skipped, "No state may be skipped");
    // Until it is final nothing else is asked for. Its block is the first; "Confirms after 19 blocks", on BSC 12.
    let deep = if yard.rig.kind == ChainKind::Tron { 19 } else { 12 };
    for above in 0..=deep {
        assert_eq!(yard.evaluate().await.jobs, 0);
        assert!(yard.flags(&wallet).await.0, "gas is needed until it is there for good");
        yard.pass(1).await;
        let [topup] = yard.jobs(JobKind::GasTopup).await.try_into().unwrap();
        assert_eq!(topup.job.state == JobState::Confirmed, above == deep, "{above} above: {}", topup.job.state);
    }
    yard.pass(5).await;
    let [topup] = yard.jobs(JobKind::GasTopup).await.try_into().unwrap();
    assert_eq!(yard.way(topup.job.id).await[6..], ["confirming", "confirmed"].map(str::to_owned));
    assert_eq!(yard.has(&wallet, &Coin::Native).await, u128::from(10 * yard.one));

    // "Cycle 3 (Balance Sync): Syncs wallet balances. Updates TRX balance: 0 → 10"
    let synced = yard.balance_sync().await;
    assert_eq!((synced.looked.differing, synced.waits), (0, None), "the entries have it already");
    assert_eq!(yard.rig.balances().await[&wallet.to_string()]["COIN"], (10 * yard.one).to_string());

    // "Cycle 4 (Rule Execution): Checks gas: 10 >= 2 (sufficient). Evaluates consolidation: 480 > 100 (matches)"
    assert_eq!(yard.evaluate().await.jobs, 1, "Queues consolidation");
    let (needs_gas, needs_consolidation, waits_for) = yard.flags(&wallet).await;
    assert!(needs_consolidation, "Sets needs_consolidation = true");
    assert!(!needs_gas, "Sets needs_gas = false");
    assert_eq!(waits_for, None);
    let [sweep] = yard.jobs(JobKind::Consolidation).await.try_into().unwrap();
    assert_eq!((sweep.job.amount, sweep.from.as_str()), (raw(480_000_000), wallet.to_string().as_str()));
    assert_eq!(yard.evaluate().await.jobs, 0, "once");
    assert_eq!(yard.flags(&wallet).await, (false, true, waits("its sweep is under way")));

    // And it comes home, all of it, exactly once.
    yard.send().await;
    yard.pass(deep + 5).await;
    assert_eq!(yard.has(&treasury, &usdt).await, before + 480_000_000);
    assert_eq!(yard.has(&wallet, &usdt).await, 0);
    yard.evaluate().await;
    assert_eq!(yard.flags(&wallet).await, (false, false, None));
    assert_eq!(yard.jobs(JobKind::GasTopup).await.len(), 1);
    assert_eq!(yard.jobs(JobKind::Consolidation).await.len(), 1);
    yard.rig.assert_true().await;
    yard.assert_costs(&wallet).await;
}

#[test]
fn low_gas_wallet_through_its_four_cycles() {
    as_in_the_source(&[TRON, EVM]);
}

#[test]
fn low_gas_wallet_through_its_four_cycles_on_anvil() {
    as_in_the_source(&[Place::Anvil]);
}

/// In every turn each worker dies at the first point of what it does, then at the second, and so on, until it has got through without. The
/// signer is away in some, or signs and its answer is lost, and blocks leave the chain between: one top-up, one sweep, the same end.
fn kill_every_worker_at_every_step(engine: Engine, places: &[Place]) {
    for place in places {
        on(engine, async |db| {
            let yard = Yard::start(db, *place).await;
            let wallet = yard.low_gas_wallet(USER, 480).await;
            let (usdt, treasury) = (yard.rig.token(), yard.rig.house(WalletRole::Treasury));
            let before = yard.has(&treasury, &usdt).await;
            let mut died = [0; 3];
            for turn in 0..24 {
                yard.pen.away.store(turn % 5 == 2, Ordering::Relaxed);
                yard.pen.loses.store(turn % 5 == 4, Ordering::Relaxed);
                // Whatever failed, the next one begins at the rows. Another worker takes the rules over when the lease of the first has ended.
                let name = ["one", "two"][usize::from(turn % 6 < 3)];
                let rules = async |faulty: Db| drop(yard.rules_on(&faulty, name).await);
                let send = async |faulty: Db| {
                    yard.send_on(&faulty).await;
                };
                let books = async |faulty: Db| yard.books_on(&faulty).await;
                died[0] += crate::faulty::killed_everywhere(yard.rig.db, rules).await;
                died[1] += crate::faulty::killed_everywhere(yard.rig.db, send).await;
                yard.rig.mine(1);
                died[2] += crate::faulty::killed_everywhere(yard.rig.db, books).await;
                if turn % 9 == 8 {
                    yard.rig.reorg(2, Fate::Moved);
                    yard.sync().await;
                }
                yard.rig.clock.set(yard.rig.clock.now().plus_micros(61_000_000));
            }
            assert!(died.iter().all(|times| *times > 80), "each has points, in each turn: {died:?}");
            yard.pen.away.store(false, Ordering::Relaxed);
            yard.pen.loses.store(false, Ordering::Relaxed);
            // Whoever had the rules last has them no more.
            yard.rig.clock.set(yard.rig.clock.now().plus_micros(121_000_000));
            for _ in 0..12 {
                yard.pass(2).await;
                yard.evaluate().await;
            }
            assert_eq!(yard.has(&treasury, &usdt).await, before + 480_000_000);
            assert_eq!(yard.has(&wallet, &usdt).await, 0);
            assert_eq!(yard.jobs(JobKind::GasTopup).await.len(), 1, "a second one was not needed");
            assert_eq!(yard.jobs(JobKind::Consolidation).await.len(), 1);
            yard.rig.assert_true().await;
        });
    }
}

#[test]
fn low_gas_wallet_with_every_worker_killed_at_every_step() {
    kill_every_worker_at_every_step(Engine::Sqlite, &[TRON, EVM]);
}

#[test]
fn postgres_low_gas_wallet_with_every_worker_killed_at_every_step() {
    kill_every_worker_at_every_step(Engine::Postgres, &[EVM]);
}

#[test]
fn low_gas_wallet_with_every_worker_killed_at_every_step_on_anvil() {
    kill_every_worker_at_every_step(Engine::Sqlite, &[Place::Anvil]);
}

/// A top-up whose block leaves the chain is sent again, the same bytes: no second one is made for it.
#[test]
fn a_top_up_that_a_reorganisation_takes_is_not_doubled() {
    on_both(async |yard| {
        let wallet = yard.low_gas_wallet(USER, 480).await;
        yard.evaluate().await;
        yard.send().await;
        yard.pass(1).await;
        yard.rig.reorg(1, Fate::Dropped);
        for _ in 0..12 {
            yard.evaluate().await;
            yard.pass(1).await;
        }
        assert_eq!(yard.jobs(JobKind::GasTopup).await.len(), 1);
        let spent = yard.has(&wallet, &Coin::Native).await;
        assert!(spent <= u128::from(40 * yard.one), "{spent}");
        yard.rig.assert_true().await;
    });
}

/// Two deposits below the threshold sweep together; what costs too much waits, and goes when the price falls.
#[test]
fn a_sweep_goes_by_the_balance_and_only_when_it_pays() {
    on_both(async |yard| {
        yard.apply(&yard.rules(100, Some(200))).await;
        let wallet = yard.low_gas_wallet(USER, 60).await;
        assert_eq!(yard.evaluate().await.jobs, 0);
        assert_eq!(yard.flags(&wallet).await, (false, false, None), "60 is not above 100");
        yard.rig.pay(&wallet, &yard.rig.token(), 60_000_000);
        yard.rig.mine(1);
        yard.pass(6).await;
        assert_eq!(yard.evaluate().await.jobs, 0);
        let (_, needs, why) = yard.flags(&wallet).await;
        assert!(needs && why.as_ref().is_some_and(|why| why.contains("a price is missing or old")), "{why:?}");
        // At a price like this the fees are worth more than two percent of it.
        yard.price("USDT", 1_000_000).await;
        yard.price("COIN", 1_000_000_000_000).await;
        assert_eq!(yard.evaluate().await.jobs, 0);
        let (gas, needs, why) = yard.flags(&wallet).await;
        assert!(
            !gas && needs && why.as_ref().is_some_and(|why| why.contains("would cost")),
            "no gas is brought either: {why:?}"
        );
        yard.price("COIN", 1).await;
        yard.price("USDT", 1_000_000_000_000).await;
        let made = yard.evaluate().await.jobs;
        assert_eq!(made, 1, "{:?}", yard.flags(&wallet).await);
        assert_eq!(yard.jobs(JobKind::GasTopup).await.len(), 1);
    });
}

/// The rule's share holds until the sweep is sent: one that has become dear between the decision and the send is not paid, says so, and goes when prices
/// have fallen. Of the reserve for prices that rise only what the share leaves is offered.
#[test]
fn a_sweep_that_became_dear_waits_and_is_never_paid_above_its_share() {
    on_both(async |yard| {
        yard.apply(&yard.rules(100, Some(200))).await;
        let (wallet, usdt) = (yard.rig.address(USER).await, yard.rig.token());
        let treasury = yard.rig.house(WalletRole::Treasury);
        let before = yard.has(&treasury, &usdt).await;
        // It has its gas.
        yard.rig.pay(&wallet, &usdt, 480_000_000);
        yard.rig.pay(&wallet, &Coin::Native, 100 * yard.one);
        yard.rig.mine(1);
        yard.pass(6).await;
        // A price at which the share is just enough: on EVM for what the sweep is expected to cost and a twentieth of that, on TRON for what a node
        // must be shown and as much more.
        let (cap, tight) = match yard.rig.kind {
            ChainKind::Evm => {
                let price = 20_000_000_000;
                (FeeCap(Fee::Eip1559 { max_fee: price, max_priority: price }), true)
            }
            ChainKind::Tron | ChainKind::Bitcoin => (FeeCap(Fee::FeeLimit(100_000_000)), false),
        };
        let payment = Payment { to: treasury.clone(), coin: usdt.clone(), amount: raw(480_000_000) };
        let quote = yard.rig.chain.quote(&wallet, &payment, cap).await.unwrap();
        let asked = if tight { quote.expected } else { quote.needs };
        let asked = u128::try_from(asked.to_u256()).unwrap();
        let share = asked * 21 / 20;
        assert!(share < u128::try_from(quote.most.to_u256()).unwrap(), "the reserve does not fit into it");
        // 2 % of 480, in millionths, for so many coins of six decimals.
        let value: u128 = 9_600_000 * 1_000_000;
        yard.price("USDT", 1_000_000_000_000).await;
        yard.price("COIN", u64::try_from(value * 1_000_000 / share).unwrap()).await;
        assert_eq!(yard.evaluate().await.jobs, 1, "{:?}", yard.flags(&wallet).await);
        yard.rig.model(|model, _| model.fee_factor(10));
        let had = yard.has(&wallet, &Coin::Native).await;
        yard.send().await;
        let [ended] = yard.jobs(JobKind::Consolidation).await.try_into().unwrap();
        assert_eq!(ended.job.state, JobState::FailedFinal, "{}", ended.job.reason);
        assert!(ended.job.reason.contains("more than the rule's share"), "{}", ended.job.reason);
        yard.pass(3).await;
        assert_eq!(yard.has(&wallet, &Coin::Native).await, had, "nothing was paid");
        assert_eq!(yard.evaluate().await.jobs, 0);
        let (_, needs, why) = yard.flags(&wallet).await;
        assert!(needs && why.as_ref().is_some_and(|why| why.contains("would cost")), "it waits for its price: {why:?}");
        yard.rig.model(|model, _| model.fee_factor(1));
        yard.rig.clock.set(yard.rig.clock.now().plus_micros(61_000_000));
        yard.pass(1).await;
        assert_eq!(yard.evaluate().await.jobs, 1, "{:?}", yard.flags(&wallet).await);
        yard.send().await;
        yard.pass(8).await;
        assert_eq!(yard.has(&treasury, &usdt).await, before + 480_000_000);
        let paid = had - yard.has(&wallet, &Coin::Native).await;
        assert!(0 < paid && paid <= share, "{paid} of {share}");
        yard.rig.assert_true().await;
    });
}

/// How much a rule may do in an hour is known to whoever has the rules next: of two addresses one gets gas, and the other an hour later.
#[test]
fn two_workers_share_what_an_hour_allows() {
    on_both(async |yard| {
        let wallets = [yard.low_gas_wallet(USER, 480).await, yard.low_gas_wallet(USER + 1, 480).await];
        let mut rules = yard.rules(100, None);
        rules.rules.gas.get_mut("low-gas").unwrap().most_per_hour = 1;
        yard.apply(&rules).await;
        assert_eq!(yard.rules_on(yard.rig.db, "one").await.unwrap().jobs, 1);
        // The first is gone, and its lease ends.
        yard.rig.clock.set(yard.rig.clock.now().plus_micros(121_000_000));
        let second = yard.rules_on(yard.rig.db, "two").await.unwrap();
        assert_eq!((second.jobs, second.looked), (0, 2));
        let [job] = yard.jobs(JobKind::GasTopup).await.try_into().unwrap();
        let [other] = wallets.iter().filter(|wallet| wallet.to_string() != job.job.to).collect::<Vec<_>>()[..] else {
            panic!("{} is none of them", job.job.to);
        };
        let why = waits("the rule has made as many jobs as it may in an hour");
        assert_eq!(yard.flags(other).await, (true, true, why));
        yard.rig.clock.set(yard.rig.clock.now().plus_micros(3_600_000_000));
        assert_eq!(yard.rules_on(yard.rig.db, "two").await.unwrap().jobs, 1);
    });
}

/// More addresses wait to be swept than a worker takes at a time, and it has as many in hand: a withdrawal goes out in the next round all the same, and is in the next block.
#[test]
fn six_hundred_sweeps_do_not_delay_a_withdrawal() {
    on(Engine::Sqlite, async |db| {
        let yard = Yard::start(db, EVM).await;
        let (home, hot) = (yard.rig.house(WalletRole::Treasury), yard.rig.house(WalletRole::Hot));
        yard.rig.pay(&hot, &Coin::Native, 100 * yard.one);
        let users: Vec<UserId> = (1..=600).map(|number| UserId::new(number).unwrap()).collect();
        let (group, now) = (id("users"), yard.rig.clock.now());
        let assigned = assign(db.of(DatabaseRole::Api), &yard.rig.pinned, &group, &users, now).await;
        let wallets = assigned.unwrap().wallets;
        for some in wallets.chunks(100) {
            some.iter().for_each(|wallet| yard.rig.pay(&wallet.address, &Coin::Native, 10 * yard.one));
            yard.rig.mine(1);
        }
        yard.pass(1).await;
        let job = |kind: JobKind, reference: String, to: &Address, owner, payer| NewJob {
            id: yard.ids.next().unwrap(),
            listing: yard.rig.row.native().unwrap().id,
            kind,
            reference,
            to: to.to_string(),
            owner,
            amount: raw(yard.one),
            most_fee: yard.rig.row.outbound.fee_cap,
            priority: kind.priority(),
            requester: "ann".to_owned(),
            expires: yard.rig.clock.now().plus_micros(3_600_000_000),
            payer,
        };
        let sweep = |wallet: &UserWallet| {
            let address = wallet.address.to_string();
            let payer = Payer::Wallet { group: id("users"), index: wallet.user.get(), address: address.clone() };
            job(JobKind::Consolidation, address, &home, Some((id("treasury"), 0)), payer)
        };
        let sweeps: Vec<NewJob> = wallets.iter().map(sweep).collect();
        let now = yard.rig.clock.now();
        assert_eq!(db.add_jobs(yard.rig.row.id, &sweeps, now).await.unwrap().len(), 600);
        yard.send_on(db).await.unwrap();
        let (out, waiting): (Vec<ShownJob>, Vec<_>) = yard
            .jobs(JobKind::Consolidation)
            .await
            .into_iter()
            .partition(|shown| shown.job.state == JobState::Broadcasted);
        assert!(out.len() > 200 && waiting.len() > 300, "{} are out, {} wait", out.len(), waiting.len());
        let customer = Key::numbered(5_000).evm();
        let payer = Payer::Role(WalletRole::Hot);
        let withdrawal = job(JobKind::Withdrawal, customer.to_string(), &customer, None, payer);
        db.add_jobs(yard.rig.row.id, &[withdrawal], now).await.unwrap();
        yard.send_on(db).await.unwrap();
        let [paid] = yard.jobs(JobKind::Withdrawal).await.try_into().unwrap();
        assert_eq!(paid.job.state, JobState::Broadcasted, "{}", paid.job.reason);
        yard.rig.mine(1);
        assert_eq!(yard.has(&customer, &Coin::Native).await, u128::from(yard.one));
    });
}

/// A row that names another address than its key gives: nothing is sent to it, and nothing from it.
#[test]
fn no_rule_acts_on_a_row_that_somebody_has_changed() {
    on(Engine::Sqlite, async |db| {
        let yard = Yard::start(db, EVM).await;
        // A thief's row: the thief's address as that of a user.
        let thief = Key::numbered(4_711).evm();
        yard.rig.address(USER).await;
        tamper(db, &format!("UPDATE user_wallets SET address = '{thief}' WHERE user_id = {USER}")).await;
        yard.rig.pay(&thief, &yard.rig.token(), 480_000_000);
        yard.rig.mine(1);
        yard.pass(6).await;
        assert_eq!(yard.evaluate().await.jobs, 0);
        let (_, seen, why) = yard.flags(&thief).await;
        assert!(
            seen && why.is_some_and(|why| why.contains("bursar wallet verify")),
            "a rule matches it, and says why it waits"
        );
        assert_eq!(yard.jobs(JobKind::GasTopup).await.len(), 0);
    });
}

#[test]
fn hot_wallets_stay_within_their_bands() {
    on_both(within_its_band);
}

/// Swept coins fill a hot wallet that lacks some before they go to the treasury; what a hot wallet has too much of leaves.
pub async fn within_its_band(yard: Yard<'_>) {
    let (usdt, hot) = (yard.rig.token(), yard.rig.house(WalletRole::Hot));
    let mut rules = yard.rules(100, None);
    let key = ("net".parse().unwrap(), id("hot"), 0, "USDT".parse().unwrap());
    let units = |whole: i64| Amount::from_units(whole * 10_000);
    let band = BandSetting { floor: units(100), target: units(400), ceiling: units(900), active: true };
    rules.rules.bands.insert(key, band);
    yard.apply(&rules).await;
    let wallet = yard.low_gas_wallet(USER, 480).await;
    for _ in 0..6 {
        yard.evaluate().await;
        yard.pass(4).await;
    }
    assert_eq!(yard.has(&hot, &usdt).await, 480_000_000, "it was below its target");
    assert_eq!(yard.has(&wallet, &usdt).await, 0);
    // Somebody pays it directly: above the ceiling it goes down to the target.
    yard.rig.pay(&hot, &usdt, 500_000_000);
    yard.rig.pay(&hot, &Coin::Native, 1_000 * yard.one);
    yard.rig.mine(1);
    for _ in 0..6 {
        yard.evaluate().await;
        yard.pass(4).await;
    }
    assert_eq!(yard.has(&hot, &usdt).await, 400_000_000);
    yard.rig.assert_true().await;
}
