//! Users' deposit wallets: one for each user and group. A row is an index for finding whose an address is; whoever reads one
//! derives the address again.

use std::collections::HashSet;

use domain::{GroupId, Timestamp, UserId};

use super::ClaimedAddress;
use crate::db::{Db, Tx};
use crate::dialect::LOCK_USER_WALLETS;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, fetch_rows};
use crate::transact;
use crate::utxo::events::refused;
use crate::utxo::wallet::{add, create};
use crate::utxo::{AddressKind, Network, NewAddress, Paths, UtxoError};

/// So many wallets are added at once.
pub const MOST: usize = 10_000;

/// A wallet to add, with the address that was derived for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUserWallet {
    pub user: UserId,
    pub address: String,
}

/// A wallet on Bitcoin, with the script that a payment to its address has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBitcoinWallet {
    pub wallet: NewUserWallet,
    pub script: Vec<u8>,
}

/// Which Bitcoin wallet watches the scripts of a group: one with the group's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitcoinGroup {
    pub network: Network,
    /// The account of the group's key.
    pub account: u32,
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
    /// One group by its number: else PostgreSQL sorts all wallets of the group for each page.
    LIST_ADDRESSES_OF_GROUP = "SELECT id, address FROM user_wallets
        WHERE wallet_group_id = (SELECT id FROM wallet_groups WHERE name = $3) AND id > $1 ORDER BY id LIMIT $2";
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

static INSERT_TEXTS: RowsSql = RowsSql::new(
    "INSERT_TEXTS",
    "INSERT INTO address_texts (script_pub_key, address) SELECT r.script, r.address FROM {rows} WHERE true ON CONFLICT DO NOTHING",
    &[("script", Bytes), ("address", Text)],
);

/// By the user, not by the group: the addition hides that there is an index of groups, which have millions of users.
static READ_WALLETS_OF_USERS: RowsSql = RowsSql::listing(
    "READ_WALLETS_OF_USERS",
    "SELECT {columns} FROM {rows} {join} wallet_groups g ON g.name = r.group_name
     {join} user_wallets w ON w.user_id = r.user_id AND w.wallet_group_id + 0 = g.id",
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
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 4] =
    [&INSERT_WALLETS, &READ_WALLETS_OF_USERS, &READ_WALLETS_AT, &INSERT_TEXTS];

impl Db {
    /// Adds the wallets that are not there yet, and says what there is, in three statements (four if an address is taken). The
    /// same again adds nothing. Each user is named once.
    pub async fn assign_user_wallets(
        &self,
        group: &GroupId,
        wanted: &[NewUserWallet],
        at: Timestamp,
    ) -> Result<AssignedRows, StoreError> {
        check_most(wanted.len())?;
        if wanted.is_empty() {
            return Ok(AssignedRows::default());
        }
        transact!(self, tx => {
            fetch_optional!(tx, LOCK_USER_WALLETS => (String,))?;
            assign(tx, group, wanted, at).await
        })
    }

    /// The same on Bitcoin. From the moment that a wallet is there, and so before anybody can be shown its address, the Bitcoin
    /// wallet of the group watches it: both are one transaction, so that no payment is missed. Wallets that are there already are
    /// watched from now on, if they were not.
    pub async fn assign_bitcoin_wallets(
        &self,
        group: &GroupId,
        of: BitcoinGroup,
        wanted: &[NewBitcoinWallet],
        at: Timestamp,
    ) -> Result<AssignedRows, UtxoError> {
        check_most(wanted.len())?;
        if wanted.is_empty() {
            return Ok(AssignedRows::default());
        }
        let watch = |one: &NewBitcoinWallet| NewAddress {
            account: of.account,
            // The path of a user is not one of receiving and change. Whoever spends from it finds the user by the address.
            path: None,
            kind: AddressKind::P2wpkh,
            script: one.script.clone(),
        };
        let watched: Vec<NewAddress> = wanted.iter().map(watch).collect();
        let wallets: Vec<NewUserWallet> = wanted.iter().map(|one| one.wallet.clone()).collect();
        Ok(transact!(self, tx => {
            // The locks of both, in this order everywhere.
            fetch_optional!(tx, LOCK_USER_WALLETS => (String,))?;
            // What the Bitcoin wallet refuses is found before a user has a row.
            match refused(watch_scripts(tx, group, of.network, &watched, at).await)? {
                Ok(()) => {
                    write_texts(tx, wanted).await?;
                    Ok(Ok(assign(tx, group, &wallets, at).await?))
                }
                Err(refusal) => Ok(Err(refusal)),
            }
        })??)
    }
}

const fn check_most(count: usize) -> Result<(), StoreError> {
    if count > MOST { Err(StoreError::BatchTooLarge { count, most: MOST }) } else { Ok(()) }
}

async fn watch_scripts(
    tx: &mut Tx,
    group: &GroupId,
    network: Network,
    scripts: &[NewAddress],
    at: Timestamp,
) -> Result<(), UtxoError> {
    let wallet = create(tx, group.as_str(), network, at).await?;
    add(tx, wallet, scripts, Paths::Exact, at).await.map(|_| ())
}

/// What the scripts are called, so that what is paid to one is known by its address.
async fn write_texts(tx: &mut Tx, wanted: &[NewBitcoinWallet]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Bytes(wanted.iter().map(|one| one.script.clone()).collect()),
        Column::Texts(wanted.iter().map(|one| one.wallet.address.as_str()).collect()),
    ];
    execute_rows(tx, &INSERT_TEXTS, columns).await.map(|_| ())
}

/// To be called under the lock of users' wallets.
async fn assign(
    tx: &mut Tx,
    group: &GroupId,
    wanted: &[NewUserWallet],
    at: Timestamp,
) -> Result<AssignedRows, StoreError> {
    let added = insert(tx, group, wanted, at).await?;
    let users: Vec<UserId> = wanted.iter().map(|one| one.user).collect();
    let rows = user_wallets_in(tx, group, &users).await?;
    let there: HashSet<i64> = rows.iter().map(|row| row.user).collect();
    let without = wanted.iter().filter(|one| !there.contains(&one.user.get()));
    let addresses: Vec<&str> = without.map(|one| one.address.as_str()).collect();
    let holders = user_wallets_at(tx, &addresses).await?;
    Ok(AssignedRows { added, rows, holders })
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

/// A page of the addresses that these groups' users have, by the ids of their rows: what a scan loads to know what it watches.
/// Ids become visible in their order, so whoever has read up to an id has missed none below it. An address here is what a row
/// claims: it finds payments, and nothing is credited before [`user_wallets_at`] and the key agree.
pub async fn list_addresses(
    tx: &mut Tx,
    groups: &[GroupId],
    after: i64,
    most: usize,
) -> Result<Vec<(i64, String)>, StoreError> {
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let mut page: Vec<(i64, String)> = Vec::new();
    for group in groups {
        page.extend(fetch_all!(tx, LIST_ADDRESSES_OF_GROUP => (i64, String), after, limit, group.as_str())?);
    }
    // Each group gave its lowest ids, so the lowest of all of them are among these.
    if groups.len() > 1 {
        page.sort_unstable_by_key(|(id, _)| *id);
        page.truncate(most);
    }
    Ok(page)
}

pub async fn count_user_wallets(tx: &mut Tx, group: Option<&GroupId>) -> Result<u64, StoreError> {
    let row = match group {
        None => fetch_optional!(tx, COUNT_WALLETS => (i64,))?,
        Some(group) => fetch_optional!(tx, COUNT_WALLETS_OF_GROUP => (i64,), group.as_str())?,
    };
    Ok(row.map_or(0, |(count,)| count.unsigned_abs()))
}
