//! What people sign so that the signer pays what it does not pay by itself: a refill from the treasury, a payout above a limit.
//!
//! What they sign is the digest of the very intent that the sender asks the signer with, so it is built in one place. A database that lies
//! can show people something else than it asks for; then the digests differ, and the signer refuses.

use std::sync::Arc;

use signer::Intent;
use signer::approval::{GivenApproval, Proof};
use signer::names::SignerName;
use store::entry::ChainRow;
use store::outbound::{ApprovalSignature, JobApproval, JobRow, LaneRow};
use store::withdrawal::WithdrawalRow;

use super::OutboundError;
use super::ask::{pays, withdraws};
use super::purse::Ground;
use crate::wallet::Pinned;

/// What a job that waits is to do in its next slot. The other error: a row makes no sense with the keys of the treasury file, so there is
/// nothing to approve.
pub fn intent_of(
    row: ChainRow,
    pinned: Arc<Pinned>,
    signer: &SignerName,
    lane: &LaneRow,
    job: &JobRow,
) -> Result<Result<Intent, String>, OutboundError> {
    let ground = Ground::of(row, pinned)?;
    let (own, bad) = ground.addresses(std::slice::from_ref(lane));
    if let Some((_, why)) = bad.into_iter().next() {
        return Ok(Err(why));
    }
    if !own.contains_key(&lane.id) {
        return Ok(Err(lane.stopped.clone().unwrap_or_else(|| "its wallet has no key".to_owned())));
    }
    match ground.payment(job) {
        Ok(payment) => pays(&ground, signer, lane, job, job.rounds, payment).map(Ok),
        Err(why) => Ok(Err(why)),
    }
}

/// What a withdrawal's next payment is, before there is a job for it: the same intent that its job will be asked with.
pub fn withdrawal_intent(
    row: ChainRow,
    pinned: Arc<Pinned>,
    signer: &SignerName,
    withdrawal: &WithdrawalRow,
    round: u32,
) -> Result<Result<Intent, String>, OutboundError> {
    withdraws(&Ground::of(row, pinned)?, signer, withdrawal, round)
}

/// As the signer takes it.
pub(super) fn given(kept: &JobApproval) -> Result<GivenApproval, OutboundError> {
    let proof = match kept.signature.clone() {
        ApprovalSignature::Ed25519(signature) => Proof::Ed25519(signature),
        ApprovalSignature::Passkey { authenticator_data, client_data, signature } => {
            Proof::Passkey { authenticator_data, client_data, signature }
        }
    };
    Ok(GivenApproval { digest: kept.digest, key: kept.key.parse()?, proof })
}
