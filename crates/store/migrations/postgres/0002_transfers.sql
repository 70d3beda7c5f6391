-- Internal transfers: money on its way between a user's funding account (this ledger) and spot account (the engine).
-- The SQLite folder has a file of the same name with the same tables and columns; a test compares them.

CREATE TABLE transfers (
    -- A snowflake made by the server; shown as sr-<id>. The same number is the operation id at the remote leg.
    id BIGINT NOT NULL CONSTRAINT transfers_pkey PRIMARY KEY,
    user_id BIGINT NOT NULL CONSTRAINT transfers_user CHECK (user_id > 0),
    asset_id BIGINT NOT NULL,
    -- In ledger units.
    amount BIGINT NOT NULL CONSTRAINT transfers_amount_positive CHECK (amount > 0),
    -- 1 FUNDING to SPOT, 2 SPOT to FUNDING.
    direction BIGINT NOT NULL CONSTRAINT transfers_direction CHECK (direction IN (1, 2)),
    -- The user's funding account: it is fixed when the transfer is made, so that no later step has to look for it.
    funding_account BIGINT NOT NULL,
    --   0 INIT            accepted; the money is at its source
    --  10 SOURCE_PENDING  the source was, or will be, asked
    --  20 SOURCE_DONE     in flight
    --  30 TARGET_PENDING  the target was, or will be, asked
    --  40 COMMITTED       at its target; the end
    -- -10 FAILED          the source refused, nothing moved; the end
    -- -20 COMPENSATING    the target refused; the source was, or will be, asked to take it back
    -- -30 ROLLED_BACK     at its source again; the end
    state BIGINT NOT NULL CONSTRAINT transfers_state CHECK (state IN (0, 10, 20, 30, 40, -10, -20, -30)),
    -- The code of the refusal that ended it, or of the last trouble on its way.
    error TEXT,
    -- The client's own name for the request.
    client_order_id TEXT COLLATE "C",
    -- How often a leg was asked without a deciding answer.
    tries BIGINT NOT NULL,
    -- When somebody should look after it. Whoever takes it up moves this on first.
    due_at BIGINT NOT NULL,
    -- When somebody was told that it is stuck.
    alerted_at BIGINT,
    -- How many rows of transfer_events it has.
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT transfers_error_of_failure CHECK (state NOT IN (-10, -20, -30) OR error IS NOT NULL)
);
-- One request of a user under one name (law 2).
CREATE UNIQUE INDEX transfers_client_order ON transfers (user_id, client_order_id) WHERE client_order_id IS NOT NULL;
-- A user's list, newest first.
CREATE INDEX transfers_by_user ON transfers (user_id, id);
-- What the scanner looks for. It stays as small as what is on its way.
CREATE INDEX transfers_open ON transfers (due_at) WHERE state NOT IN (40, -10, -30);

-- The history: a row for each commit that moved the transfer or met new trouble, with the states that it passed and why.
-- Rows are only ever added.
CREATE TABLE transfer_events (
    transfer_id BIGINT NOT NULL,
    -- 1, 2, … within the transfer.
    version BIGINT NOT NULL,
    -- Such as INIT>SOURCE_PENDING>SOURCE_DONE>TARGET_PENDING. Begins where the row before it ends.
    path TEXT NOT NULL,
    reason TEXT NOT NULL,
    at BIGINT NOT NULL,
    CONSTRAINT transfer_events_pkey PRIMARY KEY (transfer_id, version)
);

-- What a user has moved on a day, as far as daily limits need it.
CREATE TABLE transfer_days (
    user_id BIGINT NOT NULL,
    -- Days since 1970, in UTC.
    day BIGINT NOT NULL,
    -- 0 counts the transfers of all assets; else an asset, with the sum that was moved.
    asset_id BIGINT NOT NULL,
    used BIGINT NOT NULL CONSTRAINT transfer_days_used CHECK (used >= 0),
    CONSTRAINT transfer_days_pkey PRIMARY KEY (user_id, day, asset_id)
) WITH (fillfactor = 50);

-- Who may make ids with which of the 1,024 node numbers, and until when.
CREATE TABLE nodes (
    number BIGINT NOT NULL CONSTRAINT nodes_pkey PRIMARY KEY
        CONSTRAINT nodes_number CHECK (number BETWEEN 0 AND 1023),
    -- A process that nobody else is: made anew at every start.
    holder TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
