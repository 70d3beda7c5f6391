//! The balances of system accounts: a checkpoint plus the movements since.
//!
//! Users' balances stand in their rows. A system account is party to nearly every movement; a balance in its row
//! would make all writers queue for it. So its balance is added up when it is read, from the last checkpoint on.

use std::collections::BTreeMap;

use domain::ledger::AccountState;
use domain::{AccountId, AssetId, Timestamp, UserId};

use super::post::{ACCOUNT, AccountRow, state};
use crate::db::{Db, Tx};
use crate::dialect::{BARRIER_MOVEMENTS, BARRIER_PATIENCE, PREFER_ONE_PASS};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows};
use crate::transact;

statements! {
    HIGHEST_MOVEMENT = "SELECT COALESCE(MAX(id), 0) FROM movements";
    LATEST_CHECKPOINT = "SELECT through_movement, account_id, balance FROM checkpoints
        WHERE through_movement = (SELECT MAX(through_movement) FROM checkpoints)";
    /// What each system account gained in ($1, $2], in two halves of 32 bits: a plain SUM could pass 64.
    SUM_SYSTEM_MOVEMENTS = "SELECT account_id, CAST(SUM(gain >> 32) AS BIGINT), CAST(SUM(gain & 4294967295) AS BIGINT)
        FROM (SELECT to_account AS account_id, amount AS gain FROM movements
                WHERE outcome = 0 AND to_account < 0 AND id > $1 AND id <= $2
            UNION ALL
            SELECT from_account, -amount FROM movements
                WHERE outcome = 0 AND from_account < 0 AND id > $1 AND id <= $2) gains
        GROUP BY account_id";
    LATEST_MARK = "SELECT through_movement, movements, checksums FROM journal_marks
        ORDER BY through_movement DESC LIMIT 1";
    TALLY_MOVEMENTS = "SELECT COUNT(*), CAST(COALESCE(SUM(checksum), 0) AS BIGINT) FROM movements
        WHERE id > $1 AND id <= $2";
    INSERT_MARK = "INSERT INTO journal_marks (through_movement, movements, checksums, at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (through_movement) DO NOTHING";
    /// What all users together have at rest and held, per asset, each in two halves.
    SUM_USERS = "SELECT asset_id, CAST(SUM(available >> 32) AS BIGINT), CAST(SUM(available & 4294967295) AS BIGINT),
            CAST(SUM(frozen >> 32) AS BIGINT), CAST(SUM(frozen & 4294967295) AS BIGINT)
        FROM accounts WHERE id > 0 GROUP BY asset_id";
    FUNDING_OF(ACCOUNT) = "SELECT {columns} FROM accounts
        WHERE owner = $1 AND kind = 'funding' ORDER BY asset_id";
    READ_SYSTEM_ACCOUNTS = "SELECT id, asset_id, kind FROM accounts WHERE id < 0";
}

pub(crate) static INSERT_CHECKPOINTS: RowsSql = RowsSql::new(
    "INSERT_CHECKPOINTS",
    "INSERT INTO checkpoints (through_movement, account_id, balance, at)
     SELECT through_movement, account_id, balance, at FROM {rows} WHERE true
     ON CONFLICT (through_movement, account_id) DO NOTHING",
    &[("through_movement", Int), ("account_id", Int), ("balance", Text), ("at", Int)],
);

/// Two halves of a sum, put together.
pub(crate) const fn join_halves(high: i64, low: i64) -> i128 {
    ((high as i128) << 32) + low as i128
}

/// The balance of every system account that has ever moved, as of this transaction's snapshot.
pub async fn system_balances(tx: &mut Tx) -> Result<BTreeMap<AccountId, i128>, StoreError> {
    let (through, mut balances) = latest_checkpoint(tx).await?;
    add_movements(tx, &mut balances, through, i64::MAX).await?;
    Ok(balances)
}

/// What the books come to, per asset. Everything of one asset adds up to zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub users_available: i128,
    pub users_frozen: i128,
    /// By kind of system account, such as `fees` or `custody:bsc`.
    pub system: BTreeMap<String, i128>,
}

impl Totals {
    pub fn sum(&self) -> i128 {
        self.users_available + self.users_frozen + self.system.values().sum::<i128>()
    }
}

pub async fn totals(tx: &mut Tx) -> Result<BTreeMap<AssetId, Totals>, StoreError> {
    execute!(tx, PREFER_ONE_PASS)?;
    let mut totals: BTreeMap<AssetId, Totals> = BTreeMap::new();
    let users = fetch_all!(tx, SUM_USERS => (i64, i64, i64, i64, i64))?;
    for (asset, available_high, available_low, frozen_high, frozen_low) in users {
        let total = totals.entry(AssetId(asset)).or_default();
        total.users_available = join_halves(available_high, available_low);
        total.users_frozen = join_halves(frozen_high, frozen_low);
    }
    let mut balances = system_balances(tx).await?;
    for (id, asset, kind) in fetch_all!(tx, READ_SYSTEM_ACCOUNTS => (i64, i64, String))? {
        let balance = balances.remove(&AccountId(id)).unwrap_or(0);
        totals.entry(AssetId(asset)).or_default().system.insert(kind, balance);
    }
    match balances.pop_first() {
        None => Ok(totals),
        Some((account, _)) => {
            Err(StoreError::Corrupt { what: format!("system account {account} moved money, but does not exist") })
        }
    }
}

/// A user's funding accounts, by asset.
pub async fn funding_of(tx: &mut Tx, user: UserId) -> Result<Vec<(AccountId, AccountState)>, StoreError> {
    fetch_all!(tx, FUNDING_OF => AccountRow, user.get())?.into_iter().map(state).collect()
}

pub(crate) async fn latest_checkpoint(tx: &mut Tx) -> Result<(i64, BTreeMap<AccountId, i128>), StoreError> {
    let rows = fetch_all!(tx, LATEST_CHECKPOINT => (i64, i64, String))?;
    let through = rows.first().map_or(0, |row| row.0);
    let balances = rows.into_iter().map(|(_, account, balance)| {
        let broken = |_| StoreError::Corrupt { what: format!("the checkpoint of account {account} is no number") };
        Ok((AccountId(account), balance.parse().map_err(broken)?))
    });
    Ok((through, balances.collect::<Result<_, StoreError>>()?))
}

/// How many movements there were through an id, and the sum of their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub through: i64,
    pub movements: i64,
    pub checksums: i64,
}

pub(crate) async fn latest_mark(tx: &mut Tx) -> Result<Mark, StoreError> {
    let row = fetch_optional!(tx, LATEST_MARK => (i64, i64, i64))?;
    Ok(row.map_or_else(Mark::default, |(through, movements, checksums)| Mark { through, movements, checksums }))
}

pub(crate) async fn add_movements(
    tx: &mut Tx,
    balances: &mut BTreeMap<AccountId, i128>,
    after: i64,
    through: i64,
) -> Result<(), StoreError> {
    for (account, high, low) in fetch_all!(tx, SUM_SYSTEM_MOVEMENTS => (i64, i64, i64), after, through)? {
        *balances.entry(AccountId(account)).or_default() += join_halves(high, low);
    }
    Ok(())
}

impl Db {
    /// Writes down the system balances through the newest movement, so that later sums are short. Returns that
    /// movement's id. Writers wait only while the line is drawn, on PostgreSQL for at most 200 ms at a time.
    pub async fn checkpoint(&self, at: Timestamp) -> Result<i64, StoreError> {
        // The line: once every open writer has ended, nothing can appear at or below the highest id any more.
        let line = transact!(self, tx => {
            execute!(tx, BARRIER_PATIENCE)?;
            execute!(tx, BARRIER_MOVEMENTS)?;
            Ok(fetch_optional!(tx, HIGHEST_MOVEMENT => (i64,))?.map_or(0, |row| row.0))
        })?;
        // The movements below it stand still, and are added up while writers go on.
        let mut tx = self.read().await?;
        let (through, mut balances) = latest_checkpoint(&mut tx).await?;
        if through >= line {
            return Ok(through);
        }
        add_movements(&mut tx, &mut balances, through, line).await?;
        let mark = latest_mark(&mut tx).await?;
        let (more, checksums) =
            fetch_optional!(&mut tx, TALLY_MOVEMENTS => (i64, i64), mark.through, line)?.unwrap_or_default();
        drop(tx);
        transact!(self, tx => {
            let texts: Vec<String> = balances.values().map(ToString::to_string).collect();
            let columns = vec![
                Column::Ints(vec![line; balances.len()]),
                Column::Ints(balances.keys().map(|account| account.0).collect()),
                Column::Texts(texts.iter().map(String::as_str).collect()),
                Column::Ints(vec![at.micros(); balances.len()]),
            ];
            execute_rows(tx, &INSERT_CHECKPOINTS, columns).await?;
            execute!(tx, INSERT_MARK, line, mark.movements + more, mark.checksums + checksums, at.micros())?;
            Ok(line)
        })
    }
}
