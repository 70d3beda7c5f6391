-- What the processes that follow the chain share, and what those that spend must know of them (docs/adr/0007-bitcoin-wallet.md).
-- The SQLite folder has a file of the same name with the same tables and columns; a test compares them.

CREATE TABLE utxo_followed (
    -- There is one row.
    id BIGINT NOT NULL CONSTRAINT utxo_followed_pkey PRIMARY KEY CONSTRAINT utxo_followed_one CHECK (id = 1),
    -- How many addresses were ever added. A follower that has seen another number shows the store the whole mempool again:
    -- what waits there may pay or spend from an address that it did not know before.
    addresses BIGINT NOT NULL CONSTRAINT utxo_followed_addresses CHECK (addresses >= 0),
    -- The next block of a rescan, which always goes on to the last block: a range that ended earlier would miss what the blocks
    -- above it have spent. NULL: there is none. While there is one, the outputs that it found are held by leases without an end.
    rescan_next BIGINT CONSTRAINT utxo_followed_rescan CHECK (rescan_next >= 0),
    -- Raised by followers, who write it down outside of this database after each commit. A database that was put back from a
    -- backup is behind what they wrote.
    mark BIGINT NOT NULL CONSTRAINT utxo_followed_mark CHECK (mark >= 0)
);
INSERT INTO utxo_followed (id, addresses, rescan_next, mark) VALUES (1, 0, NULL, 0);
