//! Wallet groups and operation wallets: what the treasury file says, held against the rows, and written.
//!
//! A group's key, family and purpose, and a wallet's address and role, never change. Only whether they are active does.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use domain::{ChainName, GroupId, Purpose, Timestamp, WalletRole};

use super::ClaimedAddress;
use super::users::user_wallets_at;
use crate::catalog::{CatalogError, Change, differences};
use crate::db::Tx;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, expect_rows};

/// A wallet group, but for its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalletGroup {
    /// Which chains its keys are for, in the words of `tx::Family`.
    pub family: String,
    pub purpose: Purpose,
    pub xpub: String,
    /// The path of its addresses, for people.
    pub path: String,
    pub active: bool,
}

/// Where an operation wallet's address comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// From a group's key and a small index.
    Derived { group: GroupId, index: i64 },
    /// From the treasury file, which has it written down: a cold wallet.
    Written(String),
}

/// One of the house's own wallets, but for its chain and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationWallet {
    pub role: WalletRole,
    /// Of a file it is derived, or written there; of a row it is what the row claims.
    pub address: ClaimedAddress,
    pub active: bool,
}

impl OperationWallet {
    pub const fn new(role: WalletRole, address: String, active: bool) -> Self {
        Self { role, address: ClaimedAddress::new(address), active }
    }
}

/// All groups and operation wallets, of a file or of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalletSettings {
    pub groups: BTreeMap<GroupId, WalletGroup>,
    pub wallets: BTreeMap<(ChainName, Place), OperationWallet>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Derived { group, index } => write!(f, "wallet {index} of {group}"),
            Self::Written(address) => write!(f, "wallet {address}"),
        }
    }
}

statements! {
    READ_GROUPS = "SELECT name, family, purpose, xpub, derivation_path_template, is_active FROM wallet_groups";
    READ_OPERATION_WALLETS = "SELECT c.name, g.name, w.derivation_index, w.address, w.role, w.is_active
        FROM operation_wallet_addresses w JOIN chains c ON c.id = w.chain_id
            LEFT JOIN wallet_groups g ON g.id = w.wallet_group_id";
}

static UPSERT_GROUPS: RowsSql = RowsSql::new(
    "UPSERT_GROUPS",
    "INSERT INTO wallet_groups (name, family, purpose, xpub, derivation_path_template, is_active, created_at, updated_at)
     SELECT name, family, purpose, xpub, path, active = 1, at, at FROM {rows} WHERE true
     ON CONFLICT (name) DO UPDATE SET is_active = excluded.is_active, updated_at = excluded.updated_at",
    &[
        ("name", Text),
        ("family", Text),
        ("purpose", Text),
        ("xpub", Text),
        ("path", Text),
        ("active", Int),
        ("at", Int),
    ],
);

static UPSERT_OPERATION_WALLETS: RowsSql = RowsSql::new(
    "UPSERT_OPERATION_WALLETS",
    "INSERT INTO operation_wallet_addresses
         (chain_id, wallet_group_id, derivation_index, address, role, is_active, created_at, updated_at)
     SELECT c.id, g.id, r.derivation_index, r.address, r.role, r.active = 1, r.at, r.at
     FROM {rows} JOIN chains c ON c.name = r.chain LEFT JOIN wallet_groups g ON g.name = r.group_name WHERE true
     ON CONFLICT (chain_id, address) DO UPDATE SET is_active = excluded.is_active, updated_at = excluded.updated_at",
    &[
        ("chain", Text),
        ("group_name", Text),
        ("derivation_index", Int),
        ("address", Text),
        ("role", Text),
        ("active", Int),
        ("at", Int),
    ],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 2] = [&UPSERT_GROUPS, &UPSERT_OPERATION_WALLETS];

fn odd(what: &str) -> StoreError {
    StoreError::Corrupt { what: format!("a row of the wallets has a malformed {what}") }
}

/// All groups and operation wallets of the database, as its rows claim, in two statements.
pub async fn read_wallet_settings(tx: &mut Tx) -> Result<WalletSettings, StoreError> {
    type GroupRow = (String, String, String, String, String, bool);
    let mut settings = WalletSettings::default();
    for (name, family, purpose, xpub, path, active) in fetch_all!(tx, READ_GROUPS => GroupRow)? {
        let purpose = Purpose::parse(&purpose).ok_or_else(|| odd("purpose"))?;
        let name = name.parse().map_err(|_| odd("group's name"))?;
        settings.groups.insert(name, WalletGroup { family, purpose, xpub, path, active });
    }
    type WalletRow = (String, Option<String>, Option<i64>, String, String, bool);
    for (chain, group, index, address, role, active) in fetch_all!(tx, READ_OPERATION_WALLETS => WalletRow)? {
        let place = match (group, index) {
            (Some(group), Some(index)) => {
                Place::Derived { group: group.parse().map_err(|_| odd("group's name"))?, index }
            }
            (None, None) => Place::Written(address.clone()),
            _ => return Err(odd("place")),
        };
        let role = WalletRole::parse(&role).ok_or_else(|| odd("role"))?;
        let chain = chain.parse().map_err(|_| odd("chain"))?;
        settings.wallets.insert((chain, place), OperationWallet::new(role, address, active));
    }
    Ok(settings)
}

/// What `wanted` changes, or why it must not. The outer error is the database's.
pub(crate) async fn plan(
    tx: &mut Tx,
    wanted: &WalletSettings,
) -> Result<Result<Vec<Change>, CatalogError>, StoreError> {
    if *wanted == WalletSettings::default() {
        return Ok(Ok(Vec::new()));
    }
    let current = read_wallet_settings(tx).await?;
    let addresses: Vec<&str> = wanted.wallets.values().map(|wallet| wallet.address.claimed()).collect();
    if let Some(users) = user_wallets_at(tx, &addresses).await?.first() {
        let holder = format!("user {} in {}", users.user, users.group);
        return Ok(Err(CatalogError::WalletTaken { what: users.address.claimed().to_owned(), holder }));
    }
    Ok(compare(&current, wanted))
}

fn compare(current: &WalletSettings, wanted: &WalletSettings) -> Result<Vec<Change>, CatalogError> {
    let mut changes = Vec::new();
    let keys: HashMap<&str, &GroupId> =
        current.groups.iter().map(|(name, group)| (group.xpub.as_str(), name)).collect();
    for (name, group) in &wanted.groups {
        let before = current.groups.get(name).map(group_fields);
        let found = differences(&format!("wallet group {name}"), before, group_fields(group));
        refuse_fixed(&found)?;
        if let Some(other) = keys.get(group.xpub.as_str()).filter(|other| **other != name) {
            let what = format!("the key of wallet group {name}");
            return Err(CatalogError::WalletTaken { what, holder: format!("wallet group {other}") });
        }
        changes.extend(found);
    }
    let at: HashMap<(&ChainName, &str), &Place> =
        current.wallets.iter().map(|((chain, place), wallet)| ((chain, wallet.address.claimed()), place)).collect();
    for ((chain, place), wallet) in &wanted.wallets {
        let before = current.wallets.get(&(chain.clone(), place.clone())).map(wallet_fields);
        let found = differences(&format!("{place} on {chain}"), before, wallet_fields(wallet));
        refuse_fixed(&found)?;
        if let Some(other) = at.get(&(chain, wallet.address.claimed())).filter(|other| **other != place) {
            let what = format!("the address of {place} on {chain}");
            return Err(CatalogError::WalletTaken { what, holder: (*other).to_string() });
        }
        changes.extend(found);
    }
    Ok(changes)
}

fn group_fields(group: &WalletGroup) -> Vec<(&'static str, String)> {
    vec![
        ("chain", group.family.clone()),
        ("purpose", group.purpose.as_str().to_owned()),
        ("xpub", group.xpub.clone()),
        ("path", group.path.clone()),
        ("active", group.active.to_string()),
    ]
}

fn wallet_fields(wallet: &OperationWallet) -> Vec<(&'static str, String)> {
    vec![
        ("role", wallet.role.as_str().to_owned()),
        ("address", wallet.address.claimed().to_owned()),
        ("active", wallet.active.to_string()),
    ]
}

/// Of what is there already, only whether it is active may change.
fn refuse_fixed(changes: &[Change]) -> Result<(), CatalogError> {
    let broken = changes.iter().find_map(|change| {
        let before = change.before.clone().filter(|_| change.field != "active")?;
        Some((change, before))
    });
    match broken {
        None => Ok(()),
        Some((change, before)) => Err(CatalogError::WalletFixed {
            entity: change.entity.clone(),
            field: change.field,
            before,
            after: change.after.clone(),
        }),
    }
}

pub(crate) async fn write(tx: &mut Tx, wanted: &WalletSettings, at: Timestamp) -> Result<(), StoreError> {
    if !wanted.groups.is_empty() {
        let groups: Vec<(&GroupId, &WalletGroup)> = wanted.groups.iter().collect();
        let columns = vec![
            Column::Texts(groups.iter().map(|(name, _)| name.as_str()).collect()),
            Column::Texts(groups.iter().map(|(_, group)| group.family.as_str()).collect()),
            Column::Texts(groups.iter().map(|(_, group)| group.purpose.as_str()).collect()),
            Column::Texts(groups.iter().map(|(_, group)| group.xpub.as_str()).collect()),
            Column::Texts(groups.iter().map(|(_, group)| group.path.as_str()).collect()),
            Column::Ints(groups.iter().map(|(_, group)| group.active.into()).collect()),
            Column::Ints(vec![at.micros(); groups.len()]),
        ];
        expect_rows(execute_rows(tx, &UPSERT_GROUPS, columns).await?, groups.len(), "wallet groups")?;
    }
    if !wanted.wallets.is_empty() {
        let wallets: Vec<(&ChainName, &Place, &OperationWallet)> =
            wanted.wallets.iter().map(|((chain, place), wallet)| (chain, place, wallet)).collect();
        let derived = |place: &Place| match place {
            Place::Derived { group, index } => Some((group.to_string(), *index)),
            Place::Written(_) => None,
        };
        let columns = vec![
            Column::Texts(wallets.iter().map(|(chain, ..)| chain.as_str()).collect()),
            Column::OptionalStrings(wallets.iter().map(|(_, place, _)| derived(place).map(|one| one.0)).collect()),
            Column::OptionalInts(wallets.iter().map(|(_, place, _)| derived(place).map(|one| one.1)).collect()),
            Column::Texts(wallets.iter().map(|(.., wallet)| wallet.address.claimed()).collect()),
            Column::Texts(wallets.iter().map(|(.., wallet)| wallet.role.as_str()).collect()),
            Column::Ints(wallets.iter().map(|(.., wallet)| wallet.active.into()).collect()),
            Column::Ints(vec![at.micros(); wallets.len()]),
        ];
        let written = execute_rows(tx, &UPSERT_OPERATION_WALLETS, columns).await?;
        expect_rows(written, wallets.len(), "operation wallets")?;
    }
    Ok(())
}
