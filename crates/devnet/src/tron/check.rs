//! What a transaction must satisfy before it is run, in java-tron's order: `Wallet.broadcastTransaction`, then
//! `Manager.pushTransaction` and `Manager.processTransaction`.

use alloy_primitives::hex;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use secp256k1::{Message, SECP256K1};

use super::TronDevnet;
use super::refusal::TronRefusal;
use super::state::Owner;
use super::transaction::{Action, Received};
use tx::account_of;
use tx::tron::TronAddress;

/// `Constant.TRANSACTION_MAX_BYTE_SIZE`.
const SIZE: usize = 500 * 1024;
/// `Constant.MAXIMUM_TIME_UNTIL_EXPIRATION`.
pub const LIFE_MS: i64 = 24 * 60 * 60 * 1_000;
/// `getTotalSignNum`.
const SIGNATURES: usize = 5;
/// The owner's permission, and the active one that every account has by default.
const PERMISSIONS: [i32; 2] = [0, 2];

impl TronDevnet {
    /// Everything that needs no account: signature, reference block, size, time, duplicates.
    pub(super) fn check(&self, sent: &Received) -> Result<(), TronRefusal> {
        if sent.raw.contract.is_empty() {
            return Err(TronRefusal::contract("No contract!"));
        }
        signed_by_owner(sent)?;
        self.check_place(sent)
    }

    /// What may change from block to block, and is therefore checked again when a block is made.
    pub(super) fn check_place(&self, sent: &Received) -> Result<(), TronRefusal> {
        if sent.raw.contract.len() != 1 {
            return Err(TronRefusal::several_contracts(&sent.id, sent.raw.contract.len()));
        }
        if !self.refers_to_known_block(sent) {
            return Err(TronRefusal::tapos());
        }
        if sent.size > SIZE {
            return Err(TronRefusal::too_big());
        }
        let head_ms = self.head().header.timestamp;
        if sent.raw.expiration <= head_ms || sent.raw.expiration > head_ms.saturating_add(LIFE_MS) {
            return Err(TronRefusal::expired());
        }
        if self.index.contains_key(&sent.id) {
            return Err(TronRefusal::duplicate());
        }
        Ok(())
    }

    /// The last two bytes of a height, and eight bytes of the id of the newest block whose height ends so.
    fn refers_to_known_block(&self, sent: &Received) -> bool {
        let Ok(ending) = <[u8; 2]>::try_from(sent.raw.ref_block_bytes.as_slice()) else { return false };
        let tip = self.tip();
        let back = (tip & 0xffff).wrapping_sub(u64::from(u16::from_be_bytes(ending))) & 0xffff;
        let block = tip.checked_sub(back).and_then(|height| self.block(height));
        block.is_some_and(|block| block.id[8..16] == *sent.raw.ref_block_hash)
    }
}

/// `TransactionCapsule.validatePubSignature`. Every account of the devnet has the permissions that java-tron gives by
/// default: one key, its own, with weight 1.
fn signed_by_owner(sent: &Received) -> Result<(), TronRefusal> {
    if sent.signatures.is_empty() {
        return Err(TronRefusal::signature("miss sig or contract"));
    }
    if sent.signatures.len() > SIGNATURES {
        return Err(TronRefusal::signature("too many signatures"));
    }
    if sent.action == Action::Other {
        return Err(TronRefusal::other("null"));
    }
    let permission = sent.raw.contract.first().map_or(0, |contract| contract.permission_id);
    if !PERMISSIONS.contains(&permission) {
        return Err(TronRefusal::signature("permission isn't exit"));
    }
    let [signature] = sent.signatures.as_slice() else {
        let count = sent.signatures.len();
        return Err(TronRefusal::signature(&format!(
            "Signature count is {count} more than key counts of permission : 1"
        )));
    };
    let signer = signer(sent.id, signature)?;
    if sent.owner() != prefixed(&signer) {
        let (id, signer) = (hex::encode(sent.id), TronAddress(signer));
        return Err(TronRefusal::signature(&format!(
            "{id} is signed by {signer} but it is not contained of permission."
        )));
    }
    Ok(())
}

/// Bytes after the 65th are ignored, as java-tron does.
fn signer(digest: [u8; 32], signature: &[u8]) -> Result<Owner, TronRefusal> {
    let Some((rsv, _)) = signature.split_first_chunk::<65>() else {
        return Err(TronRefusal::signature(&format!("Signature size is {}", signature.len())));
    };
    let (rs, v) = rsv.split_at(64);
    let header = if v[0] < 27 { v[0] + 27 } else { v[0] };
    if !(27..=34).contains(&header) {
        return Err(TronRefusal::signature(&format!("Header byte out of range: {header}")));
    }
    let unreadable = || TronRefusal::signature("Could not recover public key from signature");
    let recovery = RecoveryId::from_i32(i32::from((header - 27) % 4)).map_err(|_| unreadable())?;
    let signature = RecoverableSignature::from_compact(rs, recovery).map_err(|_| unreadable())?;
    let public = SECP256K1.recover_ecdsa(&Message::from_digest(digest), &signature).map_err(|_| unreadable())?;
    Ok(account_of(&public))
}

pub fn prefixed(owner: &Owner) -> [u8; 21] {
    let mut bytes = [0x41; 21];
    bytes[1..].copy_from_slice(owner);
    bytes
}

/// `DecodeUtil.addressValid`.
pub fn unprefixed(address: &[u8]) -> Option<Owner> {
    address.strip_prefix(&[0x41])?.try_into().ok()
}
