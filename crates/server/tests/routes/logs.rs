//! What the log says of a request: its id in every line, and nothing that only a driver's author can read.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::support::*;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What all tests of this program have logged. Lines about one request are found by its id.
fn lines() -> &'static Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    LINES.get_or_init(|| {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing_subscriber::fmt().with_writer(move || writer.clone()).init();
        lines
    })
}

/// The lines that have this in them.
fn about(text: &str) -> Vec<String> {
    let all = lines().0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    String::from_utf8(all).unwrap().lines().filter(|line| line.contains(text)).map(ToOwned::to_owned).collect()
}

#[test]
fn every_line_about_a_request_has_its_id_and_no_driver_s_structures() {
    lines();
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        db.by_hand("DROP TABLE transfer_days").await.unwrap();
        db.by_hand("ALTER TABLE accounts RENAME TO elsewhere").await.unwrap();
        for (id, ask) in [("logs-1", Ask::post(TRANSFERS, to_spot("1.00"))), ("logs-2", Ask::get(BALANCES))] {
            let reply = server.send(&ask.token(&server.token(1)).header("X-Request-Id", id)).await;
            assert_eq!((reply.status, reply.code().as_str()), (503, "SYSTEM_ERROR"), "{reply:?}");
            let mine = about(id);
            assert!(mine.iter().any(|line| line.contains("a request could not be served")), "{mine:#?}");
            for line in mine {
                assert!(line.contains("code=\"DATABASE_ERROR\"") && line.contains("no such table"), "{line}");
                for raw in ["Some(", "Database(", "SqliteError", "Error {", "source:"] {
                    assert!(!line.contains(raw), "{line}");
                }
            }
        }
    });
}

#[test]
fn a_full_disk_is_one_line_however_many_requests_fail() {
    lines();
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        server.db.limit_sqlite_pages().await;
        let mut refused = 0;
        for _ in 0..400 {
            let ask = Ask::post(TRANSFERS, to_spot("0.10")).token(&server.token(1)).header("X-Request-Id", "logs-full");
            let reply = server.send(&ask).await;
            // Near the end some still fit, in whole or in part.
            assert!([200, 202, 503].contains(&reply.status), "{reply:?}");
            refused += u32::from(reply.status == 503);
            if refused == 20 {
                break;
            }
        }
        assert_eq!(refused, 20, "the disk was full");
        let ready = server.send(&Ask::get("/health/ready")).await;
        assert_eq!(ready.status, 503);
        assert!(ready.code().starts_with("database: DATABASE_FULL"), "{ready:?}");
        let mine = about("logs-full");
        assert_eq!(mine.len(), 1, "{mine:#?}");
        assert!(mine[0].contains("not ready") && mine[0].contains("DATABASE_FULL"), "{mine:?}");
        let metrics = server.send(&Ask::get("/metrics")).await.body;
        let counted = metrics.lines().filter(|line| line.starts_with("bursar_http_unserved_total")).count();
        assert!(counted > 0, "they are counted: {metrics}");
    });
}
