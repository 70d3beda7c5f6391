//! Leases: an output that one transaction is about to spend is not given to another until the lease ends.

use std::collections::{HashMap, HashSet};

use domain::Timestamp;

use super::blocks::read_tip;
use super::claimed::check_unclaimed;
use super::coins::{COIN, CoinRow, coin};
use super::events::{check_active, refused};
use super::followed::RESCAN_LOCK;
use super::load::{bytes, hash, number, outpoint_columns};
use super::types::{
    COINBASE_MATURITY, Coin, LeaseRow, LockId, OutPoint, Swept, UtxoError, UtxoId, UtxoRefusal, WalletId,
};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, execute_rows, expect_rows, fetch_rows};
use crate::transact;

statements! {
    /// In the order of their ids, as all transactions lock outputs.
    LOCK_FREE_BY_ID(COIN) = "SELECT {columns}
        FROM utxos u JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            JOIN addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
        WHERE u.wallet_id = $1 AND u.id {in $2} AND u.valid AND u.spent_by_tx_id IS NULL
        ORDER BY u.id {FOR NO KEY UPDATE OF u}";
    /// The same, but nobody is waited for.
    LOCK_IDLE_BY_ID(COIN) = "SELECT {columns}
        FROM utxos u JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            JOIN addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
        WHERE u.wallet_id = $1 AND u.id {in $2} AND u.valid AND u.spent_by_tx_id IS NULL
        ORDER BY u.id {FOR NO KEY UPDATE OF u SKIP LOCKED}";
    /// Leases, and claims.
    READ_HOLDERS = "SELECT utxo_id, external_lock_id, expires_at, 1 = 0 FROM utxo_leases
        WHERE wallet_id = $1 AND utxo_id {in $2}
        UNION ALL SELECT utxo_id, claimant, CAST(0 AS BIGINT), 1 = 1 FROM utxo_claims
        WHERE wallet_id = $1 AND utxo_id {in $2}";
    /// What a lock holds now.
    READ_HELD = "SELECT l.utxo_id, t.tx_hash, u.output_index
        FROM utxo_leases l JOIN utxos u ON u.wallet_id = l.wallet_id AND u.id = l.utxo_id
            JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
        WHERE l.wallet_id = $1 AND l.external_lock_id = $2 AND l.expires_at > $3 ORDER BY l.utxo_id";
    /// $3: the last height at which a coinbase is mature.
    READ_FIRST_IMMATURE = "SELECT t.tx_hash, u.output_index, t.block_height
        FROM utxos u JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
        WHERE u.wallet_id = $1 AND u.id {in $2} AND t.is_coinbase AND t.block_height > $3 ORDER BY u.id LIMIT 1";
    RENEW_LEASES = "UPDATE utxo_leases SET expires_at = $3
        WHERE wallet_id = $1 AND external_lock_id = $2 AND expires_at > $4";
    RELEASE_LEASES = "DELETE FROM utxo_leases WHERE wallet_id = $1 AND external_lock_id = $2";
    /// The oldest first. A lease that another has locked is being taken over, so it is left alone, and nobody waits.
    SWEEP_LEASES = "DELETE FROM utxo_leases WHERE (wallet_id, utxo_id) IN (
            SELECT wallet_id, utxo_id FROM utxo_leases WHERE expires_at <= $1
            ORDER BY expires_at LIMIT 1000 {FOR UPDATE SKIP LOCKED})
        RETURNING expires_at";
    /// Outputs under a lease, and then those that are only claimed.
    LIST_LEASES = "SELECT l.utxo_id, t.tx_hash, u.output_index, u.amount, u.account, l.external_lock_id, l.expires_at,
            c.claimant
        FROM utxo_leases l JOIN utxos u ON u.wallet_id = l.wallet_id AND u.id = l.utxo_id
            JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            LEFT JOIN utxo_claims c ON c.wallet_id = l.wallet_id AND c.utxo_id = l.utxo_id
        WHERE l.wallet_id = $1 AND l.utxo_id > $2
        UNION ALL SELECT c.utxo_id, t.tx_hash, u.output_index, u.amount, u.account, NULL, NULL, c.claimant
        FROM utxo_claims c JOIN utxos u ON u.wallet_id = c.wallet_id AND u.id = c.utxo_id
            JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
        WHERE c.wallet_id = $1 AND c.utxo_id > $2 AND NOT EXISTS (SELECT 1 FROM utxo_leases l
            WHERE l.wallet_id = c.wallet_id AND l.utxo_id = c.utxo_id)
        ORDER BY 1 LIMIT $3";
}

static READ_LEASES_AT: RowsSql = RowsSql::new(
    "READ_LEASES_AT",
    "SELECT p.tx_hash, u.output_index, l.external_lock_id, l.expires_at
     FROM {rows} {join} transactions p ON p.tx_hash = r.hash
         {join} utxos u ON u.wallet_id = p.wallet_id AND u.tx_id = p.id AND u.output_index = r.output_index
         {join} utxo_leases l ON l.wallet_id = u.wallet_id AND l.utxo_id = u.id",
    &[("hash", Bytes), ("output_index", Int)],
);

/// By the whole outpoint: with `u.valid` alone an index of all that is unspent would seem to serve.
static READ_FREE_AT: RowsSql = RowsSql::new(
    "READ_FREE_AT",
    "SELECT u.id, p.tx_hash, u.output_index
     FROM {rows} {join} transactions p ON p.tx_hash = r.hash AND p.wallet_id = r.wallet
         {join} utxos u ON u.wallet_id = p.wallet_id AND u.tx_id = p.id AND u.output_index = r.output_index
     WHERE COALESCE(u.valid, FALSE) AND u.spent_by_tx_id IS NULL",
    &[("hash", Bytes), ("output_index", Int), ("wallet", Int)],
);

/// A lease is taken if there is none, renewed if the same lock has it, and taken over if it has ended.
static LEASE_UTXOS: RowsSql = RowsSql::new(
    "LEASE_UTXOS",
    "INSERT INTO utxo_leases (wallet_id, utxo_id, external_lock_id, expires_at)
     SELECT wallet, utxo, holder, ends FROM {rows} WHERE TRUE
     ON CONFLICT (wallet_id, utxo_id) DO UPDATE
         SET external_lock_id = EXCLUDED.external_lock_id, expires_at = EXCLUDED.expires_at
         WHERE utxo_leases.external_lock_id = EXCLUDED.external_lock_id
             OR utxo_leases.expires_at <= (SELECT MIN(now) FROM {rows})",
    &[("wallet", Int), ("utxo", Int), ("holder", Bytes), ("ends", Int), ("now", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&READ_LEASES_AT, &READ_FREE_AT, &LEASE_UTXOS];

/// As many leases as one statement sweeps: it is over in milliseconds, and nobody waits for it.
pub const SWEPT_AT_ONCE: u64 = 1_000;

impl Db {
    /// Leases exactly these outputs, or none. The same lock may lease them again, for longer or shorter.
    pub async fn lease(
        &self,
        wallet: WalletId,
        outpoints: &[OutPoint],
        lock: LockId,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), UtxoError> {
        refuse_rescans(lock)?;
        Ok(transact!(self, tx => refused(lease_at(tx, wallet, outpoints, lock, until, now).await))??)
    }

    /// Moves the end of the leases that this lock still holds, and says how many those are. All or none: what could not
    /// be leased now is not renewed either.
    pub async fn renew(
        &self,
        wallet: WalletId,
        lock: LockId,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<u64, UtxoError> {
        refuse_rescans(lock)?;
        Ok(transact!(self, tx => refused(renew(tx, wallet, lock, until, now).await))??)
    }

    pub async fn release(&self, wallet: WalletId, lock: LockId) -> Result<u64, UtxoError> {
        refuse_rescans(lock)?;
        let lock = lock.0.to_vec();
        Ok(transact!(self, tx => execute!(tx, RELEASE_LEASES, wallet.0, lock.as_slice()))?)
    }

    /// Removes the leases that have ended. They have no effect any more; this only keeps the table small.
    pub async fn sweep_leases(&self, now: Timestamp) -> Result<u64, UtxoError> {
        let mut count = 0;
        loop {
            let swept = self.sweep_some_leases(now).await?;
            count += swept.count;
            if swept.count < SWEPT_AT_ONCE {
                return Ok(count);
            }
        }
    }

    /// The same for the oldest of them, [`SWEPT_AT_ONCE`] at most.
    pub async fn sweep_some_leases(&self, now: Timestamp) -> Result<Swept, UtxoError> {
        let now = now.micros();
        let ends: Vec<(i64,)> = transact!(self, tx => fetch_all!(tx, SWEEP_LEASES => (i64,), now))?;
        let oldest = ends.iter().map(|(end,)| Timestamp::from_micros(*end)).min();
        Ok(Swept { count: u64::try_from(ends.len()).unwrap_or(u64::MAX), oldest })
    }

    /// The wallet's outputs that are under a lease or claimed, by their ids, a page at a time; also those whose lease has ended
    /// and was not swept.
    pub async fn leases(&self, wallet: WalletId, after: Option<UtxoId>, most: u32) -> Result<Vec<LeaseRow>, UtxoError> {
        type Stored = (i64, Vec<u8>, i64, i64, i64, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>);
        let after = after.map_or(i64::MIN, |id| id.0);
        let mut tx = self.read().await?;
        let rows = fetch_all!(&mut tx, LIST_LEASES => Stored, wallet.0, after, i64::from(most))?;
        let lease = |(id, made_by, index, amount, account, lock, until, claimant): Stored| {
            Ok(LeaseRow {
                id: UtxoId(id),
                outpoint: OutPoint { hash: hash(&made_by)?, index: number(index)? },
                amount,
                account: number(account)?,
                lock: lock.map(|lock| Ok::<_, StoreError>(LockId(hash(&lock)?.0))).transpose()?,
                until: until.map(Timestamp::from_micros),
                claimed_by: claimant.map(|claimant| hash(&claimant)).transpose()?,
            })
        };
        rows.into_iter().map(lease).collect()
    }
}

/// What a rescan holds is let go when all blocks were read, and not before.
pub(super) fn refuse_rescans(lock: LockId) -> Result<(), UtxoRefusal> {
    if lock == RESCAN_LOCK { Err(UtxoRefusal::Rescanning) } else { Ok(()) }
}

/// Refuses when another lock holds a lease on one of these. The outputs must be locked.
pub(super) async fn check_leases(
    tx: &mut Tx,
    outpoints: &[OutPoint],
    lock: Option<LockId>,
    now: Timestamp,
) -> Result<(), UtxoError> {
    if outpoints.is_empty() {
        return Ok(());
    }
    let rows: Vec<(Vec<u8>, i64, Vec<u8>, i64)> = fetch_rows(tx, &READ_LEASES_AT, outpoint_columns(outpoints)).await?;
    for (made_by, index, holder, expires_at) in rows {
        let mine = lock.is_some_and(|lock| lock != RESCAN_LOCK && lock.0 == holder.as_slice());
        if !mine && expires_at > now.micros() {
            return Err(UtxoRefusal::Leased(OutPoint { hash: hash(&made_by)?, index: number(index)? }).into());
        }
    }
    Ok(())
}

pub(crate) async fn lease_at(
    tx: &mut Tx,
    wallet: WalletId,
    outpoints: &[OutPoint],
    lock: LockId,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), UtxoError> {
    check_active(tx, wallet).await?;
    if outpoints.is_empty() {
        return Ok(());
    }
    let columns = vec![
        bytes(outpoints.iter().map(|one| &one.hash)),
        Column::Ints(outpoints.iter().map(|one| i64::from(one.index)).collect()),
        Column::Ints(vec![wallet.0; outpoints.len()]),
    ];
    let rows: Vec<(i64, Vec<u8>, i64)> = fetch_rows(tx, &READ_FREE_AT, columns).await?;
    let mut ids: HashMap<OutPoint, UtxoId> = HashMap::new();
    for (id, made_by, index) in rows {
        ids.insert(OutPoint { hash: hash(&made_by)?, index: number(index)? }, UtxoId(id));
    }
    if let Some(missing) = outpoints.iter().find(|one| !ids.contains_key(one)) {
        return Err(UtxoRefusal::NotSpendable(*missing).into());
    }
    let wanted: Vec<UtxoId> = ids.values().copied().collect();
    let free = lock_free(tx, wallet, &wanted).await?;
    let there: HashSet<OutPoint> = free.iter().map(|coin| coin.outpoint).collect();
    if let Some(missing) = outpoints.iter().find(|one| !there.contains(one)) {
        return Err(UtxoRefusal::NotSpendable(*missing).into());
    }
    check_mature(tx, wallet, &wanted).await?;
    check_unclaimed(tx, wallet, &wanted).await?;
    check_leases(tx, outpoints, Some(lock), now).await?;
    let leases: Vec<NewLease> = free.iter().map(|coin| NewLease { id: coin.id, lock, until }).collect();
    write_leases(tx, wallet, &leases, now).await.map_err(UtxoError::from)
}

async fn renew(
    tx: &mut Tx,
    wallet: WalletId,
    lock: LockId,
    until: Timestamp,
    now: Timestamp,
) -> Result<u64, UtxoError> {
    check_active(tx, wallet).await?;
    let (holder, now) = (lock.0.to_vec(), now.micros());
    let held = fetch_all!(tx, READ_HELD => (i64, Vec<u8>, i64), wallet.0, holder.as_slice(), now)?;
    let ids: Vec<UtxoId> = held.iter().map(|(id, ..)| UtxoId(*id)).collect();
    let free: HashSet<UtxoId> = lock_free(tx, wallet, &ids).await?.into_iter().map(|coin| coin.id).collect();
    if let Some((_, made_by, index)) = held.iter().find(|(id, ..)| !free.contains(&UtxoId(*id))) {
        return Err(UtxoRefusal::NotSpendable(OutPoint { hash: hash(made_by)?, index: number(*index)? }).into());
    }
    check_mature(tx, wallet, &ids).await?;
    check_unclaimed(tx, wallet, &ids).await?;
    Ok(execute!(tx, RENEW_LEASES, wallet.0, holder.as_slice(), until.micros(), now)?)
}

/// Refuses a coinbase that no block may spend yet.
async fn check_mature(tx: &mut Tx, wallet: WalletId, ids: &[UtxoId]) -> Result<(), UtxoError> {
    let mature = last_mature(read_tip(tx).await?.map(|(tip, _)| tip));
    let ids = Many(ids.iter().map(|id| id.0).collect::<Vec<i64>>());
    let found = fetch_optional!(tx, READ_FIRST_IMMATURE => (Vec<u8>, i64, i64), wallet.0, ids.clone(), mature)?;
    let Some((made_by, index, height)) = found else { return Ok(()) };
    let outpoint = OutPoint { hash: hash(&made_by)?, index: number(index)? };
    Err(UtxoRefusal::Immature { outpoint, from: number(height)?.saturating_add(COINBASE_MATURITY) }.into())
}

/// The last height at which a coinbase is mature.
pub(super) fn last_mature(tip: Option<u32>) -> i64 {
    tip.map_or(-1, |tip| i64::from(tip) - i64::from(COINBASE_MATURITY))
}

/// Those that can be spent, locked in the order of their ids.
pub(super) async fn lock_free(tx: &mut Tx, wallet: WalletId, ids: &[UtxoId]) -> Result<Vec<Coin>, StoreError> {
    let ids = Many(ids.iter().map(|id| id.0).collect::<Vec<i64>>());
    let rows = fetch_all!(tx, LOCK_FREE_BY_ID => CoinRow, wallet.0, ids.clone())?;
    rows.into_iter().map(coin).collect()
}

/// The same without those that another has locked: whoever has, is leasing or spending them just now.
pub(super) async fn lock_idle(tx: &mut Tx, wallet: WalletId, ids: &[UtxoId]) -> Result<Vec<Coin>, StoreError> {
    let ids = Many(ids.iter().map(|id| id.0).collect::<Vec<i64>>());
    let rows = fetch_all!(tx, LOCK_IDLE_BY_ID => CoinRow, wallet.0, ids.clone())?;
    rows.into_iter().map(coin).collect()
}

/// Who holds these, and until when; also those that have ended. What is claimed is held by [`NOBODY`], without an end.
pub(super) async fn read_holders(
    tx: &mut Tx,
    wallet: WalletId,
    coins: &[Coin],
) -> Result<HashMap<UtxoId, (LockId, Timestamp)>, StoreError> {
    let ids = Many(coins.iter().map(|coin| coin.id.0).collect::<Vec<i64>>());
    let mut holders = HashMap::new();
    for (id, holder, until, claimed) in
        fetch_all!(tx, READ_HOLDERS => (i64, Vec<u8>, i64, bool), wallet.0, ids.clone())?
    {
        if claimed {
            holders.insert(UtxoId(id), (NOBODY, Timestamp::from_micros(i64::MAX)));
        } else {
            // A claim binds the holder of a lease too.
            holders.entry(UtxoId(id)).or_insert((LockId(hash(&holder)?.0), Timestamp::from_micros(until)));
        }
    }
    Ok(holders)
}

/// A lock that no caller can have.
const NOBODY: LockId = RESCAN_LOCK;

pub(super) struct NewLease {
    pub id: UtxoId,
    pub lock: LockId,
    pub until: Timestamp,
}

/// The outputs are locked and free, so all of them are written.
pub(super) async fn write_leases(
    tx: &mut Tx,
    wallet: WalletId,
    leases: &[NewLease],
    now: Timestamp,
) -> Result<(), StoreError> {
    if leases.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(vec![wallet.0; leases.len()]),
        Column::Ints(leases.iter().map(|lease| lease.id.0).collect()),
        Column::Bytes(leases.iter().map(|lease| lease.lock.0.to_vec()).collect()),
        Column::Ints(leases.iter().map(|lease| lease.until.micros()).collect()),
        Column::Ints(vec![now.micros(); leases.len()]),
    ];
    expect_rows(execute_rows(tx, &LEASE_UTXOS, columns).await?, leases.len(), "leases")
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::testing::NOW;

    crate::db_test! {
        /// The outputs are locked and looked at before, so no caller meets this. It is the last line all the same.
        async fn a_lease_that_stands_is_not_written_over(db: TestDb) {
            // The outputs themselves do not matter here, so the table needs none.
            let alone = "DROP VIEW IF EXISTS spendable_utxos; DROP TABLE utxo_leases;
                CREATE TABLE utxo_leases (wallet_id BIGINT, utxo_id BIGINT, external_lock_id BYTEA, expires_at BIGINT,
                    UNIQUE (wallet_id, utxo_id))";
            db.by_hand(alone).await.expect("a table");
            let until = NOW.plus_micros(60_000_000);
            for (holder, now, written) in [(1_u8, NOW, true), (2, NOW, false), (1, NOW, true), (2, until, true)] {
                let lease = [NewLease { id: UtxoId(7), lock: LockId([holder; 32]), until }];
                let done = transact!(db, tx => write_leases(tx, WalletId(1), &lease, now).await);
                assert_eq!(done.is_ok(), written, "holder {holder:?}: {done:?}");
            }
        }
    }
}
