//! `GET /api/v1/internal_transfer`: own transfers, newest first, page by page.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use store::db_test;

use crate::support::*;

async fn page(server: &Server, number: i64, query: &str) -> (Vec<Value>, Option<String>) {
    let reply = server.get(number, format!("{TRANSFERS}?{query}")).await;
    assert_eq!(reply.status, 200, "{query}: {reply:?}");
    let answer = reply.json();
    let cursor = answer["next_cursor"].as_str().map(ToOwned::to_owned);
    (answer["transfers"].as_array().unwrap().clone(), cursor)
}

/// The ids of all pages, in their order.
async fn all(server: &Server, number: i64, query: &str) -> Vec<String> {
    after(server, number, query, None).await
}

/// The same from a cursor on.
async fn after(server: &Server, number: i64, query: &str, mut cursor: Option<String>) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..100 {
        let from = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let (found, next) = page(server, number, &format!("{query}{from}")).await;
        ids.extend(found.iter().map(|one| one["req_id"].as_str().unwrap().to_owned()));
        cursor = next;
        if cursor.is_none() {
            return ids;
        }
    }
    panic!("the pages do not end");
}

/// 24 transfers of user 1 and 12 of user 2, taken in turn.
async fn fill(server: &Server) {
    for round in 0..12 {
        let first = json!({"amount": "0.10", "client_order_id": format!("a-{round}")});
        server.moved(1, &body(first)).await;
        let (from, to) = if round % 3 == 2 { ("SPOT", "FUNDING") } else { ("FUNDING", "SPOT") };
        server.moved(1, &body(json!({"asset": "WIDE", "from": from, "to": to, "amount": "0.20"}))).await;
        server.moved(2, &body(json!({"amount": "0.30", "client_order_id": format!("a-{round}")}))).await;
        if round % 4 == 0 {
            server.pass(Duration::from_millis(3));
        }
    }
}

db_test! {
    async fn pages_miss_nothing_and_repeat_nothing(db: TestDb) {
        let server = Server::start(db).await;
        fill(&server).await;
        let whole = all(&server, 1, "limit=200").await;
        assert_eq!(whole.len(), 24);
        for limit in [1, 5, 7, 8, 12, 23, 24, 25] {
            assert_eq!(all(&server, 1, &format!("limit={limit}")).await, whole, "pages of {limit}");
        }
        let numbers: Vec<i64> = whole.iter().map(|id| id[3..].parse().unwrap()).collect();
        assert!(numbers.is_sorted_by(|newer, older| newer > older), "newest first");
        let others = all(&server, 2, "limit=5").await;
        assert_eq!(others.len(), 12);
        let mine: BTreeSet<&String> = whole.iter().collect();
        assert!(others.iter().all(|id| !mine.contains(id)), "nobody sees another's");
        assert!(all(&server, 3, "limit=5").await.is_empty());
        // Another user's transfer may be a cursor: it only says a time.
        let from_others = after(&server, 1, "limit=200", Some(others[3].clone())).await;
        assert!(!from_others.is_empty() && from_others.iter().all(|id| mine.contains(id)));
        // A transfer that is made between two pages is on neither.
        let (first, cursor) = page(&server, 1, "limit=10").await;
        server.moved(1, &to_spot("0.10")).await;
        let rest = after(&server, 1, "limit=10", cursor).await;
        let first = first.iter().map(|one| one["req_id"].as_str().unwrap().to_owned());
        assert_eq!(first.chain(rest).collect::<Vec<_>>(), whole);
    }

    async fn filters_hold_together_and_over_pages(db: TestDb) {
        let server = Server::start(db).await;
        fill(&server).await;
        for (query, count) in [
            ("", 24),
            ("asset=USDT", 12),
            ("asset=WIDE", 12),
            ("asset=BTC", 0),
            ("from=SPOT", 4),
            ("from=FUNDING", 20),
            ("asset=USDT&from=SPOT", 0),
            ("asset=WIDE&from=SPOT", 4),
            ("state=COMMITTED", 24),
            ("state=PENDING", 0),
            ("state=FAILED", 0),
            ("state=ROLLED_BACK", 0),
            ("client_order_id=a-3", 1),
            ("client_order_id=a-3&asset=WIDE", 0),
            ("client_order_id=A-3", 0),
            ("client_order_id=a-99", 0),
        ] {
            for limit in [3, 200] {
                let separator = if query.is_empty() { "" } else { "&" };
                let ids = all(&server, 1, &format!("{query}{separator}limit={limit}")).await;
                assert_eq!(ids.len(), count, "{query}, pages of {limit}");
            }
        }
        server.leg.close();
        let pending = tokio::spawn({
            let ask = Ask::post(TRANSFERS, to_spot("0.10")).token(&server.token(1));
            let address = server.address;
            async move { Line::open(address).await.unwrap().exchange(&ask.bytes()).await }
        });
        while server.leg.calls.load(std::sync::atomic::Ordering::SeqCst) < 37 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(all(&server, 1, "state=PENDING&limit=3").await.len(), 1);
        assert_eq!(all(&server, 1, "state=COMMITTED&limit=3").await.len(), 24);
        server.leg.open();
        assert_eq!(pending.await.unwrap().unwrap().code(), "COMMITTED");
        assert_eq!(all(&server, 1, "state=PENDING").await.len(), 0);
    }
}

#[test]
fn a_list_that_cannot_be_is_refused() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let token = server.token(1);
        for (query, code) in [
            ("limit=0", "INVALID_REQUEST"),
            ("limit=201", "INVALID_REQUEST"),
            ("limit=-1", "INVALID_REQUEST"),
            ("limit=", "INVALID_REQUEST"),
            ("limit=ten", "INVALID_REQUEST"),
            ("limit=1.5", "INVALID_REQUEST"),
            ("limit=99999999999999999999", "INVALID_REQUEST"),
            ("limit=1&limit=2", "INVALID_REQUEST"),
            ("cursor=", "INVALID_REQUEST"),
            ("cursor=sr-0", "INVALID_REQUEST"),
            ("cursor=sr--1", "INVALID_REQUEST"),
            ("cursor=17", "INVALID_REQUEST"),
            ("cursor=sr-99999999999999999999", "INVALID_REQUEST"),
            ("cursor=wr-17", "INVALID_REQUEST"),
            ("state=DONE", "INVALID_REQUEST"),
            ("state=committed", "INVALID_REQUEST"),
            ("state=", "INVALID_REQUEST"),
            ("from=SAVINGS", "INVALID_ACCOUNT_TYPE"),
            ("from=", "INVALID_ACCOUNT_TYPE"),
            ("from=MARGIN", "UNSUPPORTED_ACCOUNT_TYPE"),
            ("asset=FAKE", "INVALID_ASSET"),
            ("asset=", "INVALID_ASSET"),
            ("asset=usdt", "INVALID_ASSET"),
            ("client_order_id=", "INVALID_REQUEST"),
            ("client_order_id=%00", "INVALID_REQUEST"),
            ("client_order_id=%FF", "INVALID_REQUEST"),
            ("client_order_id=a%20b", "INVALID_REQUEST"),
            ("client_order_id=%27%20OR%201=1", "INVALID_REQUEST"),
            ("user_id=2", "INVALID_REQUEST"),
            ("user=2", "INVALID_REQUEST"),
            ("Limit=5", "INVALID_REQUEST"),
        ] {
            let path = format!("{TRANSFERS}?{query}");
            server.refuses(query, &Ask::get(path.clone()).token(&token), 400, code).await;
            server.refuses(query, &Ask::get(path), 401, "UNAUTHORIZED").await;
        }
        // Nothing is said of what is not asked for.
        let reply = server.get(1, format!("{TRANSFERS}?")).await;
        assert_eq!(reply.json(), json!({"transfers": []}));
    });
}
