//! The answers as a client sees them. Ids and times are masked. Update with `UPDATE_EXPECT=1 cargo test -p server`.

use std::sync::atomic::Ordering;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::support::*;

/// What is different in every run.
fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match name.as_str() {
                    "transfer_id" | "req_id" | "request_id" | "created_at" | "updated_at" | "next_cursor" => {
                        *member = json!("…")
                    }
                    _ => mask(member),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(mask),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check(reply: &Reply, expected: Expect) {
    let mut answer = reply.json();
    mask(&mut answer);
    let mut text = format!("{}\n", reply.status);
    for name in ["content-type", "www-authenticate", "retry-after", "allow"] {
        if let Some(value) = reply.header(name) {
            text.push_str(&format!("{name}: {value}\n"));
        }
    }
    text.push_str(&serde_json::to_string_pretty(&answer).unwrap());
    text.push('\n');
    expected.assert_eq(&text);
}

#[test]
fn a_transfer() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let reply = server.transfer(1, body(json!({"client_order_id": "order-4711"}))).await;
        check(
            &reply,
            expect![[r#"
            200
            content-type: application/json
            {
              "amount": "1.00",
              "asset": "USDT",
              "client_order_id": "order-4711",
              "created_at": "…",
              "from": "FUNDING",
              "message": "Transfer successful",
              "req_id": "…",
              "stage": "COMMITTED",
              "state": "COMMITTED",
              "to": "SPOT",
              "transfer_id": "…",
              "updated_at": "…"
            }
        "#]],
        );
        let path = format!("{TRANSFERS}/{}", reply.json()["req_id"].as_str().unwrap());
        check(
            &server.get(1, path).await,
            expect![[r#"
            200
            content-type: application/json
            {
              "amount": "1.00",
              "asset": "USDT",
              "client_order_id": "order-4711",
              "created_at": "…",
              "from": "FUNDING",
              "message": "Transfer successful",
              "req_id": "…",
              "stage": "COMMITTED",
              "state": "COMMITTED",
              "to": "SPOT",
              "transfer_id": "…",
              "updated_at": "…"
            }
        "#]],
        );
        let older = server.post(1, ALIAS, body(json!({"from": "funding", "to": "trading"}))).await;
        check(
            &older,
            expect![[r#"
            200
            content-type: application/json
            {
              "message": "Transfer successful",
              "req_id": "…",
              "status": "committed"
            }
        "#]],
        );
        let path = format!("{ALIAS}/{}", older.json()["req_id"].as_str().unwrap());
        check(
            &server.get(1, path).await,
            expect![[r#"
            200
            content-type: application/json
            {
              "created_at": "…",
              "req_id": "…",
              "state": "committed"
            }
        "#]],
        );
    });
}

#[test]
fn lists_batches_and_balances() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let items = [to_spot("1.00"), body(json!({"user_id": 2})), to_funding("5.00")];
        let reply = server.post(1, BATCH, format!("{{\"transfers\":[{}]}}", items.join(","))).await;
        check(
            &reply,
            expect![[r#"
            200
            content-type: application/json
            {
              "results": [
                {
                  "status": 200,
                  "transfer": {
                    "amount": "1.00",
                    "asset": "USDT",
                    "created_at": "…",
                    "from": "FUNDING",
                    "message": "Transfer successful",
                    "req_id": "…",
                    "stage": "COMMITTED",
                    "state": "COMMITTED",
                    "to": "SPOT",
                    "transfer_id": "…",
                    "updated_at": "…"
                  }
                },
                {
                  "error": {
                    "code": "FORBIDDEN",
                    "docs": "https://bursar.example/docs/errors/FORBIDDEN.md",
                    "message": "the request is for another user's account"
                  },
                  "status": 403
                },
                {
                  "error": {
                    "code": "SOURCE_ACCOUNT_NOT_FOUND",
                    "docs": "https://bursar.example/docs/errors/SOURCE_ACCOUNT_NOT_FOUND.md",
                    "message": "the user has no such account to move from"
                  },
                  "status": 422
                }
              ]
            }
        "#]],
        );
        server.moved(1, &to_funding("0.50")).await;
        check(
            &server.get(1, format!("{TRANSFERS}?limit=1")).await,
            expect![[r#"
            200
            content-type: application/json
            {
              "next_cursor": "…",
              "transfers": [
                {
                  "amount": "0.50",
                  "asset": "USDT",
                  "created_at": "…",
                  "from": "SPOT",
                  "message": "Transfer successful",
                  "req_id": "…",
                  "stage": "COMMITTED",
                  "state": "COMMITTED",
                  "to": "FUNDING",
                  "transfer_id": "…",
                  "updated_at": "…"
                }
              ]
            }
        "#]],
        );
        check(
            &server.get(1, BALANCES).await,
            expect![[r#"
            200
            content-type: application/json
            {
              "balances": [
                {
                  "asset": "USDT",
                  "funding": {
                    "available": "99.50",
                    "frozen": "0.00",
                    "status": "active"
                  },
                  "spot": {
                    "available": "0.50",
                    "reserved": "0.00",
                    "status": "active"
                  }
                },
                {
                  "asset": "WIDE",
                  "funding": {
                    "available": "100.00",
                    "frozen": "0.00",
                    "status": "active"
                  }
                }
              ],
              "spot_known": true
            }
        "#]],
        );
    });
}

#[test]
fn errors() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        check(
            &server.send(&Ask::post(TRANSFERS, to_spot("1.00"))).await,
            expect![[r#"
            401
            content-type: application/json
            www-authenticate: Bearer
            {
              "error": {
                "code": "UNAUTHORIZED",
                "docs": "https://bursar.example/docs/errors/UNAUTHORIZED.md",
                "message": "the request carries no valid token: there is no Authorization header",
                "request_id": "…"
              }
            }
        "#]],
        );
        check(
            &server.transfer(1, body(json!({"user_id": 2}))).await,
            expect![[r#"
            403
            content-type: application/json
            {
              "error": {
                "code": "FORBIDDEN",
                "docs": "https://bursar.example/docs/errors/FORBIDDEN.md",
                "message": "the request is for another user's account",
                "request_id": "…"
              }
            }
        "#]],
        );
        check(
            &server.transfer(1, r#"{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":1}"#).await,
            expect![[r#"
            400
            content-type: application/json
            {
              "error": {
                "code": "INVALID_REQUEST",
                "docs": "https://bursar.example/docs/errors/INVALID_REQUEST.md",
                "message": "the body is not such a request: invalid type: integer `1`, expected a string at line 1 column 55",
                "request_id": "…"
              }
            }
        "#]],
        );
        check(
            &server.transfer(1, to_spot("1.001")).await,
            expect![[r#"
            400
            content-type: application/json
            {
              "error": {
                "code": "PRECISION_OVERFLOW",
                "docs": "https://bursar.example/docs/errors/PRECISION_OVERFLOW.md",
                "message": "the amount has more decimals than the asset (the limit is 2 decimals)",
                "request_id": "…"
              }
            }
        "#]],
        );
        check(
            &server.transfer(1, body(json!({"asset": "HALTED"}))).await,
            expect![[r#"
            422
            content-type: application/json
            {
              "error": {
                "code": "ASSET_SUSPENDED",
                "docs": "https://bursar.example/docs/errors/ASSET_SUSPENDED.md",
                "message": "the asset is suspended",
                "request_id": "…"
              }
            }
        "#]],
        );
        check(
            &server.get(1, format!("{TRANSFERS}/sr-1")).await,
            expect![[r#"
            404
            content-type: application/json
            {
              "error": {
                "code": "TRANSFER_NOT_FOUND",
                "docs": "https://bursar.example/docs/errors/TRANSFER_NOT_FOUND.md",
                "message": "there is no such transfer of this user",
                "request_id": "…"
              }
            }
        "#]],
        );
        check(
            &server.get(1, format!("{TRANSFERS}/1")).await,
            expect![[r#"
            400
            content-type: application/json
            {
              "error": {
                "code": "INVALID_REQUEST",
                "docs": "https://bursar.example/docs/errors/INVALID_REQUEST.md",
                "message": "req_id: expected an id such as sr-1734912345678901234",
                "request_id": "…"
              }
            }
        "#]],
        );
        check(
            &server.get(1, "/api/v1/wallet").await,
            expect![[r#"
            404
            content-type: application/json
            {
              "error": {
                "code": "PATH_NOT_FOUND",
                "docs": "https://bursar.example/docs/errors/PATH_NOT_FOUND.md",
                "message": "there is nothing at this path; see /docs",
                "request_id": "…"
              }
            }
        "#]],
        );
        check(
            &server.send(&Ask { method: "DELETE", ..Ask::get(BALANCES) }).await,
            expect![[r#"
            405
            content-type: application/json
            allow: GET,HEAD
            {
              "error": {
                "code": "METHOD_NOT_ALLOWED",
                "docs": "https://bursar.example/docs/errors/METHOD_NOT_ALLOWED.md",
                "message": "this path does not take this method; see /docs",
                "request_id": "…"
              }
            }
        "#]],
        );
    });
}

#[test]
fn a_transfer_that_failed() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        server.moved(1, &to_spot("1.00")).await;
        server.leg.silent.store(true, Ordering::SeqCst);
        check(
            &server.transfer(1, to_funding("1.01")).await,
            expect![[r#"
            422
            content-type: application/json
            {
              "error": {
                "code": "INSUFFICIENT_BALANCE",
                "docs": "https://bursar.example/docs/errors/INSUFFICIENT_BALANCE.md",
                "message": "Transfer refused; nothing was moved",
                "request_id": "…",
                "transfer": {
                  "amount": "1.01",
                  "asset": "USDT",
                  "created_at": "…",
                  "error": "INSUFFICIENT_BALANCE",
                  "from": "SPOT",
                  "message": "Transfer refused; nothing was moved",
                  "req_id": "…",
                  "stage": "FAILED",
                  "state": "FAILED",
                  "to": "FUNDING",
                  "transfer_id": "…",
                  "updated_at": "…"
                }
              }
            }
        "#]],
        );
    });
}
