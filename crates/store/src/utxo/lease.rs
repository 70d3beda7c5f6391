//! Leases: an output that one transaction is about to spend is not given to another until the lease ends.

use std::collections::{HashMap, HashSet};

use domain::Timestamp;

use super::coins::{COIN, CoinRow, coin};
use super::events::{check_active, refused};
use super::followed::RESCAN_LOCK;
use super::load::{bytes, hash, number, outpoint_columns};
use super::types::{Candidate, Coin, LeaseRow, LockId, OutPoint, UtxoError, UtxoId, UtxoRefusal, WalletId, Want};
use crate::db::{Db, Tx};
use crate::dialect::{LOCK_SELECTIONS, Many};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, fetch_rows};
use crate::transact;

statements! {
    /// In the order of their ids, as all transactions lock outputs.
    LOCK_FREE_BY_ID(COIN) = "SELECT {columns}
        FROM utxos u JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            JOIN addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
        WHERE u.wallet_id = $1 AND u.id {in $2} AND u.valid AND u.spent_by_tx_id IS NULL
        ORDER BY u.id {FOR NO KEY UPDATE OF u}";
    READ_LEASES = "SELECT external_lock_id, expires_at FROM utxo_leases WHERE wallet_id = $1 AND utxo_id {in $2}";
    /// A lease is taken if there is none, renewed if the same lock has it, and taken over if it has ended.
    LEASE_UTXOS = "INSERT INTO utxo_leases (wallet_id, utxo_id, external_lock_id, expires_at)
        SELECT $1, id, $3, $4 FROM UNNEST($2::BIGINT[]) AS id WHERE TRUE
        ON CONFLICT (wallet_id, utxo_id) DO UPDATE
            SET external_lock_id = EXCLUDED.external_lock_id, expires_at = EXCLUDED.expires_at
            WHERE utxo_leases.expires_at <= $5 OR utxo_leases.external_lock_id = EXCLUDED.external_lock_id
        RETURNING utxo_id"
        | "INSERT INTO utxo_leases (wallet_id, utxo_id, external_lock_id, expires_at)
        SELECT $1, value, $3, $4 FROM json_each($2) WHERE TRUE
        ON CONFLICT (wallet_id, utxo_id) DO UPDATE
            SET external_lock_id = EXCLUDED.external_lock_id, expires_at = EXCLUDED.expires_at
            WHERE utxo_leases.expires_at <= $5 OR utxo_leases.external_lock_id = EXCLUDED.external_lock_id
        RETURNING utxo_id";
    RENEW_LEASES = "UPDATE utxo_leases SET expires_at = $3
        WHERE wallet_id = $1 AND external_lock_id = $2 AND expires_at > $4";
    RELEASE_LEASES = "DELETE FROM utxo_leases WHERE wallet_id = $1 AND external_lock_id = $2";
    SWEEP_LEASES = "DELETE FROM utxo_leases WHERE expires_at <= $1";
    LIST_LEASES = "SELECT l.utxo_id, t.tx_hash, u.output_index, u.amount, u.account, l.external_lock_id, l.expires_at
        FROM utxo_leases l JOIN utxos u ON u.wallet_id = l.wallet_id AND u.id = l.utxo_id
            JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
        WHERE l.wallet_id = $1 AND l.utxo_id > $2 ORDER BY l.utxo_id LIMIT $3";
}

static READ_LEASES_AT: RowsSql = RowsSql::new(
    "READ_LEASES_AT",
    "SELECT p.tx_hash, u.output_index, l.external_lock_id, l.expires_at
     FROM {rows} {join} transactions p ON p.tx_hash = r.hash
         {join} utxos u ON u.wallet_id = p.wallet_id AND u.tx_id = p.id AND u.output_index = r.output_index
         {join} utxo_leases l ON l.wallet_id = u.wallet_id AND l.utxo_id = u.id",
    &[("hash", Bytes), ("output_index", Int)],
);

static READ_FREE_AT: RowsSql = RowsSql::new(
    "READ_FREE_AT",
    "SELECT u.id, p.tx_hash, u.output_index
     FROM {rows} {join} transactions p ON p.tx_hash = r.hash AND p.wallet_id = r.wallet
         {join} utxos u ON u.wallet_id = p.wallet_id AND u.tx_id = p.id AND u.output_index = r.output_index
     WHERE u.valid AND u.spent_by_tx_id IS NULL",
    &[("hash", Bytes), ("output_index", Int), ("wallet", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 2] = [&READ_LEASES_AT, &READ_FREE_AT];

/// How often a selection looks again, without a lock, when others took the outputs it had chosen.
const HOPEFUL_TRIES: u64 = 3;

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

    /// Moves the end of the leases that this lock still holds, and says how many those are.
    pub async fn renew(
        &self,
        wallet: WalletId,
        lock: LockId,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<u64, UtxoError> {
        refuse_rescans(lock)?;
        let (lock, until, now) = (lock.0.to_vec(), until.micros(), now.micros());
        Ok(transact!(self, tx => execute!(tx, RENEW_LEASES, wallet.0, lock.as_slice(), until, now))?)
    }

    pub async fn release(&self, wallet: WalletId, lock: LockId) -> Result<u64, UtxoError> {
        refuse_rescans(lock)?;
        let lock = lock.0.to_vec();
        Ok(transact!(self, tx => execute!(tx, RELEASE_LEASES, wallet.0, lock.as_slice()))?)
    }

    /// Removes the leases that have ended. They have no effect any more; this only keeps the table small.
    pub async fn sweep_leases(&self, now: Timestamp) -> Result<u64, UtxoError> {
        let now = now.micros();
        Ok(transact!(self, tx => execute!(tx, SWEEP_LEASES, now))?)
    }

    /// The wallet's leases by the ids of their outputs, a page at a time; also those that have ended and were not
    /// swept.
    pub async fn leases(&self, wallet: WalletId, after: Option<UtxoId>, most: u32) -> Result<Vec<LeaseRow>, UtxoError> {
        type Stored = (i64, Vec<u8>, i64, i64, i64, Vec<u8>, i64);
        let after = after.map_or(i64::MIN, |id| id.0);
        let mut tx = self.read().await?;
        let rows = fetch_all!(&mut tx, LIST_LEASES => Stored, wallet.0, after, i64::from(most))?;
        let lease = |(id, made_by, index, amount, account, lock, until): Stored| {
            Ok(LeaseRow {
                id: UtxoId(id),
                outpoint: OutPoint { hash: hash(&made_by)?, index: number(index)? },
                amount,
                account: number(account)?,
                lock: LockId(hash(&lock)?.0),
                until: Timestamp::from_micros(until),
            })
        };
        rows.into_iter().map(lease).collect()
    }

    /// Offers candidates to `choose` and leases the outputs that it chooses, all or none. `None`: `choose` found
    /// nothing that would do.
    #[expect(clippy::too_many_arguments, reason = "each is said by name in the types")]
    pub async fn select_and_lease(
        &self,
        wallet: WalletId,
        account: u32,
        want: &Want,
        lock: LockId,
        until: Timestamp,
        now: Timestamp,
        mut choose: impl FnMut(&[Candidate]) -> Option<Vec<UtxoId>>,
    ) -> Result<Option<Vec<Coin>>, UtxoError> {
        refuse_rescans(lock)?;
        for attempt in 0..HOPEFUL_TRIES {
            let want = Want { seed: want.seed.wrapping_add(attempt), ..*want };
            let mut chosen = choose(&self.candidates(wallet, account, &want, now).await?);
            if chosen.is_none() {
                // Small outputs may cost more than they hold, so the largest are tried before giving up.
                chosen = choose(&self.candidates(wallet, account, &largest(&want), now).await?);
            }
            let Some(chosen) = chosen else { return Ok(None) };
            if let Some(coins) = transact!(self, tx => lease_by_id(tx, wallet, &chosen, lock, until, now).await)? {
                return Ok(Some(coins));
            }
        }
        // Too many want the same outputs. From here on selections wait in line. One that loses its outputs even so
        // begins again with a new transaction, so that no lock is kept from one choice to the next.
        Ok(transact!(self, tx => {
            fetch_optional!(tx, LOCK_SELECTIONS => (String,), wallet.0)?;
            match refused(super::coins::candidates(tx, wallet, account, &largest(want), now).await)? {
                Err(refusal) => Ok(Err(refusal)),
                Ok(candidates) => match choose(&candidates) {
                    None => Ok(Ok(None)),
                    Some(chosen) => match lease_by_id(tx, wallet, &chosen, lock, until, now).await? {
                        None => Err(StoreError::NeedsHistory),
                        leased => Ok(Ok(leased)),
                    },
                },
            }
        })??)
    }
}

/// What a rescan holds is let go when all blocks were read, and not before.
fn refuse_rescans(lock: LockId) -> Result<(), UtxoRefusal> {
    if lock == RESCAN_LOCK { Err(UtxoRefusal::Rescanning) } else { Ok(()) }
}

/// From the largest output of the wallet downwards: half of the highest number is more than any output holds, and
/// leaves room for the spread that is added to a target.
fn largest(want: &Want) -> Want {
    Want { target: i64::MAX / 2, ..*want }
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

async fn lease_at(
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
    check_leases(tx, outpoints, Some(lock), now).await?;
    write_leases(tx, wallet, &free, lock, until, now).await.map_err(UtxoError::from)
}

/// `None`: one of them is spent or leased to another lock by now, and nothing was written.
async fn lease_by_id(
    tx: &mut Tx,
    wallet: WalletId,
    chosen: &[UtxoId],
    lock: LockId,
    until: Timestamp,
    now: Timestamp,
) -> Result<Option<Vec<Coin>>, StoreError> {
    let distinct: HashSet<UtxoId> = chosen.iter().copied().collect();
    let coins = lock_free(tx, wallet, chosen).await?;
    if coins.len() != distinct.len() {
        return Ok(None);
    }
    let ids = Many(coins.iter().map(|coin| coin.id.0).collect::<Vec<i64>>());
    let leases = fetch_all!(tx, READ_LEASES => (Vec<u8>, i64), wallet.0, ids.clone())?;
    if leases.iter().any(|(holder, expires_at)| holder.as_slice() != lock.0 && *expires_at > now.micros()) {
        return Ok(None);
    }
    write_leases(tx, wallet, &coins, lock, until, now).await?;
    Ok(Some(coins))
}

/// Those that can be spent, locked in the order of their ids.
async fn lock_free(tx: &mut Tx, wallet: WalletId, ids: &[UtxoId]) -> Result<Vec<Coin>, StoreError> {
    let ids = Many(ids.iter().map(|id| id.0).collect::<Vec<i64>>());
    let rows = fetch_all!(tx, LOCK_FREE_BY_ID => CoinRow, wallet.0, ids.clone())?;
    rows.into_iter().map(coin).collect()
}

/// The outputs are locked and free, so all of them are written.
async fn write_leases(
    tx: &mut Tx,
    wallet: WalletId,
    coins: &[Coin],
    lock: LockId,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    let ids = Many(coins.iter().map(|coin| coin.id.0).collect::<Vec<i64>>());
    let lock = lock.0.to_vec();
    let rows =
        fetch_all!(tx, LEASE_UTXOS => (i64,), wallet.0, ids.clone(), lock.as_slice(), until.micros(), now.micros())?;
    crate::rows::expect_rows(u64::try_from(rows.len()).unwrap_or(0), coins.len(), "leases")
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
            let until = NOW.plus_micros(60_000_000).micros();
            for (holder, now, written) in [(1_u8, NOW.micros(), 1), (2, NOW.micros(), 0), (1, NOW.micros(), 1), (2, until, 1)] {
                let (ids, holder) = (Many(vec![7_i64]), vec![holder; 32]);
                let rows: Result<usize, StoreError> = transact!(db, tx => {
                    let rows = fetch_all!(tx, LEASE_UTXOS => (i64,), 1_i64, ids.clone(), holder.as_slice(), until, now)?;
                    Ok(rows.len())
                });
                assert_eq!(rows.expect("an answer"), written, "holder {holder:?}");
            }
        }
    }
}
