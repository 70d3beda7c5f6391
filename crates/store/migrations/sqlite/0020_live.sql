-- What a worker asks for each payment is found among what is live, however long the history is (docs/adr/0013-deposits.md).
-- The PostgreSQL folder has a file of the same name; the tables and columns are the same.

-- Most entries take nothing back. A unique index over all of them keeps every one of those under NULL, and a planner without statistics
-- takes `reverses IS NULL` for a row or two: the look-up of one payment then read all entries there are.
-- SQLite takes a constraint away only with its table, so the table is made again.
CREATE TABLE chain_entries_again (
    id INTEGER PRIMARY KEY,
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    -- The coin: an asset on this chain.
    listing_id INTEGER NOT NULL REFERENCES asset_on_chain (id),
    -- Which address of ours.
    address TEXT NOT NULL,
    height INTEGER NOT NULL,
    block_hash BLOB NOT NULL CONSTRAINT chain_entries_block CHECK (length(block_hash) = 32),
    -- NULL for what only a look at the balance has shown.
    tx_hash BLOB CONSTRAINT chain_entries_hash CHECK (length(tx_hash) = 32),
    -- value, output:N, input:N, log:N, internal:N, fee, balance: where in the transaction.
    place TEXT NOT NULL,
    -- 1 it came, -1 it left.
    side INTEGER NOT NULL CONSTRAINT chain_entries_side CHECK (side IN (1, -1)),
    -- Signed chain units, in decimal.
    amount_raw TEXT NOT NULL,
    cause TEXT NOT NULL CONSTRAINT chain_entries_cause CHECK (cause IN ('deposit', 'reverted', 'fee', 'payout', 'topup_in', 'topup_out',
        'sweep_in', 'sweep_out', 'change', 'unattributed_in', 'foreign_spend')),
    -- How often this change was in a block before.
    generation INTEGER NOT NULL CONSTRAINT chain_entries_generation CHECK (generation >= 0),
    -- The entry that this one takes back, because its block left the chain or the proof did not have it.
    reverses INTEGER,
    -- Whether its block is in the chain as far as we know. False for what was taken back, and for what takes back.
    alive INTEGER NOT NULL CONSTRAINT flag_alive CHECK (alive IN (0, 1)),
    -- 0 the ledger has yet to book it; 1 booked; 2 taken back before it was booked, so never; 3 more than the ledger can hold.
    posting INTEGER NOT NULL CONSTRAINT chain_entries_posting CHECK (posting BETWEEN 0 AND 3),
    -- It is booked when the block of this height is deep enough. 0 for what takes back: at once.
    due_height INTEGER NOT NULL,
    -- The node, or balance.
    source TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT chain_entries_reversal CHECK (reverses IS NULL OR NOT alive)
) STRICT;
INSERT INTO chain_entries_again (id, chain_id, listing_id, address, height, block_hash, tx_hash, place, side, amount_raw,
        cause, generation, reverses, alive, posting, due_height, source, at)
    SELECT id, chain_id, listing_id, address, height, block_hash, tx_hash, place, side, amount_raw,
        cause, generation, reverses, alive, posting, due_height, source, at FROM chain_entries;
DROP TABLE chain_entries;
ALTER TABLE chain_entries_again RENAME TO chain_entries;
CREATE UNIQUE INDEX chain_entries_reverses ON chain_entries (reverses) WHERE reverses IS NOT NULL;

-- As they were.
CREATE UNIQUE INDEX chain_entries_alive ON chain_entries (chain_id, tx_hash, place, side) WHERE alive AND tx_hash IS NOT NULL;
CREATE UNIQUE INDEX chain_entries_key ON chain_entries (chain_id, tx_hash, place, side, generation)
    WHERE reverses IS NULL AND tx_hash IS NOT NULL;
CREATE INDEX chain_entries_by_height ON chain_entries (chain_id, height) WHERE alive;
CREATE INDEX chain_entries_due ON chain_entries (chain_id, due_height, id) WHERE posting = 0;
CREATE INDEX chain_entries_looks ON chain_entries (chain_id, address, listing_id) WHERE alive AND place = 'balance';
CREATE TRIGGER trg_chain_entry_fixed AFTER UPDATE ON chain_entries
WHEN (OLD.id, OLD.chain_id, OLD.listing_id, OLD.address, OLD.height, OLD.block_hash, OLD.tx_hash, OLD.place,
        OLD.side, OLD.amount_raw, OLD.cause, OLD.generation, OLD.reverses)
    IS NOT (NEW.id, NEW.chain_id, NEW.listing_id, NEW.address, NEW.height, NEW.block_hash, NEW.tx_hash, NEW.place,
        NEW.side, NEW.amount_raw, NEW.cause, NEW.generation, NEW.reverses)
BEGIN SELECT RAISE(ABORT, 'trg_chain_entry_fixed'); END;
CREATE TRIGGER trg_chain_entry_kept AFTER DELETE ON chain_entries
BEGIN SELECT RAISE(ABORT, 'trg_chain_entry_kept'); END;

-- By height: what a look and a booking ask of an address lies above a block. All that the hot wallet ever paid is below it.
CREATE INDEX chain_entries_by_address ON chain_entries (address, chain_id, listing_id, height, id);

-- The few deposits of which a look has found less than was logged, for the look that thinks better of them.
CREATE INDEX deposits_doubted ON deposits (address, chain_id, listing_id)
    WHERE reason = 'balance_differs' AND state IN ('detected', 'proven');

-- SQLite does not see that one state is among several, so it never used this one: what is open is found by deposits_by_state.
DROP INDEX deposits_open;
