//! SQL as constants, run on either engine.
//!
//! A [`Sql`] is written once, with placeholders (`template`) where the engines differ in a word, or as a pair
//! where they differ in more. The macros count the binds when the code is compiled: SQLite binds NULL for a forgotten
//! one without a word.

/// One statement, with its text for each engine.
#[derive(Clone, Copy, Debug)]
pub struct Sql {
    pub name: &'static str,
    pub postgres: &'static str,
    pub sqlite: &'static str,
    pub binds: usize,
}

impl Sql {
    /// Both texts take the same binds.
    pub const fn new(name: &'static str, postgres: &'static str, sqlite: &'static str) -> Self {
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

/// Declares statements, and lists them all for the test that prepares each one on both engines.
///
/// `NAME = "text";`, with a list for `{columns}`: `NAME(COLUMNS) = "text";`, and where the engines differ in more than
/// placeholders can say: `NAME = "text for PostgreSQL" | "text for SQLite";`
macro_rules! statements {
    ($(
        $(#[$doc:meta])*
        $name:ident $(($columns:path))? = $text:literal $(| $sqlite:literal)?;
    )*) => {
        $(
            $(#[$doc])*
            pub(crate) const $name: $crate::sql::Sql = {
                use $crate::db::Engine::{Postgres, Sqlite};
                use $crate::template::{length, render, text};
                const LISTED: &str = statements!(@columns $($columns)?);
                const FOR_SQLITE: &str = statements!(@sqlite $text $($sqlite)?);
                const POSTGRES: [u8; length($text, LISTED, Postgres)] = render($text, LISTED, Postgres);
                const SQLITE: [u8; length(FOR_SQLITE, LISTED, Sqlite)] = render(FOR_SQLITE, LISTED, Sqlite);
                $crate::sql::Sql::new(stringify!($name), text(&POSTGRES), text(&SQLITE))
            };
        )*
        #[cfg(feature = "testing")]
        pub(crate) const STATEMENTS: &[$crate::sql::Sql] = &[$($name),*];
    };
    (@columns) => { "" };
    (@columns $columns:path) => { $columns };
    (@sqlite $text:literal) => { $text };
    (@sqlite $text:literal $sqlite:literal) => { $sqlite };
}

/// `run!(tx, STATEMENT, query function, method, bind, …)`: the binds are counted against the statement when this is
/// compiled.
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

/// Reads a struct from a row by the names of its columns. sqlx can derive this, but what derives it is built for the
/// compiler's own use with both drivers, and with SQLite's C once more.
macro_rules! from_row {
    ($Row:ident { $($field:ident = $column:literal),* $(,)? }) => {
        impl<'r, R: sqlx::Row> sqlx::FromRow<'r, R> for $Row
        where
            &'static str: sqlx::ColumnIndex<R>,
            i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
            bool: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
            Option<i64>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
            String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
            Option<String>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
        {
            fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
                Ok(Self { $($field: row.try_get($column)?),* })
            }
        }
    };
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
}
