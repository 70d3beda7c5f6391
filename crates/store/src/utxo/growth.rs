//! What the planner knows of the wallet's tables, after they have grown fast.
//!
//! The statements of events and selections look rows up one by one and need no statistics (a test reads their plans on an empty
//! database). Lists, the check and whatever an operator asks do. PostgreSQL analyses tables by itself, a minute or more after they
//! have grown, and not at all where that is switched off; an import or a first sync fills them in less time than that. SQLite keeps to the
//! words of a query while it has no statistics, which is what its plans were tested with, so nothing is done there.

use super::types::UtxoError;
use crate::db::{Db, Engine};
use crate::transact;

statements! {
    /// The tables of which more rows have changed since they were last analysed than they had before.
    READ_OUTGROWN = "SELECT relname::TEXT FROM pg_stat_user_tables
        WHERE schemaname = CURRENT_SCHEMA() AND relname IN ('account_totals', 'addresses', 'blocks', 'transaction_events',
            'transactions', 'tx_inputs', 'tx_replacements', 'utxo_claims', 'utxo_leases', 'utxos')
            AND n_mod_since_analyze > 10000 AND n_mod_since_analyze > n_live_tup / 2
        ORDER BY relname"
        | "SELECT name FROM sqlite_schema WHERE 1 = 0";
    /// All of them together: they grow together.
    ANALYSE_TABLES = "ANALYZE account_totals, addresses, blocks, transaction_events, transactions, tx_inputs,
        tx_replacements, utxo_claims, utxo_leases, utxos"
        | "SELECT 1 WHERE 1 = 0";
}

impl Db {
    /// Lets the engine look at the wallet's tables if they have doubled since it last did. Whether it was done.
    pub async fn analyse_after_growth(&self) -> Result<bool, UtxoError> {
        if self.engine() == Engine::Sqlite {
            return Ok(false);
        }
        let outgrown = fetch_all!(&mut self.read().await?, READ_OUTGROWN => (String,))?;
        if outgrown.is_empty() {
            return Ok(false);
        }
        // Two that do it at once wait for each other, and for nobody who reads or writes rows.
        transact!(self, tx => execute!(tx, ANALYSE_TABLES).map(|_| ()))?;
        tracing::debug!(tables = ?outgrown, "the wallet's tables have grown and were analysed");
        Ok(true)
    }
}
