-- A nonce that the signer has signed for a job of which these rows do not say so.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

-- Of a slot on an EVM chain: the job (wr-… or job-…) that has its nonce by the signer's log, although no row says so: the signer's answer was lost and people have
-- judged the job, or the database is older than its signer. Of a slot that was to pay, nothing was signed for it, and nothing ever is: when two people let
-- the wallet go on, its nonce goes to another slot. Of a slot without jobs, the cancel of the slot names that job: its payment and the cancel have one nonce, so
-- at most one of them is mined.
ALTER TABLE outbound_slots ADD COLUMN holder TEXT;
