//! The blocks that are stored: the best chain, as far as it was connected or an import has named some of it.

use super::load::{bytes, hash, number};
use super::types::{Hash, UtxoError};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, execute_rows};

statements! {
    READ_TIP = "SELECT block_height, block_hash FROM blocks ORDER BY block_height DESC LIMIT 1";
    READ_BLOCKS = "SELECT block_height, block_hash FROM blocks
        WHERE block_height BETWEEN $1 AND $2 ORDER BY block_height";
    READ_BELOW = "SELECT block_height, block_hash FROM blocks WHERE block_height < $1
        ORDER BY block_height DESC LIMIT 1";
    /// Blocks that an import has brought, from a height on.
    READ_IMPORTED = "SELECT block_height, block_hash FROM blocks WHERE NOT connected AND block_height >= $1
        ORDER BY block_height LIMIT 500";
}

static INSERT_BLOCKS: RowsSql = RowsSql::new(
    "INSERT_BLOCKS",
    "INSERT INTO blocks (block_height, block_hash, block_time, connected)
     SELECT height, hash, time, connected <> 0 FROM {rows}",
    &[("height", Int), ("hash", Bytes), ("time", Int), ("connected", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&INSERT_BLOCKS];

impl Db {
    /// The highest block that is stored.
    pub async fn tip(&self) -> Result<Option<(u32, Hash)>, UtxoError> {
        Ok(read_tip(&mut self.read().await?).await?)
    }

    /// The blocks of these heights, both included, as far as they are stored; ascending.
    pub async fn block_hashes(&self, from: u32, to: u32) -> Result<Vec<(u32, Hash)>, UtxoError> {
        let mut tx = self.read().await?;
        let rows = fetch_all!(&mut tx, READ_BLOCKS => (i64, Vec<u8>), i64::from(from), i64::from(to))?;
        rows.into_iter().map(|(height, bytes)| Ok((number(height)?, hash(&bytes)?))).collect()
    }

    /// The highest block that is stored below a height.
    pub async fn block_below(&self, height: u32) -> Result<Option<(u32, Hash)>, UtxoError> {
        let row = fetch_optional!(&mut self.read().await?, READ_BELOW => (i64, Vec<u8>), i64::from(height))?;
        Ok(row.map(|(height, bytes)| Ok::<_, StoreError>((number(height)?, hash(&bytes)?))).transpose()?)
    }

    /// Blocks that an import has brought, from a height on; at most five hundred.
    pub async fn imported_blocks(&self, from: u32) -> Result<Vec<(u32, Hash)>, UtxoError> {
        let rows = fetch_all!(&mut self.read().await?, READ_IMPORTED => (i64, Vec<u8>), i64::from(from))?;
        rows.into_iter().map(|(height, bytes)| Ok((number(height)?, hash(&bytes)?))).collect()
    }
}

pub(crate) async fn read_tip(tx: &mut Tx) -> Result<Option<(u32, Hash)>, StoreError> {
    let row = fetch_optional!(tx, READ_TIP => (i64, Vec<u8>))?;
    row.map(|(height, bytes)| Ok((number(height)?, hash(&bytes)?))).transpose()
}

pub(super) async fn insert_blocks(tx: &mut Tx, blocks: &[(u32, Hash, u32)], connected: bool) -> Result<(), StoreError> {
    if blocks.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(blocks.iter().map(|block| i64::from(block.0)).collect()),
        bytes(blocks.iter().map(|block| &block.1)),
        Column::Ints(blocks.iter().map(|block| i64::from(block.2)).collect()),
        Column::Ints(vec![i64::from(connected); blocks.len()]),
    ];
    execute_rows(tx, &INSERT_BLOCKS, columns).await.map(|_| ())
}
