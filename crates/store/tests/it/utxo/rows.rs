//! What the database says, read past the store.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use store::Engine;
use store::testing::TestDb;

/// A connection of its own, kept open: a run reads everything after every event.
pub enum Reader {
    Postgres(PgConnection, String),
    Sqlite(SqliteConnection, String),
}

impl Reader {
    pub async fn open(db: &TestDb) -> Self {
        match db.engine() {
            Engine::Postgres => {
                let text = read_rows(|column| format!("encode({column}, 'hex')"));
                Self::Postgres(PgConnection::connect(&db.url).await.unwrap(), text)
            }
            Engine::Sqlite => {
                let text = read_rows(|column| format!("lower(hex({column}))"));
                Self::Sqlite(SqliteConnection::connect(&db.url).await.unwrap(), text)
            }
        }
    }

    /// Every row that the rules speak of, as `Model::rows` prints it.
    pub async fn rows(&mut self) -> BTreeSet<String> {
        let rows: Vec<String> = match self {
            Self::Postgres(connection, text) => {
                sqlx::query_scalar(AssertSqlSafe(text.clone())).fetch_all(connection).await.unwrap()
            }
            Self::Sqlite(connection, text) => {
                sqlx::query_scalar(AssertSqlSafe(text.clone())).fetch_all(connection).await.unwrap()
            }
        };
        let count = rows.len();
        let rows: BTreeSet<String> = rows.into_iter().collect();
        assert_eq!(rows.len(), count, "two rows say the same");
        rows
    }
}

/// Wallets have the numbers 1, 2, … in a new database; the model counts from 0.
fn read_rows(hex: impl Fn(&str) -> String) -> String {
    let (block, tx, spender) = (hex("block_hash"), hex("t.tx_hash"), hex("s.tx_hash"));
    let claimant = hex("k.claimant");
    let (previous, victim, winner) = (hex("i.prev_hash"), hex("t.tx_hash"), hex("s.tx_hash"));
    format!(
        "SELECT 'block ' || block_height || ' ' || {block} FROM blocks
         UNION ALL
         SELECT 'tx ' || (t.wallet_id - 1) || ' ' || {tx} || ' ' || t.status || ' '
             || COALESCE(CAST(t.block_height AS TEXT), '-')
             || ' coinbase ' || CAST(t.is_coinbase AS INTEGER) || ' own ' || CAST(t.is_own AS INTEGER)
             || ' given up ' || CAST(t.given_up AS INTEGER)
         FROM transactions t
         UNION ALL
         SELECT 'input ' || (t.wallet_id - 1) || ' ' || {tx} || ' ' || i.input_index || ' '
             || {previous} || ':' || i.prev_index || ' active ' || CAST(i.active AS INTEGER)
         FROM tx_inputs i JOIN transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id
         UNION ALL
         SELECT 'output ' || (t.wallet_id - 1) || ' ' || {tx} || ':' || u.output_index || ' ' || u.amount
             || ' account ' || u.account || ' valid ' || CAST(u.valid AS INTEGER)
             || ' spent by ' || COALESCE({spender} || ':' || u.spent_input_index, '-')
         FROM utxos u JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
         LEFT JOIN transactions s ON s.wallet_id = u.wallet_id AND s.id = u.spent_by_tx_id
         UNION ALL
         SELECT 'edge ' || (t.wallet_id - 1) || ' ' || {victim} || ' -> ' || {winner}
         FROM tx_replacements e JOIN transactions t ON t.wallet_id = e.wallet_id AND t.id = e.replaced_tx_id
         JOIN transactions s ON s.wallet_id = e.wallet_id AND s.id = e.replacement_tx_id
         UNION ALL
         SELECT 'claim ' || (k.wallet_id - 1) || ' ' || {tx} || ':' || u.output_index || ' by ' || {claimant}
         FROM utxo_claims k JOIN utxos u ON u.wallet_id = k.wallet_id AND u.id = k.utxo_id
         JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
         UNION ALL
         SELECT 'total ' || (wallet_id - 1) || ' account ' || account || ' confirmed ' || confirmed || ' in '
             || confirmed_count || ' unconfirmed ' || unconfirmed || ' in ' || unconfirmed_count
         FROM account_totals WHERE confirmed_count + unconfirmed_count > 0"
    )
}
