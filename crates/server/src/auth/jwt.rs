//! A token, checked from its length to its audience (RFC 7515, RFC 7519, RFC 8725).

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use domain::operator::OperatorName;
use domain::{Timestamp, UserId};
use serde_json::{Map, Number, Value};

use super::json;
use super::keys::{Algorithm, Keys};

/// A longer token is refused unread.
pub const MAX_TOKEN_BYTES: usize = 4_096;

const SECOND: i64 = 1_000_000;

/// Which customer asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub user: UserId,
}

/// Why a request has no identity, in the order in which the reasons are looked for. Shows nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthorized {
    #[error("there is no Authorization header")]
    Missing,
    #[error("the Authorization header is not `Bearer`, one space and a token")]
    NotBearer,
    #[error("the token is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    #[error("the token does not have three parts")]
    NotThreeParts,
    #[error("a part of the token is not canonical base64url without padding")]
    BadEncoding,
    #[error("the token's header is not a JSON object, or a member stands twice in it")]
    BadHeader,
    #[error("the token's header asks for an extension (`crit`)")]
    CriticalHeader,
    #[error("the token's type is neither `JWT` nor `at+jwt`")]
    WrongType,
    #[error("the token's algorithm is missing or not supported")]
    UnsupportedAlgorithm,
    #[error("the token's key id is not a text")]
    BadKeyId,
    #[error("the token's key id is unknown")]
    UnknownKey,
    #[error("the token names no key, and no key has its algorithm")]
    NoSuchKey,
    #[error("the token names no key, and several have its algorithm")]
    KeyNotNamed,
    #[error("the token's algorithm is not its key's")]
    AlgorithmMismatch,
    #[error("the token's signature does not match")]
    BadSignature,
    #[error("the token's payload is not a JSON object, or a member stands twice in it")]
    BadPayload,
    #[error("a time in the token is not a number of seconds since 1970")]
    BadTime,
    #[error("the token does not say when it expires")]
    NoExpiry,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYetValid,
    #[error("the token was issued in the future")]
    IssuedInFuture,
    #[error("the token was issued by someone else")]
    WrongIssuer,
    #[error("the token was issued for someone else")]
    WrongAudience,
    #[error("the token is for several audiences, and opens one door at most")]
    SeveralAudiences,
    #[error("the token's subject is not a user's number")]
    BadSubject,
    #[error("the token's subject is not an operator's name")]
    NoOperator,
}

impl Unauthorized {
    /// One word, for logs and metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::NotBearer => "not_bearer",
            Self::TooLong => "too_long",
            Self::NotThreeParts => "not_three_parts",
            Self::BadEncoding => "bad_encoding",
            Self::BadHeader => "bad_header",
            Self::CriticalHeader => "critical_header",
            Self::WrongType => "wrong_type",
            Self::UnsupportedAlgorithm => "unsupported_algorithm",
            Self::BadKeyId => "bad_key_id",
            Self::UnknownKey => "unknown_key",
            Self::NoSuchKey => "no_such_key",
            Self::KeyNotNamed => "key_not_named",
            Self::AlgorithmMismatch => "algorithm_mismatch",
            Self::BadSignature => "bad_signature",
            Self::BadPayload => "bad_payload",
            Self::BadTime => "bad_time",
            Self::NoExpiry => "no_expiry",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::IssuedInFuture => "issued_in_future",
            Self::WrongIssuer => "wrong_issuer",
            Self::WrongAudience => "wrong_audience",
            Self::SeveralAudiences => "several_audiences",
            Self::BadSubject => "bad_subject",
            Self::NoOperator => "no_operator",
        }
    }
}

/// Checks tokens. Nothing in a payload is read before the signature over it is verified.
#[derive(Debug)]
pub struct Verifier {
    keys: Keys,
    issuer: String,
    audience: String,
    /// Of another door. A token that names it too is refused.
    other_door: Option<String>,
    skew_micros: i64,
}

impl Verifier {
    /// The skew is how far the issuer's clock may be from ours, in either direction.
    pub fn new(keys: Keys, issuer: impl Into<String>, audience: impl Into<String>, skew_seconds: u32) -> Self {
        let skew_micros = i64::from(skew_seconds) * SECOND;
        Self { keys, issuer: issuer.into(), audience: audience.into(), other_door: None, skew_micros }
    }

    /// A token that is also for this audience is refused: it would open two doors.
    pub fn beside(mut self, other_door: impl Into<String>) -> Self {
        self.other_door = Some(other_door.into());
        self
    }

    /// The value of a request's only Authorization header: the scheme in any case, one space, the token.
    pub fn verify_header(&self, authorization: Option<&[u8]>, now: Timestamp) -> Result<Identity, Unauthorized> {
        self.verify(Self::token_of(authorization)?, now)
    }

    /// The same for an operator's token.
    pub fn verify_operator(&self, authorization: Option<&[u8]>, now: Timestamp) -> Result<OperatorName, Unauthorized> {
        let subject = self.subject(Self::token_of(authorization)?, now)?;
        subject.and_then(|subject| subject.parse().ok()).ok_or(Unauthorized::NoOperator)
    }

    fn token_of(authorization: Option<&[u8]>) -> Result<&str, Unauthorized> {
        let value = authorization.ok_or(Unauthorized::Missing)?;
        let (scheme, token) = value.split_at_checked(b"Bearer ".len()).ok_or(Unauthorized::NotBearer)?;
        let is_token = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
        if !scheme.eq_ignore_ascii_case(b"Bearer ") || !is_token {
            return Err(Unauthorized::NotBearer);
        }
        str::from_utf8(token).map_err(|_| Unauthorized::NotBearer)
    }

    pub fn verify(&self, token: &str, now: Timestamp) -> Result<Identity, Unauthorized> {
        let subject = self.subject(token, now)?;
        subject.as_deref().and_then(user).map(|user| Identity { user }).ok_or(Unauthorized::BadSubject)
    }

    /// Whose it is, once all else is verified. `None`: it does not say so in a text.
    fn subject(&self, token: &str, now: Timestamp) -> Result<Option<String>, Unauthorized> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Unauthorized::TooLong);
        }
        let parts = Parts::of(token)?;
        let header = Header::read(&parts.header)?;
        let key = self.keys.find(header.kid.as_deref(), header.algorithm)?;
        key.verify(parts.signed, &parts.signature)?;
        let claims = json::object(&parts.payload).map_err(|_| Unauthorized::BadPayload)?;
        self.check_times(&claims, now)?;
        self.check_parties(&claims)?;
        Ok(claims.get("sub").and_then(Value::as_str).map(ToOwned::to_owned))
    }

    fn check_times(&self, claims: &Map<String, Value>, now: Timestamp) -> Result<(), Unauthorized> {
        let (expires, not_before, issued) = (time(claims, "exp")?, time(claims, "nbf")?, time(claims, "iat")?);
        let earliest = now.plus_micros(-self.skew_micros);
        let latest = now.plus_micros(self.skew_micros);
        // At the second of its expiry a token is already worth nothing (RFC 7519, section 4.1.4).
        if expires.ok_or(Unauthorized::NoExpiry)? <= earliest {
            return Err(Unauthorized::Expired);
        }
        if not_before.is_some_and(|time| time > latest) {
            return Err(Unauthorized::NotYetValid);
        }
        if issued.is_some_and(|time| time > latest) {
            return Err(Unauthorized::IssuedInFuture);
        }
        Ok(())
    }

    fn check_parties(&self, claims: &Map<String, Value>) -> Result<(), Unauthorized> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return Err(Unauthorized::WrongIssuer);
        }
        let meant = match claims.get("aud") {
            Some(Value::String(audience)) => *audience == self.audience,
            Some(Value::Array(audiences)) => {
                audiences.iter().all(Value::is_string) && audiences.iter().any(|audience| *audience == self.audience)
            }
            _ => false,
        };
        let listed = claims.get("aud").and_then(Value::as_array);
        let names = |other: &str| listed.is_some_and(|listed| listed.iter().any(|audience| audience == other));
        if meant && self.other_door.as_deref().is_some_and(names) {
            return Err(Unauthorized::SeveralAudiences);
        }
        if meant { Ok(()) } else { Err(Unauthorized::WrongAudience) }
    }
}

/// The three parts, and what the signature is over.
struct Parts<'a> {
    header: Vec<u8>,
    payload: Vec<u8>,
    signature: Vec<u8>,
    signed: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Result<Self, Unauthorized> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Unauthorized::NotThreeParts)?;
        let (header, payload) = signed.split_once('.').ok_or(Unauthorized::NotThreeParts)?;
        if payload.contains('.') {
            return Err(Unauthorized::NotThreeParts);
        }
        // This engine refuses padding, and bits after the last byte: each token has one spelling.
        let decode = |part| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| Unauthorized::BadEncoding);
        let (header, payload, signature) = (decode(header)?, decode(payload)?, decode(signature)?);
        Ok(Self { header, payload, signature, signed: signed.as_bytes() })
    }
}

/// What a token says of itself, before its signature is checked.
struct Header {
    algorithm: Algorithm,
    kid: Option<String>,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, Unauthorized> {
        let mut members = json::object(bytes).map_err(|_| Unauthorized::BadHeader)?;
        // No extension is known here, and a critical one must not be ignored.
        if members.contains_key("crit") {
            return Err(Unauthorized::CriticalHeader);
        }
        // Tokens for other things, such as `logout+jwt` or `dpop+jwt`, may be signed by the same key.
        let is_ours = |typ: &str| ["JWT", "at+jwt"].iter().any(|ours| typ.eq_ignore_ascii_case(ours));
        if !members.get("typ").is_none_or(|typ| typ.as_str().is_some_and(is_ours)) {
            return Err(Unauthorized::WrongType);
        }
        let algorithm = members.get("alg").and_then(Value::as_str).and_then(Algorithm::parse);
        let algorithm = algorithm.ok_or(Unauthorized::UnsupportedAlgorithm)?;
        let kid = match members.remove("kid") {
            None => None,
            Some(Value::String(kid)) => Some(kid),
            Some(_) => return Err(Unauthorized::BadKeyId),
        };
        Ok(Self { algorithm, kid })
    }
}

fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, Unauthorized> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::Number(number)) => {
            micros(number).map(Timestamp::from_micros).map(Some).ok_or(Unauthorized::BadTime)
        }
        Some(_) => Err(Unauthorized::BadTime),
    }
}

/// Some issuers write seconds with a fraction: these are read from the number's text and cut after the microseconds. A
/// number whose text has a sign or an exponent is not a time.
fn micros(seconds: &Number) -> Option<i64> {
    if let Some(whole) = seconds.as_i64() {
        return whole.checked_mul(SECOND);
    }
    let text = seconds.to_string();
    let (whole, fraction) = text.split_once('.')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<6.6}").parse().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(SECOND)?.checked_add(fraction)
}

/// Digits only and no leading zero: each user has one spelling.
fn user(subject: &str) -> Option<UserId> {
    let is_canonical = subject.bytes().all(|byte| byte.is_ascii_digit()) && !subject.starts_with('0');
    is_canonical.then(|| subject.parse().ok()).flatten().and_then(UserId::new)
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
