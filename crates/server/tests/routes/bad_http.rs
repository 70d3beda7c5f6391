//! Requests that no client should send, whatever their bodies: headers, paths and methods made to break something.

use serde_json::json;

use crate::support::*;

#[test]
fn one_request_does_not_hide_another() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let token = server.token(1);
        // A body shorter than its text: the rest is not a request, and carries no token.
        let text = to_spot("1.00");
        let hidden = String::from_utf8(Ask::post(TRANSFERS, text.clone()).bytes()).unwrap();
        let before = server.books().await;
        for head in [
            "Content-Length: 0\r\nTransfer-Encoding: chunked",
            "Content-Length: 5\r\nContent-Length: 0",
            "Content-Length: +5",
            "Content-Length: 5, 6",
            "Content-Length: -1",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding : chunked",
            " Content-Length: 5",
        ] {
            let request = format!(
                "POST {TRANSFERS} HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {token}\r\n\
                Content-Type: application/json\r\n{head}\r\n\r\n0\r\n\r\n{hidden}"
            );
            let mut line = server.line().await;
            let first = line.exchange(request.as_bytes()).await;
            assert!(first.as_ref().is_none_or(|reply| reply.status == 400), "{head}: {first:?}");
            let second = if first.is_some() { line.read().await } else { None };
            assert!(second.as_ref().is_none_or(|reply| [400, 401].contains(&reply.status)), "{head}: {second:?}");
        }
        assert!(server.books().await == before);
        // Two good requests that are sent at once are answered one after the other.
        let ask = Ask::post(TRANSFERS, text).token(&token).bytes();
        let mut line = server.line().await;
        line.write(&[ask.clone(), ask].concat()).await;
        for _ in 0..2 {
            assert_eq!(line.read().await.expect("an answer").code(), "COMMITTED");
        }
        assert_eq!(server.usdt(1).await, (9_800, 0, 200));
    });
}

#[test]
fn floods_of_headers_are_cut_short() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let ask = Ask::post(TRANSFERS, to_spot("1.00")).token(&server.token(1));
        let before = server.books().await;
        let many = (0..2_000).fold(ask.clone(), |ask, number| ask.header(&format!("X-{number}"), "x"));
        let long = ask.clone().header("X-Long", vec![b'x'; 1 << 20]);
        let path = Ask { path: format!("{TRANSFERS}?{}", "x".repeat(1 << 20)), ..ask.clone() };
        for (attack, ask) in [("many", many), ("long", long), ("a long path", path)] {
            let reply = server.raw(&ask.bytes()).await;
            assert!(reply.as_ref().is_none_or(|reply| [400, 414, 431].contains(&reply.status)), "{attack}: {reply:?}");
        }
        for garbage in [
            &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"\r\n\r\n\r\n\r\nhello\r\n\r\n",
            b"GET\r\n\r\n",
            b"\0\0\0\0\r\n\r\n",
            b"GET /health/live HTTP/1.1\r\nHost: b\r\nBad Name: x\r\n\r\n",
            b"GET /a b HTTP/1.1\r\n\r\n",
        ] {
            let reply = server.raw_and_done(garbage).await;
            assert!(reply.as_ref().is_none_or(|reply| reply.status == 400), "{garbage:?}: {reply:?}");
        }
        assert!(server.books().await == before);
        assert_eq!(server.send(&ask).await.code(), "COMMITTED", "and the server goes on");
    });
}

#[test]
fn a_path_is_what_it_is() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let id = server.moved(1, &to_spot("1.00")).await;
        let number = id.strip_prefix("sr-").unwrap();
        let no_id = [
            "sr-".to_owned(),
            "sr-0".into(),
            "sr--1".into(),
            "sr-+1".into(),
            format!("SR-{number}"),
            format!("wr-{number}"),
            number.to_owned(),
            format!("sr-0{number}"),
            format!("{id}%20"),
            format!("%20{id}"),
            format!("{id}%00"),
            "sr-99999999999999999999".into(),
            "sr-9223372036854775808".into(),
            "sr-1e3".into(),
            "sr-%D9%A1".into(),
            "%27%20OR%201=1--".into(),
            "..%2f..%2fetc%2fpasswd".into(),
            "%2e%2e".into(),
            "%FF".into(),
            "%C3%28".into(),
            "%ff%fe".into(),
            format!("{id},{id}"),
            format!("{id}%2f"),
            "x".repeat(20_000),
            "null".into(),
            "*".into(),
            "%".into(),
        ];
        for name in no_id {
            for path in [TRANSFERS, ALIAS] {
                let ask = Ask::get(format!("{path}/{name}"));
                server.refuses(&name, &ask.clone().token(&server.token(1)), 400, "INVALID_REQUEST").await;
                server.refuses(&name, &ask, 401, "UNAUTHORIZED").await;
            }
        }
        for path in [
            "/",
            "",
            "/api",
            "/api/v1",
            "/api/v1/",
            "/api/v2/balances",
            "/API/V1/balances",
            "//api/v1/balances",
            "/api/v1/balances/",
            "/api/v1/internal_transfer/",
            "/api/v1/../v1/balances",
            "/api/v1/%62alance",
            "/.env",
            &format!("{TRANSFERS}/{id}/"),
            &format!("{TRANSFERS}/{id}/history"),
            &format!("{TRANSFERS}/../balances"),
            "/health",
            "/metrics/",
        ] {
            let path = if path.is_empty() { "?x" } else { path };
            let Some(reply) = server.raw(&Ask::get(path).token(&server.token(1)).bytes()).await else { continue };
            let expected: &[(u16, &str)] = &[(404, "PATH_NOT_FOUND"), (400, "")];
            assert!(expected.contains(&(reply.status, reply.code().as_str())), "{path}: {reply:?}");
        }
        // Another spelling of the same path.
        let escaped = format!("{TRANSFERS}/%73r-{number}");
        assert_eq!(server.get(1, escaped).await.status, 200);
    });
}

#[test]
fn a_method_that_is_not_served_is_told_which_are() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let id = server.moved(1, &to_spot("1.00")).await;
        for (path, allow) in [
            (TRANSFERS.to_owned(), "GET,HEAD,POST"),
            (BATCH.to_owned(), "POST"),
            (format!("{TRANSFERS}/{id}"), "GET,HEAD"),
            (ALIAS.to_owned(), "POST"),
            (format!("{ALIAS}/{id}"), "GET,HEAD"),
            (BALANCES.to_owned(), "GET,HEAD"),
            ("/health/ready".to_owned(), "GET,HEAD"),
            ("/openapi.json".to_owned(), "GET,HEAD"),
        ] {
            for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "get", "GET", "POST"] {
                if allow.split(',').any(|one| one == method) {
                    continue;
                }
                let ask = Ask { method, ..Ask::post(path.clone(), to_spot("1.00")).token(&server.token(1)) };
                let reply = server.refuses(method, &ask, 405, "METHOD_NOT_ALLOWED").await;
                let mut named: Vec<&str> = reply.header("allow").unwrap_or_default().split(',').collect();
                named.sort_unstable();
                assert_eq!(named.join(","), allow, "{method} {path}");
            }
        }
    });
}

#[test]
fn an_answer_names_its_request() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let ask = Ask::get(BALANCES);
        for (own, kept) in [
            ("mine-1", true),
            ("", false),
            ("a b", false),
            ("\u{e9}", false),
            (&*"x".repeat(64), true),
            (&*"x".repeat(65), false),
        ] {
            let reply = server.send(&ask.clone().header("X-Request-Id", own)).await;
            let id = reply.header("x-request-id").unwrap().to_owned();
            assert_eq!(id == own, kept, "{own:?} became {id:?}");
            assert_eq!(reply.json()["error"]["request_id"], json!(id));
            assert_eq!(
                (reply.header("cache-control"), reply.header("x-content-type-options")),
                (Some("no-store"), Some("nosniff"))
            );
        }
        let ids: Vec<_> = [server.send(&ask).await, server.get(1, BALANCES).await, server.send(&Ask::get("/x")).await]
            .iter()
            .map(|reply| reply.header("x-request-id").unwrap().to_owned())
            .collect();
        assert!(ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
    });
}
