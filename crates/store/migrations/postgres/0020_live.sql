-- What a worker asks for each payment is found among what is live, however long the history is (docs/adr/0013-deposits.md).
-- The SQLite folder has a file of the same name; the tables and columns are the same.

-- Most entries take nothing back. A unique index over all of them keeps every one of those under NULL, and a planner without statistics
-- takes `reverses IS NULL` for a row or two: the look-up of one payment then read all entries there are.
ALTER TABLE chain_entries DROP CONSTRAINT chain_entries_reverses;
CREATE UNIQUE INDEX chain_entries_reverses ON chain_entries (reverses) WHERE reverses IS NOT NULL;

-- By height: what a look and a booking ask of an address lies above a block. All that the hot wallet ever paid is below it.
DROP INDEX chain_entries_by_address;
CREATE INDEX chain_entries_by_address ON chain_entries (address, chain_id, listing_id, height, id);

-- The few deposits of which a look has found less than was logged, for the look that thinks better of them.
CREATE INDEX deposits_doubted ON deposits (address, chain_id, listing_id)
    WHERE reason = 'balance_differs' AND state IN ('detected', 'proven');

-- Deposits that are over are in no list by state. An index over all of them was written with every deposit, and again with every state, and
-- only the open ones were ever looked up in it.
DROP INDEX deposits_by_state;
DROP INDEX deposits_open;
CREATE INDEX deposits_open ON deposits (chain_id, state, height) WHERE state IN ('detected', 'proven', 'credited', 'unattributed');
