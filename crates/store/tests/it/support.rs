//! A small treasury that the tests play with.

use domain::asset::TransferLimits;
use domain::ledger::{Movement, OpKey, Operation, Outcome, Reference, Reply};
use domain::*;
use store::Db;
use store::catalog::{Author, Catalog};
use store::ledger::{NewAccount, Opened};
use store::testing::NOW;

pub const AUTHOR: Author<'static> = Author { actor: "test", reason: "set-up" };

/// USDT (6 decimals) on bsc and BTC (8 decimals) on bitcoin.
pub fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for (symbol, precision) in [("USDT", 6), ("BTC", 8)] {
        let precision = Precision::new(precision).expect("at most 18");
        let limits = TransferLimits {
            min: Amount::from_units(1),
            max: Amount::from_units(1_000_000_000),
            daily: Amount::from_units(1_000_000_000),
        };
        let symbol: Symbol = symbol.parse().expect("a symbol");
        let asset = Asset {
            symbol: symbol.clone(),
            precision,
            status: Availability::Active,
            internal_transfer_enabled: true,
            transfer: limits,
        };
        catalog.assets.insert(symbol, asset);
    }
    for (name, kind, network) in [("bsc", ChainKind::Evm, "56"), ("bitcoin", ChainKind::Bitcoin, "mainnet")] {
        let name: ChainName = name.parse().expect("a name");
        let chain = Chain {
            name: name.clone(),
            kind,
            network: network.to_owned(),
            confirmations: 12,
            final_confirmations: 12,
            outbound: domain::outbound::OutboundLimits::usual(kind),
            status: Availability::Active,
        };
        catalog.chains.insert(name, chain);
    }
    for (symbol, chain, decimals, contract) in
        [("USDT", "bsc", 18, Some("0x55d398326f99059ff775485246999027b3197955")), ("BTC", "bitcoin", 8, None)]
    {
        let symbol: Symbol = symbol.parse().expect("a symbol");
        let chain: ChainName = chain.parse().expect("a name");
        let precision = catalog.assets[&symbol].precision;
        let listing = Listing {
            asset: symbol.clone(),
            chain: chain.clone(),
            form: AssetOnChain::new(precision, decimals, contract.map(str::to_owned)).expect("fine enough"),
            min_deposit: Amount::from_units(1),
            status: Availability::Active,
        };
        catalog.listings.insert((symbol, chain), listing);
    }
    catalog
}

/// The treasury with users' accounts 1 to `users`, each with `funds` USDT units.
pub struct Bank {
    pub usdt: AssetId,
    pub btc: AssetId,
    pub custody: AccountId,
    pub clearing: AccountId,
    pub users: Vec<AccountId>,
}

impl Bank {
    pub async fn open(db: &Db, users: i64, funds: i64) -> Self {
        db.apply_catalog(&catalog(), &AUTHOR, NOW).await.expect("a good catalog");
        let assets = store::catalog::read_assets(&mut db.read().await.expect("a snapshot")).await.expect("assets");
        let id_of = |symbol: &str| *assets.iter().find(|(_, asset)| asset.symbol.as_str() == symbol).expect(symbol).0;
        let (usdt, btc) = (id_of("USDT"), id_of("BTC"));
        let wanted: Vec<NewAccount> = [AccountKind::Custody("bsc".parse().expect("a name")), AccountKind::Suspense]
            .iter()
            .map(|kind| NewAccount::system(kind, usdt).expect("a system kind"))
            .chain((1..=users).map(|user| NewAccount::funding(UserId::new(user).expect("positive"), usdt)))
            .collect();
        let ids: Vec<AccountId> = db
            .open(&wanted, NOW)
            .await
            .expect("accounts open")
            .into_iter()
            .map(|opened| match opened {
                Opened::Account(id) => id,
                Opened::UnknownAsset => panic!("USDT exists"),
            })
            .collect();
        let bank = Self { usdt, btc, custody: ids[0], clearing: ids[1], users: ids[2..].to_vec() };
        if funds > 0 {
            let deposits: Vec<Operation> =
                (0..bank.users.len()).map(|user| bank.deposit(&format!("fund-{user}"), user, funds)).collect();
            for chunk in deposits.chunks(1_000) {
                assert_all_applied(&db.post(chunk, NOW).await.expect("deposits"));
            }
        }
        bank
    }

    pub fn movement(&self, from: AccountId, to: AccountId, units: i64) -> Movement {
        Movement { from, to, asset: self.usdt, amount: Amount::from_units(units) }
    }

    pub fn deposit(&self, name: &str, user: usize, units: i64) -> Operation {
        self.post(name, &[(self.custody, self.users[user], units)])
    }

    pub fn post(&self, name: &str, movements: &[(AccountId, AccountId, i64)]) -> Operation {
        let movements = movements.iter().map(|(from, to, units)| self.movement(*from, *to, *units)).collect();
        Operation::move_available(key(name), movements, note()).expect("some movements")
    }

    pub fn hold(&self, name: &str, user: usize, units: i64) -> Operation {
        Operation::hold(key(name), self.users[user], self.usdt, Amount::from_units(units), note())
    }

    pub fn settle(&self, name: &str, hold: &str, user: usize, units: i64) -> Operation {
        let movements = vec![self.movement(self.users[user], self.clearing, units)];
        Operation::settle(key(name), key(hold), movements, note()).expect("some movements")
    }

    pub fn release(&self, name: &str, hold: &str, user: usize, units: i64) -> Operation {
        let amount = Amount::from_units(units);
        Operation::release(key(name), key(hold), self.users[user], self.usdt, amount, note())
    }
}

pub fn key(text: &str) -> OpKey {
    OpKey::new(text).expect("a key")
}

pub fn note() -> Reference {
    Reference::new("test").expect("a reference")
}

#[track_caller]
pub fn assert_all_applied(replies: &[Reply]) {
    assert!(replies.iter().all(|reply| *reply == Reply::First(Outcome::Applied)), "{replies:?}");
}

/// `available/frozen` of an account.
pub async fn balance(db: &Db, account: AccountId) -> String {
    let mut tx = db.read().await.expect("a snapshot");
    let filter = store::ledger::journal::AccountFilter::All;
    let listing = store::ledger::journal::list_accounts(&mut tx, &filter, account.0 - 1, 1).await.expect("a listing");
    format!("{}/{}", listing[0].available, listing[0].frozen)
}

pub async fn assert_clean(db: &Db) {
    let report = db.audit(|_| ()).await.expect("the audit runs");
    assert!(report.clean(), "{:#?}", report.findings);
}

/// How many rows of the journal there are.
pub async fn movements(db: &Db) -> u64 {
    db.audit(|_| ()).await.expect("the audit runs").movements
}
