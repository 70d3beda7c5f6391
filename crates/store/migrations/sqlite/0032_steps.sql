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
