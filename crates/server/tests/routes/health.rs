//! `/health/live`, `/health/ready`, `/metrics`, `/docs`: for the operators of the process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use crate::support::*;

#[test]
fn readiness_ends_when_the_server_stops_and_when_it_can_make_no_ids() {
    on_sqlite(async |db| {
        let server = Server::with(db, Choice { lease: Duration::from_secs(60), ..Choice::default() }).await;
        let ready = async || {
            let reply = server.send(&Ask::get("/health/ready")).await;
            (reply.status, reply.code())
        };
        assert_eq!(ready().await, (200, "ok".into()));
        server.pass(Duration::from_secs(60));
        assert_eq!(ready().await, (503, "no node number".into()));
        let ask = Ask::post(TRANSFERS, to_spot("1.00")).token(&server.token(1));
        server.refuses("without a node number", &ask, 503, "SYSTEM_ERROR").await;
        server.app.stopping.store(true, Ordering::Relaxed);
        assert_eq!(ready().await, (503, "stopping".into()));
        let live = server.send(&Ask::get("/health/live")).await;
        assert_eq!((live.status, live.json()), (200, json!({"status": "ok"})), "it is still alive");
    });
}

#[test]
fn answers_are_counted_by_their_kind() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        server.moved(1, &to_spot("1.00")).await;
        server.get(1, "/nowhere").await;
        server.send(&Ask::get(BALANCES)).await;
        let reply = server.send(&Ask::get("/metrics")).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/plain; version=0.0.4")));
        for line in [
            "bursar_http_requests_total{class=\"2xx\"} 1",
            "bursar_http_requests_total{class=\"4xx\"} 2",
            "bursar_http_requests_total{class=\"5xx\"} 0",
        ] {
            assert!(reply.body.lines().any(|one| one == line), "{line} is not in\n{}", reply.body);
        }
        assert!(!reply.body.contains("USDT"), "no balances in what anybody may read");
    });
}

#[test]
fn the_description_is_served() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let reply = server.send(&Ask::get("/openapi.json")).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
        assert_eq!(reply.json()["openapi"], "3.1.0");
        assert_eq!(reply.body, server::api::openapi::text());
        let page = server.send(&Ask::get("/docs")).await;
        assert_eq!(page.status, 200);
        assert!(page.header("content-type").unwrap().starts_with("text/html"));
        assert!(!page.body.contains("http://") && !page.body.contains("https://"), "a page without outside help");
    });
}
