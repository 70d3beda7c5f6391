-- Withdrawals that another program has begun, and that are followed to their end here (docs/adr/0020-import-of-withdrawals.md).
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

-- Of a slot that another program has used: its transaction is known by its hash, and its bytes are not. It is never told, replaced or cancelled;
-- the chain alone says what became of it, and where it says nothing, people do.
ALTER TABLE outbound_slots ADD COLUMN imported INTEGER NOT NULL DEFAULT 0 CONSTRAINT flag_imported CHECK (imported IN (0, 1));

-- Which row of the other program became which withdrawal.
CREATE TABLE withdrawal_imports (
    -- The other program's id, as it writes it.
    old_id TEXT NOT NULL CONSTRAINT withdrawal_imports_pkey PRIMARY KEY
        CONSTRAINT withdrawal_imports_old_id CHECK (length(old_id) BETWEEN 1 AND 64),
    withdrawal_id INTEGER NOT NULL CONSTRAINT withdrawal_imports_request REFERENCES withdrawal_requests (id),
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    -- As the row was when it was taken over. NULL: it had no hash.
    old_status TEXT NOT NULL,
    tx_hash BLOB CONSTRAINT withdrawal_imports_hash CHECK (length(tx_hash) = 32),
    actor TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT withdrawal_imports_once UNIQUE (withdrawal_id)
) STRICT;
-- One payment pays one withdrawal.
CREATE UNIQUE INDEX withdrawal_imports_paid_by ON withdrawal_imports (chain_id, tx_hash) WHERE tx_hash IS NOT NULL;
CREATE TRIGGER trg_withdrawal_import_fixed AFTER UPDATE ON withdrawal_imports
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_import_fixed'); END;
CREATE TRIGGER trg_withdrawal_import_kept AFTER DELETE ON withdrawal_imports
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_import_kept'); END;
-- Whose payment it is does not change either.
CREATE TRIGGER trg_outbound_slot_imported AFTER UPDATE ON outbound_slots WHEN OLD.imported IS NOT NEW.imported
BEGIN SELECT RAISE(ABORT, 'trg_outbound_slot_imported'); END;
