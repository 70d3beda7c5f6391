-- What the sources' queries name, as the sources write it (docs/adr/0016-views.md): UUIDs, TIMESTAMPTZ, whole coins, JSONB. Nothing of ours reads these
-- views. The queues are views of the main schema, so that a monitoring query runs as it is printed. Tables of ours have the names of the others; their
-- views are in the schema `sources`, which goes first in the search_path of whoever asks in the sources' words.
-- The SQLite folder has a file of the same name with the same views and columns; a test compares them. A later migration that rebuilds a table which
-- is read here drops these views first and makes them again.

CREATE SCHEMA sources;

-- A number of ours as a UUID (version 8), the same for ever. The first two digits say what it numbers: 01 a chain, 02 an asset, 03 an asset on a
-- chain, 04 a wallet group, 05 a wallet of the house, 06 a user's wallet, 07 a job, 08 a gas rule, 09 a consolidation rule, 0a what a withdrawal is for.
-- Six more digits are the chain of a wallet group, else 0.
CREATE FUNCTION sources.id_of(kind BIGINT, number BIGINT, chain BIGINT DEFAULT 0) RETURNS UUID LANGUAGE SQL IMMUTABLE PARALLEL SAFE AS $$
    SELECT (lpad(to_hex((kind << 24) | chain), 8, '0') || '-' || lpad(to_hex(number >> 48), 4, '0') || '-8000-8000-'
        || lpad(to_hex(number & 281474976710655), 12, '0'))::UUID
$$;
-- And back, for whoever wants to look it up: bursar job show job-NUMBER.
CREATE FUNCTION sources.number_of(id UUID) RETURNS BIGINT LANGUAGE SQL IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('x' || substr(id::TEXT, 10, 4) || substr(id::TEXT, 25, 12))::BIT(64)::BIGINT
$$;
CREATE FUNCTION sources.time_of(micros BIGINT) RETURNS TIMESTAMPTZ LANGUAGE SQL STABLE PARALLEL SAFE AS $$
    SELECT TIMESTAMPTZ 'epoch' + micros * INTERVAL '1 microsecond'
$$;
-- Chain units as whole coins, exactly: a product of NUMERICs is never rounded, a quotient is.
CREATE FUNCTION sources.human(raw TEXT, decimals BIGINT) RETURNS NUMERIC LANGUAGE SQL IMMUTABLE PARALLEL SAFE AS $$
    SELECT raw::NUMERIC * ('1e-' || decimals)::NUMERIC
$$;

-- All jobs, for the three queues. Of several times, each is the last at which the job came to that state.
CREATE VIEW sources.jobs AS
SELECT j.kind, j.state, j.to_address,
    sources.id_of(7, j.id) AS id,
    sources.id_of(10, j.id) AS request_id,
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

CREATE VIEW gas_topup_queue AS
SELECT id, chain_id, user_payee_id AS wallet_id, house_payer_id AS operation_wallet_address_id, asset_id AS gas_asset_id,
    amount_raw AS topup_amount_raw, amount_human AS topup_amount_human, priority, state AS status, reason,
    sources.id_of(8, rule_number) AS rule_id, tx_hash, tx_meta, locked_by, locked_at, attempt_count, max_attempts, last_error, last_error_at,
    created_at, picked_at, broadcasted_at, confirmed_at, failed_at
FROM sources.jobs WHERE kind = 'gas_topup';

-- The sources name this one and do not write its columns: they are those of gas_topup_queue. What is swept, or a hot
-- wallet has too much of, is wallet_id's; it goes to a wallet of the house.
CREATE VIEW consolidation_queue AS
SELECT id, chain_id, COALESCE(user_payer_id, house_payer_id) AS wallet_id, house_payee_id AS operation_wallet_address_id, asset_on_chain_id,
    amount_raw, amount_human, priority, state AS status, reason,
    sources.id_of(9, rule_number) AS rule_id, tx_hash, tx_meta, locked_by, locked_at, attempt_count, max_attempts, last_error, last_error_at,
    created_at, picked_at, broadcasted_at, confirmed_at, failed_at
FROM sources.jobs WHERE kind = 'consolidation';

-- What a block shows of a fee is kept as a whole (tx_meta's fee_raw): gas and its price are not known apart.
CREATE VIEW withdrawal_queue AS
SELECT id, request_id AS withdrawal_request_id, chain_id, asset_on_chain_id, house_payer_id AS operation_wallet_address_id,
    to_address::VARCHAR(100) AS to_address, amount_raw, amount_human, m.status::VARCHAR(20) AS status,
    (CASE WHEN priority < 100 THEN 'high' WHEN priority = 100 THEN 'normal' ELSE 'low' END)::VARCHAR(20) AS priority,
    tx_hash::VARCHAR(100) AS tx_hash, NULL::TEXT AS gas_used, NULL::TEXT AS gas_price, attempt_count AS retry_count, max_attempts AS max_retries,
    last_error AS error_message, due_at AS scheduled_at, COALESCE(confirmed_at, failed_at) AS processed_at, created_at
FROM sources.jobs j JOIN (VALUES ('queued', 'pending'), ('failed_retryable', 'pending'), ('picked', 'processing'), ('building_tx', 'processing'),
    ('signing', 'processing'), ('broadcasting', 'processing'), ('broadcasted', 'confirming'), ('confirming', 'confirming'),
    ('confirmed', 'confirmed'), ('failed_final', 'failed')) AS m (state, status) ON m.state = j.state
WHERE kind = 'withdrawal';

-- A group of ours serves all chains of its family; the sources' has one. So there is one for each chain.
CREATE VIEW sources.wallet_groups AS
SELECT sources.id_of(4, g.id, c.id) AS id, sources.id_of(4, g.id, c.id) AS wallet_group_id, sources.id_of(1, c.id) AS chain_id, g.purpose, g.xpub,
    g.derivation_path_template
FROM wallet_groups g JOIN chains c
    ON g.family = CASE WHEN c.kind <> 'bitcoin' THEN c.kind WHEN c.network = 'mainnet' THEN 'bitcoin' ELSE 'bitcoin-' || c.network END;

CREATE VIEW sources.operation_wallet_addresses AS
SELECT sources.id_of(5, w.id) AS id, sources.id_of(1, w.chain_id) AS chain_id, sources.id_of(4, w.wallet_group_id, w.chain_id) AS wallet_group_id,
    -- One that an INTEGER cannot hold is none that the sources could have.
    (CASE WHEN w.derivation_index <= 2147483647 THEN w.derivation_index END)::INTEGER AS derivation_index,
    w.address, w.role, w.is_active, sources.time_of(w.last_used_at) AS last_used_at
FROM operation_wallet_addresses w;

-- wallet_id is a user's wallet or one of the house; NULL for an address that is neither (change on Bitcoin).
CREATE VIEW sources.wallet_balances AS
SELECT COALESCE((SELECT sources.id_of(6, u.id) FROM user_wallets u WHERE u.address = b.address),
        (SELECT sources.id_of(5, w.id) FROM operation_wallet_addresses w WHERE w.chain_id = b.chain_id AND w.address = b.address)) AS wallet_id,
    sources.id_of(3, b.listing_id) AS asset_on_chain_id, b.on_chain_balance_raw,
    sources.human(b.on_chain_balance_raw, k.decimals) AS on_chain_balance_human, b.needs_gas, b.needs_consolidation
FROM wallet_balances b JOIN asset_on_chain k ON k.id = b.listing_id;

-- What the UUIDs above refer to.
CREATE VIEW sources.chains AS SELECT sources.id_of(1, id) AS id, name FROM chains;
CREATE VIEW sources.assets AS SELECT sources.id_of(2, id) AS id, symbol FROM assets;
CREATE VIEW sources.asset_on_chain AS
SELECT sources.id_of(3, id) AS id, sources.id_of(2, asset_id) AS asset_id, sources.id_of(1, chain_id) AS chain_id, contract, decimals::INTEGER AS decimals
FROM asset_on_chain;
CREATE VIEW sources.gas_topup_rules AS SELECT sources.id_of(8, id) AS id, sources.id_of(1, chain_id) AS chain_id, name, is_active FROM gas_topup_rules;
CREATE VIEW sources.consolidation_rules AS
SELECT sources.id_of(9, id) AS id, sources.id_of(1, chain_id) AS chain_id, name, is_active FROM consolidation_rules;

-- What transactions of the last day have cost is found without those before (bursar treasury costs).
CREATE INDEX outbound_attempts_by_time ON outbound_attempts (created_at, slot_id) WHERE mined_height IS NOT NULL;
