//! The header that proves a request:
//!
//! `Authorization: Bursar key=<id>,time=<microseconds>,nonce=<16 to 64 of A-Z a-z 0-9 - _>,body=<SHA-256>,mac=<HMAC>`
//!
//! The HMAC-SHA256 is over these lines, each ended by a newline but the last: `bursar-signer-http-v1`, the method, the path with its
//! query, time, nonce, and the SHA-256 of the body. The secret's 32 bytes are the key. The body's hash stands in the header, so that a stranger is
//! turned away before any of a body is read.

use ring::hmac;

use super::{Credential, KeySecret};
use crate::digest::{Digest32, hex, sha256, unhex32};

const SCHEME: &str = "Bursar ";
const LABEL: &str = "bursar-signer-http-v1";
/// The longest header that can be a stamp.
const MOST: usize = 512;

/// A stamp as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp<'a> {
    pub key: &'a str,
    pub time_us: i64,
    pub nonce: &'a str,
    pub body: Digest32,
    mac: Digest32,
}

/// What is proven.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub method: &'a str,
    /// With its query.
    pub path: &'a str,
}

fn message(line: Line<'_>, time_us: i64, nonce: &str, body: &Digest32) -> String {
    format!("{LABEL}\n{}\n{}\n{time_us}\n{nonce}\n{}", line.method, line.path, hex(body))
}

fn key_of(secret: &KeySecret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.bytes())
}

/// The header's value for a request.
pub fn make(credential: &Credential, line: Line<'_>, body: &[u8], time_us: i64, nonce: &str) -> String {
    let body = sha256(body);
    let mac = hmac::sign(&key_of(&credential.secret), message(line, time_us, nonce, &body).as_bytes());
    format!("{SCHEME}key={},time={time_us},nonce={nonce},body={},mac={}", credential.key, hex(&body), hex(mac.as_ref()))
}

impl<'a> Stamp<'a> {
    /// `None`: it is none. There is one form, and nothing else is understood.
    pub fn parse(header: &'a str) -> Option<Self> {
        if header.len() > MOST {
            return None;
        }
        let mut parts = header.strip_prefix(SCHEME)?.split(',');
        let mut part = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
        let (key, time, nonce, body, mac) = (part("key")?, part("time")?, part("nonce")?, part("body")?, part("mac")?);
        let digits = !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit());
        let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if parts.next().is_some() || !digits || !(16..=64).contains(&nonce.len()) || !nonce.bytes().all(fit) {
            return None;
        }
        Some(Self { key, time_us: time.parse().ok()?, nonce, body: unhex32(body)?, mac: unhex32(mac)? })
    }

    /// Whether the secret's holder made it for this request. The comparison takes as long whatever differs.
    pub fn is_of(&self, secret: &KeySecret, line: Line<'_>) -> bool {
        let message = message(line, self.time_us, self.nonce, &self.body);
        hmac::verify(&key_of(secret), message.as_bytes(), &self.mac).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line<'_> = Line { method: "POST", path: "/v1/sign?x=1" };
    const NONCE: &str = "0123456789abcdef";

    fn credential() -> Credential {
        Credential { key: "server".parse().unwrap(), secret: KeySecret::new([7; 32]) }
    }

    /// Made by: printf 'bursar-signer-http-v1\nPOST\n/v1/sign?x=1\n5\n0123456789abcdef\n%s' "$(printf body | sha256sum | cut -d' ' -f1)" |
    /// openssl dgst -sha256 -mac HMAC -macopt hexkey:0707…
    #[test]
    fn a_stamp_is_what_openssl_makes() {
        let made = make(&credential(), LINE, b"body", 5, NONCE);
        let output = std::process::Command::new("sh")
            .arg("-c")
            .arg(
                "printf 'bursar-signer-http-v1\\nPOST\\n/v1/sign?x=1\\n5\\n0123456789abcdef\\n%s' \
                 \"$(printf body | sha256sum | cut -d' ' -f1)\" | \
                 openssl dgst -sha256 -mac HMAC -macopt hexkey:$(printf '07%.0s' $(seq 32))",
            )
            .output()
            .expect("this test needs openssl");
        let printed = String::from_utf8(output.stdout).unwrap();
        let mac = printed.trim().rsplit(' ').next().unwrap();
        assert_eq!(mac.len(), 64, "{printed}");
        assert!(made.ends_with(&format!("mac={mac}")), "{made}\n{mac}");
    }

    #[test]
    fn a_stamp_is_for_one_request_and_one_secret() {
        let header = make(&credential(), LINE, b"body", 5, NONCE);
        let stamp = Stamp::parse(&header).unwrap();
        assert_eq!((stamp.key, stamp.time_us, stamp.nonce, stamp.body), ("server", 5, NONCE, sha256(b"body")));
        let secret = credential().secret;
        assert!(stamp.is_of(&secret, LINE));
        assert!(!stamp.is_of(&KeySecret::new([8; 32]), LINE));
        assert!(!stamp.is_of(&secret, Line { method: "GET", ..LINE }));
        assert!(!stamp.is_of(&secret, Line { path: "/v1/sign", ..LINE }));
        for changed in [
            Stamp { time_us: 6, ..stamp.clone() },
            Stamp { nonce: "0123456789abcdeg", ..stamp.clone() },
            Stamp { body: sha256(b"other"), ..stamp.clone() },
        ] {
            assert!(!changed.is_of(&secret, LINE), "{changed:?}");
        }
    }

    #[test]
    fn nothing_but_the_one_form_is_a_stamp() {
        let good = make(&credential(), LINE, b"body", 5, NONCE);
        assert!(Stamp::parse(&good).is_some());
        for bad in [
            good.replace("Bursar ", "bursar "),
            good.replace("time=5", "time=+5"),
            good.replace("time=5", "time=-5"),
            good.replace("time=5", "time="),
            good.replace("time=5", "time=99999999999999999999"),
            good.replace(NONCE, "short"),
            good.replace(NONCE, &"x".repeat(65)),
            good.replace(NONCE, "0123456789abcde\u{e9}"),
            good.replace(",body", ", body"),
            format!("{good},more=1"),
            good.replacen("key=server,", "", 1),
            good[..good.len() - 1].to_owned(),
            format!("{good}{}", "0".repeat(600)),
            String::new(),
        ] {
            assert_eq!(Stamp::parse(&bad), None, "{bad}");
        }
    }
}
