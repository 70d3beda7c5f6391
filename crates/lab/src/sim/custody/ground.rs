//! What a run begins with: three chains, four assets, two hot wallets on each chain; on EVM and TRON wallets for gas, a treasury, rules and
//! bands; and a signer that has all keys.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use custody::wallet::Pinned;
use custody::wallet::house::watch_house;
use domain::asset::TransferLimits;
use domain::outbound::OutboundLimits;
use domain::treasury::{Operator, Price};
use domain::utxo::Hash;
use domain::{
    Amount, Asset, AssetOnChain, Availability, Chain, ChainKind, Clock, GroupId, Listing, ManualClock, Precision,
    Purpose, Timestamp, WalletRole,
};
use signer::digest::hex;
use signer::keys::{GroupSecret, Keyring, Mnemonic};
use signer::local::LocalSigner;
use signer::policy::signed::SigningKey;
use store::catalog::{Author, Catalog};
use store::entry::{ChainRow, ListingId};
use store::treasury::{BandSetting, GasRuleSetting, RuleSettings, SweepRuleSetting};
use store::{Db, Options};
use tx::tron::TronAddress;
use tx::{Address, Family};

use super::client::CHAIN_ID;
use super::coins::{NETWORK, paid_to};
use super::model::{Net, Owner, Purse};
use super::run::SimError;
use super::treasury::Terms;

const AUTHOR: Author<'static> = Author { actor: "simulator", reason: "a simulated treasury" };
const WORDS: &str = "test test test test test test test test test test test junk";
const WALLETS: u64 = 2;

/// The things that do not change in a run, but for what is suspended.
pub(crate) struct Ground {
    pub db: Db,
    pub pinned: Arc<Pinned>,
    pub rows: Vec<ChainRow>,
    pub signer: Arc<LocalSigner>,
    /// Somebody else with the same words, and a signer of their own.
    pub thief: Arc<LocalSigner>,
    catalog: Catalog,
    /// What people have suspended.
    pub shut: Option<Shut>,
}

/// What may be suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shut {
    /// One of the plans.
    Chain(usize),
    /// On all chains that have it.
    Asset(&'static str),
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
    /// Decimals of the coin on the chain; it has 4 in the ledger.
    pub decimals: u8,
    /// What a wallet of the house begins with, of the coin.
    pub endowment: u128,
    /// None of Bitcoin: its rules are not simulated yet.
    pub terms: Option<Terms>,
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
        decimals: 18,
        endowment: 10_u128.pow(28),
        terms: Some(Terms {
            // A transfer of the token costs at most 12 × 10^14 at the highest price that is paid.
            gas_below: 13 * 10_u128.pow(14),
            gas: 14 * 10_u128.pow(14),
            coins_above: 20 * 10_u128.pow(14),
            tokens_above: 10 * DOLLAR,
            floor: 500 * DOLLAR,
            target: 1_500 * DOLLAR,
            ceiling: 3_000 * DOLLAR,
        }),
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
        decimals: 6,
        endowment: 10_u128.pow(15),
        terms: Some(Terms {
            gas_below: 3_000_000,
            gas: 5_000_000,
            coins_above: 9_000_000,
            tokens_above: 10 * DOLLAR,
            floor: 500 * DOLLAR,
            target: 1_500 * DOLLAR,
            ceiling: 3_000 * DOLLAR,
        }),
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
        decimals: 6,
        endowment: 0,
        terms: None,
        account: paid_to,
    },
];

/// Chain units of a whole token.
pub(crate) const DOLLAR: u128 = 1_000_000;
pub(crate) const DOLLAR_DECIMALS: u8 = 6;
/// Of all assets in the ledger.
pub(crate) const PRECISION: u8 = 4;

/// Millionths of a token that a whole coin is worth: two percent of what is swept pays for it on a quiet day, and not at any price of gas.
const PRICES: [(&str, u64); 3] = [("ECO", 300_000_000), ("TCO", 30_000), ("USD", 1_000_000)];

/// Somebody says what coins are worth.
pub(crate) async fn say_prices(db: &Db, now: Timestamp) -> Result<(), SimError> {
    for (symbol, micros) in PRICES {
        db.set_price(&symbol.parse().map_err(broken)?, Price(micros), "ann", now).await?;
    }
    Ok(())
}

/// Two who approve.
pub(crate) const PEOPLE: [&str; 2] = ["ann", "bob"];

/// The wallets of the house beside its hot ones, where there are rules.
const HOUSE: [(&str, Purpose, WalletRole, u64); 2] =
    [("gas", Purpose::Gas, WalletRole::Gas, 2), ("treasury", Purpose::Treasury, WalletRole::Treasury, 1)];

/// The one of them that is Bitcoin.
pub(crate) const BITCOIN: usize = 2;

fn limits(kind: ChainKind) -> OutboundLimits {
    let usual = OutboundLimits { in_flight: 10, ..OutboundLimits::usual(kind) };
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
    let usd = asset("USD", PRECISION)?;
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
        let coin = asset(plan.coin, PRECISION)?;
        let token = plan.terms.map(|_| (&usd, DOLLAR_DECIMALS, Some(plan.token().to_string())));
        for (asset, decimals, contract) in std::iter::once((&coin, plan.decimals, None)).chain(token) {
            let listing = Listing {
                asset: asset.symbol.clone(),
                chain: chain.name.clone(),
                form: AssetOnChain::new(asset.precision, decimals, contract).map_err(broken)?,
                min_deposit: Amount::from_units(1),
                status: Availability::Active,
            };
            catalog.listings.insert((asset.symbol.clone(), chain.name.clone()), listing);
        }
        catalog.assets.insert(coin.symbol.clone(), coin);
        catalog.chains.insert(chain.name.clone(), chain);
    }
    catalog.assets.insert(usd.symbol.clone(), usd);
    for plan in &PLANS {
        if let Some(terms) = &plan.terms {
            rules(plan, terms, &mut catalog.rules)?;
        }
    }
    Ok(catalog)
}

/// Gas for addresses with tokens, tokens and then coins brought home, and bands for hot wallets.
fn rules(plan: &Plan, terms: &Terms, rules: &mut RuleSettings) -> Result<(), SimError> {
    let units = |raw: u128, decimals: u8| {
        let units = raw / 10_u128.pow(u32::from(decimals - PRECISION));
        i64::try_from(units).map(Amount::from_units).map_err(broken)
    };
    let chain: domain::ChainName = plan.name.parse().map_err(broken)?;
    let gas = GasRuleSetting {
        chain: chain.clone(),
        asset: plan.coin.parse().map_err(broken)?,
        operator: Operator::Below,
        threshold: units(terms.gas_below, plan.decimals)?,
        amount: units(terms.gas, plan.decimals)?,
        priority: 300,
        cool_down_s: 20,
        most_per_hour: 200,
        active: true,
    };
    rules.gas.insert(format!("gas-{}", plan.name), gas);
    let tokens = (plan.coin, terms.coins_above, plan.decimals, None);
    for (asset, above, decimals, most_cost_bps) in [("USD", terms.tokens_above, DOLLAR_DECIMALS, Some(200)), tokens] {
        let sweep = SweepRuleSetting {
            chain: chain.clone(),
            asset: asset.parse().map_err(broken)?,
            operator: Operator::Above,
            threshold: units(above, decimals)?,
            most_cost_bps,
            priority: 400,
            cool_down_s: 20,
            most_per_hour: 200,
            active: true,
        };
        rules.sweeps.insert(format!("{}-{}", asset.to_lowercase(), plan.name), sweep);
    }
    for index in 0..WALLETS {
        let band = BandSetting {
            floor: units(terms.floor, DOLLAR_DECIMALS)?,
            target: units(terms.target, DOLLAR_DECIMALS)?,
            ceiling: units(terms.ceiling, DOLLAR_DECIMALS)?,
            active: true,
        };
        let (group, index) = (plan.group("hot")?, i64::try_from(index).map_err(broken)?);
        rules.bands.insert((chain.clone(), group, index, "USD".parse().map_err(broken)?), band);
    }
    Ok(())
}

impl Plan {
    pub fn group(&self, word: &str) -> Result<GroupId, SimError> {
        format!("{word}-{}", self.name).parse().map_err(broken)
    }

    pub fn token(&self) -> Address {
        (self.account)([0x70; 20])
    }
}

fn keyring() -> Result<Keyring, SimError> {
    let mut secrets = Vec::new();
    for plan in &PLANS {
        let mut secret = |word: &str, purpose: Purpose, account: u32| {
            let mnemonic = Mnemonic::parse(WORDS).map_err(broken)?;
            let id = plan.group(word)?;
            secrets.push(GroupSecret { id, purpose, family: plan.family, account, mnemonic });
            Ok::<(), SimError>(())
        };
        secret("hot", Purpose::Hot, 1)?;
        if plan.terms.is_some() {
            secret("users", Purpose::Deposit, 0)?;
            for (account, (word, purpose, ..)) in (2..).zip(HOUSE) {
                secret(word, purpose, account)?;
            }
        }
    }
    Keyring::of(secrets).map_err(broken)
}

/// Whoever approves what leaves the treasury: a key that follows from the name.
pub(crate) fn approving_key(person: &str) -> Option<SigningKey> {
    let mut seed = [7_u8; 32];
    seed.iter_mut().zip(person.bytes()).for_each(|(seed, byte)| *seed = byte);
    let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    SigningKey::read(&[&head[..], &seed].concat())
}

fn policy() -> String {
    let much = "1000000000000000000000000000000";
    let capped =
        |name: &str| format!("{{ coin = \"{name}\", payment = \"{much}\", hour = \"{much}\", day = \"{much}\" }}");
    let plain = |name: &str| format!("{{ coin = \"{name}\" }}");
    let approved = |name: &str| {
        let people = PEOPLE.map(|person| format!("\"{person}\"")).join(", ");
        format!("{{ coin = \"{name}\", step = [{{ up_to = \"{much}\", approvals = 2, of = [{people}] }}] }}")
    };
    let mut text = format!(
        "signer = \"sim\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 100\ntron_margin_minutes = 1\n\
         chain = [{{ name = \"eve\", kind = \"evm\", chain_id = {CHAIN_ID} }}, {{ name = \"tro\", kind = \"tron\" }}, \
         {{ name = \"bit\", kind = \"bitcoin\", network = \"regtest\" }}]\n"
    );
    for person in PEOPLE {
        let public = approving_key(person).map(|key| hex(&key.public())).unwrap_or_default();
        text += &format!("[[approver]]\nkey = \"{person}\"\nperson = \"{person}\"\ned25519 = \"{public}\"\n");
    }
    let mut group = |plan: &Plan, word: &str, role: &str, more: &str, coins: &[String]| {
        text += &format!(
            "[[group]]\nid = \"{word}-{0}\"\nchain = \"{0}\"\nrole = \"{role}\"\nmost_fee = \"{much}\"\nmost_fee_day = \"{much}\"\n{more}coin = [{1}]\n",
            plan.name,
            coins.join(", ")
        );
    };
    let house = "highest_index = 9\n";
    for plan in &PLANS {
        if plan.terms.is_none() {
            group(plan, "hot", "hot", house, &[capped("native")]);
            continue;
        }
        let token = plan.token().to_string();
        group(plan, "hot", "hot", house, &[capped("native"), capped(&token)]);
        group(plan, "gas", "gas", house, &[capped("native")]);
        group(plan, "users", "deposit", "", &[plain("native"), plain(&token)]);
        group(plan, "treasury", "treasury", house, &[approved("native"), approved(&token)]);
    }
    text
}

fn pin(signer: &LocalSigner) -> Result<Pinned, SimError> {
    let mut pinned = Pinned::default();
    let mut add = |plan: &Plan, word: &str, wallets: Option<(WalletRole, u64)>| -> Result<(), SimError> {
        let id = plan.group(word)?;
        pinned.add_group(signer.group(&id).ok_or_else(|| broken("a group"))?, true).map_err(broken)?;
        let Some((role, count)) = wallets else { return Ok(()) };
        for index in 0..count {
            let place = (plan.name.parse().map_err(broken)?, plan.family);
            pinned.add_derived(place, role, (&id, index), true).map_err(broken)?;
        }
        Ok(())
    };
    for plan in &PLANS {
        add(plan, "hot", Some((WalletRole::Hot, WALLETS)))?;
        if plan.terms.is_some() {
            add(plan, "users", None)?;
            for (word, _, role, count) in HOUSE {
                add(plan, word, Some((role, count)))?;
            }
        }
    }
    Ok(pinned)
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
        let pinned = pin(&signer)?;
        let catalog = catalog()?;
        db.apply_treasury(&catalog, &pinned.settings(), &AUTHOR, now).await.map_err(broken)?;
        say_prices(&db, now).await?;
        let (mut rows, mut nets) = (Vec::new(), Vec::new());
        for plan in &PLANS {
            let name = plan.name.parse().map_err(broken)?;
            let row = db.chain(&name).await?.ok_or_else(|| broken("a chain is missing"))?;
            let here: Vec<_> = pinned.wallets().filter(|(on, ..)| **on == name).map(|(.., wallet)| wallet).collect();
            let owners: HashMap<Address, Owner> = here
                .iter()
                .filter_map(|wallet| match wallet.role {
                    WalletRole::Hot => Some((wallet.address.clone(), Owner::Hot)),
                    WalletRole::Gas => Some((wallet.address.clone(), Owner::Gas)),
                    WalletRole::Treasury => Some((wallet.address.clone(), Owner::Treasury)),
                    WalletRole::Cold => None,
                })
                .collect();
            let hot = here.iter().filter(|wallet| wallet.role == WalletRole::Hot).map(|wallet| wallet.address.clone());
            let wallets: Vec<Address> = hot.collect();
            let depths = (plan.confirmations.into(), plan.final_confirmations.into());
            let mut net = Net::new(depths, owners, wallets.clone(), now);
            if plan.terms.is_some() {
                let first = net.truth.tip();
                db.begin_chain(&row, first.height, Hash(first.hash.0), now).await.map_err(broken)?;
            } else {
                watch_house(&db, &pinned, (&name, plan.family), now).await.map_err(broken)?;
                let coins = wallets.iter().flat_map(|wallet| [LARGE; 12].map(|amount| (wallet.clone(), amount)));
                net.give(0, &coins.collect::<Vec<_>>());
                for wallet in wallets {
                    net.purses.insert(wallet, Purse { native: 10_u128.pow(30), token: 0 });
                }
            }
            rows.push(row);
            nets.push(net);
        }
        Ok((Self { db, pinned: Arc::new(pinned), rows, signer, thief, catalog, shut: None }, nets))
    }

    /// This is suspended, and nothing else.
    pub async fn suspend(&mut self, shut: Option<Shut>, now: Timestamp) -> Result<(), SimError> {
        let status = |is_shut: bool| if is_shut { Availability::Suspended } else { Availability::Active };
        for chain in self.catalog.chains.values_mut() {
            chain.status = status(matches!(shut, Some(Shut::Chain(net)) if PLANS[net].name == chain.name.as_str()));
        }
        for asset in self.catalog.assets.values_mut() {
            asset.status = status(matches!(shut, Some(Shut::Asset(symbol)) if symbol == asset.symbol.as_str()));
        }
        self.db.apply_treasury(&self.catalog, &self.pinned.settings(), &AUTHOR, now).await.map_err(broken)?;
        self.shut = shut;
        Ok(())
    }

    /// Whether nobody may be paid a coin on a chain now.
    pub fn is_shut(&self, net: usize, listing: ListingId) -> bool {
        match self.shut {
            None => false,
            Some(Shut::Chain(shut)) => shut == net,
            Some(Shut::Asset(symbol)) => {
                self.rows[net].listing(listing).is_some_and(|listing| listing.symbol.as_str() == symbol)
            }
        }
    }
}

/// Satoshi of each coin that a wallet of Bitcoin begins with.
const LARGE: u64 = 20_000_000_000_000;
