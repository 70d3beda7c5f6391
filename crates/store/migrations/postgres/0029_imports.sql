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
-- Of what was taken over and the other program has gone on with since: it may have been paid there, so two people look at it, whatever was wanted before.
-- Nothing else changes how many people have to agree.
DROP TRIGGER trg_withdrawal_fixed ON withdrawal_requests;
DROP TRIGGER trg_withdrawal_counted ON withdrawal_requests;
CREATE TRIGGER trg_withdrawal_fixed AFTER UPDATE ON withdrawal_requests
    FOR EACH ROW WHEN ((OLD.id, OLD.user_id, OLD.account_id, OLD.asset_id, OLD.chain_id, OLD.listing_id, OLD.client_order_id, OLD.to_address, OLD.amount, OLD.fee, OLD.most_fee, OLD.network_fee_raw, OLD.expires_at, OLD.policy_version, OLD.inputs, OLD.created_at)
        IS DISTINCT FROM (NEW.id, NEW.user_id, NEW.account_id, NEW.asset_id, NEW.chain_id, NEW.listing_id, NEW.client_order_id, NEW.to_address, NEW.amount, NEW.fee, NEW.most_fee, NEW.network_fee_raw, NEW.expires_at, NEW.policy_version, NEW.inputs, NEW.created_at)
        OR ((OLD.rule, OLD.people) IS DISTINCT FROM (NEW.rule, NEW.people) AND NOT (OLD.rule = 'imported' AND NEW.rule = 'imported_may_be_paid'
            AND NEW.people >= OLD.people AND NEW.people >= 2 AND (NEW.status = 'manual_review' OR (OLD.status = 'queued' AND NEW.status = 'queued')))))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trg_withdrawal_counted AFTER UPDATE ON withdrawal_requests
    FOR EACH ROW WHEN (NEW.version <> OLD.version + CASE WHEN OLD.status = NEW.status AND OLD.rule = NEW.rule THEN 0 ELSE 1 END
        OR NEW.jobs <> OLD.jobs + CASE WHEN OLD.status = 'approved' AND NEW.status = 'queued' THEN 1 ELSE 0 END
        OR (NEW.queued_at IS DISTINCT FROM OLD.queued_at AND NEW.jobs = OLD.jobs)
        OR (NEW.payee_id IS DISTINCT FROM OLD.payee_id AND NOT (OLD.payee_id IS NULL AND OLD.status = 'approved' AND NEW.status = 'completed'))
        OR (NEW.judged IS DISTINCT FROM OLD.judged AND NOT (OLD.judged IS NULL AND (OLD.status || '>' || NEW.status) IN ('manual_review>completed', 'manual_review>failed', 'completed>failed')))
        OR (OLD.wallet_group IS NOT NULL AND NEW.wallet_group IS DISTINCT FROM OLD.wallet_group))
    EXECUTE FUNCTION refuse_change();
