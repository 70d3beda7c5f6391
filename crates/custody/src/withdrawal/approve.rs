//! What people sign so that a withdrawal may be paid: the digest of the very intent that its job will be asked with. All of it is fixed when the request
//! is made, so it can be signed before there is a job, and the signer judges the same signatures again.

use std::sync::Arc;

use domain::Timestamp;
use signer::Intent;
use signer::approval::{GivenApproval, Proof};
use signer::names::{KeyName, Person, SignerName};
use signer::policy::{Approver, PublicKey};
use store::Db;
use store::entry::ChainRow;
use store::outbound::ApprovalSignature;
use store::withdrawal::{NewWithdrawalApproval, WithdrawalApproved, WithdrawalId, WithdrawalRow};

use crate::outbound::OutboundError;
use crate::outbound::approve::withdrawal_intent;
use crate::wallet::Pinned;

/// A person's key, as it is pinned here. The signer's policy has its own list, and judges by that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApproverKey {
    pub person: Person,
    pub name: KeyName,
    pub public: PublicKey,
}

/// Where approvals of a chain's withdrawals are taken: what its payments are made of, and whose signatures count.
pub struct ApprovalDesk<'a> {
    pub row: &'a ChainRow,
    pub pinned: &'a Arc<Pinned>,
    pub signer: &'a SignerName,
    pub approvers: &'a [ApproverKey],
}

/// What became of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approving {
    /// It is good, and this is what it comes to.
    Taken(WithdrawalApproved),
    NoSuchWithdrawal,
    /// Nobody can say what would be paid, so there is nothing to sign.
    Unclear(String),
    /// It was signed for something else: another withdrawal, another round, another fee.
    OtherDigest,
    /// No key of this name is known.
    UnknownKey,
    /// It is none of the key's.
    BadSignature(&'static str),
}

impl ApprovalDesk<'_> {
    /// What the withdrawal's next payment is: to be shown in words, and its digest to be signed. The other error: there is none.
    pub async fn intent(&self, db: &Db, row: &WithdrawalRow) -> Result<Result<Intent, String>, OutboundError> {
        let rounds = db.rounds_of_withdrawals(&[row.id]).await?;
        let round = rounds.get(&row.id).copied().unwrap_or(0);
        withdrawal_intent(self.row.clone(), Arc::clone(self.pinned), self.signer, row, round)
    }

    /// The withdrawal with what pays it fixed, and its intent.
    pub async fn read(
        &self,
        db: &Db,
        id: WithdrawalId,
    ) -> Result<Option<(WithdrawalRow, Result<Intent, String>)>, OutboundError> {
        let mut rows = db.withdrawals(&[id]).await?;
        if rows.iter().any(|row| row.group.is_none()) {
            db.fix_wallet_groups(&[id]).await?;
            rows = db.withdrawals(&[id]).await?;
        }
        let Some(row) = rows.pop().filter(|row| row.chain == self.row.id) else { return Ok(None) };
        let intent = self.intent(db, &row).await?;
        Ok(Some((row, intent)))
    }

    /// Verifies a signature and keeps it. With enough of them the withdrawal is approved.
    pub async fn approve(
        &self,
        db: &Db,
        id: WithdrawalId,
        given: &GivenApproval,
        at: Timestamp,
    ) -> Result<Approving, OutboundError> {
        let Some((row, intent)) = self.read(db, id).await? else { return Ok(Approving::NoSuchWithdrawal) };
        let intent = match intent {
            Ok(intent) => intent,
            Err(why) => return Ok(Approving::Unclear(why)),
        };
        let Some(group) = row.group.clone() else {
            return Ok(Approving::Unclear("no hot wallet of its chain is active".to_owned()));
        };
        if given.digest != intent.digest() {
            return Ok(Approving::OtherDigest);
        }
        let Some(key) = self.approvers.iter().find(|one| one.name == given.key) else {
            return Ok(Approving::UnknownKey);
        };
        let approver = Approver { person: key.person.clone(), key: key.public.clone() };
        if let Err(why) = given.check(&approver) {
            return Ok(Approving::BadSignature(why));
        }
        let signature = match given.proof.clone() {
            Proof::Ed25519(signature) => ApprovalSignature::Ed25519(signature),
            Proof::Passkey { authenticator_data, client_data, signature } => {
                ApprovalSignature::Passkey { authenticator_data, client_data, signature }
            }
        };
        let approval = NewWithdrawalApproval {
            withdrawal: id,
            digest: given.digest,
            round: intent.round,
            group,
            person: key.person.to_string(),
            key: key.name.to_string(),
            signature,
        };
        Ok(Approving::Taken(db.approve_withdrawal(&approval, at).await?))
    }
}
