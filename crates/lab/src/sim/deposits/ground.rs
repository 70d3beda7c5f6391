//! What a run begins with: two chains, four assets, the house's wallets, and no users.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use custody::wallet::Pinned;
use domain::asset::TransferLimits;
use domain::random::Random;
use domain::utxo::Hash;
use domain::{
    Amount, Asset, AssetOnChain, Availability, Chain, ChainKind, GroupId, Listing, Precision, Purpose, Timestamp,
    WalletRole,
};
use store::catalog::{Author, Catalog};
use store::entry::ChainRow;
use store::{Db, Options};
use tx::tron::TronAddress;
use tx::{AccountKey, Address, Family, Group};

use super::model::Money;
use super::net::{Net, Spec};
use super::owner::Owner;
use super::run::SimError;

const AUTHOR: Author<'static> = Author { actor: "simulator", reason: "a simulated treasury" };
pub(crate) const TOKEN: &str = "USD";
pub(crate) const HOLLOW: &str = "LIE";

/// Keys that nobody has: made from words, for these simulations.
const KEYS: [[&str; 3]; 2] = [
    [
        "xpub6BemYiVfVLDWMdcwQSLmdro6NkqZqDAyNDmeaDQkddksEgP25yzvaycoPEJJx5phSiCmjHqbSfWvx7qfcj2nKYiFYy6VALLLyKNyJMiA1Qq",
        "xpub6BemYiVfVLDWQmbkeL5CNAUv2hMGMeiKzp8iinQ33nwAdeqV79oEZ6DgS7XmY6Uiq4wmCypYxKPU3NphswjkP8hVn3f3KKi7j6qd93yojVN",
        "xpub6BemYiVfVLDWTcP9sabNVPDMzENd1UqAh5RRnmf4FXC6kMzqHo7jfSB6evNbbUD17ZpAcfNTiiVXnwgydxdUJLFRWoGWni2ZGPFxGtPjAxv",
    ],
    [
        "xpub6BemYiVfVLDWNwj2ZvfPqK7usi5RNs5KZFdBLvd7x4fqCbWkYCY9ao62gbkXQ5mnEESCXcyXSjjGaB1G9wBWr93n5uNCdfrAbA9gjjkeviE",
        "xpub6BemYiVfVLDWRbhrSL56AxMUaYp3fxTEeRv597du9GUXV5JxCeDwfKae2xuiabgnGgfMMeq58ufTUvLHQwZaVgxnjFdeTiZRtycAsKsziFx",
        "xpub6BemYiVfVLDWSoF82PjZmZ49p7ArFfBTfqdDNbj9V5dgaaVK1DyACgdPuFKaAbnXJE8xiD7UmN4Gqwr6xzk46ojtpLWsnWPC2vLp7nBRFFo",
    ],
];

/// The things that do not change in a run, but for what is suspended.
pub(crate) struct Ground {
    pub db: Db,
    pub pinned: Arc<Pinned>,
    pub rows: Vec<ChainRow>,
    /// The group of users' addresses, of each chain.
    pub users: Vec<GroupId>,
    catalog: Catalog,
}

struct Plan {
    name: &'static str,
    coin: &'static str,
    kind: ChainKind,
    network: &'static str,
    family: Family,
    confirmations: u32,
    final_confirmations: u32,
    /// Decimals of the coin on the chain and in the ledger; and of the token on the chain, which has 4 in the ledger.
    decimals: (u8, u8),
    token_decimals: u8,
    account: fn([u8; 20]) -> Address,
}

const PLANS: [Plan; 2] = [
    Plan {
        name: "eve",
        coin: "ECO",
        kind: ChainKind::Evm,
        network: "56",
        family: Family::Evm,
        confirmations: 4,
        final_confirmations: 9,
        decimals: (18, 8),
        token_decimals: 18,
        account: |bytes| Address::Evm(bytes.into()),
    },
    Plan {
        name: "tro",
        coin: "TCO",
        kind: ChainKind::Tron,
        network: "mainnet",
        family: Family::Tron,
        confirmations: 2,
        final_confirmations: 6,
        decimals: (6, 4),
        token_decimals: 6,
        account: |bytes| Address::Tron(TronAddress(bytes)),
    },
];

/// The least that a user is credited with, in ledger units.
const LEAST: i64 = 10;
const TOKEN_PRECISION: u8 = 4;

fn broken(what: impl std::fmt::Debug) -> SimError {
    SimError::SetUp(format!("{what:?}"))
}

impl Ground {
    /// A database with the treasury, and the two chains.
    pub async fn lay(folder: &Path, random: &mut Random, now: Timestamp) -> Result<(Self, Vec<Net>), SimError> {
        let url = store::db::sqlite_url(&folder.join("simulation.db"));
        // The run must not depend on how slow the machine is, so no wait for a connection may time out.
        let acquire_timeout = Duration::from_secs(3_600);
        let options = Options { create: true, max_connections: 2, acquire_timeout, ..Options::default() };
        let db = Db::connect(&url, &options).await?;
        db.migrate(now).await?;
        let catalog = catalog()?;
        let (pinned, users) = pin()?;
        db.apply_treasury(&catalog, &pinned.settings(), &AUTHOR, now).await.map_err(broken)?;
        let mut rows = Vec::new();
        let mut nets = Vec::new();
        for plan in &PLANS {
            let name = plan.name.parse().map_err(broken)?;
            let row = db.chain(&name).await?.ok_or_else(|| broken("a chain is missing"))?;
            let net = net(plan, &row, &pinned, random, now)?;
            let first = net.truth.tip();
            db.begin_chain(&row, first.height, Hash(first.hash.0), now).await.map_err(broken)?;
            rows.push(row);
            nets.push(net);
        }
        Ok((Self { db, pinned: Arc::new(pinned), rows, users, catalog }, nets))
    }

    /// Nothing of the token is booked, on either chain, until it is active again.
    pub async fn suspend_token(&mut self, suspended: bool, now: Timestamp) -> Result<(), SimError> {
        let symbol = TOKEN.parse().map_err(broken)?;
        if let Some(asset) = self.catalog.assets.get_mut(&symbol) {
            asset.status = if suspended { Availability::Suspended } else { Availability::Active };
        }
        let applied = self.db.apply_treasury(&self.catalog, &self.pinned.settings(), &AUTHOR, now).await;
        applied.map(|_| ()).map_err(broken)
    }
}

fn asset(symbol: &str, precision: u8) -> Result<Asset, SimError> {
    let transfer =
        TransferLimits { min: Amount::from_units(1), max: Amount::from_units(9), daily: Amount::from_units(9) };
    Ok(Asset {
        symbol: symbol.parse().map_err(broken)?,
        precision: Precision::new(precision).ok_or_else(|| broken("a precision"))?,
        status: Availability::Active,
        internal_transfer_enabled: true,
        transfer,
    })
}

fn token_of(plan: &Plan) -> Address {
    (plan.account)([0x70; 20])
}

fn hollow_of(plan: &Plan) -> Address {
    (plan.account)([0x71; 20])
}

fn catalog() -> Result<Catalog, SimError> {
    let mut catalog = Catalog::default();
    let (usd, lie) = (asset(TOKEN, TOKEN_PRECISION)?, asset(HOLLOW, TOKEN_PRECISION)?);
    for plan in &PLANS {
        let chain = Chain {
            name: plan.name.parse().map_err(broken)?,
            kind: plan.kind,
            network: plan.network.to_owned(),
            confirmations: plan.confirmations,
            final_confirmations: plan.final_confirmations,
            outbound: domain::outbound::OutboundLimits::usual(plan.kind),
            status: Availability::Active,
        };
        let coin = asset(plan.coin, plan.decimals.1)?;
        let (token, hollow) = (Some(token_of(plan).to_string()), Some(hollow_of(plan).to_string()));
        let tokens = [(&usd, plan.token_decimals, token), (&lie, plan.token_decimals, hollow)];
        for (asset, decimals, contract) in std::iter::once((&coin, plan.decimals.0, None)).chain(tokens) {
            let listing = Listing {
                asset: asset.symbol.clone(),
                chain: chain.name.clone(),
                form: AssetOnChain::new(asset.precision, decimals, contract).map_err(broken)?,
                min_deposit: Amount::from_units(LEAST),
                status: Availability::Active,
            };
            catalog.listings.insert((asset.symbol.clone(), chain.name.clone()), listing);
        }
        catalog.assets.insert(coin.symbol.clone(), coin);
        catalog.chains.insert(chain.name.clone(), chain);
    }
    catalog.assets.insert(usd.symbol.clone(), usd);
    catalog.assets.insert(lie.symbol.clone(), lie);
    Ok(catalog)
}

fn pin() -> Result<(Pinned, Vec<GroupId>), SimError> {
    let mut pinned = Pinned::default();
    let mut users = Vec::new();
    for (plan, keys) in PLANS.iter().zip(KEYS) {
        let id = |word: &str| format!("{word}-{}", plan.name).parse::<GroupId>().map_err(broken);
        for (word, purpose, key) in
            [("users", Purpose::Deposit, keys[0]), ("gas", Purpose::Gas, keys[1]), ("hot", Purpose::Hot, keys[2])]
        {
            let key = AccountKey::parse(key, plan.family).map_err(broken)?;
            pinned.add_group(Group { id: id(word)?, purpose, key }, true).map_err(broken)?;
        }
        for (word, role) in [("gas", WalletRole::Gas), ("hot", WalletRole::Hot)] {
            let place = (plan.name.parse().map_err(broken)?, plan.family);
            pinned.add_derived(place, role, (&id(word)?, 0), true).map_err(broken)?;
        }
        users.push(id("users")?);
    }
    Ok((pinned, users))
}

fn net(plan: &Plan, row: &ChainRow, pinned: &Pinned, random: &mut Random, now: Timestamp) -> Result<Net, SimError> {
    let house = |role: WalletRole| {
        let found = pinned.wallets().find(|(chain, _, wallet)| **chain == row.name && wallet.role == role);
        found.map(|(_, _, wallet)| wallet.address.clone()).ok_or_else(|| broken("a wallet is missing"))
    };
    let spare = |decimals: u8, precision: u8| 10_u128.pow(u32::from(decimals - precision));
    let asset = |symbol: &str| {
        let found = row.listings.iter().find(|listing| listing.symbol.as_str() == symbol);
        found.map(|listing| listing.asset).ok_or_else(|| broken("an asset is missing"))
    };
    let spec = Spec {
        name: row.name.clone(),
        kind: plan.kind,
        family: plan.family,
        confirmations: plan.confirmations.into(),
        final_confirmations: plan.final_confirmations.into(),
        unit: BTreeMap::from([
            (Money::Native, spare(plan.decimals.0, plan.decimals.1)),
            (Money::Token, spare(plan.token_decimals, TOKEN_PRECISION)),
            (Money::Hollow, spare(plan.token_decimals, TOKEN_PRECISION)),
        ]),
        asset: BTreeMap::from([
            (Money::Native, asset(plan.coin)?),
            (Money::Token, asset(TOKEN)?),
            (Money::Hollow, asset(HOLLOW)?),
        ]),
        least: LEAST,
        coin: plan.coin,
        token: token_of(plan),
        hollow: hollow_of(plan),
        air: (plan.account)([0xa1; 20]),
        stranger: (plan.account)([0x57; 20]),
        gas: house(WalletRole::Gas)?,
        hot: house(WalletRole::Hot)?,
    };
    let mut net = Net::new(spec, random, now);
    let (gas, hot) = (net.spec.gas.clone(), net.spec.hot.clone());
    net.owners.add(gas, Owner::Gas);
    net.owners.add(hot, Owner::Hot);
    Ok(net)
}
