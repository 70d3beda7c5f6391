//! SHA-256 over fields, so that no two lists of fields give the same bytes.
//!
//! The form, for those who make such a digest elsewhere: the label, a zero byte, then each field as its length (four
//! bytes, big end first) and its bytes. Numbers are decimal ASCII, names and addresses their one text.

use ring::digest::{Context, SHA256, digest};

pub type Digest32 = [u8; 32];

pub struct Fields(Context);

impl Fields {
    pub fn new(label: &str) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(label.as_bytes());
        context.update(&[0]);
        Self(context)
    }

    pub fn bytes(&mut self, field: &[u8]) -> &mut Self {
        // No field is near four gigabytes: payloads are bounded where they come in.
        let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
        self.0.update(&length.to_be_bytes());
        self.0.update(field);
        self
    }

    pub fn text(&mut self, field: &impl ToString) -> &mut Self {
        self.bytes(field.to_string().as_bytes())
    }

    pub fn finish(&self) -> Digest32 {
        whole(&self.0.clone())
    }
}

fn whole(context: &Context) -> Digest32 {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.clone().finish().as_ref());
    bytes
}

pub fn sha256(bytes: &[u8]) -> Digest32 {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Small digits, two for each byte, or nothing.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?)).collect()
}

pub fn unhex32(text: &str) -> Option<Digest32> {
    unhex(text)?.try_into().ok()
}
