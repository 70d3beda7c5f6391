//! A database that is down, full, killed in mid-batch, or silent after a commit.

use std::task::Poll;
use std::time::Duration;

use domain::ledger::{Outcome, Reply};
use store::testing::{NOW, TestDb, on};
use store::{Db, Engine, Options, StoreError, db_test, transact};

use crate::support::*;

fn quick() -> Options {
    Options { acquire_timeout: Duration::from_millis(500), ..Options::default() }
}

#[tokio::test]
async fn postgres_that_is_down_is_unavailable() {
    for url in ["postgres://nobody@127.0.0.1:1/none", "postgres:///none?host=/nonexistent"] {
        let error = Db::connect(url, &quick()).await.unwrap_err();
        assert_eq!(error.code(), "DATABASE_UNAVAILABLE", "{error:?}");
    }
}

#[tokio::test]
async fn sqlite_that_is_not_there_is_unavailable_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.db");
    let error = Db::connect(&format!("sqlite://{}", file.display()), &quick()).await.unwrap_err();
    assert_eq!(error.code(), "DATABASE_UNAVAILABLE", "{error:?}");
    assert!(!file.exists());
    let not_a_database = folder.path().join("text.db");
    std::fs::write(&not_a_database, "hello, this is not a database, but long enough to be one".repeat(20)).unwrap();
    let error = Db::connect(&format!("sqlite://{}", not_a_database.display()), &quick()).await.unwrap_err();
    assert_eq!(error.code(), "DATABASE_UNAVAILABLE", "{error:?}");
}

db_test! {
    /// Whatever the server, the role or the file says of it.
    async fn an_acknowledged_commit_is_on_disk(db: TestDb) {
        let postgres = db.engine() == Engine::Postgres;
        if postgres {
            let lax = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database());
                END $$";
            db.by_hand(lax).await.unwrap();
        }
        let db = Db::connect(&db.url, &Options::default()).await.unwrap();
        assert_eq!(store::testing::connection_settings(&db).await.0, if postgres { "on" } else { "2" });
        db.close().await;
    }
}

db_test! {
    /// To the planner a scan that is switched off is dear enough to be compiled first, also of a table with one row.
    async fn no_statement_is_compiled_before_it_runs(db: TestDb) {
        if db.engine() == Engine::Postgres {
            let eager = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET jit = on', current_database()); END $$";
            db.by_hand(eager).await.unwrap();
        }
        let db = Db::connect(&db.url, &Options::default()).await.unwrap();
        assert_eq!(store::testing::connection_settings(&db).await.1, "off");
        db.close().await;
    }
}

/// As one that has become a standby: it answers every question, and takes nothing.
#[test]
fn postgres_that_takes_no_writes_is_not_ready() {
    on(Engine::Postgres, async |db: &TestDb| {
        db.check_ready().await.unwrap();
        let read_only = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database());
            END $$";
        db.by_hand(read_only).await.unwrap();
        let db = Db::connect(&db.url, &Options::default()).await.unwrap();
        let error = db.check_ready().await.unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly), "{error:?}");
        db.close().await;
    });
}

#[tokio::test]
async fn a_url_that_is_none_says_so() {
    for url in [
        "",
        "mysql://x",
        "/tmp/x.db",
        "sqlite:",
        "sqlite://",
        "sqlite::memory:",
        "sqlite://x?mode=memory",
        "postgres://[",
        "sqlite://x?mode=nonsense",
    ] {
        assert_eq!(Db::connect(url, &quick()).await.unwrap_err().code(), "BAD_DATABASE_URL", "{url:?}");
    }
}

/// Makes the engine answer "disk full" from now on. SQLite: for real, by its limit of pages, which the writer's one
/// connection keeps. PostgreSQL: the server raises the error of a full disk (53100) when a balance changes, which comes after the journal has grown.
async fn fill_disk(db: &TestDb) {
    match db.engine() {
        Engine::Sqlite => db.limit_sqlite_pages().await,
        Engine::Postgres => db
            .by_hand(
                "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
                 CREATE TRIGGER full_disk BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION full_disk()",
            )
            .await
            .unwrap(),
    }
}

db_test! {
    async fn a_full_disk_leaves_nothing_half_written(db: TestDb) {
        let bank = Bank::open(db, 50, 1_000).await;
        let rows = movements(db).await;
        fill_disk(db).await;
        let mut error = None;
        for round in 0..200 {
            let operations: Vec<_> = (0..50).map(|user| bank.hold(&format!("{round}-{user}"), user, 1)).collect();
            match db.post(&operations, NOW).await {
                Ok(replies) => assert_all_applied(&replies),
                Err(full) => { error = Some(full); break }
            }
        }
        let error = error.expect("the disk fills up");
        assert!(matches!(error, StoreError::Full(_)), "{error:?}");
        let after = movements(db).await;
        assert_eq!((after - rows) % 50, 0, "whole batches only");
        assert_clean(db).await;
    }
}

/// SQLite ends a transaction by itself when its commit fails. The one writer's connection must not stay unusable.
#[test]
fn sqlite_writes_go_on_after_a_commit_that_failed() {
    on(Engine::Sqlite, async |db| {
        let bank = Bank::open(db, 1, 100).await;
        let operations = [bank.hold("h", 0, 1)];
        let mut tries = db.tries();
        let mut tx = tries.begin().await.unwrap();
        store::ledger::post(&mut tx, &operations, NOW).await.unwrap();
        tx.end_underneath().await;
        let error = tries.end(tx, Ok(())).await.unwrap().unwrap_err();
        assert!(matches!(error, StoreError::CommitUnknown(_)), "{error:?}");
        assert_all_applied(&db.post(&operations, NOW).await.unwrap());
        assert_clean(db).await;
    });
}

/// A connection killed while a batch is under way: an error, nothing written, and the pool goes on with a new one.
#[test]
fn postgres_killed_in_mid_batch_leaves_nothing() {
    on(Engine::Postgres, async |db| {
        let bank = Bank::open(db, 5, 100).await;
        let operations: Vec<_> = (0..5).map(|user| bank.hold(&format!("h{user}"), user, 1)).collect();
        let result: Result<(), StoreError> = transact!(db, tx => {
            store::ledger::post(tx, &operations, NOW).await?;
            // Everything is written but not committed; the server now loses this session.
            db.by_hand(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND state = 'idle in transaction'",
            )
            .await?;
            Ok(())
        });
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::CommitUnknown(_) | StoreError::Unavailable(_)), "{error:?}");
        assert_clean(db).await;
        // Sending the same again is the remedy, whichever way it went.
        assert_all_applied(&db.post(&operations, NOW).await.unwrap());
        assert_clean(db).await;
    });
}

/// The commit arrives, its answer never does: it is reported as unknown, and the same batch sent again tells.
#[test]
fn postgres_silent_after_the_commit_is_unknown_not_failed() {
    on(Engine::Postgres, async |db| {
        let bank = Bank::open(db, 3, 100).await;
        let (proxied, cut) = proxy::start(&db.url).await;
        let behind_proxy = Db::connect(&proxied, &quick()).await.unwrap();
        let operations: Vec<_> = (0..3).map(|user| bank.hold(&format!("h{user}"), user, 40)).collect();
        cut.after_next_commit();
        let error = behind_proxy.post(&operations, NOW).await.unwrap_err();
        assert!(matches!(error, StoreError::CommitUnknown(_)), "{error:?}");
        assert_eq!(error.code(), "COMMIT_UNKNOWN");
        let replies = behind_proxy.post(&operations, NOW).await.unwrap();
        assert_eq!(replies, [Reply::Replay(Outcome::Applied); 3]);
        assert_eq!(balance(db, bank.users[0]).await, "60/40");
        assert_clean(db).await;
    });
}

/// Deadlocks and serialization failures are tried again inside; the caller sees only the result.
#[test]
fn postgres_serialization_failures_are_retried_inside() {
    on(Engine::Postgres, async |db| {
        let bank = Bank::open(db, 1, 100).await;
        let mut failures = 0;
        let replies = transact!(db, tx => {
            let replies = store::ledger::post(tx, &[bank.hold("h", 0, 1)], NOW).await?;
            if failures < 3 {
                failures += 1;
                return Err(serialization_failure(db).await);
            }
            Ok(replies)
        });
        let replies = replies.unwrap();
        assert_eq!((failures, replies), (3, vec![Reply::First(Outcome::Applied)]));
        assert_eq!(movements(db).await, 2);
    });
}

/// A real one, from the server.
async fn serialization_failure(db: &TestDb) -> StoreError {
    let error = db.by_hand("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$").await.unwrap_err();
    error.into()
}

mod proxy {
    //! A go-between on a TCP port that can drop the line right after it has passed a COMMIT on.

    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream, UnixStream};

    #[derive(Clone, Default)]
    pub struct Cut(Arc<AtomicBool>);

    impl Cut {
        pub fn after_next_commit(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    pub async fn start(url: &str) -> (String, Cut) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let database = url.split('?').next().unwrap().rsplit_once('/').unwrap().1.to_owned();
        let socket = socket_of(url);
        let cut = Cut::default();
        let shared = cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, UnixStream::connect(&socket).await.unwrap(), shared.clone()));
            }
        });
        (format!("postgres://postgres@127.0.0.1:{port}/{database}?sslmode=disable"), cut)
    }

    /// `?host=/folder&port=5432` to the socket that PostgreSQL makes there.
    fn socket_of(url: &str) -> String {
        let query = url.split_once('?').expect("the test server listens on a socket").1;
        let value = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name))
                .map(str::to_owned)
                .expect("host and port in the URL")
        };
        format!("{}/.s.PGSQL.{}", value("host="), value("port="))
    }

    async fn pass(client: TcpStream, server: UnixStream, cut: Cut) {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let silent = Arc::new(AtomicBool::new(false));
        let answers_silent = silent.clone();
        let answers = tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            while let Ok(read) = from_server.read(&mut buffer).await {
                // Silent: the answer came, so the commit is done, and nobody is told.
                if read == 0
                    || answers_silent.load(Ordering::SeqCst)
                    || to_client.write_all(&buffer[..read]).await.is_err()
                {
                    break;
                }
            }
        });
        let mut buffer = vec![0; 65_536];
        while let Ok(read) = from_client.read(&mut buffer).await {
            let text = &buffer[..read];
            if read == 0 {
                break;
            }
            if cut.0.load(Ordering::SeqCst) && text.windows(7).any(|window| window == b"COMMIT\0") {
                cut.0.store(false, Ordering::SeqCst);
                silent.store(true, Ordering::SeqCst);
            }
            if to_server.write_all(text).await.is_err() {
                break;
            }
            if silent.load(Ordering::SeqCst) {
                break;
            }
        }
        answers.await.unwrap();
    }
}

/// Whoever stops waiting while a transaction begins must not leave it on the connection for the next.
#[test]
fn postgres_writes_after_readers_that_were_dropped_while_they_began() {
    on(Engine::Postgres, async |db| {
        let one = Options { max_connections: 1, ..Options::default() };
        let db = Db::connect(&db.url, &one).await.unwrap();
        let wallet = db.create_wallet("hot", store::utxo::Network::Regtest, NOW).await.unwrap();
        for polls in (0..10).flat_map(|_| 0..6) {
            let mut reading = Box::pin(db.read());
            for _ in 0..polls {
                if std::future::poll_fn(|context| Poll::Ready(reading.as_mut().poll(context).is_ready())).await {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(reading);
            db.begin_restore(wallet, NOW).await.unwrap();
        }
        db.close().await;
    });
}
