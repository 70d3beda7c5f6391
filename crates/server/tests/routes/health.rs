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
fn a_lane_that_panics_is_started_again_and_no_request_is_lost_or_told_a_lie() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        server.moved(1, &to_spot("5.00")).await;
        server.leg.panics.store(true, Ordering::SeqCst);
        let named = body(json!({"from": "SPOT", "to": "FUNDING", "client_order_id": "back"}));
        let behind = async {
            // It comes while the lane is busy with the first, and stays in the lane's buffer.
            tokio::time::sleep(Duration::from_millis(20)).await;
            server.transfer(1, to_spot("2.00")).await
        };
        let (reply, behind) = tokio::join!(server.transfer(1, named.as_str()), behind);
        assert_eq!((reply.status, reply.code().as_str()), (503, "OUTCOME_UNKNOWN"), "{reply:?}");
        // It stayed in the buffer, and the new start either did it or refused it, as a server does that is not ready.
        let moved = match (behind.status, behind.code().as_str()) {
            (200, "COMMITTED") => 200,
            (503, "SYSTEM_ERROR") => 0,
            _ => panic!("{behind:?}"),
        };
        assert_eq!(server.usdt(1).await, (9_500 - moved, 0, 500 + moved), "the first did nothing");
        let ready = async || server.send(&Ask::get("/health/ready")).await;
        let reply = ready().await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "lanes: TASK_PANICKED"));
        while ready().await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.moved(1, &named).await;
        assert_eq!(server.usdt(1).await, (9_600 - moved, 0, 400 + moved), "asked again, it is done once");
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
