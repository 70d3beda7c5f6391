//! One question about a withdrawal, over HTTP.

use std::time::Duration;

use domain::Timestamp;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use store::withdrawal::{CheckVerdict, DueCheck};

use super::SIDE_BY_SIDE;
use super::seal::{CheckKey, Question, read_answer};

/// The header that an answer is signed in.
const SEAL: &str = "bursar-check";
/// A longer answer is not read.
const MOST_BYTES: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCheckPlace {
    #[error("it must be https://…, or http://… on this machine")]
    Url,
    #[error("its secret has fewer than {} bytes", CheckKey::LEAST)]
    ShortSecret,
}

/// Where questions about withdrawals are asked. The address may hold a secret, so it is never printed.
pub struct HttpCheck {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    key: CheckKey,
    timeout: Duration,
}

impl HttpCheck {
    pub fn new(url: &str, secret: Vec<u8>, timeout: Duration) -> Result<Self, BadCheckPlace> {
        let uri: Uri = url.parse().map_err(|_| BadCheckPlace::Url)?;
        let host = uri.host().ok_or(BadCheckPlace::Url)?;
        let here = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        if !(uri.scheme_str() == Some("https") || (uri.scheme_str() == Some("http") && here)) {
            return Err(BadCheckPlace::Url);
        }
        let key = CheckKey::new(secret).ok_or(BadCheckPlace::ShortSecret)?;
        let connector = HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(SIDE_BY_SIDE)
            .build(connector);
        Ok(Self { client, uri, key, timeout })
    }

    pub(super) fn timeout_micros(&self) -> i64 {
        i64::try_from(self.timeout.as_micros()).unwrap_or(i64::MAX)
    }

    /// The verdict, its reason, and the digest of what it is about. The error says why nothing is known; nothing of what the other side wrote is in it.
    pub(super) async fn ask(
        &self,
        due: &DueCheck,
        now: Timestamp,
    ) -> Result<(CheckVerdict, String, String), &'static str> {
        let question = Question::of(due, now);
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, self.key.question(path, now, &question.nonce, &question.body))
            .body(Full::new(Bytes::from(question.body.clone())))
            .map_err(|_| "the question could not be made")?;
        let exchange = async {
            let lost = "it could not be reached, or hung up";
            let answer = self.client.request(request).await.map_err(|_| lost)?;
            // Where a redirection leads is somebody else's choice.
            if answer.status() != StatusCode::OK {
                return Err("it answered with an error");
            }
            let mut seals = answer.headers().get_all(SEAL).iter();
            let seal = seals.next().and_then(|seal| seal.to_str().ok()).map(ToOwned::to_owned);
            let only = seals.next().is_none();
            let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
            let body = body.map_err(|_| "the answer is too long, or ended before it was complete")?.to_bytes();
            let seal = seal.filter(|_| only).ok_or("the answer is not signed")?;
            if !self.key.is_answer(&question.nonce, &body, &seal) {
                return Err("the answer is not signed by whoever has the key, or is to another question");
            }
            Ok(body)
        };
        let body = tokio::time::timeout(self.timeout, exchange).await.unwrap_or(Err("there was no answer in time"))?;
        let (verdict, reason) = read_answer(due, &question, &body)?;
        Ok((verdict, reason, question.digest))
    }
}

impl std::fmt::Debug for HttpCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HttpCheck(…)")
    }
}
