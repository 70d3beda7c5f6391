//! Statements over many rows at once, in one round trip.
//!
//! PostgreSQL gets one array for each column of the rows (`UNNEST`), SQLite one JSON text with all rows (`json_each`).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use sqlx::AssertSqlSafe;

use crate::db::{Engine, Tx, TxInner};
use crate::dialect;
use crate::error::StoreError;
use crate::template;

/// A statement over many rows at once: `{rows}` in its text stands for them, as a table `r` with the columns named
/// here. One round trip, however many rows there are. The other placeholders are those of `template`.
#[derive(Debug)]
pub struct RowsSql {
    pub name: &'static str,
    template: &'static str,
    /// What `{columns}` stands for; empty if the text does not have it.
    listed: &'static str,
    /// Of the rows that are given.
    columns: &'static [(&'static str, ColumnType)],
    rendered: OnceLock<[Arc<str>; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    Int,
    Text,
    Bytes,
}

/// One column of the rows, by value.
#[derive(Debug)]
pub enum Column<'a> {
    Ints(Vec<i64>),
    OptionalInts(Vec<Option<i64>>),
    Bytes(Vec<Vec<u8>>),
    OptionalBytes(Vec<Option<Vec<u8>>>),
    Texts(Vec<&'a str>),
    OptionalTexts(Vec<Option<&'a str>>),
    Strings(Vec<String>),
    OptionalStrings(Vec<Option<String>>),
}

impl Column<'_> {
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Ints(values) => values.len(),
            Self::OptionalInts(values) => values.len(),
            Self::Bytes(values) => values.len(),
            Self::OptionalBytes(values) => values.len(),
            Self::Texts(values) => values.len(),
            Self::OptionalTexts(values) => values.len(),
            Self::Strings(values) => values.len(),
            Self::OptionalStrings(values) => values.len(),
        }
    }

    const fn fits(&self, column_type: ColumnType) -> bool {
        match self {
            Self::Ints(_) | Self::OptionalInts(_) => matches!(column_type, ColumnType::Int),
            Self::Bytes(_) | Self::OptionalBytes(_) => matches!(column_type, ColumnType::Bytes),
            Self::Texts(_) | Self::OptionalTexts(_) | Self::Strings(_) | Self::OptionalStrings(_) => {
                matches!(column_type, ColumnType::Text)
            }
        }
    }
}

impl RowsSql {
    pub const fn new(
        name: &'static str,
        template: &'static str,
        columns: &'static [(&'static str, ColumnType)],
    ) -> Self {
        Self::listing(name, template, "", columns)
    }

    /// One whose text has `{columns}`.
    pub const fn listing(
        name: &'static str,
        template: &'static str,
        listed: &'static str,
        columns: &'static [(&'static str, ColumnType)],
    ) -> Self {
        // An unknown placeholder stops the compiler here.
        assert!(template::length(template, listed, Engine::Postgres) > 0);
        Self { name, template, listed, columns, rendered: OnceLock::new() }
    }

    pub fn text(&self, engine: Engine) -> Arc<str> {
        let render = |engine| self.render(engine, 0).into();
        let [postgres, sqlite] = self.rendered.get_or_init(|| [render(Engine::Postgres), render(Engine::Sqlite)]);
        match engine {
            Engine::Postgres => postgres.clone(),
            Engine::Sqlite => sqlite.clone(),
        }
    }

    /// With its binds numbered after so many others.
    pub(crate) fn render(&self, engine: Engine, after: usize) -> String {
        template::render_string(self.template, self.listed, engine)
            .replace("{rows}", &dialect::rows(engine, self.columns, after))
    }

    pub(crate) const fn bind_count(&self) -> usize {
        self.columns.len()
    }

    /// Wrong columns are a bug of the caller; found before the statement is sent.
    pub(crate) fn check(&self, columns: &[Column<'_>]) -> Result<(), StoreError> {
        let same_length = columns.windows(2).all(|pair| pair[0].len() == pair[1].len());
        let fit = columns.len() == self.columns.len()
            && columns.iter().zip(self.columns).all(|(column, (_, column_type))| column.fits(*column_type));
        if same_length && fit { Ok(()) } else { Err(StoreError::Arity { statement: self.name }) }
    }
}

/// A type that can be read from a row of either engine.
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

/// Runs a [`RowsSql`] and says how many rows it changed.
pub async fn execute_rows(tx: &mut Tx, sql: &RowsSql, columns: Vec<Column<'_>>) -> Result<u64, StoreError> {
    sql.check(&columns)?;
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

/// Runs a [`RowsSql`] that reads.
pub(crate) async fn fetch_rows<R: FromEitherRow>(
    tx: &mut Tx,
    sql: &RowsSql,
    columns: Vec<Column<'_>>,
) -> Result<Vec<R>, StoreError> {
    sql.check(&columns)?;
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

pub(crate) fn hex(bytes: &[u8]) -> String {
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

/// The writes that a transaction has collected: statements over many rows, none of which reads rows that another one
/// writes. On PostgreSQL they go in one round trip.
#[derive(Debug, Default)]
pub struct Writes(Vec<Write>);

#[derive(Debug)]
pub(crate) struct Write {
    pub sql: &'static RowsSql,
    pub columns: Vec<Column<'static>>,
    /// How many rows it must write, and of what.
    pub expected: (usize, &'static str),
}

impl Writes {
    pub(crate) fn add(&mut self, sql: &'static RowsSql, columns: Vec<Column<'static>>, what: &'static str) {
        let count = columns.first().map_or(0, Column::len);
        if count > 0 {
            self.0.push(Write { sql, columns, expected: (count, what) });
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes all of it, or says why nothing may be committed. Leaves none behind.
    pub async fn run(&mut self, tx: &mut Tx) -> Result<(), StoreError> {
        let writes = std::mem::take(&mut self.0);
        for write in &writes {
            write.sql.check(&write.columns)?;
        }
        let expected: Vec<(usize, &str)> = writes.iter().map(|write| write.expected).collect();
        let written = execute_writes(tx, writes).await?;
        for (written, (count, what)) in written.into_iter().zip(expected) {
            expect_rows(written, count, what)?;
        }
        Ok(())
    }
}

/// A batch that wrote more or fewer rows than it meant to must not be committed.
pub(crate) fn expect_rows(written: u64, expected: usize, what: &str) -> Result<(), StoreError> {
    if usize::try_from(written) == Ok(expected) {
        Ok(())
    } else {
        Err(StoreError::Corrupt { what: format!("wrote {written} {what} instead of {expected}") })
    }
}

/// Runs all of them, and says how many rows each has written. PostgreSQL takes them as one statement: each is a part of
/// it that is carried out whatever the others do. SQLite is in this process, where a round trip costs nothing.
async fn execute_writes(tx: &mut Tx, writes: Vec<Write>) -> Result<Vec<u64>, StoreError> {
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

/// `WITH w0 AS (… RETURNING 1), w1 AS (…) SELECT ARRAY[(SELECT COUNT(*) FROM w0), …]`. Made once for each selection:
/// the server knows a statement by its text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_ragged_or_wrong_columns_are_refused() {
        static SQL: RowsSql =
            RowsSql::new("test", "SELECT * FROM {rows}", &[("a", ColumnType::Int), ("b", ColumnType::Text)]);
        assert!(SQL.check(&[Column::Ints(vec![1]), Column::Texts(vec!["x"])]).is_ok());
        assert!(SQL.check(&[Column::Ints(vec![1]), Column::Texts(vec![])]).is_err());
        assert!(SQL.check(&[Column::Ints(vec![1])]).is_err());
        assert!(SQL.check(&[Column::Texts(vec!["x"]), Column::Texts(vec!["x"])]).is_err());
    }
}
