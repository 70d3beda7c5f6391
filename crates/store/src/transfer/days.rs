//! What daily limits have used up.
//!
//! The rows of a user and day are locked before they are looked at, and made first where they are missing, so that two
//! that ask at once take turns.

use std::collections::{BTreeMap, BTreeSet};

use domain::{AssetId, Timestamp, UserId};

use crate::db::Tx;
use crate::dialect::Many;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, RowsSql, Writes, execute_rows};

/// One counter: the transfers of a user (no asset), or what was moved of an asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day {
    pub user: UserId,
    pub asset: Option<AssetId>,
}

impl Day {
    fn asset_number(self) -> i64 {
        self.asset.map_or(0, |asset| asset.0)
    }
}

statements! {
    LOCK_DAYS = "SELECT user_id, asset_id, used FROM transfer_days
        WHERE user_id {in $1} AND day = $2 ORDER BY user_id, asset_id {FOR UPDATE}";
}

static MAKE_DAYS: RowsSql = RowsSql::new(
    "MAKE_DAYS",
    "INSERT INTO transfer_days (user_id, day, asset_id, used) SELECT user_id, day, asset_id, 0 FROM {rows} WHERE true
     ORDER BY user_id, asset_id ON CONFLICT (user_id, day, asset_id) DO NOTHING",
    &[("user_id", Int), ("day", Int), ("asset_id", Int)],
);

static SET_DAYS: RowsSql = RowsSql::new(
    "SET_DAYS",
    "UPDATE transfer_days SET used = r.used FROM {rows}
     WHERE transfer_days.user_id = r.user_id AND transfer_days.day = r.day AND transfer_days.asset_id = r.asset_id",
    &[("user_id", Int), ("day", Int), ("asset_id", Int), ("used", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 2] = [&MAKE_DAYS, &SET_DAYS];

const MICROS_PER_DAY: i64 = 86_400_000_000;

fn day_of(at: Timestamp) -> i64 {
    at.micros().div_euclid(MICROS_PER_DAY)
}

/// Locks the counters, in one order, and says where they stand.
pub async fn lock_days(tx: &mut Tx, wanted: &BTreeSet<Day>, at: Timestamp) -> Result<BTreeMap<Day, i64>, StoreError> {
    let found = read_locked(tx, wanted, at).await?;
    let missing: Vec<Day> = wanted.iter().copied().filter(|day| !found.contains_key(day)).collect();
    if missing.is_empty() {
        return Ok(found);
    }
    let columns = vec![
        Column::Ints(missing.iter().map(|day| day.user.get()).collect()),
        Column::Ints(vec![day_of(at); missing.len()]),
        Column::Ints(missing.iter().map(|day| day.asset_number()).collect()),
    ];
    execute_rows(tx, &MAKE_DAYS, columns).await?;
    read_locked(tx, wanted, at).await
}

async fn read_locked(tx: &mut Tx, wanted: &BTreeSet<Day>, at: Timestamp) -> Result<BTreeMap<Day, i64>, StoreError> {
    let users: BTreeSet<i64> = wanted.iter().map(|day| day.user.get()).collect();
    let users = Many(users.into_iter().collect::<Vec<i64>>());
    let rows = fetch_all!(tx, LOCK_DAYS => (i64, i64, i64), users.clone(), day_of(at))?;
    rows.into_iter()
        .map(|(user, asset, used)| {
            let broken = || StoreError::Corrupt { what: format!("transfer_days has the user {user}") };
            let day =
                Day { user: UserId::new(user).ok_or_else(broken)?, asset: (asset != 0).then_some(AssetId(asset)) };
            Ok((day, used))
        })
        .collect()
}

/// Writes where the counters stand now. They were locked in this transaction.
pub fn set_days(writes: &mut Writes, used: &BTreeMap<Day, i64>, at: Timestamp) {
    let columns = vec![
        Column::Ints(used.keys().map(|day| day.user.get()).collect()),
        Column::Ints(vec![day_of(at); used.len()]),
        Column::Ints(used.keys().map(|day| day.asset_number()).collect()),
        Column::Ints(used.values().copied().collect()),
    ];
    writes.add(&SET_DAYS, columns, "transfer days");
}
