-- A completed request whose payment the chain took back, and that is not given back by itself, can be judged paid by two people: it stays completed, and nobody
-- is told of it again. Its money stays where it is. The other engine's folder has a file of the same name.
DROP TRIGGER trg_withdrawal_counted;
CREATE TRIGGER trg_withdrawal_counted AFTER UPDATE ON withdrawal_requests
WHEN NEW.version <> OLD.version + CASE WHEN OLD.status = NEW.status AND OLD.rule = NEW.rule AND OLD.judged IS NEW.judged THEN 0 ELSE 1 END
        OR NEW.jobs <> OLD.jobs + CASE WHEN OLD.status = 'approved' AND NEW.status = 'queued' THEN 1 ELSE 0 END
        OR (NEW.queued_at IS NOT OLD.queued_at AND NEW.jobs = OLD.jobs)
        OR (NEW.payee_id IS NOT OLD.payee_id AND NOT (OLD.payee_id IS NULL AND OLD.status = 'approved' AND NEW.status = 'completed'))
        OR (NEW.judged IS NOT OLD.judged AND NOT (OLD.judged IS NULL AND (OLD.status || '>' || NEW.status) IN ('manual_review>completed', 'manual_review>failed', 'completed>failed', 'completed>completed')))
        OR (OLD.wallet_group IS NOT NULL AND NEW.wallet_group IS NOT OLD.wallet_group)
BEGIN SELECT RAISE(ABORT, 'trg_withdrawal_counted'); END;
