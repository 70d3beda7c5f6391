-- Withdrawals are paid: what people sign is fixed with the request, their signatures are kept, and the signer knows a payment by the request's own
-- number, whichever job makes it (docs/adr/0017-withdrawals.md).
-- The SQLite folder has a file of the same name with the same tables and columns; a test compares them.

-- Up to and with this sum of a day of UTC, of what nobody has agreed to, nobody has to agree to one more. NULL: only the amount of each counts.
ALTER TABLE withdrawal_policies ADD COLUMN auto_approve_daily BIGINT CONSTRAINT withdrawal_policies_daily CHECK (auto_approve_daily >= 0);
-- What becomes of one that the hot wallet has too little for: it fails, and the customer has the money back, or it waits for its next job.
ALTER TABLE withdrawal_policies ADD COLUMN when_short TEXT NOT NULL DEFAULT 'fail' CONSTRAINT withdrawal_policies_short CHECK (when_short IN ('fail', 'wait'));
-- So long after it was asked for it may be signed; then it fails.
ALTER TABLE withdrawal_policies ADD COLUMN life_us BIGINT NOT NULL DEFAULT 86400000000 CONSTRAINT withdrawal_policies_life CHECK (life_us > 0);

-- Nothing that was released writes rows here; where there are some all the same, this fails, and changes nothing.
ALTER TABLE withdrawal_requests ADD COLUMN wallet_group TEXT COLLATE "C";
ALTER TABLE withdrawal_requests ADD COLUMN network_fee_raw TEXT NOT NULL;
ALTER TABLE withdrawal_requests ADD COLUMN expires_at BIGINT NOT NULL;
ALTER TABLE withdrawal_requests ADD COLUMN judged TEXT;
COMMENT ON COLUMN withdrawal_requests.wallet_group IS 'The group that pays: fixed before there is a job, so that people can sign. NULL while the chain has no hot wallet.';
COMMENT ON COLUMN withdrawal_requests.network_fee_raw IS 'The most that the payment may cost, in the chain''s own coin.';
COMMENT ON COLUMN withdrawal_requests.expires_at IS 'Until when it may be signed.';
COMMENT ON COLUMN withdrawal_requests.judged IS 'What two people have said of one that the signer has signed in a time that this database does not know.';
ALTER TABLE withdrawal_requests DROP CONSTRAINT withdrawal_requests_paid;
ALTER TABLE withdrawal_requests ADD CONSTRAINT withdrawal_requests_paid CHECK (CASE status WHEN 'queued' THEN jobs > 0 AND payee_id IS NULL
    WHEN 'completed' THEN jobs > 0 OR payee_id IS NOT NULL OR judged IS NOT NULL ELSE payee_id IS NULL END);

-- The signer knows what a withdrawal's job pays by the withdrawal's number, so that no second job of it is paid beside the first, whatever this
-- database has forgotten. NULL: by the job's own.
ALTER TABLE outbound_jobs ADD COLUMN withdrawal_id BIGINT CONSTRAINT outbound_jobs_withdrawal REFERENCES withdrawal_requests (id);
-- It is over because its wallet had too little, and nothing was signed for it.
ALTER TABLE outbound_jobs ADD COLUMN short BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX outbound_jobs_by_withdrawal ON outbound_jobs (withdrawal_id) WHERE withdrawal_id IS NOT NULL;
-- What a chain may have taken back: few of all jobs ever fail.
CREATE INDEX outbound_jobs_failed ON outbound_jobs (chain_id, id) WHERE failed;

-- What people have signed for a withdrawal: the digest of its payment, which names the withdrawal, so that it serves for no other. Each travels to the signer with
-- the job.
CREATE TABLE withdrawal_approvals (
    withdrawal_id BIGINT NOT NULL CONSTRAINT withdrawal_approvals_request REFERENCES withdrawal_requests (id),
    digest BYTEA NOT NULL CONSTRAINT withdrawal_approvals_digest CHECK (length(digest) = 32),
    -- Whose key it is, and its name, as the signer's policy has them.
    person TEXT NOT NULL,
    key_name TEXT NOT NULL,
    signature BYTEA NOT NULL,
    -- Of a passkey. NULL: an Ed25519 key.
    authenticator_data BYTEA,
    client_data BYTEA,
    at BIGINT NOT NULL,
    -- A person counts once.
    CONSTRAINT withdrawal_approvals_pkey PRIMARY KEY (withdrawal_id, digest, person),
    CONSTRAINT withdrawal_approvals_passkey CHECK ((authenticator_data IS NULL) = (client_data IS NULL))
);

-- What was asked and judged stays as it was. What else changes goes with a step that the machine has, and with nothing else.
DROP TRIGGER trg_withdrawal_fixed ON withdrawal_requests;
DROP TRIGGER trg_withdrawal_ended ON withdrawal_requests;
CREATE TRIGGER trg_withdrawal_fixed AFTER UPDATE ON withdrawal_requests
    FOR EACH ROW WHEN ((OLD.id, OLD.user_id, OLD.account_id, OLD.asset_id, OLD.chain_id, OLD.listing_id, OLD.client_order_id, OLD.to_address, OLD.amount, OLD.fee, OLD.most_fee, OLD.network_fee_raw, OLD.expires_at, OLD.policy_version, OLD.rule, OLD.people, OLD.inputs, OLD.created_at)
        IS DISTINCT FROM (NEW.id, NEW.user_id, NEW.account_id, NEW.asset_id, NEW.chain_id, NEW.listing_id, NEW.client_order_id, NEW.to_address, NEW.amount, NEW.fee, NEW.most_fee, NEW.network_fee_raw, NEW.expires_at, NEW.policy_version, NEW.rule, NEW.people, NEW.inputs, NEW.created_at))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_step AFTER UPDATE ON withdrawal_requests
    FOR EACH ROW WHEN (OLD.status <> NEW.status AND (OLD.status || '>' || NEW.status) NOT IN ('pending>approved', 'pending>manual_review', 'pending>rejected', 'pending>cancelled', 'pending>failed', 'manual_review>approved', 'manual_review>rejected', 'manual_review>cancelled', 'manual_review>failed', 'manual_review>completed', 'approved>manual_review', 'approved>rejected', 'approved>cancelled', 'approved>queued', 'approved>completed', 'approved>failed', 'queued>completed', 'queued>failed', 'queued>approved', 'queued>manual_review', 'completed>failed'))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_counted AFTER UPDATE ON withdrawal_requests
    FOR EACH ROW WHEN (NEW.version <> OLD.version + CASE WHEN OLD.status = NEW.status THEN 0 ELSE 1 END
        OR NEW.jobs <> OLD.jobs + CASE WHEN OLD.status = 'approved' AND NEW.status = 'queued' THEN 1 ELSE 0 END
        OR (NEW.queued_at IS DISTINCT FROM OLD.queued_at AND NEW.jobs = OLD.jobs)
        OR (NEW.payee_id IS DISTINCT FROM OLD.payee_id AND NOT (OLD.payee_id IS NULL AND OLD.status = 'approved' AND NEW.status = 'completed'))
        OR (NEW.judged IS DISTINCT FROM OLD.judged AND NOT (OLD.judged IS NULL AND (OLD.status || '>' || NEW.status) IN ('manual_review>completed', 'manual_review>failed', 'completed>failed')))
        OR (OLD.wallet_group IS NOT NULL AND NEW.wallet_group IS DISTINCT FROM OLD.wallet_group))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_approval_fixed AFTER UPDATE OR DELETE ON withdrawal_approvals FOR EACH ROW EXECUTE FUNCTION refuse_change();
-- The sum of a day is compared with the requests by bursar audit.
CREATE TRIGGER trg_withdrawal_day_fixed AFTER UPDATE ON withdrawal_days
    FOR EACH ROW WHEN ((OLD.listing_id, OLD.day) IS DISTINCT FROM (NEW.listing_id, NEW.day))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_day_kept AFTER DELETE ON withdrawal_days FOR EACH ROW EXECUTE FUNCTION refuse_change();
-- What people signed for is what is paid.
CREATE TRIGGER trg_outbound_job_signed_fixed AFTER UPDATE ON outbound_jobs
    FOR EACH ROW WHEN ((OLD.withdrawal_id, OLD.requester, OLD.owner_group, OLD.owner_index, OLD.most_fee_raw, OLD.expires_at)
        IS DISTINCT FROM (NEW.withdrawal_id, NEW.requester, NEW.owner_group, NEW.owner_index, NEW.most_fee_raw, NEW.expires_at))
    EXECUTE FUNCTION refuse_change();
-- A withdrawal's name is given to jobs that are known as its own, and to no others: those could pay it beside its hold.
CREATE TRIGGER trg_outbound_job_named AFTER INSERT ON outbound_jobs
    FOR EACH ROW WHEN (NEW.withdrawal_id IS NULL AND substr(NEW.reference, 1, 3) = 'wr-')
    EXECUTE FUNCTION refuse_change();
