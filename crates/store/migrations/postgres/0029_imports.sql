-- Withdrawals that another program has begun, and that are followed to their end here (docs/adr/0020-import-of-withdrawals.md).
-- The SQLite folder has a file of the same name with the same tables and columns; a test compares them.

-- Of a slot that another program has used: its transaction is known by its hash, and its bytes are not. It is never told, replaced or cancelled;
-- the chain alone says what became of it, and where it says nothing, people do.
ALTER TABLE outbound_slots ADD COLUMN imported BOOLEAN NOT NULL DEFAULT FALSE;

-- Which row of the other program became which withdrawal.
CREATE TABLE withdrawal_imports (
    -- The other program's id, as it writes it.
    old_id TEXT COLLATE "C" NOT NULL CONSTRAINT withdrawal_imports_pkey PRIMARY KEY
        CONSTRAINT withdrawal_imports_old_id CHECK (length(old_id) BETWEEN 1 AND 64),
    withdrawal_id BIGINT NOT NULL CONSTRAINT withdrawal_imports_request REFERENCES withdrawal_requests (id),
    chain_id BIGINT NOT NULL REFERENCES chains (id),
    -- As the row was when it was taken over. NULL: it had no hash.
    old_status TEXT NOT NULL,
    tx_hash BYTEA CONSTRAINT withdrawal_imports_hash CHECK (length(tx_hash) = 32),
    actor TEXT NOT NULL,
    at BIGINT NOT NULL,
    CONSTRAINT withdrawal_imports_once UNIQUE (withdrawal_id)
);
-- One payment pays one withdrawal.
CREATE UNIQUE INDEX withdrawal_imports_paid_by ON withdrawal_imports (chain_id, tx_hash) WHERE tx_hash IS NOT NULL;
CREATE TRIGGER trg_withdrawal_import_fixed AFTER UPDATE OR DELETE ON withdrawal_imports FOR EACH ROW EXECUTE FUNCTION refuse_change();
-- Whose payment it is does not change either.
CREATE TRIGGER trg_outbound_slot_imported AFTER UPDATE ON outbound_slots
    FOR EACH ROW WHEN (OLD.imported IS DISTINCT FROM NEW.imported) EXECUTE FUNCTION refuse_change();
