//! A chain's books in a test: blocks that pay whom a test likes, passed, proven and booked as a worker does it.

use std::collections::HashMap;

use domain::deposit::{Attribution, Cause, DepositState, Place, Reason, Side};
use domain::utxo::Hash;
use domain::{
    AccountKind, AccountStatus, Amount, Asset, AssetOnChain, Availability, Chain, ChainKind, Listing, Precision,
    RawSum, Timestamp, UserId,
};
use store::Db;
use store::catalog::Catalog;
use store::deposit::{DepositFilter, DepositRow, PostedBatch};
use store::entry::{BlockRow, ChainRow, CursorError, EntryKey, FoundEntry, Heard, ListingId, Passed, Proof, Worker};
use store::ledger::NewAccount;
use store::testing::{NOW, TestDb};

use crate::support::*;
/// A ledger unit of USDT on bsc.
pub const UNIT: i128 = 1_000_000_000_000;

/// One chain, bsc with 3 confirmations, final at 5, and what a test does to it.
pub struct Books<'a> {
    pub db: &'a Db,
    pub chain: ChainRow,
    pub worker: Worker,
    /// The chain as the nodes have it: a branch and the height it began at tell blocks apart.
    pub blocks: Vec<Hash>,
}

pub fn hash(branch: u8, number: u64) -> Hash {
    let mut bytes = [branch; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Hash(bytes)
}

pub fn sum(value: i128) -> RawSum {
    value.to_string().parse().unwrap()
}

pub fn later(seconds: i64) -> Timestamp {
    Timestamp::from_micros(NOW.micros() + seconds * 1_000_000)
}

pub fn user(number: i64) -> UserId {
    UserId::new(number).unwrap()
}

pub async fn set_up(db: &TestDb) {
    let mut catalog: Catalog = catalog();
    let precision = Precision::new(8).unwrap();
    let bnb: domain::Symbol = "BNB".parse().unwrap();
    let usdt = catalog.assets.values().next().unwrap().clone();
    catalog.assets.insert(bnb.clone(), Asset { symbol: bnb.clone(), precision, ..usdt });
    let chain: domain::ChainName = "bsc".parse().unwrap();
    let bsc = Chain { confirmations: 3, final_confirmations: 5, ..catalog.chains[&chain].clone() };
    assert_eq!(bsc.kind, ChainKind::Evm);
    catalog.chains.insert(chain.clone(), bsc);
    let listing = Listing {
        asset: bnb.clone(),
        chain: chain.clone(),
        form: AssetOnChain::new(precision, 18, None).unwrap(),
        min_deposit: Amount::from_units(1),
        status: Availability::Active,
    };
    catalog.listings.insert((bnb, chain.clone()), listing);
    for listing in catalog.listings.values_mut().filter(|listing| listing.asset.as_str() == "USDT") {
        listing.min_deposit = Amount::from_units(1_000);
    }
    db.apply_catalog(&catalog, &AUTHOR, NOW).await.unwrap();
    let wallets = "INSERT INTO wallet_groups (id, name, family, purpose, xpub, derivation_path_template, is_active, created_at, updated_at)
            VALUES (51, 'users', 'evm', 'deposit', 'x1', '', TRUE, 0, 0);
        INSERT INTO user_wallets (id, wallet_group_id, user_id, derivation_index, address, created_at)
            VALUES (57, 51, 7, 7, 'u7', 0), (58, 51, 8, 8, 'u8', 0)";
    db.by_hand(wallets).await.unwrap();
}

impl<'a> Books<'a> {
    pub async fn begin(db: &'a TestDb) -> Self {
        set_up(db).await;
        let chain = db.chain(&"bsc".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!((chain.confirmations, chain.final_confirmations), (3, 5));
        db.begin_chain(&chain, 0, hash(0, 0), NOW).await.unwrap();
        db.begin_chain(&chain, 7, hash(9, 9), NOW).await.unwrap();
        let worker = db.take_chain(chain.id, "one", NOW, later(60)).await.unwrap();
        Self { db, chain, worker, blocks: vec![hash(0, 0)] }
    }

    pub fn coin(&self, symbol: &str) -> ListingId {
        self.chain.listings.iter().find(|listing| listing.symbol.as_str() == symbol).unwrap().id
    }

    pub fn next(&self) -> u64 {
        u64::try_from(self.blocks.len()).unwrap()
    }

    /// What a payment of the transaction `number` to an address is, in the next block of a branch.
    pub fn paid(&self, branch: u8, number: u64, address: &str, raw: i128) -> FoundEntry {
        let height = self.next();
        FoundEntry {
            key: EntryKey { transaction: hash(77, number), place: Place::Log(0), side: Side::In },
            height,
            block: hash(branch, height),
            address: address.to_owned(),
            listing: self.coin("USDT"),
            amount: sum(raw),
            cause: Cause::Deposit,
            coinbase: false,
        }
    }

    pub fn block(&self, branch: u8, entries: Vec<FoundEntry>, proven: bool) -> Passed {
        let height = self.next();
        let block = BlockRow { height, hash: hash(branch, height), parent: *self.blocks.last().unwrap() };
        Passed { blocks: vec![block], entries, source: "node 1".to_owned(), proven }
    }

    pub async fn pass(&mut self, branch: u8, entries: Vec<FoundEntry>) {
        let passed = self.block(branch, entries, false);
        self.db.pass_blocks(&self.worker, &passed, NOW).await.unwrap();
        self.blocks.push(passed.blocks[0].hash);
    }

    /// The block at this height, as a proof has it.
    pub async fn prove(&self, height: u64, entries: Vec<FoundEntry>) -> Result<Proof, CursorError> {
        let at = usize::try_from(height).unwrap();
        let block = BlockRow { height, hash: self.blocks[at], parent: self.blocks[at - 1] };
        let proven = Passed { blocks: vec![block], entries, source: "node 2".to_owned(), proven: true };
        self.db.prove_blocks(&self.worker, &proven, NOW).await
    }

    /// A block that is passed and proven.
    pub async fn mine(&mut self, branch: u8, entries: Vec<FoundEntry>) {
        self.pass(branch, entries.clone()).await;
        assert_eq!(self.prove(self.next() - 1, entries).await.unwrap(), Proof::default());
    }

    pub async fn mine_empty(&mut self, branch: u8, count: usize) {
        for _ in 0..count {
            self.mine(branch, Vec::new()).await;
        }
    }

    pub async fn back_to(&mut self, height: u64) {
        self.db.undo_blocks(&self.worker, height, NOW).await.unwrap();
        self.blocks.truncate(usize::try_from(height).unwrap() + 1);
    }

    /// A look at a chain that has what the entries say.
    pub async fn look(&self) {
        let Some(block) = self.db.proven_block(&self.chain).await.unwrap() else { return };
        // Balances are those of the last block.
        if block.0 + 1 != self.next() {
            return;
        }
        let mut held = HashMap::new();
        for balance in self.db.wallet_balances(&self.chain, "", 100).await.unwrap() {
            held.insert((balance.address, balance.asset.to_string()), balance.raw);
        }
        let mut unchecked = Vec::new();
        for listing in &self.chain.listings {
            unchecked.extend(self.db.unchecked_holdings(self.chain.id, listing.id, 100).await.unwrap());
        }
        let looked = unchecked.into_iter().map(|holding| {
            let symbol = self.chain.listing(holding.listing).unwrap().symbol.to_string();
            // No chain has what 256 bits cannot say.
            let balance = held[&(holding.address.clone(), symbol)].parse().ok();
            (holding, balance)
        });
        let looked: Vec<_> = looked.collect();
        let batch = self.db.look(&self.worker, &self.chain, block, &looked, Heard::Again, NOW).await.unwrap();
        assert_eq!(batch.differing, 0);
    }

    /// Books all that is due, as a worker does whose keys say what the rows say.
    pub async fn post(&self) -> PostedBatch {
        self.look().await;
        let proven = self.db.chain_standing(&self.chain).await.unwrap().unwrap().proven_height.unwrap();
        let due = self.db.due_entries(&self.chain, proven).await.unwrap();
        let whose = due.iter().filter(|entry| entry.is_deposit).map(|entry| {
            let user = entry.address.strip_prefix('u').and_then(|number| number.parse().ok()).and_then(UserId::new);
            (entry.id, user.map_or(Attribution::Nobody(Reason::NoUser), Attribution::User))
        });
        let whose: HashMap<i64, Attribution> = whose.collect();
        let ids: Vec<i64> = due.iter().map(|entry| entry.id).collect();
        let posted = self.db.post_entries(&self.worker, &self.chain, &ids, &whose, NOW).await.unwrap();
        self.mark().await;
        posted
    }

    /// What is proven and not booked says so, as it does when a worker is not behind.
    pub async fn mark(&self) -> usize {
        self.db.mark_proven(&self.worker, NOW).await.unwrap()
    }

    /// The states that a deposit came through, the first one first.
    pub async fn path(&self, deposit: i64) -> Vec<String> {
        let (_, history) = self.db.deposit(deposit).await.unwrap().unwrap();
        let versions: Vec<i64> = history.iter().map(|event| event.version).collect();
        assert_eq!(versions, (1..).take(history.len()).collect::<Vec<i64>>());
        history.into_iter().map(|event| event.state).collect()
    }

    pub async fn deposits(&self) -> Vec<DepositRow> {
        let mut rows = self.db.deposits(&DepositFilter::default(), i64::MAX, 100).await.unwrap();
        rows.reverse();
        rows
    }

    pub async fn states(&self) -> Vec<DepositState> {
        self.deposits().await.iter().map(|row| row.state).collect()
    }

    /// What a user has, in ledger units, and whether the account is active.
    pub async fn has(&self, number: i64, symbol: &str) -> (i64, AccountStatus) {
        let asset = self.chain.listings.iter().find(|listing| listing.symbol.as_str() == symbol).unwrap().asset;
        let mut tx = self.db.read().await.unwrap();
        let accounts = store::ledger::balances::funding_of(&mut tx, user(number)).await.unwrap();
        let found = accounts.iter().find(|(_, account)| account.asset == asset);
        found.map_or((0, AccountStatus::Active), |(_, account)| (account.available.units(), account.status))
    }

    /// What the house has on an account of USDT or BNB.
    pub async fn house(&self, kind: &str, symbol: &str) -> i128 {
        let asset = self.chain.listings.iter().find(|listing| listing.symbol.as_str() == symbol).unwrap().asset;
        let kind: AccountKind = kind.parse().unwrap();
        let account = self.db.open(&[NewAccount::system(&kind, asset).unwrap()], NOW).await.unwrap();
        let store::ledger::Opened::Account(id) = account[0] else { panic!("it is listed") };
        let mut tx = self.db.read().await.unwrap();
        store::ledger::balances::system_balances(&mut tx).await.unwrap().get(&id).copied().unwrap_or(0)
    }
}

/// A user's money goes to suspense: it is spent.
pub async fn spend_of_user(db: &Db, number: i64, units: i64, asset: domain::AssetId) -> Vec<domain::ledger::Reply> {
    let wanted = [NewAccount::funding(user(number), asset), NewAccount::system(&AccountKind::Suspense, asset).unwrap()];
    let ids: Vec<domain::AccountId> = db.open(&wanted, NOW).await.unwrap().into_iter().map(account).collect();
    let movement = domain::ledger::Movement { from: ids[0], to: ids[1], asset, amount: Amount::from_units(units) };
    let operation = domain::ledger::Operation::move_available(key("spent"), vec![movement], note()).unwrap();
    db.post(&[operation], NOW).await.unwrap()
}

fn account(opened: store::ledger::Opened) -> domain::AccountId {
    match opened {
        store::ledger::Opened::Account(id) => id,
        store::ledger::Opened::UnknownAsset => panic!("it is listed"),
    }
}
