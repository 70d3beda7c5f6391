//! Making and changing transfers, many at a time.

use std::collections::{HashMap, HashSet};

use domain::id::{self, Id};
use domain::ledger::AccountState;
use domain::transfer::{State, Transfer};
use domain::{AccountId, AssetId, Timestamp};

use super::row::{COLUMNS, Row, WithAccount, transfer, transfers};
use crate::db::Tx;
use crate::dialect::Many;
use crate::error::StoreError;
use crate::ledger::post::state;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, Writes};

statements! {
    /// In the order of their ids: two workers on the same transfers wait for each other, they never deadlock.
    LOCK_TRANSFERS(COLUMNS) = "SELECT {columns} FROM transfers WHERE id {in $1} ORDER BY id {FOR UPDATE}";
    /// Transfers with their funding accounts, in the order of the accounts, as all transactions lock those.
    LOCK_WITH_ACCOUNTS(COLUMNS) = "SELECT {columns t}, a.asset_id, a.status, a.available, a.frozen,
            CAST(CASE WHEN EXISTS (SELECT 1 FROM transfer_stops p WHERE p.asset_id = t.asset_id AND p.resumed_at IS NULL)
                THEN 1 ELSE 0 END AS BIGINT)
        FROM transfers t JOIN accounts a ON a.id = t.funding_account
        WHERE t.id {in $1} ORDER BY a.id, t.id {FOR UPDATE}";
    /// Transfers that are due at $1, made due at $2 instead; rows that another worker has locked are left to it.
    CLAIM_TRANSFERS(COLUMNS) = "UPDATE transfers SET due_at = $2 WHERE id IN (
            SELECT id FROM transfers WHERE state NOT IN (40, -10, -30) AND (due_at <= $1 OR due_at >= $4)
            ORDER BY due_at LIMIT $3 {FOR UPDATE SKIP LOCKED})
        RETURNING {columns}";
}

static INSERT_TRANSFERS: RowsSql = RowsSql::new(
    "INSERT_TRANSFERS",
    "INSERT INTO transfers (id, user_id, asset_id, amount, direction, funding_account, state, error, client_order_id,
         tries, due_at, version, created_at, updated_at)
     SELECT id, user_id, asset_id, amount, direction, funding_account, state, error, client_order_id,
         tries, due_at, version, at, at
     FROM {rows}",
    &[
        ("id", Int),
        ("user_id", Int),
        ("asset_id", Int),
        ("amount", Int),
        ("direction", Int),
        ("funding_account", Int),
        ("state", Int),
        ("error", Text),
        ("client_order_id", Text),
        ("tries", Int),
        ("due_at", Int),
        ("version", Int),
        ("at", Int),
    ],
);

/// Only where the state is still the one that was seen.
static CHANGE_TRANSFERS: RowsSql = RowsSql::new(
    "CHANGE_TRANSFERS",
    "UPDATE transfers SET state = r.state, error = r.error, tries = r.tries, due_at = r.due_at,
         alerted_at = NULLIF(r.alerted_at, 0), version = r.version, updated_at = r.at
     FROM {rows} WHERE transfers.id = r.id AND transfers.state = r.seen",
    &[
        ("id", Int),
        ("seen", Int),
        ("state", Int),
        ("error", Text),
        ("tries", Int),
        ("due_at", Int),
        ("alerted_at", Int),
        ("version", Int),
        ("at", Int),
    ],
);

static INSERT_HISTORY: RowsSql = RowsSql::new(
    "INSERT_HISTORY",
    "INSERT INTO transfer_events (transfer_id, version, path, reason, at)
     SELECT transfer_id, version, path, reason, at FROM {rows}",
    &[("transfer_id", Int), ("version", Int), ("path", Text), ("reason", Text), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&INSERT_TRANSFERS, &CHANGE_TRANSFERS, &INSERT_HISTORY];

/// Locks these transfers, as far as they exist, in the order of their ids.
pub async fn lock(tx: &mut Tx, ids: &[Id<id::Transfer>]) -> Result<Vec<Transfer>, StoreError> {
    let ids = Many(ids.iter().map(|id| id.number()).collect::<Vec<i64>>());
    transfers(fetch_all!(tx, LOCK_TRANSFERS => Row, ids.clone())?)
}

/// Transfers whose rows are locked, with what is decided together with them.
#[derive(Debug, Default)]
pub struct Locked {
    pub transfers: Vec<Transfer>,
    /// The funding account of each.
    pub accounts: HashMap<AccountId, AccountState>,
    /// Their assets of which nothing comes back from SPOT to FUNDING.
    pub stopped: HashSet<AssetId>,
}

/// Locks these transfers, as far as they exist, and the funding account of each.
pub async fn lock_with_accounts(tx: &mut Tx, ids: &[Id<id::Transfer>]) -> Result<Locked, StoreError> {
    let ids = Many(ids.iter().map(|id| id.number()).collect::<Vec<i64>>());
    let rows = fetch_all!(tx, LOCK_WITH_ACCOUNTS => WithAccount, ids.clone())?;
    let mut locked = Locked {
        transfers: Vec::with_capacity(rows.len()),
        accounts: HashMap::with_capacity(rows.len()),
        stopped: HashSet::new(),
    };
    for WithAccount { transfer: row, account: (asset, status, available, frozen), stopped } in rows {
        if stopped != 0 {
            locked.stopped.insert(AssetId(asset));
        }
        let transfer = transfer(row)?;
        let (id, state) = state((transfer.funding.0, asset, status, available, frozen))?;
        locked.accounts.insert(id, state);
        locked.transfers.push(transfer);
    }
    Ok(locked)
}

/// At most so many of the transfers that are due, made due again only at `until`: no other worker takes them up in the
/// meantime. A transfer that is due at an `absurd` time or later was written by a wrong clock, and is taken up too.
pub async fn claim(
    tx: &mut Tx,
    now: Timestamp,
    until: Timestamp,
    absurd: Timestamp,
    most: i64,
) -> Result<Vec<Transfer>, StoreError> {
    transfers(fetch_all!(tx, CLAIM_TRANSFERS => Row, now.micros(), until.micros(), most, absurd.micros())?)
}

pub fn insert(writes: &mut Writes, new: &[&Transfer]) {
    let ints = |each: &dyn Fn(&Transfer) -> i64| Column::Ints(new.iter().map(|one| each(one)).collect());
    let name = |one: &&Transfer| one.client_order_id.as_ref().map(|name| name.as_str().to_owned());
    let columns = vec![
        ints(&|one| one.id.number()),
        ints(&|one| one.user.get()),
        ints(&|one| one.asset.0),
        ints(&|one| one.amount.units()),
        ints(&|one| one.direction.number()),
        ints(&|one| one.funding.0),
        ints(&|one| one.state.number().into()),
        Column::OptionalStrings(new.iter().map(|one| one.error.clone()).collect()),
        Column::OptionalStrings(new.iter().map(name).collect()),
        ints(&|one| one.tries),
        ints(&|one| one.due_at.micros()),
        ints(&|one| one.version),
        ints(&|one| one.created_at.micros()),
    ];
    writes.add(&INSERT_TRANSFERS, columns, "transfers");
}

/// A transfer as it shall be, and the state that its locked row was seen in.
#[derive(Clone, Copy, Debug)]
pub struct Changed<'a> {
    pub seen: State,
    pub transfer: &'a Transfer,
}

pub fn change(writes: &mut Writes, changed: &[Changed<'_>]) {
    let ints = |each: &dyn Fn(&Changed<'_>) -> i64| Column::Ints(changed.iter().map(each).collect());
    let columns = vec![
        ints(&|one| one.transfer.id.number()),
        ints(&|one| one.seen.number().into()),
        ints(&|one| one.transfer.state.number().into()),
        Column::OptionalStrings(changed.iter().map(|one| one.transfer.error.clone()).collect()),
        ints(&|one| one.transfer.tries),
        ints(&|one| one.transfer.due_at.micros()),
        ints(&|one| one.transfer.alerted_at.map_or(0, Timestamp::micros)),
        ints(&|one| one.transfer.version),
        ints(&|one| one.transfer.updated_at.micros()),
    ];
    writes.add(&CHANGE_TRANSFERS, columns, "transfers");
}

/// A row of history to be.
#[derive(Clone, Debug)]
pub struct History {
    pub transfer: Id<id::Transfer>,
    pub version: i64,
    pub path: String,
    pub reason: String,
}

pub fn write_history(writes: &mut Writes, rows: Vec<History>, at: Timestamp) {
    let count = rows.len();
    let mut numbers = [Vec::with_capacity(count), Vec::with_capacity(count)];
    let mut texts = [Vec::with_capacity(count), Vec::with_capacity(count)];
    for row in rows {
        numbers[0].push(row.transfer.number());
        numbers[1].push(row.version);
        texts[0].push(row.path);
        texts[1].push(row.reason);
    }
    let [ids, versions] = numbers.map(Column::Ints);
    let [paths, reasons] = texts.map(Column::Strings);
    let columns = vec![ids, versions, paths, reasons, Column::Ints(vec![at.micros(); count])];
    writes.add(&INSERT_HISTORY, columns, "transfer events");
}
