//! What people have signed for jobs. The signer judges each; here they wait to be sent along. What the treasury file says of a key holds here too:
//! whoever is switched off, or is the customer who is paid, does not agree.

use domain::operator::OperatorAction;
use domain::outbound::JobState;
use domain::{Timestamp, UserId};

use super::read::{JobReply, LOCK_JOB_LANE};
use super::types::{JobId, JobRow, malformed, read_jobs};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::error::StoreError;
use crate::operator::NewLogLine;
use crate::operator::log::write;
use crate::operator::read::lock as lock_operator;
use crate::transact;

/// A person's signature over the digest of what a job is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobApproval {
    pub job: JobId,
    pub digest: [u8; 32],
    /// The name of the key in the signer's policy.
    pub key: String,
    pub signature: ApprovalSignature,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalSignature {
    Ed25519(Vec<u8>),
    Passkey { authenticator_data: Vec<u8>, client_data: Vec<u8>, signature: Vec<u8> },
}

statements! {
    /// One that the signer has refused makes room for another of the same key.
    INSERT_APPROVAL = "INSERT INTO outbound_approvals (job_id, digest, key_name, signature, authenticator_data, client_data, refused, at)
        VALUES ($1, $2, $3, $4, $5, $6, NULL, $7) ON CONFLICT (job_id, digest, key_name) WHERE refused IS NULL DO NOTHING";
    /// Whose key it is. A key is one person's for ever, so this may be read before that person is locked.
    READ_KEY_PERSON = "SELECT o.name FROM operator_keys k JOIN operators o ON o.id = k.operator_id WHERE k.name = $1";
    READ_KEY_IS_ACTIVE = "SELECT is_active FROM operator_keys WHERE name = $1";
    /// Who asked for the withdrawal that a job pays.
    READ_JOB_USER = "SELECT w.user_id FROM outbound_jobs j JOIN withdrawal_requests w ON w.id = j.withdrawal_id WHERE j.id = $1";
    /// It need not rest any longer.
    APPROVED_IS_DUE = "UPDATE outbound_jobs SET due_at = $2, updated_at = $2 WHERE id = $1";
    READ_APPROVALS = "SELECT job_id, digest, key_name, signature, authenticator_data, client_data FROM outbound_approvals
        WHERE job_id {in $1} AND refused IS NULL ORDER BY id";
    REFUSE_APPROVALS = "UPDATE outbound_approvals SET refused = $2 WHERE job_id {in $1} AND refused IS NULL";
}

impl Db {
    /// Keeps an approval of a job that has no slot yet, and lets it be tried at once. The same again changes nothing. Is the key an operator's, that
    /// person must be switched on with it, and may not be who asked for the payment; of other keys only the signer knows whose they are. The log of
    /// operators has a line of it, also of what was refused, under the name of the person or, if nobody is known, of the key.
    pub async fn approve_job(&self, approval: &JobApproval, at: Timestamp) -> Result<JobReply, StoreError> {
        transact!(self, tx => {
            let person = fetch_optional!(tx, READ_KEY_PERSON => (String,), approval.key.as_str())?.map(|(person,)| person);
            let reply = keep(tx, approval, person.as_deref(), at).await?;
            let (who, reason) = (person.as_deref().unwrap_or(&approval.key), format!("with the key {}", approval.key));
            let action = OperatorAction::Approve.as_str();
            write(tx, &[NewLogLine::typed(who, action, &approval.job, &reason, reply.outcome())], at).await?;
            Ok(reply)
        })
    }

    /// What people have signed for these jobs, and the signer has not refused.
    pub async fn approvals_of(&self, jobs: &[JobId]) -> Result<Vec<JobApproval>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        type Row = (i64, Vec<u8>, String, Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);
        let rows = fetch_all!(&mut self.read().await?, READ_APPROVALS => Row, numbers(jobs))?;
        let approval = |(job, digest, key, signature, authenticator_data, client_data): Row| {
            let signature = match authenticator_data.zip(client_data) {
                None => ApprovalSignature::Ed25519(signature),
                Some((authenticator_data, client_data)) => {
                    ApprovalSignature::Passkey { authenticator_data, client_data, signature }
                }
            };
            let job = JobId::new(job).map_err(|_| malformed("job"))?;
            let digest = digest.try_into().map_err(|_| malformed("digest"))?;
            Ok(JobApproval { job, digest, key, signature })
        };
        rows.into_iter().map(approval).collect()
    }

    /// The signer says that one of these is no good. It did not say that of the others, but they are not sent with it again: people look, and
    /// approve anew.
    pub async fn refuse_approvals(&self, jobs: &[JobId], why: &str) -> Result<(), StoreError> {
        if jobs.is_empty() {
            return Ok(());
        }
        transact!(self, tx => execute!(tx, REFUSE_APPROVALS, numbers(jobs), why).map(|_| ()))
    }
}

async fn keep(
    tx: &mut Tx,
    approval: &JobApproval,
    person: Option<&str>,
    at: Timestamp,
) -> Result<JobReply, StoreError> {
    let number = approval.job.number();
    // Before the lane, as whoever operates does it. Who switches this person off waits until this is done, or has done it.
    let operator = match person {
        None => None,
        Some(name) => {
            let name = name.parse().map_err(|_| malformed("name of an operator"))?;
            let operator = lock_operator(tx, &name).await?.ok_or_else(|| malformed("operator"))?;
            let key = fetch_optional!(tx, READ_KEY_IS_ACTIVE => (bool,), approval.key.as_str())?;
            if !operator.active || key != Some((true,)) {
                return Ok(JobReply::KeyOff);
            }
            Some(operator)
        }
    };
    fetch_optional!(tx, LOCK_JOB_LANE => (i64, String), number)?;
    let Some(job) = read_jobs(tx, &[approval.job]).await?.remove(&approval.job) else {
        return Ok(JobReply::NoSuchJob);
    };
    if let Some(operator) = operator
        && asked_for_it(tx, &job, operator.name.as_str(), operator.user.map(UserId::get)).await?
    {
        return Ok(JobReply::Requester);
    }
    if !matches!(job.state, JobState::Queued | JobState::FailedRetryable) {
        return Ok(JobReply::NotNow(job.state));
    }
    let (signature, authenticator_data, client_data) = match &approval.signature {
        ApprovalSignature::Ed25519(signature) => (signature, None, None),
        ApprovalSignature::Passkey { authenticator_data, client_data, signature } => {
            (signature, Some(authenticator_data.as_slice()), Some(client_data.as_slice()))
        }
    };
    execute!(
        tx,
        INSERT_APPROVAL,
        number,
        approval.digest.as_slice(),
        approval.key.as_str(),
        signature.as_slice(),
        authenticator_data,
        client_data,
        at.micros()
    )?;
    execute!(tx, APPROVED_IS_DUE, number, at.micros())?;
    Ok(JobReply::Done)
}

/// Whether this person is who wants the payment: by name, or as the customer whose withdrawal it pays.
async fn asked_for_it(tx: &mut Tx, job: &JobRow, name: &str, user: Option<i64>) -> Result<bool, StoreError> {
    let Some(user) = user else { return Ok(job.requester == name) };
    let paid = fetch_optional!(tx, READ_JOB_USER => (i64,), job.id.number())?;
    Ok(job.requester == name || paid == Some((user,)))
}

fn numbers(jobs: &[JobId]) -> Many<i64> {
    Many(jobs.iter().map(|job| job.number()).collect())
}
