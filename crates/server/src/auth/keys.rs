//! Verification keys. Each has one algorithm and, unless it is the only one of its algorithm, a name.

use std::fmt;

use ring::{hmac, signature};
use zeroize::Zeroizing;

use super::jwks::{self, Flaw};
use super::jwt::Unauthorized;

/// RFC 7518, section 3.2: an HS256 secret is at least as long as the hash.
const MIN_SECRET_BYTES: usize = 32;

/// The algorithm of a key. There is no `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Hs256,
    Rs256,
    /// With Ed25519, the only curve that is taken.
    EdDsa,
}

impl Algorithm {
    const ALL: [Self; 3] = [Self::Hs256, Self::Rs256, Self::EdDsa];

    /// As JWT and JWKS write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::EdDsa => "EdDSA",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == text)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why keys were not taken, or a token not made. Shows names and sizes, never a secret.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("an HS256 secret has at least {MIN_SECRET_BYTES} bytes, this one has {bytes}")]
    ShortSecret { bytes: usize },
    #[error("the JWKS is not a JSON object, or a member stands twice in it")]
    NotJson(#[source] serde_json::Error),
    #[error("the JWKS has no array `keys`")]
    NoKeys,
    #[error("the JWKS has no key that verifies signatures")]
    NoUsableKey,
    #[error("keys[{index}] of the JWKS ({}): {flaw}", Named(kid.as_deref()))]
    BadKey { index: usize, kid: Option<String>, flaw: Flaw },
    #[error("two keys have the kid {kid:?}")]
    SameKid { kid: String },
    /// A token without a kid needs the only key of its algorithm, and one with a kid never means a key without.
    #[error("no token could ever name the {algorithm} key without a kid: there is another {algorithm} key")]
    Nameless { algorithm: Algorithm },
    #[error("the token would be longer than a verifier takes: {bytes} bytes")]
    LongToken { bytes: usize },
}

struct Named<'a>(Option<&'a str>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(kid) => write!(f, "kid {kid:?}"),
            None => f.write_str("no kid"),
        }
    }
}

pub(super) enum Material {
    /// The secret itself. ring does not wipe its own form of the key when it is dropped, so that form is made for each
    /// token, on the stack, at the price of two blocks of SHA-256.
    Hs256(Zeroizing<Vec<u8>>),
    /// Big endian, without leading zeros.
    Rs256 {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    Ed25519([u8; 32]),
}

pub(super) struct Key {
    pub(super) kid: Option<String>,
    pub(super) material: Material,
}

impl Key {
    pub(super) const fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Hs256(_) => Algorithm::Hs256,
            Material::Rs256 { .. } => Algorithm::Rs256,
            Material::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// HMACs are compared in constant time: how long it takes does not tell how many bytes are right.
    pub(super) fn verify(&self, signed: &[u8], signature: &[u8]) -> Result<(), Unauthorized> {
        match &self.material {
            Material::Hs256(secret) => hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed, signature),
            Material::Rs256 { modulus, exponent } => signature::RsaPublicKeyComponents { n: modulus, e: exponent }
                .verify(&signature::RSA_PKCS1_2048_8192_SHA256, signed, signature),
            Material::Ed25519(point) => {
                signature::UnparsedPublicKey::new(&signature::ED25519, point).verify(signed, signature)
            }
        }
        .map_err(|ring::error::Unspecified| Unauthorized::BadSignature)
    }
}

impl Material {
    /// Whether whoever can sign for the one can sign for the other: an RSA key is its modulus, whatever exponent is written beside it.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Hs256(one), Self::Hs256(other)) => one == other,
            (Self::Rs256 { modulus: one, .. }, Self::Rs256 { modulus: other, .. }) => one == other,
            (Self::Ed25519(one), Self::Ed25519(other)) => one == other,
            (Self::Hs256(_) | Self::Rs256 { .. } | Self::Ed25519(_), _) => false,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.algorithm(), Named(self.kid.as_deref()))
    }
}

/// The keys that tokens are checked with. Printed, it shows names and algorithms only.
#[derive(Debug, Default)]
pub struct Keys(Vec<Key>);

impl Keys {
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add_hs256(&mut self, kid: Option<&str>, secret: Vec<u8>) -> Result<(), KeyError> {
        let secret = Zeroizing::new(secret);
        check_secret(&secret)?;
        self.add(vec![Key { kid: kid.map(str::to_owned), material: Material::Hs256(secret) }])
    }

    /// All keys of a JWKS file, or none of them.
    pub fn add_jwks(&mut self, text: &str) -> Result<(), KeyError> {
        self.add(jwks::read(text)?)
    }

    fn add(&mut self, keys: Vec<Key>) -> Result<(), KeyError> {
        let before = self.0.len();
        for key in keys {
            if let Err(error) = self.check(&key) {
                self.0.truncate(before);
                return Err(error);
            }
            self.0.push(key);
        }
        Ok(())
    }

    /// Checks that with the new key every key can still be named by a token, and no token names two.
    fn check(&self, new: &Key) -> Result<(), KeyError> {
        let algorithm = new.algorithm();
        for key in &self.0 {
            match (&key.kid, &new.kid) {
                (Some(kid), Some(other)) if kid == other => return Err(KeyError::SameKid { kid: kid.clone() }),
                (Some(_), Some(_)) => {}
                (None, _) | (_, None) if key.algorithm() == algorithm => return Err(KeyError::Nameless { algorithm }),
                (None, _) | (_, None) => {}
            }
        }
        Ok(())
    }

    /// Whether a key of the one is a key of the other, under whatever kid.
    pub fn shares_with(&self, other: &Self) -> bool {
        self.0.iter().any(|key| other.0.iter().any(|one| key.material.is_same(&one.material)))
    }

    /// The key that a token names. The token's algorithm is compared with the key's, and never decides.
    pub(super) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<&Key, Unauthorized> {
        let Some(kid) = kid else {
            let mut candidates = self.0.iter().filter(|key| key.algorithm() == algorithm);
            return match (candidates.next(), candidates.next()) {
                (Some(only), None) => Ok(only),
                (Some(_), Some(_)) => Err(Unauthorized::KeyNotNamed),
                (None, _) => Err(Unauthorized::NoSuchKey),
            };
        };
        let key = self.0.iter().find(|key| key.kid.as_deref() == Some(kid)).ok_or(Unauthorized::UnknownKey)?;
        if key.algorithm() == algorithm { Ok(key) } else { Err(Unauthorized::AlgorithmMismatch) }
    }
}

pub(super) fn check_secret(secret: &[u8]) -> Result<(), KeyError> {
    if secret.len() >= MIN_SECRET_BYTES { Ok(()) } else { Err(KeyError::ShortSecret { bytes: secret.len() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"same",
        "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn secret(byte: u8) -> Vec<u8> {
        vec![byte; 32]
    }

    #[test]
    fn a_short_secret_is_refused() {
        let mut keys = Keys::default();
        for bytes in [0, 1, 31] {
            let error = keys.add_hs256(None, vec![7; bytes]).expect_err("short");
            assert!(matches!(error, KeyError::ShortSecret { bytes: shown } if shown == bytes));
        }
        assert!(keys.is_empty());
        keys.add_hs256(None, vec![7; 32]).expect("long enough");
        assert!(!keys.is_empty());
    }

    #[test]
    fn two_keys_never_share_a_kid() {
        let mut keys = Keys::default();
        keys.add_hs256(Some("same"), secret(1)).expect("first");
        let error = keys.add_hs256(Some("same"), secret(2)).expect_err("second");
        assert_eq!(error.to_string(), r#"two keys have the kid "same""#);
        assert!(matches!(keys.add_jwks(ED25519), Err(KeyError::SameKid { .. })), "across algorithms as well");
        assert_eq!(keys.0.len(), 1);
    }

    #[test]
    fn a_key_that_no_token_could_name_is_refused() {
        for (first, second) in [(None, None), (None, Some("a")), (Some("a"), None)] {
            let mut keys = Keys::default();
            keys.add_hs256(first, secret(1)).expect("first");
            let error = keys.add_hs256(second, secret(2)).expect_err("second");
            assert!(matches!(error, KeyError::Nameless { algorithm: Algorithm::Hs256 }), "{error}");
            keys.add_jwks(ED25519).expect("of another algorithm");
        }
    }

    #[test]
    fn a_key_is_the_same_under_every_name() {
        let set = |text: &str| {
            let mut keys = Keys::default();
            keys.add_jwks(text).expect("valid");
            keys
        };
        let one = set(ED25519);
        assert!(one.shares_with(&set(&ED25519.replace("same", "other"))));
        assert!(!one.shares_with(&Keys::default()) && !Keys::default().shares_with(&one));
        let (mut first, mut second, mut third) = (Keys::default(), Keys::default(), Keys::default());
        first.add_hs256(Some("a"), secret(1)).expect("first");
        second.add_hs256(None, secret(1)).expect("second");
        third.add_hs256(Some("a"), secret(2)).expect("third");
        assert!(first.shares_with(&second) && !first.shares_with(&third) && !first.shares_with(&one));
        let rsa = |modulus: u8, exponent: u8| Material::Rs256 { modulus: vec![modulus], exponent: vec![exponent] };
        assert!(rsa(7, 3).is_same(&rsa(7, 5)) && !rsa(7, 3).is_same(&rsa(9, 3)));
    }

    #[test]
    fn a_set_is_taken_whole_or_not_at_all() {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let key = |kid: &str| format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"{kid}","x":"{x}"}}"#);
        let mut keys = Keys::default();
        keys.add_hs256(Some("b"), secret(1)).expect("first");
        assert!(keys.add_jwks(&format!(r#"{{"keys":[{},{}]}}"#, key("a"), key("b"))).is_err());
        assert_eq!(keys.0.len(), 1);
        keys.add_jwks(&format!(r#"{{"keys":[{},{}]}}"#, key("a"), key("c"))).expect("no clash");
        assert_eq!(keys.0.len(), 3);
    }

    #[test]
    fn printing_shows_no_secret() {
        let mut keys = Keys::default();
        keys.add_hs256(Some("main"), b"do-not-print-me-do-not-print-me!".to_vec()).expect("long enough");
        keys.add_jwks(ED25519).expect("valid");
        assert_eq!(format!("{keys:?}"), r#"Keys([HS256 (kid "main"), EdDSA (kid "same")])"#);
    }

    #[test]
    fn algorithms_are_spelled_exactly() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::parse(algorithm.name()), Some(algorithm));
        }
        for text in ["none", "None", "hs256", "HS256 ", "HS384", "RS512", "PS256", "ES256", "Ed25519", ""] {
            assert_eq!(Algorithm::parse(text), None, "{text:?}");
        }
    }
}
