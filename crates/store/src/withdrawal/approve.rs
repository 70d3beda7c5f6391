//! What people have signed for withdrawals. Each signature is kept, and when enough different people have signed the same digest the withdrawal is
//! approved, in the same commit. They travel to the signer with the job, which judges each of them again.
//!
//! Only what was signed since the withdrawal waits counts: whoever signed before a doubt signs again after it. And only with a key that is switched on,
//! where operators' keys are known here.

use domain::operator::{OperatorRole, are_enough};
use domain::withdrawal::{WithdrawalEvent, WithdrawalState};
use domain::{GroupId, Timestamp};

use super::advance::{Change, advance};
use super::check::held_up;
use super::signed::rounds;
use super::types::{WithdrawalId, WithdrawalRow, lock, numbers};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::outbound::ApprovalSignature;
use crate::transact;

/// A person's signature over the digest of a withdrawal's payment. **Whoever hands it over has verified it, and that the key is this person's.**
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewWithdrawalApproval {
    pub withdrawal: WithdrawalId,
    pub digest: [u8; 32],
    /// The round and the wallet group that the digest was made with. Everything else in it never changes.
    pub round: u32,
    pub group: GroupId,
    pub person: String,
    /// The name of the key in the signer's policy.
    pub key: String,
    pub signature: ApprovalSignature,
}

/// One that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalApproval {
    pub withdrawal: WithdrawalId,
    pub digest: [u8; 32],
    pub person: String,
    pub key: String,
    pub at: Timestamp,
    /// It was made since the withdrawal waits, or for the last time that it did, and neither key nor person was switched off since.
    pub counts: bool,
    /// What the person is now. `None`: no operator, or switched off.
    pub role: Option<OperatorRole>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WithdrawalApproved {
    /// Enough people agree: it may be paid.
    Approved(Box<WithdrawalRow>),
    /// The signature is kept, and more people have to agree.
    Kept {
        wanted: u32,
        agree: u32,
    },
    /// This person has signed the same before.
    Before {
        wanted: u32,
        agree: u32,
    },
    NoSuchWithdrawal,
    /// It is in this state, in which nobody has to agree.
    NotNow(WithdrawalState),
    /// Its time is over.
    TooLate,
    /// Whoever asked for it does not agree to it.
    Requester,
    /// What pays it is another by now: people have to read and sign it again.
    Changed,
    /// The check outside has not let it pass yet, and nobody agrees before.
    CheckWaits,
}

/// Whose signatures count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Everybody's: whoever calls knows who they are.
    Everybody,
    /// Of operators who may approve now. Administrators alone are never enough.
    Operators,
}

statements! {
    INSERT_WITHDRAWAL_APPROVAL = "INSERT INTO withdrawal_approvals (withdrawal_id, digest, version, person, key_name, signature, authenticator_data, client_data, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (withdrawal_id, digest, version, person, key_name) DO NOTHING";
    /// Who signed this since it waits, with which key, and as what the person counts now: as nothing, if either is switched off.
    READ_PEOPLE = "SELECT a.person, a.key_name, CASE WHEN o.is_active AND k.is_active THEN o.role END FROM withdrawal_approvals a
            LEFT JOIN operators o ON o.name = a.person LEFT JOIN operator_keys k ON k.name = a.key_name AND k.operator_id = o.id
        WHERE a.withdrawal_id = $1 AND a.digest = $2 AND a.version = $3 ORDER BY a.at, a.person, a.key_name";
    READ_WITHDRAWAL_APPROVALS = "SELECT a.withdrawal_id, a.digest, a.person, a.key_name, a.at,
            a.version = CASE WHEN w.status IN ('pending', 'manual_review') THEN w.version
                    ELSE (SELECT MAX(b.version) FROM withdrawal_approvals b WHERE b.withdrawal_id = a.withdrawal_id) END
                AND NOT EXISTS (SELECT 1 FROM operator_keys k JOIN operators o ON o.id = k.operator_id
                    WHERE k.name = a.key_name AND NOT (k.is_active AND o.is_active)),
            (SELECT o.role FROM operators o WHERE o.name = a.person AND o.is_active)
        FROM withdrawal_approvals a JOIN withdrawal_requests w ON w.id = a.withdrawal_id WHERE a.withdrawal_id {in $1}
        ORDER BY a.withdrawal_id, a.at, a.person, a.key_name";
    /// With the job, in the commit that makes it: what approved the withdrawal. One bad signature would spoil those beside it, so what is known to be
    /// switched off stays here. The job only sends those that are for what it asks.
    COPY_APPROVALS = "INSERT INTO outbound_approvals (job_id, digest, key_name, signature, authenticator_data, client_data, refused, at)
        SELECT j.job_id, a.digest, a.key_name, a.signature, a.authenticator_data, a.client_data, NULL, a.at
        FROM withdrawal_approvals a JOIN withdrawal_requests w ON w.id = a.withdrawal_id
            JOIN withdrawal_jobs j ON j.withdrawal_id = w.id AND j.number = w.jobs
        WHERE a.withdrawal_id {in $1} AND a.version = (SELECT MAX(b.version) FROM withdrawal_approvals b WHERE b.withdrawal_id = a.withdrawal_id)
            AND NOT EXISTS (SELECT 1 FROM operator_keys k JOIN operators o ON o.id = k.operator_id
                WHERE k.name = a.key_name AND NOT (k.is_active AND o.is_active))
        ON CONFLICT (job_id, digest, key_name) WHERE refused IS NULL DO NOTHING";
}

impl Db {
    /// Keeps a signature. When so many people as the policy wants have signed the same, it is approved.
    pub async fn approve_withdrawal(
        &self,
        approval: &NewWithdrawalApproval,
        at: Timestamp,
    ) -> Result<WithdrawalApproved, StoreError> {
        transact!(self, tx => approve(tx, approval, Counted::Everybody, at).await)
    }

    /// What people have signed for these, by withdrawal and in the order of time.
    pub async fn withdrawal_approvals(&self, ids: &[WithdrawalId]) -> Result<Vec<WithdrawalApproval>, StoreError> {
        type Row = (i64, Vec<u8>, String, String, i64, bool, Option<String>);
        let tx = &mut self.read().await?;
        let rows = fetch_all!(tx, READ_WITHDRAWAL_APPROVALS => Row, numbers(ids.iter().copied()))?;
        let one = |(id, digest, person, key, at, counts, role): Row| {
            let digest = digest.try_into().map_err(|_| super::types::malformed("digest"))?;
            let withdrawal = super::types::withdrawal_id(id)?;
            let parsed =
                |role: String| OperatorRole::parse(&role).ok_or_else(|| super::types::malformed("role of an operator"));
            let role = role.map(parsed).transpose()?;
            Ok(WithdrawalApproval { withdrawal, digest, person, key, at: Timestamp::from_micros(at), counts, role })
        };
        rows.into_iter().map(one).collect()
    }
}

pub(crate) async fn approve(
    tx: &mut Tx,
    approval: &NewWithdrawalApproval,
    counted: Counted,
    at: Timestamp,
) -> Result<WithdrawalApproved, StoreError> {
    let Some(row) = lock(tx, std::iter::once(approval.withdrawal)).await?.pop() else {
        return Ok(WithdrawalApproved::NoSuchWithdrawal);
    };
    match row.state {
        WithdrawalState::Pending | WithdrawalState::ManualReview => {}
        WithdrawalState::Approved
        | WithdrawalState::Queued
        | WithdrawalState::Completed
        | WithdrawalState::Failed
        | WithdrawalState::Rejected
        | WithdrawalState::Cancelled => return Ok(WithdrawalApproved::NotNow(row.state)),
    }
    if row.expires <= at {
        return Ok(WithdrawalApproved::TooLate);
    }
    if approval.person == row.requester() {
        return Ok(WithdrawalApproved::Requester);
    }
    if !held_up(tx, std::iter::once(row.id)).await?.is_empty() {
        return Ok(WithdrawalApproved::CheckWaits);
    }
    let round = rounds(tx, std::iter::once(row.id)).await?.get(&row.id).copied().unwrap_or(0);
    if approval.round != round || row.group.as_ref() != Some(&approval.group) {
        return Ok(WithdrawalApproved::Changed);
    }
    let (signature, authenticator_data, client_data) = match &approval.signature {
        ApprovalSignature::Ed25519(signature) => (signature, None, None),
        ApprovalSignature::Passkey { authenticator_data, client_data, signature } => {
            (signature, Some(authenticator_data.as_slice()), Some(client_data.as_slice()))
        }
    };
    let (number, digest) = (row.id.number(), approval.digest.as_slice());
    let (person, key) = (approval.person.as_str(), approval.key.as_str());
    let new = execute!(
        tx,
        INSERT_WITHDRAWAL_APPROVAL,
        number,
        digest,
        row.version,
        person,
        key,
        signature.as_slice(),
        authenticator_data,
        client_data,
        at.micros()
    )?;
    let given = fetch_all!(tx, READ_PEOPLE => (String, String, Option<String>), number, digest, row.version)?;
    let others: Vec<Given> = given.iter().filter(|(_, name, _)| name != key).cloned().collect();
    let before = new == 0 || agreeing(others, row.people, counted)?.0.iter().any(|name| name == person);
    let (people, enough) = agreeing(given, row.people, counted)?;
    let agree = u32::try_from(people.len()).unwrap_or(u32::MAX);
    // One that was sent to people needs at least one of them, whatever the policy wanted; and administrators need one who is none.
    let wanted = if enough { row.people.max(1) } else { row.people.max(1).max(agree.saturating_add(1)) };
    if !enough {
        return Ok(if before {
            WithdrawalApproved::Before { wanted, agree }
        } else {
            WithdrawalApproved::Kept { wanted, agree }
        });
    }
    let change =
        Change::new(row, WithdrawalEvent::Approved, &people.join(", "), format!("{agree} of {wanted} have signed it"));
    let row = advance(tx, vec![change], at).await?.pop().ok_or_else(|| super::types::malformed("answer"))?;
    Ok(WithdrawalApproved::Approved(Box::new(row)))
}

/// A person, the name of the key, and the role that the person signs in, if both may sign now.
type Given = (String, String, Option<String>);

/// Those of these people who count, each once, and whether they are enough.
fn agreeing(given: Vec<Given>, wanted: u32, counted: Counted) -> Result<(Vec<String>, bool), StoreError> {
    let (mut names, mut roles) = (Vec::new(), Vec::new());
    for (person, _, role) in given {
        if names.contains(&person) {
            continue;
        }
        if counted == Counted::Operators {
            // Who was switched off since, or whose key was, or who may not agree any more, does not count.
            let Some(role) = role else { continue };
            let role = OperatorRole::parse(&role).ok_or_else(|| super::types::malformed("role of an operator"))?;
            if !role.signs() {
                continue;
            }
            roles.push(role);
        }
        names.push(person);
    }
    let enough = match counted {
        Counted::Everybody => u32::try_from(names.len()).unwrap_or(u32::MAX) >= wanted.max(1),
        Counted::Operators => are_enough(&roles, wanted),
    };
    Ok((names, enough))
}
