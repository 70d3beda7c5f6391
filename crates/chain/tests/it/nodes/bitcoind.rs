//! A real Bitcoin Core on regtest, with a purse of mature coins.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ::bitcoin::Network;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::{CallError, EndpointSettings, Pool, PoolSettings, json_rpc};
use chain::{Chain, ChainError, Place, WatchKey, Watched};
use devnet::Key;
use domain::ManualClock;
use domain::RawAmount;
use serde_json::{Value, json};
use tempfile::TempDir;
use tx::Input;
use tx::bitcoin::finalize;
use tx::{Address, Coin, Draft, Payment};

use super::Blocking;

/// `bursar:public`.
pub const AUTHORIZATION: &str = "Basic YnVyc2FyOnB1YmxpYw==";
/// The key that is paid for the first blocks, and one that nobody watches.
const PURSE: u32 = 1_000;
const NOBODY: u32 = 1_001;

pub struct Bitcoind {
    pub address: SocketAddr,
    process: Child,
    endpoint: EndpointSettings,
    pool: Pool,
    purse: Vec<Input>,
    reorgs: u32,
    _folder: TempDir,
}

impl Drop for Bitcoind {
    fn drop(&mut self) {
        // It is gone already, or goes now.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Bitcoind {
    pub async fn start() -> Self {
        Self::with(&["-txindex=1"]).await
    }

    /// With further arguments, a hundred and ten blocks, and ten coins to spend.
    pub async fn with(arguments: &[&str]) -> Self {
        let mut node = Self::empty(arguments).await;
        node.mine_to(110, &Key::numbered(PURSE).bitcoin(Network::Regtest)).await;
        let mut watched = Watched::default();
        watched.insert(WatchKey::of(&Key::numbered(PURSE).bitcoin(Network::Regtest)));
        let scan = node.client(3).scan(1, 10, &watched).await.expect("the first blocks");
        node.purse = scan.outputs.iter().map(input_of).collect();
        assert_eq!(node.purse.len(), 10);
        node
    }

    pub async fn empty(arguments: &[&str]) -> Self {
        let binary = std::env::var("BURSAR_TEST_BITCOIND").expect("BURSAR_TEST_BITCOIND is the path of bitcoind");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let port = address.port();
        let process = Command::new(binary)
            .arg("-regtest")
            .arg(format!("-datadir={}", folder.path().display()))
            .args(["-server=1", "-listen=0", "-connect=0", "-dnsseed=0", "-printtoconsole=0", "-persistmempool=0"])
            .args(["-rpcbind=127.0.0.1", "-rpcallowip=127.0.0.1", &format!("-rpcport={port}")])
            .args(["-rpcuser=bursar", "-rpcpassword=public"])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("bitcoind starts");
        let endpoint = EndpointSettings {
            name: format!("bitcoind-{port}"),
            url: format!("http://{address}"),
            authorization: Some(AUTHORIZATION.to_owned()),
            key: None,
            headers: Vec::new(),
            per_second: 0,
        };
        let pool = pool(std::slice::from_ref(&endpoint), 1);
        let node = Self { address, process, endpoint, pool, purse: Vec::new(), reorgs: 0, _folder: folder };
        for _ in 0..300 {
            if node.try_call::<Value>("getblockchaininfo", json!([])).await.is_ok() {
                return node;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("bitcoind does not answer");
    }

    /// Without any block, for tests that wait for every answer.
    pub fn blocking() -> Blocking<Self> {
        Blocking::start(Self::empty(&["-txindex=1"]))
    }

    pub fn endpoint(&self) -> EndpointSettings {
        self.endpoint.clone()
    }

    /// The same node under another name and address, for a pool that takes it for two.
    pub fn second_endpoint(&self) -> EndpointSettings {
        let url = self.endpoint.url.replace("127.0.0.1", "localhost");
        EndpointSettings { name: format!("second-{}", self.endpoint.name), url, ..self.endpoint() }
    }

    pub fn client(&self, confirmations: u64) -> BitcoinChain {
        client(&[self.endpoint()], 1, confirmations)
    }

    pub async fn try_call<T: serde::de::DeserializeOwned + Send>(
        &self,
        method: &str,
        params: Value,
    ) -> Result<T, ChainError> {
        let params = &params;
        self.pool.any(|node| async move { json_rpc::call(&node, method, params.clone()).await }).await
    }

    pub async fn call<T: serde::de::DeserializeOwned + Send>(&self, method: &str, params: Value) -> T {
        match self.try_call(method, params).await {
            Ok(answer) => answer,
            Err(ChainError::Refused(CallError::Refused { code, message, .. })) => panic!("{method}: {code} {message}"),
            Err(error) => panic!("{method}: {error}"),
        }
    }

    pub async fn mine_to(&self, blocks: u64, address: &Address) {
        let mined: Vec<String> = self.call("generatetoaddress", json!([blocks, address.to_string()])).await;
        assert_eq!(mined.len() as u64, blocks);
    }

    /// Blocks with what waits.
    pub async fn mine(&self, blocks: u64) {
        self.mine_to(blocks, &Key::numbered(NOBODY).bitcoin(Network::Regtest)).await;
    }

    /// One block with these transactions and no others, by this miner.
    pub async fn mine_only(&self, miner: u32, transactions: &[Vec<u8>]) {
        let hex: Vec<String> = transactions.iter().map(alloy_primitives::hex::encode).collect();
        let to = Key::numbered(miner).bitcoin(Network::Regtest).to_string();
        let _block: Value = self.call("generateblock", json!([to, hex])).await;
    }

    /// Replaces the newest blocks by one more, the first of which holds these transactions. What was in the old ones
    /// waits again, unless it conflicts.
    pub async fn reorg(&mut self, depth: u64, with: &[Vec<u8>]) {
        // Another miner each time: within one second the same miner would make the very block that was just refused.
        self.reorgs += 1;
        let miner = NOBODY + self.reorgs;
        let height: u64 = self.call("getblockcount", json!([])).await;
        let lost: String = self.call("getblockhash", json!([height + 1 - depth])).await;
        let _done: Value = self.call("invalidateblock", json!([lost])).await;
        self.mine_only(miner, with).await;
        for _ in 0..depth {
            self.mine_only(miner, &[]).await;
        }
        assert_eq!(self.call::<u64>("getblockcount", json!([])).await, height + 1);
    }

    /// Pays from the purse, and mines it.
    pub async fn fund(&mut self, payments: &[(Address, u64)]) {
        let coin = self.purse.pop().expect("the purse is not empty");
        let signed = pay_from(&self.client(3), PURSE, coin, payments);
        let _hash: String = self.call("sendrawtransaction", json!([alloy_primitives::hex::encode(&signed)])).await;
        self.mine(1).await;
    }
}

pub fn pool(endpoints: &[EndpointSettings], quorum: usize) -> Pool {
    // At least the majority, without which there is no pool.
    let quorum = Some(quorum.max(endpoints.len() / 2 + 1));
    let settings = PoolSettings { quorum, ..PoolSettings::default() };
    Pool::new(endpoints, &settings, Arc::new(ManualClock::default())).expect("good endpoints")
}

pub fn client(endpoints: &[EndpointSettings], quorum: usize, confirmations: u64) -> BitcoinChain {
    let settings = BitcoinSettings { confirmations, ..BitcoinSettings::new(Network::Regtest) };
    BitcoinChain::new(settings, pool(endpoints, quorum))
}

/// A signed transaction that spends the key's coin for these, at a fee of 10,000 satoshi. The rest goes back.
pub fn pay_from(chain: &BitcoinChain, key: u32, coin: Input, payments: &[(Address, u64)]) -> Vec<u8> {
    let key = Key::numbered(key);
    let paid: u64 = payments.iter().map(|(_, satoshi)| satoshi).sum();
    let change = (key.bitcoin(Network::Regtest), coin.amount_sat - paid - 10_000);
    let payments = payments.iter().chain([&change]).map(|(to, satoshi)| pay(to, *satoshi)).collect();
    let unsigned = chain.build(&Draft::Bitcoin { inputs: vec![coin], payments, lock_time: 0 }).expect("a good draft");
    finalize(&key.sign_psbt(&unsigned.bytes)).expect("the key's own coin")
}

pub fn pay(to: &Address, satoshi: u64) -> Payment {
    let amount: RawAmount = satoshi.to_string().parse().expect("digits");
    Payment { to: to.clone(), coin: Coin::Native, amount }
}

/// A coin that can be spent, from an output that was found.
pub fn input_of(output: &chain::Output) -> Input {
    let (Place::Output(index), Address::Bitcoin(address)) = (output.place, &output.to) else {
        panic!("an output of Bitcoin");
    };
    Input {
        transaction: output.transaction,
        index,
        amount_sat: output.amount.to_string().parse().expect("at most 21 million"),
        script: address.script_pubkey().into_bytes(),
        sequence: 0xffff_fffd,
    }
}
