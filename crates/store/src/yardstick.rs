//! The yardstick of `bursar bench ledger`: the plainest durable thing that a database can do, one row changed and
//! committed. It lives here because all SQL does.

use crate::db::Db;
use crate::error::StoreError;
use crate::transact;

statements! {
    CREATE_YARDSTICK = "CREATE TABLE IF NOT EXISTS bench_yardstick
        (id BIGINT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL) WITH (fillfactor = 50)"
        | "CREATE TABLE IF NOT EXISTS bench_yardstick
        (id INTEGER NOT NULL PRIMARY KEY, balance INTEGER NOT NULL) STRICT";
    FILL_YARDSTICK = "INSERT INTO bench_yardstick (id, balance)
        WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < $1) SELECT id, 0 FROM n WHERE true
        ON CONFLICT (id) DO NOTHING";
    BARE_UPDATE = "UPDATE bench_yardstick SET balance = balance + 1 WHERE id = $1";
}

impl Db {
    /// A table of its own with rows 1 to `rows`. Only a bench makes it.
    pub async fn prepare_yardstick(&self, rows: i64) -> Result<(), StoreError> {
        transact!(self, tx => {
            execute!(tx, CREATE_YARDSTICK)?;
            execute!(tx, FILL_YARDSTICK, rows)?;
            Ok(())
        })
    }

    /// One statement in a transaction of its own, without BEGIN: the fewest round trips there are.
    pub async fn bare_update(&self, row: i64) -> Result<(), StoreError> {
        self.autocommit(&BARE_UPDATE, row).await
    }
}
