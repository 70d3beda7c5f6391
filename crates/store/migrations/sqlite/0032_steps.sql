-- What only goes one way, and what nobody but the database says.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

-- An entry that ends before the ledger has booked it is never booked (2). The database says so and not who ends it: the balance sync may end what an
-- earlier look has found, and has no right to say what is booked.
CREATE TRIGGER trg_chain_entry_ended AFTER UPDATE ON chain_entries
WHEN OLD.alive AND NOT NEW.alive AND OLD.posting = 0
BEGIN UPDATE chain_entries SET posting = 2 WHERE id = NEW.id; END;

-- The head of a signer's log only grows: whoever may keep one cannot put an older one, or another of the same length, in its place, so that a log that was
-- put back would pass.
CREATE TRIGGER trg_signer_head_grows AFTER UPDATE ON signer_heads
WHEN NEW.entries <= OLD.entries OR NEW.name <> OLD.name
BEGIN SELECT RAISE(ABORT, 'trg_signer_head_grows'); END;

-- A check is asked for with the withdrawal, before anybody may approve that, and has no answer when it comes: so whoever makes both rows cannot bring an
-- approved withdrawal past trg_withdrawal_checked, which looks at changes, nor an answer that nobody gave.
CREATE TRIGGER trg_withdrawal_check_first AFTER INSERT ON withdrawal_checks
WHEN NEW.state <> 'waiting' OR EXISTS (SELECT 1 FROM withdrawal_requests w
    WHERE w.id = NEW.withdrawal_id AND w.status IN ('approved', 'queued', 'completed'))
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_check_first'); END;

-- What came from other customers is listed by when it came, and not by when its sender has asked for it: else it would come in behind what was read.
DROP INDEX idx_withdrawal_requests_received;
CREATE INDEX idx_withdrawal_requests_received ON withdrawal_requests (payee_id, updated_at, id) WHERE payee_id IS NOT NULL;

-- A job is signed for in a slot of its own lane, which was given to it when it was made: whoever makes slots does not choose another wallet by that.
CREATE TRIGGER trg_outbound_slot_job_lane AFTER INSERT ON outbound_slot_jobs
WHEN NOT EXISTS (SELECT 1 FROM outbound_slots s JOIN outbound_jobs j ON j.lane_id = s.lane_id WHERE s.id = NEW.slot_id AND j.id = NEW.job_id)
BEGIN SELECT RAISE(ABORT, 'trg_outbound_slot_job_lane'); END;
