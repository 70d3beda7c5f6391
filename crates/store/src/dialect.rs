//! What differs between PostgreSQL and SQLite by more than a statement: lists in one bind, many rows at once, advisory
//! locks, and the classes of errors.

use sqlx::error::DatabaseError;
use sqlx::{Encode, Postgres, Sqlite, Type};

use crate::db::Engine;
use crate::error::Constraint;
use crate::rows::ColumnType;

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
            let names = list(&|_, name, _| name.to_owned());
            // A limit that the planner cannot know lets it expect one row. So it always begins with these rows and looks up what
            // each names; else it would go through them for each row of a table that it takes for small.
            format!("(SELECT * FROM UNNEST({arrays}) AS r({names}) LIMIT (SELECT 4611686018427387904)) AS r")
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

/// The word that joins a table to the rows given. SQLite is told to begin with the rows: left to itself it may read all
/// of the table.
pub(crate) const fn join(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgres => "JOIN",
        Engine::Sqlite => "CROSS JOIN",
    }
}

/// What stands before and behind a bind that is a list ([`Many`]): the column is one of its values.
pub(crate) const fn one_of(engine: Engine) -> [&'static str; 2] {
    match engine {
        Engine::Postgres => ["= ANY(", ")"],
        Engine::Sqlite => ["IN (SELECT value FROM json_each(", "))"],
    }
}

// ---- transactions ------------------------------------------------------------------------------------------

/// Opens a transaction that sees one state of the database throughout, and writes nothing.
pub(crate) const BEGIN_SNAPSHOT: [&str; 2] = ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "BEGIN DEFERRED"];

/// Opens a transaction that will write. SQLite takes its one write lock at once: waiting for it is then in one
/// place, and no transaction fails half-way for want of it.
pub(crate) const BEGIN_WRITE: [&str; 2] = ["BEGIN ISOLATION LEVEL READ COMMITTED", "BEGIN IMMEDIATE"];

/// The settings of every connection to PostgreSQL. Our statements find rows by their keys, always: the planner must not
/// think otherwise of a table that was small when it last looked, and need not plan the same statement anew for every
/// batch. The few statements that read whole tables say so first: [`PREFER_ONE_PASS`].
pub(crate) const POSTGRES_SETTINGS: [(&str, &str); 10] = [
    // An acknowledged commit is on disk, whatever the server's or the role's default.
    ("synchronous_commit", "on"),
    ("lock_timeout", "10s"),
    ("idle_in_transaction_session_timeout", "60s"),
    ("enable_seqscan", "off"),
    // Or, of a wallet that was empty when it last looked, it would read all rows by the first column of an index.
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    // Or it would read a table that it takes for small once, and then go through all of it for each row.
    ("enable_material", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    // A scan that is "off" counts as dear enough to be compiled first. A table of one row, which has no index that serves,
    // then takes 50 ms.
    ("jit", "off"),
];

// The numbers of advisory locks mean nothing; each lock has one of its own.
statements! {
    /// One change of schema or settings at a time. SQLite's write lock already sees to it.
    LOCK_MIGRATIONS = "SELECT pg_advisory_xact_lock(4848271)::TEXT" | "SELECT '4848271'";

    /// Waits until every writer of movements has finished, and lets none begin until this transaction ends.
    /// Afterwards no id at or below the highest can still appear. SQLite has one writer: this one.
    BARRIER_MOVEMENTS = "LOCK TABLE movements IN SHARE MODE" | "SELECT 1";

    /// New writers queue behind the barrier while it waits for the open ones. It gives up soon, lets them through, and
    /// is tried again.
    BARRIER_PATIENCE = "SET LOCAL lock_timeout = '200ms'" | "SELECT 1";

    /// Every unique index that is there and valid: its table, its columns in their order, and whether it leaves rows out.
    /// In SQLite a table's own INTEGER PRIMARY KEY is unique without an index.
    READ_UNIQUE_INDEXES = "SELECT t.relname::TEXT, string_agg(a.attname::TEXT, ', ' ORDER BY k.place), i.indpred IS NOT NULL
        FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
            CROSS JOIN LATERAL unnest(i.indkey::INT2[]) WITH ORDINALITY AS k(number, place)
            JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number
        WHERE pg_table_is_visible(t.oid) AND k.place <= i.indnkeyatts AND i.indisunique AND i.indisvalid
            AND i.indisready AND i.indimmediate
        GROUP BY i.indexrelid, t.relname, i.indpred IS NOT NULL"
        | "SELECT o.tbl, group_concat(o.name, ', '), o.partial <> 0 FROM (
            SELECT t.name AS tbl, i.name AS idx, i.partial, c.name
            FROM sqlite_schema t JOIN pragma_index_list(t.name) i JOIN pragma_index_info(i.name) c
            WHERE t.type = 'table' AND i.\"unique\" ORDER BY i.name, c.seqno) AS o
        GROUP BY o.idx
        UNION ALL SELECT t.name, c.name, FALSE FROM sqlite_schema t JOIN pragma_table_info(t.name) c
        WHERE t.type = 'table' AND c.pk = 1 AND upper(c.type) = 'INTEGER'
            AND (SELECT COUNT(*) FROM pragma_table_info(t.name) k WHERE k.pk > 0) = 1";

    /// A server that has become a standby still answers every question.
    READ_IS_READ_ONLY = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'"
        | "SELECT FALSE";

    /// For the rest of this transaction: read whole tables, and join by hashing them, never row by row. A freshly
    /// filled table has no statistics yet, and the planner's guess could then take hours. SQLite joins by index.
    PREFER_ONE_PASS = "SELECT set_config('enable_nestloop', 'off', true) || set_config('enable_seqscan', 'on', true)
            || set_config('enable_hashjoin', 'on', true) || set_config('plan_cache_mode', 'auto', true)"
        | "SELECT ''";

    /// Node numbers are lent by one process at a time.
    LOCK_NODES = "SELECT pg_advisory_xact_lock(4848272)::TEXT" | "SELECT '4848272'";

    /// All changes of a wallet's transactions wait in one line. SQLite's write lock already sees to it.
    LOCK_UTXOS = "SELECT pg_advisory_xact_lock(4848273)::TEXT" | "SELECT '4848273'";

    /// Users' wallets get their ids one transaction after the other, so that no lower id appears after a higher one was seen.
    /// SQLite's write lock already sees to it.
    LOCK_USER_WALLETS = "SELECT pg_advisory_xact_lock(4848279)::TEXT" | "SELECT '4848279'";

    /// Selections that others kept taking the outputs from, one at a time for each wallet.
    LOCK_SELECTIONS = "SELECT pg_advisory_xact_lock(4848274, CAST($1 AS INTEGER))::TEXT" | "SELECT CAST($1 AS TEXT)";
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
