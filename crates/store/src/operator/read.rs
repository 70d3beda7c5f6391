//! Operators as they stand now. Nobody remembers one from an earlier request: whoever was switched off is refused at once.

use std::collections::{BTreeMap, BTreeSet};

use domain::operator::{OperatorName, OperatorRole};
use domain::{Timestamp, UserId};

use super::malformed;
use super::settings::{OperatorKey, PasskeyPlace};
use crate::db::{Db, Tx};
use crate::error::StoreError;

/// One who may do something now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorRow {
    pub id: i64,
    pub name: OperatorName,
    pub role: OperatorRole,
    /// The customer that this person is too.
    pub user: Option<UserId>,
    pub active: bool,
}

/// One with all keys, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownOperator {
    pub row: OperatorRow,
    /// By their names; the flag says whether a key is switched on.
    pub keys: BTreeMap<String, (OperatorKey, bool)>,
    pub created: Timestamp,
    pub updated: Timestamp,
}

statements! {
    /// Whoever changes an operator waits until the change of that operator is done, and the other way round.
    LOCK_OPERATOR = "SELECT id, name, role, user_id, is_active FROM operators WHERE name = $1 {FOR SHARE}";
    READ_OPERATOR = "SELECT id, name, role, user_id, is_active FROM operators WHERE name = $1";
    LIST_OPERATORS = "SELECT id, name, role, user_id, is_active, created_at, updated_at FROM operators ORDER BY name";
    LIST_OPERATOR_KEYS = "SELECT o.name, k.name, k.kind, k.public_key, k.relying_party, k.origins, k.is_active
        FROM operator_keys k JOIN operators o ON o.id = k.operator_id ORDER BY o.name, k.name";
    /// Only keys that are switched on, of people who are.
    READ_ACTIVE_KEYS = "SELECT k.name, o.name, o.role, o.user_id, k.kind, k.public_key, k.relying_party, k.origins
        FROM operator_keys k JOIN operators o ON o.id = k.operator_id WHERE k.is_active AND o.is_active ORDER BY k.name";
}

type Row = (i64, String, String, Option<i64>, bool);

fn operator_row((id, name, role, user, active): Row) -> Result<OperatorRow, StoreError> {
    Ok(OperatorRow {
        id,
        name: name.parse().map_err(|_| malformed("name"))?,
        role: OperatorRole::parse(&role).ok_or_else(|| malformed("role"))?,
        user: user.map(|user| UserId::new(user).ok_or_else(|| malformed("user"))).transpose()?,
        active,
    })
}

pub(crate) fn key_of(
    kind: &str,
    public: String,
    relying_party: Option<String>,
    origins: Option<String>,
) -> Result<OperatorKey, StoreError> {
    let place = match (kind, relying_party, origins) {
        ("ed25519", None, None) => None,
        ("passkey", Some(relying_party), Some(origins)) => {
            let origins: BTreeSet<String> = serde_json::from_str(&origins).map_err(|_| malformed("list of origins"))?;
            Some(PasskeyPlace { relying_party, origins })
        }
        _ => return Err(malformed("key")),
    };
    Ok(OperatorKey { public, place })
}

/// As it stands in this transaction, and stays until its end.
pub(crate) async fn lock(tx: &mut Tx, name: &OperatorName) -> Result<Option<OperatorRow>, StoreError> {
    fetch_optional!(tx, LOCK_OPERATOR => Row, name.as_str())?.map(operator_row).transpose()
}

/// A key that is switched on, and the person who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    pub operator: OperatorName,
    pub role: OperatorRole,
    pub user: Option<UserId>,
    pub key: OperatorKey,
}

/// Every key that may be signed with now.
pub async fn active_keys(tx: &mut Tx) -> Result<BTreeMap<String, KeyHolder>, StoreError> {
    type Row = (String, String, String, Option<i64>, String, String, Option<String>, Option<String>);
    let mut keys = BTreeMap::new();
    for (name, operator, role, user, kind, public, relying_party, origins) in fetch_all!(tx, READ_ACTIVE_KEYS => Row)? {
        let holder = KeyHolder {
            operator: operator.parse().map_err(|_| malformed("name"))?,
            role: OperatorRole::parse(&role).ok_or_else(|| malformed("role"))?,
            user: user.map(|user| UserId::new(user).ok_or_else(|| malformed("user"))).transpose()?,
            key: key_of(&kind, public, relying_party, origins)?,
        };
        keys.insert(name, holder);
    }
    Ok(keys)
}

impl Db {
    pub async fn operator(&self, name: &OperatorName) -> Result<Option<OperatorRow>, StoreError> {
        fetch_optional!(&mut self.read().await?, READ_OPERATOR => Row, name.as_str())?.map(operator_row).transpose()
    }

    /// All of them, by their names, also those that are switched off.
    pub async fn operators(&self) -> Result<Vec<ShownOperator>, StoreError> {
        type Listed = (i64, String, String, Option<i64>, bool, i64, i64);
        let tx = &mut self.read().await?;
        let mut keys: BTreeMap<String, BTreeMap<String, (OperatorKey, bool)>> = BTreeMap::new();
        type Key = (String, String, String, String, Option<String>, Option<String>, bool);
        for (operator, name, kind, public, relying_party, origins, active) in fetch_all!(tx, LIST_OPERATOR_KEYS => Key)?
        {
            let key = key_of(&kind, public, relying_party, origins)?;
            keys.entry(operator).or_default().insert(name, (key, active));
        }
        let rows = fetch_all!(tx, LIST_OPERATORS => Listed)?;
        let shown = |(id, name, role, user, active, created, updated): Listed| {
            let keys = keys.remove(&name).unwrap_or_default();
            let row = operator_row((id, name, role, user, active))?;
            let (created, updated) = (Timestamp::from_micros(created), Timestamp::from_micros(updated));
            Ok(ShownOperator { row, keys, created, updated })
        };
        rows.into_iter().map(shown).collect()
    }
}
