//! How the engine would go about the hot reads; for the bench, which insists that they touch nothing but indexes.

use domain::Timestamp;
use sqlx::AssertSqlSafe;

use super::balance::{READ_CLAIMED, READ_IMMATURE, READ_LEASED, READ_TOTALS};
use super::coins::{READ_LARGER, READ_SMALLER};
use super::types::{UtxoError, WalletId};
use crate::db::{Db, Tx, TxInner};
use crate::error::StoreError;
use crate::sql::Sql;

/// A statement's plan, and whether it reads indexes alone.
#[derive(Clone, Debug)]
pub struct Explained {
    pub statement: &'static str,
    pub plan: Vec<String>,
    pub index_only: bool,
}

impl Db {
    pub async fn explain_utxo(
        &self,
        wallet: WalletId,
        target: i64,
        now: Timestamp,
    ) -> Result<Vec<Explained>, UtxoError> {
        let mut tx = self.read().await?;
        let (wallet, now) = (wallet.0, now.micros());
        // Account 0, and every coinbase is mature: no chain has a block of this height.
        let selection = [wallet, 0, target, i64::MIN, 1_000_000_000, 0, 0, now, i64::MAX];
        let mut all = Vec::new();
        for (sql, binds) in [
            (READ_TOTALS, vec![wallet]),
            (READ_IMMATURE, vec![wallet, 0]),
            (READ_LEASED, vec![wallet, now]),
            (READ_CLAIMED, vec![wallet, now]),
            (READ_LARGER, selection.to_vec()),
            (READ_SMALLER, selection.to_vec()),
        ] {
            let plan = explain(&mut tx, &sql, &binds).await?;
            let index_only = plan.iter().all(|line| reads_index_alone(line));
            all.push(Explained { statement: sql.name, plan, index_only });
        }
        Ok(all)
    }
}

/// A line that reads nothing is fine as well.
fn reads_index_alone(line: &str) -> bool {
    let postgres = !line.contains(" Scan") || line.contains("Index Only Scan");
    let sqlite = !(line.starts_with("SEARCH ") || line.starts_with("SCAN "))
        || line.contains("USING COVERING INDEX")
        || line.contains("USING PRIMARY KEY");
    postgres && sqlite
}

async fn explain(tx: &mut Tx, sql: &Sql, binds: &[i64]) -> Result<Vec<String>, StoreError> {
    tx.next_statement().await?;
    match &mut tx.inner {
        TxInner::Postgres(tx) => {
            let text = AssertSqlSafe(format!("EXPLAIN {}", sql.postgres));
            let query = binds.iter().fold(sqlx::query_as::<_, (String,)>(text), |query, bind| query.bind(*bind));
            Ok(query.fetch_all(&mut **tx).await?.into_iter().map(|row| row.0.trim().to_owned()).collect())
        }
        TxInner::Sqlite(tx) => {
            let text = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", sql.sqlite));
            type Line = (i64, i64, i64, String);
            let query = binds.iter().fold(sqlx::query_as::<_, Line>(text), |query, bind| query.bind(*bind));
            Ok(query.fetch_all(&mut **tx).await?.into_iter().map(|row| row.3).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reads_index_alone;

    #[test]
    fn a_read_of_a_table_is_told_from_one_of_an_index() {
        for (line, alone) in [
            ("->  Index Only Scan using idx_utxos_unspent on utxos u", true),
            ("Limit  (cost=0.43..5.9 rows=400 width=20)", true),
            ("->  Index Scan using pidx_utxos on utxos u", false),
            ("->  Seq Scan on utxos u", false),
            ("->  Bitmap Heap Scan on utxos u", false),
            ("SEARCH u USING COVERING INDEX idx_utxos_unspent (wallet_id=? AND account=?)", true),
            ("SEARCH account_totals USING PRIMARY KEY (wallet_id=?)", true),
            ("SEARCH t USING INDEX uidx (wallet_id=?)", false),
            ("SCAN u", false),
            ("USE TEMP B-TREE FOR ORDER BY", true),
        ] {
            assert_eq!(reads_index_alone(line), alone, "{line}");
        }
    }
}
