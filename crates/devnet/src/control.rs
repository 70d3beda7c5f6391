//! The control interface: what a test or a person may do to the chains, as JSON over HTTP. `GET /` lists it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use domain::RawAmount;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::serve::{accept, lock};
use super::{BroadcastFault, Fate, Lie, Model, Served, View, WireFaults};

const REQUEST_BYTES: usize = 4 << 20;
/// No call mines or reorganises more at once.
const MOST_BLOCKS: u64 = 10_000;

/// What can be asked, as `GET /` shows it.
const ROUTES: [(&str, &str); 9] = [
    ("GET /", "this list, and the state of the chains"),
    ("POST /{chain}/mine", r#"{"blocks": 1}"#),
    (
        "POST /{chain}/reorg",
        r#"{"depth": 3, "transactions": "moved" | "dropped" | "returned", "with": ["signed hex"]}"#,
    ),
    ("POST /{chain}/fund", r#"{"address": "…", "amount": "raw units", "token": "contract, or left out for the coin"}"#),
    ("POST /{chain}/broadcasts", r#"{"fault": "none" | "drop" | "duplicate" | {"delay": 3}}"#),
    ("POST /{chain}/fees", r#"{"times": 10}"#),
    ("POST /{chain}/halt", r#"{"halted": true}"#),
    (
        "POST /{chain}/endpoints/{number}",
        r#"{"lag": 5, "lie": "truth" | "missing" | "flipped" | "inflated" | "log_left_out" | "transaction_left_out" | "value_inflated" | "swapped", "contradict": height, "rate_limit": per second, "delay_ms": 100, "garbage": "html" | "html_ok" | "empty" | "truncated" | "wrong_type" | "absurd" | "huge", "connection": "whole" | "half_closed" | "silent"}: what is left out is well again"#,
    ),
    ("POST /heal", "{}: no fault anywhere, blocks go on"),
];

pub struct Control {
    pub address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub type Chains = BTreeMap<&'static str, Served<dyn Model>>;

impl Control {
    pub async fn start(address: SocketAddr, chains: Arc<Chains>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let respond = move |request| {
            let chains = Arc::clone(&chains);
            async move { answer(request, &chains).await }
        };
        let task = tokio::spawn(accept(listener, respond));
        Ok(Self { address, task: task.abort_handle() })
    }
}

/// What was wrong with a request, and the status that says so.
struct Wrong(StatusCode, String);

fn bad(message: impl Into<String>) -> Wrong {
    Wrong(StatusCode::BAD_REQUEST, message.into())
}

async fn answer(request: Request<Incoming>, chains: &Chains) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let (status, body) = match Limited::new(body, REQUEST_BYTES).collect().await {
        Err(_) => (StatusCode::PAYLOAD_TOO_LARGE, json!({ "error": "the request is too long" })),
        Ok(body) => match act(&parts.method, parts.uri.path(), &body.to_bytes(), chains) {
            Ok(answer) => (StatusCode::OK, answer),
            Err(Wrong(status, message)) => (status, json!({ "error": message, "hint": "GET / lists what there is" })),
        },
    };
    let mut response = Response::new(Full::new(Bytes::from(format!("{body:#}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn act(method: &Method, path: &str, body: &[u8], chains: &Chains) -> Result<Value, Wrong> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    if *method == Method::GET {
        return if segments.is_empty() { Ok(overview(chains)) } else { Err(nothing(path)) };
    }
    if *method != Method::POST {
        return Err(Wrong(StatusCode::METHOD_NOT_ALLOWED, "GET looks, POST does".to_owned()));
    }
    if segments == ["heal"] {
        for chain in chains.values() {
            heal(chain);
        }
        return Ok(overview(chains));
    }
    let (name, action) = segments.split_first().ok_or_else(|| nothing(path))?;
    let chain = chains.get(name).ok_or_else(|| nothing(path))?;
    match action {
        ["mine"] => {
            let Mine { blocks } = read(body)?;
            lock(&chain.model).mine(within(blocks)?, chain.now());
        }
        ["reorg"] => reorg(chain, &read(body)?)?,
        ["fund"] => {
            let Fund { address, amount, token } = read(body)?;
            let amount: RawAmount = amount.parse().map_err(|error| bad(format!("amount: {error}")))?;
            lock(&chain.model).fund(&address, token.as_deref(), amount, chain.now()).map_err(bad)?;
        }
        ["broadcasts"] => {
            let Broadcasts { fault } = read(body)?;
            lock(&chain.model).broadcasts(fault);
        }
        ["fees"] => {
            let Fees { times } = read(body)?;
            if !(1..=1_000_000).contains(&times) {
                return Err(bad("times: 1 to 1,000,000"));
            }
            lock(&chain.model).fee_factor(times);
        }
        ["halt"] => {
            let Halt { halted } = read(body)?;
            chain.halt(halted);
        }
        ["endpoints", number] => {
            let endpoint = number.parse::<usize>().ok().and_then(|number| chain.endpoints.get(number));
            let endpoint = endpoint.ok_or_else(|| nothing(path))?;
            let EndpointFaults { lag, lie, contradict, wire } = read(body)?;
            *lock(&endpoint.view) = View { lag, lie, contradict };
            *lock(&endpoint.wire) = wire;
        }
        _ => return Err(nothing(path)),
    }
    Ok(state(chain))
}

fn nothing(path: &str) -> Wrong {
    Wrong(StatusCode::NOT_FOUND, format!("there is no {path}"))
}

fn within(blocks: u64) -> Result<u64, Wrong> {
    if (1..=MOST_BLOCKS).contains(&blocks) { Ok(blocks) } else { Err(bad(format!("1 to {MOST_BLOCKS} blocks"))) }
}

fn reorg(chain: &Served<dyn Model>, wanted: &Reorg) -> Result<(), Wrong> {
    let mut with = Vec::with_capacity(wanted.with.len());
    for text in &wanted.with {
        with.push(
            alloy_primitives::hex::decode(text).map_err(|_| bad("with: signed transactions as hexadecimal text"))?,
        );
    }
    lock(&chain.model).reorg(within(wanted.depth)?, wanted.transactions, &with, chain.now()).map_err(bad)
}

fn heal(chain: &Served<dyn Model>) {
    for endpoint in &chain.endpoints {
        *lock(&endpoint.view) = View::default();
        *lock(&endpoint.wire) = WireFaults::default();
    }
    chain.halt(false);
    let mut model = lock(&chain.model);
    model.broadcasts(BroadcastFault::None);
    model.fee_factor(1);
}

fn overview(chains: &Chains) -> Value {
    let routes: BTreeMap<&str, &str> = ROUTES.into_iter().collect();
    let chains: BTreeMap<&str, Value> = chains.iter().map(|(name, chain)| (*name, state(chain))).collect();
    json!({ "routes": routes, "chains": chains })
}

fn state(chain: &Served<dyn Model>) -> Value {
    let endpoints = chain.endpoints.iter().map(|endpoint| {
        let faults = [
            unusual(&*lock(&endpoint.view), &View::default()),
            unusual(&*lock(&endpoint.wire), &WireFaults::default()),
        ];
        let faults: serde_json::Map<String, Value> = faults.into_iter().flatten().collect();
        json!({ "url": endpoint.url(), "faults": faults })
    });
    let endpoints: Vec<Value> = endpoints.collect();
    let height = lock(&chain.model).height();
    json!({ "height": height, "halted": chain.is_halted(), "endpoints": endpoints })
}

/// The members that are not as they usually are.
fn unusual<T: Serialize>(faults: &T, usual: &T) -> serde_json::Map<String, Value> {
    let usual = json!(usual);
    match json!(faults) {
        Value::Object(members) => members.into_iter().filter(|(name, value)| usual[name] != *value).collect(),
        _ => serde_json::Map::new(),
    }
}

/// An object, and nothing else: serde would take an array for one. Nothing at all is `{}`.
fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Wrong> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => serde_json::from_slice(b"{}"),
        Some(b'{') => serde_json::from_slice(body),
        Some(_) => return Err(bad("the body is a JSON object")),
    }
    .map_err(|error| bad(error.to_string()))
}

const fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mine {
    #[serde(default = "one")]
    blocks: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reorg {
    depth: u64,
    #[serde(default)]
    transactions: Fate,
    #[serde(default)]
    with: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fund {
    address: String,
    amount: String,
    token: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Broadcasts {
    fault: BroadcastFault,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fees {
    times: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Halt {
    halted: bool,
}

/// `flatten` and `deny_unknown_fields` do not go together: the members of [`WireFaults`] are named once more.
struct EndpointFaults {
    lag: u64,
    lie: Lie,
    contradict: Option<u64>,
    wire: WireFaults,
}

impl<'de> Deserialize<'de> for EndpointFaults {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut members = serde_json::Map::deserialize(deserializer)?;
        let mut view = serde_json::Map::new();
        for name in ["lag", "lie", "contradict"] {
            if let Some(value) = members.remove(name) {
                view.insert(name.to_owned(), value);
            }
        }
        let view: View = serde_json::from_value(Value::Object(view)).map_err(serde::de::Error::custom)?;
        let wire = serde_json::from_value(Value::Object(members)).map_err(serde::de::Error::custom)?;
        Ok(Self { lag: view.lag, lie: view.lie, contradict: view.contradict, wire })
    }
}
