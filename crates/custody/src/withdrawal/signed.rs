//! What the signer knows of withdrawals. Whatever gives money back, or makes a job, asks first: a database that was put back from a backup has forgotten
//! payments, and the signer has not.

use domain::{Approval, Timestamp, UserId};
use futures_util::future::BoxFuture;
use signer::client::SignerError;
use signer::names::JobId as SignedJob;
use store::withdrawal::{DecisionReply, SignedRounds, WithdrawalDecision, WithdrawalId, WithdrawalVerdict};
use store::{Db, StoreError};

use crate::signer::SignerWatch;

/// Who remembers what was signed. The service behind a socket; a simulation has the signer's core without one.
pub trait Remembers: Send + Sync {
    /// In how many slots each was signed. `None` of one: that is forgotten.
    fn rounds<'a>(&'a self, jobs: &'a [SignedJob]) -> BoxFuture<'a, Result<Vec<Option<u32>>, SignerError>>;
}

impl Remembers for SignerWatch {
    /// A signer with other keys, or with an old copy of its log, has nothing to say of our payments.
    fn rounds<'a>(&'a self, jobs: &'a [SignedJob]) -> BoxFuture<'a, Result<Vec<Option<u32>>, SignerError>> {
        Box::pin(async move {
            if !self.agrees() {
                let (standing, _) = self.standing();
                let code = standing.code().unwrap_or("SIGNER_UNAVAILABLE").to_owned();
                return Err(SignerError::Unavailable { code, why: standing.words() });
            }
            self.client().rounds(jobs).await
        })
    }
}

/// What it has signed of these.
pub async fn signed_rounds(signer: &dyn Remembers, ids: &[WithdrawalId]) -> Result<SignedRounds, SignerError> {
    if ids.is_empty() {
        return Ok(SignedRounds::default());
    }
    let jobs: Vec<SignedJob> = ids.iter().map(|id| SignedJob::Withdrawal(id.number())).collect();
    let rounds = signer.rounds(&jobs).await?;
    Ok(SignedRounds::of(ids.iter().copied().zip(rounds)))
}

/// The same, where what needs its word may wait: without an answer nothing is known of any.
pub(super) async fn signed_or_unasked(signer: Option<&dyn Remembers>, ids: &[WithdrawalId]) -> SignedRounds {
    let Some(signer) = signer else { return SignedRounds::default() };
    signed_rounds(signer, ids).await.unwrap_or_else(|error| {
        tracing::warn!(code = error.code(), %error, "the signer was not asked about withdrawals: nothing of them is given back");
        SignedRounds::default()
    })
}

/// Users call these off. While the signer cannot be asked, or knows more than the database, the answer is that it cannot be done now.
pub async fn cancel(
    db: &Db,
    signer: Option<&dyn Remembers>,
    wanted: &[(UserId, WithdrawalId)],
    at: Timestamp,
) -> Result<Vec<DecisionReply>, StoreError> {
    let ids: Vec<WithdrawalId> = wanted.iter().map(|(_, id)| *id).collect();
    let signed = signed_or_unasked(signer, &ids).await;
    db.cancel_withdrawals(wanted, &signed, at).await
}

/// The same of what people say of them.
pub async fn decide(
    db: &Db,
    signer: Option<&dyn Remembers>,
    decisions: &[WithdrawalDecision],
    at: Timestamp,
) -> Result<Vec<DecisionReply>, StoreError> {
    let ids: Vec<WithdrawalId> = decisions.iter().map(|one| one.id).collect();
    let signed = signed_or_unasked(signer, &ids).await;
    db.decide_withdrawals(decisions, &signed, at).await
}

/// Two people say whether these were paid in the time that the database has forgotten.
pub async fn judge(
    db: &Db,
    signer: &dyn Remembers,
    verdicts: &[(WithdrawalId, WithdrawalVerdict)],
    people: &Approval,
    at: Timestamp,
) -> Result<Vec<DecisionReply>, StoreError> {
    let ids: Vec<WithdrawalId> = verdicts.iter().map(|(id, _)| *id).collect();
    let signed = signed_or_unasked(Some(signer), &ids).await;
    db.judge_withdrawals(verdicts, people, &signed, at).await
}
