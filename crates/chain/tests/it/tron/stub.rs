//! A node that says what a test wants, in the shapes that java-tron's documentation prints.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use devnet::Key;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tx::tron::TronAddress;
use tx::tron::proto::{Any, Contract, Raw, TransferContract, TriggerSmartContract};
use tx::tron::transaction;
use tx::{Address, BlockHash, BlockRef, TxHash};

pub const START_MS: i64 = 1_700_000_000_000;
pub const SLOT_MS: i64 = 3_000;

type Script = dyn Fn(&str, &Value) -> (u16, String) + Send + Sync;

pub struct Stub {
    pub url: String,
    /// The most calls that it had at a time.
    pub busiest: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stub {
    pub async fn start(script: impl Fn(&str, &Value) -> (u16, String) + Send + Sync + 'static) -> Self {
        Self::slow(Duration::ZERO, script).await
    }

    /// Takes its time over every call.
    pub async fn slow(delay: Duration, script: impl Fn(&str, &Value) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let busiest = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(serve(listener, Arc::new(script), delay, Arc::clone(&busiest)));
        Self { url, busiest, task }
    }

    /// Answers from a book that the test may change meanwhile.
    pub async fn of(book: &Arc<Mutex<Book>>) -> Self {
        let book = Arc::clone(book);
        Self::start(move |path, body| (200, book.lock().expect("no test panics here").answer(path, body).to_string()))
            .await
    }
}

async fn serve(listener: TcpListener, script: Arc<Script>, delay: Duration, busiest: Arc<AtomicUsize>) {
    let now = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (script, now, busiest) = (Arc::clone(&script), Arc::clone(&now), Arc::clone(&busiest));
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let (script, now, busiest) = (Arc::clone(&script), Arc::clone(&now), Arc::clone(&busiest));
                async move {
                    busiest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                    if !delay.is_zero() {
                        tokio::time::sleep(delay).await;
                    }
                    let (status, text) = script(&path, &body);
                    let mut response = Response::new(Full::new(Bytes::from(text)));
                    *response.status_mut() = hyper::StatusCode::from_u16(status).expect("a status");
                    now.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, Infallible>(response)
                }
            });
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

/// A chain as one node shows it.
#[derive(Clone)]
pub struct Book {
    pub blocks: Vec<Block>,
    pub solid: usize,
    pub pending: Vec<TxHash>,
}

#[derive(Clone)]
pub struct Block {
    pub hash: BlockHash,
    pub parent: BlockHash,
    pub time_ms: i64,
    pub transactions: Vec<Tx>,
}

#[derive(Clone)]
pub struct Tx {
    pub raw: Vec<u8>,
    pub ret: &'static str,
    pub fee: i64,
    pub logs: Vec<Value>,
    pub internals: Vec<Value>,
}

/// An id of this height, on the branch of this name.
pub fn id(height: u64, branch: u8) -> BlockHash {
    let mut hash = [branch; 32];
    hash[..8].copy_from_slice(&height.to_be_bytes());
    hash[31] = 1;
    BlockHash(hash)
}

fn block(height: u64, branch: u8, parent: BlockHash) -> Block {
    let time_ms = if height == 0 { 0 } else { START_MS + i64::try_from(height).expect("small") * SLOT_MS };
    Block { hash: id(height, branch), parent, time_ms, transactions: Vec::new() }
}

impl Book {
    pub fn new(tip: u64) -> Self {
        let mut book = Self { blocks: Vec::new(), solid: 0, pending: Vec::new() };
        book.grow(tip + 1, 0xaa);
        book.solid = book.blocks.len().saturating_sub(20);
        book
    }

    pub fn grow(&mut self, blocks: u64, branch: u8) {
        for _ in 0..blocks {
            let height = u64::try_from(self.blocks.len()).expect("small");
            let parent = self.blocks.last().map_or(BlockHash([0x95; 32]), |block| block.hash);
            self.blocks.push(block(height, branch, parent));
        }
    }

    pub fn at(&self, height: usize) -> BlockRef {
        BlockRef { height: u64::try_from(height).expect("small"), hash: self.blocks[height].hash }
    }

    pub fn answer(&self, path: &str, body: &Value) -> Value {
        let number = |field: &str| usize::try_from(body[field].as_u64().expect(field)).expect("small");
        let by_height = |height: usize, full: bool| match self.blocks.get(height) {
            Some(block) => block.json(height, full),
            None => json!({}),
        };
        match path {
            "/wallet/getnowblock" => by_height(self.blocks.len() - 1, true),
            "/walletsolidity/getnowblock" => by_height(self.solid, true),
            "/wallet/getblock" => {
                let height = body["id_or_num"].as_str().expect("text").parse().expect("a number");
                by_height(height, body["detail"] != false)
            }
            "/wallet/getblockbynum" => by_height(number("num"), true),
            "/wallet/getblockbylimitnext" => {
                let (start, end) = (number("startNum"), number("endNum"));
                assert!(start < end && end - start <= 100, "{body}");
                let blocks = (start..end.min(self.blocks.len())).map(|height| by_height(height, true));
                let blocks: Vec<Value> = blocks.collect();
                if blocks.is_empty() { json!({}) } else { json!({ "block": blocks }) }
            }
            "/wallet/gettransactioninfobyblocknum" => {
                let height = number("num");
                let block = self.blocks.get(height).map(|block| block.infos(height));
                Value::from(block.unwrap_or_default())
            }
            "/wallet/gettransactioninfobyid" => {
                let wanted = body["value"].as_str().expect("text");
                let infos = self.blocks.iter().enumerate().flat_map(|(height, block)| block.infos(height));
                infos.into_iter().find(|info| info["id"] == wanted).unwrap_or_else(|| json!({}))
            }
            "/wallet/gettransactionfrompending" => {
                let held = self.pending.iter().find(|hash| hash.to_string() == body["value"]);
                held.map_or_else(|| json!({}), |hash| json!({ "txID": hash.to_string(), "raw_data": {} }))
            }
            _ => json!({ "Error": format!("class java.lang.NullPointerException : {path}") }),
        }
    }
}

impl Block {
    fn json(&self, height: usize, full: bool) -> Value {
        let mut raw = json!({
            "txTrieRoot": "0".repeat(64),
            "witness_address": "41f16412b9a17ee9408646e2a21e16478f72ed1e95",
            "parentHash": self.parent.to_string(),
            "version": 30,
        });
        // Zero is left out.
        if height > 0 {
            raw["number"] = json!(height);
            raw["timestamp"] = json!(self.time_ms);
        }
        let mut block = json!({
            "blockID": self.hash.to_string(),
            "block_header": { "raw_data": raw, "witness_signature": "ab".repeat(65) },
        });
        if full && !self.transactions.is_empty() {
            block["transactions"] = self.transactions.iter().map(Tx::json).collect();
        }
        block
    }

    fn infos(&self, height: usize) -> Vec<Value> {
        self.transactions.iter().map(|transaction| transaction.info(height, self.time_ms)).collect()
    }
}

impl Tx {
    pub fn hash(&self) -> TxHash {
        transaction::hash(&self.raw)
    }

    fn json(&self) -> Value {
        let raw = Raw::decode(self.raw.as_slice()).expect("a test's own");
        let contract = &raw.contract[0];
        let parameter = contract.parameter.as_ref().expect("a test's own");
        let hex = |bytes: &[u8]| alloy_primitives::hex::encode(bytes);
        let (kind, value) = match contract.r#type {
            1 => {
                let transfer = TransferContract::decode(parameter.value.as_slice()).expect("a transfer");
                let mut value =
                    json!({ "owner_address": hex(&transfer.owner_address), "to_address": hex(&transfer.to_address) });
                value["amount"] = json!(transfer.amount);
                ("TransferContract", value)
            }
            31 => {
                let call = TriggerSmartContract::decode(parameter.value.as_slice()).expect("a call");
                let contract_address = hex(&call.contract_address);
                let mut value = json!({ "data": hex(&call.data), "owner_address": hex(&call.owner_address), "contract_address": contract_address });
                if call.call_value != 0 {
                    value["call_value"] = json!(call.call_value);
                }
                ("TriggerSmartContract", value)
            }
            // Others have fields of the same names and other types.
            _ => (
                "ProposalCreateContract",
                json!({ "owner_address": hex(&account(90).prefixed()), "amount": "many", "to_address": 7, "parameters": [{ "key": 1 }] }),
            ),
        };
        json!({
            "ret": [{ "contractRet": self.ret }],
            "signature": ["ab".repeat(65)],
            "txID": self.hash().to_string(),
            "raw_data": {
                "contract": [{ "parameter": { "value": value, "type_url": parameter.type_url }, "type": kind }],
                "ref_block_bytes": hex(&raw.ref_block_bytes),
                "ref_block_hash": hex(&raw.ref_block_hash),
                "expiration": raw.expiration,
                "timestamp": raw.timestamp,
            },
            "raw_data_hex": hex(&self.raw),
        })
    }

    fn info(&self, height: usize, time_ms: i64) -> Value {
        let raw = Raw::decode(self.raw.as_slice()).expect("a test's own");
        let mut info = json!({
            "id": self.hash().to_string(),
            "blockNumber": height,
            "blockTimeStamp": time_ms,
            "contractResult": [""],
            "receipt": { "net_usage": 268 },
        });
        if self.fee != 0 {
            info["fee"] = json!(self.fee);
        }
        if raw.contract[0].r#type == 31 {
            info["receipt"] = json!({ "energy_usage_total": 13_045, "net_usage": 345, "result": self.ret });
        }
        if self.ret != "SUCCESS" {
            info["result"] = json!("FAILED");
            info["resMessage"] = json!(alloy_primitives::hex::encode("REVERT opcode executed"));
        }
        if !self.logs.is_empty() {
            info["log"] = json!(self.logs);
        }
        if !self.internals.is_empty() {
            info["internal_transactions"] = json!(self.internals);
        }
        info
    }
}

pub fn account(number: u32) -> TronAddress {
    TronAddress(Key::numbered(number).account())
}

pub fn address(number: u32) -> Address {
    Address::Tron(account(number))
}

pub fn token() -> Address {
    Address::Tron(TronAddress([0xee; 20]))
}

fn raw(kind: i32, type_url: &str, value: Vec<u8>, salt: i64) -> Vec<u8> {
    let parameter = Some(Any { type_url: type_url.to_owned(), value });
    let contract = Contract { r#type: kind, parameter, ..Contract::default() };
    // A memo, which our own transfers never have: deposits come as others make them.
    let raw = Raw { contract: vec![contract], data: b"thanks".to_vec(), timestamp: START_MS + salt, ..Raw::default() };
    raw.encode_to_vec()
}

/// TRX to an account, as somebody else would send it. `salt` makes ids differ.
pub fn trx(to: u32, amount: i64, ret: &'static str, salt: i64) -> Tx {
    let value = TransferContract {
        owner_address: account(90).prefixed().to_vec(),
        to_address: account(to).prefixed().to_vec(),
        amount,
    };
    Tx {
        raw: raw(1, TransferContract::URL, value.encode_to_vec(), salt),
        ret,
        fee: 0,
        logs: Vec::new(),
        internals: Vec::new(),
    }
}

/// A call with these logs.
pub fn call(logs: Vec<Value>, ret: &'static str, salt: i64) -> Tx {
    let value = TriggerSmartContract {
        owner_address: account(90).prefixed().to_vec(),
        contract_address: [0x41; 21].to_vec(),
        data: vec![0xa9, 0x05, 0x9c, 0xbb],
        ..TriggerSmartContract::default()
    };
    Tx {
        raw: raw(31, TriggerSmartContract::URL, value.encode_to_vec(), salt),
        ret,
        fee: 1_300_000,
        logs,
        internals: Vec::new(),
    }
}

/// A call that brings so many sun along.
pub fn call_with(sun: i64, ret: &'static str, salt: i64) -> Tx {
    let value = TriggerSmartContract {
        owner_address: account(90).prefixed().to_vec(),
        contract_address: [0x41; 21].to_vec(),
        call_value: sun,
        ..TriggerSmartContract::default()
    };
    Tx { raw: raw(31, TriggerSmartContract::URL, value.encode_to_vec(), salt), ..call(Vec::new(), ret, salt) }
}

/// What a contract did to an account, as a node shows it that keeps such things.
pub fn internal(from: u32, to: u32, note: &str, values: Value) -> Value {
    let hex = |bytes: &[u8]| alloy_primitives::hex::encode(bytes);
    json!({
        "hash": "cd".repeat(32),
        "caller_address": hex(&account(from).prefixed()),
        "transferTo_address": hex(&account(to).prefixed()),
        "callValueInfo": values,
        "note": hex(note.as_bytes()),
    })
}

/// Something else altogether.
pub fn other(salt: i64) -> Tx {
    Tx {
        raw: raw(16, "type.googleapis.com/protocol.ProposalCreateContract", vec![8, 1], salt),
        ret: "SUCCESS",
        fee: 0,
        logs: Vec::new(),
        internals: Vec::new(),
    }
}

pub fn log(contract: [u8; 20], to: u32, amount: u64) -> Value {
    log_from(contract, 90, to, amount)
}

pub fn log_from(contract: [u8; 20], from: u32, to: u32, amount: u64) -> Value {
    let hex = |bytes: &[u8]| alloy_primitives::hex::encode(bytes);
    json!({
        "address": hex(&contract),
        "topics": [
            "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",
            format!("{:0>64}", hex(&account(from).0)),
            format!("{:0>64}", hex(&account(to).0)),
        ],
        "data": format!("{amount:064x}"),
    })
}
