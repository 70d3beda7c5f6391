//! Reading transfers.

use domain::id::{self, Id};
use domain::transfer::{ClientOrderId, Direction, State, Transfer};
use domain::{AssetId, Timestamp, UserId};

use super::row::{COLUMNS, Row, transfer, transfers};
use crate::db::Tx;
use crate::dialect::Many;
use crate::error::StoreError;

statements! {
    READ_TRANSFERS(COLUMNS) = "SELECT {columns} FROM transfers WHERE id {in $1} ORDER BY id";
    /// Users and names in pairs. SQLite is told the order: left to itself it reads all that a user ever named.
    READ_TRANSFERS_BY_ORDER(COLUMNS) = "SELECT {columns t} FROM UNNEST($1::BIGINT[], $2::TEXT[]) AS r(user_id, name)
            JOIN transfers t ON t.user_id = r.user_id AND t.client_order_id = r.name"
        | "SELECT {columns t} FROM json_each($1) u
            CROSS JOIN transfers t ON t.user_id = u.value AND t.client_order_id = ($2 ->> u.key)";
    /// Newest first. A filter that is not wanted has the value that matches everything: 0, the empty text, and 2 for
    /// the state; 1 as a state stands for all that have not ended.
    LIST_TRANSFERS(COLUMNS) = "SELECT {columns} FROM transfers
        WHERE user_id = $1 AND id < $2 AND ($3 = 0 OR asset_id = $3) AND ($4 = 0 OR direction = $4)
            AND ($5 = 2 OR state = $5 OR ($5 = 1 AND state NOT IN (40, -10, -30)))
            AND ($6 = '' OR client_order_id = $6)
        ORDER BY id DESC LIMIT $7";
    /// Transfers that have not ended, oldest first. The plus keeps SQLite from walking all transfers by their ids: the
    /// index of open transfers is much smaller.
    OPEN_TRANSFERS(COLUMNS) = "SELECT {columns} FROM transfers
        WHERE state NOT IN (40, -10, -30) AND +id > $1 ORDER BY +id LIMIT $2";
    /// All of them by id, for a proof about each.
    PAGE_TRANSFERS(COLUMNS) = "SELECT {columns} FROM transfers WHERE id > $1 ORDER BY id LIMIT $2";
    PAGE_HISTORY = "SELECT transfer_id, version, path, reason, at FROM transfer_events
        WHERE transfer_id > $1 AND transfer_id <= $2 ORDER BY transfer_id, version";
    COUNT_OPEN = "SELECT COUNT(*), COUNT(alerted_at) FROM transfers WHERE state NOT IN (40, -10, -30)";
    TRANSFER_HISTORY = "SELECT version, path, reason, at FROM transfer_events WHERE transfer_id = $1 ORDER BY version";
}

/// These transfers, as far as they exist, in the order of their ids.
pub async fn read(tx: &mut Tx, ids: &[Id<id::Transfer>]) -> Result<Vec<Transfer>, StoreError> {
    let ids = Many(ids.iter().map(|id| id.number()).collect::<Vec<i64>>());
    transfers(fetch_all!(tx, READ_TRANSFERS => Row, ids.clone())?)
}

/// The transfers that users have asked for under these names of theirs.
pub async fn read_by_orders(tx: &mut Tx, orders: &[(UserId, &ClientOrderId)]) -> Result<Vec<Transfer>, StoreError> {
    let users = Many(orders.iter().map(|(user, _)| user.get()).collect::<Vec<i64>>());
    let names = Many(orders.iter().map(|(_, name)| name.as_str().to_owned()).collect::<Vec<_>>());
    transfers(fetch_all!(tx, READ_TRANSFERS_BY_ORDER => Row, users.clone(), names.clone())?)
}

/// Which of a user's transfers to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only those older than this one.
    pub before: Option<Id<id::Transfer>>,
    pub asset: Option<AssetId>,
    pub direction: Option<Direction>,
    /// Any that has not ended counts as the same.
    pub state: Option<State>,
    pub client_order_id: Option<ClientOrderId>,
}

pub async fn list(tx: &mut Tx, user: UserId, filter: &Filter, most: i64) -> Result<Vec<Transfer>, StoreError> {
    let before = filter.before.map_or(i64::MAX, Id::number);
    let asset = filter.asset.map_or(0, |asset| asset.0);
    let direction = filter.direction.map_or(0, Direction::number);
    let state = match filter.state {
        None => 2,
        Some(state) if state.is_terminal() => i64::from(state.number()),
        Some(_) => 1,
    };
    let name = filter.client_order_id.as_ref().map_or("", ClientOrderId::as_str);
    transfers(fetch_all!(tx, LIST_TRANSFERS => Row, user.get(), before, asset, direction, state, name, most)?)
}

/// A page of transfers that have not ended, by id.
pub async fn open(tx: &mut Tx, after: i64, most: i64) -> Result<Vec<Transfer>, StoreError> {
    fetch_all!(tx, OPEN_TRANSFERS => Row, after, most)?.into_iter().map(transfer).collect()
}

/// A page of all transfers, by id.
pub async fn page(tx: &mut Tx, after: i64, most: i64) -> Result<Vec<Transfer>, StoreError> {
    fetch_all!(tx, PAGE_TRANSFERS => Row, after, most)?.into_iter().map(transfer).collect()
}

/// The history of all transfers above one id, through another, each with its number.
pub async fn histories(tx: &mut Tx, after: i64, through: i64) -> Result<Vec<(i64, HistoryRow)>, StoreError> {
    let rows = fetch_all!(tx, PAGE_HISTORY => (i64, i64, String, String, i64), after, through)?;
    let row = |(transfer, version, path, reason, at)| {
        (transfer, HistoryRow { version, path, reason, at: Timestamp::from_micros(at) })
    };
    Ok(rows.into_iter().map(row).collect())
}

/// How many have not ended, and for how many of them an alert was raised.
pub async fn count_open(tx: &mut Tx) -> Result<(i64, i64), StoreError> {
    Ok(fetch_optional!(tx, COUNT_OPEN => (i64, i64))?.unwrap_or_default())
}

/// One commit of a transfer's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    pub version: i64,
    pub path: String,
    pub reason: String,
    pub at: Timestamp,
}

pub async fn history(tx: &mut Tx, id: Id<id::Transfer>) -> Result<Vec<HistoryRow>, StoreError> {
    let rows = fetch_all!(tx, TRANSFER_HISTORY => (i64, String, String, i64), id.number())?;
    Ok(rows
        .into_iter()
        .map(|(version, path, reason, at)| HistoryRow { version, path, reason, at: Timestamp::from_micros(at) })
        .collect())
}
