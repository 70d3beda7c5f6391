//! Two pieces of writing that meet on PostgreSQL, without chance: the first is stopped at a point of its transaction, the
//! second runs until it has ended or waits for a lock, and then the first goes on. Tried at every point, this is every
//! order in which one of them can be interrupted once; what is missing from a lock clause shows at one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::Semaphore;

use super::TestDb;
use crate::db::Db;
use crate::faults::{Faults, Point, Strike};

/// Longer than any wait for a lock that is not a deadlock.
const PATIENCE: Duration = Duration::from_secs(60);

/// Stops a writer at its n-th point: before a statement, before the commit or after it.
#[derive(Debug)]
struct Stop {
    left: AtomicI64,
    reached: Semaphore,
    go: Arc<Semaphore>,
}

impl Faults for Stop {
    fn strike(&self, _: Point) -> Strike {
        if self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.reached.add_permits(1);
        let go = Arc::clone(&self.go);
        Box::pin(async move {
            drop(go.acquire_owned().await);
            Ok(())
        })
    }
}

/// How two writers met.
#[derive(Debug)]
pub struct Met<A, B> {
    pub first: A,
    pub second: B,
    /// The first has such a point. If not, it had ended before the second began, and there are no more points to try.
    pub reached: bool,
    /// The second waited for a lock while the first stood still.
    pub waited: bool,
}

/// Stops `first` at its point number `at`, lets `second` run until it has ended or waits, and then lets both end.
pub async fn meet<A, B>(
    db: &TestDb,
    at: i64,
    first: impl AsyncFnOnce(Db) -> A,
    second: impl AsyncFnOnce(Db) -> B,
) -> Met<A, B> {
    let go = Arc::new(Semaphore::new(0));
    let stop = Arc::new(Stop { left: AtomicI64::new(at), reached: Semaphore::new(0), go: Arc::clone(&go) });
    let mut shell = Shell::open(db).await;
    let mut first = Box::pin(first(db.db.with_faults(Arc::clone(&stop) as Arc<dyn Faults>)));
    let mut ended = None;
    tokio::select! {
        reached = stop.reached.acquire() => drop(reached),
        done = &mut first => ended = Some(done),
    }
    let reached = ended.is_none();
    let mut second = Box::pin(second(db.db.clone()));
    let mut waited = false;
    let mut done = None;
    tokio::select! {
        value = &mut second => done = Some(value),
        () = shell.until_somebody_waits() => waited = true,
    }
    go.add_permits(1);
    let both = async {
        let first = async {
            match ended {
                Some(value) => value,
                None => first.await,
            }
        };
        let second = async {
            match done {
                Some(value) => value,
                None => second.await,
            }
        };
        futures_util::future::join(first, second).await
    };
    let (first, second) = tokio::time::timeout(PATIENCE, both).await.expect("neither waits for ever");
    Met { first, second, reached, waited }
}

/// A connection to PostgreSQL that keeps its transaction open from one statement to the next, as an operator's shell
/// does.
pub struct Shell(PgConnection);

impl Shell {
    pub async fn open(db: &TestDb) -> Self {
        Self(PgConnection::connect(&db.url).await.expect("the test server answers"))
    }

    pub async fn run(&mut self, text: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut self.0).await.map(|_| ())
    }

    /// One number.
    pub async fn number(&mut self, text: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(text.to_owned())).fetch_one(&mut self.0).await.expect(text)
    }

    /// How the server would go about it, with the settings of our own connections.
    pub async fn plan(&mut self, text: &str) -> String {
        for (name, value) in crate::dialect::POSTGRES_SETTINGS {
            self.run(&format!("SET {name} = '{value}'")).await.expect(name);
        }
        let lines: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(format!("EXPLAIN {text}"))).fetch_all(&mut self.0).await.expect(text);
        lines.join("\n")
    }

    /// Until a session of this database waits for a lock that another one has.
    pub async fn until_somebody_waits(&mut self) {
        const WAITING: &str = "SELECT COUNT(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let waiting = async {
            while self.number(WAITING).await == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the second ends, or waits for a lock");
    }

    /// While this shell has the row `low`, somebody who wants both rows waits, and has not locked `high` yet: all lock in
    /// one order, so that no two wait for each other. Both are conditions on the table.
    pub async fn assert_order<T>(
        &mut self,
        other: &mut Self,
        table: &str,
        low: &str,
        high: &str,
        work: impl Future<Output = T>,
    ) -> T {
        self.run(&format!("BEGIN; SELECT 1 FROM {table} WHERE {low} FOR UPDATE")).await.expect("the low row");
        let mut work = Box::pin(work);
        tokio::select! {
            _ = &mut work => panic!("it did not wait for the row of {table} where {low}"),
            () = other.until_somebody_waits() => {}
        }
        let high = format!("SELECT 1 FROM {table} WHERE {high} FOR UPDATE NOWAIT");
        other.run(&high).await.expect("the higher row is locked before the lower one");
        self.run("COMMIT").await.expect("a commit");
        tokio::time::timeout(PATIENCE, work).await.expect("it goes on")
    }
}
