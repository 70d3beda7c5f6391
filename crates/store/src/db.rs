//! `Db`, a database of either engine, and `Tx`, a transaction on it.

mod pools;
mod url;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use domain::random::Random;
use domain::{AccountId, AssetId};
#[cfg(feature = "lab")]
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, PgConnection, Postgres, SqlStr, Sqlite, Transaction};
use tokio::runtime::Handle;

use crate::dialect;
use crate::error::StoreError;
use crate::faults::{Faults, Point};
#[cfg(feature = "lab")]
use crate::sql::Sql;
use crate::utxo::lease_queue::LeaseQueue;
use crate::utxo::watch::Watch;

pub use pools::PoolUse;
pub(crate) use url::parse_postgres;
use url::parse_sqlite;
pub use url::{NamedFile, describe_url, files_of_url, percent_encoded, resolve_url, sqlite_url};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Postgres,
    Sqlite,
}

impl Engine {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        }
    }

    /// `sqlite:…`, `postgres:…` or `postgresql:…`
    pub fn of_url(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub max_connections: u32,
    /// How long to wait for a connection before the database counts as unavailable.
    pub acquire_timeout: Duration,
    /// SQLite only: make the file, and the folder it is in, when there is none.
    pub create: bool,
    /// Spreads the retries of processes that got in each other's way.
    pub jitter_seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_connections: 16, acquire_timeout: Duration::from_secs(5), create: false, jitter_seed: 0 }
    }
}

/// Cheap to clone: all clones share the connections.
#[derive(Clone, Debug)]
pub struct Db {
    pub(crate) pools: Pools,
    jitter: Arc<AtomicU64>,
    faults: Option<Arc<dyn Faults>>,
    /// Selections of this process that are about to be leased.
    pub(crate) leases: Arc<LeaseQueue>,
    /// The assets of the system accounts that were met. They never change, and the accounts are always active.
    system: Arc<RwLock<HashMap<AccountId, AssetId>>>,
    /// What is known of the Bitcoin wallets without a question.
    watch: Watch,
}

#[derive(Clone, Debug)]
pub(crate) enum Pools {
    Postgres(PgPool),
    /// SQLite has one writer at a time. One connection for writing makes the others wait in line, first come
    /// first served, where its own busy loop would sleep and poll.
    Sqlite {
        writer: SqlitePool,
        reader: SqlitePool,
    },
}

/// A connection that was not used for this long may have died unnoticed.
const IDLE: Duration = Duration::from_millis(500);

/// How often a transaction is tried when others get in its way.
const MAX_TRIES: u32 = 12;

impl Db {
    pub async fn connect(url: &str, options: &Options) -> Result<Self, StoreError> {
        let pools = match Engine::of_url(url).ok_or(StoreError::BadUrl(None))? {
            Engine::Postgres => Pools::Postgres(connect_postgres(url, options).await?),
            Engine::Sqlite => connect_sqlite(url, options).await?,
        };
        let jitter = Arc::new(AtomicU64::new(options.jitter_seed));
        let (leases, system, watch) = (Arc::default(), Arc::default(), Watch::default());
        Ok(Self { pools, jitter, faults: None, leases, system, watch })
    }

    /// The same database, for a simulation that makes it fail.
    pub fn with_faults(&self, faults: Arc<dyn Faults>) -> Self {
        // What fails must not take along what others, who have no faults, wait for.
        Self { faults: Some(faults), leases: Arc::default(), ..self.clone() }
    }

    pub(crate) const fn watch(&self) -> &Watch {
        &self.watch
    }

    pub const fn engine(&self) -> Engine {
        match self.pools {
            Pools::Postgres(_) => Engine::Postgres,
            Pools::Sqlite { .. } => Engine::Sqlite,
        }
    }

    /// Closes all connections; on SQLite that also folds the write-ahead log into the file.
    pub async fn close(&self) {
        match &self.pools {
            Pools::Postgres(pool) => pool.close().await,
            Pools::Sqlite { writer, reader } => {
                reader.close().await;
                writer.close().await;
            }
        }
    }

    /// A transaction that sees one state of the database, whatever is written meanwhile. Drop it when done.
    pub async fn read(&self) -> Result<Tx, StoreError> {
        let [postgres, sqlite] = dialect::BEGIN_SNAPSHOT;
        let inner = match &self.pools {
            Pools::Postgres(pool) => TxInner::Postgres(begin_postgres(pool, postgres).await?),
            Pools::Sqlite { reader, .. } => TxInner::Sqlite(reader.begin_with(sqlite).await?),
        };
        Ok(Tx {
            inner,
            statements: 0,
            careful: true,
            faults: self.faults.clone(),
            system: Arc::clone(&self.system),
            opened: false,
        })
    }

    /// The tries of one piece of writing; [`transact!`](crate::transact) is how to use them.
    pub const fn tries(&self) -> Tries<'_> {
        Tries { db: self, attempt: 0 }
    }

    /// From now on the writer's connection finds no more room than a few pages: a disk that is nearly full.
    #[cfg(feature = "testing")]
    pub async fn limit_sqlite_pages(&self) {
        if let Pools::Sqlite { writer, .. } = &self.pools {
            let (pages,): (i64,) = sqlx::query_as("PRAGMA page_count").fetch_one(writer).await.expect("a count");
            let limit = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {}", pages + 8));
            sqlx::raw_sql(limit).execute(writer).await.expect("a limit");
        }
    }

    /// One statement with one number, committed by itself.
    #[cfg(feature = "lab")]
    pub(crate) async fn autocommit(&self, sql: &Sql, bind: i64) -> Result<(), StoreError> {
        match &self.pools {
            Pools::Postgres(pool) => sqlx::query(sql.postgres).bind(bind).execute(pool).await.map(|_| ()),
            Pools::Sqlite { writer, .. } => sqlx::query(sql.sqlite).bind(bind).execute(writer).await.map(|_| ()),
        }
        .map_err(StoreError::at_commit)
    }

    /// A connection that may write, with no transaction on it.
    #[cfg(feature = "lab")]
    pub(crate) async fn line(&self) -> Result<Line, StoreError> {
        Ok(match &self.pools {
            Pools::Postgres(pool) => Line::Postgres(pool.acquire().await?),
            Pools::Sqlite { writer, .. } => Line::Sqlite(writer.acquire().await?),
        })
    }

    async fn begin_write(&self, careful: bool) -> Result<Tx, StoreError> {
        let [postgres, sqlite] = dialect::BEGIN_WRITE;
        let inner = match &self.pools {
            Pools::Postgres(pool) => TxInner::Postgres(begin_postgres(pool, postgres).await?),
            Pools::Sqlite { writer, .. } => {
                TxInner::Sqlite(writer.begin_with(sqlite).await.map_err(|error| match error {
                    // All of them waited for the one writer: another process holds the file, or a batch takes very
                    // long.
                    sqlx::Error::PoolTimedOut => StoreError::Contention(error),
                    other => other.into(),
                })?)
            }
        };
        Ok(Tx {
            inner,
            statements: 0,
            careful,
            faults: self.faults.clone(),
            system: Arc::clone(&self.system),
            opened: false,
        })
    }

    /// Nothing to wait for when only the history was missing; else up to 2, 4, 8, … 256 ms, at random.
    async fn pause(&self, attempt: u32, error: &StoreError) {
        tracing::debug!(attempt, code = error.code(), "transaction tried again");
        if !matches!(error, StoreError::Contention(_)) && attempt == 1 {
            return;
        }
        // 2^64 divided by the golden ratio: seeds that follow each other are far apart.
        let seed = self.jitter.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let most_us = 1_000_u64 << attempt.min(8);
        tokio::time::sleep(Duration::from_micros(Random::from_seed(seed).below(most_us))).await;
    }
}

/// Runs the body in one transaction of `$db` and commits it; its value is a `Result`. When other writers get in the
/// way, all of it is undone and tried again after a short random pause, so the body must change nothing else.
///
/// A macro, because a closure that borrows its surroundings and a transaction cannot yet promise to be `Send`.
#[macro_export]
macro_rules! transact {
    ($db:expr, $tx:ident => $body:expr) => {{
        let mut tries = $db.tries();
        loop {
            let mut transaction = match tries.begin().await {
                Ok(transaction) => transaction,
                Err(error) => break Err(error),
            };
            let result: Result<_, $crate::StoreError> = {
                let $tx: &mut $crate::Tx = &mut transaction;
                async { $body }.await
            };
            if let Some(done) = tries.end(transaction, result).await {
                break done;
            }
        }
    }};
}

/// How often a piece of writing has been tried, and whether it is tried again.
#[derive(Debug)]
pub struct Tries<'a> {
    db: &'a Db,
    attempt: u32,
}

impl Tries<'_> {
    pub async fn begin(&mut self) -> Result<Tx, StoreError> {
        self.attempt += 1;
        self.db.begin_write(self.attempt > 1).await
    }

    /// Commits, or rolls back on an error. `None`: others got in the way, begin again.
    pub async fn end<T>(&mut self, tx: Tx, result: Result<T, StoreError>) -> Option<Result<T, StoreError>> {
        let result = match result {
            Ok(value) => tx.commit().await.map(|()| value),
            Err(error) => {
                tx.rollback().await;
                Err(error)
            }
        };
        match result {
            Err(error) if error.is_transient() && self.attempt < MAX_TRIES => {
                self.db.pause(self.attempt, &error).await;
                None
            }
            done => Some(done),
        }
    }
}

/// A connection outside any transaction: every statement on it commits by itself.
#[cfg(feature = "lab")]
#[derive(Debug)]
pub(crate) enum Line {
    Postgres(PoolConnection<Postgres>),
    Sqlite(PoolConnection<Sqlite>),
}

async fn connect_postgres(url: &str, options: &Options) -> Result<PgPool, StoreError> {
    let connect = parse_postgres(url)?
        .disable_statement_logging()
        .application_name("bursar")
        .options(dialect::POSTGRES_SETTINGS)
        // As on SQLite: more than there are. The default of 100 has a process with several roles parse and plan hundreds again and again.
        .statement_cache_capacity(1_000);
    // One plain connection first: its error says what is wrong, where the pool would only say that it waited.
    let first = tokio::time::timeout(options.acquire_timeout, PgConnection::connect_with(&connect)).await;
    first.map_err(|_| sqlx::Error::PoolTimedOut)??.close().await?;
    // A connection that was used just now is not asked again whether it is alive: that would cost every transaction a
    // round trip. One that is not breaks with an error, and the next try gets another.
    let pool = PgPoolOptions::new()
        .max_connections(options.max_connections)
        .acquire_timeout(options.acquire_timeout)
        .test_before_acquire(false)
        .before_acquire(|connection, usage| {
            Box::pin(async move {
                if usage.idle_for > IDLE {
                    connection.ping().await?;
                }
                Ok(!connection.is_in_transaction())
            })
        });
    Ok(pool.connect_with(connect).await?)
}

async fn begin_postgres(pool: &PgPool, begin: &'static str) -> Result<Transaction<'static, Postgres>, StoreError> {
    let connection = pool.acquire().await?;
    let begin = Transaction::begin(connection, Some(SqlStr::from_static(begin)));
    Ok(Beginning(Some(begin)).await?)
}

type Begun = Result<Transaction<'static, Postgres>, sqlx::Error>;

/// A `BEGIN` goes on to its end when its caller no longer waits: sqlx believes that one whose answer it did not see was
/// never sent, and would give the connection, in a transaction, to the next caller.
struct Beginning(Option<Pin<Box<dyn Future<Output = Begun> + Send>>>);

impl Future for Beginning {
    type Output = Begun;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Begun> {
        let Some(begin) = &mut self.0 else { return Poll::Pending };
        let polled = begin.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        // Where the runtime has ended, so have the connections.
        if let (Some(begin), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(begin);
        }
    }
}

async fn connect_sqlite(url: &str, options: &Options) -> Result<Pools, StoreError> {
    let connect = parse_sqlite(url)?
        .disable_statement_logging()
        .create_if_missing(options.create)
        .journal_mode(SqliteJournalMode::Wal)
        // An acknowledged commit is on disk.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        // 32 MB: the upper pages of a large wallet's indexes. The default of 2 MB reads them again and again.
        .pragma("cache_size", "-32768")
        // More than there are: whoever keeps books, pays and evaluates rules would have hundreds compiled again and again.
        .statement_cache_capacity(1_000)
        // Rows that SQLite's thread may be ahead of whoever reads them: at every stop the two wait for each other.
        .row_buffer_size(1_024)
        .busy_timeout(Duration::from_secs(10));
    if options.create
        && let Some(folder) = connect.get_filename().parent().map(PathBuf::from)
    {
        tokio::fs::create_dir_all(folder).await.map_err(|error| StoreError::Unavailable(error.into()))?;
        make_private(connect.get_filename()).await?;
    }
    // SQLite ends a transaction by itself when its commit fails (a full disk, say), and sqlx does not learn of it. Such
    // a connection is thrown away when it is next wanted.
    let pool = |size: u32| {
        SqlitePoolOptions::new()
            .max_connections(size)
            .acquire_timeout(options.acquire_timeout)
            // As on PostgreSQL: one that was used just now is not asked again, which would be one more change of threads.
            .test_before_acquire(false)
            .before_acquire(|connection, usage| {
                Box::pin(async move {
                    if usage.idle_for > IDLE {
                        connection.ping().await?;
                    }
                    Ok(!connection.is_in_transaction())
                })
            })
    };
    let reader = pool(options.max_connections).connect_lazy_with(connect.clone().create_if_missing(false));
    let writer = pool(1).connect_with(connect).await?;
    Ok(Pools::Sqlite { writer, reader })
}

/// Makes the file, if there is none, before SQLite does: only its owner may read every balance. SQLite gives the files of
/// its log the same mode.
async fn make_private(file: &Path) -> Result<(), StoreError> {
    let made = tokio::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).await;
    match made {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StoreError::Unavailable(error.into())),
    }
}

/// A transaction on either engine. Dropped without a commit it is rolled back.
#[derive(Debug)]
pub struct Tx {
    pub(crate) inner: TxInner,
    /// How many statements it has run.
    pub(crate) statements: u32,
    /// On a second try: look everything up first instead of relying on the unique indexes.
    pub(crate) careful: bool,
    faults: Option<Arc<dyn Faults>>,
    pub(crate) system: Arc<RwLock<HashMap<AccountId, AssetId>>>,
    /// It has opened system accounts itself: until it commits, a rollback may undo them.
    pub(crate) opened: bool,
}

#[derive(Debug)]
pub(crate) enum TxInner {
    Postgres(Transaction<'static, Postgres>),
    Sqlite(Transaction<'static, Sqlite>),
}

impl Tx {
    pub const fn engine(&self) -> Engine {
        match self.inner {
            TxInner::Postgres(_) => Engine::Postgres,
            TxInner::Sqlite(_) => Engine::Sqlite,
        }
    }

    /// How many statements this transaction has run, begin and commit not counted.
    pub const fn statements(&self) -> u32 {
        self.statements
    }

    /// What SQLite does by itself when a commit meets a full disk: ends the transaction, without a word to sqlx.
    #[cfg(feature = "testing")]
    pub async fn end_underneath(&mut self) {
        if let TxInner::Sqlite(tx) = &mut self.inner {
            sqlx::query("ROLLBACK").execute(&mut **tx).await.expect("a transaction to end");
        }
    }

    /// Before every statement.
    pub(crate) async fn next_statement(&mut self) -> Result<(), StoreError> {
        self.statements += 1;
        self.fault(Point::Statement).await
    }

    async fn fault(&self, point: Point) -> Result<(), StoreError> {
        match &self.faults {
            None => Ok(()),
            Some(faults) => faults.strike(point).await,
        }
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.fault(Point::BeforeCommit).await?;
        let faults = self.faults;
        match self.inner {
            TxInner::Postgres(tx) => tx.commit().await,
            TxInner::Sqlite(tx) => tx.commit().await,
        }
        .map_err(StoreError::at_commit)?;
        match faults {
            None => Ok(()),
            Some(faults) => faults.strike(Point::AfterCommit).await,
        }
    }

    pub(crate) async fn rollback(self) {
        let done = match self.inner {
            TxInner::Postgres(tx) => tx.rollback().await,
            TxInner::Sqlite(tx) => tx.rollback().await,
        };
        // The server rolls back by itself when the connection is gone; there is nothing left to do here.
        if let Err(error) = done {
            tracing::debug!(%error, "rollback not confirmed");
        }
    }
}
