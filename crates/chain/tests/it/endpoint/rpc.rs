//! JSON-RPC, single and batched.

use chain::endpoint::{CallError, json_rpc};
use serde_json::{Value, json};

use super::*;

type Batch<T> = Result<Vec<Result<T, CallError>>, CallError>;

async fn batch(stub: &Stub, settings: &PoolSettings, count: usize) -> Batch<u64> {
    batch_on(&stub.pool(settings), count).await
}

async fn batch_on(pool: &Pool, count: usize) -> Batch<u64> {
    let calls: Vec<_> = (0..count).map(|number| ("double", json!([number]))).collect();
    let calls = &calls;
    pool.each(|node| async move { json_rpc::batch(&node, calls).await }).await.pop().unwrap().1
}

async fn call<T: serde::de::DeserializeOwned + Send>(body: &str) -> Result<T, CallError> {
    let stub = Stub::saying(json(body)).await;
    let pool = stub.pool(&PoolSettings::default());
    pool.each(|node| async move { json_rpc::call(&node, "x", json!([])).await }).await.pop().unwrap().1
}

/// Doubles each number; refuses batches of more than `most`.
fn doubling(most: usize) -> impl Fn(&str) -> Act {
    move |request| {
        let one = |call: &Value| json!({ "id": call["id"], "result": call["params"][0].as_u64().unwrap() * 2 });
        let answer = match serde_json::from_str(body_of(request)).unwrap() {
            Value::Array(calls) if calls.len() > most => {
                json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32600, "message": "batch too large" } })
            }
            // In another order than they were asked.
            Value::Array(calls) => calls.iter().rev().map(one).collect(),
            call => one(&call),
        };
        Act::Send(json(&answer.to_string()))
    }
}

fn doubled(count: u64) -> Batch<u64> {
    Ok((0..count).map(|number| Ok(number * 2)).collect())
}

#[tokio::test]
async fn null_is_an_answer_and_nothing_is_not() {
    assert_eq!(call::<Option<u64>>(r#"{"id":0,"result":null}"#).await, Ok(None));
    assert_eq!(call::<Option<u64>>(r#"{"id":0,"result":5,"error":null}"#).await, Ok(Some(5)));
    assert_eq!(call::<()>(r#"{"result":null}"#).await, Ok(()));
    assert!(matches!(call::<u64>(r#"{"id":0,"result":null}"#).await, Err(CallError::BadAnswer { .. })));
    assert!(matches!(call::<Option<u64>>(r#"{"id":0}"#).await, Err(CallError::BadAnswer { .. })));
}

#[tokio::test]
async fn ids_may_be_text_or_left_out_of_one_answer() {
    for id in [r#""id":"0","#, r#""id":null,"#, "", r#""id":0,"#] {
        assert_eq!(call::<u64>(&format!(r#"{{{id}"result":5}}"#)).await, Ok(5), "{id}");
    }
    for id in ["1", "\"1\"", "\"x\"", "-1", "true", "[0]", "18446744073709551616"] {
        let answer = call::<u64>(&format!(r#"{{"id":{id},"result":5}}"#)).await;
        assert!(matches!(answer, Err(CallError::BadAnswer { .. })), "{id}: {answer:?}");
    }
}

#[tokio::test]
async fn errors_of_any_form_are_refusals() {
    for (error, code, message) in [
        (r#"{"code":3,"message":"execution reverted","data":"0x08c379a0"}"#, 3, "execution reverted"),
        (r#"{"message":"no code"}"#, 0, "no code"),
        (r#"{"code":-1}"#, -1, ""),
        (r#""just words""#, 0, "just words"),
        ("[1]", 0, "an error without a message"),
        (r#"{"code":"-5","message":"x"}"#, 0, "an error without a message"),
    ] {
        let answer = call::<u64>(&format!(r#"{{"id":0,"result":"","error":{error}}}"#)).await;
        let refused = CallError::Refused { endpoint: "stub".to_owned(), code, message: message.to_owned() };
        assert_eq!(answer, Err(refused), "{error}");
    }
}

#[tokio::test]
async fn a_depth_bomb_is_a_bad_answer() {
    for bomb in ["[".repeat(1_000_000), "{\"a\":".repeat(1_000_000), "[".repeat(200_000) + &"]".repeat(200_000)] {
        for body in [bomb.clone(), format!(r#"{{"id":0,"result":{bomb}}}"#), format!(r#"{{"id":{bomb},"result":1}}"#)] {
            assert!(matches!(call::<Value>(&body).await, Err(CallError::BadAnswer { .. })));
            let stub = Stub::saying(json(&body)).await;
            assert!(matches!(batch(&stub, &PoolSettings::default(), 2).await, Err(CallError::BadAnswer { .. })));
        }
    }
}

#[tokio::test]
async fn an_endless_message_is_cut() {
    let body = format!(r#"{{"id":0,"error":{{"code":1,"message":"{}"}}}}"#, "x".repeat(1 << 20));
    let Err(CallError::Refused { message, .. }) = call::<u64>(&body).await else { panic!("not refused") };
    assert!(message.len() <= 1_000);
}

#[tokio::test]
async fn answers_come_in_the_order_of_the_calls() {
    let stub = Stub::start(doubling(1_000)).await;
    assert_eq!(batch(&stub, &PoolSettings::default(), 0).await, Ok(Vec::new()));
    assert_eq!(stub.requests(), 0);
    assert_eq!(batch(&stub, &PoolSettings::default(), 50).await, doubled(50));
    assert_eq!(stub.requests(), 1);
}

#[tokio::test]
async fn batches_are_split_at_the_limit_of_the_settings() {
    let stub = Stub::start(doubling(1_000)).await;
    let settings = PoolSettings { batch: 40, ..PoolSettings::default() };
    assert_eq!(batch(&stub, &settings, 100).await, doubled(100));
    let sizes: Vec<_> = stub.bodies().iter().map(|body| body.matches("double").count()).collect();
    assert_eq!(sizes, [40, 40, 20]);
}

#[tokio::test]
async fn a_batch_that_is_refused_as_such_is_halved_until_it_is_taken() {
    for most in [0, 1, 2, 7, 30, 99] {
        let stub = Stub::start(doubling(most)).await;
        let pool = stub.pool(&PoolSettings::default());
        assert_eq!(batch_on(&pool, 100).await, doubled(100), "at most {most}");
        // What was learnt is remembered.
        let (first, before) = (stub.requests(), stub.requests());
        assert_eq!(batch_on(&pool, 100).await, doubled(100));
        assert!(stub.requests() - before <= first, "at most {most}");
    }
}

#[tokio::test]
async fn a_batch_whose_answer_is_too_long_is_halved() {
    let stub = Stub::start(doubling(1_000)).await;
    let settings = PoolSettings { answer_bytes: 400, ..PoolSettings::default() };
    assert_eq!(batch(&stub, &settings, 64).await, doubled(64));
}

#[tokio::test]
async fn a_batch_too_large_for_the_server_is_halved() {
    let stub = Stub::start(|request| {
        if request.len() > 1_000 {
            Act::Send(http("413 Content Too Large", "", "<html>"))
        } else {
            doubling(99)(request)
        }
    });
    assert_eq!(batch(&stub.await, &PoolSettings::default(), 64).await, doubled(64));
}

#[tokio::test]
async fn answers_that_do_not_fit_the_calls_are_bad() {
    for body in [
        r#"[{"id":0,"result":1}]"#,
        r#"[{"id":0,"result":1},{"id":0,"result":1}]"#,
        r#"[{"id":0,"result":1},{"id":1,"result":1},{"id":1,"result":1}]"#,
        r#"[{"id":0,"result":1},{"id":1,"result":1},{"id":2,"result":1}]"#,
        r#"[{"id":0,"result":1},{"result":1}]"#,
        r#"[{"result":1},{"result":1}]"#,
        r#"[{"id":0,"result":1},{"id":null,"error":{"code":1,"message":""}}]"#,
        r#"[{"id":0,"result":1},{"id":1,"result":1}] 7"#,
        r#"[{"id":0,"result":1},7]"#,
        r#"{"id":0,"result":1}"#,
        "[]",
        "7",
        "",
    ] {
        let stub = Stub::saying(json(body)).await;
        let answer = batch(&stub, &PoolSettings::default(), 2).await;
        assert!(matches!(answer, Err(CallError::BadAnswer { .. })), "{body}: {answer:?}");
        assert_eq!(stub.requests(), 1);
    }
    let stub = Stub::saying(json(r#"[{"id":"1","result":7},{"id":"0","result":6}]"#)).await;
    assert_eq!(batch(&stub, &PoolSettings::default(), 2).await, Ok(vec![Ok(6), Ok(7)]));
}

#[tokio::test]
async fn one_bad_answer_does_not_spoil_the_others() {
    let body = r#"[{"id":0,"result":"x"},{"id":1,"result":7},{"id":2,"error":{"code":-5,"message":"no"}},{"id":3}]"#;
    let stub = Stub::saying(json(body)).await;
    let answers = batch(&stub, &PoolSettings::default(), 4).await.unwrap();
    assert!(matches!(answers[0], Err(CallError::BadAnswer { .. })));
    assert_eq!(answers[1], Ok(7));
    assert!(matches!(answers[2], Err(CallError::Refused { code: -5, .. })));
    assert!(matches!(answers[3], Err(CallError::BadAnswer { .. })));
}

#[tokio::test]
async fn a_rate_limit_of_a_batch_does_not_halve_it() {
    let stub = Stub::saying(json(r#"{"id":null,"error":{"code":-32005,"message":"limit exceeded"}}"#)).await;
    let answer = batch(&stub, &PoolSettings::default(), 8).await;
    assert_eq!(answer, Err(CallError::RateLimited { endpoint: "stub".to_owned() }));
    assert_eq!(stub.requests(), 1);
}

#[tokio::test]
async fn each_call_of_a_batch_counts_against_the_limit() {
    let stub = Stub::start(doubling(1_000)).await;
    let settings = EndpointSettings { per_second: 10, ..endpoint("stub", &stub.url) };
    let clock = RuntimeClock::start();
    let pool = Pool::new(&[settings], &PoolSettings::default(), clock.clone()).unwrap();
    assert_eq!(batch_on(&pool, 25).await, doubled(25));
    assert_eq!(stub.requests(), 3);
    assert!(clock.now().micros() >= 2_000_000, "{}", clock.now().micros());
}
