//! Opening accounts and changing what they may do.

use std::collections::{BTreeSet, HashMap};

use domain::ledger::{Difference, OpKey, Outcome, Refusal, Reply};
use domain::{AccountId, AccountKind, AccountStatus, AssetId, Timestamp, UserId};

use super::post::{AccountRow, LOCK_ACCOUNTS, state};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows};
use crate::transact;

/// An account to open. Its owner, kind and asset identify it: opening it again finds the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NewAccount {
    owner: i64,
    kind: String,
    asset: AssetId,
}

impl NewAccount {
    pub fn funding(user: UserId, asset: AssetId) -> Self {
        Self { owner: user.get(), kind: AccountKind::Funding.to_string(), asset }
    }

    /// `None` for a kind that belongs to users.
    pub fn system(kind: &AccountKind, asset: AssetId) -> Option<Self> {
        kind.is_system().then(|| Self { owner: 0, kind: kind.to_string(), asset })
    }
}

/// A checksum over the columns that say whose account it is. It finds a row changed by mistake, not a forgery.
pub(crate) fn account_checksum(owner: i64, kind: &str, asset: i64) -> i64 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&owner.to_le_bytes()), &asset.to_le_bytes());
    i64::from(crc32c::crc32c_append(crc, kind.as_bytes()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    Account(AccountId),
    UnknownAsset,
}

statements! {
    READ_ACCOUNTS_OF_OWNERS = "SELECT id, owner, kind, asset_id FROM accounts WHERE owner {in $1}";
    READ_STATUS_CHANGES = "SELECT op_key, account_id, after_status, outcome, actor, reason
        FROM account_status_changes WHERE op_key {in $1}";
}

static OPEN_USERS: RowsSql = RowsSql::new(
    "OPEN_USERS",
    "INSERT INTO accounts (owner, kind, asset_id, status, available, frozen, created_at,
         checksum)
     SELECT r.owner, r.kind, r.asset_id, 'active', 0, 0, r.at, r.checksum
     FROM {rows} JOIN assets ON assets.id = r.asset_id
     WHERE r.owner > 0 AND NOT EXISTS
         (SELECT 1 FROM accounts a WHERE a.owner = r.owner AND a.kind = r.kind AND a.asset_id = r.asset_id)
     ORDER BY r.owner, r.asset_id
     ON CONFLICT (owner, kind, asset_id) DO NOTHING",
    COLUMNS,
);

/// System accounts count down from -1. Two that open at once may pick the same number; one of them fails whole.
static OPEN_SYSTEM: RowsSql = RowsSql::new(
    "OPEN_SYSTEM",
    "INSERT INTO accounts (id, owner, kind, asset_id, status, available, frozen, created_at,
         checksum)
     SELECT COALESCE((SELECT MIN(id) FROM accounts WHERE id < 0), 0)
             - ROW_NUMBER() OVER (ORDER BY r.asset_id, r.kind),
         r.owner, r.kind, r.asset_id, 'active', 0, 0, r.at, r.checksum
     FROM {rows} JOIN assets ON assets.id = r.asset_id
     WHERE r.owner = 0 AND NOT EXISTS
         (SELECT 1 FROM accounts a WHERE a.owner = r.owner AND a.kind = r.kind AND a.asset_id = r.asset_id)",
    COLUMNS,
);

const COLUMNS: &[(&str, crate::rows::ColumnType)] =
    &[("owner", Int), ("kind", Text), ("asset_id", Int), ("at", Int), ("checksum", Int)];

static INSERT_STATUS_CHANGES: RowsSql = RowsSql::new(
    "INSERT_STATUS_CHANGES",
    "INSERT INTO account_status_changes
         (op_key, account_id, before_status, after_status, outcome, actor, reason, at)
     SELECT op_key, account_id, before_status, after_status, outcome, actor, reason, at FROM {rows}",
    &[
        ("op_key", Text),
        ("account_id", Int),
        ("before_status", Text),
        ("after_status", Text),
        ("outcome", Int),
        ("actor", Text),
        ("reason", Text),
        ("at", Int),
    ],
);

static UPDATE_STATUS: RowsSql = RowsSql::new(
    "UPDATE_STATUS",
    "UPDATE accounts SET status = r.status FROM {rows} WHERE accounts.id = r.id",
    &[("id", Int), ("status", Text)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 7] = [
    &OPEN_USERS,
    &OPEN_SYSTEM,
    &INSERT_STATUS_CHANGES,
    &UPDATE_STATUS,
    &super::post::INSERT_MOVEMENTS,
    &super::post::UPDATE_BALANCES,
    &super::balances::INSERT_CHECKPOINTS,
];

impl Db {
    pub async fn open(&self, wanted: &[NewAccount], at: Timestamp) -> Result<Vec<Opened>, StoreError> {
        transact!(self, tx => open(tx, wanted, at).await)
    }

    pub async fn set_status(&self, changes: &[StatusChange], at: Timestamp) -> Result<Vec<Reply>, StoreError> {
        transact!(self, tx => set_status(tx, changes, at).await)
    }
}

/// Opens the accounts that are not there yet, and says the number of each, in the order asked.
pub async fn open(tx: &mut Tx, wanted: &[NewAccount], at: Timestamp) -> Result<Vec<Opened>, StoreError> {
    // Each once, in one order: two transactions that open the same accounts wait for each other, they do not deadlock.
    let distinct: Vec<&NewAccount> = wanted.iter().collect::<BTreeSet<_>>().into_iter().collect();
    let columns = || {
        vec![
            Column::Ints(distinct.iter().map(|one| one.owner).collect()),
            Column::Texts(distinct.iter().map(|one| one.kind.as_str()).collect()),
            Column::Ints(distinct.iter().map(|one| one.asset.0).collect()),
            Column::Ints(vec![at.micros(); distinct.len()]),
            Column::Ints(distinct.iter().map(|one| account_checksum(one.owner, &one.kind, one.asset.0)).collect()),
        ]
    };
    if distinct.iter().any(|one| one.owner > 0) {
        execute_rows(tx, &OPEN_USERS, columns()).await?;
    }
    if distinct.iter().any(|one| one.owner == 0) {
        execute_rows(tx, &OPEN_SYSTEM, columns()).await?;
        tx.opened = true;
    }
    let owners = distinct.iter().map(|one| one.owner).collect::<BTreeSet<_>>();
    let owners = Many(owners.into_iter().collect::<Vec<i64>>());
    let rows = fetch_all!(tx, READ_ACCOUNTS_OF_OWNERS => (i64, i64, String, i64), owners.clone())?;
    let known: HashMap<NewAccount, AccountId> = rows
        .into_iter()
        .map(|(id, owner, kind, asset)| (NewAccount { owner, kind, asset: AssetId(asset) }, AccountId(id)))
        .collect();
    Ok(wanted.iter().map(|one| known.get(one).map_or(Opened::UnknownAsset, |id| Opened::Account(*id))).collect())
}

/// An order to freeze, disable or activate an account: by whom, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusChange {
    pub key: OpKey,
    pub account: AccountId,
    pub status: AccountStatus,
    pub actor: String,
    pub reason: String,
}

impl StatusChange {
    /// The first difference to another order under the same key.
    fn difference(&self, other: &Self) -> Option<Difference> {
        if self.account != other.account {
            return Some(Difference::Account);
        }
        if self.status != other.status {
            return Some(Difference::Status);
        }
        (self.actor != other.actor || self.reason != other.reason).then_some(Difference::Reference)
    }
}

/// Carries out the orders in turn. Each is recorded under its key, refused ones too.
pub async fn set_status(tx: &mut Tx, changes: &[StatusChange], at: Timestamp) -> Result<Vec<Reply>, StoreError> {
    let ids = changes.iter().map(|change| change.account.0).collect::<BTreeSet<_>>();
    let ids = Many(ids.into_iter().collect::<Vec<i64>>());
    let rows = fetch_all!(tx, LOCK_ACCOUNTS => AccountRow, ids.clone())?;
    let mut statuses = HashMap::new();
    for row in rows {
        let (id, state) = state(row)?;
        statuses.insert(id, state.status);
    }
    let mut decided = earlier_changes(tx, changes).await?;

    let mut replies = Vec::with_capacity(changes.len());
    let mut new: Vec<(&StatusChange, Option<AccountStatus>, Outcome)> = Vec::new();
    for change in changes {
        if let Some((first, outcome)) = decided.get(&change.key) {
            replies.push(first.difference(change).map_or(Reply::Replay(*outcome), Reply::Conflict));
            continue;
        }
        let before = statuses.get(&change.account).copied();
        let outcome = match before {
            None => Outcome::Refused(Refusal::AccountNotFound),
            Some(_) if change.account.is_system() => Outcome::Refused(Refusal::SystemAccountStatus),
            Some(_) => Outcome::Applied,
        };
        if outcome == Outcome::Applied {
            statuses.insert(change.account, change.status);
        }
        decided.insert(change.key.clone(), (change.clone(), outcome));
        new.push((change, before, outcome));
        replies.push(Reply::First(outcome));
    }
    write_changes(tx, &new, at).await?;
    Ok(replies)
}

async fn earlier_changes(
    tx: &mut Tx,
    changes: &[StatusChange],
) -> Result<HashMap<OpKey, (StatusChange, Outcome)>, StoreError> {
    let keys = Many(changes.iter().map(|change| change.key.as_str().to_owned()).collect::<Vec<_>>());
    let rows = fetch_all!(tx, READ_STATUS_CHANGES => (String, i64, String, i64, String, String), keys.clone())?;
    let mut earlier = HashMap::with_capacity(rows.len());
    for (key, account, status, outcome, actor, reason) in rows {
        let broken = || StoreError::Corrupt { what: format!("status change {key:?} makes no sense") };
        let status = AccountStatus::parse(&status).ok_or_else(broken)?;
        let outcome = i16::try_from(outcome).ok().and_then(Outcome::from_number).ok_or_else(broken)?;
        let key = OpKey::new(key.as_str()).map_err(|_| broken())?;
        let change = StatusChange { key: key.clone(), account: AccountId(account), status, actor, reason };
        earlier.insert(key, (change, outcome));
    }
    Ok(earlier)
}

async fn write_changes(
    tx: &mut Tx,
    new: &[(&StatusChange, Option<AccountStatus>, Outcome)],
    at: Timestamp,
) -> Result<(), StoreError> {
    if new.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Texts(new.iter().map(|(change, _, _)| change.key.as_str()).collect()),
        Column::Ints(new.iter().map(|(change, _, _)| change.account.0).collect()),
        Column::OptionalTexts(new.iter().map(|(_, before, _)| before.map(AccountStatus::as_str)).collect()),
        Column::Texts(new.iter().map(|(change, _, _)| change.status.as_str()).collect()),
        Column::Ints(new.iter().map(|(_, _, outcome)| i64::from(outcome.number())).collect()),
        Column::Texts(new.iter().map(|(change, _, _)| change.actor.as_str()).collect()),
        Column::Texts(new.iter().map(|(change, _, _)| change.reason.as_str()).collect()),
        Column::Ints(vec![at.micros(); new.len()]),
    ];
    execute_rows(tx, &INSERT_STATUS_CHANGES, columns).await?;
    // The last order for an account is the one that stands.
    let last: HashMap<i64, &str> = new
        .iter()
        .filter(|(_, _, outcome)| *outcome == Outcome::Applied)
        .map(|(change, _, _)| (change.account.0, change.status.as_str()))
        .collect();
    if last.is_empty() {
        return Ok(());
    }
    let columns = vec![Column::Ints(last.keys().copied().collect()), Column::Texts(last.values().copied().collect())];
    execute_rows(tx, &UPDATE_STATUS, columns).await?;
    Ok(())
}
