-- Withdrawals: what customers want paid out, the policy that judges it, what became of it, and where users mean to be paid.
-- Amount and fee are held in the ledger by the commit that writes the row: the hold's key is wr-NUMBER:hold.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

-- What holds for withdrawals of an asset on a chain: a row for each version, and the newest holds. Amounts are in ledger units, as all of them here.
CREATE TABLE withdrawal_policies (
    listing_id INTEGER NOT NULL CONSTRAINT withdrawal_policies_listing REFERENCES asset_on_chain (id),
    -- 1, 2, … within the asset on the chain.
    version INTEGER NOT NULL CONSTRAINT withdrawal_policies_version CHECK (version > 0),
    -- Whether new ones are taken at all, and those that wait are queued.
    is_enabled INTEGER NOT NULL CONSTRAINT flag_is_enabled CHECK (is_enabled IN (0, 1)),
    -- Nothing is approved without a person.
    is_incident INTEGER NOT NULL CONSTRAINT flag_is_incident CHECK (is_incident IN (0, 1)),
    min_amount INTEGER NOT NULL,
    max_amount INTEGER NOT NULL,
    -- The fee: a fixed part and a share in hundredths of a percent, rounded up, and never less than the least.
    fee_fixed INTEGER NOT NULL CONSTRAINT withdrawal_policies_fixed CHECK (fee_fixed >= 0),
    fee_share_bps INTEGER NOT NULL CONSTRAINT withdrawal_policies_share CHECK (fee_share_bps BETWEEN 0 AND 10000),
    fee_least INTEGER NOT NULL CONSTRAINT withdrawal_policies_least CHECK (fee_least >= 0),
    -- Up to and with auto_approve nobody has to agree, then one person; above two_above two, above many_above many_people.
    auto_approve INTEGER NOT NULL,
    two_above INTEGER NOT NULL,
    many_above INTEGER NOT NULL,
    many_people INTEGER NOT NULL CONSTRAINT withdrawal_policies_many CHECK (many_people BETWEEN 3 AND 100),
    -- On a day of UTC, for one user and for all. NULL: as much as they like.
    daily_user INTEGER,
    daily_total INTEGER,
    -- At most so many requests of one user in so long a time. Both are NULL: as many as they like.
    velocity_count INTEGER CONSTRAINT withdrawal_policies_count CHECK (velocity_count > 0),
    velocity_window_us INTEGER CONSTRAINT withdrawal_policies_window CHECK (velocity_window_us > 0),
    -- A destination can be used so long after it was first known.
    cooling_off_us INTEGER NOT NULL CONSTRAINT withdrawal_policies_cooling CHECK (cooling_off_us >= 0),
    -- Only what is in the user's address book is paid to.
    book_only INTEGER NOT NULL CONSTRAINT flag_book_only CHECK (book_only IN (0, 1)),
    -- Who made this version, when and why.
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT withdrawal_policies_pkey PRIMARY KEY (listing_id, version),
    CONSTRAINT withdrawal_policies_range CHECK (0 < min_amount AND min_amount <= max_amount),
    CONSTRAINT withdrawal_policies_steps CHECK (0 <= auto_approve AND auto_approve <= two_above AND two_above <= many_above),
    CONSTRAINT withdrawal_policies_velocity CHECK ((velocity_count IS NULL) = (velocity_window_us IS NULL))
) STRICT;

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
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT withdrawal_requests_policy FOREIGN KEY (listing_id, policy_version) REFERENCES withdrawal_policies (listing_id, version),
    -- Exactly once (law 2).
    CONSTRAINT withdrawal_requests_client_order UNIQUE (user_id, client_order_id),
    CONSTRAINT withdrawal_requests_fee CHECK (0 <= fee AND fee <= most_fee AND fee <= amount),
    CONSTRAINT withdrawal_requests_queued CHECK ((jobs > 0) = (queued_at IS NOT NULL)),
    -- What has a job is not settled inside, and what is queued has one.
    CONSTRAINT withdrawal_requests_paid CHECK (CASE status WHEN 'queued' THEN jobs > 0 AND payee_id IS NULL
        WHEN 'completed' THEN jobs > 0 OR payee_id IS NOT NULL ELSE payee_id IS NULL END)
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

-- What was asked for of each asset on a chain on a day of UTC, without what was given back. Only on days on which a policy limits it.
CREATE TABLE withdrawal_days (
    listing_id INTEGER NOT NULL REFERENCES asset_on_chain (id),
    day INTEGER NOT NULL,
    used INTEGER NOT NULL CONSTRAINT withdrawal_days_used CHECK (used >= 0),
    CONSTRAINT withdrawal_days_pkey PRIMARY KEY (listing_id, day)
) STRICT;

-- The address book: where users mean to be paid.
CREATE TABLE withdrawal_addresses (
    id INTEGER PRIMARY KEY,
    user_id INTEGER NOT NULL CONSTRAINT withdrawal_addresses_user CHECK (user_id > 0),
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    -- As the chain writes it.
    address TEXT NOT NULL CONSTRAINT withdrawal_addresses_length CHECK (length(address) BETWEEN 1 AND 128),
    label TEXT NOT NULL CONSTRAINT withdrawal_addresses_label CHECK (length(label) <= 100),
    added_at INTEGER NOT NULL,
    -- NULL: it is in the book.
    removed_at INTEGER
) STRICT;
-- One that was removed and added again is as new as its new row.
CREATE UNIQUE INDEX withdrawal_addresses_once ON withdrawal_addresses (user_id, chain_id, address) WHERE removed_at IS NULL;

-- A wallet of the house is one on every chain: the same key has the same address on all EVM chains.
CREATE INDEX operation_wallets_by_address ON operation_wallet_addresses (address);
-- What is credited and could still be taken back is not withdrawn.
CREATE INDEX deposits_not_final ON deposits (user_id, listing_id) WHERE state = 'credited';

-- What was asked and judged stays as it was; what has ended stays ended, but for a payment that the chain took back.
CREATE TRIGGER trg_withdrawal_fixed AFTER UPDATE ON withdrawal_requests
WHEN (OLD.id, OLD.user_id, OLD.account_id, OLD.asset_id, OLD.chain_id, OLD.listing_id, OLD.client_order_id, OLD.to_address, OLD.amount, OLD.fee, OLD.most_fee, OLD.policy_version, OLD.rule, OLD.people, OLD.inputs, OLD.created_at)
    IS NOT (NEW.id, NEW.user_id, NEW.account_id, NEW.asset_id, NEW.chain_id, NEW.listing_id, NEW.client_order_id, NEW.to_address, NEW.amount, NEW.fee, NEW.most_fee, NEW.policy_version, NEW.rule, NEW.people, NEW.inputs, NEW.created_at)
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_fixed'); END;
CREATE TRIGGER trg_withdrawal_ended AFTER UPDATE ON withdrawal_requests
WHEN OLD.status <> NEW.status AND (OLD.status IN ('failed', 'rejected', 'cancelled') OR (OLD.status = 'completed' AND NEW.status <> 'failed'))
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_ended'); END;
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
CREATE TRIGGER trg_withdrawal_policy_fixed AFTER UPDATE ON withdrawal_policies
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_policy_fixed'); END;
CREATE TRIGGER trg_withdrawal_policy_kept AFTER DELETE ON withdrawal_policies
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_policy_kept'); END;
CREATE TRIGGER trg_withdrawal_address_fixed AFTER UPDATE ON withdrawal_addresses
WHEN (OLD.id, OLD.user_id, OLD.chain_id, OLD.address, OLD.label, OLD.added_at)
    IS NOT (NEW.id, NEW.user_id, NEW.chain_id, NEW.address, NEW.label, NEW.added_at) OR OLD.removed_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_address_fixed'); END;
CREATE TRIGGER trg_withdrawal_address_kept AFTER DELETE ON withdrawal_addresses
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_address_kept'); END;

-- The views of migration 21, in the sources' words. A job says which request it pays: the digits 0a of a UUID are a request, 0b is a user.
DROP VIEW sources_jobs;
CREATE VIEW sources_jobs AS
SELECT j.kind, j.state, j.to_address,
    printf('07000000-%04x-8000-8000-%012x', j.id >> 48, j.id & 281474976710655) AS id,
    -- A job that people have made by hand is for nothing but itself.
    printf('0a000000-%04x-8000-8000-%012x', COALESCE((SELECT w.withdrawal_id FROM withdrawal_jobs w WHERE w.job_id = j.id), j.id) >> 48,
        COALESCE((SELECT w.withdrawal_id FROM withdrawal_jobs w WHERE w.job_id = j.id), j.id) & 281474976710655) AS request_id,
    printf('01000000-%04x-8000-8000-%012x', j.chain_id >> 48, j.chain_id & 281474976710655) AS chain_id,
    printf('02000000-%04x-8000-8000-%012x', k.asset_id >> 48, k.asset_id & 281474976710655) AS asset_id,
    printf('03000000-%04x-8000-8000-%012x', j.listing_id >> 48, j.listing_id & 281474976710655) AS asset_on_chain_id,
    -- The wallet of the house that pays, or that is paid; the user's wallet that pays, or that is paid.
    (SELECT printf('05000000-%04x-8000-8000-%012x', w.id >> 48, w.id & 281474976710655) FROM outbound_lanes l
        JOIN operation_wallet_addresses w ON w.chain_id = l.chain_id AND w.address = l.address
        WHERE l.id = j.lane_id) AS house_payer_id,
    (SELECT printf('05000000-%04x-8000-8000-%012x', w.id >> 48, w.id & 281474976710655) FROM operation_wallet_addresses w
        WHERE w.chain_id = j.chain_id AND w.address = j.to_address) AS house_payee_id,
    (SELECT printf('06000000-%04x-8000-8000-%012x', u.id >> 48, u.id & 281474976710655) FROM outbound_lanes l
        JOIN user_wallets u ON u.address = l.address WHERE l.id = j.lane_id) AS user_payer_id,
    (SELECT printf('06000000-%04x-8000-8000-%012x', u.id >> 48, u.id & 281474976710655) FROM user_wallets u WHERE u.address = j.to_address) AS user_payee_id,
    j.amount_raw,
    CASE WHEN j.amount_raw LIKE '-%' THEN '-' ELSE '' END
        || CASE WHEN length(ltrim(j.amount_raw, '-')) > k.decimals THEN substr(ltrim(j.amount_raw, '-'), 1, length(ltrim(j.amount_raw, '-')) - k.decimals) ELSE '0' END
        || CASE WHEN k.decimals > 0 THEN '.' || substr('0000000000000000000000000000000000000' || ltrim(j.amount_raw, '-'), -k.decimals) ELSE '' END AS amount_human,
    MIN(MAX(j.priority, -2147483648), 2147483647) AS priority,
    j.reason,
    (SELECT t.rule_id FROM treasury_jobs t WHERE t.job_id = j.id) AS rule_number,
    -- Of its newest slot: the payment that is in a block, else the one that was signed last.
    (SELECT CASE c.kind WHEN 'evm' THEN '0x' ELSE '' END || lower(hex(a.tx_hash))
        FROM outbound_slot_jobs o JOIN outbound_attempts a ON a.slot_id = o.slot_id JOIN chains c ON c.id = j.chain_id
        WHERE o.job_id = j.id AND a.kind = 'pay' AND a.tx_hash IS NOT NULL
        ORDER BY o.round DESC, o.slot_id DESC, a.mined_height IS NULL, a.number DESC LIMIT 1) AS tx_hash,
    (SELECT json_object('nonce', s.nonce, 'attempt', a.number, 'fee_raw', a.fee_raw, 'block', a.mined_height)
        FROM outbound_slot_jobs o JOIN outbound_attempts a ON a.slot_id = o.slot_id JOIN outbound_slots s ON s.id = o.slot_id
        WHERE o.job_id = j.id AND a.kind = 'pay' AND a.tx_hash IS NOT NULL
        ORDER BY o.round DESC, o.slot_id DESC, a.mined_height IS NULL, a.number DESC LIMIT 1) AS tx_meta,
    -- Who has the lane, and until when: the sources' locked_at is the end of the lock. NULL: nobody works on it.
    (SELECT h.worker FROM outbound_leases h WHERE h.lane_id = j.lane_id AND h.worker <> '' AND h.duty = CASE
        WHEN j.state IN ('picked', 'building_tx', 'signing', 'broadcasting') THEN 'send'
        WHEN j.state IN ('broadcasted', 'confirming') THEN 'watch' END) AS locked_by,
    (SELECT strftime('%Y-%m-%d %H:%M:%S', h.lease_until / 1000000, 'unixepoch') || printf('.%06d', h.lease_until % 1000000) FROM outbound_leases h
        WHERE h.lane_id = j.lane_id AND h.worker <> '' AND h.duty = CASE
        WHEN j.state IN ('picked', 'building_tx', 'signing', 'broadcasting') THEN 'send'
        WHEN j.state IN ('broadcasted', 'confirming') THEN 'watch' END) AS locked_at,
    -- Tries that came to nothing, and the one that is under way or has paid.
    (j.tries + CASE WHEN j.state IN ('queued', 'failed_retryable', 'failed_final') THEN 0 ELSE 1 END) AS attempt_count,
    5 AS max_attempts,
    (SELECT e.reason FROM outbound_job_events e WHERE e.job_id = j.id AND e.state IN ('failed_retryable', 'failed_final')
        ORDER BY e.version DESC LIMIT 1) AS last_error,
    (SELECT strftime('%Y-%m-%d %H:%M:%S', MAX(e.at) / 1000000, 'unixepoch') || printf('.%06d', MAX(e.at) % 1000000) FROM outbound_job_events e WHERE e.job_id = j.id
        AND e.state IN ('failed_retryable', 'failed_final')) AS last_error_at,
    strftime('%Y-%m-%d %H:%M:%S', j.due_at / 1000000, 'unixepoch') || printf('.%06d', j.due_at % 1000000) AS due_at,
    strftime('%Y-%m-%d %H:%M:%S', j.created_at / 1000000, 'unixepoch') || printf('.%06d', j.created_at % 1000000) AS created_at,
    (SELECT strftime('%Y-%m-%d %H:%M:%S', MAX(e.at) / 1000000, 'unixepoch') || printf('.%06d', MAX(e.at) % 1000000) FROM outbound_job_events e
        WHERE e.job_id = j.id AND e.state = 'picked') AS picked_at,
    (SELECT strftime('%Y-%m-%d %H:%M:%S', MAX(e.at) / 1000000, 'unixepoch') || printf('.%06d', MAX(e.at) % 1000000) FROM outbound_job_events e
        WHERE e.job_id = j.id AND e.state = 'broadcasted') AS broadcasted_at,
    (SELECT strftime('%Y-%m-%d %H:%M:%S', MAX(e.at) / 1000000, 'unixepoch') || printf('.%06d', MAX(e.at) % 1000000) FROM outbound_job_events e
        WHERE e.job_id = j.id AND e.state = 'confirmed'
        AND j.state = 'confirmed') AS confirmed_at,
    (SELECT strftime('%Y-%m-%d %H:%M:%S', MAX(e.at) / 1000000, 'unixepoch') || printf('.%06d', MAX(e.at) % 1000000) FROM outbound_job_events e
        WHERE e.job_id = j.id AND e.state = 'failed_final'
        AND j.state = 'failed_final') AS failed_at
FROM outbound_jobs j JOIN asset_on_chain k ON k.id = j.listing_id;

-- The hash is that of the payment which a block has now: a chain may take a block back and have another of our transactions in the next.
CREATE VIEW sources_withdrawal_requests AS
SELECT printf('0a000000-%04x-8000-8000-%012x', w.id >> 48, w.id & 281474976710655) AS id, printf('0b000000-%04x-8000-8000-%012x', w.user_id >> 48, w.user_id & 281474976710655) AS user_id,
    CASE WHEN length(w.amount) > a.precision THEN substr(w.amount, 1, length(w.amount) - a.precision) ELSE '0' END
        || CASE WHEN a.precision > 0 THEN '.' || substr('0000000000000000000' || w.amount, -a.precision) ELSE '' END AS amount,
    w.to_address, printf('02000000-%04x-8000-8000-%012x', w.asset_id >> 48, w.asset_id & 281474976710655) AS asset_id, printf('01000000-%04x-8000-8000-%012x', w.chain_id >> 48, w.chain_id & 281474976710655) AS chain_id,
    w.status, strftime('%Y-%m-%d %H:%M:%S', w.queued_at / 1000000, 'unixepoch') || printf('.%06d', w.queued_at % 1000000) AS queued_at,
    (SELECT CASE c.kind WHEN 'evm' THEN '0x' ELSE '' END || lower(hex(t.tx_hash))
        FROM withdrawal_jobs k JOIN outbound_slot_jobs o ON o.job_id = k.job_id JOIN outbound_attempts t ON t.slot_id = o.slot_id
            JOIN chains c ON c.id = w.chain_id
        WHERE k.withdrawal_id = w.id AND k.number = w.jobs AND w.status = 'completed' AND t.kind = 'pay' AND t.paid = 'in_full'
        ORDER BY o.round DESC, o.slot_id DESC LIMIT 1) AS final_tx_hash,
    strftime('%Y-%m-%d %H:%M:%S', w.created_at / 1000000, 'unixepoch') || printf('.%06d', w.created_at % 1000000) AS created_at, strftime('%Y-%m-%d %H:%M:%S', w.updated_at / 1000000, 'unixepoch') || printf('.%06d', w.updated_at % 1000000) AS updated_at
FROM withdrawal_requests w JOIN assets a ON a.id = w.asset_id;
