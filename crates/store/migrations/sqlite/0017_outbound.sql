-- Payments that leave: jobs, the slots that they are signed for, every transaction that was ever signed for them, and the lanes that they
-- go through (docs/adr/0014-outbound.md).
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

-- What may be spent on getting a payment through. NULL: as usual for chains of this kind (domain::outbound::OutboundLimits).
ALTER TABLE chains ADD COLUMN fee_price_cap INTEGER;
ALTER TABLE chains ADD COLUMN fee_cap TEXT;
ALTER TABLE chains ADD COLUMN in_flight INTEGER;
ALTER TABLE chains ADD COLUMN stuck_after_s INTEGER;

-- Why nothing is sent by the keys of a group until people look: coins left by a transaction that is none of ours. NULL: they send.
ALTER TABLE wallet_groups ADD COLUMN outbound_stopped TEXT;

-- A sending wallet on a chain. Whoever writes slots or attempts of it locks this row first.
CREATE TABLE outbound_lanes (
    id INTEGER PRIMARY KEY,
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    wallet_group_id INTEGER NOT NULL CONSTRAINT outbound_lanes_group REFERENCES wallet_groups (id),
    derivation_index INTEGER NOT NULL,
    -- An index: whoever sends from it derives it again.
    address TEXT NOT NULL,
    -- Every nonce below this one is a slot of ours, or was used before the lane was. NULL: not asked yet, or the chain has none.
    known_nonce INTEGER,
    -- Why nothing is sent from it until people look. NULL: it sends.
    stopped TEXT,
    updated_at INTEGER NOT NULL,
    CONSTRAINT outbound_lanes_address UNIQUE (chain_id, address)
) STRICT;

-- Who sends from a lane and who watches it, until when, and how often that changed. Every write names the number: who was paused while
-- another took over writes nothing.
CREATE TABLE outbound_leases (
    lane_id INTEGER NOT NULL CONSTRAINT outbound_leases_lane REFERENCES outbound_lanes (id),
    duty TEXT NOT NULL CONSTRAINT outbound_leases_duty CHECK (duty IN ('send', 'watch')),
    worker TEXT NOT NULL,
    fence INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    CONSTRAINT outbound_leases_pkey PRIMARY KEY (lane_id, duty)
) STRICT;

-- What one transaction can take on a chain and no other beside it: a nonce on EVM, a set of leased inputs on Bitcoin. TRON has none: there a
-- slot is one transaction, until its time is over.
CREATE TABLE outbound_slots (
    id INTEGER NOT NULL CONSTRAINT outbound_slots_pkey PRIMARY KEY,
    lane_id INTEGER NOT NULL CONSTRAINT outbound_slots_lane REFERENCES outbound_lanes (id),
    -- NULL where the chain has none.
    nonce INTEGER CONSTRAINT outbound_slots_nonce_range CHECK (nonce >= 0),
    -- The chain's height when it was opened: no block below holds a transaction of it.
    since_height INTEGER NOT NULL,
    -- open: one of its transactions may be mined, or leave the chain again. settled: by proof, none will and none can.
    -- released: nothing was ever signed for it.
    state TEXT NOT NULL CONSTRAINT outbound_slots_state CHECK (state IN ('open', 'settled', 'released')),
    -- Why it ended, or what is the matter with it.
    reason TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
-- Never twice: one nonce of a wallet is one slot, for ever.
CREATE UNIQUE INDEX outbound_slots_nonce ON outbound_slots (lane_id, nonce) WHERE state <> 'released' AND nonce IS NOT NULL;
CREATE INDEX outbound_slots_open ON outbound_slots (lane_id, id) WHERE state = 'open';

-- A payment to make. Its states are those of the sources.
CREATE TABLE outbound_jobs (
    id INTEGER NOT NULL CONSTRAINT outbound_jobs_pkey PRIMARY KEY,
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    -- Who pays: chosen when the job is made, and never changed.
    lane_id INTEGER NOT NULL CONSTRAINT outbound_jobs_lane REFERENCES outbound_lanes (id),
    listing_id INTEGER NOT NULL REFERENCES asset_on_chain (id),
    kind TEXT NOT NULL CONSTRAINT outbound_jobs_kind CHECK (kind IN ('withdrawal', 'refill', 'gas_topup', 'consolidation')),
    -- What it is for, in the words of whoever made it.
    reference TEXT NOT NULL CONSTRAINT outbound_jobs_reference_length CHECK (length(reference) BETWEEN 1 AND 128),
    to_address TEXT NOT NULL,
    -- Whose address that is, if it is one of ours: the signer derives it again. NULL: it is not ours.
    owner_group TEXT,
    owner_index INTEGER,
    -- Chain units, in decimal.
    amount_raw TEXT NOT NULL,
    -- The most that it may cost, in the chain's own coin.
    most_fee_raw TEXT NOT NULL,
    -- The lowest goes first.
    priority INTEGER NOT NULL,
    requester TEXT NOT NULL,
    -- No slot is taken for it after this time.
    expires_at INTEGER NOT NULL,
    state TEXT NOT NULL CONSTRAINT outbound_jobs_state CHECK (state IN ('queued', 'picked', 'building_tx', 'signing', 'broadcasting',
        'broadcasted', 'confirming', 'confirmed', 'failed_retryable', 'failed_final')),
    -- The number of its newest event.
    version INTEGER NOT NULL,
    -- How often it was tried without anything going out, or paid nothing.
    tries INTEGER NOT NULL,
    -- How many slots it has had, without those that were released.
    rounds INTEGER NOT NULL,
    -- The slot that it is in. NULL: none.
    slot_id INTEGER CONSTRAINT outbound_jobs_slot REFERENCES outbound_slots (id),
    -- People want it to end, or to offer more.
    give_up INTEGER NOT NULL CONSTRAINT outbound_jobs_give_up_flag CHECK (give_up IN (0, 1)),
    bump INTEGER NOT NULL CONSTRAINT outbound_jobs_bump_flag CHECK (bump IN (0, 1)),
    -- What two people have said of it that the chain does not say. NULL: nothing.
    judged TEXT,
    -- Why it is as it is, in one sentence.
    reason TEXT NOT NULL,
    -- It is not tried before.
    due_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT outbound_jobs_owner CHECK ((owner_group IS NULL) = (owner_index IS NULL)),
    -- What may be out is in a slot, and nothing else is.
    CONSTRAINT outbound_jobs_slotted CHECK ((slot_id IS NOT NULL)
        = (state IN ('signing', 'broadcasting', 'broadcasted', 'confirming', 'confirmed')))
) STRICT;
-- Exactly once: one job that pays for one thing. The sources' index of active jobs, with those that are confirming and confirmed.
CREATE UNIQUE INDEX outbound_jobs_reference ON outbound_jobs (kind, reference) WHERE state <> 'failed_final';
CREATE INDEX outbound_jobs_waiting ON outbound_jobs (lane_id, priority, id) WHERE state IN ('queued', 'failed_retryable');
CREATE INDEX outbound_jobs_by_slot ON outbound_jobs (slot_id) WHERE slot_id IS NOT NULL;
CREATE INDEX outbound_jobs_by_state ON outbound_jobs (state, id);

-- What happened to each, in order (law 7).
CREATE TABLE outbound_job_events (
    job_id INTEGER NOT NULL CONSTRAINT outbound_job_events_job REFERENCES outbound_jobs (id),
    -- 1, 2, … within the job.
    version INTEGER NOT NULL,
    -- The state that it came to.
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT outbound_job_events_pkey PRIMARY KEY (job_id, version)
) STRICT;

-- Which jobs a slot is for. One on EVM and TRON, none when it only fills a gap; all payouts of one transaction on Bitcoin.
CREATE TABLE outbound_slot_jobs (
    slot_id INTEGER NOT NULL CONSTRAINT outbound_slot_jobs_slot REFERENCES outbound_slots (id),
    job_id INTEGER NOT NULL CONSTRAINT outbound_slot_jobs_job REFERENCES outbound_jobs (id),
    -- 0 for the first slot in which something was signed, then one more. A slot that was released does not count: the signer knows nothing of it.
    round INTEGER NOT NULL,
    CONSTRAINT outbound_slot_jobs_pkey PRIMARY KEY (slot_id, job_id)
) STRICT;

CREATE INDEX outbound_slot_jobs_by_job ON outbound_slot_jobs (job_id, round);

-- Every transaction that was asked for in a slot: the first, each that offers more, a cancel. They stay for ever.
CREATE TABLE outbound_attempts (
    slot_id INTEGER NOT NULL CONSTRAINT outbound_attempts_slot REFERENCES outbound_slots (id),
    -- 1, 2, … within the slot.
    number INTEGER NOT NULL,
    -- pay: it pays the jobs of the slot. cancel: it only takes the slot.
    kind TEXT NOT NULL CONSTRAINT outbound_attempts_kind CHECK (kind IN ('pay', 'cancel')),
    -- The number under which a cancel is signed; a payment is signed under its job's. NULL for payments.
    cancel_id INTEGER,
    -- What was to be signed. It is written before the signer is asked.
    payload BLOB NOT NULL,
    -- What was signed, and its hash. Both are written before any node sees it.
    signed BLOB,
    tx_hash BLOB CONSTRAINT outbound_attempts_hash CHECK (length(tx_hash) = 32),
    -- Why the signer said no.
    refused TEXT,
    -- When all nodes were last told, and what they said to it, which proves nothing.
    told_at INTEGER,
    said TEXT,
    -- The block of a quorum that holds it, and what it did there.
    mined_height INTEGER,
    mined_block BLOB CONSTRAINT outbound_attempts_block CHECK (length(mined_block) = 32),
    paid TEXT CONSTRAINT outbound_attempts_paid CHECK (paid IN ('in_full', 'nothing', 'unclear')),
    fee_raw TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT outbound_attempts_pkey PRIMARY KEY (slot_id, number),
    CONSTRAINT outbound_attempts_signed CHECK ((signed IS NULL) = (tx_hash IS NULL)),
    CONSTRAINT outbound_attempts_cancelled CHECK ((cancel_id IS NULL) = (kind = 'pay')),
    CONSTRAINT outbound_attempts_told CHECK (told_at IS NULL OR signed IS NOT NULL),
    CONSTRAINT outbound_attempts_mined CHECK ((mined_height IS NULL) = (mined_block IS NULL)
        AND (mined_height IS NULL) = (paid IS NULL) AND (mined_height IS NULL OR signed IS NOT NULL))
) STRICT;
-- Whose a transaction is that a block has.
CREATE UNIQUE INDEX outbound_attempts_by_hash ON outbound_attempts (tx_hash, slot_id) WHERE tx_hash IS NOT NULL;
-- One transaction of a slot is in a block, and no more.
CREATE UNIQUE INDEX outbound_attempts_one_mined ON outbound_attempts (slot_id) WHERE mined_height IS NOT NULL;

-- What was signed stays as it was signed, and what it was for stays too.
CREATE TRIGGER trg_outbound_attempt_fixed AFTER UPDATE ON outbound_attempts
WHEN (OLD.slot_id, OLD.number, OLD.kind, OLD.cancel_id, OLD.payload) IS NOT
        (NEW.slot_id, NEW.number, NEW.kind, NEW.cancel_id, NEW.payload)
        OR (OLD.signed IS NOT NULL AND (OLD.signed, OLD.tx_hash) IS NOT (NEW.signed, NEW.tx_hash))
BEGIN SELECT RAISE(ABORT, 'trg_outbound_attempt_fixed'); END;
CREATE TRIGGER trg_outbound_attempt_kept AFTER DELETE ON outbound_attempts
BEGIN SELECT RAISE(ABORT, 'trg_outbound_attempt_kept'); END;
CREATE TRIGGER trg_outbound_slot_fixed AFTER UPDATE ON outbound_slots
WHEN (OLD.id, OLD.lane_id, OLD.nonce, OLD.since_height) IS NOT (NEW.id, NEW.lane_id, NEW.nonce, NEW.since_height)
        OR OLD.state <> 'open'
BEGIN SELECT RAISE(ABORT, 'trg_outbound_slot_fixed'); END;
CREATE TRIGGER trg_outbound_slot_kept AFTER DELETE ON outbound_slots
BEGIN SELECT RAISE(ABORT, 'trg_outbound_slot_kept'); END;
CREATE TRIGGER trg_outbound_job_fixed AFTER UPDATE ON outbound_jobs
WHEN (OLD.id, OLD.chain_id, OLD.lane_id, OLD.listing_id, OLD.kind, OLD.reference, OLD.to_address, OLD.amount_raw)
        IS NOT (NEW.id, NEW.chain_id, NEW.lane_id, NEW.listing_id, NEW.kind, NEW.reference, NEW.to_address, NEW.amount_raw)
BEGIN SELECT RAISE(ABORT, 'trg_outbound_job_fixed'); END;
CREATE TRIGGER trg_outbound_job_kept AFTER DELETE ON outbound_jobs
BEGIN SELECT RAISE(ABORT, 'trg_outbound_job_kept'); END;
CREATE TRIGGER trg_outbound_job_event_fixed_update AFTER UPDATE ON outbound_job_events
BEGIN SELECT RAISE(ABORT, 'trg_outbound_job_event_fixed'); END;
CREATE TRIGGER trg_outbound_job_event_fixed_delete AFTER DELETE ON outbound_job_events
BEGIN SELECT RAISE(ABORT, 'trg_outbound_job_event_fixed'); END;
CREATE TRIGGER trg_outbound_slot_job_fixed_update AFTER UPDATE ON outbound_slot_jobs
BEGIN SELECT RAISE(ABORT, 'trg_outbound_slot_job_fixed'); END;
CREATE TRIGGER trg_outbound_slot_job_fixed_delete AFTER DELETE ON outbound_slot_jobs
BEGIN SELECT RAISE(ABORT, 'trg_outbound_slot_job_fixed'); END;
CREATE TRIGGER trg_outbound_lane_fixed AFTER UPDATE ON outbound_lanes
WHEN (OLD.id, OLD.chain_id, OLD.wallet_group_id, OLD.derivation_index, OLD.address)
        IS NOT (NEW.id, NEW.chain_id, NEW.wallet_group_id, NEW.derivation_index, NEW.address)
BEGIN SELECT RAISE(ABORT, 'trg_outbound_lane_fixed'); END;
