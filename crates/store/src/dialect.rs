//! Everything that truly differs between PostgreSQL and SQLite, in one place.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Encode, Postgres, Sqlite, Type};

use crate::db::{Engine, Tx, TxInner};
use crate::error::{Constraint, StoreError};
use crate::sql::{Column, ColumnType, RowsSql, Write};

// ---- many values in one bind -------------------------------------------------------------------------------

/// A list in one bind: an array on PostgreSQL (`= ANY($1)`), JSON text on SQLite (`json_each($1)`).
#[derive(Clone, Debug)]
pub(crate) struct Many<T>(pub Vec<T>);

macro_rules! many {
    ($T:ty) => {
        impl Type<Postgres> for Many<$T> {
            fn type_info() -> sqlx::postgres::PgTypeInfo {
                <Vec<$T> as Type<Postgres>>::type_info()
            }
        }
        impl Encode<'_, Postgres> for Many<$T> {
            fn encode_by_ref(
                &self,
                buffer: &mut sqlx::postgres::PgArgumentBuffer,
            ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
                <Vec<$T> as Encode<'_, Postgres>>::encode_by_ref(&self.0, buffer)
            }
        }
        impl Type<Sqlite> for Many<$T> {
            fn type_info() -> sqlx::sqlite::SqliteTypeInfo {
                <String as Type<Sqlite>>::type_info()
            }
        }
        impl Encode<'_, Sqlite> for Many<$T> {
            fn encode_by_ref(
                &self,
                buffer: &mut sqlx::sqlite::SqliteArgumentsBuffer,
            ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
                let text = serde_json::to_string(&self.0)?;
                <String as Encode<'_, Sqlite>>::encode(text, buffer)
            }
        }
    };
}

many!(i64);
many!(String);

// ---- many rows in one statement ----------------------------------------------------------------------------

/// What `{rows}` stands for: `UNNEST` of one array per column, or `json_each` of one array of rows.
pub(crate) fn rows(engine: Engine, columns: &[(&str, ColumnType)], after: usize) -> String {
    let list = |each: &dyn Fn(usize, &str, ColumnType) -> String| -> String {
        let parts: Vec<String> =
            columns.iter().enumerate().map(|(at, (name, column_type))| each(at, name, *column_type)).collect();
        parts.join(", ")
    };
    match engine {
        Engine::Postgres => {
            let arrays = list(&|at, _, column_type| match column_type {
                ColumnType::Int => format!("${}::BIGINT[]", after + at + 1),
                ColumnType::Text => format!("${}::TEXT[]", after + at + 1),
                ColumnType::Bytes => format!("${}::BYTEA[]", after + at + 1),
            });
            format!("UNNEST({arrays}) AS r({})", list(&|_, name, _| name.to_owned()))
        }
        Engine::Sqlite => {
            let cells = list(&|at, name, column_type| match column_type {
                ColumnType::Int | ColumnType::Text => format!("value ->> {at} AS {name}"),
                // JSON has no bytes.
                ColumnType::Bytes => format!("unhex(value ->> {at}) AS {name}"),
            });
            format!("(SELECT {cells} FROM json_each($1)) AS r")
        }
    }
}

/// What joins a table to the rows given. SQLite is told to begin with the rows; left to itself it may read all of the table.
pub(crate) const fn join(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgres => "JOIN",
        Engine::Sqlite => "CROSS JOIN",
    }
}

/// SQLite has one writer: what it reads stays as it is.
pub(crate) const fn lock(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgres => "FOR NO KEY UPDATE OF u",
        Engine::Sqlite => "",
    }
}

/// Whatever can be read from a row of either engine.
pub(crate) trait FromEitherRow:
    for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + for<'r> sqlx::FromRow<'r, sqlx::sqlite::SqliteRow> + Send + Unpin
{
}

impl<R> FromEitherRow for R where
    R: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>
        + for<'r> sqlx::FromRow<'r, sqlx::sqlite::SqliteRow>
        + Send
        + Unpin
{
}

/// A whole column as one bind. A macro, because queries with and without rows to read are different types.
macro_rules! bind {
    ($query:expr, $column:expr) => {
        match $column {
            Column::Ints(values) => $query.bind(values),
            Column::OptionalInts(values) => $query.bind(values),
            Column::Bytes(values) => $query.bind(values),
            Column::OptionalBytes(values) => $query.bind(values),
            Column::Texts(values) => $query.bind(values),
            Column::OptionalTexts(values) => $query.bind(values),
            Column::Strings(values) => $query.bind(values),
            Column::OptionalStrings(values) => $query.bind(values),
        }
    };
}

pub(crate) async fn execute_rows(tx: &mut Tx, sql: &RowsSql, columns: Vec<Column<'_>>) -> Result<u64, StoreError> {
    tx.next_statement().await?;
    let text = AssertSqlSafe(sql.text(tx.engine()));
    let changed = match &mut tx.inner {
        TxInner::Postgres(tx) => {
            let mut query = sqlx::query(text);
            for column in columns {
                query = bind!(query, column);
            }
            query.execute(&mut **tx).await.map(|done| done.rows_affected())
        }
        TxInner::Sqlite(tx) => {
            sqlx::query(text).bind(rows_as_json(&columns)).execute(&mut **tx).await.map(|done| done.rows_affected())
        }
    };
    Ok(changed?)
}

pub(crate) async fn fetch_rows<R: FromEitherRow>(
    tx: &mut Tx,
    sql: &RowsSql,
    columns: Vec<Column<'_>>,
) -> Result<Vec<R>, StoreError> {
    tx.next_statement().await?;
    let text = AssertSqlSafe(sql.text(tx.engine()));
    let rows = match &mut tx.inner {
        TxInner::Postgres(tx) => {
            let mut query = sqlx::query_as::<_, R>(text);
            for column in columns {
                query = bind!(query, column);
            }
            query.fetch_all(&mut **tx).await
        }
        TxInner::Sqlite(tx) => sqlx::query_as::<_, R>(text).bind(rows_as_json(&columns)).fetch_all(&mut **tx).await,
    };
    Ok(rows?)
}

/// Runs all of them, and says how many rows each has written. PostgreSQL takes them as one statement: each is a part of
/// it that is carried out whatever the others do. SQLite is in this process, where a round trip costs nothing.
pub(crate) async fn execute_writes(tx: &mut Tx, writes: Vec<Write>) -> Result<Vec<u64>, StoreError> {
    if let TxInner::Sqlite(_) = &tx.inner {
        let mut written = Vec::with_capacity(writes.len());
        for write in writes {
            written.push(execute_rows(tx, write.sql, write.columns).await?);
        }
        return Ok(written);
    }
    if writes.is_empty() {
        return Ok(Vec::new());
    }
    tx.next_statement().await?;
    let text = AssertSqlSafe(joined(&writes));
    let TxInner::Postgres(tx) = &mut tx.inner else { return Ok(Vec::new()) };
    let mut query = sqlx::query_as::<_, (Vec<i64>,)>(text);
    for column in writes.into_iter().flat_map(|write| write.columns) {
        query = bind!(query, column);
    }
    let (counts,) = query.fetch_one(&mut **tx).await?;
    Ok(counts.into_iter().map(|count| u64::try_from(count).unwrap_or(0)).collect())
}

/// `WITH w0 AS (… RETURNING 1), w1 AS (…) SELECT ARRAY[(SELECT COUNT(*) FROM w0), …]`. Made once for each selection: the
/// server knows a statement by its text.
fn joined(writes: &[Write]) -> Arc<str> {
    type Known = HashMap<Vec<&'static str>, Arc<str>>;
    static KNOWN: OnceLock<RwLock<Known>> = OnceLock::new();
    let known = KNOWN.get_or_init(RwLock::default);
    let names: Vec<&'static str> = writes.iter().map(|write| write.sql.name).collect();
    if let Some(text) = known.read().unwrap_or_else(PoisonError::into_inner).get(&names) {
        return Arc::clone(text);
    }
    let (mut parts, mut counts, mut binds) = (Vec::new(), Vec::new(), 0);
    for (number, write) in writes.iter().enumerate() {
        parts.push(format!("w{number} AS ({} RETURNING 1)", write.sql.render(Engine::Postgres, binds)));
        counts.push(format!("(SELECT COUNT(*) FROM w{number})"));
        binds += write.sql.bind_count();
    }
    let text: Arc<str> = format!("WITH {} SELECT ARRAY[{}]", parts.join(", "), counts.join(", ")).into();
    known.write().unwrap_or_else(PoisonError::into_inner).insert(names, Arc::clone(&text));
    text
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// `[[1,"a"],[2,null]]`
fn rows_as_json(columns: &[Column<'_>]) -> String {
    let count = columns.first().map_or(0, Column::len);
    let cell = |column: &Column<'_>, row: usize| match column {
        Column::Ints(values) => serde_json::Value::from(values[row]),
        Column::OptionalInts(values) => serde_json::Value::from(values[row]),
        Column::Bytes(values) => serde_json::Value::from(hex(&values[row])),
        Column::OptionalBytes(values) => serde_json::Value::from(values[row].as_deref().map(hex)),
        Column::Texts(values) => serde_json::Value::from(values[row]),
        Column::OptionalTexts(values) => serde_json::Value::from(values[row]),
        Column::Strings(values) => serde_json::Value::from(values[row].as_str()),
        Column::OptionalStrings(values) => serde_json::Value::from(values[row].as_deref()),
    };
    let rows: Vec<serde_json::Value> =
        (0..count).map(|row| columns.iter().map(|column| cell(column, row)).collect()).collect();
    serde_json::Value::from(rows).to_string()
}

// ---- transactions ------------------------------------------------------------------------------------------

/// Opens a transaction that sees one state of the database throughout, and writes nothing.
pub(crate) const BEGIN_SNAPSHOT: [&str; 2] = ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "BEGIN DEFERRED"];

/// Opens a transaction that will write. SQLite takes its one write lock at once: waiting for it is then in one
/// place, and no transaction fails half-way for want of it.
pub(crate) const BEGIN_WRITE: [&str; 2] = ["BEGIN ISOLATION LEVEL READ COMMITTED", "BEGIN IMMEDIATE"];

/// What every connection to PostgreSQL is set to. What we ask for is found by its key, always: the planner must not
/// think otherwise of a table that was small when it last looked, and need not plan the same statement anew for every
/// batch. Whoever does want whole tables says so: [`PREFER_ONE_PASS`].
pub(crate) const POSTGRES_SETTINGS: [(&str, &str); 7] = [
    // An acknowledged commit is on disk, whatever the server's or the role's default.
    ("synchronous_commit", "on"),
    ("lock_timeout", "10s"),
    ("idle_in_transaction_session_timeout", "60s"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

statements! {
    /// One change of schema or settings at a time. SQLite's write lock already sees to it.
    LOCK_MIGRATIONS = "SELECT pg_advisory_xact_lock(4848271)::TEXT" | "SELECT '4848271'";

    /// Waits until every writer of movements has finished, and lets none begin until this transaction ends.
    /// Afterwards no id at or below the highest can still appear. SQLite has one writer: this one.
    BARRIER_MOVEMENTS = "LOCK TABLE movements IN SHARE MODE" | "SELECT 1";

    /// New writers queue behind the barrier while it waits for the open ones. It gives up soon, lets them through, and
    /// is tried again.
    BARRIER_PATIENCE = "SET LOCAL lock_timeout = '200ms'" | "SELECT 1";

    /// Nobody opens an account in an asset whose meaning is being changed.
    LOCK_ASSETS = "SELECT id FROM assets ORDER BY id FOR UPDATE" | "SELECT id FROM assets";

    /// The unique indexes that stand between a replay and a second effect, as far as they are there and valid.
    READ_GUARDS = "SELECT c.relname::TEXT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid IN ('movements'::regclass, 'transfers'::regclass) AND i.indisunique AND i.indisvalid AND i.indisready"
        | "SELECT name FROM sqlite_schema
        WHERE type = 'index' AND tbl_name IN ('movements', 'transfers') AND sql LIKE 'CREATE UNIQUE INDEX %'";

    /// For the rest of this transaction: read whole tables, and join by hashing them, never row by row. A freshly filled
    /// table has no statistics yet, and the planner's guess could then take hours. SQLite joins by index.
    PREFER_ONE_PASS = "SELECT set_config('enable_nestloop', 'off', true) || set_config('enable_seqscan', 'on', true)
            || set_config('enable_hashjoin', 'on', true) || set_config('plan_cache_mode', 'auto', true)"
        | "SELECT ''";

    /// In the order of their ids: two batches that overlap wait for each other, they never deadlock.
    LOCK_ACCOUNTS = "SELECT id, asset_id, status, available, frozen FROM accounts
        WHERE id = ANY($1) ORDER BY id FOR UPDATE"
        | "SELECT id, asset_id, status, available, frozen FROM accounts
        WHERE id IN (SELECT value FROM json_each($1)) ORDER BY id";

    READ_ACCOUNTS = "SELECT id, asset_id, status, available, frozen FROM accounts WHERE id = ANY($1)"
        | "SELECT id, asset_id, status, available, frozen FROM accounts
        WHERE id IN (SELECT value FROM json_each($1))";

    /// The holds behind these keys, as they were taken.
    READ_HOLDS = "SELECT op_key, from_account, amount FROM movements
        WHERE op_key = ANY($1) AND leg = 0 AND action = 2 AND outcome = 0"
        | "SELECT op_key, from_account, amount FROM movements
        WHERE op_key IN (SELECT value FROM json_each($1)) AND leg = 0 AND action = 2 AND outcome = 0";

    /// Which of these holds have ended.
    READ_ENDED_HOLDS = "SELECT hold_key FROM movements
        WHERE hold_key = ANY($1) AND hold_key IS NOT NULL AND outcome = 0 AND leg = 0"
        | "SELECT hold_key FROM movements
        WHERE hold_key IN (SELECT value FROM json_each($1)) AND hold_key IS NOT NULL AND outcome = 0 AND leg = 0";

    /// All legs of the operations that ended these holds.
    READ_ENDS = "SELECT m.id, m.op_key, m.leg, m.action, m.outcome, m.from_account, m.to_account, m.asset_id, m.amount,
            m.hold_key, m.reference, m.at, m.checksum
        FROM movements e JOIN movements m ON m.op_key = e.op_key
        WHERE e.hold_key = ANY($1) AND e.hold_key IS NOT NULL AND e.outcome = 0 AND e.leg = 0 ORDER BY m.op_key, m.leg"
        | "SELECT m.id, m.op_key, m.leg, m.action, m.outcome, m.from_account, m.to_account, m.asset_id, m.amount,
            m.hold_key, m.reference, m.at, m.checksum
        FROM movements e JOIN movements m ON m.op_key = e.op_key
        WHERE e.hold_key IN (SELECT value FROM json_each($1)) AND e.hold_key IS NOT NULL AND e.outcome = 0 AND e.leg = 0
        ORDER BY m.op_key, m.leg";

    /// Everything recorded under these keys.
    READ_HISTORY = "SELECT id, op_key, leg, action, outcome, from_account, to_account, asset_id, amount, hold_key,
            reference, at, checksum
        FROM movements WHERE op_key = ANY($1) ORDER BY op_key, leg"
        | "SELECT id, op_key, leg, action, outcome, from_account, to_account, asset_id, amount, hold_key,
            reference, at, checksum
        FROM movements WHERE op_key IN (SELECT value FROM json_each($1)) ORDER BY op_key, leg";

    READ_STATUS_CHANGES = "SELECT op_key, account_id, after_status, outcome, actor, reason
        FROM account_status_changes WHERE op_key = ANY($1)"
        | "SELECT op_key, account_id, after_status, outcome, actor, reason
        FROM account_status_changes WHERE op_key IN (SELECT value FROM json_each($1))";

    READ_TRANSFERS = "SELECT id, user_id, asset_id, amount, direction, funding_account, state, error, client_order_id,
            tries, due_at, alerted_at, version, created_at, updated_at
        FROM transfers WHERE id = ANY($1) ORDER BY id"
        | "SELECT id, user_id, asset_id, amount, direction, funding_account, state, error, client_order_id,
            tries, due_at, alerted_at, version, created_at, updated_at
        FROM transfers WHERE id IN (SELECT value FROM json_each($1)) ORDER BY id";

    /// In the order of their ids: two workers on the same transfers wait for each other, they never deadlock.
    LOCK_TRANSFERS = "SELECT id, user_id, asset_id, amount, direction, funding_account, state, error, client_order_id,
            tries, due_at, alerted_at, version, created_at, updated_at
        FROM transfers WHERE id = ANY($1) ORDER BY id FOR UPDATE"
        | "SELECT id, user_id, asset_id, amount, direction, funding_account, state, error, client_order_id,
            tries, due_at, alerted_at, version, created_at, updated_at
        FROM transfers WHERE id IN (SELECT value FROM json_each($1)) ORDER BY id";

    /// Transfers with their funding accounts, in the order of the accounts, as everybody locks those.
    LOCK_WITH_ACCOUNTS = "SELECT t.id, t.user_id, t.asset_id, t.amount, t.direction, t.funding_account, t.state, t.error,
            t.client_order_id, t.tries, t.due_at, t.alerted_at, t.version, t.created_at, t.updated_at,
            a.asset_id, a.status, a.available, a.frozen
        FROM transfers t JOIN accounts a ON a.id = t.funding_account
        WHERE t.id = ANY($1) ORDER BY a.id, t.id FOR UPDATE"
        | "SELECT t.id, t.user_id, t.asset_id, t.amount, t.direction, t.funding_account, t.state, t.error,
            t.client_order_id, t.tries, t.due_at, t.alerted_at, t.version, t.created_at, t.updated_at,
            a.asset_id, a.status, a.available, a.frozen
        FROM transfers t JOIN accounts a ON a.id = t.funding_account
        WHERE t.id IN (SELECT value FROM json_each($1)) ORDER BY a.id, t.id";

    /// What is due at $1, made due at $2 instead; rows that another worker is at are left to it.
    CLAIM_TRANSFERS = "UPDATE transfers SET due_at = $2 WHERE id IN (
            SELECT id FROM transfers WHERE state NOT IN (40, -10, -30) AND (due_at <= $1 OR due_at >= $4)
            ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED)
        RETURNING id, user_id, asset_id, amount, direction, funding_account, state, error, client_order_id,
            tries, due_at, alerted_at, version, created_at, updated_at"
        | "UPDATE transfers SET due_at = $2 WHERE id IN (
            SELECT id FROM transfers WHERE state NOT IN (40, -10, -30) AND (due_at <= $1 OR due_at >= $4)
            ORDER BY due_at LIMIT $3)
        RETURNING id, user_id, asset_id, amount, direction, funding_account, state, error, client_order_id,
            tries, due_at, alerted_at, version, created_at, updated_at";

    /// Users and names in pairs. SQLite is told the order: left to itself it reads all that a user ever named.
    READ_TRANSFERS_BY_ORDER = "SELECT t.id, t.user_id, t.asset_id, t.amount, t.direction, t.funding_account, t.state, t.error,
            t.client_order_id, t.tries, t.due_at, t.alerted_at, t.version, t.created_at, t.updated_at
        FROM UNNEST($1::BIGINT[], $2::TEXT[]) AS r(user_id, name)
            JOIN transfers t ON t.user_id = r.user_id AND t.client_order_id = r.name"
        | "SELECT t.id, t.user_id, t.asset_id, t.amount, t.direction, t.funding_account, t.state, t.error,
            t.client_order_id, t.tries, t.due_at, t.alerted_at, t.version, t.created_at, t.updated_at
        FROM json_each($1) u CROSS JOIN transfers t ON t.user_id = u.value AND t.client_order_id = ($2 ->> u.key)";

    /// Only the accounts' rows are locked; the assets' are everybody's.
    LOCK_WALLETS = "SELECT a.id, a.owner, a.asset_id, a.status, a.available, a.frozen, s.status,
            s.internal_transfer_enabled, s.min_transfer_amount, s.max_transfer_amount, s.daily_transfer_amount
        FROM accounts a JOIN assets s ON s.id = a.asset_id
        WHERE a.owner = ANY($1) AND a.kind = 'funding' AND a.asset_id = ANY($2) ORDER BY a.id FOR UPDATE OF a"
        | "SELECT a.id, a.owner, a.asset_id, a.status, a.available, a.frozen, s.status,
            s.internal_transfer_enabled, s.min_transfer_amount, s.max_transfer_amount, s.daily_transfer_amount
        FROM accounts a JOIN assets s ON s.id = a.asset_id
        WHERE a.owner IN (SELECT value FROM json_each($1)) AND a.kind = 'funding'
            AND a.asset_id IN (SELECT value FROM json_each($2)) ORDER BY a.id";

    LOCK_DAYS = "SELECT user_id, asset_id, used FROM transfer_days
        WHERE user_id = ANY($1) AND day = $2 ORDER BY user_id, asset_id FOR UPDATE"
        | "SELECT user_id, asset_id, used FROM transfer_days
        WHERE user_id IN (SELECT value FROM json_each($1)) AND day = $2 ORDER BY user_id, asset_id";

    /// Node numbers are lent by one process at a time.
    LOCK_NODES = "SELECT pg_advisory_xact_lock(4848272)::TEXT" | "SELECT '4848272'";

    /// All changes of a wallet's transactions wait in one line. SQLite's write lock already sees to it.
    LOCK_UTXOS = "SELECT pg_advisory_xact_lock(4848273)::TEXT" | "SELECT '4848273'";

    /// Those who look for the same outputs again and again, one at a time for each wallet.
    LOCK_SELECTIONS = "SELECT pg_advisory_xact_lock(4848274, CAST($1 AS INTEGER))::TEXT" | "SELECT CAST($1 AS TEXT)";

    /// In the order of their ids, as everybody locks outputs.
    LOCK_FREE_BY_ID = "SELECT u.id, t.tx_hash, u.output_index, u.amount, a.kind, a.script_pub_key, u.account, a.branch, a.child_index
        FROM utxos u JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            JOIN addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
        WHERE u.wallet_id = $1 AND u.id = ANY($2) AND u.valid AND u.spent_by_tx_id IS NULL
        ORDER BY u.id FOR NO KEY UPDATE OF u"
        | "SELECT u.id, t.tx_hash, u.output_index, u.amount, a.kind, a.script_pub_key, u.account, a.branch, a.child_index
        FROM utxos u JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            JOIN addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
        WHERE u.wallet_id = $1 AND u.id IN (SELECT value FROM json_each($2)) AND u.valid AND u.spent_by_tx_id IS NULL
        ORDER BY u.id";

    READ_LEASES = "SELECT external_lock_id, expires_at FROM utxo_leases WHERE wallet_id = $1 AND utxo_id = ANY($2)"
        | "SELECT external_lock_id, expires_at FROM utxo_leases
        WHERE wallet_id = $1 AND utxo_id IN (SELECT value FROM json_each($2))";

    /// Taken if nobody has it, renewed if the same lock has it, taken over if it has ended.
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

    /// For the rest of this transaction no trigger and no foreign key is looked at: only for a bench that fills a database.
    /// SQLite is quick enough with them.
    REST_TRIGGERS = "SELECT set_config('session_replication_role', 'replica', true)" | "SELECT ''";

    /// Ids were given by hand; the next one of the database's own comes after them.
    SYNC_IDENTITIES = "SELECT setval(pg_get_serial_sequence('transactions', 'id'), (SELECT MAX(id) FROM transactions))::TEXT"
        | "SELECT ''";

    READ_ACCOUNTS_OF_OWNERS = "SELECT id, owner, kind, asset_id FROM accounts WHERE owner = ANY($1)"
        | "SELECT id, owner, kind, asset_id FROM accounts WHERE owner IN (SELECT value FROM json_each($1))";
}

// ---- errors ------------------------------------------------------------------------------------------------

pub(crate) enum Class {
    Unavailable,
    Full,
    Damaged,
    Contention,
    Violates(Constraint),
    Other,
}

pub(crate) fn classify(error: &sqlx::Error) -> Class {
    match error {
        sqlx::Error::Database(error) => {
            if let Some(error) = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
                classify_postgres(error)
            } else {
                classify_sqlite(error.as_ref())
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => Class::Unavailable,
        _ => Class::Other,
    }
}

fn classify_postgres(error: &sqlx::postgres::PgDatabaseError) -> Class {
    let known = error.constraint().and_then(|name| Constraint::ALL.iter().find(|one| one.name() == name));
    match (known, error.code()) {
        (Some(constraint), _) => Class::Violates(*constraint),
        // serialization_failure, deadlock_detected, lock_not_available, query_canceled (a statement timeout)
        (None, "40001" | "40P01" | "55P03" | "57014") => Class::Contention,
        (None, "53100") => Class::Full,
        // data_corrupted, index_corrupted
        (None, "XX001" | "XX002") => Class::Damaged,
        // too_many_connections, admin_shutdown, crash_shutdown, cannot_connect_now, idle and transaction timeouts,
        // unknown database or role, refused log-in, missing permission, read-only server
        (
            None,
            "53300" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" | "3D000" | "28000" | "28P01" | "42501"
            | "25006",
        ) => Class::Unavailable,
        (None, code) if code.starts_with("08") => Class::Unavailable,
        (None, _) => Class::Other,
    }
}

fn classify_sqlite(error: &dyn DatabaseError) -> Class {
    let known = Constraint::ALL.iter().find(|one| one.sqlite_message() == error.message());
    let code = error.code().and_then(|code| code.parse::<u32>().ok());
    // The low byte is the primary result code; the rest refines it.
    match (known, code.map(|code| code & 0xff)) {
        (Some(constraint), _) => Class::Violates(*constraint),
        // SQLITE_BUSY, SQLITE_LOCKED
        (None, Some(5 | 6)) => Class::Contention,
        // SQLITE_FULL
        (None, Some(13)) => Class::Full,
        // SQLITE_CORRUPT
        (None, Some(11)) => Class::Damaged,
        // SQLITE_PERM, READONLY, IOERR, CANTOPEN, AUTH, NOTADB
        (None, Some(3 | 8 | 10 | 14 | 23 | 26)) => Class::Unavailable,
        (None, _) => Class::Other,
    }
}

/// PostgreSQL has a code for it, SQLite only a message.
pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.code().as_deref() == Some("42P01") || error.message() == "no such table: schema_migrations"
}
