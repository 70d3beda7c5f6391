//! Asks a server as an operator does, for the command line: over TLS, or on this machine.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// How long an answer may take.
const TIME: Duration = Duration::from_secs(30);
/// A longer answer is not read.
const MOST_BYTES: usize = 1 << 20;

pub struct OperatorClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    authorization: HeaderValue,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorClientError {
    #[error("the server's address must be https://…, or http://… on this machine")]
    Url,
    #[error("the token has characters that no header can have")]
    Token,
    /// Whether anything was done is not known.
    #[error("the server could not be reached, or did not answer")]
    NoAnswer,
    #[error("the server's answer is none: {0}")]
    Answer(&'static str),
    /// It said no.
    #[error("{message}")]
    Refused { status: u16, code: String, message: String },
}

impl OperatorClient {
    pub fn new(base: &str, token: &str) -> Result<Self, OperatorClientError> {
        let uri: Uri = base.parse().map_err(|_| OperatorClientError::Url)?;
        let host = uri.host().ok_or(OperatorClientError::Url)?;
        let here = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        if uri.query().is_some() || !(uri.scheme_str() == Some("https") || (uri.scheme_str() == Some("http") && here)) {
            return Err(OperatorClientError::Url);
        }
        let header = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
        let mut authorization = header.map_err(|_| OperatorClientError::Token)?;
        authorization.set_sensitive(true);
        let connector = HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build(connector);
        Ok(Self { client, base: base.trim_end_matches('/').to_owned(), authorization })
    }

    pub async fn get(&self, path: &str) -> Result<Value, OperatorClientError> {
        self.exchange(Method::GET, path, String::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, OperatorClientError> {
        self.exchange(Method::POST, path, body.to_string()).await
    }

    async fn exchange(&self, method: Method, path: &str, body: String) -> Result<Value, OperatorClientError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, self.authorization.clone())
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| OperatorClientError::Url)?;
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|_| OperatorClientError::NoAnswer)?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
            Ok((status, body.map_err(|_| OperatorClientError::NoAnswer)?.to_bytes()))
        };
        let (status, body): (StatusCode, Bytes) =
            tokio::time::timeout(TIME, exchange).await.unwrap_or(Err(OperatorClientError::NoAnswer))?;
        let body: Value = serde_json::from_slice(&body).map_err(|_| OperatorClientError::Answer("it is no JSON"))?;
        if status.is_success() {
            return Ok(body);
        }
        let text = |name: &str| body["error"][name].as_str().map(ToOwned::to_owned);
        let (Some(code), Some(message)) = (text("code"), text("message")) else {
            return Err(OperatorClientError::Answer("it is an error without a code"));
        };
        Err(OperatorClientError::Refused { status: status.as_u16(), code, message })
    }
}

impl std::fmt::Debug for OperatorClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OperatorClient(…)")
    }
}
