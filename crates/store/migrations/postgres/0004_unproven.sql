-- Transfers that two people ended although no record proves what the spot engine did with them. The money that is
-- uncertain is in the account suspense, and the audit counts these transfers as perhaps done at the engine, for ever.
-- The SQLite folder has a file of the same name with the same tables and columns; a test compares them.

CREATE TABLE unproven_transfers (
    -- A transfer ends once, so it is here at most once.
    transfer_id BIGINT NOT NULL CONSTRAINT unproven_transfers_pkey PRIMARY KEY,
    -- What the engine said when it was asked: why there is no proof.
    answer TEXT NOT NULL,
    -- Who did it and who agreed: two people.
    actor TEXT NOT NULL,
    second TEXT NOT NULL,
    reason TEXT NOT NULL,
    -- What they went by: a ticket, a copy of a log, a statement of the user.
    evidence TEXT NOT NULL,
    at BIGINT NOT NULL,
    CONSTRAINT unproven_transfers_people CHECK (actor <> second)
);
