//! What the planner knows of tables after they have grown fast.
//!
//! The statements that take many rows look them up one by one and need no statistics (a test reads their plans on an empty
//! database). Lists, checks and whatever an operator asks do. PostgreSQL analyses tables by itself, a minute or more after they
//! have grown, and not at all where that is switched off; an import, a first sync or ten thousand deposits fill them in less time
//! than that. SQLite keeps to the words of a query while it has no statistics, which is what its plans were tested with, so
//! nothing is done there.

use sqlx::AssertSqlSafe;

use crate::db::{Db, Engine, TxInner};
use crate::error::StoreError;
use crate::transact;

statements! {
    /// The tables of which more rows have changed since they were last analysed than they had before.
    READ_OUTGROWN = "SELECT relname::TEXT FROM pg_stat_user_tables
        WHERE schemaname = CURRENT_SCHEMA() AND n_mod_since_analyze > 1000 AND n_mod_since_analyze > n_live_tup / 2
        ORDER BY relname"
        | "SELECT name FROM sqlite_schema WHERE 1 = 0";
}

/// The tables that grow by what chains do. Only those that have grown are analysed: of one that it has seen empty, the planner
/// would believe that it stays so.
const TABLES: [&str; 26] = [
    "account_totals",
    "accounts",
    "addresses",
    "blocks",
    "chain_entries",
    "deposit_events",
    "deposits",
    "movements",
    "outbound_attempts",
    "outbound_job_coins",
    "outbound_job_events",
    "outbound_jobs",
    "outbound_slot_jobs",
    "outbound_slots",
    "transaction_events",
    "transactions",
    "tx_inputs",
    "tx_replacements",
    "user_wallets",
    "utxo_claims",
    "utxo_leases",
    "utxos",
    "wallet_balances",
    "withdrawal_events",
    "withdrawal_jobs",
    "withdrawal_requests",
];

impl Db {
    /// Lets the engine look at tables that have doubled since it last did. Whether it was done.
    pub async fn analyse_after_growth(&self) -> Result<bool, StoreError> {
        if self.engine() == Engine::Sqlite {
            return Ok(false);
        }
        let outgrown = fetch_all!(&mut self.read().await?, READ_OUTGROWN => (String,))?;
        let outgrown: Vec<&str> =
            TABLES.into_iter().filter(|table| outgrown.iter().any(|(name,)| name == table)).collect();
        if outgrown.is_empty() {
            return Ok(false);
        }
        // A small sample serves: our statements find rows by their keys whatever it says. The usual one of 30,000 rows takes a second.
        let text = format!("SET LOCAL default_statistics_target = 10; ANALYZE {}", outgrown.join(", "));
        // Two that do it at once wait for each other, and for nobody who reads or writes rows.
        transact!(self, tx => {
            tx.next_statement().await?;
            match &mut tx.inner {
                TxInner::Postgres(tx) => sqlx::raw_sql(AssertSqlSafe(text.clone())).execute(&mut **tx).await.map(|_| ())?,
                TxInner::Sqlite(_) => {}
            }
            Ok(())
        })?;
        tracing::debug!(tables = ?outgrown, "tables have grown and were analysed");
        Ok(true)
    }
}
