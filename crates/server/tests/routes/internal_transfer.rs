//! `POST /api/v1/internal_transfer` and `GET /api/v1/internal_transfer/{req_id}`: what becomes of a transfer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::AccountStatus::Disabled;
use serde_json::json;
use store::db_test;
use transfer::scanner::scan_once;

use crate::support::*;

db_test! {
    async fn money_goes_there_and_back(db: TestDb) {
        let server = Server::start(db).await;
        for (text, from, to, books) in [
            (to_spot("12.34"), "FUNDING", "SPOT", (8_766, 0, 1_234)),
            (to_funding("2.34"), "SPOT", "FUNDING", (9_000, 0, 1_000)),
        ] {
            let reply = server.transfer(1, text).await;
            let answer = reply.json();
            assert_eq!((reply.status, &answer["state"], &answer["stage"]), (200, &json!("COMMITTED"), &json!("COMMITTED")));
            assert_eq!((&answer["from"], &answer["to"], &answer["asset"]), (&json!(from), &json!(to), &json!("USDT")));
            let id = answer["req_id"].as_str().unwrap();
            assert_eq!(format!("sr-{}", answer["transfer_id"].as_str().unwrap()), id);
            assert_eq!(server.usdt(1).await, books);
            let read = server.get(1, format!("{TRANSFERS}/{id}")).await;
            assert_eq!((read.status, read.json()), (200, answer), "reading it tells the same");
        }
    }

    async fn another_users_transfer_is_as_good_as_none(db: TestDb) {
        let server = Server::start(db).await;
        let id = server.moved(1, &to_spot("1.00")).await;
        for path in [format!("{TRANSFERS}/{id}"), format!("{ALIAS}/{id}")] {
            assert_eq!(server.get(1, path.clone()).await.status, 200);
            let others = server.get(2, path.clone()).await;
            let nobodys = server.get(2, path.replace(&id, "sr-1")).await;
            assert_eq!((others.status, others.code().as_str()), (404, "TRANSFER_NOT_FOUND"));
            let told = |reply: &Reply| (reply.status, reply.code(), reply.json()["error"]["message"].clone());
            assert_eq!(told(&others), told(&nobodys), "nothing tells the two apart");
            assert!(!others.body.contains(&id));
        }
    }

    async fn a_duplicate_waits_for_the_first_ones_end(db: TestDb) {
        let server = Server::start(db).await;
        let duplicates = || server.app.intake.coordinator().metrics().transfers_duplicate.load(Ordering::Relaxed);
        let named = body(json!({"client_order_id": "twice"}));
        server.leg.close();
        let engine = async {
            // The engine answers when the first one waits for it and the second is known to be the same.
            while server.leg.calls.load(Ordering::SeqCst) == 0 || duplicates() == 0 {
                tokio::task::yield_now().await;
            }
            server.leg.open();
        };
        let second = async {
            while server.leg.calls.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            server.transfer(1, named.clone()).await
        };
        let (first, second, ()) = tokio::join!(server.transfer(1, named.clone()), second, engine);
        assert_eq!((first.status, first.code().as_str()), (200, "COMMITTED"), "{first:?}");
        assert_eq!((second.status, second.json()), (200, first.json()));
        assert_eq!(server.usdt(1).await, (9_900, 0, 100));
    }

    async fn of_pairs_that_are_sent_together_both_are_told_the_end(db: TestDb) {
        let server = Server::start(db).await;
        for pair in 0..30 {
            let named = body(json!({"client_order_id": format!("pair-{pair}")}));
            let (one, two) = tokio::join!(server.transfer(1, named.clone()), server.transfer(1, named.clone()));
            assert_eq!((one.status, two.status), (200, 200), "pair {pair}: {one:?} {two:?}");
            assert_eq!(one.json(), two.json());
        }
        assert_eq!(server.usdt(1).await, (7_000, 0, 3_000));
    }

    async fn a_transfer_that_takes_long_is_on_its_way(db: TestDb) {
        let server = Server::with(db, Choice { wait: Duration::from_millis(30), ..Choice::default() }).await;
        server.leg.close();
        let named = body(json!({"client_order_id": "slow"}));
        let reply = server.transfer(1, named.clone()).await;
        assert_eq!((reply.status, reply.code().as_str()), (202, "PENDING"), "{reply:?}");
        assert_eq!(server.usdt(1).await, (9_900, 100, 0), "put aside, not gone");
        let id = reply.json()["req_id"].as_str().unwrap().to_owned();
        let again = server.transfer(1, named.clone()).await;
        assert_eq!((again.status, again.json()["req_id"].as_str()), (202, Some(id.as_str())));
        let read = server.get(1, format!("{TRANSFERS}/{id}")).await;
        assert_eq!((read.status, read.code().as_str()), (200, "PENDING"));
        assert_eq!(server.get(1, format!("{ALIAS}/{id}")).await.code(), "pending");
        // Money that is put aside cannot be spent again.
        assert_eq!(server.transfer(1, to_spot("50.00")).await.status, 202);
        let ask = Ask::post(TRANSFERS, to_spot("49.01")).token(&server.token(1));
        server.refuses("spend what is put aside", &ask, 422, "INSUFFICIENT_BALANCE").await;
        server.leg.open();
        let ended = async {
            while server.get(1, format!("{TRANSFERS}/{id}")).await.code() != "COMMITTED" {
                tokio::time::sleep(Duration::from_millis(5)).await;
                server.pass(Duration::from_secs(10));
                scan_once(server.app.intake.coordinator()).await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it ends by itself");
        assert_eq!(server.transfer(1, named).await.code(), "COMMITTED");
        assert_eq!(server.usdt(1).await, (4_900, 0, 5_100));
    }

    async fn what_a_leg_refuses_is_an_error_with_the_transfer_in_it(db: TestDb) {
        let server = Server::start(db).await;
        server.moved(1, &to_spot("1.00")).await;
        // The engine does not tell balances: only the withdrawal itself can fail.
        server.leg.silent.store(true, Ordering::SeqCst);
        let named =
            body(json!({"from": "SPOT", "to": "FUNDING", "amount": "1.01", "client_order_id": "n"}));
        let reply = server.transfer(1, named.clone()).await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "INSUFFICIENT_BALANCE"), "{reply:?}");
        assert_eq!(reply.json()["error"]["transfer"]["state"], "FAILED");
        let again = server.transfer(1, named.clone()).await;
        assert_eq!(again.status, 422);
        assert_eq!(again.json()["error"]["transfer"], reply.json()["error"]["transfer"], "the original result");
        assert_eq!(server.usdt(1).await, (9_900, 0, 100));
        // The user never had spot money. The engine has a code of its own for that.
        let none = server.transfer(2, to_funding("1.00")).await;
        assert_eq!((none.status, none.code().as_str()), (422, "SOURCE_ACCOUNT_NOT_FOUND"));
        // The target refuses: the money goes back, and the answer says so.
        server.set_spot_status(1, "USDT", Disabled).await;
        let reply = server.transfer(1, to_spot("5.00")).await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "ACCOUNT_DISABLED"), "{reply:?}");
        assert_eq!(reply.json()["error"]["transfer"]["state"], "ROLLED_BACK");
        assert_eq!(server.usdt(1).await, (9_900, 0, 100));
        let id = reply.json()["error"]["transfer"]["req_id"].as_str().unwrap().to_owned();
        let read = server.get(1, format!("{TRANSFERS}/{id}")).await;
        assert_eq!((read.status, read.code().as_str()), (200, "ROLLED_BACK"), "reading it is no error");
        assert_eq!(server.get(1, format!("{ALIAS}/{id}")).await.code(), "rolled_back");
    }

    async fn without_its_database_the_server_says_so_and_nothing_else(db: TestDb) {
        let server = Server::start(db).await;
        let id = server.moved(1, &to_spot("1.00")).await;
        server.db.close().await;
        let transfer = format!("{TRANSFERS}/{id}");
        let token = server.token(1);
        for ask in [
            Ask::post(TRANSFERS, to_spot("1.00")),
            Ask::post(BATCH, format!("{{\"transfers\":[{}]}}", to_spot("1.00"))),
            Ask::get(transfer),
            Ask::get(TRANSFERS),
            Ask::get(BALANCES),
        ] {
            let reply = server.send(&ask.clone().token(&token)).await;
            assert_eq!((reply.status, reply.code().as_str()), (503, "SYSTEM_ERROR"), "{ask:?}: {reply:?}");
            assert_eq!(reply.header("retry-after"), Some("1"));
            let told = reply.body.to_lowercase();
            assert!(!["sql", "pool", "postgres", "connection"].iter().any(|word| told.contains(word)), "{told}");
        }
        let ready = server.send(&Ask::get("/health/ready")).await;
        assert_eq!((ready.status, ready.code().as_str()), (503, "database: DATABASE_UNAVAILABLE"));
    }
}
