-- The foundation: what can be owned, who owns it, and the journal that says why.
-- Times are microseconds since 1970 from the injected clock. Money is whole ledger units in an INTEGER.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.
-- STRICT: SQLite checks column types too. A BOOLEAN is an INTEGER of 0 or 1.

CREATE TABLE assets (
    id INTEGER PRIMARY KEY,
    -- The ticker, such as USDT.
    symbol TEXT NOT NULL CONSTRAINT assets_symbol UNIQUE,
    -- Decimals of the ledger unit. It fixes what every stored amount means, so it never changes in use.
    precision INTEGER NOT NULL CONSTRAINT assets_precision CHECK (precision BETWEEN 0 AND 18),
    -- active | suspended. Nothing is deleted.
    status TEXT NOT NULL CONSTRAINT assets_status CHECK (status IN ('active', 'suspended')),
    internal_transfer_enabled INTEGER NOT NULL CONSTRAINT assets_transfer_flag CHECK (internal_transfer_enabled IN (0, 1)),
    -- What one user may move between own accounts, in ledger units: at least, at most, and per day.
    min_transfer_amount INTEGER NOT NULL,
    max_transfer_amount INTEGER NOT NULL,
    daily_transfer_amount INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT assets_limits CHECK (0 < min_transfer_amount AND min_transfer_amount <= max_transfer_amount
        AND max_transfer_amount <= daily_transfer_amount)
) STRICT;

CREATE TABLE chains (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL CONSTRAINT chains_name UNIQUE,
    kind TEXT NOT NULL CONSTRAINT chains_kind CHECK (kind IN ('bitcoin', 'evm', 'tron')),
    -- Which network of that kind: an EVM chain id, or mainnet, testnet, regtest.
    network TEXT NOT NULL,
    -- Depth at which what a block pays is credited.
    confirmations INTEGER NOT NULL CONSTRAINT chains_confirmations CHECK (confirmations BETWEEN 1 AND 100000),
    status TEXT NOT NULL CONSTRAINT chains_status CHECK (status IN ('active', 'suspended')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE asset_on_chain (
    id INTEGER PRIMARY KEY,
    asset_id INTEGER NOT NULL REFERENCES assets (id),
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    -- The token's contract; NULL for the chain's own coin.
    contract TEXT,
    -- At least the asset's precision, so that every ledger amount has an exact form on the chain.
    decimals INTEGER NOT NULL CONSTRAINT asset_on_chain_decimals CHECK (decimals BETWEEN 0 AND 36),
    min_deposit_amount INTEGER NOT NULL CONSTRAINT asset_on_chain_min_deposit CHECK (min_deposit_amount > 0),
    status TEXT NOT NULL CONSTRAINT asset_on_chain_status CHECK (status IN ('active', 'suspended')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT asset_on_chain_pair UNIQUE (asset_id, chain_id)
) STRICT;

-- Who changed which setting, when and why (law 7).
CREATE TABLE setting_changes (
    id INTEGER PRIMARY KEY,
    -- Such as: asset USDT, chain bsc, USDT on bsc.
    entity TEXT NOT NULL,
    field TEXT NOT NULL,
    -- NULL where the entity was new.
    before_value TEXT,
    after_value TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

-- Positive ids are users' accounts, negative ones system accounts.
-- AUTOINCREMENT: without it SQLite would follow the negative ids with 0.
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The user's number; 0 is the house.
    owner INTEGER NOT NULL,
    -- funding, or a system kind such as fees or custody:bsc.
    kind TEXT NOT NULL,
    asset_id INTEGER NOT NULL REFERENCES assets (id),
    -- active | frozen (takes, does not give) | disabled (neither).
    status TEXT NOT NULL CONSTRAINT accounts_status CHECK (status IN ('active', 'frozen', 'disabled')),
    -- Money at rest, and money held for something. The code checks first; these are the last line.
    -- Always 0 for system accounts: they are never checked for overdraft, and one hot row per system account
    -- would make every writer queue. Their balance is a checkpoint plus the movements since.
    available INTEGER NOT NULL CONSTRAINT accounts_available_not_negative CHECK (available >= 0),
    frozen INTEGER NOT NULL CONSTRAINT accounts_frozen_not_negative CHECK (frozen >= 0),
    created_at INTEGER NOT NULL,
    -- CRC-32C of owner, kind and asset: an account that was given to somebody else by hand is found by name.
    checksum INTEGER NOT NULL,
    CONSTRAINT accounts_owner_kind_asset UNIQUE (owner, kind, asset_id),
    CONSTRAINT accounts_house_is_system CHECK ((id < 0) = (owner = 0) AND (id < 0) = (kind <> 'funding')),
    CONSTRAINT accounts_system_has_no_balance CHECK (id > 0 OR (available = 0 AND frozen = 0))
) STRICT;
CREATE INDEX accounts_by_asset ON accounts (asset_id, id);

-- Who froze, disabled or activated which account, and why. The key makes a replay harmless.
CREATE TABLE account_status_changes (
    -- The order in which they were made.
    id INTEGER PRIMARY KEY,
    op_key TEXT NOT NULL CONSTRAINT account_status_changes_key UNIQUE,
    account_id INTEGER NOT NULL,
    -- NULL where the change was refused because there is no such account.
    before_status TEXT,
    after_status TEXT NOT NULL,
    -- 0 applied, or the number of the refusal.
    outcome INTEGER NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX account_status_changes_account ON account_status_changes (account_id, id);

-- The journal. One row is one debit and one credit, so no row can be unbalanced. The rows of one operation share
-- its key. Rows are only ever added. Refused operations leave their rows too, so that a replay gets the same
-- answer. No foreign keys, as on PostgreSQL; the audit proves them.
CREATE TABLE movements (
    id INTEGER CONSTRAINT movements_pkey PRIMARY KEY,
    -- What makes the operation the same operation when it comes again.
    op_key TEXT NOT NULL,
    -- 0, 1, … within the operation.
    leg INTEGER NOT NULL,
    -- 1 post:    from.available -> to.available
    -- 2 hold:    available -> frozen of one account (from = to)
    -- 3 settle:  from.frozen -> to.available, ends hold_key
    -- 4 release: frozen -> available of one account (from = to), ends hold_key
    action INTEGER NOT NULL CONSTRAINT movements_action CHECK (action BETWEEN 1 AND 4),
    -- 0 applied, or the number of the refusal: then nothing moved.
    outcome INTEGER NOT NULL,
    from_account INTEGER NOT NULL,
    to_account INTEGER NOT NULL,
    asset_id INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    -- The key of the hold that a settle or release ends.
    hold_key TEXT,
    reference TEXT NOT NULL,
    at INTEGER NOT NULL,
    -- CRC-32C of the other columns but id: a row changed by hand is found by name.
    checksum INTEGER NOT NULL,
    CONSTRAINT movements_amount_positive CHECK (amount > 0 OR outcome <> 0),
    CONSTRAINT movements_hold_key_by_action CHECK ((action >= 3) = (hold_key IS NOT NULL))
) STRICT;
-- Exactly once (law 2).
CREATE UNIQUE INDEX movements_key ON movements (op_key, leg);
-- A hold ends at most once.
CREATE UNIQUE INDEX movements_hold_end ON movements (hold_key)
    WHERE hold_key IS NOT NULL AND outcome = 0 AND leg = 0;
-- A user's statement. System accounts are left out: they are in every row. The ends of holds are left out too: they
-- are found with their hold, by movements_hold_end.
-- SQLite adds the id by itself.
CREATE INDEX movements_from ON movements (from_account) WHERE from_account > 0 AND hold_key IS NULL;
CREATE INDEX movements_to ON movements (to_account) WHERE to_account > 0 AND to_account <> from_account;

-- Balances of the system accounts through a movement id below which nothing can appear any more.
CREATE TABLE checkpoints (
    through_movement INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    -- A whole number of ledger units as text: with many decimals the house may pass 64 bits.
    balance TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT checkpoints_pkey PRIMARY KEY (through_movement, account_id)
) STRICT;

-- How many movements there were through such an id, and the sum of their checksums, written with each checkpoint. A row
-- that is removed later is missed by the audit, also one that moved nothing.
CREATE TABLE journal_marks (
    through_movement INTEGER NOT NULL CONSTRAINT journal_marks_pkey PRIMARY KEY,
    movements INTEGER NOT NULL,
    checksums INTEGER NOT NULL,
    at INTEGER NOT NULL
) STRICT;
