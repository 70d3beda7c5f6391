//! Whether a spend that a block shows is a transaction of ours. Its hash was written down before any node saw it, so whatever is not found
//! here was signed by somebody else.

use std::collections::HashSet;

use domain::deposit::{Cause, Side};
use domain::utxo::Hash;

use crate::db::{Db, Tx};
use crate::entry::{ChainId, FoundEntry};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, fetch_rows};

static READ_OURS: RowsSql = RowsSql::new(
    "READ_OURS",
    "SELECT a.tx_hash FROM {rows} {join} outbound_attempts a ON a.tx_hash = r.tx_hash
         {join} outbound_slots s ON s.id = a.slot_id {join} outbound_lanes l ON l.id = s.lane_id AND l.chain_id = r.chain_id
     WHERE a.tx_hash IS NOT NULL",
    &[("chain_id", Int), ("tx_hash", Bytes)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&READ_OURS];

impl Db {
    /// Of these transactions, those that were signed for a slot of the chain.
    pub async fn ours(&self, chain: ChainId, hashes: &HashSet<Hash>) -> Result<HashSet<Hash>, StoreError> {
        read_ours(&mut self.read().await?, chain, hashes).await
    }
}

async fn read_ours(tx: &mut Tx, chain: ChainId, hashes: &HashSet<Hash>) -> Result<HashSet<Hash>, StoreError> {
    if hashes.is_empty() {
        return Ok(HashSet::new());
    }
    let columns = vec![
        Column::Ints(vec![chain.0; hashes.len()]),
        Column::Bytes(hashes.iter().map(|hash| hash.0.to_vec()).collect()),
    ];
    let ours: Vec<(Vec<u8>,)> = fetch_rows(tx, &READ_OURS, columns).await?;
    let ours: HashSet<Vec<u8>> = ours.into_iter().map(|(hash,)| hash).collect();
    Ok(hashes.iter().filter(|hash| ours.contains(hash.0.as_slice())).copied().collect())
}

/// The same entries; what left by a transaction of ours is a payout.
pub(crate) async fn explained(
    tx: &mut Tx,
    chain: ChainId,
    entries: &[FoundEntry],
) -> Result<Vec<FoundEntry>, StoreError> {
    let left = |entry: &&FoundEntry| entry.key.side == Side::Out && entry.cause == Cause::ForeignSpend;
    let asked: HashSet<Hash> = entries.iter().filter(left).map(|entry| entry.key.transaction).collect();
    let ours = read_ours(tx, chain, &asked).await?;
    let mut entries = entries.to_vec();
    for entry in entries.iter_mut().filter(|entry| left(&&**entry) && ours.contains(&entry.key.transaction)) {
        entry.cause = Cause::Payout;
    }
    Ok(entries)
}
