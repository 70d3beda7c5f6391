-- How far the log of a signer went when it last answered one of ours. A signer whose log does not contain this head runs on an old copy: its
-- counters and slots are those of before, and it would allow the window again. So whoever asks sends the newest along.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

CREATE TABLE signer_heads (
    -- What the configuration calls the signer: signer.name.
    name TEXT NOT NULL PRIMARY KEY,
    -- The number of the log's newest entry. It only grows: a log does.
    entries INTEGER NOT NULL,
    -- The hash of the batch that this entry is in, and the signer's proof that it gave this head, as hexadecimal digits.
    hash TEXT NOT NULL,
    proof TEXT,
    updated_at INTEGER NOT NULL
) STRICT;
