//! What operators do to withdrawals, with the signer's word where money would go back, and with their signatures verified.

use std::sync::Arc;

use domain::Timestamp;
use signer::approval::{GivenApproval, Proof};
use signer::digest::{unhex, unhex32};
use signer::names::SignerName;
use signer::policy::{Approver, Passkey, PublicKey};
use store::entry::ChainRow;
use store::operator::OperatorKey;
use store::operator::read::{KeyHolder, active_keys};
use store::outbound::ApprovalSignature;
use store::withdrawal::NewWithdrawalApproval;
pub use store::withdrawal::{ApprovalDeed, ApprovalReply};
use store::withdrawal::{OperatorDeed, OperatorReply, OperatorWish};
use store::{Db, StoreError};

use super::approve::ApprovalDesk;
use super::signed::{Remembers, signed_or_unasked};
use crate::outbound::OutboundError;
use crate::wallet::Pinned;

/// Does what an operator wants. A refusal gives money back, so the signer is asked first.
pub async fn operate(
    db: &Db,
    signer: Option<&dyn Remembers>,
    deed: &OperatorDeed,
    at: Timestamp,
) -> Result<OperatorReply, StoreError> {
    let signed = match deed.wish {
        OperatorWish::Reject => signed_or_unasked(signer, &[deed.withdrawal]).await,
        OperatorWish::Assign(_) | OperatorWish::Review | OperatorWish::Retry => Default::default(),
    };
    db.operate(deed, &signed, at).await
}

/// Where approvals of a chain's withdrawals are taken.
pub struct ApprovalPlace<'a> {
    pub row: &'a ChainRow,
    pub pinned: &'a Arc<Pinned>,
    pub signer: &'a SignerName,
}

/// Verifies an operator's signature and keeps it. Every refusal is written down too.
pub async fn approve(
    db: &Db,
    place: &ApprovalPlace<'_>,
    deed: &ApprovalDeed,
    given: &GivenApproval,
    at: Timestamp,
) -> Result<ApprovalReply, OutboundError> {
    match verified(db, place, deed, given).await? {
        Ok(approval) => Ok(db.approve_as_operator(deed, &approval, at).await?),
        Err(refused) => {
            db.log_operator(&deed.line(given.key.as_str(), refused.outcome()), at).await?;
            Ok(refused)
        }
    }
}

/// Writes down that nothing came of an approval.
pub async fn note(db: &Db, deed: &ApprovalDeed, outcome: &str, at: Timestamp) -> Result<(), StoreError> {
    db.log_operator(&deed.line("", outcome), at).await
}

/// The other error: why the signature is none that counts.
async fn verified(
    db: &Db,
    place: &ApprovalPlace<'_>,
    deed: &ApprovalDeed,
    given: &GivenApproval,
) -> Result<Result<NewWithdrawalApproval, ApprovalReply>, OutboundError> {
    // The same name for everybody else's keys and for none: who has which key is not told.
    let keys = active_keys(&mut db.read().await?).await?;
    let holder = keys.get(given.key.as_str()).filter(|holder| holder.operator == deed.operator);
    let Some(approver) = holder.and_then(approver) else { return Ok(Err(ApprovalReply::UnknownKey)) };
    let desk = ApprovalDesk { row: place.row, pinned: place.pinned, signer: place.signer, approvers: &[] };
    let Some((row, intent)) = desk.read(db, deed.withdrawal).await? else {
        return Ok(Err(ApprovalReply::NoSuchWithdrawal));
    };
    let intent = match intent {
        Ok(intent) => intent,
        Err(why) => return Ok(Err(ApprovalReply::Unclear(why))),
    };
    let Some(group) = row.group.clone() else {
        return Ok(Err(ApprovalReply::Unclear("no hot wallet of its chain is active".to_owned())));
    };
    if given.digest != intent.digest() {
        return Ok(Err(ApprovalReply::OtherDigest));
    }
    if let Err(why) = given.check(&approver) {
        return Ok(Err(ApprovalReply::BadSignature(why)));
    }
    let signature = match given.proof.clone() {
        Proof::Ed25519(signature) => ApprovalSignature::Ed25519(signature),
        Proof::Passkey { authenticator_data, client_data, signature } => {
            ApprovalSignature::Passkey { authenticator_data, client_data, signature }
        }
    };
    Ok(Ok(NewWithdrawalApproval {
        withdrawal: deed.withdrawal,
        digest: given.digest,
        round: intent.round,
        group,
        person: deed.operator.to_string(),
        key: given.key.to_string(),
        signature,
    }))
}

/// As the signer verifies it. `None`: the row makes no sense.
fn approver(holder: &KeyHolder) -> Option<Approver> {
    let OperatorKey { public, place } = &holder.key;
    let key = match place {
        None => PublicKey::Ed25519(unhex32(public)?),
        Some(place) => PublicKey::Passkey(Passkey {
            public: unhex(public)?,
            relying_party: place.relying_party.clone(),
            origins: place.origins.clone(),
        }),
    };
    Some(Approver { person: holder.operator.as_str().parse().ok()?, key })
}
