//! Bitcoin's hashes, turned round at its edge.

use ::bitcoin::Txid;
use ::bitcoin::hashes::Hash;

use crate::hash::TxHash;

/// Hashes go over the wire and into other hashes in one order, and are printed in the other.
pub fn turned(mut bytes: [u8; 32]) -> [u8; 32] {
    bytes.reverse();
    bytes
}

pub fn hash_of(txid: Txid) -> TxHash {
    TxHash(turned(txid.to_byte_array()))
}

pub fn txid_of(hash: TxHash) -> Txid {
    Txid::from_byte_array(turned(hash.0))
}
