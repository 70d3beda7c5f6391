//! Tokens that are missing, old, unsigned, another issuer's, or there twice.

use std::time::Duration;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use ring::hmac;
use serde_json::{Value, json};

use crate::support::*;

fn sign(header: Value, payload: &Value, secret: &[u8]) -> String {
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(payload));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

fn claims(server: &Server, changes: Value) -> Value {
    let now = server.app.clock.now().micros() / 1_000_000;
    let mut claims = json!({"sub": "1", "iss": "login", "aud": "bursar", "iat": now, "exp": now + 600});
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn asks() -> Vec<Ask> {
    vec![
        Ask::post(TRANSFERS, to_spot("1.00")),
        Ask::post(BATCH, format!("{{\"transfers\":[{}]}}", to_spot("1.00"))),
        Ask::post(ALIAS, body(json!({"from": "funding", "to": "trading"}))),
        Ask::get(TRANSFERS),
        Ask::get(format!("{TRANSFERS}/sr-1")),
        Ask::get(format!("{ALIAS}/sr-1")),
        Ask::get(BALANCES),
    ]
}

#[test]
fn nothing_is_done_or_shown_without_a_good_token() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let now = server.app.clock.now().micros() / 1_000_000;
        let good = server.token(1);
        let hs256 = || json!({"alg": "HS256", "typ": "JWT"});
        let with = |changes| sign(hs256(), &claims(&server, changes), &SECRET);
        let parts: Vec<&str> = good.split('.').collect();
        let unsigned = |alg: &str| {
            let header = BASE64_URL_SAFE_NO_PAD.encode(json!({"alg": alg, "typ": "JWT"}).to_string());
            format!("{header}.{}.", parts[1])
        };
        let swapped = BASE64_URL_SAFE_NO_PAD.encode(claims(&server, json!({"sub": "2"})).to_string());
        let bearer = |token: String| vec![format!("Bearer {token}")];
        let rows: Vec<(&str, Vec<String>)> = vec![
            ("missing", vec![]),
            ("empty", vec![String::new()]),
            ("only the scheme", vec!["Bearer".into()]),
            ("the scheme and a space", vec!["Bearer ".into()]),
            ("no scheme", vec![good.clone()]),
            ("another scheme", vec![format!("Basic {good}")]),
            ("two spaces", vec![format!("Bearer  {good}")]),
            ("a tab", vec![format!("Bearer\t{good}")]),
            ("in quotes", vec![format!("Bearer \"{good}\"")]),
            ("with more behind it", vec![format!("Bearer {good}, Bearer {good}")]),
            ("the good one twice", vec![format!("Bearer {good}"), format!("Bearer {good}")]),
            ("a good one and a bad one", vec![format!("Bearer {good}"), "Bearer x".into()]),
            ("a bad one and a good one", vec!["Bearer x".into(), format!("Bearer {good}")]),
            ("expired", bearer(with(json!({"exp": now - 31})))),
            ("expires now, by the skew", bearer(with(json!({"exp": now - 30})))),
            ("never expires", bearer(with(json!({"exp": null})))),
            ("expires when a text says so", bearer(with(json!({"exp": (now + 600).to_string()})))),
            ("not valid yet", bearer(with(json!({"nbf": now + 60})))),
            ("issued in the future", bearer(with(json!({"iat": now + 60})))),
            ("of another issuer", bearer(with(json!({"iss": "evil"})))),
            ("for another audience", bearer(with(json!({"aud": "wallet"})))),
            ("of nobody", bearer(with(json!({"sub": ""})))),
            ("of user 0", bearer(with(json!({"sub": "0"})))),
            ("of a negative user", bearer(with(json!({"sub": "-1"})))),
            ("of a user by a number", bearer(with(json!({"sub": 1})))),
            ("of a user who is written otherwise", bearer(with(json!({"sub": "01"})))),
            ("of a user beyond 64 bits", bearer(with(json!({"sub": "9223372036854775808"})))),
            ("unsigned", bearer(unsigned("none"))),
            ("unsigned, in capitals", bearer(unsigned("NONE"))),
            ("unsigned, said to be signed", bearer(unsigned("HS256"))),
            ("signed with nothing", bearer(sign(hs256(), &claims(&server, json!({})), b""))),
            ("signed with another secret", bearer(sign(hs256(), &claims(&server, json!({})), &[8; 32]))),
            ("another key's kind", bearer(sign(json!({"alg": "RS256"}), &claims(&server, json!({})), &SECRET))),
            ("another key's kind, EdDSA", bearer(sign(json!({"alg": "EdDSA"}), &claims(&server, json!({})), &SECRET))),
            ("another strength", bearer(sign(json!({"alg": "HS512"}), &claims(&server, json!({})), &SECRET))),
            (
                "a key of its own",
                bearer(sign(json!({"alg": "HS256", "kid": "mine"}), &claims(&server, json!({})), &SECRET)),
            ),
            (
                "an extension",
                bearer(sign(json!({"alg": "HS256", "crit": ["x"]}), &claims(&server, json!({})), &SECRET)),
            ),
            (
                "a token for something else",
                bearer(sign(json!({"alg": "HS256", "typ": "logout+jwt"}), &claims(&server, json!({})), &SECRET)),
            ),
            ("another's payload under it", bearer(format!("{}.{swapped}.{}", parts[0], parts[2]))),
            ("padded", bearer(format!("{good}="))),
            ("two parts", bearer(format!("{}.{}", parts[0], parts[1]))),
            ("four parts", bearer(format!("{good}.{}", parts[2]))),
            ("endless", bearer("x".repeat(8_000))),
            ("bytes", vec!["Bearer \u{fffd}".into()]),
        ];
        for (attack, headers) in rows {
            for ask in asks() {
                let ask = headers.iter().fold(ask, |ask, value| ask.header("Authorization", value.as_bytes()));
                let reply = server.refuses(attack, &ask, 401, "UNAUTHORIZED").await;
                assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{attack}");
                assert!(
                    headers.iter().all(|header| header.len() < 40 || !reply.body.contains(&header[8..])),
                    "{attack}: it is shown"
                );
            }
        }
    });
}

#[test]
fn a_good_token_is_good_in_any_case_of_its_scheme_and_until_it_expires() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let token = server.token(1);
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let ask = Ask::get(BALANCES).header("authorization", format!("{scheme} {token}"));
            assert_eq!(server.send(&ask).await.status, 200, "{scheme}");
        }
        server.pass(Duration::from_secs(600 + 29));
        assert_eq!(server.send(&Ask::get(BALANCES).token(&token)).await.status, 200, "within the skew");
        server.pass(Duration::from_secs(1));
        let ask = Ask::post(TRANSFERS, to_spot("1.00")).token(&token);
        server.refuses("expired", &ask, 401, "UNAUTHORIZED").await;
    });
}

#[test]
fn a_token_speaks_for_its_user_only() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        server.moved(2, &to_spot("7.00")).await;
        let before = server.books().await;
        // A transfer with user 1's token is user 1's: other headers do not matter.
        let ask = Ask::post(TRANSFERS, to_funding("7.00")).token(&server.token(1)).header("X-User-Id", "2");
        let ask = ask.header("X-Forwarded-User", "2").header("Cookie", "user_id=2");
        server.refuses("headers of another", &ask, 422, "SOURCE_ACCOUNT_NOT_FOUND").await;
        for (path, text) in [
            (TRANSFERS, body(json!({"from": "SPOT", "to": "FUNDING", "user_id": 2}))),
            (ALIAS, body(json!({"from": "trading", "to": "funding", "user_id": 2}))),
        ] {
            server.refuses(path, &Ask::post(path, text).token(&server.token(1)), 403, "FORBIDDEN").await;
        }
        assert!(server.books().await == before);
        let reply = server.get(1, BALANCES).await;
        assert!(!reply.body.contains("7.00"), "{reply:?}");
    });
}
