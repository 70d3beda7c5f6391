-- A fee that was quoted to a customer is good for a while, whatever the policy says meanwhile. A quote is no row: it names a version of the policy,
-- and versions are rows that nobody changes (docs/adr/0017-withdrawals.md).
-- The PostgreSQL folder has a file of the same name.

-- So long is the fee of this version good after it was quoted. 0: its fee is not quoted.
ALTER TABLE withdrawal_policies ADD COLUMN quote_life_us INTEGER NOT NULL DEFAULT 0
    CONSTRAINT withdrawal_policies_quote CHECK (quote_life_us BETWEEN 0 AND 86400000000);
