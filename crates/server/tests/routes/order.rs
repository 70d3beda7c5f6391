//! A request with several faults is answered with the fault of the earliest check (004 §1.5.8, docs/sources.md).

use std::time::Duration;

use serde_json::json;
use store::db_test;

use crate::support::*;

db_test! {
    /// A request that breaks everything, repaired from the first check to the last.
    async fn the_ladder(db: TestDb) {
        let choice = Choice { per_second: 1, daily_transfers: 2, ..Choice::default() };
        let mut server = Server::with(db, choice).await;
        server.fund(5, "USDT", 1_000).await;
        server.moved(5, &body(json!({"client_order_id": "taken"}))).await;
        server.pass(Duration::from_secs(1));
        server.moved(5, &to_spot("1.00")).await;
        let mut request = json!({
            "user_id": 2, "client_order_id": "taken",
            "from": "FUNDING", "to": "FUNDING", "asset": "HALTED", "amount": "abc",
        });
        let no_token = Ask::post(TRANSFERS, request.to_string());
        server.refuses("1. authentication", &no_token, 401, "UNAUTHORIZED").await;
        for (step, repair, status, code) in [
            ("2. authorization", json!({}), 403, "FORBIDDEN"),
            ("3. format", json!({"user_id": 5}), 400, "INVALID_AMOUNT"),
            ("4. account type", json!({"amount": "50.01"}), 400, "SAME_ACCOUNT"),
            ("5. asset", json!({"to": "SPOT"}), 422, "ASSET_SUSPENDED"),
            ("6. amount", json!({"asset": "USDT"}), 400, "AMOUNT_TOO_LARGE"),
            ("7. rate", json!({"amount": "50.00"}), 429, "RATE_LIMIT_EXCEEDED"),
        ] {
            request.as_object_mut().unwrap().extend(repair.as_object().unwrap().clone());
            let ask = Ask::post(TRANSFERS, request.to_string()).token(&server.token(5));
            server.refuses(step, &ask, status, code).await;
        }
        let ask = |request: &serde_json::Value| Ask::post(TRANSFERS, request.to_string()).token(&server.token(5));
        server.pass(Duration::from_secs(1));
        server.refuses("7. rate, of the day", &ask(&request), 429, "DAILY_LIMIT_EXCEEDED").await;
        server.pass(Duration::from_secs(86_400));
        server.refuses("8. idempotency", &ask(&request), 409, "DUPLICATE_REQUEST").await;
        request["client_order_id"] = "free".into();
        server.pass(Duration::from_secs(1));
        server.refuses("9. balance", &ask(&request), 422, "INSUFFICIENT_BALANCE").await;
        request["amount"] = "8.00".into();
        server.pass(Duration::from_secs(1));
        server.moved(5, &request.to_string()).await;
        assert_eq!(server.usdt(5).await, (0, 0, 1_000));
    }

    async fn of_two_neighbours_the_earlier_is_told(db: TestDb) {
        let server = Server::start(db).await;
        server.moved(1, &body(json!({"client_order_id": "taken"}))).await;
        for (pair, number, changes, status, code) in [
            ("2, 3: amount malformed", 1, json!({"user_id": 2, "amount": "abc"}), 403, "FORBIDDEN"),
            ("2, 3: amount missing", 1, json!({"user_id": 2, "amount": null}), 403, "FORBIDDEN"),
            ("2, 3: amount a number", 1, json!({"user_id": 2, "amount": 1}), 403, "FORBIDDEN"),
            ("2, 3: unknown member", 1, json!({"user_id": 2, "more": 1}), 403, "FORBIDDEN"),
            ("2, 3: bad name", 1, json!({"user_id": 2, "client_order_id": ""}), 403, "FORBIDDEN"),
            ("2, 3: invented account", 1, json!({"user_id": 2, "from": "X"}), 403, "FORBIDDEN"),
            ("3, 4: bad name", 1, json!({"to": "FUNDING", "client_order_id": " "}), 400, "INVALID_REQUEST"),
            ("3, 4: amount malformed", 1, json!({"to": "FUNDING", "amount": "1e3"}), 400, "INVALID_AMOUNT"),
            ("3, 4: amount empty", 1, json!({"to": "MARGIN", "amount": ""}), 400, "INVALID_AMOUNT"),
            ("3, 4: invented, the same", 1, json!({"from": "X", "to": "X"}), 400, "INVALID_ACCOUNT_TYPE"),
            ("3, 4: unserved, invented", 1, json!({"from": "MARGIN", "to": "X"}), 400, "INVALID_ACCOUNT_TYPE"),
            ("3, 5: amount malformed", 1, json!({"asset": "FAKE", "amount": "1,0"}), 400, "INVALID_AMOUNT"),
            ("4, 5: the same, fake", 1, json!({"to": "FUNDING", "asset": "FAKE"}), 400, "SAME_ACCOUNT"),
            ("4, 5: unserved, delisted", 1, json!({"to": "FUTURE", "asset": "HALTED"}), 400, "UNSUPPORTED_ACCOUNT_TYPE"),
            ("4, 6: the same, nothing", 1, json!({"to": "FUNDING", "amount": "0"}), 400, "SAME_ACCOUNT"),
            ("5, 6: fake, nothing", 1, json!({"asset": "FAKE", "amount": "0"}), 400, "INVALID_ASSET"),
            ("5, 6: delisted, too precise", 1, json!({"asset": "HALTED", "amount": "0.001"}), 422, "ASSET_SUSPENDED"),
            ("5, 6: fixed, too much", 1, json!({"asset": "FIXED", "amount": "99999"}), 422, "TRANSFER_NOT_ALLOWED"),
            ("6, 8: dust, name taken", 1, json!({"client_order_id": "taken", "amount": "0.01"}), 400, "AMOUNT_TOO_SMALL"),
            ("6, 9: too much, empty", 1, json!({"amount": "50.01"}), 400, "AMOUNT_TOO_LARGE"),
            ("6, 9: too much, no account", 5, json!({"amount": "50.01"}), 400, "AMOUNT_TOO_LARGE"),
            ("8, 9: name taken, no account", 1, json!({"client_order_id": "taken", "asset": "BTC"}), 409, "DUPLICATE_REQUEST"),
        ] {
            let ask = Ask::post(TRANSFERS, body(changes)).token(&server.token(number));
            server.refuses(pair, &ask, status, code).await;
            let nobody = Ask::post(TRANSFERS, ask.body.clone());
            server.refuses(&format!("1, {pair}"), &nobody, 401, "UNAUTHORIZED").await;
        }
        server.moved(1, &to_spot("50.00")).await;
        for (pair, changes, status, code) in [
            ("8, 9: name taken, too little", json!({"client_order_id": "taken", "amount": "50.00"}), 409, "DUPLICATE_REQUEST"),
            ("9", json!({"amount": "50.00"}), 422, "INSUFFICIENT_BALANCE"),
        ] {
            let ask = Ask::post(TRANSFERS, body(changes)).token(&server.token(1));
            server.refuses(pair, &ask, status, code).await;
        }
    }

    async fn limits_stand_between_the_amount_and_the_name(db: TestDb) {
        let server = Server::with(db, Choice { per_second: 1, daily_transfers: 4, ..Choice::default() }).await;
        let second = Duration::from_secs(1);
        server.moved(1, &body(json!({"client_order_id": "taken"}))).await;
        let ask = |changes| Ask::post(TRANSFERS, body(changes)).token(&server.token(1));
        let other = json!({"client_order_id": "taken", "amount": "2.00"});
        server.refuses("6, 7", &ask(json!({"amount": "0.01"})), 400, "AMOUNT_TOO_SMALL").await;
        server.refuses("7, 8", &ask(other.clone()), 429, "RATE_LIMIT_EXCEEDED").await;
        let same = json!({"client_order_id": "taken"});
        server.refuses("7, 8: even the same again", &ask(same.clone()), 429, "RATE_LIMIT_EXCEEDED").await;
        server.refuses("7, 9", &ask(json!({"asset": "BTC"})), 429, "RATE_LIMIT_EXCEEDED").await;
        for (from, to, amount) in
            [("FUNDING", "SPOT", "50.00"), ("SPOT", "FUNDING", "50.00"), ("FUNDING", "SPOT", "49.00")]
        {
            server.pass(second);
            server.moved(1, &body(json!({"from": from, "to": to, "amount": amount}))).await;
        }
        server.pass(second);
        server.refuses("7 of the day, 8", &ask(other.clone()), 429, "DAILY_LIMIT_EXCEEDED").await;
        server.pass(second);
        server.refuses("6, 7 of the day", &ask(json!({"amount": "50.01"})), 400, "AMOUNT_TOO_LARGE").await;
        server.pass(second);
        server.refuses("7 of the day, 9", &ask(json!({"amount": "50.00"})), 429, "DAILY_LIMIT_EXCEEDED").await;
        server.pass(second);
        // The same content again is no transfer, and exceeds nothing.
        server.moved(1, &body(same)).await;
    }

    async fn the_amount_of_a_day_stands_before_the_name(db: TestDb) {
        let server = Server::start(db).await;
        let named = |amount| body(json!({"client_order_id": "taken", "amount": amount}));
        let first = server.moved(1, &named("50.00")).await;
        server.moved(1, &to_funding("50.00")).await;
        server.moved(1, &to_spot("50.00")).await;
        server.moved(1, &to_funding("50.00")).await;
        let ask = Ask::post(TRANSFERS, named("1.00")).token(&server.token(1));
        server.refuses("7 of the day, 8", &ask, 429, "DAILY_AMOUNT_EXCEEDED").await;
        assert_eq!(server.moved(1, &named("50.00")).await, first, "the same content exceeds nothing");
        assert_eq!(server.usdt(1).await, (FUNDS, 0, 0));
    }
}
