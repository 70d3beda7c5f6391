//! The EVM devnet: against the table of cases, against real anvil, and driven by ethers.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod blocks;
mod faults;
mod questions;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, PoisonError};

use alloy_consensus::{TxEip1559, TxLegacy};
use alloy_primitives::{Address, B256, Bytes, TxKind, U256, keccak256};
use devnet::evm::{EvmDevnet, FAUCET, Settings, TETHER};
use devnet::{BroadcastFault, Fate, Key, Lie, Model, Served, View, Wire};
use domain::{ManualClock, RawAmount, Timestamp};
use serde_json::{Value, json};

use crate::cases_evm::{self, CHAIN_ID, COIN, Node, Outcome, RECEIVER, Setting, signed, text, token_code, transfer};
use crate::nodes::anvil::Anvil;
use crate::nodes::{self, Blocking};

const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
const GWEI: u128 = 1_000_000_000;

/// The devnet without a network, through one view.
struct Local {
    devnet: EvmDevnet,
    view: View,
}

impl Local {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        Self { devnet: EvmDevnet::new(settings), view: View::default() }
    }

    fn post(&mut self, body: &str) -> Value {
        let wire = Wire { method: "POST", path: "/", query: "", body: body.as_bytes() };
        let reply = self.devnet.answer(&self.view, wire, NOW);
        assert_eq!(reply.status, 200);
        serde_json::from_slice(&reply.body).unwrap_or(Value::Null)
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.rpc(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn error(&mut self, method: &str, params: Value) -> (i64, String) {
        let answer = self.post(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string());
        let error = &answer["error"];
        (error["code"].as_i64().unwrap_or_default(), error["message"].as_str().unwrap_or_default().to_owned())
    }

    fn mine(&mut self, blocks: u64) {
        self.devnet.mine(blocks, NOW);
    }

    fn send(&mut self, raw: &[u8]) -> B256 {
        let hash = self.ask("eth_sendRawTransaction", json!([text(Bytes::copy_from_slice(raw))]));
        serde_json::from_value::<String>(hash).unwrap().parse().unwrap()
    }

    fn balance(&mut self, account: Address) -> U256 {
        quantity(&self.ask("eth_getBalance", json!([text(account), "latest"])))
    }

    fn tokens(&mut self, account: Address) -> U256 {
        let data = balance_of(account);
        let word = self.ask("eth_call", json!([{"to": text(TETHER), "data": text(&data)}, "latest"]));
        word.as_str().unwrap().parse().unwrap()
    }

    fn receipt(&mut self, hash: B256) -> Value {
        self.ask("eth_getTransactionReceipt", json!([text(hash)]))
    }

    fn seen_through(&mut self, view: View, look: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.view, view);
        look(self);
        self.view = before;
    }
}

impl Node for Local {
    fn rpc(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let answer = self.post(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string());
        match answer.get("error") {
            Some(error) => Err(error["message"].as_str().unwrap().to_owned()),
            None => Ok(answer["result"].clone()),
        }
    }

    fn endow(&mut self, account: Address, wei: u128) {
        self.devnet.fund(&account.to_string(), None, RawAmount::from_u256(U256::from(wei)), NOW).unwrap();
        self.mine(1);
    }
}

fn quantity(value: &Value) -> U256 {
    let text = value.as_str().unwrap();
    assert!(text == "0x0" || !text.starts_with("0x0"), "a quantity has no leading zeros: {text}");
    text.parse().unwrap()
}

fn balance_of(account: Address) -> Bytes {
    let mut data = keccak256("balanceOf(address)")[..4].to_vec();
    data.extend_from_slice(account.into_word().as_slice());
    data.into()
}

fn account(number: u32) -> Address {
    Address::from(Key::numbered(number).account())
}

fn setting(number: u32) -> Setting {
    Setting { key: Key::numbered(number), token: TETHER, price: 10 * GWEI }
}

/// A transfer of coins by a rich account.
fn pay(number: u32, nonce: u64, value: u128) -> Vec<u8> {
    let s = setting(number);
    signed(s.key, TxEip1559 { nonce, value: U256::from(value), ..cases_evm::dynamic(&s) })
}

/// A transfer of tokens by a rich account.
fn pay_tokens(number: u32, nonce: u64, to: Address, amount: u128) -> Vec<u8> {
    let s = setting(number);
    let transaction = TxLegacy {
        nonce,
        to: TxKind::Call(TETHER),
        value: U256::ZERO,
        gas_limit: 100_000,
        input: transfer(to, U256::from(amount)),
        ..cases_evm::legacy(&s)
    };
    signed(s.key, transaction)
}

// The table of cases, here and on anvil.

#[test]
fn the_devnet_takes_and_refuses_as_the_table_says() {
    let mut node = Local::new();
    for (number, case) in (0..).zip(cases_evm::cases()) {
        let found = cases_evm::run(&mut node, &case, number, TETHER).unwrap();
        let same = match (case.outcome, found) {
            (Outcome::Refused(wanted), Outcome::Refused(message)) => message.starts_with(wanted),
            (wanted, found) => wanted == found,
        };
        assert!(same, "{}: wanted {:?}, found {found:?}", case.name, case.outcome);
    }
}

impl Node for Blocking<Anvil> {
    fn rpc(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let answer = post(self.node.address, &body);
        match answer.get("error") {
            Some(error) => Err(error["message"].as_str().unwrap().to_owned()),
            None => Ok(answer["result"].clone()),
        }
    }

    fn endow(&mut self, account: Address, wei: u128) {
        self.rpc("anvil_setBalance", json!([text(account), format!("{wei:#x}")])).unwrap();
    }
}

fn post(address: SocketAddr, body: &str) -> Value {
    serde_json::from_str(&nodes::post(address, "/", body).1).unwrap()
}

#[test]
fn anvil_takes_and_refuses_as_the_table_says() {
    let mut node = Anvil::osaka(CHAIN_ID);
    let mut token = signed(Key::numbered(0), {
        let s = Setting { price: 100 * GWEI, ..setting(0) };
        let input = token_code(U256::from(COIN));
        TxLegacy { to: TxKind::Create, value: U256::ZERO, input, gas_limit: 3_000_000, ..cases_evm::legacy(&s) }
    });
    node.rpc("eth_sendRawTransaction", json!([text(Bytes::from(std::mem::take(&mut token)))])).unwrap();
    node.rpc("evm_mine", json!([])).unwrap();
    let token = account(0).create(0);
    let mut wrong = Vec::new();
    for (number, case) in (0..).zip(cases_evm::cases()) {
        let found = cases_evm::run(&mut node, &case, number, token).unwrap();
        let same = match (case.outcome, found) {
            // Its words are its own.
            (Outcome::Refused(_), Outcome::Refused(_)) => true,
            (wanted, found) => wanted == found,
        };
        if same != case.except_anvil.is_none() {
            wrong.push(format!("{}: the table says {:?}, anvil {found:?}", case.name, case.outcome));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// Over HTTP.

async fn serve(devnet: EvmDevnet, endpoints: usize) -> Served<EvmDevnet> {
    let addresses = vec![SocketAddr::from(([127, 0, 0, 1], 0)); endpoints];
    Served::start(devnet, &addresses, Arc::new(ManualClock::at(NOW))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_endpoints_show_one_chain_each_in_its_own_way() {
    let served = serve(EvmDevnet::new(Settings::default()), 2).await;
    served.model.lock().unwrap_or_else(PoisonError::into_inner).mine(5, NOW);
    served.endpoints[1].view.lock().unwrap_or_else(PoisonError::into_inner).lag = 2;
    let addresses: Vec<_> = served.endpoints.iter().map(|endpoint| endpoint.address).collect();
    let heights = tokio::task::spawn_blocking(move || {
        let ask = |address| post(address, r#"{"jsonrpc":"2.0","id":7,"method":"eth_blockNumber"}"#);
        addresses.into_iter().map(ask).collect::<Vec<_>>()
    });
    let heights = heights.await.unwrap();
    assert_eq!(heights[0], json!({"jsonrpc": "2.0", "id": 7, "result": "0x5"}));
    assert_eq!(heights[1]["result"], "0x3");
}

/// ethers is others' work: what it understands is the real wire format.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_ethers_sends_and_reads_transfers() {
    let modules = std::env::var("BURSAR_TEST_NODE_MODULES").expect("BURSAR_TEST_NODE_MODULES is a node_modules folder");
    for settings in [Settings::default(), Settings::bsc()] {
        let served = serve(EvmDevnet::new(settings), 1).await;
        let url = format!("http://{}", served.endpoints[0].address);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/evm.mjs");
        let mut node = Command::new("node");
        node.args([script, &url, &TETHER.to_string()]).env("BURSAR_TEST_NODE_MODULES", &modules);
        let output = tokio::task::spawn_blocking(move || node.output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
    }
}
