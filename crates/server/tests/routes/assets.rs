//! `GET /api/v1/assets`: what can be moved, and every limit; and errors about a limit say which it is.

use serde_json::{Value, json};
use store::db_test;

use crate::support::*;

const ASSETS: &str = "/api/v1/assets";

db_test! {
    async fn a_limit_that_is_met_is_named_with_its_value(db: TestDb) {
        let server = Server::start(db).await;
        let reply = server.get(1, ASSETS).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let answer = reply.json();
        let assets = answer["assets"].as_array().unwrap();
        let usdt = assets.iter().find(|one| one["asset"] == "USDT").unwrap();
        assert_eq!((&usdt["status"], &usdt["transfer_enabled"]), (&json!("active"), &json!(true)));
        for limit in ["min", "max", "daily"] {
            assert!(usdt["transfer"][limit].is_string(), "no JSON number holds money: {usdt}");
        }
        assert!(usdt["chains"].is_array(), "{usdt}");
        assert!(answer["limits"]["transfers_per_batch"] == 1_000, "{answer}");
        // What the page says is what the rules hold.
        let named = |limit: &Value| format!("(the limit is {} USDT)", limit.as_str().unwrap());
        for (amount, code, limit) in [
            ("0.01", "AMOUNT_TOO_SMALL", &usdt["transfer"]["min"]),
            ("99999999.00", "AMOUNT_TOO_LARGE", &usdt["transfer"]["max"]),
        ] {
            let reply = server.transfer(1, to_spot(amount)).await.json();
            assert_eq!(reply["error"]["code"], code, "{reply}");
            let message = reply["error"]["message"].as_str().unwrap();
            assert!(message.ends_with(&named(limit)), "{message}");
        }
        assert_eq!(server.send(&Ask::get(ASSETS)).await.status, 401, "a token is needed");
    }
}
