//! A SQLite file that another program has written, read as it stands. It is here because drivers of databases are; what
//! its tables and columns mean is the caller's business.
//!
//! **The file is never changed**: it is opened read-only.

use std::io::Read;
use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Connection, Row};

#[derive(Debug, thiserror::Error)]
pub enum SqliteFileError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] std::io::Error),
    #[error("it is not a SQLite file")]
    NotSqlite,
    #[error(
        "another program has it open, or was stopped while it wrote: {0} is beside it; open and close the wallet there first"
    )]
    InUse(String),
    #[error("SQLite reads it no further: {0}")]
    Sqlite(#[source] sqlx::Error),
}

impl From<sqlx::Error> for SqliteFileError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// An open file, of which one state is read.
#[derive(Debug)]
pub struct SqliteFile(SqliteConnection);

impl SqliteFile {
    pub async fn open(path: &Path) -> Result<Self, SqliteFileError> {
        let immutable = check_header(path)?;
        let options = SqliteConnectOptions::new().filename(path).read_only(true).immutable(immutable);
        let mut connection = SqliteConnection::connect_with(&options).await?;
        sqlx::query("BEGIN").execute(&mut connection).await?;
        Ok(Self(connection))
    }

    pub async fn has_table(&mut self, name: &str) -> Result<bool, SqliteFileError> {
        let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = $1")
            .bind(name)
            .fetch_one(&mut self.0)
            .await?;
        Ok(tables > 0)
    }

    /// All rows that a query finds. The query is made of constants of the caller's source, and has no words of a user.
    pub async fn rows(&mut self, query: String) -> Result<Vec<SqliteFileRow>, SqliteFileError> {
        let rows = sqlx::query(AssertSqlSafe(query)).fetch_all(&mut self.0).await?;
        Ok(rows.into_iter().map(SqliteFileRow).collect())
    }

    pub async fn close(mut self) -> Result<(), SqliteFileError> {
        sqlx::query("ROLLBACK").execute(&mut self.0).await?;
        Ok(self.0.close().await?)
    }
}

/// Whether the file may be read without a look at its log. A log beside it holds newer rows, and reading it would
/// write.
fn check_header(path: &Path) -> Result<bool, SqliteFileError> {
    let mut header = [0; 20];
    let mut file = std::fs::File::open(path).map_err(SqliteFileError::Unreadable)?;
    if file.read_exact(&mut header).is_err() || !header.starts_with(b"SQLite format 3\0") {
        return Err(SqliteFileError::NotSqlite);
    }
    for suffix in ["-wal", "-journal"] {
        let mut beside = path.as_os_str().to_owned();
        beside.push(suffix);
        if std::fs::metadata(&beside).is_ok_and(|metadata| metadata.len() > 0) {
            return Err(SqliteFileError::InUse(beside.to_string_lossy().into_owned()));
        }
    }
    // Byte 18 is 2 when the file is kept with a write-ahead log; then even a reader makes files beside it.
    Ok(header[18] == 2)
}

/// One row. A value of another type than the one asked for is an error, which says so.
#[derive(Debug)]
pub struct SqliteFileRow(SqliteRow);

impl SqliteFileRow {
    pub fn text(&self, column: usize) -> Result<String, SqliteFileError> {
        Ok(self.0.try_get(column)?)
    }

    pub fn optional_text(&self, column: usize) -> Result<Option<String>, SqliteFileError> {
        Ok(self.0.try_get(column)?)
    }

    pub fn integer(&self, column: usize) -> Result<i64, SqliteFileError> {
        Ok(self.0.try_get(column)?)
    }

    pub fn optional_integer(&self, column: usize) -> Result<Option<i64>, SqliteFileError> {
        Ok(self.0.try_get(column)?)
    }

    pub fn optional_bytes(&self, column: usize) -> Result<Option<Vec<u8>>, SqliteFileError> {
        Ok(self.0.try_get(column)?)
    }
}
