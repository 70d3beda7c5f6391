//! Each refusal with its own cases, the vectors of the RFCs, and the tokens of another library (`tests/vectors`).

use proptest::prelude::*;
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::Unauthorized::*;
use super::*;

const NOW: i64 = 1_800_000_000;
const SECRET: [u8; 32] = [7; 32];
const OTHER_SECRET: [u8; 32] = [8; 32];
const SKEW: i64 = 30;

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT","kid":"main"}"#;
const PAYLOAD: &str = r#"{"sub":"42","iss":"login","aud":"bursar","iat":1799999990,"exp":1800000300}"#;

fn now() -> Timestamp {
    Timestamp::from_micros(NOW * SECOND)
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn signing(header: impl AsRef<[u8]>, payload: impl AsRef<[u8]>, secret: &[u8]) -> String {
    let signed = format!("{}.{}", encode(header), encode(payload));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("{signed}.{}", encode(signature))
}

fn token(header: &str, payload: &str) -> String {
    signing(header, payload, &SECRET)
}

fn ed25519() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[9; 32]).expect("a seed")
}

/// One HS256 key `main` and one Ed25519 key `ed`.
fn verifier() -> Verifier {
    let mut keys = Keys::default();
    keys.add_hs256(Some("main"), SECRET.to_vec()).expect("long enough");
    let x = encode(ed25519().public_key());
    keys.add_jwks(&json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": x}]}).to_string()).expect("good");
    Verifier::new(keys, "login", "bursar", 30)
}

fn check(cases: &[(&str, String, Result<i64, Unauthorized>)]) {
    let verifier = verifier();
    for (name, token, expected) in cases {
        let verdict = verifier.verify(token, now()).map(|identity| identity.user.get());
        assert_eq!(verdict, *expected, "{name}: {token}");
    }
}

/// The good payload with members in place of its own; `null` takes one away.
fn payload(changes: Value) -> String {
    let mut claims: Map<String, Value> = serde_json::from_str(PAYLOAD).expect("valid");
    for (name, value) in changes.as_object().expect("an object") {
        if value.is_null() {
            claims.remove(name)
        } else {
            claims.insert(name.clone(), value.clone())
        };
    }
    Value::Object(claims).to_string()
}

#[test]
fn headers_are_taken_or_refused() {
    let case = |name, header: &str, expected| (name, token(header, PAYLOAD), expected);
    check(&[
        case("plain", HEADER, Ok(42)),
        case("no type", r#"{"alg":"HS256","kid":"main"}"#, Ok(42)),
        case("type in small letters", r#"{"alg":"HS256","kid":"main","typ":"jwt"}"#, Ok(42)),
        case("access token", r#"{"alg":"HS256","kid":"main","typ":"At+Jwt"}"#, Ok(42)),
        case("no kid, one key of the algorithm", r#"{"alg":"HS256"}"#, Ok(42)),
        case("unknown member", r#"{"alg":"HS256","jku":"https://evil.example","x5c":[]}"#, Ok(42)),
        case("none", r#"{"alg":"none","kid":"main"}"#, Err(UnsupportedAlgorithm)),
        case("None", r#"{"alg":"None"}"#, Err(UnsupportedAlgorithm)),
        case("no algorithm", r#"{"kid":"main"}"#, Err(UnsupportedAlgorithm)),
        case("algorithm in small letters", r#"{"alg":"hs256"}"#, Err(UnsupportedAlgorithm)),
        case("algorithm is null", r#"{"alg":null}"#, Err(UnsupportedAlgorithm)),
        case("algorithm is a list", r#"{"alg":["HS256"]}"#, Err(UnsupportedAlgorithm)),
        case("HS512", r#"{"alg":"HS512"}"#, Err(UnsupportedAlgorithm)),
        case("unknown kid", r#"{"alg":"HS256","kid":"Main"}"#, Err(UnknownKey)),
        case("empty kid", r#"{"alg":"HS256","kid":""}"#, Err(UnknownKey)),
        case("kid is null", r#"{"alg":"HS256","kid":null}"#, Err(BadKeyId)),
        case("kid is a number", r#"{"alg":"HS256","kid":1}"#, Err(BadKeyId)),
        case("no key of the algorithm", r#"{"alg":"RS256"}"#, Err(NoSuchKey)),
        case("another key's algorithm", r#"{"alg":"HS256","kid":"ed"}"#, Err(AlgorithmMismatch)),
        case("another algorithm than the key's", r#"{"alg":"EdDSA","kid":"main"}"#, Err(AlgorithmMismatch)),
        case("HMAC said to be EdDSA", r#"{"alg":"EdDSA","kid":"ed"}"#, Err(BadSignature)),
        case("critical", r#"{"alg":"HS256","crit":["exp"]}"#, Err(CriticalHeader)),
        case("critical, empty", r#"{"alg":"HS256","crit":[]}"#, Err(CriticalHeader)),
        case("critical, null", r#"{"alg":"HS256","crit":null}"#, Err(CriticalHeader)),
        case("other type", r#"{"alg":"HS256","typ":"JOSE"}"#, Err(WrongType)),
        case("logout", r#"{"alg":"HS256","typ":"logout+jwt"}"#, Err(WrongType)),
        case("empty type", r#"{"alg":"HS256","typ":""}"#, Err(WrongType)),
        case("type is null", r#"{"alg":"HS256","typ":null}"#, Err(WrongType)),
        case("algorithm twice", r#"{"alg":"HS256","alg":"HS256"}"#, Err(BadHeader)),
        case("kid twice", r#"{"alg":"HS256","kid":"main","kid":"ed"}"#, Err(BadHeader)),
        case("twice, deeper", r#"{"alg":"HS256","a":{"b":1,"b":1}}"#, Err(BadHeader)),
        case("not JSON", "alg", Err(BadHeader)),
        case("nothing", "", Err(BadHeader)),
        case("a list", "[]", Err(BadHeader)),
        case("more after it", r#"{"alg":"HS256"}{}"#, Err(BadHeader)),
    ]);
}

#[test]
fn claims_are_taken_or_refused() {
    let case = |name, changes, expected| (name, token(HEADER, &payload(changes)), expected);
    check(&[
        case("only what is required", json!({"iat": null}), Ok(42)),
        case("audience in a list", json!({"aud": ["a", "bursar"]}), Ok(42)),
        case("last user", json!({"sub": "9223372036854775807"}), Ok(i64::MAX)),
        case("no subject", json!({"sub": null}), Err(BadSubject)),
        case("subject is a number", json!({"sub": 42}), Err(BadSubject)),
        case("empty subject", json!({"sub": ""}), Err(BadSubject)),
        case("the house", json!({"sub": "0"}), Err(BadSubject)),
        case("leading zero", json!({"sub": "042"}), Err(BadSubject)),
        case("plus", json!({"sub": "+42"}), Err(BadSubject)),
        case("minus", json!({"sub": "-42"}), Err(BadSubject)),
        case("space", json!({"sub": " 42"}), Err(BadSubject)),
        case("too great", json!({"sub": "9223372036854775808"}), Err(BadSubject)),
        case("other digits", json!({"sub": "٤٢"}), Err(BadSubject)),
        case("no issuer", json!({"iss": null}), Err(WrongIssuer)),
        case("other issuer", json!({"iss": "Login"}), Err(WrongIssuer)),
        case("issuers", json!({"iss": ["login"]}), Err(WrongIssuer)),
        case("no audience", json!({"aud": null}), Err(WrongAudience)),
        case("other audience", json!({"aud": "bursar2"}), Err(WrongAudience)),
        case("empty audiences", json!({"aud": []}), Err(WrongAudience)),
        case("other audiences", json!({"aud": ["a", "b"]}), Err(WrongAudience)),
        case("audiences not all texts", json!({"aud": ["bursar", 1]}), Err(WrongAudience)),
        case("audience deeper", json!({"aud": [["bursar"]]}), Err(WrongAudience)),
        case("audience is an object", json!({"aud": {"bursar": "bursar"}}), Err(WrongAudience)),
        case("no expiry", json!({"exp": null}), Err(NoExpiry)),
        case("expired", json!({"exp": 1}), Err(Expired)),
        case("negative expiry", json!({"exp": -1}), Err(Expired)),
        case("text as expiry", json!({"exp": "1800000300"}), Err(BadTime)),
        case("list as not before", json!({"nbf": []}), Err(BadTime)),
        case("true as issue", json!({"iat": true}), Err(BadTime)),
        case("expiry after all time", json!({"exp": i64::MAX}), Err(BadTime)),
        case("expiry beyond i64", json!({"exp": u64::MAX}), Err(BadTime)),
    ]);
    let raw = |name, payload: &str, expected| (name, token(HEADER, payload), expected);
    check(&[
        raw("null is no time", &PAYLOAD.replace("1800000300", "null"), Err(BadTime)),
        raw("subject twice", &PAYLOAD.replace(r#""iss""#, r#""sub":"43","iss""#), Err(BadPayload)),
        raw("expiry twice", &PAYLOAD.replace(r#""iss""#, r#""exp":1800000300,"iss""#), Err(BadPayload)),
        raw("not JSON", "sub=42", Err(BadPayload)),
        raw("nothing", "", Err(BadPayload)),
        raw("a text", r#""42""#, Err(BadPayload)),
    ]);
}

#[test]
fn times_are_compared_to_the_microsecond() {
    let (verifier, second) = (verifier(), Timestamp::from_micros);
    let verify = |changes, now| verifier.verify(&token(HEADER, &payload(changes)), now).map(|_| ());
    let after = json!({"exp": NOW, "iat": null});
    assert_eq!(verify(after.clone(), second((NOW + SKEW) * SECOND - 1)), Ok(()));
    assert_eq!(verify(after, second((NOW + SKEW) * SECOND)), Err(Expired), "the end is excluded");
    for (name, refusal) in [("nbf", NotYetValid), ("iat", IssuedInFuture)] {
        let before = json!({"iat": null, name: NOW});
        assert_eq!(verify(before.clone(), second((NOW - SKEW) * SECOND - 1)), Err(refusal));
        assert_eq!(verify(before, second((NOW - SKEW) * SECOND)), Ok(()), "the beginning is included");
    }
    // No clock breaks it.
    assert_eq!(verify(json!({}), second(i64::MAX)), Err(Expired));
    assert_eq!(verify(json!({}), second(i64::MIN)), Err(IssuedInFuture));
}

#[test]
fn fractions_are_cut_after_the_microseconds() {
    let micros = |text: &str| micros(&serde_json::from_str::<Number>(text).expect("a number"));
    for (text, expected) in [
        ("0", Some(0)),
        ("-7", Some(-7_000_000)),
        ("1800000000", Some(1_800_000_000_000_000)),
        ("1800000000.0", Some(1_800_000_000_000_000)),
        ("1.8e9", Some(1_800_000_000_000_000)),
        ("1800000000.5", Some(1_800_000_000_500_000)),
        ("1800000000.25", Some(1_800_000_000_250_000)),
        ("0.0000019", None),
        ("0.1234569", Some(123_456)),
        ("-0.5", None),
        ("-0.0", None),
        ("1e300", None),
        ("9223372036854.0", Some(9_223_372_036_854_000_000)),
        ("9223372036855", None),
        ("9223372036855.0", None),
        ("18446744073709551616", None),
    ] {
        assert_eq!(micros(text), expected, "{text}");
    }
}

#[test]
fn a_token_has_one_spelling() {
    let good = token(HEADER, PAYLOAD);
    let (signed, signature) = good.rsplit_once('.').expect("three parts");
    let (header, body) = signed.split_once('.').expect("three parts");
    // 32 bytes take 43 characters, the last of which carries 4 bits: the other 2 must be zero.
    let spelled_otherwise = format!("{signed}.{}{}", &signature[..42], char::from(signature.as_bytes()[42] + 1));
    check(&[
        ("good", good.clone(), Ok(42)),
        ("nothing", String::new(), Err(NotThreeParts)),
        ("one part", header.to_owned(), Err(NotThreeParts)),
        ("two parts", signed.to_owned(), Err(NotThreeParts)),
        ("four parts", format!("{good}."), Err(NotThreeParts)),
        ("four parts, the first empty", format!(".{good}"), Err(NotThreeParts)),
        ("empty parts", "..".to_owned(), Err(BadHeader)),
        ("no signature", format!("{signed}."), Err(BadSignature)),
        ("signature of another text", format!("{header}.{}.{signature}", encode("{}")), Err(BadSignature)),
        ("another secret", signing(HEADER, PAYLOAD, &OTHER_SECRET), Err(BadSignature)),
        ("signature cut", good[..good.len() - 3].to_owned(), Err(BadSignature)),
        ("signature longer", format!("{good}AAAA"), Err(BadSignature)),
        ("padding", format!("{good}="), Err(BadEncoding)),
        ("padding in front", format!("{header}=.{body}.{signature}"), Err(BadEncoding)),
        ("bits after the last byte", spelled_otherwise, Err(BadEncoding)),
        ("space", format!("{good} "), Err(BadEncoding)),
        ("line break within", format!("{header}.{body}\n.{signature}"), Err(BadEncoding)),
        ("standard alphabet", format!("{header}.{body}.+/{}", &signature[2..]), Err(BadEncoding)),
        ("not ASCII", format!("{good}é"), Err(BadEncoding)),
        ("too long", format!("{good}{}", "A".repeat(MAX_TOKEN_BYTES)), Err(TooLong)),
    ]);
    // To the byte. Base64 leaves lengths out, so the header is longer by a blank now and then.
    let of_length = |length| {
        let fill = |number: usize| payload(json!({ "fill": "x".repeat(number) }));
        let tokens = (2_500..3_100)
            .flat_map(|number| [HEADER.to_owned(), format!("{HEADER} ")].map(|header| token(&header, &fill(number))));
        tokens.into_iter().find(|token| token.len() == length).expect("some length fits")
    };
    check(&[
        ("the longest", of_length(MAX_TOKEN_BYTES), Ok(42)),
        ("one longer", of_length(MAX_TOKEN_BYTES + 1), Err(TooLong)),
    ]);
}

#[test]
fn no_changed_token_passes() {
    let signed = format!("{}.{}", encode(r#"{"alg":"EdDSA","kid":"ed"}"#), encode(PAYLOAD));
    let ed25519 = format!("{signed}.{}", encode(ed25519().sign(signed.as_bytes())));
    let verifier = verifier();
    for good in [token(HEADER, PAYLOAD), ed25519] {
        assert!(verifier.verify(&good, now()).is_ok());
        for place in 0..good.len() {
            for character in "A_.=z0".chars().filter(|character| !good[place..].starts_with(*character)) {
                let mut changed = good.clone();
                changed.replace_range(place..=place, &character.to_string());
                assert!(verifier.verify(&changed, now()).is_err(), "{changed}");
            }
            assert!(verifier.verify(&good[..place], now()).is_err());
        }
    }
}

#[test]
fn a_token_without_a_kid_needs_the_only_key() {
    let mut keys = Keys::default();
    keys.add_hs256(Some("a"), SECRET.to_vec()).expect("long enough");
    keys.add_hs256(Some("b"), OTHER_SECRET.to_vec()).expect("long enough");
    let two = Verifier::new(keys, "login", "bursar", 0);
    assert_eq!(two.verify(&token(r#"{"alg":"HS256"}"#, PAYLOAD), now()), Err(KeyNotNamed));
    assert!(two.verify(&token(r#"{"alg":"HS256","kid":"a"}"#, PAYLOAD), now()).is_ok());
    assert_eq!(two.verify(&token(r#"{"alg":"HS256","kid":"b"}"#, PAYLOAD), now()), Err(BadSignature));

    let mut keys = Keys::default();
    keys.add_hs256(None, SECRET.to_vec()).expect("long enough");
    let nameless = Verifier::new(keys, "login", "bursar", 0);
    assert!(nameless.verify(&token(r#"{"alg":"HS256"}"#, PAYLOAD), now()).is_ok());
    assert_eq!(nameless.verify(&token(r#"{"alg":"HS256","kid":"a"}"#, PAYLOAD), now()), Err(UnknownKey));

    let none = Verifier::new(Keys::default(), "login", "bursar", 0);
    assert_eq!(none.verify(&token(r#"{"alg":"HS256"}"#, PAYLOAD), now()), Err(NoSuchKey));
}

#[test]
fn the_authorization_header_is_bearer_one_space_and_a_token() {
    let (verifier, good) = (verifier(), token(HEADER, PAYLOAD));
    let user = UserId::new(42).expect("positive");
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
        let value = format!("{scheme} {good}");
        assert_eq!(verifier.verify_header(Some(value.as_bytes()), now()), Ok(Identity { user }), "{scheme}");
    }
    assert_eq!(verifier.verify_header(None, now()), Err(Missing));
    for value in [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Basic YTpi".to_owned(),
        good.clone(),
        format!("Bearer{good}"),
        format!("Bearer  {good}"),
        format!("Bearer\t{good}"),
        format!(" Bearer {good}"),
        format!("Bearer {good} "),
        format!("Bearer {good} {good}"),
        format!("Bearer {good}, Bearer {good}"),
        format!("Bearer {good}é"),
    ] {
        assert_eq!(verifier.verify_header(Some(value.as_bytes()), now()), Err(NotBearer), "{value:?}");
    }
    assert_eq!(verifier.verify_header(Some(b"Bearer \xff\xfe"), now()), Err(NotBearer));
    assert_eq!(verifier.verify_header(Some(b"Bearer x"), now()), Err(NotThreeParts));
}

/// The payloads of the RFCs lack a user or are not JSON: reaching that refusal means that the signature was right.
#[test]
fn the_signatures_of_the_rfcs_verify() {
    let vectors: Value = serde_json::from_str(include_str!("../../tests/vectors/rfc.json")).expect("valid");
    for vector in vectors.as_array().expect("a list") {
        let text = |name: &str| vector[name].as_str().unwrap_or_else(|| panic!("{name} of {vector}"));
        let mut keys = Keys::default();
        match vector.get("hs256") {
            Some(_) => keys.add_hs256(None, BASE64_URL_SAFE_NO_PAD.decode(text("hs256")).expect("base64")),
            None => keys.add_jwks(&json!({ "keys": [vector["jwk"]] }).to_string()),
        }
        .expect("a good key");
        let verifier = Verifier::new(keys, "joe", "", 0);
        let time = Timestamp::from_micros(1_300_819_379 * SECOND);
        let refusal = verifier.verify(text("token"), time).expect_err("without a user");
        assert_eq!(refusal.reason(), text("verdict"), "{}", text("name"));

        let (signed, signature) = text("token").rsplit_once('.').expect("three parts");
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(signature).expect("base64");
        for place in [0, bytes.len() / 2, bytes.len() - 1] {
            bytes[place] ^= 1;
            let changed = format!("{signed}.{}", encode(&bytes));
            assert_eq!(verifier.verify(&changed, time), Err(BadSignature), "{}", text("name"));
            bytes[place] ^= 1;
        }
    }
}

#[test]
fn the_tokens_of_another_library_are_judged_as_they_should() {
    let file: Value = serde_json::from_str(include_str!("../../tests/vectors/tokens.json")).expect("valid");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let number = |value: &Value| value.as_i64().expect("a number");
    let mut keys = Keys::default();
    let secret = BASE64_URL_SAFE_NO_PAD.decode(text(&file["hs256"]["secret"])).expect("base64");
    keys.add_hs256(Some(&text(&file["hs256"]["kid"])), secret).expect("long enough");
    keys.add_jwks(&file["jwks"].to_string()).expect("good keys");
    let skew = u32::try_from(number(&file["skew_seconds"])).expect("small");
    let verifier = Verifier::new(keys, text(&file["issuer"]), text(&file["audience"]), skew);
    let now = Timestamp::from_micros(number(&file["now"]) * SECOND);
    let tokens = file["tokens"].as_array().expect("a list");
    assert!(tokens.len() > 100);
    for entry in tokens {
        let verdict = verifier.verify(&text(&entry["token"]), now);
        let word = verdict.map_or_else(Unauthorized::reason, |_| "ok");
        assert_eq!(word, text(&entry["verdict"]), "{}", entry["name"]);
        if let Ok(identity) = verdict {
            assert_eq!(identity.user.get(), number(&entry["user"]), "{}", entry["name"]);
        }
    }
}

#[test]
fn a_verifier_is_shared_between_threads() {
    const fn shared<T: Send + Sync>() {}
    shared::<Verifier>();
}

proptest! {
    #[test]
    fn no_text_panics(text: String, micros: i64) {
        verifier().verify(&text, Timestamp::from_micros(micros)).ok();
    }

    #[test]
    fn no_header_panics(bytes: Vec<u8>, with_scheme: bool) {
        let value = if with_scheme { [b"Bearer ", &bytes[..]].concat() } else { bytes };
        prop_assert!(verifier().verify_header(Some(&value), now()).is_err());
    }

    #[test]
    fn no_bytes_in_parts_panic(header: Vec<u8>, payload: Vec<u8>, signature: Vec<u8>) {
        let token = format!("{}.{}.{}", encode(header), encode(payload), encode(signature));
        prop_assert!(verifier().verify(&token, now()).is_err());
    }

    /// Behind the signature, where only the issuer could do harm.
    #[test]
    fn no_signed_payload_panics(bytes: Vec<u8>, exp in "-?[0-9]{1,25}(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?") {
        prop_assert!(verifier().verify(&signing(HEADER, bytes, &SECRET), now()).is_err());
        verifier().verify(&token(HEADER, &PAYLOAD.replace("1800000300", &exp)), now()).ok();
    }
}
