-- What the house does by itself with coins: rules, prices, hot wallets' bands, and the jobs that came of them (docs/adr/0015-treasury.md).
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

-- An address of a user gets gas when its balance of the chain's own coin meets the condition and something of it is to be swept.
CREATE TABLE gas_topup_rules (
    id INTEGER PRIMARY KEY,
    -- What the treasury file calls it.
    name TEXT NOT NULL CONSTRAINT gas_topup_rules_name UNIQUE,
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    -- The chain's own coin.
    listing_id INTEGER NOT NULL REFERENCES asset_on_chain (id),
    operator TEXT NOT NULL CONSTRAINT gas_topup_rules_operator CHECK (operator IN ('>', '>=', '<', '<=', '==', '!=')),
    -- In ledger units of the coin, as all amounts of rules and bands.
    threshold INTEGER NOT NULL CONSTRAINT gas_topup_rules_threshold CHECK (threshold >= 0),
    amount INTEGER NOT NULL CONSTRAINT gas_topup_rules_amount CHECK (amount > 0),
    -- The lowest goes first: of rules that match, and of their jobs.
    priority INTEGER NOT NULL,
    -- For one address, from the end of one job to the next.
    cool_down_s INTEGER NOT NULL CONSTRAINT gas_topup_rules_cool_down CHECK (cool_down_s >= 0),
    most_per_hour INTEGER NOT NULL CONSTRAINT gas_topup_rules_most CHECK (most_per_hour >= 0),
    is_active INTEGER NOT NULL CONSTRAINT gas_topup_rules_active_flag CHECK (is_active IN (0, 1)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- An address of a user is emptied of a coin when its balance meets the condition.
CREATE TABLE consolidation_rules (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL CONSTRAINT consolidation_rules_name UNIQUE,
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    listing_id INTEGER NOT NULL REFERENCES asset_on_chain (id),
    operator TEXT NOT NULL CONSTRAINT consolidation_rules_operator CHECK (operator IN ('>', '>=', '<', '<=', '==', '!=')),
    threshold INTEGER NOT NULL CONSTRAINT consolidation_rules_threshold CHECK (threshold >= 0),
    -- Hundredths of a percent of the value that it may cost. NULL: whatever it costs.
    most_cost_bps INTEGER CONSTRAINT consolidation_rules_cost CHECK (most_cost_bps BETWEEN 0 AND 10000),
    priority INTEGER NOT NULL,
    cool_down_s INTEGER NOT NULL CONSTRAINT consolidation_rules_cool_down CHECK (cool_down_s >= 0),
    most_per_hour INTEGER NOT NULL CONSTRAINT consolidation_rules_most CHECK (most_per_hour >= 0),
    is_active INTEGER NOT NULL CONSTRAINT consolidation_rules_active_flag CHECK (is_active IN (0, 1)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- What a hot wallet should have of a coin: filled up to the target below the floor, emptied down to it above the ceiling.
CREATE TABLE hot_bands (
    operation_wallet_address_id INTEGER NOT NULL REFERENCES operation_wallet_addresses (id),
    listing_id INTEGER NOT NULL REFERENCES asset_on_chain (id),
    floor_amount INTEGER NOT NULL,
    target_amount INTEGER NOT NULL,
    ceiling_amount INTEGER NOT NULL,
    is_active INTEGER NOT NULL CONSTRAINT hot_bands_active_flag CHECK (is_active IN (0, 1)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT hot_bands_order CHECK (0 <= floor_amount AND floor_amount <= target_amount AND target_amount <= ceiling_amount),
    CONSTRAINT hot_bands_pkey PRIMARY KEY (operation_wallet_address_id, listing_id)
) STRICT;

-- What a whole coin is worth, in millionths of a unit that all prices share. The newest counts; the others stay (law 7).
CREATE TABLE asset_prices (
    id INTEGER PRIMARY KEY,
    asset_id INTEGER NOT NULL REFERENCES assets (id),
    price_micros INTEGER NOT NULL CONSTRAINT asset_prices_price CHECK (price_micros > 0),
    actor TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX asset_prices_newest ON asset_prices (asset_id, id);

-- How far the rules of a chain were evaluated, and by whom. Every write names the fence: who was paused while another took over writes nothing.
CREATE TABLE rule_cursors (
    chain_id INTEGER NOT NULL CONSTRAINT rule_cursors_pkey PRIMARY KEY REFERENCES chains (id),
    worker TEXT NOT NULL,
    fence INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    -- All that changed in final blocks up to this one was evaluated; -1 nothing yet.
    evaluated_height INTEGER NOT NULL,
    -- A pass over all addresses has come as far as this one. NULL: none is under way.
    passed_address TEXT,
    -- When the last such pass ended. 0: one is due.
    passed_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- Why nothing is done about a coin that a rule matches, in one sentence. NULL: nothing is in the way.
ALTER TABLE wallet_balances ADD COLUMN waits TEXT;
-- Those that rules have something to do with. There are few of them beside all that have a balance.
CREATE INDEX wallet_balances_needy ON wallet_balances (chain_id, address) WHERE needs_gas OR needs_consolidation;

-- Jobs that rules and bands have made.
CREATE TABLE treasury_jobs (
    job_id INTEGER NOT NULL CONSTRAINT treasury_jobs_pkey PRIMARY KEY REFERENCES outbound_jobs (id),
    kind TEXT NOT NULL CONSTRAINT treasury_jobs_kind CHECK (kind IN ('gas_topup', 'consolidation', 'refill', 'surplus')),
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    -- The address that it is about: the one that gets gas, is emptied, or has the band.
    address TEXT NOT NULL,
    listing_id INTEGER NOT NULL REFERENCES asset_on_chain (id),
    -- 0, 1, … of this kind, coin and address. The next one is made by whoever knows how the one before has ended.
    generation INTEGER NOT NULL CONSTRAINT treasury_jobs_generation_range CHECK (generation >= 0),
    -- Of gas_topup_rules or consolidation_rules. NULL for bands.
    rule_id INTEGER,
    -- What it was expected to cost, in the chain's own coin.
    expected_cost_raw TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT treasury_jobs_generation UNIQUE (chain_id, address, listing_id, kind, generation)
) STRICT;
CREATE INDEX treasury_jobs_by_time ON treasury_jobs (chain_id, created_at);

CREATE TRIGGER trg_treasury_job_fixed_update AFTER UPDATE ON treasury_jobs
BEGIN SELECT RAISE(ABORT, 'trg_treasury_job_fixed'); END;
CREATE TRIGGER trg_treasury_job_fixed_delete AFTER DELETE ON treasury_jobs
BEGIN SELECT RAISE(ABORT, 'trg_treasury_job_fixed'); END;
CREATE TRIGGER trg_asset_price_fixed_update AFTER UPDATE ON asset_prices
BEGIN SELECT RAISE(ABORT, 'trg_asset_price_fixed'); END;
CREATE TRIGGER trg_asset_price_fixed_delete AFTER DELETE ON asset_prices
BEGIN SELECT RAISE(ABORT, 'trg_asset_price_fixed'); END;
