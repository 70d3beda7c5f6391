//! What a run begins with: three chains, four assets, two hot wallets on each chain, and a signer that has their keys.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use custody::wallet::Pinned;
use custody::wallet::house::watch_house;
use domain::asset::TransferLimits;
use domain::outbound::OutboundLimits;
use domain::{
    Amount, Asset, AssetOnChain, Availability, Chain, ChainKind, Clock, Listing, ManualClock, Precision, Purpose,
    WalletRole,
};
use signer::keys::{GroupSecret, Keyring, Mnemonic};
use signer::local::LocalSigner;
use store::catalog::{Author, Catalog};
use store::entry::ChainRow;
use store::{Db, Options};
use tx::tron::TronAddress;
use tx::{Address, Family};

use super::client::CHAIN_ID;
use super::coins::{NETWORK, paid_to};
use super::model::{Net, Purse};
use super::run::SimError;

const AUTHOR: Author<'static> = Author { actor: "simulator", reason: "a simulated treasury" };
const WORDS: &str = "test test test test test test test test test test test junk";
const WALLETS: u64 = 2;

/// The things that do not change in a run.
pub(crate) struct Ground {
    pub db: Db,
    pub pinned: Arc<Pinned>,
    pub rows: Vec<ChainRow>,
    pub signer: Arc<LocalSigner>,
    /// Somebody else with the same words, and a signer of their own.
    pub thief: Arc<LocalSigner>,
}

pub(crate) struct Plan {
    pub name: &'static str,
    pub coin: &'static str,
    pub kind: ChainKind,
    pub network: &'static str,
    pub family: Family,
    pub confirmations: u32,
    pub final_confirmations: u32,
    /// No branch that is left is longer: what is final is not undone, and what TRON has solidified neither.
    pub deepest: u64,
    pub account: fn([u8; 20]) -> Address,
}

pub(crate) const PLANS: [Plan; 3] = [
    Plan {
        name: "eve",
        coin: "ECO",
        kind: ChainKind::Evm,
        network: "56",
        family: Family::Evm,
        confirmations: 4,
        final_confirmations: 9,
        deepest: 8,
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
        deepest: 3,
        account: |bytes| Address::Tron(TronAddress(bytes)),
    },
    Plan {
        name: "bit",
        coin: "BCO",
        kind: ChainKind::Bitcoin,
        network: "regtest",
        family: Family::Bitcoin(NETWORK),
        confirmations: 3,
        final_confirmations: 7,
        deepest: 6,
        account: paid_to,
    },
];

/// The one of them that is Bitcoin.
pub(crate) const BITCOIN: usize = 2;

fn limits(kind: ChainKind) -> OutboundLimits {
    let usual = OutboundLimits { in_flight: 6, ..OutboundLimits::usual(kind) };
    match kind {
        ChainKind::Evm | ChainKind::Tron => usual,
        // Prices go above this now and then.
        ChainKind::Bitcoin => OutboundLimits {
            price_cap: 25_000,
            stuck_after_s: 60,
            gather_s: 10,
            gather_most: 8,
            join_below: 2_000,
            ..usual
        },
    }
}

pub(crate) fn broken(what: impl std::fmt::Debug) -> SimError {
    SimError::SetUp(format!("{what:?}"))
}

fn catalog() -> Result<Catalog, SimError> {
    let mut catalog = Catalog::default();
    let asset = |symbol: &str, precision: u8| -> Result<Asset, SimError> {
        let one = Amount::from_units(1);
        Ok(Asset {
            symbol: symbol.parse().map_err(broken)?,
            precision: Precision::new(precision).ok_or_else(|| broken("a precision"))?,
            status: Availability::Active,
            internal_transfer_enabled: true,
            transfer: TransferLimits { min: one, max: one, daily: one },
        })
    };
    let usd = asset("USD", 4)?;
    for plan in &PLANS {
        let chain = Chain {
            name: plan.name.parse().map_err(broken)?,
            kind: plan.kind,
            network: plan.network.to_owned(),
            confirmations: plan.confirmations,
            final_confirmations: plan.final_confirmations,
            outbound: limits(plan.kind),
            status: Availability::Active,
        };
        let coin = asset(plan.coin, 4)?;
        let token = (plan.kind != ChainKind::Bitcoin).then(|| (&usd, Some((plan.account)([0x70; 20]).to_string())));
        for (asset, contract) in std::iter::once((&coin, None)).chain(token) {
            let listing = Listing {
                asset: asset.symbol.clone(),
                chain: chain.name.clone(),
                form: AssetOnChain::new(asset.precision, 6, contract).map_err(broken)?,
                min_deposit: Amount::from_units(1),
                status: Availability::Active,
            };
            catalog.listings.insert((asset.symbol.clone(), chain.name.clone()), listing);
        }
        catalog.assets.insert(coin.symbol.clone(), coin);
        catalog.chains.insert(chain.name.clone(), chain);
    }
    catalog.assets.insert(usd.symbol.clone(), usd);
    Ok(catalog)
}

fn keyring() -> Result<Keyring, SimError> {
    let mut secrets = Vec::new();
    for plan in &PLANS {
        secrets.push(GroupSecret {
            id: format!("hot-{}", plan.name).parse().map_err(broken)?,
            purpose: Purpose::Hot,
            family: plan.family,
            account: 1,
            mnemonic: Mnemonic::parse(WORDS).map_err(broken)?,
        });
    }
    Keyring::of(secrets).map_err(broken)
}

fn policy() -> String {
    let much = "1000000000000000000000000000000";
    let coin =
        |name: &str| format!("{{ coin = \"{name}\", payment = \"{much}\", hour = \"{much}\", day = \"{much}\" }}");
    let mut text = format!(
        "signer = \"sim\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 100\ntron_margin_minutes = 1\n\
         chain = [{{ name = \"eve\", kind = \"evm\", chain_id = {CHAIN_ID} }}, {{ name = \"tro\", kind = \"tron\" }}, \
         {{ name = \"bit\", kind = \"bitcoin\", network = \"regtest\" }}]\n"
    );
    for plan in &PLANS {
        let token = (plan.account)([0x70; 20]).to_string();
        let mut coins = coin("native");
        if plan.kind != ChainKind::Bitcoin {
            coins += &format!(", {}", coin(&token));
        }
        text += &format!(
            "[[group]]\nid = \"hot-{0}\"\nchain = \"{0}\"\nrole = \"hot\"\nmost_fee = \"{much}\"\nmost_fee_day = \"{much}\"\nhighest_index = 9\ncoin = [{coins}]\n",
            plan.name
        );
    }
    text
}

impl Ground {
    pub async fn lay(folder: &Path, clock: &Arc<ManualClock>) -> Result<(Self, Vec<Net>), SimError> {
        let now = clock.now();
        let url = store::db::sqlite_url(&folder.join("simulation.db"));
        // The run must not depend on how slow the machine is, so no wait for a connection may time out.
        let options = Options {
            create: true,
            max_connections: 2,
            acquire_timeout: Duration::from_secs(3_600),
            ..Options::default()
        };
        let db = Db::connect(&url, &options).await?;
        db.migrate(now).await?;
        let made = |keyring: Keyring| {
            let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
            LocalSigner::new(&policy(), keyring, clock).map(Arc::new).map_err(broken)
        };
        let (signer, thief) = (made(keyring()?)?, made(keyring()?)?);
        let mut pinned = Pinned::default();
        for plan in &PLANS {
            let id = format!("hot-{}", plan.name).parse().map_err(broken)?;
            pinned.add_group(signer.group(&id).ok_or_else(|| broken("a group"))?, true).map_err(broken)?;
            for index in 0..WALLETS {
                let place = (plan.name.parse().map_err(broken)?, plan.family);
                pinned.add_derived(place, WalletRole::Hot, (&id, index), true).map_err(broken)?;
            }
        }
        db.apply_treasury(&catalog()?, &pinned.settings(), &AUTHOR, now).await.map_err(broken)?;
        let (mut rows, mut nets) = (Vec::new(), Vec::new());
        for plan in &PLANS {
            let name = plan.name.parse().map_err(broken)?;
            let row = db.chain(&name).await?.ok_or_else(|| broken("a chain is missing"))?;
            let wallets: Vec<Address> =
                pinned.wallets().filter(|(on, ..)| **on == name).map(|(_, _, wallet)| wallet.address.clone()).collect();
            let mut net = Net::new(plan.confirmations.into(), wallets.clone(), now);
            if plan.kind == ChainKind::Bitcoin {
                watch_house(&db, &pinned, (&name, plan.family), now).await.map_err(broken)?;
                let coins = wallets.iter().flat_map(|wallet| [LARGE; 12].map(|amount| (wallet.clone(), amount)));
                net.give(0, &coins.collect::<Vec<_>>());
            }
            for wallet in wallets {
                net.purses.insert(wallet, Purse { native: 10_u128.pow(30), token: RICH });
            }
            rows.push(row);
            nets.push(net);
        }
        Ok((Self { db, pinned: Arc::new(pinned), rows, signer, thief }, nets))
    }
}

/// Satoshi of each coin that a wallet of Bitcoin begins with.
const LARGE: u64 = 20_000_000_000_000;

/// What a wallet has of the token when there is no shortage.
pub(crate) const RICH: u128 = 1_000_000_000_000_000_000;
