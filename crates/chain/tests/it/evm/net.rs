//! A network that the suite can drive: whatever serves Ethereum's JSON-RPC and mines when it is told to.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use alloy_consensus::{SignableTransaction, TxLegacy};
use alloy_primitives::{Address as Account, Bytes, TxKind, U256, keccak256};
use chain::endpoint::{EndpointSettings, Pool, PoolSettings, json_rpc};
use chain::evm::{EvmChain, EvmSettings};
use chain::{Chain, WatchKey, Watched};
use devnet::evm::{EvmDevnet, Settings};
use devnet::{Endpoint, Fate, Key, Model, Served};
use domain::{ManualClock, RawAmount, Timestamp};
use serde_json::{Value, json};
use tx::evm::attach;
use tx::{Address, TxHash};

use crate::nodes::anvil::Anvil;

pub const CHAIN_ID: u64 = 31_337;
/// How deep a block is settled here.
pub const CONFIRMATIONS: u64 = 5;

/// What stands behind the network.
enum Backend {
    Anvil(Anvil),
    Devnet(Served<EvmDevnet>),
}

pub struct Net {
    backend: Backend,
    pool: Pool,
}

pub fn pool(urls: &[String], quorum: usize) -> Pool {
    pool_within(urls, quorum, PoolSettings::default().deadline)
}

/// The quorum is at least the majority, without which there is no pool.
pub fn pool_within(urls: &[String], quorum: usize, deadline: Duration) -> Pool {
    let endpoint = |(number, url): (usize, &String)| EndpointSettings {
        name: format!("node {number}"),
        url: url.clone(),
        authorization: None,
        key: None,
        headers: Vec::new(),
        per_second: 0,
    };
    let endpoints: Vec<_> = urls.iter().enumerate().map(endpoint).collect();
    let quorum = Some(quorum.max(urls.len() / 2 + 1));
    let settings = PoolSettings { quorum, deadline, ..PoolSettings::default() };
    Pool::new(&endpoints, &settings, Arc::new(ManualClock::default())).expect("good settings")
}

impl Net {
    pub async fn anvil() -> Self {
        let anvil = Anvil::start(CHAIN_ID).await;
        Self { pool: pool(std::slice::from_ref(&anvil.url), 1), backend: Backend::Anvil(anvil) }
    }

    pub async fn devnet() -> Self {
        let served = devnet(1).await;
        Self { pool: pool(&[served.endpoints[0].url()], 1), backend: Backend::Devnet(served) }
    }

    pub fn urls(&self) -> Vec<String> {
        match &self.backend {
            Backend::Anvil(anvil) => vec![anvil.url.clone()],
            Backend::Devnet(served) => served.endpoints.iter().map(Endpoint::url).collect(),
        }
    }

    pub async fn rpc(&self, method: &str, params: Value) -> Value {
        let params = &params;
        let answer = self.pool.any(|node| async move { json_rpc::call(&node, method, params.clone()).await });
        answer.await.unwrap_or_else(|error| panic!("{method}: {error:?}"))
    }

    pub fn chain(&self, change: impl FnOnce(&mut EvmSettings)) -> EvmChain {
        let mut settings = EvmSettings::new(CHAIN_ID, CONFIRMATIONS);
        change(&mut settings);
        EvmChain::new(settings, pool(&self.urls(), 1))
    }

    pub async fn mine(&self, blocks: u64) {
        match &self.backend {
            Backend::Anvil(_) => drop(self.rpc("anvil_mine", json!([format!("{blocks:#x}")])).await),
            Backend::Devnet(served) => served.mine(blocks),
        }
    }

    /// The newest blocks are replaced by others, without their transactions: anvil makes as many, the devnet one more.
    pub async fn reorg(&self, depth: u64) {
        match &self.backend {
            Backend::Anvil(_) => drop(self.rpc("anvil_reorg", json!([depth, []])).await),
            Backend::Devnet(served) => {
                act(served, |model, now| model.reorg(depth, Fate::Dropped, &[], now)).expect("it is young enough");
            }
        }
    }

    /// At once with anvil, in the next block with the devnet, whose coins come by a transaction.
    pub async fn fund(&self, account: Account, wei: u64) {
        match &self.backend {
            Backend::Anvil(_) => {
                drop(self.rpc("anvil_setBalance", json!([account.to_string(), format!("{wei:#x}")])).await);
            }
            Backend::Devnet(served) => {
                act(served, |model, now| model.fund(&account.to_string(), None, raw(wei), now)).expect("a rich faucet");
            }
        }
    }

    pub async fn nonce(&self, account: Account) -> u64 {
        let text = self.rpc("eth_getTransactionCount", json!([account.to_string(), "pending"])).await;
        number(&text)
    }

    /// Signs and sends whatever it is, without our client.
    pub async fn send(&self, key: &Key, to: TxKind, value: u64, data: Vec<u8>) -> TxHash {
        let gas_price = u128::from(number(&self.rpc("eth_gasPrice", json!([])).await)) * 2;
        let transaction = TxLegacy {
            chain_id: Some(CHAIN_ID),
            nonce: self.nonce(account(key)).await,
            gas_price,
            gas_limit: 3_000_000,
            to,
            value: U256::from(value),
            input: Bytes::from(data),
        };
        self.send_raw(&sign(key, &transaction.encoded_for_signing())).await
    }

    pub async fn send_raw(&self, signed: &[u8]) -> TxHash {
        let hash = self.rpc("eth_sendRawTransaction", json!([alloy_primitives::hex::encode_prefixed(signed)])).await;
        hash.as_str().expect("a hash").parse().expect("a hash")
    }

    /// A contract of `contracts.json`, in the next block that is mined; here that is done at once.
    pub async fn deploy(&self, key: &Key, name: &str, arguments: &[U256]) -> Account {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../devnet/src/evm/contracts/contracts.json");
        let contracts: Value = serde_json::from_slice(&std::fs::read(path).expect("contracts.json")).expect("JSON");
        let code = contracts[name]["bytecode"].as_str().expect("a contract of this name");
        let mut code = alloy_primitives::hex::decode(code).expect("hexadecimal");
        code.extend(words(arguments));
        let contract = account(key).create(self.nonce(account(key)).await);
        self.send(key, TxKind::Create, 0, code).await;
        self.mine(1).await;
        let made = self.rpc("eth_getCode", json!([contract.to_string(), "latest"])).await;
        assert_ne!(made, json!("0x"), "{name} was not made");
        contract
    }

    pub async fn height(&self) -> u64 {
        number(&self.rpc("eth_blockNumber", json!([])).await)
    }
}

/// A devnet with so many endpoints.
pub async fn devnet(endpoints: usize) -> Served<EvmDevnet> {
    let settings = Settings { chain_id: CHAIN_ID, ..Settings::default() };
    let free: SocketAddr = ([127, 0, 0, 1], 0).into();
    let clock = Arc::new(ManualClock::default());
    Served::start(EvmDevnet::new(settings), &vec![free; endpoints], clock).await.expect("free ports")
}

fn act<T>(served: &Served<EvmDevnet>, act: impl FnOnce(&mut EvmDevnet, Timestamp) -> T) -> T {
    act(&mut served.model.lock().unwrap_or_else(PoisonError::into_inner), served.now())
}

pub fn number(text: &Value) -> u64 {
    let digits = text.as_str().and_then(|text| text.strip_prefix("0x")).expect("a quantity");
    u64::from_str_radix(digits, 16).expect("a small quantity")
}

/// `attach` takes whatever has the form of a transaction: also contracts and calls, which `decode_signed` refuses.
pub fn sign(key: &Key, unsigned: &[u8]) -> Vec<u8> {
    let (signature, odd) = key.sign(keccak256(unsigned).0);
    attach(unsigned, &signature, odd).expect("the form of a transaction")
}

pub fn words(words: &[U256]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes::<32>()).collect()
}

pub fn call_of(signature: &str, arguments: &[U256]) -> Vec<u8> {
    [&keccak256(signature)[..4], &words(arguments)].concat()
}

pub fn word(account: Account) -> U256 {
    U256::from_be_slice(account.as_slice())
}

pub fn account(key: &Key) -> Account {
    Account::from(key.account())
}

pub fn raw(amount: u64) -> RawAmount {
    RawAmount::from_u256(U256::from(amount))
}

/// A watched set of these accounts, numbered in their order.
pub fn watch(accounts: &[Account]) -> Watched {
    let mut watched = Watched::default();
    for account in accounts {
        watched.insert(WatchKey::of_account(&account.into_array()));
    }
    watched
}

/// An account that nobody has used.
pub fn fresh(number: u8) -> Account {
    Account::from_slice(&keccak256([b'f', number])[12..])
}

pub fn evm(account: Account) -> Address {
    Address::Evm(account)
}

pub async fn scan_all(net: &Net, chain: &EvmChain, watched: &Watched) -> chain::Scan {
    chain.scan(0, net.height().await, watched).await.expect("a scan")
}
