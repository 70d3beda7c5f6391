-- What a payment costs the database (docs/performance.md): a job is written at each of its steps, and PostgreSQL writes every index of the
-- table again when a column changes that one of them names, be it only in its condition. So none names the state, which changes every time;
-- they name what follows from it and changes once.
-- The SQLite folder has a file of the same name.

ALTER TABLE outbound_jobs ADD COLUMN waiting BOOLEAN GENERATED ALWAYS AS (state IN ('queued', 'failed_retryable')) STORED;
ALTER TABLE outbound_jobs ADD COLUMN failed BOOLEAN GENERATED ALWAYS AS (state = 'failed_final') STORED;

-- Exactly once: one job that pays for one thing.
DROP INDEX outbound_jobs_reference;
CREATE UNIQUE INDEX outbound_jobs_reference ON outbound_jobs (kind, reference) WHERE NOT failed;

DROP INDEX outbound_jobs_waiting;
CREATE INDEX outbound_jobs_waiting ON outbound_jobs (chain_id, lane_id, priority, id, due_at) WHERE waiting;

-- Nothing reads by it any more.
DROP INDEX outbound_jobs_by_state;

-- The same rows by another condition. With the condition of outbound_attempts_one_mined, a planner that has not analysed the table yet takes it
-- for that one, and reads all of it for each slot.
DROP INDEX outbound_attempts_by_time;
CREATE INDEX outbound_attempts_by_time ON outbound_attempts (created_at, slot_id) WHERE paid IS NOT NULL;

-- Room for the next version of a row beside it, so that the indexes go on pointing where they do.
ALTER TABLE outbound_jobs SET (fillfactor = 60);
ALTER TABLE outbound_attempts SET (fillfactor = 70);
