-- Looks at what wallets have on their chain, in turn, and blocks that people want read again (docs/adr/0013-deposits.md).

-- The last wallet of a user that was looked at; the next look begins behind it.
ALTER TABLE chain_cursors ADD COLUMN looked_after BIGINT NOT NULL DEFAULT 0;
-- The blocks that are still to be read again. Both are NULL when there are none.
ALTER TABLE chain_cursors ADD COLUMN rescan_from BIGINT;
ALTER TABLE chain_cursors ADD COLUMN rescan_to BIGINT;

-- What earlier looks at a wallet have found.
CREATE INDEX chain_entries_looks ON chain_entries (chain_id, address, listing_id) WHERE alive AND place = 'balance';
