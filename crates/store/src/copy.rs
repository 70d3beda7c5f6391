//! A whole database, copied to an empty one on either engine.
//!
//! Every table of the schema is copied, whatever it is: the tables and columns are read from the databases themselves, so that
//! one that is added later is copied too. That is why the statements over tables are made here and are no constants.
//!
//! | it reads | it writes | it may never |
//! |---|---|---|
//! | every table of the source, which it holds still meanwhile | the empty target, in one transaction | leave a part behind: a crash leaves the target as empty as it was |

use std::collections::{BTreeMap, BTreeSet};

use domain::Timestamp;
use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Row as _};

use crate::db::{Db, Engine, Tx, TxInner};
use crate::error::StoreError;
use crate::migrate::MIGRATIONS;

statements! {
    READ_COLUMNS = "SELECT table_name::TEXT, column_name::TEXT, data_type::TEXT
        FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
        WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' AND table_name <> 'schema_migrations' AND is_generated = 'NEVER'"
        | "SELECT t.name, c.name, c.type FROM sqlite_schema t JOIN pragma_table_info(t.name) c
        WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND t.name <> 'schema_migrations'";
    /// Which table names rows of which other.
    READ_REFERENCES = "SELECT r.relname::TEXT, f.relname::TEXT FROM pg_constraint k
        JOIN pg_class r ON r.oid = k.conrelid JOIN pg_class f ON f.oid = k.confrelid
        WHERE k.contype = 'f' AND k.connamespace = current_schema()::regnamespace"
        | "SELECT t.name, f.\"table\" FROM sqlite_schema t JOIN pragma_foreign_key_list(t.name) f WHERE t.type = 'table'";
    /// What the triggers have done is in the rows already. PostgreSQL lets those of a table rest; SQLite makes each again.
    READ_TRIGGERS = "SELECT DISTINCT r.relname::TEXT, '' FROM pg_trigger g JOIN pg_class r ON r.oid = g.tgrelid
        WHERE NOT g.tgisinternal AND r.relnamespace = current_schema()::regnamespace"
        | "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'";
    /// How far the ids of each table have come. An id that was given once is not given again, even if its row is gone.
    READ_COUNTERS = "SELECT table_name::TEXT, column_name::TEXT,
            COALESCE(pg_sequence_last_value(pg_get_serial_sequence(quote_ident(table_name), column_name)::regclass), 0)
        FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES'"
        | "SELECT name, 'id', seq FROM sqlite_sequence";
    READ_LEASES = "SELECT holder, expires_at FROM nodes WHERE expires_at > $1 ORDER BY expires_at DESC";
}

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("the database could not be copied")]
    Store(#[from] StoreError),
    #[error("{holder} uses the source, until {until} at least")]
    SourceInUse { holder: String, until: Timestamp },
    #[error("the table {table} of the target has rows")]
    TargetNotEmpty { table: String },
    #[error("the table {table} is not the same on both sides: {what}")]
    Differs { table: String, what: String },
}

/// A table that was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedTable {
    pub table: String,
    pub rows: u64,
    /// Over all cells of all rows, in whatever order these come. Both sides have the same.
    pub checksum: u64,
}

/// Rows for one statement.
const BATCH: usize = 1_000;

/// A row as text, the same on both engines: numbers in digits, bytes in hexadecimal digits, truth as 0 and 1.
type Row = Vec<Option<String>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Bool,
    Text,
    Bytes,
}

/// Tables with their columns, both in the order of their names.
type Tables = BTreeMap<String, BTreeMap<String, Kind>>;

/// Copies everything from `source` to `target`, which have the same schema, and proves table by table that it did. The source is
/// held still meanwhile: others may read it, and none may write.
pub async fn copy(
    source: &Db,
    target: &Db,
    now: Timestamp,
    mut progress: impl FnMut(&str, u64),
) -> Result<Vec<CopiedTable>, CopyError> {
    let mut from = source.tries().begin().await?;
    let tables = tables(&mut from).await?;
    hold(&mut from, &tables, "SHARE").await?;
    if let Some((holder, until)) = fetch_optional!(&mut from, READ_LEASES => (String, i64), now.micros())? {
        return Err(CopyError::SourceInUse { holder, until: Timestamp::from_micros(until) });
    }
    let mut tries = target.tries();
    loop {
        let mut to = tries.begin().await?;
        let copied = copy_tables(&mut from, &mut to, &tables, &mut progress).await;
        match copied {
            // Dropped without a commit, the transaction leaves nothing behind.
            Err(error) => return Err(error),
            Ok(copied) => {
                if let Some(done) = tries.end(to, Ok(copied)).await {
                    return Ok(done?);
                }
            }
        }
    }
}

async fn copy_tables(
    from: &mut Tx,
    to: &mut Tx,
    tables: &Tables,
    progress: &mut impl FnMut(&str, u64),
) -> Result<Vec<CopiedTable>, CopyError> {
    let wanted = self::tables(to).await?;
    check_same(tables, &wanted)?;
    hold(to, &wanted, "ACCESS EXCLUSIVE").await?;
    let triggers = fetch_all!(to, READ_TRIGGERS => (String, String))?;
    for (name, _) in &triggers {
        run(
            to,
            match to.engine() {
                Engine::Postgres => format!("ALTER TABLE \"{name}\" DISABLE TRIGGER USER"),
                Engine::Sqlite => format!("DROP TRIGGER \"{name}\""),
            },
        )
        .await?;
    }
    empty(to, &wanted).await?;
    let mut copied = Vec::new();
    for table in ordered(&wanted, &fetch_all!(to, READ_REFERENCES => (String, String))?) {
        let (Some(there), Some(here)) = (tables.get(&table), wanted.get(&table)) else { continue };
        let insert = insert(to.engine(), &table, here);
        let mut sent = CopiedTable { table: table.clone(), rows: 0, checksum: 0 };
        let reading = select(from.engine(), &table, there);
        each_batch(from, reading, there.len(), async |rows| {
            sent.add(rows);
            let json = serde_json::to_string(rows).map_err(|error| differs(&table, error))?;
            run_with(to, &insert, json).await?;
            progress(&table, sent.rows);
            Ok(())
        })
        .await?;
        let mut arrived = CopiedTable { table: table.clone(), rows: 0, checksum: 0 };
        let reading = select(to.engine(), &table, here);
        each_batch(to, reading, here.len(), async |rows| {
            arrived.add(rows);
            Ok(())
        })
        .await?;
        if sent != arrived {
            let what = format!(
                "{} rows, checksum {:x}, became {} rows, {:x}",
                sent.rows, sent.checksum, arrived.rows, arrived.checksum
            );
            return Err(differs(&table, what));
        }
        copied.push(sent);
    }
    carry_counters(from, to).await?;
    for (name, text) in triggers {
        run(
            to,
            match to.engine() {
                Engine::Postgres => format!("ALTER TABLE \"{name}\" ENABLE TRIGGER USER"),
                Engine::Sqlite => text,
            },
        )
        .await?;
    }
    copied.sort_by(|a, b| a.table.cmp(&b.table));
    Ok(copied)
}

impl CopiedTable {
    fn add(&mut self, rows: &[Row]) {
        for row in rows {
            let mut bytes = Vec::new();
            for cell in row {
                match cell {
                    None => bytes.push(0),
                    Some(text) => {
                        bytes.push(1);
                        bytes.extend_from_slice(&text.len().to_le_bytes());
                        bytes.extend_from_slice(text.as_bytes());
                    }
                }
            }
            self.rows += 1;
            self.checksum = self.checksum.wrapping_add(u64::from(crc32c::crc32c(&bytes)));
        }
    }
}

fn differs(table: &str, what: impl std::fmt::Display) -> CopyError {
    CopyError::Differs { table: table.to_owned(), what: what.to_string() }
}

async fn tables(tx: &mut Tx) -> Result<Tables, CopyError> {
    let mut tables = Tables::new();
    for (table, column, kind) in fetch_all!(tx, READ_COLUMNS => (String, String, String))? {
        let kind = match kind.to_ascii_uppercase().as_str() {
            "BIGINT" | "INTEGER" => Kind::Int,
            "BOOLEAN" => Kind::Bool,
            "TEXT" => Kind::Text,
            "BYTEA" | "BLOB" => Kind::Bytes,
            other => return Err(differs(&table, format!("{column} is of the type {other}, which is not copied"))),
        };
        tables.entry(table).or_default().insert(column, kind);
    }
    Ok(tables)
}

fn check_same(source: &Tables, target: &Tables) -> Result<(), CopyError> {
    let names =
        |tables: &Tables, table: &String| tables.get(table).map(|columns| columns.keys().cloned().collect::<Vec<_>>());
    let all: BTreeSet<&String> = source.keys().chain(target.keys()).collect();
    match all.into_iter().find(|table| names(source, table) != names(target, table)) {
        None => Ok(()),
        Some(table) => Err(differs(table, "it has other columns, or is not there")),
    }
}

/// Lets no other transaction write, or none at all come near. SQLite's write lock is one lock for everything.
async fn hold(tx: &mut Tx, tables: &Tables, mode: &str) -> Result<(), StoreError> {
    if tx.engine() == Engine::Postgres && !tables.is_empty() {
        let names: Vec<String> = tables.keys().map(|table| format!("\"{table}\"")).collect();
        run(tx, format!("LOCK TABLE {} IN {mode} MODE", names.join(", "))).await?;
    }
    Ok(())
}

/// Refuses a target that has been used. What a migration itself has put there makes room for what the source has.
async fn empty(tx: &mut Tx, tables: &Tables) -> Result<(), CopyError> {
    let engine = tx.engine();
    for (table, columns) in tables {
        let mut found = false;
        let reading = format!("{} LIMIT 1", select(engine, table, columns));
        each_batch(tx, reading, columns.len(), async |_| {
            found = true;
            Ok(())
        })
        .await?;
        let made = |text: &str| text.contains(&format!("INSERT INTO {table} "));
        if found && !MIGRATIONS.iter().any(|migration| made(migration.text(engine))) {
            return Err(CopyError::TargetNotEmpty { table: table.clone() });
        }
        if found {
            run(tx, format!("DELETE FROM \"{table}\"")).await?;
        }
    }
    Ok(())
}

/// Every table behind those whose rows it names.
fn ordered(tables: &Tables, references: &[(String, String)]) -> Vec<String> {
    let mut rest: BTreeSet<&String> = tables.keys().collect();
    let mut order = Vec::new();
    while !rest.is_empty() {
        let waits = |table: &String| references.iter().any(|(of, to)| of == table && to != table && rest.contains(to));
        // Tables that name each other in a ring would have to be told apart by hand; the database then refuses the first row.
        let next = rest.iter().copied().find(|table| !waits(table)).or_else(|| rest.first().copied());
        let Some(next) = next else { break };
        rest.remove(next);
        order.push(next.clone());
    }
    order
}

fn select(engine: Engine, table: &str, columns: &BTreeMap<String, Kind>) -> String {
    let cells: Vec<String> = columns
        .iter()
        .map(|(name, kind)| match (kind, engine) {
            (Kind::Int, _) => format!("CAST(\"{name}\" AS TEXT)"),
            (Kind::Bool, _) => format!("CAST(CAST(\"{name}\" AS INTEGER) AS TEXT)"),
            (Kind::Text, _) => format!("\"{name}\""),
            (Kind::Bytes, Engine::Postgres) => format!("encode(\"{name}\", 'hex')"),
            // SQLite takes no bytes and the absence of bytes for the same.
            (Kind::Bytes, Engine::Sqlite) => {
                format!("CASE WHEN \"{name}\" IS NOT NULL THEN lower(hex(\"{name}\")) END")
            }
        })
        .collect();
    format!("SELECT {} FROM \"{table}\"", cells.join(", "))
}

fn insert(engine: Engine, table: &str, columns: &BTreeMap<String, Kind>) -> String {
    let names: Vec<String> = columns.keys().map(|name| format!("\"{name}\"")).collect();
    let cells: Vec<String> = columns
        .values()
        .enumerate()
        .map(|(at, kind)| match (kind, engine) {
            (Kind::Int, _) => format!("CAST(value ->> {at} AS BIGINT)"),
            (Kind::Bool, _) => format!("CAST(CAST(value ->> {at} AS INTEGER) AS BOOLEAN)"),
            (Kind::Text, _) => format!("value ->> {at}"),
            (Kind::Bytes, Engine::Postgres) => format!("decode(value ->> {at}, 'hex')"),
            (Kind::Bytes, Engine::Sqlite) => format!("unhex(value ->> {at})"),
        })
        .collect();
    let rows = match engine {
        Engine::Postgres => "json_array_elements(CAST($1 AS JSON)) AS r(value)",
        Engine::Sqlite => "json_each($1)",
    };
    format!("INSERT INTO \"{table}\" ({}) SELECT {} FROM {rows}", names.join(", "), cells.join(", "))
}

async fn each_batch(
    tx: &mut Tx,
    sql: String,
    width: usize,
    mut take: impl AsyncFnMut(&[Row]) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    tx.next_statement().await?;
    macro_rules! read {
        ($tx:expr) => {{
            let mut rows = sqlx::query(AssertSqlSafe(sql)).fetch(&mut **$tx);
            let mut batch: Vec<Row> = Vec::new();
            while let Some(row) = rows.try_next().await.map_err(StoreError::from)? {
                let cells = (0..width).map(|at| row.try_get::<Option<String>, _>(at)).collect::<Result<Row, _>>();
                batch.push(cells.map_err(StoreError::from)?);
                if batch.len() == BATCH {
                    take(&batch).await?;
                    batch.clear();
                }
            }
            if batch.is_empty() { Ok(()) } else { take(&batch).await }
        }};
    }
    match &mut tx.inner {
        TxInner::Postgres(tx) => read!(tx),
        TxInner::Sqlite(tx) => read!(tx),
    }
}

async fn run(tx: &mut Tx, sql: String) -> Result<(), StoreError> {
    tx.next_statement().await?;
    match &mut tx.inner {
        TxInner::Postgres(tx) => sqlx::query(AssertSqlSafe(sql)).execute(&mut **tx).await.map(|_| ())?,
        TxInner::Sqlite(tx) => sqlx::query(AssertSqlSafe(sql)).execute(&mut **tx).await.map(|_| ())?,
    }
    Ok(())
}

async fn run_with(tx: &mut Tx, sql: &str, json: String) -> Result<(), StoreError> {
    tx.next_statement().await?;
    let sql = AssertSqlSafe(sql.to_owned());
    match &mut tx.inner {
        TxInner::Postgres(tx) => sqlx::query(sql).bind(json).execute(&mut **tx).await.map(|_| ())?,
        TxInner::Sqlite(tx) => sqlx::query(sql).bind(json).execute(&mut **tx).await.map(|_| ())?,
    }
    Ok(())
}

/// The next id of every table comes behind the last one that the source has given.
async fn carry_counters(from: &mut Tx, to: &mut Tx) -> Result<(), StoreError> {
    let given: BTreeMap<String, i64> = fetch_all!(from, READ_COUNTERS => (String, String, i64))?
        .into_iter()
        .map(|(table, _, last)| (table, last))
        .collect();
    match to.engine() {
        Engine::Postgres => {
            for (table, column, _) in fetch_all!(to, READ_COUNTERS => (String, String, i64))? {
                let last = given.get(&table).copied().unwrap_or(0);
                let highest = format!("(SELECT COALESCE(MAX(\"{column}\"), 0) FROM \"{table}\")");
                run(
                    to,
                    format!(
                        "SELECT setval(pg_get_serial_sequence('\"{table}\"', '{column}'), GREATEST({highest}, {last}))
                         WHERE GREATEST({highest}, {last}) > 0"
                    ),
                )
                .await?;
            }
        }
        Engine::Sqlite => {
            for (table, last) in given.into_iter().filter(|(_, last)| *last > 0) {
                run(to, format!("UPDATE sqlite_sequence SET seq = MAX(seq, {last}) WHERE name = '{table}'")).await?;
                run(
                    to,
                    format!(
                        "INSERT INTO sqlite_sequence (name, seq) SELECT name, {last} FROM sqlite_schema
                         WHERE name = '{table}' AND sql LIKE '%AUTOINCREMENT%'
                             AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '{table}')"
                    ),
                )
                .await?;
            }
        }
    }
    Ok(())
}
