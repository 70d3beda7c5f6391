//! A real Bitcoin Core on regtest, and a foreign purse of many small coins.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bitcoin::consensus::deserialize;
use bitcoin::hex::{DisplayHex, FromHex};
use bitcoin::{Amount, Network, Transaction};
use chain::ChainError;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::{CallError, EndpointSettings, Pool, PoolSettings, json_rpc};
use devnet::Key;
use domain::ManualClock;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use store::utxo::Hash;
use tempfile::TempDir;
use tx::{Address, Input};

use crate::world::spend;

const REGTEST: Network = Network::Regtest;
/// The key of a stranger who pays us, and that of the miner, who takes another key after each reorg.
const PURSE: u32 = 1_000;
const MINER: u32 = 5_000;
/// Two transactions of the purse make so many coins each, of so many satoshi.
const SPLITS: usize = 2;
const COINS: u64 = 200;
const COIN: u64 = 20_000_000;

pub struct Node {
    endpoint: EndpointSettings,
    pool: Pool,
    process: Child,
    /// Coins of the purse, spent from its end.
    pub purse: Vec<Input>,
    forks: u32,
    folder: TempDir,
    port: u16,
}

impl Drop for Node {
    fn drop(&mut self) {
        // It is gone already, or goes now.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// An unspent output as `scantxoutset` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unspent {
    pub hash: Hash,
    pub index: u32,
    pub amount: i64,
    pub height: u32,
    pub coinbase: bool,
}

impl Node {
    /// 102 blocks, the last of which fills the purse.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same, with options of Core.
    pub async fn start_with(options: &[&str]) -> Self {
        let mut node = Self::empty_with(options).await;
        let purse = Key::numbered(PURSE).bitcoin(REGTEST);
        node.mine_to(101 + SPLITS as u64 - 1, &purse).await;
        let found = node.unspent(&[purse.script_bytes().unwrap()]).await;
        let first = found.iter().filter(|one| one.height <= SPLITS as u32);
        let first: Vec<Input> = first.map(input_of_purse).collect();
        assert_eq!(first.len(), SPLITS);
        for coin in first {
            let mut payments = vec![(purse.clone(), COIN); COINS as usize];
            payments.push((purse.clone(), coin.amount_sat - COINS * COIN - 10_000));
            let raw = node.foreign(&[coin], &payments);
            node.send(&raw).await.unwrap();
        }
        node.mine(1).await;
        let found = node.unspent(&[purse.script_bytes().unwrap()]).await;
        let coin = i64::try_from(COIN).unwrap();
        node.purse = found.iter().filter(|one| one.amount == coin).map(input_of_purse).collect();
        node
    }

    pub async fn empty() -> Self {
        Self::empty_with(&[]).await
    }

    /// With options of its own.
    pub async fn empty_with(options: &[&str]) -> Self {
        let binary = std::env::var("BURSAR_TEST_BITCOIND").expect("BURSAR_TEST_BITCOIND is the path of bitcoind");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let process = spawn(&binary, folder.path(), address.port(), options);
        let endpoint = EndpointSettings {
            name: format!("bitcoind-{}", address.port()),
            url: format!("http://{address}"),
            authorization: Some("Basic YnVyc2FyOnB1YmxpYw==".to_owned()),
            key: None,
            headers: Vec::new(),
            per_second: 0,
        };
        let pool = pool(&endpoint);
        let node = Self { endpoint, pool, process, purse: Vec::new(), forks: 0, folder, port: address.port() };
        node.answers().await;
        node
    }

    async fn answers(&self) {
        for _ in 0..300 {
            if self.try_call::<Value>("getblockchaininfo", json!([])).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("bitcoind does not answer");
    }

    /// It forgets what waits.
    pub async fn restart(&mut self) {
        let _done: Value = self.call("stop", json!([])).await;
        self.process.wait().expect("it stops");
        let binary = std::env::var("BURSAR_TEST_BITCOIND").expect("it was started with it");
        self.process = spawn(&binary, self.folder.path(), self.port, &[]);
        self.answers().await;
    }

    pub fn client(&self) -> BitcoinChain {
        client(&self.endpoint)
    }

    /// A client that hears every answer as this makes it: method, and the answer.
    pub fn client_through(&self, change: impl Fn(&str, &mut Value) + Send + Sync + 'static) -> BitcoinChain {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let node = self.endpoint.url.trim_start_matches("http://").to_owned();
        // It ends with the tests: nothing of it is kept.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                pass_on(stream, &node, &change);
            }
        });
        client(&EndpointSettings { url, ..self.endpoint.clone() })
    }

    async fn try_call<T: DeserializeOwned + Send>(&self, method: &str, params: Value) -> Result<T, ChainError> {
        let params = &params;
        self.pool.any(|node| async move { json_rpc::call(&node, method, params.clone()).await }).await
    }

    pub async fn call<T: DeserializeOwned + Send>(&self, method: &str, params: Value) -> T {
        match self.try_call(method, params).await {
            Ok(answer) => answer,
            Err(ChainError::Refused(CallError::Refused { code, message, .. })) => panic!("{method}: {code} {message}"),
            Err(error) => panic!("{method}: {error:?}"),
        }
    }

    // ---- blocks ------------------------------------------------------------------------------------------------

    pub async fn height(&self) -> u32 {
        self.call("getblockcount", json!([])).await
    }

    pub async fn hash_at(&self, height: u32) -> String {
        self.call("getblockhash", json!([height])).await
    }

    pub async fn mine_to(&self, blocks: u64, address: &Address) {
        let mined: Vec<String> = self.call("generatetoaddress", json!([blocks, address.to_string()])).await;
        assert_eq!(mined.len() as u64, blocks);
    }

    /// Blocks with what waits.
    pub async fn mine(&self, blocks: u64) {
        self.mine_to(blocks, &self.miner()).await;
    }

    fn miner(&self) -> Address {
        Key::numbered(MINER + self.forks).bitcoin(REGTEST)
    }

    /// One block with these transactions and no others.
    pub async fn mine_only(&self, transactions: &[Vec<u8>]) {
        assert!(self.try_mine_only(transactions).await, "a block that is not valid");
    }

    pub async fn try_mine_only(&self, transactions: &[Vec<u8>]) -> bool {
        let hex: Vec<String> = transactions.iter().map(|raw| raw.to_lower_hex_string()).collect();
        self.try_call::<Value>("generateblock", json!([self.miner().to_string(), hex])).await.is_ok()
    }

    /// Replaces the newest blocks by one more, the first of which holds these transactions and the others nothing. What
    /// was in the old ones waits again, unless it conflicts. Says which block was the first to go.
    pub async fn reorg(&mut self, depth: u32, with: &[Vec<u8>]) -> String {
        let height = self.height().await;
        let lost = self.hash_at(height + 1 - depth).await;
        self.invalidate(&lost).await;
        self.mine_only(with).await;
        // A branch that was left earlier may have come up again.
        while self.height().await <= height {
            self.mine_only(&[]).await;
        }
        lost
    }

    pub async fn invalidate(&mut self, block: &str) {
        // Another miner each time: within one second the same miner would make the very block that was just refused.
        self.forks += 1;
        let _done: Value = self.call("invalidateblock", json!([block])).await;
    }

    /// Back to the branch that `reorg` left, and two blocks on.
    pub async fn back_to(&mut self, lost: &str) {
        let header: Value = self.call("getblockheader", json!([lost])).await;
        let height = u32::try_from(header["height"].as_u64().unwrap()).unwrap();
        let other = self.hash_at(height).await;
        let before = self.height().await;
        self.invalidate(&other).await;
        let _done: Value = self.call("reconsiderblock", json!([lost])).await;
        assert_eq!(self.hash_at(height).await, lost);
        while self.height().await <= before {
            self.mine_only(&[]).await;
        }
    }

    // ---- transactions ------------------------------------------------------------------------------------------

    /// The node's words, if it does not want it.
    pub async fn send(&self, raw: &[u8]) -> Result<(), String> {
        match self.try_call::<String>("sendrawtransaction", json!([raw.to_lower_hex_string()])).await {
            Ok(_) => Ok(()),
            Err(ChainError::Refused(CallError::Refused { message, .. })) => Err(message),
            Err(error) => panic!("sendrawtransaction: {error:?}"),
        }
    }

    /// Virtual bytes and fee, or the node's words.
    pub async fn test(&self, raw: &[u8]) -> Result<(u64, u64), String> {
        let answer: Value = self.call("testmempoolaccept", json!([[raw.to_lower_hex_string()]])).await;
        if answer[0]["allowed"] != true {
            return Err(answer[0]["reject-reason"].to_string());
        }
        Ok((answer[0]["vsize"].as_u64().unwrap(), satoshi(&answer[0]["fees"]["base"])))
    }

    pub async fn mempool(&self) -> Vec<Transaction> {
        let hashes: Vec<String> = self.call("getrawmempool", json!([])).await;
        let mut all = Vec::new();
        for hash in hashes {
            let hex: String = self.call("getrawtransaction", json!([hash])).await;
            all.push(deserialize(&Vec::from_hex(&hex).unwrap()).unwrap());
        }
        all
    }

    /// By the node's own search of all outputs.
    pub async fn unspent(&self, scripts: &[Vec<u8>]) -> Vec<Unspent> {
        let wanted: Vec<String> = scripts.iter().map(|one| format!("raw({})", one.to_lower_hex_string())).collect();
        let found: Value = self.call("scantxoutset", json!(["start", wanted])).await;
        assert_eq!(found["success"], true);
        let read = |one: &Value| Unspent {
            hash: one["txid"].as_str().unwrap().parse().unwrap(),
            index: number(&one["vout"]),
            amount: i64::try_from(satoshi(&one["amount"])).unwrap(),
            height: number(&one["height"]),
            coinbase: one["coinbase"].as_bool().unwrap(),
        };
        let mut found: Vec<Unspent> = found["unspents"].as_array().unwrap().iter().map(read).collect();
        found.sort_by_key(|one| (one.height, one.hash, one.index));
        found
    }

    /// Signed by the purse.
    pub fn foreign(&self, coins: &[Input], payments: &[(Address, u64)]) -> Vec<u8> {
        spend(PURSE, coins, payments)
    }

    /// A coin of the purse pays these at that fee; the rest goes to the miner's key.
    pub fn pays(&self, coin: &Input, payments: &[(Address, u64)], fee: u64) -> Vec<u8> {
        let paid: u64 = payments.iter().map(|(_, satoshi)| satoshi).sum();
        let rest = (Key::numbered(MINER).taproot(REGTEST), coin.amount_sat - paid - fee);
        self.foreign(std::slice::from_ref(coin), &[payments, &[rest]].concat())
    }
}

fn spawn(binary: &str, folder: &std::path::Path, port: u16, options: &[&str]) -> Child {
    Command::new(binary)
        .arg("-regtest")
        .arg(format!("-datadir={}", folder.display()))
        .args(["-server=1", "-listen=0", "-connect=0", "-dnsseed=0", "-printtoconsole=0", "-persistmempool=0"])
        .args(["-rpcbind=127.0.0.1", "-rpcallowip=127.0.0.1", &format!("-rpcport={port}")])
        .args(["-rpcuser=bursar", "-rpcpassword=public"])
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("bitcoind starts")
}

/// The purse's own address.
pub fn purse() -> Address {
    Key::numbered(PURSE).bitcoin(REGTEST)
}

/// An output of a transaction that pays the purse.
pub fn coin_of(raw: &[u8], index: u32) -> Input {
    let transaction: Transaction = deserialize(raw).unwrap();
    let hash = custody::bitcoin::tx_of(&transaction).unwrap().hash;
    let amount = i64::try_from(transaction.output[index as usize].value.to_sat()).unwrap();
    input_of_purse(&Unspent { hash, index, amount, height: 0, coinbase: false })
}

fn input_of_purse(one: &Unspent) -> Input {
    Input {
        transaction: tx::TxHash(one.hash.0),
        index: one.index,
        amount_sat: u64::try_from(one.amount).unwrap(),
        script: Key::numbered(PURSE).bitcoin(REGTEST).script_bytes().unwrap(),
        sequence: 0xffff_fffd,
    }
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn satoshi(value: &Value) -> u64 {
    Amount::from_btc(value.as_f64().unwrap()).unwrap().to_sat()
}

fn client(endpoint: &EndpointSettings) -> BitcoinChain {
    let settings = BitcoinSettings { confirmations: 3, ..BitcoinSettings::new(REGTEST) };
    BitcoinChain::new(settings, pool(endpoint))
}

/// One request and its answer; then the connection is closed.
fn pass_on(mut stream: TcpStream, node: &str, change: &(impl Fn(&str, &mut Value) + ?Sized)) {
    let Some((head, body)) = message(&mut stream) else { return };
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let authorization = head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization:")).unwrap();
    let mut upstream = TcpStream::connect(node).unwrap();
    let length = body.len();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: x\r\n{authorization}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    upstream.write_all(&[request.as_bytes(), &body].concat()).unwrap();
    let (head, body) = message(&mut upstream).unwrap();
    let mut answer: Value = serde_json::from_slice(&body).unwrap();
    match (&asked, &mut answer) {
        (Value::Array(asked), Value::Array(answers)) => {
            for (asked, answer) in asked.iter().zip(answers) {
                change(asked["method"].as_str().unwrap(), answer);
            }
        }
        (asked, answer) => change(asked["method"].as_str().unwrap(), answer),
    }
    let (status, body) = (head.lines().next().unwrap(), answer.to_string());
    let reply = format!(
        "{status}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    drop(stream.write_all(reply.as_bytes()));
}

/// Head and body of an HTTP message that says its length.
fn message(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length =
        head.to_ascii_lowercase().lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn pool(endpoint: &EndpointSettings) -> Pool {
    let settings = PoolSettings { quorum: Some(1), ..PoolSettings::default() };
    Pool::new(std::slice::from_ref(endpoint), &settings, Arc::new(ManualClock::default())).expect("a good endpoint")
}
