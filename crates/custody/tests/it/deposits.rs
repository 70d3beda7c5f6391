//! Deposits on the devnets of EVM and TRON, with three nodes of which some lie, lag or reorganise: every payment that stays in the
//! chain is credited once, nothing else is, and each wallet's entries are its balance on the chain.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use chain::Chain;
use chain::endpoint::{EndpointSettings, Pool, PoolSettings};
use chain::evm::{EvmChain, EvmSettings};
use chain::tron::{TronChain, TronSettings};
use custody::deposit::work::begin;
use custody::deposit::{BalanceSync, DepositError, DepositWorker, Worked};
use custody::wallet::{Pinned, assign};
use devnet::evm::{EvmDevnet, TETHER};
use devnet::tron::{TOKEN, TronDevnet};
use devnet::{Fate, Lie, Model, Served, View, evm, tron};
use domain::adjustment::{Adjustment, Party};
use domain::asset::TransferLimits;
use domain::deposit::DepositState;
use domain::random::Random;
use domain::{
    AccountStatus, Amount, Approval, Asset, AssetOnChain, Availability, ChainKind, Clock, GroupId, Listing,
    ManualClock, Precision, Purpose, RawAmount, Timestamp, UserId, WalletRole,
};
use store::catalog::{Author, Catalog};
use store::deposit::{DepositFilter, DepositRow};
use store::entry::{ChainRow, CursorError, Heard};
use store::grants::DatabaseRole;
use store::testing::{NOW, TestDb, on};
use store::{Db, Engine};
use tx::{Address, Coin, Family, Group};

use crate::anvil::Anvil;
use crate::bent::Bent;
use crate::wallet_rows::key;

const AUTHOR: Author<'static> = Author { actor: "test", reason: "set-up" };
pub const CONFIRMATIONS: u32 = 3;

/// The nodes of a chain, and who makes its blocks.
pub enum Net {
    /// In this process, with three endpoints.
    Devnet(Served<dyn Model>),
    /// A process of its own, with one.
    Anvil(Anvil),
}

/// Which chain, and whose nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// With so many blocks of TRON that can still be replaced.
    Devnet(ChainKind, u64),
    Anvil,
}

impl Place {
    pub const fn kind(self) -> ChainKind {
        match self {
            Self::Devnet(kind, _) => kind,
            Self::Anvil => ChainKind::Evm,
        }
    }
}

/// Nodes, a treasury, and the books of one chain.
pub struct Rig<'a> {
    pub db: &'a TestDb,
    pub kind: ChainKind,
    pub net: Net,
    pub clock: Arc<ManualClock>,
    pub chain: Box<dyn Chain>,
    pub pinned: Arc<Pinned>,
    pub row: ChainRow,
    pub family: Family,
    /// Where the chain's books begin.
    pub first: u64,
}

async fn serve<M: Model>(model: M, clock: &Arc<ManualClock>) -> Served<dyn Model> {
    let free: SocketAddr = ([127, 0, 0, 1], 0).into();
    Served::start(model, &[free; 3], Arc::<ManualClock>::clone(clock)).await.expect("free ports").into_dyn()
}

pub fn id(name: &str) -> GroupId {
    name.parse().unwrap()
}

pub fn raw(amount: u64) -> RawAmount {
    amount.to_string().parse().unwrap()
}

/// The chain with its coin and its token: each has two decimals more than the ledger.
pub fn catalog(kind: ChainKind) -> Catalog {
    deep_catalog(kind, CONFIRMATIONS)
}

/// The same, with so many confirmations. Two more are final.
pub fn deep_catalog(kind: ChainKind, confirmations: u32) -> Catalog {
    let mut catalog = Catalog::default();
    let precision = Precision::new(4).unwrap();
    let (network, token) = match kind {
        ChainKind::Evm => ("56", TETHER.to_string()),
        ChainKind::Tron => ("mainnet", TOKEN.to_string()),
        ChainKind::Bitcoin => panic!("the wallet store has Bitcoin's"),
    };
    let chain = domain::Chain {
        name: "net".parse().unwrap(),
        kind,
        network: network.to_owned(),
        confirmations,
        final_confirmations: confirmations + 2,
        outbound: domain::outbound::OutboundLimits::usual(kind),
        status: Availability::Active,
    };
    for (symbol, contract) in [("COIN", None), ("USDT", Some(token))] {
        let transfer =
            TransferLimits { min: Amount::from_units(1), max: Amount::from_units(9), daily: Amount::from_units(9) };
        let asset = Asset {
            symbol: symbol.parse().unwrap(),
            precision,
            status: Availability::Active,
            internal_transfer_enabled: true,
            transfer,
        };
        let listing = Listing {
            asset: asset.symbol.clone(),
            chain: chain.name.clone(),
            form: AssetOnChain::new(precision, 6, contract).unwrap(),
            min_deposit: Amount::from_units(10),
            status: Availability::Active,
        };
        catalog.listings.insert((asset.symbol.clone(), chain.name.clone()), listing);
        catalog.assets.insert(asset.symbol.clone(), asset);
    }
    catalog.chains.insert(chain.name.clone(), chain);
    catalog
}

impl<'a> Rig<'a> {
    /// With so many blocks of TRON that can still be replaced.
    pub async fn start(db: &'a TestDb, kind: ChainKind, solid_depth: u64) -> Self {
        let keys = |family: Family, _: &Arc<ManualClock>| {
            let groups = [("users", Purpose::Deposit, 0), ("gas", Purpose::Gas, 1), ("hot", Purpose::Hot, 2)];
            groups.map(|(name, purpose, account)| Group { id: id(name), purpose, key: key(family, account) }).to_vec()
        };
        Self::with_keys(db, Place::Devnet(kind, solid_depth), 1, keys).await
    }

    /// With these groups, and so many hot wallets.
    pub async fn with_keys(
        db: &'a TestDb,
        place: Place,
        hot: u64,
        keys: impl FnOnce(Family, &Arc<ManualClock>) -> Vec<Group>,
    ) -> Self {
        Self::with_depth(db, (place, CONFIRMATIONS), hot, keys).await
    }

    /// The same, with so many confirmations.
    pub async fn with_depth(
        db: &'a TestDb,
        (place, confirmations): (Place, u32),
        hot: u64,
        keys: impl FnOnce(Family, &Arc<ManualClock>) -> Vec<Group>,
    ) -> Self {
        // Ids begin in 2024.
        let genesis_time = u64::try_from(NOW.micros() / 1_000_000).unwrap();
        let kind = place.kind();
        let start = match place {
            Place::Devnet(ChainKind::Evm, _) | Place::Anvil => {
                Timestamp::from_micros(i64::try_from(genesis_time).unwrap() * 1_000_000)
            }
            Place::Devnet(ChainKind::Tron | ChainKind::Bitcoin, _) => NOW,
        };
        let clock = Arc::new(ManualClock::at(start));
        let net = match place {
            Place::Devnet(ChainKind::Evm, _) => {
                let settings = evm::Settings { genesis_time, ..evm::Settings::default() };
                Net::Devnet(serve(EvmDevnet::new(settings), &clock).await)
            }
            Place::Devnet(ChainKind::Tron | ChainKind::Bitcoin, solid_depth) => {
                let settings = tron::Settings { solid_depth, genesis: NOW, ..tron::Settings::default() };
                Net::Devnet(serve(TronDevnet::new(settings), &clock).await)
            }
            Place::Anvil => Net::Anvil(Anvil::start(56, genesis_time).await),
        };
        let family = if kind == ChainKind::Evm { Family::Evm } else { Family::Tron };
        let urls: Vec<String> = match &net {
            Net::Devnet(served) => served.endpoints.iter().map(devnet::Endpoint::url).collect(),
            Net::Anvil(anvil) => vec![anvil.url()],
        };
        let endpoint = |(number, url): (usize, &String)| EndpointSettings {
            name: format!("node {number}"),
            url: url.clone(),
            authorization: None,
            key: None,
            headers: Vec::new(),
            per_second: 0,
        };
        let endpoints: Vec<EndpointSettings> = urls.iter().enumerate().map(endpoint).collect();
        let settings = PoolSettings { quorum: Some(endpoints.len().min(2)), ..PoolSettings::default() };
        let pool = Pool::new(&endpoints, &settings, Arc::<ManualClock>::clone(&clock)).unwrap();
        let chain: Box<dyn Chain> = match kind {
            ChainKind::Evm => {
                let settings = EvmSettings { tokens: vec![TETHER], ..EvmSettings::new(56, u64::from(confirmations)) };
                Box::new(EvmChain::new(settings, pool))
            }
            ChainKind::Tron | ChainKind::Bitcoin => {
                let settings = TronSettings::new(chain::tron::Network::Devnet, vec![Address::Tron(TOKEN)]);
                Box::new(TronChain::new(settings, pool).unwrap())
            }
        };
        let mut pinned = Pinned::default();
        for group in keys(family, &clock) {
            pinned.add_group(group, true).unwrap();
        }
        let on_net = || ("net".parse().unwrap(), family);
        pinned.add_derived(on_net(), WalletRole::Gas, (&id("gas"), 0), true).unwrap();
        for index in 0..hot {
            pinned.add_derived(on_net(), WalletRole::Hot, (&id("hot"), index), true).unwrap();
        }
        if pinned.group(&id("treasury")).is_some() {
            pinned.add_derived(on_net(), WalletRole::Treasury, (&id("treasury"), 0), true).unwrap();
        }
        db.apply_treasury(&deep_catalog(kind, confirmations), &pinned.settings(), &AUTHOR, NOW).await.unwrap();
        let row = db.chain(&"net".parse().unwrap()).await.unwrap().unwrap();
        let mut rig = Self { db, kind, net, clock, chain, pinned: Arc::new(pinned), row, family, first: 0 };
        rig.mine(3);
        rig.first = rig.height();
        begin(db.of(DatabaseRole::Deposits), &*rig.chain, &rig.row, Some(rig.height()), NOW).await.unwrap();
        rig
    }

    pub fn model<T>(&self, act: impl FnOnce(&mut dyn Model, Timestamp) -> T) -> T {
        act(&mut *self.devnet().model.lock().unwrap_or_else(PoisonError::into_inner), self.clock.now())
    }

    /// For what only a devnet does.
    fn devnet(&self) -> &Served<dyn Model> {
        match &self.net {
            Net::Devnet(served) => served,
            Net::Anvil(_) => panic!("anvil is not ours"),
        }
    }

    pub fn pass_time(&self) {
        self.clock.set(self.clock.now().plus_micros(3_000_000));
    }

    pub fn mine(&self, blocks: u64) {
        for _ in 0..blocks {
            self.pass_time();
            match &self.net {
                Net::Devnet(_) => self.model(|model, now| model.mine(1, now)),
                Net::Anvil(anvil) => anvil.mine(self.clock.now()),
            }
        }
    }

    pub fn height(&self) -> u64 {
        match &self.net {
            Net::Devnet(_) => self.model(|model, _| model.height()),
            Net::Anvil(anvil) => anvil.height(),
        }
    }

    pub fn reorg(&self, depth: u64, fate: Fate) {
        self.pass_time();
        match &self.net {
            Net::Devnet(_) => self.model(|model, now| model.reorg(depth, fate, &[], now)).unwrap(),
            // It has one fate for all.
            Net::Anvil(anvil) => anvil.reorg(depth),
        }
    }

    pub fn lie(&self, endpoint: usize, lie: Lie) {
        *self.devnet().endpoints[endpoint].view.lock().unwrap_or_else(PoisonError::into_inner) =
            View { lie, ..View::default() };
    }

    pub fn token(&self) -> Coin {
        match self.kind {
            ChainKind::Evm => Coin::Token(Address::Evm(TETHER)),
            ChainKind::Tron | ChainKind::Bitcoin => Coin::Token(Address::Tron(TOKEN)),
        }
    }

    /// A payment by a stranger, in the next block.
    pub fn pay(&self, to: &Address, coin: &Coin, amount: u64) {
        if let Net::Anvil(anvil) = &self.net {
            return anvil.pay(to, coin, raw(amount));
        }
        let token = match coin {
            Coin::Native => None,
            Coin::Token(token) => Some(token.to_string()),
        };
        self.model(|model, now| model.fund(&to.to_string(), token.as_deref(), raw(amount), now)).unwrap();
    }

    /// The user's deposit address; the user gets one if there is none.
    pub async fn address(&self, number: i64) -> Address {
        let user = UserId::new(number).unwrap();
        assign(self.db.of(DatabaseRole::Api), &self.pinned, &id("users"), &[user], NOW)
            .await
            .unwrap()
            .wallets
            .remove(0)
            .address
    }

    pub fn house(&self, role: WalletRole) -> Address {
        self.pinned.wallets().find(|(_, _, wallet)| wallet.role == role).unwrap().2.address.clone()
    }

    pub async fn worker(&self, name: &str) -> DepositWorker<'_> {
        self.worker_on(&*self.chain, name).await
    }

    /// One that asks these nodes.
    pub async fn worker_on<'w>(&'w self, nodes: &'w dyn Chain, name: &str) -> DepositWorker<'w> {
        let mut random = Random::from_seed(7);
        DepositWorker::take(
            self.db.of(DatabaseRole::Deposits),
            nodes,
            self.row.clone(),
            Arc::clone(&self.pinned),
            name,
            &mut random,
            self.clock.now(),
        )
        .await
        .unwrap()
    }

    /// Rounds until there is nothing to do.
    pub async fn work(&self, worker: &mut DepositWorker<'_>) -> Worked {
        let mut sum = Worked::default();
        for _ in 0..200 {
            let worked = worker.round(&*self.clock).await.unwrap();
            if !worked.is_busy() {
                return sum;
            }
            sum.proof.taken_in += worked.proof.taken_in;
            sum.proof.disproven += worked.proof.disproven;
            sum.posted.credited += worked.posted.credited;
            sum.posted.left_over += worked.posted.left_over;
            sum.posted.taken_back += worked.posted.taken_back;
        }
        panic!("it never rests");
    }

    pub async fn deposits(&self) -> Vec<DepositRow> {
        let mut rows = self.db.deposits(&DepositFilter::default(), i64::MAX, 1_000).await.unwrap();
        rows.reverse();
        rows
    }

    /// How an account of a user stands. `None`: there is none.
    pub async fn status(&self, number: i64, symbol: &str) -> Option<AccountStatus> {
        let asset = self.row.listings.iter().find(|listing| listing.symbol.as_str() == symbol).unwrap().asset;
        let mut tx = self.db.read().await.unwrap();
        let accounts = store::ledger::balances::funding_of(&mut tx, UserId::new(number).unwrap()).await.unwrap();
        accounts.iter().find(|(_, account)| account.asset == asset).map(|(_, account)| account.status)
    }

    /// What a user has, in ledger units of the token and of the coin.
    pub async fn has(&self, number: i64, symbol: &str) -> i64 {
        let asset = self.row.listings.iter().find(|listing| listing.symbol.as_str() == symbol).unwrap().asset;
        let mut tx = self.db.read().await.unwrap();
        let accounts = store::ledger::balances::funding_of(&mut tx, UserId::new(number).unwrap()).await.unwrap();
        accounts
            .iter()
            .filter(|(_, account)| account.asset == asset)
            .map(|(_, account)| account.available.units())
            .sum()
    }

    /// The books, and every wallet's entries against what the chain itself says that it has.
    pub async fn assert_true(&self) {
        let report = self.db.audit(|_| ()).await.unwrap();
        assert!(report.clean(), "{:#?}", report.findings);
        for (address, balances) in self.balances().await {
            let parsed = self.family.parse_address(&address).unwrap();
            for (symbol, balance) in balances {
                let coin = if symbol == "COIN" { Coin::Native } else { self.token() };
                let said = self.chain.balances(&[(parsed.clone(), coin)]).await.unwrap()[0];
                assert_eq!(said.to_string(), balance, "{symbol} of {address}");
            }
        }
    }

    pub async fn balances(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut all: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for balance in self.db.wallet_balances(&self.row, "", 1_000).await.unwrap() {
            all.entry(balance.address).or_default().insert(balance.asset.to_string(), balance.raw);
        }
        all
    }
}

pub fn states(rows: &[DepositRow]) -> Vec<DepositState> {
    rows.iter().map(|row| row.state).collect()
}

/// On the devnets of both kinds, with a SQLite database each. A block of TRON is solidified as soon as it is deep enough: before that
/// nobody can say what a wallet has there.
fn on_both(test: impl AsyncFn(Rig<'_>)) {
    for kind in [ChainKind::Evm, ChainKind::Tron] {
        on(Engine::Sqlite, async |db| test(Rig::start(db, kind, u64::from(CONFIRMATIONS) - 1).await).await);
    }
}

/// The same, with blocks of TRON that may still go when they are deep enough.
pub fn on_both_loose(test: impl AsyncFn(Rig<'_>)) {
    for kind in [ChainKind::Evm, ChainKind::Tron] {
        on(Engine::Sqlite, async |db| test(Rig::start(db, kind, 30).await).await);
    }
}

use DepositState::*;

#[test]
fn a_payment_is_detected_proven_credited_and_final() {
    on_both(async |rig| {
        let address = rig.address(7).await;
        let mut worker = rig.worker("one").await;
        rig.pay(&address, &rig.token(), 1_234_567);
        rig.pay(&address, &Coin::Native, 2_000_000);
        rig.mine(1);
        rig.work(&mut worker).await;
        assert_eq!(states(&rig.deposits().await), [Proven, Proven]);
        rig.mine(1);
        assert_eq!(rig.work(&mut worker).await.posted.credited, 0);
        rig.mine(1);
        assert_eq!(rig.work(&mut worker).await.posted.credited, 2);
        assert_eq!((rig.has(7, "USDT").await, rig.has(7, "COIN").await), (12_345, 20_000));
        rig.mine(2);
        rig.work(&mut worker).await;
        assert_eq!(states(&rig.deposits().await), [Final, Final]);
        rig.assert_true().await;
    });
}

#[test]
fn an_address_that_was_made_a_moment_ago_is_seen_in_the_next_block() {
    on_both(async |rig| {
        let mut worker = rig.worker("one").await;
        for number in 1..=20 {
            let address = rig.address(number).await;
            rig.pay(&address, &rig.token(), 1_000_000);
            rig.mine(1);
            rig.work(&mut worker).await;
        }
        rig.mine(3);
        rig.work(&mut worker).await;
        for number in 1..=20 {
            assert_eq!(rig.has(number, "USDT").await, 10_000, "user {number}");
        }
        rig.assert_true().await;
    });
}

#[test]
fn what_a_reorganisation_takes_is_taken_back_and_what_it_brings_again_is_credited_again() {
    on_both_loose(async |rig| {
        let address = rig.address(7).await;
        let mut worker = rig.worker("one").await;
        rig.mine(2);
        rig.work(&mut worker).await;
        rig.pay(&address, &Coin::Native, 1_000_000);
        rig.mine(4);
        rig.work(&mut worker).await;
        assert_eq!(rig.has(7, "COIN").await, 10_000);
        rig.reorg(5, Fate::Dropped);
        rig.mine(2);
        assert_eq!(rig.work(&mut worker).await.posted.taken_back, 1);
        assert_eq!((states(&rig.deposits().await), rig.has(7, "COIN").await), (vec![Reversed], 0));
        rig.assert_true().await;
        rig.pay(&address, &Coin::Native, 1_000_000);
        rig.mine(4);
        rig.work(&mut worker).await;
        rig.reorg(5, Fate::Moved);
        rig.mine(6);
        rig.work(&mut worker).await;
        assert_eq!(rig.has(7, "COIN").await, 10_000, "{:?}", states(&rig.deposits().await));
        rig.assert_true().await;
    });
}

/// Whoever has spent what a reorganisation takes is frozen, and the chain goes on for everybody else.
pub async fn spent_and_taken_back(rig: Rig<'_>) {
    let (spender, other) = (rig.address(7).await, rig.address(8).await);
    let mut worker = rig.worker("one").await;
    rig.mine(2);
    rig.work(&mut worker).await;
    rig.pay(&spender, &Coin::Native, 1_000_000);
    rig.mine(4);
    rig.work(&mut worker).await;
    let asset = rig.row.listings.iter().find(|listing| listing.symbol.as_str() == "COIN").unwrap().asset;
    let ends = (Party::User(UserId::new(7).unwrap()), Party::House("suspense".parse().unwrap()));
    let people = Approval::new("ann", "bob", "the user sends it on").unwrap();
    let spent = Adjustment::new("spent", ends, asset, Amount::from_units(10_000), people).unwrap();
    rig.db.adjust(&spent, false, NOW).await.unwrap();
    assert_eq!(rig.has(7, "COIN").await, 0);
    rig.reorg(5, Fate::Dropped);
    rig.pay(&other, &Coin::Native, 2_000_000);
    rig.mine(6);
    assert_eq!(rig.work(&mut worker).await.posted.taken_back, 1);
    let rows = rig.deposits().await;
    assert_eq!((states(&rows), rows[0].receivable), (vec![Reversed, Final], Amount::from_units(10_000)));
    assert_eq!((rig.has(8, "COIN").await, rig.status(7, "COIN").await), (20_000, Some(AccountStatus::Frozen)));
    rig.assert_true().await;
}

#[test]
fn what_was_spent_and_is_taken_back_freezes_who_spent_it() {
    on_both_loose(async |rig| spent_and_taken_back(rig).await);
}

/// A token's contract fails for one address of many: the payments of all others are credited, and those of that address wait.
#[test]
fn an_address_that_a_contract_says_nothing_of_keeps_nobody_else_waiting() {
    on_both(async |rig| {
        let mut addresses = Vec::new();
        for number in 1..=9 {
            addresses.push(rig.address(number).await);
        }
        let nodes = Bent::speechless(&*rig.chain, addresses[4].clone());
        let mut worker = rig.worker_on(&nodes, "one").await;
        for address in &addresses {
            rig.pay(address, &rig.token(), 1_000_000);
        }
        rig.mine(4);
        for _ in 0..8 {
            match worker.round(&*rig.clock).await {
                Ok(_) | Err(DepositError::Chain(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
            rig.pass_time();
        }
        for number in 1..=9 {
            assert_eq!(rig.has(number, "USDT").await, if number == 5 { 0 } else { 10_000 }, "user {number}");
        }
    });
}

/// A worker is behind when the chain parts below the blocks that it has yet to prove.
#[test]
fn what_was_passed_and_not_proven_may_leave_the_chain() {
    on(Engine::Sqlite, async |db| {
        let rig = Rig::start(db, ChainKind::Evm, 30).await;
        let (early, gone) = (rig.address(7).await, rig.address(9).await);
        let mut worker = rig.worker("one").await;
        rig.pay(&early, &Coin::Native, 2_000_000);
        rig.mine(70);
        rig.pay(&gone, &Coin::Native, 5_000_000);
        rig.mine(50);
        let worked = worker.round(&*rig.clock).await.unwrap();
        assert_eq!((worked.passed, worked.proven), (100, 50));
        assert_eq!(
            states(&rig.deposits().await),
            [Final, Detected],
            "it is behind, and leaves the rest to the booking"
        );
        rig.reorg(60, Fate::Dropped);
        let late = rig.address(8).await;
        rig.pay(&late, &Coin::Native, 3_000_000);
        rig.mine(10);
        rig.work(&mut worker).await;
        assert_eq!(states(&rig.deposits().await), [Final, Orphaned, Final]);
        let have = (rig.has(7, "COIN").await, rig.has(8, "COIN").await, rig.has(9, "COIN").await);
        assert_eq!(have, (20_000, 30_000, 0));
        rig.assert_true().await;
    });
}

/// One of three nodes lies, each in turn and each in every way: nothing but the truth is credited.
#[test]
fn a_node_that_lies_changes_nothing_that_is_credited() {
    on_both(async |rig| {
        let (seven, eight) = (rig.address(7).await, rig.address(8).await);
        let mut worker = rig.worker("one").await;
        let mut paid = 0;
        for lie in
            [Lie::Missing, Lie::Flipped, Lie::Inflated, Lie::LogLeftOut, Lie::TransactionLeftOut, Lie::ValueInflated]
        {
            for endpoint in 0..3 {
                rig.lie(endpoint, lie);
                rig.pay(&seven, &rig.token(), 1_000_000);
                rig.pay(&eight, &Coin::Native, 1_000_000);
                rig.mine(2);
                paid += 10_000;
                for _ in 0..6 {
                    // A liar may be in the way for a while.
                    drop(worker.round(&*rig.clock).await);
                    rig.pass_time();
                }
                rig.lie(endpoint, Lie::Truth);
                rig.clock.set(rig.clock.now().plus_micros(600_000_000));
            }
        }
        rig.mine(4);
        rig.work(&mut worker).await;
        assert_eq!((rig.has(7, "USDT").await, rig.has(8, "COIN").await), (paid, paid));
        rig.assert_true().await;
    });
}

#[test]
fn what_is_paid_to_the_house_or_below_the_minimum_is_nobodys() {
    on_both(async |rig| {
        let address = rig.address(7).await;
        let mut worker = rig.worker("one").await;
        rig.pay(&rig.house(WalletRole::Hot), &rig.token(), 5_000_000);
        rig.pay(&rig.house(WalletRole::Gas), &Coin::Native, 5_000_000);
        rig.pay(&address, &rig.token(), 999);
        rig.mine(3);
        assert_eq!(rig.work(&mut worker).await.posted.left_over, 3);
        let mut reasons: Vec<String> = rig.deposits().await.into_iter().filter_map(|row| row.reason).collect();
        reasons.sort();
        assert_eq!(reasons, ["below_minimum", "house_wallet", "house_wallet"]);
        rig.assert_true().await;
    });
}

/// Whoever owns the database writes an address of a thief's, or gives a user another's: nothing is credited by it.
#[test]
fn a_row_that_does_not_fit_its_key_credits_nobody() {
    on_both(async |rig| {
        let (seven, eight) = (rig.address(7).await, rig.address(8).await);
        let mut worker = rig.worker("one").await;
        rig.pay(&seven, &rig.token(), 1_000_000);
        rig.pay(&eight, &rig.token(), 1_000_000);
        rig.mine(1);
        rig.work(&mut worker).await;
        // Before the credit, user 9 is given the address of user 7.
        crate::wallet_rows::tamper(
            rig.db,
            "UPDATE user_wallets SET user_id = 9, derivation_index = 9 WHERE user_id = 7",
        )
        .await;
        rig.mine(3);
        let worked = rig.work(&mut worker).await;
        assert_eq!((worked.posted.credited, worked.posted.left_over), (1, 1));
        assert_eq!([rig.has(7, "USDT").await, rig.has(8, "USDT").await, rig.has(9, "USDT").await], [0, 10_000, 0]);
        assert_eq!(rig.db.open_findings(0, 10).await.unwrap()[0].kind, "row_differs");
        let row = rig.deposits().await.into_iter().find(|row| row.state == Unattributed).unwrap();
        assert_eq!((row.reason.as_deref(), row.user), (Some("row_differs"), None));
        rig.assert_true().await;
    });
}

/// A second worker takes over in the middle, and a third begins anew: nothing is credited twice.
#[test]
fn workers_that_follow_each_other_credit_once() {
    on_both(async |rig| {
        let address = rig.address(7).await;
        let mut first = rig.worker("one").await;
        for _ in 0..6 {
            rig.pay(&address, &rig.token(), 1_000_000);
            rig.mine(1);
        }
        assert!(first.round(&*rig.clock).await.unwrap().is_busy());
        rig.clock.set(rig.clock.now().plus_micros(121_000_000));
        let mut second = rig.worker("two").await;
        rig.work(&mut second).await;
        let late = first.round(&*rig.clock).await;
        assert!(matches!(late, Err(custody::deposit::DepositError::Cursor(CursorError::Fenced))), "{late:?}");
        second.leave(rig.clock.now()).await.unwrap();
        let mut third = rig.worker("three").await;
        rig.mine(3);
        rig.work(&mut third).await;
        assert_eq!(rig.has(7, "USDT").await, 60_000);
        rig.assert_true().await;
    });
}

/// The database fails at every point of every write, and the worker goes on: the outcome is that of a quiet day.
#[test]
fn a_worker_that_fails_at_every_point_credits_once() {
    on_both_loose(async |rig| {
        let address = rig.address(7).await;
        let mut paid = 0;
        for at in 0..60 {
            rig.pay(&address, &Coin::Native, 1_000_000);
            rig.mine(1);
            paid += 10_000;
            let faulty: Db = crate::faulty::failing_at(rig.db, at);
            let mut random = Random::from_seed(7);
            let (chain, row, pinned) = (&*rig.chain, rig.row.clone(), Arc::clone(&rig.pinned));
            let taken = DepositWorker::take(&faulty, chain, row, pinned, "one", &mut random, rig.clock.now()).await;
            if let Ok(mut worker) = taken {
                for _ in 0..4 {
                    // Whatever failed, the next round begins at the rows.
                    drop(worker.round(&*rig.clock).await);
                }
            }
            if at % 7 == 6 {
                rig.reorg(2, Fate::Moved);
            }
        }
        let mut worker = rig.worker("one").await;
        rig.mine(5);
        rig.work(&mut worker).await;
        assert_eq!(rig.has(7, "COIN").await, paid);
        rig.assert_true().await;
    });
}

/// A token is listed, or users get another group of wallets, while a worker runs: it goes no further with what it knew.
#[test]
fn a_worker_whose_settings_have_changed_passes_nothing() {
    on_both(async |rig| {
        let address = rig.address(7).await;
        let mut worker = rig.worker("one").await;
        rig.mine(1);
        rig.work(&mut worker).await;
        let before = rig.db.chain_standing(&rig.row).await.unwrap().unwrap();
        let mut wanted = catalog(rig.kind);
        wanted.chains.values_mut().for_each(|chain| chain.confirmations += 1);
        rig.db.apply_treasury(&wanted, &rig.pinned.settings(), &AUTHOR, NOW).await.unwrap();
        rig.pay(&address, &rig.token(), 1_000_000);
        rig.mine(5);
        let refused = worker.round(&*rig.clock).await;
        assert!(matches!(refused, Err(custody::deposit::DepositError::Changed { .. })), "{refused:?}");
        let after = rig.db.chain_standing(&rig.row).await.unwrap().unwrap();
        assert_eq!((before.scanned, before.proven_height), (after.scanned, after.proven_height));
        // The same for the groups of wallets.
        let changed = rig.db.chain(&rig.row.name).await.unwrap().unwrap();
        let mut pinned = (*rig.pinned).clone();
        let more = Group { id: id("more"), purpose: Purpose::Deposit, key: key(rig.family, 9) };
        pinned.add_group(more, false).unwrap();
        rig.db.apply_treasury(&wanted, &pinned.settings(), &AUTHOR, NOW).await.unwrap();
        let mut random = Random::from_seed(7);
        let (chain, now) = (&*rig.chain, rig.clock.now());
        let taken =
            DepositWorker::take(rig.db, chain, changed.clone(), Arc::clone(&rig.pinned), "one", &mut random, now);
        let refused = taken.await.unwrap().round(&*rig.clock).await;
        assert!(matches!(refused, Err(custody::deposit::DepositError::Changed { .. })), "{refused:?}");
        let taken = DepositWorker::take(rig.db, chain, changed, Arc::new(pinned), "one", &mut random, now);
        assert_eq!(rig.work(&mut taken.await.unwrap()).await.posted.credited, 1);
        rig.assert_true().await;
    });
}

/// An address that nobody watched when it was paid, as after a restore from a backup: a look finds the coins, people have the
/// blocks read again, and the user gets what was paid.
#[test]
fn what_was_paid_to_an_address_that_was_not_watched_is_found_and_credited_once() {
    on_both(async |rig| {
        let unwatched = Group { id: id("users"), purpose: Purpose::Deposit, key: key(rig.family, 0) };
        let paid = unwatched.address(7).unwrap();
        let mut worker = rig.worker("one").await;
        rig.pay(&paid, &rig.token(), 1_000_000);
        rig.pay(&paid, &Coin::Native, 2_000_000);
        rig.mine(6);
        rig.work(&mut worker).await;
        assert!(rig.deposits().await.is_empty());
        assert_eq!(rig.address(7).await, paid);
        rig.mine(1);
        rig.work(&mut worker).await;
        rig.mine(4);
        rig.work(&mut worker).await;
        let kinds: Vec<String> = rig.db.open_findings(0, 10).await.unwrap().into_iter().map(|one| one.kind).collect();
        assert_eq!(kinds, ["balance_differs", "balance_differs"]);
        assert_eq!((rig.has(7, "USDT").await, rig.has(7, "COIN").await), (0, 0), "nobody knows who paid it");
        rig.assert_true().await;
        let proven = rig.db.chain_standing(&rig.row).await.unwrap().unwrap().proven_height.unwrap();
        rig.db.order_rescan(&rig.row, (rig.first + 1, proven), rig.clock.now()).await.unwrap().unwrap();
        rig.work(&mut worker).await;
        rig.mine(4);
        rig.work(&mut worker).await;
        assert_eq!((rig.has(7, "USDT").await, rig.has(7, "COIN").await), (10_000, 20_000));
        assert_eq!(rig.db.chain_standing(&rig.row).await.unwrap().unwrap().rescan, None);
        rig.assert_true().await;
    });
}

/// The balance sync, twice and beside the worker of the chain: coins that no block explained are one entry and one finding each, and the worker goes on.
#[test]
fn the_balance_sync_finds_what_no_block_explained_once_beside_the_worker() {
    on_both(async |rig| {
        let unwatched = Group { id: id("users"), purpose: Purpose::Deposit, key: key(rig.family, 0) };
        let paid = unwatched.address(7).unwrap();
        let mut worker = rig.worker("one").await;
        rig.pay(&paid, &rig.token(), 1_000_000);
        rig.pay(&paid, &Coin::Native, 2_000_000);
        rig.mine(6);
        rig.work(&mut worker).await;
        // A row that is made now: the worker has looked at this block already.
        assert_eq!(rig.address(7).await, paid);
        rig.work(&mut worker).await;
        assert!(rig.db.open_findings(0, 10).await.unwrap().is_empty());
        let sync = || {
            let (row, pinned) = (rig.row.clone(), Arc::clone(&rig.pinned));
            BalanceSync::new(rig.db, &*rig.chain, row, pinned).unwrap()
        };
        let (one, other) = (sync(), sync());
        let (first, second) = tokio::join!(one.all(&*rig.clock), other.all(&*rig.clock));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!((first.waits, second.waits), (None, None));
        assert_eq!(
            first.looked.differing + second.looked.differing,
            2,
            "whoever comes second finds that it is as the entries say"
        );
        let kinds: Vec<String> = rig.db.open_findings(0, 10).await.unwrap().into_iter().map(|one| one.kind).collect();
        assert_eq!(kinds, ["balance_differs", "balance_differs"]);
        let round = one.round(&*rig.clock).await.unwrap();
        assert_eq!((round.looked.differing, round.came_round), (0, true));
        rig.mine(4);
        rig.work(&mut worker).await;
        assert_eq!(rig.db.open_findings(0, 10).await.unwrap().len(), 2, "the worker finds nothing more");
        rig.assert_true().await;
        // What is said of a block that the chain does not have is not written.
        let holding = store::entry::Holding { address: paid.to_string(), listing: rig.row.listings[0].id };
        let proven = rig.db.chain_standing(&rig.row).await.unwrap().unwrap().proven_height.unwrap();
        let elsewhere = (proven, store::utxo::Hash([9; 32]));
        let refused =
            rig.db.visit(&rig.row, elsewhere, &[(holding.clone(), Some(raw(1)))], Heard::Again, rig.clock.now()).await;
        assert!(matches!(refused, Err(CursorError::NotOnTrail)), "{refused:?}");
        // Nor anything of a chain that is halted.
        rig.db.halt_chain(rig.row.id, Some("people look"), rig.clock.now()).await.unwrap();
        let halted = one.all(&*rig.clock).await;
        assert_eq!(halted.unwrap_err().code(), "CHAIN_HALTED");
        rig.assert_true().await;
    });
}
