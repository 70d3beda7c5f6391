//! How large the wallet's tables are, and how its leases stand: what an operator of a long-running wallet watches.

use domain::Timestamp;

use super::load::corrupt;
use super::types::UtxoError;
use crate::db::Db;
use crate::dialect::PREFER_ONE_PASS;

statements! {
    /// A lease without an end is a rescan's.
    READ_LEASE_STAT = "SELECT COUNT(CASE WHEN expires_at > $1 AND expires_at < 9223372036854775807 THEN 1 END),
            COUNT(CASE WHEN expires_at <= $1 THEN 1 END), MIN(CASE WHEN expires_at <= $1 THEN expires_at END),
            COUNT(CASE WHEN expires_at = 9223372036854775807 THEN 1 END), (SELECT COUNT(*) FROM utxo_claims)
        FROM utxo_leases";
    /// The highest number that each table has given out: it costs nothing to ask, however large the table is.
    READ_ROWS_MADE = "SELECT s.name, COALESCE(pg_sequence_last_value(pg_get_serial_sequence(s.name, 'id')::REGCLASS), 0)
        FROM UNNEST(ARRAY['addresses', 'transactions', 'utxos', 'tx_replacements', 'transaction_events']) AS s(name)
        ORDER BY s.name"
        | "SELECT name, seq FROM sqlite_sequence
        WHERE name IN ('addresses', 'transactions', 'utxos', 'tx_replacements', 'transaction_events') ORDER BY name";
    READ_UNSPENT_COUNT = "SELECT CAST(COALESCE(SUM(confirmed_count + unconfirmed_count), 0) AS BIGINT) FROM account_totals";
    COUNT_ROWS = "SELECT 'account_totals', COUNT(*) FROM account_totals
        UNION ALL SELECT 'addresses', COUNT(*) FROM addresses
        UNION ALL SELECT 'blocks', COUNT(*) FROM blocks
        UNION ALL SELECT 'transaction_events', COUNT(*) FROM transaction_events
        UNION ALL SELECT 'transactions', COUNT(*) FROM transactions
        UNION ALL SELECT 'tx_inputs', COUNT(*) FROM tx_inputs
        UNION ALL SELECT 'tx_replacements', COUNT(*) FROM tx_replacements
        UNION ALL SELECT 'utxo_claims', COUNT(*) FROM utxo_claims
        UNION ALL SELECT 'utxo_leases', COUNT(*) FROM utxo_leases
        UNION ALL SELECT 'utxos', COUNT(*) FROM utxos
        UNION ALL SELECT 'wallets', COUNT(*) FROM wallets";
    READ_DATABASE_BYTES = "SELECT pg_database_size(current_database())"
        | "SELECT p.page_count * s.page_size FROM pragma_page_count p, pragma_page_size s";
}

/// The leases at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStat {
    /// They keep an output for somebody who is about to spend it.
    pub active: i64,
    /// They have ended and were not swept yet.
    pub ended: i64,
    /// When the first of those ended.
    pub oldest_end: Option<Timestamp>,
    /// What an open rescan has found, and holds.
    pub found: i64,
    /// No leases: free outputs that a transaction which may still be mined spends.
    pub claimed: i64,
}

/// A table, and how many rows it has, or has given numbers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStat {
    pub table: String,
    pub rows: i64,
}

impl Db {
    pub async fn lease_stat(&self, now: Timestamp) -> Result<LeaseStat, UtxoError> {
        type Counted = (i64, i64, Option<i64>, i64, i64);
        let row = fetch_optional!(&mut self.read().await?, READ_LEASE_STAT => Counted, now.micros())?;
        let (active, ended, oldest, found, claimed) = row.ok_or_else(|| corrupt("a count has no row"))?;
        Ok(LeaseStat { active, ended, oldest_end: oldest.map(Timestamp::from_micros), found, claimed })
    }

    /// How many rows each table has had since it was made, rows that were pruned included.
    pub async fn utxo_rows_made(&self) -> Result<Vec<TableStat>, UtxoError> {
        let rows = fetch_all!(&mut self.read().await?, READ_ROWS_MADE => (String, i64))?;
        Ok(rows.into_iter().map(|(table, rows)| TableStat { table, rows }).collect())
    }

    /// How many unspent outputs all wallets have together.
    pub async fn unspent_count(&self) -> Result<i64, UtxoError> {
        let row = fetch_optional!(&mut self.read().await?, READ_UNSPENT_COUNT => (i64,))?;
        Ok(row.ok_or_else(|| corrupt("a sum has no row"))?.0)
    }

    /// How many rows each table has. It reads all of them.
    pub async fn utxo_rows(&self) -> Result<Vec<TableStat>, UtxoError> {
        let mut tx = self.read().await?;
        fetch_optional!(&mut tx, PREFER_ONE_PASS => (String,))?;
        let rows = fetch_all!(&mut tx, COUNT_ROWS => (String, i64))?;
        Ok(rows.into_iter().map(|(table, rows)| TableStat { table, rows }).collect())
    }

    /// The whole database, on disk.
    pub async fn bytes(&self) -> Result<i64, UtxoError> {
        let row = fetch_optional!(&mut self.read().await?, READ_DATABASE_BYTES => (i64,))?;
        Ok(row.ok_or_else(|| corrupt("a database has no size"))?.0)
    }
}
