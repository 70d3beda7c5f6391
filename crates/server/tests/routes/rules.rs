//! Every row of the security tables (004 §1.5, docs/sources.md) as an attack over HTTP: one line each, with its code.

use std::time::Duration;

use domain::AccountStatus::{Disabled, Frozen};
use domain::Availability;
use serde_json::{Value, json};
use store::db_test;
use store::testing::NOW;

use crate::support::*;

/// The user, the request, and its answer.
type Row = (&'static str, i64, Value, u16, &'static str);

async fn hold(server: &Server, rows: &[Row]) {
    for (attack, number, changes, status, code) in rows {
        let ask = Ask::post(TRANSFERS, body(changes.clone())).token(&server.token(*number));
        server.refuses(attack, &ask, *status, code).await;
    }
}

#[test]
fn identity_and_authorization() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let plain = Ask::post(TRANSFERS, to_spot("1.00"));
        let token = server.token(1);
        let forged = format!("{}x", &token[..token.len() - 1]);
        for (attack, ask) in [
            ("no token", plain.clone()),
            ("forged signature", plain.clone().token(&forged)),
            ("another scheme", plain.clone().header("Authorization", format!("Basic {token}"))),
            ("a session instead", plain.clone().header("Cookie", format!("session={token}"))),
            ("the token in the address", Ask { path: format!("{TRANSFERS}?token={token}"), ..plain.clone() }),
        ] {
            let reply = server.refuses(attack, &ask, 401, "UNAUTHORIZED").await;
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{attack}");
        }
        hold(
            &server,
            &[
                ("cross-user transfer", 1, json!({"user_id": 2}), 403, "FORBIDDEN"),
                (
                    "steal from another's spot",
                    1,
                    json!({"user_id": 2, "from": "SPOT", "to": "FUNDING"}),
                    403,
                    "FORBIDDEN",
                ),
                ("a user who does not exist", 1, json!({"user_id": 999}), 403, "FORBIDDEN"),
                ("user 0", 1, json!({"user_id": 0}), 403, "FORBIDDEN"),
                ("a negative user", 1, json!({"user_id": -1}), 403, "FORBIDDEN"),
                ("another owner of the source", 1, json!({"from_user_id": 2}), 400, "INVALID_REQUEST"),
                ("another owner of the target", 1, json!({"to_user_id": 2}), 400, "INVALID_REQUEST"),
            ],
        )
        .await;
        assert_eq!(server.transfer(1, body(json!({"user_id": 1}))).await.status, 200, "the own number is no attack");
    });
}

#[test]
fn account_types() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        hold(
            &server,
            &[
                ("wash", 1, json!({"to": "FUNDING"}), 400, "SAME_ACCOUNT"),
                ("wash in spot", 1, json!({"from": "SPOT"}), 400, "SAME_ACCOUNT"),
                ("wash of what is not served", 1, json!({"from": "MARGIN", "to": "MARGIN"}), 400, "SAME_ACCOUNT"),
                ("invented source", 1, json!({"from": "SAVINGS"}), 400, "INVALID_ACCOUNT_TYPE"),
                ("invented target", 1, json!({"to": "SAVINGS"}), 400, "INVALID_ACCOUNT_TYPE"),
                ("invented both", 1, json!({"from": "SAVINGS", "to": "SAVINGS"}), 400, "INVALID_ACCOUNT_TYPE"),
                ("empty", 1, json!({"from": ""}), 400, "INVALID_ACCOUNT_TYPE"),
                ("small letters", 1, json!({"from": "funding"}), 400, "INVALID_ACCOUNT_TYPE"),
                ("the older form's name", 1, json!({"to": "trading"}), 400, "INVALID_ACCOUNT_TYPE"),
                ("a space", 1, json!({"to": "SPOT "}), 400, "INVALID_ACCOUNT_TYPE"),
                ("letters that look alike", 1, json!({"to": "SP\u{41e}T"}), 400, "INVALID_ACCOUNT_TYPE"),
                ("SQL", 1, json!({"from": "FUNDING' OR '1'='1"}), 400, "INVALID_ACCOUNT_TYPE"),
                ("futures as target", 1, json!({"to": "FUTURE"}), 400, "UNSUPPORTED_ACCOUNT_TYPE"),
                ("futures as source", 1, json!({"from": "FUTURE"}), 400, "UNSUPPORTED_ACCOUNT_TYPE"),
                ("margin as target", 1, json!({"to": "MARGIN"}), 400, "UNSUPPORTED_ACCOUNT_TYPE"),
                ("margin to futures", 1, json!({"from": "MARGIN", "to": "FUTURE"}), 400, "UNSUPPORTED_ACCOUNT_TYPE"),
                ("invented to unserved", 1, json!({"from": "FUTURE", "to": "SAVINGS"}), 400, "INVALID_ACCOUNT_TYPE"),
            ],
        )
        .await;
    });
}

#[test]
fn amounts() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let wide = |amount: &str| json!({"asset": "WIDE", "amount": amount});
        hold(
            &server,
            &[
                ("nothing", 1, json!({"amount": "0"}), 400, "INVALID_AMOUNT"),
                ("nothing, exactly", 1, json!({"amount": "0.00"}), 400, "INVALID_AMOUNT"),
                ("less than nothing", 1, json!({"amount": "-1.00"}), 400, "INVALID_AMOUNT"),
                ("the least negative", 1, json!({"amount": "-0.01"}), 400, "INVALID_AMOUNT"),
                ("negative zero", 1, json!({"amount": "-0"}), 400, "INVALID_AMOUNT"),
                ("a third decimal", 1, json!({"amount": "1.001"}), 400, "PRECISION_OVERFLOW"),
                ("a third decimal that is 0", 1, json!({"amount": "1.000"}), 400, "PRECISION_OVERFLOW"),
                ("less than a unit", 1, json!({"amount": "0.001"}), 400, "PRECISION_OVERFLOW"),
                ("too precise and too large", 1, wide("99999999999999999999.001"), 400, "PRECISION_OVERFLOW"),
                ("dust", 1, json!({"amount": "0.09"}), 400, "AMOUNT_TOO_SMALL"),
                ("one unit", 1, json!({"amount": "0.01"}), 400, "AMOUNT_TOO_SMALL"),
                ("around risk control", 1, json!({"amount": "50.01"}), 400, "AMOUNT_TOO_LARGE"),
                ("far around it", 1, json!({"amount": "1000000.00"}), 400, "AMOUNT_TOO_LARGE"),
                ("beyond the safety factor", 1, wide("23058430092136939.52"), 400, "OVERFLOW"),
                ("the most that 64 bits hold", 1, wide("92233720368547758.07"), 400, "OVERFLOW"),
                ("one more", 1, wide("92233720368547758.08"), 400, "OVERFLOW"),
                ("2 to the 64th", 1, wide("184467440737095516.16"), 400, "OVERFLOW"),
                ("2 to the 64th and 1.00", 1, wide("184467440737095517.16"), 400, "OVERFLOW"),
                ("a hundred digits", 1, wide(&"9".repeat(100)), 400, "OVERFLOW"),
                ("overflow of a narrow asset", 1, json!({"amount": "9".repeat(30)}), 400, "OVERFLOW"),
                ("just within the safety factor", 1, wide("23058430092136939.51"), 422, "INSUFFICIENT_BALANCE"),
            ],
        )
        .await;
        for (amount, units) in [("0.10", 10), ("50.00", 5_000), ("5", 500), ("0.5", 50), ("000.1", 10)] {
            let before = server.usdt(1).await;
            server.moved(1, &to_spot(amount)).await;
            assert_eq!(server.usdt(1).await, (before.0 - units, 0, before.2 + units), "{amount}");
            server.moved(1, &to_funding(amount)).await;
            assert_eq!(server.usdt(1).await, before, "{amount}");
        }
    });
}

db_test! {
    async fn assets(db: TestDb) {
        let mut server = Server::start(db).await;
        server.fund(1, "HALTED", 1_000).await;
        server.fund(1, "FIXED", 1_000).await;
        hold(&server, &[
            ("fake", 1, json!({"asset": "FAKE"}), 400, "INVALID_ASSET"),
            ("empty", 1, json!({"asset": ""}), 400, "INVALID_ASSET"),
            ("small letters", 1, json!({"asset": "usdt"}), 400, "INVALID_ASSET"),
            ("its number", 1, json!({"asset": "1"}), 400, "INVALID_ASSET"),
            ("a space", 1, json!({"asset": "USDT "}), 400, "INVALID_ASSET"),
            ("a NUL behind it", 1, json!({"asset": "USDT\0"}), 400, "INVALID_ASSET"),
            ("endless", 1, json!({"asset": "U".repeat(10_000)}), 400, "INVALID_ASSET"),
            ("SQL", 1, json!({"asset": "USDT'; DROP TABLE transfers; --"}), 400, "INVALID_ASSET"),
            ("delisted", 1, json!({"asset": "HALTED"}), 422, "ASSET_SUSPENDED"),
            ("not between own accounts", 1, json!({"asset": "FIXED"}), 422, "TRANSFER_NOT_ALLOWED"),
        ]).await;
        // The gate has not read the change yet; the coordinator reads the asset with the account.
        for (status, enabled, code) in
            [(Availability::Active, false, "TRANSFER_NOT_ALLOWED"), (Availability::Suspended, true, "ASSET_SUSPENDED")]
        {
            let mut catalog = catalog();
            let usdt = catalog.assets.get_mut(&"USDT".parse().unwrap()).unwrap();
            (usdt.status, usdt.internal_transfer_enabled) = (status, enabled);
            let author = store::catalog::Author { actor: "test", reason: "test" };
            db.apply_catalog(&catalog, &author, NOW).await.unwrap();
            hold(&server, &[("changed a moment ago", 1, json!({}), 422, code)]).await;
        }
    }

    async fn account_status(db: TestDb) {
        let mut server = Server::start(db).await;
        let back = |amount: &str| json!({"from": "SPOT", "to": "FUNDING", "amount": amount});
        // 2, 6 and 7 have 10.00 in spot; 5 has no account at all; 8 has only spot; 9 has next to nothing.
        for number in [6, 7] {
            server.fund(number, "USDT", 1_000).await;
        }
        for number in [2, 6, 7] {
            server.moved(number, &to_spot("10.00")).await;
        }
        server.give_spot(8, "USDT", 1_000).await;
        server.fund(9, "USDT", 100).await;
        server.set_funding_status(3, "USDT", Frozen).await;
        server.set_funding_status(4, "USDT", Disabled).await;
        server.give_spot(4, "USDT", 1_000).await;
        server.set_spot_status(6, "USDT", Frozen).await;
        server.set_spot_status(7, "USDT", Disabled).await;
        hold(&server, &[
            ("no account at all", 5, json!({}), 422, "SOURCE_ACCOUNT_NOT_FOUND"),
            ("no account at all, back", 5, back("1.00"), 422, "SOURCE_ACCOUNT_NOT_FOUND"),
            ("no account of the asset", 1, json!({"asset": "BTC"}), 422, "SOURCE_ACCOUNT_NOT_FOUND"),
            ("spot that never was", 1, back("1.00"), 422, "SOURCE_ACCOUNT_NOT_FOUND"),
            ("funding that never was", 8, back("1.00"), 422, "TARGET_ACCOUNT_NOT_FOUND"),
            ("frozen funding", 3, json!({}), 422, "ACCOUNT_FROZEN"),
            ("frozen spot", 6, back("1.00"), 422, "ACCOUNT_FROZEN"),
            ("disabled funding", 4, json!({}), 422, "ACCOUNT_DISABLED"),
            ("disabled spot", 7, back("1.00"), 422, "ACCOUNT_DISABLED"),
            ("disabled funding as target", 4, back("1.00"), 422, "ACCOUNT_DISABLED"),
            ("a unit more than funding has", 9, json!({"amount": "1.01"}), 422, "INSUFFICIENT_BALANCE"),
            ("a unit more than spot has", 2, back("10.01"), 422, "INSUFFICIENT_BALANCE"),
            ("frozen comes before empty", 3, json!({"amount": "50.00"}), 422, "ACCOUNT_FROZEN"),
        ]).await;
        // The whole balance may be moved.
        server.moved(9, &to_spot("1.00")).await;
        assert_eq!(server.usdt(9).await, (0, 0, 100));
        server.moved(2, &to_funding("10.00")).await;
        assert_eq!(server.usdt(2).await, (FUNDS, 0, 0));
    }

    async fn spot_is_made_by_the_first_transfer_and_funding_is_not(db: TestDb) {
        let mut server = Server::start(db).await;
        let before = server.books().await;
        assert!(before.spot.is_empty(), "nobody has spot yet");
        server.moved(1, &to_spot("1.00")).await;
        let after = server.books().await;
        assert_eq!(after.spot.into_iter().collect::<Vec<_>>(), [((1, "USDT".to_owned()), 100)]);
        // Money in spot does not make a funding account, however often it is asked for.
        server.give_spot(8, "USDT", 1_000).await;
        for _ in 0..2 {
            let ask = Ask::post(TRANSFERS, to_funding("1.00")).token(&server.token(8));
            server.refuses("no funding", &ask, 422, "TARGET_ACCOUNT_NOT_FOUND").await;
        }
        // The first deposit does; it is open for transfers from then on.
        server.fund(8, "USDT", 0).await;
        server.moved(8, &to_funding("1.00")).await;
        assert_eq!(server.usdt(8).await, (100, 0, 900));
    }

    async fn a_frozen_account_takes_what_comes_in(db: TestDb) {
        let server = Server::start(db).await;
        for number in [1, 2] {
            server.moved(number, &to_spot("10.00")).await;
        }
        server.set_funding_status(1, "USDT", Frozen).await;
        server.set_spot_status(2, "USDT", Frozen).await;
        server.moved(1, &to_funding("4.00")).await;
        server.moved(2, &to_spot("4.00")).await;
        assert_eq!((server.usdt(1).await, server.usdt(2).await), ((9_400, 0, 600), (8_600, 0, 1_400)));
    }

    async fn ten_requests_in_a_second(db: TestDb) {
        let server = Server::with(db, Choice { per_second: 10, ..Choice::default() }).await;
        for number in 0..10 {
            // A request that is refused does not count.
            assert_eq!(server.transfer(1, to_spot("x")).await.code(), "INVALID_AMOUNT");
            // Every kind of request counts the same.
            let reply = match number % 3 {
                0 => server.transfer(1, to_spot("1.00")).await,
                1 => server.get(1, BALANCES).await,
                _ => server.get(1, TRANSFERS).await,
            };
            assert_eq!(reply.status, 200, "{number}: {reply:?}");
        }
        let token = server.token(1);
        let limit = "RATE_LIMIT_EXCEEDED";
        for (attack, ask) in [
            ("a transfer", Ask::post(TRANSFERS, to_spot("1.00"))),
            ("the older form", Ask::post(ALIAS, body(json!({"from": "funding", "to": "trading"})))),
            ("a batch", Ask::post(BATCH, format!("{{\"transfers\":[{}]}}", to_spot("1.00")))),
            ("a list", Ask::get(TRANSFERS)),
            ("a transfer's state", Ask::get(format!("{TRANSFERS}/sr-1"))),
            ("its state in the older form", Ask::get(format!("{ALIAS}/sr-1"))),
            ("balances", Ask::get(BALANCES)),
        ] {
            let reply = server.refuses(attack, &ask.token(&token), 429, limit).await;
            assert_eq!(reply.header("retry-after"), Some("1"), "{attack}");
        }
        assert_eq!(server.transfer(2, to_spot("1.00")).await.status, 200, "others are not in the way");
        assert_eq!(server.send(&Ask::get("/health/live")).await.status, 200);
        server.pass(Duration::from_micros(999_999));
        assert_eq!(server.get(1, BALANCES).await.status, 429);
        server.pass(Duration::from_micros(1));
        assert_eq!(server.get(1, BALANCES).await.status, 200);
        assert_eq!((server.usdt(1).await, server.books().await.transfers.len()), ((9_600, 0, 400), 5));
    }

    async fn a_hundred_transfers_in_a_day(db: TestDb) {
        let server = Server::with(db, Choice { daily_transfers: 100, ..Choice::default() }).await;
        let ninety_eight = vec![to_spot("0.10"); 98].join(",");
        let reply = server.post(1, BATCH, format!("{{\"transfers\":[{ninety_eight}]}}")).await;
        assert!(reply.json()["results"].as_array().unwrap().iter().all(|one| one["status"] == 200), "{reply:?}");
        // A refused request is not a transfer.
        hold(&server, &[
            ("dust", 1, json!({"amount": "0.01"}), 400, "AMOUNT_TOO_SMALL"),
            ("too much for spot", 1, json!({"from": "SPOT", "to": "FUNDING", "amount": "50.00"}), 422, "INSUFFICIENT_BALANCE"),
        ]).await;
        server.moved(1, &body(json!({"client_order_id": "99"}))).await;
        // The same request again is not a new transfer either.
        server.moved(1, &body(json!({"client_order_id": "99"}))).await;
        server.moved(1, &to_spot("0.10")).await;
        let ask = Ask::post(TRANSFERS, to_spot("0.10")).token(&server.token(1));
        let reply = server.refuses("the 101st", &ask, 429, "DAILY_LIMIT_EXCEEDED").await;
        let until_midnight = 86_400 - NOW.micros() / 1_000_000 % 86_400;
        let wait: i64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((until_midnight..=until_midnight + 1).contains(&wait), "{wait}, and midnight is in {until_midnight}");
        server.moved(1, &body(json!({"client_order_id": "99"}))).await;
        server.moved(2, &to_spot("0.10")).await;
        server.pass(Duration::from_secs(u64::try_from(wait).unwrap()));
        server.moved(1, &to_spot("0.10")).await;
        assert_eq!(server.usdt(1).await.2, 98 * 10 + 100 + 10 + 10);
    }

    async fn an_amount_in_a_day(db: TestDb) {
        let server = Server::start(db).await;
        for _ in 0..2 {
            server.moved(1, &to_spot("50.00")).await;
            server.moved(1, &to_funding("49.90")).await;
        }
        // 199.80 of 200.00 is moved: both directions count, and so does each unit.
        let ask = |amount| Ask::post(TRANSFERS, to_spot(amount)).token(&server.token(1));
        let reply = server.refuses("a unit more", &ask("0.21"), 429, "DAILY_AMOUNT_EXCEEDED").await;
        assert!(reply.header("retry-after").is_some());
        server.moved(1, &to_spot("0.20")).await;
        server.refuses("nothing is left", &ask("0.10"), 429, "DAILY_AMOUNT_EXCEEDED").await;
        // Another asset and another user have days of their own.
        server.moved(1, &body(json!({"asset": "WIDE"}))).await;
        server.moved(2, &to_spot("0.10")).await;
        server.pass(Duration::from_secs(86_400));
        server.moved(1, &to_spot("0.10")).await;
    }

    async fn a_name_is_one_transfer(db: TestDb) {
        let server = Server::start(db).await;
        let named = |changes: Value| {
            let mut all = json!({"client_order_id": "order-1"});
            all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            all
        };
        let first = server.transfer(1, body(named(json!({})))).await;
        let after_first = server.books().await;
        server.pass(Duration::from_secs(60));
        for text in [body(named(json!({}))), body(named(json!({"amount": "1"}))), body(named(json!({"amount": "01.0"})))] {
            let again = server.transfer(1, text).await;
            assert_eq!((again.status, again.json()), (200, first.json()), "the same content: the same result");
        }
        hold(&server, &[
            ("another amount", 1, named(json!({"amount": "1.01"})), 409, "DUPLICATE_REQUEST"),
            ("another direction", 1, named(json!({"from": "SPOT", "to": "FUNDING"})), 409, "DUPLICATE_REQUEST"),
            ("another asset", 1, named(json!({"asset": "WIDE"})), 409, "DUPLICATE_REQUEST"),
            ("an asset without an account", 1, named(json!({"asset": "BTC"})), 409, "DUPLICATE_REQUEST"),
        ]).await;
        assert!(server.books().await == after_first);
        // The older form has the same names.
        let older = body(named(json!({"from": "funding", "to": "trading"})));
        assert_eq!(server.post(1, ALIAS, older).await.json()["req_id"], first.json()["req_id"]);
        // The same client_order_id of another user is another name, and so is one in capitals.
        server.moved(2, &body(named(json!({})))).await;
        server.moved(1, &body(json!({"client_order_id": "ORDER-1"}))).await;
        assert_eq!((server.usdt(1).await, server.usdt(2).await), ((9_800, 0, 200), (9_900, 0, 100)));
        assert_eq!(server.books().await.transfers.len(), 3);
    }

    async fn many_who_send_the_same_at_once_get_the_same(db: TestDb) {
        let server = Server::start(db).await;
        let ask = Ask::post(TRANSFERS, body(json!({"client_order_id": "once"}))).token(&server.token(1));
        let asks = (0..16).map(|_| server.send(&ask));
        let replies = futures(asks).await;
        for reply in &replies {
            assert!(matches!(reply.status, 200 | 202), "{reply:?}");
            assert_eq!(reply.json()["req_id"], replies[0].json()["req_id"]);
        }
        assert_eq!((server.usdt(1).await, server.books().await.transfers.len()), ((9_900, 0, 100), 1));
    }

    async fn many_who_spend_the_same_money_at_once_spend_it_once(db: TestDb) {
        let server = Server::start(db).await;
        let ask = Ask::post(TRANSFERS, to_spot("30.00")).token(&server.token(1));
        let replies = futures((0..12).map(|_| server.send(&ask))).await;
        let done = replies.iter().filter(|reply| reply.status == 200).count();
        assert_eq!(done, 3, "{replies:?}");
        assert!(replies.iter().all(|one| one.status == 200 || one.code() == "INSUFFICIENT_BALANCE"), "{replies:?}");
        assert_eq!((server.usdt(1).await, server.books().await.transfers.len()), ((1_000, 0, 9_000), 3));
    }
}

/// All of them at the same time.
async fn futures<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        let mut done = true;
        for (future, output) in waiting.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                std::task::Poll::Ready(value) => *output = Some(value),
                std::task::Poll::Pending => done = false,
            }
        }
        if done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    waiting.into_iter().map(|(_, output)| output.expect("all are ready")).collect()
}
