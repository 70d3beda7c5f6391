//! `/api/v1/transfer`: the older form of the same (issue 003, section 12).

use serde_json::{Value, json};
use store::db_test;
use store::testing::NOW;

use crate::support::*;

fn older(changes: Value) -> String {
    let mut all = json!({"from": "funding", "to": "trading"});
    all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    body(all)
}

#[test]
fn the_older_form_has_the_same_rules() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        server.post(1, ALIAS, older(json!({"client_order_id": "taken"}))).await;
        for (attack, number, changes, status, code) in [
            ("another user", 1, json!({"user_id": 2}), 403, "FORBIDDEN"),
            ("the newer names", 1, json!({"from": "FUNDING", "to": "SPOT"}), 400, "INVALID_ACCOUNT_TYPE"),
            ("mixed names", 1, json!({"to": "SPOT"}), 400, "INVALID_ACCOUNT_TYPE"),
            ("spot by its other name", 1, json!({"to": "spot"}), 400, "INVALID_ACCOUNT_TYPE"),
            ("futures", 1, json!({"to": "future"}), 400, "INVALID_ACCOUNT_TYPE"),
            ("the same", 1, json!({"to": "funding"}), 400, "SAME_ACCOUNT"),
            ("fake", 1, json!({"asset": "FAKE"}), 400, "INVALID_ASSET"),
            ("delisted", 1, json!({"asset": "HALTED"}), 422, "ASSET_SUSPENDED"),
            ("fixed", 1, json!({"asset": "FIXED"}), 422, "TRANSFER_NOT_ALLOWED"),
            ("no decimal", 1, json!({"amount": "1e1"}), 400, "INVALID_AMOUNT"),
            ("nothing", 1, json!({"amount": "0"}), 400, "INVALID_AMOUNT"),
            ("too precise", 1, json!({"amount": "1.001"}), 400, "PRECISION_OVERFLOW"),
            ("dust", 1, json!({"amount": "0.09"}), 400, "AMOUNT_TOO_SMALL"),
            ("too large", 1, json!({"amount": "50.01"}), 400, "AMOUNT_TOO_LARGE"),
            ("overflow", 1, json!({"amount": "99999999999999999999"}), 400, "OVERFLOW"),
            ("name taken", 1, json!({"client_order_id": "taken", "amount": "2"}), 409, "DUPLICATE_REQUEST"),
            ("no account", 5, json!({}), 422, "SOURCE_ACCOUNT_NOT_FOUND"),
            (
                "too little",
                1,
                json!({"from": "trading", "to": "funding", "amount": "1.01"}),
                422,
                "INSUFFICIENT_BALANCE",
            ),
        ] {
            let ask = Ask::post(ALIAS, older(changes)).token(&server.token(number));
            server.refuses(attack, &ask, status, code).await;
        }
    });
}

db_test! {
    async fn the_older_form_moves_the_same_money(db: TestDb) {
        let server = Server::start(db).await;
        // As the document has it, with the user's number in the body.
        let reply = server.post(1, ALIAS, older(json!({"user_id": 1, "amount": "1.5"}))).await;
        let answer = reply.json();
        let id = answer["req_id"].as_str().unwrap().to_owned();
        assert_eq!((reply.status, &answer), (200, &json!({"req_id": id, "status": "committed", "message": "Transfer successful"})));
        assert_eq!(server.usdt(1).await, (9_850, 0, 150));
        let read = server.get(1, format!("{ALIAS}/{id}")).await;
        assert_eq!(read.json(), json!({"req_id": id, "state": "committed", "created_at": NOW.millis()}));
        let plain = server.get(1, format!("{TRANSFERS}/{id}")).await.json();
        assert_eq!((&plain["from"], &plain["amount"]), (&json!("FUNDING"), &json!("1.50")));
        let back = server.post(1, ALIAS, older(json!({"from": "trading", "to": "funding", "amount": "0.50"}))).await;
        assert_eq!(back.code(), "committed");
        assert_eq!(server.usdt(1).await, (9_900, 0, 100));
    }
}

#[test]
fn the_older_form_tells_what_is_on_its_way() {
    on_sqlite(async |db| {
        let choice = Choice { wait: std::time::Duration::from_millis(20), ..Choice::default() };
        let server = Server::with(db, choice).await;
        server.leg.close();
        let reply = server.post(1, ALIAS, older(json!({}))).await;
        assert_eq!((reply.status, reply.code().as_str()), (202, "pending"), "{reply:?}");
        assert_eq!(server.usdt(1).await, (9_900, 100, 0));
        server.leg.open();
    });
}

/// A client of 003 reads `status`; one that knows our codes reads `error`, as in the newer form.
#[test]
fn a_target_that_refuses_is_failed_in_the_older_form() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        server.give_spot(2, "USDT", 100).await;
        server.set_spot_status(2, "USDT", domain::AccountStatus::Disabled).await;
        let before = server.usdt(2).await;
        let reply = server.post(2, ALIAS, older(json!({}))).await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "ACCOUNT_DISABLED"), "{reply:?}");
        let answer = reply.json();
        assert_eq!(answer["error"]["transfer"]["state"], "ROLLED_BACK");
        assert_eq!(answer["status"], "failed");
        assert_eq!(answer["req_id"], answer["error"]["transfer"]["req_id"]);
        assert_eq!(answer["message"], "Transfer refused by its target; the money is at its source again");
        let read = server.get(2, format!("{ALIAS}/{}", answer["req_id"].as_str().unwrap())).await;
        assert_eq!(read.json()["state"], "rolled_back");
        assert_eq!(server.usdt(2).await, before);
    });
}
