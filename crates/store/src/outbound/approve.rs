//! What people have signed for jobs. The signer judges each; here they only wait to be sent along.

use domain::Timestamp;
use domain::outbound::JobState;

use super::read::{JobReply, LOCK_JOB_LANE};
use super::types::{JobId, malformed, read_jobs};
use crate::db::Db;
use crate::dialect::Many;
use crate::error::StoreError;
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
    /// It need not rest any longer.
    APPROVED_IS_DUE = "UPDATE outbound_jobs SET due_at = $2, updated_at = $2 WHERE id = $1";
    READ_APPROVALS = "SELECT job_id, digest, key_name, signature, authenticator_data, client_data FROM outbound_approvals
        WHERE job_id {in $1} AND refused IS NULL ORDER BY id";
    REFUSE_APPROVALS = "UPDATE outbound_approvals SET refused = $2 WHERE job_id {in $1} AND refused IS NULL";
}

impl Db {
    /// Keeps an approval of a job that has no slot yet, and lets it be tried at once. The same again changes nothing.
    pub async fn approve_job(&self, approval: &JobApproval, at: Timestamp) -> Result<JobReply, StoreError> {
        transact!(self, tx => {
            let number = approval.job.number();
            fetch_optional!(tx, LOCK_JOB_LANE => (i64, String), number)?;
            let Some(job) = read_jobs(tx, &[approval.job]).await?.remove(&approval.job) else { return Ok(JobReply::NoSuchJob) };
            if !matches!(job.state, JobState::Queued | JobState::FailedRetryable) {
                return Ok(JobReply::NotNow(job.state));
            }
            let (signature, authenticator_data, client_data) = match &approval.signature {
                ApprovalSignature::Ed25519(signature) => (signature, None, None),
                ApprovalSignature::Passkey { authenticator_data, client_data, signature } => {
                    (signature, Some(authenticator_data.as_slice()), Some(client_data.as_slice()))
                }
            };
            let digest = approval.digest.as_slice();
            execute!(tx, INSERT_APPROVAL, number, digest, approval.key.as_str(), signature.as_slice(), authenticator_data, client_data,
                at.micros())?;
            execute!(tx, APPROVED_IS_DUE, number, at.micros())?;
            Ok(JobReply::Done)
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

fn numbers(jobs: &[JobId]) -> Many<i64> {
    Many(jobs.iter().map(|job| job.number()).collect())
}
