//! One node: an address, credentials, and the call.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{self, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::pace::{SECOND, Ticks, Window, lock, micros};
use super::pool::PoolSettings;
use super::standing::Standing;
use super::{BadEndpoint, CallError};

/// What a node says of itself in errors is cut after so many characters.
const SAID_CHARS: usize = 500;
/// How long to leave a node alone that wants fewer calls and does not say for how long.
const BREATH: u64 = SECOND;

#[derive(Clone)]
pub struct EndpointSettings {
    /// As logs and events call it; the address may hold a secret.
    pub name: String,
    pub url: String,
    /// The value of the `authorization` header: `Basic …`, `Bearer …`.
    pub authorization: Option<String>,
    /// Header name and value for a provider's key, such as `tron-pro-api-key`.
    pub key: Option<(String, String)>,
    /// Further headers that a provider or a proxy wants. They are kept as secret as a key, because they may be one.
    pub headers: Vec<(String, String)>,
    /// Calls per second that the provider allows; zero is no limit. Each call of a batch counts.
    pub per_second: u32,
}

impl fmt::Debug for EndpointSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointSettings")
            .field("name", &self.name)
            .field("authorization", &self.authorization.is_some())
            .field("key", &self.key.as_ref().map(|(header, _)| header))
            .field("headers", &self.headers.iter().map(|(header, _)| header).collect::<Vec<_>>())
            .field("per_second", &self.per_second)
            .finish_non_exhaustive()
    }
}

pub struct Node {
    name: String,
    base: String,
    headers: HeaderMap,
    /// What must never be repeated, though the node may send it back to us in an error.
    secrets: Vec<String>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    deadline: Duration,
    answer_bytes: usize,
    wait_most: u64,
    window: Option<Mutex<Window>>,
    /// How many calls a batch may have: what the settings allow, or less when the provider refused that.
    batch: AtomicUsize,
    batch_most: usize,
    pub(super) ticks: Arc<Ticks>,
    pub(super) standing: Mutex<Standing>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What came back, whatever it says.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub body: Bytes,
}

impl Node {
    pub(super) fn new(
        settings: &EndpointSettings,
        pool: &PoolSettings,
        ticks: Arc<Ticks>,
    ) -> Result<Self, BadEndpoint> {
        let name = settings.name.clone();
        let base = base_of(&settings.url).ok_or_else(|| BadEndpoint::Url { name: name.clone() })?;
        let headers = headers_of(settings).ok_or_else(|| BadEndpoint::Credentials { name: name.clone() })?;
        let connector = HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        let window = (settings.per_second > 0).then(|| Window::new(settings.per_second));
        let batch_most = pool.batch.min(window.as_ref().map_or(usize::MAX, Window::most)).max(1);
        Ok(Self {
            secrets: secrets_of(settings, &base),
            name,
            base,
            headers,
            client,
            deadline: pool.deadline,
            answer_bytes: pool.answer_bytes,
            wait_most: micros(pool.retry_after_most),
            window: window.map(Mutex::new),
            batch: AtomicUsize::new(batch_most),
            batch_most,
            ticks,
            standing: Mutex::default(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.name == other.name || party(&self.base).eq_ignore_ascii_case(&party(&other.base))
    }

    /// POSTs JSON to the path below the node's address, and reads the whole answer, within the deadline.
    pub async fn post(&self, path: &str, body: Bytes) -> Result<Reply, CallError> {
        self.send(path, body, 1).await
    }

    /// [`Self::post`] of a body with so many calls.
    pub(super) async fn send(&self, path: &str, body: Bytes, calls: usize) -> Result<Reply, CallError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("{}{path}", self.base).parse().map_err(|_| self.bad("no such path"))?;
        *request.headers_mut() = self.headers.clone();
        self.wait_for_room(calls).await?;
        let began = self.ticks.now();
        let outcome = tokio::time::timeout(self.deadline, self.exchange(request)).await;
        let took = self.ticks.now().saturating_sub(began);
        let outcome = outcome.unwrap_or_else(|_| Err(CallError::Timeout { endpoint: self.name.clone() }));
        // Who hangs up at once is not fast.
        if !matches!(outcome, Err(CallError::Unreachable { .. })) {
            lock(&self.standing).took(took);
        }
        outcome
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Reply, CallError> {
        let lost = |_| CallError::Unreachable { endpoint: self.name.clone() };
        let response = self.client.request(request).await.map_err(lost)?;
        let (parts, body) = response.into_parts();
        let reply = Reply { status: parts.status, body: self.read(body).await? };
        let wants_peace = match reply.status {
            StatusCode::TOO_MANY_REQUESTS => true,
            // Bitcoin Core, when its queue is full; proxies, when they say for how long.
            StatusCode::SERVICE_UNAVAILABLE => {
                parts.headers.contains_key(RETRY_AFTER) || says(&reply.body, "work queue")
            }
            // TronGrid forbids for some seconds whom it finds too busy.
            StatusCode::FORBIDDEN => says(&reply.body, "frequency limit") || says(&reply.body, "rate limit"),
            _ => false,
        };
        if wants_peace {
            let after = parts.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            return Err(self.rate_limited(after.and_then(|text| text.trim().parse::<u32>().ok())));
        }
        match reply.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(CallError::Credentials { endpoint: self.name.clone() })
            }
            // Credentials are for the address that was configured, not for one that somebody sends us to.
            status if status.is_redirection() => Err(self.bad(format!("HTTP {} sends us elsewhere", status.as_u16()))),
            _ => Ok(reply),
        }
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, CallError> {
        let too_long = || CallError::TooLong { endpoint: self.name.clone(), most: self.answer_bytes };
        if body.size_hint().lower() > u64::try_from(self.answer_bytes).unwrap_or(u64::MAX) {
            return Err(too_long());
        }
        let collected = Limited::new(body, self.answer_bytes).collect().await;
        collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
            if error.is::<LengthLimitError>() {
                too_long()
            } else {
                CallError::Unreachable { endpoint: self.name.clone() }
            }
        })
    }

    /// Waits for the provider's limit and for the time that it told us to wait. Longer than a call may take is an error.
    async fn wait_for_room(&self, calls: usize) -> Result<(), CallError> {
        let now = self.ticks.now();
        let latest = now.saturating_add(micros(self.deadline));
        let mut until = self.room_at(now, calls);
        if until > latest {
            return Err(CallError::RateLimited { endpoint: self.name.clone() });
        }
        if let Some(window) = &self.window {
            let mut window = lock(window);
            until = until.max(window.earliest(now, calls));
            window.take(until, calls);
        }
        // The time slept counts, not the clock: one that stands still must not keep us here.
        let mut slept = now;
        while until > slept {
            tokio::time::sleep(Duration::from_micros(until - slept)).await;
            slept = until;
            // Another call may have been told to wait meanwhile.
            until = lock(&self.standing).not_before();
            if until > latest {
                return Err(CallError::RateLimited { endpoint: self.name.clone() });
            }
        }
        Ok(())
    }

    /// When so many calls could be sent.
    pub(super) fn room_at(&self, now: u64, calls: usize) -> u64 {
        let not_before = lock(&self.standing).not_before();
        let room = self.window.as_ref().map_or(now, |window| lock(window).earliest(now, calls));
        room.max(not_before)
    }

    /// That this node wants fewer calls. It is left alone for the seconds it asked for, within reason.
    pub(super) fn rate_limited(&self, seconds: Option<u32>) -> CallError {
        let wait = seconds.map_or(BREATH, |seconds| u64::from(seconds) * SECOND).min(self.wait_most);
        let until = self.ticks.now().saturating_add(wait);
        lock(&self.standing).wait_until(until);
        CallError::RateLimited { endpoint: self.name.clone() }
    }

    /// How many calls to put into one batch.
    pub(super) fn batch(&self) -> usize {
        self.batch.load(Ordering::Relaxed)
    }

    /// A full batch was answered: a little more next time, since what was refused once may be allowed again.
    pub(super) fn batch_fits(&self, calls: usize) {
        let more = calls.saturating_add(1).min(self.batch_most);
        self.batch.fetch_max(more, Ordering::Relaxed);
    }

    pub(super) fn batch_refused(&self, calls: usize) {
        self.batch.fetch_min((calls / 2).max(1), Ordering::Relaxed);
    }

    /// That this node's answer is impossible.
    pub fn bad(&self, what: impl Into<String>) -> CallError {
        CallError::BadAnswer { endpoint: self.name.clone(), what: self.quote(&what.into()) }
    }

    /// That this node has no such thing, which another may have.
    pub fn lacks(&self, what: impl Into<String>) -> CallError {
        CallError::Lacks { endpoint: self.name.clone(), what: self.quote(&what.into()) }
    }

    pub(super) fn refused(&self, code: i64, message: &str) -> CallError {
        CallError::Refused { endpoint: self.name.clone(), code, message: self.quote(message) }
    }

    /// What the node said, fit for a log: short, on one line, without our secrets.
    pub(crate) fn quote(&self, said: &str) -> String {
        // Cut before searching, else a long answer is searched in full; leave room for a secret at the cut.
        let room = self.secrets.iter().map(|secret| secret.chars().count()).max().unwrap_or(0);
        let mut text: String = said.chars().take(SAID_CHARS + room).collect();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "[secret]");
        }
        text.chars().take(SAID_CHARS).map(|char| if char.is_control() { ' ' } else { char }).collect()
    }
}

fn says(body: &[u8], words: &str) -> bool {
    let start = &body[..body.len().min(1_024)];
    String::from_utf8_lossy(start).to_ascii_lowercase().contains(words)
}

/// The address without what does not change whom it reaches: the scheme, and the port that goes without saying.
fn party(base: &str) -> String {
    let rest = base.split_once("://").map_or(base, |(_, rest)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let authority = authority.strip_suffix(":80").or_else(|| authority.strip_suffix(":443")).unwrap_or(authority);
    format!("{}/{path}", authority.trim_end_matches('.'))
}

/// The address without the slash at its end.
fn base_of(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let authority = uri.authority()?.as_str();
    let plain = matches!(uri.scheme_str(), Some("http" | "https"))
        && !authority.is_empty()
        && !authority.contains('@')
        && uri.query().is_none()
        && !url.contains('#');
    plain.then(|| format!("{}://{}{}", uri.scheme_str().unwrap_or("http"), authority, uri.path().trim_end_matches('/')))
}

fn headers_of(settings: &EndpointSettings) -> Option<HeaderMap> {
    let secret = |text: &str| {
        let mut value = HeaderValue::from_str(text).ok()?;
        value.set_sensitive(true);
        Some(value)
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(authorization) = &settings.authorization {
        headers.insert(AUTHORIZATION, secret(authorization)?);
    }
    for (name, value) in settings.key.iter().chain(&settings.headers) {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        // These belong to the connection and the message; a key there would break every call, or split one into two.
        let taken =
            [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::UPGRADE];
        if taken.contains(&name) || headers.contains_key(&name) || value.is_empty() {
            return None;
        }
        headers.insert(name, secret(value)?);
    }
    Some(headers)
}

/// Short ones are left out: hiding every `a` would hide the message.
fn secrets_of(settings: &EndpointSettings, base: &str) -> Vec<String> {
    let authorization = settings.authorization.iter().flat_map(|text| text.split(' '));
    let key = settings.key.iter().chain(&settings.headers).map(|(_, value)| value.as_str());
    let path = base.splitn(4, '/').nth(3).into_iter().flat_map(|path| path.split('/'));
    let mut secrets: Vec<String> =
        authorization.chain(key).chain(path).filter(|text| text.len() >= 8).map(str::to_owned).collect();
    // The longest first: one may be a part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
}

#[cfg(test)]
mod tests {
    use domain::{ManualClock, Timestamp};

    use super::*;

    fn settings(url: &str) -> EndpointSettings {
        EndpointSettings {
            name: "one".to_owned(),
            url: url.to_owned(),
            authorization: Some("Bearer very-secret-token".to_owned()),
            key: Some(("x-key".to_owned(), "another-secret-key".to_owned())),
            headers: vec![("x-more".to_owned(), "one-more-secret".to_owned())],
            per_second: 5,
        }
    }

    fn node(settings: &EndpointSettings) -> Result<Node, BadEndpoint> {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(0)));
        Node::new(settings, &PoolSettings::default(), Arc::new(Ticks::new(clock)))
    }

    #[test]
    fn addresses_are_plain() {
        for good in ["http://a", "https://a:1/", "https://a/v3/key", "http://[::1]:5"] {
            assert!(node(&settings(good)).is_ok(), "{good}");
        }
        for bad in ["", "a", "ftp://a", "http://", "http://u:p@a", "http://a?key=1", "http://a#b", "http://a b", "/x"] {
            let error = node(&settings(bad)).unwrap_err();
            assert_eq!(error, BadEndpoint::Url { name: "one".to_owned() }, "{bad}");
        }
    }

    #[test]
    fn keys_that_no_header_can_hold_are_refused() {
        let refused = |key: (&str, &str)| {
            let key = Some((key.0.to_owned(), key.1.to_owned()));
            node(&EndpointSettings { key, ..settings("http://a") }).is_err()
        };
        assert!(!refused(("tron-pro-api-key", "x")));
        for bad in [("", "x"), ("a b", "x"), ("x", ""), ("x", "a\r\nb: c"), ("x", "\u{0}"), ("host", "x")] {
            assert!(refused(bad), "{bad:?}");
        }
        for taken in ["Authorization", "content-length", "Transfer-Encoding", "content-type"] {
            assert!(refused((taken, "x")), "{taken}");
        }
        for bad in [("x-key", "twice"), ("host", "x"), ("x y", "x"), ("x-team", "a\nb"), ("Authorization", "Basic x")] {
            let headers = vec![(bad.0.to_owned(), bad.1.to_owned())];
            assert!(node(&EndpointSettings { headers, ..settings("http://a") }).is_err(), "{bad:?}");
        }
        let authorization = Some("Basic a\nb".to_owned());
        assert!(node(&EndpointSettings { authorization, ..settings("http://a") }).is_err());
    }

    #[test]
    fn secrets_are_shown_nowhere() {
        let settings = settings("https://host.example/v3/0123456789abcdef");
        let node = node(&settings).unwrap();
        let said =
            "no 0123456789abcdef, no very-secret-token, no another-secret-key, no one-more-secret\r\nforged line";
        let shown = format!("{settings:?} {node:?} {:?} {}", node.bad(said), node.refused(1, said));
        for secret in ["0123456789abcdef", "very-secret-token", "another-secret-key", "one-more-secret", "host.example"]
        {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(!shown.contains('\n') && !shown.contains('\r'));
        // Not even a piece of one at the place of the cut.
        let CallError::BadAnswer { what, .. } = node.bad("x".repeat(SAID_CHARS - 5) + "very-secret-token") else {
            panic!("not a bad answer");
        };
        assert!(!what.contains("very") && what.chars().count() <= SAID_CHARS, "{what}");
    }

    #[test]
    fn a_batch_grows_and_shrinks_within_what_is_allowed() {
        let node = node(&settings("http://a")).unwrap();
        assert_eq!(node.batch(), 5, "no more than the calls of a second");
        node.batch_refused(5);
        assert_eq!(node.batch(), 2);
        node.batch_refused(1);
        assert_eq!(node.batch(), 1);
        node.batch_fits(1);
        assert_eq!(node.batch(), 2);
        node.batch_fits(900);
        assert_eq!(node.batch(), 5);
    }
}
