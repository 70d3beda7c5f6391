//! One call to a Vault. Nothing is followed, nothing is repeated, and no answer is longer than a few secrets.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use zeroize::{Zeroize, Zeroizing};

use super::VaultSettings;
use super::error::VaultError;
use super::token::Token;

/// A secret of a group has a few hundred bytes.
const MOST_BYTES: usize = 64 << 10;

pub(super) struct Client {
    hyper: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    namespace: Option<HeaderValue>,
    deadline: Duration,
}

/// What came back. It may hold a secret, and is wiped.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Zeroizing<Vec<u8>>,
}

/// Pieces joined in a buffer that never grows.
pub(super) fn form(pieces: &[&str]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(pieces.iter().map(|piece| piece.len()).sum()));
    for piece in pieces {
        text.push_str(piece);
    }
    text
}

impl Client {
    pub(super) fn new(settings: &VaultSettings) -> Result<Self, VaultError> {
        let base = base_of(&settings.address)?;
        let namespace = settings.namespace.as_deref().map(|text| {
            HeaderValue::from_str(text).map_err(|_| VaultError::Setting("the namespace is not a text for a header"))
        });
        let builder = match &settings.authorities {
            None => HttpsConnectorBuilder::new().with_webpki_roots(),
            Some(pem) => HttpsConnectorBuilder::new().with_tls_config(trusting(pem)?),
        };
        let connector = builder.https_or_http().enable_http1().build();
        let hyper = HyperClient::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { hyper, base, namespace: namespace.transpose()?, deadline: settings.deadline })
    }

    /// The path is what follows `/v1/`.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        token: Option<&Token>,
        body: Option<&[u8]>,
    ) -> Result<Answer, VaultError> {
        let mut request = Request::new(Full::new(body.map(Bytes::copy_from_slice).unwrap_or_default()));
        *request.method_mut() = method;
        let uri = format!("{}/v1/{path}", self.base);
        *request.uri_mut() = uri.parse().map_err(|_| VaultError::Setting("the path is none"))?;
        let headers = request.headers_mut();
        // A Vault refuses calls without it when it is told to: a browser cannot be made to send it.
        headers.insert("x-vault-request", HeaderValue::from_static("true"));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(token) = token {
            headers.insert("x-vault-token", token.header()?);
        }
        if let Some(namespace) = &self.namespace {
            headers.insert("x-vault-namespace", namespace.clone());
        }
        match tokio::time::timeout(self.deadline, self.exchange(request, path)).await {
            Ok(answer) => answer,
            Err(_) => Err(VaultError::Unreachable { why: "it did not answer in time".to_owned() }),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, path: &str) -> Result<Answer, VaultError> {
        let response = self.hyper.request(request).await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        let mut incoming = response.into_body();
        let mut body = Zeroizing::new(Vec::with_capacity(MOST_BYTES));
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame.map_err(|error| unreachable(&error))?.into_data() else { continue };
            if body.len() + data.len() > MOST_BYTES {
                return Err(VaultError::Answer { path: path.to_owned(), why: "the answer is too long" });
            }
            body.extend_from_slice(&data);
            // What hyper has read into is wiped where nobody else looks at it.
            if let Ok(mut read) = data.try_into_mut() {
                read.as_mut().zeroize();
            }
        }
        Ok(Answer { status, body })
    }
}

impl Answer {
    /// An error, unless the Vault did what it was asked.
    pub(super) fn good(&self, path: &str) -> Result<(), VaultError> {
        let path = || path.to_owned();
        match self.status {
            status if status.is_success() => Ok(()),
            StatusCode::FORBIDDEN => Err(VaultError::Forbidden { path: path() }),
            StatusCode::NOT_FOUND => Err(VaultError::Missing { path: path() }),
            StatusCode::SERVICE_UNAVAILABLE if self.says("sealed") => Err(VaultError::Sealed),
            StatusCode::BAD_REQUEST if self.says("check-and-set") => Err(VaultError::Taken { path: path() }),
            // A token is for the address that was configured, not for one that somebody sends us to.
            status if status.is_redirection() => {
                Err(VaultError::Answer { path: path(), why: "it sends us elsewhere: name the active server" })
            }
            status => Err(VaultError::Refused { path: path(), status: status.as_u16() }),
        }
    }

    pub(super) fn says(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.body[..self.body.len().min(1_024)]).to_ascii_lowercase().contains(words)
    }
}

/// The innermost cause has the words: connection refused, an unknown issuer.
fn unreachable(error: &(dyn std::error::Error + 'static)) -> VaultError {
    let innermost = std::iter::successors(Some(error), |error| error.source()).last();
    VaultError::Unreachable { why: innermost.map(ToString::to_string).unwrap_or_default() }
}

fn trusting(pem: &[u8]) -> Result<ClientConfig, VaultError> {
    let bad = || VaultError::Setting("the file of authorities has no certificate in PEM form");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(|_| bad())?).map_err(|_| bad())?;
    }
    if roots.is_empty() {
        return Err(bad());
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|_| bad())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The address without a slash at its end. Mnemonics do not leave this machine in the clear.
fn base_of(address: &str) -> Result<String, VaultError> {
    let bad = VaultError::Setting("the address is not https://host:port");
    let Ok(uri) = address.parse::<Uri>() else { return Err(bad) };
    let Some(authority) = uri.authority() else { return Err(bad) };
    if uri.query().is_some() || authority.as_str().contains('@') || address.contains('#') {
        return Err(bad);
    }
    let host = authority.host();
    let here = host == "localhost"
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if here => {}
        Some("http") => return Err(VaultError::Setting("plain http is for a Vault on this machine only")),
        _ => return Err(bad),
    }
    Ok(address.trim_end_matches('/').to_owned())
}
