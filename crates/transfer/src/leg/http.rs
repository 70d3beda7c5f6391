//! Any exchange's own engine as a leg, over HTTP. The contract is in `docs/http-leg.md`. The table of [`judge`]
//! decides: only a clear yes is `Success`, only a clear business refusal is `Failed`, everything else is `Pending`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use domain::id::{self, Id};
use domain::{Amount, AssetId, UserId};
use futures_util::StreamExt;
use futures_util::stream;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;
use serde_json::json;

use super::{Answer, Answered, Call, Holding, Leg, Reason, Record, Verb, sane};
use crate::assets::Assets;
use crate::readiness::Trouble;

/// So many calls are on their way at a time, each on a connection that is kept open.
const CONCURRENCY: usize = 64;
/// A longer answer is not read.
const ANSWER_BYTES: usize = 64 * 1024;
/// After so many calls in a row that decided nothing the engine is asked whether it is there at all.
const DOUBTFUL: u32 = 5;

pub struct HttpLeg {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    authorization: Option<HeaderValue>,
    assets: Arc<Assets>,
    timeout: Duration,
    freezes: bool,
    /// Calls in a row that decided nothing. A single transfer that the engine chokes on does not make it unreachable.
    undecided: AtomicU32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHttpLeg {
    #[error("the engine's address must be http://… or https://… without a query")]
    Url,
    #[error("the engine's token has characters that no header can have")]
    Token,
}

impl HttpLeg {
    /// `freezes`: the engine's withdrawal only puts the money aside, until it is committed.
    pub fn new(
        base: &str,
        token: Option<&str>,
        timeout: Duration,
        freezes: bool,
        assets: Arc<Assets>,
    ) -> Result<Self, BadHttpLeg> {
        let uri: Uri = base.parse().map_err(|_| BadHttpLeg::Url)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() || uri.query().is_some() {
            return Err(BadHttpLeg::Url);
        }
        let authorization = token
            .map(|token| {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| BadHttpLeg::Token)?;
                value.set_sensitive(true);
                Ok(value)
            })
            .transpose()?;
        let connector = HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(CONCURRENCY)
            .build(connector);
        let base = base.trim_end_matches('/').to_owned();
        // Nobody has reached it yet, so it is doubtful at first.
        let undecided = AtomicU32::new(DOUBTFUL);
        Ok(Self { client, base, authorization, assets, timeout, freezes, undecided })
    }

    async fn exchange(&self, method: Method, path: &str, body: String) -> Result<(StatusCode, Bytes), Reason> {
        let unsent = |_| Reason::new("LEG_UNREACHABLE", "the call could not be made");
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}/{path}", self.base))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(unsent)?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let exchange = async {
            let lost = || Reason::new("LEG_UNREACHABLE", "the engine could not be reached, or hung up");
            let response = self.client.request(request).await.map_err(|_| lost())?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(|_| lost())?;
            Ok((parts.status, body.to_bytes()))
        };
        tokio::time::timeout(self.timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(Reason::new("LEG_TIMEOUT", "the engine did not answer in time")))
    }

    async fn call_one(&self, call: &Call) -> Answer {
        if let Err(reason) = sane(call.amount, call.asset) {
            return Answer::Pending(reason);
        }
        let assets = self.assets.all();
        let Some(asset) = assets.get(&call.asset) else {
            return Answer::Pending(Reason::new("INVALID_ASSET", "the asset is not known here"));
        };
        let path = match call.verb {
            Verb::Withdraw => "withdraw",
            Verb::Deposit => "deposit",
            Verb::Commit => "commit",
            Verb::Rollback => "rollback",
        };
        let body = json!({
            "req_id": call.id.to_string(),
            // A text, as every id: a JSON number beyond 2^53 is another user to a reader that knows only floats.
            "user_id": call.user.get().to_string(),
            "asset": asset.symbol.as_str(),
            "amount": call.amount.display(asset.precision).to_string(),
        });
        let answer = match self.exchange(Method::POST, path, body.to_string()).await {
            Err(reason) => Answer::Pending(reason),
            Ok((status, body)) => judge(status, &body, call.id),
        };
        match answer {
            Answer::Pending(_) => self.undecided.fetch_add(1, Ordering::Relaxed),
            Answer::Success | Answer::Failed(_) => self.undecided.swap(0, Ordering::Relaxed),
        };
        answer
    }

    /// Asks what stands under an id that no transfer has. Any answer of the engine itself will do: what it says about the
    /// id does not matter.
    async fn probe(&self, unused: Id<id::Transfer>) -> Result<(), Trouble> {
        match self.exchange(Method::GET, &format!("query/{unused}"), String::new()).await {
            Err(reason) => Err(Trouble { code: "LEG_UNREACHABLE", words: reason.to_string() }),
            Ok((status, body)) if is_at_work(status, &body) => Ok(()),
            Ok((status, _)) => {
                let words = format!("the engine answered {status} to a query");
                Err(Trouble { code: "LEG_ANSWER_INVALID", words })
            }
        }
    }

    async fn query_one(&self, id: Id<id::Transfer>) -> Record {
        match self.exchange(Method::GET, &format!("query/{id}"), String::new()).await {
            Err(reason) => Record::Unknown(reason),
            Ok((status, body)) => judge_query(status, &body, id),
        }
    }
}

/// Does this answer to a query come from an engine that lets us in and works?
fn is_at_work(status: StatusCode, body: &[u8]) -> bool {
    let shut_out = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
    !status.is_server_error() && !shut_out && Body::read(body).is_some()
}

/// The members of an engine's answer that are read. It may have others.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    success: bool,
    rolled_back: bool,
    error: Option<String>,
    code: Option<String>,
    req_id: Option<String>,
}

impl Body {
    /// Only from a JSON object: serde would also take an array of the values.
    fn read(body: &[u8]) -> Option<Self> {
        let object = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        if object { serde_json::from_slice(body).ok() } else { None }
    }
}

/// | status | body | answer |
/// |---|---|---|
/// | 200 | `{"success": true}` | `Success` |
/// | 200, 400 | `{"error": "…"}` | `Failed`: a business refusal |
/// | anything else | | `Pending` |
fn judge(status: StatusCode, body: &[u8], id: Id<id::Transfer>) -> Answer {
    let said = Body::read(body);
    let nothing = |words: &str| Answer::Pending(Reason::foreign("LEG_ANSWER_INVALID", words));
    let Some(said) = said else { return nothing(&format!("status {status}, and no JSON object that makes sense")) };
    if said.req_id.as_ref().is_some_and(|told| *told != id.to_string()) {
        return nothing("the answer is about another transfer");
    }
    match (status, said.success, &said.error) {
        // The engine undid it without being asked to, so it is neither done nor refused: a person must look at it.
        _ if said.rolled_back => nothing("the engine says that it was rolled back"),
        (StatusCode::OK, true, None) => Answer::Success,
        (StatusCode::OK | StatusCode::BAD_REQUEST, false, Some(error)) if !error.is_empty() => {
            Answer::Failed(refusal(&said, error))
        }
        _ => nothing(&format!("status {status} with an answer that decides nothing")),
    }
}

fn judge_query(status: StatusCode, body: &[u8], id: Id<id::Transfer>) -> Record {
    let said = Body::read(body);
    let nothing = || Record::Unknown(Reason::new("LEG_ANSWER_INVALID", "the engine's answer decides nothing"));
    let Some(said) = said.filter(|said| said.req_id.as_ref().is_none_or(|told| *told == id.to_string())) else {
        return nothing();
    };
    match (status, said.rolled_back, said.success, &said.error) {
        (StatusCode::OK, true, false, None) => Record::RolledBack,
        (StatusCode::OK, false, true, None) => Record::Applied,
        (StatusCode::OK, false, false, Some(error)) => Record::Refused(refusal(&said, error)),
        (StatusCode::NOT_FOUND, false, false, Some(_)) => Record::Nothing,
        _ => nothing(),
    }
}

/// An engine's own code is passed on if users know it. Any other becomes `LEG_REFUSED`, with the engine's words.
fn refusal(said: &Body, words: &str) -> Reason {
    const KNOWN: [&str; 5] =
        ["INSUFFICIENT_BALANCE", "ACCOUNT_FROZEN", "ACCOUNT_DISABLED", "SOURCE_ACCOUNT_NOT_FOUND", "INVALID_AMOUNT"];
    let code = said.code.as_deref().and_then(|code| KNOWN.into_iter().find(|known| *known == code));
    Reason::foreign(code.unwrap_or("LEG_REFUSED"), words)
}

impl Leg for HttpLeg {
    fn call<'a>(&'a self, calls: &'a [Call]) -> Answered<'a, Vec<Answer>> {
        Box::pin(stream::iter(calls).map(|call| self.call_one(call)).buffered(CONCURRENCY).collect())
    }

    fn query<'a>(&'a self, ids: &'a [Id<id::Transfer>]) -> Answered<'a, Vec<Record>> {
        Box::pin(stream::iter(ids).map(|id| self.query_one(*id)).buffered(CONCURRENCY).collect())
    }

    fn holdings<'a>(&'a self, _of: &'a [(UserId, AssetId)]) -> Answered<'a, Option<Vec<Option<Holding>>>> {
        Box::pin(std::future::ready(None))
    }

    fn totals<'a>(&'a self, _of: &'a [AssetId]) -> Answered<'a, Option<Vec<Amount>>> {
        Box::pin(std::future::ready(None))
    }

    fn turns(&self, calls: usize) -> u32 {
        u32::try_from(calls.div_ceil(CONCURRENCY)).unwrap_or(u32::MAX)
    }

    fn reach(&self, unused: Id<id::Transfer>) -> Answered<'_, Result<(), Trouble>> {
        Box::pin(async move {
            let seen = self.undecided.load(Ordering::Relaxed);
            if seen < DOUBTFUL {
                return Ok(());
            }
            self.probe(unused).await?;
            // If more calls failed meanwhile the next look asks again.
            self.undecided.compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed).ok();
            Ok(())
        })
    }

    fn freezes(&self) -> bool {
        self.freezes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> Id<id::Transfer> {
        Id::new(7).expect("positive")
    }

    /// 003 §5.4, and the cases that it leaves open: an answer that is not clear decides nothing.
    #[test]
    fn only_a_clear_answer_decides() {
        for (status, body, expected) in [
            (200, r#"{"success": true}"#, "success"),
            (200, r#"{"success": true, "req_id": "sr-7", "more": 1}"#, "success"),
            (200, r#"{"error": "Insufficient funds"}"#, "LEG_REFUSED"),
            (200, r#"{"error": "no", "code": "INSUFFICIENT_BALANCE"}"#, "INSUFFICIENT_BALANCE"),
            (200, r#"{"error": "no", "code": "COMMITTED"}"#, "LEG_REFUSED"),
            (400, r#"{"error": "Invalid amount"}"#, "LEG_REFUSED"),
            (400, "", "pending"),
            (400, "<html>bad gateway</html>", "pending"),
            (400, r#"{"success": true}"#, "pending"),
            (200, r#"{"success": false}"#, "pending"),
            (200, r#"{"success": "true"}"#, "pending"),
            (200, r#"{"success": true, "error": "both"}"#, "pending"),
            (200, r#"{"success": true, "req_id": "sr-8"}"#, "pending"),
            // A number may have lost its last digits on the way, so it names no transfer.
            (200, r#"{"success": true, "req_id": 7}"#, "pending"),
            (200, r#"{"error": "no", "req_id": 7}"#, "pending"),
            (200, r#"{"error": "no", "req_id": "sr-8"}"#, "pending"),
            (200, "{}", "pending"),
            (200, "[]", "pending"),
            (200, "[true]", "pending"),
            (200, r#"{"success": true, "rolled_back": true}"#, "pending"),
            (200, r#"{"error": "no", "rolled_back": true}"#, "pending"),
            (200, r#"{"error": ""}"#, "pending"),
            (400, r#"{"error": ""}"#, "pending"),
            (200, "", "pending"),
            (201, r#"{"success": true}"#, "pending"),
            (202, r#"{"success": true}"#, "pending"),
            (401, r#"{"error": "token"}"#, "pending"),
            (403, r#"{"error": "no"}"#, "pending"),
            (404, r#"{"error": "no"}"#, "pending"),
            (409, r#"{"error": "no"}"#, "pending"),
            (422, r#"{"error": "no"}"#, "pending"),
            (429, r#"{"error": "slow"}"#, "pending"),
            (500, "", "pending"),
            (500, r#"{"error": "Insufficient funds"}"#, "pending"),
            (503, r#"{"success": true}"#, "pending"),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let found = match judge(status, body.as_bytes(), id()) {
                Answer::Success => "success".to_owned(),
                Answer::Failed(reason) => reason.code().to_owned(),
                Answer::Pending(_) => "pending".to_owned(),
            };
            assert_eq!(found, expected, "{status} {body}");
        }
    }

    #[test]
    fn an_engine_is_at_work_that_answers_a_query_with_its_own_words() {
        for (status, body, expected) in [
            (404, r#"{"error": "unknown"}"#, true),
            (200, r#"{"success": true}"#, true),
            (400, r#"{"error": "no such id"}"#, true),
            (404, "<html>no such page</html>", false),
            (401, r#"{"error": "token"}"#, false),
            (403, r#"{"error": "token"}"#, false),
            (500, r#"{"error": "oops"}"#, false),
            (503, "", false),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(is_at_work(status, body.as_bytes()), expected, "{status} {body}");
        }
    }

    #[test]
    fn an_address_is_checked_before_it_is_used() {
        let leg = |base: &str, token: Option<&str>| {
            HttpLeg::new(base, token, Duration::from_secs(1), false, Arc::default()).map(|_| ())
        };
        assert_eq!(leg("https://engine.example:8443/v1/", Some("t")), Ok(()));
        for bad in ["", "engine", "ftp://engine", "http://", "http://engine/?a=b"] {
            assert_eq!(leg(bad, None), Err(BadHttpLeg::Url), "{bad:?}");
        }
        assert_eq!(leg("http://engine", Some("a\nb")), Err(BadHttpLeg::Token));
    }
}
