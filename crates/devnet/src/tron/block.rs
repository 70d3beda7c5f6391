//! Blocks: the id is the hash of the header, with the height in its first eight bytes.

use std::sync::Arc;

use bitcoin::hashes::{Hash, sha256};
use prost::Message;

use super::check::prefixed;
use super::execute::Execution;
use super::proto::Header;
use super::transaction::{Id, Received};
use crate::Key;

/// As many as the main network has active witnesses; they take turns.
const WITNESSES: u64 = 27;
const FIRST_WITNESS: u32 = 1_000;
const VERSION: i32 = 32;

#[derive(Clone, Debug)]
pub struct Mined {
    pub sent: Arc<Received>,
    pub outcome: Execution,
}

#[derive(Clone, Debug)]
pub struct Block {
    pub id: Id,
    pub header: Header,
    pub witness_signature: [u8; 65],
    pub transactions: Vec<Mined>,
}

impl Block {
    /// `turn` chooses the witness: the same block by another witness has another id.
    pub fn seal(height: u64, parent: Id, timestamp: i64, turn: u64, transactions: Vec<Mined>) -> Self {
        let header = Header {
            timestamp,
            tx_trie_root: root(&transactions).to_vec(),
            parent_hash: parent.to_vec(),
            number: i64::try_from(height).unwrap_or(i64::MAX),
            version: VERSION,
            ..Header::default()
        };
        let (id, header, witness_signature) = sealed(header, turn);
        Self { id, header, witness_signature, transactions }
    }

    pub fn height(&self) -> u64 {
        u64::try_from(self.header.number).unwrap_or(0)
    }

    /// The same block as another chain would have it: another parent and another witness.
    pub fn elsewhere(&self, parent: Option<Id>, turn: u64) -> (Id, Header, [u8; 65]) {
        let mut header = self.header.clone();
        if let Some(parent) = parent {
            header.parent_hash = parent.to_vec();
        }
        sealed(header, turn)
    }
}

fn sealed(mut header: Header, turn: u64) -> (Id, Header, [u8; 65]) {
    let witness = u32::try_from(turn % WITNESSES).unwrap_or(0);
    let key = Key::numbered(FIRST_WITNESS + witness);
    header.witness_address = prefixed(&key.account()).to_vec();
    let digest = sha256::Hash::hash(&header.encode_to_vec()).to_byte_array();
    let (rs, odd) = key.sign(digest);
    let mut signature = [u8::from(odd); 65];
    signature[..64].copy_from_slice(&rs);
    let mut id = digest;
    id[..8].copy_from_slice(&header.number.to_be_bytes());
    (id, header, signature)
}

/// java-tron's tree: the leaves are the hashes of the transactions with their results; one without a neighbour moves up
/// as it is.
fn root(transactions: &[Mined]) -> [u8; 32] {
    let leaf = |mined: &Mined| sha256::Hash::hash(&mined.sent.encoded(mined.outcome.ret.number())).to_byte_array();
    let mut level: Vec<[u8; 32]> = transactions.iter().map(leaf).collect();
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => sha256::Hash::hash(&[*left, *right].concat()).to_byte_array(),
                _ => pair.first().copied().unwrap_or_default(),
            })
            .collect();
    }
    level.first().copied().unwrap_or_default()
}
