-- What only goes one way, and what nobody but the database says.
-- The SQLite folder has a file of the same name with the same tables and columns; a test compares them.

-- An entry that ends before the ledger has booked it is never booked (2). The database says so and not who ends it: the balance sync may end what an
-- earlier look has found, and has no right to say what is booked.
CREATE FUNCTION end_unbooked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.posting := 2;
    RETURN NEW;
END $$;
CREATE TRIGGER trg_chain_entry_ended BEFORE UPDATE ON chain_entries
    FOR EACH ROW WHEN (OLD.alive AND NOT NEW.alive AND OLD.posting = 0) EXECUTE FUNCTION end_unbooked();

-- The head of a signer's log only grows: whoever may keep one cannot put an older one, or another of the same length, in its place, so that a log that was
-- put back would pass.
CREATE TRIGGER trg_signer_head_grows AFTER UPDATE ON signer_heads
    FOR EACH ROW WHEN (NEW.entries <= OLD.entries OR NEW.name <> OLD.name) EXECUTE FUNCTION refuse_change();
