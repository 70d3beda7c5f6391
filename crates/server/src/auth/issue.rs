//! Issues tokens for the command line, the demo, benches and tests. In production a login service issues them.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
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

/// A token for the claims. It is an error if a [`Verifier`](super::Verifier) with the same secret would refuse it.
pub fn sign_hs256(secret: &[u8], kid: Option<&str>, claims: &Claims) -> Result<String, KeyError> {
    check_secret(secret)?;
    let mut header = json!({ "alg": Algorithm::Hs256.name(), "typ": "JWT" });
    if let Some(kid) = kid {
        header["kid"] = kid.into();
    }
    let payload = json!({
        "sub": claims.user.get().to_string(),
        "iss": claims.issuer,
        "aud": claims.audience,
        "iat": seconds(claims.issued_at),
        "exp": seconds(claims.expires_at),
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

    #[test]
    fn what_no_verifier_takes_is_not_signed() {
        assert!(matches!(sign_hs256(&[7; 31], None, &claims()), Err(KeyError::ShortSecret { bytes: 31 })));
        let long = Claims { issuer: "x".repeat(4_000), ..claims() };
        assert!(matches!(sign_hs256(&SECRET, None, &long), Err(KeyError::LongToken { .. })));
    }
}
