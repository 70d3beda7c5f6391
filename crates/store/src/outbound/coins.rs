//! Bitcoin: the coins of a slot are leased with its row, and its transactions are the wallet's with their bytes.
//!
//! The leases have no end. They go when the wallet has the transaction that spends the coins, and with the slot when that has ended.
//!
//! A job that brings users' coins home names them when it is made. That holds none of them: the slot does.

use std::collections::{HashMap, HashSet};

use domain::Timestamp;
use domain::utxo::{Hash, NewTx, OutPoint, UtxoRefusal, WalletId};

use super::types::{JobId, SlotId, malformed};
use crate::db::{Db, Tx};
use crate::entry::ChainId;
use crate::entry::types::hash_of;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, execute_rows, expect_rows, fetch_rows};
use crate::transact;
use crate::utxo::events::{self, refused};
use crate::utxo::lease::lease_at;
use crate::utxo::{LockId, UtxoId};

/// Coins that a transaction of a slot spends, and that nobody else may from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    pub wallet: WalletId,
    pub outpoints: Vec<OutPoint>,
}

/// A signed transaction, as the wallet keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spend {
    pub wallet: WalletId,
    pub tx: NewTx,
}

/// One that is spent goes; only what a rescan holds stays even then, and that has the last moment of all.
const NO_END: Timestamp = Timestamp::from_micros(i64::MAX - 1);

static RELEASE_COINS: RowsSql = RowsSql::new(
    "RELEASE_COINS",
    "DELETE FROM utxo_leases WHERE external_lock_id IN (SELECT holder FROM {rows})",
    &[("holder", Bytes)],
);

statements! {
    /// What sweeps of users' addresses bring a wallet that are in no block. Nobody can offer more for them.
    READ_COMING_HOME = "SELECT u.id FROM outbound_lanes l JOIN wallet_groups g ON g.id = l.wallet_group_id AND g.purpose = 'deposit'
            JOIN outbound_slots s ON s.lane_id = l.id AND s.state = 'open' JOIN outbound_attempts a ON a.slot_id = s.id AND a.tx_hash IS NOT NULL
            JOIN transactions t ON t.tx_hash = a.tx_hash AND t.wallet_id = $1 AND t.block_height IS NULL
            JOIN utxos u ON u.wallet_id = t.wallet_id AND u.tx_id = t.id
        WHERE l.chain_id = $2";
    /// What was leased for a slot beyond the coins of its row, which have no end.
    RELEASE_FURTHER = "DELETE FROM utxo_leases WHERE wallet_id = $1 AND external_lock_id = $2 AND expires_at < $3";
    /// Whether somebody spends, or is about to spend, what a transaction of the slot brings back.
    READ_BUILT_ON = "SELECT EXISTS (SELECT 1 FROM outbound_attempts a JOIN transactions t ON t.tx_hash = a.tx_hash
            JOIN utxos u ON u.wallet_id = t.wallet_id AND u.tx_id = t.id
            LEFT JOIN utxo_leases l ON l.wallet_id = u.wallet_id AND l.utxo_id = u.id AND l.expires_at > $2
        WHERE a.slot_id = $1 AND a.tx_hash IS NOT NULL AND (u.spent_by_tx_id IS NOT NULL OR l.utxo_id IS NOT NULL))";
}

/// Transactions of ours that no block can have: their slots have ended without them.
static READ_HOPELESS: RowsSql = RowsSql::new(
    "READ_HOPELESS",
    "SELECT a.tx_hash FROM {rows} {join} outbound_attempts a ON a.tx_hash = r.tx_hash {join} outbound_slots s ON s.id = a.slot_id
     WHERE a.tx_hash IS NOT NULL AND a.mined_height IS NULL AND s.state = 'settled'",
    &[("tx_hash", Bytes)],
);

static INSERT_JOB_COINS: RowsSql = RowsSql::new(
    "INSERT_JOB_COINS",
    "INSERT INTO outbound_job_coins (job_id, tx_hash, output_index) SELECT r.job_id, r.tx_hash, r.output_index FROM {rows}",
    &[("job_id", Int), ("tx_hash", Bytes), ("output_index", Int)],
);

static READ_JOB_COINS: RowsSql = RowsSql::new(
    "READ_JOB_COINS",
    "SELECT c.job_id, c.tx_hash, c.output_index FROM {rows} {join} outbound_job_coins c ON c.job_id = r.id",
    &[("id", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 4] = [&RELEASE_COINS, &READ_HOPELESS, &INSERT_JOB_COINS, &READ_JOB_COINS];

impl SlotId {
    /// Who holds the leases of its coins.
    pub fn lock(self) -> LockId {
        let mut bytes = *b"bursar outbound slot            ";
        if let Some(number) = bytes.last_chunk_mut::<8>() {
            *number = self.0.to_be_bytes();
        }
        LockId(bytes)
    }
}

impl Db {
    /// What sweeps of users' addresses bring a wallet that are in no block yet.
    pub async fn coming_home(&self, wallet: WalletId, chain: ChainId) -> Result<Vec<UtxoId>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_COMING_HOME => (i64,), wallet.0, chain.0)?;
        Ok(rows.into_iter().map(|(id,)| UtxoId(id)).collect())
    }

    /// The coins that each of these jobs names. One that names none is missing.
    pub async fn coins_of_jobs(&self, jobs: &[JobId]) -> Result<HashMap<JobId, Vec<OutPoint>>, StoreError> {
        if jobs.is_empty() {
            return Ok(HashMap::new());
        }
        let columns = vec![Column::Ints(jobs.iter().map(|job| job.number()).collect())];
        let rows: Vec<(i64, Vec<u8>, i64)> = fetch_rows(&mut self.read().await?, &READ_JOB_COINS, columns).await?;
        let mut coins: HashMap<JobId, Vec<OutPoint>> = HashMap::new();
        for (job, hash, index) in rows {
            let job = JobId::new(job).map_err(|_| malformed("job"))?;
            let index = u32::try_from(index).map_err(|_| malformed("output"))?;
            coins.entry(job).or_default().push(OutPoint { hash: hash_of(&hash)?, index });
        }
        Ok(coins)
    }

    /// Lets further coins go that were leased for an attempt which was not written after all.
    pub async fn release_further(&self, wallet: WalletId, slot: SlotId) -> Result<(), StoreError> {
        let lock = slot.lock().0.to_vec();
        transact!(self, tx => {
            execute!(tx, RELEASE_FURTHER, wallet.0, lock.as_slice(), NO_END.micros())?;
            Ok(())
        })
    }

    /// Of these transactions, those of ours that can never be mined.
    pub async fn hopeless(&self, hashes: &HashSet<Hash>) -> Result<HashSet<Hash>, StoreError> {
        if hashes.is_empty() {
            return Ok(HashSet::new());
        }
        let columns = vec![Column::Bytes(hashes.iter().map(|hash| hash.0.to_vec()).collect())];
        let rows: Vec<(Vec<u8>,)> = fetch_rows(&mut self.read().await?, &READ_HOPELESS, columns).await?;
        let found: HashSet<Vec<u8>> = rows.into_iter().map(|(hash,)| hash).collect();
        Ok(hashes.iter().filter(|hash| found.contains(hash.0.as_slice())).copied().collect())
    }
}

/// The coins that new jobs name.
pub(super) async fn name_coins(tx: &mut Tx, named: &[(JobId, OutPoint)]) -> Result<(), StoreError> {
    if named.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(named.iter().map(|(job, _)| job.number()).collect()),
        Column::Bytes(named.iter().map(|(_, coin)| coin.hash.0.to_vec()).collect()),
        Column::Ints(named.iter().map(|(_, coin)| coin.index.into()).collect()),
    ];
    expect_rows(execute_rows(tx, &INSERT_JOB_COINS, columns).await?, named.len(), "coins of jobs")
}

/// Whether something of ours builds on a transaction of the slot: it would leave with it. Nobody begins to while the wallets are locked.
pub(super) async fn is_built_on(tx: &mut Tx, slot: SlotId, at: Timestamp) -> Result<bool, StoreError> {
    events::lock(tx).await?;
    let found = fetch_optional!(tx, READ_BUILT_ON => (bool,), slot.0, at.micros())?;
    Ok(found.is_some_and(|(built_on,)| built_on))
}

/// Leases the coins of a slot for as long as it is open. False: somebody else has one of them by now.
pub(super) async fn reserve(tx: &mut Tx, slot: SlotId, coins: &Reserved, at: Timestamp) -> Result<bool, StoreError> {
    events::lock(tx).await?;
    let leased = lease_at(tx, coins.wallet, &coins.outpoints, slot.lock(), NO_END, at).await;
    Ok(refused(leased)?.map_err(|refusal| told(slot, &refusal)).is_ok())
}

/// The wallet has the transaction before any node does. What it refuses is signed all the same: its coins stay leased, and the books know
/// it by its attempt.
pub(super) async fn spend(
    tx: &mut Tx,
    slot: SlotId,
    spend: &Spend,
    replaces: bool,
    at: Timestamp,
) -> Result<(), StoreError> {
    let lock = Some(slot.lock());
    let mut made = refused(events::make(tx, spend.wallet, &spend.tx, lock, replaces, at).await)?;
    // What it was to replace is no longer there.
    if matches!(made, Err(UtxoRefusal::NothingReplaced)) {
        made = refused(events::make(tx, spend.wallet, &spend.tx, lock, false, at).await)?;
    }
    if let Err(refusal) = made {
        told(slot, &refusal);
        return Ok(());
    }
    let published = events::publish_all(tx, vec![spend.tx.hash], "broadcast", at).await;
    if let Err(refusal) = refused(published)? {
        told(slot, &refusal);
    }
    Ok(())
}

fn told(slot: SlotId, refusal: &UtxoRefusal) {
    tracing::warn!(slot = slot.0, code = refusal.code(), "the Bitcoin wallet refuses coins of a slot: {refusal}");
}

/// Others may have what is left of their coins.
pub(super) async fn release_coins(tx: &mut Tx, slots: &[SlotId]) -> Result<(), StoreError> {
    if slots.is_empty() {
        return Ok(());
    }
    let columns = vec![Column::Bytes(slots.iter().map(|slot| slot.lock().0.to_vec()).collect())];
    execute_rows(tx, &RELEASE_COINS, columns).await.map(|_| ())
}
