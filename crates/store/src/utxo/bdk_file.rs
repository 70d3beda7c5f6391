//! The SQLite file of another wallet, `bdk_wallet` (its tables are those of `bdk_chain` 0.23 and before), as it stands.
//!
//! **The file is never changed**: it is opened read-only. What its rows mean is not decided here.

use std::io::Read;
use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Connection, Row};

use super::types::Hash;

/// A whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BdkFile {
    pub network: String,
    pub descriptor: String,
    pub change_descriptor: Option<String>,
    /// The id of a descriptor, and the highest index whose address was handed out.
    pub last_revealed: Vec<(String, u32)>,
    /// Of the best chain; not all of its blocks.
    pub blocks: Vec<(u32, Hash)>,
    pub transactions: Vec<BdkTx>,
    pub anchors: Vec<BdkAnchor>,
}

/// Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BdkTx {
    pub hash: Hash,
    /// `None`: something is known of it, but not itself.
    pub raw: Option<Vec<u8>>,
    pub first_seen: Option<u64>,
    pub last_seen: Option<u64>,
    pub last_evicted: Option<u64>,
}

/// A block in which a transaction was seen, of the best chain or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BdkAnchor {
    pub hash: Hash,
    pub height: u32,
    pub block: Hash,
    pub time: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BdkFileError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] std::io::Error),
    #[error("it is not a SQLite file")]
    NotSqlite,
    #[error(
        "another program has it open, or was stopped while it wrote: {0} is beside it; open and close the wallet there first"
    )]
    InUse(String),
    #[error("it is not a wallet of bdk: it has no {0}")]
    NotBdk(&'static str),
    #[error("its part {part} has version {found}, and the newest known is {newest}")]
    TooNew { part: &'static str, found: i64, newest: i64 },
    #[error("SQLite reads it no further: {0}")]
    Sqlite(#[source] sqlx::Error),
    #[error("{table}, row {row}: {what}")]
    BadRow { table: &'static str, row: usize, what: String },
}

impl From<sqlx::Error> for BdkFileError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// The parts of the schema, each with a version of its own, and the newest that is known.
const WALLET: (&str, i64) = ("bdk_wallet", 1);
const CHAIN: (&str, i64) = ("bdk_localchain", 0);
const GRAPH: (&str, i64) = ("bdk_txgraph", 3);
const KEYCHAIN: (&str, i64) = ("bdk_keychaintxout", 1);

pub async fn read(path: &Path) -> Result<BdkFile, BdkFileError> {
    let immutable = check_header(path)?;
    let options = SqliteConnectOptions::new().filename(path).read_only(true).immutable(immutable);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    let mut snapshot = connection.begin().await?;
    let file = read_tables(&mut snapshot).await?;
    snapshot.rollback().await?;
    connection.close().await?;
    Ok(file)
}

/// Whether the file may be read without a look at its log. A log beside it holds newer rows, and reading it would write.
fn check_header(path: &Path) -> Result<bool, BdkFileError> {
    let mut header = [0; 20];
    let mut file = std::fs::File::open(path).map_err(BdkFileError::Unreadable)?;
    if file.read_exact(&mut header).is_err() || !header.starts_with(b"SQLite format 3\0") {
        return Err(BdkFileError::NotSqlite);
    }
    for suffix in ["-wal", "-journal"] {
        let mut beside = path.as_os_str().to_owned();
        beside.push(suffix);
        if std::fs::metadata(&beside).is_ok_and(|metadata| metadata.len() > 0) {
            return Err(BdkFileError::InUse(beside.to_string_lossy().into_owned()));
        }
    }
    // Byte 18 is 2 when the file is kept with a write-ahead log; then even a reader makes files beside it.
    Ok(header[18] == 2)
}

async fn read_tables(connection: &mut SqliteConnection) -> Result<BdkFile, BdkFileError> {
    let schemas: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'bdk_schemas'")
            .fetch_one(&mut *connection)
            .await?;
    if schemas == 0 {
        return Err(BdkFileError::NotBdk("table bdk_schemas"));
    }
    version(connection, WALLET).await?;
    version(connection, CHAIN).await?;
    version(connection, KEYCHAIN).await?;
    let graph = version(connection, GRAPH).await?;
    let mut file = read_wallet(connection).await?;
    file.last_revealed = rows(connection, "bdk_descriptor_last_revealed", "descriptor_id, last_revealed", |row| {
        Ok((text(row, 0)?, number(row, 1)?))
    })
    .await?;
    file.blocks =
        rows(connection, "bdk_blocks", "block_height, block_hash", |row| Ok((number(row, 0)?, hash(row, 1)?))).await?;
    file.transactions = read_transactions(connection, graph).await?;
    // Until version 1 an anchor was a piece of JSON.
    let time =
        if graph >= 1 { "confirmation_time" } else { "json_extract(CAST(anchor AS TEXT), '$.confirmation_time')" };
    let columns = format!("txid, block_height, block_hash, {time}");
    file.anchors = rows(connection, "bdk_anchors", &columns, |row| {
        Ok(BdkAnchor { hash: hash(row, 0)?, height: number(row, 1)?, block: hash(row, 2)?, time: number(row, 3)? })
    })
    .await?;
    Ok(file)
}

async fn version(connection: &mut SqliteConnection, (part, newest): (&'static str, i64)) -> Result<i64, BdkFileError> {
    let found: Option<i64> = sqlx::query_scalar("SELECT version FROM bdk_schemas WHERE name = $1")
        .bind(part)
        .fetch_optional(connection)
        .await?;
    match found {
        None => Err(BdkFileError::NotBdk(part)),
        Some(found) if (0..=newest).contains(&found) => Ok(found),
        Some(found) => Err(BdkFileError::TooNew { part, found, newest }),
    }
}

async fn read_wallet(connection: &mut SqliteConnection) -> Result<BdkFile, BdkFileError> {
    let wallets = rows(connection, "bdk_wallet", "descriptor, change_descriptor, network", |row| {
        Ok((column::<Option<String>>(row, 0)?, column::<Option<String>>(row, 1)?, column::<Option<String>>(row, 2)?))
    })
    .await?;
    let [(Some(descriptor), change_descriptor, Some(network))] = wallets.as_slice() else {
        return Err(BdkFileError::NotBdk("descriptor and network"));
    };
    Ok(BdkFile {
        network: network.clone(),
        descriptor: descriptor.clone(),
        change_descriptor: change_descriptor.clone(),
        ..BdkFile::default()
    })
}

async fn read_transactions(connection: &mut SqliteConnection, graph: i64) -> Result<Vec<BdkTx>, BdkFileError> {
    let evicted = if graph >= 2 { "last_evicted" } else { "NULL" };
    let first_seen = if graph >= 3 { "first_seen" } else { "NULL" };
    let columns = format!("txid, raw_tx, {first_seen}, last_seen, {evicted}");
    rows(connection, "bdk_txs", &columns, |row| {
        Ok(BdkTx {
            hash: hash(row, 0)?,
            raw: column(row, 1)?,
            first_seen: seconds(row, 2)?,
            last_seen: seconds(row, 3)?,
            last_evicted: seconds(row, 4)?,
        })
    })
    .await
}

/// All rows of a table, in its own order.
async fn rows<T>(
    connection: &mut SqliteConnection,
    table: &'static str,
    columns: &str,
    read: impl Fn(&SqliteRow) -> Result<T, String>,
) -> Result<Vec<T>, BdkFileError> {
    // Both are constants of this file.
    let statement = AssertSqlSafe(format!("SELECT {columns} FROM {table} ORDER BY rowid"));
    let rows = sqlx::query(statement).fetch_all(connection).await?;
    let values = (1_usize..).zip(&rows);
    values.map(|(number, row)| read(row).map_err(|what| BdkFileError::BadRow { table, row: number, what })).collect()
}

fn column<'a, T: sqlx::Decode<'a, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>>(
    row: &'a SqliteRow,
    index: usize,
) -> Result<T, String> {
    row.try_get(index).map_err(|error| error.to_string())
}

fn text(row: &SqliteRow, index: usize) -> Result<String, String> {
    column(row, index)
}

fn hash(row: &SqliteRow, index: usize) -> Result<Hash, String> {
    text(row, index)?.parse().map_err(|error: super::types::BadHash| error.to_string())
}

fn number<T: TryFrom<i64>>(row: &SqliteRow, index: usize) -> Result<T, String> {
    let number: i64 = column(row, index)?;
    T::try_from(number).map_err(|_| format!("{number} is out of range"))
}

fn seconds(row: &SqliteRow, index: usize) -> Result<Option<u64>, String> {
    let number: Option<i64> = column(row, index)?;
    number.map(|number| u64::try_from(number).map_err(|_| format!("{number} is out of range"))).transpose()
}
