//! Rules and bands as the treasury file says them, held against the rows, and written. Amounts are in ledger units.

use std::collections::BTreeMap;

use domain::treasury::Operator;
use domain::{Amount, ChainName, GroupId, Precision, Symbol, Timestamp, WalletRole};

use super::malformed;
use crate::catalog::{CatalogError, Change, differences};
use crate::db::Tx;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, expect_rows};
use crate::wallet::{Place, WalletSettings, read_wallet_settings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GasRuleSetting {
    pub chain: ChainName,
    pub asset: Symbol,
    pub operator: Operator,
    pub threshold: Amount,
    pub amount: Amount,
    pub priority: i64,
    pub cool_down_s: i64,
    pub most_per_hour: u32,
    pub active: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepRuleSetting {
    pub chain: ChainName,
    pub asset: Symbol,
    pub operator: Operator,
    pub threshold: Amount,
    pub most_cost_bps: Option<u32>,
    pub priority: i64,
    pub cool_down_s: i64,
    pub most_per_hour: u32,
    pub active: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandSetting {
    pub floor: Amount,
    pub target: Amount,
    pub ceiling: Amount,
    pub active: bool,
}

/// A hot wallet's coin: chain, group, index, asset.
pub type BandKey = (ChainName, GroupId, i64, Symbol);

/// All rules and bands, of a file or of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSettings {
    pub gas: BTreeMap<String, GasRuleSetting>,
    pub sweeps: BTreeMap<String, SweepRuleSetting>,
    pub bands: BTreeMap<BandKey, BandSetting>,
}

statements! {
    READ_GAS_SETTINGS = "SELECT r.name, c.name, a.symbol, r.operator, r.threshold, r.amount, r.priority, r.cool_down_s, r.most_per_hour, r.is_active
        FROM gas_topup_rules r JOIN chains c ON c.id = r.chain_id JOIN asset_on_chain l ON l.id = r.listing_id JOIN assets a ON a.id = l.asset_id";
    READ_SWEEP_SETTINGS = "SELECT r.name, c.name, a.symbol, r.operator, r.threshold, r.most_cost_bps, r.priority, r.cool_down_s, r.most_per_hour,
            r.is_active
        FROM consolidation_rules r JOIN chains c ON c.id = r.chain_id JOIN asset_on_chain l ON l.id = r.listing_id
            JOIN assets a ON a.id = l.asset_id";
    READ_BAND_SETTINGS = "SELECT c.name, g.name, w.derivation_index, a.symbol, b.floor_amount, b.target_amount, b.ceiling_amount, b.is_active
        FROM hot_bands b JOIN operation_wallet_addresses w ON w.id = b.operation_wallet_address_id JOIN chains c ON c.id = w.chain_id
            JOIN wallet_groups g ON g.id = w.wallet_group_id JOIN asset_on_chain l ON l.id = b.listing_id JOIN assets a ON a.id = l.asset_id";
    /// Other rules, so every address is looked at again. Each order writes another number: a pass that is under way sees that it counts no more.
    PASS_AGAIN = "UPDATE rule_cursors SET passed_address = NULL, passed_at = CASE WHEN passed_at > 0 THEN 0 ELSE passed_at - 1 END, updated_at = $1";
}

static UPSERT_GAS_RULES: RowsSql = RowsSql::new(
    "UPSERT_GAS_RULES",
    "INSERT INTO gas_topup_rules (name, chain_id, listing_id, operator, threshold, amount, priority, cool_down_s, most_per_hour, is_active,
         created_at, updated_at)
     SELECT r.name, c.id, l.id, r.operator, r.threshold, r.amount, r.priority, r.cool_down_s, r.most_per_hour, r.active = 1, r.at, r.at
     FROM {rows} JOIN chains c ON c.name = r.chain JOIN assets a ON a.symbol = r.asset
         JOIN asset_on_chain l ON l.chain_id = c.id AND l.asset_id = a.id WHERE true
     ON CONFLICT (name) DO UPDATE SET operator = excluded.operator, threshold = excluded.threshold, amount = excluded.amount,
         priority = excluded.priority, cool_down_s = excluded.cool_down_s, most_per_hour = excluded.most_per_hour,
         is_active = excluded.is_active, updated_at = excluded.updated_at",
    &[
        ("name", Text),
        ("chain", Text),
        ("asset", Text),
        ("operator", Text),
        ("threshold", Int),
        ("amount", Int),
        ("priority", Int),
        ("cool_down_s", Int),
        ("most_per_hour", Int),
        ("active", Int),
        ("at", Int),
    ],
);

static UPSERT_SWEEP_RULES: RowsSql = RowsSql::new(
    "UPSERT_SWEEP_RULES",
    "INSERT INTO consolidation_rules (name, chain_id, listing_id, operator, threshold, most_cost_bps, priority, cool_down_s, most_per_hour,
         is_active, created_at, updated_at)
     SELECT r.name, c.id, l.id, r.operator, r.threshold, r.most_cost_bps, r.priority, r.cool_down_s, r.most_per_hour, r.active = 1, r.at, r.at
     FROM {rows} JOIN chains c ON c.name = r.chain JOIN assets a ON a.symbol = r.asset
         JOIN asset_on_chain l ON l.chain_id = c.id AND l.asset_id = a.id WHERE true
     ON CONFLICT (name) DO UPDATE SET operator = excluded.operator, threshold = excluded.threshold,
         most_cost_bps = excluded.most_cost_bps, priority = excluded.priority, cool_down_s = excluded.cool_down_s,
         most_per_hour = excluded.most_per_hour, is_active = excluded.is_active, updated_at = excluded.updated_at",
    &[
        ("name", Text),
        ("chain", Text),
        ("asset", Text),
        ("operator", Text),
        ("threshold", Int),
        ("most_cost_bps", Int),
        ("priority", Int),
        ("cool_down_s", Int),
        ("most_per_hour", Int),
        ("active", Int),
        ("at", Int),
    ],
);

static UPSERT_BANDS: RowsSql = RowsSql::new(
    "UPSERT_BANDS",
    "INSERT INTO hot_bands (operation_wallet_address_id, listing_id, floor_amount, target_amount, ceiling_amount, is_active, created_at, updated_at)
     SELECT (SELECT w.id FROM operation_wallet_addresses w WHERE w.wallet_group_id = g.id AND w.derivation_index = r.derivation_index
             AND w.chain_id = c.id), (SELECT l.id FROM asset_on_chain l WHERE l.asset_id = a.id AND l.chain_id = c.id),
         r.floor_amount, r.target_amount, r.ceiling_amount, r.active = 1, r.at, r.at
     FROM {rows} JOIN chains c ON c.name = r.chain JOIN wallet_groups g ON g.name = r.group_name JOIN assets a ON a.symbol = r.asset
     WHERE true
     ON CONFLICT (operation_wallet_address_id, listing_id) DO UPDATE SET floor_amount = excluded.floor_amount,
         target_amount = excluded.target_amount, ceiling_amount = excluded.ceiling_amount, is_active = excluded.is_active,
         updated_at = excluded.updated_at",
    &[
        ("chain", Text),
        ("group_name", Text),
        ("derivation_index", Int),
        ("asset", Text),
        ("floor_amount", Int),
        ("target_amount", Int),
        ("ceiling_amount", Int),
        ("active", Int),
        ("at", Int),
    ],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&UPSERT_GAS_RULES, &UPSERT_SWEEP_RULES, &UPSERT_BANDS];

/// All rules and bands of the database.
pub async fn read_rules(tx: &mut Tx) -> Result<RuleSettings, StoreError> {
    let mut settings = RuleSettings::default();
    let symbol = |text: String| text.parse::<Symbol>().map_err(|_| malformed("symbol"));
    let chain = |text: String| text.parse::<ChainName>().map_err(|_| malformed("chain"));
    let operator = |text: String| Operator::parse(&text).ok_or_else(|| malformed("operator"));
    let count = |number: i64| u32::try_from(number).map_err(|_| malformed("count"));
    type Gas = (String, String, String, String, i64, i64, i64, i64, i64, bool);
    for (name, on, asset, sign, threshold, amount, priority, cool_down_s, most, active) in
        fetch_all!(tx, READ_GAS_SETTINGS => Gas)?
    {
        let rule = GasRuleSetting {
            chain: chain(on)?,
            asset: symbol(asset)?,
            operator: operator(sign)?,
            threshold: Amount::from_units(threshold),
            amount: Amount::from_units(amount),
            priority,
            cool_down_s,
            most_per_hour: count(most)?,
            active,
        };
        settings.gas.insert(name, rule);
    }
    type Sweep = (String, String, String, String, i64, Option<i64>, i64, i64, i64, bool);
    for (name, on, asset, sign, threshold, bps, priority, cool_down_s, most, active) in
        fetch_all!(tx, READ_SWEEP_SETTINGS => Sweep)?
    {
        let rule = SweepRuleSetting {
            chain: chain(on)?,
            asset: symbol(asset)?,
            operator: operator(sign)?,
            threshold: Amount::from_units(threshold),
            most_cost_bps: bps.map(count).transpose()?,
            priority,
            cool_down_s,
            most_per_hour: count(most)?,
            active,
        };
        settings.sweeps.insert(name, rule);
    }
    for (on, group, index, asset, floor, target, ceiling, active) in
        fetch_all!(tx, READ_BAND_SETTINGS => (String, String, i64, String, i64, i64, i64, bool))?
    {
        let [floor, target, ceiling] = [floor, target, ceiling].map(Amount::from_units);
        let group: GroupId = group.parse().map_err(|_| malformed("group"))?;
        settings
            .bands
            .insert((chain(on)?, group, index, symbol(asset)?), BandSetting { floor, target, ceiling, active });
    }
    Ok(settings)
}

/// What `wanted` changes, or why it must not: a rule keeps its chain and its coin. Precisions are those that hold once it is applied.
pub(crate) async fn plan(
    tx: &mut Tx,
    wanted: &RuleSettings,
    precision_of: impl Fn(&Symbol) -> Option<Precision>,
    wallets: &WalletSettings,
) -> Result<Result<Vec<Change>, CatalogError>, StoreError> {
    if *wanted == RuleSettings::default() {
        return Ok(Ok(Vec::new()));
    }
    let current = read_rules(tx).await?;
    let mut changes = Vec::new();
    let shown = |asset: &Symbol, amount: Amount| {
        precision_of(asset)
            .map_or_else(|| amount.units().to_string(), |precision| amount.display(precision).to_string())
    };
    for (name, rule) in &wanted.gas {
        let fields = |rule: &GasRuleSetting| {
            let (asset, amount) = (&rule.asset, shown(&rule.asset, rule.amount));
            let mut fields = common_fields(&rule.chain, asset, rule.operator, shown(asset, rule.threshold));
            fields.push(("amount", amount));
            fields.extend(pace_fields(rule.priority, rule.cool_down_s, rule.most_per_hour, rule.active));
            fields
        };
        changes.extend(differences(&format!("gas rule {name}"), current.gas.get(name).map(fields), fields(rule)));
    }
    for (name, rule) in &wanted.sweeps {
        let fields = |rule: &SweepRuleSetting| {
            let mut fields = common_fields(&rule.chain, &rule.asset, rule.operator, shown(&rule.asset, rule.threshold));
            let most = rule.most_cost_bps.map_or_else(|| "(any)".to_owned(), |bps| bps.to_string());
            fields.push(("most_cost_bps", most));
            fields.extend(pace_fields(rule.priority, rule.cool_down_s, rule.most_per_hour, rule.active));
            fields
        };
        let before = current.sweeps.get(name).map(fields);
        changes.extend(differences(&format!("consolidation rule {name}"), before, fields(rule)));
    }
    let stored = if wanted.bands.is_empty() { WalletSettings::default() } else { read_wallet_settings(tx).await? };
    for (key, band) in &wanted.bands {
        let (chain, group, index, asset) = key;
        let place = (chain.clone(), Place::Derived { group: group.clone(), index: *index });
        let wallet = wallets.wallets.get(&place).or_else(|| stored.wallets.get(&place));
        if wallet.is_none_or(|wallet| wallet.role != WalletRole::Hot) {
            let (chain, group, index) = (chain.clone(), group.clone(), *index);
            return Ok(Err(CatalogError::BandWithoutWallet { chain, group, index }));
        }
        let fields = |band: &BandSetting| {
            vec![
                ("floor", shown(asset, band.floor)),
                ("target", shown(asset, band.target)),
                ("ceiling", shown(asset, band.ceiling)),
                ("active", band.active.to_string()),
            ]
        };
        let entity = format!("band of {asset} of wallet {index} of {group} on {chain}");
        changes.extend(differences(&entity, current.bands.get(key).map(fields), fields(band)));
    }
    Ok(refuse_moved(&changes).map(|()| changes))
}

fn common_fields(
    chain: &ChainName,
    asset: &Symbol,
    operator: Operator,
    threshold: String,
) -> Vec<(&'static str, String)> {
    vec![
        ("chain", chain.to_string()),
        ("asset", asset.to_string()),
        ("operator", operator.to_string()),
        ("threshold", threshold),
    ]
}

fn pace_fields(priority: i64, cool_down_s: i64, most_per_hour: u32, active: bool) -> [(&'static str, String); 4] {
    [
        ("priority", priority.to_string()),
        ("cool_down_s", cool_down_s.to_string()),
        ("most_per_hour", most_per_hour.to_string()),
        ("active", active.to_string()),
    ]
}

/// Jobs refer to their rule for ever: what it was about stays.
fn refuse_moved(changes: &[Change]) -> Result<(), CatalogError> {
    let moved = changes.iter().find_map(|change| {
        let before = change.before.clone().filter(|_| ["chain", "asset"].contains(&change.field))?;
        Some((change, before))
    });
    match moved {
        None => Ok(()),
        Some((change, before)) => Err(CatalogError::RuleFixed {
            entity: change.entity.clone(),
            field: change.field,
            before,
            after: change.after.clone(),
        }),
    }
}

pub(crate) async fn write(tx: &mut Tx, wanted: &RuleSettings, at: Timestamp) -> Result<(), StoreError> {
    if *wanted == RuleSettings::default() {
        return Ok(());
    }
    let gas: Vec<(&String, &GasRuleSetting)> = wanted.gas.iter().collect();
    let columns = vec![
        Column::Texts(gas.iter().map(|(name, _)| name.as_str()).collect()),
        Column::Texts(gas.iter().map(|(_, rule)| rule.chain.as_str()).collect()),
        Column::Texts(gas.iter().map(|(_, rule)| rule.asset.as_str()).collect()),
        Column::Texts(gas.iter().map(|(_, rule)| rule.operator.as_str()).collect()),
        Column::Ints(gas.iter().map(|(_, rule)| rule.threshold.units()).collect()),
        Column::Ints(gas.iter().map(|(_, rule)| rule.amount.units()).collect()),
        Column::Ints(gas.iter().map(|(_, rule)| rule.priority).collect()),
        Column::Ints(gas.iter().map(|(_, rule)| rule.cool_down_s).collect()),
        Column::Ints(gas.iter().map(|(_, rule)| rule.most_per_hour.into()).collect()),
        Column::Ints(gas.iter().map(|(_, rule)| rule.active.into()).collect()),
        Column::Ints(vec![at.micros(); gas.len()]),
    ];
    expect_rows(execute_rows(tx, &UPSERT_GAS_RULES, columns).await?, gas.len(), "gas rules")?;
    let sweeps: Vec<(&String, &SweepRuleSetting)> = wanted.sweeps.iter().collect();
    let columns = vec![
        Column::Texts(sweeps.iter().map(|(name, _)| name.as_str()).collect()),
        Column::Texts(sweeps.iter().map(|(_, rule)| rule.chain.as_str()).collect()),
        Column::Texts(sweeps.iter().map(|(_, rule)| rule.asset.as_str()).collect()),
        Column::Texts(sweeps.iter().map(|(_, rule)| rule.operator.as_str()).collect()),
        Column::Ints(sweeps.iter().map(|(_, rule)| rule.threshold.units()).collect()),
        Column::OptionalInts(sweeps.iter().map(|(_, rule)| rule.most_cost_bps.map(i64::from)).collect()),
        Column::Ints(sweeps.iter().map(|(_, rule)| rule.priority).collect()),
        Column::Ints(sweeps.iter().map(|(_, rule)| rule.cool_down_s).collect()),
        Column::Ints(sweeps.iter().map(|(_, rule)| rule.most_per_hour.into()).collect()),
        Column::Ints(sweeps.iter().map(|(_, rule)| rule.active.into()).collect()),
        Column::Ints(vec![at.micros(); sweeps.len()]),
    ];
    expect_rows(execute_rows(tx, &UPSERT_SWEEP_RULES, columns).await?, sweeps.len(), "consolidation rules")?;
    let bands: Vec<(&BandKey, &BandSetting)> = wanted.bands.iter().collect();
    let columns = vec![
        Column::Texts(bands.iter().map(|(key, _)| key.0.as_str()).collect()),
        Column::Texts(bands.iter().map(|(key, _)| key.1.as_str()).collect()),
        Column::Ints(bands.iter().map(|(key, _)| key.2).collect()),
        Column::Texts(bands.iter().map(|(key, _)| key.3.as_str()).collect()),
        Column::Ints(bands.iter().map(|(_, band)| band.floor.units()).collect()),
        Column::Ints(bands.iter().map(|(_, band)| band.target.units()).collect()),
        Column::Ints(bands.iter().map(|(_, band)| band.ceiling.units()).collect()),
        Column::Ints(bands.iter().map(|(_, band)| band.active.into()).collect()),
        Column::Ints(vec![at.micros(); bands.len()]),
    ];
    expect_rows(execute_rows(tx, &UPSERT_BANDS, columns).await?, bands.len(), "bands of hot wallets")?;
    execute!(tx, PASS_AGAIN, at.micros())?;
    Ok(())
}
