//! The devnet over HTTP: by our own requests, and driven by clients that others have written.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use devnet::Served;
use domain::ManualClock;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::*;

const LOOPBACK: &str = "127.0.0.1:0";

async fn served(settings: Settings, endpoints: usize) -> Served<TronDevnet> {
    let clock = Arc::new(ManualClock::at(settings.genesis));
    let mut model = TronDevnet::new(settings);
    model.mine(3, settings.genesis);
    let addresses: Vec<SocketAddr> = vec![LOOPBACK.parse().unwrap(); endpoints];
    Served::start(model, &addresses, clock).await.unwrap()
}

#[tokio::test]
async fn two_endpoints_serve_one_chain_each_through_its_view() {
    let served = served(Settings::default(), 2).await;
    served.endpoints[1].view.lock().unwrap().lag = 2;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut heights = Vec::new();
    for endpoint in &served.endpoints {
        for method in ["GET", "POST"] {
            let request = Request::builder()
                .method(method)
                .uri(format!("http://{}/wallet/getnowblock?visible=true", endpoint.address))
                .body(Full::new(Bytes::new()))
                .unwrap();
            let response = client.request(request).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let block: Value = serde_json::from_slice(&body).unwrap();
            assert!(block["block_header"]["raw_data"]["witness_address"].as_str().unwrap().starts_with('T'));
            heights.push(block["block_header"]["raw_data"]["number"].as_u64().unwrap());
        }
    }
    assert_eq!(heights, [4, 4, 2, 2]);
}

/// Ends with its owner.
struct Script(Child);

impl Drop for Script {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Runs a script that mines by writing `mine n` and reading a line. It says whether it ended well.
fn drive(mut command: Command, chain: &Mutex<TronDevnet>, genesis: Timestamp) -> bool {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut script = Script(child);
    let mut input = script.0.stdin.take().unwrap();
    for line in BufReader::new(script.0.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.strip_prefix("mine ").and_then(|count| count.parse().ok()) {
            Some(count) => {
                chain.lock().unwrap().mine(count, genesis);
                writeln!(input, "mined").unwrap();
            }
            None => println!("{line}"),
        }
    }
    script.0.wait().unwrap().success()
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign")
}

/// These clients look at the machine's clock. The chain begins a day behind it less an hour, and never catches up.
#[allow(clippy::disallowed_methods, reason = "a client that others have written reads the machine's clock as well")]
fn recent() -> Settings {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let micros = i64::try_from(since.as_micros()).unwrap() - 3_600_000_000;
    Settings { genesis: Timestamp::from_micros(micros), ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_tronweb_sends_and_reads_transfers() {
    let modules = std::env::var("BURSAR_TEST_NODE_MODULES").expect("BURSAR_TEST_NODE_MODULES is set by ./test");
    let settings = recent();
    let served = served(settings, 1).await;
    let mut command = Command::new("node");
    command.arg(scripts().join("tron.mjs")).arg(format!("http://{}", served.endpoints[0].address));
    command.arg(modules).arg(TOKEN.to_string());
    for key in 0..3 {
        command.arg(alloy_primitives::hex::encode(Key::numbered(key).secret().secret_bytes()));
    }
    let model = Arc::clone(&served.model);
    let ended_well = tokio::task::spawn_blocking(move || drive(command, &model, settings.genesis)).await.unwrap();
    assert!(ended_well);
}

/// `BURSAR_TEST_PYTHON`: one with tronpy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_tronpy_sends_and_reads_transfers() {
    let Ok(python) = std::env::var("BURSAR_TEST_PYTHON") else {
        println!("BURSAR_TEST_PYTHON is not set: left out");
        return;
    };
    let settings = recent();
    let served = served(settings, 1).await;
    let mut command = Command::new(python);
    command.arg(scripts().join("tron.py")).arg(format!("http://{}", served.endpoints[0].address));
    command.arg(TOKEN.to_string());
    command.arg(alloy_primitives::hex::encode(Key::numbered(0).secret().secret_bytes())).arg(base58(1));
    let model = Arc::clone(&served.model);
    let ended_well = tokio::task::spawn_blocking(move || drive(command, &model, settings.genesis)).await.unwrap();
    assert!(ended_well);
}
