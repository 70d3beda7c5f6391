-- Lanes that have something to do are found by their jobs, not by looking into every lane: each user's address that was ever swept has one
-- (docs/adr/0014-outbound.md).
-- The PostgreSQL folder has a file of the same name.

DROP INDEX outbound_jobs_waiting;
-- With the time, so that the index alone says what is due.
CREATE INDEX outbound_jobs_waiting ON outbound_jobs (chain_id, lane_id, priority, id, due_at) WHERE state IN ('queued', 'failed_retryable');

-- Gas and sweeps that people have asked for: rules must know of them, and they are few.
CREATE INDEX outbound_jobs_by_people ON outbound_jobs (chain_id, kind) WHERE kind IN ('gas_topup', 'consolidation') AND requester <> 'rules';

-- What people have signed for a job, so that the signer signs it: a signature over the digest of the job's intent. Only the signer judges it.
CREATE TABLE outbound_approvals (
    id INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL CONSTRAINT outbound_approvals_job REFERENCES outbound_jobs (id),
    digest BLOB NOT NULL CONSTRAINT outbound_approvals_digest CHECK (length(digest) = 32),
    -- As the signer's policy names the key.
    key_name TEXT NOT NULL,
    signature BLOB NOT NULL,
    -- Of a passkey. NULL: an Ed25519 key.
    authenticator_data BLOB,
    client_data BLOB,
    -- Why it is not sent any more: the signer said that one of those that came together is no good. NULL: it is sent.
    refused TEXT,
    at INTEGER NOT NULL,
    CONSTRAINT outbound_approvals_passkey CHECK ((authenticator_data IS NULL) = (client_data IS NULL))
) STRICT;
CREATE UNIQUE INDEX outbound_approvals_once ON outbound_approvals (job_id, digest, key_name) WHERE refused IS NULL;
CREATE TRIGGER trg_outbound_approval_fixed AFTER UPDATE ON outbound_approvals
WHEN (OLD.id, OLD.job_id, OLD.digest, OLD.key_name, OLD.signature, OLD.authenticator_data, OLD.client_data, OLD.at)
    IS NOT (NEW.id, NEW.job_id, NEW.digest, NEW.key_name, NEW.signature, NEW.authenticator_data, NEW.client_data, NEW.at)
    OR (OLD.refused IS NOT NULL AND NEW.refused IS NOT OLD.refused)
BEGIN SELECT RAISE(ABORT, 'trg_outbound_approval_fixed'); END;
CREATE TRIGGER trg_outbound_approval_kept AFTER DELETE ON outbound_approvals
BEGIN SELECT RAISE(ABORT, 'trg_outbound_approval_kept'); END;
