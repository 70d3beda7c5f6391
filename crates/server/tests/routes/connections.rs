//! Connections are bounded, slow clients are cut, and operators are answered whatever the public does.

use std::net::SocketAddr;
use std::time::Duration;

use server::api::Pages;
use server::api::health::check_database;
use server::listen::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::*;

/// A client that sends a byte at a time, at a pace that keeps the connection busy, until the server hangs up. Returns what
/// the server said.
async fn drip(address: SocketAddr, bytes: Vec<u8>) -> String {
    let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    let sending = tokio::spawn(async move {
        for byte in bytes {
            if writer.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        // It keeps the connection open, as an attacker would.
        std::future::pending::<()>().await;
    });
    let mut said = Vec::new();
    // A reset counts as hanging up too.
    reader.read_to_end(&mut said).await.ok();
    sending.abort();
    String::from_utf8(said).unwrap()
}

#[test]
fn a_client_that_drips_its_headers_or_its_body_is_cut_and_others_are_served() {
    on_sqlite(async |db| {
        let bounds = Bounds { header_time: Duration::from_millis(400), ..Bounds::default() };
        let server =
            Server::with(db, Choice { bounds, body_time: Duration::from_millis(400), ..Choice::default() }).await;
        let slow_headers: Vec<u8> = Ask::get("/health/live").header("X-Padding", "x".repeat(1_000)).bytes();
        let body = Ask::post(TRANSFERS, to_spot("1.00")).token(&server.token(2)).bytes();
        let split = body.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let slow_body = async {
            let (mut reader, mut writer) = TcpStream::connect(server.address).await.unwrap().into_split();
            writer.write_all(&body[..split]).await.unwrap();
            let dripping = async {
                for byte in &body[split..] {
                    if writer.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(40)).await;
                }
                std::future::pending::<()>().await;
            };
            let mut said = vec![0; 4_096];
            let count = tokio::select! {
                count = reader.read(&mut said) => count.unwrap(),
                () = dripping => 0,
            };
            String::from_utf8_lossy(&said[..count]).into_owned()
        };
        let dripping = async {
            let clients: Vec<_> = (0..50).map(|_| tokio::spawn(drip(server.address, slow_headers.clone()))).collect();
            for client in clients {
                let said = client.await.unwrap();
                assert!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
            }
        };
        let honest = async {
            for _ in 0..5 {
                server.moved(1, &to_spot("1.00")).await;
            }
        };
        let all = async { tokio::join!(slow_body, dripping, honest).0 };
        let reply = tokio::time::timeout(Duration::from_secs(10), all).await.expect("all are cut in time");
        assert!(reply.starts_with("HTTP/1.1 408") && reply.contains("REQUEST_TIMEOUT"), "{reply}");
        assert_eq!((server.usdt(1).await, server.usdt(2).await), ((9_500, 0, 500), (10_000, 0, 0)));
    });
}

#[test]
fn one_address_cannot_take_all_connections() {
    on_sqlite(async |db| {
        let bounds = Bounds { connections: 4, per_address: 2, ..Bounds::default() };
        let server = Server::with(db, Choice { bounds, ..Choice::default() }).await;
        let live = Ask::get("/health/live").bytes();
        let mut lines = Vec::new();
        for _ in 0..2 {
            let mut line = server.line().await;
            assert_eq!(line.exchange(&live).await.unwrap().status, 200);
            lines.push(line);
        }
        let refused = server.line().await.read().await.expect("it is told why");
        assert_eq!((refused.status, refused.code().as_str()), (503, "TOO_MANY_CONNECTIONS"));
        // Another address of this machine is another client.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = socket.connect(server.address).await.unwrap();
        other.write_all(&live).await.unwrap();
        let mut start = [0; 12];
        other.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
        // A place that is given back is given again.
        drop(lines.pop());
        let mut line = loop {
            let mut line = server.line().await;
            match line.exchange(&live).await {
                Some(reply) if reply.status == 200 => break line,
                Some(_) | None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert_eq!(line.exchange(&live).await.unwrap().status, 200);
    });
}

#[test]
fn operators_are_answered_when_the_public_listener_is_full() {
    on_sqlite(async |db| {
        let bounds = Bounds { connections: 2, ..Bounds::default() };
        let server = Server::with(db, Choice { bounds, ..Choice::default() }).await;
        let ready = Ask::get("/health/ready").bytes();
        let mut full = vec![server.line().await, server.line().await];
        for line in &mut full {
            assert_eq!(line.exchange(&ready).await.unwrap().status, 200);
        }
        let mut waiting = server.line().await;
        waiting.write(&ready).await;
        assert!(tokio::time::timeout(Duration::from_millis(100), waiting.read()).await.is_err(), "nobody accepts it");
        for path in ["/health/ready", "/health/live", "/metrics"] {
            let mut line = Line::open(server.operations).await.unwrap();
            assert_eq!(line.exchange(&Ask::get(path).bytes()).await.unwrap().status, 200, "{path}");
        }
        let mut line = Line::open(server.operations).await.unwrap();
        let reply = line.exchange(&Ask::get(BALANCES).token(&server.token(1)).bytes()).await.unwrap();
        assert_eq!((reply.status, reply.code().as_str()), (404, "PATH_NOT_FOUND"), "no interface there");
        drop(full);
        assert_eq!(waiting.read().await.expect("accepted at last").status, 200);
    });
}

#[test]
fn a_body_announced_to_be_too_long_is_refused_before_it_comes() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let token = server.token(1);
        for (path, length) in [(TRANSFERS, 16_385_u64), (ALIAS, 1 << 40), (BATCH, (1 << 20) + 1), (TRANSFERS, u64::MAX)]
        {
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            let before = server.books().await;
            let asked = server.raw(head.as_bytes());
            let reply = tokio::time::timeout(Duration::from_secs(2), asked).await.expect("at once").expect("an answer");
            if length < u64::MAX {
                assert_eq!((reply.status, reply.code().as_str()), (413, "PAYLOAD_TOO_LARGE"), "{path} {length}");
            } else {
                assert!((400..=431).contains(&reply.status), "{reply:?}");
            }
            assert!(server.books().await == before);
        }
    });
}

#[test]
fn health_costs_no_connection_to_the_database() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let coordinator = server.app.intake.coordinator();
        check_database(coordinator).await;
        let ready = async || server.send(&Ask::get("/health/ready")).await;
        assert_eq!(ready().await.status, 200);
        server.db.close().await;
        assert_eq!(ready().await.status, 200, "nobody was asked");
        check_database(coordinator).await;
        let reply = ready().await;
        assert_eq!(reply.status, 503);
        assert!(reply.code().starts_with("database: DATABASE_UNAVAILABLE"), "{reply:?}");
        assert_eq!(server.send(&Ask::get("/health/live")).await.status, 200);
    });
}

#[test]
fn the_documentation_can_be_left_out_and_is_framed_by_nobody() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let page = server.send(&Ask::get("/docs")).await;
        let policy = page.header("content-security-policy").expect("a policy");
        for part in ["default-src 'none'", "frame-ancestors 'none'", "script-src 'sha256-", "style-src 'sha256-"] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-frame-options"), Some("DENY"));
        assert_eq!(page.body.matches("<script").count(), 1, "one script, whose hash the policy has");
        assert!(!page.body.contains(" style="), "no style but the one whose hash the policy has");
    });
    on_sqlite(async |db| {
        let pages = Pages { docs: false, metrics: false };
        let server = Server::with(db, Choice { pages, ..Choice::default() }).await;
        for path in ["/docs", "/openapi.json", "/metrics"] {
            let reply = server.send(&Ask::get(path)).await;
            assert_eq!((reply.status, reply.code().as_str()), (404, "PATH_NOT_FOUND"), "{path}");
        }
        assert_eq!(server.send(&Ask::get("/health/ready")).await.status, 200, "for load balancers");
    });
}
