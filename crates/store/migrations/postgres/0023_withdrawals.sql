-- Withdrawals: what customers want paid out, the policy that judges it, what became of it, and where users mean to be paid.
-- Amount and fee are held in the ledger by the commit that writes the row: the hold's key is wr-NUMBER:hold.
-- The SQLite folder has a file of the same name with the same tables and columns; a test compares them.

-- What holds for withdrawals of an asset on a chain: a row for each version, and the newest holds. Amounts are in ledger units, as all of them here.
CREATE TABLE withdrawal_policies (
    listing_id BIGINT NOT NULL CONSTRAINT withdrawal_policies_listing REFERENCES asset_on_chain (id),
    -- 1, 2, … within the asset on the chain.
    version BIGINT NOT NULL CONSTRAINT withdrawal_policies_version CHECK (version > 0),
    -- Whether new ones are taken at all, and those that wait are queued.
    is_enabled BOOLEAN NOT NULL,
    -- Nothing is approved without a person.
    is_incident BOOLEAN NOT NULL,
    min_amount BIGINT NOT NULL,
    max_amount BIGINT NOT NULL,
    -- The fee: a fixed part and a share in hundredths of a percent, rounded up, and never less than the least.
    fee_fixed BIGINT NOT NULL CONSTRAINT withdrawal_policies_fixed CHECK (fee_fixed >= 0),
    fee_share_bps BIGINT NOT NULL CONSTRAINT withdrawal_policies_share CHECK (fee_share_bps BETWEEN 0 AND 10000),
    fee_least BIGINT NOT NULL CONSTRAINT withdrawal_policies_least CHECK (fee_least >= 0),
    -- Up to and with auto_approve nobody has to agree, then one person; above two_above two, above many_above many_people.
    auto_approve BIGINT NOT NULL,
    two_above BIGINT NOT NULL,
    many_above BIGINT NOT NULL,
    many_people BIGINT NOT NULL CONSTRAINT withdrawal_policies_many CHECK (many_people BETWEEN 3 AND 100),
    -- On a day of UTC, for one user and for all. NULL: as much as they like.
    daily_user BIGINT,
    daily_total BIGINT,
    -- At most so many requests of one user in so long a time. Both are NULL: as many as they like.
    velocity_count BIGINT CONSTRAINT withdrawal_policies_count CHECK (velocity_count > 0),
    velocity_window_us BIGINT CONSTRAINT withdrawal_policies_window CHECK (velocity_window_us > 0),
    -- A destination can be used so long after it was first known.
    cooling_off_us BIGINT NOT NULL CONSTRAINT withdrawal_policies_cooling CHECK (cooling_off_us >= 0),
    -- Only what is in the user's address book is paid to.
    book_only BOOLEAN NOT NULL,
    -- Who made this version, when and why.
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    at BIGINT NOT NULL,
    CONSTRAINT withdrawal_policies_pkey PRIMARY KEY (listing_id, version),
    CONSTRAINT withdrawal_policies_range CHECK (0 < min_amount AND min_amount <= max_amount),
    CONSTRAINT withdrawal_policies_steps CHECK (0 <= auto_approve AND auto_approve <= two_above AND two_above <= many_above),
    CONSTRAINT withdrawal_policies_velocity CHECK ((velocity_count IS NULL) = (velocity_window_us IS NULL))
);

-- What a customer wants paid out: the intent. How it is paid is the job's, which has rows of its own.
CREATE TABLE withdrawal_requests (
    id BIGINT NOT NULL CONSTRAINT withdrawal_requests_pkey PRIMARY KEY,
    user_id BIGINT NOT NULL CONSTRAINT withdrawal_requests_user CHECK (user_id > 0),
    -- The account that amount and fee are held on.
    account_id BIGINT NOT NULL,
    asset_id BIGINT NOT NULL REFERENCES assets (id),
    chain_id BIGINT NOT NULL REFERENCES chains (id),
    listing_id BIGINT NOT NULL,
    -- The user's own name for it. The same name again is the same request.
    client_order_id TEXT COLLATE "C" NOT NULL CONSTRAINT withdrawal_requests_name CHECK (length(client_order_id) BETWEEN 1 AND 64),
    to_address TEXT COLLATE "C" NOT NULL CONSTRAINT withdrawal_requests_to CHECK (length(to_address) BETWEEN 1 AND 128),
    -- What the destination gets, what the customer pays on top of it, and the most that the customer agreed to.
    amount BIGINT NOT NULL CONSTRAINT withdrawal_requests_amount CHECK (amount > 0),
    fee BIGINT NOT NULL,
    most_fee BIGINT NOT NULL,
    -- The words of the source, with those for what people do.
    status TEXT NOT NULL CONSTRAINT withdrawal_requests_status CHECK (status IN
        ('pending', 'manual_review', 'approved', 'queued', 'completed', 'failed', 'rejected', 'cancelled')),
    -- The number of its newest event.
    version BIGINT NOT NULL,
    -- The verdict: which version of the policy, which rule of it, how many people have to agree, and all that it was judged on, as JSON.
    policy_version BIGINT NOT NULL,
    rule TEXT NOT NULL,
    people BIGINT NOT NULL CONSTRAINT withdrawal_requests_people CHECK (people >= 0),
    inputs TEXT NOT NULL,
    -- How many jobs were made for it.
    jobs BIGINT NOT NULL CONSTRAINT withdrawal_requests_jobs CHECK (jobs >= 0),
    -- The user who got it, if its destination was an address of ours: no coin moved. NULL: it is paid on the chain.
    payee_id BIGINT,
    -- When its newest job was made.
    queued_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT withdrawal_requests_policy FOREIGN KEY (listing_id, policy_version) REFERENCES withdrawal_policies (listing_id, version),
    -- Exactly once (law 2).
    CONSTRAINT withdrawal_requests_client_order UNIQUE (user_id, client_order_id),
    CONSTRAINT withdrawal_requests_fee CHECK (0 <= fee AND fee <= most_fee AND fee <= amount),
    CONSTRAINT withdrawal_requests_queued CHECK ((jobs > 0) = (queued_at IS NOT NULL)),
    -- What has a job is not settled inside, and what is queued has one.
    CONSTRAINT withdrawal_requests_paid CHECK (CASE status WHEN 'queued' THEN jobs > 0 AND payee_id IS NULL
        WHEN 'completed' THEN jobs > 0 OR payee_id IS NOT NULL ELSE payee_id IS NULL END)
);
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
    withdrawal_id BIGINT NOT NULL CONSTRAINT withdrawal_events_request REFERENCES withdrawal_requests (id),
    -- 1, 2, … within the withdrawal.
    version BIGINT NOT NULL,
    -- The status that it came to.
    status TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    at BIGINT NOT NULL,
    CONSTRAINT withdrawal_events_pkey PRIMARY KEY (withdrawal_id, version)
);

-- The jobs that were made for each: one at a time, and another only when the one before has failed for good.
CREATE TABLE withdrawal_jobs (
    withdrawal_id BIGINT NOT NULL CONSTRAINT withdrawal_jobs_request REFERENCES withdrawal_requests (id),
    -- 1, 2, … within the withdrawal.
    number BIGINT NOT NULL,
    job_id BIGINT NOT NULL CONSTRAINT withdrawal_jobs_job REFERENCES outbound_jobs (id),
    at BIGINT NOT NULL,
    CONSTRAINT withdrawal_jobs_pkey PRIMARY KEY (withdrawal_id, number)
);
-- A job pays one withdrawal.
CREATE UNIQUE INDEX withdrawal_jobs_once ON withdrawal_jobs (job_id);

-- What was asked for of each asset on a chain on a day of UTC, without what was given back. Only on days on which a policy limits it.
CREATE TABLE withdrawal_days (
    listing_id BIGINT NOT NULL REFERENCES asset_on_chain (id),
    day BIGINT NOT NULL,
    used BIGINT NOT NULL CONSTRAINT withdrawal_days_used CHECK (used >= 0),
    CONSTRAINT withdrawal_days_pkey PRIMARY KEY (listing_id, day)
);

-- The address book: where users mean to be paid.
CREATE TABLE withdrawal_addresses (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    user_id BIGINT NOT NULL CONSTRAINT withdrawal_addresses_user CHECK (user_id > 0),
    chain_id BIGINT NOT NULL REFERENCES chains (id),
    -- As the chain writes it.
    address TEXT COLLATE "C" NOT NULL CONSTRAINT withdrawal_addresses_length CHECK (length(address) BETWEEN 1 AND 128),
    label TEXT NOT NULL CONSTRAINT withdrawal_addresses_label CHECK (length(label) <= 100),
    added_at BIGINT NOT NULL,
    -- NULL: it is in the book.
    removed_at BIGINT
);
-- One that was removed and added again is as new as its new row.
CREATE UNIQUE INDEX withdrawal_addresses_once ON withdrawal_addresses (user_id, chain_id, address) WHERE removed_at IS NULL;

-- A wallet of the house is one on every chain: the same key has the same address on all EVM chains.
CREATE INDEX operation_wallets_by_address ON operation_wallet_addresses (address);
-- What is credited and could still be taken back is not withdrawn.
CREATE INDEX deposits_not_final ON deposits (user_id, listing_id) WHERE state = 'credited';

-- What was asked and judged stays as it was; what has ended stays ended, but for a payment that the chain took back.
CREATE TRIGGER trg_withdrawal_fixed AFTER UPDATE ON withdrawal_requests
    FOR EACH ROW WHEN ((OLD.id, OLD.user_id, OLD.account_id, OLD.asset_id, OLD.chain_id, OLD.listing_id, OLD.client_order_id, OLD.to_address, OLD.amount, OLD.fee, OLD.most_fee, OLD.policy_version, OLD.rule, OLD.people, OLD.inputs, OLD.created_at)
        IS DISTINCT FROM (NEW.id, NEW.user_id, NEW.account_id, NEW.asset_id, NEW.chain_id, NEW.listing_id, NEW.client_order_id, NEW.to_address, NEW.amount, NEW.fee, NEW.most_fee, NEW.policy_version, NEW.rule, NEW.people, NEW.inputs, NEW.created_at))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_ended AFTER UPDATE ON withdrawal_requests
    FOR EACH ROW WHEN (OLD.status <> NEW.status AND (OLD.status IN ('failed', 'rejected', 'cancelled') OR (OLD.status = 'completed' AND NEW.status <> 'failed')))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_kept AFTER DELETE ON withdrawal_requests FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_event_fixed AFTER UPDATE OR DELETE ON withdrawal_events FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_job_fixed AFTER UPDATE OR DELETE ON withdrawal_jobs FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_policy_fixed AFTER UPDATE OR DELETE ON withdrawal_policies FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_address_fixed AFTER UPDATE ON withdrawal_addresses
    FOR EACH ROW WHEN ((OLD.id, OLD.user_id, OLD.chain_id, OLD.address, OLD.label, OLD.added_at)
        IS DISTINCT FROM (NEW.id, NEW.user_id, NEW.chain_id, NEW.address, NEW.label, NEW.added_at) OR OLD.removed_at IS NOT NULL)
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_address_kept AFTER DELETE ON withdrawal_addresses FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- The views of migration 21, in the sources' words. A job says which request it pays: the digits 0a of sources.id_of are a request, 0b is a user.
CREATE OR REPLACE VIEW sources.jobs AS
SELECT j.kind, j.state, j.to_address,
    sources.id_of(7, j.id) AS id,
    -- A job that people have made by hand is for nothing but itself.
    sources.id_of(10, COALESCE((SELECT w.withdrawal_id FROM withdrawal_jobs w WHERE w.job_id = j.id), j.id)) AS request_id,
    sources.id_of(1, j.chain_id) AS chain_id,
    sources.id_of(2, k.asset_id) AS asset_id,
    sources.id_of(3, j.listing_id) AS asset_on_chain_id,
    -- The wallet of the house that pays, or that is paid; the user's wallet that pays, or that is paid.
    (SELECT sources.id_of(5, w.id) FROM outbound_lanes l JOIN operation_wallet_addresses w ON w.chain_id = l.chain_id AND w.address = l.address
        WHERE l.id = j.lane_id) AS house_payer_id,
    (SELECT sources.id_of(5, w.id) FROM operation_wallet_addresses w WHERE w.chain_id = j.chain_id AND w.address = j.to_address) AS house_payee_id,
    (SELECT sources.id_of(6, u.id) FROM outbound_lanes l JOIN user_wallets u ON u.address = l.address WHERE l.id = j.lane_id) AS user_payer_id,
    (SELECT sources.id_of(6, u.id) FROM user_wallets u WHERE u.address = j.to_address) AS user_payee_id,
    j.amount_raw,
    sources.human(j.amount_raw, k.decimals) AS amount_human,
    LEAST(GREATEST(j.priority, -2147483648), 2147483647)::INTEGER AS priority,
    j.reason,
    (SELECT t.rule_id FROM treasury_jobs t WHERE t.job_id = j.id) AS rule_number,
    -- Of its newest slot: the payment that is in a block, else the one that was signed last.
    (SELECT CASE c.kind WHEN 'evm' THEN '0x' ELSE '' END || encode(a.tx_hash, 'hex')
        FROM outbound_slot_jobs o JOIN outbound_attempts a ON a.slot_id = o.slot_id JOIN chains c ON c.id = j.chain_id
        WHERE o.job_id = j.id AND a.kind = 'pay' AND a.tx_hash IS NOT NULL
        ORDER BY o.round DESC, o.slot_id DESC, a.mined_height IS NULL, a.number DESC LIMIT 1) AS tx_hash,
    (SELECT jsonb_build_object('nonce', s.nonce, 'attempt', a.number, 'fee_raw', a.fee_raw, 'block', a.mined_height)
        FROM outbound_slot_jobs o JOIN outbound_attempts a ON a.slot_id = o.slot_id JOIN outbound_slots s ON s.id = o.slot_id
        WHERE o.job_id = j.id AND a.kind = 'pay' AND a.tx_hash IS NOT NULL
        ORDER BY o.round DESC, o.slot_id DESC, a.mined_height IS NULL, a.number DESC LIMIT 1) AS tx_meta,
    -- Who has the lane, and until when: the sources' locked_at is the end of the lock. NULL: nobody works on it.
    (SELECT h.worker FROM outbound_leases h WHERE h.lane_id = j.lane_id AND h.worker <> '' AND h.duty = CASE
        WHEN j.state IN ('picked', 'building_tx', 'signing', 'broadcasting') THEN 'send'
        WHEN j.state IN ('broadcasted', 'confirming') THEN 'watch' END) AS locked_by,
    (SELECT sources.time_of(h.lease_until) FROM outbound_leases h WHERE h.lane_id = j.lane_id AND h.worker <> '' AND h.duty = CASE
        WHEN j.state IN ('picked', 'building_tx', 'signing', 'broadcasting') THEN 'send'
        WHEN j.state IN ('broadcasted', 'confirming') THEN 'watch' END) AS locked_at,
    -- Tries that came to nothing, and the one that is under way or has paid.
    (j.tries + CASE WHEN j.state IN ('queued', 'failed_retryable', 'failed_final') THEN 0 ELSE 1 END)::INTEGER AS attempt_count,
    5 AS max_attempts,
    (SELECT e.reason FROM outbound_job_events e WHERE e.job_id = j.id AND e.state IN ('failed_retryable', 'failed_final')
        ORDER BY e.version DESC LIMIT 1) AS last_error,
    (SELECT sources.time_of(MAX(e.at)) FROM outbound_job_events e WHERE e.job_id = j.id
        AND e.state IN ('failed_retryable', 'failed_final')) AS last_error_at,
    sources.time_of(j.due_at) AS due_at,
    sources.time_of(j.created_at) AS created_at,
    (SELECT sources.time_of(MAX(e.at)) FROM outbound_job_events e WHERE e.job_id = j.id AND e.state = 'picked') AS picked_at,
    (SELECT sources.time_of(MAX(e.at)) FROM outbound_job_events e WHERE e.job_id = j.id AND e.state = 'broadcasted') AS broadcasted_at,
    (SELECT sources.time_of(MAX(e.at)) FROM outbound_job_events e WHERE e.job_id = j.id AND e.state = 'confirmed'
        AND j.state = 'confirmed') AS confirmed_at,
    (SELECT sources.time_of(MAX(e.at)) FROM outbound_job_events e WHERE e.job_id = j.id AND e.state = 'failed_final'
        AND j.state = 'failed_final') AS failed_at
FROM outbound_jobs j JOIN asset_on_chain k ON k.id = j.listing_id;

-- The hash is that of the payment which a block has now: a chain may take a block back and have another of our transactions in the next.
CREATE VIEW sources.withdrawal_requests AS
SELECT sources.id_of(10, w.id) AS id, sources.id_of(11, w.user_id) AS user_id, sources.human(w.amount::TEXT, a.precision) AS amount,
    w.to_address::VARCHAR(100) AS to_address, sources.id_of(2, w.asset_id) AS asset_id, sources.id_of(1, w.chain_id) AS chain_id,
    w.status::VARCHAR(20) AS status, sources.time_of(w.queued_at) AS queued_at,
    (SELECT CASE c.kind WHEN 'evm' THEN '0x' ELSE '' END || encode(t.tx_hash, 'hex')
        FROM withdrawal_jobs k JOIN outbound_slot_jobs o ON o.job_id = k.job_id JOIN outbound_attempts t ON t.slot_id = o.slot_id
            JOIN chains c ON c.id = w.chain_id
        WHERE k.withdrawal_id = w.id AND k.number = w.jobs AND w.status = 'completed' AND t.kind = 'pay' AND t.paid = 'in_full'
        ORDER BY o.round DESC, o.slot_id DESC LIMIT 1)::VARCHAR(100) AS final_tx_hash,
    sources.time_of(w.created_at) AS created_at, sources.time_of(w.updated_at) AS updated_at
FROM withdrawal_requests w JOIN assets a ON a.id = w.asset_id;
