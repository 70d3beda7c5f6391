//! Nodes that refuse, move or talk nonsense while blocks are read. What they say never becomes money.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy_primitives::B256;
use chain::endpoint::CallError;
use chain::evm::{EvmChain, EvmSettings};
use chain::{Chain, ChainError, Scan};
use serde_json::{Value, json};

use super::fake::{
    PAID, PAYER, SILENCE, Said, TIP, TOKEN, block_hash, counted, honest, native_hash, serve, token_hash,
};
use super::net::{CHAIN_ID, CONFIRMATIONS, fresh, number, pool, pool_within, watch};

pub fn client(urls: &[String], quorum: usize) -> EvmChain {
    let mut settings = EvmSettings::new(CHAIN_ID, CONFIRMATIONS);
    (settings.tokens, settings.batch) = (vec![fresh(TOKEN)], 20);
    EvmChain::new(settings, pool(urls, quorum))
}

pub async fn good() -> String {
    serve(|_, _, said| said).await
}

/// Without the name of the node that it came from.
async fn scan(chain: &EvmChain) -> Result<Scan, ChainError> {
    let scan = chain.scan(0, TIP, &watch(&[fresh(PAID)])).await;
    scan.map(|scan| Scan { source: String::new(), ..scan })
}

pub fn is_bad<T: std::fmt::Debug>(answer: Result<T, ChainError>, name: &str) {
    let bad = matches!(answer, Err(ChainError::Unreachable(CallError::BadAnswer { .. })));
    assert!(bad, "{name}: {answer:?}");
}

/// Puts `value` at the path of an answer.
pub fn put(mut answer: Value, path: &str, value: Value) -> Value {
    if let Some(place) = answer.pointer_mut(path) {
        *place = value;
    }
    answer
}

fn without(mut answer: Value, field: &str) -> Value {
    if let Some(fields) = answer.as_object_mut() {
        fields.remove(field);
    }
    answer
}

#[tokio::test]
async fn a_provider_with_narrow_windows_is_read_all_the_same() {
    let (asked, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, turned_away) = (Arc::clone(&asked), Arc::clone(&refused));
    let narrow = serve(move |method, params, said| {
        if method == "eth_getLogs" {
            counted.fetch_add(1, Ordering::SeqCst);
            if number(&params[0]["toBlock"]) - number(&params[0]["fromBlock"]) >= 10 {
                turned_away.fetch_add(1, Ordering::SeqCst);
                return Err((-32_600, "eth_getLogs requests are limited to a 10 block range".to_owned()));
            }
        }
        said
    });
    let chain = client(&[narrow.await], 1);
    let found = scan(&chain).await.expect("a scan");
    assert_eq!(found, scan(&client(&[good().await], 1)).await.expect("a scan"));
    assert_eq!(found.outputs.len(), 80, "block 0 pays nothing, the others both");
    let before = refused.load(Ordering::SeqCst);
    assert!(before > 0);
    scan(&chain).await.expect("a scan");
    let again = refused.load(Ordering::SeqCst) - before;
    assert!(again <= 1, "the window is remembered: {again}");
    assert!(asked.load(Ordering::SeqCst) < 30);
}

#[tokio::test]
async fn a_provider_that_refuses_every_window_is_an_error_not_a_loop() {
    let never = serve(|method, _, said| match method {
        "eth_getLogs" => Err((-32_000, "block range is too wide".to_owned())),
        _ => said,
    });
    let answer = scan(&client(&[never.await], 1)).await;
    assert!(matches!(answer, Err(ChainError::Refused(_))), "{answer:?}");
}

pub type Spoil = fn(&str, &Value, Said) -> Said;
type Change = fn(Value) -> Value;

/// What spoils a scan, and every way to tell.
const SPOILT: [(&str, Spoil); 24] = [
    ("a null block", |method, params, said| blocks(method, params, said, |_| Value::Null)),
    ("another height", |method, params, said| {
        blocks(method, params, said, |block| put(block, "/number", json!("0x1")))
    }),
    ("a height of 2^256", |method, params, said| {
        blocks(method, params, said, |block| put(block, "/number", json!(format!("0x1{}", "0".repeat(64)))))
    }),
    ("a height that is a number", |method, params, said| {
        blocks(method, params, said, |block| put(block, "/number", json!(5)))
    }),
    ("no parent", |method, params, said| blocks(method, params, said, |block| without(block, "parentHash"))),
    ("another parent", |method, params, said| {
        blocks(method, params, said, |block| put(block, "/parentHash", json!(B256::ZERO.to_string())))
    }),
    ("a time beyond all calendars", |method, params, said| {
        blocks(method, params, said, |block| put(block, "/timestamp", json!("0xffffffffffffffff")))
    }),
    ("no transactions", |method, params, said| blocks(method, params, said, |block| without(block, "transactions"))),
    ("transactions without value", |method, params, said| {
        blocks(method, params, said, |block| put(block, "/transactions/0/value", Value::Null))
    }),
    ("words for a block", |method, params, said| blocks(method, params, said, |_| json!("soon"))),
    ("the receipt of another", |method, params, said| {
        receipts(method, params, said, |one| put(one, "/transactionHash", json!(native_hash(9).to_string())))
    }),
    ("no receipt", |method, params, said| receipts(method, params, said, |_| Value::Null)),
    ("a receipt of another block", |method, params, said| {
        receipts(method, params, said, |one| put(one, "/blockHash", json!(B256::ZERO.to_string())))
    }),
    ("a receipt of another block, without logs", |method, params, said| {
        let ours = method == "eth_getTransactionReceipt" && params[0] == json!(native_hash(7).to_string());
        if ours { said.map(|one| put(one, "/blockHash", json!(B256::ZERO.to_string()))) } else { said }
    }),
    ("a receipt with a log of another", |method, params, said| {
        receipts(method, params, said, |one| put(one, "/logs/0/transactionHash", json!(B256::ZERO.to_string())))
    }),
    ("a receipt of another place", |method, params, said| {
        receipts(method, params, said, |one| put(one, "/transactionIndex", json!("0x5")))
    }),
    ("a status of 2", |method, params, said| receipts(method, params, said, |one| put(one, "/status", json!("0x2")))),
    ("gas of 2^256", |method, params, said| {
        receipts(method, params, said, |one| put(one, "/gasUsed", json!(format!("0x1{}", "0".repeat(64)))))
    }),
    ("a receipt without its log", |method, params, said| {
        receipts(method, params, said, |one| put(one, "/logs", json!([])))
    }),
    ("another amount in the receipt", |method, params, said| {
        receipts(method, params, said, |one| put(one, "/logs/0/data", json!(B256::repeat_byte(1).to_string())))
    }),
    ("a log of another branch", |method, params, said| {
        logs(method, params, said, |one| put(one, "/5/blockHash", json!(B256::ZERO.to_string())))
    }),
    ("a log that was removed", |method, params, said| {
        logs(method, params, said, |one| put(one, "/5/removed", json!(true)))
    }),
    ("a log that was not asked for", |method, params, said| {
        logs(method, params, said, |one| put(one, "/5/blockNumber", json!("0xff")))
    }),
    ("a log of no transaction", |method, params, said| {
        logs(method, params, said, |one| put(one, "/5/transactionHash", json!(B256::ZERO.to_string())))
    }),
];

fn blocks(method: &str, params: &Value, said: Said, spoil: Change) -> Said {
    if method == "eth_getBlockByNumber" && params[0] == "0x7" { said.map(spoil) } else { said }
}

fn receipts(method: &str, params: &Value, said: Said, spoil: Change) -> Said {
    let ours = method == "eth_getTransactionReceipt" && params[0] == json!(token_hash(7).to_string());
    if ours { said.map(spoil) } else { said }
}

fn logs(method: &str, _: &Value, said: Said, spoil: Change) -> Said {
    if method == "eth_getLogs" { said.map(spoil) } else { said }
}

#[tokio::test]
async fn a_spoilt_answer_is_noticed_and_another_node_is_asked() {
    let honest = good().await;
    let expected = scan(&client(std::slice::from_ref(&honest), 1)).await;
    for (name, spoil) in SPOILT {
        let spoilt = serve(spoil).await;
        let alone = scan(&client(std::slice::from_ref(&spoilt), 1)).await;
        if name == "a null block" {
            assert_eq!(alone, Err(ChainError::BlockMissing { height: 7 }));
        } else {
            is_bad(alone, name);
        }
        assert_eq!(scan(&client(&[spoilt, honest.clone()], 1)).await, expected, "{name}");
    }
}

#[tokio::test]
async fn a_chain_that_moves_during_the_scan_is_scanned_again() {
    for after in [1, 5, 21, 30, 45] {
        let calls = AtomicU64::new(0);
        let moving = serve(move |method, params, _| {
            let branch = if calls.fetch_add(1, Ordering::SeqCst) < after { 0 } else { 1 };
            honest(branch, TIP, method, params)
        });
        let found = scan(&client(&[moving.await], 1)).await.expect("a scan");
        assert!(found.headers.windows(2).all(|pair| pair[0].hash == pair[1].parent), "after {after}");
        let hashes = found.headers.iter().map(|header| B256::from(header.hash.0));
        let branch = u8::from(B256::from(found.headers[40].hash.0) == block_hash(1, 40));
        assert!(hashes.eq((0..=TIP).map(|height| block_hash(branch, height))), "after {after}");
        let fits = |output: &chain::Output| B256::from(output.block.hash.0) == block_hash(branch, output.block.height);
        assert!(found.outputs.iter().all(fits) && found.outputs.len() == 80, "after {after}");
    }
}

#[tokio::test]
async fn a_chain_that_never_stands_still_is_an_error_not_a_loop() {
    let calls = AtomicU64::new(0);
    let restless = serve(move |method, params, _| {
        honest(u8::try_from(calls.fetch_add(1, Ordering::SeqCst) % 2).expect("0 or 1"), TIP, method, params)
    });
    is_bad(scan(&client(&[restless.await], 1)).await, "restless");
}

#[tokio::test]
async fn without_listed_contracts_no_logs_are_asked_for() {
    // An empty list of addresses is every address, to a node.
    let node = serve(|method, _, said| if method == "eth_getLogs" { Ok(json!("asked")) } else { said });
    let chain = EvmChain::new(EvmSettings::new(CHAIN_ID, CONFIRMATIONS), pool(&[node.await], 1));
    assert_eq!(scan(&chain).await.expect("a scan").outputs.len(), 40);
}

#[tokio::test]
async fn receipts_of_many_blocks_come_in_few_requests() {
    for (batch, requests) in [(20, 3 + 3 + 5), (41, 1 + 1 + 2), (100, 1 + 1 + 1), (7, 6 + 6 + 12)] {
        let (url, asked) = counted().await;
        let mut settings = EvmSettings::new(CHAIN_ID, CONFIRMATIONS);
        (settings.tokens, settings.batch) = (vec![fresh(TOKEN)], batch);
        let chain = EvmChain::new(settings, pool(&[url], 1));
        assert_eq!(scan(&chain).await.expect("a scan").outputs.len(), 80);
        // Blocks and logs once for each chunk, and the receipts of its blocks, block 0's of the token alone.
        assert_eq!(asked.lock().unwrap().len(), requests, "{batch}");
    }
}

#[tokio::test]
async fn fetching_only_makes_the_requests_of_a_scan() {
    for (batch, pool_batch) in [(20, 100), (7, 100), (1, 100), (20, 6)] {
        let (url, asked) = counted().await;
        let mut settings = EvmSettings::new(CHAIN_ID, CONFIRMATIONS);
        settings.batch = batch;
        let endpoint = chain::endpoint::EndpointSettings {
            name: "node".to_owned(),
            url,
            authorization: None,
            key: None,
            headers: Vec::new(),
            per_second: 0,
        };
        let limits = chain::endpoint::PoolSettings { batch: pool_batch, ..Default::default() };
        let pool = chain::endpoint::Pool::new(&[endpoint], &limits, Arc::new(domain::ManualClock::default()));
        let chain = EvmChain::new(settings, pool.expect("good settings"));
        chain.scan(0, TIP, &watch(&[])).await.expect("a scan");
        let of_the_scan = std::mem::take(&mut *asked.lock().unwrap());
        let bytes = chain.fetch_only(0, TIP).await.expect("bytes");
        let mut only = std::mem::take(&mut *asked.lock().unwrap());
        assert_eq!(bytes, only.iter().map(|(_, answer)| *answer).sum::<u64>());
        let mut scanned = of_the_scan;
        scanned.sort();
        only.sort();
        assert_eq!(only, scanned, "{batch}");
        assert_eq!(chain.fetch_only(5, 4).await, Ok(0));
    }
    let dead = client(&["http://127.0.0.1:9".to_owned()], 1);
    assert!(matches!(dead.fetch_only(0, 5).await, Err(ChainError::Unreachable(_))));
}

/// A trace in which the token's contract pays one wei to PAID.
fn trace(hash: B256) -> Value {
    let frame = |calls: Value| {
        let (to, value) = (fresh(PAID).to_string(), "0x1");
        json!({ "type": "CALL", "from": fresh(PAYER).to_string(), "to": to, "value": value, "calls": calls })
    };
    json!({ "txHash": hash.to_string(), "result": frame(json!([frame(json!([]))])) })
}

fn traces(params: &Value) -> Value {
    let height = number(&params[0]);
    json!([trace(native_hash(height)), trace(token_hash(height))])
}

#[tokio::test]
async fn a_trace_must_be_that_of_the_block() {
    let tracing = |spoil: Change| {
        serve(move |method, params, said| match method {
            "debug_traceBlockByNumber" if params[0] == "0x7" => Ok(spoil(traces(params))),
            "debug_traceBlockByNumber" => Ok(traces(params)),
            _ => said,
        })
    };
    let client = |url: String| {
        let mut settings = EvmSettings::new(CHAIN_ID, CONFIRMATIONS);
        settings.internal_transfers = true;
        EvmChain::new(settings, pool(&[url], 1))
    };
    let expected = scan(&client(tracing(|traces| traces).await)).await.expect("a scan");
    assert_eq!(expected.outputs.len(), 40 + 2 * 41, "values, and one inside each transaction");
    let unnamed: Change =
        |traces| traces.as_array().expect("a list").iter().map(|one| without(one.clone(), "txHash")).collect();
    assert_eq!(scan(&client(tracing(unnamed).await)).await, Ok(expected));
    let spoilt: [(&str, Change); 6] = [
        ("too few", |traces| json!([traces[0]])),
        ("too many", |traces| json!([traces[0], traces[1], without(traces[1].clone(), "txHash")])),
        ("another order", |traces| json!([traces[1], traces[0]])),
        ("null", |_| Value::Null),
        ("no trace", |traces| put(traces, "/1/result", json!(5))),
        ("a value that is none", |traces| put(traces, "/1/result/calls/0/value", json!("much"))),
    ];
    for (name, spoil) in spoilt {
        is_bad(scan(&client(tracing(spoil).await)).await, name);
    }
}

#[tokio::test]
async fn a_trace_that_does_not_come_is_not_taken_for_one_without_payments() {
    let slow = serve(|method, params, said| match method {
        "debug_traceBlockByNumber" if params[0] == "0x7" => Err((0, SILENCE.to_owned())),
        "debug_traceTransaction" if params[0] == json!(native_hash(7).to_string()) => Err((0, SILENCE.to_owned())),
        "debug_traceTransaction" => Ok(trace(token_hash(7))["result"].clone()),
        "debug_traceBlockByNumber" => Ok(traces(params)),
        _ => said,
    });
    let mut settings = EvmSettings::new(CHAIN_ID, CONFIRMATIONS);
    settings.internal_transfers = true;
    let deadline = std::time::Duration::from_millis(1_500);
    let chain = EvmChain::new(settings, pool_within(&[slow.await], 1, deadline));
    let found = scan(&chain).await;
    assert!(matches!(found, Err(ChainError::Unreachable(_))), "what it moved inside is not known: {found:?}");
}

#[tokio::test]
async fn who_cannot_trace_leaves_it_to_those_who_can() {
    let tracing = serve(|method, params, said| match method {
        "debug_traceBlockByNumber" => Ok(traces(params)),
        "debug_traceTransaction" => Ok(trace(native_hash(7))["result"].clone()),
        _ => said,
    })
    .await;
    let refusing = |code: i64, words: &'static str| {
        serve(move |method, _, said| if method.starts_with("debug_") { Err((code, words.to_owned())) } else { said })
    };
    let client = |urls: &[String], quorum: usize| {
        let mut settings = EvmSettings::new(CHAIN_ID, CONFIRMATIONS);
        settings.internal_transfers = true;
        EvmChain::new(settings, pool(urls, quorum))
    };
    let expected = scan(&client(std::slice::from_ref(&tracing), 1)).await.expect("a scan");
    let watched = watch(&[fresh(PAID)]);
    let hash = tx::TxHash(native_hash(7).0);
    let proven = client(std::slice::from_ref(&tracing), 1).prove(hash, &watched).await.expect("a proof");
    assert_eq!(proven.as_ref().map(|proven| proven.outputs.len()), Some(2));
    for (code, words) in [
        (-32_601, "the method debug_traceBlockByNumber does not exist/is not available"),
        (-32_000, "Required historical state unavailable (reexec=128)"),
        (-32_000, "missing trie node 12ab (path )"),
        (4_444, "pruned history unavailable"),
    ] {
        let bare = refusing(code, words).await;
        for _ in 0..5 {
            assert_eq!(scan(&client(&[bare.clone(), tracing.clone()], 1)).await.as_ref(), Ok(&expected), "{words}");
            // The same node by its other name: a quorum of those that trace.
            let named = tracing.replace("127.0.0.1", "localhost");
            let three = client(&[bare.clone(), tracing.clone(), named], 2);
            assert_eq!(three.prove(hash, &watched).await.as_ref(), Ok(&proven), "{words}");
        }
        let alone = client(std::slice::from_ref(&bare), 1);
        let refused = scan(&alone).await;
        assert!(matches!(refused, Err(ChainError::Refused(CallError::Lacks { .. }))), "{refused:?}");
        let refused = alone.prove(hash, &watched).await;
        assert!(matches!(refused, Err(ChainError::Refused(CallError::Lacks { .. }))), "{refused:?}");
    }
    // Whatever the words: another node may have what this one refuses.
    let refused = scan(&client(&[refusing(-32_000, "execution aborted").await], 1)).await;
    assert!(matches!(refused, Err(ChainError::Refused(CallError::Lacks { .. }))), "{refused:?}");
    let other = client(&[refusing(-32_000, "quota used up").await, tracing.clone()], 1);
    assert_eq!(scan(&other).await.as_ref(), Ok(&expected));
}

#[tokio::test]
async fn who_is_a_block_behind_is_no_reason_to_fail_and_has_not_failed() {
    let behind = serve(|method, params, _| honest(0, TIP - 1, method, params)).await;
    let pool = pool(&[behind.clone(), behind.replace("127.0.0.1", "localhost"), good().await], 1);
    let mut events = pool.events();
    let chain = EvmChain::new(EvmSettings::new(CHAIN_ID, CONFIRMATIONS), pool);
    for _ in 0..20 {
        assert_eq!(scan(&chain).await.expect("a scan").headers.len(), 41);
        let missing = chain.scan(0, TIP + 1, &watch(&[])).await;
        assert!(matches!(missing, Err(ChainError::BlockMissing { .. })), "{missing:?}");
    }
    assert!(events.try_recv().is_err(), "nobody is set aside");
}

/// Behind one address there are many nodes. One that has not come so far has no logs, and does not say why.
#[tokio::test]
async fn logs_that_a_lagging_backend_leaves_out_are_asked_for_by_block() {
    let blooming = |method: &str, said: Said| match method {
        // Every bit is set: there may be logs of anything.
        "eth_getBlockByNumber" => said.map(|block| match block {
            Value::Object(mut members) => {
                members.insert("logsBloom".to_owned(), json!(format!("0x{}", "ff".repeat(256))));
                Value::Object(members)
            }
            other => other,
        }),
        _ => said,
    };
    let lags = serve(move |method, params, said| match method {
        "eth_getLogs" if params[0]["blockHash"].is_null() => Ok(json!([])),
        _ => blooming(method, said),
    })
    .await;
    let expected = scan(&client(&[good().await], 1)).await.expect("a scan");
    assert!(expected.outputs.iter().any(|output| output.coin != tx::Coin::Native), "there are tokens to miss");
    assert_eq!(scan(&client(&[lags], 1)).await, Ok(expected));
}
