//! Deposits as users, operators and workers see them.

use domain::deposit::DepositState;
use domain::utxo::Hash;
use domain::{Amount, Precision, Symbol, Timestamp, UserId};

use crate::db::{Db, Tx};
use crate::entry::ListingId;
use crate::error::StoreError;

/// Which deposits are wanted. `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DepositFilter {
    pub user: Option<UserId>,
    pub chain: Option<String>,
    pub asset: Option<String>,
    pub state: Option<DepositState>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepositRow {
    pub id: i64,
    pub chain: String,
    pub asset: Symbol,
    pub precision: Precision,
    pub listing: ListingId,
    pub transaction: Hash,
    pub place: String,
    pub generation: i64,
    pub address: String,
    pub amount_raw: String,
    pub decimals: i64,
    pub height: i64,
    pub block: Hash,
    pub user: Option<i64>,
    pub state: DepositState,
    pub reason: Option<String>,
    pub amount: Amount,
    pub left_over: Amount,
    pub receivable: Amount,
    /// How far its chain is proven: with its height, how deep it is.
    pub proven_height: i64,
    pub confirmations: i64,
    pub final_confirmations: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepositEventRow {
    pub version: i64,
    pub state: String,
    pub reason: String,
    pub at: Timestamp,
}

const DEPOSIT: &str =
    "d.id, c.name AS chain, a.symbol, a.precision, d.listing_id, d.tx_hash, d.place, d.generation, d.address,
    d.amount_raw, l.decimals, d.height, d.block_hash, d.user_id, d.state, d.reason, d.amount, d.left_over, d.receivable,
    COALESCE(k.proven_height, -1) AS proven_height, c.confirmations,
    COALESCE(c.final_confirmations, c.confirmations) AS final_confirmations, d.created_at, d.updated_at";

statements! {
    READ_DEPOSIT(DEPOSIT) = "SELECT {columns} FROM deposits d JOIN chains c ON c.id = d.chain_id
        JOIN asset_on_chain l ON l.id = d.listing_id JOIN assets a ON a.id = l.asset_id
        LEFT JOIN chain_cursors k ON k.chain_id = d.chain_id WHERE d.id = $1";
    /// The newest first. Of a user, by an index of its own.
    LIST_DEPOSITS_OF_USER(DEPOSIT) = "SELECT {columns} FROM deposits d JOIN chains c ON c.id = d.chain_id
        JOIN asset_on_chain l ON l.id = d.listing_id JOIN assets a ON a.id = l.asset_id
        LEFT JOIN chain_cursors k ON k.chain_id = d.chain_id
        WHERE d.user_id = $1 AND d.id < $2 AND ($3 = '' OR d.state = $3) AND ($4 = '' OR c.name = $4) AND ($5 = '' OR a.symbol = $5)
        ORDER BY d.id DESC LIMIT $6";
    LIST_DEPOSITS(DEPOSIT) = "SELECT {columns} FROM deposits d JOIN chains c ON c.id = d.chain_id
        JOIN asset_on_chain l ON l.id = d.listing_id JOIN assets a ON a.id = l.asset_id
        LEFT JOIN chain_cursors k ON k.chain_id = d.chain_id
        WHERE d.id < $1 AND ($2 = '' OR d.state = $2) AND ($3 = '' OR c.name = $3) AND ($4 = '' OR a.symbol = $4)
        ORDER BY d.id DESC LIMIT $5";
    READ_DEPOSIT_EVENTS = "SELECT version, state, reason, at FROM deposit_events WHERE deposit_id = $1 ORDER BY version";
    COUNT_DEPOSITS = "SELECT c.name, d.state, COUNT(*) FROM deposits d JOIN chains c ON c.id = d.chain_id
        WHERE d.state IN ('detected', 'proven', 'credited', 'unattributed') GROUP BY c.name, d.state ORDER BY c.name, d.state";
}

struct Columns {
    row: DepositRow,
}

impl<'r, R: sqlx::Row> sqlx::FromRow<'r, R> for Columns
where
    &'static str: sqlx::ColumnIndex<R>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<i64>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<String>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Vec<u8>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let bad = |what: &str| sqlx::Error::Decode(format!("a deposit has a malformed {what}").into());
        let hash = |column: &'static str| -> Result<Hash, sqlx::Error> {
            let bytes: Vec<u8> = row.try_get(column)?;
            <[u8; 32]>::try_from(bytes.as_slice()).map(Hash).map_err(|_| bad("hash"))
        };
        let units = |column: &'static str| row.try_get(column).map(Amount::from_units);
        let time = |column: &'static str| row.try_get(column).map(Timestamp::from_micros);
        let (symbol, state): (String, String) = (row.try_get("symbol")?, row.try_get("state")?);
        let precision: i64 = row.try_get("precision")?;
        let row = DepositRow {
            id: row.try_get("id")?,
            chain: row.try_get("chain")?,
            asset: symbol.parse().map_err(|_| bad("symbol"))?,
            precision: u8::try_from(precision).ok().and_then(Precision::new).ok_or_else(|| bad("precision"))?,
            listing: ListingId(row.try_get("listing_id")?),
            transaction: hash("tx_hash")?,
            place: row.try_get("place")?,
            generation: row.try_get("generation")?,
            address: row.try_get("address")?,
            amount_raw: row.try_get("amount_raw")?,
            decimals: row.try_get("decimals")?,
            height: row.try_get("height")?,
            block: hash("block_hash")?,
            user: row.try_get("user_id")?,
            state: DepositState::parse(&state).ok_or_else(|| bad("state"))?,
            reason: row.try_get("reason")?,
            amount: units("amount")?,
            left_over: units("left_over")?,
            receivable: units("receivable")?,
            proven_height: row.try_get("proven_height")?,
            confirmations: row.try_get("confirmations")?,
            final_confirmations: row.try_get("final_confirmations")?,
            created_at: time("created_at")?,
            updated_at: time("updated_at")?,
        };
        Ok(Self { row })
    }
}

impl Db {
    /// One deposit with its history, oldest first.
    pub async fn deposit(&self, id: i64) -> Result<Option<(DepositRow, Vec<DepositEventRow>)>, StoreError> {
        let mut tx = self.read().await?;
        let Some(found) = fetch_optional!(&mut tx, READ_DEPOSIT => Columns, id)? else { return Ok(None) };
        let events = fetch_all!(&mut tx, READ_DEPOSIT_EVENTS => (i64, String, String, i64), id)?;
        let event =
            |(version, state, reason, at)| DepositEventRow { version, state, reason, at: Timestamp::from_micros(at) };
        Ok(Some((found.row, events.into_iter().map(event).collect())))
    }

    /// A page of deposits, the newest first, below the id `before`.
    pub async fn deposits(
        &self,
        filter: &DepositFilter,
        before: i64,
        most: i64,
    ) -> Result<Vec<DepositRow>, StoreError> {
        let mut tx = self.read().await?;
        list(&mut tx, filter, before, most).await
    }

    /// How many deposits are open on each chain: chain, state, count.
    pub async fn count_deposits(&self) -> Result<Vec<(String, String, i64)>, StoreError> {
        fetch_all!(&mut self.read().await?, COUNT_DEPOSITS => (String, String, i64))
    }
}

async fn list(tx: &mut Tx, filter: &DepositFilter, before: i64, most: i64) -> Result<Vec<DepositRow>, StoreError> {
    let state = filter.state.map_or("", DepositState::as_str);
    let chain = filter.chain.as_deref().unwrap_or("");
    let asset = filter.asset.as_deref().unwrap_or("");
    let rows = match filter.user {
        Some(user) => fetch_all!(tx, LIST_DEPOSITS_OF_USER => Columns, user.get(), before, state, chain, asset, most)?,
        None => fetch_all!(tx, LIST_DEPOSITS => Columns, before, state, chain, asset, most)?,
    };
    Ok(rows.into_iter().map(|columns| columns.row).collect())
}
