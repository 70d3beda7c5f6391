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

use ring::digest::{Context, SHA256};

use crate::digest::Digest32;

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
    let mut context = Context::new(&SHA256);
    for part in [LABEL, head, body] {
        context.update(part);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// Room for the head. The entries are written behind it.
pub fn begin() -> Vec<u8> {
    vec![0; HEAD]
}

/// Writes the head before the entries, and gives the hash. `None`: longer than a frame can be.
pub fn seal(bytes: &mut [u8], first: u64, count: u32, before: &Digest32) -> Option<Digest32> {
    let (head, body) = bytes.split_at_mut_checked(HEAD)?;
    if body.len() > MOST {
        return None;
    }
    head[..4].copy_from_slice(MAGIC);
    head[4..8].copy_from_slice(&u32::try_from(body.len()).ok()?.to_be_bytes());
    head[8..12].copy_from_slice(&count.to_be_bytes());
    head[12..20].copy_from_slice(&first.to_be_bytes());
    head[20..HASHED].copy_from_slice(before);
    let hash = hash(&head[..HASHED], body);
    head[HASHED..].copy_from_slice(&hash);
    Some(hash)
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
