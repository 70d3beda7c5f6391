-- Assets whose transfers from SPOT to FUNDING are stopped: the engine and the books do not agree, or a person said so.
-- Every server reads this together with the rows that it locks, so all of them obey.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

CREATE TABLE transfer_stops (
    asset_id INTEGER NOT NULL,
    since INTEGER NOT NULL,
    -- A person's name, or bursar for the check that runs by itself.
    stopped_by TEXT NOT NULL,
    reason TEXT NOT NULL,
    -- Filled in when two people let it go on; until then the asset is stopped.
    resumed_at INTEGER,
    resumed_by TEXT,
    second TEXT,
    resume_reason TEXT,
    CONSTRAINT transfer_stops_pkey PRIMARY KEY (asset_id, since),
    CONSTRAINT transfer_stops_resumed CHECK ((resumed_at IS NULL) = (resumed_by IS NULL)
        AND (resumed_at IS NULL) = (second IS NULL) AND (resumed_at IS NULL) = (resume_reason IS NULL)),
    CONSTRAINT transfer_stops_people CHECK (resumed_by IS NULL OR resumed_by <> second)
) STRICT;
-- An asset is stopped once. It is also what is looked up with every batch, and is empty when all is well.
CREATE UNIQUE INDEX transfer_stops_active ON transfer_stops (asset_id) WHERE resumed_at IS NULL;
