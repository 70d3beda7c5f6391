//! `POST /api/v1/internal_transfer/batch`: each transfer is decided by itself, and all share the user's balance.

use serde_json::{Value, json};
use store::db_test;

use crate::support::*;

fn batch(items: &[String]) -> String {
    format!("{{\"transfers\":[{}]}}", items.join(","))
}

/// The status and the code or state of each.
fn told(reply: &Reply) -> Vec<(u64, String)> {
    assert_eq!(reply.status, 200, "{reply:?}");
    let tell = |one: &Value| {
        let code = one["error"]["code"].as_str().or(one["transfer"]["state"].as_str()).unwrap();
        assert!(one["error"].is_null() != one["transfer"].is_null(), "a transfer or an error: {one}");
        (one["status"].as_u64().unwrap(), code.to_owned())
    };
    reply.json()["results"].as_array().unwrap().iter().map(tell).collect()
}

#[test]
fn all_bad_is_no_error_of_the_batch() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let before = server.books().await;
        let reply = server.post(1, BATCH, batch(&[body(json!({"user_id": 2})), body(json!({"user_id": 3}))])).await;
        assert_eq!(told(&reply), vec![(403, "FORBIDDEN".to_owned()); 2]);
        assert!(server.books().await == before);
    });
}

db_test! {
    async fn from_one_to_a_thousand(db: TestDb) {
        let server = Server::start(db).await;
        let token = server.token(1);
        for (attack, text) in [
            ("none", batch(&[])),
            ("1,001", batch(&vec![to_spot("0.10"); 1_001])),
            ("1,001 that are no good", batch(&vec!["1".to_owned(); 1_001])),
        ] {
            server.refuses(attack, &Ask::post(BATCH, text).token(&token), 400, "INVALID_REQUEST").await;
        }
        assert_eq!(told(&server.post(1, BATCH, batch(&[to_spot("0.10")])).await), [(200, "COMMITTED".to_owned())]);
        let thousand = batch(&vec![body(json!({"asset": "WIDE", "amount": "0.05"})); 1_000]);
        let reply = server.post(2, BATCH, thousand).await;
        assert_eq!(told(&reply), vec![(200, "COMMITTED".to_owned()); 1_000]);
        let ids: std::collections::BTreeSet<String> = reply.json()["results"]
            .as_array().unwrap().iter().map(|one| one["transfer"]["req_id"].to_string()).collect();
        assert_eq!(ids.len(), 1_000);
        let (books, wide) = (server.books().await, (2, "WIDE".to_owned()));
        assert_eq!((books.funding[&wide], books.spot[&wide]), ((5_000, 0), 5_000));
        assert_eq!(books.transfers.len(), 1_001);
    }

    async fn one_that_is_no_good_does_not_spoil_its_neighbours(db: TestDb) {
        let server = Server::start(db).await;
        let good = to_spot("1.00");
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let bad = [
            ("null".to_owned(), 400, "INVALID_REQUEST"),
            ("17".to_owned(), 400, "INVALID_REQUEST"),
            ("[]".to_owned(), 400, "INVALID_REQUEST"),
            ("{}".to_owned(), 400, "INVALID_REQUEST"),
            (r#"["FUNDING","SPOT","USDT","1.00"]"#.to_owned(), 400, "INVALID_REQUEST"),
            (deep.clone(), 400, "INVALID_REQUEST"),
            (body(json!({"amount": 1})), 400, "INVALID_REQUEST"),
            (good.replacen('{', r#"{"from":"SPOT","#, 1), 400, "INVALID_REQUEST"),
            (good.replacen('{', &format!("{{\"more\":{deep},"), 1), 400, "INVALID_REQUEST"),
            (good.replacen('{', r#"{"client_order_id":null,"#, 1), 400, "INVALID_REQUEST"),
            (body(json!({"user_id": 2})), 403, "FORBIDDEN"),
            (body(json!({"user_id": 2, "more": 1})), 403, "FORBIDDEN"),
            (body(json!({"to": "FUNDING"})), 400, "SAME_ACCOUNT"),
            (body(json!({"asset": "HALTED"})), 422, "ASSET_SUSPENDED"),
            (body(json!({"asset": "BTC"})), 422, "SOURCE_ACCOUNT_NOT_FOUND"),
            (to_spot("0.001"), 400, "PRECISION_OVERFLOW"),
            (to_spot("50.01"), 400, "AMOUNT_TOO_LARGE"),
        ];
        let mut items = vec![good.clone()];
        let mut expected = vec![(200, "COMMITTED".to_owned())];
        for (item, status, code) in bad {
            items.extend([item, good.clone()]);
            expected.extend([(status, code.to_owned()), (200, "COMMITTED".to_owned())]);
        }
        let count = i64::try_from(items.len().div_ceil(2)).unwrap();
        assert_eq!(told(&server.post(1, BATCH, batch(&items)).await), expected);
        assert_eq!(server.usdt(1).await, (FUNDS - 100 * count, 0, 100 * count));
        assert_eq!(server.books().await.transfers.len(), usize::try_from(count).unwrap());
    }

    async fn the_same_twice_in_a_batch_is_one_transfer(db: TestDb) {
        let server = Server::start(db).await;
        let named = |amount| body(json!({"client_order_id": "n", "amount": amount}));
        let items = [named("1.00"), named("1.00"), named("2.00"), to_spot("1.00"), named("1.0")];
        let reply = server.post(1, BATCH, batch(&items)).await;
        let done = (200, "COMMITTED".to_owned());
        let taken = (409, "DUPLICATE_REQUEST".to_owned());
        assert_eq!(told(&reply), [done.clone(), done.clone(), taken.clone(), done.clone(), done.clone()]);
        let results = reply.json()["results"].clone();
        assert_eq!(results[0]["transfer"], results[1]["transfer"]);
        assert_eq!(results[0]["transfer"], results[4]["transfer"]);
        assert_ne!(results[0]["transfer"]["req_id"], results[3]["transfer"]["req_id"]);
        assert_eq!((server.usdt(1).await, server.books().await.transfers.len()), ((9_800, 0, 200), 2));
        // The whole batch again: only transfers without a client_order_id are made again.
        let again = server.post(1, BATCH, batch(&items)).await;
        assert_eq!(told(&again), [done.clone(), done.clone(), taken, done.clone(), done]);
        assert_eq!(again.json()["results"][0], results[0]);
        assert_eq!((server.usdt(1).await, server.books().await.transfers.len()), ((9_700, 0, 300), 3));
    }

    async fn a_batch_is_paid_out_of_one_purse_in_its_order(db: TestDb) {
        let server = Server::start(db).await;
        let done = (200, "COMMITTED".to_owned());
        let empty = (422, "INSUFFICIENT_BALANCE".to_owned());
        let items = ["40.00", "40.00", "40.00", "10.00", "10.01"].map(to_spot);
        let reply = server.post(1, BATCH, batch(&items)).await;
        assert_eq!(told(&reply), [done.clone(), done.clone(), empty.clone(), done.clone(), empty.clone()]);
        assert_eq!(server.usdt(1).await, (1_000, 0, 9_000));
        // Money that one transfer of a batch brings in cannot be spent by another of the same batch.
        let items = [to_funding("40.00"), to_spot("40.00"), to_funding("40.00"), to_funding("10.01")];
        let reply = server.post(1, BATCH, batch(&items)).await;
        assert_eq!(told(&reply), [done.clone(), empty.clone(), done, empty]);
        assert_eq!(server.usdt(1).await, (9_000, 0, 1_000));
    }

    async fn a_batch_of_n_counts_as_n(db: TestDb) {
        let server = Server::with(db, Choice { per_second: 7, daily_transfers: 5, ..Choice::default() }).await;
        let done = (200, "COMMITTED".to_owned());
        assert_eq!(told(&server.post(1, BATCH, batch(&vec![to_spot("0.10"); 3])).await), vec![done.clone(); 3]);
        let limit = (429, "DAILY_LIMIT_EXCEEDED".to_owned());
        let reply = server.post(1, BATCH, batch(&vec![to_spot("0.10"); 4])).await;
        assert_eq!(told(&reply), [done.clone(), done, limit.clone(), limit]);
        let ask = Ask::post(BATCH, batch(&[to_spot("0.10")])).token(&server.token(1));
        let reply = server.refuses("the eighth", &ask, 429, "RATE_LIMIT_EXCEEDED").await;
        assert_eq!(reply.header("retry-after"), Some("1"));
        let ask = Ask::post(BATCH, batch(&vec![to_spot("0.10"); 8])).token(&server.token(2));
        server.refuses("more than can ever be let through", &ask, 400, "INVALID_REQUEST").await;
        // Refused as a whole: two are left, and three are asked for.
        let one = batch(&vec![to_spot("0.10"); 5]);
        assert_eq!(server.post(2, BATCH, one).await.status, 200);
        let ask = Ask::post(BATCH, batch(&vec![to_spot("0.10"); 3])).token(&server.token(2));
        server.refuses("two fit", &ask, 429, "RATE_LIMIT_EXCEEDED").await;
        assert_eq!((server.usdt(1).await, server.usdt(2).await), ((9_950, 0, 50), (9_950, 0, 50)));
    }
}

#[test]
fn a_batch_that_makes_no_sense_as_a_whole_is_refused_as_a_whole() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let good = to_spot("1.00");
        let token = server.token(1);
        for (attack, text) in [
            ("empty", String::new()),
            ("not JSON", "transfers".to_owned()),
            ("no list", "{}".to_owned()),
            ("null", r#"{"transfers":null}"#.to_owned()),
            ("an object", r#"{"transfers":{}}"#.to_owned()),
            ("a bare list", format!("[{good}]")),
            ("a list in a list", format!("[[{good}]]")),
            ("a single request", good.clone()),
            ("twice", format!(r#"{{"transfers":[{good}],"transfers":[{good}]}}"#)),
            ("an unknown member", format!(r#"{{"transfers":[{good}],"user_id":1}}"#)),
            ("cut off", format!(r#"{{"transfers":[{good}"#)),
            ("something behind it", format!(r#"{{"transfers":[{good}]}}{{}}"#)),
            ("a comma too many", format!(r#"{{"transfers":[{good},]}}"#)),
            ("depth", "[".repeat(100_000)),
            ("depth under a name", format!("{{\"transfers\":{}", "[".repeat(100_000))),
        ] {
            server.refuses(attack, &Ask::post(BATCH, text).token(&token), 400, "INVALID_REQUEST").await;
        }
        let long = format!("{{\"transfers\":[{good}],{}\"x\":1}}", " ".repeat(1 << 20));
        server.refuses("over a megabyte", &Ask::post(BATCH, long).token(&token), 413, "PAYLOAD_TOO_LARGE").await;
        let plain = Ask::post(BATCH, batch(&[good])).with("Content-Type", "text/plain").token(&token);
        server.refuses("as text", &plain, 415, "UNSUPPORTED_MEDIA_TYPE").await;
    });
}
