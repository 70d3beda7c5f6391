//! A node that says what a test wants it to: an honest little chain, and a hook that spoils its answers.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use alloy_primitives::{Address as Account, B256, U256, keccak256};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::net::{fresh, number, word};

pub const TIP: u64 = 40;
/// Pays in every block.
pub const PAYER: u8 = 100;
pub const TOKEN: u8 = 101;
/// Is paid in every block: as many wei and as many tokens as its height.
pub const PAID: u8 = 102;

pub type Said = Result<Value, (i64, String)>;
/// Method, parameters, the honest answer; gives what is said instead.
pub type Hook = dyn Fn(&str, &Value, Said) -> Said + Send + Sync;

pub fn block_hash(branch: u8, height: u64) -> B256 {
    // The branches share their first blocks.
    let branch = if height < 10 { 0 } else { branch };
    keccak256([&[branch][..], b"block", &height.to_be_bytes()].concat())
}

pub fn native_hash(height: u64) -> B256 {
    keccak256([&b"native"[..], &height.to_be_bytes()].concat())
}

pub fn token_hash(height: u64) -> B256 {
    keccak256([&b"token"[..], &height.to_be_bytes()].concat())
}

fn hex(height: u64) -> String {
    format!("{height:#x}")
}

fn block(branch: u8, height: u64) -> Value {
    let parent = height.checked_sub(1).map_or(B256::ZERO, |parent| block_hash(branch, parent));
    json!({
        "number": hex(height),
        "hash": block_hash(branch, height).to_string(),
        "parentHash": parent.to_string(),
        "timestamp": hex(1_700_000_000 + height),
        "transactions": [transaction(branch, height, true), transaction(branch, height, false)],
    })
}

fn transaction(branch: u8, height: u64, native: bool) -> Value {
    let hash = if native { native_hash(height) } else { token_hash(height) };
    let to = if native { fresh(PAID) } else { fresh(TOKEN) };
    let from = if native { fresh(PAYER) } else { fresh(PAYER + 50) };
    json!({
        "hash": hash.to_string(),
        "from": from.to_string(),
        "to": to.to_string(),
        "value": hex(if native { height } else { 0 }),
        "nonce": hex(height),
        "blockHash": block_hash(branch, height).to_string(),
        "blockNumber": hex(height),
    })
}

fn log(branch: u8, height: u64) -> Value {
    let topic = |account: Account| B256::from(word(account)).to_string();
    json!({
        "address": fresh(TOKEN).to_string(),
        "topics": [
            keccak256("Transfer(address,address,uint256)").to_string(),
            topic(fresh(PAYER)),
            topic(fresh(PAID)),
        ],
        "data": B256::from(U256::from(height)).to_string(),
        "blockHash": block_hash(branch, height).to_string(),
        "blockNumber": hex(height),
        "transactionHash": token_hash(height).to_string(),
        "logIndex": "0x7",
        "removed": false,
    })
}

fn receipt(branch: u8, height: u64, native: bool) -> Value {
    json!({
        "transactionHash": if native { native_hash(height) } else { token_hash(height) }.to_string(),
        "transactionIndex": if native { "0x0" } else { "0x1" },
        "blockHash": block_hash(branch, height).to_string(),
        "blockNumber": hex(height),
        "status": "0x1",
        "gasUsed": "0x5208",
        "effectiveGasPrice": "0x2",
        "logs": if native { json!([]) } else { json!([log(branch, height)]) },
    })
}

/// What a node that sees this branch up to this tip would say.
pub fn honest(branch: u8, tip: u64, method: &str, params: &Value) -> Said {
    let height = |tag: &Value| if tag == "latest" || tag == "pending" { tip } else { number(tag) };
    let of = |hash: &Value| {
        let at = |native: bool| {
            let hash_at = if native { native_hash } else { token_hash };
            (0..=tip).find(|height| *hash == json!(hash_at(*height).to_string())).map(|height| (height, native))
        };
        at(true).or_else(|| at(false))
    };
    Ok(match method {
        "eth_chainId" => json!("0x7a69"),
        "eth_blockNumber" => json!(hex(tip)),
        "eth_getBlockByNumber" => match height(&params[0]) {
            height if height > tip => Value::Null,
            height => block(branch, height),
        },
        "eth_getLogs" if !params[0]["blockHash"].is_null() => {
            let wanted = &params[0]["blockHash"];
            let block = (0..=tip).find(|height| *wanted == json!(block_hash(branch, *height).to_string()));
            block.into_iter().map(|height| log(branch, height)).collect()
        }
        "eth_getLogs" => {
            let range = number(&params[0]["fromBlock"])..=number(&params[0]["toBlock"]).min(tip);
            range.map(|height| log(branch, height)).collect()
        }
        "eth_getTransactionReceipt" => {
            of(&params[0]).map_or(Value::Null, |(height, native)| receipt(branch, height, native))
        }
        "eth_getTransactionByHash" => {
            of(&params[0]).map_or(Value::Null, |(height, native)| transaction(branch, height, native))
        }
        // Block h has the payer's transaction with nonce h.
        "eth_getTransactionCount" => json!(hex(height(&params[1]) + 1)),
        "eth_gasPrice" => json!("0x64"),
        "eth_feeHistory" => json!({ "baseFeePerGas": ["0x32", "0x32"], "reward": [["0x5"]] }),
        "eth_getCode" => json!("0x"),
        "eth_estimateGas" => json!("0xc350"),
        "eth_getBalance" => json!("0x5"),
        "eth_call" => json!(B256::from(U256::from(6)).to_string()),
        _ => return Err((-32_601, format!("the method {method} does not exist"))),
    })
}

/// An address where such a node is, for as long as the test runs.
pub async fn serve(hook: impl Fn(&str, &Value, Said) -> Said + Send + Sync + 'static) -> String {
    serve_noting(hook, |_, _| {}).await
}

/// Requests, and the lengths of their answers.
pub type Noted = Arc<Mutex<Vec<(String, u64)>>>;

/// An honest one, and the requests that it gets.
pub async fn counted() -> (String, Noted) {
    let noted = Noted::default();
    let notes = Arc::clone(&noted);
    let note = move |asked: &Value, said: &str| {
        let length = u64::try_from(said.len()).expect("not so long");
        notes.lock().expect("no test panics here").push((asked.to_string(), length));
    };
    (serve_noting(|_, _, said| said, note).await, noted)
}

/// A refusal in these words is none: no answer comes at all.
pub const SILENCE: &str = "(silence)";

async fn serve_noting(
    hook: impl Fn(&str, &Value, Said) -> Said + Send + Sync + 'static,
    note: impl Fn(&Value, &str) + Send + Sync + 'static,
) -> String {
    let hook: Arc<Hook> = Arc::new(hook);
    let note = Arc::new(note);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let (hook, note) = (Arc::clone(&hook), Arc::clone(&note));
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let (hook, note) = (Arc::clone(&hook), Arc::clone(&note));
                    async move {
                        let body = request.into_body().collect().await.expect("a body").to_bytes();
                        let asked: Value = serde_json::from_slice(&body).expect("JSON");
                        let said = match asked.as_array() {
                            Some(calls) => calls.iter().map(|call| answer(&*hook, call)).collect(),
                            None => answer(&*hook, &asked),
                        };
                        let said = said.to_string();
                        note(&asked, &said);
                        if said.contains(SILENCE) {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(said))))
                    }
                });
                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    url
}

fn answer(hook: &Hook, call: &Value) -> Value {
    let method = call["method"].as_str().expect("a method");
    let said = hook(method, &call["params"], honest(0, TIP, method, &call["params"]));
    match said {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": call["id"], "result": result }),
        Err((code, message)) => {
            json!({ "jsonrpc": "2.0", "id": call["id"], "error": { "code": code, "message": message } })
        }
    }
}
