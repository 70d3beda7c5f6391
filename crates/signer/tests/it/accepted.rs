//! What the service signs is accepted by others: mined by anvil, taken by bitcoind, and by the devnet's TRON, which checks signatures as java-tron does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use devnet::tron::{Settings, TronDevnet};
use devnet::{Model, View, Wire};
use domain::{RawAmount, Timestamp};
use serde_json::{Value, json};
use signer::digest::hex;
use signer::service::Limits;
use signer::{Addresses, BitcoinTerms, Intent, IntentKind, SignRequest, SignerChain};
use tx::{Address, BlockHash, BlockRef, Coin, Draft, Input, Payment, TxHash};

use crate::served::*;
use crate::world::*;

/// Killed when it drops.
struct Node {
    process: Child,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Node {
    fn start(program: &str, arguments: impl FnOnce(&str, &str) -> Vec<String>) -> Self {
        let program = std::env::var(program).unwrap_or_else(|_| panic!("{program} is the path of the node"));
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let arguments = arguments(folder.path().to_str().unwrap(), &address.port().to_string());
        let process =
            Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { process, address, folder }
    }

    fn anvil() -> Self {
        let chain = CHAIN_ID.to_string();
        Self::start("BURSAR_TEST_ANVIL", |_, port| {
            ["--host", "127.0.0.1", "--port", port, "--no-mining", "--chain-id", &chain].map(str::to_owned).to_vec()
        })
        .ready("eth_blockNumber")
    }

    fn bitcoind() -> Self {
        Self::start("BURSAR_TEST_BITCOIND", |folder, port| {
            let (folder, port) = (format!("-datadir={folder}"), format!("-rpcport={port}"));
            let fixed = ["-regtest", "-server=1", "-listen=0", "-connect=0", "-dnsseed=0", "-printtoconsole=0"];
            let more = ["-rpcuser=bursar", "-rpcpassword=public", "-txindex=1", &folder, &port];
            fixed.into_iter().chain(more).map(str::to_owned).collect()
        })
        .ready("getblockcount")
    }

    fn ready(self, method: &str) -> Self {
        for _ in 0..600 {
            if self.ask(method, &json!([])).is_some_and(|answer| answer["error"].is_null()) {
                return self;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{} does not answer", self.folder.path().display());
    }

    fn ask(&self, method: &str, params: &Value) -> Option<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let user = base64::engine::general_purpose::STANDARD.encode("bursar:public");
        let mut stream = TcpStream::connect(self.address).ok()?;
        let head = format!(
            "POST / HTTP/1.1\r\nhost: node\r\nauthorization: Basic {user}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (start, end) = (answer.find("\r\n\r\n")? + 4, answer.rfind('}')? + 1);
        serde_json::from_str(answer.get(start..end)?).ok()
    }

    #[track_caller]
    fn call(&self, method: &str, params: &Value) -> Value {
        let answer = self.ask(method, params).unwrap();
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }
}

fn wallet(name: &str, index: u64) -> Address {
    Addresses::address(&keyring(), &group(name), index).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn anvil_mines_what_was_signed() {
    let node = Node::anvil();
    let (served, _) = Served::new(Limits::default());
    let from = wallet("hot-bsc", 0).to_string();
    node.call("anvil_setBalance", &json!([from, "0xde0b6b3a7640000"]));
    let requests = [evm(1, 0, 900).request("a"), evm(2, 1, 800).gas_price(5).request("b")];
    for answer in served.client("server").sign(&requests).await.unwrap() {
        let signer::client::SignAnswer::Signed { signed, .. } = answer else { panic!("{answer:?}") };
        let hash = node.call("eth_sendRawTransaction", &json!([format!("0x{}", hex(&signed.bytes))]));
        assert_eq!(hash, format!("0x{}", signed.hash));
        node.call("anvil_mine", &json!(["0x1"]));
        let receipt = node.call("eth_getTransactionReceipt", &json!([hash]));
        assert_eq!(
            (receipt["status"].as_str(), receipt["from"].as_str()),
            (Some("0x1"), Some(from.to_lowercase().as_str()))
        );
    }
    let paid = node.call("eth_getBalance", &json!([stranger(1).evm().to_string(), "latest"]));
    assert_eq!(paid, format!("0x{:x}", 900 + 800));
}

#[tokio::test(flavor = "multi_thread")]
async fn bitcoind_accepts_and_mines_what_was_signed() {
    let node = Node::bitcoind();
    let (served, _) = Served::new(Limits::default());
    let own = wallet("hot-btc", 3);
    let blocks = node.call("generatetoaddress", &json!([1, own.to_string()]));
    node.call("generatetoaddress", &json!([100, stranger(9).bitcoin(NETWORK).to_string()]));
    let block = node.call("getblock", &json!([blocks[0], 2]));
    let coinbase = &block["tx"][0];
    let transaction: TxHash = coinbase["txid"].as_str().unwrap().parse().unwrap();
    let (held, fee, paid) = (5_000_000_000_u64, 2_000_u64, 60_000_u64);
    let script = own.script_bytes().unwrap();
    let input = Input { transaction, index: 0, amount_sat: held, script, sequence: 0xffff_fffd };
    let payout = Payment { to: stranger(20).bitcoin(NETWORK), coin: Coin::Native, amount: raw(paid.into()) };
    let change = Payment { to: wallet("hot-btc", CHANGE), coin: Coin::Native, amount: raw((held - paid - fee).into()) };
    let draft = Draft::Bitcoin { inputs: vec![input], payments: vec![payout.clone(), change], lock_time: 0 };
    let request = SignRequest {
        payload: tx::bitcoin::build(&draft, NETWORK).unwrap().bytes,
        bitcoin: Some(BitcoinTerms { inputs: vec![3], change: vec![CHANGE], lock_time: 0, sequence: 0xffff_fffd }),
        ..whole_request("btc", "hot-btc", SignerChain::Bitcoin(NETWORK), payout, raw(fee.into()))
    };
    let answer = served.client("server").sign(&[request]).await.unwrap().remove(0);
    let signer::client::SignAnswer::Signed { signed, .. } = answer else { panic!("{answer:?}") };
    let bytes = hex(&signed.bytes);
    let verdict = node.call("testmempoolaccept", &json!([[bytes]]));
    assert_eq!(verdict[0]["allowed"], true, "{verdict}");
    let hash = node.call("sendrawtransaction", &json!([bytes]));
    assert_eq!(hash, signed.hash.to_string());
    let blocks = node.call("generatetoaddress", &json!([1, stranger(9).bitcoin(NETWORK).to_string()]));
    let mined = node.call("getblock", &json!([blocks[0], 1]));
    assert!(mined["tx"].as_array().unwrap().contains(&hash), "{mined}");
}

fn whole_request(chain: &str, name: &str, network: SignerChain, payment: Payment, most_fee: RawAmount) -> SignRequest {
    let intent = Intent {
        signer: "test".parse().unwrap(),
        network,
        job: job(1),
        round: 0,
        chain: chain.parse().unwrap(),
        group: group(name),
        kind: IntentKind::Pay { payment, owner: None },
        most_fee,
        expires: Timestamp::from_micros(NOW + DAY),
        builds: 1,
        requester: "erin".parse().unwrap(),
    };
    SignRequest {
        id: "a".parse().unwrap(),
        chain: chain.parse().unwrap(),
        group: group(name),
        index: 0,
        payload: Vec::new(),
        intents: vec![intent],
        bitcoin: None,
        replaces: None,
        approvals: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_devnet_s_tron_takes_what_was_signed() {
    let now = Timestamp::from_micros(NOW);
    let mut chain = TronDevnet::new(Settings { genesis: now.plus_micros(-10_000_000), ..Settings::default() });
    let own = wallet("hot-tron", 0);
    chain.fund(&own.to_string(), None, raw(50_000_000), now).unwrap();
    chain.mine(1, now);
    let mut ask = |path: &str, body: Value| -> Value {
        let body = body.to_string();
        let wire = Wire { method: "POST", path, query: "", body: body.as_bytes() };
        let reply = chain.answer(&View::default(), wire, now);
        if path.is_empty() {
            chain.mine(1, now);
        }
        serde_json::from_slice(&reply.body).unwrap_or_default()
    };
    let block = ask("/wallet/getblock", json!({ "detail": false }));
    let hash: BlockHash = block["blockID"].as_str().unwrap().parse().unwrap();
    let height = block["block_header"]["raw_data"]["number"].as_u64().unwrap();
    let payment = Payment { to: stranger(2).tron(), coin: Coin::Native, amount: raw(900_000) };
    let draft = Draft::Tron {
        from: own,
        payment: payment.clone(),
        fee_limit: 0,
        reference: BlockRef { height, hash },
        created: now,
        expires: now.plus_micros(MINUTE),
    };
    let unsigned = tx::tron::transaction::build(&draft).unwrap();
    let most_fee = unsigned.meaning.most_fee.unwrap();
    let request = SignRequest {
        payload: unsigned.bytes,
        ..whole_request("tron", "hot-tron", SignerChain::Tron, payment, most_fee)
    };
    let (served, _) = Served::new(Limits::default());
    let answer = served.client("server").sign(&[request]).await.unwrap().remove(0);
    let signer::client::SignAnswer::Signed { signed, .. } = answer else { panic!("{answer:?}") };
    // One that somebody changed on its way is not taken.
    let mut changed = signed.bytes.clone();
    let last = changed.len() - 10;
    changed[last] ^= 1;
    let refused = ask("/wallet/broadcasthex", json!({ "transaction": hex(&changed) }));
    assert_ne!(refused["result"], true, "{refused}");
    let sent = ask("/wallet/broadcasthex", json!({ "transaction": hex(&signed.bytes) }));
    assert_eq!((&sent["result"], &sent["txid"]), (&json!(true), &json!(signed.hash.to_string())), "{sent}");
    ask("", json!({}));
    let paid = ask("/wallet/getaccount", json!({ "address": stranger(2).tron().to_string(), "visible": true }));
    assert_eq!(paid["balance"], 900_000, "{paid}");
}
