//! Fills an empty database with a wallet's history, all of it in blocks, without asking at every row what it does to
//! the others. Only a bench uses it: it wants millions of outputs in minutes, and proves them afterwards with
//! `check_utxo`.
//!
//! **It drops indexes and lets triggers rest**, so it refuses a database that has anything but the wallet to be filled
//! and its addresses, and a build without the feature `lab` does not have it.

use std::collections::{BTreeMap, HashMap};

use domain::Timestamp;
use sqlx::AssertSqlSafe;

use super::blocks::insert_blocks;
use super::events::{lock, refused};
use super::load::{bytes, corrupt, owners};
use super::types::{Hash, Imported, OutPoint, UtxoError, UtxoRefusal, WalletId};
use crate::db::{Db, Line, Tx, TxInner};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, execute_rows};
use crate::transact;

statements! {
    /// What the database has besides the wallet $1 and its addresses.
    FIND_ANYTHING_ELSE = "SELECT 'another wallet' WHERE EXISTS (SELECT 1 FROM wallets WHERE id <> $1)
        UNION ALL SELECT 'a block' WHERE EXISTS (SELECT 1 FROM blocks)
        UNION ALL SELECT 'a transaction' WHERE EXISTS (SELECT 1 FROM transactions)
        UNION ALL SELECT 'the history of a transaction' WHERE EXISTS (SELECT 1 FROM transaction_events)
        UNION ALL SELECT 'a movement of the ledger' WHERE EXISTS (SELECT 1 FROM movements)
        UNION ALL SELECT 'an account of the ledger' WHERE EXISTS (SELECT 1 FROM accounts)
        UNION ALL SELECT 'a transfer' WHERE EXISTS (SELECT 1 FROM transfers)
        LIMIT 1";

    /// The indexes that no rule hangs on, each with the statement that makes it again.
    READ_INDEXES = "SELECT indexname::TEXT, indexdef FROM pg_indexes
        WHERE schemaname = current_schema() AND indexname LIKE 'idx\\_%'
            AND tablename IN ('transactions', 'tx_inputs', 'utxos', 'transaction_events') ORDER BY indexname"
        | "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND name LIKE 'idx\\_%' ESCAPE '\\'
            AND tbl_name IN ('transactions', 'tx_inputs', 'utxos', 'transaction_events') ORDER BY name";

    /// For the rest of this transaction PostgreSQL checks no trigger and no foreign key. SQLite is quick enough with
    /// them.
    REST_TRIGGERS = "SELECT set_config('session_replication_role', 'replica', true)" | "SELECT ''";

    /// Ids were given by hand; the next one of the database's own comes after them.
    SYNC_IDENTITIES = "SELECT setval(pg_get_serial_sequence('transactions', 'id'),
            (SELECT MAX(id) FROM transactions))::TEXT"
        | "SELECT ''";
}

static BULK_TRANSACTIONS: RowsSql = RowsSql::new(
    "BULK_TRANSACTIONS",
    "INSERT INTO transactions (wallet_id, id, tx_hash, raw_tx, block_height, status, received_time, is_coinbase, is_own)
     SELECT wallet, id, hash, raw, height, 'published', at, 1 = 0, own <> 0 FROM {rows}",
    &[("wallet", Int), ("id", Int), ("hash", Bytes), ("raw", Bytes), ("height", Int), ("at", Int), ("own", Int)],
);

static BULK_EVENTS: RowsSql = RowsSql::new(
    "BULK_EVENTS",
    "INSERT INTO transaction_events (wallet_id, tx_hash, status, block_height, reason, actor, at)
     SELECT wallet, hash, 'published', height, 'connected', '', at FROM {rows}",
    &[("wallet", Int), ("hash", Bytes), ("height", Int), ("at", Int)],
);

static BULK_INPUTS: RowsSql = RowsSql::new(
    "BULK_INPUTS",
    "INSERT INTO tx_inputs (wallet_id, tx_id, input_index, prev_hash, prev_index, active)
     SELECT wallet, tx_id, input_index, prev_hash, prev_index, 1 = 1 FROM {rows}",
    &[("wallet", Int), ("tx_id", Int), ("input_index", Int), ("prev_hash", Bytes), ("prev_index", Int)],
);

static BULK_UTXOS: RowsSql = RowsSql::new(
    "BULK_UTXOS",
    "INSERT INTO utxos (wallet_id, tx_id, output_index, amount, address_id, account, valid, spent_by_tx_id,
         spent_input_index)
     SELECT wallet, tx_id, output_index, amount, address, account, 1 = 1, spender, input_index FROM {rows}",
    &[
        ("wallet", Int),
        ("tx_id", Int),
        ("output_index", Int),
        ("amount", Int),
        ("address", Int),
        ("account", Int),
        ("spender", Int),
        ("input_index", Int),
    ],
);

static BULK_TOTALS: RowsSql = RowsSql::new(
    "BULK_TOTALS",
    "UPDATE account_totals SET confirmed = r.confirmed, confirmed_count = r.outputs
     FROM {rows} WHERE account_totals.wallet_id = r.wallet AND account_totals.account = r.account",
    &[("wallet", Int), ("account", Int), ("confirmed", Int), ("outputs", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 5] =
    [&BULK_TRANSACTIONS, &BULK_EVENTS, &BULK_INPUTS, &BULK_UTXOS, &BULK_TOTALS];

/// Rows for one statement.
const CHUNK: usize = 20_000;

impl Db {
    /// Everything must be in a block, parents before children. `progress` is told of each transaction twice: when it is
    /// written, and when its outputs are. Refuses a database that has anything but this wallet and its addresses.
    pub async fn load_bulk(
        &self,
        wallet: WalletId,
        history: &[Imported],
        at: Timestamp,
        mut progress: impl FnMut(u64),
    ) -> Result<(), UtxoError> {
        let indexes = transact!(self, tx => refused(drop_indexes(tx, wallet).await))??;
        let spenders = spenders(history);
        let mut totals: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        let mut first = 1_i64;
        let mut blocks: BTreeMap<u32, (Hash, u32)> = BTreeMap::new();
        for chunk in history.chunks(CHUNK) {
            let fresh: BTreeMap<u32, (Hash, u32)> = chunk
                .iter()
                .filter_map(|one| one.block)
                .filter(|(height, ..)| !blocks.contains_key(height))
                .map(|(height, hash, time)| (height, (hash, time)))
                .collect();
            transact!(self, tx => {
                lock(tx).await?;
                fetch_optional!(tx, REST_TRIGGERS => (String,))?;
                let rows: Vec<(u32, Hash, u32)> = fresh.iter().map(|(height, (hash, time))| (*height, *hash, *time)).collect();
                insert_blocks(tx, &rows, false).await?;
                write_chunk(tx, wallet, chunk, first, at).await
            })?;
            blocks.extend(fresh);
            first += i64::try_from(chunk.len()).unwrap_or(0);
            progress(u64::try_from(chunk.len()).unwrap_or(0));
        }
        // Outputs when all their spenders are there.
        let mut first = 1_i64;
        for chunk in history.chunks(CHUNK) {
            let sums = transact!(self, tx => {
                lock(tx).await?;
                fetch_optional!(tx, REST_TRIGGERS => (String,))?;
                write_outputs(tx, wallet, chunk, first, &spenders).await
            })?;
            for (account, (sum, count)) in sums {
                let total = totals.entry(account).or_default();
                *total = (total.0 + sum, total.1 + count);
            }
            first += i64::try_from(chunk.len()).unwrap_or(0);
            progress(u64::try_from(chunk.len()).unwrap_or(0));
        }
        transact!(self, tx => {
            let columns = vec![
                Column::Ints(vec![wallet.0; totals.len()]),
                Column::Ints(totals.keys().map(|account| i64::from(*account)).collect()),
                Column::Ints(totals.values().map(|total| total.0).collect()),
                Column::Ints(totals.values().map(|total| total.1).collect()),
            ];
            execute_rows(tx, &BULK_TOTALS, columns).await?;
            fetch_optional!(tx, SYNC_IDENTITIES => (String,)).map(|_| ())
        })?;
        for index in indexes {
            self.run_plain([&index, &index]).await?;
        }
        self.run_plain(SETTLE).await?;
        Ok(())
    }

    /// Outside any transaction; on PostgreSQL the first, on SQLite the second.
    async fn run_plain(&self, [postgres, sqlite]: [&str; 2]) -> Result<(), StoreError> {
        match self.line().await? {
            Line::Postgres(mut line) => sqlx::raw_sql(AssertSqlSafe(postgres)).execute(&mut *line).await.map(|_| ())?,
            Line::Sqlite(mut line) => sqlx::raw_sql(AssertSqlSafe(sqlite)).execute(&mut *line).await.map(|_| ())?,
        }
        Ok(())
    }
}

/// Drops the indexes that no rule hangs on, and says how to make them again. To make one at the end is several times
/// faster than to keep it up to date through millions of rows.
async fn drop_indexes(tx: &mut Tx, wallet: WalletId) -> Result<Vec<String>, UtxoError> {
    lock(tx).await?;
    if let Some((what,)) = fetch_optional!(tx, FIND_ANYTHING_ELSE => (String,), wallet.0)? {
        return Err(UtxoRefusal::NotEmpty(what).into());
    }
    let rows = fetch_all!(tx, READ_INDEXES => (String, String))?;
    for (name, _) in &rows {
        let drop = AssertSqlSafe(format!("DROP INDEX {name}"));
        match &mut tx.inner {
            TxInner::Postgres(tx) => sqlx::raw_sql(drop).execute(&mut **tx).await.map(|_| ()),
            TxInner::Sqlite(tx) => sqlx::raw_sql(drop).execute(&mut **tx).await.map(|_| ()),
        }
        .map_err(StoreError::from)?;
    }
    Ok(rows.into_iter().map(|(_, definition)| definition).collect())
}

/// The upkeep that a server does by itself some time after so much was written; a bench does not wait for it.
const SETTLE: [&str; 2] = ["VACUUM (ANALYZE)", "PRAGMA wal_checkpoint(TRUNCATE)"];

/// Who spends what: the number of the transaction from 1 on, and with which input.
fn spenders(history: &[Imported]) -> HashMap<OutPoint, (i64, i64)> {
    let mut spenders = HashMap::new();
    for (id, one) in (1_i64..).zip(history) {
        spenders.extend((0_i64..).zip(&one.tx.inputs).map(|(index, input)| (*input, (id, index))));
    }
    spenders
}

async fn write_chunk(
    tx: &mut Tx,
    wallet: WalletId,
    chunk: &[Imported],
    first: i64,
    at: Timestamp,
) -> Result<(), StoreError> {
    let height = |one: &Imported| one.block.map(|(height, ..)| i64::from(height));
    if chunk.iter().any(|one| one.block.is_none() || one.tx.coinbase) {
        return Err(corrupt("a bulk load has only transactions of blocks, and no coinbases"));
    }
    let heights = || Column::OptionalInts(chunk.iter().map(height).collect());
    let hashes = || bytes(chunk.iter().map(|one| &one.tx.hash));
    let wallets = |count: usize| Column::Ints(vec![wallet.0; count]);
    let columns = vec![
        wallets(chunk.len()),
        Column::Ints((first..).take(chunk.len()).collect()),
        hashes(),
        Column::Bytes(chunk.iter().map(|one| one.tx.raw.clone()).collect()),
        heights(),
        Column::Ints(vec![at.micros(); chunk.len()]),
        Column::Ints(chunk.iter().map(|one| i64::from(one.tx.inputs.len() > 1)).collect()),
    ];
    execute_rows(tx, &BULK_TRANSACTIONS, columns).await?;
    let columns = vec![wallets(chunk.len()), hashes(), heights(), Column::Ints(vec![at.micros(); chunk.len()])];
    execute_rows(tx, &BULK_EVENTS, columns).await?;
    let mut inputs: Vec<(i64, i64, OutPoint)> = Vec::new();
    for (id, one) in (first..).zip(chunk) {
        inputs.extend((0_i64..).zip(&one.tx.inputs).map(|(index, input)| (id, index, *input)));
    }
    let columns = vec![
        wallets(inputs.len()),
        Column::Ints(inputs.iter().map(|row| row.0).collect()),
        Column::Ints(inputs.iter().map(|row| row.1).collect()),
        bytes(inputs.iter().map(|row| &row.2.hash)),
        Column::Ints(inputs.iter().map(|row| i64::from(row.2.index)).collect()),
    ];
    execute_rows(tx, &BULK_INPUTS, columns).await.map(|_| ())
}

async fn write_outputs(
    tx: &mut Tx,
    wallet: WalletId,
    chunk: &[Imported],
    first: i64,
    spenders: &HashMap<OutPoint, (i64, i64)>,
) -> Result<BTreeMap<u32, (i64, i64)>, StoreError> {
    let scripts = chunk.iter().flat_map(|one| &one.tx.outputs).map(|output| output.script.as_slice()).collect();
    let owners = owners(tx, scripts).await?;
    let mut totals: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    let mut rows = Vec::new();
    for (id, one) in (first..).zip(chunk) {
        for (index, output) in (0_u32..).zip(&one.tx.outputs) {
            let Some((_, address, account)) = owners.get(&output.script) else { continue };
            let spender = spenders.get(&OutPoint { hash: one.tx.hash, index });
            if spender.is_none() {
                let total = totals.entry(*account).or_default();
                *total = (total.0 + output.amount, total.1 + 1);
            }
            rows.push((id, index, output.amount, *address, *account, spender));
        }
    }
    let columns = vec![
        Column::Ints(vec![wallet.0; rows.len()]),
        Column::Ints(rows.iter().map(|row| row.0).collect()),
        Column::Ints(rows.iter().map(|row| i64::from(row.1)).collect()),
        Column::Ints(rows.iter().map(|row| row.2).collect()),
        Column::Ints(rows.iter().map(|row| row.3).collect()),
        Column::Ints(rows.iter().map(|row| i64::from(row.4)).collect()),
        Column::OptionalInts(rows.iter().map(|row| row.5.map(|spender| spender.0)).collect()),
        Column::OptionalInts(rows.iter().map(|row| row.5.map(|spender| spender.1)).collect()),
    ];
    execute_rows(tx, &BULK_UTXOS, columns).await?;
    Ok(totals)
}
