//! Assets, chains, and which asset lives on which chain: read, compared with what is wanted, and changed whole.
//!
//! Nothing is removed: what a wanted catalog leaves out stays as it is. Every changed field is written to
//! `setting_changes` with who and why.

use std::collections::{BTreeMap, BTreeSet};

use domain::asset::TransferLimits;
use domain::outbound::OutboundLimits;
use domain::{
    AccountKind, Amount, Asset, AssetId, AssetOnChain, Availability, Chain, ChainKind, ChainName, Listing, Precision,
    Symbol, Timestamp,
};

use crate::db::{Db, Tx};
use crate::dialect::LOCK_MIGRATIONS;
use crate::error::StoreError;
use crate::ledger::{self, NewAccount};
use crate::operator::PeopleSettings;
use crate::operator::settings as people;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows};
use crate::transact;
use crate::treasury::RuleSettings;
use crate::treasury::settings as rules;
use crate::wallet::WalletSettings;
use crate::wallet::settings as wallets;
use crate::withdrawal::PolicySettings;
use crate::withdrawal::settings as policies;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    pub assets: BTreeMap<Symbol, Asset>,
    pub chains: BTreeMap<ChainName, Chain>,
    pub listings: BTreeMap<(Symbol, ChainName), Listing>,
    /// Rules and bands that name them.
    pub rules: RuleSettings,
    /// What holds for withdrawals of them.
    pub withdrawals: PolicySettings,
    /// Operators, and what is asked outside. Only of a file: [`read_catalog`] leaves them empty.
    pub people: PeopleSettings,
}

/// One field of one thing, as it was and as it will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Such as `asset USDT`, `chain bsc`, `USDT on bsc`.
    pub entity: String,
    pub field: &'static str,
    /// `None` where the entity is new.
    pub before: Option<String>,
    pub after: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("{entity}: {field} cannot change from {before} to {after}, because {asset} is in use")]
    InUse { entity: String, field: &'static str, before: String, after: String, asset: Symbol },
    #[error("asset {asset}: precision cannot change while {asset} on {chain} is left out")]
    ListingLeftOut { asset: Symbol, chain: ChainName },
    #[error("asset {asset}: precision cannot change while the withdrawal policy of {asset} on {chain} is left out")]
    PolicyLeftOut { asset: Symbol, chain: ChainName },
    #[error("withdrawals of {asset} on {chain}: {asset} does not live on {chain}")]
    PolicyWithoutListing { asset: Symbol, chain: ChainName },
    #[error("{asset} on {chain}: there is no asset {asset}")]
    UnknownAsset { asset: Symbol, chain: ChainName },
    #[error("{asset} on {chain}: there is no chain {chain}")]
    UnknownChain { asset: Symbol, chain: ChainName },
    #[error("{entity}: {field} cannot change from {before} to {after}")]
    WalletFixed { entity: String, field: &'static str, before: String, after: String },
    #[error("{what} belongs to {holder} already")]
    WalletTaken { what: String, holder: String },
    #[error("a band is of wallet {index} of {group} on {chain}, and there is no such hot wallet")]
    BandWithoutWallet { chain: ChainName, group: domain::GroupId, index: i64 },
    #[error("{entity}: {field} cannot change from {before} to {after}, because jobs refer to it")]
    RuleFixed { entity: String, field: &'static str, before: String, after: String },
    #[error("the key {key} of an operator is refused: {why}")]
    OperatorKey { key: String, why: &'static str },
    #[error("user {} is the operator {holder} already", user.get())]
    OperatorUser { user: domain::UserId, holder: domain::operator::OperatorName },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CatalogError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "SETTING_IN_USE",
            Self::ListingLeftOut { .. } | Self::PolicyLeftOut { .. } => "LISTING_LEFT_OUT",
            Self::PolicyWithoutListing { .. } => "TREASURY_INVALID",
            Self::UnknownAsset { .. } => "INVALID_ASSET",
            Self::UnknownChain { .. } => "INVALID_CHAIN",
            Self::WalletFixed { .. } => "WALLET_FIXED",
            Self::WalletTaken { .. } => "WALLET_TAKEN",
            Self::RuleFixed { .. } => "RULE_FIXED",
            Self::BandWithoutWallet { .. } => "TREASURY_INVALID",
            Self::OperatorKey { .. } => "OPERATOR_KEY_TAKEN",
            Self::OperatorUser { .. } => "OPERATOR_USER_TAKEN",
            Self::Store(error) => error.code(),
        }
    }

    pub const fn hint(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "list a new asset instead, and set the old one to suspended",
            Self::ListingLeftOut { .. } => "say its minimum deposit anew under [[on_chain]], in the new precision",
            Self::PolicyLeftOut { .. } => "say it anew under [[withdrawals]], in the new precision",
            Self::PolicyWithoutListing { .. } => "list it under [[on_chain]], or correct the names",
            Self::UnknownAsset { .. } => "add it under [assets], or correct the name",
            Self::UnknownChain { .. } => "add it under [chains], or correct the name",
            Self::WalletFixed { .. } => {
                "a new key or address is a new group; if the file is right, the database was changed: bursar wallet verify"
            }
            Self::BandWithoutWallet { .. } => {
                "add it under [[operation_wallets]] with role = \"hot\", or correct the group and the index"
            }
            Self::RuleFixed { .. } => "give the new rule a name of its own, and set active = false in the old one",
            Self::OperatorKey { .. } => {
                "a key is one person's for ever: give a new key a new name, and leave the old one out"
            }
            Self::OperatorUser { .. } => {
                "two operators that are one customer are one person: switch one of them off, and take its user away"
            }
            Self::WalletTaken { .. } => "give each wallet a key and an address of its own",
            Self::Store(error) => error.hint(),
        }
    }
}

statements! {
    READ_ASSETS = "SELECT id, symbol, precision, status, internal_transfer_enabled, min_transfer_amount,
            max_transfer_amount, daily_transfer_amount FROM assets";
    READ_CHAINS = "SELECT name, kind, network, confirmations, COALESCE(final_confirmations, confirmations), status,
            fee_price_cap, fee_cap, in_flight, stuck_after_s, gather_s, gather_most, join_below FROM chains";
    READ_LISTINGS = "SELECT s.symbol, c.name, s.precision, l.contract, l.decimals, l.min_deposit_amount, l.status
        FROM asset_on_chain l JOIN assets s ON s.id = l.asset_id JOIN chains c ON c.id = l.chain_id";
    /// Assets that users have accounts in, or that ever moved, in the ledger or on a chain. The meaning of their amounts must not change.
    READ_ASSETS_IN_USE = "SELECT symbol FROM assets s
        WHERE EXISTS (SELECT 1 FROM accounts a WHERE a.asset_id = s.id AND a.id > 0)
            OR EXISTS (SELECT 1 FROM movements m WHERE m.asset_id = s.id AND m.outcome = 0)
            OR EXISTS (SELECT 1 FROM wallet_balances b JOIN asset_on_chain l ON l.id = b.listing_id WHERE l.asset_id = s.id)";
    /// No account is opened in an asset whose meaning is being changed.
    LOCK_ASSETS = "SELECT id FROM assets ORDER BY id {FOR UPDATE}";
    READ_AUTHORS = "SELECT DISTINCT actor FROM setting_changes";
}

static UPSERT_ASSETS: RowsSql = RowsSql::new(
    "UPSERT_ASSETS",
    "INSERT INTO assets (symbol, precision, status, internal_transfer_enabled, min_transfer_amount,
         max_transfer_amount, daily_transfer_amount, created_at, updated_at)
     SELECT symbol, precision, status, enabled = 1, min_transfer, max_transfer, daily_transfer, at, at
     FROM {rows} WHERE true
     ON CONFLICT (symbol) DO UPDATE SET precision = excluded.precision, status = excluded.status,
         internal_transfer_enabled = excluded.internal_transfer_enabled,
         min_transfer_amount = excluded.min_transfer_amount, max_transfer_amount = excluded.max_transfer_amount,
         daily_transfer_amount = excluded.daily_transfer_amount, updated_at = excluded.updated_at",
    &[
        ("symbol", Text),
        ("precision", Int),
        ("status", Text),
        ("enabled", Int),
        ("min_transfer", Int),
        ("max_transfer", Int),
        ("daily_transfer", Int),
        ("at", Int),
    ],
);

static UPSERT_CHAINS: RowsSql = RowsSql::new(
    "UPSERT_CHAINS",
    "INSERT INTO chains (name, kind, network, confirmations, final_confirmations, status, fee_price_cap, fee_cap, in_flight,
         stuck_after_s, gather_s, gather_most, join_below, created_at, updated_at)
     SELECT name, kind, network, confirmations, final_confirmations, status, fee_price_cap, fee_cap, in_flight, stuck_after_s,
         gather_s, gather_most, join_below, at, at FROM {rows} WHERE true
     ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, network = excluded.network,
         confirmations = excluded.confirmations, final_confirmations = excluded.final_confirmations,
         status = excluded.status, fee_price_cap = excluded.fee_price_cap, fee_cap = excluded.fee_cap,
         in_flight = excluded.in_flight, stuck_after_s = excluded.stuck_after_s,
         gather_s = excluded.gather_s, gather_most = excluded.gather_most, join_below = excluded.join_below,
         updated_at = excluded.updated_at",
    &[
        ("name", Text),
        ("kind", Text),
        ("network", Text),
        ("confirmations", Int),
        ("final_confirmations", Int),
        ("status", Text),
        ("fee_price_cap", Int),
        ("fee_cap", Text),
        ("in_flight", Int),
        ("stuck_after_s", Int),
        ("gather_s", Int),
        ("gather_most", Int),
        ("join_below", Int),
        ("at", Int),
    ],
);

static UPSERT_LISTINGS: RowsSql = RowsSql::new(
    "UPSERT_LISTINGS",
    "INSERT INTO asset_on_chain (asset_id, chain_id, contract, decimals, min_deposit_amount, status, created_at,
         updated_at)
     SELECT s.id, c.id, r.contract, r.decimals, r.min_deposit, r.status, r.at, r.at
     FROM {rows} JOIN assets s ON s.symbol = r.asset JOIN chains c ON c.name = r.chain WHERE true
     ON CONFLICT (asset_id, chain_id) DO UPDATE SET contract = excluded.contract, decimals = excluded.decimals,
         min_deposit_amount = excluded.min_deposit_amount, status = excluded.status, updated_at = excluded.updated_at",
    &[
        ("asset", Text),
        ("chain", Text),
        ("contract", Text),
        ("decimals", Int),
        ("min_deposit", Int),
        ("status", Text),
        ("at", Int),
    ],
);

static INSERT_CHANGES: RowsSql = RowsSql::new(
    "INSERT_CHANGES",
    "INSERT INTO setting_changes (entity, field, before_value, after_value, actor, reason, at)
     SELECT entity, field, before_value, after_value, actor, reason, at FROM {rows}",
    &[
        ("entity", Text),
        ("field", Text),
        ("before_value", Text),
        ("after_value", Text),
        ("actor", Text),
        ("reason", Text),
        ("at", Int),
    ],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 4] = [&UPSERT_ASSETS, &UPSERT_CHAINS, &UPSERT_LISTINGS, &INSERT_CHANGES];

/// Who changes settings, and why.
#[derive(Clone, Debug)]
pub struct Author<'a> {
    pub actor: &'a str,
    pub reason: &'a str,
}

impl Db {
    /// What applying `wanted` would change; refused as applying it would be.
    pub async fn plan_catalog(&self, wanted: &Catalog) -> Result<Vec<Change>, CatalogError> {
        self.plan_treasury(wanted, &WalletSettings::default()).await
    }

    /// The same of a whole treasury file.
    pub async fn plan_treasury(&self, wanted: &Catalog, wallets: &WalletSettings) -> Result<Vec<Change>, CatalogError> {
        let mut tx = self.read().await?;
        plan(&mut tx, wanted, wallets).await?
    }

    /// Makes the database as `wanted` says, in one transaction, and opens the system accounts of everything listed.
    pub async fn apply_catalog(
        &self,
        wanted: &Catalog,
        author: &Author<'_>,
        at: Timestamp,
    ) -> Result<Vec<Change>, CatalogError> {
        self.apply_treasury(wanted, &WalletSettings::default(), author, at).await
    }

    /// The same of a whole treasury file: wallet groups and operation wallets too.
    pub async fn apply_treasury(
        &self,
        wanted: &Catalog,
        wallets: &WalletSettings,
        author: &Author<'_>,
        at: Timestamp,
    ) -> Result<Vec<Change>, CatalogError> {
        transact!(self, tx => {
            fetch_optional!(tx, LOCK_MIGRATIONS => (String,))?;
            fetch_all!(tx, LOCK_ASSETS => (i64,))?;
            if !wanted.withdrawals.is_empty() {
                policies::lock(tx).await?;
            }
            match plan(tx, wanted, wallets).await? {
                Ok(changes) => {
                    write_catalog(tx, wanted, at).await?;
                    wallets::write(tx, wallets, at).await?;
                    rules::write(tx, &wanted.rules, at).await?;
                    policies::write(tx, &wanted.withdrawals, author, at).await?;
                    people::write(tx, &wanted.people, author, at).await?;
                    write_changes(tx, &changes, author, at).await?;
                    open_system_accounts(tx, at).await?;
                    Ok(Ok(changes))
                }
                refused => Ok(refused),
            }
        })?
    }
}

/// Who has ever changed settings. A database that only the demo or a bench has set up belongs to it.
pub async fn read_authors(tx: &mut Tx) -> Result<BTreeSet<String>, StoreError> {
    Ok(fetch_all!(tx, READ_AUTHORS => (String,))?.into_iter().map(|row| row.0).collect())
}

/// Everything in the database.
pub async fn read_catalog(tx: &mut Tx) -> Result<Catalog, StoreError> {
    let mut catalog = Catalog::default();
    for (_, asset) in read_assets(tx).await? {
        catalog.assets.insert(asset.symbol.clone(), asset);
    }
    type Number = Option<i64>;
    type ChainColumns =
        (String, String, String, i64, i64, String, Number, Option<String>, Number, Number, Number, Number, Number);
    for (
        name,
        kind,
        network,
        confirmations,
        final_confirmations,
        status,
        price,
        fee,
        in_flight,
        stuck,
        gather,
        most,
        join,
    ) in fetch_all!(tx, READ_CHAINS => ChainColumns)?
    {
        let kind = stored("chain kind", ChainKind::parse(&kind))?;
        let chain = Chain {
            name: stored("chain name", name.parse().ok())?,
            kind,
            network,
            confirmations: stored("confirmations", confirmations.try_into().ok())?,
            final_confirmations: stored("final_confirmations", final_confirmations.try_into().ok())?,
            outbound: outbound_limits(kind, (price, fee, in_flight, stuck, gather, most, join))?,
            status: stored("status", Availability::parse(&status))?,
        };
        catalog.chains.insert(chain.name.clone(), chain);
    }
    for (symbol, chain, precision, contract, decimals, min_deposit, status) in
        fetch_all!(tx, READ_LISTINGS => (String, String, i64, Option<String>, i64, i64, String))?
    {
        let precision = stored_precision(precision)?;
        let decimals = stored("decimals", decimals.try_into().ok())?;
        let listing = Listing {
            asset: stored("symbol", symbol.parse().ok())?,
            chain: stored("chain name", chain.parse().ok())?,
            form: stored("decimals", AssetOnChain::new(precision, decimals, contract).ok())?,
            min_deposit: Amount::from_units(min_deposit),
            status: stored("status", Availability::parse(&status))?,
        };
        catalog.listings.insert((listing.asset.clone(), listing.chain.clone()), listing);
    }
    catalog.rules = rules::read_rules(tx).await?;
    catalog.withdrawals = policies::read_policy_settings(tx).await?;
    Ok(catalog)
}

/// The assets with the ids that the ledger knows them by.
pub async fn read_assets(tx: &mut Tx) -> Result<BTreeMap<AssetId, Asset>, StoreError> {
    let rows = fetch_all!(tx, READ_ASSETS => (i64, String, i64, String, bool, i64, i64, i64))?;
    rows.into_iter()
        .map(|(id, symbol, precision, status, internal_transfer_enabled, min, max, daily)| {
            let asset = Asset {
                symbol: stored("symbol", symbol.parse().ok())?,
                precision: stored_precision(precision)?,
                status: stored("status", Availability::parse(&status))?,
                internal_transfer_enabled,
                transfer: TransferLimits {
                    min: Amount::from_units(min),
                    max: Amount::from_units(max),
                    daily: Amount::from_units(daily),
                },
            };
            Ok((AssetId(id), asset))
        })
        .collect()
}

pub(crate) type LimitColumns =
    (Option<i64>, Option<String>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

/// What a chain's columns say; what they leave open is as usual.
pub(crate) fn outbound_limits(
    kind: ChainKind,
    (price, fee, in_flight, stuck, gather, most, join): LimitColumns,
) -> Result<OutboundLimits, StoreError> {
    let usual = OutboundLimits::usual(kind);
    let number = |what: &str, number: Option<i64>, usual: u32| {
        number.map_or(Ok(usual), |number| stored(what, number.try_into().ok()))
    };
    let price_of = |what: &str, price: Option<i64>, usual: u64| {
        price.map_or(Ok(usual), |price| stored(what, price.try_into().ok()))
    };
    Ok(OutboundLimits {
        price_cap: price_of("price cap", price, usual.price_cap)?,
        fee_cap: fee.map_or(Ok(usual.fee_cap), |fee| stored("fee cap", fee.parse().ok()))?,
        in_flight: number("limit of what is in flight", in_flight, usual.in_flight)?,
        stuck_after_s: number("time", stuck, usual.stuck_after_s)?,
        gather_s: number("time", gather, usual.gather_s)?,
        gather_most: number("count", most, usual.gather_most)?,
        join_below: price_of("price", join, usual.join_below)?,
    })
}

fn stored<T>(what: &str, value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| StoreError::Corrupt { what: format!("the catalog has a malformed {what}") })
}

fn stored_precision(precision: i64) -> Result<Precision, StoreError> {
    stored("precision", u8::try_from(precision).ok().and_then(Precision::new))
}

/// The outer error is the database's; the inner one says why `wanted` is refused.
async fn plan(
    tx: &mut Tx,
    wanted: &Catalog,
    wallets: &WalletSettings,
) -> Result<Result<Vec<Change>, CatalogError>, StoreError> {
    let current = read_catalog(tx).await?;
    let rows = fetch_all!(tx, READ_ASSETS_IN_USE => (String,))?;
    let in_use = rows.into_iter().map(|(symbol,)| stored("symbol", symbol.parse().ok())).collect::<Result<_, _>>()?;
    let changes = match compare(&current, wanted, &in_use) {
        Ok(changes) => changes,
        refused => return Ok(refused),
    };
    let precision =
        |symbol: &Symbol| wanted.assets.get(symbol).or(current.assets.get(symbol)).map(|asset| asset.precision);
    let ruled = match rules::plan(tx, &wanted.rules, &precision, wallets).await? {
        Ok(ruled) => ruled,
        refused => return Ok(refused),
    };
    let policed = match policies::plan(&current, wanted) {
        Ok(policed) => policed,
        refused => return Ok(refused),
    };
    let of_people = match people::plan(tx, &wanted.people, precision).await? {
        Ok(of_people) => of_people,
        refused => return Ok(refused),
    };
    Ok(wallets::plan(tx, wallets).await?.map(|more| [changes, more, ruled, policed, of_people].concat()))
}

/// What `wanted` changes in `current`, or why it must not.
fn compare(current: &Catalog, wanted: &Catalog, in_use: &BTreeSet<Symbol>) -> Result<Vec<Change>, CatalogError> {
    let mut changes = Vec::new();
    for (symbol, asset) in &wanted.assets {
        let before = current.assets.get(symbol).map(asset_fields);
        let found = differences(&format!("asset {symbol}"), before, asset_fields(asset));
        refuse_in_use(&found, &["precision"], in_use.get(symbol))?;
        refuse_left_out(current, wanted, asset)?;
        changes.extend(found);
    }
    for (name, chain) in &wanted.chains {
        let before = current.chains.get(name).map(chain_fields);
        let found = differences(&format!("chain {name}"), before, chain_fields(chain));
        let lives_there = |symbol: &&Symbol| current.listings.contains_key(&((*symbol).clone(), name.clone()));
        refuse_in_use(&found, &["kind", "network"], in_use.iter().find(lives_there))?;
        changes.extend(found);
    }
    for ((symbol, chain), listing) in &wanted.listings {
        let Some(asset) = wanted.assets.get(symbol).or(current.assets.get(symbol)) else {
            return Err(CatalogError::UnknownAsset { asset: symbol.clone(), chain: chain.clone() });
        };
        if !wanted.chains.contains_key(chain) && !current.chains.contains_key(chain) {
            return Err(CatalogError::UnknownChain { asset: symbol.clone(), chain: chain.clone() });
        }
        let before = current.listings.get(&(symbol.clone(), chain.clone()));
        let before = before.zip(current.assets.get(symbol));
        let before = before.map(|(listing, asset)| listing_fields(listing, asset.precision));
        let found = differences(&format!("{symbol} on {chain}"), before, listing_fields(listing, asset.precision));
        refuse_in_use(&found, &["contract", "decimals"], in_use.get(symbol))?;
        changes.extend(found);
    }
    Ok(changes)
}

/// A listing's minimum is stored in ledger units; when the unit changes, the file has to say it anew.
fn refuse_left_out(current: &Catalog, wanted: &Catalog, asset: &Asset) -> Result<(), CatalogError> {
    let same_unit = current.assets.get(&asset.symbol).is_none_or(|before| before.precision == asset.precision);
    let left_out = |key: &&(Symbol, ChainName)| key.0 == asset.symbol && !wanted.listings.contains_key(*key);
    match current.listings.keys().find(left_out) {
        Some((symbol, chain)) if !same_unit => {
            Err(CatalogError::ListingLeftOut { asset: symbol.clone(), chain: chain.clone() })
        }
        _ => Ok(()),
    }
}

type Fields = Vec<(&'static str, String)>;

fn asset_fields(asset: &Asset) -> Fields {
    let amount = |amount: Amount| amount.display(asset.precision).to_string();
    vec![
        ("precision", asset.precision.decimals().to_string()),
        ("status", asset.status.as_str().to_owned()),
        ("internal_transfer", asset.internal_transfer_enabled.to_string()),
        ("min_transfer", amount(asset.transfer.min)),
        ("max_transfer", amount(asset.transfer.max)),
        ("daily_transfer", amount(asset.transfer.daily)),
    ]
}

fn chain_fields(chain: &Chain) -> Fields {
    vec![
        ("kind", chain.kind.as_str().to_owned()),
        ("network", chain.network.clone()),
        ("confirmations", chain.confirmations.to_string()),
        ("final_confirmations", chain.final_confirmations.to_string()),
        ("fee_price_cap", chain.outbound.price_cap.to_string()),
        ("fee_cap", chain.outbound.fee_cap.to_string()),
        ("in_flight", chain.outbound.in_flight.to_string()),
        ("stuck_after_s", chain.outbound.stuck_after_s.to_string()),
        ("gather_s", chain.outbound.gather_s.to_string()),
        ("gather_most", chain.outbound.gather_most.to_string()),
        ("join_below", chain.outbound.join_below.to_string()),
        ("status", chain.status.as_str().to_owned()),
    ]
}

fn listing_fields(listing: &Listing, precision: Precision) -> Fields {
    vec![
        ("contract", listing.form.contract().unwrap_or("(none)").to_owned()),
        ("decimals", listing.form.decimals().to_string()),
        ("min_deposit", listing.min_deposit.display(precision).to_string()),
        ("status", listing.status.as_str().to_owned()),
    ]
}

pub(crate) fn differences(entity: &str, before: Option<Fields>, after: Fields) -> Vec<Change> {
    let change = |field, before, after| Change { entity: entity.to_owned(), field, before, after };
    match before {
        None => after.into_iter().map(|(field, after)| change(field, None, after)).collect(),
        Some(before) => before
            .into_iter()
            .zip(after)
            .filter(|((_, before), (_, after))| before != after)
            .map(|((field, before), (_, after))| change(field, Some(before), after))
            .collect(),
    }
}

/// These fields say what stored amounts mean; they stand still once users hold the asset.
fn refuse_in_use(changes: &[Change], fixed: &[&str], holder: Option<&Symbol>) -> Result<(), CatalogError> {
    let Some(asset) = holder else { return Ok(()) };
    let broken = changes.iter().find_map(|change| {
        let before = change.before.clone().filter(|_| fixed.contains(&change.field))?;
        Some((change, before))
    });
    match broken {
        None => Ok(()),
        Some((change, before)) => Err(CatalogError::InUse {
            entity: change.entity.clone(),
            field: change.field,
            before,
            after: change.after.clone(),
            asset: asset.clone(),
        }),
    }
}

async fn write_catalog(tx: &mut Tx, wanted: &Catalog, at: Timestamp) -> Result<(), StoreError> {
    let assets: Vec<&Asset> = wanted.assets.values().collect();
    let columns = vec![
        Column::Texts(assets.iter().map(|asset| asset.symbol.as_str()).collect()),
        Column::Ints(assets.iter().map(|asset| asset.precision.decimals().into()).collect()),
        Column::Texts(assets.iter().map(|asset| asset.status.as_str()).collect()),
        Column::Ints(assets.iter().map(|asset| asset.internal_transfer_enabled.into()).collect()),
        Column::Ints(assets.iter().map(|asset| asset.transfer.min.units()).collect()),
        Column::Ints(assets.iter().map(|asset| asset.transfer.max.units()).collect()),
        Column::Ints(assets.iter().map(|asset| asset.transfer.daily.units()).collect()),
        Column::Ints(vec![at.micros(); assets.len()]),
    ];
    execute_rows(tx, &UPSERT_ASSETS, columns).await?;

    let chains: Vec<&Chain> = wanted.chains.values().collect();
    let columns = vec![
        Column::Texts(chains.iter().map(|chain| chain.name.as_str()).collect()),
        Column::Texts(chains.iter().map(|chain| chain.kind.as_str()).collect()),
        Column::Texts(chains.iter().map(|chain| chain.network.as_str()).collect()),
        Column::Ints(chains.iter().map(|chain| chain.confirmations.into()).collect()),
        Column::Ints(chains.iter().map(|chain| chain.final_confirmations.into()).collect()),
        Column::Texts(chains.iter().map(|chain| chain.status.as_str()).collect()),
        Column::Ints(chains.iter().map(|chain| i64::try_from(chain.outbound.price_cap).unwrap_or(i64::MAX)).collect()),
        Column::Strings(chains.iter().map(|chain| chain.outbound.fee_cap.to_string()).collect()),
        Column::Ints(chains.iter().map(|chain| chain.outbound.in_flight.into()).collect()),
        Column::Ints(chains.iter().map(|chain| chain.outbound.stuck_after_s.into()).collect()),
        Column::Ints(chains.iter().map(|chain| chain.outbound.gather_s.into()).collect()),
        Column::Ints(chains.iter().map(|chain| chain.outbound.gather_most.into()).collect()),
        Column::Ints(chains.iter().map(|chain| i64::try_from(chain.outbound.join_below).unwrap_or(i64::MAX)).collect()),
        Column::Ints(vec![at.micros(); chains.len()]),
    ];
    execute_rows(tx, &UPSERT_CHAINS, columns).await?;

    let listings: Vec<&Listing> = wanted.listings.values().collect();
    let columns = vec![
        Column::Texts(listings.iter().map(|listing| listing.asset.as_str()).collect()),
        Column::Texts(listings.iter().map(|listing| listing.chain.as_str()).collect()),
        Column::OptionalTexts(listings.iter().map(|listing| listing.form.contract()).collect()),
        Column::Ints(listings.iter().map(|listing| listing.form.decimals().into()).collect()),
        Column::Ints(listings.iter().map(|listing| listing.min_deposit.units()).collect()),
        Column::Texts(listings.iter().map(|listing| listing.status.as_str()).collect()),
        Column::Ints(vec![at.micros(); listings.len()]),
    ];
    execute_rows(tx, &UPSERT_LISTINGS, columns).await?;
    Ok(())
}

async fn write_changes(tx: &mut Tx, changes: &[Change], author: &Author<'_>, at: Timestamp) -> Result<(), StoreError> {
    let columns = vec![
        Column::Texts(changes.iter().map(|change| change.entity.as_str()).collect()),
        Column::Texts(changes.iter().map(|change| change.field).collect()),
        Column::OptionalTexts(changes.iter().map(|change| change.before.as_deref()).collect()),
        Column::Texts(changes.iter().map(|change| change.after.as_str()).collect()),
        Column::Texts(vec![author.actor; changes.len()]),
        Column::Texts(vec![author.reason; changes.len()]),
        Column::Ints(vec![at.micros(); changes.len()]),
    ];
    execute_rows(tx, &INSERT_CHANGES, columns).await?;
    Ok(())
}

/// Each asset has its house accounts, and one pair more for each chain that it lives on.
async fn open_system_accounts(tx: &mut Tx, at: Timestamp) -> Result<(), StoreError> {
    let assets = read_assets(tx).await?;
    let catalog = read_catalog(tx).await?;
    let mut wanted = Vec::new();
    for (id, asset) in assets {
        let everywhere =
            [AccountKind::ClearingSpot, AccountKind::Fees, AccountKind::Gas, AccountKind::Dust, AccountKind::Suspense];
        let chains = catalog.listings.keys().filter(|(symbol, _)| *symbol == asset.symbol).map(|(_, chain)| chain);
        let by_chain =
            chains.flat_map(|chain| [AccountKind::Custody(chain.clone()), AccountKind::External(chain.clone())]);
        wanted.extend(everywhere.into_iter().chain(by_chain).filter_map(|kind| NewAccount::system(&kind, id)));
    }
    ledger::open(tx, &wanted, at).await?;
    Ok(())
}
