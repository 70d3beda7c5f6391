-- Bitcoin: coins of users' addresses go home together. The job that brings them names them, because what it pays is all that they hold less the fee:
-- from users' addresses nothing comes back (docs/adr/0015-treasury.md).
-- The PostgreSQL folder has a file of the same name.

-- The coins that a job spends, all of them and no others. They are leased with the slot, not here: a job that ends without one frees nothing.
CREATE TABLE outbound_job_coins (
    job_id INTEGER NOT NULL CONSTRAINT outbound_job_coins_job REFERENCES outbound_jobs (id),
    tx_hash BLOB NOT NULL CONSTRAINT outbound_job_coins_hash CHECK (length(tx_hash) = 32),
    output_index INTEGER NOT NULL CONSTRAINT outbound_job_coins_index CHECK (output_index >= 0),
    CONSTRAINT outbound_job_coins_pkey PRIMARY KEY (job_id, tx_hash, output_index)
) STRICT;
-- What was decided on these coins stays decided: their sum is what the job pays and its fee.
CREATE TRIGGER trg_outbound_job_coin_fixed_update AFTER UPDATE ON outbound_job_coins
BEGIN SELECT RAISE(ABORT, 'trg_outbound_job_coin_fixed'); END;
CREATE TRIGGER trg_outbound_job_coin_fixed_delete AFTER DELETE ON outbound_job_coins
BEGIN SELECT RAISE(ABORT, 'trg_outbound_job_coin_fixed'); END;
