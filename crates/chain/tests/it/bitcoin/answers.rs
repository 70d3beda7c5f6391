//! Nodes that lie or talk nonsense: a proxy before a real bitcoind changes what it says.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use chain::endpoint::{CallError, EndpointSettings};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

/// What becomes of an answer: method, parameters, the honest result. `None` leaves it as it is.
type Lie = dyn Fn(&str, &Value, &Value) -> Option<Value> + Send + Sync;

struct Liar {
    endpoint: EndpointSettings,
    task: JoinHandle<()>,
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Liar {
    async fn before(
        node: &Arc<Bitcoind>,
        lie: impl Fn(&str, &Value, &Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        let lie: Arc<Lie> = Arc::new(lie);
        let node = Arc::clone(node);
        Self::serving(move |body| {
            let (node, lie) = (Arc::clone(&node), Arc::clone(&lie));
            async move { answer(&node, &*lie, &body).await.to_string() }
        })
        .await
    }

    async fn serving<F, Fut>(reply: F) -> Self
    where
        F: Fn(Bytes) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = String> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let reply = reply.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request: Request<Incoming>| {
                        let reply = reply.clone();
                        async move {
                            let body = request.into_body().collect().await.map(|body| body.to_bytes());
                            let text = reply(body.unwrap_or_default()).await;
                            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
                        }
                    });
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        let endpoint = EndpointSettings {
            name: format!("liar-{port}"),
            url: format!("http://127.0.0.1:{port}"),
            authorization: None,
            key: None,
            headers: Vec::new(),
            per_second: 0,
        };
        Self { endpoint, task }
    }

    fn client(&self) -> BitcoinChain {
        client(std::slice::from_ref(&self.endpoint), 1, CONFIRMATIONS)
    }
}

async fn answer(node: &Bitcoind, lie: &Lie, body: &[u8]) -> Value {
    match serde_json::from_slice(body).unwrap_or_default() {
        Value::Array(calls) => {
            let mut answers = Vec::new();
            for call in &calls {
                answers.push(one(node, lie, call).await);
            }
            Value::Array(answers)
        }
        call => one(node, lie, &call).await,
    }
}

async fn one(node: &Bitcoind, lie: &Lie, call: &Value) -> Value {
    let method = call["method"].as_str().expect("a method");
    let honest = match node.try_call::<Value>(method, call["params"].clone()).await {
        Ok(result) => json!({ "result": result }),
        Err(ChainError::Refused(CallError::Refused { code, message, .. })) => {
            json!({ "error": { "code": code, "message": message } })
        }
        Err(error) => panic!("{method}: {error}"),
    };
    let mut said = lie(method, &call["params"], &honest).unwrap_or(honest);
    said["id"] = call["id"].clone();
    said
}

struct Scene {
    node: Arc<Bitcoind>,
    /// Mined, and with blocks above it.
    payment: Signed,
    /// Conflicts with it.
    loser: Signed,
    /// Its block.
    at: u64,
    tip: u64,
}

async fn scene() -> Scene {
    let mut node = Bitcoind::start().await;
    let chain = Net::client(&node);
    let coin = coins(&mut node, 2, &[BTC, BTC]).await;
    let payment = signed(&chain, 2, &coin[..1], &[(address(3), BTC - 5_000)]).await;
    let loser = signed(&chain, 2, &coin, &[(address(4), 2 * BTC - 5_000)]).await;
    take(&chain, &payment).await;
    node.mine(CONFIRMATIONS + 2).await;
    let tip = height(&chain).await;
    Scene { node: Arc::new(node), payment, loser, at: tip - CONFIRMATIONS - 1, tip }
}

fn block_of(honest: &Value) -> Option<::bitcoin::Block> {
    let bytes = alloy_primitives::hex::decode(honest["result"].as_str()?).ok()?;
    deserialize(&bytes).ok()
}

fn said(block: &::bitcoin::Block) -> Option<Value> {
    Some(json!({ "result": alloy_primitives::hex::encode(serialize(block)) }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bitcoind_cannot_invent_change_or_hide_a_payment_in_a_block() {
    let scene = scene().await;
    let watched = watching(&[address(3)]);
    type Change = fn(&mut ::bitcoin::Block);
    let lies: [(&str, Change); 4] = [
        ("ten times the amount", |block| {
            for output in block.txdata.iter_mut().flat_map(|one| &mut one.output) {
                output.value *= 10;
            }
        }),
        ("a payment left out", |block| block.txdata.truncate(1)),
        ("a payment twice", |block| block.txdata.push(block.txdata[block.txdata.len() - 1].clone())),
        ("another root for other payments", |block| {
            block.txdata.truncate(1);
            block.header.merkle_root = block.compute_merkle_root().expect("not empty");
        }),
    ];
    for (what, lie) in lies {
        let liar = Liar::before(&scene.node, move |method, _, honest| {
            let mut block = block_of(honest).filter(|block| method == "getblock" && block.txdata.len() > 1)?;
            lie(&mut block);
            said(&block)
        })
        .await;
        let alone = liar.client();
        assert!(matches!(alone.scan(scene.at, scene.tip, &watched).await, Err(ChainError::Unreachable(_))), "{what}");
        assert!(alone.prove(scene.payment.sent.hash, &watched).await.is_err(), "{what}");
        assert!(alone.status(&scene.payment.sent).await.is_err(), "{what}");
        // Where there is another node, it is asked instead.
        let both = client(&[liar.endpoint.clone(), scene.node.endpoint()], 1, CONFIRMATIONS);
        let scan = both.scan(scene.at, scene.tip, &watched).await.expect("the honest one");
        assert_eq!(scan.outputs.len(), 1, "{what}");
        assert_eq!(scan.outputs[0].amount.to_string(), (BTC - 5_000).to_string(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bitcoind_shows_the_transaction_and_the_block_that_were_asked_for_or_is_not_heard() {
    let mut node = Bitcoind::start().await;
    let coin = coins(&mut node, 2, &[BTC, BTC]).await;
    let honest = Net::client(&node);
    let one = signed(&honest, 2, &coin[..1], &[(address(3), BTC - 5_000)]).await;
    let other = signed(&honest, 2, &coin[1..], &[(address(4), BTC - 5_000)]).await;
    take(&honest, &one).await;
    take(&honest, &other).await;
    let node = Arc::new(node);
    let tip = honest.head().await.expect("a head").tip.at();
    let before: String = node.call("getblockhash", json!([tip.height - 1])).await;
    let block: Value = json!({ "result": node.call::<String>("getblock", json!([before, 0])).await });
    let cut = alloy_primitives::hex::encode(&one.bytes[..one.bytes.len() - 1]);
    let another = json!({ "result": alloy_primitives::hex::encode(&other.bytes) });
    for said in [another, json!({ "result": cut }), json!({ "result": "zz" }), json!({ "result": null })] {
        let (hash, answers, block) = (one.sent.hash.to_string(), said.clone(), block.clone());
        let liar = Liar::before(&node, move |method, params, _| match method {
            "getrawtransaction" if params[0] == hash.as_str() => Some(answers.clone()),
            "getblock" => Some(block.clone()),
            _ => None,
        })
        .await;
        let asked = [other.sent.hash, one.sent.hash];
        let alone = liar.client();
        assert!(matches!(alone.waiting(&asked).await, Err(ChainError::Unreachable(_))), "{said}");
        assert!(matches!(alone.block_bytes(tip).await, Err(ChainError::Unreachable(_))), "another block");
        let both = client(&[liar.endpoint.clone(), node.endpoint()], 1, CONFIRMATIONS);
        let shown = vec![Some(other.bytes.clone()), Some(one.bytes.clone())];
        assert_eq!(both.waiting(&asked).await, Ok(shown), "{said}");
        assert!(both.block_bytes(tip).await.is_ok());
    }
    for list in [json!({ "result": ["5a"] }), json!({ "result": [7] }), json!({ "result": { "5a": {} } })] {
        let said = list.clone();
        let liar = Liar::before(&node, move |method, _, _| (method == "getrawmempool").then(|| said.clone())).await;
        assert!(matches!(liar.client().mempool().await, Err(ChainError::Unreachable(_))), "{list}");
    }
}

/// It waits at a quorum, so it is there: the one node that lacks it must not be the one that is believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_at_a_quorum_is_shown_though_one_bitcoind_lacks_it() {
    let mut node = Bitcoind::start().await;
    let coin = coins(&mut node, 2, &[BTC, BTC]).await;
    let chain = Net::client(&node);
    let one = signed(&chain, 2, &coin[..1], &[(address(3), BTC - 5_000)]).await;
    let other = signed(&chain, 2, &coin[1..], &[(address(3), BTC - 6_000)]).await;
    take(&chain, &one).await;
    take(&chain, &other).await;
    let (node, hash) = (Arc::new(node), one.sent.hash.to_string());
    let liar = Liar::before(&node, move |method, params, _| {
        let unheard = json!({ "error": { "code": -5, "message": "No such mempool or blockchain transaction." } });
        (method == "getrawtransaction" && params[0] == hash.as_str()).then_some(unheard)
    })
    .await;
    let mut nodes = [liar.endpoint.clone(), node.endpoint(), node.second_endpoint()];
    let asked = [other.sent.hash, one.sent.hash, TxHash([0x5a; 32])];
    for _ in 0..nodes.len() {
        // Whichever of them comes first.
        nodes.rotate_left(1);
        for _ in 0..10 {
            let three = client(&nodes, 2, CONFIRMATIONS);
            let shown = vec![Some(other.bytes.clone()), Some(one.bytes.clone()), None];
            assert_eq!(three.waiting(&asked).await, Ok(shown));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lying_bitcoind_among_three_changes_nothing() {
    let scene = scene().await;
    let (watched, tip) = (watching(&[address(3)]), scene.tip);
    let lies: [(&str, Box<Lie>); 4] = [
        (
            "nothing is mined",
            Box::new(|method, _, _| {
                let unheard =
                    json!({ "error": { "code": -5, "message": "No such mempool or blockchain transaction." } });
                matches!(method, "getrawtransaction" | "getmempoolentry").then_some(unheard)
            }),
        ),
        (
            "other blocks",
            Box::new(|method, _, _| (method == "getblockhash").then(|| json!({ "result": "11".repeat(32) }))),
        ),
        (
            "in another block",
            Box::new(|method, params, _| {
                let block = json!({ "txid": params[0], "blockhash": "22".repeat(32) });
                (method == "getrawtransaction").then(|| json!({ "result": block }))
            }),
        ),
        (
            "another fee",
            Box::new(|method, params, honest| {
                let mut changed = honest.clone();
                changed["result"]["fee"] = json!(1.5);
                (method == "getrawtransaction" && params[1] == 2).then_some(changed)
            }),
        ),
    ];
    for (what, lie) in lies {
        let liar = Liar::before(&scene.node, lie).await;
        let nodes = [liar.endpoint.clone(), scene.node.endpoint(), scene.node.second_endpoint()];
        let three = client(&nodes, 2, CONFIRMATIONS);
        let Ok(Status::Mined(mined)) = three.status(&scene.payment.sent).await else { panic!("{what}") };
        assert_eq!(mined.block.height, scene.at, "{what}");
        let fee = mined.fee.map(|fee| fee.to_string());
        assert!(fee.is_none() || fee.as_deref() == Some("5000"), "{what}: {fee:?}");
        let proven = three.prove(scene.payment.sent.hash, &watched).await.expect(what).expect(what);
        assert_eq!((proven.block.height, proven.outputs.len()), (scene.at, 1), "{what}");
        let heights: Vec<u64> = (scene.at..=tip).collect();
        let headers = three.headers(&heights).await.expect(what);
        assert_eq!(headers.len(), heights.len());
        assert_ne!(headers[0].hash.to_string(), "11".repeat(32), "{what}");
        let impossible = three.status(&scene.loser.sent).await;
        assert!(matches!(impossible, Ok(Status::Impossible(_)) | Err(_)), "{what}: {impossible:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bitcoind_that_claims_what_is_not_so_proves_nothing() {
    let scene = scene().await;
    let chain = Net::client(&*scene.node);
    let never = &scene.loser;
    // It says that the payment which conflicts is in the best block. The block says otherwise.
    let tip = chain.head().await.expect("a head").tip.hash.to_string();
    let wanted = never.sent.hash.to_string();
    let liar = Liar::before(&scene.node, move |method, params, _| {
        (method == "getrawtransaction" && params[0] == wanted.as_str())
            .then(|| json!({ "result": { "txid": wanted, "blockhash": tip, "fee": 0.1 } }))
    })
    .await;
    let said = liar.client().status(&never.sent).await.expect("an answer");
    assert!(matches!(said, Status::Impossible(_)), "{said:?}");
    let proven = liar.client().prove(never.sent.hash, &watching(&[address(4)])).await;
    assert!(matches!(proven, Ok(None) | Err(ChainError::NoQuorum { .. })), "{proven:?}");

    // It says that an input is gone. That is no proof.
    let mut node = Bitcoind::start().await;
    let coin = coins(&mut node, 2, &[BTC]).await;
    let open = signed(&Net::client(&node), 2, &coin, &[(address(3), BTC - 5_000)]).await;
    node.mine(10).await;
    let node = Arc::new(node);
    let liar = Liar::before(&node, |method, _, _| (method == "gettxout").then(|| json!({ "result": null }))).await;
    assert_eq!(liar.client().status(&open.sent).await, Ok(Status::Unknown));
    // It says that it took something else.
    let liar = Liar::before(&node, |method, _, _| {
        (method == "sendrawtransaction").then(|| json!({ "result": "33".repeat(32) }))
    })
    .await;
    let answer = liar.client().broadcast(&open.bytes).await;
    assert!(matches!(answer, Err(ChainError::Unreachable(_))), "{answer:?}");
    assert_eq!(Net::client(&*node).broadcast(&open.bytes).await, Ok(Broadcast::Taken), "the honest one has it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bitcoind_that_reorganises_during_a_scan_is_read_again() {
    let scene = scene().await;
    for (stale, whole) in [(1, true), (usize::MAX, false)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let (height, counter) = (scene.tip - 1, Arc::clone(&asked));
        let genesis: String = scene.node.call("getblockhash", json!([1])).await;
        let liar = Liar::before(&scene.node, move |method, params, _| {
            let hit = method == "getblockhash" && params[0] == height && counter.fetch_add(1, Ordering::SeqCst) < stale;
            hit.then(|| json!({ "result": genesis }))
        })
        .await;
        let scan = liar.client().scan(scene.at, scene.tip, &watching(&[address(3)])).await;
        if whole {
            let scan = scan.expect("the second time the chain holds still");
            assert_eq!((scan.headers.len() as u64, scan.outputs.len()), (scene.tip - scene.at + 1, 1));
            assert_eq!(asked.load(Ordering::SeqCst), 2);
        } else {
            assert_eq!(scan, Err(ChainError::BlockMissing { height }), "but not for ever");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_instead_of_a_bitcoind_is_an_error() {
    let answers = [
        "",
        "null",
        "[]",
        "{",
        "<html><body>502 Bad Gateway</body></html>",
        r#"{"id":0,"result":null}"#,
        r#"{"id":0,"result":{}}"#,
        r#"{"id":0,"result":-1}"#,
        r#"{"id":0,"result":"zz"}"#,
        r#"{"id":0,"result":"0x00"}"#,
        r#"{"id":0,"result":[]}"#,
        r#"{"id":0,"result":{"chain":"regtest","blocks":18446744073709551615,"bestblockhash":"00"}}"#,
        r#"{"id":0,"result":{"chain":"regtest","blocks":-5,"bestblockhash":"00"}}"#,
        r#"{"id":0,"result":{"blockhash":"4444444444444444444444444444444444444444444444444444444444444444","height":18446744073709551615,"confirmations":9223372036854775807,"fee":1e999}}"#,
        r#"[{"id":0,"result":"4444444444444444444444444444444444444444444444444444444444444444"}]"#,
        r#"[{"id":0,"result":{"bestblock":"4444444444444444444444444444444444444444444444444444444444444444","confirmations":18446744073709551615}}]"#,
        r#"{"id":0,"error":{"code":-28,"message":"Loading block index…"}}"#,
        r#"{"id":0,"error":{"code":-32603,"message":"?"}}"#,
        r#"{"id":0,"result":{"success":true,"unspents":[{"scriptPubKey":"00","amount":1}]}}"#,
        r#"{"id":0,"result":{"mempoolminfee":-1,"minrelaytxfee":0.1}}"#,
    ];
    let meaning = |chain: &BitcoinChain| {
        let input = Input {
            transaction: TxHash([1; 32]),
            index: 0,
            amount_sat: BTC,
            script: match address(1) {
                Address::Bitcoin(address) => address.script_pubkey().into_bytes(),
                other => panic!("{other}"),
            },
            sequence: u32::MAX,
        };
        let draft = Draft::Bitcoin { inputs: vec![input], payments: vec![pay(&address(2), BTC - 9)], lock_time: 0 };
        chain.build(&draft).expect("a good draft")
    };
    for text in answers {
        let liar = Liar::serving(move |_| async move { text.to_owned() }).await;
        let chain = liar.client();
        let unsigned = meaning(&chain);
        let bytes = finalize(&Key::numbered(1).sign_psbt(&unsigned.bytes)).expect("signed");
        let hash = unsigned.meaning.hash.expect("segwit");
        let sent = Sent { meaning: unsigned.meaning, hash, since: 0 };
        let watched = watching(&[address(1)]);
        assert!(chain.head().await.is_err(), "{text}");
        assert!(chain.headers(&[1]).await.is_err(), "{text}");
        assert!(chain.scan(1, 2, &watched).await.is_err(), "{text}");
        assert!(chain.prove(TxHash([1; 32]), &watched).await.is_err(), "{text}");
        assert!(chain.balances(&[(address(1), Coin::Native)]).await.is_err(), "{text}");
        assert!(chain.waiting(&[TxHash([1; 32])]).await.is_err(), "{text}");
        let block = tx::BlockRef { height: 1, hash: tx::BlockHash([1; 32]) };
        assert!(chain.block_bytes(block).await.is_err(), "{text}");
        // An empty mempool is no nonsense; it would be found out by the next look.
        assert!(chain.mempool().await.is_ok_and(|list| list.is_empty()) == text.contains("[]}"), "{text}");
        let quoted = chain.quote(&address(1), &pay(&address(2), 1), FeeCap(Fee::PerKvb(1_000))).await;
        assert!(quoted.is_err(), "{text}");
        assert!(!matches!(chain.broadcast(&bytes).await, Ok(Broadcast::Taken)), "{text}");
        let status = chain.status(&sent).await;
        assert!(matches!(status, Ok(Status::Unknown | Status::Mempool) | Err(_)), "{text}: {status:?}");
    }
}
