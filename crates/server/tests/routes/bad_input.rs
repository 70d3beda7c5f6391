//! Bodies that no client should send: each is made to break something.

use serde_json::json;

use crate::support::*;

/// The usual request, with another value for one member.
fn raw(name: &str, value: &str) -> Vec<u8> {
    let members = [
        ("from", r#""FUNDING""#),
        ("to", r#""SPOT""#),
        ("asset", r#""USDT""#),
        ("amount", r#""1.00""#),
        ("client_order_id", r#""n""#),
        ("user_id", "1"),
    ];
    let members = members.map(|(other, usual)| format!("\"{other}\":{}", if other == name { value } else { usual }));
    format!("{{{}}}", members.join(",")).into_bytes()
}

/// Sends each body to both forms if they must agree. The older form has other names for the accounts, and checks them
/// before amounts.
async fn hold(server: &Server, rows: Vec<(&str, Vec<u8>, u16, &str)>) {
    let token = server.token(1);
    for (attack, text, status, code) in rows {
        let paths = if code == "INVALID_REQUEST" { &[TRANSFERS, ALIAS][..] } else { &[TRANSFERS] };
        for path in paths {
            let ask = Ask::post(*path, text.clone()).token(&token);
            server.refuses(&format!("{path}: {attack}"), &ask, status, code).await;
        }
    }
}

#[test]
fn a_body_that_is_not_such_an_object_is_refused() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let good = to_spot("1.00");
        let invalid = |attack, text: &[u8]| (attack, text.to_vec(), 400, "INVALID_REQUEST");
        let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
        hold(
            &server,
            vec![
                invalid("empty", b""),
                invalid("blank", b" \r\n\t "),
                invalid("not JSON", b"from=FUNDING&to=SPOT"),
                invalid("null", b"null"),
                invalid("true", b"true"),
                invalid("a number", b"1"),
                invalid("a text", b"\"FUNDING\""),
                invalid("an empty list", b"[]"),
                invalid("an empty object", b"{}"),
                invalid("a list of one request", format!("[{good}]").as_bytes()),
                invalid("the values without their names", br#"["FUNDING","SPOT","USDT","1.00"]"#),
                invalid("all the values without their names", br#"["FUNDING","SPOT","USDT","1.00","n",1]"#),
                invalid("a request in a request", format!("{{\"transfer\":{good}}}").as_bytes()),
                invalid("cut off", &good.as_bytes()[..good.len() - 1]),
                invalid("a comma at the end", good.replace('}', ",}").as_bytes()),
                invalid("two requests", format!("{good}{good}").as_bytes()),
                invalid("something behind it", format!("{good}x").as_bytes()),
                invalid("a comment", format!("{good}// please").as_bytes()),
                invalid("single quotes", good.replace('"', "'").as_bytes()),
                invalid("a byte order mark", format!("\u{feff}{good}").as_bytes()),
                invalid("UTF-16", &utf16),
                invalid("a NUL before it", format!("\0{good}").as_bytes()),
                invalid("a NUL behind it", format!("{good}\0").as_bytes()),
                invalid("a thousand levels", "[".repeat(1_000).as_bytes()),
                invalid("a thousand levels in a member", &raw("amount", &"[".repeat(1_000))),
                invalid(
                    "levels in an unknown member",
                    good.replacen('{', &format!("{{\"x\":{},", "[".repeat(8_000)), 1).as_bytes(),
                ),
            ],
        )
        .await;
    });
}

#[test]
fn a_member_is_there_once_and_of_its_type() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let mut rows = Vec::new();
        for name in ["from", "to", "asset", "amount", "client_order_id", "user_id"] {
            for value in ["null", "[]", "{}", "true", "1.5", "\"\\ud800\"", "\"\x01\"", "[\"USDT\"]"] {
                rows.push((name, raw(name, value), 400, "INVALID_REQUEST"));
            }
            if name != "user_id" {
                for value in ["1", "0", "-1", "1e400"] {
                    rows.push((name, raw(name, value), 400, "INVALID_REQUEST"));
                }
                // Not UTF-8.
                let mut text = raw(name, "\"?\"");
                let at = text.iter().position(|byte| *byte == b'?').unwrap();
                text[at] = 0xff;
                rows.push((name, text, 400, "INVALID_REQUEST"));
            }
            let doubled = String::from_utf8(raw("", "")).unwrap();
            let twice = doubled.replacen('{', &format!("{{\"{name}\":1,"), 1).replacen(":1,", ":\"FUNDING\",", 1);
            rows.push(("twice", twice.into_bytes(), 400, "INVALID_REQUEST"));
            let escaped = format!("{{\"\\u{:04x}{}\":\"FUNDING\",", name.as_bytes()[0], &name[1..]);
            rows.push(("twice, once escaped", doubled.replacen('{', &escaped, 1).into_bytes(), 400, "INVALID_REQUEST"));
            if !["client_order_id", "user_id"].contains(&name) {
                rows.push(("missing", body(json!({name: null})).into_bytes(), 400, "INVALID_REQUEST"));
            }
            let capitals = doubled.replace(&format!("\"{name}\""), &format!("\"{}\"", name.to_uppercase()));
            rows.push(("in capitals", capitals.into_bytes(), 400, "INVALID_REQUEST"));
        }
        for value in ["\"1\"", "1.0", "1e0", "9223372036854775808", "-9223372036854775809"] {
            rows.push(("user_id", raw("user_id", value), 400, "INVALID_REQUEST"));
        }
        for name in ["req_id", "transfer_id", "state", "fee", "", "__proto__", "from ", "ammount"] {
            rows.push(("unknown", body(json!({name: "1"})).into_bytes(), 400, "INVALID_REQUEST"));
        }
        hold(&server, rows).await;
        let ask = Ask::post(TRANSFERS, raw("", "")).token(&server.token(1));
        assert_eq!(server.send(&ask).await.status, 200, "the untouched request is good");
    });
}

#[test]
fn amounts_are_plain_decimals() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let mut rows = Vec::new();
        for amount in [
            "",
            " ",
            " 1.00",
            "1.00 ",
            "+1.00",
            "--1",
            "1e2",
            "1E2",
            "1.0e0",
            "0x10",
            "0b1",
            "1_000",
            "1,000",
            "1,00",
            "1.",
            ".5",
            ".",
            "-",
            "1.0.0",
            "١٢",
            "１.00",
            "1．00",
            "²",
            "½",
            "Ⅷ",
            "1.00\0",
            "\0",
            "1\u{200b}",
            "\u{feff}1",
            "NaN",
            "Infinity",
            "-Infinity",
            "null",
            "true",
            "1.00USDT",
            "$1",
            "1\n",
            "1;",
            "1' OR '1'='1",
            "𝟙",
            "1.٠",
        ] {
            rows.push((amount, body(json!({"amount": amount})).into_bytes(), 400, "INVALID_AMOUNT"));
        }
        rows.push(("long", body(json!({"amount": "1".repeat(15_000)})).into_bytes(), 400, "OVERFLOW"));
        rows.push((
            "long zeros",
            body(json!({"amount": format!("1.{}", "0".repeat(15_000))})).into_bytes(),
            400,
            "PRECISION_OVERFLOW",
        ));
        hold(&server, rows).await;
    });
}

#[test]
fn names_are_short_and_visible() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let mut rows = Vec::new();
        for name in
            ["", " ", "a b", "a\0b", "\0", "é", "a\n", "\u{7f}", "\u{200b}", "😀", &"x".repeat(65), &"x".repeat(15_000)]
        {
            rows.push(("name", body(json!({"client_order_id": name})).into_bytes(), 400, "INVALID_REQUEST"));
        }
        hold(&server, rows).await;
        for name in ["!", "~", "';--", "\"\\", &"x".repeat(64), "null", "%00", "../.."] {
            let reply = server.transfer(1, body(json!({"client_order_id": name, "amount": "0.10"}))).await;
            assert_eq!((reply.status, &reply.json()["client_order_id"]), (200, &json!(name)));
        }
    });
}

#[test]
fn a_body_is_as_long_as_it_may_be() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let token = server.token(1);
        let padded = |bytes: usize| {
            let good = to_spot("1.00");
            good.replacen('{', &format!("{{{}", " ".repeat(bytes - good.len())), 1)
        };
        let too_large = "PAYLOAD_TOO_LARGE";
        server
            .refuses("a byte more", &Ask::post(TRANSFERS, padded((16 << 10) + 1)).token(&token), 413, too_large)
            .await;
        assert_eq!(server.send(&Ask::post(TRANSFERS, padded(16 << 10)).token(&token)).await.status, 200);
        for path in [TRANSFERS, BATCH, ALIAS] {
            let ten_megabytes = Ask::post(path, vec![b'x'; 10 << 20]);
            server.refuses("10 MB", &ten_megabytes.clone().token(&token), 413, too_large).await;
            let levels = Ask::post(path, "[".repeat(10 << 20)).token(&token);
            server.refuses("10 million levels", &levels, 413, too_large).await;
            // The token is checked before the body is read.
            server.refuses("10 MB of nobody", &ten_megabytes, 401, "UNAUTHORIZED").await;
            let text = ten_megabytes.with("Content-Type", "text/plain").token(&token);
            server.refuses("10 MB of text", &text, 415, "UNSUPPORTED_MEDIA_TYPE").await;
        }
        // Without a length in front, the bytes are counted as they come.
        let mut chunked = Ask::post(TRANSFERS, Vec::new()).token(&token).header("Transfer-Encoding", "chunked");
        chunked.body = format!("8000\r\n{}\r\n0\r\n\r\n", " ".repeat(0x8000)).into_bytes();
        server.refuses("in pieces", &chunked, 413, too_large).await;
    });
}

#[test]
fn a_body_says_that_it_is_json() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let ask = Ask::post(TRANSFERS, to_spot("1.00")).token(&server.token(1));
        for kind in [
            "",
            "text/plain",
            "text/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/xml",
            "application/json2",
            "application",
            "json",
            "*/*",
            "application/ json",
            "application/json, text/plain",
            "text/plain; application/json",
            "application/jsonl",
            "\u{ff}",
        ] {
            let ask = ask.clone().with("Content-Type", kind);
            server.refuses(kind, &ask, 415, "UNSUPPORTED_MEDIA_TYPE").await;
        }
        let mut untyped = ask.clone();
        untyped.headers.retain(|(name, _)| name != "Content-Type");
        server.refuses("no type", &untyped, 415, "UNSUPPORTED_MEDIA_TYPE").await;
        for kind in ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;"] {
            assert_eq!(server.send(&ask.clone().with("Content-Type", kind)).await.status, 200, "{kind}");
        }
        let packed = ask.clone().header("Content-Encoding", "gzip");
        let packed = Ask { body: b"\x1f\x8b\x08\x00".to_vec(), ..packed };
        server.refuses("gzip", &packed, 400, "INVALID_REQUEST").await;
    });
}

#[test]
fn a_body_in_pieces_is_a_body() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let head = Ask::post(TRANSFERS, Vec::new()).token(&server.token(1)).header("Transfer-Encoding", "chunked");
        let text = to_spot("1.00");
        let mut ask = head.clone();
        for piece in text.as_bytes().chunks(7) {
            ask.body.extend(format!("{:x};note=\"x\"\r\n", piece.len()).into_bytes());
            ask.body.extend(piece);
            ask.body.extend(b"\r\n");
        }
        let unfinished = Ask { body: ask.body.clone(), ..head.clone() };
        ask.body.extend(b"0\r\n\r\n");
        assert_eq!(server.send(&ask).await.code(), "COMMITTED");
        let before = server.books().await;
        for (attack, pieces) in [
            ("no number", &b"zz\r\n"[..]),
            ("a negative number", b"-1\r\n"),
            ("beyond 64 bits", b"fffffffffffffffff\r\n"),
            ("a piece longer than it says", b"1\r\n{}\r\n0\r\n\r\n"),
        ] {
            let reply = server.raw(&Ask { body: pieces.to_vec(), ..head.clone() }.bytes()).await;
            assert!(reply.as_ref().is_none_or(|reply| reply.status == 400), "{attack}: {reply:?}");
        }
        // Hung up before the end.
        let mut line = server.line().await;
        line.write(&unfinished.bytes()).await;
        drop(line);
        let whole = Ask::post(TRANSFERS, text).token(&server.token(1)).bytes();
        let mut line = server.line().await;
        line.write(&whole[..whole.len() - 1]).await;
        line.hang_up().await;
        let reply = line.read().await;
        assert!(reply.as_ref().is_none_or(|reply| reply.status == 400), "{reply:?}");
        assert!(server.books().await == before, "half a request is none");
    });
}
