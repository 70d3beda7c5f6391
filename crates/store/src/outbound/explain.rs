//! Whether a spend that a block shows is a transaction of ours. Its hash was written down before any node saw it, so whatever is not found
//! here was signed by somebody else.

use std::collections::{BTreeSet, HashSet};

use domain::deposit::{Cause, Side};
use domain::utxo::Hash;

use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::entry::{ChainId, FoundEntry};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, fetch_rows};

statements! {
    READ_KEYLESS = "SELECT address FROM operation_wallet_addresses WHERE chain_id = $1 AND address {in $2} AND wallet_group_id IS NULL";
}

/// A payment of another program that people have judged unpaid, and that was in no block then, is nobody's any more: its customer has the money back.
static READ_OURS: RowsSql = RowsSql::new(
    "READ_OURS",
    "SELECT a.tx_hash FROM {rows} {join} outbound_attempts a ON a.tx_hash = r.tx_hash
         {join} outbound_slots s ON s.id = a.slot_id {join} outbound_lanes l ON l.id = s.lane_id AND l.chain_id = r.chain_id
     WHERE a.tx_hash IS NOT NULL AND NOT (s.imported AND s.state <> 'open' AND a.mined_height IS NULL AND EXISTS (
         SELECT 1 FROM outbound_slot_jobs k JOIN outbound_jobs j ON j.id = k.job_id WHERE k.slot_id = s.id AND j.failed))",
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

/// What a block shows, and which of it no transaction of ours explains.
pub(crate) struct Explained {
    /// The same entries; what left the house by a transaction of ours is a payout.
    pub entries: Vec<FoundEntry>,
    /// Transactions that are none of ours, and took something of an address whose key the signer has: a payment, a move among our own
    /// addresses, or only a fee.
    pub foreign: HashSet<Hash>,
}

pub(crate) async fn explained(tx: &mut Tx, chain: ChainId, entries: &[FoundEntry]) -> Result<Explained, StoreError> {
    let left = |entry: &&FoundEntry| entry.key.side == Side::Out && entry.cause != Cause::Payout;
    let asked: HashSet<Hash> = entries.iter().filter(left).map(|entry| entry.key.transaction).collect();
    let ours = read_ours(tx, chain, &asked).await?;
    let unknown = |entry: &&FoundEntry| left(entry) && !ours.contains(&entry.key.transaction);
    let elsewhere = keyless(tx, chain, entries.iter().filter(unknown)).await?;
    // People sign for a written wallet with a key of their own. What leaves the house from it is told all the same.
    let by_people = |entry: &FoundEntry| entry.cause != Cause::ForeignSpend && elsewhere.contains(&entry.address);
    let foreign = entries.iter().filter(unknown).filter(|entry| !by_people(entry));
    let foreign = foreign.map(|entry| entry.key.transaction).collect();
    let mut entries = entries.to_vec();
    for entry in entries.iter_mut().filter(|entry| entry.key.side == Side::Out && entry.cause == Cause::ForeignSpend) {
        if ours.contains(&entry.key.transaction) {
            entry.cause = Cause::Payout;
        }
    }
    Ok(Explained { entries, foreign })
}

/// Of the addresses of these, those of wallets that are only written down: the signer has no key of theirs.
async fn keyless<'e>(
    tx: &mut Tx,
    chain: ChainId,
    entries: impl Iterator<Item = &'e FoundEntry>,
) -> Result<HashSet<String>, StoreError> {
    let addresses: BTreeSet<&str> = entries.map(|entry| entry.address.as_str()).collect();
    if addresses.is_empty() {
        return Ok(HashSet::new());
    }
    let addresses = Many(addresses.into_iter().map(str::to_owned).collect::<Vec<String>>());
    let rows = fetch_all!(tx, READ_KEYLESS => (String,), chain.0, addresses)?;
    Ok(rows.into_iter().map(|(address,)| address).collect())
}
