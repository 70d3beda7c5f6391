//! What people have signed for withdrawals. Each signature is kept, and when enough different people have signed the same digest the withdrawal is
//! approved, in the same commit. They travel to the signer with the job, which judges each of them again.

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
    INSERT_WITHDRAWAL_APPROVAL = "INSERT INTO withdrawal_approvals (withdrawal_id, digest, person, key_name, signature, authenticator_data, client_data, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (withdrawal_id, digest, person) DO NOTHING";
    READ_PEOPLE = "SELECT a.person, CASE WHEN o.is_active THEN o.role END FROM withdrawal_approvals a LEFT JOIN operators o ON o.name = a.person
        WHERE a.withdrawal_id = $1 AND a.digest = $2 ORDER BY a.at, a.person";
    READ_WITHDRAWAL_APPROVALS = "SELECT withdrawal_id, digest, person, key_name, at FROM withdrawal_approvals WHERE withdrawal_id {in $1}
        ORDER BY withdrawal_id, at, person";
    /// With the job, in the commit that makes it. The job only sends those that are for what it asks.
    COPY_APPROVALS = "INSERT INTO outbound_approvals (job_id, digest, key_name, signature, authenticator_data, client_data, refused, at)
        SELECT k.job_id, a.digest, a.key_name, a.signature, a.authenticator_data, a.client_data, NULL, a.at
        FROM withdrawal_approvals a JOIN withdrawal_requests w ON w.id = a.withdrawal_id
            JOIN withdrawal_jobs k ON k.withdrawal_id = w.id AND k.number = w.jobs
        WHERE a.withdrawal_id {in $1} ON CONFLICT (job_id, digest, key_name) WHERE refused IS NULL DO NOTHING";
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
        type Row = (i64, Vec<u8>, String, String, i64);
        let tx = &mut self.read().await?;
        let rows = fetch_all!(tx, READ_WITHDRAWAL_APPROVALS => Row, numbers(ids.iter().copied()))?;
        let one = |(id, digest, person, key, at): Row| {
            let digest = digest.try_into().map_err(|_| super::types::malformed("digest"))?;
            let withdrawal = super::types::withdrawal_id(id)?;
            Ok(WithdrawalApproval { withdrawal, digest, person, key, at: Timestamp::from_micros(at) })
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
        person,
        key,
        signature.as_slice(),
        authenticator_data,
        client_data,
        at.micros()
    )?;
    let people = fetch_all!(tx, READ_PEOPLE => (String, Option<String>), number, digest)?;
    let (people, enough) = agreeing(people, row.people, counted)?;
    let agree = u32::try_from(people.len()).unwrap_or(u32::MAX);
    // One that was sent to people needs at least one of them, whatever the policy wanted; and administrators need one who is none.
    let wanted = if enough { row.people.max(1) } else { row.people.max(1).max(agree.saturating_add(1)) };
    if !enough {
        return Ok(if new == 0 {
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

/// Those of these people who count, and whether they are enough.
fn agreeing(
    people: Vec<(String, Option<String>)>,
    wanted: u32,
    counted: Counted,
) -> Result<(Vec<String>, bool), StoreError> {
    match counted {
        Counted::Everybody => {
            let enough = u32::try_from(people.len()).unwrap_or(u32::MAX) >= wanted.max(1);
            Ok((people.into_iter().map(|(person, _)| person).collect(), enough))
        }
        Counted::Operators => {
            let (mut names, mut roles) = (Vec::new(), Vec::new());
            for (person, role) in people {
                // Whoever was switched off since, or may not agree any more, does not count.
                let Some(role) = role else { continue };
                let role = OperatorRole::parse(&role).ok_or_else(|| super::types::malformed("role of an operator"))?;
                if role.signs() {
                    names.push(person);
                    roles.push(role);
                }
            }
            let enough = are_enough(&roles, wanted);
            Ok((names, enough))
        }
    }
}
