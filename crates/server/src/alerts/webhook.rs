//! Alerts to an HTTP address: `POST` with a JSON body, which counts as taken when the answer is 2xx.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use http_body_util::Full;
use hyper::Request;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// How long the other side may take.
const TIME: Duration = Duration::from_secs(10);

/// The address may hold a secret, as those of chat services do, so it is never printed.
#[derive(Clone)]
pub struct Webhook {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be https://…, or http://… on this machine")]
pub struct BadWebhook;

impl Webhook {
    pub fn new(url: &str) -> Result<Self, BadWebhook> {
        let uri: Uri = url.parse().map_err(|_| BadWebhook)?;
        let host = uri.host().ok_or(BadWebhook)?;
        let here = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        if !(uri.scheme_str() == Some("https") || (uri.scheme_str() == Some("http") && here)) {
            return Err(BadWebhook);
        }
        let connector = HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().build();
        // No connection is kept: alerts are rare.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { client, uri })
    }

    pub async fn send(&self, body: String) -> Result<(), String> {
        let request = Request::post(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| "the request could not be made".to_owned())?;
        match tokio::time::timeout(TIME, self.client.request(request)).await {
            Err(_) => Err(format!("no answer within {} seconds", TIME.as_secs())),
            Ok(Err(_)) => Err("it could not be reached, or hung up".to_owned()),
            Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
            // Where a redirection leads is somebody else's choice.
            Ok(Ok(answer)) => Err(format!("it answered {}", answer.status().as_u16())),
        }
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Webhook(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_this_machine_in_the_clear() {
        for good in ["https://hooks.example/T/x", "http://127.0.0.1:9/x", "http://localhost", "http://[::1]:9/x"] {
            assert!(Webhook::new(good).is_ok(), "{good}");
        }
        for bad in ["", "x", "http://example.com", "http://127.0.0.1.example.com", "ftp://127.0.0.1", "/path"] {
            assert!(Webhook::new(bad).is_err(), "{bad}");
        }
        let text = format!("{:?}", Webhook::new("https://hooks.example/secret").expect("good"));
        assert!(!text.contains("secret"));
    }
}
