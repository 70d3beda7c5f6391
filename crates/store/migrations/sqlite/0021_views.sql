-- What the sources' queries name, as the sources write it (docs/adr/0016-views.md), as far as SQLite has types for it: UUIDs, times (of UTC, as
-- datetime() has them) and whole coins are text, tx_meta is JSON in text. Nothing of ours reads these views. Views of names that are tables here begin with
-- `sources_`, where PostgreSQL has a schema `sources`.
-- The PostgreSQL folder has a file of the same name with the same views and columns; a test compares them. A later migration that rebuilds a table
-- which is read here drops these views first and makes them again.
-- How a number becomes a UUID is written there.

-- All jobs, for the three queues. Of several times, each is the last at which the job came to that state.
CREATE VIEW sources_jobs AS
SELECT j.kind, j.state, j.to_address,
    printf('07000000-%04x-8000-8000-%012x', j.id >> 48, j.id & 281474976710655) AS id,
    printf('0a000000-%04x-8000-8000-%012x', j.id >> 48, j.id & 281474976710655) AS request_id,
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

CREATE VIEW gas_topup_queue AS
SELECT id, chain_id, user_payee_id AS wallet_id, house_payer_id AS operation_wallet_address_id, asset_id AS gas_asset_id,
    amount_raw AS topup_amount_raw, amount_human AS topup_amount_human, priority, state AS status, reason,
    CASE WHEN rule_number IS NOT NULL THEN printf('08000000-%04x-8000-8000-%012x', rule_number >> 48, rule_number & 281474976710655) END AS rule_id,
        tx_hash, tx_meta, locked_by, locked_at, attempt_count, max_attempts, last_error, last_error_at,
    created_at, picked_at, broadcasted_at, confirmed_at, failed_at
FROM sources_jobs WHERE kind = 'gas_topup';

-- The sources name this one and do not write its columns: they are those of gas_topup_queue. What is swept, or a hot
-- wallet has too much of, is wallet_id's; it goes to a wallet of the house.
CREATE VIEW consolidation_queue AS
SELECT id, chain_id, COALESCE(user_payer_id, house_payer_id) AS wallet_id, house_payee_id AS operation_wallet_address_id, asset_on_chain_id,
    amount_raw, amount_human, priority, state AS status, reason,
    CASE WHEN rule_number IS NOT NULL THEN printf('09000000-%04x-8000-8000-%012x', rule_number >> 48, rule_number & 281474976710655) END AS rule_id,
        tx_hash, tx_meta, locked_by, locked_at, attempt_count, max_attempts, last_error, last_error_at,
    created_at, picked_at, broadcasted_at, confirmed_at, failed_at
FROM sources_jobs WHERE kind = 'consolidation';

-- What a block shows of a fee is kept as a whole (tx_meta's fee_raw): gas and its price are not known apart.
CREATE VIEW withdrawal_queue AS
SELECT id, request_id AS withdrawal_request_id, chain_id, asset_on_chain_id, house_payer_id AS operation_wallet_address_id,
    to_address AS to_address, amount_raw, amount_human, m.status AS status,
    (CASE WHEN priority < 100 THEN 'high' WHEN priority = 100 THEN 'normal' ELSE 'low' END) AS priority,
    tx_hash AS tx_hash, NULL AS gas_used, NULL AS gas_price, attempt_count AS retry_count, max_attempts AS max_retries,
    last_error AS error_message, due_at AS scheduled_at, COALESCE(confirmed_at, failed_at) AS processed_at, created_at
FROM sources_jobs j JOIN (SELECT column1 AS state, column2 AS status
    FROM (VALUES ('queued', 'pending'), ('failed_retryable', 'pending'), ('picked', 'processing'), ('building_tx', 'processing'),
    ('signing', 'processing'), ('broadcasting', 'processing'), ('broadcasted', 'confirming'), ('confirming', 'confirming'),
    ('confirmed', 'confirmed'), ('failed_final', 'failed'))) AS m ON m.state = j.state
WHERE kind = 'withdrawal';

-- A group of ours serves all chains of its family; the sources' has one. So there is one for each chain.
CREATE VIEW sources_wallet_groups AS
SELECT printf('04%06x-%04x-8000-8000-%012x', c.id, g.id >> 48, g.id & 281474976710655) AS id,
    printf('04%06x-%04x-8000-8000-%012x', c.id, g.id >> 48, g.id & 281474976710655) AS wallet_group_id,
    printf('01000000-%04x-8000-8000-%012x', c.id >> 48, c.id & 281474976710655) AS chain_id, g.purpose, g.xpub,
    g.derivation_path_template
FROM wallet_groups g JOIN chains c
    ON g.family = CASE WHEN c.kind <> 'bitcoin' THEN c.kind WHEN c.network = 'mainnet' THEN 'bitcoin' ELSE 'bitcoin-' || c.network END;

CREATE VIEW sources_operation_wallet_addresses AS
SELECT printf('05000000-%04x-8000-8000-%012x', w.id >> 48, w.id & 281474976710655) AS id,
    printf('01000000-%04x-8000-8000-%012x', w.chain_id >> 48, w.chain_id & 281474976710655) AS chain_id,
    CASE WHEN w.wallet_group_id IS NOT NULL THEN printf('04%06x-%04x-8000-8000-%012x', w.chain_id, w.wallet_group_id >> 48, w.wallet_group_id & 281474976710655) END AS wallet_group_id,
    -- One that an INTEGER cannot hold is none that the sources could have.
    (CASE WHEN w.derivation_index <= 2147483647 THEN w.derivation_index END) AS derivation_index,
    w.address, w.role, w.is_active, strftime('%Y-%m-%d %H:%M:%S', w.last_used_at / 1000000, 'unixepoch') || printf('.%06d', w.last_used_at % 1000000) AS last_used_at
FROM operation_wallet_addresses w;

-- wallet_id is a user's wallet or one of the house; NULL for an address that is neither (change on Bitcoin).
CREATE VIEW sources_wallet_balances AS
SELECT COALESCE((SELECT printf('06000000-%04x-8000-8000-%012x', u.id >> 48, u.id & 281474976710655) FROM user_wallets u WHERE u.address = b.address),
        (SELECT printf('05000000-%04x-8000-8000-%012x', w.id >> 48, w.id & 281474976710655) FROM operation_wallet_addresses w
            WHERE w.chain_id = b.chain_id AND w.address = b.address)) AS wallet_id,
    printf('03000000-%04x-8000-8000-%012x', b.listing_id >> 48, b.listing_id & 281474976710655) AS asset_on_chain_id, b.on_chain_balance_raw,
    CASE WHEN b.on_chain_balance_raw LIKE '-%' THEN '-' ELSE '' END
        || CASE WHEN length(ltrim(b.on_chain_balance_raw, '-')) > k.decimals THEN substr(ltrim(b.on_chain_balance_raw, '-'), 1, length(ltrim(b.on_chain_balance_raw, '-')) - k.decimals) ELSE '0' END
        || CASE WHEN k.decimals > 0 THEN '.' || substr('0000000000000000000000000000000000000' || ltrim(b.on_chain_balance_raw, '-'), -k.decimals) ELSE '' END AS on_chain_balance_human, b.needs_gas, b.needs_consolidation
FROM wallet_balances b JOIN asset_on_chain k ON k.id = b.listing_id;

-- What the UUIDs above refer to.
CREATE VIEW sources_chains AS SELECT printf('01000000-%04x-8000-8000-%012x', id >> 48, id & 281474976710655) AS id, name FROM chains;
CREATE VIEW sources_assets AS SELECT printf('02000000-%04x-8000-8000-%012x', id >> 48, id & 281474976710655) AS id, symbol FROM assets;
CREATE VIEW sources_asset_on_chain AS
SELECT printf('03000000-%04x-8000-8000-%012x', id >> 48, id & 281474976710655) AS id, printf('02000000-%04x-8000-8000-%012x', asset_id >> 48,
    asset_id & 281474976710655) AS asset_id, printf('01000000-%04x-8000-8000-%012x', chain_id >> 48, chain_id & 281474976710655)
    AS chain_id, contract, decimals AS decimals
FROM asset_on_chain;
CREATE VIEW sources_gas_topup_rules AS SELECT printf('08000000-%04x-8000-8000-%012x', id >> 48, id & 281474976710655) AS id,
    printf('01000000-%04x-8000-8000-%012x', chain_id >> 48, chain_id & 281474976710655) AS chain_id, name, is_active FROM gas_topup_rules;
CREATE VIEW sources_consolidation_rules AS
SELECT printf('09000000-%04x-8000-8000-%012x', id >> 48, id & 281474976710655) AS id,
    printf('01000000-%04x-8000-8000-%012x', chain_id >> 48, chain_id & 281474976710655) AS chain_id, name, is_active FROM consolidation_rules;

-- What transactions of the last day have cost is found without those before (bursar treasury costs).
CREATE INDEX outbound_attempts_by_time ON outbound_attempts (created_at, slot_id) WHERE mined_height IS NOT NULL;
