//! A transfer as it stands in its row.

use domain::id::Id;
use domain::transfer::{ClientOrderId, Direction, State, Transfer};
use domain::{AccountId, Amount, AssetId, Timestamp, UserId};

use crate::error::StoreError;

/// The columns of a [`Row`], in its order.
pub(crate) const COLUMNS: &str =
    "id, user_id, asset_id, amount, direction, funding_account, state, error, client_order_id,
    tries, due_at, alerted_at, version, created_at, updated_at";

/// By position, in the order of the columns: it is decoded for every transfer of every batch.
pub(crate) type Row =
    (i64, i64, i64, i64, i64, i64, i64, Option<String>, Option<String>, i64, i64, Option<i64>, i64, i64, i64);

pub(crate) fn transfer(row: Row) -> Result<Transfer, StoreError> {
    let (
        id,
        user,
        asset,
        amount,
        direction,
        funding,
        state,
        error,
        order,
        tries,
        due,
        alerted,
        version,
        created,
        updated,
    ) = row;
    let broken = || StoreError::Corrupt { what: format!("transfer {id} makes no sense") };
    Ok(Transfer {
        id: Id::new(id).map_err(|_| broken())?,
        user: UserId::new(user).ok_or_else(broken)?,
        asset: AssetId(asset),
        amount: Amount::from_units(amount),
        direction: Direction::from_number(direction).ok_or_else(broken)?,
        funding: AccountId(funding),
        state: i16::try_from(state).ok().and_then(State::from_number).ok_or_else(broken)?,
        error,
        client_order_id: order.map(ClientOrderId::new).transpose().map_err(|_| broken())?,
        tries,
        due_at: Timestamp::from_micros(due),
        alerted_at: alerted.map(Timestamp::from_micros),
        version,
        created_at: Timestamp::from_micros(created),
        updated_at: Timestamp::from_micros(updated),
    })
}

pub(crate) fn transfers(rows: Vec<Row>) -> Result<Vec<Transfer>, StoreError> {
    rows.into_iter().map(transfer).collect()
}

/// A transfer's row beside that of its funding account. Tuples end at sixteen columns, so this one reads itself.
pub(crate) struct WithAccount {
    pub transfer: Row,
    /// Asset, status, available, frozen.
    pub account: (i64, String, i64, i64),
    /// Not 0: nothing of its asset comes back from SPOT to FUNDING.
    pub stopped: i64,
}

impl<'r, R: sqlx::Row> sqlx::FromRow<'r, R> for WithAccount
where
    usize: sqlx::ColumnIndex<R>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<i64>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<String>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let int = |at: usize| row.try_get::<i64, _>(at);
        let transfer = (
            int(0)?,
            int(1)?,
            int(2)?,
            int(3)?,
            int(4)?,
            int(5)?,
            int(6)?,
            row.try_get(7)?,
            row.try_get(8)?,
            int(9)?,
            int(10)?,
            row.try_get(11)?,
            int(12)?,
            int(13)?,
            int(14)?,
        );
        Ok(Self { transfer, account: (int(15)?, row.try_get(16)?, int(17)?, int(18)?), stopped: int(19)? })
    }
}
