//! Serves a model over HTTP on loopback, on several endpoints, each with faults of its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use domain::{Clock, Timestamp};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use super::{Model, View, Wire, WireReply};

/// No request is longer than this.
const REQUEST_BYTES: usize = 16 << 20;
/// What [`Garbage::Huge`] sends.
const HUGE_BYTES: u64 = 1 << 30;

/// What goes wrong between an endpoint's model and its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WireFaults {
    /// Requests answered in each second; what is beyond gets 429.
    pub rate_limit: Option<u32>,
    /// Each answer waits so long.
    pub delay_ms: u64,
    pub garbage: Option<Garbage>,
    pub connection: Connection,
}

/// Answers that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Garbage {
    /// A page of some proxy, with status 502.
    Html,
    /// The same with status 200.
    HtmlOk,
    Empty,
    /// The first half of the true answer, said to be whole.
    Truncated,
    /// JSON of another type.
    WrongType,
    /// Every number and hexadecimal quantity is beyond all reason.
    Absurd,
    /// A gigabyte of spaces.
    Huge,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    #[default]
    Whole,
    /// The request is taken, and acted on, and the connection ends in the middle of the answer.
    HalfClosed,
    /// The request is taken, and acted on, and no answer comes.
    Silent,
}

/// One address at which the chain is served.
pub struct Endpoint {
    pub address: SocketAddr,
    pub view: Arc<Mutex<View>>,
    pub wire: Arc<Mutex<WireFaults>>,
}

impl Endpoint {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// A chain that is being served. It ends with its owner.
pub struct Served<M: ?Sized> {
    pub model: Arc<Mutex<M>>,
    pub endpoints: Vec<Endpoint>,
    clock: Arc<dyn Clock>,
    halted: Arc<AtomicBool>,
    tasks: Vec<AbortHandle>,
}

/// A model is never left half-changed by a panic that anybody could see: its methods do not panic.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Model> Served<M> {
    /// One endpoint on each of the addresses; port 0 takes a free one.
    pub async fn start(model: M, addresses: &[SocketAddr], clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let model = Arc::new(Mutex::new(model));
        let mut served = Self { model, endpoints: Vec::new(), clock, halted: Arc::default(), tasks: Vec::new() };
        for address in addresses {
            let listener = TcpListener::bind(address).await?;
            let endpoint = Endpoint { address: listener.local_addr()?, view: Arc::default(), wire: Arc::default() };
            let state = Arc::new(Serving {
                model: Arc::clone(&served.model),
                view: Arc::clone(&endpoint.view),
                wire: Arc::clone(&endpoint.wire),
                clock: Arc::clone(&served.clock),
                second: Mutex::default(),
            });
            let answer = move |request| {
                let state = Arc::clone(&state);
                async move { state.answer(request).await }
            };
            served.tasks.push(tokio::spawn(accept(listener, answer)).abort_handle());
            served.endpoints.push(endpoint);
        }
        Ok(served)
    }

    /// A block in every period, unless halted.
    pub fn mine_every(&mut self, period: Duration) {
        let (model, clock, halted) = (Arc::clone(&self.model), Arc::clone(&self.clock), Arc::clone(&self.halted));
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(period);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                if !halted.load(Ordering::Relaxed) {
                    lock(&model).mine(1, clock.now());
                }
            }
        });
        self.tasks.push(task.abort_handle());
    }

    /// The same chain without its type, as the control interface holds it.
    pub fn into_dyn(mut self) -> Served<dyn Model> {
        Served {
            model: Arc::clone(&self.model) as Arc<Mutex<dyn Model>>,
            endpoints: std::mem::take(&mut self.endpoints),
            clock: Arc::clone(&self.clock),
            halted: Arc::clone(&self.halted),
            tasks: std::mem::take(&mut self.tasks),
        }
    }
}

impl<M: Model + ?Sized> Served<M> {
    pub fn mine(&self, blocks: u64) {
        lock(&self.model).mine(blocks, self.clock.now());
    }

    pub fn halt(&self, halted: bool) {
        self.halted.store(halted, Ordering::Relaxed);
    }

    pub fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl<M: ?Sized> Drop for Served<M> {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

struct Serving<M> {
    model: Arc<Mutex<M>>,
    view: Arc<Mutex<View>>,
    wire: Arc<Mutex<WireFaults>>,
    clock: Arc<dyn Clock>,
    /// The present second, and the requests in it.
    second: Mutex<(i64, u32)>,
}

/// Takes connections and has their requests answered, until it is dropped; no connection outlives it.
pub(super) async fn accept<A, F, B>(listener: TcpListener, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                let answer = answer.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let answered = answer(request);
                        async move { Ok::<_, Infallible>(answered.await) }
                    });
                    // A client that hangs up is its own affair.
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        }
    }
}

impl<M: Model> Serving<M> {
    async fn answer(&self, request: Request<Incoming>) -> Response<Payload> {
        let faults = *lock(&self.wire);
        if faults.rate_limit.is_some_and(|limit| self.is_beyond(limit)) {
            let mut response = reply(429, Payload::whole(r#"{"error":{"code":429,"message":"Too Many Requests"}}"#));
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return response;
        }
        let (parts, body) = request.into_parts();
        let Ok(body) = Limited::new(body, REQUEST_BYTES).collect().await else {
            return reply(413, Payload::whole(""));
        };
        let body = body.to_bytes();
        let wire = Wire {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or(""),
            body: &body,
        };
        let view = lock(&self.view).clone();
        let answer = lock(&self.model).answer(&view, wire, self.clock.now());
        if faults.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(faults.delay_ms)).await;
        }
        match faults.connection {
            Connection::Whole => spoil(answer, faults.garbage),
            Connection::HalfClosed => reply(answer.status, Payload::half(answer.body)),
            Connection::Silent => std::future::pending().await,
        }
    }

    fn is_beyond(&self, limit: u32) -> bool {
        let now = self.clock.now().micros().div_euclid(1_000_000);
        let mut second = lock(&self.second);
        if second.0 != now {
            *second = (now, 0);
        }
        second.1 = second.1.saturating_add(1);
        second.1 > limit
    }
}

const PAGE: &str = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>";

fn spoil(answer: WireReply, garbage: Option<Garbage>) -> Response<Payload> {
    let status = answer.status;
    match garbage {
        None => reply(status, Payload::whole(answer.body)),
        Some(Garbage::Html) => reply(502, Payload::whole(PAGE)),
        Some(Garbage::HtmlOk) => reply(200, Payload::whole(PAGE)),
        Some(Garbage::Empty) => reply(status, Payload::whole("")),
        Some(Garbage::Truncated) => {
            let half = answer.body.len() / 2;
            reply(status, Payload::whole(answer.body[..half].to_vec()))
        }
        Some(Garbage::WrongType) => reply(status, Payload::whole(r#"["what",{"is":[true,null,"this"]}]"#)),
        Some(Garbage::Absurd) => reply(status, Payload::whole(absurd(&answer.body))),
        Some(Garbage::Huge) => reply(status, Payload::Huge { left: HUGE_BYTES }),
    }
}

/// Makes every quantity absurd, and leaves the shape as it is. What is no JSON stays.
fn absurd(body: &[u8]) -> Vec<u8> {
    fn twist(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Number(_) => *value = serde_json::json!(u64::MAX),
            // A quantity, and not 20 or 32 bytes of something.
            serde_json::Value::String(text) if text.starts_with("0x") && text.len() < 42 => {
                *text = format!("0x1{}", "0".repeat(64));
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(twist),
            serde_json::Value::Object(members) => {
                members.iter_mut().filter(|(name, _)| *name != "id").for_each(|(_, value)| twist(value));
            }
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::String(_) => {}
        }
    }
    match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(mut value) => {
            twist(&mut value);
            value.to_string().into_bytes()
        }
        Err(_) => body.to_vec(),
    }
}

fn reply(status: u16, payload: Payload) -> Response<Payload> {
    let mut response = Response::new(payload);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A body, whole or not.
enum Payload {
    Whole(Option<Bytes>),
    /// Announces `length` bytes and breaks off after the first part.
    Half {
        first: Option<Bytes>,
        length: u64,
    },
    Huge {
        left: u64,
    },
}

impl Payload {
    fn whole(body: impl Into<Bytes>) -> Self {
        Self::Whole(Some(body.into()))
    }

    fn half(body: Vec<u8>) -> Self {
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX).max(2);
        let mut first = Bytes::from(body);
        first.truncate(first.len() / 2);
        Self::Half { first: Some(first), length }
    }
}

static SPACES: [u8; 65_536] = [b' '; 65_536];

impl Body for Payload {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = match self.get_mut() {
            Self::Whole(body) => body.take().map(|body| Ok(Frame::data(body))),
            Self::Half { first, .. } => Some(match first.take() {
                Some(first) => Ok(Frame::data(first)),
                None => Err(std::io::ErrorKind::ConnectionReset.into()),
            }),
            Self::Huge { left: 0 } => None,
            Self::Huge { left } => {
                *left = left.saturating_sub(65_536);
                Some(Ok(Frame::data(Bytes::from_static(&SPACES))))
            }
        };
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => SizeHint::with_exact(u64::try_from(body.as_ref().map_or(0, Bytes::len)).unwrap_or(0)),
            Self::Half { length, .. } => SizeHint::with_exact(*length),
            Self::Huge { left } => SizeHint::with_exact(*left),
        }
    }
}
