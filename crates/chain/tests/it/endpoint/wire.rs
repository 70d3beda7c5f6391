//! One call over HTTP, against servers that misbehave.

use std::time::Duration;

use bytes::Bytes;
use chain::ChainError;
use chain::endpoint::{CallError, PoolSettings, Reply, Why, json_rpc};
use serde_json::{Value, json};

use super::*;

fn small() -> PoolSettings {
    PoolSettings { answer_bytes: 10_000, ..PoolSettings::default() }
}

fn quick() -> PoolSettings {
    PoolSettings { deadline: Duration::from_millis(400), ..small() }
}

async fn post(stub: &Stub) -> Result<Reply, CallError> {
    let mut answers = stub.pool(&small()).each(|node| async move { node.post("", Bytes::from("{}")).await }).await;
    answers.pop().unwrap().1
}

async fn call(stub: &Stub) -> Result<Value, CallError> {
    call_with(stub, &small()).await
}

async fn call_with(stub: &Stub, settings: &PoolSettings) -> Result<Value, CallError> {
    let pool = stub.pool(settings);
    let answers = pool.each(|node| async move { json_rpc::call(&node, "x", json!([])).await }).await;
    answers.into_iter().next().unwrap().1
}

fn stub() -> String {
    "stub".to_owned()
}

#[tokio::test]
async fn a_lost_connection_is_not_an_answer() {
    let endpoint = stub();
    let lost = Err(CallError::Unreachable { endpoint });
    let nobody = Pool::new(&[endpoint_of_nobody()], &quick(), RuntimeClock::start()).unwrap();
    let answers = nobody.each(|node| async move { json_rpc::call::<Value>(&node, "x", json!([])).await }).await;
    assert_eq!(answers.into_iter().next().unwrap().1, lost);
    // Before, in and after the head, and in the body.
    for bytes in [
        "",
        "HTTP/1.1 200 OK\r\nconte",
        "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{\"result\":1}",
    ] {
        let stub = Stub::start(move |_| Act::HangUp(bytes.as_bytes().to_vec())).await;
        assert_eq!(call(&stub).await, lost, "{bytes:?}");
        let stub = Stub::start(move |_| Act::HalfClose(bytes.as_bytes().to_vec())).await;
        assert_eq!(call(&stub).await, lost, "half closed after {bytes:?}");
    }
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nd\r\n{\"result\":1}".to_vec();
    let stub = Stub::start(move |_| Act::HangUp(chunked.clone())).await;
    assert_eq!(call(&stub).await, lost);
}

fn endpoint_of_nobody() -> EndpointSettings {
    endpoint("stub", "http://127.0.0.1:1")
}

#[tokio::test]
async fn a_body_cut_short_without_a_length_is_a_bad_answer() {
    let stub = Stub::start(|_| Act::HangUp(b"HTTP/1.1 200 OK\r\n\r\n{\"id\":0,\"result\":[1,2".to_vec())).await;
    assert!(matches!(call(&stub).await, Err(CallError::BadAnswer { .. })));
}

#[tokio::test]
async fn the_deadline_covers_the_whole_body() {
    let late = Err(CallError::Timeout { endpoint: stub() });
    let hanging = Stub::start(|_| Act::Hang).await;
    assert_eq!(call_with(&hanging, &quick()).await, late);
    let dripping = Stub::start(|_| Act::Drip(json(r#"{"id":0,"result":1}"#), Duration::from_millis(50))).await;
    assert_eq!(call_with(&dripping, &quick()).await, late);
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_told_from_a_lost_connection() {
    let long = CallError::TooLong { endpoint: stub(), most: 10_000 };
    let announced =
        Stub::start(|_| Act::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n".to_vec())).await;
    assert_eq!(post(&announced).await.unwrap_err(), long);
    let endless = Stub::start(|_| Act::Flood(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b' '; 4_096])).await;
    assert_eq!(post(&endless).await.unwrap_err(), long);
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunks = Stub::start(move |_| Act::Flood(head.clone(), b"3\r\n123\r\n".repeat(500))).await;
    assert_eq!(post(&chunks).await.unwrap_err(), long);
    let fits = Stub::saying(json(&" ".repeat(10_000))).await;
    assert_eq!(post(&fits).await.unwrap().body.len(), 10_000);
}

#[tokio::test]
async fn endless_headers_end() {
    let stub = Stub::start(|_| Act::Flood(b"HTTP/1.1 200 OK\r\n".to_vec(), b"a: b\r\n".repeat(100))).await;
    assert!(matches!(call(&stub).await, Err(CallError::Unreachable { .. })));
    let stub = Stub::start(|_| Act::Flood(b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'x'; 4_096])).await;
    assert!(matches!(call(&stub).await, Err(CallError::Unreachable { .. })));
}

#[tokio::test]
async fn what_is_no_json_rpc_is_a_bad_answer() {
    let html = "<html><body>welcome to nginx</body></html>";
    for (status, body) in [
        ("200 OK", html),
        ("502 Bad Gateway", html),
        ("500 Internal Server Error", ""),
        ("404 Not Found", "null"),
        ("200 OK", ""),
        ("200 OK", "null"),
        ("200 OK", "[]"),
        ("200 OK", "[0,1,null]"),
        ("200 OK", "{}"),
        ("200 OK", "{\"id\":0}"),
        ("200 OK", "{\"id\":0,\"error\":null}"),
        ("200 OK", "{\"id\":0,\"result\":1}{"),
        ("200 OK", "{\"id\":0,\"result\":1,\"result\":2}"),
        ("200 OK", "{\"id\":7,\"result\":1}"),
        ("200 OK", "{\"id\":{\"a\":[1]},\"result\":1}"),
        ("200 OK", "{\"id\":0.5,\"result\":1}"),
        ("200 OK", "{\"id\":0,\"result\":\u{fffd}}"),
        ("503 Service Unavailable", "{\"id\":0,\"result\":1}"),
    ] {
        let stub = Stub::saying(http(status, "", body)).await;
        let answer = call(&stub).await;
        assert!(matches!(answer, Err(CallError::BadAnswer { .. })), "{status} {body}: {answer:?}");
    }
    let binary =
        Stub::saying([json(&" ".repeat(4))[..].split_last_chunk::<4>().unwrap().0, &[255, 0, 254, 7]].concat());
    assert!(matches!(call(&binary.await).await, Err(CallError::BadAnswer { .. })));
}

#[tokio::test]
async fn garbage_instead_of_http_is_a_lost_connection() {
    for bytes in ["garbage\r\n\r\n", "HTTP/9.9 2x0\r\n\r\n", "\0\0\0\0", "SSH-2.0-OpenSSH\r\n"] {
        let stub = Stub::start(move |_| Act::HangUp(bytes.as_bytes().to_vec())).await;
        assert_eq!(call(&stub).await, Err(CallError::Unreachable { endpoint: "stub".to_owned() }), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_our_credentials() {
    let thief = Stub::saying(json(r#"{"id":0,"result":1}"#)).await;
    for status in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let sender = Stub::saying(http(status, &format!("location: {}\r\n", thief.url), "")).await;
        assert!(matches!(call(&sender).await, Err(CallError::BadAnswer { .. })));
        assert!(matches!(post(&sender).await, Err(CallError::BadAnswer { .. })));
    }
    assert_eq!(thief.requests(), 0);
}

#[tokio::test]
async fn a_second_answer_on_the_wire_is_never_taken_for_the_next_call() {
    let one = |number: u32| json(&format!(r#"{{"id":0,"result":{number}}}"#));
    let stub = Stub::start(move |_| Act::Send([one(1), one(666)].concat())).await;
    let pool = stub.pool(&quick());
    for _ in 0..5 {
        let answer = pool.any(|node| async move { json_rpc::call::<u32>(&node, "x", json!([])).await }).await;
        assert!(matches!(answer, Ok(1) | Err(ChainError::Unreachable(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn an_error_in_the_body_counts_whatever_the_status_is() {
    let body = r#"{"result":null,"error":{"code":-8,"message":"Block height out of range"},"id":0}"#;
    for status in ["500 Internal Server Error", "404 Not Found", "400 Bad Request", "200 OK"] {
        let core = Stub::saying(http(status, "", body)).await;
        let message = "Block height out of range".to_owned();
        assert_eq!(call(&core).await, Err(CallError::Refused { endpoint: stub(), code: -8, message }));
    }
}

#[tokio::test]
async fn refused_credentials_are_their_own_error_and_bring_a_long_pause() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let stub = Stub::saying(http(status, "", "{\"error\":{\"code\":-32002,\"message\":\"key 123\"}}")).await;
        let pool = stub.pool(&PoolSettings { pause_most: Duration::from_secs(300), ..quick() });
        let answer = pool.any(|node| async move { json_rpc::call::<Value>(&node, "x", json!([])).await }).await;
        let error = CallError::Credentials { endpoint: "stub".to_owned() };
        assert_eq!(error.to_string(), "stub refused our credentials");
        assert_eq!(answer, Err(ChainError::Unreachable(error)));
        let health = &pool.health()[0];
        assert_eq!(health.aside, Some(Why::Credentials));
        assert!(health.pause_micros > 290_000_000);
    }
}

#[tokio::test]
async fn credentials_and_keys_are_sent_and_shown_to_nobody_else() {
    let stub = Stub::saying(json(r#"{"id":0,"error":{"code":1,"message":"bad key s3cret-key-value"}}"#)).await;
    let settings = EndpointSettings {
        authorization: Some("Bearer s3cret-token-value".to_owned()),
        key: Some(("TRON-PRO-API-KEY".to_owned(), "s3cret-key-value".to_owned())),
        headers: vec![("x-team".to_owned(), "treasury".to_owned())],
        ..endpoint("stub", &format!("{}/v3/s3cret-path-value/", stub.url))
    };
    let pool = Pool::new(std::slice::from_ref(&settings), &quick(), RuntimeClock::start()).unwrap();
    let answer = pool.any(|node| async move { json_rpc::call::<Value>(&node, "x", json!([])).await }).await;
    let request = stub.seen.lock().unwrap()[0].clone();
    assert!(request.starts_with("POST /v3/s3cret-path-value HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer s3cret-token-value\r\n"), "{request}");
    assert!(request.contains("tron-pro-api-key: s3cret-key-value\r\n"), "{request}");
    assert!(request.contains("x-team: treasury\r\n"), "{request}");
    let error = answer.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    let shown = format!("{settings:?} {pool:?} {error:?} {source} {:?}", pool.health());
    assert!(!shown.contains("s3cret") && !shown.contains("127.0.0.1"), "{shown}");
}

#[tokio::test]
async fn too_many_requests_and_its_like_are_rate_limits() {
    let trongrid = r#"{"Error":"The key exceeds the frequency limit(15), and the query server is suspended for 5s"}"#;
    for bytes in [
        http("429 Too Many Requests", "", ""),
        http("429 Too Many Requests", "retry-after: 99999999999999999999\r\n", "<html>"),
        http("429 Too Many Requests", "retry-after: Wed, 21 Oct 2026 07:28:00 GMT\r\n", ""),
        http("503 Service Unavailable", "retry-after: 2\r\n", ""),
        http("503 Service Unavailable", "", "Work queue depth exceeded"),
        http("403 Forbidden", "", trongrid),
        json(r#"{"id":0,"error":{"code":-32005,"message":"daily request count exceeded"}}"#),
        json(r#"{"id":0,"error":{"code":429,"message":"slow down"}}"#),
    ] {
        let stub = Stub::saying(bytes.clone()).await;
        let limited = Err(CallError::RateLimited { endpoint: "stub".to_owned() });
        assert_eq!(call(&stub).await, limited, "{}", String::from_utf8_lossy(&bytes));
    }
    let asks_too_much = json(r#"{"id":0,"error":{"code":-32005,"message":"query returned more than 10000 results"}}"#);
    let stub = Stub::saying(asks_too_much).await;
    assert!(matches!(call(&stub).await, Err(CallError::Refused { code: -32005, .. })));
}

#[tokio::test]
async fn retry_after_is_honoured_within_reason() {
    let stub = Stub::saying(http("429 Too Many Requests", "retry-after: 3600\r\n", "")).await;
    let settings = PoolSettings { retry_after_most: Duration::from_secs(30), ..quick() };
    let clock = Arc::new(domain::ManualClock::at(Timestamp::from_micros(0)));
    let pool = Pool::new(&[endpoint("stub", &stub.url)], &settings, clock.clone()).unwrap();
    let limited = Err(ChainError::Unreachable(CallError::RateLimited { endpoint: "stub".to_owned() }));
    for (seconds, requests) in [(0, 1), (1, 1), (29, 1), (30, 2), (59, 2), (60, 3)] {
        clock.set(Timestamp::from_micros(seconds * 1_000_000));
        let answer = pool.any(|node| async move { json_rpc::call::<Value>(&node, "x", json!([])).await }).await;
        assert_eq!((answer, stub.requests()), (limited.clone(), requests), "after {seconds} s");
    }
    assert_eq!(pool.health()[0].aside, None, "busy is not broken");
}

#[tokio::test]
async fn our_own_limit_is_never_exceeded() {
    let stub = Stub::saying(json(r#"{"id":0,"result":1}"#)).await;
    let settings = EndpointSettings { per_second: 10, ..endpoint("stub", &stub.url) };
    let clock = RuntimeClock::start();
    let pool = Pool::new(&[settings], &PoolSettings::default(), clock.clone()).unwrap();
    let calls = (0..25).map(|_| pool.any(|node| async move { json_rpc::call::<u32>(&node, "x", json!([])).await }));
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| *answer == Ok(1)));
    assert_eq!(stub.requests(), 25);
    assert!((2_000_000..4_000_000).contains(&clock.now().micros()), "{}", clock.now().micros());
}
