//! Looking at accounts and at the journal, a page at a time.

use super::row::MovementRow;
use crate::db::Tx;
use crate::error::StoreError;

statements! {
    LIST_ACCOUNTS = "SELECT a.id, a.owner, a.kind, s.symbol, s.precision, a.status, a.available, a.frozen
        FROM accounts a JOIN assets s ON s.id = a.asset_id WHERE a.id > $1 ORDER BY a.id LIMIT $2";
    LIST_ACCOUNTS_OF_OWNER = "SELECT a.id, a.owner, a.kind, s.symbol, s.precision, a.status, a.available, a.frozen
        FROM accounts a JOIN assets s ON s.id = a.asset_id WHERE a.owner = $3 AND a.id > $1 ORDER BY a.id LIMIT $2";
    LIST_ACCOUNTS_OF_ASSET = "SELECT a.id, a.owner, a.kind, s.symbol, s.precision, a.status, a.available, a.frozen
        FROM accounts a JOIN assets s ON s.id = a.asset_id
        WHERE s.symbol = $3 AND a.id > $1 ORDER BY a.id LIMIT $2";
    LIST_MOVEMENTS = "SELECT id, op_key, leg, action, outcome, from_account, to_account, asset_id, amount, hold_key,
            reference, at, checksum
        FROM movements WHERE id < $1 ORDER BY id DESC LIMIT $2";
    /// Each half walks an index of its own backwards.
    LIST_MOVEMENTS_OF_USER = "SELECT id, op_key, leg, action, outcome, from_account, to_account, asset_id, amount,
            hold_key, reference, at, checksum
        FROM (SELECT * FROM (SELECT * FROM movements WHERE from_account = $3 AND from_account > 0 AND id < $1
                    ORDER BY id DESC LIMIT $2) paid
            UNION ALL
            SELECT * FROM (SELECT * FROM movements WHERE to_account = $3 AND to_account > 0
                    AND to_account <> from_account AND id < $1 ORDER BY id DESC LIMIT $2) got) both_sides
        ORDER BY id DESC LIMIT $2";
    LIST_MOVEMENTS_OF_SYSTEM = "SELECT id, op_key, leg, action, outcome, from_account, to_account, asset_id, amount,
            hold_key, reference, at, checksum
        FROM movements WHERE (from_account = $3 OR to_account = $3) AND id < $1 ORDER BY id DESC LIMIT $2";
    LIST_MOVEMENTS_OF_KEY = "SELECT id, op_key, leg, action, outcome, from_account, to_account, asset_id, amount,
            hold_key, reference, at, checksum
        FROM movements WHERE op_key = $3 AND id < $1 ORDER BY leg LIMIT $2";
}

#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
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

/// Movements with an id below `before`, newest first (those of one key by leg).
pub async fn list_movements(
    tx: &mut Tx,
    filter: &MovementFilter,
    before: i64,
    limit: i64,
) -> Result<Vec<MovementRow>, StoreError> {
    match filter {
        MovementFilter::All => fetch_all!(tx, LIST_MOVEMENTS => MovementRow, before, limit),
        MovementFilter::Account(id) if *id > 0 => {
            fetch_all!(tx, LIST_MOVEMENTS_OF_USER => MovementRow, before, limit, *id)
        }
        MovementFilter::Account(id) => {
            fetch_all!(tx, LIST_MOVEMENTS_OF_SYSTEM => MovementRow, before, limit, *id)
        }
        MovementFilter::Key(key) => {
            fetch_all!(tx, LIST_MOVEMENTS_OF_KEY => MovementRow, before, limit, key.as_str())
        }
    }
}
