//! One batch in the log: a head of 84 bytes, then the entries as JSON.
//!
//! | bytes | what |
//! |---|---|
//! | 0–3 | `BSL1` |
//! | 4–7 | length of the entries, big end first, as all numbers here |
//! | 8–11 | how many entries |
//! | 12–19 | number of the first entry; the first ever is 1 |
//! | 20–51 | hash of the frame before; zeros for the first ever |
//! | 52–83 | hash of this frame: SHA-256 of `bursar-signer-log-v1`, a zero byte, bytes 0–51 and the entries |
//!
//! A frame proves itself, and its place in the chain. So what is left of a write that a crash tore can be told from
//! damage: behind a torn write there is no frame.

use crate::digest::{Digest32, sha256};

pub const MAGIC: &[u8; 4] = b"BSL1";
pub const HEAD: usize = 84;
const LABEL: &[u8] = b"bursar-signer-log-v1\0";
const HASHED: usize = 52;
/// No batch is longer.
pub const MOST: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub first: u64,
    pub count: u32,
    pub before: Digest32,
    pub hash: Digest32,
    pub body: &'a [u8],
}

fn hash(head: &[u8], body: &[u8]) -> Digest32 {
    sha256(&[LABEL, head, body].concat())
}

/// The bytes of a batch, and its hash. `None`: longer than a frame can be.
pub fn write(first: u64, count: usize, before: &Digest32, body: &[u8]) -> Option<(Vec<u8>, Digest32)> {
    if body.len() > MOST {
        return None;
    }
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&u32::try_from(body.len()).ok()?.to_be_bytes());
    bytes.extend_from_slice(&u32::try_from(count).ok()?.to_be_bytes());
    bytes.extend_from_slice(&first.to_be_bytes());
    bytes.extend_from_slice(before);
    let hash = hash(&bytes, body);
    bytes.extend_from_slice(&hash);
    bytes.extend_from_slice(body);
    Some((bytes, hash))
}

fn number(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_be_bytes)
}

/// The frame at the beginning of these bytes, and its length. `None`: there is none that proves itself.
pub fn read(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
    let head = bytes.get(..HEAD)?;
    if &head[..4] != MAGIC {
        return None;
    }
    let length = usize::try_from(number(&head[4..8])).ok().filter(|length| *length <= MOST)?;
    let body = bytes.get(HEAD..HEAD + length)?;
    let said: Digest32 = head[HASHED..].try_into().ok()?;
    if hash(&head[..HASHED], body) != said {
        return None;
    }
    let first = head[12..20].try_into().map(u64::from_be_bytes).ok()?;
    let before = head[20..HASHED].try_into().ok()?;
    Some((Frame { first, count: number(&head[8..12]), before, hash: said, body }, HEAD + length))
}

/// Whether any frame begins in these bytes.
pub fn any(bytes: &[u8]) -> bool {
    let starts = bytes.windows(MAGIC.len()).enumerate().filter(|(_, four)| *four == MAGIC);
    starts.into_iter().any(|(at, _)| read(&bytes[at..]).is_some())
}
