-- A transaction that was broadcast and that two people gave up: they have seen that it can never be mined, though nothing that is
-- stored proves it. It does not come back by itself, only when a node shows it. Who they were is in transaction_events.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

ALTER TABLE transactions ADD COLUMN given_up INTEGER NOT NULL DEFAULT 0
    CONSTRAINT check_given_up CHECK (given_up = 0 OR (given_up = 1 AND status IN ('replaced', 'failed')));
