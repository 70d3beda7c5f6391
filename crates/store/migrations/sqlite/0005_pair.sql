-- The spot engine that this database belongs to (docs/adr/0009-pair.md). Each side keeps the other's identity, and a
-- counter that the other has reached: a side that was restored from a backup is behind what the other knows of it.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

CREATE TABLE spot_pair (
    -- There is one row.
    id INTEGER NOT NULL CONSTRAINT spot_pair_pkey PRIMARY KEY CONSTRAINT spot_pair_one CHECK (id = 1),
    -- Who this database is: a random number that is never changed. A copy keeps it.
    database_id INTEGER NOT NULL CONSTRAINT spot_pair_database CHECK (database_id > 0),
    -- The id of the engine's log, 64 bits as they are; NULL until the first engine comes.
    engine_id INTEGER,
    -- The counter that was last told to the engine, or is about to be. It is committed before the engine hears it, so
    -- the engine never knows a higher one, unless this database was restored.
    told INTEGER NOT NULL CONSTRAINT spot_pair_told CHECK (told >= heard),
    -- The highest counter that the engine is known to have on its disk. The engine never knows a lower one, unless it
    -- was restored.
    heard INTEGER NOT NULL CONSTRAINT spot_pair_heard CHECK (heard >= 0),
    -- A batch that the engine is known to have on its disk.
    sequence INTEGER NOT NULL CONSTRAINT spot_pair_sequence CHECK (sequence >= 0)
) STRICT;
-- 53 bits of chance are plenty to tell databases apart; nothing secret rests on them.
INSERT INTO spot_pair (id, database_id, engine_id, told, heard, sequence)
VALUES (1, (random() & 9007199254740991) + 1, NULL, 0, 0, 0);

-- Every change of the pairing, by whom and why. Rows are only ever added.
CREATE TABLE spot_pair_events (
    id INTEGER NOT NULL CONSTRAINT spot_pair_events_pkey PRIMARY KEY,
    engine_id INTEGER NOT NULL,
    -- What the counters were set to.
    counter INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    actor TEXT NOT NULL,
    -- The second person. The first pairing has none: an empty database and an empty engine belong to nobody yet.
    second TEXT,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

-- Differences between the two that could not be mended, and that two people accepted as they are: the event with the same
-- time says who and why. They no longer count as signs of a backup that was put back. Rows are only ever added.
CREATE TABLE spot_pair_accepted (
    -- The id of the transfer, or of the operation at the engine that is no transfer.
    id INTEGER NOT NULL CONSTRAINT spot_pair_accepted_pkey PRIMARY KEY,
    problem TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
