//! Issues tokens for the command line, the demo, benches and tests. In production a login service issues them.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use domain::operator::OperatorName;
use domain::{Timestamp, UserId};
use ring::hmac;
use serde_json::{Value, json};

use super::jwt::MAX_TOKEN_BYTES;
use super::keys::{Algorithm, KeyError, check_secret};

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub user: UserId,
    pub issuer: String,
    pub audience: String,
    /// Both are cut to whole seconds, so that a token never lives longer than asked.
    pub issued_at: Timestamp,
    pub expires_at: Timestamp,
}

/// The same of an operator's token, which opens another door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorClaims {
    pub operator: OperatorName,
    pub issuer: String,
    pub audience: String,
    pub issued_at: Timestamp,
    pub expires_at: Timestamp,
}

/// A token for the claims. It is an error if a [`Verifier`](super::Verifier) with the same secret would refuse it.
pub fn sign_hs256(secret: &[u8], kid: Option<&str>, claims: &Claims) -> Result<String, KeyError> {
    let Claims { user, issuer, audience, issued_at, expires_at } = claims;
    sign(secret, kid, &user.get().to_string(), (issuer, audience), [*issued_at, *expires_at])
}

/// The same for an operator.
pub fn sign_operator_hs256(secret: &[u8], kid: Option<&str>, claims: &OperatorClaims) -> Result<String, KeyError> {
    let OperatorClaims { operator, issuer, audience, issued_at, expires_at } = claims;
    sign(secret, kid, operator.as_str(), (issuer, audience), [*issued_at, *expires_at])
}

fn sign(
    secret: &[u8],
    kid: Option<&str>,
    subject: &str,
    (issuer, audience): (&str, &str),
    [issued, expires]: [Timestamp; 2],
) -> Result<String, KeyError> {
    check_secret(secret)?;
    let mut header = json!({ "alg": Algorithm::Hs256.name(), "typ": "JWT" });
    if let Some(kid) = kid {
        header["kid"] = kid.into();
    }
    let payload = json!({
        "sub": subject, "iss": issuer, "aud": audience, "iat": seconds(issued), "exp": seconds(expires),
    });
    let mut token = format!("{}.{}", encode(&header), encode(&payload));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), token.as_bytes());
    token.push('.');
    BASE64_URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    if token.len() > MAX_TOKEN_BYTES { Err(KeyError::LongToken { bytes: token.len() }) } else { Ok(token) }
}

fn encode(value: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
}

const fn seconds(time: Timestamp) -> i64 {
    time.micros().div_euclid(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::super::{Identity, Keys, Unauthorized, Verifier};
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn claims() -> Claims {
        Claims {
            user: UserId::new(i64::MAX).expect("positive"),
            issuer: "https://login.example/\"quoted\"".to_owned(),
            audience: "bursar".to_owned(),
            issued_at: Timestamp::from_micros(1_800_000_000_999_999),
            expires_at: Timestamp::from_micros(1_800_000_060_999_999),
        }
    }

    fn verifier(kid: Option<&str>) -> Verifier {
        let mut keys = Keys::default();
        keys.add_hs256(kid, SECRET.to_vec()).expect("long enough");
        Verifier::new(keys, claims().issuer, claims().audience, 0)
    }

    #[test]
    fn a_verifier_with_the_secret_takes_the_token() {
        for kid in [None, Some("main"), Some("")] {
            let token = sign_hs256(&SECRET, kid, &claims()).expect("signed");
            let verifier = verifier(kid);
            assert_eq!(verifier.verify(&token, claims().issued_at), Ok(Identity { user: claims().user }));
            let end = Timestamp::from_micros(1_800_000_060_000_000);
            assert!(verifier.verify(&token, end.plus_micros(-1)).is_ok());
            assert_eq!(verifier.verify(&token, end), Err(Unauthorized::Expired), "the fraction is cut off");
        }
    }

    /// A token that opened two doors was somebody's incident.
    #[test]
    fn no_token_opens_both_doors() {
        let operator: OperatorName = "ann".parse().expect("a name");
        let (user, now) = (claims().user, claims().issued_at);
        let door = |audience: &str, other: &str| {
            let mut keys = Keys::default();
            // The worst case: one key for both.
            keys.add_hs256(None, SECRET.to_vec()).expect("long enough");
            Verifier::new(keys, claims().issuer, audience, 0).beside(other)
        };
        let (customers, operators) = (door("customers", "operators"), door("operators", "customers"));
        let asked = |subject: &str, audience: &serde_json::Value| {
            let end = seconds(now) + 60;
            let payload = json!({ "sub": subject, "iss": claims().issuer, "aud": audience, "exp": end });
            let mut token = format!("{}.{}", encode(&json!({ "alg": "HS256" })), encode(&payload));
            let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &SECRET), token.as_bytes());
            token.push('.');
            BASE64_URL_SAFE_NO_PAD.encode_string(signature, &mut token);
            let header = format!("Bearer {token}").into_bytes();
            (customers.verify_header(Some(&header), now), operators.verify_operator(Some(&header), now))
        };
        let number = user.get().to_string();
        use Unauthorized::{BadSubject, NoOperator, SeveralAudiences, WrongAudience};
        assert_eq!(asked(&number, &json!("customers")), (Ok(Identity { user }), Err(WrongAudience)));
        assert_eq!(asked("ann", &json!("operators")), (Err(WrongAudience), Ok(operator)));
        assert_eq!(asked(&number, &json!("operators")), (Err(WrongAudience), Err(NoOperator)));
        assert_eq!(asked("ann", &json!("customers")), (Err(BadSubject), Err(WrongAudience)));
        for subject in [number.as_str(), "ann"] {
            let both = asked(subject, &json!(["customers", "operators"]));
            assert_eq!(both, (Err(SeveralAudiences), Err(SeveralAudiences)));
        }
        for bad in ["", "Ann", "7ann", "ann lee"] {
            assert_eq!(asked(bad, &json!("operators")).1, Err(NoOperator), "{bad:?}");
        }
        let made = OperatorClaims {
            operator: "ann".parse().expect("a name"),
            issuer: claims().issuer,
            audience: "operators".to_owned(),
            issued_at: now,
            expires_at: now.plus_micros(60_000_000),
        };
        let token = sign_operator_hs256(&SECRET, None, &made).expect("signed");
        let header = format!("Bearer {token}").into_bytes();
        assert_eq!(operators.verify_operator(Some(&header), now), Ok(made.operator));
        assert_eq!(customers.verify_header(Some(&header), now), Err(WrongAudience));
    }

    #[test]
    fn what_no_verifier_takes_is_not_signed() {
        assert!(matches!(sign_hs256(&[7; 31], None, &claims()), Err(KeyError::ShortSecret { bytes: 31 })));
        let long = Claims { issuer: "x".repeat(4_000), ..claims() };
        assert!(matches!(sign_hs256(&SECRET, None, &long), Err(KeyError::LongToken { .. })));
    }
}
