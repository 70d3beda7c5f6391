//! Stopping in good order: requests that were begun are answered, their transfers are recorded, and no new client
//! comes in.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use store::db_test;

use crate::support::*;

#[test]
fn a_closed_intake_takes_nothing() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        server.app.intake.close().await;
        let token = server.token(1);
        for ask in [
            Ask::post(TRANSFERS, to_spot("1.00")),
            Ask::post(ALIAS, body(json!({"from": "funding", "to": "trading"}))),
            Ask::post(BATCH, format!("{{\"transfers\":[{}]}}", to_spot("1.00"))),
        ] {
            let reply = server.refuses("too late", &ask.token(&token), 503, "SERVER_STOPPING").await;
            assert_eq!(reply.header("retry-after"), Some("1"));
        }
        assert_eq!(server.get(1, TRANSFERS).await.status, 200, "looking is still possible");
    });
}

db_test! {
    async fn a_request_in_flight_is_answered_and_a_new_one_finds_nobody(db: TestDb) {
        let server = Server::start(db).await;
        server.leg.close();
        let calls = server.leg.calls.load(Ordering::SeqCst);
        let mut in_flight = server.line().await;
        in_flight.write(&Ask::post(TRANSFERS, to_spot("1.00")).token(&server.token(1)).bytes()).await;
        while server.leg.calls.load(Ordering::SeqCst) == calls {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Half a request has been begun too.
        let half = Ask::post(TRANSFERS, to_spot("2.00")).token(&server.token(2)).bytes();
        let mut begun = server.line().await;
        begun.write(&half[..half.len() - 5]).await;
        // And one client is connected that has asked for nothing since.
        let mut idle = server.line().await;
        assert_eq!(idle.exchange(&Ask::get("/health/ready").bytes()).await.unwrap().status, 200);
        tokio::time::sleep(Duration::from_millis(20)).await;
        server.begin_to_stop();
        assert_eq!(idle.read().await, None, "an idle connection is closed");
        let nobody = async { while Line::open(server.address).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(5), nobody).await.expect("the port is closed");
        assert!(server.is_serving(), "it waits for those who are there");
        server.leg.open();
        let reply = in_flight.read().await.expect("the request in flight is answered");
        assert_eq!((reply.status, reply.code().as_str()), (200, "COMMITTED"));
        begun.write(&half[half.len() - 5..]).await;
        let second = begun.read().await.expect("so is the one that was begun");
        assert_eq!((second.status, second.code().as_str()), (200, "COMMITTED"));
        assert_eq!(in_flight.read().await, None, "and then the connection is closed");
        assert_eq!((server.usdt(1).await, server.usdt(2).await), ((9_900, 0, 100), (9_800, 0, 200)));
        let books = server.books().await;
        assert_eq!(books.transfers.values().copied().collect::<Vec<_>>(), ["COMMITTED"; 2]);
        server.shut_down().await;
    }

    async fn what_is_on_its_way_when_the_server_stops_is_recorded(db: TestDb) {
        let server = Server::with(db, Choice { wait: Duration::from_millis(10), ..Choice::default() }).await;
        server.leg.close();
        let reply = server.transfer(1, to_spot("1.00")).await;
        assert_eq!(reply.status, 202);
        server.leg.open();
        let db = server.db.clone();
        server.shut_down().await;
        let id = reply.json()["req_id"].as_str().unwrap().parse().unwrap();
        let found = store::transfer::read(&mut db.read().await.unwrap(), &[id]).await.unwrap();
        assert_eq!((found.len(), found[0].state.as_str()), (1, "COMMITTED"), "the intake waited for it");
    }
}
