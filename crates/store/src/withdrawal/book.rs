//! Users' address books: where they mean to be paid. An entry is removed by a mark, and added again it is new.

use std::collections::{BTreeMap, HashMap};

use domain::{Timestamp, UserId};

use super::types::malformed;
use crate::db::Db;
use crate::entry::ChainId;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, fetch_rows};
use crate::transact;

/// An address that a user means to be paid at, as the chain writes it. Whoever adds it has read it as an address of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBookEntry {
    pub user: UserId,
    pub chain: ChainId,
    pub address: String,
    pub label: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookEntry {
    pub id: i64,
    pub user: UserId,
    pub chain: ChainId,
    pub address: String,
    pub label: String,
    pub added: Timestamp,
}

statements! {
    LIST_BOOK = "SELECT id, user_id, chain_id, address, label, added_at FROM withdrawal_addresses
        WHERE user_id = $1 AND removed_at IS NULL ORDER BY chain_id, address";
    REMOVE_BOOK_ENTRY = "UPDATE withdrawal_addresses SET removed_at = $3 WHERE id = $1 AND user_id = $2 AND removed_at IS NULL";
}

/// In one order, so that two that add the same do not wait for each other.
static INSERT_BOOK: RowsSql = RowsSql::new(
    "INSERT_BOOK",
    "INSERT INTO withdrawal_addresses (user_id, chain_id, address, label, added_at, removed_at)
     SELECT r.user_id, r.chain_id, r.address, r.label, r.at, NULL FROM {rows} WHERE true ORDER BY r.user_id, r.chain_id, r.address
     ON CONFLICT (user_id, chain_id, address) WHERE removed_at IS NULL DO NOTHING",
    &[("user_id", Int), ("chain_id", Int), ("address", Text), ("label", Text), ("at", Int)],
);

static READ_BOOK: RowsSql = RowsSql::new(
    "READ_BOOK",
    "SELECT b.id, b.user_id, b.chain_id, b.address, b.label, b.added_at FROM {rows}
     {join} withdrawal_addresses b ON b.user_id = r.user_id AND b.chain_id = r.chain_id AND b.address = r.address AND b.removed_at IS NULL",
    &[("user_id", Int), ("chain_id", Int), ("address", Text)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 2] = [&INSERT_BOOK, &READ_BOOK];

type Columns = (i64, i64, i64, String, String, i64);

fn entry((id, user, chain, address, label, added): Columns) -> Result<BookEntry, StoreError> {
    let user = UserId::new(user).ok_or_else(|| malformed("user"))?;
    Ok(BookEntry { id, user, chain: ChainId(chain), address, label, added: Timestamp::from_micros(added) })
}

impl Db {
    /// Adds them, and says how each stands in the book, in their order. One that is there already stays as old as it is, with its label.
    pub async fn add_to_book(&self, entries: &[NewBookEntry], at: Timestamp) -> Result<Vec<BookEntry>, StoreError> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        transact!(self, tx => {
            // The first of two with one address is the one.
            let mut distinct: BTreeMap<(i64, i64, &str), &str> = BTreeMap::new();
            for one in entries {
                distinct.entry((one.user.get(), one.chain.0, one.address.as_str())).or_insert(one.label.as_str());
            }
            let ints = |each: &dyn Fn(&(i64, i64, &str)) -> i64| Column::Ints(distinct.keys().map(each).collect());
            let (users, chains) = (|key: &(i64, i64, &str)| key.0, |key: &(i64, i64, &str)| key.1);
            let addresses = || Column::Texts(distinct.keys().map(|key| key.2).collect());
            let labels = Column::Texts(distinct.values().copied().collect());
            let columns = vec![ints(&users), ints(&chains), addresses(), labels, ints(&|_| at.micros())];
            execute_rows(tx, &INSERT_BOOK, columns).await?;
            let rows: Vec<Columns> = fetch_rows(tx, &READ_BOOK, vec![ints(&users), ints(&chains), addresses()]).await?;
            let found = rows.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
            let found: HashMap<(UserId, ChainId, &str), &BookEntry> =
                found.iter().map(|one| ((one.user, one.chain, one.address.as_str()), one)).collect();
            let answer = |one: &NewBookEntry| {
                let one = found.get(&(one.user, one.chain, one.address.as_str()));
                one.map(|one| BookEntry::clone(one)).ok_or_else(|| malformed("address"))
            };
            entries.iter().map(answer).collect()
        })
    }

    pub async fn book(&self, user: UserId) -> Result<Vec<BookEntry>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, LIST_BOOK => Columns, user.get())?;
        rows.into_iter().map(entry).collect()
    }

    /// False: there is no such entry in the user's book.
    pub async fn remove_from_book(&self, user: UserId, entry: i64, at: Timestamp) -> Result<bool, StoreError> {
        transact!(self, tx => execute!(tx, REMOVE_BOOK_ENTRY, entry, user.get(), at.micros()).map(|changed| changed == 1))
    }
}
