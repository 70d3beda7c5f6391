//! `GET /api/v1/balances`: what the user has, on both sides.

use std::sync::atomic::Ordering;

use domain::AccountStatus::Frozen;
use serde_json::json;
use store::db_test;

use crate::support::*;

db_test! {
    async fn balances_are_the_books(db: TestDb) {
        let mut server = Server::start(db).await;
        let funding = |available: &str| json!({"available": available, "frozen": "0.00", "status": "active"});
        let whole = json!({"balances": [
            {"asset": "USDT", "funding": funding("100.00")},
            {"asset": "WIDE", "funding": funding("100.00")},
        ], "spot_known": true});
        let read = async |number| {
            let reply = server.get(number, BALANCES).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            let mut answer = reply.json();
            answer["balances"].as_array_mut().unwrap().sort_by_key(|one| one["asset"].to_string());
            answer
        };
        assert_eq!(read(1).await, whole);
        assert_eq!(read(9).await, json!({"balances": [], "spot_known": true}), "a stranger has nothing");
        server.moved(1, &to_spot("12.34")).await;
        let spot = json!({"available": "12.34", "reserved": "0.00", "status": "active"});
        let mut moved = whole.clone();
        moved["balances"][0] = json!({"asset": "USDT", "funding": funding("87.66"), "spot": spot});
        assert_eq!(read(1).await, moved);
        assert_eq!(read(2).await, whole, "nobody else's changed");
        server.leg.silent.store(true, Ordering::SeqCst);
        moved["balances"][0].as_object_mut().unwrap().remove("spot");
        moved["spot_known"] = false.into();
        assert_eq!(read(1).await, moved, "an engine that does not answer is not an empty one");
        server.leg.silent.store(false, Ordering::SeqCst);
        server.set_spot_status(1, "USDT", Frozen).await;
        server.set_funding_status(2, "WIDE", Frozen).await;
        assert_eq!(read(1).await["balances"][0]["spot"]["status"], "frozen");
        assert_eq!(read(2).await["balances"][1]["funding"]["status"], "frozen");
        server.give_spot(8, "BTC", 5).await;
        let only_spot = json!({"available": "0.05", "reserved": "0.00", "status": "active"});
        assert_eq!(read(8).await["balances"], json!([{"asset": "BTC", "spot": only_spot}]));
        server.fund(7, "HALTED", 1).await;
        let seven = server.get(7, BALANCES).await.json();
        assert_eq!(seven["balances"][0]["funding"]["available"], "0.01", "a suspended asset is still owned");
    }

    async fn what_is_on_its_way_is_frozen(db: TestDb) {
        let server = Server::with(db, Choice { wait: std::time::Duration::from_millis(20), ..Choice::default() }).await;
        server.leg.close();
        assert_eq!(server.transfer(1, to_spot("3.00")).await.status, 202);
        let answer = server.get(1, BALANCES).await.json();
        let usdt = answer["balances"].as_array().unwrap().iter().find(|one| one["asset"] == "USDT").unwrap().clone();
        assert_eq!(usdt["funding"], json!({"available": "97.00", "frozen": "3.00", "status": "active"}));
        server.leg.open();
    }
}
