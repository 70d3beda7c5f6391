//! Approvals are signatures over the digest of an intent: Ed25519 from a command line, or a passkey (WebAuthn ES256).
//!
//! Whoever owns the server can send what people signed, late, twice, or for something else; not more. So a signature
//! names what it is for (the digest is in it), the policy names whose key it is, and nothing else of a request is
//! believed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey};
use serde::Deserialize;

use crate::digest::{Digest32, Fields, sha256};
use crate::intent::Intent;
use crate::names::KeyName;
use crate::policy::{Approver, Passkey, PublicKey};

/// What stands before the digest in what an Ed25519 key signs.
pub const APPROVAL_LABEL: &[u8] = b"bursar-signer-approval-v1\0";
const MOVE_LABEL: &str = "bursar-signer-move-v1";
const REVOKE_LABEL: &str = "bursar-signer-revoke-v1";

/// No browser writes more.
const MOST_CLIENT_DATA: usize = 4_096;
const MOST_AUTHENTICATOR_DATA: usize = 1_024;

const USER_PRESENT: u8 = 0x01;
const USER_VERIFIED: u8 = 0x04;
const ATTESTED: u8 = 0x40;
const EXTENDED: u8 = 0x80;
/// Hash of the relying party, flags, counter.
const LEAST_AUTHENTICATOR_DATA: usize = 32 + 1 + 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    Ed25519(Vec<u8>),
    Passkey { authenticator_data: Vec<u8>, client_data: Vec<u8>, signature: Vec<u8> },
}

/// One approval as a request brings it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenApproval {
    /// What was signed: an intent's digest, or that of a move.
    pub digest: Digest32,
    pub key: KeyName,
    pub proof: Proof,
}

/// What an Ed25519 key signs for a digest.
pub fn message(digest: &Digest32) -> Vec<u8> {
    [APPROVAL_LABEL, digest].concat()
}

/// What an operator signs so that a job may leave a slot that the signer did not cancel: the intent's signer, network, job, new
/// round, chain and group, and the slot that it leaves.
pub fn move_digest(intent: &Intent, slot: &str) -> Digest32 {
    let mut fields = Fields::new(MOVE_LABEL);
    fields.text(&intent.signer).text(&intent.network).text(&intent.job).text(&intent.round);
    fields.text(&intent.chain).text(&intent.group).text(&slot).finish()
}

/// What a person signs to take an approval back. Signer and network are in the digest that was approved.
pub fn revoke_digest(approved: &Digest32) -> Digest32 {
    Fields::new(REVOKE_LABEL).bytes(approved).finish()
}

impl GivenApproval {
    /// Whether the key signed the digest. A passkey's counter comes back: 0 if it does not count.
    pub fn check(&self, approver: &Approver) -> Result<Option<u32>, &'static str> {
        match (&approver.key, &self.proof) {
            (PublicKey::Ed25519(key), Proof::Ed25519(signature)) => UnparsedPublicKey::new(&ED25519, key)
                .verify(&message(&self.digest), signature)
                .map(|()| None)
                .map_err(|_| "the signature does not fit"),
            (PublicKey::Passkey(passkey), Proof::Passkey { authenticator_data, client_data, signature }) => {
                check_passkey(passkey, &self.digest, authenticator_data, client_data, signature).map(Some)
            }
            _ => Err("the key is of another kind"),
        }
    }
}

/// The fields of WebAuthn's `CollectedClientData` that matter; a browser may add others.
#[derive(Deserialize)]
struct ClientData<'a> {
    #[serde(borrow)]
    r#type: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    challenge: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    origin: std::borrow::Cow<'a, str>,
    #[serde(default, rename = "crossOrigin")]
    cross_origin: bool,
}

/// WebAuthn level 2, §7.2, steps 11 to 21, with the user verified.
fn check_passkey(
    passkey: &Passkey,
    digest: &Digest32,
    authenticator_data: &[u8],
    client_data: &[u8],
    signature: &[u8],
) -> Result<u32, &'static str> {
    if client_data.len() > MOST_CLIENT_DATA || authenticator_data.len() > MOST_AUTHENTICATOR_DATA {
        return Err("longer than any browser makes it");
    }
    let said: ClientData<'_> = serde_json::from_slice(client_data).map_err(|_| "the client data is not JSON")?;
    if said.r#type != "webauthn.get" {
        return Err("the client data is not of an assertion");
    }
    if said.challenge != URL_SAFE_NO_PAD.encode(digest) {
        return Err("it is for another digest");
    }
    if said.cross_origin || !passkey.origins.contains(said.origin.as_ref()) {
        return Err("it was made on another site");
    }
    if authenticator_data.len() < LEAST_AUTHENTICATOR_DATA {
        return Err("the authenticator data is too short");
    }
    let (party, rest) = authenticator_data.split_at(32);
    if party != sha256(passkey.relying_party.as_bytes()) {
        return Err("it is for another relying party");
    }
    let flags = rest[0];
    if flags & USER_PRESENT == 0 || flags & USER_VERIFIED == 0 {
        return Err("the user was not present, or not verified");
    }
    let plain = authenticator_data.len() == LEAST_AUTHENTICATOR_DATA;
    if flags & ATTESTED != 0 || plain == (flags & EXTENDED != 0) {
        return Err("the authenticator data is not that of an assertion");
    }
    let signed = [authenticator_data, &sha256(client_data)].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &passkey.public)
        .verify(&signed, signature)
        .map_err(|_| "the signature does not fit")?;
    Ok(u32::from_be_bytes([rest[1], rest[2], rest[3], rest[4]]))
}
