-- A transaction that was broadcast and that two people gave up: they have seen that it can never be mined, though nothing that is
-- stored proves it. It does not come back by itself, only when a node shows it. Who they were is in transaction_events.
-- The SQLite folder has a file of the same name with the same tables and columns; a test compares them.

ALTER TABLE transactions ADD COLUMN given_up BOOLEAN NOT NULL DEFAULT FALSE
    CONSTRAINT check_given_up CHECK (NOT given_up OR status IN ('replaced', 'failed'));
