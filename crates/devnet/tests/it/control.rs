//! The devnet as a whole: three chains and their control interface.

use std::sync::Arc;

use chain::endpoint::{EndpointSettings, Pool, PoolSettings};
use devnet::{Devnet, DevnetSettings};
use domain::{ManualClock, Timestamp};
use serde_json::{Value, json};

struct Rig {
    devnet: Devnet,
    control: Pool,
}

fn pool(url: String) -> Pool {
    let endpoint = EndpointSettings {
        name: "control".to_owned(),
        url,
        authorization: None,
        key: None,
        headers: Vec::new(),
        per_second: 0,
    };
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(0)));
    Pool::new(&[endpoint], &PoolSettings::default(), clock).expect("a good address")
}

impl Rig {
    async fn start() -> Self {
        let settings = DevnetSettings {
            bitcoin_port: 0,
            evm_port: 0,
            tron_port: 0,
            control_port: 0,
            endpoints: 2,
            block_time: None,
        };
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_790_000_000_000_000)));
        let devnet = Devnet::start(&settings, clock).await.expect("free ports");
        let control = pool(format!("http://{}", devnet.control.address));
        Self { devnet, control }
    }

    /// The status and the body of a POST.
    async fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let ask = |node: Arc<chain::endpoint::Node>| {
            let (path, body) = (path.to_owned(), body.to_owned());
            async move { node.post(&path, body.into()).await }
        };
        let reply = self.control.any(ask).await.expect("an answer");
        (reply.status.as_u16(), serde_json::from_slice(&reply.body).expect("JSON"))
    }

    async fn done(&self, path: &str, body: Value) -> Value {
        let (status, said) = self.post(path, &body.to_string()).await;
        assert_eq!(status, 200, "{path} {body}: {said}");
        said
    }

    fn height(&self, chain: &str) -> u64 {
        self.devnet.chains[chain].model.lock().expect("nobody panicked").height()
    }
}

/// Nobody has to mine first: this is what `bursar devnet --help` and docs/guide/devnet.md show.
#[tokio::test]
async fn a_new_devnet_has_blocks_enough_for_the_reorganisation_that_is_documented() {
    let rig = Rig::start().await;
    // Of TRON's blocks, nineteen are not solidified.
    for (chain, depth) in [("evm", 20), ("bitcoin", 20), ("tron", 19)] {
        let before = rig.height(chain);
        let said = rig.done(&format!("/{chain}/reorg"), json!({ "depth": depth, "transactions": "dropped" })).await;
        assert_eq!(said["height"], before + 1, "{chain}");
    }
}

#[tokio::test]
async fn every_chain_mines_and_reorganises_when_it_is_told_to() {
    let rig = Rig::start().await;
    for chain in ["bitcoin", "evm", "tron"] {
        let before = rig.height(chain);
        assert_eq!(rig.done(&format!("/{chain}/mine"), json!({ "blocks": 5 })).await["height"], before + 5);
        // The new branch is one longer.
        let said = rig.done(&format!("/{chain}/reorg"), json!({ "depth": 3, "transactions": "returned" })).await;
        assert_eq!(said["height"], before + 6, "{chain}");
    }
}

#[tokio::test]
async fn faults_are_set_shown_and_healed() {
    let rig = Rig::start().await;
    let set = json!({ "lag": 2, "lie": "missing", "contradict": 7, "garbage": "html", "delay_ms": 1, "rate_limit": 9 });
    let said = rig.done("/tron/endpoints/1", set.clone()).await;
    assert_eq!(said["endpoints"][1]["faults"], set);
    assert_eq!(said["endpoints"][0]["faults"], json!({}));
    assert_eq!(rig.done("/evm/halt", json!({ "halted": true })).await["halted"], true);
    rig.done("/evm/broadcasts", json!({ "fault": { "delay": 3 } })).await;
    rig.done("/evm/broadcasts", json!({ "fault": "drop" })).await;
    rig.done("/evm/fees", json!({ "times": 10 })).await;
    let healed = rig.done("/heal", json!({})).await;
    assert_eq!(healed["chains"]["tron"]["endpoints"][1]["faults"], json!({}));
    assert_eq!(healed["chains"]["evm"]["halted"], false);
}

#[tokio::test]
async fn coins_and_tokens_are_given_to_whom_is_named() {
    let rig = Rig::start().await;
    let evm = devnet::Key::numbered(42).evm().to_string();
    rig.done("/evm/fund", json!({ "address": evm, "amount": "1000" })).await;
    rig.done("/evm/fund", json!({ "address": evm, "amount": "5", "token": "USDT" })).await;
    rig.done("/evm/mine", json!({})).await;
    let node = pool(rig.devnet.chains["evm"].endpoints[0].url());
    let balance = |node: Arc<chain::endpoint::Node>| {
        let evm = evm.clone();
        async move { chain::endpoint::json_rpc::call::<String>(&node, "eth_getBalance", json!([evm, "latest"])).await }
    };
    assert_eq!(node.any(balance).await.expect("an answer"), "0x3e8");
}

#[tokio::test]
async fn wrong_requests_are_refused_and_change_nothing() {
    let rig = Rig::start().await;
    let heights = ["bitcoin", "evm", "tron"].map(|chain| rig.height(chain));
    for (path, body, status) in [
        ("/evm/mine", r#"{"blocks": 0}"#, 400),
        ("/evm/mine", r#"{"blocks": 1000000}"#, 400),
        ("/evm/mine", r#"{"block": 1}"#, 400),
        ("/evm/mine", "[", 400),
        ("/evm/mine", "[1]", 400),
        ("/evm/reorg", r#"{"depth": 1, "transactions": "eaten"}"#, 400),
        ("/evm/reorg", r#"{"depth": 1, "with": ["zz"]}"#, 400),
        ("/evm/reorg", r#"{"depth": 1, "with": ["00"]}"#, 400),
        ("/evm/reorg", r#"{"depth": 9999}"#, 400),
        ("/evm/fund", r#"{"address": "0x12", "amount": "1"}"#, 400),
        ("/evm/fund", r#"{"address": "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "amount": "-1"}"#, 400),
        ("/evm/fund", r#"{"address": "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "amount": 1}"#, 400),
        ("/evm/fees", r#"{"times": 0}"#, 400),
        ("/evm/broadcasts", r#"{"fault": "eat"}"#, 400),
        ("/evm/endpoints/0", r#"{"lie": "white"}"#, 400),
        ("/evm/endpoints/0", r#"{"lags": 1}"#, 400),
        ("/evm/endpoints/7", "{}", 404),
        ("/evm/endpoints/x", "{}", 404),
        ("/evm/dance", "{}", 404),
        ("/dogecoin/mine", "{}", 404),
        ("/", "{}", 404),
    ] {
        let (said, answer) = rig.post(path, body).await;
        assert_eq!(said, status, "{path} {body}: {answer}");
        assert!(answer["error"].is_string() && answer["hint"].is_string(), "{answer}");
    }
    assert_eq!(["bitcoin", "evm", "tron"].map(|chain| rig.height(chain)), heights);
}
