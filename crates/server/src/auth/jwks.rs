//! Public keys from a JWKS file (RFC 7517): Ed25519 (RFC 8037) and RSA (RFC 7518, section 6.3).
//!
//! A key that is meant to verify signatures and cannot be used is an error. If it were skipped, its tokens would be
//! refused later without an explanation.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde_json::{Map, Value};

use super::json;
use super::keys::{Algorithm, Key, KeyError, Material};

const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;
/// FIPS 186-5 asks for more than 2^16; ring verifies up to 33 bits.
const RSA_EXPONENTS: std::ops::RangeInclusive<u64> = 65_537..=(1 << 33) - 1;

/// RFC 7518, sections 6.2.2, 6.3.2 and 6.4.1.
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// The points of Ed25519 with an order of at most 8, as `y` without the sign bit; the last two are not reduced. Under
/// such a key, and an `x` of zeros is one, anyone can make signatures.
const SMALL_ORDER: [[u8; 32]; 7] = [
    [0; 32],
    ends(0x01, 0, 0),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    ends(0xec, 0xff, 0x7f),
    ends(0xed, 0xff, 0x7f),
    ends(0xee, 0xff, 0x7f),
];

const fn ends(first: u8, middle: u8, last: u8) -> [u8; 32] {
    let mut bytes = [middle; 32];
    bytes[0] = first;
    bytes[31] = last;
    bytes
}

/// What is wrong with one key of a JWKS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("not an object")]
    NotAnObject,
    #[error("`{0}` is not a text")]
    NotText(&'static str),
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("it holds the private member `{0}`: private keys do not belong in this file")]
    Private(&'static str),
    #[error("it is a shared secret (kty `oct`): private keys do not belong in this file")]
    Secret,
    #[error("`kty` is neither `OKP` nor `RSA`")]
    UnsupportedType,
    #[error("`crv` is not `Ed25519`")]
    UnsupportedCurve,
    #[error("`alg` is not `{0}`")]
    UnsupportedAlgorithm(Algorithm),
    #[error("`{0}` is not base64url without padding")]
    NotBase64(&'static str),
    #[error("`x` has {0} bytes instead of 32")]
    PointLength(usize),
    #[error("`x` is a point under which anyone can sign")]
    SmallOrder,
    #[error("`{0}` is 0 or begins with a zero byte")]
    LeadingZero(&'static str),
    #[error("`{0}` is even")]
    Even(&'static str),
    #[error("`n` has {0} bits, not 2048 to 8192")]
    ModulusSize(usize),
    #[error("`e` is not between 65537 and 2^33")]
    ExponentSize,
}

/// The keys of the set that verify signatures; at least one.
pub(super) fn read(text: &str) -> Result<Vec<Key>, KeyError> {
    let set = json::object(text.as_bytes()).map_err(KeyError::NotJson)?;
    let Some(Value::Array(entries)) = set.get("keys") else { return Err(KeyError::NoKeys) };
    let mut keys = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let found = key(entry).map_err(|flaw| {
            let kid = entry.get("kid").and_then(Value::as_str).map(str::to_owned);
            KeyError::BadKey { index, kid, flaw }
        })?;
        keys.extend(found);
    }
    if keys.is_empty() { Err(KeyError::NoUsableKey) } else { Ok(keys) }
}

/// `None` for a key that is there for something else than signatures.
fn key(entry: &Value) -> Result<Option<Key>, Flaw> {
    let members = entry.as_object().ok_or(Flaw::NotAnObject)?;
    // Whatever the key is for: readers of a file of public keys have seen the secret.
    if let Some(name) = PRIVATE_MEMBERS.into_iter().find(|name| members.contains_key(*name)) {
        return Err(Flaw::Private(name));
    }
    let kty = text(members, "kty")?.ok_or(Flaw::Missing("kty"))?;
    if kty == "oct" {
        return Err(Flaw::Secret);
    }
    if text(members, "use")?.is_some_and(|purpose| purpose != "sig") || !verifies(members)? {
        return Ok(None);
    }
    let (algorithm, material) = match kty {
        "OKP" => (Algorithm::EdDsa, Material::Ed25519(point(members)?)),
        "RSA" => (Algorithm::Rs256, rsa(members)?),
        _ => return Err(Flaw::UnsupportedType),
    };
    if text(members, "alg")?.is_some_and(|name| name != algorithm.name()) {
        return Err(Flaw::UnsupportedAlgorithm(algorithm));
    }
    Ok(Some(Key { kid: text(members, "kid")?.map(str::to_owned), material }))
}

/// `key_ops` is a longer form of `use`. A key without it may do everything.
fn verifies(members: &Map<String, Value>) -> Result<bool, Flaw> {
    match members.get("key_ops") {
        None => Ok(true),
        Some(Value::Array(operations)) => Ok(operations.iter().any(|operation| operation == "verify")),
        Some(_) => Err(Flaw::NotText("key_ops")),
    }
}

fn point(members: &Map<String, Value>) -> Result<[u8; 32], Flaw> {
    if text(members, "crv")?.ok_or(Flaw::Missing("crv"))? != "Ed25519" {
        return Err(Flaw::UnsupportedCurve);
    }
    let point = <[u8; 32]>::try_from(bytes(members, "x")?).map_err(|bytes| Flaw::PointLength(bytes.len()))?;
    let mut y = point;
    y[31] &= 0x7f;
    if SMALL_ORDER.contains(&y) { Err(Flaw::SmallOrder) } else { Ok(point) }
}

/// Refuses every key that ring would refuse, so that it fails at the start and not with every token.
fn rsa(members: &Map<String, Value>) -> Result<Material, Flaw> {
    let (modulus, exponent) = (number(members, "n")?, number(members, "e")?);
    let unused = modulus.first().map_or(0, |first| first.leading_zeros() as usize);
    let bits = modulus.len() * 8 - unused;
    if !RSA_BITS.contains(&bits) {
        return Err(Flaw::ModulusSize(bits));
    }
    if exponent.len() > 8
        || !RSA_EXPONENTS.contains(&exponent.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    {
        return Err(Flaw::ExponentSize);
    }
    Ok(Material::Rs256 { modulus, exponent })
}

/// An odd number, big endian, in as few bytes as it needs.
fn number(members: &Map<String, Value>, name: &'static str) -> Result<Vec<u8>, Flaw> {
    let bytes = bytes(members, name)?;
    match (bytes.first(), bytes.last()) {
        (None | Some(0), _) | (_, None) => Err(Flaw::LeadingZero(name)),
        (Some(_), Some(last)) if last % 2 == 0 => Err(Flaw::Even(name)),
        (Some(_), Some(_)) => Ok(bytes),
    }
}

fn bytes(members: &Map<String, Value>, name: &'static str) -> Result<Vec<u8>, Flaw> {
    let text = text(members, name)?.ok_or(Flaw::Missing(name))?;
    BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| Flaw::NotBase64(name))
}

fn text<'a>(members: &'a Map<String, Value>, name: &'static str) -> Result<Option<&'a str>, Flaw> {
    members.get(name).map(|value| value.as_str().ok_or(Flaw::NotText(name))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn base64(bytes: impl AsRef<[u8]>) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// An odd number of so many bits.
    fn modulus(bits: usize) -> String {
        let mut bytes = vec![0xff; bits.div_ceil(8)];
        bytes[0] >>= bytes.len() * 8 - bits;
        base64(bytes)
    }

    fn rsa_key(n: &str, e: &str) -> String {
        format!(r#"{{"kty":"RSA","alg":"RS256","use":"sig","kid":"r","n":"{n}","e":"{e}"}}"#)
    }

    fn ed25519(rest: &str) -> String {
        format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}"{rest}}}"#)
    }

    fn set(keys: &[String]) -> String {
        format!(r#"{{"keys":[{}]}}"#, keys.join(","))
    }

    fn flaw(key: &str) -> Flaw {
        match read(&set(&[key.to_owned()])) {
            Err(KeyError::BadKey { index: 0, flaw, .. }) => flaw,
            other => panic!("{key}: {other:?}"),
        }
    }

    #[test]
    fn takes_ed25519_and_rsa_keys() {
        let keys = read(&set(&[
            ed25519(r#","kid":"e","alg":"EdDSA","use":"sig","key_ops":["verify"]"#),
            ed25519(""),
            rsa_key(&modulus(2_048), "AQAB"),
            rsa_key(&modulus(8_192), &base64([1, 0xff, 0xff, 0xff, 0xff])),
        ]))
        .expect("all good");
        assert_eq!(format!("{keys:?}"), r#"[EdDSA (kid "e"), EdDSA (no kid), RS256 (kid "r"), RS256 (kid "r")]"#);
    }

    #[test]
    fn keys_for_other_things_are_passed_over() {
        let encrypts = [
            ed25519(r#","use":"enc""#),
            ed25519(r#","key_ops":["encrypt"]"#),
            // Not even looked into.
            r#"{"kty":"EC","use":"enc"}"#.to_owned(),
        ];
        assert!(matches!(read(&set(&encrypts)), Err(KeyError::NoUsableKey)));
        let [a, b, c] = encrypts;
        assert_eq!(read(&set(&[a, b, c, ed25519("")])).expect("one is usable").len(), 1);
    }

    #[test]
    fn what_is_no_set_of_keys_is_refused() {
        for text in ["{}", r#"{"keys":null}"#, r#"{"keys":{}}"#, &ed25519("")] {
            assert!(matches!(read(text), Err(KeyError::NoKeys)), "{text}");
        }
        for text in ["", "[]", "{", r#"{"keys":[],"keys":[]}"#, &set(&[ed25519(r#","crv":"Ed25519""#)])] {
            assert!(matches!(read(text), Err(KeyError::NotJson(_))), "{text}");
        }
        assert!(matches!(read(&set(&[])), Err(KeyError::NoUsableKey)));
    }

    #[test]
    fn secrets_do_not_belong_in_the_file() {
        assert_eq!(flaw(r#"{"kty":"oct"}"#), Flaw::Secret);
        for name in PRIVATE_MEMBERS {
            assert_eq!(flaw(&ed25519(&format!(r#","{name}":"c2VjcmV0""#))), Flaw::Private(name));
            assert_eq!(flaw(&ed25519(&format!(r#","use":"enc","{name}":0"#))), Flaw::Private(name), "for any use");
        }
        let error = read(&set(&[ed25519(""), ed25519(r#","kid":"b","d":"c2VjcmV0""#)])).expect_err("private");
        assert_eq!(
            error.to_string(),
            r#"keys[1] of the JWKS (kid "b"): it holds the private member `d`: private keys do not belong in this file"#
        );
        assert!(!format!("{error:?}").contains("c2VjcmV0"));
    }

    #[test]
    fn a_key_that_cannot_verify_is_refused() {
        let n = modulus(2_048);
        let mut even = vec![0xff; 256];
        even[255] = 0xfe;
        for (key, expected) in [
            ("1".to_owned(), Flaw::NotAnObject),
            ("{}".to_owned(), Flaw::Missing("kty")),
            (r#"{"kty":1}"#.to_owned(), Flaw::NotText("kty")),
            (r#"{"kty":"EC","crv":"P-256"}"#.to_owned(), Flaw::UnsupportedType),
            (r#"{"kty":"rsa"}"#.to_owned(), Flaw::UnsupportedType),
            (r#"{"kty":"OKP","x":""}"#.to_owned(), Flaw::Missing("crv")),
            (format!(r#"{{"kty":"OKP","crv":"X25519","x":"{X}"}}"#), Flaw::UnsupportedCurve),
            (r#"{"kty":"OKP","crv":"Ed25519"}"#.to_owned(), Flaw::Missing("x")),
            (r#"{"kty":"OKP","crv":"Ed25519","x":"AAAA"}"#.to_owned(), Flaw::PointLength(3)),
            (format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}="}}"#), Flaw::NotBase64("x")),
            (ed25519(r#","alg":"RS256""#), Flaw::UnsupportedAlgorithm(Algorithm::EdDsa)),
            (ed25519(r#","alg":7"#), Flaw::NotText("alg")),
            (ed25519(r#","kid":7"#), Flaw::NotText("kid")),
            (ed25519(r#","use":null"#), Flaw::NotText("use")),
            (ed25519(r#","key_ops":"verify""#), Flaw::NotText("key_ops")),
            (rsa_key(&n, "AQAB").replace("RS256", "PS256"), Flaw::UnsupportedAlgorithm(Algorithm::Rs256)),
            (rsa_key(&n, "AQAB").replace("RS256", "HS256"), Flaw::UnsupportedAlgorithm(Algorithm::Rs256)),
            (rsa_key(&modulus(1_024), "AQAB"), Flaw::ModulusSize(1_024)),
            (rsa_key(&modulus(2_047), "AQAB"), Flaw::ModulusSize(2_047)),
            (rsa_key(&modulus(8_193), "AQAB"), Flaw::ModulusSize(8_193)),
            (rsa_key(&base64(even), "AQAB"), Flaw::Even("n")),
            (rsa_key("", "AQAB"), Flaw::LeadingZero("n")),
            (rsa_key(&base64([[0; 256], [0xff; 256]].concat()), "AQAB"), Flaw::LeadingZero("n")),
            (rsa_key("n=", "AQAB"), Flaw::NotBase64("n")),
            (rsa_key(&n, ""), Flaw::LeadingZero("e")),
            (rsa_key(&n, "AAEAAQ"), Flaw::LeadingZero("e")),
            (rsa_key(&n, "Aw"), Flaw::ExponentSize),
            (rsa_key(&n, &base64([2, 0, 0, 0, 1])), Flaw::ExponentSize),
            (rsa_key(&n, &base64([1; 9])), Flaw::ExponentSize),
            (rsa_key(&n, &base64([1, 0, 0])), Flaw::Even("e")),
            (r#"{"kty":"RSA","e":"AQAB"}"#.to_owned(), Flaw::Missing("n")),
        ] {
            assert_eq!(flaw(&key), expected, "{key}");
        }
    }

    #[test]
    fn points_under_which_anyone_can_sign_are_refused() {
        for mut point in SMALL_ORDER {
            for sign in [0, 0x80] {
                point[31] ^= sign;
                let key = ed25519("").replace(X, &base64(point));
                assert_eq!(flaw(&key), Flaw::SmallOrder, "{key}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String) {
            read(&text).ok();
        }

        #[test]
        fn no_members_panic(n in "[A-Za-z0-9_-]{0,12}", kty in "RSA|OKP|oct|EC", extra in "[a-z_]{1,7}") {
            read(&set(&[format!(
                r#"{{"kty":"{kty}","crv":"Ed25519","x":"{n}","n":"{n}","e":"{n}","{extra}":[]}}"#
            )])).ok();
        }
    }
}
