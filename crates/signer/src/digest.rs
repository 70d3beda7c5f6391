//! SHA-256 over fields, so that no two lists of fields give the same bytes.
//!
//! The form, for those who make such a digest elsewhere: the label, a zero byte, then each field as its length (four
//! bytes, big end first) and its bytes. Numbers are decimal ASCII, names and addresses their one text.

use std::fmt::{self, Write};

use ring::digest::{Context, SHA256, digest};

pub type Digest32 = [u8; 32];

pub struct Fields {
    context: Context,
    /// Where a field's text is written before its length is known.
    text: String,
}

impl Fields {
    pub fn new(label: &str) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(label.as_bytes());
        context.update(&[0]);
        Self { context, text: String::with_capacity(64) }
    }

    pub fn bytes(&mut self, field: &[u8]) -> &mut Self {
        // No field is near four gigabytes: payloads are bounded where they come in.
        let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
        self.context.update(&length.to_be_bytes());
        self.context.update(field);
        self
    }

    pub fn text(&mut self, field: &impl fmt::Display) -> &mut Self {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        // No text of ours fails. One that did would be the digest of nothing that anybody asks for.
        if write!(text, "{field}").is_err() {
            text.push('\0');
        }
        self.bytes(text.as_bytes());
        self.text = text;
        self
    }

    pub fn finish(&self) -> Digest32 {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.context.clone().finish().as_ref());
        bytes
    }
}

pub fn sha256(bytes: &[u8]) -> Digest32 {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn digits(byte: u8) -> [u8; 2] {
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.extend(digits(*byte).map(char::from));
    }
    text
}

/// The digits of a hash, which are written by the dozen for each payment.
pub(crate) fn hex32(bytes: &Digest32) -> [u8; 64] {
    let mut text = [0; 64];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&digits(*byte));
    }
    text
}

const fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Small digits, two for each byte, or nothing.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?)).collect()
}

pub fn unhex32(text: &str) -> Option<Digest32> {
    let text: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}
