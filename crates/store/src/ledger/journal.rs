//! Looking at accounts and at the journal, a page at a time.

use std::collections::HashMap;

use super::row::{COLUMNS, MovementRow};
use crate::db::Tx;
use crate::dialect::Many;
use crate::error::StoreError;

/// The columns of an [`AccountListing`].
const LISTING: &str = "a.id, a.owner, a.kind, s.symbol, s.precision, a.status, a.available, a.frozen";

statements! {
    LIST_ACCOUNTS(LISTING) = "SELECT {columns} FROM accounts a JOIN assets s ON s.id = a.asset_id
        WHERE a.id > $1 ORDER BY a.id LIMIT $2";
    LIST_ACCOUNTS_OF_OWNER(LISTING) = "SELECT {columns} FROM accounts a JOIN assets s ON s.id = a.asset_id
        WHERE a.owner = $3 AND a.id > $1 ORDER BY a.id LIMIT $2";
    LIST_ACCOUNTS_OF_ASSET(LISTING) = "SELECT {columns} FROM accounts a JOIN assets s ON s.id = a.asset_id
        WHERE s.symbol = $3 AND a.id > $1 ORDER BY a.id LIMIT $2";
    LIST_MOVEMENTS(COLUMNS) = "SELECT {columns} FROM movements WHERE id < $1 ORDER BY id DESC LIMIT $2";
    /// What a user paid, held and got, each by an index of its own. The ends of holds are read with them, below.
    LIST_MOVEMENTS_OF_USER(COLUMNS) = "SELECT {columns}
        FROM (SELECT * FROM (SELECT * FROM movements WHERE from_account = $3 AND from_account > 0
                    AND hold_key IS NULL AND id < $1 ORDER BY id DESC LIMIT $2) paid
            UNION ALL
            SELECT * FROM (SELECT * FROM movements WHERE to_account = $3 AND to_account > 0
                    AND to_account <> from_account AND id < $1 ORDER BY id DESC LIMIT $2) got) both_sides
        ORDER BY id DESC LIMIT $2";
    LIST_MOVEMENTS_OF_SYSTEM(COLUMNS) = "SELECT {columns} FROM movements
        WHERE (from_account = $3 OR to_account = $3) AND id < $1 ORDER BY id DESC LIMIT $2";
    LIST_MOVEMENTS_OF_KEY(COLUMNS) = "SELECT {columns} FROM movements WHERE op_key = $1 ORDER BY leg";
    /// All movements of the operations that ended these holds.
    READ_ENDS(COLUMNS) = "SELECT {columns m} FROM movements e JOIN movements m ON m.op_key = e.op_key
        WHERE e.hold_key {in $1} AND e.hold_key IS NOT NULL AND e.outcome = 0 AND e.leg = 0 ORDER BY m.op_key, m.leg";
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountListing {
    pub id: i64,
    pub owner: i64,
    pub kind: String,
    pub symbol: String,
    pub precision: i64,
    pub status: String,
    pub available: i64,
    pub frozen: i64,
}

from_row!(AccountListing { id = "id", owner = "owner", kind = "kind", symbol = "symbol", precision = "precision", status = "status", available = "available", frozen = "frozen" });

#[derive(Clone, Debug)]
pub enum AccountFilter {
    All,
    Owner(i64),
    Asset(String),
}

#[derive(Clone, Debug)]
pub enum MovementFilter {
    All,
    Account(i64),
    Key(String),
}

/// Accounts with an id above `after`, in the order of their ids. System accounts come first.
pub async fn list_accounts(
    tx: &mut Tx,
    filter: &AccountFilter,
    after: i64,
    limit: i64,
) -> Result<Vec<AccountListing>, StoreError> {
    match filter {
        AccountFilter::All => fetch_all!(tx, LIST_ACCOUNTS => AccountListing, after, limit),
        AccountFilter::Owner(owner) => {
            fetch_all!(tx, LIST_ACCOUNTS_OF_OWNER => AccountListing, after, limit, *owner)
        }
        AccountFilter::Asset(symbol) => {
            fetch_all!(tx, LIST_ACCOUNTS_OF_ASSET => AccountListing, after, limit, symbol.as_str())
        }
    }
}

/// Movements with an id below `before`, newest first. Those of one key come whole, by position. A user's are what the
/// user paid, held and got; each hold is followed by what ended it.
pub async fn list_movements(tx: &mut Tx, filter: &MovementFilter, before: i64, limit: i64) -> Result<Page, StoreError> {
    let rows = match filter {
        MovementFilter::All => fetch_all!(tx, LIST_MOVEMENTS => MovementRow, before, limit)?,
        MovementFilter::Account(id) if *id > 0 => {
            fetch_all!(tx, LIST_MOVEMENTS_OF_USER => MovementRow, before, limit, *id)?
        }
        MovementFilter::Account(id) => fetch_all!(tx, LIST_MOVEMENTS_OF_SYSTEM => MovementRow, before, limit, *id)?,
        MovementFilter::Key(key) => {
            let movements = fetch_all!(tx, LIST_MOVEMENTS_OF_KEY => MovementRow, key.as_str())?;
            return Ok(Page { movements, next_before: None });
        }
    };
    let full = i64::try_from(rows.len()) == Ok(limit);
    let next_before = rows.last().map(|row| row.id).filter(|_| full);
    let movements = if matches!(filter, MovementFilter::Account(1..)) { with_ends(tx, rows).await? } else { rows };
    Ok(Page { movements, next_before })
}

/// A page of movements, and where the next one begins.
#[derive(Clone, Debug)]
pub struct Page {
    pub movements: Vec<MovementRow>,
    /// `before` for the next page; `None` on the last.
    pub next_before: Option<i64>,
}

/// Puts the applied end of each hold, all its movements, right behind the hold.
async fn with_ends(tx: &mut Tx, rows: Vec<MovementRow>) -> Result<Vec<MovementRow>, StoreError> {
    let holds = rows.iter().filter(|row| row.action == 2 && row.outcome == 0).map(|row| row.op_key.clone());
    let holds = Many(holds.collect::<Vec<String>>());
    if holds.0.is_empty() {
        return Ok(rows);
    }
    let mut ends: HashMap<Option<String>, Vec<MovementRow>> = HashMap::new();
    for end in fetch_all!(tx, READ_ENDS => MovementRow, holds.clone())? {
        ends.entry(end.hold_key.clone()).or_default().push(end);
    }
    Ok(rows
        .into_iter()
        .flat_map(|row| {
            let ended = if row.action == 2 { ends.remove(&Some(row.op_key.clone())) } else { None };
            std::iter::once(row).chain(ended.unwrap_or_default())
        })
        .collect())
}
