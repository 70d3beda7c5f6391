//! SQL as constants, run on either engine.
//!
//! A [`Sql`] is written once in the portable subset, or as a pair where the engines differ. A [`RowsSql`] takes
//! many rows at once. The macros count the binds when the code is compiled: SQLite binds NULL for a forgotten one
//! without a word.

use std::sync::{Arc, OnceLock};

use crate::db::{Engine, Tx};
use crate::dialect;
use crate::error::StoreError;

/// One statement, with its text for each engine.
#[derive(Clone, Copy, Debug)]
pub struct Sql {
    pub name: &'static str,
    pub postgres: &'static str,
    pub sqlite: &'static str,
    pub binds: usize,
}

impl Sql {
    /// The same text on both engines.
    pub const fn portable(name: &'static str, text: &'static str) -> Self {
        Self { name, postgres: text, sqlite: text, binds: count_binds(text) }
    }

    /// Where the engines differ. Both take the same binds.
    pub const fn pair(name: &'static str, postgres: &'static str, sqlite: &'static str) -> Self {
        assert!(count_binds(postgres) == count_binds(sqlite), "both texts take the same binds");
        Self { name, postgres, sqlite, binds: count_binds(postgres) }
    }
}

/// The highest `$n` of a text.
const fn count_binds(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut highest, mut at) = (0, 0);
    while at < bytes.len() {
        if bytes[at] == b'$' {
            let mut number = 0;
            while at + 1 < bytes.len() && bytes[at + 1].is_ascii_digit() {
                number = number * 10 + (bytes[at + 1] - b'0') as usize;
                at += 1;
            }
            if number > highest {
                highest = number;
            }
        }
        at += 1;
    }
    highest
}

/// A statement over many rows at once: `{rows}` in its text stands for them, as a table `r` with the columns
/// listed; `{join}` joins what is found by them, `{lock}` keeps the rows `u` as they are. One round trip, whatever the number of rows.
#[derive(Debug)]
pub struct RowsSql {
    pub name: &'static str,
    template: &'static str,
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
        Self { name, template, columns, rendered: OnceLock::new() }
    }

    pub fn text(&self, engine: Engine) -> Arc<str> {
        let render = |engine| self.render(engine, 0).into();
        let [postgres, sqlite] = self.rendered.get_or_init(|| [render(Engine::Postgres), render(Engine::Sqlite)]);
        match engine {
            Engine::Postgres => postgres.clone(),
            Engine::Sqlite => sqlite.clone(),
        }
    }

    /// With its binds numbered from after so many others.
    pub(crate) fn render(&self, engine: Engine, after: usize) -> String {
        let text = self.template.replace("{rows}", &dialect::rows(engine, self.columns, after));
        text.replace("{join}", dialect::join(engine)).replace("{lock}", dialect::lock(engine))
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

/// Runs a [`RowsSql`] and says how many rows it changed.
pub async fn execute_rows(tx: &mut Tx, sql: &RowsSql, columns: Vec<Column<'_>>) -> Result<u64, StoreError> {
    sql.check(&columns)?;
    dialect::execute_rows(tx, sql, columns).await
}

/// Runs a [`RowsSql`] that reads.
pub(crate) async fn fetch_rows<R: dialect::FromEitherRow>(
    tx: &mut Tx,
    sql: &RowsSql,
    columns: Vec<Column<'_>>,
) -> Result<Vec<R>, StoreError> {
    sql.check(&columns)?;
    dialect::fetch_rows(tx, sql, columns).await
}

/// What a transaction is about to write: statements over many rows, none of which looks at what another one writes. On
/// PostgreSQL they go in one round trip.
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
        let written = dialect::execute_writes(tx, writes).await?;
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

/// Declares statements, and lists them all for the test that prepares each one on both engines.
macro_rules! statements {
    ($(
        $(#[$doc:meta])*
        $name:ident = $text:literal $(| $sqlite:literal)?;
    )*) => {
        $(
            $(#[$doc])*
            pub(crate) const $name: $crate::sql::Sql = statements!(@one $name $text $(| $sqlite)?);
        )*
        #[cfg(feature = "testing")]
        pub(crate) const STATEMENTS: &[$crate::sql::Sql] = &[$($name),*];
    };
    (@one $name:ident $text:literal) => { $crate::sql::Sql::portable(stringify!($name), $text) };
    (@one $name:ident $postgres:literal | $sqlite:literal) => {
        $crate::sql::Sql::pair(stringify!($name), $postgres, $sqlite)
    };
}

/// `run!(tx, STATEMENT, query function, method, bind, …)`: the binds are counted against the statement when this is compiled.
macro_rules! run {
    ($tx:expr, $sql:path, $query:expr, $how:ident $(, $bind:expr)*) => {{
        const {
            assert!($sql.binds == <[&str]>::len(&[$(stringify!($bind)),*]), "as many binds as the statement takes");
        }
        let tx: &mut $crate::db::Tx = $tx;
        match tx.next_statement().await {
            Err(error) => Err(error),
            Ok(()) => match &mut tx.inner {
            $crate::db::TxInner::Postgres(tx) => {
                $query($sql.postgres)$(.bind($bind))*.$how(&mut **tx).await.map_err($crate::error::StoreError::from)
            }
            $crate::db::TxInner::Sqlite(tx) => {
                $query($sql.sqlite)$(.bind($bind))*.$how(&mut **tx).await.map_err($crate::error::StoreError::from)
            }
            },
        }
    }};
}

/// Rows changed.
macro_rules! execute {
    ($tx:expr, $sql:path $(, $bind:expr)*) => {{
        const {
            assert!($sql.binds == <[&str]>::len(&[$(stringify!($bind)),*]), "as many binds as the statement takes");
        }
        let tx: &mut $crate::db::Tx = $tx;
        match tx.next_statement().await {
            Err(error) => Err(error),
            Ok(()) => match &mut tx.inner {
            $crate::db::TxInner::Postgres(tx) => sqlx::query($sql.postgres)$(.bind($bind))*
                .execute(&mut **tx).await.map(|done| done.rows_affected()),
            $crate::db::TxInner::Sqlite(tx) => sqlx::query($sql.sqlite)$(.bind($bind))*
                .execute(&mut **tx).await.map(|done| done.rows_affected()),
            }.map_err($crate::error::StoreError::from),
        }
    }};
}

/// All rows, as `$Row`.
macro_rules! fetch_all {
    ($tx:expr, $sql:path => $Row:ty $(, $bind:expr)*) => {
        run!($tx, $sql, sqlx::query_as::<_, $Row>, fetch_all $(, $bind)*)
    };
}

/// The first row, if any, as `$Row`.
macro_rules! fetch_optional {
    ($tx:expr, $sql:path => $Row:ty $(, $bind:expr)*) => {
        run!($tx, $sql, sqlx::query_as::<_, $Row>, fetch_optional $(, $bind)*)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_are_counted_by_their_highest_number() {
        assert_eq!(count_binds("SELECT 1"), 0);
        assert_eq!(count_binds("SELECT $1, $2, $1"), 2);
        assert_eq!(count_binds("SELECT $12 WHERE a = $3"), 12);
    }

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
