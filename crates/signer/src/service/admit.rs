//! Who asks. A stamp is checked before anything of a body is read; rights before anything is decided; and a body is read up to a limit of
//! bytes and of time.

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};

use super::Shared;
use crate::access::nonces::NotFresh;
use crate::access::stamp::{Line, Stamp};
use crate::access::{KeySecret, Rights};
use crate::digest::{Digest32, sha256};
use crate::names::KeyName;
use std::sync::PoisonError;

/// Why a call was not taken. Nothing of it was done, unless the code says otherwise.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Failed {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(super) fn malformed(why: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "SIGNER_REQUEST_MALFORMED", why.to_string())
    }

    pub(super) fn forbidden(what: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "SIGNER_FORBIDDEN", format!("this key may not {what}"))
    }
}

/// Whose call it is.
pub(super) struct Caller {
    pub(super) key: KeyName,
    pub(super) rights: Rights,
    body: Digest32,
}

impl Shared {
    /// The caller, or why it is none. A stamp counts as used as soon as it is proven.
    pub(super) fn admit(&self, parts: &Parts) -> Result<Caller, Failed> {
        let refused = || {
            let message = "the stamp is missing, is not of a known key, or does not fit the request";
            Failed::new(StatusCode::UNAUTHORIZED, "SIGNER_UNAUTHORIZED", message)
        };
        let mut headers = parts.headers.get_all(AUTHORIZATION).iter();
        let (header, second) = (headers.next(), headers.next());
        let header = header.filter(|_| second.is_none()).and_then(|value| value.to_str().ok()).ok_or_else(refused)?;
        let stamp = Stamp::parse(header).ok_or_else(refused)?;
        let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
        let line = Line { method: parts.method.as_str(), path };
        let name: KeyName = stamp.key.parse().map_err(|_| refused())?;
        let keys = self.keys();
        let Some(key) = keys.get(&name) else {
            // It takes as long as a wrong stamp of a known key.
            let other = stamp.is_of(&KeySecret::new([0; 32]), line);
            tracing::debug!(other, "a stamp of no known key");
            return Err(refused());
        };
        if !stamp.is_of(&key.secret, line) {
            return Err(refused());
        }
        let taken = {
            let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
            nonces.take(&name, stamp.time_us, stamp.nonce, self.now())
        };
        taken.map_err(|why| match why {
            NotFresh::Stale => {
                let message = "the stamp's time is more than 30 seconds from the signer's, or before its start";
                Failed::new(StatusCode::UNAUTHORIZED, "SIGNER_STAMP_STALE", message)
            }
            NotFresh::Replayed => {
                Failed::new(StatusCode::UNAUTHORIZED, "SIGNER_STAMP_REPLAYED", "the stamp was used before")
            }
            NotFresh::TooMany => busy("this key asks too often"),
        })?;
        Ok(Caller { key: name, rights: key.rights.clone(), body: stamp.body })
    }

    /// The body that the stamp was made for.
    pub(super) async fn body(&self, caller: &Caller, request: Request<Incoming>) -> Result<Bytes, Failed> {
        let most = self.limits.body_bytes;
        let too_large = || {
            let message = format!("the body may have at most {most} bytes");
            Failed::new(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", message)
        };
        let is_json = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|kind| {
            kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
        });
        if *request.method() != Method::GET && !is_json {
            let message = "the body must be JSON, and the header Content-Type must say application/json";
            return Err(Failed::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message));
        }
        // What is announced to be too long is not waited for.
        if usize::try_from(request.body().size_hint().lower()).map_or(true, |announced| announced > most) {
            return Err(too_large());
        }
        let collected = Limited::new(request.into_body(), most).collect();
        let bytes = match tokio::time::timeout(self.limits.body_time, collected).await {
            Err(_) => {
                let message = "the body did not arrive in time";
                return Err(Failed::new(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", message));
            }
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Ok(Err(_)) => return Err(Failed::malformed("the body ended before it was complete")),
        };
        if sha256(&bytes) != caller.body {
            let message = "the body is not the one that the stamp was made for";
            return Err(Failed::new(StatusCode::UNAUTHORIZED, "SIGNER_UNAUTHORIZED", message));
        }
        Ok(bytes)
    }
}

pub(super) fn busy(why: &str) -> Failed {
    Failed::new(StatusCode::SERVICE_UNAVAILABLE, "SIGNER_BUSY", why)
}

pub(super) fn stopped() -> Failed {
    let message = "the signer is stopping or has stopped; nothing of this call was decided";
    Failed::new(StatusCode::SERVICE_UNAVAILABLE, "SIGNER_STOPPED", message)
}

pub(super) fn unknown() -> Failed {
    let message = "the log failed meanwhile: whether it was signed is known after the next start";
    Failed::new(StatusCode::SERVICE_UNAVAILABLE, "SIGNER_OUTCOME_UNKNOWN", message)
}
