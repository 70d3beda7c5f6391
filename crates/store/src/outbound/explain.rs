//! Whether a spend that a block shows is a transaction of ours. Its hash was written down before any node saw it, so whatever is not found
//! here was signed by somebody else.

use std::collections::HashSet;

use domain::deposit::{Cause, Side};
use domain::utxo::Hash;

use crate::db::Tx;
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

/// The same entries; what left by a transaction of ours is a payout.
pub(crate) async fn explained(
    tx: &mut Tx,
    chain: ChainId,
    entries: &[FoundEntry],
) -> Result<Vec<FoundEntry>, StoreError> {
    let left = |entry: &&FoundEntry| entry.key.side == Side::Out && entry.cause == Cause::ForeignSpend;
    let asked: HashSet<Hash> = entries.iter().filter(left).map(|entry| entry.key.transaction).collect();
    let mut entries = entries.to_vec();
    if asked.is_empty() {
        return Ok(entries);
    }
    let columns = vec![
        Column::Ints(vec![chain.0; asked.len()]),
        Column::Bytes(asked.iter().map(|hash| hash.0.to_vec()).collect()),
    ];
    let ours: Vec<(Vec<u8>,)> = fetch_rows(tx, &READ_OURS, columns).await?;
    let ours: HashSet<Vec<u8>> = ours.into_iter().map(|(hash,)| hash).collect();
    for entry in entries.iter_mut().filter(|entry| left(&&**entry)) {
        if ours.contains(entry.key.transaction.0.as_slice()) {
            entry.cause = Cause::Payout;
        }
    }
    Ok(entries)
}
