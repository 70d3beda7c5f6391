//! The database of the bench: a treasury with one chain, ten thousand users who are paid, and millions who only are watched.

use std::sync::Arc;
use std::time::Duration;

use custody::deposit::House;
use custody::wallet::{Pinned, assign};
use domain::asset::TransferLimits;
use domain::random::Random;
use domain::utxo::Hash;
use domain::{
    Amount, Asset, AssetId, AssetOnChain, Availability, Chain, ChainKind, Clock, GroupId, Listing, Precision, Purpose,
    UserId, WalletRole,
};
use indicatif::ProgressBar;
use store::catalog::{Author, Catalog};
use store::entry::ChainRow;
use store::wallet::NewUserWallet;
use store::{Db, Options};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use tx::{AccountKey, Address, Family, Group};

use super::super::site::Site;
use super::trouble;

const AUTHOR: Author<'static> = Author { actor: "bench", reason: "bursar bench deposits" };
/// Keys that nobody has, of the groups of users and of the hot wallet.
const KEYS: [&str; 2] = [
    "xpub6BemYiVfVLDWMdcwQSLmdro6NkqZqDAyNDmeaDQkddksEgP25yzvaycoPEJJx5phSiCmjHqbSfWvx7qfcj2nKYiFYy6VALLLyKNyJMiA1Qq",
    "xpub6BemYiVfVLDWTcP9sabNVPDMzENd1UqAh5RRnmf4FXC6kMzqHo7jfSB6evNbbUD17ZpAcfNTiiVXnwgydxdUJLFRWoGWni2ZGPFxGtPjAxv",
];
/// Users who are paid: their addresses follow from the key.
const PAID: i64 = 10_000;
/// The others' rows have made-up addresses: deriving ten million would take longer than everything else.
const STRANGERS: i64 = 1_000_000_000;
/// Rows that are written at once.
const CHUNK: usize = 10_000;

pub(super) struct Books {
    pub db: Db,
    pub pinned: Arc<Pinned>,
    pub row: ChainRow,
    pub house: House,
    pub family: Family,
    pub asset: AssetId,
    users: GroupId,
    /// The addresses of those who are paid.
    paid: std::sync::OnceLock<Vec<Address>>,
}

fn asset(symbol: &str) -> Result<Asset, Failure> {
    let transfer =
        TransferLimits { min: Amount::from_units(1), max: Amount::from_units(9), daily: Amount::from_units(9) };
    Ok(Asset {
        symbol: symbol.parse().map_err(|_| trouble("a symbol"))?,
        precision: Precision::new(18).ok_or_else(|| trouble("a precision"))?,
        status: Availability::Active,
        internal_transfer_enabled: true,
        transfer,
    })
}

fn catalog() -> Result<Catalog, Failure> {
    let mut catalog = Catalog::default();
    let chain = Chain {
        name: "bench".parse().map_err(|_| trouble("a chain's name"))?,
        kind: ChainKind::Evm,
        network: devnet::evm::CHAIN_ID.to_string(),
        // What is in the newest block is credited, so that the seconds are ours and not the chain's.
        confirmations: 1,
        final_confirmations: 12,
        outbound: domain::outbound::OutboundLimits::usual(ChainKind::Evm),
        status: Availability::Active,
    };
    for (symbol, contract) in [("BNB", None), ("USDT", Some(devnet::evm::TETHER.to_string()))] {
        let asset = asset(symbol)?;
        let listing = Listing {
            asset: asset.symbol.clone(),
            chain: chain.name.clone(),
            form: AssetOnChain::new(asset.precision, 18, contract).map_err(trouble)?,
            min_deposit: Amount::from_units(1),
            status: Availability::Active,
        };
        catalog.listings.insert((asset.symbol.clone(), chain.name.clone()), listing);
        catalog.assets.insert(asset.symbol.clone(), asset);
    }
    catalog.chains.insert(chain.name.clone(), chain);
    Ok(catalog)
}

impl Books {
    pub async fn open(site: &Site) -> Result<Self, Failure> {
        let acquire_timeout = Duration::from_secs(60);
        let options = Options { create: true, max_connections: 16, acquire_timeout, ..Options::default() };
        let db = Db::connect(site.url(), &options).await?;
        let now = SystemClock.now();
        db.migrate(now).await?;
        let family = Family::Evm;
        let mut pinned = Pinned::default();
        for (name, purpose, key) in [("users", Purpose::Deposit, KEYS[0]), ("hot", Purpose::Hot, KEYS[1])] {
            let (id, key) = (group(name)?, AccountKey::parse(key, family).map_err(trouble)?);
            pinned.add_group(Group { id, purpose, key }, true).map_err(trouble)?;
        }
        let name: domain::ChainName = "bench".parse().map_err(|_| trouble("a chain's name"))?;
        let hot = (&group("hot")?, 0);
        pinned.add_derived((name.clone(), family), WalletRole::Hot, hot, true).map_err(trouble)?;
        db.apply_treasury(&catalog()?, &pinned.settings(), &AUTHOR, now).await.map_err(trouble)?;
        let row = db.chain(&name).await?.ok_or_else(|| trouble("the chain is not there"))?;
        let asset = row.native().ok_or_else(|| trouble("the coin is not listed"))?.asset;
        let house = House::of(&pinned, &name);
        let (pinned, users, paid) = (Arc::new(pinned), group("users")?, std::sync::OnceLock::new());
        Ok(Self { db, pinned, row, house, family, asset, users, paid })
    }

    /// Gives so many users their rows.
    pub async fn fill(&self, count: u32, bar: &ProgressBar) -> CommandResult {
        let users: Vec<UserId> = (1..=PAID.min(i64::from(count))).filter_map(UserId::new).collect();
        let now = SystemClock.now();
        let assigned = assign(&self.db, &self.pinned, &self.users, &users, now).await.map_err(trouble)?;
        let paid: Vec<Address> = assigned.wallets.into_iter().map(|wallet| wallet.address).collect();
        let strangers = i64::from(count) - i64::try_from(paid.len()).unwrap_or(0);
        self.paid.get_or_init(|| paid);
        bar.set_length(u64::from(count));
        bar.set_message("addresses");
        let mut random = Random::from_seed(3);
        let mut next = STRANGERS;
        while next < STRANGERS + strangers {
            let some = i64::try_from(CHUNK).unwrap_or(0).min(STRANGERS + strangers - next);
            let rows = (next..next + some).filter_map(UserId::new).map(|user| {
                let mut account = [0; 20];
                account[..8].copy_from_slice(&random.next_u64().to_be_bytes());
                account[8..16].copy_from_slice(&random.next_u64().to_be_bytes());
                NewUserWallet { user, address: Address::Evm(account.into()).to_string() }
            });
            let rows: Vec<NewUserWallet> = rows.collect();
            self.db.assign_user_wallets(&self.users, &rows, now).await?;
            next += some;
            bar.inc(some.unsigned_abs());
        }
        Ok(())
    }

    /// The chain is read from the block above this one on.
    pub async fn begin(&self, at: tx::BlockRef) -> CommandResult {
        let begun = self.db.begin_chain(&self.row, at.height, Hash(at.hash.0), SystemClock.now()).await;
        begun.map_err(trouble)
    }

    /// Whom the payment with this number pays.
    pub fn payee(&self, number: u32) -> Address {
        let users = self.paid.get().map_or(&[][..], Vec::as_slice);
        // Far apart, as users are who pay in one block.
        let at = usize::try_from(number.wrapping_mul(2_654_435_761)).unwrap_or(0) % users.len().max(1);
        users.get(at).cloned().unwrap_or_else(|| Address::Evm([1; 20].into()))
    }
}

fn group(name: &str) -> Result<GroupId, Failure> {
    name.parse().map_err(|_| trouble("a group's name"))
}
