//! What is asked about a withdrawal, and how both sides prove that a message is theirs. docs/guide/operators.md has the same for the other side.
//!
//! A question carries `Authorization: Bursar-Check time=<microseconds>,nonce=<…>,mac=<hex>`: HMAC-SHA256 over these lines, each ended by a newline but the
//! last: `bursar-check-question-v1`, the method, the path with its query, time, nonce, and the SHA-256 of the body. The answer carries
//! `Bursar-Check: <hex>` over `bursar-check-answer-v1`, the question's nonce, and the SHA-256 of its body. So an answer is to one question, once.

use domain::Timestamp;
use ring::hmac;
use serde::Deserialize;
use serde_json::{Value, json};
use signer::digest::{Fields, hex, sha256, unhex32};
use store::withdrawal::{CheckVerdict, DueCheck};
use zeroize::Zeroizing;

const CONTENT: &str = "bursar-check-content-v1";
const QUESTION: &str = "bursar-check-question-v1";
const ANSWER: &str = "bursar-check-answer-v1";
const MOST_REASON: usize = 200;

/// What questions and answers are signed with.
pub(super) struct CheckKey(Zeroizing<Vec<u8>>);

impl CheckKey {
    pub const LEAST: usize = 32;

    pub fn new(secret: Vec<u8>) -> Option<Self> {
        let secret = Zeroizing::new(secret);
        (secret.len() >= Self::LEAST).then_some(Self(secret))
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }

    pub fn question(&self, path: &str, at: Timestamp, nonce: &str, body: &[u8]) -> String {
        let time = at.micros();
        let text = format!("{QUESTION}\nPOST\n{path}\n{time}\n{nonce}\n{}", hex(&sha256(body)));
        let mac = hmac::sign(&self.key(), text.as_bytes());
        format!("Bursar-Check time={time},nonce={nonce},mac={}", hex(mac.as_ref()))
    }

    /// Whether the other side made this answer to this question. The comparison takes as long whatever differs.
    pub fn is_answer(&self, nonce: &str, body: &[u8], mac: &str) -> bool {
        let text = answer_text(nonce, body);
        unhex32(mac).is_some_and(|mac| hmac::verify(&self.key(), text.as_bytes(), &mac).is_ok())
    }
}

fn answer_text(nonce: &str, body: &[u8]) -> String {
    format!("{ANSWER}\n{nonce}\n{}", hex(&sha256(body)))
}

/// A question: its body, the digest of what it is about, and a name that no other question has.
pub(super) struct Question {
    pub body: Vec<u8>,
    pub digest: String,
    pub nonce: String,
}

/// Of what one withdrawal is about. Two that differ in anything that the other side judges have other digests.
fn content(due: &DueCheck) -> String {
    let row = &due.row;
    let mut fields = Fields::new(CONTENT);
    fields.text(&row.id).text(&row.user.get()).text(&due.asset).text(&due.chain).text(&due.network).text(&row.to);
    fields.text(&row.amount.display(due.precision)).text(&row.fee.display(due.precision)).text(&row.created);
    fields.text(&due.travel_rule.as_deref().unwrap_or(""));
    hex(&fields.finish())
}

impl Question {
    pub fn of(due: &DueCheck, at: Timestamp) -> Self {
        let row = &due.row;
        let digest = content(due);
        // The store has it as JSON.
        let travel_rule: Value =
            due.travel_rule.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
        let body = json!({
            "withdrawal_id": row.id.to_string(),
            "content": digest,
            "user_id": row.user.get().to_string(),
            "asset": due.asset,
            "chain": due.chain,
            "network": due.network,
            "to": row.to,
            "amount": row.amount.display(due.precision).to_string(),
            "fee": row.fee.display(due.precision).to_string(),
            "requested_at": row.created.to_string(),
            "travel_rule": travel_rule,
        });
        let nonce = format!("{}-{}-{}", row.id, due.tries, at.micros());
        Self { body: body.to_string().into_bytes(), digest, nonce }
    }
}

#[derive(Deserialize)]
struct AnswerBody {
    withdrawal_id: String,
    content: String,
    verdict: String,
    #[serde(default)]
    reason: String,
}

/// What a body says, if it is an answer to this question.
pub(super) fn read_answer(
    due: &DueCheck,
    question: &Question,
    body: &[u8],
) -> Result<(CheckVerdict, String), &'static str> {
    let said: AnswerBody =
        serde_json::from_slice(body).map_err(|_| "the answer is none: it is not the JSON that was asked for")?;
    if said.withdrawal_id != due.row.id.to_string() {
        return Err("the answer is about another withdrawal");
    }
    if said.content != question.digest {
        return Err("the answer is about something else than was asked");
    }
    let verdict = match said.verdict.as_str() {
        "allow" => CheckVerdict::Allow,
        "review" => CheckVerdict::Review,
        "refuse" => CheckVerdict::Refuse,
        _ => return Err("the answer is neither allow nor review nor refuse"),
    };
    let reason: String = said.reason.chars().filter(|one| !one.is_control()).take(MOST_REASON).collect();
    let reason = if reason.trim().is_empty() { "without a reason".to_owned() } else { reason };
    Ok((verdict, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by openssl, as the other side may do it.
    #[test]
    fn signatures_are_what_openssl_makes() {
        let key = CheckKey::new(b"0123456789abcdef0123456789abcdef".to_vec()).expect("long enough");
        let by_openssl = |text: &str| {
            let command = format!(
                "printf '{}' | openssl dgst -sha256 -mac HMAC -macopt key:0123456789abcdef0123456789abcdef",
                text.replace('\n', "\\n")
            );
            let output =
                std::process::Command::new("sh").args(["-c", &command]).output().expect("this test needs openssl");
            let printed = String::from_utf8(output.stdout).expect("text");
            printed.trim().rsplit(' ').next().expect("a digest").to_owned()
        };
        let body = hex(&sha256(b"{}"));
        let header = key.question("/check?x=1", Timestamp::from_micros(5), "n-1", b"{}");
        let mac = by_openssl(&format!("bursar-check-question-v1\nPOST\n/check?x=1\n5\nn-1\n{body}"));
        assert_eq!(header, format!("Bursar-Check time=5,nonce=n-1,mac={mac}"));
        let mac = by_openssl(&format!("bursar-check-answer-v1\nn-1\n{body}"));
        assert!(key.is_answer("n-1", b"{}", &mac));
        assert!(!key.is_answer("n-2", b"{}", &mac), "an answer is to one question");
        assert!(!key.is_answer("n-1", b"{ }", &mac));
        for bad in ["", "00", &mac.to_uppercase(), &format!("{mac}0")] {
            assert!(!key.is_answer("n-1", b"{}", bad), "{bad}");
        }
        assert!(CheckKey::new(vec![7; 31]).is_none());
    }
}
