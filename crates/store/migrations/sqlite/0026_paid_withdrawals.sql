-- Withdrawals are paid: what people sign is fixed with the request, their signatures are kept, and the signer knows a payment by the request's own
-- number, whichever job makes it (docs/adr/0017-withdrawals.md).
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

-- Up to and with this sum of a day of UTC, of what nobody has agreed to, nobody has to agree to one more. NULL: only the amount of each counts.
ALTER TABLE withdrawal_policies ADD COLUMN auto_approve_daily INTEGER CONSTRAINT withdrawal_policies_daily CHECK (auto_approve_daily >= 0);
-- What becomes of one that the hot wallet has too little for: it fails, and the customer has the money back, or it waits for its next job.
ALTER TABLE withdrawal_policies ADD COLUMN when_short TEXT NOT NULL DEFAULT 'fail' CONSTRAINT withdrawal_policies_short CHECK (when_short IN ('fail', 'wait'));
-- So long after it was asked for it may be signed; then it fails.
ALTER TABLE withdrawal_policies ADD COLUMN life_us INTEGER NOT NULL DEFAULT 86400000000 CONSTRAINT withdrawal_policies_life CHECK (life_us > 0);

-- The three tables of requests are made anew, because a constraint changes. Nothing that was released writes rows there; where there are some all the same,
-- this fails here, and changes nothing.
CREATE TABLE no_withdrawals (rows INTEGER NOT NULL CONSTRAINT withdrawals_before_migration_26 CHECK (rows = 0)) STRICT;
INSERT INTO no_withdrawals SELECT COUNT(*) FROM withdrawal_requests;
DROP TABLE no_withdrawals;
DROP TABLE withdrawal_jobs;
DROP TABLE withdrawal_events;
DROP TABLE withdrawal_requests;

-- What a customer wants paid out: the intent. How it is paid is the job's, which has rows of its own.
CREATE TABLE withdrawal_requests (
    id INTEGER NOT NULL CONSTRAINT withdrawal_requests_pkey PRIMARY KEY,
    user_id INTEGER NOT NULL CONSTRAINT withdrawal_requests_user CHECK (user_id > 0),
    -- The account that amount and fee are held on.
    account_id INTEGER NOT NULL,
    asset_id INTEGER NOT NULL REFERENCES assets (id),
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    listing_id INTEGER NOT NULL,
    -- The user's own name for it. The same name again is the same request.
    client_order_id TEXT NOT NULL CONSTRAINT withdrawal_requests_name CHECK (length(client_order_id) BETWEEN 1 AND 64),
    to_address TEXT NOT NULL CONSTRAINT withdrawal_requests_to CHECK (length(to_address) BETWEEN 1 AND 128),
    -- What the destination gets, what the customer pays on top of it, and the most that the customer agreed to.
    amount INTEGER NOT NULL CONSTRAINT withdrawal_requests_amount CHECK (amount > 0),
    fee INTEGER NOT NULL,
    most_fee INTEGER NOT NULL,
    -- What its payment is, before there is a job for it, so that people can sign it: the wallet group that pays, the most that the payment may cost in
    -- the chain's own coin, and until when it may be signed. group: NULL while the chain has no hot wallet.
    wallet_group TEXT,
    network_fee_raw TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    -- The words of the source, with those for what people do.
    status TEXT NOT NULL CONSTRAINT withdrawal_requests_status CHECK (status IN
        ('pending', 'manual_review', 'approved', 'queued', 'completed', 'failed', 'rejected', 'cancelled')),
    -- The number of its newest event.
    version INTEGER NOT NULL,
    -- The verdict: which version of the policy, which rule of it, how many people have to agree, and all that it was judged on, as JSON.
    policy_version INTEGER NOT NULL,
    rule TEXT NOT NULL,
    people INTEGER NOT NULL CONSTRAINT withdrawal_requests_people CHECK (people >= 0),
    inputs TEXT NOT NULL,
    -- How many jobs were made for it.
    jobs INTEGER NOT NULL CONSTRAINT withdrawal_requests_jobs CHECK (jobs >= 0),
    -- The user who got it, if its destination was an address of ours: no coin moved. NULL: it is paid on the chain.
    payee_id INTEGER,
    -- When its newest job was made.
    queued_at INTEGER,
    -- What two people have said of one that the signer has signed in a time that this database does not know. NULL: nothing.
    judged TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT withdrawal_requests_policy FOREIGN KEY (listing_id, policy_version) REFERENCES withdrawal_policies (listing_id, version),
    -- Exactly once (law 2).
    CONSTRAINT withdrawal_requests_client_order UNIQUE (user_id, client_order_id),
    CONSTRAINT withdrawal_requests_fee CHECK (0 <= fee AND fee <= most_fee AND fee <= amount),
    CONSTRAINT withdrawal_requests_queued CHECK ((jobs > 0) = (queued_at IS NOT NULL)),
    -- What has a job is not settled inside, and what is queued has one.
    CONSTRAINT withdrawal_requests_paid CHECK (CASE status WHEN 'queued' THEN jobs > 0 AND payee_id IS NULL
        WHEN 'completed' THEN jobs > 0 OR payee_id IS NOT NULL OR judged IS NOT NULL ELSE payee_id IS NULL END)
) STRICT;
-- A user's list, newest first.
CREATE INDEX withdrawal_requests_by_user ON withdrawal_requests (user_id, id);
-- What a user has asked for lately.
CREATE INDEX withdrawal_requests_by_time ON withdrawal_requests (user_id, listing_id, created_at);
-- What waits for people, for a job, or for the end of one.
CREATE INDEX withdrawal_requests_by_status ON withdrawal_requests (status, chain_id, id);
-- Where a user was paid before.
CREATE INDEX withdrawal_requests_paid_to ON withdrawal_requests (user_id, chain_id, to_address, created_at) WHERE status = 'completed';
-- What all have asked for on a day, for the sum of a day that begins in the middle.
CREATE INDEX withdrawal_requests_by_day ON withdrawal_requests (listing_id, created_at);

-- What happened to each, in order: who, when and why (law 7).
CREATE TABLE withdrawal_events (
    withdrawal_id INTEGER NOT NULL CONSTRAINT withdrawal_events_request REFERENCES withdrawal_requests (id),
    -- 1, 2, … within the withdrawal.
    version INTEGER NOT NULL,
    -- The status that it came to.
    status TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT withdrawal_events_pkey PRIMARY KEY (withdrawal_id, version)
) STRICT;

-- The jobs that were made for each: one at a time, and another only when the one before has failed for good.
CREATE TABLE withdrawal_jobs (
    withdrawal_id INTEGER NOT NULL CONSTRAINT withdrawal_jobs_request REFERENCES withdrawal_requests (id),
    -- 1, 2, … within the withdrawal.
    number INTEGER NOT NULL,
    job_id INTEGER NOT NULL CONSTRAINT withdrawal_jobs_job REFERENCES outbound_jobs (id),
    at INTEGER NOT NULL,
    CONSTRAINT withdrawal_jobs_pkey PRIMARY KEY (withdrawal_id, number)
) STRICT;
-- A job pays one withdrawal.
CREATE UNIQUE INDEX withdrawal_jobs_once ON withdrawal_jobs (job_id);

-- The signer knows what a withdrawal's job pays by the withdrawal's number, so that no second job of it is paid beside the first, whatever this
-- database has forgotten. NULL: by the job's own.
ALTER TABLE outbound_jobs ADD COLUMN withdrawal_id INTEGER CONSTRAINT outbound_jobs_withdrawal REFERENCES withdrawal_requests (id);
-- It is over because its wallet had too little, and nothing was signed for it.
ALTER TABLE outbound_jobs ADD COLUMN short INTEGER NOT NULL DEFAULT 0 CONSTRAINT outbound_jobs_short_flag CHECK (short IN (0, 1));
CREATE INDEX outbound_jobs_by_withdrawal ON outbound_jobs (withdrawal_id) WHERE withdrawal_id IS NOT NULL;
-- What a chain may have taken back: few of all jobs ever fail.
CREATE INDEX outbound_jobs_failed ON outbound_jobs (chain_id, id) WHERE failed;

-- What people have signed for a withdrawal: the digest of its payment, which names the withdrawal, so that it serves for no other. Each travels to the signer with
-- the job.
CREATE TABLE withdrawal_approvals (
    withdrawal_id INTEGER NOT NULL CONSTRAINT withdrawal_approvals_request REFERENCES withdrawal_requests (id),
    digest BLOB NOT NULL CONSTRAINT withdrawal_approvals_digest CHECK (length(digest) = 32),
    -- Whose key it is, and its name, as the signer's policy has them.
    person TEXT NOT NULL,
    key_name TEXT NOT NULL,
    signature BLOB NOT NULL,
    -- Of a passkey. NULL: an Ed25519 key.
    authenticator_data BLOB,
    client_data BLOB,
    at INTEGER NOT NULL,
    -- A person counts once.
    CONSTRAINT withdrawal_approvals_pkey PRIMARY KEY (withdrawal_id, digest, person),
    CONSTRAINT withdrawal_approvals_passkey CHECK ((authenticator_data IS NULL) = (client_data IS NULL))
) STRICT;

-- What was asked and judged stays as it was. What else changes goes with a step that the machine has, and with nothing else.
CREATE TRIGGER trg_withdrawal_fixed AFTER UPDATE ON withdrawal_requests
WHEN (OLD.id, OLD.user_id, OLD.account_id, OLD.asset_id, OLD.chain_id, OLD.listing_id, OLD.client_order_id, OLD.to_address, OLD.amount, OLD.fee, OLD.most_fee, OLD.network_fee_raw, OLD.expires_at, OLD.policy_version, OLD.rule, OLD.people, OLD.inputs, OLD.created_at)
    IS NOT (NEW.id, NEW.user_id, NEW.account_id, NEW.asset_id, NEW.chain_id, NEW.listing_id, NEW.client_order_id, NEW.to_address, NEW.amount, NEW.fee, NEW.most_fee, NEW.network_fee_raw, NEW.expires_at, NEW.policy_version, NEW.rule, NEW.people, NEW.inputs, NEW.created_at)
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_fixed'); END;
CREATE TRIGGER trg_withdrawal_step AFTER UPDATE ON withdrawal_requests
WHEN OLD.status <> NEW.status AND (OLD.status || '>' || NEW.status) NOT IN ('pending>approved', 'pending>manual_review', 'pending>rejected', 'pending>cancelled', 'pending>failed', 'manual_review>approved', 'manual_review>rejected', 'manual_review>cancelled', 'manual_review>failed', 'manual_review>completed', 'approved>manual_review', 'approved>rejected', 'approved>cancelled', 'approved>queued', 'approved>completed', 'approved>failed', 'queued>completed', 'queued>failed', 'queued>approved', 'queued>manual_review', 'completed>failed')
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_step'); END;
CREATE TRIGGER trg_withdrawal_counted AFTER UPDATE ON withdrawal_requests
WHEN NEW.version <> OLD.version + CASE WHEN OLD.status = NEW.status THEN 0 ELSE 1 END
        OR NEW.jobs <> OLD.jobs + CASE WHEN OLD.status = 'approved' AND NEW.status = 'queued' THEN 1 ELSE 0 END
        OR (NEW.queued_at IS NOT OLD.queued_at AND NEW.jobs = OLD.jobs)
        OR (NEW.payee_id IS NOT OLD.payee_id AND NOT (OLD.payee_id IS NULL AND OLD.status = 'approved' AND NEW.status = 'completed'))
        OR (NEW.judged IS NOT OLD.judged AND NOT (OLD.judged IS NULL AND (OLD.status || '>' || NEW.status) IN ('manual_review>completed', 'manual_review>failed', 'completed>failed')))
        OR (OLD.wallet_group IS NOT NULL AND NEW.wallet_group IS NOT OLD.wallet_group)
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_counted'); END;
CREATE TRIGGER trg_withdrawal_kept AFTER DELETE ON withdrawal_requests
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_kept'); END;
CREATE TRIGGER trg_withdrawal_event_fixed AFTER UPDATE ON withdrawal_events
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_event_fixed'); END;
CREATE TRIGGER trg_withdrawal_event_kept AFTER DELETE ON withdrawal_events
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_event_kept'); END;
CREATE TRIGGER trg_withdrawal_job_fixed AFTER UPDATE ON withdrawal_jobs
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_job_fixed'); END;
CREATE TRIGGER trg_withdrawal_job_kept AFTER DELETE ON withdrawal_jobs
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_job_kept'); END;
CREATE TRIGGER trg_withdrawal_approval_fixed AFTER UPDATE ON withdrawal_approvals
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_approval_fixed'); END;
CREATE TRIGGER trg_withdrawal_approval_kept AFTER DELETE ON withdrawal_approvals
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_approval_kept'); END;
-- The sum of a day is compared with the requests by bursar audit.
CREATE TRIGGER trg_withdrawal_day_fixed AFTER UPDATE ON withdrawal_days
WHEN (OLD.listing_id, OLD.day) IS NOT (NEW.listing_id, NEW.day)
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_day_fixed'); END;
CREATE TRIGGER trg_withdrawal_day_kept AFTER DELETE ON withdrawal_days
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_day_kept'); END;
-- What people signed for is what is paid.
CREATE TRIGGER trg_outbound_job_signed_fixed AFTER UPDATE ON outbound_jobs
WHEN (OLD.withdrawal_id, OLD.requester, OLD.owner_group, OLD.owner_index, OLD.most_fee_raw, OLD.expires_at)
    IS NOT (NEW.withdrawal_id, NEW.requester, NEW.owner_group, NEW.owner_index, NEW.most_fee_raw, NEW.expires_at)
BEGIN SELECT RAISE(ABORT, 'trg_outbound_job_signed_fixed'); END;
-- A withdrawal's name is given to jobs that are known as its own, and to no others: those could pay it beside its hold.
CREATE TRIGGER trg_outbound_job_named AFTER INSERT ON outbound_jobs
WHEN NEW.withdrawal_id IS NULL AND substr(NEW.reference, 1, 3) = 'wr-'
BEGIN SELECT RAISE(ABORT, 'trg_outbound_job_named'); END;
