//! The SQLite file of another wallet, `bdk_wallet` (its tables are those of `bdk_chain` 0.23 and before), as it stands.
//!
//! What its rows mean for a wallet is decided in `bdk`.

use std::path::Path;

use store::sqlite_file::{SqliteFile, SqliteFileError, SqliteFileRow};
use store::utxo::{BadHash, Hash};

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
    #[error(transparent)]
    File(#[from] SqliteFileError),
    #[error("it is not a wallet of bdk: it has no {0}")]
    NotBdk(&'static str),
    #[error("its part {part} has version {found}, and the newest known is {newest}")]
    TooNew { part: &'static str, found: i64, newest: i64 },
    #[error("{table}, row {row}: {what}")]
    BadRow { table: &'static str, row: usize, what: String },
}

/// The parts of the schema, each with a version of its own, and the newest that is known.
const WALLET: (&str, i64) = ("bdk_wallet", 1);
const CHAIN: (&str, i64) = ("bdk_localchain", 0);
const GRAPH: (&str, i64) = ("bdk_txgraph", 3);
const KEYCHAIN: (&str, i64) = ("bdk_keychaintxout", 1);

pub async fn read(path: &Path) -> Result<BdkFile, BdkFileError> {
    let mut open = SqliteFile::open(path).await?;
    let file = read_tables(&mut open).await?;
    open.close().await?;
    Ok(file)
}

async fn read_tables(open: &mut SqliteFile) -> Result<BdkFile, BdkFileError> {
    if !open.has_table("bdk_schemas").await? {
        return Err(BdkFileError::NotBdk("table bdk_schemas"));
    }
    version(open, WALLET).await?;
    version(open, CHAIN).await?;
    version(open, KEYCHAIN).await?;
    let graph = version(open, GRAPH).await?;
    let mut file = read_wallet(open).await?;
    file.last_revealed = rows(open, "bdk_descriptor_last_revealed", "descriptor_id, last_revealed", |row| {
        Ok((row.text(0).map_err(told)?, number(row, 1)?))
    })
    .await?;
    file.blocks =
        rows(open, "bdk_blocks", "block_height, block_hash", |row| Ok((number(row, 0)?, hash(row, 1)?))).await?;
    file.transactions = read_transactions(open, graph).await?;
    // Until version 1 an anchor was a piece of JSON.
    let time =
        if graph >= 1 { "confirmation_time" } else { "json_extract(CAST(anchor AS TEXT), '$.confirmation_time')" };
    let columns = format!("txid, block_height, block_hash, {time}");
    file.anchors = rows(open, "bdk_anchors", &columns, |row| {
        Ok(BdkAnchor { hash: hash(row, 0)?, height: number(row, 1)?, block: hash(row, 2)?, time: number(row, 3)? })
    })
    .await?;
    Ok(file)
}

async fn version(open: &mut SqliteFile, (part, newest): (&'static str, i64)) -> Result<i64, BdkFileError> {
    let found = open.rows(format!("SELECT version FROM bdk_schemas WHERE name = '{part}'")).await?;
    match found.first().map(|row| row.integer(0)).transpose()? {
        None => Err(BdkFileError::NotBdk(part)),
        Some(found) if (0..=newest).contains(&found) => Ok(found),
        Some(found) => Err(BdkFileError::TooNew { part, found, newest }),
    }
}

async fn read_wallet(open: &mut SqliteFile) -> Result<BdkFile, BdkFileError> {
    let wallets = rows(open, "bdk_wallet", "descriptor, change_descriptor, network", |row| {
        let text = |column| row.optional_text(column).map_err(told);
        Ok((text(0)?, text(1)?, text(2)?))
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

async fn read_transactions(open: &mut SqliteFile, graph: i64) -> Result<Vec<BdkTx>, BdkFileError> {
    let evicted = if graph >= 2 { "last_evicted" } else { "NULL" };
    let first_seen = if graph >= 3 { "first_seen" } else { "NULL" };
    let columns = format!("txid, raw_tx, {first_seen}, last_seen, {evicted}");
    rows(open, "bdk_txs", &columns, |row| {
        Ok(BdkTx {
            hash: hash(row, 0)?,
            raw: row.optional_bytes(1).map_err(told)?,
            first_seen: seconds(row, 2)?,
            last_seen: seconds(row, 3)?,
            last_evicted: seconds(row, 4)?,
        })
    })
    .await
}

/// All rows of a table, in its own order.
async fn rows<T>(
    open: &mut SqliteFile,
    table: &'static str,
    columns: &str,
    read: impl Fn(&SqliteFileRow) -> Result<T, String>,
) -> Result<Vec<T>, BdkFileError> {
    let rows = open.rows(format!("SELECT {columns} FROM {table} ORDER BY rowid")).await?;
    let values = (1_usize..).zip(&rows);
    values.map(|(number, row)| read(row).map_err(|what| BdkFileError::BadRow { table, row: number, what })).collect()
}

/// What is wrong with a value, in SQLite's words.
fn told(error: SqliteFileError) -> String {
    match error {
        SqliteFileError::Sqlite(error) => error.to_string(),
        other => other.to_string(),
    }
}

fn hash(row: &SqliteFileRow, column: usize) -> Result<Hash, String> {
    row.text(column).map_err(told)?.parse().map_err(|error: BadHash| error.to_string())
}

fn number<T: TryFrom<i64>>(row: &SqliteFileRow, column: usize) -> Result<T, String> {
    let number = row.integer(column).map_err(told)?;
    T::try_from(number).map_err(|_| format!("{number} is out of range"))
}

fn seconds(row: &SqliteFileRow, column: usize) -> Result<Option<u64>, String> {
    let number = row.optional_integer(column).map_err(told)?;
    number.map(|number| u64::try_from(number).map_err(|_| format!("{number} is out of range"))).transpose()
}
