//! Users' deposit wallets: one for each user and group. A row is an index for finding whose an address is; whoever reads one
//! derives the address again.

use std::collections::HashSet;

use domain::{GroupId, Timestamp, UserId};

use super::ClaimedAddress;
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, fetch_rows};
use crate::transact;

/// So many wallets are added at once.
pub const MOST: usize = 10_000;

/// A wallet to add, with the address that was derived for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUserWallet {
    pub user: UserId,
    pub address: String,
}

/// A row as it stands. Nothing of it is believed: user and index are numbers, because a row may say anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserWalletRow {
    pub id: i64,
    pub group: String,
    pub user: i64,
    pub index: i64,
    pub address: ClaimedAddress,
}

/// What there is after wallets were added.
#[derive(Clone, Debug, Default)]
pub struct AssignedRows {
    /// How many are new.
    pub added: u64,
    /// The rows of the users that were named, in no order.
    pub rows: Vec<UserWalletRow>,
    /// Where a user has no row all the same: the rows that have the user's address.
    pub holders: Vec<UserWalletRow>,
}

type Row = (i64, String, i64, i64, String);

fn wallet((id, group, user, index, address): Row) -> UserWalletRow {
    UserWalletRow { id, group, user, index, address: ClaimedAddress::new(address) }
}

const COLUMNS: &str = "w.id, g.name, w.user_id, w.derivation_index, w.address";

statements! {
    LIST_WALLETS(COLUMNS) = "SELECT {columns} FROM user_wallets w {join} wallet_groups g ON g.id = w.wallet_group_id
        WHERE w.id > $1 ORDER BY w.id LIMIT $2";
    LIST_WALLETS_OF_GROUP(COLUMNS) = "SELECT {columns}
        FROM wallet_groups g {join} user_wallets w ON w.wallet_group_id = g.id
        WHERE g.name = $3 AND w.id > $1 ORDER BY w.id LIMIT $2";
    LIST_WALLETS_OF_USER(COLUMNS) = "SELECT {columns}
        FROM user_wallets w {join} wallet_groups g ON g.id = w.wallet_group_id
        WHERE w.user_id = $1 ORDER BY w.id";
    COUNT_WALLETS = "SELECT COUNT(*) FROM user_wallets";
    COUNT_WALLETS_OF_GROUP = "SELECT COUNT(*)
        FROM wallet_groups g {join} user_wallets w ON w.wallet_group_id = g.id WHERE g.name = $1";
}

/// All in one order: two that add the same users wait for each other, they do not deadlock. A user who has a wallet keeps
/// it. So does an address that another row has; then the user is found to have none.
static INSERT_WALLETS: RowsSql = RowsSql::new(
    "INSERT_WALLETS",
    "INSERT INTO user_wallets (wallet_group_id, user_id, derivation_index, address, created_at)
     SELECT g.id, r.user_id, r.user_id, r.address, r.at
     FROM {rows} {join} wallet_groups g ON g.name = r.group_name
     WHERE true ORDER BY r.user_id
     ON CONFLICT DO NOTHING",
    &[("group_name", Text), ("user_id", Int), ("address", Text), ("at", Int)],
);

static READ_WALLETS_OF_USERS: RowsSql = RowsSql::listing(
    "READ_WALLETS_OF_USERS",
    "SELECT {columns} FROM {rows} {join} wallet_groups g ON g.name = r.group_name
     {join} user_wallets w ON w.user_id = r.user_id AND w.wallet_group_id = g.id",
    COLUMNS,
    &[("group_name", Text), ("user_id", Int)],
);

static READ_WALLETS_AT: RowsSql = RowsSql::listing(
    "READ_WALLETS_AT",
    "SELECT {columns} FROM {rows} {join} user_wallets w ON w.address = r.address
     {join} wallet_groups g ON g.id = w.wallet_group_id",
    COLUMNS,
    &[("address", Text)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&INSERT_WALLETS, &READ_WALLETS_OF_USERS, &READ_WALLETS_AT];

impl Db {
    /// Adds the wallets that are not there yet, and says what there is, in two statements (three if an address is taken). The same again adds
    /// nothing. Each user is named once.
    pub async fn assign_user_wallets(
        &self,
        group: &GroupId,
        wanted: &[NewUserWallet],
        at: Timestamp,
    ) -> Result<AssignedRows, StoreError> {
        if wanted.len() > MOST {
            return Err(StoreError::BatchTooLarge { count: wanted.len(), most: MOST });
        }
        if wanted.is_empty() {
            return Ok(AssignedRows::default());
        }
        transact!(self, tx => {
            let added = insert(tx, group, wanted, at).await?;
            let users: Vec<UserId> = wanted.iter().map(|one| one.user).collect();
            let rows = user_wallets_in(tx, group, &users).await?;
            let there: HashSet<i64> = rows.iter().map(|row| row.user).collect();
            let without = wanted.iter().filter(|one| !there.contains(&one.user.get()));
            let addresses: Vec<&str> = without.map(|one| one.address.as_str()).collect();
            let holders = user_wallets_at(tx, &addresses).await?;
            Ok(AssignedRows { added, rows, holders })
        })
    }
}

async fn insert(tx: &mut Tx, group: &GroupId, wanted: &[NewUserWallet], at: Timestamp) -> Result<u64, StoreError> {
    let columns = vec![
        Column::Texts(vec![group.as_str(); wanted.len()]),
        Column::Ints(wanted.iter().map(|one| one.user.get()).collect()),
        Column::Texts(wanted.iter().map(|one| one.address.as_str()).collect()),
        Column::Ints(vec![at.micros(); wanted.len()]),
    ];
    execute_rows(tx, &INSERT_WALLETS, columns).await
}

/// Of these users the wallets in one group.
pub async fn user_wallets_in(tx: &mut Tx, group: &GroupId, users: &[UserId]) -> Result<Vec<UserWalletRow>, StoreError> {
    if users.is_empty() {
        return Ok(Vec::new());
    }
    let columns = vec![
        Column::Texts(vec![group.as_str(); users.len()]),
        Column::Ints(users.iter().map(|user| user.get()).collect()),
    ];
    let rows: Vec<Row> = fetch_rows(tx, &READ_WALLETS_OF_USERS, columns).await?;
    Ok(rows.into_iter().map(wallet).collect())
}

/// The wallets that these addresses are of, as far as rows say.
pub async fn user_wallets_at(tx: &mut Tx, addresses: &[&str]) -> Result<Vec<UserWalletRow>, StoreError> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Row> = fetch_rows(tx, &READ_WALLETS_AT, vec![Column::Texts(addresses.to_vec())]).await?;
    Ok(rows.into_iter().map(wallet).collect())
}

/// One user's wallets in all groups, oldest first.
pub async fn user_wallets_of(tx: &mut Tx, user: UserId) -> Result<Vec<UserWalletRow>, StoreError> {
    Ok(fetch_all!(tx, LIST_WALLETS_OF_USER => Row, user.get())?.into_iter().map(wallet).collect())
}

/// A page of all wallets, or of a group's, by their ids.
pub async fn list_user_wallets(
    tx: &mut Tx,
    group: Option<&GroupId>,
    after: i64,
    most: i64,
) -> Result<Vec<UserWalletRow>, StoreError> {
    let rows = match group {
        None => fetch_all!(tx, LIST_WALLETS => Row, after, most)?,
        Some(group) => fetch_all!(tx, LIST_WALLETS_OF_GROUP => Row, after, most, group.as_str())?,
    };
    Ok(rows.into_iter().map(wallet).collect())
}

pub async fn count_user_wallets(tx: &mut Tx, group: Option<&GroupId>) -> Result<u64, StoreError> {
    let row = match group {
        None => fetch_optional!(tx, COUNT_WALLETS => (i64,))?,
        Some(group) => fetch_optional!(tx, COUNT_WALLETS_OF_GROUP => (i64,), group.as_str())?,
    };
    Ok(row.map_or(0, |(count,)| count.unsigned_abs()))
}
