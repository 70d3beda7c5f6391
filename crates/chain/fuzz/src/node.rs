//! A node on loopback that answers with the fuzzer's bytes.
//!
//! The clients read answers through their whole stack, as they do in production: HTTP, JSON-RPC, their own types. So the
//! targets call only what is public.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use chain::endpoint::{EndpointSettings, Pool, PoolSettings, json_rpc};
use domain::ManualClock;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// Between two answers: no JSON text can hold it.
pub const SEPARATOR: u8 = 0x1e;

/// An answer that begins with it is the whole body, without the envelope of JSON-RPC.
const RAW: u8 = b'!';

/// How a node wraps what it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Envelope {
    /// Each answer is the whole body.
    #[default]
    None,
    /// Each answer becomes the result of one call, so that the fuzzer need not guess ids.
    JsonRpc,
}

/// The answers that are left. The last one is given again and again.
#[derive(Debug, Default)]
struct Script {
    answers: VecDeque<Vec<u8>>,
    envelope: Envelope,
}

impl Script {
    fn next(&mut self) -> Vec<u8> {
        match self.answers.len() {
            0 => Vec::new(),
            1 => self.answers[0].clone(),
            _ => self.answers.pop_front().unwrap_or_default(),
        }
    }

    fn reply(&mut self, request: &[u8]) -> Vec<u8> {
        let calls = match (self.envelope, serde_json::from_slice::<Value>(request)) {
            (Envelope::JsonRpc, Ok(calls)) => calls,
            _ => return self.next(),
        };
        let mut wrap = |id: &Value| {
            let answer = self.next();
            match answer.split_first() {
                Some((&RAW, raw)) => Err(raw.to_vec()),
                _ => Ok([format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#).as_bytes(), &answer, b"}"].concat()),
            }
        };
        match calls {
            Value::Array(calls) => {
                let answers: Result<Vec<_>, _> = calls.iter().map(|call| wrap(&call["id"])).collect();
                answers.map(|answers| [b"[", answers.join(&b',').as_slice(), b"]"].concat())
            }
            call => wrap(&call["id"]),
        }
        .unwrap_or_else(|raw| raw)
    }
}

struct Loopback {
    runtime: Runtime,
    url: String,
    script: Arc<Mutex<Script>>,
}

thread_local! {
    static LOOPBACK: Loopback = Loopback::start();
}

impl Loopback {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port on loopback");
        let url = format!("http://{}", listener.local_addr().expect("a bound port"));
        let script = Arc::default();
        runtime.spawn(serve(listener, Arc::clone(&script)));
        Self { runtime, url, script }
    }
}

async fn serve(listener: TcpListener, script: Arc<Mutex<Script>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let script = Arc::clone(&script);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let script = Arc::clone(&script);
                async move {
                    let request = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                    let reply = lock(&script).reply(&request);
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(reply))))
                }
            });
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The nodes of a chain, of which there is one, at this address.
pub fn pool(url: &str) -> Pool {
    let endpoint = EndpointSettings {
        name: "fuzz".to_owned(),
        url: url.to_owned(),
        authorization: None,
        key: None,
        headers: Vec::new(),
        per_second: 0,
    };
    let settings = PoolSettings { quorum: Some(1), deadline: Duration::from_secs(2), ..PoolSettings::default() };
    Pool::new(&[endpoint], &settings, Arc::new(ManualClock::default())).expect("good settings")
}

/// Does something with the nodes of a chain, of which there is one, which answers with these bytes.
pub fn ask(bytes: &[u8], envelope: Envelope, with: impl AsyncFnOnce(Pool)) {
    LOOPBACK.with(|loopback| {
        let answers = bytes.split(|byte| *byte == SEPARATOR).map(<[u8]>::to_vec).collect();
        *lock(&loopback.script) = Script { answers, envelope };
        loopback.runtime.block_on(async { with(pool(&loopback.url)).await });
    });
}

/// Answers of JSON-RPC, to one call and to a batch of two.
pub fn json_rpc(bytes: &[u8]) {
    ask(bytes, Envelope::None, async |pool| {
        drop(pool.any(async |node| json_rpc::call::<Value>(&node, "one", json!([])).await).await);
        let calls = [("one", json!([])), ("two", json!([]))];
        let calls = &calls;
        drop(pool.any(async |node| json_rpc::batch::<Option<String>>(&node, calls).await).await);
    });
}
