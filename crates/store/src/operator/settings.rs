//! Operators as the treasury file says them, held against the rows, and written; and from which amount on withdrawals are checked outside.
//!
//! Whoever the file leaves out stays as before. A person who leaves is switched off, never removed. The keys that an entry lists are all that the person
//! may sign with: one that is left out of it is switched off.

use std::collections::{BTreeMap, BTreeSet};

use domain::operator::{OperatorName, OperatorRole};
use domain::{Amount, ChainName, Precision, Symbol, Timestamp, UserId};

use super::malformed;
use super::read::key_of;
use crate::catalog::{Author, CatalogError, Change, differences};
use crate::db::Tx;
use crate::dialect::Many;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, expect_rows};

/// Where a passkey may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasskeyPlace {
    pub relying_party: String,
    pub origins: BTreeSet<String>,
}

/// What a person signs with, as the signer's policy writes it: small hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorKey {
    pub public: String,
    /// `None`: it is an Ed25519 key.
    pub place: Option<PasskeyPlace>,
}

impl OperatorKey {
    pub const fn kind(&self) -> &'static str {
        if self.place.is_some() { "passkey" } else { "ed25519" }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorSetting {
    pub role: OperatorRole,
    pub user: Option<UserId>,
    pub active: bool,
    /// By the names that the signer's policy gives them.
    pub keys: BTreeMap<String, OperatorKey>,
}

/// From which amount on withdrawals are checked outside. `None`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckSetting {
    pub from: Option<Amount>,
}

/// What a treasury file says of people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeopleSettings {
    pub operators: BTreeMap<OperatorName, OperatorSetting>,
    pub checks: BTreeMap<(Symbol, ChainName), CheckSetting>,
}

statements! {
    READ_OPERATOR_SETTINGS = "SELECT name, role, user_id, is_active FROM operators";
    READ_KEY_SETTINGS = "SELECT o.name, k.name, k.kind, k.public_key, k.relying_party, k.origins, k.is_active
        FROM operator_keys k JOIN operators o ON o.id = k.operator_id";
    READ_CHECK_SETTINGS = "SELECT a.symbol, c.name, r.from_amount FROM withdrawal_check_rules r JOIN asset_on_chain l ON l.id = r.listing_id
            JOIN assets a ON a.id = l.asset_id JOIN chains c ON c.id = l.chain_id
        WHERE r.version = (SELECT MAX(n.version) FROM withdrawal_check_rules n WHERE n.listing_id = r.listing_id)";
    REST_OPERATOR_KEYS = "UPDATE operator_keys SET is_active = FALSE, updated_at = $2 WHERE name {in $1}";
}

static UPSERT_OPERATORS: RowsSql = RowsSql::new(
    "UPSERT_OPERATORS",
    "INSERT INTO operators (name, role, user_id, is_active, created_at, updated_at)
     SELECT r.name, r.role, r.user_id, r.active = 1, r.at, r.at FROM {rows} WHERE true
     ON CONFLICT (name) DO UPDATE SET role = excluded.role, user_id = excluded.user_id, is_active = excluded.is_active,
         updated_at = excluded.updated_at",
    &[("name", Text), ("role", Text), ("user_id", Int), ("active", Int), ("at", Int)],
);

static UPSERT_OPERATOR_KEYS: RowsSql = RowsSql::new(
    "UPSERT_OPERATOR_KEYS",
    "INSERT INTO operator_keys (name, operator_id, kind, public_key, relying_party, origins, is_active, created_at, updated_at)
     SELECT r.name, o.id, r.kind, r.public_key, r.relying_party, r.origins, 1 = 1, r.at, r.at
     FROM {rows} JOIN operators o ON o.name = r.operator WHERE true
     ON CONFLICT (name) DO UPDATE SET is_active = excluded.is_active, updated_at = excluded.updated_at",
    &[
        ("name", Text),
        ("operator", Text),
        ("kind", Text),
        ("public_key", Text),
        ("relying_party", Text),
        ("origins", Text),
        ("at", Int),
    ],
);

static INSERT_CHECK_RULES: RowsSql = RowsSql::new(
    "INSERT_CHECK_RULES",
    "INSERT INTO withdrawal_check_rules (listing_id, version, from_amount, actor, reason, at)
     SELECT l.id, COALESCE((SELECT MAX(n.version) FROM withdrawal_check_rules n WHERE n.listing_id = l.id), 0) + 1, r.from_amount, r.actor, r.reason, r.at
     FROM {rows} JOIN assets a ON a.symbol = r.asset JOIN chains c ON c.name = r.chain
         JOIN asset_on_chain l ON l.asset_id = a.id AND l.chain_id = c.id",
    &[("asset", Text), ("chain", Text), ("from_amount", Int), ("actor", Text), ("reason", Text), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&UPSERT_OPERATORS, &UPSERT_OPERATOR_KEYS, &INSERT_CHECK_RULES];

/// What the rows say: the settings, with the keys that are switched on, and all keys that there ever were with their holders.
struct Known {
    settings: PeopleSettings,
    keys: BTreeMap<String, (OperatorName, OperatorKey)>,
}

async fn read(tx: &mut Tx) -> Result<Known, StoreError> {
    let mut settings = PeopleSettings::default();
    let name = |text: String| text.parse::<OperatorName>().map_err(|_| malformed("name"));
    for (operator, role, user, active) in fetch_all!(tx, READ_OPERATOR_SETTINGS => (String, String, Option<i64>, bool))?
    {
        let setting = OperatorSetting {
            role: OperatorRole::parse(&role).ok_or_else(|| malformed("role"))?,
            user: user.map(|user| UserId::new(user).ok_or_else(|| malformed("user"))).transpose()?,
            active,
            keys: BTreeMap::new(),
        };
        settings.operators.insert(name(operator)?, setting);
    }
    let mut keys = BTreeMap::new();
    type Key = (String, String, String, String, Option<String>, Option<String>, bool);
    for (operator, key_name, kind, public, relying_party, origins, active) in fetch_all!(tx, READ_KEY_SETTINGS => Key)?
    {
        let (operator, key) = (name(operator)?, key_of(&kind, public, relying_party, origins)?);
        if active && let Some(setting) = settings.operators.get_mut(&operator) {
            setting.keys.insert(key_name.clone(), key.clone());
        }
        keys.insert(key_name, (operator, key));
    }
    for (symbol, chain, from) in fetch_all!(tx, READ_CHECK_SETTINGS => (String, String, Option<i64>))? {
        let symbol = symbol.parse::<Symbol>().map_err(|_| malformed("symbol"))?;
        let chain = chain.parse::<ChainName>().map_err(|_| malformed("chain"))?;
        settings.checks.insert((symbol, chain), CheckSetting { from: from.map(Amount::from_units) });
    }
    Ok(Known { settings, keys })
}

/// The outer error is the database's; the inner one says why the settings are refused.
pub(crate) async fn plan(
    tx: &mut Tx,
    wanted: &PeopleSettings,
    precision: impl Fn(&Symbol) -> Option<Precision>,
) -> Result<Result<Vec<Change>, CatalogError>, StoreError> {
    if *wanted == PeopleSettings::default() {
        return Ok(Ok(Vec::new()));
    }
    let known = read(tx).await?;
    let mut changes = Vec::new();
    for (name, setting) in &wanted.operators {
        if let Err(refused) =
            check_keys(&known, wanted, name, setting).and_then(|()| check_user(&known, wanted, name, setting))
        {
            return Ok(Err(refused));
        }
        let before = known.settings.operators.get(name).map(fields);
        changes.extend(differences(&format!("operator {name}"), before, fields(setting)));
    }
    for ((symbol, chain), check) in &wanted.checks {
        let key = (symbol.clone(), chain.clone());
        let shown = |check: &CheckSetting| {
            let amount = check.from.zip(precision(symbol)).map(|(from, precision)| from.display(precision).to_string());
            vec![("from", amount.unwrap_or_else(|| "(never)".to_owned()))]
        };
        let before = known.settings.checks.get(&key).map(shown);
        changes.extend(differences(&format!("check of {symbol} on {chain}"), before, shown(check)));
    }
    Ok(Ok(changes))
}

fn fields(setting: &OperatorSetting) -> Vec<(&'static str, String)> {
    let none = || "(none)".to_owned();
    let keys: Vec<String> =
        setting.keys.iter().map(|(name, key)| format!("{name} {} {}", key.kind(), key.public)).collect();
    vec![
        ("role", setting.role.to_string()),
        ("user", setting.user.map_or_else(none, |user| user.get().to_string())),
        ("active", setting.active.to_string()),
        ("keys", if keys.is_empty() { none() } else { keys.join(", ") }),
    ]
}

/// A key is one person's for ever, and says what it said at first.
fn check_keys(
    known: &Known,
    wanted: &PeopleSettings,
    operator: &OperatorName,
    setting: &OperatorSetting,
) -> Result<(), CatalogError> {
    for (name, key) in &setting.keys {
        let refused = |why: &'static str| Err(CatalogError::OperatorKey { key: name.clone(), why });
        let others = wanted.operators.iter().filter(|(other, _)| *other != operator);
        let others = others.flat_map(|(_, other)| &other.keys);
        let own = setting.keys.iter().filter(|(other, _)| *other != name);
        for (other_name, other) in others.chain(own).chain(known.keys.iter().map(|(name, (_, key))| (name, key))) {
            if other_name != name && other.public == key.public {
                return refused("its public key has another name already");
            }
        }
        let others = wanted.operators.iter().filter(|(other, _)| *other != operator);
        if others.into_iter().any(|(_, other)| other.keys.contains_key(name)) {
            return refused("two people have it");
        }
        match known.keys.get(name) {
            Some((holder, _)) if holder != operator => return refused("it was another person's"),
            Some((_, before)) if before != key => return refused("it was another key"),
            Some(_) | None => {}
        }
    }
    Ok(())
}

/// Two operators that are one customer are one person, and would count as two.
fn check_user(
    known: &Known,
    wanted: &PeopleSettings,
    operator: &OperatorName,
    setting: &OperatorSetting,
) -> Result<(), CatalogError> {
    let Some(user) = setting.user else { return Ok(()) };
    let replaced = |name: &OperatorName| wanted.operators.contains_key(name);
    let others = wanted.operators.iter().chain(known.settings.operators.iter().filter(|(name, _)| !replaced(name)));
    match others.into_iter().find(|(name, other)| *name != operator && other.user == Some(user)) {
        Some((holder, _)) => Err(CatalogError::OperatorUser { user, holder: holder.clone() }),
        None => Ok(()),
    }
}

pub(crate) async fn write(
    tx: &mut Tx,
    wanted: &PeopleSettings,
    author: &Author<'_>,
    at: Timestamp,
) -> Result<(), StoreError> {
    if *wanted == PeopleSettings::default() {
        return Ok(());
    }
    let known = read(tx).await?;
    let operators: Vec<(&OperatorName, &OperatorSetting)> = wanted.operators.iter().collect();
    let columns = vec![
        Column::Texts(operators.iter().map(|(name, _)| name.as_str()).collect()),
        Column::Texts(operators.iter().map(|(_, setting)| setting.role.as_str()).collect()),
        Column::OptionalInts(operators.iter().map(|(_, setting)| setting.user.map(UserId::get)).collect()),
        Column::Ints(operators.iter().map(|(_, setting)| setting.active.into()).collect()),
        Column::Ints(vec![at.micros(); operators.len()]),
    ];
    expect_rows(execute_rows(tx, &UPSERT_OPERATORS, columns).await?, operators.len(), "operators")?;
    let keys: Vec<(&OperatorName, &String, &OperatorKey)> = operators
        .iter()
        .flat_map(|(operator, setting)| setting.keys.iter().map(|(name, key)| (*operator, name, key)))
        .collect();
    let origins = |key: &OperatorKey| -> Result<Option<String>, StoreError> {
        let origins = key.place.as_ref().map(|place| serde_json::to_string(&place.origins));
        origins.transpose().map_err(|_| malformed("list of origins"))
    };
    let columns = vec![
        Column::Texts(keys.iter().map(|(_, name, _)| name.as_str()).collect()),
        Column::Texts(keys.iter().map(|(operator, ..)| operator.as_str()).collect()),
        Column::Texts(keys.iter().map(|(.., key)| key.kind()).collect()),
        Column::Texts(keys.iter().map(|(.., key)| key.public.as_str()).collect()),
        Column::OptionalTexts(
            keys.iter().map(|(.., key)| key.place.as_ref().map(|place| place.relying_party.as_str())).collect(),
        ),
        Column::OptionalStrings(keys.iter().map(|(.., key)| origins(key)).collect::<Result<_, _>>()?),
        Column::Ints(vec![at.micros(); keys.len()]),
    ];
    expect_rows(execute_rows(tx, &UPSERT_OPERATOR_KEYS, columns).await?, keys.len(), "keys of operators")?;
    let left_out = |name: &&OperatorName, key: &str| {
        wanted.operators.get(*name).is_some_and(|setting| !setting.keys.contains_key(key))
    };
    let rest: Vec<String> = known
        .settings
        .operators
        .iter()
        .flat_map(|(name, setting)| setting.keys.keys().filter(move |key| left_out(&name, key)))
        .cloned()
        .collect();
    if !rest.is_empty() {
        execute!(tx, REST_OPERATOR_KEYS, Many(rest.clone()), at.micros())?;
    }
    write_checks(tx, &known, wanted, author, at).await
}

async fn write_checks(
    tx: &mut Tx,
    known: &Known,
    wanted: &PeopleSettings,
    author: &Author<'_>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let changed = wanted.checks.iter().filter(|(key, check)| known.settings.checks.get(key) != Some(check));
    let changed: Vec<(&(Symbol, ChainName), &CheckSetting)> = changed.collect();
    let columns = vec![
        Column::Texts(changed.iter().map(|(key, _)| key.0.as_str()).collect()),
        Column::Texts(changed.iter().map(|(key, _)| key.1.as_str()).collect()),
        Column::OptionalInts(changed.iter().map(|(_, check)| check.from.map(Amount::units)).collect()),
        Column::Texts(vec![author.actor; changed.len()]),
        Column::Texts(vec![author.reason; changed.len()]),
        Column::Ints(vec![at.micros(); changed.len()]),
    ];
    expect_rows(execute_rows(tx, &INSERT_CHECK_RULES, columns).await?, changed.len(), "rules of checks")
}
