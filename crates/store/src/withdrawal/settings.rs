//! Policies as the treasury file says them, held against the newest versions, and written as new ones where they differ. Amounts are in ledger units.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use domain::withdrawal::WithdrawalPolicy;
use domain::{Amount, AssetId, ChainName, Precision, Symbol, Timestamp};

use super::policy::{insert, newest_rows};
use super::types::malformed;
use crate::catalog::{Author, Catalog, CatalogError, Change, differences};
use crate::db::Tx;
use crate::entry::{ChainId, ListingId};
use crate::error::StoreError;

/// A policy, and which of its switches are said at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySetting {
    /// Without the version and the switches.
    pub policy: WithdrawalPolicy,
    /// `None`: as it is. A file that is applied for another reason must not switch on what people have switched off in a hurry.
    pub enabled: Option<bool>,
    pub incident: Option<bool>,
}

/// By what is withdrawn and where.
pub type PolicySettings = BTreeMap<(Symbol, ChainName), PolicySetting>;

impl PolicySetting {
    /// What would hold after it, where this holds now.
    fn after(&self, before: Option<&WithdrawalPolicy>) -> WithdrawalPolicy {
        WithdrawalPolicy {
            version: before.map_or(0, |before| before.version),
            enabled: self.enabled.unwrap_or_else(|| before.is_none_or(|before| before.enabled)),
            incident: self.incident.unwrap_or_else(|| before.is_some_and(|before| before.incident)),
            ..self.policy.clone()
        }
    }
}

statements! {
    /// Whoever writes a policy of one coin waits.
    LOCK_LISTINGS = "SELECT id FROM asset_on_chain ORDER BY id {FOR UPDATE}";
    READ_COIN_NAMES = "SELECT l.id, l.asset_id, l.chain_id, a.symbol, c.name FROM asset_on_chain l JOIN assets a ON a.id = l.asset_id
        JOIN chains c ON c.id = l.chain_id";
}

/// An asset on a chain, by its numbers and by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoinName {
    pub listing: ListingId,
    pub asset: AssetId,
    pub chain: ChainId,
    pub names: (Symbol, ChainName),
}

/// Everything that is listed, whether anybody may withdraw it or not.
pub async fn coin_names(tx: &mut Tx) -> Result<Vec<CoinName>, StoreError> {
    let rows = fetch_all!(tx, READ_COIN_NAMES => (i64, i64, i64, String, String))?;
    let one = |(listing, asset, chain, symbol, name): (i64, i64, i64, String, String)| {
        let names = symbol.parse().ok().zip(name.parse().ok()).ok_or_else(|| malformed("coin"))?;
        Ok(CoinName { listing: ListingId(listing), asset: AssetId(asset), chain: ChainId(chain), names })
    };
    rows.into_iter().map(one).collect()
}

pub(crate) async fn lock(tx: &mut Tx) -> Result<(), StoreError> {
    fetch_all!(tx, LOCK_LISTINGS => (i64,)).map(|_| ())
}

/// The newest version of each, with its switches as they are.
pub(crate) async fn read_policy_settings(tx: &mut Tx) -> Result<PolicySettings, StoreError> {
    let rows = newest_rows(tx).await?;
    if rows.is_empty() {
        return Ok(PolicySettings::new());
    }
    let names: HashMap<ListingId, _> =
        coin_names(tx).await?.into_iter().map(|coin| (coin.listing, coin.names)).collect();
    let one = |(listing, row): (ListingId, super::PolicyRow)| {
        let name = names.get(&listing).cloned().ok_or_else(|| malformed("coin"))?;
        let (enabled, incident) = (Some(row.policy.enabled), Some(row.policy.incident));
        Ok((name, PolicySetting { policy: row.policy, enabled, incident }))
    };
    rows.into_iter().map(one).collect()
}

/// What `wanted` changes, or why it must not.
pub(crate) fn plan(current: &Catalog, wanted: &Catalog) -> Result<Vec<Change>, CatalogError> {
    refuse_left_out(current, wanted)?;
    let mut changes = Vec::new();
    for (key, setting) in &wanted.withdrawals {
        let (asset, chain) = key;
        let listed = wanted.listings.contains_key(key) || current.listings.contains_key(key);
        let known = wanted.assets.get(asset).or_else(|| current.assets.get(asset)).filter(|_| listed);
        let Some(known) = known else {
            return Err(CatalogError::PolicyWithoutListing { asset: asset.clone(), chain: chain.clone() });
        };
        let before = current.withdrawals.get(key).map(|before| &before.policy);
        let after = fields(&setting.after(before), known.precision);
        let before = before.map(|before| fields(before, known.precision));
        changes.extend(differences(&format!("withdrawals of {asset} on {chain}"), before, after));
    }
    Ok(changes)
}

/// A policy's amounts are stored in ledger units; when the unit changes, the file has to say them anew.
fn refuse_left_out(current: &Catalog, wanted: &Catalog) -> Result<(), CatalogError> {
    let changed: BTreeSet<&Symbol> = wanted
        .assets
        .values()
        .filter(|asset| current.assets.get(&asset.symbol).is_some_and(|before| before.precision != asset.precision))
        .map(|asset| &asset.symbol)
        .collect();
    let left_out = |key: &&(Symbol, ChainName)| changed.contains(&key.0) && !wanted.withdrawals.contains_key(*key);
    match current.withdrawals.keys().find(left_out) {
        Some((asset, chain)) => Err(CatalogError::PolicyLeftOut { asset: asset.clone(), chain: chain.clone() }),
        None => Ok(()),
    }
}

fn fields(policy: &WithdrawalPolicy, precision: Precision) -> Vec<(&'static str, String)> {
    let WithdrawalPolicy {
        version: _,
        enabled,
        incident,
        min,
        max,
        fee,
        auto_approve,
        auto_approve_daily,
        two_above,
        many_above,
        many,
        daily_user,
        daily_total,
        velocity,
        cooling_off_us,
        book_only,
        quote_life_us,
        when_short,
        life_us,
    } = policy;
    let amount = |amount: &Amount| amount.display(precision).to_string();
    let limit = |limit: &Option<Amount>| limit.as_ref().map_or_else(|| "(none)".to_owned(), amount);
    let requests = velocity.map_or_else(
        || "(any)".to_owned(),
        |velocity| format!("{} in {} s", velocity.count, velocity.window_us / 1_000_000),
    );
    vec![
        ("enabled", enabled.to_string()),
        ("incident", incident.to_string()),
        ("min", amount(min)),
        ("max", amount(max)),
        ("fee", amount(&fee.fixed)),
        ("fee_share_bps", fee.share_bps.to_string()),
        ("fee_least", amount(&fee.least)),
        ("quote_s", (quote_life_us / 1_000_000).to_string()),
        ("auto_approve", amount(auto_approve)),
        ("auto_approve_daily", limit(auto_approve_daily)),
        ("two_above", amount(two_above)),
        ("many_above", amount(many_above)),
        ("many", many.to_string()),
        ("daily_user", limit(daily_user)),
        ("daily_total", limit(daily_total)),
        ("requests", requests),
        ("cooling_off_s", (cooling_off_us / 1_000_000).to_string()),
        ("book_only", book_only.to_string()),
        ("when_short", when_short.as_str().to_owned()),
        ("life_s", (life_us / 1_000_000).to_string()),
    ]
}

/// Writes a new version of each that differs. The listings are locked, and the plan was made under the lock.
pub(crate) async fn write(
    tx: &mut Tx,
    wanted: &PolicySettings,
    author: &Author<'_>,
    at: Timestamp,
) -> Result<(), StoreError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let newest = newest_rows(tx).await?;
    let ids: HashMap<(Symbol, ChainName), ListingId> =
        coin_names(tx).await?.into_iter().map(|coin| (coin.names, coin.listing)).collect();
    let mut changed = Vec::new();
    for (key, setting) in wanted {
        let listing = *ids.get(key).ok_or_else(|| malformed("coin"))?;
        let before = newest.get(&listing).map(|row| &row.policy);
        let after = setting.after(before);
        if before == Some(&after) {
            continue;
        }
        let version = after.version.checked_add(1).ok_or_else(|| malformed("policy"))?;
        changed.push((listing, WithdrawalPolicy { version, ..after }));
    }
    if changed.is_empty() {
        return Ok(());
    }
    insert(tx, &changed, author, at).await
}
